"""Similarity of answers that are written anew, for a model that cannot score a given answer; and their sentences."""

from __future__ import annotations

import contextvars
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from c2fa.maskers._words import sentence_starts
from c2fa.structure import FloatArray

Similarity: TypeAlias = str | Callable[[str, str], float]


def starts_of(text: str, language: str) -> list[int]:
    """Where the sentences of a text begin; a blank line is no sentence, and the first sentence begins at 0."""
    cuts = sorted({0, *sentence_starts(text, language)})
    starts = [a for a, b in pairwise([*cuts, len(text)]) if text[a:b].strip()]
    return [0, *starts[1:]]


def sentences_of(text: str, starts: Sequence[int]) -> list[str]:
    return [text[a:b].strip() for a, b in pairwise([*starts, len(text)])]


def similarities(
    lm: Any, prompts: Sequence[str], answer: str, statements: Sequence[str], similarity: Similarity, language: str
) -> FloatArray:
    """Similarities of new answers, one to each prompt, to an answer and its statements: (prompts, 1 + statements).

    An error has the similarities so far as ``partial``.
    """

    def compare(text: str, written: str) -> float:
        if not callable(similarity):
            return _shared_words(text, written)
        score = float(similarity(text, written))
        if not 0.0 <= score <= 1.0:
            raise ValueError(f"similarity must give numbers from 0 to 1; got {score!r}")
        return score

    outputs = np.full((len(prompts), 1 + len(statements)), np.nan)
    try:
        for i, written in _written(lm, prompts):
            sentences = sentences_of(written, starts_of(written, language))
            outputs[i, 0] = compare(answer, written)
            for k, statement in enumerate(statements):
                outputs[i, 1 + k] = max((compare(statement, s) for s in sentences), default=0.0)
    except BaseException as error:
        error.partial = outputs  # type: ignore[attr-defined]
        raise
    return outputs


def _written(lm: Any, prompts: Sequence[str]) -> Iterator[tuple[int, str]]:
    """The model's answer to each prompt, as soon as it is there, from as many threads as the model allows."""
    threads = min(int(getattr(lm, "concurrency", 1) or 1), len(prompts))
    if threads == 1:
        yield from ((i, lm.generate(prompt)) for i, prompt in enumerate(prompts))
        return
    pool = ThreadPoolExecutor(threads, "c2fa-writing")
    ended = False
    try:
        # In the caller's context, where costs are charged.
        futures: list[Future[str]] = [
            pool.submit(contextvars.copy_context().run, lm.generate, prompt) for prompt in prompts
        ]
        failure: Exception | None = None
        for i, future in enumerate(futures):
            try:
                yield i, future.result()
            except Exception as error:  # answers to later prompts may be there, and paid for
                failure = failure or error
                pool.shutdown(wait=False, cancel_futures=True)
        ended = True
        if failure is not None:
            raise failure
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        if not ended and hasattr(lm, "close"):  # after Ctrl-C Python would wait for every request under way
            lm.close()


def _shared_words(answer: str, written: str) -> float:
    """The F1 score of two texts' words, counted as often as they occur.

    >>> _shared_words("Bern is the capital.", "the capital is Bern"), _shared_words("Bern", "")
    (1.0, 0.0)
    """
    one, other = (Counter(re.findall(r"\w+", text.casefold())) for text in (answer, written))
    words = one.total() + other.total()
    return 2.0 * (one & other).total() / words if words else float(answer == written)

"""Language models for the benchmark: one that remembers its rows, and one that lives in another process."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property
from hashlib import blake2b
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import numpy as np

from c2fa.citing import PROMPT

ROWS_AT_ONCE = 1024
_KEY = 12  # bytes by which a prompt is known
_UNIT = 512.0
_MESSAGE = "the message of the user"
_ALONE = [{"role": "user", "content": _MESSAGE}]
_THREADS = 2  # one prepares its rows while the other's are on the GPU


def message(documents: Mapping[str, str], query: str) -> str:
    """What ``cite`` says to the model with some of the documents."""
    context = "\n\n".join(text for text in documents.values() if text)
    return PROMPT.replace("{query}", query).replace("{context}", context)


class Remembering:
    """A language model for one answer that asks no row twice; what it knows can be kept in a file.

    Scores are rounded to 1/512 nat, so that they are the same from the file.
    """

    batch_size = ROWS_AT_ONCE

    def __init__(self, lm: Any, answer: str) -> None:
        self.lm, self.answer = lm, answer
        self.known: dict[bytes, Any] = {}
        self.calls = 0
        self.template = getattr(lm, "template", None)

    def generate(self, prompt: str) -> str:
        return self.answer

    @cached_property
    def _pieces(self) -> list[str]:
        return list(self.lm.pieces(self.answer))

    def pieces(self, answer: str) -> list[str]:
        self._refuse_other(answer)
        return self._pieces

    def score(self, prompts: Sequence[str], answer: str) -> Any:
        self._refuse_other(answer)
        keys = [blake2b(prompt.encode(), digest_size=_KEY).digest() for prompt in prompts]
        new = {key: prompt for key, prompt in zip(keys, prompts, strict=True) if key not in self.known}
        if new:
            self.calls += 1
            scores = np.asarray(self.lm.score(list(new.values()), answer))
            self.known.update(zip(new, np.clip(scores * _UNIT, -(2**15), 0).round().astype(np.int16), strict=True))
        return np.array([self.known[key] for key in keys]) / _UNIT

    def _refuse_other(self, answer: str) -> None:
        if answer != self.answer:
            raise ValueError(f"this model remembers rows of {self.answer!r}, not of {answer!r}")

    def prompt(self, documents: Mapping[str, str], query: str) -> str:
        """The whole prompt, as ``cite`` makes it."""
        text = message(documents, query)
        shown: str | None = None if self.template is None else self.template([{"role": "user", "content": text}])
        return shown or text

    def keep(self, path: Path) -> None:
        """Write all that is known to a file."""
        frame = [] if self.template is None else self.template(_ALONE).split(_MESSAGE)
        about = {"answer": self.answer, "pieces": self._pieces, "frame": frame}
        keys = np.frombuffer(b"".join(self.known), dtype=np.uint8).reshape(-1, _KEY)
        np.savez_compressed(path, about=json.dumps(about), keys=keys, scores=np.stack(list(self.known.values())))

    @classmethod
    def kept(cls, path: Path, lm: Any = None) -> Remembering:
        """What ``keep`` wrote; without a model behind it, a row that is not there is an error."""
        with np.load(path) as file:
            about, keys, scores = json.loads(str(file["about"])), file["keys"], file["scores"]
        found = cls(lm or _Kept(about["pieces"], about["frame"]), about["answer"])
        found.known = dict(zip(map(bytes, keys), scores, strict=True))
        return found


class Noting:
    """Stands for a language model to find out which rows it would be asked: it says the same to all of them."""

    batch_size = ROWS_AT_ONCE

    def __init__(self, lm: Remembering) -> None:
        self.lm, self.template = lm, lm.template
        self.prompts: list[str] = []

    def pieces(self, answer: str) -> list[str]:
        return self.lm.pieces(answer)

    def score(self, prompts: Sequence[str], answer: str) -> Any:
        self.prompts += prompts
        return np.full((len(prompts), len(self.pieces(answer))), -1.0)

    def prompt(self, documents: Mapping[str, str], query: str) -> str:
        return self.lm.prompt(documents, query)


class _Kept:
    """Stands for the model of rows that were kept."""

    def __init__(self, pieces: list[str], frame: list[str]) -> None:
        self._pieces, self.frame = pieces, frame
        self.template = self._template if frame else None

    def pieces(self, answer: str) -> list[str]:
        return self._pieces

    def score(self, prompts: Sequence[str], answer: str) -> Any:
        raise ValueError(f"{len(prompts)} rows were never asked; give --model to ask them")

    def _template(self, messages: Sequence[Mapping[str, str]]) -> str:
        return messages[-1]["content"].join(self.frame)


class _Elsewhere:
    """A worker's end: the language model is in the process that started it."""

    def __init__(self, pipe: Connection, has_template: bool) -> None:
        self.pipe = pipe
        self.template = self._template if has_template else None
        self._frame: list[str] | None = None

    def pieces(self, answer: str) -> list[str]:
        found: list[str] = self._ask("pieces", answer)
        return found

    def score(self, prompts: Sequence[str], answer: str) -> Any:
        return self._ask("score", prompts, answer)

    def _template(self, messages: Sequence[Mapping[str, str]]) -> str:
        if self._frame is None:  # asked once: what the chat format puts around a message is the same for all
            self._frame = str(self._ask("template", _ALONE)).split(_MESSAGE)
        before, after = self._frame
        return f"{before}{messages[-1]['content']}{after}"

    def _ask(self, name: str, *arguments: Any) -> Any:
        self.pipe.send((name, arguments))
        reply, error = self.pipe.recv()
        if error is not None:
            raise RuntimeError(error)
        return reply


def _work(pipe: Connection, has_model: bool, has_template: bool, function: Any) -> None:
    """A worker's life: tasks come and results go by the same pipe as its questions."""
    lm = _Elsewhere(pipe, has_template) if has_model else None
    with suppress(EOFError, KeyboardInterrupt):
        while (task := pipe.recv()) is not None:
            try:
                pipe.send(("done", function(lm, *task)))
            except Exception as error:
                pipe.send(("failed", f"{type(error).__name__}: {error}"))


def run_all(function: Any, tasks: Iterable[tuple[Any, ...]], lm: Any, workers: int, seconds: float) -> Iterator[Any]:
    """Yield ``function(lm, *task)`` of each task as it ends; no task is begun after so many seconds.

    The model stays here; workers do everything else, each with a task of its own, so that there are always rows for
    the model while others fit. None of them runs where ``workers`` is 0.
    """
    end = time.monotonic() + seconds
    left = iter(tasks)
    if not workers:
        for task in left:
            if time.monotonic() > end:
                return
            yield function(lm, *task)
        return
    context = get_context("spawn")
    has_template = getattr(lm, "template", None) is not None
    pipes: dict[Connection, Any] = {}
    answering = ThreadPoolExecutor(_THREADS)
    try:
        for _ in range(workers):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(theirs, lm is not None, has_template, function), daemon=True)
            process.start()
            theirs.close()
            pipes[ours] = process
        idle, busy = list(pipes), 0
        while True:
            while idle and time.monotonic() < end and (task := next(left, None)) is not None:
                idle.pop().send(task)
                busy += 1
            if not busy:
                return
            for pipe in wait([pipe for pipe in pipes if pipe not in idle]):
                try:
                    kind, content = pipe.recv()  # type: ignore[union-attr]
                except EOFError:
                    raise RuntimeError("a worker was killed; see that there is enough memory for it") from None
                if kind == "failed":
                    raise RuntimeError(f"a worker failed: {content}")
                if kind == "done":
                    idle.append(pipe)  # type: ignore[arg-type]
                    busy -= 1
                    yield content
                else:
                    answering.submit(_answer, pipe, lm, kind, content)
    finally:
        answering.shutdown(wait=False, cancel_futures=True)
        for pipe, process in pipes.items():
            with suppress(OSError):
                pipe.send(None)
            process.join(5)
            if process.is_alive():
                process.terminate()


def _answer(pipe: Any, lm: Any, name: str, arguments: tuple[Any, ...]) -> None:
    """Answer a worker, which says nothing until it has the reply."""
    try:
        reply = getattr(lm, name)(*arguments), None
    except Exception as error:
        reply = None, f"{type(error).__name__}: {error}"
    with suppress(OSError):  # the worker is gone, as whoever watches its pipe sees
        pipe.send(reply)


def write_answers(lm: Any, prompts: Sequence[str], tokens: int, batch: int = 64) -> list[str]:
    """The answers to prompts, greedily, many at a time where the model is one of ``transformers``.

    ``CausalLM.generate`` writes one answer at a time, which leaves a GPU idle.
    """
    if not hasattr(lm, "tokenizer"):
        return [lm.generate(prompt) for prompt in prompts]
    import torch

    tokenizer, model = lm.tokenizer, lm.model
    ends = lm._ends
    by_length = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    answers = [""] * len(prompts)
    for start in range(0, len(prompts), batch):
        index = by_length[start : start + batch]
        rows = tokenizer([prompts[i] for i in index], add_special_tokens=False)["input_ids"]
        width = max(map(len, rows))
        ids = torch.tensor([[ends[0]] * (width - len(row)) + row for row in rows], device=lm.device)
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows], device=lm.device)
        with torch.inference_mode():
            written = model.generate(
                ids,
                attention_mask=mask,
                max_new_tokens=tokens,
                do_sample=False,
                eos_token_id=ends,
                pad_token_id=ends[0],
            )
        for i, row in zip(index, written[:, width:].tolist(), strict=True):
            stop = next((k for k, token in enumerate(row) if token in ends), len(row))
            answers[i] = tokenizer.decode(row[:stop], skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return answers

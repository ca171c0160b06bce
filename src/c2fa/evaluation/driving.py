"""Many conversations about one input, with their questions packed into shared batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar, cast

import numpy as np

from c2fa.querying import Answer, Ask, BudgetError, Conversation, Model, Queries, converse, step
from c2fa.structure import BoolArray

T = TypeVar("T")


def together(
    conversations: Sequence[Conversation[T]],
    queries: Sequence[Queries],
    pool: Queries,
    model: Model,
    batch_size: int,
    place: Callable[[int], str],
) -> list[T | BudgetError]:
    """Drive all conversations side by side and return their results; one that refuses its budget returns why.

    In each round the rows that nobody knows yet are asked once, through the pool, whoever wants them.
    """
    results: list[T | BudgetError | None] = [None] * len(conversations)
    answers: dict[int, Answer | None] = dict.fromkeys(range(len(conversations)))
    try:
        while answers:
            asks: dict[int, Ask] = {}
            unknown: dict[int, dict[bytes, BoolArray]] = {}
            for i, answer in answers.items():
                try:
                    ask, result = step(conversations[i], answer)
                    if ask is None:
                        results[i] = cast(T, result)
                        continue
                    pending = queries[i].plan(ask)
                except BudgetError as error:
                    results[i] = error
                    continue
                except Exception as error:
                    error.add_note(f"this happened in {place(i)}")
                    raise
                asks[i] = ask
                rows = unknown.setdefault(pending.level, {})
                for (_, key), mask in zip(pending.keys, pending.masks, strict=True):
                    rows.setdefault(key, mask)
            for level, rows in unknown.items():
                if rows:
                    question = _once(Ask(level, np.array(list(rows.values()))))
                    converse(question, pool, model, batch_size=batch_size, progress=False)
            for i, ask in asks.items():
                queries[i].plan(ask)  # takes over from the pool what was just answered
            answers = {i: queries[i].answer(ask) for i, ask in asks.items()}
    finally:
        for conversation in conversations:
            conversation.close()
    return cast("list[T | BudgetError]", results)


def _once(ask: Ask) -> Conversation[None]:
    yield ask

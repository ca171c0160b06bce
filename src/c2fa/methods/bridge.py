"""From a library that calls a function to a conversation that yields questions.

Other libraries call the model themselves. Here they run in a thread of their own and call a function that hands
the masks over and waits; the conversation yields them as a question and hands the answer back. The two never run at
the same time, so the library's random numbers and warnings can be kept to its own turns.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np

from c2fa.asking.querying import Ask, BudgetError, Conversation
from c2fa.asking.replies import QueryError
from c2fa.masks import distinct, mask_keys
from c2fa.methods.base import Task
from c2fa.structure import BoolArray, FloatArray

T = TypeVar("T")
Play: TypeAlias = Callable[[BoolArray], FloatArray]
"""Leaf masks, (n, leaves), to the outputs that are to be explained, (n, columns)."""


class _StopError(BaseException):
    """Ends the library's thread; not an Exception, so that no library swallows it."""


@dataclass(frozen=True, eq=False)
class _Done(Generic[T]):
    result: T


@dataclass(frozen=True, eq=False)
class _Failed:
    error: BaseException


def bridge(task: Task, name: str, work: Callable[[Play], T]) -> Conversation[T]:
    """Run ``work(play)`` in a thread and yield what it asks; the same mask is asked once, the full one never.

    All rows of the budget, whatever their level, may be spent on leaf masks. A question beyond them is not asked:
    it ends the work with an error.
    """
    questions: SimpleQueue[BoolArray | _Done[T] | _Failed] = SimpleQueue()
    answers: SimpleQueue[FloatArray | None] = SimpleQueue()

    def play(masks: BoolArray) -> FloatArray:
        questions.put(np.asarray(masks, dtype=np.bool_))
        answer = answers.get()
        if answer is None:
            raise _StopError
        return answer

    def run() -> None:
        try:
            questions.put(_Done(work(play)))
        except BaseException as error:  # whatever ends it is raised again by the conversation
            questions.put(_Failed(error))

    s = task.structure
    full = mask_keys(np.ones((1, s.leaves), dtype=np.bool_))[0]
    known = {full: task.prediction[task.columns]}
    left = sum(task.budget)
    turn = _Turn(int(task.rng(2000).integers(2**32)))  # a stream away from the levels' streams
    thread = threading.Thread(target=run, name=f"c2fa {name}", daemon=True)
    finished = False
    try:
        with turn():
            thread.start()
            message = questions.get()
        while isinstance(message, np.ndarray):
            new, _ = distinct(message)
            new = new[[key not in known for key in mask_keys(new)]]
            if len(new) > left:
                raise BudgetError(f"{name} asked for {len(new)} more rows with {left} left; raise the budget")
            if len(new) and not task.allows_empty and not new.any(axis=1).all():
                raise ValueError(
                    f"{name} asks about the input with everything masked, which this masker does not allow; "
                    "use another method, or a masker that blanks out instead of removing"
                )
            if len(new):
                answer = yield Ask(s.depth - 1, new)
                if not answer.ok.all():
                    raise QueryError(
                        f"{(~answer.ok).sum()} of {len(new)} rows got no usable answer, and {name} cannot leave rows "
                        "out; repair the model, or use a method of this package"
                    )
                known.update(zip(mask_keys(new), answer.outputs[:, task.columns], strict=True))
                left -= len(new)
            reply = np.array([known[key] for key in mask_keys(message)])
            with turn():
                answers.put(reply)
                message = questions.get()
        finished = True
    finally:
        if not finished and thread.ident is not None:
            with turn():
                answers.put(None)
                thread.join()
    thread.join()
    if isinstance(message, _Failed):
        raise message.error
    return message.result


class _Turn:
    """The library's turn: global random numbers of its own, and silence.

    These libraries draw from numpy's and torch's global generators. Their state is put aside between turns, so
    that a seed gives the same answer whatever else draws, and nobody else's draws change.
    """

    def __init__(self, seed: int) -> None:
        self._numpy: Any = np.random.RandomState(seed).get_state()
        self._torch: Any = None
        self._seed = seed

    @contextmanager
    def __call__(self) -> Iterator[None]:
        torch: Any = sys.modules.get("torch")
        outer = np.random.get_state()  # noqa: NPY002 - the generator that the libraries use
        np.random.set_state(self._numpy)  # noqa: NPY002
        if torch is not None:
            outer_torch = torch.get_rng_state()
            if self._torch is None:
                torch.manual_seed(self._seed)
            else:
                torch.set_rng_state(self._torch)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield
        finally:
            self._numpy = np.random.get_state()  # noqa: NPY002
            np.random.set_state(outer)  # noqa: NPY002
            if torch is not None:
                self._torch = torch.get_rng_state()
                torch.set_rng_state(outer_torch)

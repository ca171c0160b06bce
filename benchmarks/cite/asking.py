"""Answers that a language model writes, and workers that ask it from other processes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any

_MESSAGE = "the message of the user"
_ALONE = [{"role": "user", "content": _MESSAGE}]
_THREADS = 2  # one prepares its rows while the other's are on the GPU


class _Elsewhere:
    """A worker's end: the language model is in the process that started it."""

    def __init__(self, pipe: Connection, has_template: bool) -> None:
        self.pipe = pipe
        self.template = self._template if has_template else None
        self._frame: list[str] | None = None

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


def write_answers(lm: Any, prompts: Sequence[str]) -> list[str]:
    """The answers to prompts, many at a time where the model can."""
    if hasattr(lm, "generate_many"):
        return list(lm.generate_many(prompts))
    return [lm.generate(prompt) for prompt in prompts]

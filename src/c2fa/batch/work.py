"""What one worker does: it loads the model once, and turns shards of inputs into files of the store."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from c2fa.batch.diary import Diary
from c2fa.batch.packing import Item, Outcome, Tally, packed
from c2fa.batch.recipe import settings_of
from c2fa.batch.records import Precision, Views
from c2fa.batch.sources import digest
from c2fa.batch.store import Store
from c2fa.explainer import Explainer
from c2fa.masking import fingerprint

_FIRST = 10.0  # the first call may take so many times the time limit: models load lazily
TIMED_OUT = 75


@dataclass(frozen=True, eq=False)
class Task:
    """A shard's number and its inputs."""

    number: int
    items: Sequence[Item]


@dataclass(frozen=True)
class Report:
    """What a finished shard took."""

    inputs: int = 0
    failed: int = 0
    rows: int = 0
    resent: int = 0
    recalled: int = 0
    calls: int = 0
    cost: float = 0.0
    seconds: float = 0.0

    def __add__(self, other: Report) -> Report:
        return Report(*(a + b for a, b in zip(_tuple(self), _tuple(other), strict=True)))


def _tuple(report: Report) -> tuple[Any, ...]:
    return tuple(getattr(report, name) for name in Report.__dataclass_fields__)


@dataclass(frozen=True, eq=False)
class MakeWorker:
    """Everything a worker needs, ready to travel; calling it loads the model and gives the worker."""

    make: Callable[[], Explainer]
    store: str
    shard_size: int
    batch_size: int | None = None
    tries: int = 3
    timeout: float | None = None
    patience: float = 60.0
    in_flight: int = 1
    precision: Precision = "float32"
    views: Views = "auto"
    settings: Mapping[str, Any] | None = None

    def __call__(self) -> Worker:
        explainer = self.make()
        if not isinstance(explainer, Explainer):
            raise TypeError(f"the factory must return a c2fa.Explainer; it returned {type(explainer).__name__}")
        settings = full_settings(explainer, self.shard_size, self.precision)
        if self.settings is not None:
            settings = dict(self.settings)
        else:
            Store(self.store).check(settings)
        return Worker(self, explainer, settings)


def full_settings(explainer: Explainer, shard_size: int, precision: Precision) -> dict[str, Any]:
    """The settings that a store is bound to."""
    return {**settings_of(explainer), "shard_size": shard_size, "precision": precision}


@dataclass(eq=False)
class Worker:
    """Explains one shard after another with one explainer."""

    made: MakeWorker
    explainer: Explainer
    settings: Mapping[str, Any]
    _watchdog: Watchdog | None = field(default=None, repr=False)

    def __call__(self, task: Task) -> Report:
        """Explain a shard's inputs and write its file; a shard that is finished is left as it is."""
        begin = time.monotonic()
        store = Store(self.made.store)
        if store.file(task.number).exists():
            return Report()
        store.path.mkdir(parents=True, exist_ok=True)
        tally = Tally()
        inputs = digest(task.items)
        name = f"_part-{task.number:08d}-{fingerprint(dict(self.settings), inputs)[:8]}"
        with Diary(store.path / f"{name}.diary") as diary:
            outcomes = self._explain(task, diary, tally)
            store.write(
                task.number,
                outcomes,
                self.settings,
                digest=inputs,
                precision=self.made.precision,
                views=self.made.views,
            )
            diary.remove()
        return Report(
            inputs=len(outcomes),
            failed=sum(o.explanation is None for o in outcomes),
            rows=tally.rows,
            resent=tally.resent,
            recalled=tally.recalled,
            calls=tally.calls,
            cost=tally.cost,
            seconds=time.monotonic() - begin,
        )

    def _explain(self, task: Task, diary: Diary, tally: Tally) -> list[Outcome]:
        model = self.explainer.model
        if self.made.timeout is not None:
            self._watchdog = self._watchdog or Watchdog(self.explainer.model, self.made.timeout)
            self._watchdog.diary = diary
            model = self._watchdog
        outcomes: list[Outcome] = []
        plan = diary.plan(len(task.items), self.made.tries)
        for start, stop in plan:
            if stop is None:
                item = task.items[start]
                outcomes.append(Outcome(item.index, item.key, None, diary.verdict(start)))
                continue
            kept = diary.recall(start, stop)
            if kept is not None:
                outcomes += kept
                continue
            diary.begin(start, stop)
            done = packed(
                self.explainer,
                task.items[start:stop],
                batch_size=self.made.batch_size,
                tries=self.made.tries,
                patience=self.made.patience,
                in_flight=self.made.in_flight,
                model=model,
                tally=tally,
            )
            outcomes += done if len(plan) == 1 else diary.keep(start, stop, list(done))
        return outcomes


class Watchdog:
    """A model with a time limit: nothing else ends a call that hangs, so the process ends with it."""

    def __init__(self, model: Callable[[Any], Any], timeout: float) -> None:
        self.model, self.timeout = model, timeout
        self.diary: Diary | None = None
        self._deadlines: dict[int, float] = {}  # of each thread that is calling
        self._first = True
        threading.Thread(target=self._watch, name="c2fa-watchdog", daemon=True).start()

    @property
    def cost(self) -> Any:
        """What the model has cost so far, where it says so."""
        return getattr(self.model, "cost", None)

    def __call__(self, batch: Any) -> Any:
        here = threading.get_ident()
        self._deadlines[here] = time.monotonic() + self.timeout * (_FIRST if self._first else 1.0)
        try:
            return self.model(batch)
        finally:
            del self._deadlines[here]
            self._first = False

    def _watch(self) -> None:
        while True:
            time.sleep(min(self.timeout / 10, 0.5))
            if time.monotonic() > min([*self._deadlines.values()], default=float("inf")):
                if self.diary is not None:
                    with contextlib.suppress(OSError, ValueError):
                        self.diary.note({"why": f"the model gave no answer within {self.timeout:g} s"})
                os._exit(TIMED_OUT)

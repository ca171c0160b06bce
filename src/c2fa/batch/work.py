"""What one worker does: it loads the model once, and turns shards of inputs into files of the store."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from c2fa.batch.packing import Item, Outcome, Tally, packed
from c2fa.batch.recipe import settings_of
from c2fa.batch.records import Precision, Views
from c2fa.batch.sources import digest
from c2fa.batch.store import Store
from c2fa.explainer import Explainer

_SPLIT = 8  # a range in which a worker died is tried again in this many pieces
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
        with Diary(store.path / f"_part-{task.number:08d}.diary") as diary:
            outcomes = self._explain(task, diary, tally)
            store.write(
                task.number,
                outcomes,
                self.settings,
                digest=digest(task.items),
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
        for start, stop in diary.plan(len(task.items), self.made.tries):
            if stop is None:
                item = task.items[start]
                outcomes.append(Outcome(item.index, item.key, None, diary.verdict(start)))
                continue
            diary.begin(start, stop)
            outcomes += packed(
                self.explainer,
                task.items[start:stop],
                batch_size=self.made.batch_size or getattr(self.explainer.model, "batch_size", None),
                tries=self.made.tries,
                patience=self.made.patience,
                model=model,
                tally=tally,
            )
        return outcomes


class Diary:
    """A side file that says which inputs a worker is at, so that the next one knows where the last one died.

    A shard begins as one range. Where a worker died, the range is tried again in smaller pieces, down to the
    single input that kills; that one is set aside after the stated number of deaths. No engine needs to know.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: Any = None
        self._lines: list[dict[str, Any]] = []
        with contextlib.suppress(FileNotFoundError):
            for line in path.read_text(encoding="utf-8").splitlines():
                with contextlib.suppress(ValueError):  # a line that a dying worker wrote half
                    self._lines.append(json.loads(line))

    def __enter__(self) -> Diary:
        self._file = self.path.open("a", encoding="utf-8")
        self._file.write("\n")  # the last line may be half a line
        self.note({"life": os.getpid()})
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if kind is not None:  # it failed in an orderly way: no one died in the last range
            with contextlib.suppress(OSError):
                self.note({"over": True})
        self._file.close()

    def note(self, line: Mapping[str, Any]) -> None:
        """Write a line at once, so that it is there whatever happens next."""
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()

    def begin(self, start: int, stop: int) -> None:
        """Say which inputs are tried next."""
        self.note({"try": [start, stop]})

    def remove(self) -> None:
        """The shard is written: forget its history."""
        self.path.unlink(missing_ok=True)

    def deaths(self) -> dict[tuple[int, int], list[str]]:
        """For each range that a worker did not survive, the reasons, one for each death.

        A worker that goes from one range to the next has survived the first, so only the last range of a life counts.
        """
        found: dict[tuple[int, int], list[str]] = {}
        current: tuple[int, int] | None = None
        why = "the worker died"
        for line in [*self._lines, {"life": os.getpid()}]:
            if "why" in line:
                why = str(line["why"])
            elif "over" in line:
                current = None
            elif "try" in line:
                start, stop = line["try"]
                current = (start, stop)
            elif "life" in line:
                if current is not None:
                    found.setdefault(current, []).append(why)
                current, why = None, "the worker died"
        return found

    def plan(self, count: int, tries: int) -> list[tuple[int, int | None]]:
        """The ranges to try, in order; (i, None) stands for an input that is to be set aside."""
        deaths = self.deaths()
        ranges: list[tuple[int, int | None]] = []

        def cut(start: int, stop: int) -> None:
            died = len(deaths.get((start, stop), ()))
            if stop - start == 1 and died >= tries:
                ranges.append((start, None))
            elif died and stop - start > 1:
                size = -(-(stop - start) // _SPLIT)
                for at in range(start, stop, size):
                    cut(at, min(at + size, stop))
            else:
                ranges.append((start, stop))

        cut(0, count)
        return ranges

    def verdict(self, index: int) -> str:
        """Why an input is set aside."""
        reasons = self.deaths()[index, index + 1]
        return f"{reasons[-1]} while this input was explained alone ({len(reasons)} times)"


class Watchdog:
    """A model with a time limit: nothing else ends a call that hangs, so the process ends with it."""

    def __init__(self, model: Callable[[Any], Any], timeout: float) -> None:
        self.model, self.timeout = model, timeout
        self.diary: Diary | None = None
        self._deadline: float | None = None
        self._first = True
        threading.Thread(target=self._watch, name="c2fa-watchdog", daemon=True).start()

    @property
    def cost(self) -> Any:
        """What the model has cost so far, where it says so."""
        return getattr(self.model, "cost", None)

    def __call__(self, batch: Any) -> Any:
        self._deadline = time.monotonic() + self.timeout * (_FIRST if self._first else 1.0)
        try:
            return self.model(batch)
        finally:
            self._deadline = None
            self._first = False

    def _watch(self) -> None:
        while True:
            time.sleep(min(self.timeout / 10, 0.5))
            deadline = self._deadline
            if deadline is not None and time.monotonic() > deadline:
                if self.diary is not None:
                    with contextlib.suppress(OSError, ValueError):
                        self.diary.note({"why": f"the model gave no answer within {self.timeout:g} s"})
                os._exit(TIMED_OUT)

"""Many inputs at once: their rows packed into the same batches of the model, and bad inputs kept from the others.

A review may need 200 rows and a GPU want 1,024 at a time. The masks are those of explaining one by one, and so are the
answers of a model that answers a row the same way in every batch.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any
from weakref import WeakValueDictionary

from c2fa.driver import AskModel, Job, Received, Share, drive
from c2fa.explainer import Explainer
from c2fa.explanation import Explanation
from c2fa.fingerprint import Identity
from c2fa.model import Model
from c2fa.querying import BudgetError, Cache, Failed, QueryError
from c2fa.structure import FloatArray

_AHEAD = 4  # open as many inputs as can still fill this many batches
_UNANSWERED = 10  # so many inputs failing before the first answer is the model's fault


class ModelDownError(RuntimeError):
    """The model answers nothing any more, not even rows that it answered before; no input is to blame."""


class Unreadable(str):
    """Stands in the place of an input that could not be read; it says why."""

    __slots__ = ()


@dataclass(frozen=True, eq=False)
class Item:
    """An input to be explained: its position in the dataset, and a name for people and for the ledger."""

    index: int
    x: Any
    key: str | None = None


@dataclass(frozen=True, eq=False)
class Outcome:
    """What became of one input: an explanation, or why there is none."""

    index: int
    key: str | None
    explanation: Explanation | None
    error: str | None = None


@dataclass
class Report:
    """What explaining inputs took: rows that got an answer, rows sent again, rows recalled, calls, cost and time."""

    inputs: int = 0
    failed: int = 0
    rows: int = 0
    resent: int = 0
    recalled: int = 0
    calls: int = 0
    cost: float = 0.0
    seconds: float = 0.0

    def __add__(self, other: Report) -> Report:
        return Report(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(Report)})


def packed(
    explainer: Explainer,
    items: Iterable[Item],
    *,
    batch_size: int | None = None,
    in_flight: int = 1,
    model: Model | None = None,
    isolation: Isolation | None = None,
) -> Iterator[Outcome]:
    """Explain inputs with their rows packed into shared batches; yield each as soon as it is done.

    An input that fails, or that makes the model fail, is set aside with its error and the others go on.

    Parameters
    ----------
    items
        The inputs, read as they are needed: memory does not depend on how many there are.
    batch_size
        Rows sent to the model at a time; the explainer's own where it is None.
    in_flight
        Batches sent at the same time, each from a thread of its own: for models that wait for something else than
        this machine's cores.
    model
        What to call instead of the explainer's model, for instance a model with a time limit around it.
    isolation
        What to do when the model raises, and where to count what was sent; one for all calls of a run.

    Examples
    --------
    >>> import c2fa
    >>> s = c2fa.Structure.from_groups("aab")
    >>> explainer = c2fa.Explainer(lambda batch: batch.sum(axis=1), c2fa.maskers.Array(s), budget=9)
    >>> items = [Item(0, [1.0, 2.0, 3.0]), Item(1, "not a vector"), Item(2, [0.0, 0.0, 1.0])]
    >>> [(o.index, o.error is None) for o in sorted(packed(explainer, items), key=lambda o: o.index)]
    [(0, True), (1, False), (2, True)]
    """
    size = explainer.batch_size if batch_size is None else batch_size
    for name, value in (("batch_size", size), ("in_flight", in_flight)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, not {value!r}")
    isolation = Isolation() if isolation is None else isolation
    unusable: list[Outcome] = []
    driven = drive(
        _jobs(explainer, items, unusable),
        model or explainer.model,
        batch_size=size,
        ahead=(_AHEAD + in_flight - 1) * size,
        in_flight=in_flight,
        policy=isolation,
    )
    for job in driven:
        yield from unusable
        unusable.clear()
        isolation.report.recalled += job.queries.recalled
        isolation.report.cost += job.queries.cost
        if job.error is not None:
            yield _set_aside(job.about, job.error)
        else:
            yield Outcome(job.about.index, job.about.key, job.result())
    yield from unusable


def _jobs(explainer: Explainer, items: Iterable[Item], unusable: list[Outcome]) -> Iterator[Job[Explanation]]:
    """A job for each input that the masker takes; the others are listed. Equal inputs share their answers."""
    caches: WeakValueDictionary[Identity, Cache] = WeakValueDictionary()
    for item in items:
        try:
            if isinstance(item.x, Unreadable):
                raise ValueError(item.x)
            masked = explainer.masker(item.x)
            queries = explainer.queries(item.x, masked, item.key)
        except Exception as error:  # a stranger's masker may raise anything
            unusable.append(_set_aside(item, error))
            continue
        if queries.identity.number:  # else nothing tells it from other inputs
            queries.cache = caches.setdefault(queries.identity, queries.cache)
        yield Job(explainer.conversation(masked, queries), queries, item)


def _set_aside(item: Item, error: Exception) -> Outcome:
    plain = isinstance(error, QueryError | BudgetError | ValueError | TypeError)
    return Outcome(item.index, item.key, None, str(error) if plain and str(error) else _words(error))


def _words(error: BaseException) -> str:
    """An error in one line: its kind and what it says."""
    return f"{type(error).__name__}: {error}"


@dataclass(eq=False)
class Health:
    """What is known of a model: a row that it answered once, and how many inputs it failed for before.

    Parameters
    ----------
    patience
        Seconds to wait for a model that no longer answers even what it answered before, until ``ModelDownError``.
    canary
        The first row that was answered; a model that fails on it is down, whatever else it is asked.
    unanswered
        Inputs that failed before any was answered.
    """

    patience: float = 60.0
    canary: Share | None = field(default=None, repr=False)
    unanswered: int = 0

    def answered(self, share: Share) -> None:
        """Keep the first row ever answered as the canary."""
        if self.canary is None:
            self.canary = Share(share.job, share.rows[:1], share.inputs[:1])

    def failed(self, error: BaseException) -> None:
        """An input is blamed: stop where none was ever answered, for then it is the model that fails."""
        if self.canary is not None:
            return
        self.unanswered += 1
        if self.unanswered >= _UNANSWERED:
            raise ModelDownError(
                f"the model failed for each of the first {self.unanswered} inputs (last: {_words(error)}); try it on "
                "one input, then run the same command again"
            )

    def is_down(self, ask: AskModel) -> bool:
        """Whether the model fails on a row that it answered before."""
        if self.canary is None:
            return False
        try:
            ask([self.canary])
        except Exception:
            return True
        return False

    def wait(self, deadline: float, error: BaseException, ask: AskModel) -> None:
        """Wait until the model answers again."""
        pause = 0.25
        while True:
            if time.monotonic() + pause > deadline:
                raise ModelDownError(
                    f"the model no longer answers, not even rows that it answered before, for {self.patience:g} s "
                    f"({_words(error)}); see that it runs, then run the same command again"
                )
            time.sleep(pause)
            if not self.is_down(ask):
                return
            pause = min(pause * 2, 5.0)


@dataclass(eq=False)
class Isolation:
    """Finds the input that makes the model fail, and tells it from a model that is down.

    The rows of each input of a failed batch are sent alone. An input that fails alone is to blame only if the model
    still answers the canary, a row that it answered before; otherwise the model is down, and is waited for.

    Parameters
    ----------
    tries
        How often the rows of one input are sent by themselves, when the model raises, before it is set aside.
    health
        What is known of the model, from all inputs that it was asked about.
    report
        Where to count what was sent.
    """

    tries: int = 3
    health: Health = field(default_factory=Health)
    report: Report = field(default_factory=Report)

    def __post_init__(self) -> None:
        if self.tries < 1:
            raise ValueError(f"tries must be at least 1, not {self.tries!r}")

    def answered(self, batch: Sequence[Share]) -> None:
        """Count a batch."""
        self.report.rows += sum(len(share.rows) for share in batch)
        self.report.calls += 1
        self.health.answered(batch[0])

    def failed(self, batch: Sequence[Share], failure: Failed, ask: AskModel) -> Iterator[tuple[Share, Received]]:
        """Send the rows of each input alone."""
        for share in batch:
            if share.job.ended:  # another share of it failed
                yield share, Failed(failure.error)
            else:
                yield share, self._alone(share, failure, int(len(batch) == 1), ask)

    def _alone(self, share: Share, failure: Failed, tried: int, ask: AskModel) -> Received:
        """Send one input's rows until they are answered or the input is to blame."""

        def resend(shares: Sequence[Share]) -> FloatArray:
            self.report.resent += sum(len(share.rows) for share in shares)
            return ask(shares)

        deadline = time.monotonic() + self.health.patience
        while True:
            if tried == self.tries:
                if not self.health.is_down(resend):
                    self.health.failed(failure.error)
                    blamed = QueryError(f"{_words(failure.error)} (sent alone {self.tries} times)")
                    return Failed(blamed, failure.partial)
                self.health.wait(deadline, failure.error, resend)
                tried = 0
            tried += 1
            try:
                outputs = resend([share])
            except Exception as error:
                failure = Failed.of(error)
            else:
                self.answered([share])
                return outputs

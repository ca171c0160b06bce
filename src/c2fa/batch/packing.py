"""Many inputs at once: their rows packed into the same batches of the model, and bad inputs kept from the others.

A review may need 200 rows and a GPU want 1,024 at a time. The masks are those of explaining one by one, and so are the
answers of a model that answers a row the same way in every batch.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from c2fa.asking.driver import AskModel, Job, Received, Share, Verdict, drive
from c2fa.asking.fingerprint import Identity, fingerprint
from c2fa.asking.ledger import LedgerError
from c2fa.asking.masking import Masked
from c2fa.asking.model import Model, contained
from c2fa.asking.querying import Ask, BudgetError, Cache, Conversation, Failed, Queries
from c2fa.asking.replies import QueryError
from c2fa.engines import Loads
from c2fa.explainer import Explainer
from c2fa.explanation import Explanation
from c2fa.structure import FloatArray

_AHEAD = 4  # open as many inputs as can still fill this many batches
UNANSWERED = 10  # so many inputs are tried before a model that has not answered once is waited for


class ModelDownError(RuntimeError):
    """The model answers nothing any more, not even rows that it answered before; no input is to blame."""


class NoAnswerError(ModelDownError):
    """The model has not answered once; no input is to blame."""


class PostponedError(RuntimeError):
    """An input failed before the model has answered anything: who is to blame shows later."""


class WidthError(QueryError):
    """The model gave rows of one input another number of outputs than those of others."""


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
    """What explaining inputs took: rows that got an answer, rows sent again, rows recalled, calls, cost and time.

    ``workers`` is known of a whole run alone: how many it started. ``loads`` tells how busy each process was that had
    the model, where such processes had it.
    """

    inputs: int = 0
    failed: int = 0
    rows: int = 0
    resent: int = 0
    recalled: int = 0
    calls: int = 0
    cost: float = 0.0
    seconds: float = 0.0
    workers: int = 0
    loads: Loads = field(default_factory=Loads)

    def so_far(self, seconds: float) -> str:
        """What stands beside the progress of a run: rows a second, workers, inputs set aside, and the cost."""
        said = [f"{self.rows / seconds:,.0f} rows/s"]
        if self.workers > 1:
            said.append(f"{self.workers} workers")
        if self.failed:
            said.append(f"{self.failed} set aside")
        if self.cost:
            said.append(f"cost {self.cost:.4g}")
        return ", ".join(said)

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
    while items:
        postponed: list[Item] = []
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
            if isinstance(job.error, LedgerError):  # no input's fault
                raise job.error
            if isinstance(job.error, ImportError):
                raise _missing(job.error) from job.error
            if isinstance(job.error, PostponedError):
                postponed.append(job.about)
            elif job.error is not None:
                yield _set_aside(job.about, job.error)
            else:
                yield Outcome(job.about.index, job.about.key, job.result())
        yield from unusable
        items = postponed


def _jobs(explainer: Explainer, items: Iterable[Item], unusable: list[Outcome]) -> Iterator[Job[Explanation]]:
    """A job for each input that the masker takes; the others are listed.

    Equal inputs share their answers while they are open, and with the one before.
    """
    caches: WeakValueDictionary[Identity, Cache] = WeakValueDictionary()
    last: deque[Cache] = deque(maxlen=1)  # of the input before, which may be done
    for item in items:
        try:
            if isinstance(item.x, Unreadable):
                raise ValueError(item.x)
            with contained("the masker"):
                masked = explainer.under(explainer.masker(item.x))
            queries = explainer.queries(item.x, masked, item.key)
        except ImportError as error:
            raise _missing(error) from error
        except Exception as error:  # a stranger's masker may raise anything
            unusable.append(_set_aside(item, error))
            continue
        if queries.identity.number:  # else nothing tells it from other inputs
            queries.cache = caches.setdefault(queries.identity, queries.cache)
            last.append(queries.cache)
        yield Job(explainer.conversation(masked, queries), queries, item)


def together(items: Sequence[Item]) -> list[Item]:
    """The inputs with equal ones next to each other, so that their rows are asked once.

    >>> [item.index for item in together([Item(0, "a"), Item(1, "b"), Item(2, "a")])]
    [0, 2, 1]
    """
    first: dict[str, int] = {}

    def place(item: Item) -> int:
        try:
            return first.setdefault(fingerprint(item.x), item.index)
        except Exception:  # a user's type may do anything when it is read
            return item.index

    return sorted(items, key=place)


def _set_aside(item: Item, error: Exception) -> Outcome:
    plain = isinstance(error, QueryError | BudgetError | ValueError | TypeError)
    return Outcome(item.index, item.key, None, str(error) if plain and str(error) else _words(error))


def _missing(error: ImportError) -> ImportError:
    """What ends a run in which a package is missing, whichever input it showed at."""
    return ImportError(
        f"{error}; no input is set aside for it: install it where the workers run, then run the same command again"
    )


def _words(error: BaseException) -> str:
    """An error in one line: its kind and what it says."""
    return f"{type(error).__name__}: {error}"


def _prediction(masked: Masked) -> Conversation[None]:
    """Ask about the input itself, with nothing masked."""
    structure = masked.structure
    yield Ask(structure.depth - 1, np.ones((1, structure.leaves), dtype=np.bool_))


def _prediction_job(explainer: Explainer, item: Item) -> Job[None]:
    masked = explainer.masker(item.x)
    return Job(_prediction(masked), Queries(Cache(masked), masked.rows_per_mask), item)


def prediction_row(explainer: Explainer, item: Item) -> Share:
    """The row of an input itself."""
    job = _prediction_job(explainer, item)
    rows = job.queries.plan(next(job.conversation))
    return Share(job, rows, job.queries.inputs(rows))


def ask_again(explainer: Explainer, item: Item, model: Model, isolation: Isolation) -> None:
    """Ask for a prediction that the model gave before, and so wait for a model that is down."""
    list(drive([_prediction_job(explainer, item)], model, batch_size=1, policy=isolation))


@dataclass(eq=False)
class Health:
    """What is known of a model: a row that it answered once, or the inputs that failed before it answered any.

    Parameters
    ----------
    patience
        Seconds without any answer until ``ModelDownError``.
    outputs_vary
        Whether the model may give other inputs another number of outputs.
    on_answer
        Called when the model answers for the first time.
    find_canary
        Makes a row that the model answered to someone else.
    canary
        The first row that was answered; a model that fails on it is down, whatever else it is asked.
    suspects
        A row of each input that failed before any was answered: it, or the model, is to blame.
    widths
        Some inputs for each number of outputs that the model gave when it was asked about one input alone. The number
        that most have is the model's: a batch has as many for all, and another may be that of one bad input.
    """

    patience: float = 60.0
    outputs_vary: bool = False
    on_answer: Callable[[], None] | None = field(default=None, repr=False)
    find_canary: Callable[[], Share] | None = field(default=None, repr=False)
    canary: Share | None = field(default=None, repr=False)
    suspects: list[Share] = field(default_factory=list, repr=False)
    widths: dict[int, set[int]] = field(default_factory=dict, repr=False)
    undecided: set[int] = field(default_factory=set, repr=False)
    _answered: bool = False
    _silent_since: float | None = None

    def answered(self, share: Share) -> None:
        """Keep the first row ever answered as the canary."""
        self._silent_since = None
        if not self._answered and self.on_answer is not None:
            self.on_answer()
        self._answered = True
        if self.canary is None:
            self.canary = _first_row(share)
            self.suspects.clear()

    def of_usual_width(self, batch: Sequence[Share], width: int) -> bool:
        """Whether the model gave these rows as many outputs as it does for most inputs, or may give others."""
        indices = {share.job.about.index for share in batch}
        known = self.widths.setdefault(width, set()) if len(indices) == 1 else set()
        if len(known) < UNANSWERED:
            known |= indices
        return self.outputs_vary or width == self.width

    @property
    def width(self) -> int | None:
        """How many outputs the model gives a row; None before it was asked about an input alone."""
        return max(self.widths, key=lambda width: len(self.widths[width]), default=None)

    def is_undecided(self, share: Share) -> bool:
        """Whether other inputs are to be asked about first, because as many have this one's width as the other."""
        index = share.job.about.index
        counts = sorted(map(len, self.widths.values()))
        if counts[-2:-1] != counts[-1:] or index in self.undecided:
            return False
        self.undecided.add(index)
        return True

    def failed(self) -> None:
        """Note when the model began to answer nothing."""
        if self._silent_since is None:
            self._silent_since = time.monotonic()

    def postpones(self, share: Share) -> bool:
        """Whether other inputs are to be tried first, because the model may be down as well as the input bad."""
        if self.canary is None and self.find_canary is not None:
            self.canary = self.find_canary()
        known = any(suspect.job.about is share.job.about for suspect in self.suspects)
        enough = len(self.suspects) >= UNANSWERED or (self.suspects and time.monotonic() > self._deadline())
        if self.canary is not None or known or enough:
            return False
        self.suspects.append(_first_row(share))
        return True

    def wait(self, error: BaseException, ask: AskModel) -> None:
        """Return once the model answers the canary or, while there is none, the row of any suspect."""
        pause = 0.25
        while not self._answers(ask):
            if time.monotonic() + pause > self._deadline():
                raise self._down(error) from error  # whose traceback shows the line of the model
            time.sleep(pause)
            pause = min(pause * 2, 5.0)

    def _answers(self, ask: AskModel) -> bool:
        """Whether the model answers one of the rows that it should; a model may take long to fail on each."""
        for share in list(self.suspects) if self.canary is None else [self.canary]:
            try:
                ask([share])
            except Exception:
                self.failed()
                if time.monotonic() > self._deadline():
                    return False
            else:
                self.answered(share)
                return True
        return False

    def _deadline(self) -> float:
        since = time.monotonic() if self._silent_since is None else self._silent_since
        return since + self.patience

    def _down(self, error: BaseException) -> ModelDownError:
        if self.canary is None:
            return NoAnswerError(
                f"the model has not answered once in {self.patience:g} s, asked about {len(self.suspects)} inputs "
                f"({_words(error)}); no input is set aside for it. See that the model runs and that its key is set, "
                "try it on one input, then run the same command again"
            )
        return ModelDownError(
            f"the model no longer answers, not even rows that it answered before, for {self.patience:g} s "
            f"({_words(error)}); no input is set aside for it. See that it runs, then run the same command again"
        )


def _first_row(share: Share) -> Share:
    return Share(share.job, share.rows[:1], share.inputs[: share.job.queries.rows_per_mask])


@dataclass(eq=False)
class Isolation:
    """Finds the input that makes the model fail, and tells it from a model that is down.

    The rows of each input of a failed batch are sent alone. An input is to blame only if it fails each time just after
    the model answered the canary, a row that it answered before; a model that does not answer the canary is down, and
    is waited for. While there is no canary, inputs that fail are postponed.

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

    @property
    def mixes(self) -> bool:
        """Inputs share batches once two of them agree on how many outputs the model gives."""
        return self.health.outputs_vary or len(self.health.widths.get(self.health.width or 0, ())) > 1

    def answered(self, batch: Sequence[Share], outputs: FloatArray) -> Received:
        """Count a batch, unless it is of another width than it should be."""
        checked = self._checked(batch, outputs)
        if not isinstance(checked, Failed):
            self.report.cost += sum(share.cost for share in batch)
            self._count(batch)
        return checked

    def _checked(self, batch: Sequence[Share], outputs: FloatArray) -> Received:
        if self.health.of_usual_width(batch, outputs.shape[1]):
            return outputs
        return Failed(
            WidthError(
                f"querying {batch[0].rows}: the model returned {outputs.shape[1]} outputs a row and "
                f"{self.health.width} for other inputs; it must always return the same number"
            )
        )

    def _count(self, batch: Sequence[Share]) -> None:
        self.report.rows += sum(share.size for share in batch)
        self.report.calls += 1
        self.health.answered(batch[0])

    def failed(self, batch: Sequence[Share], failure: Failed, ask: AskModel) -> Iterator[tuple[Share, Verdict]]:
        """Send the rows of each input alone."""
        self.report.cost += sum(share.cost for share in batch)
        self.health.failed()

        def resend(shares: Sequence[Share]) -> FloatArray:
            before = sum(share.cost for share in shares)
            self.report.resent += sum(share.size for share in shares)
            try:
                return ask(shares)
            finally:
                self.report.cost += sum(share.cost for share in shares) - before

        for share in batch:
            if share.job.ended:  # another share of it failed
                yield share, PostponedError("the input has failed already")
                continue
            reply: Received = failure if len(batch) == 1 else self._send(share, resend)
            yield share, self._judge(share, reply, resend) if isinstance(reply, Failed) else reply

    def _send(self, share: Share, resend: AskModel) -> Received:
        try:
            outputs = resend([share])
        except Exception as error:
            return Failed.of(error)
        self._count([share])
        return self._checked([share], outputs)

    def _judge(self, share: Share, failure: Failed, resend: AskModel) -> Verdict:
        """Send one input's rows, each time after the canary, until they are answered or the input is to blame."""
        if isinstance(failure.error, ImportError):
            raise _missing(failure.error) from failure.error
        undecided = isinstance(failure.error, WidthError) and self.health.is_undecided(share)
        if undecided or self.health.postpones(share):
            return PostponedError(_words(failure.error))
        for _ in range(self.tries):
            self.health.wait(failure.error, resend)
            reply = self._send(share, resend)
            if not isinstance(reply, Failed):
                return reply
            failure = reply
        return Failed(QueryError(f"{_words(failure.error)} (sent alone {self.tries} times)"), failure.partial)

"""Which input makes the model fail, and whether the model is down; and what all of it took."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from c2fa.asking.driver import AskModel, Policy, Received, Share, Verdict
from c2fa.asking.replies import Failed, QueryError
from c2fa.engines import Loads
from c2fa.structure import FloatArray

AGAIN = "; no input is set aside for it. See that it runs, then run the same command again"
UNANSWERED = 10  # so many inputs are tried before a model that has not answered once is waited for


class ModelDownError(RuntimeError):
    """The model answers nothing any more, not even rows that it answered before; no input is to blame."""


class NoAnswerError(ModelDownError):
    """The model has not answered once; no input is to blame."""


class PostponedError(RuntimeError):
    """An input failed before the model has answered anything: who is to blame shows later."""


class WidthError(QueryError):
    """The model gave rows of one input another number of outputs than those of others."""


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
        words = [f"{self.rows / seconds:,.0f} rows/s"]
        if self.workers > 1:
            words.append(f"{self.workers} workers")
        if self.failed:
            words.append(f"{self.failed} set aside")
        if self.cost:
            words.append(f"cost {self.cost:.4g}")
        return ", ".join(words)

    def __add__(self, other: Report) -> Report:
        return Report(**{name: own + vars(other)[name] for name, own in vars(self).items()})


def missing_package(error: ImportError) -> ImportError:
    """What ends a run in which a package is missing, whichever input it showed at."""
    return ImportError(
        f"{error}; no input is set aside for it: install it where the workers run, then run the same command again"
    )


def in_words(error: BaseException) -> str:
    """An error in one line: its kind and what it says."""
    return f"{type(error).__name__}: {error}"


@dataclass(eq=False)
class Health:
    """What is known of a model: a row that it answered once, or the inputs that failed before it answered any.

    It may be silent for ``patience`` seconds; ``on_answer`` is called at its first answer. The ``canary`` is the first
    row that it answered, here or, by ``find_canary``, elsewhere: a model that fails on it is down. ``suspects`` has a
    row of each input that failed before any was answered: the input is to blame, or the model.

    ``widths`` has some inputs for each number of outputs that the model gave for one input alone. The number that most
    have is the model's, unless ``outputs_vary``; a bad input may have another.
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
                f"({in_words(error)}); no input is set aside for it. See that the model runs and that its key is set, "
                "try it on one input, then run the same command again"
            )
        return ModelDownError(
            f"the model no longer answers, not even rows that it answered before, for {self.patience:g} s "
            f"({in_words(error)}){AGAIN}"
        )


def _first_row(share: Share) -> Share:
    return Share(share.job, share.rows[:1], share.inputs[: share.job.queries.rows_per_mask])


@dataclass(eq=False)
class Isolation(Policy):
    """Finds the input that makes the model fail, and tells it from a model that is down.

    The rows of each input of a failed batch are sent alone. An input is to blame only if it fails each time just after
    the model answered the canary, a row that it answered before; a model that does not answer the canary is down, and
    is waited for. While there is no canary, inputs that fail are postponed. After so many ``tries`` alone an input is
    set aside; ``report`` counts what was sent.
    """

    tries: int = 3
    health: Health = field(default_factory=Health)
    report: Report = field(default_factory=Report)

    @cached_property
    def of_scouts(self) -> Isolation:
        """The same for a model that scouts for this one."""
        return Isolation(self.tries, Health(self.health.patience, self.health.outputs_vary))

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
            return Failed.of(error, share.size)
        self._count([share])
        return self._checked([share], outputs)

    def _judge(self, share: Share, failure: Failed, resend: AskModel) -> Verdict:
        """Send one input's rows, each time after the canary, until they are answered or the input is to blame."""
        if isinstance(failure.error, ImportError):
            raise missing_package(failure.error) from failure.error
        undecided = isinstance(failure.error, WidthError) and self.health.is_undecided(share)
        if undecided or self.health.postpones(share):
            return PostponedError(in_words(failure.error))
        tried = 0
        while tried < self.tries and share.job.queries.purse.affordable(share.cost) != 0:
            tried += 1
            self.health.wait(failure.error, resend)
            reply = self._send(share, resend)
            if not isinstance(reply, Failed):
                return reply
            failure = reply
        return Failed(QueryError(f"{in_words(failure.error)} (sent alone {tried} times)"), failure.partial)

"""Many inputs in memory: explained here, in this process, with their rows packed into shared batches."""

from __future__ import annotations

import contextlib
import inspect
import time
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, overload

from c2fa._system import did_you_mean
from c2fa.asking.model import describe
from c2fa.batch.many import many
from c2fa.batch.packing import Health, Isolation, Outcome, Report, packed, together
from c2fa.batch.sources import Pick, source
from c2fa.batch.store import Failure, NotExplainedError
from c2fa.explainer import Explainer
from c2fa.explanation import Explanation
from c2fa.showing.progress import Bar

_FIRST_PATIENCE = 1.0  # seconds without an answer: a model that never gave one is more likely wrong than busy


class Explanations(Sequence[Explanation]):
    """Explanations of many inputs, in the inputs' order.

    ``found[i]`` is the explanation of input ``i``, or ``NotExplainedError`` where that input failed. Iterating raises
    it too, so that inputs and explanations stay side by side; ``items()`` passes over inputs that failed, and
    ``errors()`` lists them. ``run`` says what it took.
    """

    def __init__(self, outcomes: Sequence[Outcome], run: Report) -> None:
        self._outcomes = sorted(outcomes, key=lambda outcome: outcome.index)
        self.run = run

    def __repr__(self) -> str:
        failed = f", {self.run.failed} failed" if self.run.failed else ""
        return f"<Explanations of {len(self)} inputs{failed}>"

    def _repr_html_(self) -> str:
        from c2fa import report

        most = 20
        first = ((o.index, o.explanation or str(o.error)) for o in self._outcomes[:most])
        rest = f", the first {most} of them here" if len(self) > most else ""
        return report.repr_many(f"{repr(self)[1:-1]}{rest}", first)

    def __len__(self) -> int:
        return len(self._outcomes)

    @overload
    def __getitem__(self, index: int) -> Explanation: ...
    @overload
    def __getitem__(self, index: slice) -> list[Explanation]: ...
    def __getitem__(self, index: int | slice) -> Explanation | list[Explanation]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        outcome = self._outcomes[index]
        if outcome.explanation is None:
            raise NotExplainedError(f"input {outcome.index} could not be explained: {outcome.error}")
        return outcome.explanation

    def items(self) -> Iterator[tuple[int, Explanation]]:
        """Each explained input's place and its explanation."""
        return ((o.index, o.explanation) for o in self._outcomes if o.explanation is not None)

    def errors(self) -> list[Failure]:
        """The inputs that failed, and why."""
        return [Failure(o.index, o.key, str(o.error)) for o in self._outcomes if o.explanation is None]


def in_memory(
    explainer: Explainer,
    inputs: Any,
    *,
    column: Pick = None,
    key: Pick = None,
    batch_size: int | None = None,
    in_flight: int = 1,
    tries: int = 3,
    patience: float = 60.0,
    progress: bool | None = None,
    **of_a_store: Any,
) -> Explanations:
    """Explain every input, here and now, and return the explanations in order.

    An input that fails does not stop the others: a warning at the end names the first, and its place holds the error.
    Where every input fails, ``NotExplainedError`` is raised, and where the model answers nothing, ``NoAnswerError``,
    after a second. Ctrl-C leaves nothing but what is in the explainer's ledger; a store keeps what is finished.

    Parameters
    ----------
    inputs, column, key, batch_size, in_flight, tries, patience, progress
        As in ``many``. The rows of a DataFrame are its inputs.

    Examples
    --------
    >>> import c2fa
    >>> explainer = c2fa.Explainer(c2fa.models.DemoSentiment(), c2fa.maskers.Text(), budget=40)
    >>> found = explainer.many(["A great book. I loved it.", "It broke. The price was good."])
    >>> [e.target_name for e in found]
    ['positive', 'negative']
    """
    _refuse(of_a_store)
    taken = source(inputs, column, key)
    health = Health(min(patience, _FIRST_PATIENCE), describe(explainer.model).outputs_vary)
    health.on_answer = lambda: setattr(health, "patience", patience)
    isolation = Isolation(tries, health)
    report, outcomes, begin = isolation.report, [], time.monotonic()
    wanted = explainer.progress if progress is None else progress
    with contextlib.closing(Bar(wanted, taken.total, "input", "explaining")) as bar:
        items = together(list(taken.items()))
        for outcome in packed(explainer, items, batch_size=batch_size, in_flight=in_flight, isolation=isolation):
            outcomes.append(outcome)
            report.inputs += 1
            report.failed += outcome.explanation is None
            bar.update(report.inputs, report.so_far(bar.seconds))
    report.seconds = time.monotonic() - begin
    found = Explanations(outcomes, report)
    _tell_failures(found)
    return found


def _refuse(options: dict[str, Any]) -> None:
    """Refuse options that only a store has, and those that nothing has."""
    known = list(inspect.signature(many).parameters)[3:]
    for name, value in options.items():
        if name not in known:
            raise TypeError(f"many has no option {name!r}; it has {', '.join(known)}{did_you_mean(name, known)}")
        raise TypeError(
            f"{name}={value!r} goes with a folder, in which workers leave what is finished: many(inputs, 'explained/', "
            f"{name}={value!r}). Without one all inputs are explained in this process"
        )


def _tell_failures(found: Explanations) -> None:
    failed = found.errors()
    if not failed:
        return
    first = f"input {failed[0].index}: {failed[0].error}"
    if len(failed) == len(found):
        raise NotExplainedError(f"none of the {len(found)} inputs could be explained ({first})")
    warnings.warn(
        f"{len(failed)} of {len(found)} inputs could not be explained ({first}); errors() lists them, and items() "
        "passes over them",
        stacklevel=4,  # the line that called Explainer.many
    )

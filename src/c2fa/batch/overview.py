"""What many explanations have in common, be they in memory or in a store: names that matter, pictures, cohorts."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload

import numpy as np

from c2fa import report
from c2fa._system import need
from c2fa.batch import views
from c2fa.batch.isolation import Report
from c2fa.batch.packing import Outcome
from c2fa.explanation import Explanation
from c2fa.showing.for_shap import to_shap
from c2fa.structure import FloatArray, IntArray

if TYPE_CHECKING:
    import pandas as pd

By: TypeAlias = Callable[[Explanation], Any] | Sequence[Any]
Flat: TypeAlias = tuple[IntArray, Sequence[str], IntArray, FloatArray]
"""Features of some inputs, one after another: the input of each, the distinct names, its name among them, its value."""


class NotExplainedError(LookupError):
    """The input at this place was set aside; the message is the error that is kept in its place."""


@dataclass(frozen=True)
class Failure:
    """An input that was set aside, and why."""

    index: int
    key: str | None
    error: str


@dataclass(frozen=True)
class Brief:
    """One input in a line: what was predicted and for which output, its warnings, or why it was set aside."""

    index: int
    key: str | None
    prediction: float
    target: str | None
    warnings: tuple[str, ...]
    error: str | None


class Overview(Sequence[Explanation]):
    """Views over many explanations; ``which`` are options of ``c2fa.batch.views.important``."""

    @abstractmethod
    def items(self) -> Iterator[tuple[int, Explanation]]:
        """Each explained input's place and its explanation."""

    @abstractmethod
    def briefs(self) -> Iterator[Brief]:
        """A line about each input, explained or not."""

    @abstractmethod
    def flat(self, level: int, target: str | None = None) -> Iterator[Flat]:
        """The features of a level of the inputs that were explained for a target, some inputs at a time."""

    def important(self, level: int = -1, n: int | None = 20, *, by: By | None = None, **which: Any) -> Any:
        """The names with the largest mean absolute attribution, a list; with ``by``, a list for each cohort."""
        if by is None:
            return views.important(self, level, n, **which)
        return {label: views.important(some, level, n, **which) for label, some in self.cohorts(by).items()}

    def bars(self, level: int = -1, n: int = 15, *, by: By | None = None, **which: Any) -> Any:
        """Draw mean attributions of the most important names with 95 % intervals; with ``by``, axes for each cohort."""
        return self._drawn("bars", level, n, by, which)

    def beeswarm(self, level: int = -1, n: int = 15, *, by: By | None = None, **which: Any) -> Any:
        """Draw a dot for each input that has a name; with ``by``, axes for each cohort."""
        return self._drawn("beeswarm", level, n, by, which)

    def plot(self, kind: Literal["beeswarm", "bars"] = "beeswarm", **options: Any) -> Any:
        """Draw all at a glance, as ``beeswarm`` or as ``bars``."""
        if kind not in ("beeswarm", "bars"):
            raise ValueError(f"kind must be 'beeswarm' or 'bars'; got {kind!r}")
        return self.bars(**options) if kind == "bars" else self.beeswarm(**options)

    def to_shap(self, level: int = -1) -> Any:
        """All as one ``shap.Explanation``, for shap's plots of a whole table; see ``c2fa.to_shap``."""
        return to_shap([e for _, e in self.items()], level)

    @overload
    def to_html(self, path: None = None, *, title: str | None = None, limit: int = 1000) -> str: ...
    @overload
    def to_html(
        self, path: str | PathLike[str] | None, *, title: str | None = None, limit: int = 1000
    ) -> str | None: ...
    def to_html(
        self, path: str | PathLike[str] | None = None, *, title: str | None = None, limit: int = 1000
    ) -> str | None:
        """One page that needs nothing else: what all inputs have in common, then a card for each of the first.

        ``limit`` is the most cards; every one of them opens to its whole explanation.
        """
        shown = dict(islice(self.items(), limit))
        if not shown:
            raise ValueError("there are no explanations to report: none of the inputs could be explained")
        if len(self) == 1:
            return report.html(next(iter(shown.values())), path, title=title)
        named = []
        for brief in self.briefs():
            if brief.index in shown:
                name, text = brief.key or str(brief.index), report.title_of(shown[brief.index])
                named.append((f"{name} · {text}" if text else brief.key or f"input {name}", shown[brief.index]))
        return report.html(named, path, title=title, overall=views.overall(self, list(shown)))

    def cohorts(self, by: By) -> dict[str, Explanations]:
        """The explanations in groups: by what a function says of each, or by a label for each input."""
        groups: dict[str, list[Outcome]] = {}
        for index, e in self.items():
            label = by(e) if callable(by) else by[index]
            groups.setdefault(str(label), []).append(Outcome(index, None, e))
        return {label: Explanations(some, Report(inputs=len(some))) for label, some in sorted(groups.items())}

    def _drawn(self, kind: str, level: int, n: int, by: By | None, which: dict[str, Any]) -> Any:
        from c2fa.plots._style import figure  # with matplotlib, which nothing else here needs

        draw = {"bars": views.bars, "beeswarm": views.beeswarm}[kind]
        if by is None:
            return draw(self, level, n, **which)
        groups = self.cohorts(by)
        axes = figure(6 * len(groups), 0.32 * n + 1.4).subplots(1, len(groups), squeeze=False)[0]
        for ax, (label, some) in zip(axes, groups.items(), strict=True):
            draw(some, level, n, ax=ax, **which)
            ax.set_title(f"{label} ({len(some)} inputs)", loc="left", parse_math=False)
        return list(axes)


class Explanations(Overview):
    """Explanations of many inputs, in the inputs' order.

    ``found[i]`` is the explanation of input ``i``, or ``NotExplainedError`` where that input failed. Iterating raises
    it too, so that inputs and explanations stay side by side; ``items()`` passes over inputs that failed, and
    ``errors()`` lists them. ``run`` says what it took.
    """

    def __init__(self, outcomes: Sequence[Outcome], run: Report) -> None:
        self._outcomes = sorted(outcomes, key=lambda outcome: outcome.index)
        self.run = run

    @classmethod
    def of(cls, named: Iterable[tuple[str | None, Explanation]]) -> Explanations:
        """Explanations that are there already, with the names of their inputs."""
        outcomes = [Outcome(k, name, e) for k, (name, e) in enumerate(named)]
        return cls(outcomes, Report(inputs=len(outcomes)))

    def __repr__(self) -> str:
        failed = f", {self.run.failed} failed" if self.run.failed else ""
        return f"<Explanations of {len(self)} inputs{failed}>"

    def _repr_html_(self) -> str:
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

    def briefs(self) -> Iterator[Brief]:
        """A line about each input, explained or not."""
        for o in self._outcomes:
            e = o.explanation
            if e is None:
                yield Brief(o.index, o.key, np.nan, None, (), o.error)
            else:
                yield Brief(o.index, o.key, e.prediction, e.target_name, e.diagnostics.warnings, None)

    def flat(self, level: int, target: str | None = None) -> Iterator[Flat]:
        """The features of a level of the inputs that were explained for a target, one input at a time."""
        for index, e in self.items():
            if target in (None, e.target_name):
                values = e.values[e.level(level)]
                yield np.full(len(values), index), e.names[e.level(level)], np.arange(len(values)), values

    def to_frame(self) -> pd.DataFrame:
        """A tidy table: one row for each feature of each level of each input that is explained."""
        frames = [e.to_frame().assign(input=index, prediction=e.prediction) for index, e in self.items()]
        found: pd.DataFrame = need("pandas", "frame").concat(frames, ignore_index=True)
        return found.set_index("input").reset_index()

    def errors(self) -> list[Failure]:
        """The inputs that failed, and why."""
        return [Failure(o.index, o.key, str(o.error)) for o in self._outcomes if o.explanation is None]

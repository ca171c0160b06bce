"""What many explanations have in common, be they in memory or in a store: names that matter, pictures, cohorts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from c2fa.batch.isolation import Report
from c2fa.batch.packing import Outcome
from c2fa.explanation import Explanation
from c2fa.showing.for_shap import to_shap

if TYPE_CHECKING:
    from c2fa.batch.many import Explanations
    from c2fa.batch.views import Feature

By: TypeAlias = Callable[[Explanation], Any] | Sequence[Any]


class Overview(ABC):
    """Views over many explanations; ``which`` are options of ``c2fa.batch.views.important``."""

    @abstractmethod
    def items(self) -> Iterator[tuple[int, Explanation]]:
        """Each explained input's place and its explanation."""

    def important(self, level: int = -1, n: int | None = 20, *, by: By | None = None, **which: Any) -> Any:
        """The names with the largest mean absolute attribution, a list; with ``by``, a list for each cohort."""
        from c2fa.batch import views

        if by is None:
            found: list[Feature] = views.important(self, level, n, **which)
            return found
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

    def cohorts(self, by: By) -> dict[str, Explanations]:
        """The explanations in groups: by what a function says of each, or by a label for each input."""
        from c2fa.batch.many import Explanations

        groups: dict[str, list[Outcome]] = {}
        for index, e in self.items():
            label = by(e) if callable(by) else by[index]
            groups.setdefault(str(label), []).append(Outcome(index, None, e))
        return {label: Explanations(some, Report(inputs=len(some))) for label, some in sorted(groups.items())}

    def _drawn(self, kind: str, level: int, n: int, by: By | None, which: dict[str, Any]) -> Any:
        from c2fa.batch import views
        from c2fa.plots._style import figure

        draw = {"bars": views.bars, "beeswarm": views.beeswarm}[kind]
        if by is None:
            return draw(self, level, n, **which)
        groups = self.cohorts(by)
        axes = figure(6 * len(groups), 0.32 * n + 1.4).subplots(1, len(groups), squeeze=False)[0]
        for ax, (label, some) in zip(axes, groups.items(), strict=True):
            draw(some, level, n, ax=ax, **which)
            ax.set_title(f"{label} ({len(some)} inputs)", loc="left", parse_math=False)
        return list(axes)

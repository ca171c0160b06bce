"""Lines: insertion and deletion, score over budget, convergence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from c2fa.plots._style import DASHES, INK, MARKERS, MUTED, RULE, SERIES, figure_of, one_line, own_axes
from c2fa.problem import Problem
from c2fa.structure import FloatArray

if TYPE_CHECKING:
    import pandas as pd


class CurveLike(Protocol):
    """A curve: ``y`` over ``x``, and the area under it."""

    @property
    def x(self) -> npt.ArrayLike: ...
    @property
    def y(self) -> npt.ArrayLike: ...
    @property
    def auc(self) -> float: ...


def curves(
    found: CurveLike | Mapping[str, CurveLike],
    ax: Axes | None = None,
    *,
    title: str = "",
    xlabel: str = "share of features",
    ylabel: str = "model output",
) -> Figure:
    """Draw curves of insertion or deletion, each with the area under it; a mapping names several."""
    named = found if isinstance(found, Mapping) else {"": found}
    ax = own_axes(ax, 5.2, 3.6)
    for k, (name, curve) in enumerate(named.items()):
        x, y = np.asarray(curve.x, dtype=np.float64), np.asarray(curve.y, dtype=np.float64)
        label = f"{one_line(name)}  (area {curve.auc:.3f})" if name else f"area {curve.auc:.3f}"
        ax.plot(x, y, color=SERIES[k % 8], ls=DASHES[k % 8], lw=1.8, label=label, zorder=3)
        if len(named) <= 2:
            ax.fill_between(x, y, color=SERIES[k % 8], alpha=0.10, lw=0, zorder=1)
    _finish(ax, title, xlabel, ylabel)
    return figure_of(ax)


@dataclass(frozen=True)
class ScoresDisplay:
    """Scores over a budget: for each method its mean and standard deviation at each budget."""

    lines: Mapping[str, tuple[FloatArray, FloatArray, FloatArray]]
    xlabel: str
    ylabel: str

    @classmethod
    def from_frame(
        cls, frame: pd.DataFrame, x: str = "budget", y: str = "score", method: str = "method"
    ) -> ScoresDisplay:
        """Average a tidy table, one row for each run; the error bars are standard deviations over the runs."""
        missing = [column for column in (x, y, method) if column not in frame.columns]
        if missing:
            raise ValueError(f"the table has no column {missing[0]!r}; it has {', '.join(map(str, frame.columns))}")
        lines = {}
        for name in frame[method].drop_duplicates().tolist():
            own = frame[frame[method] == name].groupby(x)[y]
            spread = own.std(ddof=0)
            at = np.asarray(spread.index, dtype=np.float64)
            lines[str(name)] = (at, own.mean().to_numpy(dtype=np.float64), spread.to_numpy(dtype=np.float64))
        return cls(lines, x, y)

    def draw(self, ax: Axes | None = None, *, title: str = "", better: str | None = None) -> Figure:
        """Draw one line with error bars for each method; ``better`` is ``"higher"``, ``"lower"`` or None."""
        if better not in (None, "higher", "lower"):
            raise ValueError(f"better must be 'higher', 'lower' or None; got {better!r}")
        ax = own_axes(ax, 5.2, 3.6)
        # Lines that lie on one another still show all their error bars.
        steps = [np.diff(x).min() for x, _, _ in self.lines.values() if len(x) > 1]
        nudge = 0.05 * min(steps, default=0.0)
        for k, (name, (x, mean, spread)) in enumerate(self.lines.items()):
            shift = nudge * (k - (len(self.lines) - 1) / 2)
            ax.errorbar(
                x + shift,
                mean,
                yerr=spread,
                label=one_line(name),
                color=SERIES[k % 8],
                ls=DASHES[k % 8],
                marker=MARKERS[k % 8],
                ms=5,
                lw=1.6,
                capsize=2.5,
                capthick=1,
                elinewidth=1,
                zorder=3,
            )
        hint = f" ({better} is better)" if better else ""
        _finish(ax, title, self.xlabel, self.ylabel + hint, outside=len(self.lines) > 3)
        ticks = sorted({float(v) for x, _, _ in self.lines.values() for v in x})
        if len(ticks) <= 8:
            ax.set_xticks(ticks)
        return figure_of(ax)


def scores(
    frame: pd.DataFrame,
    ax: Axes | None = None,
    *,
    x: str = "budget",
    y: str = "score",
    method: str = "method",
    title: str = "",
    better: str | None = None,
) -> Figure:
    """Draw score over budget with error bars for several methods, from a tidy table; see ``ScoresDisplay``."""
    return ScoresDisplay.from_frame(frame, x, y, method).draw(ax, title=title, better=better)


@dataclass(frozen=True)
class ConvergenceDisplay:
    """How far from the solution a solver is after each number of iterations."""

    lines: Mapping[str, tuple[FloatArray, FloatArray]]
    ylabel: str = "distance of the leaves from the solution"

    @classmethod
    def from_problem(
        cls,
        problem: Problem,
        solvers: Mapping[str, Mapping[str, Any]] | Sequence[str] = ("admm", "paper"),
        iterations: Sequence[int] = (1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233),
    ) -> ConvergenceDisplay:
        """Solve with growing limits, and compare with what the default solver finds.

        ``solvers`` are names, or a mapping from names to options; a line that stays level has met its tolerance.
        """
        from c2fa.solvers.solve import solve

        options = solvers if isinstance(solvers, Mapping) else {name: {} for name in solvers}
        goal = solve(problem).values[-1]
        at = np.asarray(iterations, dtype=np.float64)
        lines = {}
        for name, own in options.items():
            found = [solve(problem, name, **{**own, "max_iterations": n}).values[-1] for n in iterations]
            lines[name] = (at, np.array([float(np.linalg.norm(values - goal)) for values in found]))
        return cls(lines)

    def draw(self, ax: Axes | None = None, *, title: str = "") -> Figure:
        """Draw on a logarithmic scale; what lies at or below rounding error is drawn at its floor."""
        ax = own_axes(ax, 5.2, 3.6)
        top = max((float(y.max()) for _, y in self.lines.values() if len(y)), default=1.0) or 1.0
        for k, (name, (x, y)) in enumerate(self.lines.items()):
            ax.plot(
                x,
                np.maximum(y, 1e-14 * top),
                color=SERIES[k % 8],
                ls=DASHES[k % 8],
                marker=MARKERS[k % 8],
                ms=4,
                lw=1.6,
                label=one_line(name),
            )
        ax.set_yscale("log")
        _finish(ax, title, "iterations", self.ylabel, locate=False)
        return figure_of(ax)


def convergence(
    found: Problem | Mapping[str, Sequence[float]], ax: Axes | None = None, *, title: str = "", **options: Any
) -> Figure:
    """Draw the convergence of solvers on a problem, or of residuals that were written down, by name."""
    if isinstance(found, Problem):
        return ConvergenceDisplay.from_problem(found, **options).draw(ax, title=title)
    lines = {
        name: (np.arange(1, len(values) + 1, dtype=np.float64), np.asarray(values, dtype=np.float64))
        for name, values in found.items()
    }
    return ConvergenceDisplay(lines, **{"ylabel": "residual", **options}).draw(ax, title=title)


def _finish(ax: Axes, title: str, xlabel: str, ylabel: str, *, outside: bool = False, locate: bool = True) -> None:
    ax.grid(axis="y", color=RULE, lw=0.6)
    ax.set_axisbelow(True)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_color(RULE)
    ax.tick_params(labelsize=8.5, colors=MUTED, length=2)
    ax.set_xlabel(xlabel, fontsize=9, color=INK, parse_math=False)
    ax.set_ylabel(ylabel, fontsize=9, color=INK, parse_math=False)
    if locate:
        ax.yaxis.set_major_locator(MaxNLocator(6))
    if title:
        ax.set_title(title, loc="left", fontsize=10, weight="bold", color=INK, parse_math=False)
    if any(not label.startswith("_") for label in ax.get_legend_handles_labels()[1]):
        place: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1.01, 0.5)} if outside else {"loc": "best"}
        legend = ax.legend(fontsize=8.5, frameon=not outside, framealpha=0.9, edgecolor=RULE, handlelength=3, **place)
        for text in legend.get_texts():
            text.set_parse_math(False)

"""Lines: insertion and deletion, score over budget; and bars of what a prior has learned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from c2fa.plots._style import (
    DASHES,
    INK,
    MARKERS,
    MUTED,
    RULE,
    SERIES,
    clip,
    draw_bars,
    figure_of,
    own_axes,
)
from c2fa.showing.numbers import number
from c2fa.showing.printing import one_line
from c2fa.structure import FloatArray

if TYPE_CHECKING:
    from c2fa.priors.prior import Prior


class CurveLike(Protocol):
    """A curve: ``y`` over ``x``, and the area under it."""

    @property
    def x(self) -> npt.ArrayLike: ...
    @property
    def y(self) -> npt.ArrayLike: ...
    @property
    def auc(self) -> float: ...


def curves(found: CurveLike | Mapping[str, CurveLike], ax: Axes | None = None, *, title: str = "") -> Figure:
    """Draw curves of insertion or deletion, each with the area under it; a mapping names several."""
    named = found if isinstance(found, Mapping) else {"": found}
    ax = own_axes(ax, 5.2, 3.6)
    for k, (name, curve) in enumerate(named.items()):
        x, y = np.asarray(curve.x, dtype=np.float64), np.asarray(curve.y, dtype=np.float64)
        label = f"{one_line(name)}  (area {curve.auc:.3f})" if name else f"area {curve.auc:.3f}"
        ax.plot(x, y, **{**_line(k, label), "marker": None}, lw=1.8, zorder=3)
        if len(named) <= 2:
            ax.fill_between(x, y, color=_line(k, label)["color"], alpha=0.10, lw=0, zorder=1)
    _finish(ax, title, "share of features", "model output")
    return figure_of(ax)


def scores(
    lines: Mapping[str, FloatArray],
    x: str,
    y: str,
    ax: Axes | None = None,
    *,
    title: str = "",
    better: str | None = None,
) -> Figure:
    """Draw a line with error bars for each method, given by name as places, means there and their spreads.

    ``better`` is ``"higher"``, ``"lower"`` or None.
    """
    if better not in (None, "higher", "lower"):
        raise ValueError(f"better must be 'higher', 'lower' or None; got {better!r}")
    ax = own_axes(ax, 5.2, 3.6)
    # Lines that lie on one another still show all their error bars.
    nudge = 0.05 * min((np.diff(at).min() for at, _, _ in lines.values() if len(at) > 1), default=0.0)
    for k, (name, (at, mean, spread)) in enumerate(lines.items()):
        bars: dict[str, Any] = {"capsize": 2.5, "capthick": 1, "elinewidth": 1}
        at = at + nudge * (k - (len(lines) - 1) / 2)
        ax.errorbar(at, mean, yerr=spread, **_line(k, one_line(name)), **bars, ms=5, lw=1.6, zorder=3)
    _finish(ax, title, x, f"{y} ({better} is better)" if better else y, outside=len(lines) > 3)
    ticks = sorted({float(v) for at, _, _ in lines.values() for v in at})
    if len(ticks) <= 8:
        ax.set_xticks(ticks)
    return figure_of(ax)


def _line(k: int, label: str) -> dict[str, Any]:
    return {"color": SERIES[k % 8], "ls": DASHES[k % 8], "marker": MARKERS[k % 8], "label": label}


def _finish(ax: Axes, title: str, xlabel: str, ylabel: str, *, outside: bool = False) -> None:
    ax.grid(axis="y", color=RULE, lw=0.6)
    ax.set_axisbelow(True)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_color(RULE)
    ax.tick_params(labelsize=8.5, colors=MUTED, length=2)
    ax.set_xlabel(xlabel, fontsize=9, color=INK, parse_math=False)
    ax.set_ylabel(ylabel, fontsize=9, color=INK, parse_math=False)
    ax.yaxis.set_major_locator(MaxNLocator(6))
    if title:
        ax.set_title(title, loc="left", fontsize=10, weight="bold", color=INK, parse_math=False)
    if any(not label.startswith("_") for label in ax.get_legend_handles_labels()[1]):
        place: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1.01, 0.5)} if outside else {"loc": "best"}
        legend = ax.legend(fontsize=8.5, frameon=not outside, framealpha=0.9, edgecolor=RULE, handlelength=3, **place)
        for text in legend.get_texts():
            text.set_parse_math(False)


def prior(learned: Prior, n: int = 15, output: str | None = None, ax: Axes | None = None) -> Figure:
    """Draw the largest effects on an output, each with its standard error and the inputs that it was met in.

    Parameters
    ----------
    learned
        The prior.
    n
        How many effects.
    output
        The name of the output; by default the last.
    """
    rows = learned.top(n, output)
    ax = own_axes(ax, 7.4, 1.2 + 0.25 * len(rows))
    names = [f"{row.name} ({row.inputs})" for row in rows]
    draw_bars(ax, names, [row.effect for row in rows], [row.stderr for row in rows], 200)
    ax.invert_yaxis()
    worth = number(learned.worth[rows[0].output]).replace("-", "−")
    title = f"{rows[0].output}: learned from {learned.inputs} inputs, correlation {worth} with effects on others"
    ax.set_title(clip(title, 500, 10, bold=True), loc="left", fontsize=10, weight="bold", color=INK, parse_math=False)
    ax.set_xlabel("effect, ± standard error; in brackets the inputs that had it", fontsize=8, color=MUTED, loc="left")
    return figure_of(ax)

"""What a prior has learned."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from c2fa.plots._style import INK, MUTED, clip, figure_of, name_ticks, own_axes, plain, signs
from c2fa.prior import Prior
from c2fa.showing.rounding import number


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
    effects, places = np.array([row.effect for row in rows]), np.arange(len(rows))
    ax.barh(places, effects, height=0.62, color=signs(effects))
    ax.errorbar(effects, places, xerr=[row.stderr for row in rows], fmt="none", ecolor=INK, elinewidth=1, capsize=2)
    ax.axvline(0.0, color=MUTED, linewidth=0.8)
    ax.invert_yaxis()
    name_ticks(ax.yaxis, places, (clip(f"{row.name} ({row.inputs})", 200, 8.5) for row in rows))
    ax.tick_params(axis="y", length=0)
    plain(ax)
    worth = number(learned.worth[rows[0].output]).replace("-", "−")
    title = f"{rows[0].output}: learned from {learned.inputs} inputs, correlation {worth} with effects on others"
    ax.set_title(clip(title, 500, 10, bold=True), loc="left", fontsize=10, weight="bold", color=INK, parse_math=False)
    ax.set_xlabel("effect, ± standard error; in brackets the inputs that had it", fontsize=8, color=MUTED, loc="left")
    return figure_of(ax)

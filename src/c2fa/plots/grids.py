"""Maps of attributions: a bag's instances by its features, a recording's channels by its windows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from c2fa.plots._style import (
    INK,
    MUTED,
    RULE,
    beside,
    clip,
    largest,
    name_ticks,
    own_axes,
    palette,
    plain,
    signs,
    title_and_scale,
)
from c2fa.showing.numbers import of_largest, scaled
from c2fa.views import Bag, Series

if TYPE_CHECKING:
    from c2fa.explanation import Explanation


def bag(e: Explanation, ax: Axes | None = None, *, instances: int = 24) -> Figure:
    """Draw the ``instances`` most important vectors in their own order; features are named where their names fit."""
    assert isinstance(e.view, Bag)
    shown = np.sort(np.argsort(-np.abs(e.high), kind="stable")[:instances]).tolist()
    grid = e.low.reshape(e.view.values.shape)[shown]
    rows, columns = grid.shape
    own, best = own_axes(ax, 8.4, 1.5 + 0.27 * rows), largest(grid)
    mesh = own.pcolormesh(grid, cmap=palette.get().scale, vmin=-best, vmax=best, edgecolors="white", linewidth=1)
    own.set_ylim(rows, 0)
    name_ticks(own.yaxis, np.arange(rows) + 0.5, (clip(e.names[0][j], 150, 8.5) for j in shown))
    at = np.arange(0, columns, -(-columns // 14))
    room = max(320 / min(columns, 14), 20)
    name_ticks(own.xaxis, at + 0.5, (clip(e.view.features[i], room, 8) for i in at), 8)
    for y, j in enumerate(shown):
        beside(own, y + 0.5, e.rounded.signed(e.rounded.values[0][j]), fontsize=8.5, weight="bold")
    own.tick_params(length=0)
    for spine in own.spines.values():
        spine.set_visible(False)
    return title_and_scale(e, own, mesh, ax)


def series(e: Explanation, ax: Axes | None = None) -> Figure:
    """Draw all lanes on one pair of axes, each channel scaled to its own; windows that are parts have bars on top."""
    assert isinstance(e.view, Series)
    channels, steps = e.view.values.shape
    by_channel, top = e.view.order == "channels", float(e.view.order == "windows")
    names = e.names[0] if by_channel else tuple(name.rpartition(" · ")[2] for name in e.names[-1][:channels])
    grid, edges = e.view.grid(e.low), np.append(e.view.starts, steps)
    own, best = own_axes(ax, 8.4, 1.1 + 0.62 * (channels + top)), largest(grid)
    mesh = own.pcolormesh(
        edges, np.arange(channels + 1), grid, cmap=palette.get().scale, vmin=-best, vmax=best, zorder=0
    )
    halo = [withStroke(linewidth=2.6, foreground="white", alpha=0.8)]  # a line that is seen on every tint
    for c, line in enumerate(scaled(e.view.values.astype(np.float64))):
        own.plot(np.arange(steps) + 0.5, c + 0.9 - 0.8 * line, color=INK, lw=0.9, zorder=2, path_effects=halo)
        own.axhline(c, color="white", lw=2, zorder=1)
    for edge in edges[1:-1]:
        own.plot([edge, edge], [0, channels], color=RULE, lw=0.5, zorder=1)
    if by_channel:
        for c, units in enumerate(e.rounded.values[0]):
            beside(own, c + 0.5, e.rounded.signed(units), fontsize=8.5, weight="bold")
    else:
        centres, widths = (edges[:-1] + edges[1:]) / 2, 0.8 * np.diff(edges)
        own.bar(centres, -0.42 * of_largest(e.high), widths, bottom=-0.55, color=signs(e.high), zorder=2)
        own.axhline(-0.55, color=MUTED, lw=0.8)
        beside(own, -0.55, "windows", x=0, shift=(-6, 0), ha="right", fontsize=8.5, weight="bold")
    own.set_xlim(0, steps)
    own.set_ylim(channels, -1.05 * top)
    name_ticks(own.yaxis, np.arange(channels) + 0.5, (clip(n, 120, 8.5) for n in names))
    plain(own)
    own.tick_params(axis="y", length=0)
    own.set_xlabel("step", fontsize=8, color=MUTED)
    return title_and_scale(e, own, mesh, ax)

"""Bags of vectors: a map of instances by features, with the instances' attributions at its side."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from c2fa.explanation import Explanation
from c2fa.plots._style import beside, clip, largest, name_ticks, own_axes, palette, title_and_scale
from c2fa.views import Bag


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

"""Bags of vectors: a map of instances by features."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from c2fa.explanation import Explanation
from c2fa.plots._style import (
    SCALE,
    beside,
    clip,
    headline,
    largest,
    name_ticks,
    own_axes,
    say_contradiction,
    title_and_scale,
)
from c2fa.structure import FloatArray
from c2fa.views import Bag


@dataclass(frozen=True)
class BagDisplay:
    """A bag of vectors as a map of instances by features, with the instances' attributions at its side."""

    grid: FloatArray
    instances: tuple[str, ...]
    features: tuple[str, ...]
    texts: tuple[str, ...]
    title: str
    unit: str = ""

    @classmethod
    def from_explanation(cls, e: Explanation, instances: int = 24) -> BagDisplay:
        """Take the ``instances`` most important instances, in their own order."""
        assert isinstance(e.view, Bag)
        features = e.view.features
        shown = sorted(np.argsort(-np.abs(e.high), kind="stable")[:instances].tolist())
        grid = e.low.reshape(-1, len(features))[shown]
        names, texts = [e.names[0][j] for j in shown], [e.rounded.signed(e.rounded.values[0][j]) for j in shown]
        return cls(grid, tuple(names), features, tuple(texts), headline(e), e.link.unit)

    def draw(self, ax: Axes | None = None) -> Figure:
        """Draw the map; features are named where their names fit."""
        rows, columns = self.grid.shape
        ax = own_axes(ax, 8.4, 1.5 + 0.27 * rows)
        best = largest(self.grid)
        mesh = ax.pcolormesh(self.grid, cmap=SCALE, vmin=-best, vmax=best, edgecolors="white", linewidth=1)
        ax.set_ylim(rows, 0)
        name_ticks(ax.yaxis, np.arange(rows) + 0.5, (clip(n, 150, 8.5) for n in self.instances))
        at = np.arange(0, columns, -(-columns // 14))
        room = max(320 / min(columns, 14), 20)
        name_ticks(ax.xaxis, at + 0.5, (clip(self.features[i], room, 8) for i in at), 8)
        for y, text in enumerate(self.texts):
            beside(ax, y + 0.5, text, fontsize=8.5, weight="bold")
        ax.tick_params(length=0)
        for spine in ax.spines.values():
            spine.set_visible(False)
        return title_and_scale(ax, self.title, mesh, self.unit)


def bag(e: Explanation, ax: Axes | None = None, *, instances: int = 24) -> Figure:
    """Draw a bag of vectors; see ``BagDisplay``."""
    return say_contradiction(BagDisplay.from_explanation(e, instances).draw(ax), ax, e.diagnostics.contradiction)

"""A recording: every channel in its lane, its windows tinted, the parts' attributions at the side or on top."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from c2fa.explanation import Explanation
from c2fa.plots._style import (
    INK,
    MUTED,
    RULE,
    SCALE,
    beside,
    clip,
    headline,
    largest,
    name_ticks,
    own_axes,
    plain,
    say_contradiction,
    signs,
    title_and_scale,
)
from c2fa.showing.drawing import scaled, shares
from c2fa.structure import FloatArray, IntArray
from c2fa.views import Series

_HALO = [withStroke(linewidth=2.6, foreground="white", alpha=0.8)]  # a line that is seen on every tint


@dataclass(frozen=True)
class SeriesDisplay:
    """A recording with the attributions of its windows.

    Attributes
    ----------
    values
        The recording, (channels, steps), each channel scaled to 0..1.
    edges
        The first step of each window, and the end.
    grid
        The attribution of each window of each channel, (channels, windows).
    channel_texts, window_values
        The attributions of the parts: numbers beside the channels, or bars above the windows.
    """

    values: FloatArray
    edges: IntArray
    grid: FloatArray
    names: tuple[str, ...]
    channel_texts: tuple[str, ...]
    window_values: FloatArray | None
    title: str
    unit: str = ""

    @classmethod
    def from_explanation(cls, e: Explanation) -> SeriesDisplay:
        """Read the recording and its windows from the explanation's view."""
        assert isinstance(e.view, Series)
        channels, steps = e.view.values.shape
        by_channel = e.view.order == "channels"
        names = e.names[0] if by_channel else tuple(name.rpartition(" · ")[2] for name in e.names[-1][:channels])
        return cls(
            values=scaled(e.view.values.astype(np.float64)),
            edges=np.append(e.view.starts, steps),
            grid=e.view.grid(e.low),
            names=names,
            channel_texts=tuple(e.rounded.signed(units) for units in e.rounded.values[0]) if by_channel else (),
            window_values=None if by_channel else e.high,
            title=headline(e),
            unit=e.link.unit,
        )

    def draw(self, ax: Axes | None = None) -> Figure:
        """Draw all lanes on one pair of axes."""
        channels, steps = self.values.shape
        top = 1.0 if self.window_values is not None else 0.0
        ax = own_axes(ax, 8.4, 1.1 + 0.62 * (channels + top))
        best = largest(self.grid)
        lanes = np.arange(channels + 1)
        mesh = ax.pcolormesh(self.edges, lanes, self.grid, cmap=SCALE, vmin=-best, vmax=best, zorder=0)
        for c in range(channels):
            line = c + 0.9 - 0.8 * self.values[c]
            ax.plot(np.arange(steps) + 0.5, line, color=INK, lw=0.9, zorder=2, path_effects=_HALO)
            ax.axhline(c, color="white", lw=2, zorder=1)
        for edge in self.edges[1:-1]:
            ax.plot([edge, edge], [0, channels], color=RULE, lw=0.5, zorder=1)
        if self.window_values is not None:
            tall = largest(self.window_values)
            centres, widths = (self.edges[:-1] + self.edges[1:]) / 2, np.diff(self.edges)
            paint = signs(self.window_values)
            ax.bar(centres, -0.42 * shares(self.window_values, tall), 0.8 * widths, bottom=-0.55, color=paint, zorder=2)
            ax.axhline(-0.55, color=MUTED, lw=0.8)
            beside(ax, -0.55, "windows", x=0, shift=(-6, 0), ha="right", fontsize=8.5, weight="bold")
        ax.set_xlim(0, steps)
        ax.set_ylim(channels, -1.05 * top)
        name_ticks(ax.yaxis, np.arange(channels) + 0.5, (clip(n, 120, 8.5) for n in self.names))
        for c, text in enumerate(self.channel_texts):
            beside(ax, c + 0.5, text, fontsize=8.5, weight="bold")
        plain(ax)
        ax.tick_params(axis="y", length=0)
        ax.set_xlabel("step", fontsize=8, color=MUTED)
        return title_and_scale(ax, self.title, mesh, self.unit)


def series(e: Explanation, ax: Axes | None = None) -> Figure:
    """Draw a recording; see ``SeriesDisplay``."""
    return say_contradiction(SeriesDisplay.from_explanation(e).draw(ax), ax, e.diagnostics.contradiction)

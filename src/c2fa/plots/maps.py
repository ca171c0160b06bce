"""Attributions over the input itself: tinted super-pixels (the paper's figure), maps of a bag and of a recording."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from c2fa.plots._style import (
    INK,
    MUTED,
    RULE,
    SCALE,
    beside,
    clip,
    contradictions,
    figure,
    headline,
    largest,
    legend_bar,
    name_ticks,
    named,
    own_axes,
    plain,
    predicted,
    say_contradiction,
    signs,
    title_and_scale,
    width_of,
)
from c2fa.showing.numbers import number, of_largest, scaled, shares
from c2fa.showing.printing import one_line, singular
from c2fa.structure import FloatArray, IntArray
from c2fa.views import Bag, Images, Series
from c2fa.views.images import Pixels, Shown, tint

if TYPE_CHECKING:
    from c2fa.explanation import Explanation


@dataclass(frozen=True, eq=False)
class Panel:
    """A picture and its title, in a red frame or none; on it edges, (n, 2, 2) as x and y, and numbers at places."""

    title: str
    picture: Pixels
    framed: bool = False
    edges: FloatArray | None = None
    numbers: tuple[tuple[float, float, str], ...] = ()


@dataclass(frozen=True)
class ImagesDisplay:
    """The pictures of one or several explanations of the same bag, tinted once.

    ``rows`` has for each explanation its name and tinted panels: one for each image, or the two levels of a single
    image. ``scale`` is what a full tint stands for; None where explanations, or levels, have different ones.
    """

    images: tuple[Panel, ...]
    rows: tuple[tuple[str, tuple[Panel, ...]], ...]
    title: str
    scale: float | None

    @classmethod
    def from_explanations(
        cls, explanations: Explanation | Sequence[Explanation] | Mapping[str, Explanation]
    ) -> ImagesDisplay:
        """Tint the super-pixels; the image of a bag that speaks most for the target has a red frame."""
        by_name = named(explanations)
        first = next(iter(by_name.values()))
        pictures = [part.image for part in _shown(first)]
        single, several = len(pictures) == 1, len(by_name) > 1
        rows = []
        for name, e in by_name.items():
            leaves = shares(e.low, largest(e.low))
            panels = _levels(e, leaves) if single else _images(e, leaves)
            rows.append((name if several else "", tuple(panels)))
        framed = int(np.argmax(first.high)) if not single and np.any(first.high > 0) else None
        captions = ["input"] if single else first.names[0]
        return cls(
            images=tuple(Panel(captions[j], image, j == framed) for j, image in enumerate(pictures)),
            rows=tuple(rows),
            title=predicted(first) if several else headline(first),
            scale=None if single or several else largest(first.low),
        )

    def draw(self, columns: int = 8) -> Figure:
        """Draw the input above each explanation, more than ``columns`` images wrapped; a single image beside it."""
        single = len(self.images) == 1
        if single:
            lines = [(name, (*self.images, *panels)) for name, panels in self.rows]
        else:
            lines = [
                (name, panels[start : start + columns])
                for start in range(0, len(self.images), columns)
                for name, panels in (("", self.images), *self.rows)
            ]
        across, deep = len(lines[0][1]), len(lines)
        cell = 2.7 if single else max(1.05, min(1.7, 11 / across))
        ratio = max(panel.picture.shape[0] / panel.picture.shape[1] for panel in self.images)
        made = figure(0.5 + cell * across, (1.1 if single else 0.75) + deep * (cell * ratio + 0.24))
        grid = made.add_gridspec(deep + 1, across, height_ratios=[*[1.0] * deep, 0.06 if single else 0.09])
        for y, (name, panels) in enumerate(lines):
            for x, panel in enumerate(panels):
                ax = made.add_subplot(grid[y, x])
                _draw(ax, panel, cell * 66)
                if x == 0:
                    ax.set_ylabel(name, fontsize=9, color=INK, parse_math=False)
        legend = made.add_subplot(grid[-1, :])
        tinted = tint(np.full((1, 256, 3), 128, dtype=np.uint8), np.linspace(-1, 1, 256)[None])
        if self.scale is None:
            whole = "the level's largest" if single else "the largest super-pixel"
            legend_bar(legend, f"tint: share of {whole}", tinted)
        else:
            ends = (f"−{number(self.scale)} against", f"for +{number(self.scale)}")
            legend_bar(legend, "tint: a super-pixel's attribution", tinted, ends)
        made.suptitle(self.title, x=0.01, ha="left", fontsize=10, weight="bold", color=INK, parse_math=False)
        return made


def images(
    explanations: Explanation | Sequence[Explanation] | Mapping[str, Explanation], *, columns: int = 8
) -> Figure:
    """Draw a bag of images with one or several explanations of it; see ``ImagesDisplay``."""
    display = ImagesDisplay.from_explanations(explanations)
    return say_contradiction(display.draw(columns), None, *contradictions(named(explanations)))


def _shown(e: Explanation) -> list[Shown]:
    assert isinstance(e.view, Images)
    return list(e.view.shown())


def _images(e: Explanation, leaves: FloatArray) -> list[Panel]:
    """The images of a bag, tinted by their leaves' shares, under their attributions."""
    panels = []
    for part, units in zip(_shown(e), e.rounded.values[0], strict=True):
        tinted = tint(part.image, leaves[part.first + part.labels])
        panels.append(Panel(e.rounded.signed(units), tinted, False, outlines(part.labels), _numbers(part, leaves, 3)))
    return panels


def _levels(e: Explanation, leaves: FloatArray) -> list[Panel]:
    """A single image twice, tinted by its regions and by its super-pixels."""
    [part], owners = _shown(e), e.structure.owners(0)
    panels = []
    for level, values, labels in ((0, of_largest(e.high), owners[part.labels]), (-1, leaves, part.labels)):
        count, name = e.structure.widths[level], e.level_names[level]
        title = f"{count} {name if count > 1 else singular(name)}, full tint ±{number(largest(e.values[level]))}"
        tinted = tint(part.image, values[labels])
        panels.append(Panel(title, tinted, False, outlines(labels), _numbers(part, leaves, 8) if level else ()))
    return panels


def outlines(labels: IntArray) -> FloatArray:
    """The edges between pixels of different labels, (n, 2, 2): the x and y of both ends of each straight piece."""
    across, down = _runs(labels[:-1] != labels[1:]), _runs((labels[:, :-1] != labels[:, 1:]).T)
    down = down[..., ::-1]
    return np.concatenate([across, down]) - 0.5  # a pixel's middle has whole numbers


def _runs(edge: npt.NDArray[np.bool_]) -> FloatArray:
    """Each run of True in a row, as a line along the row's lower side."""
    ends = np.diff(np.pad(edge, ((0, 0), (1, 1))).astype(np.int8), axis=1)
    (rows, starts), stops = np.nonzero(ends > 0), np.nonzero(ends < 0)[1]
    return np.stack([np.stack([starts, rows + 1], axis=1), np.stack([stops, rows + 1], axis=1)], axis=1).astype(float)


def _numbers(part: Shown, values: FloatArray, most: int) -> tuple[tuple[float, float, str], ...]:
    """The numbers of an image's ``most`` weightiest super-pixels, a tenth of the largest at least, in their middles."""
    own = np.abs(values[part.first : part.first + part.count])
    found = []
    for label in np.argsort(-own, kind="stable")[:most].tolist():
        pixels = np.argwhere(part.labels == label)
        if own[label] >= 0.1 and len(pixels):
            y, x = pixels[np.square(pixels - pixels.mean(axis=0)).sum(axis=1).argmin()].tolist()
            found.append((float(x), float(y), str(label + 1)))
    return tuple(found)


def _draw(ax: Axes, panel: Panel, room: float) -> None:
    ax.imshow(panel.picture, interpolation="nearest" if max(panel.picture.shape[:2]) < 64 else "antialiased")
    style: dict[str, Any] = {"color": MUTED, "weight": "normal"}  # of the input
    if panel.edges is not None:
        style = {"color": INK, "weight": "bold"}
        ax.add_collection(LineCollection(list(panel.edges), colors=INK, linewidths=0.4, alpha=0.55), autolim=False)
    for x, y, text in panel.numbers:
        halo = [withStroke(linewidth=1.6, foreground="white")]
        ax.text(x, y, text, fontsize=6.5, color=INK, ha="center", va="center", path_effects=halo, clip_on=True)
    ax.set_xticks([])
    ax.set_yticks([])
    ax.set_title(clip(panel.title, room, 8.5), fontsize=8.5, pad=3, parse_math=False, **style)
    for spine in ax.spines.values():
        spine.set_color("#d7191c" if panel.framed else "#ffffff")
        spine.set_linewidth(3 if panel.framed else 0)


def bag(e: Explanation, ax: Axes | None = None, *, instances: int = 24) -> Figure:
    """Draw the ``instances`` most important vectors in their own order; with 14 features named at most."""
    assert isinstance(e.view, Bag)
    shown = np.sort(np.argsort(-np.abs(e.high), kind="stable")[:instances]).tolist()
    grid = e.low.reshape(e.view.values.shape)[shown]
    rows, columns = grid.shape
    at = np.arange(0, columns, -(-columns // 14))
    room, features = max(400 / min(columns, 14), 20), [one_line(e.view.features[i]) for i in at]
    slanted = any(width_of(name, 8) > room for name in features)
    own, best = own_axes(ax, 8.4, 1.5 + 0.27 * rows + 0.5 * slanted), largest(grid)
    mesh = own.pcolormesh(grid, cmap=SCALE, vmin=-best, vmax=best, edgecolors="white", linewidth=1)
    own.set_ylim(rows, 0)
    name_ticks(own.yaxis, np.arange(rows) + 0.5, (clip(e.names[0][j], 150, 8.5) for j in shown))
    name_ticks(own.xaxis, at + 0.5, (clip(name, 100 if slanted else room, 8) for name in features), 8)
    if slanted:
        own.tick_params(axis="x", rotation=35)
        for label in own.get_xticklabels():
            label.set(ha="right", rotation_mode="anchor")
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
    mesh = own.pcolormesh(edges, np.arange(channels + 1), grid, cmap=SCALE, vmin=-best, vmax=best, zorder=0)
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

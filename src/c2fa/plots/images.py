"""A bag of images in a row, attribution above each, super-pixels outlined and tinted over grey: the paper's figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from c2fa.plots._style import (
    INK,
    MUTED,
    clip,
    contradictions,
    figure,
    headline,
    largest,
    legend_bar,
    palette,
    predicted,
    say_contradiction,
)
from c2fa.showing.numbers import number, of_largest, shares
from c2fa.showing.printing import singular
from c2fa.structure import FloatArray, IntArray
from c2fa.views.images import Images, Pixels, Shown, tint

if TYPE_CHECKING:
    from c2fa.explanation import Explanation

Positive = int | Sequence[int] | Literal["top"] | None


@dataclass(frozen=True, eq=False)
class Marks:
    """What is drawn on top of a tinted picture: edges, (n, 2, 2) as x and y, and numbers with their places."""

    edges: FloatArray
    numbers: tuple[tuple[float, float, str], ...] = ()


@dataclass(frozen=True)
class ImagesDisplay:
    """The pictures of one or several explanations of the same bag, tinted once.

    Attributes
    ----------
    images
        The input, (H, W, 3) uint8 each.
    rows
        For each explanation its name and, for each image, a title and the tinted picture.
    marks
        For each of these pictures the outlines of its super-pixels and the numbers of the weightiest.
    framed
        The images with a red frame.
    scale
        What a full tint stands for; None where explanations, or levels, have different ones.
    """

    images: tuple[Pixels, ...]
    captions: tuple[str, ...]
    rows: tuple[tuple[str, tuple[tuple[str, Pixels], ...]], ...]
    marks: tuple[tuple[Marks, ...], ...]
    framed: frozenset[int]
    title: str
    scale: float | None

    @classmethod
    def from_explanations(
        cls,
        explanations: Explanation | Sequence[Explanation] | Mapping[str, Explanation],
        *,
        threshold: float = 0.0,
        positive: Positive = "top",
    ) -> ImagesDisplay:
        """Tint the super-pixels whose absolute attribution is above ``threshold``.

        ``positive`` is the image, or the images, with a red frame: those that are known to be positive, or ``"top"``
        for the one with the largest attribution.
        """
        named = _named(explanations)
        first = next(iter(named.values()))
        pictures = [part.image for part in _shown(first)]
        single = len(pictures) == 1
        rows: list[tuple[str, tuple[tuple[str, Pixels], ...]]] = []
        marks, tints = [], palette.get().tints
        for name, e in named.items():
            leaves = shares(np.where(np.abs(e.low) > threshold, e.low, 0.0), largest(e.low))
            panels, drawn = [], []
            if single:  # its regions, and beside them its super-pixels
                counts = zip(e.structure.widths, e.level_names, strict=True)
                titles = [f"{count} {level if count > 1 else singular(level)}" for count, level in counts]
                [part], owners = _shown(e), e.structure.owners(0)
                for title, values, level in (
                    (titles[0], of_largest(e.high)[owners], e.high),
                    (titles[-1], leaves, e.low),
                ):
                    full = f"{title}, full tint ±{number(largest(level))}"
                    panels.append((full, tint(part.image, values[part.labels], tints)))
                drawn = [Marks(outlines(owners[part.labels])), Marks(outlines(part.labels), _numbers(part, leaves, 8))]
            else:
                for part, units in zip(_shown(e), e.rounded.values[0], strict=True):
                    panels.append((e.rounded.signed(units), tint(part.image, leaves[part.first + part.labels], tints)))
                    drawn.append(Marks(outlines(part.labels), _numbers(part, leaves, 3)))
            rows.append((name if len(named) > 1 else "", tuple(panels)))
            marks.append(tuple(drawn))
        if positive == "top":
            framed = {int(np.argmax(first.high))} if not single and np.any(first.high > 0) else set[int]()
        else:
            framed = set(np.atleast_1d(positive).tolist()) if positive is not None else set()
        captions = ["input"] if single else list(first.names[0])
        title = headline(first) if len(named) == 1 else predicted(first)
        scale = None if single or len(named) > 1 else largest(first.low)
        return cls(tuple(pictures), tuple(captions), tuple(rows), tuple(marks), frozenset(framed), title, scale)

    def draw(self, columns: int = 8) -> Figure:
        """Draw the input in the first row and each explanation below it; more than ``columns`` images wrap."""
        if len(self.images) == 1:
            return self._draw_one()
        count = len(self.images)
        across = min(columns, count)
        blocks = -(-count // across)
        deep = 1 + len(self.rows)
        ratio = max(image.shape[0] / image.shape[1] for image in self.images)
        cell = max(1.05, min(1.7, 11 / across))
        made = figure(0.5 + cell * across, 0.75 + blocks * deep * (cell * ratio + 0.24))
        grid = made.add_gridspec(blocks * deep + 1, across, height_ratios=[*[1.0] * blocks * deep, 0.09])
        for j, image in enumerate(self.images):
            block, column = divmod(j, across)
            ax = made.add_subplot(grid[block * deep, column])
            _picture(ax, image, clip(self.captions[j], cell * 66, 8.5), framed=j in self.framed, muted=True)
            for r, (name, panels) in enumerate(self.rows):
                ax = made.add_subplot(grid[block * deep + 1 + r, column])
                _picture(ax, panels[j][1], panels[j][0], framed=False, marks=self.marks[r][j])
                if column == 0 and name:
                    ax.set_ylabel(name, fontsize=9, color=INK, parse_math=False)
        self._finish(made, made.add_subplot(grid[-1, :]), "the largest super-pixel")
        return made

    def _draw_one(self) -> Figure:
        deep = len(self.rows)
        ratio = self.images[0].shape[0] / self.images[0].shape[1]
        made = figure(8.6, 0.9 + deep * (2.8 * ratio + 0.3))
        grid = made.add_gridspec(deep + 1, 3, height_ratios=[*[1.0] * deep, 0.06])
        for r, (name, panels) in enumerate(self.rows):
            ax = made.add_subplot(grid[r, 0])
            _picture(ax, self.images[0], self.captions[0], framed=False)
            ax.set_ylabel(name, fontsize=9, color=INK, parse_math=False)
            for k, (title, tinted) in enumerate(panels):
                _picture(made.add_subplot(grid[r, k + 1]), tinted, title, framed=False, marks=self.marks[r][k])
        self._finish(made, made.add_subplot(grid[-1, :]), "the level's largest")
        return made

    def _finish(self, made: Figure, legend: Axes, whole: str) -> None:
        grey = np.full((1, 256, 3), 128, dtype=np.uint8)
        tinted = tint(grey, np.linspace(-1, 1, 256)[None], palette.get().tints)
        if self.scale is None:
            legend_bar(legend, f"tint: share of {whole}", tinted)
        else:
            ends = (f"−{number(self.scale)} against", f"for +{number(self.scale)}")
            legend_bar(legend, "tint: a super-pixel's attribution", tinted, ends)
        made.suptitle(self.title, x=0.01, ha="left", fontsize=10, weight="bold", color=INK, parse_math=False)


def images(
    explanations: Explanation | Sequence[Explanation] | Mapping[str, Explanation],
    *,
    threshold: float = 0.0,
    positive: Positive = "top",
    columns: int = 8,
) -> Figure:
    """Draw a bag of images with one or several explanations of it; see ``ImagesDisplay``."""
    display = ImagesDisplay.from_explanations(explanations, threshold=threshold, positive=positive)
    return say_contradiction(display.draw(columns), None, *contradictions(_named(explanations)))


def _named(
    explanations: Explanation | Sequence[Explanation] | Mapping[str, Explanation],
) -> dict[str, Explanation]:
    if isinstance(explanations, Mapping):
        return dict(explanations)
    if isinstance(explanations, Sequence):
        return {f"{k + 1}: {e.provenance.get('method', '')}": e for k, e in enumerate(explanations)}
    return {"": explanations}


def _shown(e: Explanation) -> list[Shown]:
    assert isinstance(e.view, Images)
    return list(e.view.shown())


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


def _picture(
    ax: Axes, image: Pixels, title: str, *, framed: bool, muted: bool = False, marks: Marks | None = None
) -> None:
    ax.imshow(image, interpolation="nearest" if max(image.shape[:2]) < 64 else "antialiased")
    if marks is not None:
        ax.add_collection(LineCollection(list(marks.edges), colors=INK, linewidths=0.4, alpha=0.55), autolim=False)
        for x, y, text in marks.numbers:
            halo = [withStroke(linewidth=1.6, foreground="white")]
            ax.text(x, y, text, fontsize=6.5, color=INK, ha="center", va="center", path_effects=halo, clip_on=True)
    ax.set_xticks([])
    ax.set_yticks([])
    ax.set_title(
        title,
        fontsize=8.5,
        color=MUTED if muted else INK,
        pad=3,
        parse_math=False,
        weight="normal" if muted else "bold",
    )
    for spine in ax.spines.values():
        spine.set_color("#d7191c" if framed else "#ffffff")
        spine.set_linewidth(3 if framed else 0)

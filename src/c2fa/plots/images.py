"""A bag of images in a row, attribution above each, super-pixels tinted over grey: the paper's figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from c2fa.drawing import shares
from c2fa.explanation import Explanation
from c2fa.plots._style import (
    INK,
    MUTED,
    SCALE,
    clip,
    figure,
    headline,
    largest,
    legend_bar,
    predicted,
    signed,
)
from c2fa.printing import singular
from c2fa.structure import FloatArray

_FRAME = "#d7191c"
Positive = int | Sequence[int] | Literal["top"] | None


def tint(image: npt.NDArray[np.uint8], shares: FloatArray, strength: float = 0.85) -> npt.NDArray[np.uint8]:
    """Tint an image, (H, W, 3), that turns grey, by shares from −1 to 1 for each pixel, (H, W)."""
    grey = image.astype(np.float64) @ (0.299, 0.587, 0.114)
    ground = np.repeat((90 + 0.62 * grey)[..., None], 3, axis=-1)
    shares = np.clip(shares, -1, 1)
    # The scale's own pale middle would wash the picture out: take its strong colours and let opacity say how much.
    strong = SCALE(np.where(shares > 0, 0.93, 0.07))[..., :3] * 255
    opacity = strength * np.abs(shares)[..., None]
    mixed: npt.NDArray[np.uint8] = np.clip(ground * (1 - opacity) + strong * opacity, 0, 255).astype(np.uint8)
    return mixed


@dataclass(frozen=True)
class ImagesDisplay:
    """The pictures of one or several explanations of the same bag, tinted once.

    Attributes
    ----------
    images
        The input, (H, W, 3) uint8 each.
    rows
        For each explanation its name and, for each image, a title and the tinted picture.
    framed
        The images with a red frame.
    """

    images: tuple[npt.NDArray[np.uint8], ...]
    captions: tuple[str, ...]
    rows: tuple[tuple[str, tuple[tuple[str, npt.NDArray[np.uint8]], ...]], ...]
    framed: frozenset[int]
    title: str

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
        pictures = [np.asarray(image, dtype=np.uint8) for image in first.view["images"]]
        single = len(pictures) == 1
        rows: list[tuple[str, tuple[tuple[str, npt.NDArray[np.uint8]], ...]]] = []
        for name, e in named.items():
            panels = _panels_of_one(e, pictures[0], threshold) if single else _panels(e, pictures, threshold)
            rows.append((name if len(named) > 1 else "", tuple(panels)))
        if positive == "top":
            framed = {int(np.argmax(first.high))} if not single and np.any(first.high > 0) else set[int]()
        else:
            framed = set(np.atleast_1d(positive).tolist()) if positive is not None else set()
        captions = ["input"] if single else list(first.names[0])
        title = headline(first) if len(named) == 1 else predicted(first)
        return cls(tuple(pictures), tuple(captions), tuple(rows), frozenset(framed), title)

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
                _picture(ax, panels[j][1], panels[j][0], framed=False)
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
            for k, (title, shown) in enumerate(panels):
                _picture(made.add_subplot(grid[r, k + 1]), shown, title, framed=False)
        self._finish(made, made.add_subplot(grid[-1, :]), "the level's largest")
        return made

    def _finish(self, made: Figure, legend: Axes, whole: str) -> None:
        legend_bar(legend, f"tint: share of {whole}")
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
    return display.draw(columns)


def _named(
    explanations: Explanation | Sequence[Explanation] | Mapping[str, Explanation],
) -> dict[str, Explanation]:
    if isinstance(explanations, Explanation):
        return {"": explanations}
    if isinstance(explanations, Mapping):
        return dict(explanations)
    return {f"{k + 1}: {e.provenance.get('method', '')}": e for k, e in enumerate(explanations)}


def _kept(values: FloatArray, threshold: float) -> FloatArray:
    return shares(np.where(np.abs(values) > threshold, values, 0.0), largest(values))


def _panels(
    e: Explanation, pictures: list[npt.NDArray[np.uint8]], threshold: float
) -> list[tuple[str, npt.NDArray[np.uint8]]]:
    leaves, at = _kept(e.low, threshold), 0
    panels = []
    for j, (image, labels) in enumerate(zip(pictures, label_maps(e.view), strict=True)):
        panels.append((signed(e.rounded, e.rounded.values[0][j]), tint(image, leaves[at + labels])))
        at += int(labels.max()) + 1
    return panels


def _panels_of_one(
    e: Explanation, image: npt.NDArray[np.uint8], threshold: float
) -> list[tuple[str, npt.NDArray[np.uint8]]]:
    labels, counts = label_maps(e.view)[0], zip(e.structure.widths, e.level_names, strict=True)
    titles = [f"{count} {name if count > 1 else singular(name)}" for count, name in counts]
    parts = shares(e.high, largest(e.high))[e.structure.owners(0)]
    return [
        (titles[0], tint(image, parts[labels])),
        (titles[-1], tint(image, _kept(e.low, threshold)[labels])),
    ]


def label_maps(view: Mapping[str, Any]) -> list[npt.NDArray[np.intp]]:
    """The label maps of a view; each counts from 0 within its own image."""
    return [np.asarray(labels, dtype=np.intp) for labels in view["labels"]]


def _picture(ax: Axes, image: npt.NDArray[np.uint8], title: str, *, framed: bool, muted: bool = False) -> None:
    ax.imshow(image, interpolation="nearest" if max(image.shape[:2]) < 64 else "antialiased")
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
        spine.set_color(_FRAME if framed else "#ffffff")
        spine.set_linewidth(3 if framed else 0)

"""A passage with its words shaded and its sentences underlined on one scale, and the paper's bars below it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle

from c2fa.plots._style import (
    INK,
    MUTED,
    beside,
    clip,
    colour,
    draw_bars,
    figure,
    figure_of,
    headline,
    legend_bar,
    right_to_left,
    say_contradiction,
    width_of,
)
from c2fa.showing.numbers import of_largest
from c2fa.showing.printing import singular
from c2fa.structure import FloatArray, IntArray
from c2fa.views import Text

if TYPE_CHECKING:
    from c2fa.explanation import Explanation

_SIZE, _LINE = 10.0, 23.0  # points
_WIDTH = 590.0  # points of a line
_SPACE = 0.3 * _SIZE


@dataclass(frozen=True)
class Piece:
    """A word where it stands: ``x`` from the left and ``line`` from the top, in points and lines.

    ``leaf`` is −1 for what is no feature: a sentence's number, or the sign that sentences were left out.
    """

    text: str
    x: float
    width: float
    line: int
    leaf: int
    part: int


@dataclass(frozen=True)
class Bar:
    """A bar below the passage, with the number beside it."""

    name: str
    value: float
    error: float | None
    text: str


@dataclass(frozen=True, eq=False)
class TextDisplay:
    """The words of an explained text where they stand in so many lines."""

    e: Explanation
    pieces: tuple[Piece, ...]
    lines: int

    @classmethod
    def from_explanation(cls, e: Explanation, words: int = 300) -> TextDisplay:
        """Lay a text out; of a longer one the most important sentences that hold about ``words`` words."""
        assert isinstance(e.view, Text)
        inner = max(e.structure.depth - 2, 0)
        owner, shown, room = e.structure.owners(inner), set[int](), words
        counts = np.bincount(owner)
        for j in _largest(e.values[inner], len(counts)):
            if not shown or counts[j] <= room:
                shown.add(j)
                room -= counts[j]
        layout = _lay_out(e.view, owner, shown, numbered=e.structure.depth > 1)
        return cls(e, tuple(layout.pieces), layout.line + 1)

    @property
    def inner(self) -> int:
        return max(self.e.structure.depth - 2, 0)

    def draw(self, ax: Axes | None = None) -> Figure:
        """Draw the passage alone; on given axes it is made smaller until its lines fit their width."""
        if ax is None:
            return self._page()
        ax.set_xlim(0, _WIDTH)
        ax.set_ylim(self.lines, 0)
        ax.axis("off")
        shrink = min(1.0, ax.get_position().width * figure_of(ax).get_size_inches()[0] * 72 / _WIDTH)
        of_parts, of_leaves = of_largest(self.e.values[self.inner]), of_largest(self.e.low)
        for piece, following in zip(self.pieces, (*self.pieces[1:], None), strict=True):
            left, right = piece.x, piece.x + piece.width
            if following and (following.leaf, following.line) == (piece.leaf, piece.line):  # one box for both words
                left, right = min(left, following.x + following.width), max(right, following.x)
            if piece.part >= 0 and not self._flat:  # the line under a word that shows its sentence's attribution
                at, wide = (left - 1.6, piece.line + 0.76), right - left + 3.6
                ax.add_patch(Rectangle(at, wide, 0.13, fc=colour(of_parts[piece.part]), ec="none", lw=0))
            _word(ax, piece, (left, right), 0.0 if piece.leaf < 0 else of_leaves[piece.leaf], _SIZE * shrink)
        title = clip(headline(self.e), _WIDTH * shrink, 10, bold=True)
        ax.set_title(title, loc="left", fontsize=10, weight="bold", color=INK, parse_math=False)
        return figure_of(ax)

    @property
    def _flat(self) -> bool:
        return self.e.structure.widths[self.inner] == self.e.structure.leaves

    def _page(self, more: float = 0.0) -> Figure:
        """A figure of the passage and its legend, with ``more`` points below them."""
        passage = self.lines * _LINE
        made = figure((_WIDTH + 2 * _MARGIN) / 72, (_TITLE + passage + _LEGEND + more) / 72)
        made.set_layout_engine("none")  # only where axes are placed by hand do measured words stay where they were put
        self.draw(_place(made, _MARGIN, _TITLE, _WIDTH, passage))
        parts, leaves = self.e.level_names[self.inner], self.e.level_names[-1]
        key = leaves if self._flat else f"{leaves} (boxes) and {parts} (lines)"
        scale = _place(made, _MARGIN, _TITLE + passage + 22, _WIDTH, 10)
        legend_bar(scale, f"{key}: share of the level's largest")
        return made

    def draw_with_bars(self, top: int = 5, parts: int = 12) -> Figure:
        """Draw the paper's figure: the passage above, the sentences' bars left, the top words' bars right."""
        count, *above, label, leaf = self.e.structure.widths[self.inner], "", *self.e.level_names
        shown = [] if self._flat else sorted(_largest(self.e.values[self.inner], parts))
        best = _largest(self.e.low, top)
        bars = self._part_bars(shown)
        rows = max(len(bars), len(best), 3)
        height, y = 17.0 * rows, _TITLE + self.lines * _LINE + _LEGEND + 34
        made = self._page(34 + height + 26)
        if not self._flat:
            title = label if len(shown) == count else f"{len(shown)} of {count} {label}"
            left = _place(made, _MARGIN + 150, y, 110, height)
            _bars(left, bars, " › ".join([*above[1:], title]), 146, rows)
        x, width = (92, 300) if self._flat else (415, 130)
        right = _place(made, _MARGIN + x, y, width, height)
        title = f"top {len(best)} {leaf}" if len(best) > 1 else f"top {singular(leaf)}"
        _bars(right, [replace(self._bar(-1, i, self.e.names[-1][i]), error=None) for i in best], title, 88, rows)
        return made

    def _bar(self, level: int, i: int, name: str) -> Bar:
        e = self.e
        error = None if e.stderr is None else float(e.stderr[level][i])
        return Bar(name, float(e.values[level][i]), error, e.rounded.signed(e.rounded.values[level][i]))

    def _part_bars(self, chosen: list[int]) -> list[Bar]:
        """The bars of some sentences in their order, each paragraph's before the first of its own."""
        e, owner, bars = self.e, self.e.structure.owners(self.inner), list[Bar]()
        waiting = []  # for each feature above the sentences, the number of its first sentence, and its bar
        for level in range(self.inner):
            above, label = e.structure.owners(level), singular(e.level_names[level]).capitalize()
            for j in range(e.structure.widths[level]):
                waiting.append((int(owner[above == j].min()), level, self._bar(level, j, f"{label} {j + 1}")))
        for j in chosen:
            # Of paragraphs that none of the chosen sentences is in, only the last has begun before this one.
            begun = {level: bar for first, level, bar in waiting if first <= j}
            waiting = [later for later in waiting if later[0] > j]
            bars += [begun[level] for level in sorted(begun)]
            bars.append(self._bar(self.inner, j, f"{j + 1}  {e.names[self.inner][j]}"))
        return bars


_MARGIN, _TITLE, _LEGEND = 14.0, 26.0, 52.0  # points


def _place(made: Figure, x: float, y: float, width: float, height: float) -> Axes:
    """Axes at a place in points from the upper left."""
    across, down = (72 * side for side in made.get_size_inches())
    return made.add_axes((x / across, 1 - (y + height) / down, width / across, height / down))


def _word(ax: Axes, piece: Piece, ends: tuple[float, float], share: float, size: float) -> None:
    if abs(share) > 0.02:
        at, width = (ends[0] - 1, piece.line + 0.06), ends[1] - ends[0] + 2
        style: dict[str, Any] = {"boxstyle": "round,pad=0,rounding_size=2.4", "mutation_aspect": 1 / _LINE, "lw": 0}
        ax.add_patch(FancyBboxPatch(at, width, 0.64, fc=colour(share), ec="none", **style))
    style = {"fontsize": size, "color": "white" if abs(share) > 0.72 else INK}  # white on a dark ground
    if piece.leaf < 0:
        style = {"fontsize": size * 0.72, "color": MUTED, "weight": "bold"}
    ax.text(piece.x, piece.line + 0.56, piece.text, va="baseline", parse_math=False, **style)


def text(e: Explanation, ax: Axes | None = None, *, bars: bool = True, top: int = 5, words: int = 300) -> Figure:
    """Draw a text's explanation: the passage, and with ``bars`` the sentences' and the ``top`` words' bars below."""
    display = TextDisplay.from_explanation(e, words)
    made = display.draw_with_bars(top) if bars and ax is None else display.draw(ax)
    return say_contradiction(made, ax, e.diagnostics.contradiction)


def _largest(values: FloatArray, count: int) -> list[int]:
    found: list[int] = np.argsort(-np.abs(values), kind="stable")[:count].tolist()
    return found


class _Layout:
    """Words placed one after another, from the side at which the text begins."""

    def __init__(self, backwards: bool) -> None:
        self.backwards = backwards
        self.pieces: list[Piece] = []
        self.at, self.line = 0.0, 0

    def put(self, word: str, leaf: int, part: int, gap: float, size: float = _SIZE, after: float = 0.0) -> None:
        """Place a word, on a new line where it and what must stand ``after`` it do not fit."""
        width = width_of(word, size, leaf < 0)
        if self.at and self.at + gap + width + after > _WIDTH:
            self.new_line()
        x = self.at + (gap if self.at else 0.0)
        self.pieces.append(Piece(word, _WIDTH - x - width if self.backwards else x, width, self.line, leaf, part))
        self.at = x + width

    def new_line(self) -> None:
        self.at, self.line = 0.0, self.line + 1


def _lay_out(view: Text, owner: IntArray, shown: set[int], numbered: bool) -> _Layout:
    """Break words into lines; a sentence begins with its small number, and one that is left out is an ellipsis."""
    text, layout = view.text, _Layout(right_to_left(view.text))
    last, before, skipped = -1, 0, False
    for leaf, ((a, b), part) in enumerate(zip(view.spans.tolist(), owner.tolist(), strict=True)):
        between, before = text[before:a], b
        if part not in shown:
            if not skipped:
                layout.put("[…]", -1, -1, 2 * _SPACE)
            skipped = True
            continue
        skipped = False
        if "\n" in between and layout.at:
            layout.new_line()
        # Words of a sentence that is a leaf are placed one by one: letters are drawn wider than they are measured.
        words = [clip(word, _WIDTH - 30, _SIZE) for word in text[a:b].split()] or [text[a:b]]
        if part != last and numbered:
            layout.put(f"{part + 1}", -1, part, 2.2 * _SPACE, 0.72 * _SIZE, _SPACE + width_of(words[0], _SIZE))
        # Pieces of one word stand close together; between words there are blanks or tags.
        apart = last != part or len(words) > 1 or any(c.isspace() or c == "<" for c in between)
        for word in words:
            layout.put(word, leaf, part, _SPACE if apart else 0.5)
        last = part
    return layout


def _bars(ax: Axes, bars: list[Bar], title: str, room: float, rows: int) -> None:
    draw_bars(ax, [bar.name for bar in bars], [bar.value for bar in bars], [bar.error for bar in bars], room)
    ax.set_ylim(rows - 0.4, -0.6)
    for y, bar in enumerate(bars):
        beside(ax, y, bar.text, shift=(5, 0), fontsize=8, color=MUTED)
    ax.locator_params(axis="x", nbins=3)
    ax.set_title(title, loc="left", fontsize=9, weight="bold", color=INK)

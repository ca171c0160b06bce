"""A passage with its words shaded and its sentences underlined on one scale, and the paper's bars below it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle

from c2fa.explanation import Explanation
from c2fa.plots._style import (
    INK,
    MUTED,
    ROUNDING,
    beside,
    clip,
    colour,
    figure,
    figure_of,
    headline,
    largest,
    legend_bar,
    name_ticks,
    plain,
    right_to_left,
    say_contradiction,
    signs,
    width_of,
)
from c2fa.showing.drawing import shares
from c2fa.showing.printing import singular
from c2fa.structure import FloatArray, IntArray
from c2fa.views import Text

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
    """A bar below the passage, with the number beside it; ``level`` is that of a part that holds others."""

    name: str
    value: float
    error: float | None
    text: str
    level: int = -1


@dataclass(frozen=True)
class TextDisplay:
    """A passage that is broken into lines and shaded.

    Attributes
    ----------
    pieces
        The words where they stand.
    lines
        How many lines there are.
    part_values, leaf_values
        The attributions of the parts that hold the words, and of the words.
    part_names, leaf_names
        Their names.
    heads
        What stands above these parts: for each paragraph, the number of its first sentence and its bar.
    part_texts, leaf_texts
        The numbers beside their bars.
    labels
        What the parts and the leaves are called: sentences, words.
    title
        The line above.
    """

    pieces: tuple[Piece, ...]
    lines: int
    part_values: tuple[float, ...]
    part_errors: tuple[float, ...] | None
    leaf_values: tuple[float, ...]
    part_names: tuple[str, ...]
    leaf_names: tuple[str, ...]
    part_texts: tuple[str, ...]
    leaf_texts: tuple[str, ...]
    title: str
    labels: tuple[str, ...]
    heads: tuple[tuple[int, Bar], ...] = ()

    @classmethod
    def from_explanation(cls, e: Explanation, words: int = 300) -> TextDisplay:
        """Lay a text out; of a longer one the most important sentences that hold about ``words`` words."""
        assert isinstance(e.view, Text)
        inner = max(e.structure.depth - 2, 0)
        owner, values = e.structure.owners(inner), e.values[inner]
        shown = _most_important(np.abs(values), owner, words)
        layout = _lay_out(e.view, owner, shown, numbered=e.structure.depth > 1)
        return cls(
            pieces=tuple(layout.pieces),
            lines=layout.line + 1,
            part_values=tuple(values.tolist()),
            part_errors=None if e.stderr is None else tuple(e.stderr[inner].tolist()),
            leaf_values=tuple(e.low.tolist()),
            part_names=e.names[inner],
            leaf_names=e.names[-1],
            part_texts=tuple(e.rounded.signed(units) for units in e.rounded.values[inner]),
            leaf_texts=tuple(e.rounded.signed(units) for units in e.rounded.values[-1]),
            title=headline(e),
            labels=e.level_names,
            heads=tuple(head for level in range(inner) for head in _heads(e, level, owner)),
        )

    def draw(self, ax: Axes | None = None) -> Figure:
        """Draw the passage alone; on given axes it is made smaller until its lines fit their width."""
        if ax is None:
            made = _free_figure(_TITLE + self.lines * _LINE + _LEGEND)
            ax = _place(made, _MARGIN, _TITLE, _WIDTH, self.lines * _LINE)
            legend_bar(_place(made, _MARGIN, _TITLE + self.lines * _LINE + 22, _WIDTH, 10), self._key)
        ax.set_xlim(0, _WIDTH)
        ax.set_ylim(self.lines, 0)
        ax.axis("off")
        shrink = min(1.0, ax.get_position().width * figure_of(ax).get_size_inches()[0] * 72 / _WIDTH)
        parts, leaves = np.array(self.part_values), np.array(self.leaf_values)
        of_parts, of_leaves = shares(parts, largest(parts)), shares(leaves, largest(leaves))
        for piece in self.pieces:
            if piece.part >= 0 and not self._flat:
                _strip(ax, piece, of_parts[piece.part])
            _word(ax, piece, 0.0 if piece.leaf < 0 else of_leaves[piece.leaf], _SIZE * shrink)
        title = clip(self.title, _WIDTH * shrink, 10, bold=True)
        ax.set_title(title, loc="left", fontsize=10, weight="bold", color=INK, parse_math=False)
        return figure_of(ax)

    @property
    def _flat(self) -> bool:
        return len(self.part_values) == len(self.leaf_values)

    @property
    def _key(self) -> str:
        parts, leaves = self.labels[-2:] if len(self.labels) > 1 else self.labels * 2
        both = leaves if self._flat else f"{leaves} (boxes) and {parts} (lines)"
        return f"{both}: share of the level's largest"

    def draw_with_bars(self, top: int = 5, parts: int = 12) -> Figure:
        """Draw the paper's figure: the passage above, the sentences' bars left, the top words' bars right."""
        shown = _largest(self.part_values, 0 if self._flat else parts)
        best = _largest(self.leaf_values, top)
        rows = max(len(self._part_bars(sorted(shown))), len(best), 3)
        passage, height = self.lines * _LINE, 17.0 * rows
        below = _TITLE + passage
        made = _free_figure(below + _LEGEND + 34 + height + 26)
        self.draw(_place(made, _MARGIN, _TITLE, _WIDTH, passage))
        legend_bar(_place(made, _MARGIN, below + 22, _WIDTH, 10), self._key)
        if not self._flat:
            chosen, count, *above, label = sorted(shown), len(self.part_values), *self.labels[:-1]
            title = label if len(chosen) == count else f"{len(chosen)} of {count} {label}"
            left = _place(made, _MARGIN + 150, below + _LEGEND + 34, 110, height)
            bars = self._part_bars(chosen)
            names, texts = [bar.name for bar in bars], [bar.text for bar in bars]
            errors = None if self.part_errors is None else np.array([bar.error for bar in bars])
            values = np.array([bar.value for bar in bars])
            _bars(left, names, values, errors, texts, " › ".join([*above, title]), 146, rows)
        x, width = (92, 300) if self._flat else (415, 130)
        right = _place(made, _MARGIN + x, below + _LEGEND + 34, width, height)
        label = self.labels[-1]
        title = f"top {len(best)} {label}" if len(best) > 1 else f"top {singular(label)}"
        names, texts = [self.leaf_names[i] for i in best], [self.leaf_texts[i] for i in best]
        _bars(right, names, np.array(self.leaf_values)[best], None, texts, title, 88, rows)
        return made

    def _part_bars(self, chosen: list[int]) -> list[Bar]:
        """The bars of some sentences in their order, each paragraph's before the first of its own."""
        bars: list[Bar] = []
        waiting = list(self.heads)
        for j in chosen:
            # Of paragraphs that none of the chosen sentences is in, only the last has begun before this one.
            begun = {bar.level: bar for first, bar in waiting if first <= j}
            waiting = [(first, bar) for first, bar in waiting if first > j]
            error = None if self.part_errors is None else self.part_errors[j]
            bars += [begun[level] for level in sorted(begun)]
            bars.append(Bar(f"{j + 1}  {self.part_names[j]}", self.part_values[j], error, self.part_texts[j]))
        return bars


_MARGIN, _TITLE, _LEGEND = 14.0, 26.0, 52.0  # points


def _free_figure(height: float) -> Figure:
    """A figure whose axes are placed by hand, in points: only so do measured words stay where they were put."""
    made = figure((_WIDTH + 2 * _MARGIN) / 72, height / 72)
    made.set_layout_engine("none")
    return made


def _place(made: Figure, x: float, y: float, width: float, height: float) -> Axes:
    """Axes at a place in points from the upper left."""
    across, down = (72 * side for side in made.get_size_inches())
    return made.add_axes((x / across, 1 - (y + height) / down, width / across, height / down))


def _strip(ax: Axes, piece: Piece, share: float) -> None:
    """The line under a word that shows its sentence's attribution."""
    at = (piece.x - 1.6, piece.line + 0.76)
    ax.add_patch(Rectangle(at, piece.width + 3.6, 0.13, fc=colour(share), ec="none", lw=0))


def _word(ax: Axes, piece: Piece, share: float, size: float) -> None:
    if abs(share) > 0.02:
        box = FancyBboxPatch(
            (piece.x - 1, piece.line + 0.06),
            piece.width + 2,
            0.64,
            boxstyle="round,pad=0,rounding_size=2.4",
            mutation_aspect=1 / _LINE,
            fc=colour(share),
            ec="none",
            lw=0,
        )
        ax.add_patch(box)
    feature = piece.leaf >= 0
    ax.text(
        piece.x,
        piece.line + 0.56,
        piece.text,
        fontsize=size if feature else size * 0.72,
        va="baseline",
        color=_ink(share, feature),
        weight="normal" if feature else "bold",
        parse_math=False,
    )


def _ink(share: float, feature: bool) -> str:
    """The colour of a word: white on a dark ground."""
    if abs(share) > 0.72:
        return "white"
    return INK if feature else MUTED


def text(e: Explanation, ax: Axes | None = None, *, bars: bool = True, top: int = 5, words: int = 300) -> Figure:
    """Draw a text's explanation: the passage, and with ``bars`` the sentences' and the ``top`` words' bars below."""
    display = TextDisplay.from_explanation(e, words)
    made = display.draw_with_bars(top) if bars and ax is None else display.draw(ax)
    return say_contradiction(made, ax, e.diagnostics.contradiction)


def _most_important(weight: FloatArray, owner: IntArray, words: int) -> set[int]:
    counts = np.bincount(owner, minlength=len(weight))
    shown: set[int] = set()
    for j in np.argsort(-weight, kind="stable").tolist():
        if shown and counts[list(shown)].sum() + counts[j] > words:
            continue
        shown.add(j)
    return shown


def _heads(e: Explanation, level: int, owner: IntArray) -> list[tuple[int, Bar]]:
    """The bars of a level above the sentences, each with the number of its first sentence."""
    above, label = e.structure.owners(level), singular(e.level_names[level]).capitalize()
    errors = None if e.stderr is None else e.stderr[level]
    texts = [e.rounded.signed(units) for units in e.rounded.values[level]]
    return [
        (
            int(owner[above == j].min()),
            Bar(f"{label} {j + 1}", float(value), None if errors is None else float(errors[j]), text, level),
        )
        for j, (value, text) in enumerate(zip(e.values[level], texts, strict=True))
    ]


def _largest(values: tuple[float, ...], count: int) -> list[int]:
    found: list[int] = np.argsort(-np.abs(values), kind="stable")[:count].tolist()
    return found


class _Layout:
    """Words placed one after another, from the side at which the text begins."""

    def __init__(self, backwards: bool) -> None:
        self.backwards = backwards
        self.pieces: list[Piece] = []
        self.at, self.line = 0.0, 0

    def put(self, word: str, size: float, leaf: int, part: int, gap: float, after: float = 0.0) -> None:
        """Place a word, on a new line where it and what must stand ``after`` it do not fit."""
        width = width_of(word, size, leaf < 0)
        if self.at and self.at + gap + width + after > _WIDTH:
            self.new_line()
        x = self.at + (gap if self.at else 0.0)
        self.pieces.append(Piece(word, _WIDTH - x - width if self.backwards else x, width, self.line, leaf, part))
        self.at = x + width

    def put_ellipsis(self) -> None:
        """Show that sentences were left out."""
        self.put("[…]", _SIZE, -1, -1, 2 * _SPACE)

    def new_line(self) -> None:
        self.at, self.line = 0.0, self.line + 1


def _lay_out(view: Text, owner: IntArray, shown: set[int], numbered: bool) -> _Layout:
    """Break words into lines; a sentence begins with its small number."""
    text, layout = view.text, _Layout(right_to_left(view.text))
    last, before, skipped = -1, 0, False
    for leaf, ((a, b), part) in enumerate(zip(view.spans.tolist(), owner.tolist(), strict=True)):
        between, before = text[before:a], b
        if part not in shown:
            skipped = True
            continue
        if skipped:
            layout.put_ellipsis()
            skipped = False
        if "\n" in between and layout.at:
            layout.new_line()
        word = clip(text[a:b], _WIDTH - 30, _SIZE)
        if part != last and numbered:
            layout.put(f"{part + 1}", 0.72 * _SIZE, -1, part, 2.2 * _SPACE, _SPACE + width_of(word, _SIZE))
        # Pieces of one word stand close together; between words there are blanks or tags.
        apart = last != part or any(c.isspace() or c == "<" for c in between)
        layout.put(word, _SIZE, leaf, part, _SPACE if apart else 0.5)
        last = part
    if skipped:
        layout.put_ellipsis()
    return layout


def _bars(
    ax: Axes,
    names: list[str],
    values: FloatArray,
    errors: FloatArray | None,
    texts: list[str],
    title: str,
    room: float,
    rows: int,
) -> None:
    ys, drawn = np.arange(len(names)), np.where(np.isfinite(values), values, 0.0)
    ax.barh(ys, drawn, height=0.62, color=signs(values), zorder=2)
    if errors is not None:
        ax.errorbar(drawn, ys, xerr=errors, fmt="none", ecolor=INK, elinewidth=1, capsize=2, zorder=3)
    ax.axvline(0, color=MUTED, lw=0.8)
    ax.set_ylim(rows - 0.4, -0.6)
    name_ticks(ax.yaxis, ys, (clip(name, room, 8.5) for name in names))
    if np.all(np.abs(drawn) <= ROUNDING):
        ax.set_xlim(-1, 1)
    for y, text in enumerate(texts):
        beside(ax, y, text, shift=(5, 0), fontsize=8, color=MUTED)
    plain(ax)
    ax.locator_params(axis="x", nbins=3)
    ax.tick_params(axis="y", length=0)
    ax.set_title(title, loc="left", fontsize=9, weight="bold", color=INK)

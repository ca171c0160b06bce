"""The nested bar chart: parts, their leaves under them, adding up before one's eyes; of methods side by side."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from c2fa.plots._style import (
    BAND,
    INK,
    MUTED,
    ROUNDING,
    RULE,
    WARN,
    beside,
    clip,
    contradictions,
    figure,
    figure_of,
    headline,
    named,
    own_axes,
    paint,
    plain,
    predicted,
    say_contradiction,
    width_of,
)
from c2fa.showing.numbers import largest, minuses, shares
from c2fa.showing.printing import shown_names, singular
from c2fa.structure import FloatArray, IntArray, Structure

if TYPE_CHECKING:
    from c2fa.explanation import Explanation

_ROW = 0.235  # inches; what a 9-point line needs


@dataclass(frozen=True)
class Row:
    """One bar: it runs from ``start`` to ``start + value``; ``text`` is the number beside it.

    ``kind`` is ``"part"``, ``"leaf"``, ``"rest"`` (features that are not shown, together), ``"gap"`` (what a part's
    children miss of it, for methods whose levels do not add up) or ``"level"`` (the name of a level that is shown
    apart).
    """

    name: str
    depth: int
    start: float
    value: float
    error: float | None
    kind: str
    text: str


@dataclass(frozen=True)
class NestedDisplay:
    """The rows of a nested bar chart, ready to be drawn.

    Under each part its children run as a waterfall: each bar begins where the one above it ends, and the last ends
    where the part's own bar does, because a part's attribution is the sum of its children's. Where the levels
    contradict each other, each is a block of its own and all bars begin at 0.
    """

    rows: tuple[Row, ...]
    title: str
    note: str

    @classmethod
    def from_explanation(cls, e: Explanation, parts: int = 12, leaves: int | None = None) -> NestedDisplay:
        """Choose what is shown: the ``parts`` most important parts in their own order, ``leaves`` children of each.

        ``leaves=None`` takes as many, up to 5, as keep the chart to one page.
        """
        [rows] = _columns([e], parts, leaves)
        return cls(tuple(rows), headline(e), _sum_note(e))

    def draw(self, ax: Axes | None = None, *, labels: bool = True) -> Figure:
        """Draw on axes, or on a new figure as tall as the rows need."""
        ax = own_axes(ax, 8.4, 1.0 + _ROW * len(self.rows))
        height = ax.get_position().height * figure_of(ax).get_size_inches()[1]
        size = float(np.clip(72 * 0.8 * height / max(len(self.rows), 1) / 1.25, 4, 9))  # given axes may be low
        ax.set_xlim(self.limits)
        ax.set_ylim(len(self.rows) - 0.5, -0.5)
        starts = [y for y, row in enumerate(self.rows) if row.depth == 0]
        for a, b in list(zip(starts, [*starts[1:], len(self.rows)], strict=True))[::2]:
            if any(row.depth for row in self.rows):  # every other part is shaded, with all that is under it
                ax.axhspan(a - 0.5, b - 0.5, color=BAND, lw=0, zorder=0)
        ax.axvline(0, color=MUTED, lw=0.8, zorder=1)
        for y, row in enumerate(self.rows):
            _bar(ax, y, row)
        _joints(ax, self.rows)
        left = _labels(ax, self.rows, size) if labels else 0.0
        title = clip(self.title, 500 if labels else 240, 10, bold=True)
        beside(ax, 1, title, x=0, shift=(-left, 8), y_in="axes fraction", va="baseline", fontsize=10, weight="bold")
        for y, row in enumerate(self.rows):
            weight, own = ("bold", size) if row.kind == "part" else ("normal", size - 0.8)
            beside(ax, y, row.text, fontsize=own, weight=weight, color=_ink(row))
        plain(ax)
        ax.set_yticks([])
        ax.locator_params(axis="x", nbins=5)
        ax.set_xlabel(self.note, fontsize=8, color=MUTED, loc="left", parse_math=False)
        return figure_of(ax)

    @property
    def limits(self) -> tuple[float, float]:
        """The horizontal range that holds every bar and every error bar."""
        ends = [0.0]
        for row in self.rows:
            if row.kind != "rest" or row.depth:
                error = (row.error or 0.0) if row.kind == "part" else 0.0
                ends += [row.start, row.start + row.value - error, row.start + row.value + error]
        ends = [end for end in ends if np.isfinite(end)]
        low, high = min(ends), max(ends)
        pad = 0.04 * (high - low)
        return (low - pad, high + pad) if high - low > ROUNDING else (-1.0, 1.0)


def nested(e: Explanation, ax: Axes | None = None, *, parts: int = 12, leaves: int | None = None) -> Figure:
    """Draw the nested bar chart of an explanation; see ``NestedDisplay``."""
    made = NestedDisplay.from_explanation(e, parts, leaves).draw(ax)
    return say_contradiction(made, ax, e.diagnostics.contradiction)


# -- what is shown -----------------------------------------------------------------------------------

Names = tuple[tuple[str, ...], ...]
_Chosen = dict[tuple[int, int], list[int]]  # (level, feature) -> its shown children; (-1, 0) -> the shown parts


def _columns(explanations: Sequence[Explanation], parts: int, leaves: int | None) -> list[list[Row]]:
    """The rows of each explanation, of the features that matter most to any of them, so that they stay level."""
    # How important the features of each level are to any of the explanations, each scaled to its own largest.
    weights = [
        np.max([np.abs(shares(e.values[k], largest(e.values[k]) or 1.0)) for e in explanations], axis=0)
        for k in range(explanations[0].structure.depth)
    ]
    if any(e.diagnostics.contradiction for e in explanations):  # then all have their levels apart
        orders = [np.argsort(-weight, kind="stable").tolist() for weight in weights]
        apart = [*(sorted(order[:parts]) for order in orders[:-1]), orders[-1][: max(parts, 20)]]
        return [_rows_apart(e, apart) for e in explanations]
    chosen = _choose(explanations[0].structure, weights, parts, leaves)
    columns = [_rows(e, chosen) for e in explanations]
    if len(columns) > 1 and any(row.kind == "gap" for rows in columns for row in rows):  # then every part has one
        columns = [_rows(e, chosen, gaps=True) for e in explanations]
    return columns


def _choose(s: Structure, weights: Sequence[FloatArray], parts: int, leaves: int | None) -> _Chosen:
    """The ``parts`` most important parts in their own order, and the most important children of each."""
    top = np.argsort(-weights[0], kind="stable").tolist()
    for each in (5, 4, 3, 2, 1) if leaves is None else (leaves,):
        chosen: _Chosen = {(-1, 0): sorted(top[:parts]) if s.depth > 1 else top[: max(parts, 20)]}
        shown = [(0, i) for i in chosen[(-1, 0)]]
        while shown and shown[0][0] < s.depth - 1:
            for level, i in shown:
                children = np.flatnonzero(s.parents[level] == i)
                order = np.argsort(-weights[level + 1][children], kind="stable")
                chosen[(level, i)] = children[order[:each]].tolist()
            shown = [(level + 1, j) for level, i in shown for j in chosen[(level, i)]]
        if sum(len(features) + 1 for features in chosen.values()) <= 52:  # rows on a page
            break
    return chosen


def _rows(e: Explanation, chosen: _Chosen, gaps: bool = False) -> list[Row]:
    """The rows of a chart in which children follow their part; with ``gaps`` every part has a row for its gap."""
    shown, names = chosen[(-1, 0)], shown_names(e)
    rows = [row for i in shown for row in _branch(e, chosen, names, gaps, 0, i, 0.0)]
    return rows + _rest(e, 0, np.arange(e.structure.widths[0]), shown, f"more {e.level_names[0]}")


def _rows_apart(e: Explanation, chosen: Sequence[Sequence[int]]) -> list[Row]:
    """The rows of a chart in which every level is a block."""
    rows, names = [], shown_names(e)
    for k, (label, shown) in enumerate(zip(e.level_names, chosen, strict=True)):
        rows.append(Row(f"{label}:", 0, 0.0, 0.0, None, "level", ""))
        rows += [_row(e, names, k, i) for i in shown]
        rows += _rest(e, k, np.arange(e.structure.widths[k]), shown, "more")
    return rows


def _branch(e: Explanation, chosen: _Chosen, names: Names, gaps: bool, level: int, i: int, start: float) -> list[Row]:
    """A feature's row, and below it the waterfall of its children."""
    row = _row(e, names, level, i, depth=level, start=start)
    if level == e.structure.depth - 1:
        return [row]
    below, children, shown = level + 1, np.flatnonzero(e.structure.parents[level] == i), chosen[(level, i)]
    if len(children) == 1 and names[below][children[0]] == row.name:  # a part that is one leaf, called as the leaf is
        return [row]
    rows, at = [row], start
    for child in shown:
        rows += _branch(e, chosen, names, gaps, below, child, at)
        at += float(e.values[below][child])
    for rest in _rest(e, below, children, shown, "more", depth=below, start=at):
        rows.append(rest)
        at += rest.value
    gap = e.rounded.values[level][i] - e.rounded.values[below][children].sum()
    if gap and np.isfinite(gap):
        text = e.rounded.signed(gap)
        rows.append(Row("gap to its own value", below, at, start + row.value - at, None, "gap", text))
    elif gaps:
        rows.append(Row("gap to its own value", below, at, 0.0, None, "gap", ""))
    return rows


def _row(e: Explanation, names: Names, level: int, i: int, *, depth: int = 0, start: float = 0.0) -> Row:
    kind = "leaf" if 0 < level == e.structure.depth - 1 else "part"
    error = None if e.stderr is None else float(e.stderr[level][i])
    text = e.rounded.signed(e.rounded.values[level][i], error if depth == 0 else None)
    return Row(names[level][i], depth, start, float(e.values[level][i]), error, kind, text)


def _rest(
    e: Explanation, level: int, among: IntArray, shown: Sequence[int], name: str, *, depth: int = 0, start: float = 0.0
) -> list[Row]:
    """One row for all features that are not shown; none where all are."""
    hidden = np.setdiff1d(among, shown)
    if not len(hidden):
        return []
    text = e.rounded.signed(e.rounded.values[level][hidden].sum())
    return [Row(f"{len(hidden)} {name}", depth, start, float(e.values[level][hidden].sum()), None, "rest", text)]


def _sum_note(e: Explanation) -> str:
    r, name = e.rounded, e.level_names[0]
    start = f"base {r.signed(r.base)} and {name} {r.signed(r.total)}" if e.intercepts[0] else name
    unit = f" {e.link.unit}" if e.link.unit else ""
    says = minuses(r.plain(e.linked))
    return f"{start} make {minuses(r.text(r.made, sign=False))}{unit}; the model says {says}{unit}"


# -- drawing -----------------------------------------------------------------------------------------


def _bar(ax: Axes, y: int, row: Row) -> None:
    if row.kind == "level" or (row.kind == "rest" and row.depth == 0):
        return  # many small parts together would dwarf every bar that is shown
    if (row.kind == "gap" and not row.value) or not np.isfinite(row.start + row.value):
        return
    colour, outer = paint(row.value), row.depth == 0
    height, style = {
        "part": (0.64 if outer else 0.5, {"fc": colour, "ec": "none", "alpha": 1.0 if outer else 0.8}),
        "leaf": (0.36, {"fc": colour, "ec": "none", "alpha": 0.55}),
        "rest": (0.36, {"fc": "white", "ec": colour, "lw": 0.8, "alpha": 0.8, "hatch": "////"}),
        "gap": (0.36, {"fc": "none", "ec": WARN, "lw": 1.0, "ls": "--"}),
    }[row.kind]
    ax.add_patch(Rectangle((row.start, y - height / 2), row.value, height, zorder=2, **style))  # type: ignore[arg-type]
    if row.kind == "part" and row.error and outer:
        end = row.start + row.value
        ax.errorbar(end, y, xerr=row.error, color=INK, lw=1, capsize=2, capthick=1, zorder=3)


def _ink(row: Row) -> str:
    if row.kind == "gap" and row.value:
        return WARN
    return INK if row.kind in ("part", "level") else MUTED


def _joints(ax: Axes, rows: Sequence[Row]) -> None:
    """Thin lines that carry the running sum from one bar to the next, and from the last back to the part's end."""
    for y, row in enumerate(rows):
        stop = next((k for k in range(y + 1, len(rows)) if rows[k].depth <= row.depth), len(rows))
        own = [k for k in range(y + 1, stop) if rows[k].depth == row.depth + 1]
        if not own:
            continue
        for a, b in itertools.pairwise(own):
            at = rows[b].start
            ax.plot([at, at], [a, b], color=MUTED, lw=0.6, zorder=1.5)
        end = row.start + row.value
        ax.plot([end, end], [y, own[-1]], color=MUTED, lw=0.6, ls=(0, (2, 2)), zorder=1.5)


def _labels(ax: Axes, rows: Sequence[Row], size: float) -> float:
    """Write the names left of the axes and return how far they reach, in points."""
    room, indent = 225.0, 12.0
    texts = []
    for row in rows:
        bold = row.kind in ("part", "level") and row.depth == 0
        at = row.depth * indent
        own = size if row.kind == "part" else size - 0.8
        texts.append((clip(row.name, room - at, own, bold) or "(empty)", at, own, bold))
    widest = max((at + width_of(text, own, bold) for text, at, own, bold in texts), default=0.0)
    for y, (row, (text, at, own, bold)) in enumerate(zip(rows, texts, strict=True)):
        weight, slant = "bold" if bold else "normal", "italic" if row.kind in ("rest", "gap") else "normal"
        shift = (at - widest - 10, 0)
        beside(ax, y, text, x=0, shift=shift, fontsize=own, weight=weight, fontstyle=slant, color=_ink(row))
    for y, row in enumerate(rows):
        if row.depth == 0 and y:
            ax.axhline(y - 0.5, color=RULE, lw=0.6, zorder=0.5)
    return widest + 10


def compare(
    explanations: Sequence[Explanation] | Mapping[str, Explanation], *, parts: int = 8, leaves: int | None = 3
) -> Figure:
    """Draw several methods' explanations of one input side by side, with the features that matter to any of them.

    Each has a scale of its own, because their units may differ.
    """
    by_name = named(explanations)
    found = list(by_name.values())
    if len(found) < 2:
        raise ValueError("give at least two explanations to compare")
    if any(e.structure.names != found[0].structure.names for e in found):
        raise ValueError("the explanations are of different inputs: their features differ")
    columns = _columns(found, parts, leaves)
    made = figure(3.6 + 3.3 * len(found), 1.5 + _ROW * len(columns[0]))
    for k, (name, e, rows) in enumerate(zip(by_name, found, columns, strict=True)):
        NestedDisplay(tuple(rows), name, _note(e)).draw(made.add_subplot(1, len(found), k + 1), labels=k == 0)
    made.suptitle(predicted(found[0]), x=0.01, ha="left", fontsize=10.5, weight="bold", color=INK, parse_math=False)
    return say_contradiction(made, None, *contradictions(by_name))


def _note(e: Explanation) -> str:
    d, part, leaf = e.diagnostics, singular(e.level_names[0]), singular(e.level_names[-1])
    agree = "in" if d.agreement else "not in"
    adds = "parts add up" if d.consistency < 1e-9 else f"inconsistency {d.consistency:.2g}"
    unit = f"in {e.link.unit}; " if e.link.unit else ""
    return f"{unit}{adds}; top {leaf} {agree} the top {part}"

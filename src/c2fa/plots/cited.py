"""A cited answer: its statements, under each the bars of the sentences it rests on, and the documents' bars below."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from c2fa.explanation import Explanation
from c2fa.plots._style import (
    INK,
    MUTED,
    NEGATIVE,
    POSITIVE,
    ROUNDING,
    RULE,
    WARN,
    clip,
    figure,
    figure_of,
    right_to_left,
    say_contradiction,
    signed,
    width_of,
)
from c2fa.showing.printing import one_line
from c2fa.views.statements import Source, Statement, minuses, shown_statement, statements, unit

_WIDTH, _LINE, _MARGIN = 610.0, 15.0, 14.0  # points
_SIZE, _SMALL = 9.5, 8.5
_INDENT, _NAMES, _LEFT, _RIGHT = 16.0, 318.0, 330.0, 510.0  # where names and bars begin and end
_FAIR = "#7a5a00"
_INKS = {"rests": MUTED, "little": _FAIR, "nothing": WARN, "unsettled": _FAIR, "opposed": _FAIR}


@dataclass(frozen=True)
class Line:
    """One line of the figure: words across it, or a name with its bar and the number beside it."""

    text: str
    bold: bool = False
    ink: str = INK
    indent: float = 0.0
    above: float = 0.0
    value: float | None = None
    error: float | None = None
    number: str = ""


@dataclass(frozen=True)
class CitedDisplay:
    """The lines of a cited answer, ready to be drawn; all bars are on one scale.

    Attributes
    ----------
    lines
        Each statement, what can be said of it, and its sources with their bars; then the documents.
    title
        The query.
    note
        What the numbers are.
    """

    lines: tuple[Line, ...]
    title: str
    note: str

    @classmethod
    def from_explanation(cls, e: Explanation, most: int = 12, parts: int = 10) -> CitedDisplay:
        """Choose what is shown: up to ``most`` statements, and the ``parts`` documents that matter most."""
        found = statements(e)
        lines = [line for k, s in enumerate(found[:most], start=1) for line in _statement(k, s)]
        if len(found) > most:
            lines.append(Line(f"{len(found) - most} more statements are not shown", ink=MUTED, above=6.0))
        lines += _parts(e, parts)
        measure = e.link.unit or unit(e)
        said = f"bars in {measure}, ± one standard error" if e.stderr is not None else f"bars in {measure}"
        method = str(e.provenance.get("method", ""))
        note = " · ".join([said if measure else "± is one standard error", f"{method}, {e.queries} rows", *e.notes])
        return cls(tuple(lines), one_line(str(e.view["query"])), note)

    @property
    def height(self) -> float:
        """How tall the lines are, in points."""
        return sum(_LINE + line.above for line in self.lines)

    def draw(self, ax: Axes | None = None) -> Figure:
        """Draw on a new figure as tall as the lines need, or on axes, smaller until they fit."""
        if ax is None:
            across, down = _WIDTH + 2 * _MARGIN, self.height + 58
            made = figure(across / 72, down / 72)
            made.set_layout_engine("none")
            ax = made.add_axes((_MARGIN / across, 26 / down, _WIDTH / across, self.height / down))
        ax.set_xlim(0, _WIDTH)
        ax.set_ylim(self.height, 0)
        ax.axis("off")
        box, page = ax.get_position(), figure_of(ax).get_size_inches() * 72
        shrink = min(1.0, box.width * page[0] / _WIDTH, box.height * page[1] / self.height)
        at = 0.0
        for line in self.lines:
            at += line.above
            _draw(ax, line, at, self._place, shrink)
            at += _LINE
        title = clip(self.title, _WIDTH * shrink, 11, bold=True)
        ax.set_title(title, loc="left", fontsize=11, weight="bold", color=INK, parse_math=False)
        _write(ax, 0, self.height + 12, clip(self.note, _WIDTH, 8), 8 * shrink, MUTED)
        return figure_of(ax)

    def _place(self, value: float) -> float:
        """Where a value lies, in points."""
        bars = [(line.value, line.error or 0.0) for line in self.lines if line.value is not None]
        ends = [0.0, *(end for v, error in bars for end in (v - error, v + error) if np.isfinite(end))]
        low, high = min(ends), max(ends)
        return _LEFT + (_RIGHT - _LEFT) * ((value - low) / (high - low) if high - low > ROUNDING else 0.0)


def cited(e: Explanation, ax: Axes | None = None, *, statements: int = 12, documents: int = 10) -> Figure:
    """Draw a cited answer: each statement over the sentences it rests on, and all documents; see ``CitedDisplay``."""
    made = CitedDisplay.from_explanation(e, statements, documents).draw(ax)
    return say_contradiction(made, ax, e.diagnostics.contradiction)


def _statement(k: int, statement: Statement) -> Iterator[Line]:
    for n, text in enumerate(_wrapped(f"[{k}] {one_line(statement.text)}", _WIDTH, bold=True)):
        yield Line(text, bold=True, above=0.0 if n else 7.0)
    verdict = statement.verdict
    bold = verdict == "nothing"
    for text in _wrapped(minuses(statement.told), _WIDTH - _INDENT, bold):
        yield Line(text, bold, _INKS[verdict], _INDENT)
    for source in statement.shown:
        yield Line(_named(source), False, INK, _INDENT, 0.0, source.value, source.stderr, minuses(source.told))


def _parts(e: Explanation, most: int) -> Iterator[Line]:
    """The documents' bars in their own order, and the rest together, which add up to what all of them do."""
    yield Line(minuses(f"What the {e.level_names[0]} do for {shown_statement(e)}"), bold=True, above=12.0)
    chosen = np.sort(np.argsort(-np.abs(e.high), kind="stable")[:most]).tolist()
    units = e.rounded.values[0]
    for j in chosen:
        error = None if e.stderr is None else float(e.stderr[0][j])
        told = signed(e.rounded, units[j], error)
        yield Line(e.names[0][j], False, INK, _INDENT, 0.0, float(e.high[j]), error, told)
    rest = np.setdiff1d(np.arange(len(units)), chosen)
    if len(rest):
        told = signed(e.rounded, units[rest].sum())
        yield Line(f"{len(rest)} more", False, MUTED, _INDENT, 0.0, float(e.high[rest].sum()), None, told)
    yield Line("together", False, MUTED, _INDENT, number=signed(e.rounded, units.sum()))


def _wrapped(text: str, room: float, bold: bool) -> list[str]:
    """A text on one line or two."""
    size = _SIZE if bold else _SMALL
    words = text.split(" ")
    fits = len(words)
    while fits > 1 and width_of(" ".join(words[:fits]), size, bold) > room:
        fits -= 1
    rest = " ".join(words[fits:])
    return [clip(" ".join(words[:fits]), room, size, bold), *([clip(rest, room, size, bold)] if rest else [])]


def _named(source: Source) -> str:
    """A source's name, in which a long document's leaves room for the sentence."""
    if not source.text:
        return source.document
    document = clip(source.document, 0.4 * (_NAMES - _INDENT), _SMALL)
    return f"{document}: {source.text}" if document else source.text


def _draw(ax: Axes, line: Line, at: float, place: Callable[[float], float], shrink: float) -> None:
    middle = at + 0.5 * _LINE
    if line.number:
        _write(ax, line.indent, middle, clip(line.text, _NAMES - line.indent, _SMALL), _SMALL * shrink, line.ink)
        _write(ax, _RIGHT + 8, middle, line.number, _SMALL * shrink, line.ink)
    else:
        backwards = right_to_left(line.text.partition("] ")[2] or line.text)
        x, side = (_WIDTH, "right") if backwards else (line.indent, "left")
        size = _SIZE if line.bold else _SMALL
        _write(ax, x, middle, line.text, size * shrink, line.ink, weight="bold" if line.bold else "normal", ha=side)
    if line.value is None or not np.isfinite(line.value):
        return
    zero, end = place(0.0), place(line.value)
    ax.plot([zero, zero], [at, at + _LINE], color=RULE, lw=0.8, zorder=1)
    ground = POSITIVE if line.value >= 0 else NEGATIVE
    ax.add_patch(Rectangle((min(zero, end), at + 3.5), abs(end - zero), _LINE - 7, fc=ground, ec="none", zorder=2))
    if line.error is not None and np.isfinite(line.error):
        whisker = place(line.value) - place(line.value - line.error)
        ax.errorbar(end, middle, xerr=whisker, fmt="none", ecolor=INK, elinewidth=1, capsize=2, zorder=3)


def _write(ax: Axes, x: float, y: float, text: str, size: float, ink: str, **style: Any) -> None:
    ax.text(x, y, text, fontsize=size, color=ink, va="center", parse_math=False, **style)

"""How an explanation reads: names with what the input has there, notes, and the tree of the terminal."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from c2fa.showing.numbers import largest, number, shares

if TYPE_CHECKING:
    from c2fa.explanation import Explanation


def shown_names(e: Explanation) -> tuple[tuple[str, ...], ...]:
    """The features' names with what the input has there, where its view says; a part that is one column has its."""
    cells, s = e.view.cells(), e.structure
    if not cells:
        return s.names
    levels = [tuple(f"{name} = {value}" for name, value in zip(s.names[-1], cells, strict=True))]
    for k in reversed(range(s.depth - 1)):
        owner, names = s.parents[k], list(s.names[k])
        children = np.bincount(owner)
        for i, j in enumerate(owner.tolist()):
            if children[j] == 1 and names[j] == s.names[k + 1][i]:
                names[j] = levels[0][i]
        levels.insert(0, tuple(names))
    return tuple(levels)


def notes(e: Explanation) -> list[str]:
    """What a reader should know beside the numbers: what a prior did, which leaves masking does not change, pairs."""
    found = [] if e.prior is None else [e.prior.note(e)]
    found += e.view.notes(e.structure)
    if e.answer is not None:
        found += e.answer.notes()
    for k, names in enumerate(shown_names(e)):
        pairs = [pair for pair in e.diagnostics.interactions if pair.level == k and pair.settled]
        for pair in pairs[:3]:
            first, second = (_clip(names[i], 30) for i in (pair.first, pair.second))
            amount = f"{e.rounded.plain(pair.value)} ± {e.rounded.plain(pair.stderr)}"
            found.append(f"{e.level_names[k]} that act together: “{first}” and “{second}”, {amount}")
    return found


def singular(name: str) -> str:
    """One of a level's features.

    >>> singular("words"), singular("leaves")
    ('word', 'leaf')
    """
    return "leaf" if name == "leaves" else name.removesuffix("s")


def tree(e: Explanation, leaves: int = 5, width: int = 100) -> str:
    """The parts in their own order, each with its attribution and a bar; under it its most important features.

    Where the levels contradict each other, each is a list of its own.
    """
    d = e.diagnostics
    lists = _Tree(e, leaves, width)
    head = f"{one_line(e.target_name)}: {number(e.prediction)}{on_scale(e)}"
    if d.exact and abs(e.base + e.high.sum() - e.linked) <= 1e-6 * max(abs(e.linked), abs(e.base)):
        r = e.rounded  # base and attributions make the prediction
        head += f" = base {r.text(r.base, sign=False)} {'−' if r.total < 0 else '+'} {r.text(abs(r.total), sign=False)}"
    lines = [f"{head}   ({', '.join([f'{e.queries} rows', *fit(e)])})"]
    if e.answer is not None:
        for line in e.answer.lines(e, width):
            lines.append(" " * (len(line) - len(line.lstrip(" "))) + one_line(line))
    lines += lists.apart() if d.contradiction else lists.lines()
    if d.stop and d.stop not in d.warnings:
        lines.append(f"· {d.stop}")
    lines += [f"· {note}" for note in notes(e)]
    return printable("\n".join([*lines, *(f"! {warning}" for warning in d.warnings)]))


def fit(e: Explanation) -> list[str]:
    """How well the numbers reproduce the model, in words: of each level that was fitted, or of the whole game."""
    if e.diagnostics.exact:
        said = [f"{name} exact" for name, exact in zip(e.level_names, e.diagnostics.exact, strict=True) if exact]
        left_out = e.diagnostics.levels[-1].r2_left_out
        if left_out is not None and not all(e.diagnostics.exact):
            said.append(f"R² {left_out:z.2f} of rows left out")
        return said
    reports = zip(e.level_names, e.diagnostics.levels, strict=False)
    return [f"R² {report.r2:z.2f} of {name}" for name, report in reports if report.rows]


def cell(value: Any) -> str:
    """A value of the input, as it stands beside a name.

    >>> cell(0.123456), cell(3.0), cell(58000.0), cell(None), cell("Zürich")
    ('0.1235', '3', '58,000', 'None', 'Zürich')
    """
    if isinstance(value, float | np.floating):
        real = float(value)
        return f"{real:,.0f}" if 1e4 <= abs(real) < 1e9 else f"{real:.4g}"
    return str(value)


def one_line(name: str) -> str:
    """A name without what breaks a line, turns it around or moves the cursor: an input must not rewrite a terminal."""
    turns = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"  # they would print the rest of a line backwards
    clean = "".join(" " if unicodedata.category(c) in ("Cc", "Zl", "Zp") or c in turns else c for c in name)
    return " ".join(printable(clean).split())


def printable(text: str) -> str:
    r"""A text that every terminal, table and file can hold: half a pair of 16-bit units is shown as �.

    >>> printable("half \ud83d emoji")
    'half � emoji'
    """
    return re.sub("[\ud800-\udfff]", "\ufffd", text)


def on_scale(e: Explanation) -> str:
    """Where the attributions are not in the model's own output: what the prediction is in their unit."""
    return f" ({e.link.unit} {e.linked:+.2f})" if e.link.unit else ""


class _Tree:
    """The lines of an explanation: one for each feature that is shown."""

    def __init__(self, e: Explanation, leaves: int, width: int) -> None:
        self.e, self.leaves, self.width = e, leaves, width
        self.names = shown_names(e)
        self.units = e.rounded.values
        each = zip(e.values, self.units, strict=True)
        self.shares = [np.where(units, shares(v, largest(v) or 1.0), 0.0) for v, units in each]  # 0.000 has no bar
        self.column = max((len(e.rounded.text(u)) for level in self.units for u in level), default=0)

    def lines(self) -> Iterator[str]:
        s = self.e.structure
        if s.depth > 1:
            for i in range(s.widths[0]):
                yield self._line("", 0, i)
                yield from self._under(0, i, "")
            return
        yield from self._leaves()

    def apart(self) -> Iterator[str]:
        """The lines where no part may be taken for the sum of its leaves."""
        *above, finest = self.e.level_names
        for level, name in enumerate(above):
            yield f"{name}:"
            yield from (self._line("", level, i) for i in range(self.e.structure.widths[level]))
        yield f"{finest}:"
        yield from self._leaves()

    def _leaves(self) -> Iterator[str]:
        finest, every = self.e.structure.depth - 1, np.arange(self.e.structure.leaves)
        shown = self._largest(finest, every, 4 * self.leaves)
        for i in shown.tolist():
            yield self._line("", finest, i)
        if len(shown) < len(every):
            yield self._rest("", finest, np.setdiff1d(every, shown))

    def _under(self, level: int, i: int, indent: str) -> Iterator[str]:
        e, below = self.e, level + 1
        finest = e.structure.depth - 1
        if level == finest:
            return
        children = np.flatnonzero(e.structure.parents[level] == i)
        if len(children) == 1 and e.names[level][i] == e.names[below][children[0]]:
            yield from self._under(below, int(children[0]), indent)  # the same thing once more
            return
        shown = self._largest(below, children, self.leaves) if below == finest else children
        hidden = np.setdiff1d(children, shown)
        for child in shown.tolist():
            last = child == shown[-1] and not len(hidden)
            yield self._line(indent + ("└─ " if last else "├─ "), below, child)
            yield from self._under(below, child, indent + ("   " if last else "│  "))
        if len(hidden):
            yield self._rest(f"{indent}└─ ", below, hidden)
        gap = self.units[level][i] - self.units[below][children].sum()
        if gap and np.isfinite(gap):  # of a method whose levels do not add up
            yield f"{indent}   {self._number(gap)} gap to its own value"

    def _line(self, prefix: str, level: int, i: int) -> str:
        e = self.e
        error = f" ± {e.rounded.plain(e.stderr[level][i])}" if e.stderr is not None else ""
        share = self.shares[level][i]
        bar = ("−+"[int(share > 0)] * round(8 * abs(share))).ljust(8)
        head = f"{prefix}{self._number(self.units[level][i])}{error} {bar} "
        return head + _clip(self.names[level][i], self.width - len(head))

    def _rest(self, prefix: str, level: int, hidden: np.ndarray[Any, Any]) -> str:
        return f"{prefix}{self._number(self.units[level][hidden].sum())} in {len(hidden)} more"

    def _number(self, units: float) -> str:
        return self.e.rounded.text(units).rjust(self.column)

    def _largest(self, level: int, features: np.ndarray[Any, Any], count: int) -> np.ndarray[Any, Any]:
        order = np.argsort(-np.abs(self.e.values[level][features]), kind="stable")
        return features[order[:count]]


def _clip(name: str, room: int) -> str:
    line, most = one_line(name), max(room, 8)
    return line if len(line) <= most else line[: most - 1] + "…"

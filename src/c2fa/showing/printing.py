"""How an explanation reads: names with what the input has there, notes, and the tree of the terminal."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from c2fa.showing.drawing import largest, shares
from c2fa.showing.rounding import number
from c2fa.solvers.expected import expected_part
from c2fa.structure import Structure
from c2fa.views.statements import answer_lines, answer_notes

if TYPE_CHECKING:
    from c2fa.explanation import Explanation

AT_BASELINE = " (equal to the baseline)"
_BAR = 8
_NAMED = 5  # features that a note names
_TURNS = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"  # they would print the rest of a line backwards
_HALVES = re.compile("[\ud800-\udfff]")


def shown_names(structure: Structure, view: Mapping[str, Any]) -> tuple[tuple[str, ...], ...]:
    """The features' names with what the input has there, for tables and vectors; a part that is one column has its.

    >>> view = {"kind": "table", "values": [40, 2.0], "at_baseline": [False, True]}
    >>> shown_names(Structure.flat(["age", "sex"]), view)
    (('age = 40', 'sex = 2 (equal to the baseline)'),)
    """
    cells = shown_cells(view)
    if len(cells) != structure.leaves:
        return structure.names
    levels = [tuple(f"{name} = {value}" for name, value in zip(structure.names[-1], cells, strict=True))]
    for k in reversed(range(structure.depth - 1)):
        owner, names = structure.parents[k], list(structure.names[k])
        children = np.bincount(owner)
        for i, j in enumerate(owner.tolist()):
            if children[j] == 1 and names[j] == structure.names[k + 1][i]:
                names[j] = levels[0][i]
        levels.insert(0, tuple(names))
    return tuple(levels)


def shown_cells(view: Mapping[str, Any]) -> list[str]:
    """The values of a table's row or a vector, each with a word where masking it changes nothing; else empty."""
    if view.get("kind") not in ("table", "array"):
        return []
    values = np.asarray(view.get("values", ()), dtype=object).ravel().tolist()
    same = list(view.get("at_baseline", ())) or [False] * len(values)
    return [cell(v) + AT_BASELINE * bool(at) for v, at in zip(values, same, strict=False)]


def notes(e: Explanation) -> list[str]:
    """What a reader should know beside the numbers: which leaves masking does not change, how an answer was scored."""
    return [*_from_prior(e), *_at_baseline(e), *answer_notes(e), *together(e)]


def _from_prior(e: Explanation) -> list[str]:
    """How much of the leaves' values the prior is: nobody must take what was learned elsewhere for what is here."""
    if e.diagnostics.prior_share is None:
        return []
    told = f"come from the prior ({str(e.provenance.get('prior', '')).partition(', ')[2]})"
    if e.from_prior is None:
        return [f"none of these values {told}: it knows nothing of these {e.level_names[-1]}"]
    if e.diagnostics.prior_share == 0.0:
        return [f"none of these values {told}: this input's answers do not bear it out"]
    part = expected_part(e.values[-1], e.values[-1] - e.from_prior[-1])
    return [f"{part:.0%} of these values {told}, the rest from this input's own answers"]


def _at_baseline(e: Explanation) -> list[str]:
    """Which leaves masking does not change."""
    same = [name for name, at in zip(e.names[-1], e.view.get("at_baseline", ()), strict=False) if at]
    if not same:
        return []
    shown = ", ".join(same[:_NAMED]) + (f" and {len(same) - _NAMED} more" if len(same) > _NAMED else "")
    verb = "is" if len(same) == 1 else "are"
    return [
        f"{len(same)} of {e.structure.leaves} {e.level_names[-1]} {verb} equal to the baseline ({shown}): masking "
        "changes nothing there, so 0 does not mean that the model ignores them; strategy='average' over several "
        "background rows tells"
    ]


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
    spent = ", ".join([f"{e.queries} rows", *fit(e)])
    lines = [
        f"{one_line(e.target_name)}: {number(e.prediction)}{on_scale(e)}{made_of(e)}   ({spent})",
        *map(one_line_at, answer_lines(e, width) if "statements" in e.view else []),
        *(lists.apart() if d.contradiction else lists.lines()),
    ]
    if d.stop and d.stop not in d.warnings:
        lines.append(f"· {d.stop}")
    lines += [f"· {note}" for note in notes(e)]
    return printable("\n".join([*lines, *(f"! {warning}" for warning in d.warnings)]))


def made_of(e: Explanation) -> str:
    """Base and attributions, where they make the prediction."""
    if not e.diagnostics.exact or abs(e.base + e.high.sum() - e.linked) > 1e-6 * max(abs(e.linked), abs(e.base)):
        return ""
    r = e.rounded
    return f" = base {r.text(r.base, sign=False)} {'−' if r.total < 0 else '+'} {r.text(abs(r.total), sign=False)}"


def together(e: Explanation, most: int = 3) -> list[str]:
    """The pairs of features that are known to act together, in words."""
    lines = []
    for k, names in enumerate(shown_names(e.structure, e.view)):
        pairs = [pair for pair in e.diagnostics.interactions if pair.level == k and pair.settled]
        for pair in pairs[:most]:
            first, second = (_clip(names[i], 30) for i in (pair.first, pair.second))
            amount = f"{e.rounded.plain(pair.value)} ± {e.rounded.plain(pair.stderr)}"
            lines.append(f"{e.level_names[k]} that act together: “{first}” and “{second}”, {amount}")
    return lines


def fit(e: Explanation) -> list[str]:
    """How well the numbers reproduce the model, in words: of each level that was fitted, or of the whole game."""
    if e.diagnostics.exact:
        exact = [
            f"{name} exact" for name, all_asked in zip(e.level_names, e.diagnostics.exact, strict=True) if all_asked
        ]
        left_out = e.diagnostics.levels[-1].r2_left_out
        return (
            exact if left_out is None or all(e.diagnostics.exact) else [*exact, f"R² {left_out:.2f} of rows left out"]
        )
    reports = zip(e.level_names, e.diagnostics.levels, strict=False)
    return [f"R² {report.r2:.2f} of {name}" for name, report in reports if report.rows]


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
    clean = "".join(" " if unicodedata.category(c) in ("Cc", "Zl", "Zp") or c in _TURNS else c for c in name)
    return " ".join(printable(clean).split())


def one_line_at(line: str) -> str:
    """A line with its indentation, and without what breaks it."""
    return " " * (len(line) - len(line.lstrip(" "))) + one_line(line)


def printable(text: str) -> str:
    r"""A text that every terminal, table and file can hold: half a pair of 16-bit units is shown as �.

    >>> printable("half \ud83d emoji")
    'half � emoji'
    """
    return _HALVES.sub("\ufffd", text)


def on_scale(e: Explanation) -> str:
    """Where the attributions are not in the model's own output: what the prediction is in their unit."""
    return f" ({e.link.unit} {e.linked:+.2f})" if e.link.unit else ""


class _Tree:
    """The lines of an explanation: one for each feature that is shown."""

    def __init__(self, e: Explanation, leaves: int, width: int) -> None:
        self.e, self.leaves, self.width = e, leaves, width
        self.names = shown_names(e.structure, e.view)
        self.shares = [shares(v, largest(v) or 1.0) for v in e.values]
        self.units = e.rounded.values
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
        """The most important leaves of all, and the rest of them."""
        finest, every = self.e.structure.depth - 1, np.arange(self.e.structure.leaves)
        shown = self._largest(finest, every, 4 * self.leaves)
        for i in shown.tolist():
            yield self._line("", finest, i)
        if len(shown) < len(every):
            yield self._rest("", finest, np.setdiff1d(every, shown))

    def _under(self, level: int, i: int, indent: str) -> Iterator[str]:
        """The lines below a feature."""
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
        head = f"{prefix}{self._number(self.units[level][i])}{error} {_bar(self.shares[level][i])} "
        return head + _clip(self.names[level][i], self.width - len(head))

    def _rest(self, prefix: str, level: int, hidden: np.ndarray[Any, Any]) -> str:
        return f"{prefix}{self._number(self.units[level][hidden].sum())} in {len(hidden)} more"

    def _number(self, units: float) -> str:
        return self.e.rounded.text(units).rjust(self.column)

    def _largest(self, level: int, features: np.ndarray[Any, Any], count: int) -> np.ndarray[Any, Any]:
        order = np.argsort(-np.abs(self.e.values[level][features]), kind="stable")
        return features[order[:count]]


def _bar(share: float) -> str:
    filled = round(abs(share) * _BAR)
    return (("+" if share > 0 else "−") * filled).ljust(_BAR)


def _clip(name: str, room: int) -> str:
    line, most = one_line(name), max(room, 8)
    return line if len(line) <= most else line[: most - 1] + "…"

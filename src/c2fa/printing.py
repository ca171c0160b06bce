"""An explanation as a tree of characters, for the terminal."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from c2fa.explanation import Explanation

_BAR = 8
_TURNS = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"  # they would print the rest of a line backwards


def tree(e: Explanation, leaves: int = 5, width: int = 100) -> str:
    """The parts in their own order, each with its attribution and a bar; under it its most important features."""
    s, d = e.structure, e.diagnostics
    lines = [
        f"{e.target_name}: {number(e.prediction)}{on_scale(e)}   ("
        + ", ".join(
            [
                f"{e.queries} queries",
                *(f"R² {r.r2:.2f} at level {k}" for k, r in enumerate(d.levels) if r.rows),
            ]
        )
        + ")"
    ]
    scales = [float(np.abs(v).max(initial=0.0)) or 1.0 for v in e.values]
    style = _style(max(float(np.abs(v).max(initial=0.0)) for v in e.values))

    def line(prefix: str, level: int, i: int) -> str:
        value = e.values[level][i]
        error = f" ± {e.stderr[level][i]:{style}}" if e.stderr is not None else ""
        head = f"{prefix}{value:+{style}}{error} {_bar(value / scales[level])} "
        return head + _clip(e.names[level][i], width - len(head))

    def grow(level: int, i: int, indent: str) -> None:
        if level == s.depth - 1:
            return
        children = np.flatnonzero(s.parents[level] == i)
        if len(children) == 1 and e.names[level][i] == e.names[level + 1][children[0]]:
            grow(level + 1, int(children[0]), indent)
            return
        shown = children
        if level + 1 == s.depth - 1:
            order = np.argsort(-np.abs(e.values[level + 1][children]), kind="stable")
            shown = children[order[:leaves]]
        rest = len(children) - len(shown)
        for n, child in enumerate(shown):
            last = n == len(shown) - 1 and not rest
            lines.append(line(indent + ("└─ " if last else "├─ "), level + 1, int(child)))
            grow(level + 1, int(child), indent + ("   " if last else "│  "))
        if rest:
            others = e.values[level + 1][np.setdiff1d(children, shown)].sum()
            lines.append(f"{indent}└─ {others:+{style}} in {rest} more")

    order = range(s.widths[0]) if s.depth > 1 else np.argsort(-np.abs(e.values[0]), kind="stable")[: 4 * leaves]
    for i in order:
        lines.append(line("", 0, int(i)))
        grow(0, int(i), "")
    if s.depth == 1 and s.leaves > 4 * leaves:
        lines.append(f"… and {s.leaves - 4 * leaves} more")
    if d.stop and d.stop not in d.warnings:
        lines.append(f"· {d.stop}")
    lines += [f"! {warning}" for warning in d.warnings]
    return "\n".join(lines)


def number(value: float) -> str:
    """A number for the eye: three decimals, or three digits where that would say nothing or too much.

    >>> number(0.25), number(2.5e-9), number(-3e7)
    ('0.250', '2.50e-09', '-3.00e+07')
    """
    return f"{value:{_style(abs(value))}}"


def on_scale(e: Explanation) -> str:
    """Where the attributions are not in the model's own output: what the prediction is in their unit."""
    return f" ({e.link.unit} {e.linked:+.2f})" if e.link.unit else ""


def _style(size: float) -> str:
    return ".3f" if size == 0 or 0.01 <= size < 1e6 else ".2e"


def _bar(share: float) -> str:
    filled = round(abs(share) * _BAR)
    return (("+" if share > 0 else "−") * filled).ljust(_BAR)


def _clip(name: str, room: int) -> str:
    """One line of at most ``room`` columns; control characters would let an input rewrite the terminal."""
    clean = "".join(" " if unicodedata.category(c) in ("Cc", "Zl", "Zp") or c in _TURNS else c for c in name)
    clean = " ".join(clean.split())
    return clean if len(clean) <= max(room, 8) else clean[: max(room, 8) - 1] + "…"

"""Two methods side by side on one input, on the same rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from matplotlib.figure import Figure

from c2fa.explanation import Explanation
from c2fa.plots._style import INK, contradictions, figure, predicted, say_contradiction
from c2fa.plots.nested import _ROW, NestedDisplay, Row, _choose, _choose_apart, _rows, _rows_apart
from c2fa.showing.printing import singular


def compare(
    explanations: Mapping[str, Explanation] | Sequence[Explanation],
    *,
    parts: int = 8,
    leaves: int | None = 3,
) -> Figure:
    """Draw several methods' explanations of one input side by side, with the features that matter to any of them.

    Each has a scale of its own, because their units may differ.
    """
    if isinstance(explanations, Mapping):
        names, found = list(explanations), list(explanations.values())
    else:
        found = list(explanations)
        names = [str(e.provenance.get("method", "")) or f"explanation {k + 1}" for k, e in enumerate(found)]
    if len(found) < 2:
        raise ValueError("give at least two explanations to compare")
    if any(e.structure.names != found[0].structure.names for e in found):
        raise ValueError("the explanations are of different inputs: their features differ")
    told = contradictions(dict(zip(names, found, strict=True)))
    if told:  # rows stay level only where all methods have their levels apart
        apart = _choose_apart(found, parts)
        columns = [_rows_apart(e, apart) for e in found]
    else:
        chosen = _choose(found, parts, leaves)
        columns = _aligned([_rows(e, chosen) for e in found])
    made = figure(3.6 + 3.3 * len(found), 1.5 + _ROW * len(columns[0]))
    for k, (name, e, rows) in enumerate(zip(names, found, columns, strict=True)):
        NestedDisplay(tuple(rows), name, _note(e)).draw(made.add_subplot(1, len(found), k + 1), labels=k == 0)
    made.suptitle(predicted(found[0]), x=0.01, ha="left", fontsize=10.5, weight="bold", color=INK, parse_math=False)
    return say_contradiction(made, None, *told)


def _note(e: Explanation) -> str:
    d, part, leaf = e.diagnostics, singular(e.level_names[0]), singular(e.level_names[-1])
    agree = "in" if d.agreement else "not in"
    adds = "parts add up" if d.consistency < 1e-9 else f"inconsistency {d.consistency:.2g}"
    unit = f"in {e.link.unit}; " if e.link.unit else ""
    return f"{unit}{adds}; top {leaf} {agree} the top {part}"


def _aligned(columns: list[list[Row]]) -> list[list[Row]]:
    """Give every method a row wherever one of them has a gap, so that the rows stay level."""
    at = [0] * len(columns)
    out: list[list[Row]] = [[] for _ in columns]
    while any(a < len(rows) for a, rows in zip(at, columns, strict=True)):
        heads = [rows[a] if a < len(rows) else None for a, rows in zip(at, columns, strict=True)]
        gap = next((h for h in heads if h is not None and h.kind == "gap"), None)
        for k, head in enumerate(heads):
            if (gap is None and head is not None) or (head is not None and head.kind == "gap"):
                out[k].append(head)
                at[k] += 1
            elif gap is not None:
                end = out[k][-1].start + out[k][-1].value
                out[k].append(replace(gap, start=end, value=0.0, text=""))
    return out

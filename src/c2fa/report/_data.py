"""An explanation as the page reads it: plain values, numbers packed."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from c2fa.showing.codec import walk
from c2fa.showing.numbers import settled
from c2fa.structure import IntArray

if TYPE_CHECKING:
    from c2fa.explanation import Explanation


def plain(value: Any) -> Any:
    """A value as the page's JSON has it: arrays are lists, and a number that is not finite is null.

    >>> plain({"at": np.array([1.0, np.nan]), "cost": None})
    {'at': [1.0, None], 'cost': None}
    """

    def leaf(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return walk(value.tolist(), leaf)
        return None if isinstance(value, float) else str(value)

    return walk(value, leaf)


def pack(e: Explanation, title: str, side: int, classes: int = 10, numbers: int = 400_000) -> dict[str, Any]:
    """Everything that a page shows of one explanation; pictures are at most ``side`` pixels long.

    It has up to so many ``classes`` to switch between, the target and those with the largest outputs, or fewer where
    there are so many leaves that their ``numbers`` would make a page too heavy; of an answer it has every statement.
    """
    order = sorted(e.columns, key=lambda c: (c != e.target, -float(e.outputs[c])))
    most = classes if e.answer is None else len(order)
    chosen = sorted(order[: max(1, min(most, numbers // e.structure.leaves))])
    at = [e.columns.index(c) for c in chosen]
    d, s = e.diagnostics, e.structure
    linked = e.link.at(e.outputs)(e.outputs)
    rounded = [e.for_target(c).rounded for c in chosen]
    scale = 10.0 ** np.array([shown.digits for shown in rounded])
    names = [list(map(_cut, level)) for level in e.names]
    found = {
        **{name: value for name, value in vars(d).items() if name != "interactions"},  # which the notes tell
        "title": title,
        "kind": e.view.kind,
        "labels": e.level_names,
        "target": chosen.index(e.target),
        "classes": [
            {
                "name": _cut(e.output_names[c]),
                "output": e.outputs[c],
                "linked": linked[c],
                "base": shown.base,
                "digits": shown.digits,
            }
            for c, shown in zip(chosen, rounded, strict=True)
        ],
        "unit": e.link.unit,
        "left": len(e.outputs) - len(chosen),
        "names": [*names[:-1], None if e.view.spells(s) else names[-1]],
        "parents": [_parents(p) for p in s.parents],
        "widths": s.widths,
        "values": [halves(v[:, at].T) for v in e.all_values],
        "units": [wholes([shown.values[k] for shown in rounded]) for k in range(s.depth)],
        "stderr": None if e.all_stderr is None else [wholes((settled(v[:, at]) * scale).T) for v in e.all_stderr],
        "prior": None if e.all_from_prior is None else [halves(v[:, at].T) for v in e.all_from_prior],
        "queries": e.queries,
        "warnings": [warning for warning in d.warnings if warning != d.contradiction],
        "notes": e.notes,
        "method": str(e.provenance.get("method", "")),
        "model": str(e.provenance.get("model") or ""),
        "seed": e.provenance.get("seed"),
        "version": str(e.provenance.get("c2fa", "")),
        "view": e.view.page(s, side),
        "answer": None if e.answer is None else e.answer.page(e, chosen),
    }
    return cast(dict[str, Any], plain(found))


def summary(e: Explanation, title: str) -> dict[str, Any]:
    """What a card in the gallery shows, and what the search field searches."""
    asked = "" if e.answer is None else f"{e.answer.query} {e.answer.text}"
    text = " ".join(f"{asked} {e.view.words()}".split())
    level = e.view.telling
    lead = np.argsort(-np.abs(e.values[level]), kind="stable")[:4]
    fitted = [fit for fit in e.diagnostics.levels if fit.rows]
    found = {
        "title": title,
        "text": text[:1500] or " ".join(map(_cut, e.names[level][:100])),
        "lead": [
            (_cut(e.names[level][i]), e.rounded.values[level][i] if settled(e.values[level][i]) else 0) for i in lead
        ],
        "digits": e.rounded.digits,
        "target": _cut(e.target_name),
        "prediction": e.prediction,
        "warnings": len(e.diagnostics.warnings),
        "fit": min((fit.r2 if fit.r2_left_out is None else fit.r2_left_out for fit in fitted), default=None),
        "unsupported": "" if e.answer is None else e.answer.unsupported(e),
    }
    return cast(dict[str, Any], plain(found))


def wholes(values: npt.ArrayLike) -> dict[str, Any]:
    """Whole numbers in two bytes each, or in four where one is large; the smallest stands for none."""
    numbers = np.rint(values)
    kind = "<i4" if np.abs(np.nan_to_num(numbers)).max(initial=0.0) > np.iinfo("<i2").max else "<i2"
    there = np.where(np.isfinite(numbers), numbers, np.iinfo(kind).min)
    return {"bytes": np.dtype(kind).itemsize, "data": b64encode(there.astype(kind).tobytes()).decode()}


def halves(values: npt.ArrayLike) -> str:
    """Numbers in two bytes each, the upper half of four: nearly three digits, enough for a bar and for an error."""
    with np.errstate(over="ignore"):  # beyond 3e38 they are infinite, for which the page shows a dash
        bits = np.ascontiguousarray(settled(np.asarray(values)), dtype="<f4").view("<u4")
    return b64encode(((bits.astype(np.uint64) + 0x8000) >> 16).clip(0, 0xFFFF).astype("<u2").tobytes()).decode()


def _parents(owner: IntArray) -> dict[str, Any]:
    """Who owns whom: how many children each has, where they stand in order, else one owner for each."""
    if bool(np.all(owner[1:] >= owner[:-1])):
        return {"counts": np.bincount(owner)}
    return {"owners": owner}


def _cut(name: str, most: int = 400) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"

"""An explanation as the page reads it: plain values, numbers packed."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from c2fa.explanation import Explanation
from c2fa.report._answer import answered, unsupported
from c2fa.report._pictures import b64, data_uri, runs
from c2fa.showing.drawing import scaled
from c2fa.showing.printing import shown_cells
from c2fa.structure import FloatArray, IntArray
from c2fa.views.pixels import shown

CLASSES = 10  # classes that can be switched between; more would make a page of thousands of words too heavy
_NUMBERS = 400_000  # leaves times classes: with more leaves fewer classes are kept
_STEPS = 600  # points of a line
_ROUNDING = 1e-12
_NAME = 400  # characters of a name


def pack(e: Explanation, title: str, side: int) -> dict[str, Any]:
    """Everything that a page shows of one explanation."""
    chosen = _classes(e)
    at = [e.columns.index(c) for c in chosen]
    d, s = e.diagnostics, e.structure
    linked = e.link.at(e.outputs)(e.outputs)
    view, spelled = _view(e, side)
    names = [list(map(_cut, level)) for level in e.names]
    rounded = [e.for_target(c).rounded for c in chosen]
    return {
        "title": title,
        "kind": str(e.view.get("kind", "")),
        "labels": list(e.level_names),
        "target": chosen.index(e.target),
        "classes": [
            {
                "name": _cut(e.output_names[c]),
                "output": _number(e.outputs[c]),
                "linked": _number(linked[c]),
                "base": _number(shown.base),
                "digits": shown.digits,
            }
            for c, shown in zip(chosen, rounded, strict=True)
        ],
        "unit": e.link.unit,
        "left": len(e.outputs) - len(chosen),
        "names": [*names[:-1], None if spelled else names[-1]],
        "parents": [_parents(p) for p in s.parents],
        "widths": list(s.widths),
        "values": [halves(settled(v[:, at].T)) for v in e.all_values],
        "units": [wholes([shown.values[k] for shown in rounded]) for k in range(s.depth)],
        "stderr": None if e.all_stderr is None else [halves(settled(v[:, at].T)) for v in e.all_stderr],
        "prior": None if e.all_from_prior is None else [halves(settled(v[:, at].T)) for v in e.all_from_prior],
        "queries": e.queries,
        "sent": d.sent,
        "recalled": d.recalled,
        "dropped": d.dropped,
        "cost": None if d.cost is None else _number(d.cost),
        "fit": [{"r2": _number(r.r2), "rows": r.rows} for r in d.levels],
        "consistency": _number(d.consistency),
        "agreement": d.agreement,
        "status": d.status,
        "warnings": [warning for warning in d.warnings if warning != d.contradiction],
        "contradiction": d.contradiction,
        "notes": e.notes,
        "method": str(e.provenance.get("method", "")),
        "model": str(e.provenance.get("model") or ""),
        "seed": e.provenance.get("seed"),
        "version": str(e.provenance.get("c2fa", "")),
        "view": view,
        "answer": answered(e, chosen),
    }


def summary(e: Explanation, title: str) -> dict[str, Any]:
    """What a card in the gallery shows, and what the search field searches."""
    told = (str(e.view.get(key, "")) for key in ("query", "answer", "text"))
    text = " ".join(" ".join(told).split())
    # Words speak for themselves; super-pixels and windows do not, but what they belong to does.
    named = -1 if e.view.get("kind") in ("text", "table") else 0
    lead = np.argsort(-np.abs(e.values[named]), kind="stable")[:6]
    return {
        "title": title,
        "text": text[:1500] or " ".join(map(_cut, e.names[named][:100])),
        "lead": [[_cut(e.names[named][i]), _number(e.rounded.values[named][i])] for i in lead],
        "digits": e.rounded.digits,
        "target": _cut(e.target_name),
        "prediction": _number(e.prediction),
        "parts": [_number(f"{v:.3g}") for v in settled(e.high[:60]).tolist()],
        "warnings": len(e.diagnostics.warnings),
        "unsupported": unsupported(e),
    }


def settled(values: FloatArray) -> FloatArray:
    """Numbers without what is only rounding, which a page would shade as if it were something."""
    return np.where(np.abs(values) <= _ROUNDING, 0.0, values)


def wholes(values: npt.ArrayLike) -> dict[str, Any]:
    """Whole numbers in two bytes each, or in four where one is large; the smallest stands for none."""
    numbers = np.asarray(values)
    kind = "<i4" if np.abs(np.nan_to_num(numbers)).max(initial=0.0) > np.iinfo("<i2").max else "<i2"
    there = np.where(np.isfinite(numbers), numbers, np.iinfo(kind).min)
    return {"bytes": np.dtype(kind).itemsize, "data": b64(there.astype(kind).tobytes())}


def halves(values: npt.ArrayLike) -> str:
    """Numbers in two bytes each, the upper half of four: nearly three digits, enough for a bar and for an error."""
    with np.errstate(over="ignore"):  # beyond 3e38 they are infinite, for which the page shows a dash
        bits = np.ascontiguousarray(values, dtype="<f4").view("<u4")
    return b64(((bits.astype(np.uint64) + 0x8000) >> 16).clip(0, 0xFFFF).astype("<u2").tobytes())


def _classes(e: Explanation) -> list[int]:
    """The target and the classes with the largest outputs, in their own order; every statement of a cited answer."""
    order = sorted(e.columns, key=lambda c: (c != e.target, -float(e.outputs[c])))
    most = len(order) if "statements" in e.view else CLASSES
    return sorted(order[: max(1, min(most, _NUMBERS // e.structure.leaves))])


def _parents(owner: IntArray) -> dict[str, Any]:
    """Who owns whom: how many children each has, where they stand in order, else one owner for each."""
    if bool(np.all(owner[1:] >= owner[:-1])):
        return {"counts": np.bincount(owner).tolist()}
    return {"owners": owner.tolist()}


def _number(value: Any) -> float | None:
    """JSON has no NaN."""
    number = float(value)
    return number if np.isfinite(number) else None


def _cut(name: str) -> str:
    return name if len(name) <= _NAME else name[: _NAME - 1] + "…"


def _view(e: Explanation, side: int) -> tuple[dict[str, Any] | None, bool]:
    """What is drawn of the input, and whether the names of the leaves can be read off it."""
    kind = e.view.get("kind")
    try:
        if kind == "text":
            return _text(e)
        if kind == "images":
            return _images(e, side), False
        if kind == "series":
            return _series(e.view), False
        if kind == "bag":
            return {"features": [_cut(str(name)) for name in e.view["features"]]}, False
        if kind in ("table", "array"):
            return {"cells": list(map(_cut, shown_cells(e.view)))}, False
    except (KeyError, TypeError, ValueError):
        pass  # somebody made the view by hand and it does not fit: the bars still stand
    return None, False


def _text(e: Explanation) -> tuple[dict[str, Any], bool]:
    text, spans = str(e.view["text"]), np.asarray(e.view["spans"], dtype=np.intp)
    if spans.shape != (e.structure.leaves, 2):
        raise ValueError("one span for each leaf")
    # A browser counts in units of 16 bits, Python in characters.
    wide = np.array([0, *(ord(c) > 0xFFFF for c in text)], dtype=np.intp)
    units = np.arange(len(text) + 1) + np.cumsum(wide)
    edges = units[spans].ravel()
    spelled = all(text[a:b] == name for (a, b), name in zip(spans.tolist(), e.names[-1], strict=True))
    return {"text": text, "steps": np.diff(edges, prepend=0).tolist()}, spelled


def _images(e: Explanation, side: int) -> dict[str, Any]:
    images = []
    for part in shown(e.view, side):
        height, width = part.labels.shape
        labels = runs(part.labels)
        images.append(
            {"src": data_uri(part.image), "width": width, "height": height, "labels": labels, "count": part.count}
        )
    if sum(image["count"] for image in images) != e.structure.leaves:
        raise ValueError("one label for each leaf")
    return {"images": images}


def _series(view: Mapping[str, Any]) -> dict[str, Any]:
    values = np.atleast_2d(np.asarray(view["values"], dtype=np.float64))
    channels, steps = values.shape
    drawn = scaled(values)
    at = _outline(drawn, steps)
    return {
        "channels": channels,
        "steps": steps,
        "starts": np.asarray(view["starts"], dtype=np.intp).tolist(),
        "order": str(view.get("order", "channels")),
        "at": at.tolist(),
        "lines": [[round(float(v), 3) if np.isfinite(v) else None for v in row[at]] for row in drawn],
    }


def _outline(values: FloatArray, steps: int) -> IntArray:
    """The steps that are drawn: all, or in each stretch the one that stands out most, so that peaks stay."""
    if steps <= _STEPS:
        return np.arange(steps)
    edges = np.arange(_STEPS + 1) * steps // _STEPS
    there = np.isfinite(values).sum(axis=1, keepdims=True)
    mean = np.nansum(values, axis=1, keepdims=True) / np.maximum(there, 1)
    away = np.abs(np.nan_to_num(values - mean)).max(axis=0)
    return np.array([a + int(away[a:b].argmax()) for a, b in pairwise(edges.tolist())])

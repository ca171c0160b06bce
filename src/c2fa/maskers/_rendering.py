"""Masked texts from pieces that are cut once: whole batches at a time."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from c2fa.structure import BoolArray


def replacer(gaps: list[str], leaves: list[str], mask: str) -> Callable[[BoolArray], list[str]]:
    """Put the mask in place of masked leaves; one gather of ready-made pieces for a whole batch."""
    after = [*gaps[1:-1], gaps[-1]]
    ready = [t + gap for row in ([mask] * len(leaves), leaves) for t, gap in zip(row, after, strict=True)]
    ready[0], ready[len(leaves)] = gaps[0] + ready[0], gaps[0] + ready[len(leaves)]
    table = _objects(ready)
    columns, width = np.arange(len(leaves)), np.intp(len(leaves))

    def render(masks: BoolArray) -> list[str]:
        return list(map("".join, table.take(masks * width + columns).tolist()))

    return render


def remover(gaps: list[str], leaves: list[str]) -> Callable[[BoolArray], list[str]]:
    """Leave masked leaves out, and put the strongest gap between two neighbours that are kept."""
    strength = np.array([_strength(gap) for gap in gaps[:-1]])
    index = np.arange(len(leaves))
    strength[0] = 0
    # latest[k][j]: the last gap of that strength or more at or before leaf j; -1 where there is none.
    latest = [np.maximum.accumulate(np.where(strength >= s, index, -1)) for s in (1, 2, 3) if (strength >= s).any()]
    gap_table, leaf_table = _objects([*gaps[:-1], ""]), _objects(leaves)
    end = len(leaves)

    def render(masks: BoolArray) -> list[str]:
        at = np.nonzero(masks)[1]
        counts = np.count_nonzero(masks, axis=1)
        stops = np.cumsum(counts)
        firsts = (stops - counts)[counts > 0]
        before = np.empty_like(at)
        before[1:] = at[:-1]
        gap = np.full_like(at, end)
        for last in latest:
            candidate = last[at]
            np.copyto(gap, candidate, where=candidate > before)
        gap[firsts] = np.where(at[firsts] == 0, 0, end)
        pieces = np.empty(2 * len(at), dtype=object)
        pieces[0::2], pieces[1::2] = gap_table[gap], leaf_table[at]
        flat = pieces.tolist()
        texts = ["".join(flat[2 * (b - n) : 2 * b]) for n, b in zip(counts.tolist(), stops.tolist(), strict=True)]
        if gaps[-1]:
            for i in np.flatnonzero(masks[:, -1]).tolist():
                texts[i] += gaps[-1]
        return texts

    return render


_BLANK_LINE = re.compile(r"\n[^\S\n]*\n")


def _strength(gap: str) -> int:
    """How far a gap sets words apart: a blank line 3, a line break 2, a space 1."""
    if _BLANK_LINE.search(gap):
        return 3
    if "\n" in gap:
        return 2
    return 1 if gap else 0


def _objects(strings: list[str]) -> Any:
    table = np.empty(len(strings), dtype=object)
    table[:] = strings
    return table

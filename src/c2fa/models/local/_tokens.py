"""A text's tokens with each leaf kept and masked: its rows are chosen among them where the model is, without a string.

A row is rendered and tokenised by itself only where its tokens are not those of its leaves put together, as where a
tokenizer joins pieces over what was removed between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from c2fa._system import on_device
from c2fa.asking.masking import TextInputs

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Spans = list[tuple[int, int]]

_FIXED = -1  # the leaf of a token that every row has


@dataclass(frozen=True, eq=False)
class TokenTable:
    """Every token that a row of an input may have, in order, and when it has it.

    Parameters
    ----------
    columns
        ``input_ids``, and what else the tokenizer gives for each token.
    leaf
        The leaf that a token belongs to; −1 for one that every row has.
    when
        Whether a leaf's token is there when the leaf is kept, or when it is masked.
    added
        The tokens that the tokenizer adds around a text; a text that is too long loses others.
    counts
        The tokens of each leaf when it is masked and when it is kept, (2, leaves).
    limit
        The most tokens of a row.
    """

    columns: dict[str, Ints]
    leaf: Ints
    when: Bools
    added: Bools
    counts: Ints
    limit: int | None

    @classmethod
    def of(cls, tokenizer: Any, inputs: TextInputs, limit: int | None) -> TokenTable | None:
        """The table of an input's texts; None where its rows must be rendered."""
        leaves = sum(map(len, inputs.spans))
        # What a token is depends on its neighbours. Neighbours that are both kept, or both masked, are tokenised so
        # anyway. In the rows that are tried each leaf meets the other kind and, where leaves are removed, one from
        # further off.
        at = np.arange(leaves)
        near, far = [at % 2 == 0, at % 2 == 1], [at % 3 == 0, at % 3 == 1, at % 5 > 2, at % 7 == 6]
        tried = np.array([*near, *far] if inputs.mask is None else near)
        rendered = inputs(tried, inputs.structure.depth - 1)
        spelled = [(inputs.texts, inputs.spans), _all_masked(inputs)]
        rows = [*(texts for texts, _ in spelled), *(([row] if len(inputs.texts) == 1 else row) for row in rendered)]
        texts = [list(column) for column in zip(*rows, strict=True)]
        encoding = tokenizer(*texts, truncation=False, padding=False, return_offsets_mapping=True, verbose=False)
        kept, masked = (_Tokens.of(encoding, i, spans, inputs.mask is not None) for i, (_, spans) in enumerate(spelled))
        if inputs.mask is not None:
            if kept.fixed() != masked.fixed():
                return None
            kept += masked.of_leaves()
        own = kept.leaf != _FIXED
        counts = np.bincount(kept.leaf[own] + leaves * kept.kept[own], minlength=2 * leaves).reshape(2, leaves)
        table = cls(kept.columns, kept.leaf, kept.kept, kept.added, counts, limit)
        is_plain = len(inputs.texts) == 1 and tokenizer.truncation_side == "right"
        if not (is_plain or table.fits):  # it is cut in another way than ``token_rows`` cuts
            return None
        return table if table._is_right(tried, encoding) else None

    @classmethod
    def whole(cls, encoding: Any, number: int) -> TokenTable:
        """The table of an input of an encoding of which nothing is masked."""
        columns = {name: np.array(encoding[name][number], dtype=np.int64) for name in _columns(encoding)}
        size = len(columns["input_ids"])
        every, none = np.ones(size, dtype=np.bool_), np.zeros((2, 0), dtype=np.int64)
        return cls(columns, np.full(size, _FIXED), every, every, none, None)

    @property
    def fits(self) -> bool:
        """Whether no row can be too long."""
        most = len(self.leaf) - int(self.counts.min(axis=0).sum())
        return self.limit is None or most <= self.limit

    def lengths(self, masks: Bools) -> Ints:
        """How many tokens each row has."""
        masked, kept = self.counts
        fixed = len(self.leaf) - int(self.counts.sum())
        lengths: Ints = fixed + int(masked.sum()) + masks @ (kept - masked)
        return lengths if self.limit is None else np.minimum(lengths, self.limit)

    def _is_right(self, tried: Bools, encoding: Any) -> bool:
        """Whether rows that were tried have the tokens of the rendered texts, which are the last in the encoding."""
        chosen = (self.leaf == _FIXED) | (tried[:, self.leaf] == self.when)
        return all(
            np.array_equal(column[row], encoding[name][i - len(tried)])
            for name, column in self.columns.items()
            for i, row in enumerate(chosen)
        )


def token_rows(
    tables: Sequence[TokenTable],
    masks: Sequence[Bools],
    width: int,
    fill: Mapping[str, int],
    left: bool,
    device: torch.device,
) -> dict[str, torch.Tensor]:
    """The tokens of rows of several inputs, (n, width), filled up on the right, or on the left; made on the device.

    Tables of fewer tokens than others are filled up, and masks of fewer leaves. Two leaves are added: one that all rows
    keep, for tokens that every row has, and one that all rows mask, for what only fills up.
    """
    most = max(some.shape[1] for some in masks)
    always, never = most, most + 1
    kept = np.zeros((sum(map(len, masks)), most + 2), dtype=np.bool_)
    kept[:, always] = True
    start = 0
    for some in masks:
        kept[start : start + len(some), : some.shape[1]] = some
        start += len(some)
    table_of_row = on_device(np.repeat(np.arange(len(tables)), [len(some) for some in masks]), device)

    def each(columns: Sequence[npt.NDArray[Any]], filler: Any) -> torch.Tensor:
        """What a table says of each of its tokens, for each row, (n, tokens)."""
        together = np.full((len(columns), max(map(len, columns))), filler)
        for target, column in zip(together, columns, strict=True):
            target[: len(column)] = column
        rows: torch.Tensor = on_device(together, device)[table_of_row]
        return rows

    leaf = each([np.where(table.leaf == _FIXED, always, table.leaf) for table in tables], never)
    when = each([table.when for table in tables], True)
    chosen = on_device(kept, device).gather(1, leaf) == when
    if not all(table.fits for table in tables):
        added = each([table.added for table in tables], False)
        room = np.array([(table.limit or width) - int(table.added.sum()) for table in tables])
        place = (chosen & ~added).cumsum(1)
        chosen &= added | (place <= on_device(room, device)[table_of_row, None])
    at = chosen.cumsum(1) - 1
    if left:
        at += width - chosen.sum(1, keepdim=True)
    at = torch.where(chosen, at, width)  # what is not chosen goes to a column that is cut off
    made = {}
    for name in tables[0].columns:
        tokens = each([table.columns[name] for table in tables], 0)
        blank = tokens.new_full((len(kept), width + 1), fill.get(name, 0))
        made[name] = blank.scatter_(1, at, tokens)[:, :width]
    return made


@dataclass(frozen=True, eq=False)
class _Tokens:
    """Tokens of a text or two, each with its place among the leaves and gaps and what belongs to the tokenizer."""

    columns: dict[str, Ints]
    place: Ints
    leaf: Ints
    kept: Bools
    added: Bools

    @classmethod
    def of(cls, encoding: Any, number: int, spans: Sequence[Spans], gaps: bool) -> _Tokens:
        """The tokens of one input of an encoding, whose leaves are at these spans.

        A token belongs to the leaf that holds its last character. With ``gaps``, one before a leaf belongs to it too:
        some tokenizers join a blank to what comes after it.
        """
        ends = np.array([max(end - 1, start) for start, end in encoding["offset_mapping"][number]])
        text = np.array([-1 if k is None else k for k in encoding.sequence_ids(number)])
        first = np.cumsum([0, *map(len, spans)])  # the number of each text's first leaf
        begins = 2 * first + 2 * np.arange(len(first))  # the place before each text, and the one after the last
        # What the tokenizer adds stands before the first text, between the two, or after the last.
        place = begins[np.maximum.accumulate(text) + 1]
        leaf = np.full(len(ends), _FIXED)
        for k, edges in enumerate(spans):
            own = text == k
            at = np.searchsorted(np.array(edges).ravel(), ends[own], side="right")  # odd in a leaf, even in a gap
            is_leafs = (at < 2 * len(edges)) if gaps else (at % 2 == 1)
            place[own] = begins[k] + 1 + at
            leaf[own] = np.where(is_leafs, first[k] + at // 2, _FIXED)
        columns = {name: np.array(encoding[name][number], dtype=np.int64) for name in _columns(encoding)}
        return cls(columns, place, leaf, np.ones(len(ends), dtype=np.bool_), text < 0)

    def __add__(self, other: _Tokens) -> _Tokens:
        """The tokens of both, in the order of their places."""
        order = np.argsort(np.concatenate([self.place, other.place]), kind="stable")

        def joined(mine: Any, theirs: Any) -> Any:
            return np.concatenate([mine, theirs])[order]

        columns = {name: joined(column, other.columns[name]) for name, column in self.columns.items()}
        return _Tokens(
            columns,
            joined(self.place, other.place),
            joined(self.leaf, other.leaf),
            joined(self.kept, other.kept),
            joined(self.added, other.added),
        )

    def fixed(self) -> list[tuple[int, ...]]:
        """The tokens that no mask changes, with their places."""
        is_fixed = self.leaf == _FIXED
        columns = [self.place, *self.columns.values()]
        return list(zip(*(column[is_fixed].tolist() for column in columns), strict=True))

    def of_leaves(self) -> _Tokens:
        """The tokens of leaves alone, as what stands in their place when they are masked."""
        own = self.leaf != _FIXED
        columns = {name: column[own] for name, column in self.columns.items()}
        return _Tokens(columns, self.place[own], self.leaf[own], np.zeros(own.sum(), dtype=np.bool_), self.added[own])


def _columns(encoding: Any) -> list[str]:
    return [name for name in encoding if name not in ("offset_mapping", "attention_mask")]


def _all_masked(inputs: TextInputs) -> tuple[list[str], list[Spans]]:
    """The texts with every leaf masked, and where the masks are."""
    mask = inputs.mask or ""
    texts, spans = [], []
    for text, edges in zip(inputs.texts, inputs.spans, strict=True):
        made, end = "", 0
        places = []
        for a, b in edges:
            made += text[end:a]
            places.append((len(made), len(made) + len(mask)))
            made, end = made + mask, b
        texts.append(made + text[end:])
        spans.append(places)
    return texts, spans

"""A text's tokens with each leaf kept and masked: its rows are chosen among them where the model is, without a string.

A row is rendered and tokenised by itself only where its tokens are not those of its leaves put together, as where a
tokenizer joins pieces over what was removed between them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from c2fa.masking import TextInputs

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

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

    columns: dict[str, torch.Tensor]
    leaf: torch.Tensor
    when: torch.Tensor
    added: torch.Tensor
    counts: Ints
    limit: int | None

    @classmethod
    def of(cls, tokenizer: Any, inputs: TextInputs, limit: int | None) -> TokenTable | None:
        """The table of an input's texts; None where its rows must be rendered."""
        both = _Tokens.of(tokenizer, inputs.texts, inputs.spans, gaps=inputs.mask is not None)
        if inputs.mask is not None:
            masked = _Tokens.of(tokenizer, *_all_masked(inputs, inputs.mask), gaps=True)
            if both.fixed() != masked.fixed():
                return None
            both += masked.of_leaves()
        leaves = sum(map(len, inputs.spans))
        own = both.leaf != _FIXED
        counts = np.bincount(both.leaf[own] + leaves * both.kept[own], minlength=2 * leaves).reshape(2, leaves)
        table = cls(
            {name: torch.from_numpy(column) for name, column in both.columns.items()},
            torch.from_numpy(both.leaf),
            torch.from_numpy(both.kept),
            torch.from_numpy(both.added),
            counts,
            limit,
        )
        is_plain = len(inputs.texts) == 1 and getattr(tokenizer, "truncation_side", "right") == "right"
        if not (is_plain or table._fits):  # it is cut in another way than ``rows`` cuts
            return None
        return table if table._is_right(tokenizer, inputs) else None

    def to(self, device: torch.device) -> TokenTable:
        """The table on a device."""
        columns = {name: column.to(device) for name, column in self.columns.items()}
        leaf, when, added = (tensor.to(device) for tensor in (self.leaf, self.when, self.added))
        return replace(self, columns=columns, leaf=leaf, when=when, added=added)

    @property
    def _fits(self) -> bool:
        """Whether no row can be too long."""
        most = len(self.leaf) - int(self.counts.min(axis=0).sum())
        return self.limit is None or most <= self.limit

    def lengths(self, masks: Bools) -> Ints:
        """How many tokens each row has."""
        masked, kept = self.counts
        fixed = len(self.leaf) - int(self.counts.sum())
        lengths: Ints = fixed + int(masked.sum()) + masks @ (kept - masked)
        return lengths if self.limit is None else np.minimum(lengths, self.limit)

    def rows(self, masks: torch.Tensor, width: int, fill: Mapping[str, int], left: bool) -> dict[str, torch.Tensor]:
        """The tokens of each row of masks, (n, width), filled up on the right, or on the left."""
        chosen = (self.leaf == _FIXED) | (masks[:, self.leaf] == self.when)
        if self.limit is not None and not self._fits:
            of_text = (chosen & ~self.added).cumsum(1)
            chosen &= self.added | (of_text <= self.limit - int(self.added.sum()))
        at = chosen.cumsum(1) - 1
        if left:
            at += width - chosen.sum(1, keepdim=True)
        at = torch.where(chosen, at, width)  # what is not chosen goes to a column that is cut off
        rows = {}
        for name, column in self.columns.items():
            blank = column.new_full((len(masks), width + 1), fill.get(name, 0))
            rows[name] = blank.scatter_(1, at, column.expand(len(masks), -1))[:, :width]
        return rows

    def _is_right(self, tokenizer: Any, inputs: TextInputs) -> bool:
        """Whether rows have the tokens of the rendered texts.

        What a token is depends on its neighbours. Neighbours that are both kept, or both masked, were tokenised so.
        Tried are rows in which each meets the other kind and, where leaves are removed, one from further off.
        """
        at = np.arange(self.counts.shape[1])
        masks = np.array([at % 2 == 0, at % 2 == 1])
        if inputs.mask is None:
            masks = np.array([*masks, at % 3 == 0, at % 3 == 1, at % 5 > 2, at % 7 == 6])
        texts = inputs(masks, inputs.structure.depth - 1)
        columns = [texts] if len(inputs.texts) == 1 else [list(column) for column in zip(*texts, strict=True)]
        wanted = tokenizer(*columns, truncation=self.limit is not None, max_length=self.limit, padding=False)
        lengths = self.lengths(masks).tolist()
        made = self.rows(torch.from_numpy(masks), max(lengths), {}, left=False)
        return all(
            rows[i, :length].tolist() == list(wanted[name][i])
            for name, rows in made.items()
            for i, length in enumerate(lengths)
        )


@dataclass(frozen=True, eq=False)
class _Tokens:
    """Tokens of a text or two, each with its place among the leaves and gaps and what belongs to the tokenizer."""

    columns: dict[str, Ints]
    place: Ints
    leaf: Ints
    kept: Bools
    added: Bools

    @classmethod
    def of(cls, tokenizer: Any, texts: list[str], spans: list[list[tuple[int, int]]], gaps: bool) -> _Tokens:
        """Tokenise texts whose leaves are at these spans; a token belongs to the leaf that holds its last character.

        With ``gaps``, one before a leaf belongs to it too: some tokenizers join a blank to what comes after it.
        """
        encoding = tokenizer(*texts, truncation=False, padding=False, return_offsets_mapping=True, verbose=False)
        ends = np.array([max(end - 1, start) for start, end in encoding["offset_mapping"]])
        text = np.array([-1 if k is None else k for k in encoding.sequence_ids()])
        first = np.cumsum([0, *map(len, spans)])  # the number of each text's first leaf
        begins = 2 * first + 2 * np.arange(len(first))  # the place before each text, and the one after the last
        # What the tokenizer adds stands before the first text, between the two, or after the last.
        place = begins[np.maximum.accumulate(text) + 1]
        leaf = np.full(len(ends), _FIXED)
        for k, edges in enumerate(spans):
            own = text == k
            at = np.searchsorted(np.array(edges).ravel(), ends[own], side="right")  # odd in a leaf, even in a gap
            place[own] = begins[k] + 1 + at
            is_leafs = (at < 2 * len(edges)) if gaps else (at % 2 == 1)
            leaf[own] = np.where(is_leafs, first[k] + at // 2, _FIXED)
        columns = {
            name: np.array(column, dtype=np.int64)
            for name, column in encoding.items()
            if name not in ("offset_mapping", "attention_mask")
        }
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
        there = self.leaf == _FIXED
        columns = [self.place, *self.columns.values()]
        return list(zip(*(column[there].tolist() for column in columns), strict=True))

    def of_leaves(self) -> _Tokens:
        """The tokens of leaves alone, as what stands in their place when they are masked."""
        own = self.leaf != _FIXED
        columns = {name: column[own] for name, column in self.columns.items()}
        return _Tokens(columns, self.place[own], self.leaf[own], np.zeros(own.sum(), dtype=np.bool_), self.added[own])


def _all_masked(inputs: TextInputs, mask: str) -> tuple[list[str], list[list[tuple[int, int]]]]:
    """The texts with every leaf masked, and where the masks are."""
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

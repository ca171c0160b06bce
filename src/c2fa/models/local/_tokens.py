"""A text's tokens with each leaf kept and masked: its rows are chosen among them where the model is, without a string.

A row is rendered and tokenised by itself only where its tokens are not those of its leaves put together, as where a
tokenizer joins pieces over what was removed between them.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from c2fa._system import on_device
from c2fa.asking.masking import TextInputs

if TYPE_CHECKING:
    import torch

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Spans = list[tuple[int, int]]

_FIXED = -1  # the leaf of a token that every row has


@dataclass(frozen=True, eq=False)
class TokenTable:
    """Every token that a row of an input may have, in order, and when it has it."""

    columns: dict[str, Ints]  # ``input_ids``, and what else the tokenizer gives for each token
    leaf: Ints  # that a token belongs to; −1 for one that every row has
    when: Bools  # whether a leaf's token is there when the leaf is kept, or when it is masked
    added: Bools  # by the tokenizer around a text; a text that is too long loses others
    counts: Ints  # the tokens of each leaf when it is masked and when it is kept, (2, leaves)
    limit: int | None  # the most tokens of a row

    @classmethod
    def of(cls, tokenize: Tokenize, inputs: TextInputs) -> TokenTable | None:
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
        encodings = tokenize.encodings(rows)
        kept, masked = (
            _Tokens.of(tokenize.columns(encoding), encoding, spans, inputs.mask is not None)
            for encoding, (_, spans) in zip(encodings, spelled, strict=False)
        )
        if inputs.mask is not None:
            if kept.fixed() != masked.fixed():
                return None
            kept += masked.of_leaves()
        own = kept.leaf != _FIXED
        counts = np.bincount(kept.leaf[own] + leaves * kept.kept[own], minlength=2 * leaves).reshape(2, leaves)
        table = cls(kept.columns, kept.leaf, kept.kept, kept.added, counts, tokenize.limit)
        is_plain = len(inputs.texts) == 1 and tokenize.cuts_right
        if not (is_plain or table.fits):  # it is cut in another way than ``token_rows`` cuts
            return None
        return table if table._is_right(tried, list(map(tokenize.columns, encodings[2:]))) else None

    @classmethod
    def whole(cls, encoding: Any, number: int) -> TokenTable:
        """The table of an input of an encoding of which nothing is masked."""
        names = [name for name in encoding if name != "attention_mask"]
        columns = {name: np.array(encoding[name][number], dtype=np.int64) for name in names}
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

    def _is_right(self, tried: Bools, rendered: Sequence[Mapping[str, Ints]]) -> bool:
        """Whether rows that were tried have the tokens of the rendered texts."""
        chosen = (self.leaf == _FIXED) | (tried[:, self.leaf] == self.when)
        return all(
            np.array_equal(column[row], tokens[name])
            for name, column in self.columns.items()
            for row, tokens in zip(chosen, rendered, strict=True)
        )


@dataclass(frozen=True, eq=False)
class Tokenize:
    """Makes the table of an input's tokens; None where its rows must be rendered.

    It travels to workers, which need neither torch nor transformers for it.
    """

    tokenizer: Any  # the one of ``tokenizers`` under a fast tokenizer of ``transformers``; it neither cuts nor fills up
    has_types: bool  # whether the model takes ``token_type_ids``
    limit: int | None  # the most tokens of a row
    cuts_right: bool  # whether texts that are too long lose their end

    @classmethod
    def of(cls, tokenizer: Any, limit: int | None) -> Tokenize | None:
        """The same tokenizer without transformers; None where special tokens in a text are to be split."""
        backend = tokenizer.backend_tokenizer
        if backend.encode_special_tokens:  # which is lost on the way to a worker
            return None
        own = type(backend).from_str(backend.to_str())
        own.no_truncation()
        own.no_padding()
        return cls(own, "token_type_ids" in tokenizer.model_input_names, limit, tokenizer.truncation_side == "right")

    def __call__(self, inputs: Any) -> TokenTable | None:
        if not isinstance(inputs, TextInputs):
            return None
        if inputs.container is not None and not (type(inputs.container) in (tuple, list) and len(inputs.texts) == 2):
            return None
        table = TokenTable.of(self, inputs)
        if table is None:
            warnings.warn(
                "the tokenizer joins pieces over words that are masked, so masked texts are tokenised one by one, "
                "which is slower",
                stacklevel=2,
            )
        return table

    def encodings(self, rows: Sequence[Sequence[str]]) -> list[Any]:
        """The tokens of texts, or of pairs of texts."""
        return list(self.tokenizer.encode_batch([row[0] if len(row) == 1 else tuple(row) for row in rows]))

    def columns(self, encoding: Any) -> dict[str, Ints]:
        """What the model is told of each token."""
        columns = {"input_ids": np.array(encoding.ids, dtype=np.int64)}
        if self.has_types:
            columns["token_type_ids"] = np.array(encoding.type_ids, dtype=np.int64)
        return columns


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
    import torch

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
    def of(cls, columns: dict[str, Ints], encoding: Any, spans: Sequence[Spans], gaps: bool) -> _Tokens:
        """The tokens of an encoding, of an input whose leaves are at these spans.

        A token belongs to the leaf that holds its last character. With ``gaps``, one before a leaf belongs to it too:
        some tokenizers join a blank to what comes after it.
        """
        starts, ends = np.array(encoding.offsets).reshape(-1, 2).T
        ends = np.maximum(ends - 1, starts)
        text = np.array([-1 if k is None else k for k in encoding.sequence_ids])
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

"""A text's tokens with each leaf kept and masked, among which its rows are chosen on the model's device.

Rows are rendered as strings and tokenised one by one only where their tokens are not those of their leaves put
together, as where a tokenizer joins pieces after what stood between them is removed.
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
# The rows of what is known of tokens, above those of the model's inputs: a place, which orders tokens among leaves, the
# gaps between them and the tokenizer's additions, the leaf, whether it is kept, and whether the tokenizer added them.
_PLACE, _LEAF, _KEPT = range(3)


@dataclass(frozen=True, eq=False)
class TokenTable:
    """Every token that a row of an input may have, in order, and which rows have it."""

    columns: dict[str, Ints]  # ``input_ids``, and the tokenizer's other numbers for each token
    leaf: Ints  # the leaf that a token belongs to; −1 for one that every row has
    when: Bools  # of a leaf's token: True if rows that keep the leaf have it, False if rows that mask it
    added: Bools  # whether the tokenizer adds a token around a text; these are never cut off
    counts: Ints  # the numbers of each leaf's tokens when it is masked and when it is kept, (2, leaves)
    limit: int | None  # the most tokens of a row

    @classmethod
    def of(cls, tokenize: Tokenize, inputs: TextInputs) -> TokenTable | None:
        """The table of an input's texts; None where its rows must be rendered."""
        leaves = sum(map(len, inputs.spans))
        # A token depends on its neighbours. The whole text and the all-masked one show neighbours of one kind. In the
        # test rows each leaf meets the other kind and, where leaves are removed, leaves from further off.
        at = np.arange(leaves)
        near, far = [at % 2 == 0, at % 2 == 1], [at % 3 == 0, at % 3 == 1, at % 5 > 2, at % 7 == 6]
        tests = np.array([*near, *far] if inputs.mask is None else near)
        rows = inputs(np.array([at >= 0, at < 0, *tests]), inputs.structure.depth - 1)
        whole, blank, *others = tokenize.tokenizer.encode_batch([r if isinstance(r, str) else tuple(r) for r in rows])
        tokens = _tokens(tokenize.columns(whole), whole, inputs.spans, inputs.mask is not None)
        if inputs.mask is not None:
            masks = [_masked(spans, len(inputs.mask)) for spans in inputs.spans]
            masked = _tokens(tokenize.columns(blank), blank, masks, True)
            is_leafs = masked[_LEAF] != _FIXED
            if not np.array_equal(tokens[:, tokens[_LEAF] == _FIXED], masked[:, ~is_leafs]):
                return None
            masked[_KEPT] = 0
            tokens = np.concatenate([tokens, masked[:, is_leafs]], axis=1)
            tokens = tokens[:, np.argsort(tokens[_PLACE], kind="stable")]
        _, leaf, kept, added, *columns = tokens
        own = leaf != _FIXED
        counts = np.bincount(leaf[own] + leaves * kept[own], minlength=2 * leaves).reshape(2, leaves)
        named = dict(zip(tokenize.columns(whole), columns, strict=True))
        table = cls(named, leaf, kept == 1, added == 1, counts, tokenize.limit)
        is_cut_alike = len(inputs.texts) == 1 and tokenize.cuts_right  # as ``token_rows`` cuts
        chosen = (leaf == _FIXED) | (tests[:, leaf] == kept)
        is_right = all(
            np.array_equal(tokens[-len(columns) :, row], [*tokenize.columns(other).values()])
            for row, other in zip(chosen, others, strict=True)
        )
        return table if is_right and (is_cut_alike or table.fits) else None

    @classmethod
    def whole(cls, encoding: Any, number: int) -> TokenTable:
        """The table of one text of an encoding, in which no token belongs to a leaf."""
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
        masked, kept = self.counts
        fixed = len(self.leaf) - int(self.counts.sum())
        lengths: Ints = fixed + int(masked.sum()) + masks @ (kept - masked)
        return lengths if self.limit is None else np.minimum(lengths, self.limit)


@dataclass(frozen=True, eq=False)
class Tokenize:
    """Makes the table of an input's tokens, or None where its rows must be rendered.

    It travels to workers, which need neither torch nor transformers for it.
    """

    tokenizer: Any  # of the package ``tokenizers``, without truncation and padding
    has_types: bool  # whether the model takes ``token_type_ids``
    limit: int | None  # the most tokens of a row
    cuts_right: bool  # whether texts that are too long lose their end

    @classmethod
    def of(cls, tokenizer: Any, limit: int | None) -> Tokenize | None:
        """The same tokenizer without transformers; None where it must split special tokens in a text."""
        backend = tokenizer.backend_tokenizer
        if backend.encode_special_tokens:  # this setting is lost on the way to a worker
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

    def columns(self, encoding: Any) -> dict[str, Ints]:
        """The model's inputs for each token."""
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
    """The tokens of rows of several inputs, (n, width), padded on the right or the left; made on the device.

    Tables are padded to the most tokens, and masks to the most leaves. Two leaves are added: one that all rows keep,
    for tokens that every row has, and one that all rows mask, for padding.
    """
    import torch

    most = max(table_masks.shape[1] for table_masks in masks)
    always, never = most, most + 1
    kept = np.zeros((sum(map(len, masks)), most + 2), dtype=np.bool_)
    kept[:, always] = True
    start = 0
    for table_masks in masks:
        kept[start : start + len(table_masks), : table_masks.shape[1]] = table_masks
        start += len(table_masks)
    table_of_row = on_device(np.repeat(np.arange(len(tables)), list(map(len, masks))), device)

    def each(columns: Sequence[npt.NDArray[Any]], filler: Any) -> torch.Tensor:
        """A column of each table, padded, for each row of the table, (n, tokens)."""
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
    at = torch.where(chosen, at, width)  # other tokens go to a last column, which is cut off
    rows = {}
    for name in tables[0].columns:
        tokens = each([table.columns[name] for table in tables], 0)
        blank = tokens.new_full((len(kept), width + 1), fill.get(name, 0))
        rows[name] = blank.scatter_(1, at, tokens)[:, :width]
    return rows


def _tokens(columns: Mapping[str, Ints], encoding: Any, spans: Sequence[Spans | Ints], gaps: bool) -> Ints:
    """The tokens of an encoding of an input whose leaves are at ``spans``, with the rows of ``_PLACE`` and so on.

    A token belongs to the leaf that holds its last character. With ``gaps``, a token before a leaf belongs to it too,
    because some tokenizers join a blank to the word after it.
    """
    starts, ends = np.array(encoding.offsets).reshape(-1, 2).T
    ends = np.maximum(ends - 1, starts)
    text = np.array([-1 if k is None else k for k in encoding.sequence_ids])
    first = np.cumsum([0, *map(len, spans)])  # the number of each text's first leaf
    begins = 2 * first + 2 * np.arange(len(first))  # the place before each text, and the one after the last
    # The tokenizer's additions stand before the first text, between the two, or after the last.
    place = begins[np.maximum.accumulate(text) + 1]
    leaf = np.full(len(ends), _FIXED)
    for k, edges in enumerate(spans):
        own = text == k
        at = np.searchsorted(np.array(edges).ravel(), ends[own], side="right")  # odd in a leaf, even in a gap
        is_leafs = (at < 2 * len(edges)) if gaps else (at % 2 == 1)
        place[own] = begins[k] + 1 + at
        leaf[own] = np.where(is_leafs, first[k] + at // 2, _FIXED)
    return np.array([place, leaf, np.ones(len(ends), dtype=np.int64), text < 0, *columns.values()])


def _masked(spans: Spans, size: int) -> Ints:
    """The spans of leaves of which each is masked by so many characters."""
    starts, ends = np.array(spans).reshape(-1, 2).T
    grown = size - (ends - starts)
    starts = starts + np.cumsum(grown) - grown
    return np.stack([starts, starts + size], axis=1)

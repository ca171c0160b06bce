"""The sentiment classifier that ships with the package: a small transformer that needs numpy alone.

`experiments/train_demo_text.py` distilled it from a fine-tuned gte-small on product reviews; `data/MODEL_CARD.md` gives
its data, its accuracy and its limits.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from importlib.resources import files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

__all__ = ["DemoSentiment", "WordPiece"]

_Floats = NDArray[np.float32]
_Ids = NDArray[np.intp]

_PAD, _CLS = 0, 2


class DemoSentiment:
    """Whether reviews are negative or positive: a callable from texts to rows of two probabilities.

    Only the first 255 pieces of a text (about 200 English words) have an influence. `[MASK]` stands for an unknown
    word, as it often did in training. A row's outputs depend on its text alone, never on the batch. The weights are
    read at the first call, from `weights` or else from the package.

    >>> model = DemoSentiment()
    >>> model(["A wonderful book, I loved it.", "It broke after a day."]).argmax(axis=1).tolist()
    [1, 0]
    """

    name = "c2fa-demo-sentiment-1"
    output_names = ("negative", "positive")
    mask_token = "[MASK]"

    def __init__(self, weights: str | Path | None = None) -> None:
        self._path = None if weights is None else Path(weights)

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """The probabilities of negative and positive for each text, as an array of shape (n, 2)."""
        if isinstance(texts, str):
            raise TypeError("expected a list of texts, got one string")
        network = self._network
        rows = [network.encode(text) for text in texts]
        logits = np.empty(len(rows), dtype=np.float64)
        for places, tile in _tiles(rows):
            logits[places] = network.logits(tile)[: len(places)]
        positive = 1 / (1 + np.exp(-logits))
        return np.stack([1 - positive, positive], axis=1)

    @cached_property
    def _network(self) -> _Network:
        path = self._path or files("c2fa.models").joinpath("data/demo_sentiment.npz")
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return _Network(archive)


class _Network:
    """The weights, dequantised, and the arithmetic over one tile of rows."""

    def __init__(self, weights: Mapping[str, NDArray[np.generic]]) -> None:
        shape: list[int] = weights["shape"].astype(int).tolist()
        self._width, _, self._heads, self._layers, self.length = shape
        self._tokenizer = WordPiece(weights["vocabulary"].tobytes().decode().split("\n"))
        self._words = _dequantise(weights, "words")
        self._positions = _dequantise(weights, "positions")
        self._blocks = [
            tuple(_dequantise(weights, f"{i}.{part}") for part in ("qkv", "out", "up", "down"))
            for i in range(self._layers + 1)
        ]
        self._head = _dequantise(weights, "head")[0]
        self._bias = float(weights["bias"].astype(np.float64)[0])

    def encode(self, text: str) -> list[int]:
        """The text's pieces after [CLS], cut to the length that the model reads."""
        return [_CLS, *self._tokenizer.encode(text, self.length - 1)]

    def logits(self, ids: _Ids) -> NDArray[np.float64]:
        """The log-odds of positive for each row of a tile."""
        rows, length = ids.shape
        x = self._words[ids]
        x += self._positions[:length]
        x = x.reshape(rows * length, self._width)
        absent = np.where(ids == _PAD, np.float32(-1e9), np.float32(0))[:, None, None, :]
        for qkv, out, up, down in self._blocks[:-1]:
            x += self._attend(_normalise(x) @ qkv, absent) @ out
            hidden = _normalise(x) @ up
            np.maximum(hidden, 0, out=hidden)
            x += hidden @ down
        pooled = self._pool(x.reshape(rows, length, self._width), absent[:, 0])
        logits: NDArray[np.float64] = np.einsum("ij,j->i", pooled, self._head).astype(np.float64) + self._bias
        return logits

    def _attend(self, qkv: _Floats, absent: _Floats) -> _Floats:
        """Each position's mix of all positions' values, head by head."""
        rows, length, size = len(absent), absent.shape[-1], self._width // self._heads
        query, key, value = qkv.reshape(rows, length, 3, self._heads, size).transpose(2, 0, 3, 1, 4)
        weights = query @ key.swapaxes(-1, -2)
        weights += absent
        total = _exponentiate(weights)
        mixed = np.empty((rows, length, self._heads, size), dtype=np.float32)
        np.matmul(weights, value, out=mixed.swapaxes(1, 2))
        mixed /= total.swapaxes(1, 2)
        return mixed.reshape(rows * length, self._width)

    def _pool(self, x: _Floats, absent: _Floats) -> _Floats:
        """The last layer, for [CLS] alone.

        Keys and values are not computed for each position: the query goes through the key's matrix, and the mix of the
        states through the value's, which is the same sum in another order and costs next to nothing.
        """
        rows, length, width = x.shape
        heads, size = self._heads, width // self._heads
        qkv, out, up, down = self._blocks[-1]
        states = _normalise(x.reshape(rows * length, width)).reshape(rows, length, width)
        to_query, to_key, to_value = qkv.reshape(width, 3, heads, size).transpose(1, 2, 0, 3)
        query = np.matmul(np.matmul(states[:, 0], to_query), to_key.swapaxes(1, 2)).swapaxes(0, 1)
        weights: _Floats = np.matmul(query, states.swapaxes(1, 2))
        weights += absent
        total = _exponentiate(weights)
        mixed = np.matmul((weights @ states / total).swapaxes(0, 1), to_value).swapaxes(0, 1)
        pooled: _Floats = x[:, 0] + np.matmul(mixed.reshape(rows, width), out)
        hidden = np.maximum(_normalise(pooled) @ up, 0)
        pooled += hidden @ down
        return _normalise(pooled)


def _tiles(
    rows: Sequence[Sequence[int]],
    pieces: int = 768,
    widths: Sequence[int] = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256),
) -> Iterator[tuple[_Ids, _Ids]]:
    """The rows' places and their padded ids, tile by tile; the rows of a tile are about equally long.

    Every tile holds the same number of pieces. The large matrix products then have one shape each, so a row's outputs
    do not depend on the other rows, and BLAS runs well.
    """
    lengths = np.array([len(row) for row in rows], dtype=np.intp)
    padded = np.searchsorted(widths, lengths)
    for bucket in np.unique(padded):
        width = widths[bucket]
        members = np.flatnonzero(padded == bucket)
        for start in range(0, len(members), pieces // width):
            places = members[start : start + pieces // width]
            tile = np.full((pieces // width, width), _PAD, dtype=np.intp)
            tile[:, 0] = _CLS
            for i, place in enumerate(places):
                tile[i, : lengths[place]] = rows[place]
            yield places, tile


def _normalise(x: _Floats) -> _Floats:
    """Each row divided by its root mean square; gains are folded into the next weights."""
    square = np.einsum("ij,ij->i", x, x)
    square /= x.shape[1]
    square += np.float32(1e-6)
    normalised: _Floats = x * (1 / np.sqrt(square))[:, None]
    return normalised


def _exponentiate(scores: _Floats) -> _Floats:
    """Turn scores into unnormalised weights, in place, and return their sums."""
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    total: _Floats = scores.sum(axis=-1, keepdims=True)
    return total


def _dequantise(weights: Mapping[str, NDArray[np.generic]], name: str) -> _Floats:
    """A matrix from its int8 values and one scale for each of its rows or columns."""
    values, scale = weights[name].astype(np.float32), weights[name + ".scale"].astype(np.float32)
    return values * scale


# The control characters that BERT drops inside a word; `str.split` would split the word at some of them.
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffd]")


class WordPiece:
    """Splits a text into pieces of a vocabulary and returns their positions in it.

    A piece that continues a word begins with `##`. A word that cannot be put together from the vocabulary becomes
    `[UNK]`; `[MASK]` is one piece wherever it stands, also inside a word.

    >>> pieces = WordPiece(["[UNK]", "[MASK]", "good", "##ness", "!", "not"])
    >>> pieces.encode("Not  GOODNESS! [MASK], x")
    [5, 2, 3, 4, 1, 0, 0]
    """

    most_remembered = 1 << 16

    def __init__(self, vocabulary: Sequence[str]) -> None:
        self._ids = {piece: i for i, piece in enumerate(vocabulary)}
        self._unknown = (self._ids["[UNK]"],)
        self._longest = max(map(len, vocabulary))
        self._remembered: dict[str, tuple[int, ...]] = {}

    def encode(self, text: str, limit: int | None = None) -> list[int]:
        """The ids of the first `limit` pieces of `text`, or of all."""
        ids: list[int] = []
        for chunk in _CONTROLS.sub("", text).split():
            pieces = self._remembered.get(chunk)
            if pieces is None:
                pieces = tuple(i for word in self._chunk_words(chunk) for i in word)
                if len(self._remembered) >= self.most_remembered:
                    self._remembered.clear()
                if len(chunk) <= 64:  # longer ones hardly come again
                    self._remembered[chunk] = pieces
            ids += pieces
            if limit is not None and len(ids) >= limit:
                return ids[:limit]
        return ids

    def words(self, text: str) -> list[tuple[int, ...]]:
        """The ids of each word (or punctuation mark, or mask) of `text`, word by word."""
        return [word for chunk in _CONTROLS.sub("", text).split() for word in self._chunk_words(chunk)]

    def _chunk_words(self, chunk: str) -> Iterator[tuple[int, ...]]:
        for i, part in enumerate(chunk.split("[MASK]")):
            if i:
                yield (self._ids["[MASK]"],)
            for word in _split_words(_normalise_text(part)):
                yield self._split_word(word)

    def _split_word(self, word: str) -> tuple[int, ...]:
        """The longest pieces of a word from its left, or `[UNK]` where no piece fits."""
        if len(word) > 100:  # as BERT does
            return self._unknown
        ids: list[int] = []
        start = 0
        while start < len(word):
            prefix = "##" if start else ""
            for end in range(min(len(word), start + self._longest), start, -1):
                piece = self._ids.get(prefix + word[start:end])
                if piece is not None:
                    ids.append(piece)
                    start = end
                    break
            else:
                return self._unknown
        return tuple(ids)


def _normalise_text(text: str) -> str:
    """Lower case without accents, blanks around each CJK character, no control or format characters."""
    if text.isascii():
        return text.lower()
    visible = (c for c in text if unicodedata.category(c) not in ("Cc", "Cf", "Co", "Cs"))
    spaced = "".join(f" {c} " if _is_cjk(ord(c)) else c for c in visible)
    bare = (c for c in unicodedata.normalize("NFD", spaced) if unicodedata.category(c) != "Mn")
    return "".join(c.lower() for c in bare)  # one by one: a final sigma is no special case in BERT


def _split_words(text: str) -> Iterator[str]:
    """The words of a normalised text; each punctuation mark is a word of its own."""
    for run in text.split():
        if run.isalnum():
            yield run
            continue
        start = 0
        for i, c in enumerate(run):
            if c in string.punctuation or unicodedata.category(c).startswith("P"):
                if start < i:
                    yield run[start:i]
                yield c
                start = i + 1
        if start < len(run):
            yield run[start:]


def _is_cjk(code: int) -> bool:
    """Whether a code point is an ideograph that BERT takes for a word."""
    in_plane = 0x3400 <= code <= 0x4DBF or 0x4E00 <= code <= 0x9FFF or 0xF900 <= code <= 0xFAFF
    return in_plane or 0x20000 <= code <= 0x2A6DF or 0x2A700 <= code <= 0x2CEAF or 0x2F800 <= code <= 0x2FA1F

"""A WordPiece tokenizer in plain Python: BERT's uncased text cleaning over a vocabulary of one's own.

It gives the pieces that the `tokenizers` library's `BertNormalizer`, `BertPreTokenizer` and `WordPiece` give, with one
difference: of the special tokens only the mask is recognised inside a text. What a run of characters between
blanks becomes is remembered, so the many masked variants of one text cost a dictionary look-up per word.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Iterator, Sequence

__all__ = ["WordPiece"]

# The controls BERT drops without parting the word; `str.split` would part it at some of them.
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffd]")


class WordPiece:
    """Splits a text into pieces of `vocabulary` and gives their positions in it.

    A piece that continues a word is written with a leading `##`. A word that cannot be put together from the
    vocabulary becomes `unknown`; `mask` is one piece wherever it stands, also inside a word.

    >>> pieces = WordPiece(["[UNK]", "[MASK]", "good", "##ness", "!", "not"])
    >>> pieces.encode("Not  GOODNESS! [MASK], x")
    [5, 2, 3, 4, 1, 0, 0]
    """

    most_remembered = 1 << 16

    def __init__(self, vocabulary: Sequence[str], *, mask: str = "[MASK]", unknown: str = "[UNK]") -> None:
        self.vocabulary = tuple(vocabulary)
        self.mask = mask
        self._ids = {piece: i for i, piece in enumerate(self.vocabulary)}
        self._mask_id = self._ids[mask]
        self._unknown_id = self._ids[unknown]
        self._longest = max(len(piece) for piece in self.vocabulary)
        self._remembered: dict[str, tuple[int, ...]] = {}

    def encode(self, text: str, limit: int | None = None) -> list[int]:
        """The ids of the pieces of `text`, at most `limit` of them; what lies beyond is not looked at."""
        ids: list[int] = []
        for chunk in _CONTROLS.sub("", text).split():
            pieces = self._remembered.get(chunk)
            if pieces is None:
                pieces = tuple(i for word in self._chunk_words(chunk) for i in word)
                if len(self._remembered) >= self.most_remembered:
                    self._remembered.clear()
                if len(chunk) <= 64:  # what is longer hardly comes again
                    self._remembered[chunk] = pieces
            ids += pieces
            if limit is not None and len(ids) >= limit:
                return ids[:limit]
        return ids

    def words(self, text: str) -> list[tuple[int, ...]]:
        """The ids of each word (or punctuation mark, or mask) of `text`, word by word."""
        return [word for chunk in _CONTROLS.sub("", text).split() for word in self._chunk_words(chunk)]

    def _chunk_words(self, chunk: str) -> Iterator[tuple[int, ...]]:
        for i, part in enumerate(chunk.split(self.mask)):
            if i:
                yield (self._mask_id,)
            for word in _split_words(_normalise(part)):
                yield self._split_word(word)

    def _split_word(self, word: str) -> tuple[int, ...]:
        """The longest pieces of a word from its left, or `unknown` where no piece fits."""
        if len(word) > 100:  # as BERT does
            return (self._unknown_id,)
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
                return (self._unknown_id,)
        return tuple(ids)


def _normalise(text: str) -> str:
    """Lower case without accents, blanks around each CJK character, no control or format characters."""
    if text.isascii():
        return text.lower()
    kept = "".join(
        f" {c} " if _is_cjk(ord(c)) else c for c in text if unicodedata.category(c) not in ("Cc", "Cf", "Co", "Cs")
    )
    bare = (c for c in unicodedata.normalize("NFD", kept) if unicodedata.category(c) != "Mn")
    return "".join(c.lower() for c in bare)  # one by one: a word's last sigma is no special case in BERT


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
    """Whether a code point is one of the ideographs that BERT takes for words of their own."""
    return (
        0x4E00 <= code <= 0x9FFF
        or 0x3400 <= code <= 0x4DBF
        or 0x20000 <= code <= 0x2A6DF
        or 0x2A700 <= code <= 0x2B73F
        or 0x2B740 <= code <= 0x2B81F
        or 0x2B820 <= code <= 0x2CEAF
        or 0xF900 <= code <= 0xFAFF
        or 0x2F800 <= code <= 0x2FA1F
    )

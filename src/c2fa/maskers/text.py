"""Texts: paragraphs of sentences of words, masked without changing a byte of the rest."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from c2fa import views
from c2fa._system import did_you_mean
from c2fa.asking.fingerprint import fingerprint
from c2fa.asking.masking import Masked
from c2fa.graph import Graph, chain
from c2fa.maskers._words import (
    Spans,
    check_language,
    paragraph_starts,
    remover,
    replacer,
    sentence_starts,
    tags,
    without_markup,
    words,
)
from c2fa.structure import BoolArray, IntArray, Structure
from c2fa.views.descriptors import WordFields
from c2fa.views.inputs import shortened

_LEVELS = ("texts", "paragraphs", "sentences", "words")
_WHOLE = ("texts", "documents")  # the names of the level of whole texts


@dataclass(frozen=True)
class Text:
    """Masks a text, or several texts that the model reads together (a premise and its hypothesis).

    What is kept is kept byte for byte, with the white space between words. Punctuation goes with the word it touches:
    an opening bracket or quote with the word after it, anything else with the word before. HTML's tags count as white
    space: they are never masked and get no attribution; where sentences are leaves, a tag goes with its sentence. An
    entity such as ``&quot;`` is the character that it stands for. A tuple, a list or a dict of texts is masked as one
    input, and comes back as the same container; no part spans two of its texts.

    Parameters
    ----------
    levels
        Coarse to fine, the last being the leaves: any of ``"texts"`` or ``"documents"`` (for several texts, each one a
        part, with the keys of a dict as names), ``"paragraphs"`` (split at blank lines), ``"sentences"`` (split by
        sentencex) and ``"words"``.
    language
        The code of the language for splitting sentences, such as ``"en"``, ``"ja"`` or ``"ar"``.
    mask
        What stands in place of a masked word: a mask token (the model's own: ``tokenizer.mask_token``), any
        other placeholder, or None to remove the word. Where words are removed, those that are kept stay
        apart by the strongest break that lay between them: a blank line, a new line, or a space.
    tokenizer
        What finds the words: a Hugging Face tokenizer (its own word pieces become the leaves), a
        ``tokenizers.Tokenizer``, or a function from a text to (start, end) pairs of characters, in order.
        None takes the splitter that comes with the package.

    Examples
    --------
    >>> masked = Text()("Not good. But I smiled!")
    >>> masked.structure.names
    (('Not good.', 'But I smiled!'), ('Not', 'good.', 'But', 'I', 'smiled!'))
    >>> masked.inputs([[True, False]], 0)
    ['Not good. [MASK] [MASK] [MASK]']
    >>> Text(mask=None)("Not good. But I smiled!").inputs([[False, True, True, False, True]], 1)
    ['good. But smiled!']
    """

    levels: Sequence[str] = ("sentences", "words")
    language: str = "en"
    mask: str | None = "[MASK]"
    tokenizer: Any = field(default=None, repr=False)
    tokenizer_id: str | None = field(init=False, default=None, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.levels, Iterable):
            raise TypeError(f"levels must be some of {_LEVELS}, such as ('sentences', 'words'); got {self.levels!r}")
        check_language(self.language)
        if not isinstance(self.mask, str | None):
            raise TypeError(f"mask must be a text, or None to remove masked words; got {self.mask!r}")
        levels = (self.levels,) if isinstance(self.levels, str) else tuple(self.levels)
        plain = ["texts" if level in _WHOLE else level for level in levels]
        if not plain or plain != [level for level in _LEVELS if level in plain]:
            near = next((did_you_mean(level, _LEVELS) for level in plain if level not in _LEVELS), "")
            raise ValueError(f"levels must be some of {_LEVELS}, in this order; got {levels}{near}")
        if self.mask == "":
            raise ValueError("mask is empty: give a placeholder, or mask=None to remove masked words")
        if self.tokenizer is not None and not callable(self.tokenizer) and not hasattr(self.tokenizer, "encode_batch"):
            raise TypeError(
                f"tokenizer must be a Hugging Face tokenizer, a tokenizers.Tokenizer or a function from a text "
                f"to (start, end) pairs, not {type(self.tokenizer).__name__}"
            )
        object.__setattr__(self, "levels", levels)
        object.__setattr__(self, "tokenizer_id", _identity(self.tokenizer))

    def __call__(self, x: Any) -> Masked:
        texts = [x] if isinstance(x, str) else x
        if isinstance(x, Mapping):
            texts = list(x.values())
        if not (isinstance(texts, tuple | list) and texts and all(isinstance(text, str) for text in texts)):
            raise TypeError(
                f"the input must be a text, or a tuple or dict of texts, not {type(x).__name__}; explainer.many(texts) "
                "explains each of several"
            )
        texts = list(texts)
        spans = [self._leaves(text) for text in texts]
        names = [str(key) for key in x] if isinstance(x, Mapping) else None
        structure = self._structure(texts, spans, names)
        # Between words, tags are never masked; one inside a sentence that is a leaf goes with the sentence.
        keeps_tags = self.tokenizer is None and self.levels[-1] == "words"
        fixed = [tags(text) if keeps_tags else [] for text in texts]
        inputs = MaskedTexts(structure, texts, spans, fixed, self.mask, None if isinstance(x, str) else x)

        def neighbours() -> Graph:
            parts = structure.owners(structure.depth - 2) if structure.depth > 1 else np.zeros(structure.leaves)
            begins_word: list[bool] = []  # a further piece of a word touches the piece before it
            for edges in spans:
                begins_word += [True, *(start > end for (_, end), (start, _) in pairwise(edges))]
            return chain(parts, np.where(begins_word, 1.0, 3.0))  # pieces of one word are tied more strongly

        starts = np.cumsum([0, *(len(text) + 1 for text in texts[:-1])])
        places = np.concatenate([np.array(s) + start for s, start in zip(spans, starts, strict=True)])
        view = views.Text("\n".join(texts), places, levels=tuple(self.levels))
        descriptors = WordFields(structure) if self.levels[-1] == "words" else None
        return Masked(structure, inputs, view=view, neighbours=neighbours, descriptors=descriptors)

    def _leaves(self, text: str) -> Spans:
        if self.levels[-1] in _WHOLE:
            offsets: Iterable[tuple[int, int]] = [(0, len(text))]
        elif self.levels[-1] != "words":
            offsets = pairwise([*self._starts(text, self.levels[-1]), len(text)])
        elif self.tokenizer is None:
            offsets = words(text)
        elif hasattr(self.tokenizer, "encode_batch"):  # tokenizers.Tokenizer
            offsets = self.tokenizer.encode(text, add_special_tokens=False).offsets
        elif hasattr(self.tokenizer, "convert_tokens_to_ids"):  # transformers
            offsets = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
        else:
            offsets = self.tokenizer(text)
        spans: Spans = []
        for a, b in offsets:
            # Byte-level pieces may begin with a space or share a character; leaves must not.
            piece = text[a:b]
            a, b = a + len(piece) - len(piece.lstrip()), b - len(piece) + len(piece.rstrip())
            a = max(a, spans[-1][1]) if spans else a
            if a < b:
                spans.append((int(a), int(b)))
        if not spans:
            excerpt = text if len(text) <= 40 else text[:40] + "…"
            raise ValueError(f"there are no words in {excerpt!r}: give a text with at least one")
        return spans

    def _starts(self, text: str, level: str) -> list[int]:
        """Where paragraphs or sentences begin; a paragraph, where it is a level, also begins a sentence."""
        if level == "paragraphs":
            return paragraph_starts(text)
        paragraphs = paragraph_starts(text) if "paragraphs" in self.levels else []
        return sorted({0, *paragraphs, *sentence_starts(text, self.language)})

    def _owners(self, text: str, spans: Spans, number: int) -> IntArray:
        """For each leaf the number of its text and, where they are levels, of its paragraph and sentence."""
        at = np.array([a for a, _ in spans])
        rows = [np.full(len(at), number)]
        between = [level for level in self.levels[:-1] if level not in _WHOLE]
        rows += [np.searchsorted(self._starts(text, level), at, side="right") for level in between]
        return np.array(rows, dtype=np.intp)

    def _structure(self, texts: list[str], spans: list[Spans], keys: Sequence[str] | None) -> Structure:
        """The tree, in which a part begins wherever the number of the text, the paragraph or the sentence changes."""
        owners = np.concatenate([self._owners(texts[k], s, k) for k, s in enumerate(spans)], axis=1)
        leaves = [(k, start, end) for k, s in enumerate(spans) for start, end in s]

        def part_name(first: int, last: int) -> str:
            k, start, _ = leaves[first]
            text = texts[k][start : leaves[last][2]]
            shown = without_markup(text)
            for a, b in reversed(tags(text)):  # a tag that breaks the line becomes a blank
                text = text[:a] + (" " if "\n" in shown[a:b] else "") + text[b:]
            return shortened(text[:320], 80)

        has_texts = self.levels[0] in _WHOLE and len(self.levels) > 1
        ids: list[IntArray] = []
        names: list[tuple[str, ...]] = []
        new = np.zeros(owners.shape[1] - 1, dtype=np.bool_)
        for depth, row in enumerate(owners):
            new = new | (row[1:] != row[:-1])
            if depth == 0 and not has_texts:
                continue
            first = np.concatenate(([0], np.flatnonzero(new) + 1))
            last = np.concatenate((first[1:], [len(leaves)])) - 1
            ids.append(np.concatenate(([0], np.cumsum(new))))
            excerpts = tuple(map(part_name, first.tolist(), last.tolist()))
            names.append(tuple(keys) if depth == 0 and keys is not None else excerpts)
        parents = [b[np.unique(a, return_index=True)[1]] for b, a in pairwise(ids)]
        leaf_names = tuple(texts[k][a:b] for k, a, b in leaves)
        if keys is not None and self.levels[-1] in _WHOLE:
            leaf_names = tuple(keys)
        return Structure((*parents, *ids[-1:]), (*names, leaf_names))


@dataclass(frozen=True, eq=False)
class MaskedTexts:
    """The ``inputs`` of a ``Masked`` text, or of several that are one input: renders them under masks.

    A model with a tokenizer may read the fields instead and mask tokens; see ``TextInputs``. ``fixed`` are spans of
    each text, between its leaves, that are never removed.
    """

    structure: Structure
    texts: list[str]
    spans: list[Spans]
    fixed: list[Spans]
    mask: str | None
    container: Any = None

    def __call__(self, masks: BoolArray, level: int) -> list[Any]:
        cuts = np.cumsum([len(s) for s in self.spans])[:-1]
        columns = np.split(self.structure.expand(masks, level), cuts, axis=1)
        rendered = [render(leaves) for render, leaves in zip(self._renderers, columns, strict=True)]
        if self.container is None:
            return rendered[0]
        rows = zip(*rendered, strict=True)
        if isinstance(self.container, Mapping):
            return [dict(zip(self.container, row, strict=True)) for row in rows]
        return [list(row) for row in rows] if isinstance(self.container, list) else list(rows)

    @cached_property
    def _renderers(self) -> list[Callable[[BoolArray], list[str]]]:
        """A function from masks for each text; not pickled, but made anew in another process."""
        if self.mask is not None:
            return [replacer(*_cut(t, spans), self.mask) for t, spans in zip(self.texts, self.spans, strict=True)]
        renderers = []
        for text, spans, fixed in zip(self.texts, self.spans, self.fixed, strict=True):
            pieces, always = sorted([*spans, *fixed]), set(fixed)
            renderers.append(remover(*_cut(text, pieces), np.array([piece in always for piece in pieces])))
        return renderers

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_renderers"}


def _cut(text: str, spans: Spans) -> tuple[list[str], list[str]]:
    """The pieces of a text between spans, of which there is one more than spans, and those inside them."""
    edges = [0, *(edge for span in spans for edge in span), len(text)]
    pieces = [text[a:b] for a, b in pairwise(edges)]
    return pieces[0::2], pieces[1::2]


def _identity(tokenizer: Any) -> str | None:
    """A name by which tokenizers are told apart, because they cannot be compared themselves."""
    if tokenizer is None:
        return None
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    try:
        return fingerprint(backend.to_str() if hasattr(backend, "to_str") else tokenizer)[:16]
    except Exception:  # of an object that cannot be hashed nothing is known, so it is like no other
        return f"{type(tokenizer).__qualname__} {secrets.token_hex(8)}"

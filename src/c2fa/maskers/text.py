"""Texts: paragraphs of sentences of words, masked without losing a byte of what is kept."""

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
_WHOLE = ("texts", "documents")  # what several texts may be called


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
        given = [x] if isinstance(x, str) else list(x.values()) if isinstance(x, Mapping) else x
        if not (isinstance(given, tuple | list) and given and all(isinstance(text, str) for text in given)):
            raise TypeError(
                f"the input must be a text, or a tuple or dict of texts, not {type(x).__name__}; explainer.many(texts) "
                "explains each of several"
            )
        texts = list(given)
        spans = [self._leaves(text) for text in texts]
        names = [str(key) for key in x] if isinstance(x, Mapping) else None
        structure = self._structure(texts, spans, names)
        # A tag inside a sentence that is a leaf goes with the sentence.
        found = self.tokenizer is None and self.levels[-1] == "words"
        fixed = [tags(text) if found else [] for text in texts]
        inputs = MaskedTexts(structure, texts, spans, fixed, self.mask, None if isinstance(x, str) else x)

        def neighbours() -> Graph:
            parts = structure.owners(structure.depth - 2) if structure.depth > 1 else np.zeros(structure.leaves)
            begins: list[bool] = []  # a further piece of a word touches the piece before it
            for edges in spans:
                begins += [True, *(start > end for (_, end), (start, _) in pairwise(edges))]
            return chain(parts, np.where(begins, 1.0, 3.0))  # which ties it so much more strongly than words are

        starts = np.cumsum([0, *(len(text) + 1 for text in texts[:-1])])
        places = np.concatenate([np.array(s) + start for s, start in zip(spans, starts, strict=True)])
        view = views.Text("\n".join(texts), places, levels=tuple(self.levels))
        described = WordFields(structure) if self.levels[-1] == "words" else None
        return Masked(structure, inputs, view=view, neighbours=neighbours, descriptors=described)

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
            # Byte-level pieces take a space along and share characters; a leaf has neither.
            piece = text[a:b]
            a, b = a + len(piece) - len(piece.lstrip()), b - len(piece) + len(piece.rstrip())
            a = max(a, spans[-1][1]) if spans else a
            if a < b:
                spans.append((int(a), int(b)))
        if not spans:
            shown = text if len(text) <= 40 else text[:40] + "…"
            raise ValueError(f"there are no words in {shown!r}: give a text with at least one")
        return spans

    def _starts(self, text: str, level: str) -> list[int]:
        """Where the paragraphs of a text begin, or its sentences, which end with a paragraph where both are wanted."""
        if level == "paragraphs":
            return paragraph_starts(text)
        paragraphs = paragraph_starts(text) if "paragraphs" in self.levels else []
        return sorted({0, *paragraphs, *sentence_starts(text, self.language)})

    def _owners(self, text: str, spans: Spans, number: int) -> IntArray:
        """The numbers of the text and of the paragraph and sentence (where wanted) that hold each leaf."""
        at = np.array([a for a, _ in spans])
        rows = [np.full(len(at), number)]
        between = [level for level in self.levels[:-1] if level not in _WHOLE]
        rows += [np.searchsorted(self._starts(text, level), at, side="right") for level in between]
        return np.array(rows, dtype=np.intp)

    def _structure(self, texts: list[str], spans: list[Spans], keys: Sequence[str] | None) -> Structure:
        """The tree: a part begins wherever the number of the text, the paragraph or the sentence changes."""
        owners = np.concatenate([self._owners(texts[k], s, k) for k, s in enumerate(spans)], axis=1)
        leaves = [(k, start, end) for k, s in enumerate(spans) for start, end in s]

        def part_name(first: int, last: int) -> str:
            k, start, _ = leaves[first]
            text = texts[k][start : leaves[last][2]]
            shown = without_markup(text)
            for a, b in reversed(tags(text)):  # a blank where they break the line
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
            found = tuple(map(part_name, first.tolist(), last.tolist()))
            names.append(tuple(keys) if depth == 0 and keys is not None else found)
        parents = [b[np.unique(a, return_index=True)[1]] for b, a in pairwise(ids)]
        own = tuple(texts[k][a:b] for k, a, b in leaves)
        if keys is not None and self.levels[-1] in _WHOLE:
            own = tuple(keys)
        return Structure((*parents, *ids[-1:]), (*names, own))


@dataclass(frozen=True, eq=False)
class MaskedTexts:
    """The texts of one input, which it gives under masks: ``inputs`` of a ``Masked``.

    A model that has a tokenizer may read them instead, and mask tokens; see ``TextInputs``. ``fixed`` is what lies
    between the leaves of each text and is never removed.
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
        """A function for each text; they are made anew where the texts have travelled to another process."""
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
    """A text as what lies between spans, one piece more than there are spans, and what lies in them."""
    edges = [0, *(edge for span in spans for edge in span), len(text)]
    pieces = [text[a:b] for a, b in pairwise(edges)]
    return pieces[0::2], pieces[1::2]


def _identity(tokenizer: Any) -> str | None:
    """A name for a tokenizer that tells two apart, because tokenizers themselves cannot be compared."""
    if tokenizer is None:
        return None
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    try:
        return fingerprint(backend.to_str() if hasattr(backend, "to_str") else tokenizer)[:16]
    except Exception:  # a stranger's object: nothing tells what it does, so it is like no other
        return f"{type(tokenizer).__qualname__} {secrets.token_hex(8)}"

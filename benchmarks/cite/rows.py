"""The rows of one answer, each known by its mask: asked of a language model once, kept in a file, and read from it.

``cite`` explains a stand-in for each context: ``X0. X1.`` in place of its first two sentences. Which sentences a
prompt keeps can then be read from it. Recording, the prompt of the real text with the same mask goes to the language
model; from a file, no text is needed, and none is kept.
"""

from __future__ import annotations

import json
import lzma
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.cite.items import Item

import c2fa
from c2fa.asking.masking import Masked
from c2fa.citing import PROMPT
from c2fa.structure import BoolArray, FloatArray, IntArray

LEVELS = ("documents", "sentences")
WORDS = (*LEVELS, "words")
_UNIT = 512.0  # scores are kept in parts of a nat, so that they are the same from a file


def message(documents: Mapping[str, str], query: str) -> str:
    """What ``cite`` says to the model with some of the documents."""
    context = "\n\n".join(text for text in documents.values() if text)
    return PROMPT.replace("{query}", query).replace("{context}", context)


@dataclass(frozen=True)
class Context:
    """What a file keeps of an item: how its documents are cut, where its evidence is, and the answer to explain.

    Attributes
    ----------
    number
        What its masks are drawn from, the same for every model.
    levels, sizes
        What it is cut into, and how many leaves each sentence of each document has.
    source, evidence
        The document that holds the answer, and the sentences that do, by their numbers.
    pieces
        The tokens of the answer.
    """

    name: str
    family: str
    number: int
    levels: tuple[str, ...]
    sizes: tuple[tuple[int, ...], ...]
    source: int
    evidence: tuple[int, ...]
    answer: str
    pieces: tuple[str, ...]

    @classmethod
    def of(cls, item: Item, answer: str, pieces: Sequence[str], levels: Sequence[str] = LEVELS) -> Context:
        """What is kept of an item with the answer that a model gave."""
        structure = _masked(item.documents, levels).structure
        inside = np.bincount(structure.owners(1)) if len(levels) > len(LEVELS) else np.ones(structure.leaves, np.intp)
        owners = structure.parents[0]
        sizes = tuple(tuple(inside[owners == k].tolist()) for k in range(len(item.documents)))
        sentences = _masked(item.documents, LEVELS)
        alone = sentences.inputs(np.eye(sentences.structure.leaves, dtype=np.bool_), 1)
        texts = [left[item.source].strip() for left in alone]
        evidence = tuple(
            i for i, text in enumerate(texts) if text and any(_holds(text, known) for known in item.evidence)
        )
        source = list(item.documents).index(item.source)
        about = item.name, item.family, item.number, tuple(levels), sizes, source, evidence
        return cls(*about, answer, tuple(pieces))

    @cached_property
    def documents(self) -> dict[str, str]:
        """The stand-in: documents with a word of their own for each leaf."""
        found, leaf = {}, 0
        for k, sizes in enumerate(self.sizes):
            ends = np.cumsum([leaf, *sizes]).tolist()
            sentences = [" ".join(f"X{i}" for i in range(a, b)) for a, b in pairwise(ends)]
            found[f"document {k}"] = " ".join(f"{sentence}." for sentence in sentences)
            leaf = ends[-1]
        return found

    @property
    def leaves(self) -> int:
        """How many leaves there are."""
        return sum(map(sum, self.sizes))

    def masked(self, levels: Sequence[str] = LEVELS) -> Masked:
        """The stand-in, cut into these levels."""
        return _masked(self.documents, levels)

    def masks(self, texts: Sequence[str]) -> BoolArray:
        """Which leaves are left in prompts of the stand-in, or in other texts of it."""
        masks = np.zeros((len(texts), self.leaves), dtype=np.bool_)
        for mask, text in zip(masks, texts, strict=True):
            mask[[int(leaf) for leaf in re.findall(r"X(\d+)", text)]] = True
        return masks


def _masked(documents: Mapping[str, str], levels: Sequence[str]) -> Masked:
    return c2fa.maskers.Text(levels=levels, mask=None)(dict(documents))


def _holds(sentence: str, evidence: str) -> bool:
    """Whether a sentence holds a short answer, or is the sentence that was marked, wherever either was cut."""
    evidence = evidence.strip().lower()
    return evidence in sentence.lower() or (len(sentence) > 20 and sentence.lower() in evidence)


class Rows:
    """A language model for the stand-in of one context, which asks no row twice.

    Parameters
    ----------
    known
        Rows that were kept: the log-probability of each token of the answer, by the bytes of the mask.
    lm, item
        Who is asked for a row that is not known, and about which texts. Without them such a row is an error.
    """

    batch_size = 1024

    def __init__(
        self, context: Context, known: Mapping[bytes, Any] | None = None, lm: Any = None, item: Item | None = None
    ) -> None:
        self.context, self.lm, self.item = context, lm, item
        self.known: dict[bytes, IntArray] = dict(known or {})
        self.new: dict[bytes, IntArray] = {}

    def generate(self, prompt: str) -> str:
        return self.context.answer

    def pieces(self, answer: str) -> list[str]:
        if answer != self.context.answer:
            raise ValueError(f"these are rows of {self.context.answer!r}, not of {answer!r}")
        return list(self.context.pieces)

    def score(self, prompts: Sequence[str], answer: str) -> FloatArray:
        self.pieces(answer)
        return self.at(self.context.masks(prompts))

    def pool(self) -> BoolArray:
        """The masks of all rows that are known, from which a method of one's own may choose."""
        packed = np.frombuffer(b"".join(self.known), dtype=np.uint8).reshape(len(self.known), -1)
        return np.unpackbits(packed, axis=1, count=self.context.leaves).astype(np.bool_)

    @staticmethod
    def key(mask: BoolArray) -> bytes:
        """By what a mask is known."""
        return np.packbits(mask).tobytes()

    def at(self, masks: BoolArray) -> FloatArray:
        """The log-probabilities of the answer's tokens where the leaves of some masks are left, (rows, tokens)."""
        keys = list(map(self.key, masks))
        missing = {key: mask for key, mask in zip(keys, masks, strict=True) if key not in self.known}
        if missing:
            rows = np.clip(self._asked(np.array(list(missing.values()))) * _UNIT, -(2**15), 0).round()
            self.new.update(zip(missing, rows.astype(np.int16), strict=True))
            self.known.update(self.new)
        return np.array([self.known[key] for key in keys]) / _UNIT

    def _asked(self, masks: BoolArray) -> FloatArray:
        if self.lm is None or self.item is None:
            raise ValueError(
                f"the file has {len(self.known)} rows of {self.context.name!r} and lacks {len(masks)} that are asked "
                "for; choose among the masks of Rows.pool(), or record them with --record, --model and --data"
            )
        template = getattr(self.lm, "template", None)
        texts = [message(left, self.item.query) for left in self._real.inputs(masks, len(self.context.levels) - 1)]
        prompts = texts if template is None else [template([{"role": "user", "content": text}]) for text in texts]
        return np.asarray(self.lm.score(prompts, self.context.answer), dtype=np.float64)

    @cached_property
    def _real(self) -> Masked:
        assert self.item is not None
        return _masked(self.item.documents, self.context.levels)


class Noting(Rows):
    """Finds out which rows would be asked: it says the same to all of them."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.masks: list[BoolArray] = []

    def at(self, masks: BoolArray) -> FloatArray:
        self.masks += list(masks)
        return np.full((len(masks), len(self.context.pieces)), -1.0)


@dataclass
class Recorded:
    """The rows of one context in a file, and the settings under which all were asked that are needed."""

    context: Context
    rows: dict[bytes, IntArray]
    settings: list[dict[str, Any]]


class Record:
    """A file of rows: an xz stream for each context that was finished, after one that says how it was made.

    Such streams can be appended. What a run that was killed left of the last is cut off. A context that has a second
    stream has the rows of both.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.about: dict[str, Any] = {}
        self.contexts: dict[str, Recorded] = {}
        self._end = 0
        for about, content in self._streams() if path.exists() else ():
            if not self.about:
                self.about = about
                continue
            context = Context(**{name: _tuples(value) for name, value in about["context"].items()})
            width = -(-context.leaves // 8)
            keys = np.frombuffer(content, np.uint8, about["rows"] * width).reshape(-1, width)
            scores = np.frombuffer(content, "<i2", offset=keys.size).reshape(len(context.pieces), -1).T
            one = self.contexts.setdefault(context.name, Recorded(context, {}, []))
            one.rows.update(zip(map(bytes, keys), scores, strict=True))
            one.settings.append(about["settings"])

    def begin(self, about: Mapping[str, Any]) -> None:
        """Say how it is made; what was made in another way is not continued."""
        about = json.loads(json.dumps(about, default=str))
        changed = [name for name in about if self.about and about[name] != self.about.get(name)]
        if changed:
            raise SystemExit(f"{self.path} was made with another {', '.join(changed)}: give another file")
        if not self.about:
            self.about = about
            self._append(about, b"")

    def add(self, context: Context, new: Mapping[bytes, IntArray], settings: Mapping[str, Any]) -> None:
        """Keep what is new of a context that is finished; it is in the file when this returns."""
        about = {"context": asdict(context), "rows": len(new), "settings": settings}
        scores = np.array(list(new.values()), dtype="<i2").reshape(len(new), len(context.pieces))
        self._append(about, b"".join(new) + scores.T.tobytes())  # a token's scores are alike, which packs well
        one = self.contexts.setdefault(context.name, Recorded(context, {}, []))
        one.rows.update(new)
        one.settings.append(dict(settings))

    def _append(self, about: Mapping[str, Any], content: bytes) -> None:
        packed = lzma.compress(json.dumps(about).encode() + b"\n" + content, preset=6)
        with self.path.open("r+b" if self.path.exists() else "wb") as file:
            file.truncate(self._end)
            file.seek(self._end)
            file.write(packed)
        self._end += len(packed)

    def _streams(self) -> Iterator[tuple[dict[str, Any], bytes]]:
        left = self.path.read_bytes()
        while left:
            reader = lzma.LZMADecompressor()
            try:
                content = reader.decompress(left)
            except lzma.LZMAError as error:
                raise SystemExit(f"{self.path} is no file of rows ({error}); make one with --record") from None
            if not reader.eof:
                return
            self._end += len(left) - len(reader.unused_data)
            left = reader.unused_data
            about, _, content = content.partition(b"\n")
            yield json.loads(about), content


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value

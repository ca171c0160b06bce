"""The reviews of the text experiment: sentences of word pieces, split once and for all.

    python -m experiments.text.reviews --data ../shared/data --out build/text

reads both corpora, tokenises them, prints what was kept and how long the reviews are, and writes

- `reviews.npz.xz`, everything that training and explaining need of the reviews, and
- `encoder.npz`, gte-small's weights without the word pieces that no review holds.

Whoever has these two files needs numpy and PyTorch, and no tokenizer. The 6,459 Amazon-polarity reviews are the
paper's corpus: 500 of them are for validation and 1,000 for the test, drawn at random from those that have two
sentences or more and fit the network. FDU14's train split is for fine-tuning and its test split for choosing among
networks; reviews that are also among the 6,459 are left out of both.
"""

from __future__ import annotations

import argparse
import io
import json
import lzma
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.harness import weights
from experiments.train_demo_text import ROOT, letters, read_reviews, untokenise

if TYPE_CHECKING:
    from c2fa.structure import Structure

Array = np.ndarray[Any, Any]

PAD, UNK, CLS, SEP, MASK = 0, 100, 101, 102, 103
"""The special tokens of BERT's uncased vocabulary."""
LENGTH = 256
"""Word pieces that the network reads at once, [CLS] and [SEP] among them."""
VALIDATION, TEST = 500, 1000
"""Reviews in the two sets, as in the paper."""
SEED = 20240501
REVIEWS, ENCODER = "reviews.npz.xz", "encoder.npz"
GTE, TOKENIZER = "gte_small_bert_fp16.safetensors", "bert_uncased_tokenizer.json"
POLARITY, FDU14 = "amazon_polarity_test_first6459.jsonl.xz", "amazon_fdu14_clean.jsonl.xz"
WORK = ROOT / "build" / "text"
DATA = ROOT.parent / "shared" / "data"


@dataclass(frozen=True, eq=False)
class Review:
    """A review as the network reads it: word pieces (the leaves), each owned by a sentence (the parts).

    Parameters
    ----------
    ids
        The word pieces' numbers in BERT's vocabulary, without [CLS] and [SEP].
    owner
        For each piece, which sentence it is in; every sentence has at least one piece.
    pieces
        The pieces as text; one that continues a word begins with ``##``.
    sentences
        The sentences as they were written.
    label
        1 for a positive review, 0 for a negative one.
    text
        The whole review as it was written.
    number
        The review's line in the corpus.

    Examples
    --------
    >>> review = Review(np.array([7, 8, 9]), np.array([0, 0, 1]), ("not", "good", "!"), ("Not good", "!"), 0,
    ...                 "Not good !", 0)
    >>> review.rows([[True, True, True], [True, False, True]])
    array([[101,   7,   8,   9, 102],
           [101,   7, 103,   9, 102]])
    >>> review.structure.sums([1.0, 2.0, 4.0], level=0)
    array([3., 4.])
    """

    ids: Array
    owner: Array
    pieces: tuple[str, ...]
    sentences: tuple[str, ...]
    label: int
    text: str
    number: int

    def rows(self, kept: Any) -> Array:
        """What the network reads where some pieces are kept and [MASK] stands in place of the others."""
        kept = np.atleast_2d(np.asarray(kept, dtype=np.bool_))
        if kept.shape[1] != len(self.ids):
            raise ValueError(f"masks of width {kept.shape[1]} do not fit a review of {len(self.ids)} pieces")
        out = np.empty((len(kept), len(self.ids) + 2), dtype=np.int64)
        out[:, 0], out[:, -1] = CLS, SEP
        out[:, 1:-1] = np.where(kept, self.ids, MASK)
        return out

    @cached_property
    def structure(self) -> Structure:
        """The tree of sentences and word pieces."""
        from c2fa.structure import Structure

        return Structure((self.owner,), (self.sentences, self.pieces))


@dataclass(frozen=True, eq=False)
class Corpus:
    """Many tokenised reviews end to end: review `i` is `ids[offsets[i]:offsets[i + 1]]`."""

    ids: Array
    offsets: Array
    labels: Array

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def lengths(self) -> Array:
        """Pieces of each review."""
        return np.diff(self.offsets)


@dataclass(frozen=True, eq=False)
class Bundle:
    """Everything that was read: corpora for training and scoring, and the experiment's two sets of reviews."""

    train: Corpus
    valid: Corpus
    held: Corpus
    validation: tuple[Review, ...]
    test: tuple[Review, ...]
    vocabulary: tuple[str, ...]

    @property
    def met(self) -> Array:
        """The numbers of all pieces that occur in any corpus, and of the special tokens."""
        return pieces_met(self.train.ids, self.valid.ids, self.held.ids)


# ------------------------------------------------------------------------------- sentences, pieces, and the split


def sentence_cuts(text: str) -> list[int]:
    """Where the sentences of a review begin, by the splitter of `c2fa.maskers.Text`.

    The corpus joins a title and its review by a colon. Where the title ends in a mark of its own ("Not!: I…"), the
    splitter cuts before the colon, so the colon is moved to where it belongs.

    >>> text = "Not!: If you want it, no. Yes."
    >>> [text[a:b] for a, b in zip(sentence_cuts(text), [*sentence_cuts(text)[1:], None])]
    ['Not!: ', 'If you want it, no. ', 'Yes.']
    """
    from c2fa.maskers._words import sentence_starts

    return [start + 2 if start and text.startswith(": ", start) else start for start in sentence_starts(text, "en")]


def owners(cuts: Sequence[int], spans: Iterable[tuple[int, int]]) -> tuple[Array, Array]:
    """Which sentence each piece is in, counted over the sentences that have pieces, and where those begin.

    >>> owners([0, 10, 12], [(0, 4), (5, 9), (12, 15)])
    (array([0, 0, 1]), array([ 0, 12]))
    """
    at = np.searchsorted(np.asarray(cuts), [start for start, _ in spans], side="right") - 1
    used, owner = np.unique(np.maximum(at, 0), return_inverse=True)
    return owner, np.asarray(cuts)[used]


def draw(
    texts: Sequence[str],
    sentences: Array,
    pieces: Array,
    sizes: tuple[int, int] = (VALIDATION, TEST),
    limit: int = LENGTH - 2,
    seed: int = SEED,
) -> tuple[Array, Array, Array]:
    """The reviews that may be drawn, then those drawn for validation and for the test.

    A review may be drawn if it has two sentences or more, has `limit` pieces or fewer, and is the first with its
    body: the corpus repeats a few bodies under another title, and no body shall be in both sets.

    Returns
    -------
    tuple of three arrays
        Positions in `texts`; the two sets are disjoint, and in the order in which they were drawn.
    """
    first: dict[str, int] = {}
    for i, text in enumerate(texts):
        first.setdefault(letters(text.split(": ", 1)[-1]), i)
    fits = (np.asarray(sentences) >= 2) & (np.asarray(pieces) <= limit)
    able = np.array([i for i in sorted(first.values()) if fits[i]], dtype=np.int64)
    if len(able) < sum(sizes):
        raise ValueError(f"{len(able)} reviews may be drawn, and {sum(sizes)} are wanted: ask for fewer")
    order = np.random.default_rng(seed).permutation(able)
    return able, order[: sizes[0]], order[sizes[0] : sum(sizes)]


def pieces_met(*streams: Array) -> Array:
    """The numbers of the pieces in any of the streams, and of the special tokens, in order."""
    return np.unique(np.concatenate([*streams, [PAD, UNK, CLS, SEP, MASK]])).astype(np.int64)


def apart(fdu: Sequence[dict[str, Any]], held: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """FDU14's reviews without those that are among the held-out ones, with their title or without it."""
    secret = {letters(text) for r in held for text in (r["text"], r["text"].split(": ", 1)[-1])}
    return [r for r in fdu if letters(r["text"]) not in secret]


# ------------------------------------------------------------------------------------------- the bundle on disk


def load_tokenizer(path: Path) -> Any:
    """The WordPiece tokenizer of BERT, which as stored would cut and pad each text to 128 pieces."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def prepare(data: Path, work: Path) -> Path:
    """Tokenises both corpora and writes `reviews.npz.xz` and `encoder.npz` into `work`; returns the first."""
    for name in (TOKENIZER, POLARITY, FDU14, GTE):
        if not (data / name).exists():
            raise FileNotFoundError(f"there is no {name} in {data}: give --data the folder that holds it")
    tokenizer = load_tokenizer(data / TOKENIZER)
    held = read_reviews(data / POLARITY)
    everything = read_reviews(data / FDU14)
    fdu = apart(everything, held)
    sets = {
        "train": [r for r in fdu if r["split"] == "train"],
        "valid": [r for r in fdu if r["split"] == "test"],
        "held": held,
    }
    known = tokenizer.get_vocab()
    arrays: dict[str, Array] = {"vocabulary": _blob(sorted(known, key=known.__getitem__))}
    streams = []
    print(f"{len(everything) - len(fdu)} reviews of FDU14 are left out because they are among the held-out ones")
    for name, reviews in sets.items():
        texts = [r["text"] if name == "held" else untokenise(r["text"]) for r in reviews]
        found = tokenizer.encode_batch(texts, add_special_tokens=False)
        limit = None if name == "held" else LENGTH - 2  # what training reads of them
        ids = [np.array(f.ids[:limit], np.uint16) for f in found]
        streams.append(np.concatenate(ids))
        if set(np.unique(streams[-1])) & {PAD, CLS, SEP, MASK}:
            raise ValueError(f"a review of the {name} set spells a special token: leave it out")
        arrays |= {
            f"{name}.ids": streams[-1],
            f"{name}.lengths": np.array([len(i) for i in ids], np.uint16),
            f"{name}.labels": np.array([r["label"] for r in reviews], np.int8),
        }
        print(f"{name}: {len(reviews)} reviews, {np.mean(arrays[f'{name}.labels']):.3f} positive")
    cuts = [owners(sentence_cuts(r["text"]), f.offsets) for r, f in zip(held, found, strict=True)]
    counts = np.array([len(c) for _, c in cuts])
    texts = [r["text"] for r in held]
    able, validation, test = draw(texts, counts, arrays["held.lengths"])
    arrays |= {
        "held.owner": np.concatenate([o for o, _ in cuts]).astype(np.uint8),
        "held.cuts": np.concatenate([c for _, c in cuts]).astype(np.uint16),
        "held.sentences": counts.astype(np.uint8),
        "held.texts": _blob(texts),
        "validation": validation,
        "test": test,
    }
    _describe("held, all", np.arange(len(held)), arrays)
    for name, rows in (("held, may be drawn", able), ("validation", validation), ("test", test)):
        _describe(name, rows, arrays)
    work.mkdir(parents=True, exist_ok=True)
    with lzma.open(work / REVIEWS, "wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
    encoder, about = weights.read(data / GTE)
    met = pieces_met(*streams)
    encoder["embeddings.word_embeddings.weight"] = encoder["embeddings.word_embeddings.weight"][met]
    encoder["embeddings.pieces"] = met.astype(np.int32)
    weights.write(work / ENCODER, encoder, {**about, "vocabulary": str(len(known))})
    for path in (work / REVIEWS, work / ENCODER):
        print(f"{path}: {path.stat().st_size / 2**20:.1f} MiB")
    return work / REVIEWS


def read_bundle(path: Path) -> Bundle:
    """What `prepare` wrote."""
    if not Path(path).exists():
        raise FileNotFoundError(f"there are no tokenised reviews at {path}: run python -m experiments.text.reviews")
    with lzma.open(path) as file, np.load(io.BytesIO(file.read())) as archive:
        arrays = {name: archive[name] for name in archive.files}
    corpora = {}
    for name in ("train", "valid", "held"):
        offsets = np.concatenate([[0], np.cumsum(arrays[f"{name}.lengths"], dtype=np.int64)])
        corpora[name] = Corpus(
            arrays[f"{name}.ids"].astype(np.int64), offsets, arrays[f"{name}.labels"].astype(np.int64)
        )
    vocabulary, texts = tuple(_strings(arrays["vocabulary"])), _strings(arrays["held.texts"])
    first = np.concatenate([[0], np.cumsum(arrays["held.sentences"], dtype=np.int64)])
    held = corpora["held"]

    def review(i: int) -> Review:
        span = slice(held.offsets[i], held.offsets[i + 1])
        cuts = arrays["held.cuts"][first[i] : first[i + 1]].astype(int).tolist()
        ends = [*cuts[1:], len(texts[i])]
        return Review(
            ids=held.ids[span],
            owner=arrays["held.owner"][span].astype(np.intp),
            pieces=tuple(vocabulary[k] for k in held.ids[span]),
            sentences=tuple(texts[i][a:b].strip() for a, b in zip(cuts, ends, strict=True)),
            label=int(held.labels[i]),
            text=texts[i],
            number=i,
        )

    validation, test = (tuple(review(int(i)) for i in arrays[name]) for name in ("validation", "test"))
    return Bundle(corpora["train"], corpora["valid"], held, validation, test, vocabulary)


def _blob(strings: Sequence[str]) -> Array:
    return np.frombuffer(json.dumps(list(strings), ensure_ascii=False).encode(), np.uint8)


def _strings(blob: Array) -> list[str]:
    return list(json.loads(blob.tobytes()))


def _describe(name: str, rows: Array, arrays: dict[str, Array]) -> None:
    """Prints how many reviews a set has, and how long they are."""
    print(f"{name}: {len(rows)} reviews, {np.mean(arrays['held.labels'][rows]):.3f} positive")
    for what, values in (("sentences", arrays["held.sentences"]), ("pieces", arrays["held.lengths"])):
        low, quarter, middle, most, high, top = np.percentile(values[rows], [0, 25, 50, 75, 95, 100])
        print(
            f"    {what} of a review: mean {values[rows].mean():.1f}, least {low:.0f}, quartiles {quarter:.0f}, "
            f"{middle:.0f} and {most:.0f}, 95 % {high:.0f}, most {top:.0f}"
        )


def main() -> None:
    """Prepares the reviews."""
    parser = argparse.ArgumentParser(description="Tokenises the reviews of the text experiment.")
    parser.add_argument("--data", type=Path, default=DATA, help="where the corpora, the tokenizer and gte-small are")
    parser.add_argument("--out", type=Path, default=WORK, help="the folder to write into")
    args = parser.parse_args()
    prepare(args.data, args.out)


if __name__ == "__main__":
    main()

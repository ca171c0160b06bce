"""The reviews of part prior: words in sentences, the word pieces that a network reads, and who learns from which.

All are Amazon reviews of 50 to 130 words, split as ``c2fa.maskers.Text`` splits them. Those to learn from, to choose on
and to report on are genuine reviews that the network was not trained on, mostly of books, films and music; *others* are
FDU14's reviews of clothes and kitchenware. What is read once lies in a file, so that a machine without a tokenizer or a
splitter of sentences can do the rest.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import c2fa
from c2fa.asking.masking import Masked
from c2fa.graph import chain
from c2fa.structure import Structure
from c2fa.views.descriptors import WordFields

FILE = "reviews.json.xz"
SIZES: Mapping[str, int] = {"learn": 1000, "validation": 60, "test": 120, "others": 500}
WORDS = (50, 130)
LONGEST = 254  # word pieces that the network reads beside the two at the ends
OTHERS = ("apparel", "kitchen_housewares")
MEDIA = ("books", "dvd", "music", "video")
SEED = 20

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Review:
    """A review.

    Parameters
    ----------
    sentences, words
        The names of the parts and of the leaves.
    owner
        The sentence of each word.
    ids, word_of
        The word pieces, and the word of each; -1 where it belongs to none.
    topic
        What each word is worth to a linear model of another question: whether the review is of books, films or music.
    """

    text: str
    sentences: tuple[str, ...]
    words: tuple[str, ...]
    owner: tuple[int, ...]
    ids: tuple[int, ...]
    word_of: tuple[int, ...]
    topic: tuple[float, ...]

    @cached_property
    def structure(self) -> Structure:
        """The tree of sentences and words."""
        return Structure((np.array(self.owner),), (self.sentences, self.words))

    def pieces(self, kept: Bools) -> Bools:
        """Which word pieces are kept where some words are."""
        always = np.ones((len(kept), 1), dtype=np.bool_)
        return np.concatenate([kept, always], axis=1)[:, np.array(self.word_of)]

    def rendered(self, kept: Bools, mask: str) -> list[str]:
        """The words that are kept, and a mask in place of each other one."""
        return [" ".join(word if on else mask for word, on in zip(self.words, row, strict=True)) for row in kept]


def masker(review: Review) -> Masked:
    """Masks words and sentences as ``c2fa.maskers.Text`` does; the rows are the masks of the words themselves."""
    structure = review.structure
    return Masked(
        structure,
        structure.expand,
        neighbours=lambda: chain(structure.owners(0), np.ones(structure.leaves)),
        content=review.text,
        descriptors=WordFields(structure),
    )


def words_alone(review: Review) -> Masked:
    """Masks words; there are no sentences."""
    structure = Structure.flat(len(review.words))
    return Masked(structure, structure.expand, content=review.text)


def read(folder: Path, data: Path) -> dict[str, list[Review]]:
    """The sets of reviews, from the folder, or first of all from the data."""
    path = folder / FILE
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        made = json.dumps(prepare(data), ensure_ascii=False).encode()
        path.write_bytes(lzma.compress(made))
    with lzma.open(path) as file:
        stored = json.load(file)
    return {name: [_review(one) for one in reviews] for name, reviews in stored.items()}


def _review(stored: Mapping[str, Any]) -> Review:
    return Review(**{name: value if isinstance(value, str) else tuple(value) for name, value in stored.items()})


def prepare(data: Path) -> dict[str, list[dict[str, Any]]]:
    """Read both corpora, draw the sets, and split and tokenise what is drawn."""
    from experiments.text.reviews import FDU14, POLARITY, TOKENIZER, apart, load_tokenizer, pieces_met
    from experiments.train_demo_text import letters, read_reviews, untokenise

    for name in (POLARITY, FDU14, TOKENIZER):
        if not (data / name).exists():
            raise FileNotFoundError(f"there is no {name} in {data}: give --data the folder that holds it")
    tokenizer, splitter = load_tokenizer(data / TOKENIZER), c2fa.maskers.Text()
    genuine = read_reviews(data / POLARITY)
    fdu = apart(read_reviews(data / FDU14), genuine)
    all_ids = [encoded.ids for encoded in tokenizer.encode_batch([r["text"] for r in genuine])]
    known = set(pieces_met(np.concatenate(all_ids)).tolist())  # the weights hold the embeddings of these alone
    topic = _topic([r["text"] for r in fdu], [r["domain"] in MEDIA for r in fdu])

    def review(text: str) -> dict[str, Any] | None:
        if not WORDS[0] <= len(text.split()) <= WORDS[1]:
            return None
        masked = splitter(text)
        encoded = tokenizer.encode(text, add_special_tokens=False)
        structure, [spans] = masked.structure, masked.inputs.spans  # type: ignore[attr-defined]
        if structure.widths[0] < 2 or len(encoded.ids) > LONGEST or not known.issuperset(encoded.ids):
            return None
        starts, ends = np.array(spans).T
        at = [int(np.searchsorted(starts, a, side="right")) - 1 for a, _ in encoded.offsets]
        word_of = [k if k >= 0 and a < ends[k] else -1 for k, (a, _) in zip(at, encoded.offsets, strict=True)]
        words = structure.names[-1]
        return {
            "text": text,
            "sentences": list(structure.names[0]),
            "words": list(words),
            "owner": structure.owners(0).tolist(),
            "ids": encoded.ids,
            "word_of": word_of,
            "topic": [topic.get(word, 0.0) for word in WordFields(structure)()["word"]],
        }

    def drawn(texts: Sequence[str], count: int) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for k in np.random.default_rng(SEED).permutation(len(texts)):
            if (one := review(texts[k])) is not None:
                found.append(one)
            if len(found) == count:
                return found
        raise ValueError(f"{len(found)} reviews may be drawn, and {count} are wanted: ask for fewer")

    ours = ("learn", "validation", "test")
    once = {letters(r["text"].split(": ", 1)[-1]): r["text"] for r in genuine}  # some bodies come under two titles
    together = drawn(list(once.values()), sum(SIZES[name] for name in ours))
    others = drawn([untokenise(r["text"]) for r in fdu if r["domain"] in OTHERS], SIZES["others"])
    ends = np.cumsum([SIZES[name] for name in ours])
    sets = {name: together[end - SIZES[name] : end] for name, end in zip(ours, ends.tolist(), strict=True)}
    return {**sets, "others": others}


def _topic(texts: Sequence[str], labels: Sequence[bool]) -> dict[str, float]:
    """The log-odds that words add to a linear model of a question about topics."""
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression

    counts = CountVectorizer(binary=True, min_df=5)
    model = LogisticRegression(C=0.1, max_iter=1000).fit(counts.fit_transform(texts), labels)
    names = counts.get_feature_names_out().tolist()
    return {name: round(float(weight), 4) for name, weight in zip(names, model.coef_[0], strict=True)}

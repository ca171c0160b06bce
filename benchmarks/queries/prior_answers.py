"""What models said to masked reviews, kept in a file: part prior can be run again without them.

An answer is the log-odds of *positive*. It is found by a hash of the words that were kept, a sum of 64-bit numbers
drawn once for each word, so that a row takes 12 bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from benchmarks.queries.family import Floats
from benchmarks.queries.prior_reviews import Bools, Review

AT_ONCE = 60_000  # rows that go to the network together, by length

Keys = npt.NDArray[np.uint64]
Key = tuple[str, int]
"""A review: its set and its number in it."""
Answer = Callable[[Mapping[Key, Bools]], dict[Key, Floats]]
"""From masks of the words of reviews to log-odds."""


class MissingModel(RuntimeError):
    """A row was not answered before, and there is no model that could."""


def keys_of(masks: Bools) -> Keys:
    """A hash of each mask.

    >>> masks = np.eye(3, 100, dtype=bool)
    >>> len(set(keys_of(np.vstack([masks, masks])).tolist()))
    3
    """
    drawn = np.random.default_rng(0).integers(0, 1 << 63, size=masks.shape[1], dtype=np.uint64)
    found: Keys = np.where(masks, drawn, np.uint64(0)).sum(axis=1, dtype=np.uint64)
    return found


@dataclass(frozen=True, eq=False)
class Known:
    """The answers about one review, in the order of their keys."""

    keys: Keys = field(default_factory=lambda: np.empty(0, dtype=np.uint64))
    log_odds: npt.NDArray[np.float32] = field(default_factory=lambda: np.empty(0, dtype=np.float32))

    def __call__(self, masks: Bools) -> Floats:
        """The log-odds for masks of words; NaN where they are not known."""
        keys = keys_of(masks)
        if not len(self.keys):
            return np.full(len(keys), np.nan)
        at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[at] == keys, self.log_odds[at].astype(np.float64), np.nan)

    def and_also(self, masks: Bools, log_odds: Floats) -> Known:
        """These answers and others."""
        keys, first = np.unique(np.concatenate([self.keys, keys_of(masks)]), return_index=True)
        return Known(keys, np.concatenate([self.log_odds, log_odds.astype(np.float32)])[first])


@dataclass(eq=False)
class Answers:
    """All answers of one model, kept in a file, and the model for those that are missing, where there is one.

    Parameters
    ----------
    path
        The file.
    answer
        The model; None where all must be known.
    why_not
        What to say where a row is missing and there is no model.
    most
        The most rows that the model is asked at a time.
    """

    path: Path
    answer: Answer | None
    why_not: str = ""
    most: float = np.inf
    known: dict[Key, Known] = field(default_factory=dict)
    asked: int = 0

    def __post_init__(self) -> None:
        if self.path.exists():
            with np.load(self.path) as file:
                stored = {name: file[name] for name in file.files}
            ends = np.cumsum(stored["rows"])
            for name, number, rows, end in zip(stored["sets"], stored["numbers"], stored["rows"], ends, strict=True):
                span = slice(end - rows, end)
                self.known[str(name), int(number)] = Known(stored["keys"][span], stored["log_odds"][span])

    def of(self, key: Key) -> Known:
        """What is known of a review."""
        return self.known.get(key, Known())

    def ask(self, wanted: Mapping[Key, Bools]) -> None:
        """Have answers to all of these masks."""
        missing = {}
        for key, masks in wanted.items():
            unique = masks[np.unique(keys_of(masks), return_index=True)[1]]
            if len(rest := unique[np.isnan(self.of(key)(unique))]):
                missing[key] = rest
        if not missing:
            return
        rows = sum(map(len, missing.values()))
        if self.answer is None:
            raise MissingModel(f"{rows} rows are not among the answers in {self.path}, and {self.why_not}")
        if rows > self.most:
            raise MissingModel(f"{rows} rows are not among the answers in {self.path}; give --device cuda to ask them")
        for key, log_odds in self.answer(missing).items():
            self.known[key] = self.of(key).and_also(missing[key], log_odds)
        self.asked += rows
        self.save()

    def save(self) -> None:
        """Write the file."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = self.path.with_suffix(".new.npz")
        with new.open("wb") as file:
            np.savez(
                file,
                sets=np.array([name for name, _ in self.known]),
                numbers=np.array([number for _, number in self.known]),
                rows=np.array([len(one.keys) for one in self.known.values()]),
                keys=np.concatenate([one.keys for one in self.known.values()]),
                log_odds=np.concatenate([one.log_odds for one in self.known.values()]),
            )
        new.replace(self.path)


def network(reviews: Mapping[str, Sequence[Review]], weights: Path, device: str) -> Answer:
    """The fine-tuned network of the text experiment, in half precision on a GPU; it is read when it is first asked."""
    made: list[Any] = []

    def answer(wanted: Mapping[Key, Bools]) -> dict[Key, Floats]:
        import torch
        from experiments.harness.items import ItemInputs
        from experiments.text.answers import ReviewNetwork
        from experiments.text.network import Classifier
        from experiments.text.reviews import CLS, MASK, SEP

        from c2fa.asking.masking import MaskedBatch, MaskedRows

        numbers = {(name, k): n for n, (name, k) in enumerate((s, k) for s in reviews for k in range(len(reviews[s])))}
        if not made:
            torch.backends.cuda.enable_cudnn_sdp(False)  # it makes a plan for every length
            one = Classifier.load(weights).to(device)
            fast = one.fast(torch.float16, device) if device.startswith("cuda") else one

            def log_odds(ids: Any) -> Any:
                return fast.forward_same_length(ids).double().diff(dim=-1)

            ids = [np.array(review.ids) for some in reviews.values() for review in some]
            made.append(ReviewNetwork(ids, log_odds, (CLS, SEP, MASK), device=device))
        found: dict[Key, Floats] = {}
        for some in _portions(wanted, lambda key: len(reviews[key[0]][key[1]].ids)):
            batch = []
            for key in some:
                review = reviews[key[0]][key[1]]
                inputs = ItemInputs(numbers[key], np.zeros(len(review.ids), dtype=np.intp))
                batch.append(MaskedRows(inputs, review.pieces(wanted[key]), 1))
            outputs = made[0](MaskedBatch(batch))[:, 0]
            ends = np.cumsum([len(wanted[key]) for key in some])[:-1]
            found.update(zip(some, np.split(outputs, ends), strict=True))
        return found

    return answer


def _portions(wanted: Mapping[Key, Bools], length: Callable[[Key], int]) -> list[list[Key]]:
    """The reviews in portions, those of one length together."""
    portions: list[list[Key]] = [[]]
    rows = 0
    for key in sorted(wanted, key=length):
        if rows > AT_ONCE:
            portions.append([])
            rows = 0
        portions[-1].append(key)
        rows += len(wanted[key])
    return portions


def demo(reviews: Mapping[str, Sequence[Review]], each: Callable[..., Any] = map) -> Answer:
    """The classifier that comes with the package; ``each`` may be a pool's ``map``."""

    def answer(wanted: Mapping[Key, Bools]) -> dict[Key, Floats]:
        rows = list(wanted.items())
        outputs = each(demo_says, [reviews[name][k] for (name, k), _ in rows], [masks for _, masks in rows])
        return dict(zip(wanted, outputs, strict=True))

    return answer


def demo_says(review: Review, masks: Bools) -> Floats:
    """What the package's classifier says of a review, in log-odds."""
    model = _demo()
    p = model(review.rendered(masks, model.mask_token))
    found: Floats = np.log(p[:, 1]) - np.log(p[:, 0])
    return found


_LOADED: list[Any] = []


def _demo() -> Any:
    from c2fa.models.local.demo import DemoSentiment

    if not _LOADED:
        _LOADED.append(DemoSentiment())
    return _LOADED[0]

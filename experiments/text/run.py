"""The paper's text experiment: reviews, sentences, word pieces, a fine-tuned BERT-architecture encoder.

python -m experiments text --scale paper --device cuda --workers 28
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from c2fa import Explanation
from c2fa.asking.masking import MaskedRows
from c2fa.graph import Graph, chain
from c2fa.models import Lazy
from experiments.harness.command import Defaults, Options, rate, run
from experiments.harness.examples import ReviewExample, Values
from experiments.harness.grid import network_of
from experiments.harness.items import Item, ItemInputs
from experiments.harness.reproduce import Domain
from experiments.harness.showing import METHODS, Describe
from experiments.harness.weights import present
from experiments.text.answers import ReviewNetwork
from experiments.text.network import Classifier, agreement
from experiments.text.reviews import (
    CLS,
    DATA,
    ENCODER,
    LENGTH,
    MASK,
    REVIEWS,
    SEP,
    WORK,
    Bundle,
    Review,
    prepare,
    read_bundle,
)
from experiments.text.train import Rows
from experiments.train_demo_text import ROOT

MODEL = WORK / "bert.safetensors"
DEFAULTS = Defaults(DATA, MODEL, WORK, ROOT / "experiments" / "results" / "text", batches=(1 << 10, 1 << 17))
METRICS = (
    "insertion@0",
    "deletion@0",
    "insertion of leaves",
    "deletion of leaves",
    "consistency",
    "mihl",
)
N_H = 50
CURVES = 1000
CLASSES = ("negative", "positive")
SHORT = 40  # word pieces; a small trial takes such reviews alone


@dataclass(frozen=True)
class Source:
    """Where the reviews and the network of a run come from. Calling it makes the network, in whichever process.

    Parameters
    ----------
    prepared
        The folder of tokenised reviews, and of gte-small where there is no trained network.
    model
        The trained network; None makes one of gte-small.
    validation, test
        How many reviews are taken of each set.
    tokens
        Word pieces in one forward pass.
    longest
        The most word pieces of a review.
    """

    prepared: Path
    model: Path | None
    validation: int
    test: int
    device: str
    tokens: int
    longest: int = LENGTH

    def __call__(self) -> ReviewNetwork:
        # cuDNN's attention makes a plan for every new length, for tens of milliseconds; every review has its own.
        torch.backends.cuda.enable_cudnn_sdp(False)
        model = classifier(self)
        fast = model.fast(torch.float16, self.device) if self.device.startswith("cuda") else model
        return ReviewNetwork(
            [review.ids for reviews in reviews_of(self) for review in reviews],
            lambda ids: fast.forward_same_length(ids).softmax(-1),
            (CLS, SEP, MASK),
            device=self.device,
            tokens=self.tokens,
        )


@functools.lru_cache(maxsize=1)
def reviews_of(source: Source) -> tuple[list[Review], list[Review]]:
    """The reviews for validation and for the test; the network numbers them in this order."""
    bundle = read_bundle(source.prepared / REVIEWS)
    fitting = (
        [one for one in reviews if len(one.ids) <= source.longest] for reviews in (bundle.validation, bundle.test)
    )
    validation, test = fitting
    return validation[: source.validation], test[: source.test]


@functools.lru_cache(maxsize=1)
def classifier(source: Source) -> Classifier:
    """The network in single precision, on its device."""
    if source.model is None:
        model = quick(read_bundle(source.prepared / REVIEWS), source.prepared / ENCODER)
    else:
        model = Classifier.load(source.model)
    return model.to(source.device)


def domain(source: Source) -> tuple[Domain, Describe]:
    """Reviews and the network, ready to be asked, and what makes an example of one of the reviews.

    What is explained is the class that the network predicts.
    """
    tuning, held = reviews_of(source)
    reviews = [*tuning, *held]
    about: dict[str, Any] = {"accuracy on the test reviews": accuracy(classifier(source), held)}
    if source.device.startswith("cuda"):
        draw = np.random.default_rng(0)
        some = [r.rows(draw.random((8, len(r.ids))) < draw.random((8, 1))) for r in reviews[:100]]
        about["mean and largest difference to fp32"] = agreement(classifier(source), some, torch.float16)
        print("half precision differs from fp32 by {:.1e}, at most {:.1e}".format(*about[next(reversed(about))]))
    items = [Item(number, review.owner, graph=neighbours(review)) for number, review in enumerate(reviews)]

    def describe(name: str, item: Item, values: Values, e: Explanation, budget: tuple[int, int]) -> ReviewExample:
        one = reviews[item.number]
        said = CLASSES[e.target]
        return ReviewExample(name, one.pieces, one.owner, one.sentences, values, e.prediction, said, budget)

    test_items = items[len(tuning) :]
    made = Domain("text", items[: len(tuning)], test_items, Lazy(source), N_H, METRICS, None, CURVES, about)
    return made, describe


def quick(bundle: Bundle, encoder: Path, reviews: int = 64, longest: int = SHORT, seed: int = 0) -> Classifier:
    """A network for a trial on a CPU: gte-small as it is, and a head fitted to a few short training reviews."""
    rng = np.random.default_rng(seed)
    train = bundle.train
    short = [np.flatnonzero((train.lengths <= longest) & (train.labels == label)) for label in (0, 1)]
    few = np.concatenate([rng.permutation(those)[: reviews // 2] for those in short])
    torch.manual_seed(seed)
    model = Classifier.load(encoder)
    ids, lengths, labels = Rows(train, torch.device("cpu"), longest + 2).batch(few)
    with torch.no_grad():
        states = model.pooled(ids, lengths)
    optimiser = torch.optim.AdamW(model.head.parameters(), 1e-2)
    for _ in range(200):
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(model.head(states - states.mean(0)), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    with torch.no_grad():
        model.head.bias.sub_(model.head.weight @ states.mean(0))
    return model


def neighbours(review: Review) -> Graph:
    """Pieces side by side in a sentence; those of one word hang together more, as in ``c2fa.maskers.Text``."""
    return chain(review.owner, [3.0 if piece.startswith("##") else 1.0 for piece in review.pieces])


def accuracy(model: Classifier, reviews: Sequence[Review]) -> float:
    """The share of reviews that the network calls what they are."""
    right = [model.predict(r.rows(np.ones(len(r.ids))))[0].argmax() == r.label for r in reviews]
    return float(np.mean(right))


def bare(network: ReviewNetwork, reviews: int, seconds: float) -> float:
    """Pieces a second of the network alone: full batches of masked reviews made beforehand, nothing else in the way."""
    batches = []
    draw = np.random.default_rng(0)
    for number, review in list(enumerate(network.reviews))[-reviews:]:
        masks = draw.random((max(network.tokens // (len(review) + 2), 1), len(review))) < 0.5
        item = ItemInputs(number, np.zeros(len(review), dtype=np.intp))
        batches.append(network.masked([MaskedRows(item, masks, 1)]))

    def step() -> int:
        for batch in batches:
            network.classify(batch)
        return sum(batch.numel() for batch in batches)

    return rate(step, network.device.startswith("cuda"), seconds)


def main(o: Options) -> None:
    """Run the experiment."""
    prepared = o.data if (o.data / REVIEWS).exists() else o.cache
    if not (prepared / REVIEWS).exists():
        prepare(o.data, prepared)
    model: Path | None = o.model
    if o.small and not present(o.model):
        print(f"there is no trained network at {o.model}; a small trial makes one of gte-small in seconds", flush=True)
        model = None
    longest = SHORT if o.small else LENGTH
    made, describe = domain(
        Source(prepared, model, o.scale.validation, o.scale.test, o.device, o.batch, longest=longest)
    )
    network = network_of(made.model)
    assert isinstance(network, ReviewNetwork)
    alone = bare(network, 40 if o.cuda else 1, 2.0 if o.cuda else 0.5)
    run(made, describe, o, shown=METHODS, alone=alone, unit="pieces")

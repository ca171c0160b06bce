"""The paper's text experiment: reviews, sentences, word pieces, a fine-tuned BERT-architecture encoder.

python -m experiments text --scale paper --device cuda --workers 28
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from c2fa import Explanation
from c2fa.graph import Graph, chain
from experiments.harness.command import Defaults, Options, rate, run
from experiments.harness.examples import ReviewExample, Values
from experiments.harness.reproduce import Domain
from experiments.harness.service import Item
from experiments.harness.showing import METHODS, Describe
from experiments.harness.weights import present
from experiments.text.answers import ReviewClient, ReviewNetwork
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


def domain(
    model: Classifier,
    bundle: Bundle,
    validation: int,
    test: int,
    device: str,
    tokens: int,
    *,
    longest: int = LENGTH,
) -> tuple[Domain, Describe]:
    """Reviews and the network, ready to be asked, and what makes an example of one of the reviews.

    What is explained is the class that the network predicts.
    """
    tuning, held = (
        [review for review in reviews if len(review.ids) <= longest][:count]
        for reviews, count in ((bundle.validation, validation), (bundle.test, test))
    )
    reviews = [*tuning, *held]
    cuda = device.startswith("cuda")
    # cuDNN's attention makes a plan for every new length, for tens of milliseconds; every review has its own.
    torch.backends.cuda.enable_cudnn_sdp(False)
    about: dict[str, Any] = {"accuracy on the test reviews": accuracy(model.to(device), held)}
    if cuda:
        draw = np.random.default_rng(0)
        some = [r.rows(draw.random((8, len(r.ids))) < draw.random((8, 1))) for r in reviews[:100]]
        about["mean and largest difference to fp32"] = agreement(model, some, torch.float16)
        print("half precision differs from fp32 by {:.1e}, at most {:.1e}".format(*about[next(reversed(about))]))
    fast = model.fast(torch.float16, device) if cuda else model
    network = ReviewNetwork(
        [review.ids for review in reviews],
        lambda ids: fast.forward_same_length(ids).softmax(-1),
        (CLS, SEP, MASK),
        device=device,
        tokens=tokens,
    )
    items = [Item(number, review.owner, graph=neighbours(review)) for number, review in enumerate(reviews)]

    def describe(name: str, item: Item, values: Values, e: Explanation, budget: tuple[int, int]) -> ReviewExample:
        one = reviews[item.number]
        said = CLASSES[e.target]
        return ReviewExample(name, one.pieces, one.owner, one.sentences, values, e.prediction, said, budget)

    test_items = items[len(tuning) :]
    made = Domain("text", items[: len(tuning)], test_items, network, ReviewClient, N_H, METRICS, None, CURVES, about)
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
    for review in network.reviews[-reviews:]:
        rows = max(network.tokens // (len(review) + 2), 1)
        packed = torch.randint(0, 256, (rows, -(-len(review) // 8)), dtype=torch.uint8, device=network.device)
        batches.append(network.masked(review, packed))

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
    bundle = read_bundle(prepared / REVIEWS)
    if o.small and not present(o.model):
        print(f"there is no trained network at {o.model}; a small trial makes one of gte-small in seconds", flush=True)
        model = quick(bundle, prepared / ENCODER)
    else:
        model = Classifier.load(o.model)
    made, describe = domain(
        model, bundle, o.scale.validation, o.scale.test, o.device, o.batch, longest=SHORT if o.small else LENGTH
    )
    alone = bare(cast(ReviewNetwork, made.network), 40 if o.cuda else 1, 2.0 if o.cuda else 0.5)
    run(made, describe, o, shown=METHODS, alone=alone, unit="pieces")

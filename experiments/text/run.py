"""The paper's text experiment: reviews, sentences, word pieces, a fine-tuned BERT-architecture encoder.

c2fa reproduce text --scale paper --device cuda --workers 14
python -m experiments.text.run --scale small            # the same without the package's command line
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from c2fa import Explanation
from c2fa.graph import Graph, chain
from experiments.harness import queries
from experiments.harness import reproduce as harness
from experiments.harness.examples import ReviewExample, Values
from experiments.harness.reproduce import SCALES, Domain
from experiments.harness.service import Item
from experiments.harness.showing import METHODS, N_L, Describe, keep_examples
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
RESULTS = ROOT / "experiments" / "results" / "text"
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
SHOWN = METHODS  # in the example figures


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


def bare(network: ReviewNetwork, reviews: int = 40, seconds: float = 2.0) -> float:
    """Pieces a second of the network alone: full batches of masked reviews made beforehand, nothing else in the way."""
    some = network.reviews[-reviews:]
    batches = []
    for review in some:
        rows = max(network.tokens // (len(review) + 2), 1)
        packed = torch.randint(0, 256, (rows, -(-len(review) // 8)), dtype=torch.uint8, device=network.device)
        batches.append(network.masked(review, packed))
    cuda = network.device.startswith("cuda")
    done, begin = 0, 0.0
    with torch.inference_mode():
        for batch in batches:  # the first of each length finds its kernels
            network.classify(batch)
        if cuda:
            torch.cuda.synchronize()
        begin = time.perf_counter()
        while time.perf_counter() - begin < seconds:
            for batch in batches:
                network.classify(batch)
                done += batch.numel()
            if cuda:
                torch.cuda.synchronize()
    return done / (time.perf_counter() - begin)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--scale", choices=sorted(SCALES), default="small")
    parser.add_argument("--data", type=Path, default=DATA, help="the folder with the corpora, or what was prepared")
    parser.add_argument("--model", type=Path, default=MODEL, help="the network that experiments.text.train wrote")
    parser.add_argument("--cache", type=Path, default=WORK, help="where the tokenised reviews are kept")
    parser.add_argument("--out", type=Path, default=None, help="where results go")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--workers", type=int, default=0, help="processes that draw, fit and score")
    parser.add_argument("--seconds", type=float, default=None, help="begin no shard after so long")
    parser.add_argument("--queries", action="store_true", help="compare what budgets buy, and nothing else")
    parser.add_argument("--tokens", type=int, default=None, help="word pieces in one forward pass")
    a = parser.parse_args(argv)
    scale = SCALES[a.scale]
    small = a.scale == "small"
    cuda = a.device.startswith("cuda")
    out = a.out or (WORK / "small" if small else RESULTS)
    prepared = a.data if (a.data / REVIEWS).exists() else a.cache
    if not (prepared / REVIEWS).exists():
        prepare(a.data, prepared)
    bundle = read_bundle(prepared / REVIEWS)
    tokens = a.tokens or (1 << 17 if cuda else 1 << 10)
    if small and not present(a.model):
        print(f"there is no trained network at {a.model}; a small trial makes one of gte-small in seconds", flush=True)
        model = quick(bundle, prepared / ENCODER)
    else:
        model = Classifier.load(a.model)
    made, describe = domain(
        model, bundle, scale.validation, scale.test, a.device, tokens, longest=SHORT if small else LENGTH
    )
    network = cast(ReviewNetwork, made.network)
    alone = bare(network) if cuda else bare(network, 1, 0.5)
    print(f"the network alone: {alone:,.0f} word pieces a second in batches of {tokens:,}", flush=True)
    made = dataclasses.replace(made, about={**made.about, "pieces a second, network alone": alone, "tokens": tokens})
    if a.queries:
        queries.compare(made, out, small=small, workers=a.workers, seconds=a.seconds)
        return
    harness.reproduce(made, out, a.scale, workers=a.workers, seconds=a.seconds)
    keep_examples(made, out, describe, methods=SHOWN, n_l=min(N_L, max(scale.leaf_rows)))


if __name__ == "__main__":
    main()

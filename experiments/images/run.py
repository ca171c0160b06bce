"""The paper's image experiment: bags of images, super-pixels, DeepSets on ResNet-50.

python -m experiments images --scale paper --device cuda --workers 28
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from c2fa import Explanation, metrics
from c2fa.graph import disjoint_union
from c2fa.maskers._pictures import superpixel_graph
from experiments.harness.command import Defaults, Options, rate, run
from experiments.harness.examples import BagExample, Values
from experiments.harness.reproduce import Domain
from experiments.harness.service import Item
from experiments.harness.showing import METHODS, Describe
from experiments.harness.weights import present
from experiments.images.answers import BagClient, BagNetwork
from experiments.images.bags import CAT, DATA, SIZES, VOID, Bags, Split, Voc, make_bags, read_voc, superpixels
from experiments.images.network import IMAGENET, MEAN, STD, DeepSets, FastPhi, agreement

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / "images"
MODEL = WORK / "deepsets.safetensors"
DEFAULTS = Defaults(DATA, MODEL, WORK, ROOT / "experiments" / "results" / "images", batches=(8, 512))
METRICS = (
    "ndcg",
    "auroc",
    "auroc-within",
    "insertion@0",
    "deletion@0",
    "insertion of leaves",
    "deletion of leaves",
    "consistency",
    "mihl",
)
N_H = 20
CURVES = 120
POSITIVE = 1


def positives(bags: Bags, count: int, largest: int = max(SIZES)) -> list[np.ndarray[Any, Any]]:
    """The images of the first positive bags: of the others there is nothing that an explanation should find."""
    positive = [bag for bag, label in zip(bags.members, bags.labels, strict=True) if label == POSITIVE]
    return [bag for bag in positive if len(bag) <= largest][:count]


def truth_of(labels: Sequence[Any], masks: Sequence[Any]) -> tuple[Any, Any]:
    """Which images hold a cat, and how many of each super-pixel's pixels do and do not, (leaves, 2)."""
    cats = np.array([bool((mask == CAT).any()) for mask in masks])
    marked = [np.where(mask == VOID, VOID, mask == CAT) for mask in masks]
    return cats, metrics.pixel_counts(labels, marked, void=VOID)


def items_of(members: Sequence[Any], images: Any, labels: Any, masks: Any, first: int) -> list[Item]:
    """Bags as workers know them, numbered from ``first``."""
    items = []
    used = np.unique(np.concatenate(members))
    graphs = {int(k): superpixel_graph(images[k], labels[k].astype(np.intp)) for k in used}
    for number, bag in enumerate(members, start=first):
        counts = [int(labels[image].max()) + 1 for image in bag]
        owner = np.repeat(np.arange(len(bag)), counts)
        truth = truth_of([labels[k] for k in bag], [masks[k] for k in bag])
        items.append(
            Item(number, owner, truth, disjoint_union([graphs[int(k)] for k in bag], counts), smooth_by_default=True)
        )
    return items


def trivial_auroc(items: Sequence[Item]) -> float:
    """AUROC of pixels where the positive images are painted as a whole: what finding the image alone is worth."""
    return float(np.mean([metrics.auroc(item.truth[0][item.owner].astype(float), item.truth[1]) for item in items]))


def domain(
    model: DeepSets,
    voc: Voc,
    split: Split,
    validation: int,
    test: int,
    device: str,
    *,
    batch: int,
    cache: Path = WORK,
    largest: int = max(SIZES),
) -> tuple[Domain, Describe]:
    """Bags, super-pixels and the network, ready to be asked, and what makes an example of one of the bags."""
    tuning, held = positives(split.validation, validation, largest), positives(split.test, test, largest)
    used = np.unique(np.concatenate([*tuning, *held]))
    members = [np.searchsorted(used, bag) for bag in (*tuning, *held)]
    images, masks = voc.images[used], voc.masks[used]
    labels = superpixels(images, cache=cache / "superpixels.npz")
    model = model.to(device).eval()
    fast = FastPhi(model, batch=batch, device=device)
    network = BagNetwork(images, labels, fast, model.probabilities, mean=MEAN, std=STD, device=device, batch=batch)
    items = items_of(members, images, labels, masks, 0)
    mean, most = agreement(model, fast, images, members)
    print(f"the fast network's probabilities differ from fp32 by {mean:.1e}, at most {most:.1e}", flush=True)

    def describe(name: str, item: Item, values: Values, e: Explanation, budget: tuple[int, int]) -> BagExample:
        bag = members[item.number]
        return BagExample(name, images[bag], labels[bag], item.truth[0], values, e.prediction, budget)

    made = Domain(
        "images",
        items[: len(tuning)],
        items[len(tuning) :],
        network,
        functools.partial(BagClient, members, network.segments),
        N_H,
        METRICS,
        POSITIVE,
        CURVES,
        {
            "trivial auroc": trivial_auroc(items[len(tuning) :]),
            "mean and largest difference to fp32": (mean, most),
            "super-pixels of an image": float(np.mean(labels.max(axis=(1, 2)) + 1.0)),
        },
    )
    return made, describe


def quick(voc: Voc, bags: Bags, imagenet: Path, images: int = 36, seed: int = 0) -> DeepSets:
    """A network for a trial on a CPU: ImageNet's phi as it is, and a rho fitted to bags of a few training images."""
    rng = np.random.default_rng(seed)
    with_cat, without = (np.intersect1d(bags.used, np.flatnonzero(bags.cats == kind)) for kind in (True, False))
    few = np.concatenate([rng.permutation(with_cat)[: images // 3], rng.permutation(without)[: images - images // 3]])
    torch.manual_seed(seed)
    model = DeepSets.pretrained(imagenet)
    known = FastPhi(model, batch=16)(voc.images[few]).clone()  # of inference mode, in which nothing learns
    members = [rng.choice(len(few), rng.integers(3, 6), replace=False) for _ in range(400)]
    pooled = torch.stack([known[bag].sum(0) for bag in members])
    labels = torch.tensor([int(bags.cats[few[bag]].any()) for bag in members])
    optimiser = torch.optim.AdamW(model.rho.parameters(), 1e-3)
    for _ in range(60):
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(model.rho(pooled), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return model


def bare(network: BagNetwork, seconds: float) -> float:
    """Images a second of the network alone: the same batches, painted beforehand, nothing else in the way."""
    count = network.batch
    images = torch.arange(count, device=network.device) % len(network.pixels)
    masks = torch.randint(0, 256, (count, -(-network.segments // 8)), dtype=torch.uint8, device=network.device)
    painted = network.paint(images, masks).contiguous(memory_format=torch.channels_last)
    cuda = network.device.startswith("cuda")
    times = 20 if cuda else 1

    def step() -> int:
        for _ in range(times):
            network.phi(painted)
        return times * count

    return rate(step, cuda, seconds)


def main(o: Options) -> None:
    """Run the experiment."""
    voc = read_voc(o.data, cache=o.cache / "voc.npz")
    split = make_bags(voc)
    if o.small and not present(o.model):
        print(f"there is no trained network at {o.model}; a small trial makes one of ImageNet's in seconds", flush=True)
        model = quick(voc, split.training, o.data / IMAGENET.name)
    else:
        model = DeepSets.load(o.model)
    made, describe = domain(
        model,
        voc,
        split,
        o.scale.validation,
        o.scale.test,
        o.device,
        batch=o.batch,
        cache=o.cache,
        largest=min(SIZES) if o.small else max(SIZES),
    )
    alone = bare(cast(BagNetwork, made.network), 2.0 if o.cuda else 0.5)
    run(made, describe, o, shown=METHODS, alone=alone, unit="images")

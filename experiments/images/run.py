"""The paper's image experiment: bags of images, super-pixels, DeepSets on ResNet-50.

python -m experiments images --scale paper --device cuda --workers 28
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from c2fa import Explanation, metrics
from c2fa.graph import disjoint_union
from c2fa.maskers._segmenting import superpixel_graph
from c2fa.models import Lazy
from experiments.harness.command import Defaults, Options, rate, run
from experiments.harness.examples import BagExample, Values
from experiments.harness.grid import network_of
from experiments.harness.items import Item
from experiments.harness.reproduce import Domain
from experiments.harness.showing import METHODS, Describe
from experiments.harness.weights import present
from experiments.images.answers import BagNetwork
from experiments.images.bags import CAT, DATA, SIZES, VOID, Bags, Voc, make_bags, read_voc, superpixels
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


@dataclass(frozen=True)
class Source:
    """Where the bags and the network of a run come from. Calling it makes the network, in whichever process.

    Parameters
    ----------
    data, cache
        The folder of VOC's archive and ImageNet's weights, and that of decoded images and super-pixels.
    model
        The trained network; None makes one of ImageNet's.
    validation, test
        How many bags are taken of each set.
    batch
        Images in one forward pass.
    largest
        The most images of a bag.
    """

    data: Path
    cache: Path
    model: Path | None
    validation: int
    test: int
    device: str
    batch: int
    largest: int = max(SIZES)

    def __call__(self) -> BagNetwork:
        chosen, model = chosen_of(self), deepsets(self)
        return BagNetwork(
            chosen.images,
            chosen.labels,
            chosen.members,
            FastPhi(model, batch=self.batch, device=self.device),
            model.probabilities,
            mean=MEAN,
            std=STD,
            device=self.device,
            batch=self.batch,
        )


@dataclass(frozen=True, eq=False)
class Chosen:
    """The images of the bags that are explained, each once, and the bags, those for validation first."""

    images: Any
    masks: Any
    labels: Any
    members: Sequence[Any]
    validation: int


@functools.lru_cache(maxsize=1)
def chosen_of(source: Source) -> Chosen:
    """The bags that are explained, with their super-pixels."""
    voc = read_voc(source.data, cache=source.cache / "voc.npz")
    split = make_bags(voc)
    tuning = positives(split.validation, source.validation, source.largest)
    bags = [*tuning, *positives(split.test, source.test, source.largest)]
    used = np.unique(np.concatenate(bags))
    images = voc.images[used]
    labels = superpixels(images, cache=source.cache / "superpixels.npz")
    return Chosen(images, voc.masks[used], labels, [np.searchsorted(used, bag) for bag in bags], len(tuning))


@functools.lru_cache(maxsize=1)
def deepsets(source: Source) -> DeepSets:
    """The network in single precision, on its device."""
    if source.model is None:
        voc = read_voc(source.data, cache=source.cache / "voc.npz")
        model = quick(voc, make_bags(voc).training, source.data / IMAGENET.name)
    else:
        model = DeepSets.load(source.model)
    return model.to(source.device).eval()


def domain(source: Source) -> tuple[Domain, Describe]:
    """Bags, super-pixels and the network, ready to be asked, and what makes an example of one of the bags."""
    chosen, model = chosen_of(source), Lazy(source)
    images, labels, members = chosen.images, chosen.labels, chosen.members
    items = items_of(members, images, labels, chosen.masks, 0)
    tuning, held = items[: chosen.validation], items[chosen.validation :]
    fast = bag_network(model).phi
    assert isinstance(fast, FastPhi)
    mean, most = agreement(deepsets(source), fast, images, members)
    print(f"the fast network's probabilities differ from fp32 by {mean:.1e}, at most {most:.1e}", flush=True)

    def describe(name: str, item: Item, values: Values, e: Explanation, budget: tuple[int, int]) -> BagExample:
        bag = members[item.number]
        return BagExample(name, images[bag], labels[bag], item.truth[0], values, e.prediction, budget)

    about = {
        "trivial auroc": trivial_auroc(held),
        "mean and largest difference to fp32": (mean, most),
        "super-pixels of an image": float(np.mean(labels.max(axis=(1, 2)) + 1.0)),
    }
    return Domain("images", tuning, held, model, N_H, METRICS, POSITIVE, CURVES, about), describe


def bag_network(model: Lazy) -> BagNetwork:
    """The network, loaded into this process."""
    network = network_of(model)
    assert isinstance(network, BagNetwork)
    return network


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
    shown = torch.randint(0, 2, (count, network.segments), dtype=torch.uint8, device=network.device)
    painted = network.paint(images, shown).contiguous(memory_format=torch.channels_last)
    cuda = network.device.startswith("cuda")
    times = 20 if cuda else 1

    def step() -> int:
        for _ in range(times):
            network.phi(painted)
        return times * count

    return rate(step, cuda, seconds)


def main(o: Options) -> None:
    """Run the experiment."""
    model: Path | None = o.model
    if o.small and not present(o.model):
        print(f"there is no trained network at {o.model}; a small trial makes one of ImageNet's in seconds", flush=True)
        model = None
    largest = min(SIZES) if o.small else max(SIZES)
    made, describe = domain(
        Source(o.data, o.cache, model, o.scale.validation, o.scale.test, o.device, o.batch, largest=largest)
    )
    alone = bare(bag_network(made.model), 2.0 if o.cuda else 0.5)
    run(made, describe, o, shown=METHODS, alone=alone, unit="images")

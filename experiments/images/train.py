"""Fine-tunes the network on bags and says how well it does.

    python -m experiments.images.train --data ../shared/data --out build/images/deepsets.safetensors \
        --device cuda

The only supervision is the label of each of the training bags, which are drawn once: no bag is added, no image
moves between bags, and no loss looks at a single image. What varies from one pass over the bags to the next is how
each image is cropped, mirrored and coloured. Nothing is masked: like the paper's, the network sees whole images.

The paper trains everything with Adam at 0.001. Here that memorises the 98 training cats within a few hundred steps, so
phi, which starts from ImageNet, has a far lower rate, batch-norm keeps ImageNet's statistics, and training is
short. Several runs, which differ in phi's rate and in their random numbers, start from the same weights; what each
gives is a running mean of its weights, as it was when it did best on the validation bags (whose images are in no
training bag). Then the runs are averaged, weight by weight, the best first and each only if the mean does better with
it: still one network, but one that depends less on chance. The test bags are scored once, with the weights as
written. "Better" means a smaller log-loss: with 33 validation cats the share of bags that are right is coarse.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from experiments.images.bags import DATA, SIDE, SIZES, Bags, make_bags, read_voc
from experiments.images.network import IMAGENET, DeepSets, FastPhi, agreement, features, normalise, predict, speed


@dataclass(frozen=True)
class Score:
    """How a network does on bags: the share it gets right, and its mean log-loss."""

    accuracy: float
    loss: float

    def better(self, other: Score | None) -> bool:
        """A smaller loss."""
        return other is None or self.loss < other.loss


def score(model: DeepSets, bags: Bags) -> Score:
    """Score a network on bags, in fp32."""
    used = bags.used
    known = features(model.phi, bags.images[used], model.phi.conv1.weight.device)
    cat = predict(model, known, used, bags.members).double().cpu().numpy()
    right = np.where(bags.labels == 1, cat, 1 - cat)
    return Score(float((right > 0.5).mean()), float(-np.log(np.maximum(right, 1e-12)).mean()))


def batches(bags: Bags, batch: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Endless batches of bags, as indices; every bag of a size comes once before any of that size comes again.

    Each batch has as many bags of three as of five, so that all batches hold 4 x `batch` images: a GPU
    works out how to do a convolution anew for every new shape.
    """
    ends = (batch + 1) // 3
    takes = dict(zip(SIZES, (ends, batch - 2 * ends, ends), strict=True))
    sizes = np.array([len(members) for members in bags.members])
    decks = {size: np.flatnonzero(sizes == size) for size in SIZES}
    for size, take in takes.items():
        if len(decks[size]) < take:
            raise ValueError(f"a batch of {batch} needs {take} bags of {size}, and there are {len(decks[size])}")
    waiting = {size: np.empty(0, np.int64) for size in SIZES}
    while True:
        chosen = []
        for size, take in takes.items():
            if len(waiting[size]) < take:
                waiting[size] = np.concatenate([waiting[size], rng.permutation(decks[size])])
            chosen.append(waiting[size][:take])
            waiting[size] = waiting[size][take:]
        yield np.concatenate(chosen)


def vary(images: Tensor, generator: torch.Generator) -> Tensor:
    """Crop, mirror and colour raw images, (n, H, W, 3) uint8, each in its own way: (n, 3, H, W), normalised.

    A crop keeps 30 % to 100 % of the area, every fifth image is grey; brightness, contrast and saturation change by up
    to 30 %.
    """
    n, device = len(images), images.device

    def draw(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(n, device=device, generator=generator)

    area, aspect = draw(0.3, 1.0), torch.exp(draw(-math.log(4 / 3), math.log(4 / 3)))
    high, wide = (area / aspect).sqrt().clamp(max=1), (area * aspect).sqrt().clamp(max=1)
    zero = torch.zeros(n, device=device)
    across, down = draw(-1, 1) * (1 - wide), draw(-1, 1) * (1 - high)
    mirror = torch.where(draw(-1, 1) < 0, -1.0, 1.0)
    places = torch.stack((wide * mirror, zero, across, zero, high, down), 1).view(n, 2, 3)
    grid = F.affine_grid(places, [n, 3, SIDE, SIDE], align_corners=False)
    x = images.permute(0, 3, 1, 2).float()
    x = F.grid_sample(x, grid, mode="bilinear", padding_mode="reflection", align_corners=False)
    x = x * draw(0.7, 1.3)[:, None, None, None]
    middle = x.mean((1, 2, 3), keepdim=True)
    x = middle + (x - middle) * draw(0.7, 1.3)[:, None, None, None]
    grey = x.mean(1, keepdim=True)
    colour = torch.where(draw(0.0, 1.0) < 0.2, torch.zeros_like(area), draw(0.7, 1.3))
    x = grey + (x - grey) * colour[:, None, None, None]
    return normalise(x.clamp(0, 255).permute(0, 2, 3, 1)).contiguous(memory_format=torch.channels_last)


@torch.no_grad()
def follow(mean: DeepSets, model: DeepSets, step: int, keep: float) -> None:
    """Move the running mean of the weights towards the weights; at first faster, as it began with random ones."""
    weight = 1 - min(keep, (1 + step) / (10 + step))
    torch._foreach_lerp_(list(mean.parameters()), list(model.parameters()), weight)


def fit(
    model: DeepSets, training: Bags, validation: Bags, phi_rate: float, seed: int, args: argparse.Namespace
) -> tuple[DeepSets, Score, list[dict[str, float]]]:
    """Train for so many steps; return the running mean that did best on the validation bags, its score, and a log."""
    begin = time.monotonic()
    device = torch.device(args.device)
    cuda = device.type == "cuda"
    model = model.to(device, memory_format=torch.channels_last).train()  # type: ignore[call-overload]
    model.phi.folded = True
    mean = copy.deepcopy(model).eval().requires_grad_(False)
    best: tuple[Score, dict[str, Tensor]] | None = None
    groups = [
        {"params": model.phi.parameters(), "lr": phi_rate},
        {"params": model.rho.parameters(), "lr": args.rho_rate},
    ]
    optimiser = torch.optim.AdamW(groups, weight_decay=args.decay, fused=cuda)
    rates = [group["lr"] for group in optimiser.param_groups]

    used = training.used
    images = torch.from_numpy(training.images[used]).to(device)
    rows = [torch.from_numpy(np.searchsorted(used, members)) for members in training.members]
    labels = torch.from_numpy(training.labels)
    generator = torch.Generator(device).manual_seed(seed)
    log: list[dict[str, float]] = []
    step, since, total = 0, 0, torch.zeros((), device=device)
    for chosen in batches(training, args.batch, np.random.default_rng(seed)):
        done = step >= args.steps
        if since and (done or since >= args.evaluate_every):
            now = score(mean, validation)
            train_loss = float(total) / max(since, 1)
            entry = {"seconds": time.monotonic() - begin, "step": step, "training_loss": train_loss}
            log.append({**entry, "accuracy": now.accuracy, "loss": now.loss})
            print(
                f"rate {phi_rate:g}, seed {seed}  {log[-1]['seconds']:6.1f} s  step {step:5d}  "
                f"training loss {train_loss:.4f}  validation accuracy {now.accuracy:.4f}  loss {now.loss:.4f}",
                flush=True,
            )
            if now.better(best[0] if best else None):
                best = now, {name: tensor.clone() for name, tensor in mean.state_dict().items()}
            since = 0
            total.zero_()
        if done:
            break
        progress = step / args.steps
        pace = min(1.0, progress / args.warm_up) * 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))
        for group, rate, part in zip(optimiser.param_groups, rates, ("phi", "rho"), strict=True):
            # rho begins at once: until it means something its gradients would only disturb phi.
            group["lr"] = rate * (pace if part == "phi" else 0.5 * (1 + math.cos(math.pi * min(progress, 1.0))))
        owner = torch.from_numpy(np.repeat(np.arange(len(chosen)), [len(rows[bag]) for bag in chosen])).to(device)
        x = vary(images[torch.cat([rows[bag] for bag in chosen]).to(device)], generator)
        with torch.autocast(device.type, torch.bfloat16, enabled=cuda):
            each = model.phi(x)
        pooled = F.dropout(model.pool(each.float(), owner, len(chosen)), args.dropout, training=True)
        target = labels[torch.from_numpy(chosen)].to(device)
        loss = F.cross_entropy(model.rho(pooled), target, label_smoothing=args.smoothing)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        total += loss.detach()
        step, since = step + 1, since + 1
        follow(mean, model, step, args.keep)
    if best is None:
        raise ValueError(f"--steps {args.steps} trains nothing; give at least 1")
    mean.load_state_dict(best[1])
    mean.phi.folded = False
    return mean, best[0], log


def average(runs: Sequence[tuple[DeepSets, Score]], validation: Bags, device: torch.device) -> DeepSets:
    """The mean of the runs' weights: the best run first, then each of the others if the mean does better with it."""
    order = sorted(runs, key=lambda run: run[1].loss)
    kept, best, found = [order[0][0].state_dict()], order[0][1], order[0][0]
    for model, _ in order[1:]:
        tried = [*kept, model.state_dict()]
        mixed = copy.deepcopy(found)
        mixed.load_state_dict({name: torch.stack([one[name] for one in tried]).mean(0) for name in tried[0]})
        now = score(mixed.to(device), validation)
        print(f"mean of {len(tried)} runs: validation accuracy {now.accuracy:.4f}  loss {now.loss:.4f}", flush=True)
        if now.better(best):
            kept, best, found = tried, now, mixed.cpu()
    print(f"{len(kept)} of {len(runs)} runs are kept")
    return found


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """What was asked for on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the images and the ImageNet weights")
    parser.add_argument("--weights", type=Path, help="the ImageNet weights, where they are elsewhere; 'none': random")
    parser.add_argument("--cache", type=Path, help="file that keeps the decoded images")
    parser.add_argument("--out", type=Path, required=True, help="where the weights go; a log goes beside them")
    parser.add_argument("--part-mib", type=float, help="write the weights as parts of at most so many MiB")
    parser.add_argument("--steps", type=int, default=300, help="of every run")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1], help="of the order and the variations")
    parser.add_argument("--bag-seed", type=int, default=0, help="of the bags")
    parser.add_argument(
        "--counts", type=int, nargs=3, default=(5000, 1000, 2000), metavar="N", help="bags of each kind"
    )
    parser.add_argument("--batch", type=int, default=32, help="bags in a step")
    parser.add_argument("--phi-rate", type=float, nargs="+", default=[1e-5, 3e-5, 6e-5], help="of phi, one run each")
    parser.add_argument("--rho-rate", type=float, default=1e-3)
    parser.add_argument("--decay", type=float, default=0.05, help="AdamW's weight decay")
    parser.add_argument("--dropout", type=float, default=0.5, help="of rho's input")
    parser.add_argument("--smoothing", type=float, default=0.05, help="of the bags' labels")
    parser.add_argument("--keep", type=float, default=0.98, help="how slowly the mean of the weights moves")
    parser.add_argument("--warm-up", type=float, default=0.08, help="share of the time in which phi's rate rises")
    parser.add_argument("--evaluate-every", type=int, default=30, help="steps")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Train, write the weights, and score what was written."""
    args = arguments(argv)
    device = torch.device(args.device)
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = device.type == "cuda"
    begin = time.monotonic()
    voc = read_voc(args.data, args.cache)
    bags = make_bags(voc, args.bag_seed, tuple(args.counts))
    for name, kind in zip(bags._fields, bags, strict=True):
        print(f"{name}: {len(kind)} bags of {len(kind.used)} images, {int(kind.cats[kind.used].sum())} with a cat")
    print(f"ready after {time.monotonic() - begin:.1f} s", flush=True)

    runs, logs = [], {}
    for rate in args.phi_rate:
        for seed in args.seeds:
            torch.manual_seed(0)  # every run begins with the same rho, or their mean would mean nothing
            weights = args.weights or args.data / IMAGENET.name
            model = DeepSets() if str(weights) == "none" else DeepSets.pretrained(weights)
            mean, now, log = fit(model, bags.training, bags.validation, rate, seed, args)
            runs.append((mean.cpu(), now))
            logs[f"rate {rate:g}, seed {seed}"] = log
    best = average(runs, bags.validation, device)
    written = best.save(args.out, args.part_mib)
    print(f"wrote {', '.join(path.name for path in written)}", flush=True)

    torch.backends.cudnn.benchmark = False  # the last batch of images has a shape of its own
    model = DeepSets.load(args.out).to(device)
    validation, test = score(model, bags.validation), score(model, bags.test)
    print(f"as written: validation accuracy {validation.accuracy:.4f}  loss {validation.loss:.4f}")
    print(f"as written: test accuracy {test.accuracy:.4f}  loss {test.loss:.4f}", flush=True)
    result: dict[str, Any] = {
        "validation_accuracy": validation.accuracy,
        "test_accuracy": test.accuracy,
        "test_loss": test.loss,
        "arguments": {name: str(value) for name, value in vars(args).items()},
        "logs": logs,
    }
    report = args.out.with_suffix(".json")
    report.write_text(json.dumps(result, indent=1))
    fast = FastPhi(model, batch=512 if device.type == "cuda" else 2)
    result["agreement"] = agreement(model, fast, voc.images, bags.test.members[:500])
    print(
        "with the fast copy of phi probabilities differ by {:.2g}, at most {:.2g} (500 test bags)".format(
            *result["agreement"]
        ),
        flush=True,
    )
    result["images_per_second"] = speed(fast)
    print(f"and takes {result['images_per_second']:.0f} images a second in batches of {fast.batch}", flush=True)
    report.write_text(json.dumps(result, indent=1))
    return result


if __name__ == "__main__":
    main()

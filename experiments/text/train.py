"""Fine-tunes gte-small to tell positive reviews from negative ones.

    python -m experiments.text.reviews --data ../shared/data --out build/text            # once: tokenises
    python -m experiments.text.train --data build/text --out build/text/bert.safetensors --seconds 90 --device cuda

`--data` is the folder that `experiments.text.reviews` wrote; training needs numpy and PyTorch alone. It sees FDU14's
train split and nothing else. After each epoch the network is scored on FDU14's test split, and the best one is
kept, over all rates tried. The 6,459 Amazon-polarity reviews are scored once, when the choice has been made.
"""

from __future__ import annotations

import argparse
import copy
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from experiments.text.network import Classifier, agreement
from experiments.text.reviews import (
    CLS,
    ENCODER,
    LENGTH,
    MASK,
    PAD,
    REVIEWS,
    SEP,
    WORK,
    Corpus,
    pieces_met,
    read_bundle,
)


@dataclass(frozen=True)
class Recipe:
    """How to train: one peak rate, how long, and how many reviews at once."""

    rate: float = 1e-4
    epochs: float = 4.0
    seconds: float = 90.0
    batch: int = 64
    warm: float = 0.06
    decay: float = 0.01
    mask_rate: float = 0.0
    length: int = LENGTH
    seed: int = 0


class Rows:
    """A corpus on the device, which gives padded batches of its reviews with [CLS] and [SEP]."""

    def __init__(self, corpus: Corpus, device: torch.device, length: int) -> None:
        self.device = device
        self.room = length - 2
        self.ids = torch.as_tensor(corpus.ids).to(device)
        self.starts = torch.as_tensor(corpus.offsets[:-1]).to(device)
        self.sizes = np.minimum(corpus.lengths, self.room)
        self.counts = torch.as_tensor(self.sizes).to(device)
        self.labels = torch.as_tensor(corpus.labels).to(device)

    def __len__(self) -> int:
        return len(self.sizes)

    def batch(self, rows: np.ndarray[Any, Any]) -> tuple[Tensor, Tensor, Tensor]:
        """The pieces, the lengths and the labels of some reviews, padded to a multiple of eight."""
        width = -(-(int(self.sizes[rows].max()) + 2) // 8) * 8
        at = torch.as_tensor(rows).to(self.device)
        counts = self.counts[at][:, None]
        j = torch.arange(width, device=self.device)[None] - 1
        source = (self.starts[at][:, None] + j).clamp(0, len(self.ids) - 1)
        ids = torch.where((j >= 0) & (j < counts), self.ids[source], PAD)
        ids = torch.where(j == counts, SEP, ids)
        ids[:, 0] = CLS
        return ids, counts[:, 0] + 2, self.labels[at]

    def by_length(self, size: int, random: np.random.Generator | None = None) -> list[np.ndarray[Any, Any]]:
        """Batches of reviews of about one length; with a generator, other ones each time and in random order."""
        noise = 0.0 if random is None else random.normal(0, 6, len(self))
        order = np.argsort(self.sizes + noise, kind="stable")
        batches = np.array_split(order, max(1, -(-len(order) // size)))
        if random is not None:
            random.shuffle(batches)
        return batches


@torch.no_grad()
def judge(model: Classifier, rows: Rows, mixed: bool = False) -> np.ndarray[Any, Any]:
    """Whether each review is judged as its label says, with the weights as they are or in mixed precision."""
    was = model.training
    model.eval()
    right = np.empty(len(rows), dtype=np.bool_)
    for batch in rows.by_length(256):
        ids, lengths, labels = rows.batch(batch)
        with torch.autocast(rows.device.type, torch.bfloat16, enabled=mixed):
            logits = model(ids, lengths)
        right[batch] = (logits.argmax(-1) == labels).cpu().numpy()
    model.train(was)
    return right


def hide(ids: Tensor, lengths: Tensor, most: float) -> Tensor:
    """Rows with [MASK] in place of some pieces; each row's share is drawn uniformly from 0 to `most`."""
    j = torch.arange(ids.shape[1], device=ids.device)
    inner = (j > 0) & (j < lengths[:, None] - 1)
    share = torch.rand(len(ids), 1, device=ids.device) * most
    return torch.where(inner & (torch.rand(ids.shape, device=ids.device) < share), MASK, ids)


def rate_at(done: float, peak: float, warm: float) -> float:
    """The rate when a share of the training is done: a straight line up, then one down to nothing.

    >>> [round(rate_at(d, 1.0, 0.5), 2) for d in (0.0, 0.25, 0.5, 0.75, 1.0)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    return peak * min(done / warm, max(0.0, (1 - done) / (1 - warm)))


def fine_tune(
    model: Classifier, train: Rows, valid: Rows, recipe: Recipe, log: Any = print
) -> tuple[Classifier, float]:
    """Trains a model in place, scores it after each epoch, and returns the best one and its accuracy.

    The rate falls by whichever is further on: the clock or the number of steps.
    """
    torch.manual_seed(recipe.seed)
    random = np.random.default_rng(recipe.seed)
    device = train.device
    plain = [p for n, p in model.named_parameters() if p.ndim < 2]
    heavy = [p for n, p in model.named_parameters() if p.ndim >= 2]
    groups = [{"params": heavy, "weight_decay": recipe.decay}, {"params": plain, "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.98), fused=device.type == "cuda")
    mixed = device.type == "cuda"  # half-precision products are slow on most processors
    total = recipe.epochs * len(train.by_length(recipe.batch))
    best: tuple[dict[str, Tensor], float] = ({}, -1.0)
    model.train()
    began, paused, step, done, epoch = time.perf_counter(), 0.0, 0, 0.0, 0
    while done < 1:
        loss_sum, seen = torch.zeros((), device=device), 0
        for rows in train.by_length(recipe.batch, random):
            for group in optimiser.param_groups:
                group["lr"] = rate_at(done, recipe.rate, recipe.warm)
            ids, lengths, labels = train.batch(rows)
            if recipe.mask_rate:
                ids = hide(ids, lengths, recipe.mask_rate)
            with torch.autocast(device.type, torch.bfloat16, enabled=mixed):
                logits = model(ids, lengths)
            loss = F.cross_entropy(logits.float(), labels)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            loss_sum += loss.detach()
            step, seen = step + 1, seen + 1
            if step % 20 == 0 and device.type == "cuda":
                torch.cuda.synchronize()  # or the clock would run ahead of the device
            done = max(step / total, (time.perf_counter() - began - paused) / recipe.seconds)
            if done >= 1:
                break
        epoch += 1
        pause = time.perf_counter()
        score = float(judge(model, valid, mixed).mean())
        log(f"rate {recipe.rate:g}, epoch {epoch}, step {step}: loss {loss_sum.item() / seen:.4f}, valid {score:.4f}")
        if not np.isfinite(loss_sum.item()):
            log("the loss is no longer a number: this rate is given up")
            break
        if score > best[1]:
            best = ({k: v.detach().clone() for k, v in model.state_dict().items()}, score)
        paused += time.perf_counter() - pause
    if best[0]:
        model.load_state_dict(best[0])
    return model.eval(), best[1]


def speed(model: Classifier, review: Any, rows: int) -> float:
    """Masked rows of a review that are judged in a second, the transfers among it."""
    kept = np.random.default_rng(0).random((rows, len(review.ids))) < 0.5
    model.predict_masked(review.ids, kept)
    began = time.perf_counter()
    model.predict_masked(review.ids, kept)
    return rows / (time.perf_counter() - began)


def main() -> None:
    """Trains, chooses, writes and scores."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, default=WORK, help="the folder that experiments.text.reviews wrote")
    parser.add_argument("--out", type=Path, default=WORK / "bert.safetensors", help="where the weights are written")
    parser.add_argument("--seconds", type=float, default=90.0, help="the longest that all rates take together")
    parser.add_argument("--rates", type=float, nargs="+", default=[5e-5, 1e-4], help="peak rates to try, one by one")
    parser.add_argument("--epochs", type=float, default=4.0, help="the most epochs for each rate")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--mask-rate", type=float, default=0.0, help="hide up to this share of each review's pieces")
    parser.add_argument("--length", type=int, default=LENGTH, help="pieces that are read of a review in training")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--all-pieces", action="store_true", help="save FDU14's pieces too, not the 6,459's alone")
    parser.add_argument("--part-mib", type=float, help="cut the weights into parts of at most so many MiB")
    parser.add_argument("--tiny", type=int, help="use so many reviews of each corpus: a test that it runs")
    args = parser.parse_args()

    began = time.perf_counter()

    def log(text: str) -> None:
        print(f"[{time.perf_counter() - began:6.1f} s] {text}", flush=True)

    device = torch.device(args.device)
    if device.type == "cuda":
        log(f"{torch.cuda.get_device_name(device)}, PyTorch {torch.__version__}")
    bundle = read_bundle(args.data / REVIEWS)
    start = Classifier.load(args.data / ENCODER)

    def rows(corpus: Corpus, length: int) -> Rows:
        if args.tiny:
            corpus = Corpus(corpus.ids, corpus.offsets[: args.tiny + 1], corpus.labels[: args.tiny])
        return Rows(corpus, device, length)

    train, valid = rows(bundle.train, args.length), rows(bundle.valid, args.length)
    held = rows(bundle.held, start.shape.positions)
    log(f"{len(train)} reviews to train on, {len(valid)} to choose by, {len(held)} held out")

    best: tuple[Classifier | None, float, float] = (None, -1.0, 0.0)
    for rate in args.rates:
        recipe = Recipe(
            rate=rate,
            epochs=args.epochs,
            seconds=args.seconds / len(args.rates),
            batch=args.batch,
            mask_rate=args.mask_rate,
            length=args.length,
            seed=args.seed,
        )
        torch.manual_seed(args.seed)
        model = copy.deepcopy(start).to(device)
        nn.init.normal_(model.head.weight, std=0.02)
        model, score = fine_tune(model, train, valid, recipe, log)
        if score > best[1]:
            best = (model, score, rate)
    if best[0] is None:
        raise SystemExit("no rate trained: try lower --rates")
    log(f"chosen: rate {best[2]:g}, valid {best[1]:.4f}")

    met = bundle.met if args.all_pieces else pieces_met(bundle.held.ids)
    for path in best[0].save(args.out, met, args.part_mib):
        log(f"{path}: {path.stat().st_size / 2**20:.1f} MiB")
    model = Classifier.load(args.out).to(device)  # what is scored is what was written
    twins = {"single precision": model} | ({"half precision": model.fast()} if device.type == "cuda" else {})
    for name, twin in twins.items():
        right = judge(twin, held)
        log(f"{name}, as written: held out {right.mean():.4f} of {len(right)}")
        for part, reviews in (("validation", bundle.validation), ("test", bundle.test)):
            numbers = [r.number for r in reviews if r.number < len(right)]
            log(f"    {part}: {right[numbers].mean() if numbers else np.nan:.4f} of {len(numbers)}")
    few = slice(0, 100 if device.type == "cuda" else 4)
    random = np.random.default_rng(args.seed)
    samples = [r.rows(random.random((8, len(r.ids))) < random.random((8, 1))) for r in bundle.validation[few]]
    for dtype in (torch.float16, torch.bfloat16):
        mean, most = agreement(model, samples, dtype)
        log(f"{dtype} against single precision, masked reviews: probability differs by {mean:.1e}, at most {most:.1e}")
    middle = sorted(bundle.test, key=lambda r: len(r.ids))[len(bundle.test) // 2]
    fast, count = (model.fast(), 16384) if device.type == "cuda" else (model, 32)
    log(f"{speed(fast, middle, count):.0f} masked rows/s of a review of {len(middle.ids)} pieces")


if __name__ == "__main__":
    main()

"""Why the default is what it is: fits compared on answers of real networks to validation inputs.

    python benchmarks/validation.py

``experiments/results/validation-answers.npz.xz`` holds what the two networks of ``experiments/`` answered for 80
positive validation bags and 100 validation reviews: all masks of the parts (up to 512), 300 masks of fair coins over
the leaves, and 100 rows of random Hadamard blocks. So every fit can be compared without a network. Each is made with 20
part masks (or all of them, up to 32) and 50 leaf masks; what it predicts is then correlated with the answers to 150
other masks of fair coins. For bags, the truth is known besides: which image holds a cat, and which of its pixels.
"""

from __future__ import annotations

import io
import lzma
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from c2fa import L2, Auto, Level, Problem, Structure, metrics, solve
from c2fa.graph import Graph
from c2fa.kernels import KERNELS
from c2fa.solvers.solve import STRENGTHS, solve_smooth

ANSWERS = Path(__file__).resolve().parents[1] / "experiments" / "results" / "validation-answers.npz.xz"
ROWS = 50


@dataclass(frozen=True, eq=False)
class Input:
    """One validation input: its tree, its neighbours, and what the network answered."""

    structure: Structure
    graph: Graph
    full: float
    answers: Mapping[str, tuple[np.ndarray, np.ndarray]]
    truth: tuple[np.ndarray, np.ndarray] | None

    def rows(self, kind: str, n: int) -> tuple[np.ndarray, np.ndarray]:
        """The first masks of a kind and their answers, and the unmasked input."""
        masks, y = self.answers[kind]
        return np.vstack([masks[:n], np.ones((1, masks.shape[1]), bool)]), np.append(y[:n], self.full)

    def parts(self, every: bool) -> tuple[np.ndarray, np.ndarray]:
        """Part masks: 20 drawn with repetition, or each of at most 31 once."""
        masks, y = self.answers["parts"]
        if every and len(masks) <= 32:
            return masks, y
        draw = np.random.default_rng(len(masks))
        chosen = (
            draw.choice(len(masks), min(31, len(masks)), replace=False) if every else draw.integers(0, len(masks), 20)
        )
        chosen = np.append(chosen, masks.all(axis=1).argmax())
        return masks[chosen], y[chosen]


def read(domain: str) -> list[Input]:
    """The inputs of a domain."""
    with np.load(io.BytesIO(lzma.decompress(ANSWERS.read_bytes()))) as kept:
        z = {name: kept[name] for name in kept.files if name.startswith(domain)}
    found = []
    for i in range(1 + max(int(name.split(".")[1]) for name in z)):
        at = f"{domain}.{i}."
        owner = z[at + "owner"].astype(int)
        widths = {"parts": int(owner.max()) + 1, "uniform": len(owner), "hadamard": len(owner)}
        answers = {
            kind: (
                np.unpackbits(z[f"{at}{kind}.masks"], axis=1, count=width).astype(bool),
                z[f"{at}{kind}.answers"].astype(float),
            )
            for kind, width in widths.items()
        }
        truth = (z[at + "cats"], z[at + "counts"].astype(float)) if at + "cats" in z else None
        graph = Graph(z[at + "edges"].astype(int), z[at + "weights"].astype(float))
        found.append(Input(Structure.from_groups(owner.tolist()), graph, float(z[at + "full"]), answers, truth))
    return found


def fit(x: Input, masks: str, every: bool, kernel: str, penalty: Any, intercept: bool, smooth: Sequence[float]) -> Any:
    """Values of parts and leaves."""
    weigh = KERNELS[kernel]
    levels = []
    for width, (rows, y) in zip(x.structure.widths, (x.parts(every), x.rows(masks, ROWS)), strict=True):
        own = L2(width / 50) if penalty is None else penalty
        levels.append(Level(rows, y, weigh(rows) + 1e-12, own, intercept))
    problem = Problem(x.structure, tuple(levels))
    solution = solve_smooth(problem, x.graph, smooth) if smooth else solve(problem)
    return solution.values


FITS: Mapping[str, tuple[Any, ...]] = {
    "no intercept": ("uniform", False, "cosine", None, False, ()),
    "fair coins, fixed strengths": ("uniform", False, "cosine", None, True, ()),
    "planned masks, fixed strengths": ("hadamard", True, "uniform", None, True, ()),
    "planned masks, strengths from answers": ("hadamard", True, "uniform", Auto(), True, ()),
    "and a little smoothness": ("hadamard", True, "uniform", Auto(), True, (0.3, 1.0, 3.0)),
    "and more: the default for images": ("hadamard", True, "uniform", Auto(), True, STRENGTHS),
}


def lime(x: Input) -> Any:
    """Both levels fitted alone, the leaves with six times as many masks: the yardstick."""
    found = []
    for width, (rows, y) in zip(x.structure.widths, (x.parts(False), x.rows("uniform", 300)), strict=True):
        level = Level(rows, y, KERNELS["cosine"](rows) + 1e-12, L2(width / 50), True)
        found.append(solve(Problem(Structure.flat(width), (level,))).values[0])
    return found


def scores(x: Input, values: Any) -> dict[str, float]:
    """How well the values predict other answers, and find what is known."""
    high, low = (np.ravel(v) for v in values)
    masks, y = x.answers["uniform"]
    owner = x.structure.owners(0)
    found = {"held-out corr.": float(np.corrcoef(masks[150:] @ low, y[150:])[0, 1])}
    every, part = x.answers["parts"]
    if x.structure.widths[0] > 2:
        best = np.linalg.lstsq(np.c_[np.ones(len(every)), every], part, rcond=None)[0][1:]
        found["parts corr."] = float(np.corrcoef(high, best)[0, 1])
    if x.truth is not None:
        cats, counts = x.truth
        within = [metrics.auroc(low[owner == j], counts[owner == j]) for j in np.flatnonzero(cats)]
        found |= {
            "AUROC": metrics.auroc(low, counts),
            "within image": float(np.nanmean(within)),
            "NDCG": metrics.ndcg(high, cats.astype(float)),
            "MIHL": metrics.mihl((high, low), x.structure),
        }
    return found


def main() -> None:
    for domain in ("images", "text"):
        inputs = read(domain)
        means = {kind: np.mean([x.answers[kind][1].mean() for x in inputs]) for kind in ("uniform", "parts")}
        print(f"{domain}: {len(inputs)} validation inputs, N_H = 20 (planned: all masks up to 32), N_L = {ROWS}")
        print(f"mean answer with half of the leaves masked {means['uniform']:.2f}, of the parts {means['parts']:.2f}")
        for label, options in FITS.items():
            table = [scores(x, fit(x, *options)) for x in inputs]
            names = {name: None for row in table for name in row}
            shown = "  ".join(f"{n} {np.nanmean([row.get(n, np.nan) for row in table]):.3f}" for n in names)
            print(f"  {label:52s} {shown}", flush=True)
        if domain == "images":
            table = [scores(x, lime(x)) for x in inputs]
            known = ("parts corr.", "AUROC", "within image", "NDCG", "MIHL")  # the held-out masks are among its own
            shown = "  ".join(f"{n} {np.nanmean([row.get(n, np.nan) for row in table]):.3f}" for n in known)
            print(f"  {'LIME with 300 leaf masks':74s}{shown}", flush=True)


if __name__ == "__main__":
    main()

"""Solvers side by side, as ratios within one run, and what an explanation costs besides the model's own time.

    python benchmarks/solvers.py [--quick]

Every line is the median of several runs in CPU time, so that other work on the machine disturbs it little; a ratio
above 1 means that ``direct`` is faster. Algorithm 1 is the fast one of ``experiments/variants``. What is not installed
is left out and said.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

# One thread for everybody: waiting BLAS threads burn CPU time, which is what is measured here.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

import c2fa
from c2fa import kernels
from c2fa.solvers.direct import prepare

sys.path.insert(0, str(Path(__file__).parents[1]))
from experiments.variants.algorithm1 import iterate

ROWS = ((20, 50), (50, 150), (100, 400))  # N = 70, 200, 500
LEAVES = (100, 200, 1_000, 10_000, 100_000)


def cpu(run: Callable[[], object], repeats: int = 5) -> float:
    """The median CPU seconds of a call, after one that warms up."""
    run()
    times = []
    for _ in range(repeats):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return median(times)


def problem(leaves: int, rows: tuple[int, int], seed: int = 0) -> c2fa.Problem:
    """Parts of twenty leaves, fair-coin masks, LIME's weights, no intercept, a model that answers a probability."""
    rng = np.random.default_rng(seed)
    structure = c2fa.Structure.from_groups(np.arange(leaves) // 20)
    truth = 3 * rng.normal(size=leaves) / np.sqrt(leaves)
    levels = []
    for k, n in enumerate(rows):
        masks = rng.random((n, structure.widths[k])) < 0.5
        outputs = 1 / (1 + np.exp(-(structure.expand(masks, k) @ truth)))
        levels.append(c2fa.Level(masks, outputs, kernels.cosine(masks), c2fa.L2(0.1)))
    return c2fa.Problem(structure, tuple(levels))


def fresh(p: c2fa.Problem) -> c2fa.Problem:
    """The same problem without anything remembered from an earlier solve."""
    levels = tuple(c2fa.Level(lv.masks, lv.outputs, lv.weights, lv.penalty, lv.intercept) for lv in p.levels)
    return c2fa.Problem(p.structure, levels)


def stacked(p: c2fa.Problem) -> tuple[np.ndarray, np.ndarray]:
    """The two levels' rows and the parts' penalty as rows, for solvers that know no tree."""
    m = p.structure.membership(0)
    high, low = p.levels
    root = [np.sqrt(lv.weights) for lv in p.levels]
    x = np.concatenate(
        [root[0][:, None] * (high.masks @ m), root[1][:, None] * low.masks, np.sqrt(2 * 0.1) * m.toarray()]
    )
    y = np.concatenate([root[0] * high.outputs, root[1] * low.outputs, np.zeros(m.shape[0])])
    return x, y


def by_numpy(p: c2fa.Problem) -> np.ndarray:
    x, y = stacked(p)
    return np.linalg.solve(x.T @ x + 2 * 0.1 * np.eye(x.shape[1]), x.T @ y)


def by_sklearn(p: c2fa.Problem) -> np.ndarray:
    from sklearn.linear_model import Ridge

    x, y = stacked(p)
    return Ridge(alpha=2 * 0.1, fit_intercept=False).fit(x, y).coef_


def by_cvxpy(p: c2fa.Problem) -> np.ndarray:
    import cvxpy as cp

    x, y = stacked(p)
    beta = cp.Variable(x.shape[1])
    cp.Problem(cp.Minimize(0.5 * cp.sum_squares(y - x @ beta) + 0.1 * cp.sum_squares(beta))).solve()
    return np.asarray(beta.value)


OTHERS: dict[str, tuple[int, Callable[[c2fa.Problem], np.ndarray]]] = {  # largest number of leaves, and how
    "Alg.1 μ₂=.1": (1_000, lambda p: iterate(fresh(p), mu2=0.1)[-1]),
    "μ₂=.01": (1_000, lambda p: iterate(fresh(p), mu2=0.01)[-1]),
    "μ₂=.001": (200, lambda p: iterate(fresh(p), mu2=0.001)[-1]),
    "cvxpy": (1_000, by_cvxpy),
    "Ridge": (10_000, by_sklearn),
    "dense": (1_000, by_numpy),
}


def values(p: c2fa.Problem) -> Any:
    """The leaves' values alone."""
    return prepare(p)[1].fit(p.targets)


def solver_table(quick: bool) -> None:
    print("solvers: CPU milliseconds of direct (values alone, with standard errors); how many times longer others take")
    print(
        f"{'leaves':>8} {'rows':>5} {'direct':>9} {'+stderr':>9}",
        *(f"{name:>12}" for name in OTHERS),
        " worst error",
    )
    for leaves in LEAVES[:2] if quick else LEAVES:
        for rows in ROWS:
            p = problem(leaves, rows)
            exact = c2fa.solve(p).values[-1]
            repeats = 9 if leaves <= 1_000 else 3
            plain = cpu(lambda p=p: values(fresh(p)), repeats)
            full = cpu(lambda p=p: c2fa.solve(fresh(p), "direct"), repeats)
            cells, worst = [], 0.0
            for name, (most, run) in OTHERS.items():
                if leaves > most:
                    cells.append("–")
                    continue
                cells.append(f"{cpu(lambda p=p, run=run: run(p), 1) / plain:.1f}×")
                if "μ" not in name:
                    worst = max(worst, float(np.abs(run(p) - exact).max()))
            line = " ".join(f"{cell:>12}" for cell in cells)
            print(
                f"{leaves:8d} {sum(rows):5d} {plain * 1e3:9.2f} {full * 1e3:9.2f} {line}  {worst:.0e}",
                flush=True,
            )
    print("Algorithm 1 at its own tolerances (1e-4), μ₁ = 0.1 and each μ₂ of the paper's grid; it stops ~1e-2 off.")


def growth() -> None:
    print("\n100,000 leaves, 500 queries, explainer and all, in a process of its own:")
    code = (
        "import time, numpy as np, c2fa\n"
        "import sys; d = int(sys.argv[1])\n"
        "s = c2fa.Structure.from_groups(np.arange(d) // 20)\n"
        "w = np.random.default_rng(0).normal(size=d) / d ** 0.5\n"
        "t, c = time.perf_counter(), time.process_time()\n"
        "e = c2fa.Explainer(lambda b: np.tanh(b @ w), c2fa.maskers.Array(s), budget=(100, 400))(np.ones(d))\n"
        "t, c = time.perf_counter() - t, time.process_time() - c\n"
        "peak = int(open('/proc/self/status').read().split('VmHWM:')[1].split()[0]) / 2**20\n"
        "print(f'{d:8d} leaves: {t:6.2f} s, {c:6.2f} CPU s, peak {peak:.2f} GiB', flush=True)\n"
    )
    for d in (25_000, 50_000, 100_000):
        subprocess.run([sys.executable, "-c", code, str(d)], check=True)


def overhead() -> None:
    print("\nexplainer overhead: 5 parts of 20 leaves, 200 queries, a model that answers at once, CPU milliseconds")
    structure = c2fa.Structure.from_groups(np.arange(100) // 20)
    w = np.random.default_rng(0).normal(size=100) / 10
    x = np.ones(100)

    def model(batch: np.ndarray) -> np.ndarray:
        return np.tanh(batch @ w)

    explainer = c2fa.Explainer(model, c2fa.maskers.Array(structure), budget=(50, 150))
    ours = cpu(lambda: explainer(x), 50)
    print(f"  {'c2fa (both levels, errors)':28s} {ours * 1e3:8.2f}")
    fixed = c2fa.Explainer(model, c2fa.maskers.Array(structure), budget=(50, 150), penalty=None)
    lime = c2fa.Explainer(model, c2fa.maskers.Array(structure), budget=(50, 150), method="lime")
    others = {"the same with penalty=None": lambda: fixed(x), "method='lime' (one level)": lambda: lime(x)}
    for name, peer in {**others, **peers(model, x)}.items():
        seconds = cpu(peer, 50)
        print(f"  {name:28s} {seconds * 1e3:8.2f}   {seconds / ours:5.1f}×")


def peers(model: Callable[[np.ndarray], np.ndarray], x: np.ndarray) -> dict[str, Callable[[], object]]:
    """The same work, one level, by those of the peers that are installed."""
    found: dict[str, Callable[[], object]] = {}
    if importlib.util.find_spec("shap"):
        import shap

        kernel = shap.KernelExplainer(model, np.zeros((1, len(x))))
        found["shap KernelExplainer"] = lambda: kernel.shap_values(x, nsamples=200, l1_reg=False, silent=True)
    if importlib.util.find_spec("lime"):
        from lime.lime_base import LimeBase

        base = LimeBase(lambda d: np.exp(-8 * d**2))

        def lime() -> object:
            rng = np.random.default_rng(0)
            masks = (rng.random((200, len(x))) < 0.5).astype(float)
            masks[0] = 1
            distances = 1 - np.sqrt(masks.mean(axis=1))
            outputs = model(masks)[:, None]
            return base.explain_instance_with_data(masks, outputs, distances, 0, len(x))

        found["lime (its base, 100 features)"] = lime
    if importlib.util.find_spec("captum"):
        import torch
        from captum.attr import KernelShap, Lime

        def forward(batch: torch.Tensor) -> torch.Tensor:
            return torch.from_numpy(model(batch.numpy()))

        tensor = torch.ones(1, len(x), dtype=torch.float64)
        for peer in (Lime(forward), KernelShap(forward)):
            found[f"captum {type(peer).__name__}"] = lambda peer=peer: peer.attribute(
                tensor, n_samples=200, perturbations_per_eval=64
            )
    for name in ("shap", "lime", "captum"):
        if not importlib.util.find_spec(name):
            print(f"  ({name} is not installed: pip install 'c2fa[peers]')")
    return found


def imports() -> None:
    code = "import time; s = time.process_time(); import c2fa; print(time.process_time() - s)"
    seconds = median(
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
        for _ in range(5)
    )
    print(f"\nimport c2fa: {seconds:.2f} CPU seconds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes only")
    arguments = parser.parse_args()
    overhead()
    imports()
    print()
    solver_table(arguments.quick)
    if not arguments.quick:
        growth()


if __name__ == "__main__":
    main()

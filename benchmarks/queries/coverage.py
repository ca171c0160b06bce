"""Part coverage: how often 95 % intervals, value ± 1.96 standard errors, hold the truth.

*Additive models with noise* are what standard errors are made for, so that 95 % of the intervals should hold the
truth. The problems are those of ``benchmarks/intervals.py``: three to eight parts of 10 to 30 leaves, 50 to 300 rows, a
noise of each level by itself, and leaves of several kinds. That benchmark fits the same fair-coin masks with several
penalties, and its figures are the rows called "fit alone"; here the library also asks its own masks about the same
models, and weighs them, as a user would have it.

*Models that are not additive* have no such truth. What a fit leaves unexplained there is no noise, and what it
converges to is not the Shapley values; the table shows how far the intervals are from either. The best additive fits
are those over fair-coin masks of the leaves, and over all masks of the parts.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from benchmarks.queries.family import Floats, leaf_additive, leaf_shapley, part_additive, part_shapley, suite
from benchmarks.queries.tables import Estimate, Table, Target, left_out
from benchmarks.queries.variants import COINS, DEFAULT, JOINT, PLANNED, Variant, usable

import c2fa
from c2fa.metrics import coverage

# The benchmarks beside this package import each other by bare names. Their folder must not be on the path for that: a
# ``coverage`` there would hide the package of that name, which other libraries import.
sys.modules.setdefault("synthetic", import_module("benchmarks.synthetic"))
alone: Any = import_module("benchmarks.intervals")

NOMINAL = Target(least=0.93, most=0.97)
VARIANTS = (DEFAULT, JOINT, COINS, PLANNED)
ROWS = 200


@dataclass(frozen=True, eq=False)
class Noisy:
    """An additive model that answers every row with fresh noise, and more of it at one level than at another."""

    values: Floats
    structure: c2fa.Structure
    rows: int
    noise: tuple[float, ...]
    seed: int

    @classmethod
    def of(cls, seed: int, kind: str) -> Noisy:
        """A problem of ``benchmarks/intervals.py``, to be asked anew."""
        case = alone.additive(seed, kind)
        return cls(case["truth"], case["structure"], sum(map(len, case["masks"])), tuple(case["noises"]), seed)

    @property
    def truth(self) -> tuple[Floats, Floats]:
        return self.structure.sums(self.values, 0), self.values

    def explain(self, variant: Variant) -> c2fa.Explanation:
        """Explain it; a row in which some parts are missing, and all others whole, has the noise of parts."""
        rng = np.random.default_rng((self.seed, 1))
        sizes = self.structure.sizes(0)[:, None]

        def model(batch: Floats) -> Floats:
            shown = self.structure.sums(batch.T, 0)
            of_parts = ((shown == 0) | (shown == sizes)).all(axis=0) & (batch == 0).any(axis=1)
            scale = np.where(of_parts, *self.noise)
            return 0.3 + batch @ self.values + scale * rng.normal(size=len(batch))

        masker = c2fa.maskers.Custom(self.structure, lambda x, masks, level: masks.astype(np.float64))
        return variant.explain(model, masker, None, budget=self.rows, seed=self.seed)


def tables(quick: bool = False) -> list[Table]:
    """Run it and make its tables."""
    variants, notes = usable(VARIANTS)
    return [additive(variants, 2 if quick else 50, notes), not_additive(variants, quick)]


def additive(variants: Sequence[Variant], of_each: int, notes: Sequence[str] = ()) -> Table:
    """Coverage where the truth is additive, and in the corners of the range of problems."""
    problems = [Noisy.of(seed, kind) for kind in alone.KINDS for seed in range(of_each)]
    table = Table(
        f"coverage. 95 % intervals on {len(problems)} additive models with noise; target {NOMINAL}\n"
        "   mean [95 % interval over problems]; then leaves by rows a leaf, and parts by their number",
        notes=left_out(notes),
    )
    ratio = np.array([p.rows / p.structure.leaves for p in problems])
    parts = np.array([p.structure.widths[0] for p in problems])
    shares = {v.label: np.array([_held(p.explain(v), p.truth) for p in problems]) for v in variants}
    frame = alone.on_additive(of_each)
    for method in frame["method"].unique():
        shares[f"fit alone, {method}"] = frame.loc[frame["method"] == method, ["parts", "leaves"]].to_numpy(float)
    for label, held in shares.items():
        part, leaf = (Estimate.of(held[:, level]) for level in (0, 1))
        by_rows = [held[(ratio >= a) & (ratio < b), 1] for a, b in ((0, 0.7), (0.7, 1.5), (1.5, np.inf))]
        by_parts = [held[(parts >= a) & (parts <= b), 0] for a, b in ((3, 4), (5, 6), (7, 8))]
        table.rows.append(
            {
                "method": label,
                "leaves": leaf,
                "leaves' target": NOMINAL.verdict(leaf),
                "parts": part,
                "parts' target": NOMINAL.verdict(part),
                "leaves at < 0.7, to 1.5, more": _means(by_rows),
                "parts at 3–4, 5–6, 7–8": _means(by_parts),
            }
        )
    return table


def not_additive(variants: Sequence[Variant], quick: bool) -> Table:
    """Coverage of Shapley values and of the best additive fits, on the models of part a."""
    models, seeds = suite(1 if quick else 36), 1 if quick else 3
    table = Table(
        f"coverage. 95 % intervals on the {len(models)} models of part a, which are not additive, {ROWS} rows\n"
        "   no target: the errors are those of an additive model with noise"
    )
    for variant in variants:
        held = []
        for model in models:
            shapley, nearest = leaf_shapley(model), leaf_additive(model)
            sums = model.structure.sums(shapley, 0)
            truths = (
                (part_shapley(model), shapley),
                (part_additive(model), nearest),
                (sums, shapley),
            )
            runs = []
            for seed in range(seeds):
                masker = c2fa.maskers.Array(model.structure)
                e = variant.explain(model, masker, np.ones(model.structure.leaves), budget=ROWS, seed=seed)
                runs.append([_held(e, truth) for truth in truths])
            held.append(runs)
        found = np.array(held)  # models, seeds, truths, levels
        table.rows.append(
            {
                "method": variant.label,
                "leaves: Shapley": Estimate.of(found[:, :, 0, 1]),
                "leaves: additive fit": Estimate.of(found[:, :, 1, 1]),
                "parts: Shapley of the parts": Estimate.of(found[:, :, 0, 0]),
                "parts: additive fit": Estimate.of(found[:, :, 1, 0]),
                "parts: sums of leaves' Shapley": Estimate.of(found[:, :, 2, 0]),
            }
        )
    return table


def _held(e: c2fa.Explanation, truth: tuple[Floats, ...]) -> tuple[float, ...]:
    """The share of intervals that hold the truth, for each level."""
    assert e.stderr is not None
    return tuple(coverage(*level) for level in zip(e.values, e.stderr, truth, strict=True))


def _means(groups: Sequence[Floats]) -> str:
    return ", ".join(f"{g.mean():.3f}" if len(g) else "–" for g in groups)

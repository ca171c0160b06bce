"""Part a: how near 200 rows bring leaves and parts to Shapley values, beside other libraries.

Leaves are compared with the leaves' Shapley values. Parts have two truths, and which one is meant matters: the Shapley
values of the game whose players are the parts ("part game"), which is what masks of whole parts measure and what the
target is about; and the sums of the leaves' Shapley values ("part sums"). Where leaves of different parts work together
the two differ, and no method can be right about both.

Every row counts, the prediction's too. Libraries without levels spend all rows on the leaves, and their parts are sums.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from benchmarks.queries.family import Floats, Saturating, leaf_shapley, part_shapley, suite
from benchmarks.queries.tables import Cell, Estimate, Table, Target, interval, left_out, resampled
from benchmarks.queries.variants import LIME, LIME_PACKAGE, VARIANTS, Variant, usable
from experiments.harness.queries_needed import crossing

import c2fa

ROWS = 200
BUDGETS = (50, 100, 150, 200, 300, 400)
SHOWN = (50, 100, 200, 400)
REACH = (150, 200)  # what LIME reaches with so many rows
LEAF, PART = Target(least=0.90), Target(least=0.99)
SCORES = ("leaf", "part game", "part sums", "rows")

Scores = dict[tuple[str, int], Floats]
"""(models, seeds, scores) of a method with a budget."""


def correlation(a: Floats, b: Floats) -> float:
    """Pearson's; 0 where either does not vary."""
    a, b = a - a.mean(), b - b.mean()
    norm = np.sqrt((a @ a) * (b @ b))
    return float(a @ b / norm) if norm > 0 else 0.0


def score(variant: Variant, model: Saturating, rows: int, seed: int) -> list[float]:
    """The correlations of one explanation with the truth, and the rows that it used."""
    structure = model.structure
    leaf, part = leaf_shapley(model), part_shapley(model)
    e = variant.explain(model, c2fa.maskers.Array(structure), np.ones(structure.leaves), budget=rows, seed=seed)
    if e.queries > rows:
        raise AssertionError(f"{variant.label} used {e.queries} rows of a budget of {rows}")
    return [
        correlation(e.low, leaf),
        correlation(e.high, part),
        correlation(e.high, structure.sums(leaf, 0)),
        float(e.queries),
    ]


def run(variants: Sequence[Variant], models: Sequence[Saturating], seeds: int, budgets: Sequence[int]) -> Scores:
    """Every method on every model: main ones with all budgets, others with ``ROWS``."""
    return {
        # Every model has masks of its own: the seed tells them apart, for the input is the same.
        (variant.label, rows): np.array(
            [[score(variant, m, rows, seeds * k + s) for s in range(seeds)] for k, m in enumerate(models)]
        )
        for variant in variants
        for rows in budgets
        if rows == ROWS or variant.main
    }


def tables(quick: bool = False) -> list[Table]:
    """Run it and make its tables."""
    variants, notes = usable(VARIANTS)
    models, seeds = suite(1 if quick else 36), 2 if quick else 3
    budgets = (100, *REACH) if quick else BUDGETS
    scores = run(variants, models, seeds, budgets)
    labels = [variant.label for variant in variants]
    return [
        at_rows(scores, labels, len(models), seeds, left_out(notes)),
        by_budget(scores, labels, "leaf"),
        by_budget(scores, labels, "part game"),
        needed(scores, labels),
    ]


def at_rows(scores: Scores, labels: Sequence[str], models: int, seeds: int, notes: Sequence[str] = ()) -> Table:
    """The table of all methods at ``ROWS``."""
    table = Table(
        f"a. Correlation with Shapley values: 5 parts of 20 leaves, {ROWS} rows, {models} models, {seeds} seeds\n"
        f"   target: leaf {LEAF}, part game {PART}; mean [95 % interval over models] ± sd over seeds",
        notes=list(notes),
    )
    for label in labels:
        found = {name: scores[label, ROWS][:, :, k] for k, name in enumerate(SCORES)}
        leaf, part, sums = (Estimate.of(found[name]) for name in SCORES[:3])
        table.rows.append(
            {
                "method": label,
                "leaf": leaf,
                "leaf target": LEAF.verdict(leaf),
                "in runs": f"{(found['leaf'] >= LEAF.least).mean():.0%}",
                "part game": part,
                "part target": PART.verdict(part),
                "in runs ": f"{(found['part game'] >= PART.least).mean():.0%}",
                "part sums": sums,
                "rows used": f"{found['rows'].mean():.0f}",
            }
        )
    return table


def by_budget(scores: Scores, labels: Sequence[str], name: str) -> Table:
    """One score over the budgets, for the methods that were run with all of them."""
    table = Table(f"a. The same over the budget: {name}")
    budgets = sorted({rows for _, rows in scores if rows in SHOWN})
    for label in labels:
        if all((label, rows) in scores for rows in budgets):
            cells = {f"{rows} rows": Estimate.of(scores[label, rows][:, :, SCORES.index(name)]) for rows in budgets}
            table.rows.append({"method": label, **cells})
    return table


def needed(scores: Scores, labels: Sequence[str]) -> Table:
    """How many rows each method needs to be as good as LIME with so many rows: means joined by lines."""
    table = Table("a. Rows needed to reach what LIME reaches [95 % interval over models]")
    cells: dict[str, dict[str, Cell]] = {}
    for name, reference in (("leaf", LIME.label), ("leaf", LIME_PACKAGE.label), ("part game", LIME.label)):
        for at in REACH:
            if (reference, at) not in scores:
                table.notes.append(f"{reference} was not run with {at} rows")
                continue
            goal = scores[reference, at][:, :, SCORES.index(name)].mean(axis=1)
            for label, said in _needed(scores, labels, name, reference, goal).items():
                cells.setdefault(label, {})[f"{name} of {reference} at {at} ({goal.mean():.3f})"] = said
    table.rows = [{"method": label, **found} for label, found in cells.items()]
    return table


def _needed(scores: Scores, labels: Sequence[str], name: str, reference: str, goal: Floats) -> dict[str, str]:
    """In words, for each method that was run with the reference's budgets: the rows at which it reaches a goal."""
    k, budgets = SCORES.index(name), sorted({rows for label, rows in scores if label == reference})
    draws, found = resampled(len(goal)), {}
    for label in labels:
        if all((label, rows) in scores for rows in budgets):
            curve = np.stack([scores[label, rows][:, :, k].mean(axis=1) for rows in budgets], axis=1)
            middle = float(crossing(budgets, curve.mean(axis=0)[None], goal.mean()[None])[0])
            low, high = interval(crossing(budgets, draws @ curve, draws @ goal))
            words = [_words(rows, budgets) for rows in (middle, low, high)]
            found[label] = words[0] if len(set(words)) == 1 else f"{words[0]} [{words[1]}, {words[2]}]"
    return found


def _words(rows: float, budgets: Sequence[int]) -> str:
    if rows == 0:
        return f"≤ {budgets[0]}"
    return f"> {budgets[-1]}" if not np.isfinite(rows) else f"{rows:.0f}"

"""Parts images and text: the same questions of fine-tuned networks, from files of results.

``queries.parquet`` holds a row for each method, N_H, N_L, seed and input, with a column for each score. Ours is judged
with N_H = 20 and N_L = 50 against others with N_L = 300. LIME is judged both as the paper prints it and with an
intercept, and the better of the two, score by score, is the one to beat. A gain is a difference turned so that more is
better; it is paired by inputs, each averaged over seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from benchmarks.queries.tables import Cell, Estimate, Table, Target
from experiments.harness.queries_needed import AT, needed
from experiments.harness.reading import FOLDER, HIGHER_IS_BETTER, NAMES, Domain, Floats, Gap, gap

from c2fa.evaluation import bootstrap

N_H, N_L, MANY = 20, 50, 300
LIMES = ("LIME", "LIME intercept")
MILLI = ("MILLI",)
OURS = ("Owen", "C2FA")
DEFAULT, JOINT, ROUGH = "Owen", "C2FA joint", "Owen, not smoothed"
"""What ``Explainer`` does by itself, what it did before, and what it does without neighbours."""
EXACT = "ndcg of exact parts"
NO_WORSE = Target(least=0.0)

# The score, whom to beat at N_L = 300, and by how much.
Beat = tuple[str, Sequence[str], Target]
IMAGES: Sequence[Beat] = (
    ("auroc", LIMES, Target(least=0.10)),
    ("auroc-within", LIMES, NO_WORSE),
    ("deletion of leaves", LIMES, NO_WORSE),
)
TEXT: Sequence[Beat] = (
    ("deletion of leaves", LIMES, NO_WORSE),
    ("deletion of leaves", MILLI, NO_WORSE),
    ("deletion of parts", LIMES, NO_WORSE),
    ("deletion of parts", MILLI, NO_WORSE),
)
AGREE = Target(least=0.9)  # MIHL of images
AS_EXACT = Target(least=-0.01)  # NDCG of images, against that of exact Shapley values
SCORES: Mapping[str, Sequence[str]] = {
    "images": ("auroc", "auroc-within", "deletion of leaves", "ndcg", "mihl"),
    "text": ("deletion of leaves", "deletion of parts", "mihl"),
}
BESIDE = (
    *("auroc", "auroc-within", "ndcg", "mihl", "held-out correlation"),
    *("deletion of leaves", "insertion of leaves", "deletion of parts", "insertion of parts"),
)
NEEDED: Mapping[str, Sequence[str]] = {
    "images": ("auroc", "auroc-within", "deletion of leaves"),
    "text": ("deletion of leaves", "deletion of parts"),
}


def tables(name: str, folder: Path | None = None) -> list[Table]:
    """The tables of an experiment, or a sentence that says how to make its file."""
    path = (FOLDER if folder is None else Path(folder)) / name / "queries.parquet"
    if not path.exists():
        said = (
            f"{path} is not there; 'python -m experiments {name} --scale paper --queries' makes it, on a "
            "machine with a GPU and with the trained network."
        )
        return [Table(f"{name}. Not run: {said}")]
    import pandas as pd

    return judged(Domain(name, pd.read_parquet(path)))


def judged(d: Domain) -> list[Table]:
    """All tables of a domain."""
    ours = [label for label in d.labels if label.startswith(OURS) and d.has(SCORES[d.name][0], label, N_H, N_L)]
    if not ours:
        names = " or ".join(OURS)
        return [
            Table(f"{d.name}. Not judged: no method that begins with {names} was run with N_H = {N_H}, N_L = {N_L}")
        ]
    found = [overview(d, ours), targets(d, ours, IMAGES if d.name == "images" else TEXT)]
    found += [beside(d, other) for other in (JOINT, ROUGH) if {DEFAULT, other} <= set(d.labels)]
    return [*found, *(table for score in NEEDED[d.name] if (table := rows_needed(d, score)).rows)]


def estimate(d: Domain, score: str, label: str, n_l: int) -> Estimate:
    """A mean over inputs, its interval, and the standard deviation over seeds."""
    inputs = d.inputs(score, label, N_H, n_l)
    mean, spread = d.mean(score, label, N_H, n_l)
    low, high = bootstrap(inputs[np.isfinite(inputs)])
    return Estimate(mean, low, high, spread)


def overview(d: Domain, ours: Sequence[str]) -> Table:
    """Everybody's scores, ours at the small budget, the others at both."""
    inputs, seeds = d.frame["input"].nunique(), d.frame["seed"].nunique()
    table = Table(
        f"{d.name}. {inputs} inputs, {seeds} seeds, N_H = {N_H}: mean [95 % interval over inputs] ± sd over seeds"
    )
    others = [label for label in d.labels if label not in ours]
    for label, n_l in [*((label, N_L) for label in ours), *((label, n) for label in others for n in (N_L, MANY))]:
        scores = [score for score in SCORES[d.name] if d.has(score, label, N_H, n_l)]
        if scores:
            cells = {NAMES[score]: estimate(d, score, label, n_l) for score in scores}
            table.rows.append({"method": shown(label), "N_L": n_l, **cells})
    if EXACT in d.frame:
        exact = exact_ndcg(d)
        table.rows.append({"method": "exact Shapley values of the parts", NAMES["ndcg"]: Estimate.of(exact)})
    return table


def shown(label: str) -> str:
    """A method's name, with a word at that of the default."""
    return f"{label} (default)" if label == DEFAULT else label


def exact_ndcg(d: Domain) -> Floats:
    """NDCG of the parts' exact Shapley values for each input: it is the same whichever method's row it is in."""
    found: Floats = d.frame.groupby("input")[EXACT].mean().to_numpy(dtype=np.float64)
    return found


def targets(d: Domain, ours: Sequence[str], beats: Sequence[Beat]) -> Table:
    """Each of ours against each target."""
    table = Table(
        f"{d.name}. Ours with N_L = {N_L} against others with N_L = {MANY}: the gain over the best of them [95 %]"
    )
    for score, rivals, target in beats:
        there = [label for label in rivals if d.has(score, label, N_H, MANY)]
        if not there:
            table.notes.append(f"{NAMES[score]}: none of {', '.join(rivals)} was run with N_L = {MANY}")
            continue
        rival = d.best(score, there, N_H, MANY)
        theirs = ", ".join(f"{label} {d.mean(score, label, N_H, MANY)[0]:.3f}" for label in there)
        for label in ours:
            between = d.gap(score, label, rival, N_H, N_L, other_n_l=MANY)
            mean = d.mean(score, label, N_H, N_L)[0]
            table.rows.append(_line(shown(label), NAMES[score], f"{mean:.3f}", theirs, _gain(between), target))
    if d.name == "images":
        for label in ours:
            found = estimate(d, "mihl", label, N_L)
            table.rows.append(_line(shown(label), NAMES["mihl"], f"{found.mean:.3f}", "", found, AGREE))
        for label in ours if EXACT in d.frame else ():
            exact = exact_ndcg(d)
            between = gap(d.inputs("ndcg", label, N_H, N_L) - exact, HIGHER_IS_BETTER["ndcg"])
            mean = d.mean("ndcg", label, N_H, N_L)[0]
            theirs = f"exact Shapley values {np.nanmean(exact):.3f}"
            table.rows.append(_line(shown(label), NAMES["ndcg"], f"{mean:.3f}", theirs, _gain(between), AS_EXACT))
    return table


def beside(d: Domain, other: str) -> Table:
    """The default's scores with every N_L, and its gain over another method with as many."""
    budgets = sorted(int(n) for n in d.frame["N_L"].unique())
    table = Table(f"{d.name}. {DEFAULT}, and its gain over '{other}' with the same N_L, N_H = {N_H} [95 %]")
    for score in BESIDE:
        there = [n for n in budgets if d.has(score, DEFAULT, N_H, n) and d.has(score, other, N_H, n)]
        if there:
            cells = {
                f"N_L = {n}": f"{d.mean(score, DEFAULT, N_H, n)[0]:.3f}, {_gain(d.gap(score, DEFAULT, other, N_H, n))}"
                for n in there
            }
            table.rows.append({"score": NAMES[score], **cells})
    return table


def _line(label: str, score: str, mean: str, theirs: str, found: Estimate, target: Target) -> Mapping[str, Cell]:
    return {
        "method": label,
        "score": score,
        "ours": mean,
        "others": theirs,
        "gain": found,
        "target": str(target),
        "verdict": target.verdict(found),
    }


def _gain(between: Gap) -> Estimate:
    """A difference turned so that more is better."""
    ends = (between.low, between.high) if between.higher_is_better else (-between.high, -between.low)
    return Estimate(between.gain, *ends)


def rows_needed(d: Domain, score: str) -> Table:
    """How many leaf questions each method needs to reach what LIME reaches with N_L = 150."""
    table = Table(f"{d.name}. Leaf questions needed to reach LIME at N_L = {AT}, N_H = {N_H}: {NAMES[score]}")
    by_label: dict[str, dict[str, Cell]] = {}
    for reference in LIMES:
        for one in needed(d, score, reference, N_H):
            said = f"{one.words} [{one.interval}]" if one.interval else one.words
            by_label.setdefault(one.method, {})[f"{reference} ({one.target:.3f})"] = said
    table.rows = [{"method": shown(label), **cells} for label, cells in by_label.items()]
    return table

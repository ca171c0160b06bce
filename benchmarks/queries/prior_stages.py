"""Part stages: whether learning that goes on pays, what a prior still lacks, and how many rows sentences need.

The model is the classifier that comes with the package, so that a machine without a GPU can run it; reviews, masks and
scores are those of part prior. The first reviews to learn from have 20 rows for sentences and 150 for words; in stages
the others have ``AFTER`` rows and the prior of the stage before, and teach what they say without it.

- *Words* are scored by the correlation of what is predicted for 200 fresh masks of words with what the model says.
- *Sentences* by the same for masks of sentences: all of them, or 256.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from benchmarks.queries.family import Floats
from benchmarks.queries.prior_answers import Answers, Key, demo
from benchmarks.queries.prior_reviews import read
from benchmarks.queries.prior_words import (
    FOLDER,
    LIME,
    PLAIN,
    Explained,
    Run,
    Setting,
    Sizes,
    fewest,
    lean,
    learn,
    pool,
)
from benchmarks.queries.stopping import DATA
from benchmarks.queries.tables import Cell, Estimate, Table, Target

import c2fa

STAGES, AFTER = (50, 200, 1000), 50
BUDGETS, OF_LIME = (25, 50, 100, 300), 300
KEPT = Target(least=-0.005)


def tables(
    quick: bool = False,
    data: Path | None = None,
    folder: Path | None = None,
    workers: int | None = None,
    inputs: str = "test",
) -> list[Table]:
    """Run it and make its tables."""
    folder = FOLDER if folder is None else folder
    stages, most = ((6, 12, 18), 4) if quick else (STAGES, 10_000)
    try:
        reviews = read(folder, DATA if data is None else data)
    except FileNotFoundError as error:
        return [Table(f"stages. Not run: {error}")]
    with pool(workers) as each, tempfile.TemporaryDirectory() as scratch:
        answers = Answers((Path(scratch) if quick else folder) / "demo.npz", demo(reviews, each))
        run = Run(Sizes(inputs=most), reviews, answers, answers, each, Path(scratch), inputs)
        worth = learned(run, stages)
        return [table for method in ("owen", "c2fa") for table in judged(run, stages, method, worth)]


def learned(run: Run, stages: Sequence[int]) -> dict[str, float]:
    """Learn a prior of each number of reviews, with all their rows and in stages; what each is worth."""
    keys = [("learn", k) for k in range(stages[-1])]
    full = [e for [e] in run.explained(keys, [Setting("full", run.sizes.full)], whole=True)]
    worth = {f"{n}": _learn(run, full[:n], f"{n}") for n in stages}
    told = full[: stages[0]]
    for before, n in pairwise(stages):
        few = Setting("few", AFTER, run.path(f"{before}" if before == stages[0] else _staged(before)))
        told += [e for [e] in run.explained(keys[before:n], [few], whole=True)]
        worth[_staged(n)] = _learn(run, told, _staged(n))
    return worth


def _staged(count: int) -> str:
    return f"{count} in stages"


def _learn(run: Run, told: list[c2fa.Explanation], label: str) -> float:
    path = run.folder / "told.pickle"
    path.write_bytes(pickle.dumps(told))
    _, worth = learn(str(path), range(len(told)), "", run.path(label))
    return worth["positive"]


def judged(run: Run, stages: Sequence[int], method: str, worth: dict[str, float]) -> list[Table]:
    """What a method makes of the priors."""
    keys = run.keys
    run.answers.ask({key: np.concatenate([run.fresh(key), *run.masks_of_squares(key)]) for key in keys})
    settings = [Setting(LIME, OF_LIME, method="lime")]
    for label, path in {PLAIN: None, **{label: run.path(label) for label in worth}}.items():
        for b in BUDGETS:
            few = max(b // 10, 2)
            settings += [Setting(label, b, path, method), Setting(lean(label), (few, b - few), path, method)]
    for setting, made in zip(settings, zip(*run.explained(keys, settings), strict=True), strict=True):
        run.found[setting.label, int(np.sum(setting.budget))] = list(made)
    words = {pair: run.correlations(*pair) for pair in run.found}
    sentences = {pair: of_sentences(run, found) for pair, found in run.found.items() if pair[0] != LIME}
    about = f"{len(keys)} {run.inputs} reviews, method={method!r}"
    curve = Table(
        f"stages. {about}: correlation with fresh answers by rows in all; gain over {stages[0]} reviews [95 %]"
    )
    for label in (PLAIN, *worth):
        row: dict[str, Cell] = {"prior of": label, "worth": f"{worth.get(label, 0.0):.2f}"}
        for b in BUDGETS:
            row[f"{b}"] = f"{words[label, b].mean():.3f}"
            row[f"gain at {b}"] = Estimate.of(words[label, b] - words[f"{stages[0]}", b])
        curve.rows.append(row)
    split = Table(f"stages. {about}: a tenth of the rows for sentences, gain over the usual split [95 %]; kept: {KEPT}")
    for label in (PLAIN, f"{stages[0]}", _staged(stages[-1])):
        for name, scores in (("words", words), ("sentences", sentences)):
            gains = {b: Estimate.of(scores[lean(label), b] - scores[label, b]) for b in BUDGETS}
            missed = [f"{b}" for b, gain in gains.items() if not KEPT.holds(gain.mean)]
            cells: dict[str, Cell] = {f"{b}": gain for b, gain in gains.items()}
            split.rows.append({"prior of": label, "of": name, **cells, "lost at": ", ".join(missed) or "none"})
    return [curve, missing(run, words, worth, about), split]


def missing(run: Run, words: dict[tuple[str, int], Floats], worth: dict[str, float], about: str) -> Table:
    """How far 100 rows are from LIME's 300, and what the rest is made of."""
    goal = words[LIME, OF_LIME]
    best = additive(run)
    table = Table(f"stages. {about}: 100 rows beside LIME's {OF_LIME} ({goal.mean():.3f}) [95 %]")
    for label in (PLAIN, *worth):
        curve = np.array([[words[label, b].mean() for b in BUDGETS]])
        [needed] = fewest(BUDGETS, curve, np.array([goal.mean()]))
        table.rows.append(
            {
                "prior of": label,
                "at 100": f"{words[label, 100].mean():.3f}",
                "over LIME": Estimate.of(words[label, 100] - goal),
                "as much with": f"> {BUDGETS[-1]}" if np.isinf(needed) else f"{needed:.0f} rows",
                "lacks of additive": f"{(best - words[label, 100]).mean():.3f}",
            }
        )
    table.notes.append(
        f"the best additive values, least squares on {run.sizes.squares[1]} rows, have {best.mean():.3f}"
    )
    return table


def additive(run: Run) -> Floats:
    """The score of least squares on many rows: what no additive explanation is far above."""
    scores = []
    for key, e in zip(run.keys, run.found[PLAIN, BUDGETS[0]], strict=True):
        masks = run.fresh(key)
        said = run.log_odds(key, masks, e.target)
        scores.append(np.corrcoef(masks @ run.squares(key, e.target).values[-1], said)[0, 1])
    return np.array(scores)


def of_sentences(run: Run, found: Sequence[Explained]) -> Floats:
    """For every input the correlation of what sentences predict for their masks with what the model says."""
    return np.array([_of_sentences(run, key, e) for key, e in zip(run.keys, found, strict=True)])


def _of_sentences(run: Run, key: Key, e: Explained) -> float:
    masks = run.masks_of_squares(key)[0]
    first = np.unique(run.review(key).structure.owners(0), return_index=True)[1]
    predicted = masks[:, first] @ e.values[0]
    return float(np.corrcoef(predicted, run.log_odds(key, masks, e.target))[0, 1]) if np.ptp(predicted) > 0 else 0.0

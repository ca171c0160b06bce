"""Part scout: the classifier that comes with the package goes ahead of a fine-tuned text network.

What the network answered for masked validation reviews is kept (``benchmarks/validation.py``), so that no network is
needed: all masks of sentences, planned masks of word pieces, which explanations are fitted to, and 300 masks of fair
coins, on which they are judged by the correlation of what they predict with what it said, in log-odds. The scout reads
the same masked reviews. The class that is explained is taken to be the review's own.

Scouts that mislead are shown too: *negated* has the opposite of every value, *shuffled* the values of other pieces of
the review, *another review* those of the one before it. How much larger what is left of large values is taken to be
(``c2fa.priors.scouting.expectation``) was chosen on the first 40 reviews; the table is of the 60 others.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from benchmarks.queries.family import Floats
from benchmarks.queries.stopping import DATA
from benchmarks.queries.tables import Estimate, Table, Target
from benchmarks.validation import Input, read

import c2fa
from c2fa.methods import METHODS
from c2fa.priors.scouting import sizes_of
from c2fa.solvers.expected import Expectation, solve_about
from c2fa.structure import BoolArray

CHOSEN_ON = 40
BUDGETS = (30, 50, 100)
AUTO = c2fa.Auto(output=0)
REACHED, NO_WORSE = Target(least=0.0), Target(least=-0.02)


class Reading:
    """A review in word pieces as the package's classifier reads it, and the sign of its class."""

    def __init__(self, pieces: tuple[str, ...], positive: bool) -> None:
        self.pieces, self.sign = pieces, 1.0 if positive else -1.0

    def says(self, model: c2fa.models.DemoSentiment, masks: BoolArray) -> Floats:
        """The log-odds of the class for masks of pieces."""
        texts = []
        for mask in masks:
            words: list[str] = []
            for piece, is_kept in zip(self.pieces, mask, strict=True):
                if is_kept and piece.startswith("##") and words:
                    words[-1] += piece[2:]
                else:
                    words.append(piece.removeprefix("##") if is_kept else model.mask_token)
            texts.append(" ".join(words))
        p = model(texts)
        log_odds: Floats = self.sign * (np.log(p[:, 1]) - np.log(p[:, 0]))
        return log_odds


def readings(folder: Path, inputs: list[Input]) -> Iterator[tuple[Input, Reading]]:
    """The reviews whose answers are kept, found again by how their pieces fall into sentences."""
    from experiments.text import reviews

    rows = list(reviews.read_reviews(folder / reviews.POLARITY))
    encoded = reviews.load_tokenizer(folder / reviews.TOKENIZER).encode_batch(
        [row["text"] for row in rows], add_special_tokens=False
    )
    known = {}
    for row, found in zip(rows, encoded, strict=True):
        owner, _ = reviews.owners(reviews.sentence_cuts(row["text"]), found.offsets)
        known.setdefault(tuple(owner.tolist()), []).append(Reading(tuple(found.tokens), bool(row["label"])))
    for one in inputs:
        alike = known.get(tuple(one.structure.owners(0).tolist()), [])
        if len(alike) == 1:
            yield one, alike[0]


def problem(x: Input, rows: int, parts: Floats, leaves: Floats) -> c2fa.Problem:
    """The joint fit of so many rows; ``parts`` and ``leaves`` are the outputs for all masks that are kept."""
    masks, _ = x.parts(True)
    fit, some = METHODS["c2fa"]().split(rows, x.structure)[0], np.flatnonzero(~masks.all(axis=1))
    some = np.append(some[:fit], masks.all(axis=1).argmax())
    planned = x.answers["hadamard"][0][: rows - len(some)]
    finest = np.vstack([planned, np.ones_like(planned[:1])])
    outputs = np.append(leaves[: len(planned)], parts[some[-1]])
    levels = ((masks[some], parts[some]), (finest, outputs))
    return c2fa.Problem(x.structure, tuple(c2fa.Level(m, y[:, None], penalty=AUTO) for m, y in levels))


def log_odds(p: Floats) -> Floats:
    p = np.clip(p, 1e-7, 1.0 - 1e-7)
    found: Floats = np.log(p) - np.log1p(-p)
    return found


def scores(x: Input, reading: Reading, before: Floats | None) -> tuple[dict[tuple[str, int], float], Floats]:
    """The correlation of every way and budget on one review, and the scout's values."""
    model, s = c2fa.models.DemoSentiment(), x.structure
    (parts, of_parts), (planned, of_planned), (fresh, of_fresh) = (
        x.parts(True),
        x.answers["hadamard"],
        x.answers["uniform"],
    )
    half = np.random.default_rng(s.leaves).random((60, s.leaves)) < 0.5
    own = np.concatenate([half, ~half, planned])
    levels = ((parts, reading.says(model, s.expand(parts, 0))), (own, reading.says(model, own)))
    alone = c2fa.Problem(s, tuple(c2fa.Level(m, y[:, None], penalty=AUTO) for m, y in levels))
    found = c2fa.solve(alone).values[-1]
    elsewhere = found[::-1] if before is None else before
    told = {
        "with a scout": found,
        "negated": -found,
        "shuffled": np.random.default_rng(s.leaves).permutation(found),
        "another review": np.resize(elsewhere, found.shape),
    }

    def correlation(values: Floats) -> float:
        predicted = fresh @ values.ravel()
        return float(np.corrcoef(predicted, log_odds(of_fresh))[0, 1]) if np.ptp(predicted) else 0.0

    table = {("the scout's own", 0): correlation(found)}
    for rows in BUDGETS:
        asked = problem(x, rows, log_odds(of_parts), log_odds(of_planned))
        table["alone", rows] = correlation(c2fa.solve(asked).values[-1])
        for label, values in told.items():
            finest = asked.levels[-1]
            expected = Expectation(values, sizes_of(values), in_units=False).scaled(
                finest.masks @ values, finest.outputs
            )
            table[label, rows] = correlation(solve_about(asked, expected, c2fa.solve).solution.values[-1])
    return table, found


def tables(quick: bool = False, data: Path | None = None) -> list[Table]:
    """Explain the reviews with every scout, and say what it gains."""
    folder = DATA if data is None else data
    try:
        reviews = list(readings(folder, read("text")[CHOSEN_ON:]))[: 3 if quick else None]
    except (FileNotFoundError, OSError) as error:
        return [Table(f"scout. Not run: {error}")]
    found, before = list[dict[tuple[str, int], float]](), None
    for x, reading in reviews:
        one, before = scores(x, reading, before)
        found.append(one)
    title = (
        f"scout. {len(found)} validation reviews that nothing was chosen on: correlation by the network's rows [95 %]"
    )
    own = Estimate.of([one["the scout's own", 0] for one in found])
    shown = Table(title, notes=[f"the scout's own values, without any row of the network: {own}"])
    labels = list(dict.fromkeys(label for label, rows in found[0] if rows))
    for label in labels:
        shown.rows.append({"": label, **{str(n): Estimate.of([one[label, n] for one in found]) for n in BUDGETS}})
    gains = Table("scout. Gain, paired [95 %]")
    few, many = BUDGETS[1:]
    half = Estimate.of([one["with a scout", few] - one["alone", many] for one in found])
    gains.rows.append(_judged(f"{few} rows and a scout over {many} rows", half, REACHED))
    for label in labels[2:]:
        for n in BUDGETS:
            cost = Estimate.of([one[label, n] - one["alone", n] for one in found])
            gains.rows.append(_judged(f"{label}, {n} rows, over none", cost, NO_WORSE))
    return [shown, gains]


def _judged(what: str, gain: Estimate, target: Target) -> dict[str, Estimate | str]:
    return {"": what, "gain": gain, "target": str(target), "verdict": target.verdict(gain)}

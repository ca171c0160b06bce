"""Part prior, tables: rows that the exact Shapley values of a gradient-boosted model take, with a prior and without.

One table is made of the 25,839 reviews of FDU14: what kind of product each is of, how it begins and ends, and ten
counts and shares, from which the model tells whether it is positive. The other is scikit-learn's diabetes, in which sex
is a category. The game is ``c2fa.maskers.Tabular``'s: a masked column has its usual value. Its Shapley values, of the
log-odds or of the predicted number, are those of all 2^columns masks. They are estimated by the default,
whose values of a table without groups they are; what is learned from are estimates of other rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.queries.family import Floats
from benchmarks.queries.prior_words import fewest, pool
from benchmarks.queries.stopping import DATA
from benchmarks.queries.tables import Cell, Table, interval, resampled

import c2fa
from c2fa.asking.masking import Masked

GOALS = (0.9, 0.95, 0.99)
BUDGETS = (8, 10, 12, 15, 20, 25, 30, 40, 60, 80, 100, 150, 200, 300)
LEARN, FULL, TEST = 300, 150, 80
WAYS: Mapping[str, Mapping[str, Any]] = {
    "the default": {},
}
NEGATIONS = frozenset(["not", "no", "never", "none", "nothing", "cannot", "without", "n't"])


@dataclass(frozen=True, eq=False)
class Boosted:
    """A table, a model of it, and the rows that are learned from and tested on."""

    name: str
    model: Callable[[Any], Floats]
    background: Any
    learn: Any
    test: Any

    @cached_property
    def masker(self) -> c2fa.maskers.Tabular:
        return c2fa.maskers.Tabular(background=self.background)


@dataclass(frozen=True, eq=False)
class Game:
    """A row under all masks of its columns: what the model says of each, once and for all.

    An explainer takes it for its model and its masker: it looks up what it would else ask.
    """

    structure: c2fa.Structure
    descriptors: Mapping[str, Any]
    outputs: Floats
    row: Any

    @classmethod
    def of(cls, boosted: Boosted, row: Any) -> Game:
        """Ask the model about all masks of a row."""
        masked = boosted.masker(row)
        columns = masked.structure.leaves
        masks = (np.arange(2**columns)[:, None] >> np.arange(columns)) % 2 == 1
        assert masked.descriptors is not None
        return cls(masked.structure, masked.descriptors(), boosted.model(masked.inputs(masks, 0)), row)

    def __call__(self, masks: Any) -> Floats:
        return self.outputs[np.asarray(masks) @ (1 << np.arange(self.structure.leaves))]

    def masked(self, row: Any) -> Masked:
        """The row, of which a mask is all that has to be known."""
        return Masked(self.structure, lambda masks, level: masks, descriptors=lambda: self.descriptors)

    def explain(self, budget: int, options: Mapping[str, Any]) -> c2fa.Explanation:
        """Explain the row."""
        return c2fa.Explainer(self, self.masked, budget=budget, progress=False, **options)(self.row)

    def scores(self, budgets: Sequence[int], options: Mapping[str, Any]) -> list[float]:
        """The correlation of its columns' values with their Shapley values, at every budget."""
        exact = shapley(self.outputs)
        return [correlation(self.explain(budget, options).low, exact) for budget in budgets]


def shapley(outputs: Floats) -> Floats:
    """Shapley values of a game, from the outputs of all sets in the order of their bits.

    >>> shapley(np.array([0.0, 1.0, 2.0, 5.0]))  # 1 and 2 alone, 5 together
    array([2., 3.])
    """
    n = len(outputs).bit_length() - 1
    sets = np.arange(len(outputs))
    size = sum((sets >> k) & 1 for k in range(n))
    chance = np.array([1.0 / (n * comb(n - 1, s)) for s in range(n)])
    found = []
    for k in range(n):
        without = sets[(sets >> k) & 1 == 0]
        found.append(chance[size[without]] @ (outputs[without | 1 << k] - outputs[without]))
    return np.array(found)


# -- two tables ------------------------------------------------------------------------------------


def facts(text: str, domain: str) -> dict[str, Any]:
    """What a row of the reviews' table says of one of them."""
    words = text.split()
    plain = [w for w in words if w[0].isalpha()]
    n = max(len(plain), 1)
    return {
        "product": domain,
        "first word": plain[0] if plain else "",
        "last mark": words[-1] if not words[-1][-1].isalnum() else "word",
        "words": float(len(plain)),
        "length of words": sum(map(len, plain)) / n,
        "different words": len(set(plain)) / n,
        "words in a sentence": n / max(sum(w in (".", "!", "?") for w in words), 1),
        "exclamations": float(sum(w.count("!") for w in words)),
        "questions": float(sum(w.count("?") for w in words)),
        "negations": sum(w in NEGATIONS or w.endswith("n't") for w in words) / n,
        "I and my": sum(w in ("i", "my", "me") for w in plain) / n,
        "you": sum(w in ("you", "your") for w in plain) / n,
        "numbers": float(sum(bool(re.match(r"\d", w)) for w in words)),
    }


def reviews(data: Path, test: int) -> Boosted:
    """The table of reviews, and a model of whether they are positive, in log-odds."""
    import pandas as pd
    from experiments.text.reviews import FDU14
    from experiments.train_demo_text import read_reviews
    from sklearn.ensemble import HistGradientBoostingClassifier

    if not (data / FDU14).exists():
        raise FileNotFoundError(f"there is no {FDU14} in {data}: give --data the folder that holds it")
    read = [r for r in read_reviews(data / FDU14) if r["text"].split()]
    frame = pd.DataFrame([facts(r["text"], r["domain"]) for r in read])
    for name in ("first word", "last mark"):  # what is rare is one category
        frequent = frame[name].value_counts().index[:20]
        frame[name] = frame[name].where(frame[name].isin(frequent), "another")
    kinds = ["product", "first word", "last mark"]
    frame[kinds] = frame[kinds].astype("category")
    label = np.array([r["label"] for r in read])
    train = np.array([r["split"] == "train" for r in read])
    rest = np.random.default_rng(0).permutation(np.flatnonzero(~train))
    model = HistGradientBoostingClassifier(categorical_features="from_dtype", random_state=0)
    model.fit(frame[train], label[train])
    right = (model.predict(frame.iloc[rest]) == label[rest]).mean()
    name = f"{len(frame):,} reviews, {frame.shape[1]} columns, {len(kinds)} of them categories; accuracy {right:.2f}"
    few = frame[train].sample(1000, random_state=0)
    tested, learned = frame.iloc[rest[:test]], frame.iloc[rest[test : test + LEARN]]
    return Boosted(name, model.decision_function, few, learned, tested)


def diabetes(test: int) -> Boosted:
    """scikit-learn's table of patients, and a model of the progress of their disease."""
    from sklearn.datasets import load_diabetes
    from sklearn.ensemble import HistGradientBoostingRegressor

    frame, target = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    frame = frame.assign(sex=frame["sex"].map({1.0: "a", 2.0: "b"}).astype("category"))
    order = np.random.default_rng(0).permutation(len(frame))
    cut = len(order) - test
    model = HistGradientBoostingRegressor(categorical_features="from_dtype", random_state=0)
    model.fit(frame.iloc[order[:cut]], target.iloc[order[:cut]])
    name = f"diabetes, {len(frame)} patients, {frame.shape[1]} columns, 1 of them a category"
    some = frame.iloc[order[:cut]]
    return Boosted(name, model.predict, some, some, frame.iloc[order[cut:]])


# -- what it takes ---------------------------------------------------------------------------------


def rows_of(frame: Any) -> list[Any]:
    """Frames of one row each."""
    return [frame.iloc[[k]] for k in range(len(frame))]


def tables(quick: bool = False, data: Path | None = None, workers: int | None = None) -> list[Table]:
    """Run it and make its tables."""
    test = 3 if quick else TEST
    found = []
    with pool(workers) as each:
        for make in (lambda: reviews(DATA if data is None else data, test), lambda: diabetes(test)):
            try:
                found.append(judged(make(), BUDGETS[::7] if quick else BUDGETS, 8 if quick else LEARN, each))
            except FileNotFoundError as error:
                found.append(Table(f"prior. Not run: {error}"))
    return found


def judged(boosted: Boosted, budgets: Sequence[int], learn: int, each: Callable[..., Any]) -> Table:
    """The correlation with exact values at every budget, and where it reaches the goal."""
    games = [Game.of(boosted, row) for row in rows_of(boosted.test)]
    others = [Game.of(boosted, row) for row in rows_of(boosted.learn)[:learn]]
    n, many = len(games), len(others)
    table = Table(
        f"prior. Tables, {boosted.name}: correlation with exact Shapley values,\n"
        f"   mean over {n} rows, by rows asked of the model; prior of {many} others × {FULL}; then rows needed [95 %]"
    )
    for way, options in WAYS.items():
        prior = c2fa.Prior.learn(each(Game.explain, others, [FULL] * many, [options] * many))
        for label, used in ((way, options), (f"{way}, with a prior", {**options, "prior": prior})):
            scores = np.array(list(each(Game.scores, games, [budgets] * n, [used] * n)))
            row: dict[str, Cell] = {"method": label}
            row |= {str(b): f"{s:.3f}" for b, s in zip(budgets, scores.mean(axis=0), strict=True)}
            for goal in GOALS:
                [needed] = fewest(budgets, scores.mean(axis=0)[None], np.array([goal]))
                lots = resampled(n)
                low, high = interval(fewest(budgets, lots @ scores, np.full(len(lots), goal)))
                row[f"r {goal}"] = f"{_rows(needed, budgets)} [{_rows(low, budgets)}, {_rows(high, budgets)}]"
            table.rows.append(row)
        table.notes.append(f"{way}: {prior}")
    return table


def _rows(number: float, budgets: Sequence[int]) -> str:
    return f"> {budgets[-1]}" if np.isinf(number) else f"≤ {budgets[0]}" if number <= budgets[0] else f"{number:.0f}"


def correlation(values: Floats, truth: Floats) -> float:
    """The correlation of a row's columns with their Shapley values; 0 where all values are the same."""
    return float(np.corrcoef(values, truth)[0, 1]) if np.ptp(values) > 0 and np.ptp(truth) > 0 else 0.0

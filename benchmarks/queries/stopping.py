"""Part until: what a stopping rule spends, beside the fixed budget that is right as often.

``until=c2fa.until.top(3)`` asks until the three most important features are settled. On each input its rows and its top
three are noted; a top three is right in so far as it agrees with the true one (thirds of 0, 1, 2 or 3 features), for a
rule with a margin up to that margin. The same method with fixed budgets gives a curve of mean agreement over rows;
where the curve first reaches the rule's agreement is the fixed budget that is right as often. The ratio of the rule's
mean rows to it is what the rule spends: 0.5 is half. Inputs are drawn anew for the interval, for rule and curve alike.

The truth is Shapley values for the synthetic models: those of part a, and others of the family whose numbers of leaves
differ, as those of texts do. For the embedded sentiment classifier it is what the same method says with a very large
budget of other masks: whether the answer is settled is what the rule judges.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.queries.family import FIRST, Floats, Saturating, leaf_shapley, part_shapley, suite
from benchmarks.queries.tables import Estimate, Table, Target, interval, left_out, resampled
from benchmarks.queries.variants import COINS, DEFAULT, JOINT, Variant, usable
from experiments.harness.queries_needed import crossing

import c2fa

HALF = Target(most=0.5)
VARIANTS = (DEFAULT, JOINT, COINS)
RULES = (
    ("top(3)", c2fa.until.top(3)),
    ("top(3, 0.8)", c2fa.until.top(3, 0.8)),
    ("top(3, 0.5)", c2fa.until.top(3, 0.5)),
    ("top(3, margin=0.3)", c2fa.until.top(3, margin=0.3)),
    ("top(3, level=0)", c2fa.until.top(3, level=0)),
)
"""The first is the rule as people write it, which the target is about; the others show what asking for less saves."""
K = 3
DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


@dataclass(frozen=True, eq=False)
class Case:
    """One input: its model, its masker, and for each level the truth, which may depend on the method."""

    model: Callable[[Any], Any]
    masker: Any
    x: Any
    truth: Callable[[Variant], tuple[Floats, ...]]

    def explain(self, variant: Variant, rows: int, seed: int, rule: Any = None) -> c2fa.Explanation:
        return variant.explain(self.model, self.masker, self.x, budget=rows, seed=seed, until=rule, batch_size=256)


@dataclass(frozen=True, eq=False)
class Domain:
    """Inputs of a kind, the fixed budgets to compare with, and the most that a rule may spend."""

    name: str
    cases: Sequence[Case]
    budgets: Sequence[int]
    most: int
    seeds: int


def agreement(values: Floats, truth: Floats, margin: float = 0.0, k: int = K) -> float:
    """The share of the k largest absolute values that are among the truth's k largest, or nearly, up to a margin.

    >>> agreement(np.array([3.0, -2.0, 1.0, 0.0]), np.array([0.1, 5.0, 4.0, -9.0]))
    0.6666666666666666
    >>> agreement(np.array([3.0, -2.0, 1.0, 0.0]), np.array([3.5, 5.0, 4.0, -9.0]), margin=0.2)
    1.0
    """
    found, size = np.argsort(-np.abs(values), kind="stable")[:k], np.abs(truth)
    least = np.sort(size)[-min(k, len(size))]
    return float(np.mean(size[found] * (1.0 + margin) >= least))


def measured(domain: Domain, variant: Variant, rules: Sequence[tuple[str, Any]]) -> tuple[Floats, Floats, Floats]:
    """Mean rows of fixed budgets, their agreement by each rule's measure, (rules, budgets, inputs), and the rules' own.

    The last has rows, agreement and whether it was settled for each rule and input, (rules, 3, inputs). The rows of a
    budget are fewer than the budget where masks come again.
    """

    def right(e: c2fa.Explanation, truth: tuple[Floats, ...], rule: Any) -> float:
        return agreement(e.values[rule.level], truth[rule.level], rule.margin)

    spent = np.zeros(len(domain.budgets))
    fixed = np.zeros((len(rules), len(domain.budgets), len(domain.cases)))
    ruled = np.zeros((len(rules), 3, len(domain.cases)))
    for i, case in enumerate(domain.cases):
        truth = case.truth(variant)
        for seed in range(domain.seeds):
            for b, rows in enumerate(domain.budgets):
                e = case.explain(variant, rows, seed)
                spent[b] += e.queries / (domain.seeds * len(domain.cases))
                for r, (_, rule) in enumerate(rules):
                    fixed[r, b, i] += right(e, truth, rule) / domain.seeds
            for r, (_, rule) in enumerate(rules):
                e = case.explain(variant, domain.most, seed, rule)
                found = (e.queries, right(e, truth, rule), bool(e.diagnostics.settled))
                ruled[r, :, i] += np.array(found) / domain.seeds
    return spent, fixed, ruled


def saving(budgets: Floats, fixed: Floats, rows: Floats, right: Floats) -> tuple[float, Estimate, str]:
    """The fixed budget that is right as often as a rule, and the ratio of the rule's rows to it.

    Parameters
    ----------
    budgets
        The rows of the fixed budgets, rising.
    fixed
        Agreement with each fixed budget, (budgets, inputs).
    rows, right
        The rule's rows and agreement, (inputs,).

    Where no fixed budget is right as often, the ratio to the largest is an upper bound; where the smallest is right
    more often already, that to the smallest is a lower bound. The last value says which, in words.
    """

    def ratios(weights: Floats) -> tuple[Floats, Floats]:
        at = crossing(budgets, weights @ fixed.T, weights @ right)
        return (weights @ rows) / np.clip(at, budgets[0], budgets[-1]), at

    n = len(rows)
    middle, at = ratios(np.full((1, n), 1.0 / n))
    low, high = interval(ratios(resampled(n))[0])
    bound = "at least" if at[0] == 0 else "" if np.isfinite(at[0]) else "at most"
    return float(np.clip(at[0], budgets[0], budgets[-1])), Estimate(float(middle[0]), low, high, digits=2), bound


def tables(quick: bool = False, data: Path | None = None) -> list[Table]:
    """Run it and make its tables."""
    variants, notes = usable(VARIANTS[:1] if quick else VARIANTS)
    found = []
    for domain in (synthetic(quick), lengths(quick), sentiment(quick, data)):
        table = Table(
            f"until. Rows of a rule against a fixed budget that is right as often: {domain.name},\n"
            f"   at most {domain.most} rows, {domain.seeds} seeds; target: ratio {HALF}",
            notes=left_out(notes),
        )
        for variant in variants:
            spent, fixed, ruled = measured(domain, variant, RULES)
            for (name, _), curve, (rows, right, settled) in zip(RULES, fixed, ruled, strict=True):
                at, ratio, bound = saving(spent, curve, rows, right)
                table.rows.append(
                    {
                        "method": variant.label,
                        "until": name,
                        "rows": Estimate.of(rows, digits=0),
                        "settled": f"{settled.mean():.0%}",
                        "agreement": Estimate.of(right, digits=2),
                        "fixed budget": f"{at:.0f}",
                        "ratio": ratio,
                        "bound": bound,
                        "target": HALF.verdict(ratio),
                    }
                )
            curve = ", ".join(f"{n:.0f}: {a:.2f}" for n, a in zip(spent, fixed[0].mean(axis=1), strict=True))
            table.notes.append(f"leaves' agreement with fixed budgets, {variant.label}: {curve}")
        found.append(table)
    return found


def shapley_case(model: Saturating) -> Case:
    """A synthetic model with its Shapley values."""
    s = model.structure
    return Case(model, c2fa.maskers.Array(s), np.ones(s.leaves), lambda v: (part_shapley(model), leaf_shapley(model)))


def synthetic(quick: bool) -> Domain:
    """The models of part a."""
    models = suite(2 if quick else 18)
    budgets = (50, 200) if quick else (30, 50, 75, 100, 150, 200, 300, 400, 600)
    name = f"{len(models)} models of 5 × 20 leaves"
    return Domain(name, [shapley_case(m) for m in models], budgets, budgets[-1], 1 if quick else 2)


def lengths(quick: bool) -> Domain:
    """The same family with parts of 2 to 40 leaves: a fixed budget must do for short inputs and long ones."""
    sizes = (2, 6) if quick else (2, 6, 18, 40)
    count = 2 if quick else 16
    models = suite(count, sizes, FIRST + 1000)
    budgets = (50, 200) if quick else (20, 30, 50, 75, 100, 150, 200, 300, 400, 600)
    name = f"{count} models of {5 * sizes[0]} to {5 * sizes[-1]} leaves"
    return Domain(name, [shapley_case(m) for m in models], budgets, budgets[-1], 1 if quick else 2)


# ------------------------------------------------------------------------------------------------ texts


class Remembering:
    """A model that answers a text it has met from memory, so that larger budgets pay for their new rows alone."""

    def __init__(self, model: Any) -> None:
        self.model, self.known, self.output_names = model, {}, model.output_names

    def __call__(self, texts: Sequence[str]) -> Floats:
        new = [text for text in dict.fromkeys(texts) if text not in self.known]
        if new:
            self.known.update(zip(new, self.model(new), strict=True))
        return np.stack([self.known[text] for text in texts])


def sentiment(quick: bool, data: Path | None = None) -> Domain:
    """Short reviews with the embedded classifier: real ones where they are at hand."""
    count, large = (2, 300) if quick else (16, 800)
    real = [] if quick else validation_reviews(DATA if data is None else data, count)
    budgets = (30, 100) if quick else (20, 30, 50, 75, 100, 150, 200, 300)
    masker = c2fa.maskers.Text()
    network = c2fa.models.DemoSentiment()

    def case(text: str) -> Case:
        model = Remembering(network)

        def truth(variant: Variant) -> tuple[Floats, ...]:
            return variant.explain(model, masker, text, budget=large, seed=1_000_003, batch_size=256).values

        return Case(model, masker, text, truth)

    texts = real or TEXTS[:count]
    name = f"{len(texts)} {'validation' if real else 'built-in'} reviews, embedded classifier"
    return Domain(name, [case(text) for text in texts], budgets, budgets[-1], 1 if quick else 2)


def validation_reviews(folder: Path, count: int) -> list[str]:
    """Short reviews of several sentences among those that the text experiment keeps for validation; none without it."""
    from experiments.text import reviews

    if not all((folder / name).exists() for name in (reviews.POLARITY, reviews.TOKENIZER)):
        return []
    texts = [row["text"] for row in reviews.read_reviews(folder / reviews.POLARITY)]
    pieces = reviews.load_tokenizer(folder / reviews.TOKENIZER).encode_batch(texts, add_special_tokens=False)
    sentences = [
        len(reviews.owners(reviews.sentence_cuts(t), p.offsets)[1]) for t, p in zip(texts, pieces, strict=True)
    ]
    _, validation, _ = reviews.draw(texts, np.array(sentences), np.array([len(p.ids) for p in pieces]))
    masker = c2fa.maskers.Text()
    short = (texts[i] for i in validation if len(texts[i].split()) <= 40)
    return list(itertools.islice((t for t in short if 3 <= masker(t).structure.widths[0] <= 6), count))


TEXTS = [
    "The parcel was late. The box had a dent. The kettle inside is lovely and boils fast.",
    "I wanted to like this novel. The first half drags. The ending saved it for me.",
    "Great sound for the price. The cable is short. I would buy it again.",
    "It stopped working after two weeks. Support never answered. Avoid this seller.",
    "My son loves the puzzle. The pieces are sturdy. One was missing though.",
    "The battery lasts a day. The screen is dim. Not what I expected at all.",
    "A charming film with a weak script. The actors are superb. I smiled throughout.",
    "The shoes look nice. They hurt after an hour. I returned them.",
    "Easy to assemble. Feels solid. The instructions were a joke.",
    "This cookbook is a treasure. Every recipe worked. The photographs are gorgeous.",
    "Cheap plastic. It broke on the first day. What a waste of money.",
    "The lamp is bright and pretty. The switch feels flimsy. Still a fair deal.",
    "Arrived quickly. Wrong colour. They refunded me without fuss.",
    "The story is predictable. The songs are wonderful. My daughter watched it twice.",
    "I have owned three of these. Each one failed. I am done with this brand.",
    "Comfortable chair. The fabric stains easily. My back thanks me anyway.",
    "The camera takes sharp pictures. Video is shaky. Overall a happy purchase.",
    "Dull and far too long. I fell asleep. My wife rather enjoyed it.",
    "The knife is sharp. The handle came loose. I glued it and it is fine now.",
    "Absolutely perfect. It fits well. It looks better than in the picture.",
    "The tent leaked. We were soaked. The children thought it was an adventure.",
    "Good tea with a fine smell. The tin was open. I drank it all the same.",
    "The game crashes constantly. The graphics are impressive. I want my money back.",
    "Soft towels at first. They shed everywhere. After one wash they were ruined.",
]
"""For clones without the reviews: made up, three sentences each."""

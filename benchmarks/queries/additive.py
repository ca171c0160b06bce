"""Part additive: models that are exactly or nearly additive, and whether intervals hold the truth in every regime.

A linear model explained on its logit is what people try first, and where a wrong choice of strengths shows most. The
grid has models of 60 to 300 leaves with half to 1.6 times as many rows, dense, sparse and nearly additive ones, in
three trees each. A cell is the mean over models with masks of their own; it is compared with the better of fixed
strengths (``penalty=None``) and LIME at the same number of rows.

The estimator was chosen on other models (seeds below ``FIRST``).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from benchmarks.queries.family import Floats, leaf_additive, leaf_shapley, part_additive, part_shapley, suite
from benchmarks.queries.stopping import DATA
from benchmarks.queries.synthetic import correlation
from benchmarks.queries.tables import Cell, Estimate, Table, Target

import c2fa
from c2fa.metrics import coverage

FIRST = 70_000
LEAVES = (60, 100, 150, 200, 300)
RATIOS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.4, 1.6)
KINDS = ("dense", "sparse", "nearly additive")
TREES: Mapping[str, Callable[[int], int]] = {
    "5 parts": lambda leaves: 5,
    "parts of 20": lambda leaves: leaves // 20,
    "parts of 10": lambda leaves: leaves // 10,
}
METHODS: Mapping[str, Mapping[str, object]] = {"default": {}, "fixed": {"penalty": None}, "LIME": {"method": "lime"}}
BEHIND, FAR = 0.03, 0.1
FEW, NONE, FALL = Target(most=0.03), Target(most=0), Target(most=0.02)
HELD = Target(least=0.90, most=0.99)
REVIEW = Target(least=0.97)
REGIMES = {"fewer rows than leaves": 0.6, "about as many": 1.0, "more": 2.0}


@dataclass(frozen=True, eq=False)
class Additive:
    """A linear model, with interactions or noise beside it, and its best additive description."""

    weights: Floats
    pairs: np.ndarray
    strengths: Floats
    noise: float
    structure: c2fa.Structure
    seed: int

    @classmethod
    def draw(cls, kind: str, leaves: int, parts: int, seed: int) -> Additive:
        """Draw a model of one of the kinds, or a "noisy" one."""
        rng = np.random.default_rng((seed, leaves, parts))
        weights = rng.normal(size=leaves)
        if kind == "sparse":
            weights *= rng.random(leaves) < 0.15
        pairs = rng.integers(leaves, size=(leaves, 2))
        strengths = 1e-3 * rng.normal(size=leaves) * (kind == "nearly additive")
        noise = np.linalg.norm(weights) / 4 * (kind == "noisy")
        owner = np.arange(leaves) * parts // leaves
        return cls(weights, pairs, strengths, float(noise), c2fa.Structure.from_groups(owner), seed)

    def __call__(self, masks: Floats) -> Floats:
        z = np.asarray(masks, dtype=np.float64)
        y = z @ self.weights + (z[:, self.pairs[:, 0]] * z[:, self.pairs[:, 1]]) @ self.strengths
        if self.noise:
            y = y + self.noise * np.random.default_rng((self.seed, len(z))).normal(size=len(z))
        return y

    @property
    def truth(self) -> Floats:
        """A pair adds half its strength to each of its leaves."""
        found = self.weights.copy()
        for end in self.pairs.T:
            np.add.at(found, end, self.strengths / 2)
        return found

    def explain(self, rows: int, **options: object) -> c2fa.Explanation:
        masker = c2fa.maskers.Array(self.structure)
        explainer = c2fa.Explainer(self, masker, budget=rows, seed=self.seed, progress=False, **options)
        return explainer(np.ones(len(self.weights)))


def tables(quick: bool = False, data: Path | None = None) -> list[Table]:
    """Run it and make its tables."""
    leaves, ratios, models = (LEAVES[:1], RATIOS[::5], 1) if quick else (LEAVES, RATIOS, 4)
    cells = grid(leaves, ratios, models)
    return [
        verdicts(cells),
        by_ratio(cells),
        reviews(2 if quick else 13, data),
        held_additive(1 if quick else 12),
        held_saturating(1 if quick else 36),
    ]


Key = tuple[str, int, str, float]
"""Kind, leaves, tree and ratio of rows to leaves."""


def grid(leaves: Sequence[int], ratios: Sequence[float], models: int) -> dict[Key, Floats]:
    """For each cell the mean correlation of each of the methods with the truth."""
    found = {}
    for kind, width, tree, ratio in itertools.product(KINDS, leaves, TREES, ratios):
        scores = []
        for seed in range(FIRST, FIRST + models):
            model = Additive.draw(kind, width, TREES[tree](width), seed)
            runs = [model.explain(round(ratio * width), **options) for options in METHODS.values()]
            scores.append([correlation(e.low, model.truth) for e in runs])
        found[kind, width, tree, ratio] = np.mean(scores, axis=0)
    return found


def verdicts(cells: Mapping[Key, Floats]) -> Table:
    """How many cells are behind, by how much, and whether more rows ever make it worse."""
    behind = {key: max(scores[1:]) - scores[0] for key, scores in cells.items()}
    worst = max(behind, key=lambda key: behind[key])
    share = sum(gap > BEHIND for gap in behind.values()) / len(behind)
    far = sum(gap > FAR for gap in behind.values())
    fall = max(_falls(cells), default=0.0)
    table = Table(
        f"additive. {len(cells)} cells: correlation of leaves with the truth, against fixed strengths and LIME"
    )
    for what, value, shown, target in (
        (f"cells more than {BEHIND} behind the better of the two", share, f"{share:.1%}", FEW),
        (f"cells more than {FAR} behind", far, str(far), NONE),
        ("largest fall of the mean as rows grow", fall, f"{fall:.3f}", FALL),
    ):
        table.rows.append({"": what, "found": shown, "target": str(target), "verdict": _verdict(target, value)})
    table.notes.append(f"furthest behind: {behind[worst]:.3f}, {worst}")
    return table


def _verdict(target: Target, value: float) -> str:
    return "reached" if target.holds(value) else "missed"


def _falls(cells: Mapping[Key, Floats]) -> Iterator[float]:
    """By how much the default's mean falls from one number of rows to the next, for each kind and size."""
    ratios = sorted({key[3] for key in cells})
    for kind, width in sorted({key[:2] for key in cells}):
        curve = [np.mean([cells[kind, width, tree, ratio][0] for tree in TREES]) for ratio in ratios]
        yield from (float(a - b) for a, b in itertools.pairwise(curve))


def by_ratio(cells: Mapping[Key, Floats]) -> Table:
    """The means over sizes and trees."""
    table = Table("additive. The same by rows a leaf: default / fixed / LIME")
    for ratio in sorted({key[3] for key in cells}):
        row: dict[str, Cell] = {"rows a leaf": ratio}
        for kind in KINDS:
            mean = np.mean([scores for key, scores in cells.items() if key[0] == kind and key[3] == ratio], axis=0)
            row[kind] = " / ".join(f"{score:.3f}" for score in mean)
        table.rows.append(row)
    return table


def reviews(count: int, data: Path | None = None) -> Table:
    """A linear model of real reviews, explained on its log-odds with 200 rows."""
    table = Table(f"additive. TF-IDF and logistic regression on reviews of 140–200 words, 200 rows; target {REVIEW}")
    path = (DATA if data is None else data) / "amazon_fdu14_clean.jsonl.xz"
    if not path.exists():
        table.notes.append(f"not run: {path} is not there")
        return table
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    train, texts = _reviews(path, count)
    for label, norm in (("as scikit-learn makes it", "l2"), ("not normalised: exactly additive", None)):
        model = make_pipeline(TfidfVectorizer(norm=norm, token_pattern=r"\S+"), LogisticRegression(max_iter=500))
        model.fit(*train)
        scores = np.array([_review_scores(model, text) for text in texts])
        cells = {method: Estimate.of(scores[:, k]) for k, method in enumerate(METHODS)}
        verdict = REVIEW.verdict(cells["default"]) if norm else "no target"
        table.rows.append({"model": label, **cells, "verdict": verdict})
    return table


def _reviews(path: Path, count: int) -> tuple[tuple[list[str], list[int]], list[str]]:
    """Texts and labels to train on, and the first test reviews of the right length."""
    import json
    import lzma

    with lzma.open(path, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    train = [row for row in rows if row["split"] == "train"]
    test = (row["text"] for row in rows if row["split"] == "test" and 140 <= len(row["text"].split()) <= 200)
    return ([row["text"] for row in train], [row["label"] for row in train]), list(itertools.islice(test, count))


def _review_scores(model: object, text: str) -> list[float]:
    """The correlations of the words with the additive function that is nearest to the log-odds."""
    masker = c2fa.maskers.Text(mask=None)
    masked = masker(text)
    width = masked.structure.leaves
    half = np.random.default_rng(0).random((4 * width, width)) < 0.5
    masks = np.concatenate([half, ~half])
    odds = model.decision_function(masked.inputs(masks, masked.structure.depth - 1))  # type: ignore[attr-defined]
    nearest = np.linalg.lstsq(masks - 0.5, odds, rcond=None)[0]
    runs = [
        c2fa.Explainer(model, masker, budget=200, target=1, link="logit", progress=False, **options)(text)
        for options in METHODS.values()
    ]
    return [correlation(e.low, nearest) for e in runs]


def held_additive(models: int) -> Table:
    """Coverage on additive models, exact, nearly so and noisy, in the three regimes."""
    table = Table(
        f"additive. 95 % intervals on additive models; target {HELD}; and their half width, in sds of the truth"
    )
    for kind, (regime, ratio) in itertools.product((*KINDS, "noisy"), REGIMES.items()):
        held, widths = [], []
        for width, tree in itertools.product((60, 100, 200), TREES):
            for seed in range(FIRST, FIRST + models):
                model = Additive.draw(kind, width, TREES[tree](width), seed)
                e = model.explain(round(ratio * width))
                truths = [model.structure.sums(model.truth, k) for k in (0, 1)]
                assert e.stderr is not None
                held.append([coverage(*level) for level in zip(e.values, e.stderr, truths, strict=True)])
                widths.append([1.96 * s.mean() / t.std() for s, t in zip(e.stderr, truths, strict=True)])
        table.rows.append(_held_row(kind, regime, np.array(held), np.mean(widths, axis=0)))
    table.notes.append(
        "where an exact model has more rows than leaves, all is known: intervals of no width hold it all"
    )
    return table


def held_saturating(models: int) -> Table:
    """Coverage on the models of part a, in the three regimes, of two truths."""
    table = Table(f"additive. 95 % intervals on the saturating models of part a; target {HELD}")
    for regime, ratio in REGIMES.items():
        held: dict[str, list[list[float]]] = {"best additive fit": [], "Shapley": []}
        for number, model in enumerate(suite(models)):
            masker = c2fa.maskers.Array(model.structure)
            rows = round(ratio * model.structure.leaves)
            e = c2fa.Explainer(model, masker, budget=rows, seed=number, progress=False)(np.ones(model.structure.leaves))
            assert e.stderr is not None
            truths = {
                "best additive fit": (part_additive(model), leaf_additive(model)),
                "Shapley": (part_shapley(model), leaf_shapley(model)),
            }
            for name, truth in truths.items():
                held[name].append([coverage(*level) for level in zip(e.values, e.stderr, truth, strict=True)])
        for name, shares in held.items():
            table.rows.append(_held_row(name, regime, np.array(shares)))
    return table


def _held_row(label: str, regime: str, held: Floats, widths: Floats | None = None) -> Mapping[str, Cell]:
    parts, leaves = (Estimate.of(held[:, k]) for k in (0, 1))
    row: dict[str, Cell] = {
        "": label,
        "rows": regime,
        "leaves": leaves,
        "leaves' target": HELD.verdict(leaves),
        "parts": parts,
        "parts' target": HELD.verdict(parts),
    }
    if widths is not None:
        row["width of leaves, parts"] = f"{widths[1]:.2g}, {widths[0]:.2g}"
    return row

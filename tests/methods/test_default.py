"""The default on many kinds of models: never far behind fixed strengths or LIME, with intervals that hold the truth."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import c2fa
from c2fa.metrics import coverage


@dataclass(frozen=True, eq=False)
class Parameters:
    """What a model is made of: weights, some of them, pairs that interact, and who belongs to whom."""

    dense: np.ndarray
    sparse: np.ndarray
    pairs: np.ndarray
    strengths: np.ndarray
    owner: np.ndarray
    rng: np.random.Generator

    @classmethod
    def draw(cls, seed: int, parts: int, leaves: int) -> Parameters:
        rng = np.random.default_rng((seed, parts, leaves))
        width = parts * leaves
        dense = rng.normal(size=width)
        sparse = dense * (rng.random(width) < 0.15)
        sparse[rng.integers(width)] += 1.0
        pairs = rng.integers(width, size=(2 * width, 2))
        owner = np.repeat(np.arange(parts), leaves)
        return cls(dense, sparse, pairs, rng.normal(size=2 * width), owner, rng)

    def interactions(self, z: np.ndarray) -> np.ndarray:
        return (z[:, self.pairs[:, 0]] * z[:, self.pairs[:, 1]]) @ self.strengths

    def by_part(self, z: np.ndarray, weights: np.ndarray) -> np.ndarray:
        return np.stack([z[:, self.owner == j] @ weights[self.owner == j] for j in range(self.owner[-1] + 1)], axis=1)


def _squashed(total: np.ndarray, weights: np.ndarray) -> np.ndarray:
    deviation = np.linalg.norm(weights) / 2
    return 1 / (1 + np.exp(-2.0 * (total - weights.sum() / 2) / deviation))


def _noise(p: Parameters, z: np.ndarray) -> np.ndarray:
    return p.rng.normal(size=len(z)) * np.linalg.norm(p.dense) / 4


Model = Callable[[Parameters, np.ndarray], np.ndarray]
KINDS: Mapping[str, Model] = {
    "additive": lambda p, z: z @ p.dense,
    "nearly additive": lambda p, z: z @ p.dense + 1e-3 * p.interactions(z),
    "hardly interacting": lambda p, z: z @ p.dense + 1e-2 * p.interactions(z),
    "sparse": lambda p, z: z @ p.sparse,
    "saturating": lambda p, z: _squashed(z @ p.dense, p.dense),
    "saturating and sparse": lambda p, z: _squashed(z @ p.sparse, p.sparse),
    "interacting pairs": lambda p, z: z @ p.dense + 0.3 * p.interactions(z),
    "hard labels": lambda p, z: (z @ p.dense > p.dense.sum() / 2).astype(float),
    "noisy": lambda p, z: z @ p.dense + _noise(p, z),
    "one needle": lambda p, z: z[:, len(p.dense) // 3].astype(float),
    "or of parts": lambda p, z: 1 - np.prod(1 / (1 + np.exp(4 * p.by_part(z, np.abs(p.sparse)) - 6)), axis=1),
    "largest part": lambda p, z: p.by_part(z, p.dense).max(axis=1),
    "additive over parts alone": lambda p, z: np.tanh(p.by_part(z - 0.5, p.dense)).sum(axis=1),
    "around a million": lambda p, z: 1e6 + z @ p.dense,
}
OTHERS = ({"penalty": None}, {"method": "lime"})


def correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Pearson's; 0 where either does not vary."""
    a, b = a - a.mean(), b - b.mean()
    norm = np.linalg.norm(a) * np.linalg.norm(b)
    return float(a @ b / norm) if norm > 0 else 0.0


def explained(model: Callable[[np.ndarray], np.ndarray], p: Parameters, ratio: float, seed: int, **options):
    structure = c2fa.Structure.from_groups(p.owner)
    masker, x = c2fa.maskers.Array(structure), np.ones(len(p.owner))
    budget = 1 + round(ratio * len(x))
    return c2fa.Explainer(model, masker, budget=budget, seed=seed, progress=False, **options)(x)


def nearest(model: Callable[[np.ndarray], np.ndarray], width: int) -> np.ndarray:
    """The additive function of the leaves that is nearest to a model over fair-coin masks, by least squares."""
    half = np.random.default_rng(0).random((3000, width)) < 0.5
    signs = np.concatenate([half, ~half]) - 0.5
    return np.linalg.lstsq(signs, model(signs + 0.5), rcond=None)[0]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=3, derandomize=True)
@given(seed=st.integers(0, 10**6), ratio=st.sampled_from([0.5, 0.8, 1.0, 1.2, 1.6, 2.5]))
def test_the_default_is_never_far_behind_fixed_strengths_or_lime(kind, seed, ratio):
    """On average over a few models: with so few rows a single one is a matter of luck."""
    found = []
    for k, (parts, leaves) in enumerate([(3, 20), (5, 12), (10, 10)] * 2):
        p = Parameters.draw(seed + k, parts, leaves)

        def model(z, p=p):
            return KINDS[kind](p, np.asarray(z))

        truth = nearest(model, len(p.owner))
        runs = [explained(model, p, ratio, seed + k, **options) for options in ({}, *OTHERS)]
        found.append([correlation(e.low, truth) for e in runs])
    default, fixed, lime = np.mean(found, axis=0)
    assert default > max(fixed, lime) - 0.08


@pytest.mark.parametrize(("method", "end"), [("owen", 0.99), ("c2fa", 0.999)])  # only a fit takes it to be linear
def test_more_rows_of_a_linear_model_are_never_worse(method, end):
    weights = np.random.default_rng(0).normal(size=200)
    masker = c2fa.maskers.Array(c2fa.Structure.from_groups(np.repeat(range(10), 20).tolist()))
    found = [
        np.mean(
            [
                correlation(
                    c2fa.Explainer(lambda b: b @ weights, masker, method=method, budget=rows, seed=seed)(
                        np.ones(200)
                    ).low,
                    weights,
                )
                for seed in range(3)
            ]
        )
        for rows in (100, 160, 200, 240, 300, 400)
    ]
    assert (np.diff(found) > -0.02).all(), found
    assert found[3] > 0.9
    assert found[-1] > end


@pytest.mark.parametrize("ratio", [0.6, 1.0, 2.0], ids=["fewer rows than leaves", "about as many", "more"])
@pytest.mark.parametrize("kind", ["additive", "nearly additive", "sparse", "noisy"])
@pytest.mark.parametrize("method", ["owen", "c2fa"])
def test_intervals_hold_the_truth_in_every_regime(kind, ratio, method):
    held = []
    for seed in range(12):
        p = Parameters.draw(seed, 5, 16)
        e = explained(lambda z, p=p: KINDS[kind](p, np.asarray(z)), p, ratio, seed, method=method)
        truth = p.sparse.copy() if kind == "sparse" else p.dense.copy()
        if kind == "nearly additive":  # a pair adds half its strength to each of its leaves
            for end in p.pairs.T:
                np.add.at(truth, end, 0.5e-3 * p.strengths)
        # Values of parts whose masks were all asked are exact: their error is 0, and they differ by rounding.
        errors = [np.maximum(some, 1e-12) for some in e.stderr]
        held.append([coverage(e.values[k], errors[k], e.structure.sums(truth, k)) for k in (0, 1)])
    parts, leaves = np.mean(held, axis=0)
    assert leaves > 0.88
    # Fewer rows than pay for it do not find out that a model has noise.
    assert parts > (0.8 if (method, kind, ratio) == ("owen", "noisy", 0.6) else 0.88)


def test_intervals_of_exact_models_are_as_wide_as_what_is_unknown():
    """With fewer rows than leaves the residuals are 0, and the values are not known."""
    p = Parameters.draw(1, 5, 16)
    for method in ("owen", "c2fa"):
        few = explained(lambda z: np.asarray(z) @ p.dense, p, 0.6, 0, method=method)
        errors = np.abs(few.low - p.dense)
        assert 0.5 < np.sqrt(np.mean(errors**2)) / np.sqrt(np.mean(few.stderr[1] ** 2)) < 1.5
    many = explained(lambda z: np.asarray(z) @ p.dense, p, 2.0, 0, method="c2fa")
    assert many.stderr[1].max() < 1e-3
    assert np.abs(many.low - p.dense).max() < 1e-3


def test_one_explanation_wraps_its_rows_once(monkeypatch):
    """A level is checked where its rows come back, and its loss is computed for the fit and for the level alone."""
    made: dict[str, int] = {}

    def counted(kind, name):
        original = getattr(kind, name)

        def count(self, *args, **kwargs):
            made[kind.__name__ + "." + name] = made.get(kind.__name__ + "." + name, 0) + 1
            return original(self, *args, **kwargs)

        monkeypatch.setattr(kind, name, count)

    counted(c2fa.Level, "__post_init__")
    counted(c2fa.Problem, "__post_init__")
    counted(c2fa.Level, "loss")
    p = Parameters.draw(0, 5, 20)
    explained(lambda z: np.asarray(z) @ p.dense, p, 2.0, 0, method="c2fa")
    assert made["Level.__post_init__"] <= 5
    assert made["Problem.__post_init__"] <= 2
    assert made["Level.loss"] <= 4

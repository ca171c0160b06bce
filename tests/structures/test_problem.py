"""Levels, problems and penalties: what they accept, and what they say of what they do not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

import c2fa
from c2fa.graph import Graph, Smoother

S = c2fa.Structure.from_groups("aab")
GOOD = np.eye(2, dtype=bool)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: c2fa.Level(np.ones(3), np.ones(3)), r"masks must have shape \(n, width\)"),
        (lambda: c2fa.Level(np.full((2, 2), 0.5), np.ones(2)), "only 0 and 1"),
        (lambda: c2fa.Level(GOOD, np.ones(3)), "one row for each of 2 masks"),
        (lambda: c2fa.Level(GOOD, [1.0, np.nan]), r"outputs hold NaN or infinity in rows \[1\]"),
        (lambda: c2fa.Level(GOOD, np.ones(2), [1.0, -1.0]), "weights must be 2 numbers of at least 0"),
        (lambda: c2fa.Level(GOOD, np.ones(2), [0.0, 0.0]), "all weights are 0"),
        (lambda: c2fa.Level(np.ones((0, 2)), np.ones(0)), "at least one row"),
        (lambda: c2fa.Problem(S, (c2fa.Level(GOOD, np.ones(2)),)), "has 2 levels but 1 were given"),
        (
            lambda: c2fa.Problem(S, (c2fa.Level(GOOD, np.ones(2)), c2fa.Level(GOOD, np.ones(2)))),
            r"masks of level 1 must have shape \(n, 3\)",
        ),
        (
            lambda: c2fa.Problem(
                S, (c2fa.Level(GOOD, np.ones((2, 2))), c2fa.Level(np.eye(3, dtype=bool), np.ones((3, 4))))
            ),
            "outputs differ in width",
        ),
        (lambda: c2fa.L2(-0.1), "lam must be a finite number of at least 0; got -0.1"),
        (lambda: c2fa.L1(float("nan")), "lam must be a finite number"),
        (lambda: c2fa.ElasticNet(0.1, -1), "l2 must be a finite number of at least 0"),
    ],
)
def test_bad_problems_are_met_with_one_sentence(make, message):
    with pytest.raises(ValueError, match=message):
        make()


PENALTIES = [
    c2fa.L2(0.3),
    c2fa.L2(0.3, positive=True),
    c2fa.L1(0.4),
    c2fa.L1(0.4, positive=True),
    c2fa.ElasticNet(0.2, 0.5),
    c2fa.ElasticNet(0.2, 0.5, positive=True),
    c2fa.NonNegative(),
]


@pytest.mark.parametrize("penalty", PENALTIES, ids=str)
@given(v=st.floats(-5, 5), step=st.floats(0.01, 3))
def test_prox_is_the_minimiser_it_says(penalty, v, step):
    def aim(u):
        value = penalty.value(np.array([u]))
        return step * value + 0.5 * (u - v) ** 2

    found = float(penalty.prox(np.array([v]), step)[0])
    low = 0.0 if not np.isfinite(penalty.value(np.array([-1.0]))) else -6.0
    best = minimize_scalar(aim, bounds=(low, 6), method="bounded", options={"xatol": 1e-10})
    assert aim(found) <= best.fun + 1e-9


# -- rows that are shared ----------------------------------------------------------------------------------------------


def level(seed, intercept, smooth, n=9, width=5, outputs=2):
    rng = np.random.default_rng(seed)
    smoother = Smoother(Graph([[0, 1], [2, 3]]), 2.0, width) if smooth else None
    weights = rng.random(n) * (rng.random(n) < 0.8) + 0.01
    return c2fa.Level(
        rng.random((n, width)) < 0.5, rng.normal(size=(n, outputs)), weights, c2fa.L2(0.1), intercept, smoother
    )


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("smooth", [True, False])
@pytest.mark.parametrize("known", [True, False])
@given(seed=st.integers(0, 10**6), factor=st.floats(1e-3, 1e3))
def test_scaled_rows_are_those_of_scaled_weights(intercept, smooth, known, seed, factor):
    given_, column = level(seed, intercept, smooth), seed % 2
    if known:  # what was computed before is used, not computed again
        assert given_.rows.gram.shape == (5, 5)
    fresh = c2fa.Level(
        given_.masks, given_.outputs[:, column], given_.weights * factor, c2fa.L2(0.1), intercept, given_.smooth
    ).rows
    shared = given_.scaled(factor).penalised(c2fa.L2(3.0)).of_output(column).rows
    for name in ("root", "mean_outputs", "targets", "design", "gram"):
        np.testing.assert_allclose(getattr(shared, name), getattr(fresh, name), rtol=1e-9, atol=1e-9)
    assert (shared.means is None) == (fresh.means is None)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_problems_gram_matrix_is_that_of_its_design(depth):
    rng = np.random.default_rng(depth)
    structure = c2fa.Structure.from_tree([[["a", "b"], ["c"]], [["d", "e", "f"]]])
    structure = c2fa.Structure(structure.parents[3 - depth :], structure.names[3 - depth :])
    levels = tuple(
        c2fa.Level(rng.random((7, width)) < 0.5, rng.normal(size=7), rng.random(7), intercept=True)
        for width in structure.widths
    )
    problem = c2fa.Problem(structure, levels)
    expected = problem.design.T @ problem.design
    np.testing.assert_allclose(np.tril(problem.gram()), np.tril(expected), atol=1e-12)
    np.testing.assert_allclose(np.tril(problem.gram()), np.tril(expected), atol=1e-12)  # and no call spoils the next

"""The experiments' own methods, against the package's and by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("experiments", reason="the experiments are in a clone, not in a source distribution")
from experiments import variants
from experiments.variants.algorithm1 import AffineMap, iterate
from experiments.variants.proportional import share

import c2fa
import oracles_methods as oracle
from c2fa import methods
from c2fa.graph import chain
from c2fa.samplers import milli as milli_sampler
from driving import THREE, S, drive, model, task
from strategies import problems

ON_TOP = {
    methods.Milli: variants.milli_on_top,
    methods.TopDownMilli: variants.top_down_milli_on_top,
    variants.C2FAMilli: variants.c2fa_milli_on_top,
}


def explainer(method: Any, structure: c2fa.Structure = S, budget: Any = (15, 60), **options: Any) -> c2fa.Explainer:
    weights = np.random.default_rng(7).normal(size=(structure.leaves, 2))
    masker = c2fa.maskers.Array(structure)
    return c2fa.Explainer(lambda b: np.tanh(b @ weights - 0.2), masker, method=method, budget=budget, **options)


def explain(method: Any, structure: c2fa.Structure = S, budget: Any = (15, 60), **options: Any) -> c2fa.Explanation:
    return explainer(method, structure, budget, **options)(np.ones(structure.leaves))


# -- a ranking on top of the budget --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ON_TOP)
def test_a_ranking_on_top_of_the_budget_leaves_every_row_to_the_samples(kind: Any) -> None:
    """Three rows for the ranking of three parts are what the budget of the counted ranking has more."""
    on_top, counted = explain(ON_TOP[kind](), budget=(12, 60)), explain(kind(), budget=(15, 60))
    assert on_top.queries == counted.queries
    for mine, theirs in zip(on_top.all_values, counted.all_values, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    explain(ON_TOP[kind](), budget=(2, 60))  # one sample; the counted ranking could not be afforded


@pytest.mark.parametrize("kind", ON_TOP)
@pytest.mark.parametrize("structure", [S, THREE, c2fa.Structure.from_groups("aaaa")])
def test_the_budget_grows_by_exactly_the_ranking_on_top(kind: Any, structure: c2fa.Structure) -> None:
    x = np.ones(structure.leaves)
    ranked = structure.widths[0] if structure.widths[0] > 1 else 0
    for budget in (30, (20, 30, 40)[: structure.depth], (2, 3, 3)[: structure.depth]):
        rows = budget if isinstance(budget, int) else sum(budget)
        on_top = explainer(ON_TOP[kind](), structure, budget)
        assert on_top.queries(x, on_top.masker(x)).budget == rows + ranked
        assert on_top(x).queries <= rows + ranked


# -- the joint fit of MILLI's rows ---------------------------------------------------------------------------------


@pytest.mark.parametrize("structure", [S, THREE])
def test_c2fa_milli_is_the_joint_fit_of_millis_rows(structure: c2fa.Structure) -> None:
    asked = task(structure, (14, 40, 60)[: structure.depth], target=1)
    found, asks = drive(variants.C2FAMilli(alpha=0.2, beta=0.5, penalty=c2fa.L2(0.1)), asked)
    scores = model(structure.expand(asks[0].masks, 0) * 1.0, structure)[:, 1]
    width = structure.widths[0]
    parts = np.array([oracle.milli_weight(sorted(-scores).index(-v), width, 0.2, 0.5) for v in scores])
    levels = []
    for k in range(structure.depth):
        inclusion = parts
        if k > 0:
            up = [structure.owners(0)[list(structure.owners(k)).index(i)] for i in range(structure.widths[k])]
            inclusion = 0.5 + 0.5 * (parts[up] - 0.5)
        n = asked.budget[k] - (width if k == 0 else 0)
        rows = milli_sampler(inclusion)(np.random.default_rng((3, k)), n, structure, k)
        drawn = {r.tobytes() for r in rows}
        extra = [r for r in np.eye(width, dtype=bool) if r.tobytes() not in drawn] if k == 0 else []
        rows = np.array([*rows, np.ones(structure.widths[k], bool), *extra])
        weights = np.array([oracle.milli_sample_weight(r, inclusion) for r in rows])
        outputs = model(structure.expand(rows, k) * 1.0, structure)
        levels.append(c2fa.Level(rows, outputs, weights, c2fa.L2(0.1), True))
    joint = c2fa.solve(c2fa.Problem(structure, tuple(levels)))
    for mine, theirs in zip(found.values, joint.values, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-9)


@pytest.mark.parametrize("penalty", [None, "auto"])
def test_c2fa_milli_of_one_part_is_c2fa_with_fair_coins_and_limes_weights(penalty: Any) -> None:
    one = c2fa.Structure.from_groups("aaaa")
    asked = dataclasses.replace(task(one, (4, 20)), neighbours=lambda: chain(one.owners(0)))
    found, asks = drive(variants.C2FAMilli(penalty=penalty), asked)
    plain, same = drive(methods.C2FA(kernel="cosine", sampler="uniform", penalty=penalty, smooth=None), asked)
    np.testing.assert_array_equal(found.values[1], plain.values[1])
    np.testing.assert_array_equal(asks[-1].masks, same[-1].masks)
    np.testing.assert_array_equal(found.levels[1].weights, plain.levels[1].weights)


# -- parts split in proportion -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "children", "expected"),
    [
        (6.0, [1.0, 2.0], [2.0, 4.0]),  # in proportion
        (1.0, [-1.0, 3.0], [-0.5, 1.5]),  # signs may differ as long as the sum is of the part's sign
        (-1.0, [1.0, 2.0], [-1.0, 0.0]),  # opposite: the order is kept, the difference shared
        (1.0, [1.0, -1.0], [1.5, -0.5]),  # a sum of zero has no proportion
        (1.0, [0.01, -0.001], [0.5055, 0.4945]),  # a hundredth of the part: scaling would blow up noise
        (0.003, [1.0, 2.0], [0.001, 0.002]),
        (1.0, [0.0, 0.0], [0.5, 0.5]),
        (0.0, [0.0, 0.0], [0.0, 0.0]),
    ],
)
def test_a_part_is_shared_in_proportion_where_there_is_one(part: float, children: Any, expected: Any) -> None:
    values = share(np.array([[part]]), np.array(children)[:, None], np.zeros(2, int))
    np.testing.assert_allclose(values[:, 0], expected, atol=1e-12)


def test_the_proportional_split_keeps_limes_order_within_each_part() -> None:
    lime, split = explain("lime"), explain(variants.TopDownProportional())
    assert split.queries == lime.queries
    np.testing.assert_allclose(split.high, lime.high, atol=1e-12)
    for j in range(3):
        own = S.owners(0) == j
        np.testing.assert_array_equal(np.argsort(split.low[own]), np.argsort(lime.low[own]))


def test_the_proportional_split_recovers_an_additive_model() -> None:
    w = np.arange(1.0, 13.0)
    method = variants.TopDownProportional(penalty=c2fa.L2(1e-9))
    e = c2fa.Explainer(lambda b: b @ w, c2fa.maskers.Array(S), method=method, budget=(40, 400))(np.ones(12))
    np.testing.assert_allclose(e.low, w, atol=1e-3)
    np.testing.assert_allclose(e.intercepts, 0.0, atol=1e-3)


# -- Algorithm 1 ---------------------------------------------------------------------------------------------------


@given(
    problems(penalties=st.sampled_from([0.0, 0.01, 0.1, 1.0]).map(c2fa.L2), depths=(2,)),
    st.sampled_from([0.03, 0.1, 1.0]),
    st.sampled_from([0.01, 0.1, 0.7]),
    st.sampled_from([1e-2, 1e-4, 1e-7]),
    st.sampled_from([1e-2, 1e-4, 1e-7]),
    st.sampled_from([0, 1, 31, 32, 33, 100, 1500]),
)
@settings(max_examples=60)
def test_algorithm_1_as_one_affine_map_is_algorithm_1(
    problem: c2fa.Problem, mu1: float, mu2: float, eps1: float, eps2: float, most: int
) -> None:
    options: dict[str, Any] = {"mu1": mu1, "mu2": mu2, "eps1": eps1, "eps2": eps2, "max_iterations": most}
    loop = c2fa.solve(problem, "paper", **options)
    status, iterations, *values = iterate(problem, **options)
    assert (status, iterations) == (loop.status, loop.iterations)
    for mine, theirs in zip(values, loop.values, strict=True):
        np.testing.assert_allclose(mine.reshape(theirs.shape), theirs, atol=1e-9)


@pytest.mark.parametrize("most", [1_900, 5_000, 100_000])
def test_a_long_run_of_algorithm_1_goes_on_in_its_slow_modes(most: int) -> None:
    rng = np.random.default_rng(3)
    structure = c2fa.Structure.from_groups(np.repeat(np.arange(4), 9))
    high, low = rng.random((20, 4)) < 0.5, rng.random((60, 36)) < 0.5
    outputs = [np.tanh(masks @ rng.normal(size=(masks.shape[1], 2))) for masks in (high, low)]
    levels = [
        c2fa.Level(masks, y, np.ones(len(y)), c2fa.L2(lam), intercept=False)
        for masks, y, lam in zip((high, low), outputs, (0.1, 1.0), strict=True)
    ]
    problem = c2fa.Problem(structure, tuple(levels))
    options: dict[str, Any] = {"mu2": 0.001, "eps1": 1e-9, "eps2": 1e-9, "max_iterations": most}
    slow = AffineMap.of(problem, 0.1, 0.001).slow
    assert slow is not None
    assert slow.shape[1] < 20
    loop = c2fa.solve(problem, "paper", **options)
    status, iterations, *values = iterate(problem, **options)
    assert (status, iterations) == (loop.status, loop.iterations)
    assert iterations > 1_800
    for mine, theirs in zip(values, loop.values, strict=True):
        np.testing.assert_allclose(mine.reshape(theirs.shape), theirs, atol=1e-11)


@pytest.mark.parametrize("intercept", [True, False])
def test_the_fast_method_is_the_papers(intercept: bool) -> None:
    options = {**methods.c2fa.PAPER, "penalty": (c2fa.L2(0.1), c2fa.L2(1.0)), "intercept": intercept}
    for solver_options in ({}, {"mu2": 0.01, "max_iterations": 70}):
        plain = explain("c2fa", **options, solver_options=solver_options)
        fast = explain(variants.FastPaper(**options, solver_options=solver_options))
        assert fast.queries == plain.queries
        assert fast.diagnostics.iterations == plain.diagnostics.iterations
        for k in (0, 1):
            np.testing.assert_allclose(fast.all_values[k], plain.all_values[k], atol=1e-12)
            np.testing.assert_allclose(fast.all_intercepts[k], plain.all_intercepts[k], atol=1e-12)

"""Solvers against slow literal oracles and against the conditions that make a point optimal."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import c2fa
from c2fa.graph import Graph, Smoother
from c2fa.solvers.direct import loss_alone
from c2fa.solvers.matrices import Cholesky, TreePrior
from oracles import algorithm_1, convex, dense, membership, objective, smoother
from strategies import problems


def random_problem(seed, widths, rows, lam=(0.1, 0.3), outputs=None, intercept=False, penalties=None):
    rng = np.random.default_rng(seed)
    parents, names = [], []
    for k, w in enumerate(widths):
        names.append(tuple(f"{k}.{i}" for i in range(w)))
        if k:
            owner = np.concatenate([np.arange(widths[k - 1]), rng.integers(0, widths[k - 1], w - widths[k - 1])])
            parents.append(rng.permutation(owner))
    structure = c2fa.Structure(tuple(parents), tuple(names))
    levels = []
    for k, (w, n) in enumerate(zip(widths, rows, strict=True)):
        shape = (n,) if outputs is None else (n, outputs)
        penalty = c2fa.L2(lam[k]) if penalties is None else penalties[k]
        masks = rng.random((n, w)) < 0.5
        levels.append(c2fa.Level(masks, rng.normal(size=shape), 0.1 + rng.random(n), penalty, intercept))
    return c2fa.Problem(structure, tuple(levels))


CASES = [
    pytest.param((4, 30), (8, 12), id="two levels, fewer rows than leaves"),
    pytest.param((4, 12), (20, 60), id="two levels, more rows than leaves"),
    pytest.param((3, 7, 40), (6, 10, 15), id="three levels, fewer rows than leaves"),
    pytest.param((3, 6, 15), (10, 20, 50), id="three levels, more rows than leaves"),
]


@pytest.mark.parametrize(("widths", "rows"), CASES)
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("outputs", [None, 7])
def test_direct_equals_the_dense_solution(widths, rows, intercept, outputs):
    problem = random_problem(1, widths, rows, (0.1, 0.3, 0.05), outputs, intercept)
    solution = c2fa.solve(problem, "direct")
    values, intercepts, _ = dense(problem)
    for k in range(len(widths)):
        np.testing.assert_allclose(solution.values[k].reshape(values[k].shape), values[k], atol=1e-10)
        np.testing.assert_allclose(np.atleast_1d(solution.intercepts[k]), intercepts[k], atol=1e-10)
    assert solution.values[0].shape == ((widths[0],) if outputs is None else (widths[0], outputs))
    np.testing.assert_allclose(solution.objective, objective(problem, values[-1], intercepts), rtol=1e-10)


@pytest.mark.parametrize(("widths", "rows"), CASES)
@pytest.mark.parametrize("intercept", [False, True])
def test_standard_errors_are_the_posterior_deviations(widths, rows, intercept):
    problem = random_problem(2, widths, rows, (0.1, 0.3, 0.05), None, intercept)
    solution = c2fa.solve(problem, "direct")
    values, intercepts, covariance = dense(problem)
    s = problem.structure
    energy = 2 * objective(problem, values[-1], intercepts)  # ‖residuals‖² + β'Pβ, by the definition of P
    residuals = energy - 2 * sum(lv.penalty.value(v[:, 0]) for lv, v in zip(problem.levels, values, strict=True))
    used = np.trace(smoother(problem))
    noise = max(energy / (problem.queries - len(widths) * intercept), residuals / (problem.queries - used))
    for k in range(len(widths)):
        m = membership(s, k)
        expected = np.sqrt(noise * np.diag(m @ covariance @ m.T))
        np.testing.assert_allclose(solution.stderr[k], expected, rtol=1e-8)


@pytest.mark.parametrize(("widths", "rows"), CASES)
@pytest.mark.parametrize("intercept", [False, True])
def test_leverages_give_the_residual_of_a_row_left_out(widths, rows, intercept):
    problem = random_problem(2, widths, rows, (0.1, 0.3, 0.05), None, intercept)
    solution = c2fa.solve(problem)
    for k, lv in enumerate(problem.levels):
        for i in (0, len(lv.masks) - 1):
            rest = np.arange(len(lv.masks)) != i
            fewer = c2fa.Level(lv.masks[rest], lv.outputs[rest], lv.weights[rest], lv.penalty, lv.intercept)
            refitted = c2fa.solve(
                c2fa.Problem(problem.structure, (*problem.levels[:k], fewer, *problem.levels[k + 1 :]))
            )
            left_out = lv.outputs[i] - lv.masks[i] @ refitted.values[k] - refitted.intercepts[k]
            residual = lv.outputs[i] - lv.masks[i] @ solution.values[k] - solution.intercepts[k]
            assert residual / (1 - solution.leverages[k][i]) == pytest.approx(left_out, abs=1e-9)


@given(problems())
def test_direct_is_dense_for_any_tree(problem):
    solution = c2fa.solve(problem)
    values, _, _ = dense(problem)
    for mine, theirs in zip(solution.values, values, strict=True):
        np.testing.assert_allclose(mine.reshape(theirs.shape), theirs, atol=1e-8)
    for k in range(problem.structure.depth):
        np.testing.assert_array_equal(solution.values[k], problem.structure.sums(solution.values[-1], k))


@given(problems(outputs=(None,)), st.lists(st.floats(0, 5), min_size=3, max_size=3))
def test_tree_prior_inverts_what_it_says(problem, strengths):
    s = problem.structure
    strengths = (*strengths[: s.depth - 1], 0.7)
    prior = TreePrior(s, strengths)
    p = sum(c * membership(s, k).T @ membership(s, k) for k, c in enumerate(strengths))
    dense = np.zeros_like(p)
    prior.add_to(dense)
    np.testing.assert_allclose(dense, p, atol=1e-12)
    rows = np.random.default_rng(0).normal(size=(3, s.leaves))
    np.testing.assert_allclose(prior.solve(rows), rows @ np.linalg.inv(p), atol=1e-9)
    for k in range(s.depth):
        m = membership(s, k)
        np.testing.assert_allclose(prior.diagonal(k), np.diag(m @ np.linalg.inv(p) @ m.T), atol=1e-9)


@pytest.mark.parametrize(("widths", "rows"), CASES)
@pytest.mark.parametrize("intercept", [False, True])
def test_admm_reaches_direct(widths, rows, intercept):
    problem = random_problem(3, widths, rows, (0.1, 0.3, 0.2), 2, intercept)
    exact = c2fa.solve(problem, "direct")
    near = c2fa.solve(problem, "admm", atol=1e-10, rtol=1e-10)
    assert near.status is c2fa.Status.CONVERGED
    for a, b in zip(near.values, exact.values, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


@pytest.mark.parametrize(("widths", "rows"), CASES[:2])
@pytest.mark.parametrize("intercept", [False, True])
def test_paper_reaches_direct(widths, rows, intercept):
    problem = random_problem(4, widths, rows, (0.1, 0.3), None, intercept)
    exact = c2fa.solve(problem, "direct")
    near = c2fa.solve(problem, "paper", eps1=1e-20, eps2=1e-20)
    assert near.status is c2fa.Status.CONVERGED
    for a, b in zip(near.values, exact.values, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_the_printed_sign_of_line_12_solves_another_problem(seed):
    """It converges and is consistent, to the optimum for λ_H + μ₁: only a comparison with an exact solve shows it."""
    mu1 = 0.1
    problem = random_problem(seed, (4, 20), (20, 50), (0.1, 0.1))
    heavier = c2fa.Problem(
        problem.structure,
        (
            c2fa.Level(
                problem.levels[0].masks,
                problem.levels[0].outputs,
                problem.levels[0].weights,
                c2fa.L2(0.1 + mu1),
            ),
            problem.levels[1],
        ),
    )
    printed = algorithm_1(problem, 0.1, 0.1, mu1, 0.1, 5000, sign=-1)
    corrected = algorithm_1(problem, 0.1, 0.1, mu1, 0.1, 5000, sign=+1)
    right, other = dense(problem)[0], dense(heavier)[0]
    for k in range(2):
        np.testing.assert_allclose(corrected[k], right[k][:, 0], atol=1e-9)
        np.testing.assert_allclose(printed[k], other[k][:, 0], atol=1e-9)
    assert np.abs(printed[0] - right[0][:, 0]).max() > 1e-3
    mine = c2fa.solve(problem, "paper", mu1=mu1, eps1=1e-24, eps2=1e-24)
    np.testing.assert_allclose(mine.values[0], corrected[0], atol=1e-8)


def test_paper_ends_where_its_steps_are_rounding_alone():
    problem = random_problem(4, (4, 12), (20, 60))
    large = c2fa.Problem(
        problem.structure,
        tuple(dataclasses.replace(level, outputs=2.0**70 * level.outputs) for level in problem.levels),
    )
    found, near = c2fa.solve(large, "paper"), c2fa.solve(problem, "paper", eps1=1e-24, eps2=1e-24)
    assert found.iterations < 20_000
    np.testing.assert_allclose(found.values[-1] / 2.0**70, near.values[-1], atol=1e-10)


@pytest.mark.parametrize("iterations", [1, 2, 7, 40])
def test_every_iterate_is_the_papers(iterations):
    problem = random_problem(5, (4, 20), (20, 50), (0.1, 0.4))
    found = c2fa.solve(problem, "paper", mu1=0.2, mu2=0.3, eps1=0.0, eps2=0.0, max_iterations=iterations)
    assert found.iterations == iterations
    for mine, theirs in zip(found.values, algorithm_1(problem, 0.1, 0.4, 0.2, 0.3, iterations, sign=+1), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-11)


PENALTIES = {
    "l1 leaves": (c2fa.L2(0.1), c2fa.L1(0.4)),
    "l1 parts": (c2fa.L1(1.0), c2fa.L2(0.2)),
    "l1 both": (c2fa.L1(0.5), c2fa.L1(0.3)),
    "elastic net": (c2fa.ElasticNet(0.4, 0.1), c2fa.ElasticNet(0.2, 0.2)),
    "non-negative leaves": (c2fa.L2(0.1), c2fa.NonNegative()),
    "non-negative parts": (c2fa.NonNegative(), c2fa.L2(0.3)),
    "non-negative both": (c2fa.NonNegative(), c2fa.NonNegative()),
    "positive l1": (c2fa.L2(0.1), c2fa.L1(0.2, positive=True)),
    "positive l2": (c2fa.L2(0.1, positive=True), c2fa.L2(0.2, positive=True)),
    "positive elastic net": (c2fa.L2(0.1), c2fa.ElasticNet(0.2, 0.1, positive=True)),
}


@pytest.mark.parametrize("name", PENALTIES)
@pytest.mark.parametrize("rows", [(15, 60), (8, 14)], ids=["more rows", "fewer rows"])
@pytest.mark.parametrize("intercept", [False, True])
def test_other_penalties_reach_the_convex_optimum(name, rows, intercept):
    problem = random_problem(5, (4, 20), rows, penalties=PENALTIES[name], intercept=intercept)
    mine = c2fa.solve(problem, atol=1e-10, rtol=1e-10, max_iterations=200_000)
    assert mine.status is c2fa.Status.CONVERGED
    theirs, best = convex(problem)
    assert mine.objective == pytest.approx(best, rel=1e-6, abs=1e-6)
    leaves_unique = rows[1] > 20 or "l2" in name or "elastic" in name or PENALTIES[name][1].ridge is not None
    if leaves_unique:
        np.testing.assert_allclose(mine.values[-1], theirs, atol=2e-5)
    for values, penalty in zip(mine.values, PENALTIES[name], strict=True):
        if isinstance(penalty, c2fa.NonNegative) or getattr(penalty, "positive", False):
            assert values.min() >= -1e-8
    np.testing.assert_array_equal(mine.values[0], problem.structure.sums(mine.values[-1], 0))


@given(
    problems(
        penalties=st.sampled_from(
            [
                c2fa.L1(0.2),
                c2fa.ElasticNet(0.2, 0.3),
                c2fa.NonNegative(),
                c2fa.L2(0.3, positive=True),
                c2fa.L2(0.5),
            ]
        ),
        outputs=(2,),
        depths=(1, 2, 3),
        rows=(2, 25),
    )
)
@settings(max_examples=30)
def test_leaf_optimality_conditions(problem):
    """Moving any one leaf, up or down, does not lower the objective: literal optimality along the coordinates.

    Where a part has a non-smooth penalty too, moving two leaves of a part against each other is tried as well.
    """
    solution = c2fa.solve(problem, "admm", atol=1e-10, rtol=1e-10, max_iterations=100_000)
    s = problem.structure
    slack = 1e-7
    beta = solution.values[-1]

    def score(b):
        values = [membership(s, k) @ b for k in range(s.depth)]
        values = [np.where(np.abs(v) < slack, 0.0, v) for v in values]  # parts meet their wishes to the tolerance
        total = 0.0
        for lv, v in zip(problem.levels, values, strict=True):
            intercept = lv.rows.intercept(v)
            total += lv.loss(v, intercept).sum() + lv.penalty.value(v)
        return total

    base = score(beta)
    assert np.isfinite(base)
    rng = np.random.default_rng(0)
    for _ in range(60):
        direction = np.zeros_like(beta)
        leaf = rng.integers(s.leaves)
        direction[leaf, rng.integers(beta.shape[1])] = rng.choice([-1, 1])
        if rng.random() < 0.5:
            direction[rng.integers(s.leaves)] -= direction[leaf]
        assert score(beta + 1e-4 * direction) >= base - 1e-8


def test_many_outputs_are_the_single_outputs_side_by_side():
    problem = random_problem(6, (4, 30), (10, 15), outputs=5)
    together = c2fa.solve(problem)
    for c in range(5):
        levels = tuple(
            c2fa.Level(lv.masks, lv.outputs[:, c], lv.weights, lv.penalty, lv.intercept) for lv in problem.levels
        )
        alone = c2fa.solve(c2fa.Problem(problem.structure, levels))
        np.testing.assert_allclose(together.values[1][:, c], alone.values[1], atol=1e-12)
        np.testing.assert_allclose(together.stderr[1][:, c], alone.stderr[1], rtol=1e-9)


def test_without_a_penalty_the_smallest_solution_is_taken_and_said():
    problem = random_problem(7, (3, 20), (5, 8), lam=(0.0, 0.0))
    solution = c2fa.solve(problem)
    assert solution.status is c2fa.Status.NOT_UNIQUE
    assert "penalty above 0" in solution.status.remedy
    stacked = np.concatenate(
        [
            np.sqrt(lv.weights)[:, None] * (lv.masks.astype(float) @ membership(problem.structure, k))
            for k, lv in enumerate(problem.levels)
        ]
    )
    y = np.concatenate([np.sqrt(lv.weights) * lv.outputs for lv in problem.levels])
    np.testing.assert_allclose(solution.values[1], np.linalg.pinv(stacked) @ y, atol=1e-9)
    assert np.isinf(solution.stderr[1]).any()
    enough = c2fa.solve(random_problem(7, (3, 20), (5, 80), lam=(0.0, 0.0)))
    assert enough.status is c2fa.Status.EXACT
    assert np.isfinite(enough.stderr[1]).all()


@pytest.mark.parametrize("lam", [1e-300, 1e-16, 1e-12])
@pytest.mark.parametrize("rows", [(20, 50), (60, 300)])
def test_a_penalty_of_next_to_nothing_gives_the_smallest_solution(lam, rows):
    nearly = c2fa.solve(random_problem(7, (10, 100), rows, lam=(lam, lam), intercept=True))
    none = c2fa.solve(random_problem(7, (10, 100), rows, lam=(0.0, 0.0), intercept=True))
    np.testing.assert_allclose(nearly.values[1], none.values[1], atol=2e-3)


def test_the_limit_of_iterations_is_reported():
    problem = random_problem(8, (3, 10), (5, 8))
    for solver in ("admm", "paper"):
        solution = c2fa.solve(problem, solver, max_iterations=2)
        assert solution.status is c2fa.Status.MAX_ITERATIONS
        assert solution.iterations == 2
        assert "max_iterations" in solution.status.remedy


@pytest.mark.parametrize(
    ("solver", "options", "message"),
    [
        ("nope", {}, "solver must be 'auto' or one of"),
        ("direct", {"tol": 1}, "no option 'tol'"),
        ("admm", {"atol": -1.0}, "atol must be at least 0"),
        ("paper", {"mu1": 0.0}, "mu1 must be positive"),
    ],
)
def test_bad_options_are_refused(solver, options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        c2fa.solve(random_problem(9, (3, 10), (5, 8)), solver, **options)


def test_solvers_say_what_they_cannot_do():
    problem = random_problem(9, (3, 10), (5, 8), penalties=(c2fa.L1(0.1), c2fa.L2(0.1)))
    with pytest.raises(ValueError, match="needs an L2 penalty at every level, but level 0 has L1"):
        c2fa.solve(problem, "direct")
    deep = random_problem(9, (2, 3, 10), (5, 8, 9), lam=(0.1, 0.1, 0.1))
    with pytest.raises(ValueError, match="Algorithm 1 is for two levels, and the structure has 3"):
        c2fa.solve(deep, "paper")


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e6])
def test_admm_is_as_exact_for_outputs_of_any_size(scale):
    penalties = (c2fa.L2(0.1), c2fa.L1(0.02 * scale))
    plain = random_problem(9, (4, 20), (12, 40), penalties=(c2fa.L2(0.1), c2fa.L1(0.02)))
    levels = [
        c2fa.Level(lv.masks, lv.outputs * scale, lv.weights, penalty)
        for lv, penalty in zip(plain.levels, penalties, strict=True)
    ]
    scaled = c2fa.solve(c2fa.Problem(plain.structure, tuple(levels)))
    exact = c2fa.solve(plain, atol=1e-10, rtol=1e-10)
    np.testing.assert_allclose(scaled.values[1] / scale, exact.values[1], atol=1e-4)


def test_admm_waits_for_the_smallest_of_many_outputs():
    problem = random_problem(9, (4, 20), (12, 40), outputs=2)
    sizes = np.array([1e-8, 1.0])
    levels = [c2fa.Level(lv.masks, lv.outputs * sizes, lv.weights, lv.penalty) for lv in problem.levels]
    problem = c2fa.Problem(problem.structure, tuple(levels))
    mine, exact = c2fa.solve(problem, "admm").values[1], c2fa.solve(problem, "direct").values[1]
    np.testing.assert_allclose(mine / sizes, exact / sizes, atol=1e-4)


def test_admm_adapts_its_step_where_rows_are_few():
    rng = np.random.default_rng(0)
    structure = c2fa.Structure.from_groups(np.repeat(np.arange(10), 60))
    weights = rng.normal(size=600) * (rng.random(600) < 0.2)
    masks = rng.random((40, 10)) < 0.5, rng.random((160, 600)) < 0.5
    high = c2fa.Level(masks[0], structure.expand(masks[0], 0) @ weights, None, c2fa.L2(0.1), True)
    low = c2fa.Level(masks[1], masks[1] @ weights, None, c2fa.L1(1.0), True)
    problem = c2fa.Problem(structure, (high, low))
    adapted = c2fa.solve(problem)
    assert adapted.status is c2fa.Status.CONVERGED
    assert adapted.iterations < 2000


@pytest.mark.parametrize(("leaves", "lam"), [(4, 1e-9), (20, 1e-9), (60, 1e-9)])
def test_standard_errors_hold_what_they_promise_however_weak_the_penalty(leaves, lam):
    """Parts of an additive model with noise lie within two standard errors about as often as they should."""
    inside = []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        structure = c2fa.Structure.from_groups(np.repeat(np.arange(5), leaves))
        truth = rng.normal(size=structure.leaves)
        levels = []
        for k, n in enumerate((30, 150)):
            masks = rng.random((n, structure.widths[k])) < 0.5
            outputs = structure.expand(masks, k) @ truth + rng.normal(size=n)
            levels.append(c2fa.Level(masks, outputs, None, c2fa.L2(lam), True))
        solution = c2fa.solve(c2fa.Problem(structure, tuple(levels)))
        inside.append(np.abs(solution.values[0] - structure.sums(truth, 0)) < 2 * solution.stderr[0])
    assert np.mean(inside) > 0.88


def test_rows_without_weight_change_nothing():
    problem = random_problem(3, (4, 12), (20, 60), intercept=True)
    levels = [
        c2fa.Level(
            np.concatenate([lv.masks, ~lv.masks]),
            np.concatenate([lv.outputs, 100 + lv.outputs]),
            np.concatenate([lv.weights, 0 * lv.weights]),
            lv.penalty,
            True,
        )
        for lv in problem.levels
    ]
    alone, padded = c2fa.solve(problem), c2fa.solve(c2fa.Problem(problem.structure, tuple(levels)))
    for k in (0, 1):
        np.testing.assert_allclose(padded.values[k], alone.values[k], atol=1e-10)
        np.testing.assert_allclose(padded.stderr[k], alone.stderr[k], rtol=1e-9)


def test_solves_that_overlap_give_blas_its_threads_back():
    from threadpoolctl import threadpool_info, threadpool_limits

    from c2fa._system import suited

    def threads():
        return {lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"}

    with threadpool_limits(limits=2, user_api="blas"):
        before = threads()
        first, second = suited(1.0), suited(1.0)
        first.__enter__()
        second.__enter__()
        assert threads() == {1}
        first.__exit__(None, None, None)
        assert threads() == {1}
        second.__exit__(None, None, None)
        assert threads() == before
        with suited(1e12):
            assert threads() == before


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("smooth", [None, 1.0])
def test_what_no_row_determines_is_unknown_even_where_nothing_varies(smooth):
    """No noise times no knowledge is not a number; it is no knowledge."""
    s = c2fa.Structure.from_groups("aabb")
    tied = None if smooth is None else Smoother(Graph([[0, 1]]), smooth, 4)
    levels = [
        c2fa.Level(np.ones((1, width), dtype=bool), np.array([0.3]), None, c2fa.L2(0.0), True, at)
        for width, at in ((2, None), (4, tied))
    ]
    solution = c2fa.solve(c2fa.Problem(s, tuple(levels)))
    assert all(np.isinf(error).all() for error in solution.stderr)
    assert not solution.values[-1].any()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("seed", range(12))
def test_a_step_that_rounding_would_lose_is_not_taken(seed):
    """Outputs of 1e12 under a weak l1 penalty ask for a step of next to nothing, without which the rows are too few."""
    s = c2fa.Structure.from_groups(np.repeat(np.arange(3), (10, 10, 11)))
    w = np.random.default_rng(seed).normal(size=31)
    e = c2fa.Explainer(
        lambda batch: 1e12 * (batch * w).sum(axis=1),
        c2fa.maskers.Array(s),
        budget=(31, 9),
        kernel="shap",
        sampler="planned",
        penalty=c2fa.L1(0.01),
        solver_options={"max_iterations": 2000},
        seed=seed,
    )(np.ones(31))
    np.testing.assert_allclose(e.high, 1e12 * s.sums(w, 0), rtol=1e-3, atol=1e9)


# -- triangles ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 64, 65, 130, 301])
def test_a_triangle_is_inverted_by_halves(n):
    rng = np.random.default_rng(n)
    rows = rng.normal(size=(n + 5, n))
    factor = Cholesky(np.asfortranarray(rows.T @ rows + np.eye(n)))
    np.testing.assert_allclose(factor.inverse @ factor.lower, np.eye(n), atol=1e-10)
    assert not np.triu(factor.inverse, 1).any()


@pytest.mark.parametrize("rows", [3, 6, 30])
@pytest.mark.parametrize("copies", [False, True])
def test_the_least_loss_without_a_penalty_is_that_of_least_squares(rows, copies):
    """Whether the rows determine the values or not: a feature that is always masked with another is no other."""
    rng = np.random.default_rng(rows)
    masks = rng.random((rows, 6)) < 0.5
    if copies:
        masks[:, 5] = masks[:, 4]
    level = c2fa.Level(masks, rng.normal(size=rows), rng.random(rows) + 0.1, c2fa.L2(0.0), True)
    x, y = level.rows.design, level.rows.targets[:, 0]
    residual = y - x @ np.linalg.lstsq(x, y, rcond=None)[0]
    assert loss_alone(level) == pytest.approx(0.5 * residual @ residual, abs=1e-12)

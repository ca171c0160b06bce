"""Strengths chosen from the answers: the evidence against a literal density, its maximum, what the errors promise."""

from __future__ import annotations

import functools
import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import c2fa
from c2fa.metrics import coverage
from c2fa.penalties import Auto, L2Each
from c2fa.samplers import Planned, uniform
from c2fa.solvers import auto as chooser
from c2fa.solvers import evidence, intervals
from c2fa.solvers import scales as scaling
from c2fa.solvers.direct import prepare
from c2fa.solvers.matrices import TreePrior
from oracles import dense, log_evidence, membership
from strategies import problems


def auto(problem, **options):
    """The same problem with strengths to be chosen."""
    levels = tuple(replace(level, penalty=Auto(**options)) for level in problem.levels)
    return c2fa.Problem(problem.structure, levels)


def additive(seed, groups, rows, noise=0.3, truth=None, outputs=None, weights=False):
    """Noisy answers of an additive model, and its leaves' values."""
    rng = np.random.default_rng(seed)
    structure = c2fa.Structure.from_groups(groups)
    shape = (structure.leaves,) if outputs is None else (structure.leaves, outputs)
    truth = rng.normal(size=shape) if truth is None else truth
    levels = []
    for k, n in enumerate(rows):
        masks = uniform(rng, n, structure, k)
        y = 0.5 + structure.expand(masks, k) @ truth
        y = y + noise * rng.normal(size=y.shape)
        levels.append(c2fa.Level(masks, y, 0.2 + rng.random(n) if weights else None, Auto(), True))
    return c2fa.Problem(structure, tuple(levels)), truth


FIVE = np.repeat(np.arange(5), 12)


# -- the evidence ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("leaves", [20, 40, 55])
@pytest.mark.parametrize("noises", [(0.1, 0.3), (1e-6, 0.1), (0.5, 1e-6)])
def test_the_systems_of_leaves_and_of_rows_tell_the_same(leaves, noises):
    """On either side of where one is taken for the other, for models of two outputs and levels of unequal noise."""
    problem, _ = additive(leaves, np.arange(leaves) % 5, (12, 35), outputs=2, weights=True)
    data, rng = evidence.Observations.of(problem), np.random.default_rng(leaves)
    variances = rng.gamma(1.0, size=leaves)
    a = evidence._by_leaves(data, variances, np.array(noises))
    b = evidence._by_rows(data, variances, np.array(noises))
    assert a.log_evidence == pytest.approx(b.log_evidence, rel=1e-6)
    for name in ("dof", "beta2_over_v", "residual_dof", "scaled_rss"):
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=1e-6, atol=1e-6)


@given(problems(rows=(2, 12)), st.integers(0, 10**6))
def test_the_evidence_is_the_density_of_contrasts(problem, seed):
    """Up to a constant: two settings of the scales differ by as much as in the literal density."""
    answers = evidence.Observations.of(problem)
    rng = np.random.default_rng(seed)
    settings_ = [
        (rng.gamma(2.0, size=problem.structure.leaves), rng.gamma(2.0, size=len(problem.levels))) for _ in "ab"
    ]
    unit = _unit(problem, answers)
    mine = [evidence.evaluate(answers, v / unit, s / (unit * answers.weights)).log_evidence for v, s in settings_]
    literal = [log_evidence(problem, v, s) for v, s in settings_]
    assert mine[0] - mine[1] == pytest.approx(literal[0] - literal[1], abs=1e-6 * max(1, abs(literal[0])))


def _unit(problem, answers):
    """What the outputs' variance is taken to be."""
    squares = sum(
        np.square(level.rows.targets).sum() / weight
        for level, weight in zip(problem.levels, answers.weights, strict=True)
    )
    kept = np.square(answers.targets).sum() / answers.outputs + answers.rest.sum()
    return squares / (problem.outputs * kept)


@pytest.mark.parametrize(("parts", "rows"), [("aaabbcc", (20, 60)), (FIVE, (12, 30))])
def test_rows_without_weight_change_nothing_nor_do_rows_condensed_away(parts, rows):
    """Twice as many rows of the second problem are more than its leaves: the other of the two systems is solved."""
    problem, _ = additive(0, parts, rows, weights=True)
    padded = c2fa.Problem(
        problem.structure,
        tuple(
            c2fa.Level(
                np.concatenate([lv.masks, ~lv.masks]),
                np.concatenate([lv.outputs, 100 + lv.outputs]),
                np.concatenate([lv.weights, 0 * lv.weights]),
                lv.penalty,
                True,
            )
            for lv in problem.levels
        ),
    )
    if sum(rows) < problem.structure.leaves:
        assert evidence.Observations.of(problem).rows.tolist() == [5, 30]
    a, b = c2fa.solve(problem), c2fa.solve(padded)
    for k in (0, 1):
        np.testing.assert_allclose(a.values[k], b.values[k], rtol=1e-7)
        np.testing.assert_allclose(a.stderr[k], b.stderr[k], rtol=1e-7)


@pytest.mark.parametrize("rows", [(8, 30), (30, 120)], ids=["fewer rows than leaves", "more rows than leaves"])
@pytest.mark.parametrize("outputs", [None, 4])
def test_what_is_seen_are_the_evidences_derivatives(rows, outputs):
    problem, _ = additive(1, FIVE, rows, outputs=outputs, weights=True)
    answers = evidence.Observations.of(problem)
    rng = np.random.default_rng(0)
    v, s = 0.05 * rng.gamma(2.0, size=60), 0.1 * rng.gamma(2.0, size=2)
    seen = evidence.evaluate(answers, v, s)
    step = 1e-5

    def slope(change_v, change_s):
        up, down = (
            evidence.evaluate(answers, v * np.exp(sign * change_v), s * np.exp(sign * change_s)).log_evidence
            for sign in (1, -1)
        )
        return (up - down) / (2 * step)

    for i in range(0, 60, 7):
        at = step * (np.arange(60) == i)
        assert slope(at, 0 * s) == pytest.approx(0.5 * (seen.beta2_over_v[i] - seen.dof[i]), abs=1e-6)
    for level in (0, 1):
        at = step * (np.arange(2) == level)
        assert slope(0 * v, at) == pytest.approx(0.5 * (seen.scaled_rss[level] - seen.residual_dof[level]), abs=1e-6)
    assert (seen.dof >= 0).all()
    assert (seen.dof <= 1).all()


def log_posterior(problem, unit, weights, scales, sizes=None):
    """The literal density of the outputs times the scales' priors, written out."""
    variances = scales.own * (1.0 if sizes is None else sizes / np.prod(sizes) ** (1 / len(sizes)))
    for group, owner in zip(scales.groups, scales.owners, strict=True):
        variances = variances * np.exp(group)[owner]
    total = log_evidence(problem, variances * unit, scales.noises * unit * weights)
    total -= 0.5 * ((scales.common - np.log(0.1)) / 3.0) ** 2
    total -= np.sum(np.log(1 + scales.offsets**2))  # Cauchy
    total -= 0.5 * ((scales.groups[0][0] - scales.base) / 2.0) ** 2
    for group, spread in zip(scales.groups[1:], scales.spreads[1:], strict=True):
        total -= 0.5 * np.sum((group / spread) ** 2)
    if np.isfinite(scales.tail):  # inverse gamma, as the density of the logarithm
        total -= 0.5 * scales.tail * np.sum(np.log(scales.own) + 1 / scales.own)
    return total


@pytest.mark.parametrize("tail", [3.0, float("inf"), None])
@pytest.mark.parametrize("rows", [(8, 15), (20, 60)])
@pytest.mark.parametrize("sized", [False, True])
def test_the_rounds_end_where_no_scale_can_be_bettered(tail, rows, sized):
    """Under the spreads and the tail that they end with."""
    problem, _ = additive(2, "aaaaabbbbbbbcccc", rows, weights=True)
    data = evidence.Observations.of(problem)
    sizes = np.exp(np.random.default_rng(1).normal(size=16)) if sized else None
    found = scaling.search(data, tail, rounds=3000, tolerance=1e-10, sizes=sizes)
    best, taken = found.scales, found.rounds
    assert 5 < taken < 3000
    assert tail in (None, best.tail)
    unit = _unit(problem, data)
    top = log_posterior(problem, unit, data.weights, best, sizes)
    rng = np.random.default_rng(0)
    for _ in range(30):
        size = rng.choice([0.02, 0.1, 0.5])
        own = best.own * np.exp(size * rng.normal(size=16)) if np.isfinite(best.tail) else best.own
        near = replace(
            best,
            groups=tuple(g + size * rng.normal(size=g.shape) for g in best.groups),
            own=own,
            common=best.common + size * float(rng.normal()),
            offsets=best.offsets + size * rng.normal(size=2),
        )
        assert log_posterior(problem, unit, data.weights, near, sizes) < top
    early = scaling.search(data, best.tail, sizes=sizes).scales  # what the library stops at is as good as it
    early = replace(early, spreads=best.spreads, tail=best.tail)
    assert log_posterior(problem, unit, data.weights, early, sizes) > top - 0.5


def test_leaves_that_are_expected_to_be_larger_take_more_and_equal_sizes_change_nothing():
    problem, _ = additive(4, "aaaaabbbbbbbcccc", (6, 8))

    def solved(**options):
        levels = [level.penalised(Auto(**options)) for level in problem.levels]
        return c2fa.solve(problem.with_levels(levels))

    plain, alike = solved(), solved(sizes=np.ones(16))
    np.testing.assert_array_equal(alike.values[-1], plain.values[-1])
    np.testing.assert_array_equal(alike.stderr[-1], plain.stderr[-1])
    for leaf in range(16):
        sizes = np.where(np.arange(16) == leaf, 100.0, 1.0)
        larger = solved(sizes=sizes).strengths[-1]
        assert larger[leaf] == larger.min()
    with pytest.raises(ValueError, match="Auto has 3 sizes for 16 leaves; give one for each"):
        solved(sizes=[1.0, 2.0, 3.0])
    for wrong in ([0.0] * 16, [np.nan] * 16, [[1.0]]):
        with pytest.raises(ValueError, match="sizes must be finite numbers above 0"):
            Auto(sizes=wrong)
    given = Auto(output=1, sizes=np.array([1, 2]))
    assert eval(repr(given)) == given == Auto(1, sizes=(1.0, 2.0))


@given(
    seed=st.integers(0, 10**6),
    rows=st.tuples(st.integers(2, 30), st.integers(2, 60)),
    noise=st.sampled_from([0.0, 1e-6, 0.3, 10.0]),
    size=st.sampled_from([1.0, 1e6, 1e-6]),
)
def test_no_step_lowers_the_evidence(seed, rows, noise, size):
    """Evidence times prior, by the literal density where it can be computed, also as noises go to nothing."""
    problem, _ = additive(seed, "aaaaabbbbbbbcccc", rows, noise=noise)
    levels = tuple(replace(level, outputs=size * level.outputs) for level in problem.levels)
    problem = c2fa.Problem(problem.structure, levels)
    data = evidence.Observations.of(problem)
    if data is None:  # constant outputs
        return
    unit = _unit(problem, data)
    scales = scaling.Scales.initial(data.owners, data.usual_base, len(data.rows))
    fit = evidence.evaluate(data, scales.variances, scales.noises)
    for _ in range(8):
        step = scaling._step(functools.partial(evidence.evaluate, data), scales, fit)
        if step is None:
            break
        there, seen = step
        before, after = (log_posterior(problem, unit, data.weights, one) for one in (scales, there))
        assert after >= before - 1e-6 * max(1.0, abs(before))
        scales, fit = there.with_priors_of(seen, None), seen


@pytest.mark.parametrize(("gain", "further", "rounds"), [(100.0, 10.0, 6), (5.0, 10.0, 3), (100.0, np.inf, 3)])
def test_a_search_goes_on_while_rounds_gain_a_lot(gain, further, rounds):
    start = scaling.Scales.initial((np.zeros(4, dtype=np.intp),), 0.0, 2)
    heights = itertools.count(0.0, gain)

    def evaluate(variances, noises):
        """Whatever the scales are, the rows ask for more noise, and like it."""
        return evidence.Fit(next(heights), np.zeros(4), np.zeros(4), np.ones(2), np.full(2, 10.0))

    assert scaling.maximise(start, evaluate, rounds=3, further=further).rounds == rounds


@pytest.mark.parametrize("rows", [(12, 40), (12, 60), (12, 90)], ids=["fewer", "as many", "more"])
def test_the_result_is_continuous_as_interactions_go_to_zero(rows):
    rng = np.random.default_rng(3)
    structure = c2fa.Structure.from_groups(FIVE)
    values, pairs = rng.normal(size=60), rng.integers(60, size=(60, 2))
    masks = [uniform(rng, n, structure, k) for k, n in enumerate(rows)]

    def explained(strength):
        levels = []
        for k, some in enumerate(masks):
            on = structure.expand(some, k)
            y = on @ values + strength * (on[:, pairs[:, 0]] & on[:, pairs[:, 1]]).sum(axis=1)
            levels.append(c2fa.Level(some, y, None, Auto(), True))
        return c2fa.solve(c2fa.Problem(structure, tuple(levels)))

    exact = explained(0.0)
    for strength in (1e-12, 1e-9, 1e-7, 1e-6, 1e-5):
        near = explained(strength)
        for k in (0, 1):
            size = np.abs(exact.values[k]).max()
            assert np.abs(near.values[k] - exact.values[k]).max() < 0.02 * size, (strength, k)
            assert np.abs(near.stderr[k] - exact.stderr[k]).max() < 0.05 * size, (strength, k)


def test_one_exact_level_does_not_blur_the_others():
    """Parts that are exactly additive, with many rows, beside leaves that are not: each has a noise of its own."""
    rng = np.random.default_rng(0)
    structure = c2fa.Structure.from_groups(FIVE)
    values = rng.normal(size=60)
    high, low = uniform(rng, 31, structure, 0), uniform(rng, 150, structure, 1)
    y = low @ values
    for noise in (0.0, 0.3):
        outputs = (structure.expand(high, 0) @ values, y + noise * rng.normal(size=150))
        levels = [c2fa.Level(m, out, None, Auto(), True) for m, out in zip((high, low), outputs, strict=True)]
        data = evidence.Observations.of(c2fa.Problem(structure, tuple(levels)))
        noises = scaling.search(data).scales.noises
        true = noise**2 / np.var(np.concatenate(outputs))
        assert noises[0] < 1e-6
        assert 0.5 * true <= noises[1] <= 2 * true + 1e-6


@given(st.floats(0, 1e4), st.floats(0, 1e4), st.floats(-20, 20), st.floats(0.1, 5))
def test_a_scale_is_moved_to_its_balance(found, determined, away, spread):
    (move,) = scaling._balance(*(np.array([x]) for x in (found, determined, away)), spread)

    def tilt(u):
        return 0.5 * (found * np.exp(-u) - determined) - (away + u) / spread**2

    if move == pytest.approx(3.0):
        assert tilt(3.0) >= -1e-6 * (1 + determined)
    elif move == pytest.approx(-3.0):
        assert tilt(-3.0) <= 1e-6 * (1 + determined)
    else:
        assert tilt(move) == pytest.approx(0, abs=1e-6 * (1 + found * np.exp(-move) + determined))


# -- what is chosen ----------------------------------------------------------------------------------------------------


def test_strengths_follow_the_noise_and_the_leaves():
    calm, _ = additive(3, FIVE, (30, 150), noise=0.05)
    loud, _ = additive(3, FIVE, (30, 150), noise=2.0)
    lam = [np.median(c2fa.solve(problem).strengths[1]) for problem in (calm, loud)]
    assert lam[0] < 0.02 < 0.5 < lam[1]
    truth = np.where(FIVE == 2, 1.0, 0.02) * np.random.default_rng(0).normal(size=60)
    apart, _ = additive(3, FIVE, (30, 150), truth=truth)
    strengths = c2fa.solve(apart).strengths
    assert np.median(strengths[1][FIVE != 2]) > 20 * np.median(strengths[1][FIVE == 2])
    np.testing.assert_array_equal(strengths[0], np.zeros(5))


def test_without_tails_leaves_of_a_part_are_alike_and_with_them_a_large_one_is_let_be():
    truth = 0.01 * np.random.default_rng(0).normal(size=60)
    truth[7] = 2.0
    problem, _ = additive(4, FIVE, (30, 150), truth=truth, noise=0.1)
    even = c2fa.solve(auto(problem, tail=float("inf"))).strengths[1]
    assert all(np.ptp(even[part == FIVE]) == pytest.approx(0, abs=1e-12) for part in range(5))
    uneven = c2fa.solve(problem)
    assert uneven.strengths[1].argmin() == 7
    beside = FIVE[7] == FIVE
    errors = [np.abs(c2fa.solve(one).values[1] - truth)[beside].mean() for one in (problem, auto(problem, tail=np.inf))]
    assert errors[0] < 0.9 * errors[1]


def test_a_louder_level_counts_for_less_but_not_for_nothing():
    problem, _ = additive(5, FIVE, (20, 200), noise=0.1)
    high, low = problem.levels
    rng = np.random.default_rng(0)
    for louder, at_least in ((0.3, 4), (3.0, 20)):
        outputs = high.outputs + louder * rng.normal(size=20)
        loud = c2fa.Problem(problem.structure, (replace(high, outputs=outputs), low))
        chosen = chooser.choose(loud)
        assert chosen.noises[0] > at_least
        assert chosen.noises[1] == 1
        np.testing.assert_allclose(chosen.problem.levels[1].weights, low.weights)
        share = 1 - 20 / 32
        np.testing.assert_allclose(chosen.problem.levels[0].weights, 1 / (4 * share), rtol=0.35)


def test_where_every_mask_of_the_parts_was_asked_the_parts_keep_to_what_they_say():
    """The leaves' rows say otherwise, since the model is not additive; parts that were asked in full are known."""
    groups = np.repeat(np.arange(3), 8)
    structure = c2fa.Structure.from_groups(groups)
    rng = np.random.default_rng(0)
    weights = rng.normal(0.4, 0.3, 24)

    def model(masks):
        return np.tanh(masks @ weights) * 2

    every = (np.arange(8)[:, None] >> np.arange(3)) & 1
    fine = uniform(rng, 100, c2fa.Structure.flat(24), 0)
    high = c2fa.Level(every, model(structure.expand(every, 0)), None, Auto(), True)
    problem = c2fa.Problem(structure, (high, c2fa.Level(fine, model(fine), None, Auto(), True)))
    alone = c2fa.solve(c2fa.Problem(c2fa.Structure.flat(3), (replace(high, penalty=c2fa.L2(1e-9)),))).values[0]
    chosen = chooser.choose(problem)
    assert chosen.boosts[0] >= 20 * (1 - 1e-4)
    solution = c2fa.solve(problem)
    trusting = np.abs(solution.values[0] - alone).mean()
    once = c2fa.solve(
        c2fa.Problem(
            structure,
            tuple(
                replace(level, weights=level.weights / boost)
                for level, boost in zip(chosen.problem.levels, chosen.boosts, strict=True)
            ),
        )
    )
    assert trusting < 0.5 * np.abs(once.values[0] - alone).mean()
    assert (
        solution.stderr[0] > 0.5 * once.stderr[0]
    ).all()  # counting rows several times makes no error smaller by much


def test_one_part_alone_does_not_overrule_its_leaves():
    """Both of its masks were asked, but from nothing to everything the model goes another way than leaf by leaf."""
    every = ((np.arange(512)[:, None] >> np.arange(9)) & 1).astype(bool)
    weights = np.array([3.0, 1.0, 0.5, 0.5, 0.3, 0.2, 0.1, 0.0, 0.0])

    def model(masks):
        return np.tanh(masks @ weights)

    best = np.linalg.lstsq(np.c_[np.ones(512), every], model(every), rcond=None)[0][1:]
    structure, whole = c2fa.Structure.from_groups("a" * 9), np.array([[False], [True]])
    masks = Planned()(np.random.default_rng(0), 60, c2fa.Structure.flat(9), 0)
    high = c2fa.Level(whole, model(structure.expand(whole, 0)), None, Auto(), True)
    problem = c2fa.Problem(structure, (high, c2fa.Level(masks, model(masks), None, Auto(), True)))
    np.testing.assert_allclose(chooser.choose(problem).boosts, 1.0, atol=60 / 512)
    total, at_once = c2fa.solve(problem).values[0][0], float(np.ptp(model(structure.expand(whole, 0))))
    assert abs(total - best.sum()) < 0.5 * abs(at_once - best.sum())


def test_an_exact_additive_model_is_found_exactly():
    problem, truth = additive(6, FIVE, (30, 150), noise=0.0)
    solution = c2fa.solve(problem)
    np.testing.assert_allclose(solution.values[1], truth, atol=1e-3)
    np.testing.assert_array_equal(solution.values[0], problem.structure.sums(solution.values[1], 0))
    assert solution.status is c2fa.Status.EXACT


# -- invariances -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("factor", [1e-9, -1.0, 1e6])
def test_scaled_outputs_give_scaled_values_and_errors(factor):
    problem, _ = additive(7, FIVE, (10, 50))
    scaled = c2fa.Problem(problem.structure, tuple(replace(lv, outputs=factor * lv.outputs) for lv in problem.levels))
    one, other = c2fa.solve(problem), c2fa.solve(scaled)
    for k in (0, 1):
        np.testing.assert_allclose(other.values[k], factor * one.values[k], rtol=1e-6, atol=1e-9 * abs(factor))
        np.testing.assert_allclose(other.stderr[k], abs(factor) * one.stderr[k], rtol=1e-6)


def test_weights_matter_only_within_a_level_and_a_shift_is_the_intercepts():
    problem, _ = additive(8, FIVE, (10, 50), weights=True)
    other = c2fa.Problem(
        problem.structure,
        tuple(
            replace(lv, weights=(7 + k) * lv.weights, outputs=lv.outputs + 3 + k) for k, lv in enumerate(problem.levels)
        ),
    )
    a, b = c2fa.solve(problem), c2fa.solve(other)
    for k in (0, 1):
        np.testing.assert_allclose(a.values[k], b.values[k], rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(a.stderr[k], b.stderr[k], rtol=1e-6)
        assert b.intercepts[k] - a.intercepts[k] == pytest.approx(3 + k)
        assert b.losses[k] == pytest.approx((7 + k) * a.losses[k])


@given(st.integers(0, 10**6))
@settings(max_examples=20)
def test_the_order_of_leaves_and_rows_does_not_matter(seed):
    problem, _ = additive(9, FIVE, (10, 50))
    rng = np.random.default_rng(seed)
    order, rows = rng.permutation(60), [rng.permutation(n) for n in (10, 50)]
    high, low = problem.levels
    s = problem.structure
    shuffled = c2fa.Structure((s.parents[0][order],), (s.names[0], tuple(s.names[1][i] for i in order)))
    moved = c2fa.Problem(
        shuffled,
        (
            replace(high, masks=high.masks[rows[0]], outputs=high.outputs[rows[0]], weights=high.weights[rows[0]]),
            replace(
                low, masks=low.masks[rows[1]][:, order], outputs=low.outputs[rows[1]], weights=low.weights[rows[1]]
            ),
        ),
    )
    a, b = c2fa.solve(problem), c2fa.solve(moved)
    np.testing.assert_allclose(b.values[0], a.values[0], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(b.values[1], a.values[1][order], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(b.stderr[1], a.stderr[1][order], rtol=1e-6)


def test_one_output_decides_as_if_it_were_alone_and_many_decide_together():
    problem, _ = additive(10, FIVE, (10, 50), outputs=3)
    second = c2fa.Problem(problem.structure, tuple(replace(lv, outputs=lv.outputs[:, 1]) for lv in problem.levels))
    chosen, alone = c2fa.solve(auto(problem, output=1)), c2fa.solve(second)
    for k in (0, 1):
        np.testing.assert_allclose(chosen.values[k][:, 1], alone.values[k], rtol=1e-9)
        np.testing.assert_allclose(chosen.stderr[k][:, 1], alone.stderr[k], rtol=1e-6)
        np.testing.assert_allclose(chosen.strengths[k], alone.strengths[k], rtol=1e-9)
    thrice = c2fa.Problem(
        problem.structure, tuple(replace(lv, outputs=np.stack([lv.outputs] * 3, axis=1)) for lv in second.levels)
    )
    np.testing.assert_allclose(c2fa.solve(thrice).values[1][:, 2], alone.values[1], rtol=1e-8)
    many = c2fa.Problem(  # more outputs than rows
        problem.structure, tuple(replace(lv, outputs=lv.outputs @ np.ones((3, 200)) / 3) for lv in problem.levels)
    )
    mean = c2fa.Problem(problem.structure, tuple(replace(lv, outputs=lv.outputs.mean(axis=1)) for lv in problem.levels))
    np.testing.assert_allclose(c2fa.solve(many).values[1][:, 9], c2fa.solve(mean).values[1], rtol=1e-6, atol=1e-9)


# -- where there is little to go by ------------------------------------------------------------------------------------


@pytest.mark.parametrize("outputs", [None, 2])
@pytest.mark.parametrize("constant", [0.0, 0.1, 1e5])
def test_a_constant_model_gets_zeros(constant, outputs):
    problem, _ = additive(11, FIVE, (10, 50), outputs=outputs)
    flat = c2fa.Problem(
        problem.structure, tuple(replace(lv, outputs=np.full_like(lv.outputs, constant)) for lv in problem.levels)
    )
    solution = c2fa.solve(flat)
    for k in (0, 1):
        np.testing.assert_allclose(solution.values[k], 0, atol=1e-9 * max(constant, 1))
        np.testing.assert_allclose(solution.stderr[k], 0, atol=1e-9 * max(constant, 1))


@given(problems(rows=(1, 4)), st.sampled_from([1e-12, 1.0, 1e9]))
def test_few_rows_give_finite_values_and_errors(problem, size):
    problem = auto(
        c2fa.Problem(problem.structure, tuple(replace(lv, outputs=size * lv.outputs) for lv in problem.levels))
    )
    solution = c2fa.solve(problem)
    for k in range(problem.structure.depth):
        assert np.isfinite(solution.values[k]).all()
        assert np.isfinite(solution.stderr[k]).all()
        assert (solution.stderr[k] >= 0).all()
        np.testing.assert_array_equal(solution.values[k], problem.structure.sums(solution.values[-1], k))


@pytest.mark.parametrize("groups", ["aaaaaaaa", "abcdefgh"], ids=["one part", "parts of one leaf"])
def test_structures_without_groups_to_tell_apart(groups):
    problem, truth = additive(12, list(groups), (8, 40), noise=0.1)
    solution = c2fa.solve(problem)
    np.testing.assert_allclose(solution.values[1], truth, atol=0.3)
    assert np.isfinite(solution.stderr[0]).all()


def test_a_level_that_never_varies_is_no_trouble():
    problem, _ = additive(13, FIVE, (10, 60))
    high, low = problem.levels
    still = c2fa.Problem(problem.structure, (replace(high, outputs=np.full(10, 0.4)), low))
    solution = c2fa.solve(still)
    assert np.isfinite(solution.stderr[0]).all()
    assert np.abs(solution.values[1]).max() > 0


@pytest.mark.parametrize("pin", [1e6, 1e12])
def test_weights_of_many_orders_of_magnitude_are_no_trouble(pin):
    problem, truth = additive(14, FIVE, (30, 150), noise=0.0)
    pinned = c2fa.Problem(
        problem.structure,
        tuple(replace(lv, weights=np.where(np.arange(len(lv.weights)) < 2, pin, 1.0)) for lv in problem.levels),
    )
    np.testing.assert_allclose(c2fa.solve(pinned).values[1], truth, atol=0.02)


# -- standard errors ---------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("scale", [1.0, 1e-290])
@pytest.mark.parametrize("intercept", [True, False])
def test_one_row_that_weighs_more_than_numbers_can_tell_is_as_good_as_exact(scale, intercept):
    """As SHAP's kernel has it for hundreds of features: the others' answers are not lost in its rounding."""
    problem, _ = additive(1, FIVE, (20, 40))

    def heavy(weight):
        levels = [replace(level, intercept=intercept) for level in problem.levels]
        weights = scale * np.append(np.ones(39), weight)
        levels[-1] = replace(levels[-1], weights=weights)
        return c2fa.solve(replace(problem, levels=tuple(levels)))

    plain, found = heavy(1e5), heavy(1e40 if scale == 1 else 1e290)
    np.testing.assert_allclose(found.values[-1], plain.values[-1], atol=0.02)
    for mine, theirs in zip(found.stderr, plain.stderr, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0.05)


@pytest.mark.parametrize("rows", [(8, 20), (12, 90)], ids=["fewer rows than leaves", "more rows than leaves"])
def test_the_rows_influence_is_the_literal_one(rows):
    problem, _ = additive(15, "aaabbbbccccccddd", rows, weights=True)
    chosen = chooser.choose(problem)
    _, system = prepare(chosen.problem)
    of_levels = [slice(rows[0]), slice(rows[0], sum(rows))]
    found = system.influences(of_levels)
    x = chosen.problem.design
    p = np.diag(2 * chosen.strengths)
    influence = np.linalg.solve(x.T @ x + p, x.T)
    for of_level, some in zip(found, of_levels, strict=True):
        for k in (0, 1):
            literal = np.square(membership(problem.structure, k) @ influence[:, some]).sum(axis=1)
            np.testing.assert_allclose(of_level[k], literal)


def test_what_a_leafs_own_strength_adds_is_its_mixture_over_the_grid():
    """By brute force: solve the dense problem anew for every strength that the leaf might have had."""
    problem, _ = additive(16, "aaabbbb", (6, 14), weights=True)
    chosen = chooser.choose(problem)
    x, y = chosen.problem.design, chosen.problem.targets[:, 0]
    p = 2 * chosen.strengths
    covariance = np.linalg.inv(x.T @ x + np.diag(p))
    beta = covariance @ x.T @ y
    noise = 0.37
    added = intervals._own_strength_variance(chosen, np.diag(covariance).copy(), beta[:, None], np.array([noise]))
    log_prior = intervals.log_prior(chosen.tail, chosen.centre_sd)
    for leaf in range(7):
        log_weight, means, variances = [], [], []
        for lp, u in zip(log_prior, intervals._GRID, strict=True):
            own = 1 / p
            own[leaf] = chosen.centre[leaf] * np.exp(u)
            v = np.eye(len(x)) + x @ np.diag(own) @ x.T
            log_weight.append(lp - 0.5 * np.linalg.slogdet(v)[1] - 0.5 * y @ np.linalg.solve(v, y) / noise)
            posterior = np.linalg.inv(x.T @ x + np.diag(1 / own))
            means.append((posterior @ x.T @ y)[leaf])
            variances.append(noise * posterior[leaf, leaf])
        weight = np.exp(np.array(log_weight) - max(log_weight))
        weight /= weight.sum()
        total = weight @ (np.array(variances) + (np.array(means) - beta[leaf]) ** 2)
        assert added[leaf, 0] == pytest.approx(max(total - noise * covariance[leaf, leaf], 0), rel=1e-6, abs=1e-12)


def test_values_lie_within_their_errors_as_often_as_promised():
    inside = {}
    for i, kind in enumerate(("gaussian", "sparse", "by part", "leaning")):
        for seed in range(40):
            rng = np.random.default_rng((seed, i))
            parts = int(rng.integers(3, 9))
            groups = np.repeat(np.arange(parts), rng.integers(10, 31, parts))
            truth = rng.normal(size=len(groups))
            if kind == "sparse":
                truth *= rng.random(len(groups)) < 0.15
            elif kind == "by part":
                truth *= np.exp(rng.normal(size=parts))[groups]
            elif kind == "leaning":
                truth += rng.normal(size=parts)[groups]
            truth *= 2 / np.linalg.norm(truth)
            rows = (int(rng.integers(10, 25)), int(rng.integers(50, 280)))
            problem, _ = additive((seed, i), groups, rows, truth=truth, noise=float(np.exp(rng.uniform(-3, 0))))
            found, s = c2fa.solve(problem), problem.structure
            shares = [coverage(found.values[k], found.stderr[k], s.sums(truth, k)) for k in (0, 1)]
            inside.setdefault(kind, []).append(shares)
    for shares in inside.values():
        assert (np.mean(shares, axis=0) > 0.89).all()
    parts, leaves = np.mean([np.mean(shares, axis=0) for shares in inside.values()], axis=0)
    assert 0.93 < parts < 0.98
    assert 0.93 < leaves < 0.97


# -- how it is asked for -----------------------------------------------------------------------------------------------


def test_other_solvers_solve_what_was_chosen():
    problem, _ = additive(17, "aaabbbbcc", (8, 30))
    exact = c2fa.solve(problem)
    for solver, options in (("admm", {"atol": 1e-10, "rtol": 1e-10}), ("paper", {"eps1": 1e-20, "eps2": 1e-20})):
        near = c2fa.solve(problem, solver, **options)
        np.testing.assert_allclose(near.values[1], exact.values[1], atol=1e-5)
        np.testing.assert_allclose(near.losses[1], exact.losses[1], rtol=1e-3)
        assert near.stderr is None
    values, _, _ = dense(chooser.choose(problem).problem)
    np.testing.assert_allclose(exact.values[1], values[1][:, 0], atol=1e-9)
    levels = problem.levels
    literal = [
        0.5 * lv.weights @ (lv.outputs - lv.masks @ v - b) ** 2
        for lv, v, b in zip(levels, exact.values, exact.intercepts, strict=True)
    ]
    np.testing.assert_allclose(exact.losses, literal)


def test_it_goes_for_the_whole_problem():
    problem, _ = additive(18, "aab", (5, 8))
    high, low = problem.levels
    free = c2fa.Problem(problem.structure, (replace(high, penalty=c2fa.L2(0.0)), low))
    np.testing.assert_allclose(c2fa.solve(free).values[1], c2fa.solve(problem).values[1])
    for levels, where in (
        ((replace(high, penalty=c2fa.L2(0.1)), low), "level 0 has L2"),
        ((high, replace(low, penalty=c2fa.L1(0.1))), "level 1 has L1"),
        ((high, replace(low, penalty=c2fa.L2(0.0))), "level 1 has L2"),
    ):
        with pytest.raises(ValueError, match=where):
            c2fa.solve(c2fa.Problem(problem.structure, levels))
    with pytest.raises(ValueError, match=r"Auto\(output=1\) names an output that is not there: there are 1"):
        c2fa.solve(auto(problem, output=1))
    with pytest.raises(ValueError, match="tail must be above 0"):
        Auto(tail=0)
    with pytest.raises(TypeError, match="has no strength until its problem is solved"):
        Auto().value(np.zeros(3))
    with pytest.raises(TypeError, match="has no strength until its problem is solved"):
        Auto().prox(np.zeros(3), 1.0)


# -- a strength for each feature ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [(8, 12), (20, 80)])
@pytest.mark.parametrize("solver", ["direct", "admm"])
def test_strengths_of_their_own_are_solved_exactly(rows, solver):
    problem, _ = additive(19, FIVE, rows, weights=True, outputs=2)
    rng = np.random.default_rng(0)
    levels = tuple(replace(lv, penalty=L2Each(0.05 + rng.random(lv.width))) for lv in problem.levels)
    problem = c2fa.Problem(problem.structure, levels)
    options = {} if solver == "direct" else {"atol": 1e-10, "rtol": 1e-10}
    solution = c2fa.solve(problem, solver, **options)
    values, intercepts, _ = dense(problem)
    for k in (0, 1):
        np.testing.assert_allclose(solution.values[k], values[k], atol=1e-9 if solver == "direct" else 1e-6)
        np.testing.assert_allclose(solution.intercepts[k], intercepts[k], atol=1e-6)


def test_leaves_without_a_strength_among_others_with_one():
    problem, _ = additive(20, "aaabbb", (6, 30))
    high, low = problem.levels
    each = L2Each([0.0, 1.0, 2.0, 0.0, 0.5, 0.0])
    problem = c2fa.Problem(problem.structure, (replace(high, penalty=c2fa.L2(0.2)), replace(low, penalty=each)))
    np.testing.assert_allclose(c2fa.solve(problem).values[1], dense(problem)[0][1][:, 0], atol=1e-9)


@given(problems(outputs=(None,)), st.integers(0, 10**6))
def test_a_tree_of_any_strengths_is_inverted(problem, seed):
    s, rng = problem.structure, np.random.default_rng(seed)
    strengths = tuple(rng.gamma(1.0, size=w) * (rng.random(w) < 0.8) for w in s.widths[:-1])
    strengths = (*strengths, 0.1 + rng.gamma(1.0, size=s.leaves))
    prior = TreePrior(s, strengths)
    p = sum(membership(s, k).T @ np.diag(c) @ membership(s, k) for k, c in enumerate(strengths))
    dense = np.zeros_like(p)
    prior.add_to(dense)
    np.testing.assert_allclose(dense, p, atol=1e-12)
    rows = rng.normal(size=(3, s.leaves))
    np.testing.assert_allclose(prior.solve(rows), rows @ np.linalg.inv(p), atol=1e-8)
    gram = np.tril(prior.gram(rows, prior.projections(rows)))
    np.testing.assert_allclose(gram, np.tril(rows @ np.linalg.inv(p) @ rows.T), atol=1e-7)
    for k in range(s.depth):
        m = membership(s, k)
        np.testing.assert_allclose(prior.diagonal(k), np.diag(m @ np.linalg.inv(p) @ m.T), atol=1e-8)


def test_strengths_must_fit_the_level():
    with pytest.raises(ValueError, match="2 strengths for 3 features"):
        c2fa.Level(np.eye(3, dtype=bool), np.ones(3), penalty=L2Each([1.0, 2.0]))
    for bad in ([-1.0], [np.nan], [[1.0]]):
        with pytest.raises(ValueError, match="lams must be finite numbers"):
            L2Each(bad)


def test_parts_without_a_penalty_beside_auto_leaves_are_auto_too():
    """Masks that fair coins repeat are one answer there as well."""
    s = c2fa.Structure.from_groups("aaabbbcc")
    w = np.random.default_rng(0).normal(size=8)
    found = [
        c2fa.Explainer(
            lambda b: np.tanh(b @ w), c2fa.maskers.Array(s), budget=(20, 9), penalty=penalty, sampler="uniform"
        )(np.ones(8)).low
        for penalty in ("auto", (c2fa.L2(0.0), Auto()))
    ]
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("outputs", ["all", "target"])
def test_the_output_that_decides_is_one_of_the_models(outputs):
    s = c2fa.Structure.from_groups("aaabbbcc")
    w = np.random.default_rng(0).normal(size=(8, 4))

    def explained(**options):
        explainer = c2fa.Explainer(
            lambda b: np.tanh(b @ w),
            c2fa.maskers.Array(s),
            method="c2fa",
            budget=(8, 20),
            target=2,
            outputs=outputs,
            **options,
        )
        return explainer(np.ones(8)).low

    np.testing.assert_allclose(explained(penalty=Auto(output=2)), explained(), atol=1e-12)
    if outputs == "target":
        with pytest.raises(ValueError, match=r"output=1.*not explained; leave it to the target, or.*outputs='all'"):
            explained(penalty=Auto(output=1))
    else:
        assert np.abs(explained(penalty=Auto(output=1)) - explained()).max() > 1e-3
    with pytest.raises(ValueError, match=r"output=9.*the model has outputs 0\.\.3"):
        explained(penalty=Auto(output=9))


@pytest.mark.parametrize("options", [{"tail": "4"}, {"tail": np.nan}, {"tail": 0}, {"output": -1}, {"output": "good"}])
def test_what_auto_cannot_be_told_is_refused(options):
    with pytest.raises(ValueError, match=r"must be .* or None.*; got"):
        Auto(**options)

"""Standard errors where the model has no noise: against the spread of estimates over many draws of masks."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

import c2fa
from c2fa.methods.base import Task, joint_penalties
from c2fa.penalties import Auto, L2Each
from c2fa.samplers import Planned
from c2fa.solvers import intervals, misfit
from c2fa.solvers.auto import choose
from c2fa.solvers.direct import prepare


def every(width):
    """All masks."""
    return (np.arange(2**width)[:, None] >> np.arange(width)) & 1 == 1


class Fixed:
    """A model of few leaves that says the same of the same mask: additive, pairs, and a little of everything."""

    def __init__(self, seed, width, pairs=1.0, rest=0.3):
        rng = np.random.default_rng(seed)
        self.width, self.masks = width, every(width)
        signs = np.where(self.masks, 1.0, -1.0)
        own = rng.normal(size=width)
        between = np.triu(np.outer(own, own) * rng.normal(size=(width, width)), 1)
        misfit = pairs * np.einsum("ri,ij,rj->r", signs, between, signs) / 2 + rest * rng.normal(size=len(signs))
        self.outputs = self.masks @ own + 0.5 * misfit
        design = np.c_[np.ones(len(signs)), self.masks]
        self.best = np.linalg.lstsq(design, self.outputs, rcond=None)[0][1:]

    def __call__(self, masks):
        return self.outputs[masks @ (1 << np.arange(self.width))]


def solved(model, masks, **options):
    structure = c2fa.Structure.flat(masks.shape[1])
    return c2fa.solve(c2fa.Problem(structure, (c2fa.Level(masks, model(masks), None, Auto(**options), True),)))


def planned(rng, width, rows):
    return Planned()(rng, rows, c2fa.Structure.flat(width), 0)


def drawn(rng, width, rows):
    return rng.permutation(every(width))[:rows]


@pytest.mark.parametrize("draw", [planned, drawn])
@pytest.mark.parametrize(("width", "rows"), [(5, 20), (6, 32), (7, 48)])
def test_errors_are_as_large_as_estimates_are_far_off(draw, width, rows):
    """Over many models and draws of the masks; taken for noise, what is left over makes them far too wide."""
    off, said, as_noise = [], [], []
    for seed in range(60):
        model = Fixed(seed, width)
        masks = draw(np.random.default_rng((seed, rows)), width, rows)
        found = solved(model, masks, noiseless=True)
        off.append(found.values[0] - model.best)
        said.append(found.stderr[0])
        as_noise.append(solved(model, masks).stderr[0])
    ratio = np.sqrt(np.mean(np.square(off)) / np.mean(np.square(said)))
    assert 0.7 < ratio < 1.25
    held = np.mean(np.abs(off) <= 1.645 * np.array(said))
    assert 0.84 < held < 0.96
    if draw is planned:
        assert np.mean(np.abs(off) <= 1.645 * np.array(as_noise)) > 0.97


def test_the_variance_of_least_squares_is_smaller_by_what_was_not_asked():
    """The literal formula: the mean square error over draws without replacement, of a model that has no pairs."""
    model = Fixed(3, 5, pairs=0.0, rest=1.0)
    left = model.outputs - model.outputs.mean() - (model.masks - 0.5) @ model.best
    noise = np.square(left).sum() / (32 - 6)
    structure, rng = c2fa.Structure.flat(5), np.random.default_rng(0)
    off, said, plain = [], [], []
    for _ in range(1500):
        masks = drawn(rng, 5, 16)
        level = c2fa.Level(masks, model(masks)[:, None], None, L2Each(np.full(5, 1e-9)), True)
        problem = c2fa.Problem(structure, (level,))
        _, system = prepare(problem)
        influence = system.fit(np.eye(16))
        alone = misfit.Misfit(problem, [slice(0, 16)], np.full(5, 0.2), 0.0, np.zeros((16, 16)), influence)
        off.append(system.fit(problem.targets)[:, 0] - model.best)
        [_], together = alone.variances(0, [np.array([noise])])
        said.append(together[:, 0])
        plain.append(np.square(influence).sum(axis=1) * noise)
    assert np.mean(np.square(off)) == pytest.approx(np.mean(said), rel=0.06)
    assert np.mean(plain) > 1.5 * np.mean(said)


def test_the_covariance_of_pairs_is_that_of_their_products():
    """Against a draw of every pair's value, with leaves of different prior variance, at two levels."""
    structure = c2fa.Structure.from_groups([0, 0, 1, 2])
    rng = np.random.default_rng(0)
    levels = [
        c2fa.Level(m, rng.normal(size=len(m)), None, Auto(noiseless=True), True) for m in (every(3), every(4)[::2])
    ]
    chosen = choose(c2fa.Problem(structure, tuple(levels)))
    variances = 0.5 / chosen.strengths
    masks = np.concatenate([structure.expand(every(3), 0), every(4)[::2]])
    signs = np.where(masks, 1.0, -1.0)
    whole = sum(
        variances[i] * variances[j] * np.outer(signs[:, i] * signs[:, j], signs[:, i] * signs[:, j])
        for i in range(4)
        for j in range(i)
    )
    expected = whole / sum(variances[i] * variances[j] for i in range(4) for j in range(i))
    sizes = variances / variances.sum()
    assert misfit._pairs(chosen.problem, sizes) == pytest.approx(expected)


def test_pairs_are_found_where_they_are_and_not_in_noise():
    rng = np.random.default_rng(1)
    shares = {}
    for name, model in {"pairs": Fixed(5, 7, pairs=2.0, rest=0.02), "noise": Fixed(5, 7, pairs=0.0, rest=1.0)}.items():
        masks = planned(rng, 7, 48)
        level = c2fa.Level(masks, model(masks)[:, None], None, Auto(noiseless=True), True)
        chosen = choose(c2fa.Problem(c2fa.Structure.flat(7), (level,)))
        _, system = prepare(chosen.problem)
        shares[name] = misfit.Misfit.of(chosen, system, [slice(0, 48)]).share
    assert shares["pairs"] > 0.9
    assert shares["noise"] < 0.2


def best(masks, outputs):
    """The additive description of all masks, by least squares."""
    return np.linalg.lstsq(np.c_[np.ones(len(masks)), masks], outputs, rcond=None)[0][1:]


def triples(rng, sizes):
    """Of all masks of leaves, what every product of three of them does, and the variance of all of these."""
    signs = np.where(every(len(sizes)), 1.0, -1.0)
    chosen = np.array(list(itertools.combinations(range(len(sizes)), 3)))
    own = rng.normal(size=len(chosen)) * np.sqrt(sizes[chosen].prod(axis=1))
    return signs[:, chosen].prod(axis=2) @ own, sizes[chosen].prod(axis=1).sum()


@pytest.mark.parametrize("groups", [[0, 0, 0, 1, 1, 2, 3], [0, 0, 1, 1, 1, 1], [0, 1, 2, 3]])
def test_parts_masked_as_wholes_are_as_far_from_their_leaves_as_triples_bring_them(groups):
    """Against draws of every triple's value, both best descriptions by least squares on all masks."""
    rng = np.random.default_rng(len(groups))
    structure = c2fa.Structure.from_groups(groups)
    sizes = rng.random(len(groups)) ** 2 + 0.01
    sizes /= sizes.sum()
    of_parts, bits = every(structure.widths[0]), 1 << np.arange(len(groups))
    gaps = []
    for _ in range(1500):
        outputs, whole = triples(rng, sizes)
        as_wholes = best(of_parts, outputs[structure.expand(of_parts, 0) @ bits])
        gaps.append(as_wholes - structure.sums(best(every(len(groups)), outputs), 0))
    wanted = 4.0 * whole * misfit.left_odd(sizes, np.array(groups))
    np.testing.assert_allclose(np.mean(np.square(gaps), axis=0), wanted, rtol=0.2, atol=1e-12)
    if len(set(groups)) < len(groups):
        assert wanted.max() > 0


def test_errors_of_parts_count_what_lies_between_their_two_descriptions():
    """Over many models with triples, either description is held about as often as it should be; as noise, it is not."""
    structure = c2fa.Structure.from_groups([0, 0, 0, 1, 1, 1, 2, 2, 3, 3])
    of_parts, bits = every(4), 1 << np.arange(10)
    held, leaves_held = {True: [], False: []}, []
    for seed in range(80):
        rng = np.random.default_rng(seed)
        sizes = rng.random(10) ** 2 + 0.01
        outputs = every(10) @ (rng.normal(size=10) * np.sqrt(sizes)) + triples(rng, sizes)[0]
        rows = [of_parts, planned(rng, 10, 60)]
        answers = [outputs[structure.expand(masks, k) @ bits] for k, masks in enumerate(rows)]
        of_leaves = best(every(10), outputs)
        as_wholes, as_sums = best(of_parts, answers[0]), structure.sums(of_leaves, 0)
        for noiseless, found in held.items():
            levels = [
                c2fa.Level(m, y, None, Auto(noiseless=noiseless), True) for m, y in zip(rows, answers, strict=True)
            ]
            solution = c2fa.solve(c2fa.Problem(structure, tuple(levels)))
            off = np.abs(solution.values[0] - np.array([as_wholes, as_sums])) / solution.stderr[0]
            found.append(off <= 1.645)
            if noiseless:
                leaves_held.append(np.abs(solution.values[1] - of_leaves) <= 1.645 * solution.stderr[1])
    wholes, sums = np.mean(held[True], axis=(0, 2))
    assert wholes > 0.9  # all masks of parts were asked, and the values are near what these say
    assert 0.87 < sums < 0.97
    assert np.mean(held[False], axis=(0, 2))[1] < 0.8
    assert 0.87 < np.mean(leaves_held) < 0.97  # rows for parts lead them away too


def literal_apart(self, level, noise):
    """With every value's answer to every part, as the docstring has it."""
    s, leaves = self.problem.structure, self.problem.levels[-1]
    squares = np.zeros(s.widths[level])
    for k, rows in enumerate(self.rows[:-1]):
        owners = s.owners(k)
        odd = 4.0 * misfit.left_odd(self.sizes, owners)
        for i, value in enumerate(s.sums(self.influence[:, rows], level)):
            for part in range(s.widths[k]):
                follow = value @ (self.problem.design[rows][:, owners == part].mean(axis=1))
                if (k, part) == (level, i):
                    follow = max(follow, 1.0 - follow)
                squares[i] += follow**2 * odd[part]
    return np.outer(squares, (1.0 - self.share) * noise / leaves.weights[leaves.weights > 0].mean())


def test_rows_for_parts_lead_values_away_as_the_literal_sum_says(monkeypatch):
    seen, apart = [], misfit.Misfit.apart

    def both(self, level, noise):
        found = apart(self, level, noise)
        np.testing.assert_allclose(found, literal_apart(self, level, noise), rtol=1e-9, atol=1e-300)
        seen.append(found.max())
        return found

    monkeypatch.setattr(misfit.Misfit, "apart", both)
    c2fa.solve(two_levels(outputs=2, noiseless=True))
    parents = (np.array([0, 0, 1, 1]), np.array([0, 0, 0, 1, 1, 2, 2, 3]))
    rng, structure = np.random.default_rng(3), c2fa.Structure(parents, ("ab", "abcd", "abcdefgh"))
    levels = []
    for width in structure.widths:
        masks = planned(rng, width, 4 if width < 3 else 12)
        levels.append(c2fa.Level(masks, rng.normal(size=len(masks)), None, Auto(noiseless=True), True))
    c2fa.solve(c2fa.Problem(structure, tuple(levels)))
    assert len(seen) == 5
    assert max(seen) > 0.0


def test_where_all_masks_were_asked_only_shrinkage_is_uncertain():
    model = Fixed(0, 6)
    with_noise, without = (solved(model, every(6), noiseless=flag) for flag in (False, True))
    assert without.values[0].tolist() == with_noise.values[0].tolist()
    assert without.stderr[0].max() < 0.3 * with_noise.stderr[0].min()
    assert (without.stderr[0] > 0).all()


def two_levels(outputs=1, scale=1.0, weights=None, **options):
    structure = c2fa.Structure.from_groups([0, 0, 1, 1, 1, 2])
    model, rng = Fixed(2, 6), np.random.default_rng(0)
    columns = np.linspace(1.0, 0.1, outputs)
    levels = []
    for k, n in ((0, 7), (1, 30)):
        masks = planned(rng, structure.widths[k], n)
        y = scale * model(structure.expand(masks, k))[:, None] * columns
        w = None if weights is None else weights.random(n)
        levels.append(c2fa.Level(masks, y, w, Auto(output=0, **options), True))
    return c2fa.Problem(structure, tuple(levels))


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_errors_follow_the_scale_of_the_outputs(scale):
    for one, other in zip(
        c2fa.solve(two_levels(2, noiseless=True)).stderr,
        c2fa.solve(two_levels(2, scale, noiseless=True)).stderr,
        strict=True,
    ):
        np.testing.assert_allclose(other, scale * one, rtol=1e-6)
        np.testing.assert_allclose(one[:, 1], 0.1 * one[:, 0], rtol=1e-9)  # the second output is a tenth of the first


def test_both_systems_say_the_same(monkeypatch):
    problem = two_levels(noiseless=True)
    primal = c2fa.solve(problem).stderr
    chosen = choose(problem)
    from c2fa.solvers import direct

    dual = direct._Dual(chosen.problem, direct.TreePrior(problem.structure, direct.prepare(chosen.problem)[0]))
    monkeypatch.setattr(intervals, "prepare", lambda _: (None, dual))
    for a, b in zip(primal, c2fa.solve(problem).stderr, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_odd_problems_have_finite_errors():
    some = [
        two_levels(weights=np.random.default_rng(0), noiseless=True),
        two_levels(scale=0.0, noiseless=True),
        two_levels(scale=1e-140, noiseless=True),
    ]
    one_leaf = every(1)
    level = c2fa.Level(one_leaf, np.array([0.0, 2.0]), None, Auto(noiseless=True), True)
    some.append(c2fa.Problem(c2fa.Structure.flat(1), (level,)))
    masks = every(4)
    exact = c2fa.Level(masks, masks @ np.array([1.0, 0.0, 0.0, 2.0]), None, Auto(noiseless=True), False)
    some.append(c2fa.Problem(c2fa.Structure.flat(4), (exact,)))
    for problem in some:
        for errors in c2fa.solve(problem).stderr:
            assert np.isfinite(errors).all()
            assert (errors >= 0).all()


def test_only_log_probabilities_of_a_given_text_are_known_to_have_no_noise():
    task = Task(c2fa.Structure.from_groups([0, 0, 1]), (4, 4), np.zeros(2), np.arange(2), 0, 0)
    scored = replace(task, tokens=(7, 7))
    assert [p.noiseless for p in joint_penalties("auto", task)] == [False, False]
    assert [p.noiseless for p in joint_penalties("auto", scored)] == [True, True]
    assert [p.noiseless for p in joint_penalties(Auto(noiseless=False), scored)] == [False, False]
    assert [p.noiseless for p in joint_penalties(Auto(noiseless=True), task)] == [True, True]
    with pytest.raises(TypeError, match="noiseless must be True, False or None"):
        Auto(noiseless="no")


class Reader:
    """A language model whose answer rests on two sentences, and more on both of them."""

    def generate(self, prompt):
        return "It is blue." if "sky" in prompt else "I do not know."

    def pieces(self, answer):
        return [answer]

    def score(self, prompts, answer):
        holds = np.array([["sky" in p, "sea" in p, "grass" in p, "night" in p] for p in prompts])
        return (holds @ [2.0, 1.0, 0.2, -0.5] + 1.5 * holds[:, 0] * holds[:, 1] - 6.0)[:, None]


def test_citing_knows_that_scores_have_no_noise():
    text = {"a": "The sky is blue. The sea is near. I like grass.", "b": "The night is dark. It is long. Nobody is up."}

    def errors(**options):
        return c2fa.cite(Reader(), text, "What is blue?", "It is blue.", budget=40, **options).stderr[-1]

    as_noise = errors(penalty=Auto(noiseless=False))
    np.testing.assert_allclose(errors(), errors(penalty=Auto(noiseless=True)))
    assert errors().mean() < 0.8 * as_noise.mean()
    similar = [errors(similarity="words", **more) for more in ({}, {"penalty": Auto(noiseless=False)})]
    np.testing.assert_allclose(*similar)

"""Explanations that are smooth over neighbours: what is solved, how sure it is, and how the answers decide."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import block_diag, null_space
from scipy.stats import multivariate_normal

import c2fa
from c2fa.asking.masking import Masked
from c2fa.graph import Graph, Smoother, chain
from c2fa.solution import Status
from c2fa.solvers.evidence import Observations
from c2fa.solvers.scales import search
from c2fa.solvers.solve import STRENGTHS, smoothed, solve_smooth
from oracles import membership
from strategies import problems

SIZES = [((3, 12), (9, 40)), ((3, 12), (4, 5)), ((2, 5, 15), (6, 8, 30)), ((2, 5, 15), (3, 4, 4)), ((9,), (30,))]
TEXT = "Good plot and a fine cast. It was too long for me. The ending, though, was a real joy to see."
TELLING = {"good": 1.0, "fine": 0.6, "joy": 1.2, "long": -1.0, "real": 0.3}


def review(batch):
    """A model of texts: a few words tell, and it saturates."""
    score = np.array([sum(TELLING.get(word.strip(".,").lower(), 0.0) for word in text.split()) for text in batch])
    return np.tanh(score / 2.0)


def made(widths, rows, penalties, outputs=None, intercept=True, seed=0):
    """A problem of random masks and answers over parts of leaves side by side, and a graph that ties those in a row."""
    rng = np.random.default_rng(seed)
    owners = [np.sort(np.arange(b) % a) for a, b in itertools.pairwise(widths)]
    s = c2fa.Structure(tuple(owners), tuple(tuple(f"{k}.{i}" for i in range(w)) for k, w in enumerate(widths)))
    levels = [
        c2fa.Level(
            rng.random((n, width)) < 0.5,
            rng.normal(size=(n,) if outputs is None else (n, outputs)),
            0.1 + rng.random(n),
            penalty,
            intercept,
        )
        for width, n, penalty in zip(widths, rows, penalties, strict=True)
    ]
    owner = s.owners(s.depth - 2) if s.depth > 1 else np.zeros(s.leaves, int)
    return c2fa.Problem(s, tuple(levels)), chain(owner, 0.5 + rng.random(s.leaves))


def roughness(graph, leaves, strength):
    """``I + τL``, edge by edge."""
    matrix = np.eye(leaves)
    for (i, k), weight in zip(graph.edges, graph.weights, strict=True):
        difference = np.zeros(leaves)
        difference[i], difference[k] = 1.0, -1.0
        matrix += strength * weight * np.outer(difference, difference)
    return matrix


def literal(problem, graph, strength):
    """The minimiser of ½‖W½(y − b − ZMβ)‖² + λ‖(I + τL)β‖² + Σ λ_l‖M_l β‖² over leaves and intercepts as one system.

    Returns the values, the intercepts, the leaves' covariance over σ², and σ² for each output.
    """
    s, with_b = problem.structure, [k for k, lv in enumerate(problem.levels) if lv.intercept]
    size = s.leaves + len(with_b)
    rows, weights, answers = [], [], []
    penalty = np.zeros((size, size))
    for k, lv in enumerate(problem.levels):
        m = membership(s, k)
        z = np.zeros((len(lv.masks), size))
        z[:, : s.leaves] = lv.masks.astype(float) @ m
        if k in with_b:
            z[:, s.leaves + with_b.index(k)] = 1.0
        rows.append(z)
        weights.append(lv.weights)
        answers.append(lv.outputs.reshape(len(lv.masks), -1))
        what = m if k < s.depth - 1 else roughness(graph, s.leaves, strength)
        lam = np.broadcast_to(lv.penalty.ridge, len(what))
        penalty[: s.leaves, : s.leaves] += 2.0 * what.T @ np.diag(lam) @ what
    z, w, y = np.concatenate(rows), np.diag(np.concatenate(weights)), np.concatenate(answers)
    inverse = np.linalg.inv(z.T @ w @ z + penalty)
    x = inverse @ z.T @ w @ y
    values = tuple(membership(s, k) @ x[: s.leaves] for k in range(s.depth))
    intercepts = tuple(x[s.leaves + with_b.index(k)] if k in with_b else np.zeros(y.shape[1]) for k in range(s.depth))
    residuals = np.diag(w) @ np.square(y - z @ x)
    energy = residuals + np.einsum("ij,ik,kj->j", x, penalty, x)
    used = np.trace(z @ inverse @ z.T @ w)
    noise = np.maximum(energy / (len(y) - len(with_b)), residuals / (len(y) - used))
    return values, intercepts, inverse[: s.leaves, : s.leaves], noise


# -- one strength ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("widths", "rows"), SIZES)
@pytest.mark.parametrize("outputs", [None, 3])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("strength", [0.0, 0.7, 20.0])
def test_the_solution_and_its_errors_are_those_of_the_literal_system(widths, rows, outputs, intercept, strength):
    penalties = [c2fa.L2(lam) for lam in (0.3, 0.05, 0.2)[-len(widths) :]]
    problem, graph = made(widths, rows, penalties, outputs, intercept)
    found = c2fa.solve(smoothed(problem, graph, strength), "direct")
    values, intercepts, covariance, noise = literal(problem, graph, strength)
    for k in range(len(widths)):
        shape = found.values[k].shape
        m = membership(problem.structure, k)
        errors = np.sqrt(np.diag(m @ covariance @ m.T)[:, None] * noise)
        np.testing.assert_allclose(found.values[k], values[k].reshape(shape), atol=1e-10)
        np.testing.assert_allclose(np.atleast_1d(found.intercepts[k]), intercepts[k], atol=1e-10)
        np.testing.assert_allclose(found.stderr[k], errors.reshape(shape), rtol=1e-7)


@pytest.mark.parametrize(("widths", "rows"), SIZES)
def test_leaves_may_have_strengths_of_their_own(widths, rows):
    lams = np.random.default_rng(1).uniform(0.05, 2.0, widths[-1])
    problem, graph = made(widths, rows, [*[c2fa.L2(0.1)] * (len(widths) - 1), c2fa.L2Each(lams)])
    found = c2fa.solve(smoothed(problem, graph, 1.5))
    values, _, covariance, noise = literal(problem, graph, 1.5)
    np.testing.assert_allclose(found.values[-1], values[-1][:, 0], atol=1e-10)
    np.testing.assert_allclose(found.stderr[-1], np.sqrt(np.diag(covariance) * noise[0]), rtol=1e-7)


@given(problems(), st.sampled_from([0.1, 1.0, 30.0]), st.booleans())
def test_parts_are_the_sums_of_smooth_leaves_to_the_last_bit(problem, strength, choose):
    s = problem.structure
    graph = chain(s.owners(s.depth - 2))
    if choose:
        problem = c2fa.Problem(s, tuple(replace(lv, penalty=c2fa.Auto()) for lv in problem.levels))
        found = solve_smooth(problem, graph)
    else:
        found = c2fa.solve(smoothed(problem, graph, strength))
    for k in range(s.depth):
        np.testing.assert_array_equal(found.values[k], s.sums(found.values[-1], k))


def test_without_a_penalty_on_the_leaves_there_is_nothing_to_smooth():
    """What is penalised are the leaves before they are smoothed; parts, and what the rows determine, stay."""
    problem, graph = made((3, 12), (9, 40), [c2fa.L2(0.4), c2fa.L2(0.0)])
    smooth, rough = c2fa.solve(smoothed(problem, graph, 2.0)), c2fa.solve(problem)
    assert smooth.status == rough.status == Status.EXACT
    for k in (0, 1):
        np.testing.assert_allclose(smooth.values[k], rough.values[k], atol=1e-9)
        np.testing.assert_allclose(smooth.stderr[k], rough.stderr[k], rtol=1e-6)


def test_what_the_rows_do_not_determine_has_infinite_errors():
    """Leaves 0 and 1 are only ever seen together; 2 and 3 are known, whatever they are tied to."""
    s = c2fa.Structure.from_groups("aaaa")
    masks = np.array([[1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [1, 1, 1, 0], [0, 0, 1, 1]], dtype=bool)
    outputs = np.array([1.0, 2.0, 3.0, 3.1, 4.9])
    parts = c2fa.Level(np.array([[True], [False]]), np.array([6.0, 0.0]), penalty=c2fa.L2(0.0))
    for edges in ([[0, 1], [2, 3]], [[0, 1], [1, 2]], [[1, 2]], [[2, 3]]):
        for strength in (0.5, 5.0):
            low = c2fa.Level(masks, outputs, penalty=c2fa.L2(0.0))
            found = c2fa.solve(smoothed(c2fa.Problem(s, (parts, low)), Graph(edges), strength))
            assert found.status == Status.NOT_UNIQUE
            assert np.flatnonzero(np.isinf(found.stderr[1])).tolist() == [0, 1]
            assert not np.isnan(found.stderr[1]).any()
            assert np.isfinite(found.stderr[0]).all()


def test_many_outputs_are_each_solved_by_themselves():
    problem, graph = made((3, 12), (9, 30), [c2fa.L2(0.1), c2fa.L2(0.2)], outputs=4)
    together = c2fa.solve(smoothed(problem, graph, 1.0))
    for c in range(4):
        levels = tuple(replace(lv, outputs=lv.outputs[:, c]) for lv in problem.levels)
        alone = c2fa.solve(smoothed(c2fa.Problem(problem.structure, levels), graph, 1.0))
        for k in (0, 1):
            np.testing.assert_allclose(together.values[k][:, c], alone.values[k], atol=1e-12)
            np.testing.assert_allclose(together.stderr[k][:, c], alone.stderr[k], rtol=1e-9)


def test_other_solvers_and_penalties_are_smooth_too():
    problem, graph = made((3, 12), (9, 30), [c2fa.L2(0.1), c2fa.L2(0.2)])
    exact = c2fa.solve(smoothed(problem, graph, 1.0), "direct")
    stepped = c2fa.solve(smoothed(problem, graph, 1.0), "admm", atol=1e-11, rtol=1e-11)
    for k in (0, 1):
        np.testing.assert_allclose(stepped.values[k], exact.values[k], atol=1e-7)
    sparse = c2fa.Problem(problem.structure, (problem.levels[0], replace(problem.levels[1], penalty=c2fa.L1(1.5))))
    found = c2fa.solve(smoothed(sparse, graph, 1.0))
    before = roughness(graph, 12, 1.0) @ found.values[1]
    assert 0 < (np.abs(before) < 1e-9).sum() < 12  # of what is looked for, some are exactly nothing


@pytest.mark.parametrize(("widths", "rows"), SIZES)
def test_the_posterior_is_of_smooth_leaves(widths, rows):
    penalties = [c2fa.L2(lam) for lam in (0.3, 0.05, 0.2)[-len(widths) :]]
    problem, graph = made(widths, rows, penalties)
    posterior = c2fa.solve(smoothed(problem, graph, 1.3)).posterior
    _, _, covariance, _ = literal(problem, graph, 1.3)
    some = np.array([0, 2, 3, widths[-1] - 1])
    np.testing.assert_allclose(posterior.covariance(-1, some), covariance[np.ix_(some, some)], atol=1e-10)
    m = membership(problem.structure, 0)
    every = np.arange(widths[0])
    np.testing.assert_allclose(posterior.covariance(0, every), m @ covariance @ m.T, atol=1e-10)
    deviation = np.sqrt(np.diag(covariance))
    expected = (covariance / np.outer(deviation, deviation))[np.ix_(some, some)]
    np.testing.assert_allclose(posterior.correlation(-1, some), expected, atol=1e-9)


# -- the answers decide ----------------------------------------------------------------------------


def to_choose(truth, seed=0, rows=60, noise=0.3, parts=3):
    """Answers of an additive model with noise, whose leaves lie in a row."""
    rng = np.random.default_rng(seed)
    s = c2fa.Structure.from_groups(np.repeat(np.arange(parts), len(truth) // parts))
    levels = []
    for k, n in ((0, 8), (1, rows)):
        masks = rng.random((n, s.widths[k])) < 0.5
        outputs = s.expand(masks, k) @ truth + noise * rng.normal(size=n)
        levels.append(c2fa.Level(masks, outputs, None, c2fa.Auto(), True))
    return c2fa.Problem(s, tuple(levels)), chain(s.owners(0))


def density(problem, strength, graph):
    """The log density of the answers' contrasts under the scales that are chosen, by its definition."""
    one = smoothed(problem, graph, strength)
    scales = search(Observations.of(one)).scales
    variances = scales.centre * np.prod(scales.own) ** (1.0 / len(scales.own))
    s, rows, noise, contrasts, y = problem.structure, [], [], [], []
    spread = np.linalg.inv(roughness(graph, s.leaves, strength))
    squares = 0.0
    for k, lv in enumerate(problem.levels):
        m = membership(s, k)
        rows.append(lv.masks.astype(float) @ (spread if k == s.depth - 1 else m))
        noise.append(np.full(len(lv.masks), scales.noises[k]))
        contrasts.append(null_space(np.ones((1, len(lv.masks)))))
        y.append(lv.outputs)
        squares += np.square(lv.outputs - lv.outputs.mean()).sum()
    contrast, x, y = block_diag(*contrasts), np.concatenate(rows), np.concatenate(y)
    y = y / np.sqrt(squares / (len(y) - len(rows)))  # in units of their variance
    covariance = contrast.T @ (x @ np.diag(variances) @ x.T + np.diag(np.concatenate(noise))) @ contrast
    return multivariate_normal(np.zeros(len(covariance)), covariance).logpdf(contrast.T @ y)


@pytest.mark.parametrize("rows", [12, 60])  # fewer than leaves, and more
def test_evidence_is_how_likely_the_answers_are(rows):
    problem, graph = to_choose(np.sin(np.arange(30) / 4.0), rows=rows)
    found = np.array([c2fa.solve(smoothed(problem, graph, t)).log_evidence for t in STRENGTHS])
    expected = np.array([density(problem, t, graph) for t in STRENGTHS])
    np.testing.assert_allclose(found - found[0], expected - expected[0], atol=1e-7)


TRIED = (0.3, 1.0, 3.0)


@pytest.mark.parametrize("strengths", [TRIED, (0.0, 1.0), (2.0,)])
@pytest.mark.parametrize("solver", ["auto", "direct"])
def test_the_explanation_is_the_mean_by_evidence(strengths, solver):
    rng = np.random.default_rng(3)
    problem, graph = to_choose(rng.normal(size=30), rows=25)
    merged = solve_smooth(problem, graph, strengths, solver)
    likeliest = merged.problem
    alone = [c2fa.solve(smoothed(problem, graph, t) if t else problem) for t in strengths]
    likely = [np.exp(one.log_evidence - alone[0].log_evidence) for one in alone]
    weights = [one / sum(likely) for one in likely]
    assert len(strengths) == 1 or sorted(weights)[-2] > 0.01  # else there would be nothing to see
    for k in (0, 1):
        mean = sum(w * one.values[k] for w, one in zip(weights, alone, strict=True))
        square = sum(w * (one.stderr[k] ** 2 + one.values[k] ** 2) for w, one in zip(weights, alone, strict=True))
        np.testing.assert_allclose(merged.values[k], mean, atol=1e-12)
        np.testing.assert_allclose(merged.stderr[k], np.sqrt(square - mean**2), rtol=1e-7)
        intercept = sum(w * one.intercepts[k] for w, one in zip(weights, alone, strict=True))
        np.testing.assert_allclose(merged.intercepts[k], intercept, atol=1e-12)
        lv = problem.levels[k]
        residual = lv.outputs - lv.masks @ mean - intercept
        np.testing.assert_allclose(merged.losses[k], 0.5 * np.sum(lv.weights * residual**2), rtol=1e-9)
    smooth = likeliest.levels[-1].smooth
    assert (0.0 if smooth is None else smooth.strength) == strengths[int(np.argmax(weights))]


def weights_of(problem, graph):
    evidence = np.array([c2fa.solve(smoothed(problem, graph, t)).log_evidence for t in TRIED])
    weights = np.exp(evidence - evidence.max())
    return weights / weights.sum()


@pytest.mark.parametrize("seed", range(4))
def test_smooth_truths_are_smoothed_and_rough_ones_are_not(seed):
    """Fewer rows than leaves tell that neighbours are alike; that they are not takes more."""
    i = np.arange(30)
    for truth, rows, likeliest in ((np.cos(i / 6.0), 24, 3.0), ((-1.0) ** i, 60, 0.3)):
        problem, graph = to_choose(truth, seed, rows)
        merged = solve_smooth(problem, graph, TRIED)
        chosen = merged.problem
        assert chosen.levels[-1].smooth.strength == likeliest
        assert weights_of(problem, graph)[TRIED.index(likeliest)] > 0.6
        if likeliest == 3.0:  # what smoothing is for
            rough = c2fa.solve(problem).values[1]
            assert np.abs(merged.values[1] - truth).mean() < 0.7 * np.abs(rough - truth).mean()


def test_it_takes_evidence_to_choose():
    problem, graph = made((3, 12), (9, 30), [c2fa.L2(0.1), c2fa.L2(0.2)])
    with pytest.raises(ValueError, match="only be told where the penalty is 'auto'; give smooth= a number"):
        solve_smooth(problem, graph)


# -- as an option ----------------------------------------------------------------------------------


def words(**options):
    return c2fa.Explainer(review, c2fa.maskers.Text(), budget=options.pop("budget", 60), **options)(TEXT)


def test_a_number_is_the_fit_of_that_strength():
    seen, masked = [], c2fa.maskers.Text()(TEXT)
    masker = lambda x: replace(masked, inputs=lambda m, k: seen.extend(m) or masked.inputs(m, k))  # noqa: E731
    e = c2fa.Explainer(review, masker, budget=40, smooth=1.7, penalty=c2fa.L2(0.2), solver="direct")(TEXT)
    s, levels = masked.structure, []
    asked = ([], [])  # masks of sentences, of which all words are kept or none, and of words
    for row in seen[1:]:
        part = row[s.starts(0)]
        is_whole = (part[s.owners(0)] == row).all()
        asked[0 if is_whole else 1].append(part if is_whole else row)
    for k, width in enumerate(s.widths):
        rows = np.unique(np.concatenate([asked[k], np.ones((1, width), bool)]), axis=0)
        levels.append(c2fa.Level(rows, review(masked.inputs(rows, k)), penalty=c2fa.L2(0.2), intercept=True))
    values, _, _, _ = literal(c2fa.Problem(masked.structure, tuple(levels)), masked.neighbours(), 1.7)
    np.testing.assert_allclose(e.low, values[1][:, 0], atol=1e-9)
    np.testing.assert_allclose(e.high, values[0][:, 0], atol=1e-9)
    assert np.abs(e.low - words(budget=40, smooth=None, penalty=c2fa.L2(0.2)).low).max() > 0.01


def test_several_numbers_are_weighed_by_the_answers():
    several, narrow = words(method="c2fa", smooth=(0.5, 2.0)), words(method="c2fa", smooth=[2.0])
    np.testing.assert_array_equal(narrow.low, words(method="c2fa", smooth=2.0).low)
    between = [words(method="c2fa", smooth=t) for t in (0.5, 2.0)]
    assert np.ptp([e.low for e in between], axis=0).max() > 0
    low, high = np.sort([e.low for e in between], axis=0)
    assert ((low - 1e-12 <= several.low) & (several.low <= high + 1e-12)).all()
    with pytest.raises(ValueError, match="as only penalty='auto' can; give one number"):
        c2fa.methods.C2FA(smooth=(0.5, 2.0), penalty=c2fa.L2(1.0))
    mixed = words(smooth=(0.5, 2.0), penalty=(c2fa.L2(0.0), c2fa.Auto()))  # which is what auto comes to
    np.testing.assert_array_equal(several.low, mixed.low)
    with pytest.raises(ValueError, match="as only penalty='auto' can; give one number"):
        c2fa.methods.C2FA(smooth=(0.5, 2.0), penalty=(c2fa.L2(0.0), c2fa.L2(1.0)))


@pytest.mark.parametrize("form", [list, np.array])
def test_strengths_are_the_same_settings_however_they_are_held(form):
    given = c2fa.methods.C2FA(smooth=(0.5, 2.0))
    assert c2fa.methods.C2FA(smooth=form((0.5, 2.0))) == given
    assert str(c2fa.methods.C2FA(smooth=form((0.5, 2.0)))) == str(given)
    assert c2fa.methods.C2FA(smooth=np.array(2.0)) == c2fa.methods.C2FA(smooth=2.0)


def picture(**options):
    """A bag of two images of four quarters each, of which the left halves matter alike."""
    quarters = np.repeat(np.repeat([[0, 1], [2, 3]], 4, axis=0), 4, axis=1)
    dark, light = np.full((8, 8, 3), 20, np.uint8), np.full((8, 8, 3), 220, np.uint8)
    dark[:, 4:] = 200
    model = lambda bags: np.array([[(b[0][:, :4] > 0).mean() ** 2 + 0.1 * (b[1][:, :4] > 0).mean()] for b in bags])  # noqa: E731
    masker = c2fa.maskers.ImageBag(segment=[quarters, quarters], absent="fill")
    return c2fa.Explainer(model, masker, budget=20, **options)([dark, light])


def test_by_default_images_are_as_smooth_as_the_answers_say_and_texts_are_not():
    default, rough = picture(), picture(smooth=None)
    np.testing.assert_array_equal(default.low, picture(smooth="auto").low)
    assert np.abs(default.low - rough.low).max() > 1e-6
    np.testing.assert_array_equal(words().low, words(smooth=None).low)
    np.testing.assert_array_equal(words(smooth=None).low, words(smooth=0).low)
    assert np.abs(words(smooth=1.0).low - words().low).max() > 1e-3
    for e in (default, rough, words(smooth=3.0)):
        np.testing.assert_array_equal(e.high, e.structure.sums(e.low, 0))
        assert e.diagnostics.consistency == 0
        assert np.isfinite(e.stderr[1]).all()
    flat = c2fa.Explainer(lambda batch: np.full(len(batch), 0.3), c2fa.maskers.Text(), budget=40)(TEXT)
    np.testing.assert_allclose(flat.low, 0.0, atol=1e-12)


@pytest.mark.parametrize(
    "options",
    [
        {"penalty": c2fa.L2(0.1)},
        {"penalty": None},
        {"solver": "admm"},
        {"solver": "paper"},
        {"penalty": (c2fa.L2(0.1), c2fa.L1(0.01))},
        {"preset": "paper"},
    ],
)
def test_where_answers_cannot_decide_auto_does_nothing(options):
    plain = words(**options, smooth=None)
    for k in (0, 1):
        np.testing.assert_array_equal(words(**options, smooth="auto").values[k], plain.values[k])


def test_maskers_without_neighbours_are_taken_as_they_are():
    s = c2fa.Structure.from_groups("aaabbb")
    model = lambda b: np.tanh(b @ np.arange(6.0) / 5)  # noqa: E731
    found = [
        c2fa.Explainer(model, c2fa.maskers.Array(s), budget=30, smooth=smooth)(np.ones(6)).low
        for smooth in ("auto", None)
    ]
    np.testing.assert_array_equal(*found)
    alone = c2fa.Explainer(review, c2fa.maskers.Text(), budget=9)("Good. Fine.")  # words, but none beside another
    assert alone.high.shape == (2,)


@pytest.mark.parametrize("outputs", ["all", "target"])
def test_the_target_decides_for_all_outputs(outputs):
    def two(batch):
        return np.stack([review(batch), np.array([len(text) for text in batch]) / 90.0], axis=1)

    e = c2fa.Explainer(two, c2fa.maskers.Text(), budget=60, target=0, outputs=outputs)(TEXT)
    np.testing.assert_allclose(e.low, words().low, atol=1e-10)
    np.testing.assert_allclose(e.stderr[1], words().stderr[1], rtol=1e-8)
    assert e.all_values[1].shape == (21, 2 if outputs == "all" else 1)


def test_a_rule_stops_the_default_on_a_text():
    errors = words(until="stderr:0.05", budget=80)
    assert errors.queries < 80
    assert errors.diagnostics.settled
    assert errors.stderr[1].max() <= 0.05
    top = words(until=c2fa.until.top(1, level=0), budget=80)
    assert top.queries <= 80
    assert top.diagnostics.stop
    assert top.high.argmax() in (0, 2)
    whole = words(until="stderr:1e-9", budget=50)
    assert whole.queries == 50
    assert whole.diagnostics.settled is False


@pytest.mark.parametrize("smooth", [-1, -0.5, True, np.inf, np.nan, "yes", [], [1.0, -1.0], [True]])
def test_what_is_no_strength_is_refused(smooth):
    with pytest.raises(ValueError, match="smooth must be a number from 0, several of them, 'auto' or None; got"):
        c2fa.methods.C2FA(smooth=smooth)


def test_wishes_that_cannot_be_met_are_refused_before_they_cost_anything():
    rows = []

    def model(batch):
        rows.append(len(batch))
        return batch.sum(axis=1)

    s = c2fa.Structure.from_groups("aab")
    explainer = c2fa.Explainer(model, c2fa.maskers.Array(s), budget=20, smooth=1.0)
    with pytest.raises(ValueError, match=r"smooth=1\.0 needs neighbours, and the masker knows of none"):
        explainer(np.ones(3))
    assert rows == [1]  # the prediction
    with pytest.raises(ValueError, match=r"solver='paper' cannot do smooth=1\.0; use solver='auto', or smooth=None"):
        c2fa.methods.C2FA(solver="paper", smooth=1.0)
    problem, graph = made((3, 12), (9, 30), [c2fa.L2(0.1), c2fa.L2(0.2)])
    with pytest.raises(ValueError, match="Algorithm 1 knows no smoothness"):
        c2fa.solve(smoothed(problem, graph, 1.0), "paper")


@pytest.mark.parametrize("smooth", [1.0, "auto"])
def test_neighbours_across_parts_are_refused(smooth):
    s = c2fa.Structure.from_groups("aab")

    def masker(x):
        return Masked(
            s, lambda m, k: s.expand(m, k) * x, neighbours=lambda: Graph([[0, 1], [1, 2]]), smooth_by_default=True
        )

    asked = []

    def model(batch):
        asked.append(len(batch))
        return batch @ np.array([1.0, 2.0, 4.0])

    explainer = c2fa.Explainer(model, masker, budget=12, smooth=smooth)
    with pytest.raises(ValueError, match="leaves 1 and 2 are tied but belong to different parts"):
        explainer(np.ones(3))
    assert sum(asked) == 1  # the prediction itself
    high = c2fa.Level(np.eye(2, dtype=bool), np.zeros(2), smooth=Smoother(Graph([[0, 1]]), 1.0, 2))
    with pytest.raises(ValueError, match="only the finest level can be smooth, and level 0 is not the finest"):
        c2fa.Problem(s, (high, c2fa.Level(np.eye(3, dtype=bool), np.zeros(3))))


def test_the_posterior_behind_stopping_is_that_of_the_fit():
    """Where strengths and weights are chosen, correlations are those of the problem that was solved."""
    from c2fa.penalties import Auto
    from c2fa.solvers.auto import choose

    rng = np.random.default_rng(5)
    s = c2fa.Structure.from_groups("aaabbbcc")
    levels = []
    for width in s.widths:
        masks = rng.random((14, width)) < 0.5
        levels.append(c2fa.Level(masks, masks @ rng.normal(size=width) + rng.normal(size=14), None, Auto(), True))
    problem = c2fa.Problem(s, tuple(levels))
    posterior = c2fa.solve(problem).posterior
    assert posterior is not None
    solved = choose(problem).problem
    strengths = solved.levels[-1].penalty.ridge
    dense = np.linalg.inv(solved.design.T @ solved.design + np.diag(2.0 * strengths))
    np.testing.assert_allclose(posterior.covariance(-1, np.arange(8)), dense, rtol=1e-8, atol=1e-12)


def test_smoothing_hardly_moves_the_errors_of_parts():
    """A leaf gives to its neighbours what it takes from them, so the parts are known as well as before."""
    rough, smooth = (words(method="c2fa", smooth=t) for t in (None, 3.0))
    assert np.median(smooth.stderr[0] / rough.stderr[0]) < 1.5


def test_an_exactly_additive_model_has_small_errors():
    """However many rows there are, and though some levels are asked completely."""
    s = c2fa.Structure.from_groups("aaaabbb")
    weights = np.array([2.0, -1.0, 0.5, 0.0, 1.0, 3.0, -2.0])
    for budget in (60, 100, 200):
        e = c2fa.Explainer(lambda b: b @ weights, c2fa.maskers.Array(s), budget=budget)(np.ones(7))
        np.testing.assert_allclose(e.low, weights, atol=0.02)
        assert e.stderr[0].max() < 0.02
        assert e.stderr[1].max() < 0.02

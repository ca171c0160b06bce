"""What was learned from other inputs counts as far as the answers bear it out."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import c2fa
from c2fa.graph import Graph
from c2fa.penalties import L2, Auto
from c2fa.priors.learning import Field, Lessons
from c2fa.problem import Level, Problem
from c2fa.solvers.expected import Expectation, solve_about
from c2fa.solvers.solve import smoothed, solve


def problem_of(seed, rows=(6, 30), leaves=12, parts=3, noise=0.1, outputs=1, truth=None):
    """An additive model with noise, asked at two levels, with its leaves' values."""
    rng = np.random.default_rng(seed)
    structure = c2fa.Structure.from_groups(np.sort(rng.permutation(np.arange(leaves) % parts)))
    truth = rng.normal(size=(leaves, outputs)) if truth is None else truth
    levels = []
    for k, n in enumerate(rows):
        masks = rng.random((n, structure.widths[k])) < 0.5
        y = 0.3 + masks @ structure.sums(truth, k) + noise * rng.normal(size=(n, outputs))
        penalty = Auto() if k == len(rows) - 1 else L2(0.0)
        levels.append(Level(masks, y, None, penalty, intercept=True))
    return Problem(structure, tuple(levels)), truth


def solved_about(problem, effects):
    """Where what is left of any leaf is as large as that of any other."""
    return solve_about(problem, Expectation(effects, np.ones_like(effects)), solve)


def kriging(problem, solution, sizes=1.0):
    """The precision of the answers under a solution's scales, intercepts integrated out: a row for each row.

    Values have the covariance ``S diag(sizes/2λ) S``, rows noise ``1/w``, and each level a constant that is not known.
    """
    s, levels = problem.structure, solution.problem.levels
    rows = np.concatenate([level.masks[:, s.owners(k)].astype(float) for k, level in enumerate(levels)])
    smooth = levels[-1].smoothed(np.eye(s.leaves))
    covariance = smooth @ np.diag(0.5 * sizes / solution.strengths[-1]) @ smooth
    inverse = np.linalg.inv(
        rows @ covariance @ rows.T + np.diag(np.concatenate([1.0 / level.weights for level in levels]))
    )
    constants = np.zeros((len(rows), len(levels)))
    for k, level in enumerate(np.repeat(np.arange(len(levels)), [len(level.masks) for level in levels])):
        constants[k, level] = 1.0
    projected = inverse @ constants
    return rows, covariance, inverse - projected @ np.linalg.inv(constants.T @ projected) @ projected.T


def literal(problem, expected, sizes):
    """The same, written out: the share by generalised least squares, and what both fits say, by their odds."""
    plain, together = solve(problem), sizes.sum(axis=1)
    rows, _, precision = kriging(problem, plain, together / np.prod(together) ** (1 / len(together)))
    y = np.concatenate([level.outputs for level in problem.levels])
    outputs, free = y.shape[1], sum(len(level.masks) - 1 for level in problem.levels)
    mean = rows @ expected
    unit = np.trace(y.T @ precision @ y) / outputs / free
    a = np.trace(mean.T @ precision @ mean) / outputs / unit
    b = np.trace(mean.T @ precision @ y) / outputs / unit
    share = (b + 1.0) / (a + 1.0)
    if share <= 0:
        return plain.values[-1], plain.stderr[-1], 0.0
    levels, start, penalty = [], 0, Auto(sizes=together)
    for level in problem.levels:
        there = slice(start, start := start + len(level.masks))
        left = y[there] - share * mean[there]
        levels.append(Level(level.masks, left, level.weights, penalty, level.intercept, level.smooth))
    about = solve(Problem(problem.structure, tuple(levels)))
    odds = about.log_evidence - plain.log_evidence - (share - 1.0) ** 2 / 2.0 - 0.5 * np.log(1.0 + a) - 0.5
    trust = max((np.exp(odds) - 1.0) / (np.exp(odds) + 1.0), 0.0)
    found = about.values[-1] + share * expected
    values = (1.0 - trust) * plain.values[-1] + trust * found
    rows, covariance, precision = kriging(problem, about)
    left = y - share * mean
    unit = np.trace(left.T @ precision @ left) / outputs / free
    surely = np.trace(mean.T @ precision @ mean) / outputs / unit + 1.0
    left = expected - covariance @ rows.T @ precision @ mean
    variances = (1.0 - trust) * (plain.stderr[-1] ** 2 + (plain.values[-1] - values) ** 2)
    variances += trust * (about.stderr[-1] ** 2 + left**2 / surely + (found - values) ** 2)
    return values, np.sqrt(variances), trust * share


@pytest.mark.parametrize("strength", [0.0, 0.5])
@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("seed", range(6))
def test_as_written_out(seed, outputs, strength):
    rng = np.random.default_rng(seed)
    expected, sizes = rng.normal(size=(12, outputs)), np.exp(rng.normal(size=(12, outputs)))
    quality = 1.0 if seed < 4 else -1.0
    truth = quality * (expected + 0.3 * np.sqrt(sizes) * rng.normal(size=expected.shape))
    problem, _ = problem_of(seed, outputs=outputs, truth=truth)
    if strength:
        owners = problem.structure.owners(0)
        beside = [[i, i + 1] for i in range(len(owners) - 1) if owners[i] == owners[i + 1]]
        problem = smoothed(problem, Graph(np.array(beside)), strength)
    about = solve_about(problem, Expectation(expected, sizes), solve)
    values, errors, share = literal(problem, expected, sizes)
    np.testing.assert_allclose(about.solution.values[-1], values, atol=1e-9)
    np.testing.assert_allclose(about.solution.stderr[-1], errors, atol=1e-9)
    assert about.share == pytest.approx(share, abs=1e-9)
    assert (share > 0.0) == (seed < 4)
    for k, values in enumerate(about.solution.values):
        np.testing.assert_allclose(values, problem.structure.sums(about.solution.values[-1], k), atol=1e-9)


def test_nothing_expected_changes_nothing():
    problem, truth = problem_of(0)
    about, plain = solved_about(problem, np.zeros_like(truth)), solve(problem)
    np.testing.assert_allclose(about.solution.values[-1], plain.values[-1], atol=1e-9)
    np.testing.assert_allclose(about.solution.stderr[-1], plain.stderr[-1], atol=1e-9)
    np.testing.assert_array_equal(about.without.values[-1], plain.values[-1])


def test_many_rows_leave_nothing_of_what_was_expected():
    problem, truth = problem_of(1, rows=(20, 400), noise=0.02)
    for expected in (truth, np.ones_like(truth)):
        about = solved_about(problem, expected)
        np.testing.assert_allclose(about.solution.values[-1], truth, atol=0.02)
        np.testing.assert_allclose(about.solution.values[-1], about.without.values[-1], atol=0.02)


def test_what_is_right_helps_where_rows_are_few():
    gains = []
    for seed in range(10):
        problem, truth = problem_of(seed, rows=(6, 6), leaves=30, parts=5)
        expected = 0.7 * truth + 0.3 * np.random.default_rng(seed).normal(size=truth.shape)
        found = solved_about(problem, expected).solution.values[-1]
        gains.append([np.square(v - truth).sum() for v in (solve(problem).values[-1], found)])
    plain, about = np.mean(gains, axis=0)
    assert about < 0.6 * plain


def test_it_helps_to_know_how_large_what_is_left_of_each_leaf_is():
    gains = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        expected, sizes = rng.normal(size=(30, 1)), np.exp(1.5 * rng.normal(size=(30, 1)))
        truth = expected + 0.5 * np.sqrt(sizes) * rng.normal(size=(30, 1))
        problem, _ = problem_of(seed, rows=(6, 20), leaves=30, parts=5, truth=truth)
        known, unit = (Expectation(expected, factor * sizes) for factor in (1.0, 1e6))
        found, same = (solve_about(problem, one, solve).solution for one in (known, unit))
        np.testing.assert_allclose(same.values[-1], found.values[-1], atol=1e-9)  # only their ratios count
        alike = solved_about(problem, expected).solution
        gains.append([np.square(one.values[-1] - truth).sum() for one in (alike, found)])
    alike, found = np.mean(gains, axis=0)
    assert found < 0.6 * alike


def test_the_sizes_of_the_output_that_decides_count():
    problem, truth = problem_of(3, outputs=2)
    rng = np.random.default_rng(0)
    sizes, expected = np.exp(rng.normal(size=truth.shape)), truth + 0.1 * rng.normal(size=truth.shape)
    problem = problem.with_levels([level.penalised(Auto(output=1)) for level in problem.levels])
    found = solve_about(problem, Expectation(expected, sizes), solve)
    assert found.share > 0.0
    for changed, same in ((0, True), (1, False)):
        other = sizes.copy()
        other[:, changed] = sizes[::-1, changed]
        values = solve_about(problem, Expectation(expected, other), solve).solution.values[-1]
        assert np.array_equal(values, found.solution.values[-1]) == same


def test_what_is_wrong_is_ignored():
    losses = []
    for seed in range(10):
        problem, truth = problem_of(seed, rows=(8, 40), leaves=30, parts=5)
        wrong = np.random.default_rng(seed).normal(size=truth.shape)
        found = solved_about(problem, wrong).solution.values[-1]
        losses.append([np.square(v - truth).sum() for v in (solve(problem).values[-1], found)])
        opposite = solved_about(problem, -truth)
        assert opposite.share == 0.0
        np.testing.assert_array_equal(opposite.solution.values[-1], opposite.without.values[-1])
        np.testing.assert_array_equal(opposite.solution.stderr[-1], opposite.without.stderr[-1])
    plain, about = np.mean(losses, axis=0)
    assert about < 1.02 * plain


@given(st.integers(0, 10_000), st.floats(1e-3, 1e3), st.floats(-2.0, 2.0))
@settings(max_examples=20, deadline=None)
def test_units_of_outputs_do_not_matter(seed, unit, quality):
    problem, truth = problem_of(seed)
    expected = quality * truth + np.random.default_rng(seed).normal(size=truth.shape)
    scaled = problem.with_levels([level.changed(outputs=unit * level.outputs) for level in problem.levels])
    one, other = solved_about(problem, expected), solved_about(scaled, unit * expected)
    assert other.share == pytest.approx(one.share, abs=1e-5)
    np.testing.assert_allclose(other.solution.values[-1], unit * one.solution.values[-1], atol=1e-5 * unit)
    np.testing.assert_allclose(other.solution.stderr[-1], unit * one.solution.stderr[-1], atol=1e-5 * unit)


@pytest.mark.parametrize("quality", [1.0, 0.5, 0.0, -1.0])
@pytest.mark.parametrize("noise", [0.3, 0.0])
def test_intervals_hold_the_truth(quality, noise):
    held = []
    for seed in range(30):
        problem, truth = problem_of(seed, rows=(16, 50), leaves=80, parts=5, noise=noise)
        expected = quality * truth + 0.5 * np.random.default_rng(seed).normal(size=truth.shape)
        found = solved_about(problem, expected).solution
        for k, (values, errors) in enumerate(zip(found.values, found.stderr, strict=True)):
            held.extend((np.abs(values - problem.structure.sums(truth, k)) <= 1.96 * errors).ravel())
    assert 0.9 <= np.mean(held) <= 0.99


def saturated(on, values):
    return np.tanh(on @ values)


def of_pairs(on, values):
    return on @ values + (on @ np.roll(values, 1)) * (on @ values) / len(values)


def of_largest(on, values):
    return (on * values).max(axis=1)


def constant(on, values):
    return np.zeros(len(on))


@given(
    st.integers(0, 10_000),
    st.sampled_from([np.matmul, saturated, of_pairs, of_largest, constant]),
    st.integers(1, 40),
    st.sampled_from([-3.0, -1.0, 0.0, 0.3, 1.0, 3.0]),
    st.sampled_from([1e-6, 1.0, 1e6]),
)
@settings(max_examples=60, deadline=None)
def test_whatever_the_model_values_add_up_and_what_is_ignored_leaves_no_trace(seed, model, rows, quality, unit):
    rng = np.random.default_rng(seed)
    structure = c2fa.Structure.from_groups(np.arange(12) % 3)
    values = rng.normal(size=12)
    levels = []
    for k, n in enumerate((6, rows)):
        masks = rng.random((n, structure.widths[k])) < 0.5
        outputs = unit * model(masks[:, structure.owners(k)].astype(float), values)[:, None]
        levels.append(Level(masks, outputs, None, Auto() if k else L2(0.0), intercept=True))
    problem = Problem(structure, tuple(levels))
    about = solved_about(problem, unit * (quality * values + 0.3 * rng.normal(size=12))[:, None])
    found, without = about.solution, about.without
    for k, level in enumerate(found.values):
        np.testing.assert_allclose(level, structure.sums(found.values[-1], k), atol=1e-9 * unit)
        assert np.isfinite(level).all()
        assert np.isfinite(found.stderr[k]).all()
    np.testing.assert_array_equal(without.values[-1], solve(problem).values[-1])
    assert about.share >= 0.0
    if about.share == 0.0:
        np.testing.assert_array_equal(found.values[-1], without.values[-1])
        np.testing.assert_array_equal(found.stderr[-1], without.stderr[-1])


def test_constant_outputs_have_no_effects_whatever_was_expected():
    problem, truth = problem_of(2, noise=0.0, truth=np.zeros((12, 1)))
    about = solved_about(problem, np.ones_like(truth))
    np.testing.assert_allclose(about.solution.values[-1], 0.0, atol=1e-12)
    assert about.share == 0.0


@given(st.integers(0, 10_000), st.floats(1e-3, 1e3))
@settings(max_examples=20, deadline=None)
def test_evidence_of_other_units_is_the_density_of_other_units(seed, unit):
    problem, _ = problem_of(seed)
    scaled = problem.with_levels([level.changed(outputs=unit * level.outputs) for level in problem.levels])
    freedom = sum(len(level.masks) - 1 for level in problem.levels)
    difference = solve(scaled).log_evidence - solve(problem).log_evidence
    assert difference == pytest.approx(-freedom * np.log(unit), abs=1e-5)


# Learning.


WORDS = {"good": 1.0, "bad": -1.5, "the": 0.0, "film": 0.1, "dull": -0.8, "fine": 0.5, "a": 0.0, "plot": 0.0}


def sentiment(texts):
    """A model that adds up its words; what is not there says nothing."""
    return np.array([[sum(WORDS.get(word.strip("."), 0.0) for word in text.split())] for text in texts])


def reviews(n, seed=0):
    rng = np.random.default_rng(seed)
    words = list(WORDS)
    return [
        " ".join(" ".join(rng.choice(words, rng.integers(3, 8))) + "." for _ in range(rng.integers(2, 4)))
        for _ in range(n)
    ]


def explainer(**options):
    return c2fa.Explainer(sentiment, c2fa.maskers.Text(mask="_"), output_names=["liking"], **{"budget": 60, **options})


@pytest.fixture(scope="module")
def prior():
    return c2fa.Prior.learn([explainer()(text) for text in reviews(40)])


def test_it_learns_what_words_do(prior):
    assert prior.worth["liking"] > 0.95
    assert prior.inputs == 40
    found = prior.expected({"word": ["good", "bad", "never met", None]}, ["liking"]).effects
    assert found[0, 0] == pytest.approx(1.0, abs=0.3)
    assert found[1, 0] == pytest.approx(-1.5, abs=0.3)
    np.testing.assert_array_equal(found[2:], 0.0)
    assert prior.expected({"word": ["never met"], "place": [0.5]}, ["liking"]) is None
    assert prior.expected({"word": ["good"]}, ["another output"]) is None
    assert prior.expected(None, ["liking"]) is None


def test_what_was_learned_can_be_read(prior):
    pd = pytest.importorskip("pandas")
    rows = prior.top(2)
    assert [row.name for row in prior.top(None) if row.field == "word"][:2] == ["word: bad", "word: good"]
    assert rows == prior.top(None, "liking")[:2]
    frame = pd.DataFrame(prior.top(None))
    assert list(frame.columns) == ["field", "value", "output", "effect", "stderr", "inputs"]
    assert len(frame) == sum(one.width for one in prior.fields.values())
    words = frame[frame["field"] == "word"].set_index("value")
    had = {word: sum(word in text.replace(".", "").split() for text in reviews(40)) for word in WORDS}
    assert words["inputs"].to_dict() == had
    assert (frame["effect"].abs().diff().dropna() <= 0).all()


def test_how_sure_it_is_follows_from_quarters_left_out():
    few, many = (c2fa.Prior.learn([explainer()(text) for text in reviews(n, seed=3)]) for n in (8, 60))
    assert all((errors >= 0).all() for errors in many.errors.values())
    sure = [np.mean([row.stderr for row in known.top(None) if row.field == "word"]) for known in (few, many)]
    assert sure[1] < sure[0]


def test_a_prior_is_drawn_with_its_inputs_and_its_errors(prior):
    pytest.importorskip("matplotlib")
    [ax] = prior.plot(5).axes
    assert [label.get_text().rsplit(" ", 1)[0] for label in ax.get_yticklabels()] == [r.name for r in prior.top(5)]
    assert "learned from 40 inputs, correlation" in ax.get_title("left")


def test_the_same_explanation_counts_once():
    told = [explainer()(text) for text in reviews(12)]
    once, twice = c2fa.Prior.learn(told), c2fa.Prior.learn([*told, *told, dataclasses.replace(told[0])])
    assert twice.inputs == 12
    assert twice.fingerprint == once.fingerprint
    with pytest.raises(ValueError, match="there are 3 different explanations to learn from; give 4 at least"):
        c2fa.Prior.learn(told[:3] * 4)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda prior: c2fa.Prior.learn("store/"), "takes explanations, not the name 'store/': .*Store.open"),
        (lambda prior: c2fa.Prior.learn(3), "a list of explanations, or a store; got int"),
        (lambda prior: c2fa.Prior.learn(reviews(2)), "a list of explanations, or a store; got str"),
        (lambda prior: prior.top(2, "lking"), "there are liking; did you mean 'liking'"),
        (lambda prior: prior.top(2.5), "n must be a whole number"),
    ],
)
def test_wrong_arguments_of_a_prior_are_told(prior, call, sentence):
    with pytest.raises((TypeError, ValueError), match=sentence):
        call(prior)


def test_it_is_the_same_whatever_the_order_of_fields_and_after_a_file(prior, tmp_path):
    prior.save(tmp_path / "prior.json")
    again = c2fa.Prior.load(tmp_path / "prior.json")
    assert again.fingerprint == prior.fingerprint
    told = {"word": ["good", "film"], "before": ["a", None]}
    one, other = (known.expected(told, ["liking"]) for known in (prior, again))
    np.testing.assert_array_equal(other.effects, one.effects)
    np.testing.assert_array_equal(other.sizes, one.sizes)
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(ValueError, match=r"is no prior that Prior\.save wrote"):
        c2fa.Prior.load(tmp_path / "other.json")


def test_it_learns_which_words_do_now_much_now_little():
    """What "wild" does depends on the review, what other words do does not."""

    def model(texts):
        of_wild = [np.sin(37.0 * len(text)) * text.count("wild") for text in texts]  # a mask is as long as a word
        return sentiment(texts) + 2.0 * np.array(of_wild)[:, None]

    rng = np.random.default_rng(0)
    words = [*WORDS, "wild"]
    texts = [" ".join(" ".join(rng.choice(words, 6)) + "." for _ in range(3)) for _ in range(40)]
    told = [c2fa.Explainer(model, masked_alike, output_names=["liking"], budget=80)(text) for text in texts]
    known = c2fa.Prior.learn(told)
    met = np.concatenate([e.descriptors["word"] for e in told])
    logs = np.log(np.concatenate([known.expected(e.descriptors, ["liking"], "above").sizes[:, 0] for e in told]))
    *others, wild = (logs[met == word].mean() for word in words)
    assert wild > max(others) + np.log(4.0)
    assert known.expected({"word": ["good", "never met"]}, ["liking"], "above").sizes[1, 0] == 1.0


@pytest.mark.parametrize("outputs", [1, 2])
def test_it_learns_what_words_do_in_inputs_of_each_kind(outputs):
    """What "indeed" does is to agree: it is for what the other words come to."""

    def model(texts):
        [other] = sentiment(texts).T
        said = other + np.sign(other) * np.array([text.count("indeed") for text in texts])
        return said[:, None] if outputs == 1 else np.column_stack([-said, said])

    names = ["liking"] if outputs == 1 else ["disliking", "liking"]
    good, bad = ("above", "below") if outputs == 1 else ("liking", "disliking")
    rng = np.random.default_rng(0)
    words = [*WORDS, "indeed"]
    texts = [" ".join(" ".join(rng.choice(words, 6)) + "." for _ in range(3)) for _ in range(80)]
    masker = c2fa.maskers.Text(mask="_")
    told = [c2fa.Explainer(model, masker, output_names=names, budget=80)(text) for text in texts]
    known = c2fa.Prior.learn(told)
    table = {"word": ["indeed", "good", "bad"]}
    for kind, sign in ((good, 1.0), (bad, -1.0)):
        indeed, for_it, against = known.expected(table, ["liking"], kind).effects[:, 0]
        assert sign * indeed > 0.1
        assert for_it > 0.5
        assert against < -0.5
    said = model([texts[0]])[0]
    assert known.kind(said, names) == (good if said[-1] > known.middle * (outputs == 1) else bad)


def masked_alike(text):
    """Words become as many underscores as they have letters."""
    from dataclasses import replace

    masked = c2fa.maskers.Text()(text)
    names, owners = masked.structure.names[-1], masked.structure.owners

    def inputs(masks, level):
        kept = masks[:, owners(level)]
        return [" ".join(n if k else "_" * len(n) for n, k in zip(names, row, strict=True)) for row in kept]

    return replace(masked, inputs=inputs)


def test_where_leaves_are_alike_no_sizes_are_learned():
    rng = np.random.default_rng(0)
    from c2fa.priors.learning import features_of

    table = {"word": [str(word) for word in rng.integers(40, size=4000)]}
    fields = {"word": Field.of(table["word"])}
    inputs = np.repeat(np.arange(100), 40)
    values = {"it": rng.normal(size=4000)}
    data = Lessons(fields, features_of(fields, table), inputs, values, {"it": np.full(4000, 0.1)}, 0.0, "identity", "")
    _, sizes, _, _ = data.learned("it")
    assert np.abs(sizes).max() < 0.1
    values["it"] *= np.where(np.array(table["word"]) == "7", 5.0, 1.0)
    _, sizes, _, _ = data.learned("it")
    assert sizes.argmax() == fields["word"].categories["7"]
    assert np.exp(sizes.max() - np.median(sizes)) > 5.0
    values["it"] *= 0.0
    _, sizes, _, _ = data.learned("it")
    np.testing.assert_array_equal(sizes, 0.0)


def test_few_rows_with_a_prior_say_more_than_without(prior, tmp_path):
    prior.save(tmp_path / "prior.json")
    gains = []
    for text in reviews(8, seed=1):
        truth = explainer(budget=400)(text).low
        few = explainer(budget=12)(text)
        helped = explainer(budget=12, prior=tmp_path / "prior.json")(text)
        assert helped.queries == few.queries
        np.testing.assert_allclose(helped.high, helped.structure.sums(helped.low, 0), atol=1e-9)
        np.testing.assert_allclose(helped.low - helped.from_prior[-1], few.low, atol=1e-9)
        assert "come from the prior (from 40 inputs)" in helped.to_text()
        told, parts = helped.prior, (helped.from_prior[-1], helped.low - helped.from_prior[-1])
        learned, answered = (np.abs(part).sum() for part in parts)
        assert told.share > 0.0
        assert told.worth == c2fa.Prior.load(tmp_path / "prior.json").worth["liking"]
        assert told.part == pytest.approx(learned / (learned + answered))
        assert few.prior is None
        gains.append([np.square(e.low - truth).sum() for e in (few, helped)])
    plain, about = np.mean(gains, axis=0)
    assert about < 0.5 * plain
    assert few.from_prior is None


def test_a_store_keeps_what_was_the_priors(prior, tmp_path):
    store = explainer(budget=12, prior=prior).many(reviews(3, seed=2), tmp_path / "store", engine="serial")
    e = explainer(budget=12, prior=prior)(reviews(3, seed=2)[0])
    np.testing.assert_allclose(store[0].from_prior[-1], e.from_prior[-1], atol=1e-5)
    assert store[0].provenance["prior"] == prior.name
    assert c2fa.Explanation.from_json(e.to_json()).from_prior[0] == pytest.approx(e.from_prior[0])
    assert "from_prior" in e.to_frame().columns
    row = store.table(["prior_share", "prior_part", "prior_worth"]).to_pylist()[0]
    for name in ("share", "part", "worth"):
        assert getattr(store[0].prior, name) == row[f"prior_{name}"] == pytest.approx(getattr(e.prior, name))
        assert getattr(c2fa.Explanation.from_json(e.to_json()).prior, name) == getattr(e.prior, name)
    with pytest.raises(RuntimeError, match="made with other settings"):
        explainer(budget=12).many(reviews(3, seed=2), tmp_path / "store", engine="serial")
    learned = c2fa.Prior.learn(explainer().many(reviews(8), tmp_path / "all", engine="serial"))
    assert learned.inputs == 8


def test_a_prior_that_is_not_used_is_said_to_be_so(prior):
    from dataclasses import replace

    text = reviews(1, seed=4)[0]
    plain = explainer(budget=30)(text)
    opposite = replace(prior, effects={name: -values for name, values in prior.effects.items()})
    e = explainer(budget=30, prior=opposite)(text)
    np.testing.assert_array_equal(e.low, plain.low)
    np.testing.assert_array_equal(e.stderr[-1], plain.stderr[-1])
    assert (e.prior.share, e.prior.part) == (0.0, 0.0)
    assert e.notes == [
        "none of these values come from the prior (from 40 inputs): this input's answers do not bear it out"
    ]
    strange = explainer(budget=30, prior=prior)("Zur Sache. Etwas Neues.")
    assert strange.from_prior is None
    assert strange.notes == [
        "none of these values come from the prior (from 40 inputs): it knows nothing of these words"
    ]


def test_the_page_has_what_is_the_priors_beside_every_value(prior):
    import base64

    from c2fa.report._page import halves, pack

    e = explainer(budget=12, prior=prior)(reviews(1, seed=2)[0])
    packed = pack(e, "one", 100)["prior"]
    assert packed == [halves(part[None]) for part in e.from_prior]
    assert len(base64.b64decode(packed[-1])) == 2 * e.structure.leaves
    assert pack(explainer(budget=12)(reviews(1)[0]), "one", 100)["prior"] is None


def test_what_was_expected_is_not_learned_again(prior, taught):
    """An explanation that had a prior teaches what its answers say alone."""
    assert c2fa.Prior.learn(taught).inputs == 14
    texts = reviews(30)
    had = explainer(budget=12, prior=prior).many(texts)
    assert any(np.abs(e.from_prior[-1]).max() > 0.1 for e in had)
    told, alone = c2fa.Prior.learn(had), c2fa.Prior.learn(explainer(budget=12).many(texts))
    lessons = [Lessons.of(some) for some in (had, explainer(budget=12).many(texts))]
    assert told.inputs == alone.inputs
    unshrunk = [one.values["liking"] / np.abs(one.values["liking"]).max() for one in lessons]
    assert np.corrcoef(*unshrunk)[0, 1] > 0.9  # but for how large each input's values are taken to be
    # A prior that says the opposite teaches nothing of it.
    wrong = dataclasses.replace(prior, effects={name: -10.0 * v for name, v in prior.effects.items()})
    misled = c2fa.Prior.learn(explainer(budget=12, prior=wrong).many(texts))
    assert np.corrcoef(misled.effects["liking"], alone.effects["liking"])[0, 1] > 0.9


@given(st.integers(0, 10_000))
@settings(max_examples=10, deadline=None)
def test_values_that_few_rows_shrank_are_learned_as_large_as_they_are(seed):
    """Half of the rows leave values smaller, and what is learned of them about as large."""
    from c2fa.priors.learning import _unshrunk

    rng = np.random.default_rng(seed)
    truth, noise = rng.normal(size=2000), 0.5 * rng.normal(size=2000)
    shrunk = 1.0 / (1.0 + 0.25)
    values, errors = _unshrunk(shrunk * (truth + noise), np.full(2000, np.sqrt(0.25 * shrunk)))
    assert np.polyfit(truth, values, 1)[0] == pytest.approx(1.0, abs=0.07)
    np.testing.assert_allclose(errors, errors[0])
    same, _ = _unshrunk(truth, np.full(2000, np.nan))
    np.testing.assert_array_equal(same, truth)


def test_numbers_are_learned_as_curves():
    rng = np.random.default_rng(0)
    table = rng.uniform(0.0, 10.0, (60, 3))
    model = lambda batch: (batch[:, 0] - 5.0) ** 2 + batch[:, 1]  # noqa: E731
    masker = c2fa.maskers.Tabular(background=table, names=["x", "y", "z"])
    known = c2fa.Prior.learn([c2fa.Explainer(model, masker, budget=8, output_names=["it"])(row) for row in table])
    found = known.expected({"x": [0.0, 5.0, 10.0]}, ["it"]).effects[:, 0]
    assert found[1] < found[0] - 10
    assert found[1] < found[2] - 10


def test_what_cannot_be_learned_or_used_is_said(prior):
    with pytest.raises(ValueError, match="there are 1 different explanations to learn from; give 4 at least"):
        c2fa.Prior.learn([explainer()(reviews(1)[0])])
    with pytest.raises(ValueError, match="learned with link='identity' and this explainer has link='log'"):
        explainer(prior=prior, link="log")
    with pytest.raises(ValueError, match=r"method 'lime' .* cannot use a prior"):
        explainer(prior=prior, method="lime")
    with pytest.raises(ValueError, match="cannot use a prior"):
        explainer(prior=prior, penalty=c2fa.L2(1.0))


def test_on_the_command_line(tmp_path, monkeypatch):

    from typer.testing import CliRunner

    from c2fa.cli import app

    monkeypatch.chdir(tmp_path)
    for name, some in (("first", reviews(6)), ("others", reviews(2, seed=3))):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in some))
    run = CliRunner()
    first_command = ["explain", "first.jsonl", "--field", "text", "-m", "demo", "-b", "40"]
    first = run.invoke(app, [*first_command, "--store", "kept"])
    assert first.exit_code == 0, first.output
    learned = run.invoke(app, ["learn", "kept", "--out", "prior.json"])
    assert learned.exit_code == 0, learned.output
    assert "learned from 6 inputs; correlation with effects on others: " in learned.output
    few = ["explain", "others.jsonl", "--field", "text", "-m", "demo", "-b", "12"]
    told = run.invoke(app, [*few, "--prior", "prior.json"])
    assert told.exit_code == 0, told.output
    assert "come from the prior (from 6 inputs)" in told.output
    stages = ["--store-option", "learn=4,5", "--store-option", "budget_after=12"]
    both = run.invoke(app, [*first_command, "--store", "both", *stages])
    assert both.exit_code == 0, both.output
    assert [e.prior is not None for e in c2fa.batch.Store.open("both")] == [False] * 4 + [True] * 2
    wrong = run.invoke(app, [*first_command, "--store", "other", "--store-option", "learn=few"])
    assert wrong.exit_code == 2
    assert "write learn=500, or learn=50,200,1000" in wrong.output
    lost = run.invoke(app, [*few, "--prior", "nowhere.json"])
    assert lost.exit_code == 3
    assert "nowhere.json" in lost.output


# A run whose first inputs teach about the others.


def learning(inputs, folder, **options):
    options = {"learn": 8, "budget_after": 12, "precision": "float64", **options}
    return explainer(budget=40).many(inputs, folder, **options)


@pytest.fixture(scope="module")
def taught(tmp_path_factory):
    folder = tmp_path_factory.mktemp("taught") / "store"
    return learning(reviews(14, seed=5), folder, engine="serial")


def test_those_behind_may_have_money(tmp_path):
    class Priced:
        cost, rows = 0.0, 0

        def __call__(self, texts):
            self.rows += len(texts)
            self.cost += 0.01 * len(texts)
            return sentiment(texts)

    options = {"learn": 8, "budget_after": "$0.12", "engine": "serial"}
    store = c2fa.Explainer(Priced(), c2fa.maskers.Text(mask="_"), output_names=["liking"], budget=40).many(
        reviews(10, seed=5), tmp_path / "store", **options
    )
    assert [e.provenance.get("money") for e in store] == [None] * 8 + ["$0.12"] * 2
    assert all(e.queries <= 12 for e in list(store)[8:])
    with pytest.raises(RuntimeError, match=r"budget_after is '\$0.12' there and '\$0.20' now"):
        explainer().many(reviews(10, seed=5), tmp_path / "store", **{**options, "budget_after": "$0.20"})
    with pytest.raises(ValueError, match=r"budget='\$0.12' is money, and this model counts no cost"):
        explainer(budget=40).many(reviews(10, seed=5), tmp_path / "free", **options)
    assert not list((tmp_path / "free").glob("*.parquet"))


def by_text(store):
    return {" ".join(e.names[0]): e for e in store}


def test_the_first_inputs_teach_about_the_others(taught):
    full, few = list(taught)[:8], list(taught)[8:]
    assert all(e.from_prior is None for e in full)
    assert all(e.from_prior is not None and e.queries <= 12 for e in few)
    learned = c2fa.Prior.load(taught.path / "prior.json")
    assert learned.inputs == 8
    alone = explainer(budget=12, prior=learned)(reviews(14, seed=5)[10])
    np.testing.assert_allclose(taught[10].low, alone.low, atol=1e-12)
    assert taught[10].provenance["prior"] == learned.name


@pytest.fixture(scope="module")
def staged(tmp_path_factory):
    folder = tmp_path_factory.mktemp("staged") / "store"
    return learning(reviews(18, seed=5), folder, engine="serial", learn=(6, 10, 14))


def test_learning_goes_on_in_stages(staged):
    """Each stage has the prior of all inputs before it, learned from what these say by themselves."""
    priors = {n: c2fa.Prior.load(staged.path / f"prior-{n}.json") for n in (6, 10, 14)}
    assert [prior.inputs for prior in priors.values()] == [6, 10, 14]
    names = [e.provenance.get("prior") for e in staged]
    assert names == [None] * 6 + [priors[n].name for n in (6, 10, 14) for _ in range(4)]
    assert priors[10].fingerprint == c2fa.Prior.learn(staged[:10]).fingerprint
    alone = explainer(budget=12, prior=priors[14])(reviews(18, seed=5)[15])
    np.testing.assert_allclose(staged[15].low, alone.low, atol=1e-12)


@pytest.mark.parametrize(
    "options",
    [{"shard_size": 2}, pytest.param({"engine": "processes", "workers": 2}, marks=pytest.mark.slow)],
)
def test_stages_give_the_same_numbers_on_any_engine(staged, tmp_path, options):
    again = learning(reviews(18, seed=5), tmp_path / "store", **{"engine": "serial", "learn": (6, 10, 14), **options})
    for e, found in zip(staged, again, strict=True):
        assert found.provenance.get("prior") == e.provenance.get("prior")
        np.testing.assert_allclose(found.low, e.low, atol=1e-12)


def test_stages_go_on_where_a_run_was_killed(staged, tmp_path):
    """Whatever a killed run left: some shards of a stage, with the priors up to it or without the last."""
    inputs = reviews(18, seed=5)
    for lost, left in (("prior-14.json", 7), ("prior-10.json", 4)):
        store = tmp_path / lost
        shutil.copytree(staged.path, store)
        for name in [f"prior-{n}.json" for n in (10, 14) if n >= int(lost[6:8])]:
            (store / name).unlink()
        for shard in sorted(store.glob("part-*.parquet"))[left:]:
            shard.unlink()
        for e, whole in zip(learning(inputs, store, engine="serial", learn=(6, 10, 14)), staged, strict=True):
            np.testing.assert_allclose(e.low, whole.low, atol=1e-12)
    with pytest.raises(c2fa.batch.StoreError, match=r"learn is \[6, 10, 14\] there and \[6, 10\] now"):
        learning(inputs, staged.path, engine="serial", learn=(6, 10))


@pytest.mark.parametrize(
    "options",
    [
        {"shard_size": 2},
        pytest.param({"engine": "processes", "workers": 2}, marks=pytest.mark.slow),
        {"engine": "processes", "models": 1},
    ],
)
def test_numbers_depend_on_neither_engines_nor_shards_nor_the_order_of_the_others(taught, tmp_path, options):
    inputs = reviews(14, seed=5)
    inputs[8:] = inputs[:7:-1]
    again = learning(inputs, tmp_path / "store", **{"engine": "serial", **options})
    one, other = by_text(taught), by_text(again)
    assert one.keys() == other.keys()
    for text, e in one.items():
        np.testing.assert_allclose(other[text].low, e.low, atol=1e-12)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("models", [{}, {"models": 1}])
@pytest.mark.parametrize("engine", ["ray", "dask"])
def test_other_engines_learn_and_give_what_serial_gives(taught, tmp_path, engine, models, monkeypatch):
    pytest.importorskip({"dask": "distributed"}.get(engine, engine))
    paths = [*map(str, Path(__file__).parents[:2]), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    store = learning(reviews(14, seed=5), tmp_path / "store", engine=engine, workers=2, **models)
    one, other = (c2fa.Prior.load(run.path / "prior.json") for run in (taught, store))
    assert one.fingerprint == other.fingerprint
    for e, found in zip(taught, store, strict=True):
        np.testing.assert_allclose(found.low, e.low, rtol=0, atol=1e-12)
        np.testing.assert_allclose(found.stderr[-1], e.stderr[-1], rtol=0, atol=1e-12)
        shares = [None if one.prior is None else one.prior.share for one in (e, found)]  # none where it was learned
        assert shares[1] == (None if shares[0] is None else pytest.approx(shares[0]))


def test_a_run_that_was_stopped_before_or_after_learning_goes_on(taught, tmp_path):
    inputs = reviews(14, seed=5)
    asked = []

    def stops(texts):
        asked.extend(texts)
        if len(asked) > limit:
            signal.raise_signal(signal.SIGINT)
        return sentiment(texts)

    def run():
        found = c2fa.Explainer(stops, c2fa.maskers.Text(mask="_"), output_names=["liking"], budget=40)
        options = {"learn": 8, "budget_after": 12, "precision": "float64", "engine": "serial", "shard_size": 2}
        return found.many(inputs, tmp_path / "store", **options)

    for limit, has_learned in ((100, False), (270, True)):
        asked.clear()
        with pytest.raises(KeyboardInterrupt):
            run()
        assert (tmp_path / "store" / "prior.json").exists() == has_learned
    limit = 10**6
    for e, whole in zip(run(), taught, strict=True):
        np.testing.assert_allclose(e.low, whole.low, atol=1e-12)
    with pytest.raises(RuntimeError, match="budget_after is 12 there and 20 now"):
        explainer(budget=40).many(
            inputs, tmp_path / "store", learn=8, budget_after=20, precision="float64", engine="serial", shard_size=2
        )


def test_every_changed_bit_of_a_prior_is_told(prior, tmp_path):
    prior.save(tmp_path / "prior.json")
    data = (tmp_path / "prior.json").read_bytes()
    assert c2fa.Prior.load(tmp_path / "prior.json").fingerprint == prior.fingerprint
    rng = np.random.default_rng(0)
    for at in {*range(40), *range(len(data) - 120, len(data)), *rng.integers(len(data), size=400).tolist()}:
        spoilt = bytearray(data)
        spoilt[at] ^= 1 << int(rng.integers(8))
        (tmp_path / "prior.json").write_bytes(spoilt)
        with pytest.raises(ValueError, match=r"is no prior that Prior.save wrote"):
            c2fa.Prior.load(tmp_path / "prior.json")


@pytest.mark.parametrize(
    "change",
    [
        lambda p: {"effects": {"liking": p.effects["liking"][1:]}},
        lambda p: {"sizes": {"liking": np.append(p.sizes["liking"], 0.0)}},
        lambda p: {"effects": {"liking": p.effects["liking"] * np.nan}},
        lambda p: {"fields": {**p.fields, "one more": Field(knots=(1.0,))}},
    ],
)
def test_a_prior_whose_numbers_do_not_fit_is_refused(prior, tmp_path, change):
    dataclasses.replace(prior, **change(prior)).save(tmp_path / "prior.json")
    with pytest.raises(ValueError, match=r"'liking' must have \d+ finite numbers, one for each feature"):
        c2fa.Prior.load(tmp_path / "prior.json")


def test_a_store_goes_with_the_prior_that_it_was_made_with(taught, prior, tmp_path):
    store = tmp_path / "store"
    shutil.copytree(taught.path, store)
    last = max(store.glob("part-*.parquet"))
    inputs = reviews(14, seed=5)
    prior.save(store / "prior.json")
    with pytest.raises(c2fa.batch.StoreError, match=r"were explained with .*; put that one back, or give"):
        learning(inputs, store, engine="serial")
    (store / "prior.json").write_bytes((taught.path / "prior.json").read_bytes()[:-1])
    with pytest.raises(c2fa.batch.StoreError, match=r"is no prior .*; delete it, and the same command learns it again"):
        learning(inputs, store, engine="serial")
    (store / "prior.json").unlink()
    last.unlink()
    for e, whole in zip(learning(inputs, store, engine="serial"), taught, strict=True):
        np.testing.assert_allclose(e.low, whole.low, atol=1e-12)


@pytest.mark.parametrize("power", [-660, 300])
def test_outputs_of_any_size_teach_the_same(prior, power):
    def moved(e):
        levels = {name: [np.ldexp(a, power) for a in getattr(e, name)] for name in ("all_values", "all_stderr")}
        return dataclasses.replace(e, outputs=np.ldexp(e.outputs, power), **levels)

    learned = c2fa.Prior.learn([moved(e) for e in explainer().many(reviews(40))])
    usual = c2fa.Prior.learn(explainer().many(reviews(40)))
    assert learned.worth == usual.worth
    np.testing.assert_allclose(learned.effects["liking"], np.ldexp(usual.effects["liking"], power), rtol=2e-5)
    np.testing.assert_array_equal(learned.sizes["liking"], usual.sizes["liking"])


def test_fewer_inputs_than_there_are_to_learn_from(tmp_path):
    store = learning(reviews(3), tmp_path / "store", engine="serial")
    assert len(store) == 3
    assert not (store.path / "prior.json").exists()


def test_a_lesson_that_cannot_be_is_refused_before_anything_is_asked(tmp_path):
    for options, said in (
        ({"learn": 0}, r"learn must be a whole number of inputs above 0, or several .*, not 0"),
        ({"learn": ()}, r"learn must be a whole number of inputs above 0, or several .*, not \(\)"),
        ({"learn": 3}, "learn=3: fewer than 4 inputs teach nothing"),
        ({"learn": (1, 8)}, r"learn=\(1, 8\): fewer than 4"),
        ({"learn": (8, 8)}, r"learn=\(8, 8\) must increase"),
        ({"learn": (8, 12), "shard_size": 8}, "learn=12 must be a multiple of shard_size=8"),
        ({"budget_after": 12}, "budget_after=12 is for inputs after"),
        ({"learn": 8, "shard_size": 3}, "learn=8 must be a multiple of shard_size=3"),
        ({"learn": 8, "budget_after": "$0"}, r"budget must be more than nothing, and finite; got '\$0'"),
    ):
        with pytest.raises(ValueError, match=said):
            explainer().many(reviews(2), tmp_path / "store", engine="serial", **options)
    with pytest.raises(ValueError, match="cannot use a prior"):
        explainer(method="lime").many(reviews(2), tmp_path / "store", engine="serial", learn=8)
    made = functools.partial(explainer, method="lime")
    with pytest.raises(ValueError, match="cannot use a prior"):
        c2fa.batch.many(made, reviews(2), tmp_path / "store", engine="serial", learn=8)
    with pytest.raises(ValueError, match=r"learn= puts what inputs teach in the place of prior=c2fa\.scout"):
        explainer(prior=c2fa.scout(len, rows=9)).many(reviews(2), tmp_path / "scouted", engine="serial", learn=8)
    assert not (tmp_path / "scouted").exists()


def test_where_the_inputs_that_teach_are_bad_the_first_is_named_and_they_can_be_asked_again(tmp_path):
    bad = ["", *reviews(7)]
    bad[1:6] = [""] * 5
    with pytest.raises(
        ValueError, match=r"learn=8: 2 of the first 8 .* \(input 0: .*retry_failed=True, or other inputs"
    ):
        explainer().many([*bad, *reviews(2)], tmp_path / "store", engine="serial", learn=8)


def test_a_function_that_makes_an_explainer_learns_as_well(taught, tmp_path):
    options = {"engine": "serial", "learn": 8, "budget_after": 12, "precision": "float64"}
    made = functools.partial(explainer, budget=40)
    for e, found in zip(taught, c2fa.batch.many(made, reviews(14, seed=5), tmp_path / "store", **options), strict=True):
        np.testing.assert_allclose(found.low, e.low, atol=1e-12)

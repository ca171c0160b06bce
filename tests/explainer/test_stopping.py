"""Stopping before the budget is spent: the rules against their definitions, and what an early stop must equal."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import c2fa
from c2fa import stopping, until
from c2fa.asking.masking import View
from c2fa.methods import METHODS
from c2fa.methods.base import Attribution
from c2fa.stopping import Standing, as_rule, looks
from strategies import structures

S = c2fa.Structure.from_groups(np.repeat(np.arange(4), 6))
DEEP = c2fa.Structure.from_tree({"A": {"A1": ["x", "q"], "A2": ["y"]}, "B": {"B1": ["w", "v", "u"], "B2": ["t"]}})
WEIGHTS = np.random.default_rng(5).normal(size=24)
WEIGHTS[[2, 9, 20]] = [9.0, -8.0, 7.0]


def additive(batch):
    return batch @ WEIGHTS


def noisy(batch):
    """Additive, with a little that looks like noise but is the same for the same row."""
    return batch @ WEIGHTS + np.sin(1000 * (batch @ np.arange(1, 25)))


def explain(model=noisy, structure=S, **options):
    return c2fa.Explainer(model, c2fa.maskers.Array(structure), **options)(np.ones(structure.leaves))


def standing(values, stderr, structure=None, found=None, rows=10, budget=100):
    values, stderr = np.asarray(values, float), None if stderr is None else np.asarray(stderr, float)
    structure = structure or c2fa.Structure.flat(len(values))
    found = found or Attribution((values[:, None],), (np.zeros(1),), None, (None,))
    names = View().level_names(structure)
    return Standing(structure, names, (values,), None if stderr is None else (stderr,), rows, budget, found)


# -- the posterior ---------------------------------------------------------------------------------


@given(structures(depths=(1, 2, 3), most_leaves=12), st.integers(0, 20), st.integers(1, 30))
@settings(max_examples=40)
def test_the_posterior_is_the_inverse_of_the_dense_normal_matrix(s, seed, rows):
    rng = np.random.default_rng(seed)
    levels = [
        c2fa.Level(
            rng.random((rows, w)) < 0.5, rng.normal(size=rows), rng.random(rows) + 0.1, c2fa.L2(0.3 + k), k % 2 == 0
        )
        for k, w in enumerate(s.widths)
    ]
    matrix = np.zeros((s.leaves, s.leaves))
    for k, level in enumerate(levels):
        m = np.array([[float(s.owners(k)[leaf] == j) for leaf in range(s.leaves)] for j in range(s.widths[k])])
        z = level.masks @ m
        if level.intercept:
            z = z - np.average(z, axis=0, weights=level.weights)
        matrix += z.T @ (level.weights[:, None] * z) + 2 * level.penalty.lam * m.T @ m
    inverse = np.linalg.inv(matrix)
    solution = c2fa.solve(c2fa.Problem(s, tuple(levels)))
    posterior = solution.posterior
    for k in range(s.depth):
        m = s.membership(k).toarray()
        features = rng.permutation(s.widths[k])[: max(1, s.widths[k] // 2)]
        expected = (m @ inverse @ m.T)[np.ix_(features, features)]
        np.testing.assert_allclose(posterior.covariance(k, features), expected, atol=1e-10)
        root = np.sqrt(np.diag(expected))
        np.testing.assert_allclose(posterior.correlation(k, features), expected / np.outer(root, root), atol=1e-8)
    # The standard errors are its diagonal, all at one scale.
    errors = solution.stderr
    ratio = np.concatenate(
        [errors[k] ** 2 / np.diag(posterior.covariance(k, np.arange(s.widths[k]))) for k in range(s.depth)]
    )
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-6)


@pytest.mark.parametrize("penalty", [c2fa.L2(0.0), c2fa.L1(0.1)])
def test_there_is_no_posterior_without_a_normal_prior(penalty):
    level = c2fa.Level(np.eye(3, dtype=bool), np.arange(3.0), penalty=penalty)
    assert c2fa.solve(c2fa.Problem(c2fa.Structure.flat(3), (level,))).posterior is None


# -- the rules -------------------------------------------------------------------------------------


def normal_cdf(z):
    return 0.5 * (1 + math.erf(z / math.sqrt(2)))


@pytest.mark.parametrize(("a", "b", "sa", "sb"), [(2.0, 1.0, 0.5, 0.5), (2.0, -1.7, 0.2, 0.3), (5.0, 1.0, 2.0, 0.1)])
def test_the_chance_of_two_features_is_the_folded_normals(a, b, sa, sb):
    """P(|A| > |B|) of independent normals, by P((A - B)(A + B) > 0), on a fine grid of the second."""
    grid = b + sb * np.linspace(-8, 8, 4001)
    density = np.exp(-0.5 * ((grid - b) / sb) ** 2)
    density /= density.sum()
    beyond = [1 - normal_cdf((abs(x) - a) / sa) + normal_cdf((-abs(x) - a) / sa) for x in grid]
    chance = until.top(1).chance(standing([a, b], [sa, sb]))
    assert chance == pytest.approx(float(density @ np.array(beyond)), abs=0.025)


def test_the_chance_heeds_how_errors_go_together():
    """Two values whose difference is known well though each is not, as where rows show only their difference."""
    s = c2fa.Structure.flat(2)
    masks = np.array([[1, 0], [0, 1]] * 200, dtype=bool)
    level = c2fa.Level(masks, np.zeros(400), penalty=c2fa.L2(0.001), intercept=True)
    values = np.array([1.0, 0.9])
    solution = c2fa.solve(c2fa.Problem(s, (level,)))
    found = Attribution((values[:, None],), (np.zeros(1),), None, (level,), solution=solution)
    free = standing(values, [0.2, 0.2], s)
    tied = standing(values, [0.2, 0.2], s, found)
    assert tied.correlation(0, np.arange(2))[0, 1] > 0.999
    assert until.top(1).chance(tied) > 0.99
    assert until.top(1).chance(free) == pytest.approx(normal_cdf(0.1 / math.hypot(0.2, 0.2)), abs=0.03)


def test_the_set_in_any_order_and_the_margin():
    values, errors = np.array([5.0, 4.9, 4.8, 1.0, 0.9]), np.full(5, 0.1)
    known = standing(values, errors)
    assert until.top(3).chance(known) == 1.0  # in whichever order
    # The second and the third are apart by one error of each: the set is right as often as they do not change places.
    swapped = 1 - normal_cdf(0.1 / math.hypot(0.1, 0.1))
    assert until.top(2).chance(known) == pytest.approx(1 - swapped, abs=0.07)
    assert until.top(2, margin=0.15).chance(known) > 0.99
    assert until.top(5).chance(known) == 1.0
    assert until.top(9).chance(known) == 1.0
    assert until.top(3).chance(standing(values, [0.1, 0.1, 0.1, np.inf, 0.1])) == 0.0
    assert until.top(1).chance(standing([0.0, 0.0], [0.0, 0.0])) == 1.0


def test_a_crowd_of_rivals_counts_as_a_crowd():
    """Each of a hundred is unlikely to be larger than the first; that one of them is, is not."""
    values = np.concatenate([[3.0], np.zeros(60)])
    one = until.top(1).chance(standing(values[:2], np.ones(2)))
    many = until.top(1).chance(standing(values, np.ones(61)))
    draws = np.abs(np.random.default_rng(1).normal(size=(20_000, 61)) + values)
    assert many == pytest.approx((draws[:, 0] > draws[:, 1:].max(axis=1)).mean(), abs=0.03)
    assert many < one - 0.2


def test_what_rules_say():
    clear, open_ = standing([9.0, 1.0, 1.0], [0.1] * 3), standing([1.0, 0.9, 0.8], [1.0] * 3)
    assert str(until.top(1)(clear).why) == "the top leaf is settled with 95 % confidence"
    assert until.top(2, 0.9)(open_).why.startswith("the top 2 leaves are not settled with 90 % confidence, only with ")
    assert "cannot be judged" in until.top(1)(standing([1.0, 2.0], None)).why
    assert until.stderr(0.2)(clear).why == "every standard error of leaves is at most 0.2"
    assert until.stderr(0.05)(clear).why == "the largest standard error of leaves is 0.1, and 0.05 was asked for"
    assert "cannot be judged" in until.stderr(0.1)(standing([1.0, 2.0], None)).why
    assert bool(until.top(1)(clear)) is True
    assert bool(until.top(2)(open_)) is False


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: until.top(0), "k must be a whole number from 1 to 100; got 0"),
        (lambda: until.top(3, 95), "confidence is a chance between 0 and 1; got 95"),
        (lambda: until.top(3, "95 %"), "confidence is a chance between 0 and 1; got '95 %'"),
        (lambda: until.top(3, margin=-1), "margin is a share of at least 0; got -1"),
        (lambda: until.top(3, margin="20 %"), "margin is a share of at least 0; got '20 %'"),
        (lambda: until.stderr(0), "must be a number above 0; got 0"),
        (lambda: as_rule("best3"), "until must be a rule such as .* got 'best3'"),
        (lambda: as_rule("top0"), "until='top0': k must be"),
        (lambda: as_rule("stderr:-1"), "until='stderr:-1': the bound"),
        (lambda: as_rule(3), "got 3"),
    ],
)
def test_a_rule_that_cannot_be_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_short_forms():
    assert as_rule("top4") == until.top(4)
    assert as_rule("stderr:1e-3") == until.stderr(0.001)
    with pytest.raises(TypeError, match=r"until must be a rule such as c2fa.until.top\(3\), not the class Top itself"):
        as_rule(until.Top)


@given(st.integers(2, 3000))
def test_looks_grow_to_the_whole_budget(total):
    found = looks(total)
    assert found[-1] == total
    assert (np.diff([0, *found]) > 0).all()
    assert len(found) <= 6 + math.log(total) / math.log(1.25)
    assert min(np.diff([0, *found])) >= 4 or total < 32
    assert all(later <= 2 * sooner for sooner, later in itertools.pairwise(found))


# -- stopping --------------------------------------------------------------------------------------


def test_it_stops_once_the_top_is_settled_and_says_so():
    e = explain(budget=400, until=until.top(3))
    assert e.queries < 200
    assert {name for name, _ in e.top(3)} == {"2", "9", "20"}
    assert e.diagnostics.settled is True
    assert e.diagnostics.stop.startswith(
        f"stopped after {e.queries} of 400 rows: the top 3 leaves are settled with 95 %"
    )
    assert f"· {e.diagnostics.stop}" in str(e).splitlines()
    assert not any("settled" in w for w in e.diagnostics.warnings)
    assert e.provenance["until"] == str(until.top(3))
    again = c2fa.Explanation.from_json(e.to_json())
    assert again.diagnostics == e.diagnostics
    assert str(again) == str(e)


def test_it_spends_everything_where_nothing_is_settled_and_says_so():
    e = explain(lambda b: np.sin(99 * (b @ np.arange(1, 25))), budget=90, until="top3")
    assert e.queries == explain(budget=90).queries  # all that the budget draws, which are a few fewer different rows
    assert e.diagnostics.settled is False
    assert e.diagnostics.stop.startswith(
        "spent the whole budget of 90 rows: the top 3 leaves are not settled with 95 %"
    )
    assert str(e).count(e.diagnostics.stop) == 1
    assert e.diagnostics.stop in e.diagnostics.warnings
    plain = explain(lambda b: np.sin(99 * (b @ np.arange(1, 25))), budget=90)
    np.testing.assert_array_equal(plain.low, e.low)
    assert (plain.diagnostics.settled, plain.diagnostics.stop) == (None, "")


STEADY = sorted(name for name, kind in METHODS.items() if kind.can_stop_early)


@pytest.mark.parametrize("method", STEADY)
@pytest.mark.parametrize("structure", [S, DEEP, c2fa.Structure.flat(9), c2fa.Structure.from_groups("a")])
@pytest.mark.parametrize("budget", [23, 150, (12, 60, 70)])
def test_an_early_stop_is_the_run_with_the_smaller_budget(method, structure, budget):
    """For every method, whenever it stops: the rows it asked and what it found are those of the smaller budget."""
    if method == "shapley" and structure.depth > 2:
        pytest.skip("its split has levels without a row, which no budget of a number for each level can have")
    w = np.random.default_rng(1).normal(size=structure.leaves)
    # Methods of one game ask the input itself and the empty one again, to find out whether the model has noise.
    ends = {np.full(structure.leaves, end).tobytes() for end in (0.0, 1.0)} if method in ("owen", "shapley") else set()
    budget = budget if isinstance(budget, int) else budget[: structure.depth]
    asked = []

    def model(batch):
        asked.extend(row.tobytes() for row in batch)
        return np.tanh((batch * w).sum(axis=1) + 0.2)  # to the last bit, whatever the batch: MILLI's ridge is tiny

    for stop_at in (1, 2, 3, 99):
        looked = []

        def rule(standing, looked=looked, stop_at=stop_at):
            looked.append(standing.rows)
            return len(looked) == stop_at

        asked.clear()
        e = explain(model, structure, method=method, budget=budget, until=rule, seed=4)
        staged = list(asked)
        again = Counter(staged) - Counter(set(staged))
        assert set(again) <= ends
        assert max(again.values(), default=1) == 1
        assert len(staged) == e.queries <= (budget if isinstance(budget, int) else sum(budget))
        assert looked == sorted(looked)
        assert e.diagnostics.settled is (len(looked) == stop_at)
        rows = e.provenance["budget"]
        asked.clear()
        same = explain(model, structure, method=method, budget=(rows[0] + 1, *rows[1:]), seed=4)
        assert set(asked) == set(staged)
        for mine, theirs in zip(e.all_values, same.all_values, strict=True):
            np.testing.assert_allclose(mine, theirs, atol=1e-12)
        if isinstance(budget, int) and sum(rows) + 1 < budget and method in ("c2fa", "lime"):
            asked.clear()
            one_number = explain(model, structure, method=method, budget=sum(rows) + 1, seed=4)
            np.testing.assert_allclose(one_number.low, e.low, atol=1e-12)
    assert as_rule(rule) is rule


@pytest.mark.parametrize("sampler", ["uniform", "planned", "exhaustive", "paired"])
@given(structures(depths=(1, 2, 3)), st.integers(5, 120), st.integers(0, 50), st.floats(0.1, 0.99))
@settings(max_examples=15)
def test_the_budget_holds_with_any_sampler_and_rule(sampler, s, budget, seed, confidence):
    w = np.random.default_rng(seed).normal(size=s.leaves)
    rows = []

    def model(batch):
        rows.append(len(batch))
        return np.tanh(batch @ w)

    e = explain(model, s, budget=budget, until=until.top(2, confidence), sampler=sampler, seed=seed)
    assert sum(rows) == e.queries <= budget
    np.testing.assert_array_equal(
        e.low, explain(model, s, budget=budget, until=until.top(2, confidence), sampler=sampler, seed=seed).low
    )


@given(structures(depths=(1, 2, 3, 4)), st.integers(6, 3000), st.sampled_from(["c2fa", "milli"]))
@settings(max_examples=60)
def test_stages_only_ever_add_rows(s, budget, method):
    explainer = c2fa.Explainer(
        len,
        c2fa.maskers.Array(s),
        method=method,
        budget=budget,
        until="top1",
        **({"sampler": "planned"} if method == "c2fa" else {}),
    )
    masked = explainer.masker(np.ones(s.leaves))
    stages = np.array(stopping.stages(explainer.method, s, explainer.rows(masked), explainer.budget))
    assert (np.diff(stages, axis=0) >= 0).all()
    assert (stages >= 1).all()
    assert stages[-1].sum() == budget - 1
    np.testing.assert_array_equal(stages[-1], explainer.rows(masked))


def test_a_rule_may_be_a_function_of_what_is_known():
    seen = []

    def sure_enough(known):
        seen.append((known.rows, known.budget, known.structure.widths, len(known.values), known.stderr[-1].max()))
        return known.stderr[-1].max() < 0.7

    e = explain(budget=300, until=sure_enough)
    assert e.diagnostics.stop == f"stopped after {e.queries} of 300 rows: sure_enough is satisfied"
    assert seen[-1][:4] == (e.queries, 300, (4, 24), 2)
    assert [one[4] < 0.7 for one in seen] == [False] * (len(seen) - 1) + [True]
    both = explain(budget=300, until=lambda known: until.top(1)(known) and until.stderr(0.8)(known))
    assert both.stderr[-1].max() <= 0.8


def test_rules_at_other_levels():
    e = explain(budget=300, until=until.top(1, level=0))
    assert e.diagnostics.stop.endswith("the top part is settled with 95 % confidence")
    e = explain(budget=300, until=until.stderr(2.0, level=0))
    assert e.stderr[0].max() <= 2.0
    with pytest.raises(IndexError, match="level 5 does not exist"):
        explain(budget=300, until=until.top(1, level=5))


def test_other_librarys_methods_cannot_be_stopped():
    pytest.importorskip("shap")
    with pytest.raises(ValueError, match=r"method 'shap-kernel' asks other rows .* cannot stop it early"):
        c2fa.Explainer(additive, c2fa.maskers.Array(S), method="shap-kernel", until="top3")


def test_a_method_without_standard_errors_spends_its_budget_and_says_why():
    e = explain(method="td-lime", budget=100, until="top3")
    assert "cannot be judged, because the method gives no standard errors" in e.diagnostics.stop
    assert e.diagnostics.settled is False


def test_rows_that_are_dropped_do_not_end_it():
    calls = []

    def model(batch):
        calls.append(len(batch))
        y = noisy(batch)
        return np.full(len(batch), np.nan) if 1 < len(calls) < 4 else y

    e = explain(model, budget=200, until="top3", on_error="drop")
    assert e.diagnostics.dropped > 0
    assert e.queries <= 200


def test_models_are_kept_busy_by_stages_of_many_rows():
    sizes = []

    def model(batch):
        sizes.append(len(batch))
        return noisy(batch)

    e = explain(model, budget=400, until=until.top(12, 0.999999))
    assert e.diagnostics.settled is False
    assert 10 < len(sizes) <= 2 * 20 + 1  # two levels a stage


# -- in company ------------------------------------------------------------------------------------


def test_a_ledger_pays_for_nothing_twice(tmp_path):
    sent = []

    def model(batch):
        sent.append(len(batch))
        return noisy(batch)

    options = {"ledger": tmp_path / "a.sqlite", "model_name": "m", "budget": 400}
    e = explain(model, until="top3", **options)
    before = sum(sent)
    assert before == e.queries
    again = explain(model, until="top3", **options)
    assert sum(sent) == before
    np.testing.assert_array_equal(again.low, e.low)
    assert again.diagnostics.stop == e.diagnostics.stop


def test_datasets_stop_each_input_by_itself(tmp_path):
    pytest.importorskip("pyarrow")
    from c2fa.batch.store import StoreError

    inputs = [np.ones(24), np.full(24, 0.01), np.arange(24.0)]
    explainer = c2fa.Explainer(noisy, c2fa.maskers.Array(S), budget=300, until=until.top(3))
    alone = [explainer(x) for x in inputs]
    store = explainer.many(inputs, tmp_path / "s", engine="serial", precision="float64")
    for mine, theirs in zip(store, alone, strict=True):
        assert mine.queries == theirs.queries
        assert mine.diagnostics.stop == theirs.diagnostics.stop
        assert mine.diagnostics.settled is theirs.diagnostics.settled
        assert mine.provenance["until"] == str(until.top(3))
        np.testing.assert_allclose(mine.low, theirs.low, atol=1e-12)
    assert len({e.queries for e in alone}) > 1
    other = c2fa.Explainer(noisy, c2fa.maskers.Array(S), budget=300)
    with pytest.raises(StoreError, match=r"until is .*Top.* there and None now"):
        other.many(inputs, tmp_path / "s", engine="serial", precision="float64")


def test_evaluate_runs_rules_beside_fixed_budgets(tmp_path):
    pytest.importorskip("pandas")
    found = c2fa.evaluate(
        [("fixed", "c2fa", {}), ("until", "c2fa", {"until": until.top(3)})],
        [np.ones(24)],
        noisy,
        c2fa.maskers.Array(S),
        budgets=[300],
        seeds=2,
        metrics=[("rows", lambda e, truth: e.queries)],
        store=tmp_path / "s",
        model_name="m",
    )
    rows = found.frame.groupby("method")["value"].mean()
    assert rows["until"] < rows["fixed"]
    alone = [explain(method="c2fa", budget=300, until=until.top(3), seed=seed).queries for seed in range(2)]
    assert rows["until"] == np.mean(alone)

"""Owen and Shapley values as a person asks for them: rows, budgets, failures, options, files."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import c2fa
from batch_helpers import explainer as batch_explainer
from batch_helpers import inputs as batch_inputs
from c2fa.graph import Graph
from c2fa.maskers import Array, Custom
from c2fa.samplers import Apart, draw
from oracles import all_masks, winter_weights
from strategies import structures

TREE = c2fa.Structure.from_groups("aaabbbcc")
trees = st.one_of(structures(depths=(1, 2, 3), most_leaves=9), st.sampled_from([TREE, c2fa.Structure.flat(2)]))
seeds = st.integers(0, 2**20)


def table_of(s, seed=0, outputs=1):
    """A game of every order, by the number of the mask."""
    return np.random.default_rng(seed).normal(size=(2**s.leaves, outputs))


@dataclass
class Model:
    """Looks rows of 0 and 1 up in a table, and counts them; some fail."""

    table: np.ndarray
    fails: tuple[int, ...] = ()
    rows: int = 0
    noise: float = 0.0

    def __post_init__(self):
        self.rng = np.random.default_rng(0)

    def __call__(self, batch):
        batch = np.asarray(batch)
        self.rows += len(batch)
        places = (batch > 0.5) @ 2 ** np.arange(batch.shape[1])
        answers = self.table[places] + self.noise * self.rng.normal(size=(len(batch), self.table.shape[1]))
        answers[np.isin(places, self.fails)] = np.nan
        return answers


def explain(model, s=TREE, method="owen", **options):
    return c2fa.Explainer(model, Array(s), method=method, progress=False, **options)(np.ones(s.leaves))


def adds_up(e, atol=1e-8):
    for k, values in enumerate(e.all_values):
        assert np.allclose(values, e.structure.sums(e.all_values[-1], k), atol=atol)
        assert np.allclose(e.all_intercepts[k] + values.sum(axis=0), e.link.at(e.outputs)(e.outputs)[list(e.columns)])
    assert all(intercept == e.base for intercept in e.intercepts)


# -- the rows --------------------------------------------------------------------------------------


@given(s=trees, seed=seeds, n=st.integers(0, 60), more=st.integers(0, 40))
def test_rows_are_new_neither_full_nor_empty_and_the_first_ones_stay(s, seed, n, more):
    for level in range(s.depth):
        short, long = (Apart()(np.random.default_rng(seed), rows, s, level) for rows in (n, n + more))
        assert short.shape == (min(n, len(long)), s.widths[level])
        assert len({row.tobytes() for row in long}) == len(long)
        assert np.array_equal(long[: len(short)], short)
        assert not long.all(axis=1).any()
        assert long.any(axis=1).all()


@given(s=trees, seed=seeds, n=st.integers(0, 40))
def test_rows_come_in_pairs_once_there_are_as_many_as_leaves(s, seed, n):
    for level in range(s.depth):
        rows = Apart()(np.random.default_rng(seed), 2 * (n + s.widths[level]), s, level)
        known = {row.tobytes() for row in rows}
        assert {(~row).tobytes() for row in rows} == known
        if level == s.depth - 1 and level and 1 < s.widths[-2] < s.leaves:
            whole = s.sums(rows.T.astype(float), level - 1).T
            assert ((whole > 0) & (whole < s.sizes(level - 1))).any(axis=1).all()


def test_a_pair_of_balanced_halves_for_every_leaf():
    """The second half of them goes on where the first stopped; the complements of a block tell nothing new."""
    s = c2fa.Structure.from_groups(np.repeat(range(4), 8).tolist())
    rows = Apart()(np.random.default_rng(0), 64, s, 1)
    assert np.linalg.matrix_rank(np.where(rows, 1.0, -1.0)) == 32
    assert (np.abs(rows.sum(axis=1) - 16) <= 6).all()


@given(s=structures(depths=(1, 2), most_leaves=7), seed=seeds)
def test_rows_end_when_all_that_matter_were_asked(s, seed):
    found = np.concatenate([s.expand(Apart()(np.random.default_rng(seed), 10**4, s, k), k) for k in range(s.depth)])
    asked = {row.tobytes() for row in found}
    if s.depth == 1 or s.widths[0] < s.leaves:  # else parts are leaves
        assert len(found) == len(asked)
    matter = all_masks(s.leaves)[(np.abs(winter_weights(s, s.depth - 1)) > 1e-12).any(axis=0)]
    assert all(row.tobytes() in asked for row in matter if row.any() and not row.all())


def test_rows_without_the_empty_one_are_the_same():
    rows, same = (draw(Apart(), np.random.default_rng(0), 30, TREE, 1, allows_empty=a) for a in (True, False))
    assert np.array_equal(rows, same)


# -- exact -----------------------------------------------------------------------------------------


@given(width=st.integers(1, 10), seed=seeds)
@settings(max_examples=20)
def test_all_masks_of_parts_are_asked_where_there_are_rows_for_them(width, seed):
    s = c2fa.Structure.from_groups(np.repeat(range(width), 2).tolist())
    rows = Apart()(np.random.default_rng(seed), 2**width + 5, s, 0)
    assert len({row.tobytes() for row in rows}) == len(rows) == 2**width - 2


@pytest.mark.parametrize("groups", ["aaabbbcc", "abcabcab", "abcdefgh", "aaaaaaaa", "aaaaaaab"])
def test_enough_rows_give_exact_values(groups):
    s = c2fa.Structure.from_groups(groups)
    table = table_of(s)
    model = Model(table)
    e = explain(model, s, budget=600)
    assert e.diagnostics.exact == (True, True)
    assert e.queries == model.rows <= 260
    for k in range(2):
        assert np.allclose(e.values[k], winter_weights(s, k) @ table[:, 0])
        assert not e.stderr[k].any()
    adds_up(e)
    flat = c2fa.Structure.flat(8)
    shapley = explain(Model(table), s, "shapley", budget=600)
    assert np.allclose(shapley.low, winter_weights(flat, 0) @ table[:, 0])
    assert np.allclose(shapley.high, s.sums(shapley.low, 0))
    assert shapley.diagnostics.exact == (True, True)


def test_few_rows_are_not_said_to_be_exact_unless_they_are():
    """Three parts have eight masks: with these the parts are exact, and the leaves are not."""
    table = table_of(TREE)
    e = explain(Model(table), budget=40)
    assert e.diagnostics.exact == (True, False)
    assert np.allclose(e.high, winter_weights(TREE, 0) @ table[:, 0])
    assert not e.stderr[0].any()
    assert (e.stderr[1] > 0).any()


# -- budgets and failures --------------------------------------------------------------------------


@settings(max_examples=150)
@given(s=trees, budget=st.integers(2, 80), method=st.sampled_from(["owen", "shapley"]), seed=st.integers(0, 9))
def test_a_budget_is_never_exceeded(s, budget, method, seed):
    model = Model(table_of(s, seed, outputs=2))
    if budget < s.depth + 1:
        with pytest.raises(ValueError, match="too small"):
            explain(model, s, method, budget=budget)
        return
    e = explain(model, s, method, budget=budget, seed=seed)
    assert e.queries == model.rows <= budget
    adds_up(e)
    assert all(np.isfinite(errors).all() for errors in e.all_stderr)


@settings(max_examples=60)
@given(s=trees, data=st.data(), method=st.sampled_from(["owen", "shapley"]))
def test_a_budget_of_each_level_is_never_exceeded(s, data, method):
    budget = tuple(data.draw(st.integers(1 + (k == 0), 70)) for k in range(s.depth))
    model = Model(table_of(s))
    e = explain(model, s, method, budget=budget)
    assert e.queries == model.rows <= sum(budget)
    assert len(e.low) == s.leaves
    if budget[0] > 1:
        adds_up(e)


@settings(max_examples=60)
@given(
    s=trees,
    budget=st.one_of(st.integers(20, 150), st.tuples(st.integers(8, 60), st.integers(8, 60))),
    method=st.sampled_from(["owen", "shapley"]),
    until=st.sampled_from([c2fa.until.top(1), c2fa.until.stderr(0.3), "stderr:1e-9"]),
)
def test_a_rule_to_stop_never_costs_more_than_the_budget(s, budget, method, until):
    if isinstance(budget, tuple) and s.depth != 2:
        s = TREE
    model = Model(table_of(s))
    e = explain(model, s, method, budget=budget, until=until)
    assert e.queries == model.rows <= np.sum(budget)
    assert e.diagnostics.settled is not None
    adds_up(e)


@settings(max_examples=60)
@given(s=trees, data=st.data(), budget=st.integers(10, 90), method=st.sampled_from(["owen", "shapley"]))
def test_rows_that_fail_are_left_out(s, data, budget, method):
    last = 2**s.leaves - 1
    fails = data.draw(st.sets(st.integers(0, max(last - 1, 0)), max_size=last // 2))
    model = Model(table_of(s), fails=tuple(fails))
    e = explain(model, s, method, budget=budget, on_error="drop")
    assert e.queries == model.rows <= budget
    assert np.isfinite(e.low).all()
    adds_up(e)
    if 0 not in fails:
        assert e.base == pytest.approx(model.table[0, 0])


def test_nothing_but_the_prediction_is_no_reason_to_fail():
    s = c2fa.Structure.from_groups("aab")
    e = explain(Model(table_of(s), fails=tuple(range(7))), s, budget=20, on_error="drop")
    assert not e.low.any()


@pytest.mark.parametrize("method", ["owen", "shapley"])
@pytest.mark.parametrize("budget", [20, 70, 300])
def test_an_input_that_cannot_be_empty_has_a_base_that_is_inferred(method, budget):
    weights = np.arange(1.0, 9.0)

    def inputs(x, masks, level):
        assert masks.any(axis=1).all()
        return TREE.expand(masks, level).astype(float)

    masker = Custom(TREE, inputs, allows_empty=False)
    e = c2fa.Explainer(lambda b: 2.0 + np.asarray(b) @ weights, masker, method=method, budget=budget)(None)
    adds_up(e)
    assert e.queries <= budget
    if budget > 20:
        assert e.base == pytest.approx(2.0, abs=1e-2)
        assert np.allclose(e.low, weights, atol=1e-2)


# -- noise -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [100, 101])
def test_noise_is_found_out_and_its_absence_too(budget):
    weights = np.linspace(-1, 1, 8)
    table = (all_masks(8) @ weights)[:, None]
    clear, noisy = (explain(Model(table, noise=noise), budget=budget) for noise in (0.0, 0.3))
    assert not any("asked again" in warning for warning in clear.diagnostics.warnings)
    assert any("asked again" in warning for warning in noisy.diagnostics.warnings)
    assert noisy.stderr[1].max() > 10 * clear.stderr[1].max()
    assert np.allclose(clear.low, weights, atol=1e-3)
    assert np.abs(noisy.low - weights).max() < 0.5
    rounded = explain(lambda b: (np.asarray(b) @ weights + 1.0).astype(np.float32), budget=budget)
    assert not any("asked again" in warning for warning in rounded.diagnostics.warnings)


def test_noise_is_found_out_where_equal_rows_of_a_call_get_one_answer():
    rng, weights = np.random.default_rng(0), np.linspace(-1, 1, 8)

    def model(batch):  # which has noise where everything is masked
        rows, place = np.unique(np.asarray(batch), axis=0, return_inverse=True)
        noise = rng.normal(size=len(rows)) * ~rows.any(axis=1)
        return (rows @ weights + noise)[place.ravel()]

    e = explain(model, budget=100, batch_size=1000)
    assert any("asked again" in warning for warning in e.diagnostics.warnings)


def test_where_every_mask_was_asked_no_budget_tells_more():
    e = explain(Model(np.array([[0.0], [1.0]]), noise=0.3), s=c2fa.Structure.flat(1), budget=100)
    assert (
        e.diagnostics.warnings[-1] == "2 rows do not tell how rough these values are: there are no other masks to ask"
    )


# -- options ---------------------------------------------------------------------------------------


@dataclass
class Chained:
    """A masker whose leaves are neighbours of those beside them in their part."""

    def __call__(self, x):
        edges = np.array([[0, 1], [1, 2], [3, 4], [4, 5], [6, 7]])
        return replace(Array(TREE)(x), neighbours=lambda: Graph(edges))


@pytest.mark.parametrize("smooth", [0, 1.0, 30.0, (0.0, 3.0), None, "auto"])
@pytest.mark.parametrize("budget", [12, 60])
def test_smoothing_keeps_sums(smooth, budget):
    table = table_of(TREE)
    e = c2fa.Explainer(Model(table), Chained(), method="owen", smooth=smooth, budget=budget)(np.ones(8))
    adds_up(e)
    assert e.queries <= budget
    assert all(np.isfinite(errors).all() for errors in e.stderr)
    plain = explain(Model(table), budget=budget)
    if smooth in (None, "auto", 0):
        assert np.allclose(e.low, plain.low)


def test_what_is_smooth_is_found_by_smoothing():
    owner = np.repeat(range(4), 15)
    s, weights = c2fa.Structure.from_groups(owner.tolist()), np.sin(np.arange(60) / 6.0)
    edges = np.array([[i, i + 1] for i in range(59) if owner[i] == owner[i + 1]])

    def masker(x):
        return replace(Array(s)(x), neighbours=lambda: Graph(edges))

    def correlation(smooth):
        found = [
            c2fa.Explainer(lambda b: np.asarray(b) @ weights, masker, method="owen", smooth=smooth, budget=36, seed=i)
            for i in range(4)
        ]
        return np.mean([np.corrcoef(one(np.ones(60)).low, weights)[0, 1] for one in found])

    alone, chosen, fixed = (correlation(smooth) for smooth in (None, (0.0, 1.0, 10.0), 10.0))
    assert fixed > alone + 0.05
    assert chosen > alone + 0.05


def test_neighbours_that_nobody_knows_are_asked_for():
    with pytest.raises(ValueError, match="needs neighbours"):
        explain(Model(table_of(TREE)), smooth=2.0)


@pytest.mark.parametrize("method", ["owen", "shapley"])
def test_a_prior_helps_and_everything_still_adds_up(method):
    rng = np.random.default_rng(0)
    s = c2fa.Structure.from_groups(np.repeat(range(5), 8).tolist(), names=[f"x{i}" for i in range(40)])
    weights = rng.normal(size=40) * (rng.random(40) < 0.4)

    def model(batch):
        return np.tanh(np.asarray(batch) @ weights / 4.0)

    def explainer(**options):
        return c2fa.Explainer(model, Array(s), method=method, progress=False, **options)

    inputs = 1.0 + 0.1 * rng.normal(size=(30, 40))
    prior = c2fa.Prior.learn([explainer(budget=120)(x) for x in inputs[:20]])
    scores = []
    for x in inputs[20:]:
        one, other, many = explainer(budget=24)(x), explainer(budget=24, prior=prior)(x), explainer(budget=400)(x)
        adds_up(other)
        assert other.queries <= 24
        assert other.prior is not None
        assert np.allclose(other.low - other.from_prior[1], one.low)
        scores.append([np.corrcoef(e.low, many.low)[0, 1] for e in (one, other)])
    alone, learned = np.mean(scores, axis=0)
    assert learned > alone + 0.1


def test_the_logit_of_a_probability_adds_up():
    weights = np.linspace(-2, 2, 8)

    def model(batch):
        p = 1.0 / (1.0 + np.exp(-(np.asarray(batch) @ weights - 0.5)))
        return np.stack([1.0 - p, p], axis=1)

    e = explain(model, budget=60, link="logit", target=1)
    adds_up(e)
    assert np.allclose(e.low, weights, atol=1e-3)
    assert e.base == pytest.approx(-0.5)
    assert e.base + e.high.sum() == pytest.approx(e.linked)


@pytest.mark.parametrize("method", ["owen", "shapley"])
@pytest.mark.parametrize("budget", [30, 400])
def test_every_output_has_values(method, budget):
    table = table_of(TREE, outputs=3)
    e = explain(Model(table), method=method, budget=budget, outputs="all", target=1)
    adds_up(e)
    for output in range(3):
        other = e.for_target(output)
        assert np.allclose(other.base + other.low.sum(), table[-1, output])
        assert other.diagnostics.consistency < 1e-12
        if budget == 400 and method == "owen":
            assert np.allclose(other.low, winter_weights(TREE, 1) @ table[:, output])
    target = explain(Model(table), method=method, budget=budget, outputs="target", target=1)
    assert np.allclose(target.low, e.low)


@pytest.mark.parametrize("method", ["owen", "shapley"])
@pytest.mark.parametrize("outputs", [1, 2])
def test_a_model_that_always_says_the_same(method, outputs):
    e = explain(Model(np.full((256, outputs), 7.0)), method=method, budget=60)
    assert e.base == 7.0
    for k in (0, 1):
        assert e.values[k].shape == e.stderr[k].shape == (TREE.widths[k],)
        assert not e.values[k].any()
        assert not e.stderr[k].any()
    assert e.interactions(1) == []
    assert c2fa.Explanation.from_json(e.to_json()).base == 7.0


# -- interactions, and files -----------------------------------------------------------------------


def together(batch):
    """Two leaves of one part do more together; of two parts either one will do."""
    z = np.asarray(batch)
    return z @ np.linspace(0.2, 0.4, 8) + 2.0 * z[:, 0] * z[:, 2]


def either(batch):
    z = np.asarray(batch)
    return np.maximum(z[:, :3].mean(axis=1), z[:, 3:6].mean(axis=1)) + 0.1 * z[:, 6]


@pytest.mark.parametrize("budget", [60, 150])
def test_a_pair_that_acts_together_comes_first(budget):
    e = explain(together, budget=budget)
    first, second, value, stderr = e.interactions(level=1, n=1)[0]
    assert {first, second} == {TREE.names[1][0], TREE.names[1][2]}
    assert value == pytest.approx(2.0, abs=0.3)
    assert value > 3 * stderr
    assert e.diagnostics.interactions[0].settled or e.diagnostics.interactions[0].level == 0


def test_parts_of_which_either_will_do_are_below_zero():
    e = explain(either, budget=60)
    first, second, value, stderr = e.interactions(level=0, n=3)[0]
    assert {first, second} == {"a", "b"}
    assert value == pytest.approx(-1.0, abs=0.2)
    assert value < -3 * stderr


def test_an_additive_model_has_no_interactions_worth_telling():
    e = explain(lambda b: np.asarray(b) @ np.arange(8.0), budget=60)
    assert all(abs(value) < 1e-2 for k in (0, 1) for _, _, value, _ in e.interactions(k))


@pytest.mark.parametrize("method", ["owen", "shapley"])
def test_files_keep_what_is_exact_and_who_acts_together(method, tmp_path):
    e = explain(together, method=method, budget=60)
    assert e.diagnostics.interactions
    e.save(tmp_path / "e.json")
    for again in (c2fa.Explanation.from_json(e.to_json()), c2fa.load(tmp_path / "e.json")):
        assert again.diagnostics == e.diagnostics
        assert again.base == e.base
        assert again.interactions(1) == e.interactions(1)
        assert all(np.array_equal(a, b) for a, b in zip(again.values, e.values, strict=True))


def test_a_store_keeps_them_too(tmp_path):
    some = batch_inputs(3)
    made = batch_explainer(method="owen", budget=(16, 60))
    store = made.many(some, tmp_path / "store", progress=False)
    for x, kept in zip(some, store, strict=True):
        e = made(x)
        assert kept.diagnostics.exact == e.diagnostics.exact == (True, False)
        assert kept.base == e.base
        # Another process adds numbers up in another order, and kernels are next to singular.
        assert np.allclose(kept.low, e.low, atol=1e-5)
        for one, other in zip(kept.diagnostics.interactions, e.diagnostics.interactions, strict=True):
            assert (one.level, one.first, one.second) == (other.level, other.first, other.second)
            assert one.value == pytest.approx(other.value, abs=1e-5)

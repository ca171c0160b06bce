"""From an input to an explanation, and what must hold of every explanation."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import c2fa
import c2fa.asking.ledger
import c2fa.citing
import c2fa.models.http.limits
import showcases
from c2fa.asking.fingerprint import identify
from c2fa.asking.querying import Ask
from c2fa.asking.replies import QueryError
from c2fa.methods import METHODS, PEERS, options_of
from c2fa.methods.budget import rows_per_level
from oracles import dense
from strategies import structures

S = c2fa.Structure.from_tree({f"P{j}": [f"w{j}.{i}" for i in range(4)] for j in range(5)})
DEEP = c2fa.Structure(
    (np.array([0, 0, 1, 1]), np.array([0, 0, 1, 2, 2, 3])), (("a", "b"), tuple("wxyz"), tuple("123456"))
)
RNG = np.random.default_rng(0)
W = RNG.normal(size=(20, 3))


def softmax_model(batch):
    scores = np.exp(batch @ W)
    return scores / scores.sum(axis=1, keepdims=True)


def row_by_row(batch):
    """A model whose answer for a row cannot depend on its batch, not even in the last bit."""
    scores = [np.exp(np.add.reduce(row[:, None] * W)) for row in batch]
    return np.array([s / s.sum() for s in scores])


def explain(structure=S, model=softmax_model, x=None, **options):
    return c2fa.Explainer(model, c2fa.maskers.Array(structure), **options)(
        np.ones(structure.leaves) if x is None else x
    )


@given(structures(depths=(1, 2, 3)), st.integers(0, 100), st.integers(12, 80))
@settings(max_examples=25)
def test_values_are_always_the_sums_of_their_leaves(s, seed, budget):
    w = np.random.default_rng(seed).normal(size=(s.leaves, 2))
    e = explain(s, lambda b: np.tanh(b @ w), budget=budget, seed=seed)
    for k in range(s.depth):
        np.testing.assert_array_equal(e.values[k], s.sums(e.low, k))
    assert e.diagnostics.consistency == 0
    assert e.queries <= budget


@given(structures(depths=(2, 3), most_leaves=10), st.integers(0, 100))
@settings(max_examples=25)
def test_an_additive_model_is_recovered_exactly(s, seed):
    w = np.random.default_rng(seed).normal(size=s.leaves)
    e = explain(s, lambda b: 0.3 + b @ w, budget=400, penalty=c2fa.L2(1e-10), seed=seed)
    np.testing.assert_allclose(e.low, w, atol=1e-6)
    np.testing.assert_allclose(e.intercepts, 0.3, atol=1e-6)
    assert e.diagnostics.levels[0].r2 > 1 - 1e-9


@given(structures(), st.floats(-3, 3))
@settings(max_examples=20)
def test_a_constant_model_gives_zeros_and_says_why(s, constant):
    e = explain(s, lambda b: np.full(len(b), constant), budget=40)
    for v in e.values:
        np.testing.assert_allclose(v, 0, atol=1e-12)
    assert any("same output for every masked input" in w for w in e.diagnostics.warnings)


@given(st.permutations(range(9)), st.permutations(range(3)))
@settings(max_examples=20)
def test_permuting_leaves_or_parts_permutes_the_answer(leaves, parts):
    rng = np.random.default_rng(1)
    owner = np.array([0, 0, 0, 1, 1, 1, 1, 2, 2])
    high = (rng.random((6, 3)) < 0.5, rng.normal(size=6))
    low = (rng.random((8, 9)) < 0.5, rng.normal(size=8))
    names = (tuple("abc"), tuple("123456789"))
    first = c2fa.solve(c2fa.Problem(c2fa.Structure((owner,), names), (c2fa.Level(*high), c2fa.Level(*low))))
    leaves, parts = np.array(leaves), np.array(parts)
    moved = c2fa.Structure((np.argsort(parts)[owner[leaves]],), names)
    second = c2fa.solve(
        c2fa.Problem(moved, (c2fa.Level(high[0][:, parts], high[1]), c2fa.Level(low[0][:, leaves], low[1])))
    )
    np.testing.assert_allclose(second.values[1], first.values[1][leaves], atol=1e-12)
    np.testing.assert_allclose(second.values[0], first.values[0][parts], atol=1e-12)


@pytest.mark.parametrize("batch_size", [1, 3, 64, 1000])
def test_the_same_seed_gives_the_same_answer_for_every_batch_size(batch_size):
    expected = explain(model=row_by_row, seed=5)
    e = explain(model=row_by_row, seed=5, batch_size=batch_size)
    for a, b in zip(e.all_values, expected.all_values, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(explain(model=row_by_row, seed=6).low, expected.low)


def test_by_default_the_joint_fit_chooses_among_planned_masks_that_count_alike():
    said = explain(kernel="uniform", sampler="planned", penalty="auto", smooth="auto")
    default, fixed = explain(method="c2fa"), explain(penalty=None)
    for k in (0, 1):
        np.testing.assert_array_equal(default.values[k], said.values[k])
    assert not np.array_equal(default.low, fixed.low)
    assert default.queries == fixed.queries  # the same masks


def test_without_a_penalty_of_ones_own_it_grows_with_the_number_of_features():
    expected = explain(penalty=(c2fa.L2(0.1), c2fa.L2(0.4)))
    np.testing.assert_array_equal(explain(penalty=None).low, expected.low)
    three = c2fa.Structure.from_tree([[["a", "b"], ["c"]], [["d"]]])
    given = explain(three, lambda b: b.sum(axis=1), budget=60, penalty=(c2fa.L2(0.04), c2fa.L2(0.06), c2fa.L2(0.08)))
    np.testing.assert_array_equal(explain(three, lambda b: b.sum(axis=1), budget=60, penalty=None).low, given.low)


def test_the_paper_preset_is_the_paper_to_the_letter():
    """Masks, weights and fit redone by hand from the paper's text."""
    seen = []

    def model(batch):
        seen.append(batch.copy())
        return softmax_model(batch)

    e = explain(model=model, preset="paper", budget=(21, 50), target=1)
    rows = np.concatenate(seen[1:]) > 0
    high = np.array(
        [r for r in rows if all(r[4 * j : 4 * j + 4].all() or not r[4 * j : 4 * j + 4].any() for j in range(5))]
    )
    assert len(high) <= 20
    assert e.intercepts == (0.0, 0.0)
    assert e.diagnostics.status == "converged"
    assert e.diagnostics.consistency < 1e-3
    number = identify(np.ones(20)).number
    rng = [np.random.default_rng((0, k, number)) for k in range(2)]
    masks = [c2fa.samplers.uniform(rng[0], 20, S, 0), c2fa.samplers.uniform(rng[1], 50, S, 1)]
    levels = []
    for k, z in enumerate(masks):
        on = z.mean(axis=1)
        y = softmax_model(S.expand(z, k).astype(float))[:, 1]
        levels.append(c2fa.Level(z, y, np.exp(-8 * (1 - np.sqrt(on)) ** 2), c2fa.L2(0.1)))
    exact = dense(c2fa.Problem(S, tuple(levels)))[0]
    for k in range(2):
        np.testing.assert_allclose(e.values[k], exact[k][:, 0], atol=0.02)
    tight = explain(preset="paper", budget=(21, 50), target=1, solver_options={"eps1": 1e-20, "eps2": 1e-20})
    for k in range(2):
        np.testing.assert_allclose(tight.values[k], exact[k][:, 0], atol=1e-6)


def test_targets_by_index_name_and_prediction():
    names = ("red", "green", "blue")
    e = explain(output_names=names)
    assert e.target == int(np.argmax(softmax_model(np.ones((1, 20)))))
    assert e.target_name == names[e.target]
    assert e.prediction == e.outputs[e.target] == pytest.approx(float(softmax_model(np.ones((1, 20))).max()))
    blue = explain(output_names=names, target="blue")
    assert blue.target == 2
    np.testing.assert_array_equal(blue.low, explain(target=2).low)
    np.testing.assert_array_equal(e.for_target("blue").low, blue.low)
    assert blue.for_target(0).target_name == "red"
    only = explain(outputs="target", target=1)
    np.testing.assert_allclose(only.low, explain(target=1).low, atol=1e-12)
    with pytest.raises(ValueError, match="was not kept; explain with outputs='all'"):
        only.for_target(0)


def test_a_thousand_classes_keep_the_target_alone():
    w = RNG.normal(size=(20, 1000))
    e = explain(model=lambda b: np.tanh(b @ w), budget=60)
    assert e.all_values[1].shape == (20, 1)
    assert explain(model=lambda b: np.tanh(b @ w), budget=60, outputs="all").all_values[1].shape == (20, 1000)


def test_three_levels_and_one():
    tree = {"A": {"a1": ["x", "y"], "a2": ["z"]}, "B": {"b1": ["u", "v", "w"]}}
    s = c2fa.Structure.from_tree(tree)
    w = np.arange(6.0)
    e = explain(s, lambda b: b @ w, budget=(10, 10, 40), penalty=c2fa.L2(1e-9))
    np.testing.assert_allclose(e.values[1], [1, 2, 12], atol=1e-5)
    np.testing.assert_allclose(e.high, [3, 12], atol=1e-5)
    flat = explain(c2fa.Structure.flat("xyz"), lambda b: b @ w[:3], budget=20, penalty=c2fa.L2(1e-9))
    np.testing.assert_allclose(flat.high, [0, 1, 2], atol=1e-6)


def test_options_per_level_and_other_penalties():
    e = explain(
        penalty=(c2fa.L2(0.1), c2fa.L1(1.0)),
        kernel=("shap", "cosine"),
        sampler=("uniform", "paired"),
        target=0,
    )
    assert (e.low == 0).any()
    positive = explain(penalty=c2fa.L2(0.1, positive=True), target=0)
    assert positive.low.min() >= 0
    with pytest.raises(ValueError, match="penalty has 3 entries and the structure 2 levels"):
        explain(penalty=(c2fa.L2(0.1),) * 3)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"budget": 0}, ValueError, "budget must be at least 1 row at every level; got 0"),
        ({"budget": (0, 5)}, ValueError, "at least 1 row at every level"),
        ({"budget": 2}, ValueError, "a budget of 2 is too small for 2 levels: it takes at least 3 rows"),
        ({"budget": (5, 5, 5)}, ValueError, "has 3 entries and the structure 2 levels"),
        ({"budget": (1, 5)}, ValueError, "first level's budget must be at least 2"),
        ({"budget": "many"}, TypeError, "budget must be a whole number"),
        ({"budget": 2.5}, TypeError, "budget must be a whole number"),
        ({"target": 3}, ValueError, r"target 3 does not exist; the model has outputs 0\.\.2"),
        ({"target": "cat"}, ValueError, "target 'cat' does not exist; the outputs are 0, 1, 2"),
        ({"target": 0.5}, TypeError, "target must be an index, a name or None"),
        ({"output_names": ["a"]}, ValueError, "1 output names for a model with 3 outputs"),
        ({"method": "sharp"}, ValueError, "method must be one of"),
        ({"bugdet": 3}, TypeError, "has no option 'bugdet'; it has .*; did you mean 'budget'"),
        ({"kernel": "cosin"}, ValueError, "kernel must be a function or one of"),
        ({"sampler": "normal"}, ValueError, "sampler must be a function or one of"),
        ({"penalty": 0.1}, TypeError, "penalty must be L2"),
        ({"solver": "newton"}, ValueError, "solver must be 'auto' or one of"),
        ({"solver": "admm", "solver_options": {"tol": 1}}, TypeError, "admm solver has no option 'tol'"),
        ({"preset": "papers"}, ValueError, "preset must be one of"),
        ({"on_error": "ignore"}, ValueError, "on_error must be one of 'raise', 'drop'"),
        ({"batch_size": 0}, ValueError, "batch_size must be a whole number of at least 1"),
        ({"batch_size": True}, ValueError, "batch_size must be a whole number of at least 1; got True"),
        ({"seed": -1}, ValueError, "seed must be a whole number"),
        ({"seed": True}, ValueError, "seed must be a whole number"),
        ({"intercept": "no"}, TypeError, "intercept must be True or False; got 'no'"),
        ({"method": "lime", "anchor": 1}, TypeError, "anchor must be True or False; got 1"),
        ({"output_names": ["a", "a", "b"], "target": "a"}, ValueError, "'a' is the name of 2 outputs; give its index"),
        (
            {"model": lambda b: ["cat"] * len(b), "on_error": "drop"},
            QueryError,
            r"no usable answer for the input itself.*returned list of strings",
        ),
        ({"outputs": "both"}, ValueError, "outputs must be"),
        ({"x": np.ones(7)}, ValueError, "must be a vector of 20 values"),
        ({"x": np.array(["a"] * 20)}, TypeError, "must be real numbers"),
        ({"x": np.ones(20, complex)}, TypeError, "must be real numbers, not complex128"),
        ({"x": np.ones(0)}, ValueError, r"got shape \(0,\)"),
    ],
)
def test_bad_input_is_met_with_one_sentence(options, error, message):
    with pytest.raises(error, match=message) as caught:
        explain(**options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"target": "cat"}, ValueError, "target 'cat' does not exist; the outputs are good, bad"),
        ({"target": 2}, ValueError, r"target 2 does not exist; the model has outputs 0\.\.1"),
        (
            {"target": "good", "output_names": ["a", "b"]},
            ValueError,
            "target 'good' does not exist; the outputs are a, b",
        ),
        ({"until": c2fa.until.top(1, level=2)}, IndexError, r"level 2 does not exist: the structure has levels 0\.\.1"),
        ({"until": c2fa.until.stderr(0.1, level="parts")}, TypeError, "level must be a whole number"),
    ],
)
def test_an_output_or_a_level_that_is_not_there_is_refused_before_anything_is_asked(options, error, message):
    class Named:
        output_names, rows = ("good", "bad"), 0

        def __call__(self, batch):
            self.rows += len(batch)
            return np.zeros((len(batch), 2))

    model = Named()
    with pytest.raises(error, match=message):
        c2fa.Explainer(model, c2fa.maskers.Array(S), **options)(np.ones(S.leaves))
    assert not model.rows


def test_things_that_cannot_be_called_are_refused():
    with pytest.raises(TypeError, match=r"a model must be callable or have predict_proba, not str; .*load\('demo'\)"):
        c2fa.Explainer("demo", c2fa.maskers.Array(S))
    with pytest.raises(TypeError, match="masker must be a masker"):
        c2fa.Explainer(softmax_model, S)
    with pytest.raises(TypeError, match="not the class Array"):
        c2fa.Explainer(softmax_model, c2fa.maskers.Array)
    with pytest.raises(ValueError, match="baseline must be a number or 20 values"):
        c2fa.maskers.Array(S, baseline=[1, 2])
    with pytest.raises(TypeError, match="structure must be a"):
        c2fa.maskers.Custom(3, print)
    with pytest.raises(TypeError, match=r"must return a c2fa\.Structure"):
        c2fa.maskers.Custom(lambda x: 3, print)(1)


def test_one_part_is_explained_and_said():
    s = c2fa.Structure.from_groups(["only"] * 4)
    e = explain(s, lambda b: b.sum(axis=1), budget=30)
    assert any("only one part" in w for w in e.diagnostics.warnings)
    np.testing.assert_allclose(e.high, e.low.sum())
    np.testing.assert_allclose(e.low, 1.0, atol=0.3)


def test_warnings_in_words():
    few = explain(
        c2fa.Structure.from_tree([[f"{j}{i}" for i in range(20)] for j in range(12)]),
        lambda b: np.sin(b.sum(1)),
        budget=(5, 9),
        method="c2fa",
    )
    text = " ".join(few.diagnostics.warnings)
    assert "there are 12 parts and only 5 rows for them" in text
    assert "rows for 240 leaves" in text

    def contrary(batch):  # whole parts pull one way, scattered leaves the other
        masked = 1 - batch.mean(axis=1)
        shown = np.array([[row[S.owners(0) == j].mean() for j in range(S.widths[0])] for row in batch])
        return np.where(np.isin(shown, (0, 1)).all(axis=1), masked, -masked)

    masker = c2fa.maskers.Custom(S, lambda x, masks, level: masks.astype(float))
    e = c2fa.Explainer(contrary, masker, method="c2fa", budget=(60, 200), anchor=False)(0)
    assert "explain less than nothing" in e.diagnostics.contradiction
    assert e.diagnostics.levels[0].loss > 5 * e.diagnostics.levels[0].loss_alone


def test_a_fit_that_predicts_nothing_new_is_said():
    """An all-or-nothing model: leaf masks hardly ever meet it, so what is fitted there is chance."""
    s = c2fa.Structure.from_groups(np.arange(80) // 40)
    rng = np.random.default_rng(0)
    noise = {}

    def model(batch):
        return np.array([noise.setdefault(row.tobytes(), rng.normal()) for row in batch])

    e = explain(s, model, budget=(5, 60), penalty=c2fa.L2(0.01))
    leaves = e.diagnostics.levels[1]
    assert leaves.r2 > 0.9
    assert leaves.r2_left_out < 0
    assert any("hardly predicts a row left out" in w for w in e.diagnostics.warnings)
    good = explain(method="c2fa", budget=(50, 300)).diagnostics.levels
    assert 0.5 < good[1].r2_left_out < good[1].r2
    assert explain(penalty=c2fa.L1(0.01)).diagnostics.levels[0].r2_left_out is None


@pytest.mark.parametrize(
    ("budget", "widths", "rows"),
    [
        (200, (5, 100), (20, 179)),
        (200, (3, 30), (8, 191)),
        (3, (2, 4), (1, 1)),
        (100, (40, 400), (33, 66)),
        (100, (2, 6, 30), (4, 12, 83)),
        (50, (9,), (49,)),
        ((50, 150), (5, 100), (49, 150)),
    ],
)
def test_one_number_is_split_over_the_levels(budget, widths, rows):
    parents = [np.arange(w) % v for v, w in itertools.pairwise(widths)]
    s = c2fa.Structure(tuple(parents), tuple(tuple("x" * w) for w in widths))
    assert rows_per_level(budget, s) == rows


def test_no_budget_is_200_rows_that_the_method_splits_and_no_tuple_is_taken_for_it():
    s = c2fa.Structure.from_groups(np.repeat(np.arange(5), 20))
    for method in ("c2fa", "lime", "milli"):
        default, told = (c2fa.Explainer(len, c2fa.maskers.Array(s), method=method, budget=b) for b in (None, 200))
        masked = default.masker(np.ones(s.leaves))
        assert default.rows(masked) == told.rows(masked)
    asked = []
    deep = c2fa.Structure.from_tree({"A": {"A1": ["x", "q"], "A2": ["y"]}, "B": {"B1": ["w", "v"]}})
    explainer = c2fa.Explainer(lambda batch: asked.append(batch), c2fa.maskers.Array(deep), budget=(50, 150))
    with pytest.raises(ValueError, match=r"budget \(50, 150\) has 2 entries and the structure 3 levels; give one for"):
        explainer(np.ones(5))
    assert not asked


@pytest.mark.parametrize("budget", [9, 40, (8, 30)])
@pytest.mark.parametrize("method", ["owen", "c2fa"])
def test_rows_that_stand_beside_an_input_are_asked_after_it_and_paid_from_the_budget(method, budget):
    asked = []
    beside = np.zeros((2, S.leaves), dtype=bool)
    beside[1, 0] = True

    def masker(x):
        return dataclasses.replace(c2fa.maskers.Array(S)(x), beside=beside)

    def model(batch):
        asked.extend(batch.tolist())
        return batch.sum(axis=1)

    e = c2fa.Explainer(model, masker, method=method, budget=budget)(np.ones(S.leaves))
    assert asked[:3] == [[1.0] * S.leaves, *beside.astype(float).tolist()]
    assert len(asked) == e.queries <= np.sum(budget)
    with pytest.raises(
        ValueError, match="3 rows is too small: it takes 1 for the input itself, 2 beside it, and 1 for"
    ):
        c2fa.Explainer(model, masker, method=method, budget=3)(np.ones(S.leaves))


def test_a_method_may_say_something_about_its_rows():
    class Silent(c2fa.methods.BaseMethod):
        def __call__(self, task):
            return (yield from c2fa.methods.C2FA()(task))

    class Whole(Silent):
        def min_rows(self, structure):
            return 3

    s = c2fa.Structure.from_groups("aabb")
    masked = c2fa.maskers.Array(s)(np.ones(4))
    assert c2fa.Explainer(len, c2fa.maskers.Array(s), method=Silent(), budget=5).rows(masked) == (1, 3)
    assert c2fa.Explainer(len, c2fa.maskers.Array(s), method=Whole(), budget=6).rows(masked) == (3, 2)


def test_a_method_gets_the_rows_that_it_cannot_do_without():
    wide = c2fa.Structure.from_tree([["a", "b"]] * 12)
    e = explain(wide, lambda b: b.sum(axis=1), method="milli", budget=17)
    assert e.queries <= 17
    with pytest.raises(c2fa.BudgetError, match="MILLI ranks the 12 parts"):
        explain(wide, lambda b: b.sum(axis=1), method="milli", budget=14)


def test_tables_and_lists():
    pytest.importorskip("pandas")
    e = explain()
    frame = e.to_frame()
    assert len(frame) == 25
    leaves = frame[frame.level == 1].groupby("parent").value.sum()
    np.testing.assert_allclose(leaves, frame[frame.level == 0].value)
    assert e.top(3) == e.top(99)[:3]
    assert abs(e.top(1)[0][1]) == np.abs(e.low).max()
    assert e.top(2, level=0)[0][0] in e.names[0]
    assert "rows" in repr(e)


def test_the_printed_tree_adds_up_and_is_safe():
    s = c2fa.Structure.from_tree({"first\x1b[2J part": [f"w{i}" for i in range(9)], "second": ["a", "b" * 300]})
    e = explain(s, lambda b: b @ np.arange(11.0), budget=60)
    text = str(e)
    assert "\x1b" not in text
    assert "in 4 more" in text
    assert max(map(len, text.splitlines()[1:])) <= 101
    assert "…" in text


def test_without_standard_errors_the_tree_still_prints():
    e = explain(penalty=c2fa.L1(0.01))
    assert e.stderr is None
    assert "±" not in str(e)


def test_shap_takes_the_values_of_a_level():
    shap = pytest.importorskip("shap")
    e = explain(budget=60, output_names=["a", "b", "c"])
    for level in (0, -1):
        theirs = e.to_shap(level)
        assert isinstance(theirs, shap.Explanation)
        np.testing.assert_array_equal(theirs.values, e.values[level])
        assert theirs.base_values == e.intercepts[level]
        assert theirs.feature_names == list(e.names[level])


@pytest.mark.parametrize("constant", [0.1, 1e6 + 0.3, 1e-9, 5.2e-170])
def test_equal_outputs_leave_nothing_to_fit_whatever_their_mean_rounds_to(constant):
    e = explain(model=lambda b: np.full(len(b), constant))
    assert [(level.r2, level.r2_left_out) for level in e.diagnostics.levels] == [(1.0, None)] * 2
    assert "same output for every masked input" in e.diagnostics.warnings[0]


_RANDOM = ("td-lime", "td-milli")  # their leaves are drawn around their parts, whatever the model says


@pytest.mark.parametrize("structure", [c2fa.Structure.flat(9), S, DEEP], ids=["flat", "parts", "deep"])
@pytest.mark.parametrize("method", [name for name in METHODS if name not in _RANDOM])
def test_a_constant_model_gets_exact_zeros_from_every_method(method, structure):
    if method in PEERS:
        pytest.importorskip(PEERS[method].package)
    penalties = ["auto", None, c2fa.L2(0.0), c2fa.L1(0.1), c2fa.NonNegative()]
    for penalty in penalties if "penalty" in options_of(method) else [None]:
        chosen = {"penalty": penalty} if "penalty" in options_of(method) else {}
        for constant in (0.1, 1 / 3, 1e6, -7.0, np.float32(0.3)):
            pair = np.array([constant, 1 - constant])
            e = explain(structure, lambda b, pair=pair: np.tile(pair, (len(b), 1)), method=method, budget=80, **chosen)
            assert not any(v.any() for v in e.all_values)
            assert not any(b.any() for b in e.all_stderr or ())
            np.testing.assert_allclose(e.all_intercepts[-1], pair, rtol=1e-6)


def test_zeros_have_no_bars():
    e = explain(model=lambda b: np.full(len(b), 0.3))
    assert "++" not in e.to_text()
    assert "e-" not in e.to_text()


def test_zeros_have_no_bars_in_a_plot():
    rectangle = pytest.importorskip("matplotlib.patches").Rectangle
    drawn = explain(model=lambda b: np.full(len(b), 0.3)).plot("nested").axes[0].patches
    wide = [p for p in drawn if isinstance(p, rectangle) and p.get_width() and p.get_facecolor()[:3] != (1, 1, 1)]
    assert all(p.get_height() > 1 for p in wide)  # the bands behind the parts, which are no bars


WIDE = c2fa.Structure.from_groups([str(i // 10) for i in range(100)])


def test_too_few_rows_that_agree_do_not_blame_the_model():
    few = explain(WIDE, lambda b: np.full(len(b), 0.3), budget=4).diagnostics.warnings
    assert few == (
        "the 3 masked inputs all got the same output, so nothing can be attributed; they are too few for 100 leaves to "
        "say that the model ignores them: raise the budget",
    )
    enough = explain(WIDE, lambda b: np.full(len(b), 0.3), budget=60).diagnostics.warnings
    assert enough == ("the model gave the same output for every masked input, so nothing can be attributed",)


def test_a_poor_fit_of_too_few_rows_does_not_blame_the_model():
    few = explain(WIDE, lambda b: b[:, 49], method="c2fa", budget=4).diagnostics.warnings
    assert "parts are fitted much worse together" in few[0]
    assert few[0].endswith("2 rows are too few for 10 parts to tell why; raise the budget")
    assert not any("does not add up" in warning or "far from additive" in warning for warning in few)
    parity = lambda b: np.prod(1 - 2 * b[:, :6], axis=1)  # noqa: E731
    strong = explain(WIDE, parity, method="c2fa", budget=(20, 50), penalty=c2fa.L2(1e4)).diagnostics.warnings
    assert any("(R² 0.00); 51 rows are too few for 100 leaves to tell why" in warning for warning in strong)
    enough = explain(WIDE, parity, method="c2fa", budget=300).diagnostics.warnings
    assert any(warning.endswith("it is far from additive") for warning in enough)


def test_outputs_that_differ_by_rounding_alone_are_said():
    saturated = explain(model=lambda b: (1 / (1 + np.exp(-15.8 - (b @ W[:, 0]) / 20))).astype(np.float32))
    assert any("may be rounding" in warning for warning in saturated.diagnostics.warnings)
    small = explain(model=lambda b: 1e-9 / (1 + np.exp(-b @ W[:, 0])))
    assert not any("may be rounding" in warning for warning in small.diagnostics.warnings)


def test_settings_as_numpy_holds_them():
    plain = explain(budget=(20, 60), batch_size=7, seed=3)
    same = explain(budget=np.array([20, 60]), batch_size=np.int64(7), seed=np.uint8(3))
    np.testing.assert_array_equal(plain.low, same.low)


def test_the_paper_preset_gives_other_methods_what_they_take():
    preset = explain(method="lime", preset="paper", budget=(21, 50))
    given = explain(
        method="lime", kernel="cosine", penalty=c2fa.L2(0.1), intercept=False, anchor=False, budget=(21, 50)
    )
    np.testing.assert_array_equal(preset.low, given.low)


@pytest.mark.parametrize(("scale", "shown"), [(1e-9, "e-"), (1.0, "."), (1e9, "e+")])
def test_numbers_of_any_size_are_printed_with_their_digits(scale, shown):
    e = explain(model=lambda b: scale * b @ np.linspace(0.2, 0.9, 20), budget=60)
    assert shown in repr(e)
    assert all(shown in line for line in str(e).splitlines()[1:6])
    assert "+0.000 ± 0.000" not in str(e)
    assert max(map(len, str(e).splitlines())) < 100


def test_names_cannot_turn_a_line_round():
    s = c2fa.Structure.from_tree({"a": ["\u202eevil", "b"]})
    assert "\u202e" not in str(explain(s, lambda b: b.sum(axis=1), budget=20))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("leaves", [130, 1000])
def test_shaps_kernel_over_many_leaves_has_errors_of_the_outputs_size(leaves):
    s = c2fa.Structure.from_groups(np.repeat(np.arange(5), leaves // 5))
    w = np.random.default_rng(0).normal(size=leaves)
    e = explain(s, lambda b: 1 / (1 + np.exp(-(b @ w))), kernel="shap", budget=(30, 50))
    assert all((error < 1.0).all() for error in e.stderr)
    assert all(0.0 <= level.r2 <= 1.0 for level in e.diagnostics.levels)


@pytest.mark.parametrize(("leaves", "options"), [(2000, {}), (130, {"penalty": c2fa.L2(1.0)})])
def test_a_kernel_under_which_hardly_a_row_counts_is_said(leaves, options):
    s = c2fa.Structure.from_groups(np.repeat(np.arange(5), leaves // 5))
    w = np.random.default_rng(0).normal(size=leaves)

    def said(**kernel):
        e = explain(s, lambda b: b @ w, budget=(30, 50), **options, **kernel)
        return any("50 of the 51 rows of leaves weigh next to nothing" in text for text in e.diagnostics.warnings)

    assert said(kernel="shap")
    assert not said()


def test_rows_that_were_dropped_are_not_said_to_need_dropping():
    def model(batch):
        return np.where(batch.sum(axis=1) % 3 == 1, np.nan, batch @ W[:, 0])

    e = explain(model=model, on_error="drop")
    assert any("NaN or infinity" in text for text in e.diagnostics.warnings)
    assert not any("on_error" in text for text in e.diagnostics.warnings)
    with pytest.raises(QueryError, match="on_error='drop'"):
        explain(model=model)


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"solver_options": {"max_iterations": 64}}, TypeError, "the direct solver has no option 'max_iterations'"),
        ({"penalty": c2fa.L1(0.1), "solver_options": {"mu1": 0.1}}, TypeError, "the admm solver has no option"),
        ({"solver": "paper", "solver_options": {"max_iterations": -5}}, ValueError, "whole number of at least 0"),
        ({"solver": "admm", "solver_options": {"max_iterations": 1.5}}, ValueError, "whole number of at least 0"),
        ({"solver": "admm", "solver_options": {"max_iterations": "9"}}, ValueError, "whole number of at least 0"),
        ({"solver": "paper", "solver_options": {"mu1": 0.0}}, ValueError, "mu1 must be positive; got 0.0"),
        ({"solver": "paper", "solver_options": {"eps2": "small"}}, ValueError, "eps2 must be at least 0"),
        ({"penalty": (c2fa.L2(0.1), c2fa.Auto())}, ValueError, "level 0 has L2.*give it to each"),
        ({"penalty": (c2fa.Auto(), c2fa.L2(0.0))}, ValueError, "level 1 has L2.*give it to each"),
    ],
)
def test_what_does_not_go_together_is_refused_before_anything_is_asked(options, error, said):
    with pytest.raises(error, match=said):
        c2fa.Explainer(lambda batch: 1 / 0, c2fa.maskers.Array(S), method="c2fa", smooth=None, **options)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("penalty", ["auto", c2fa.L2(0.1)])
def test_outputs_too_large_or_too_small_for_their_squares(penalty):
    def scaled(factor, **options):
        return explain(model=lambda batch: factor * np.tanh(batch @ W[:, 0]), penalty=penalty, **options)

    usual = scaled(1.0)
    for factor in (1e-120, 1e99):
        e = scaled(factor)
        np.testing.assert_allclose(e.low / factor, usual.low, rtol=1e-6)
        np.testing.assert_allclose(e.stderr[1] / factor, usual.stderr[1], rtol=1e-6)
        assert e.diagnostics.warnings == usual.diagnostics.warnings
    for factor in (1e-150, 1e-160, 1e-300):
        assert any('use link="log"' in text for text in scaled(factor).diagnostics.warnings)
    for factor in (1e102, 1e160, 1e300):
        with pytest.raises(QueryError, match="numbers beyond 1e100 for 1 of 1 rows"):
            scaled(factor)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: c2fa.load(("a.json",)), "path must be the name of a file"),
        (lambda: c2fa.models.load(["demo"]), "spec must be a text"),
        (lambda: c2fa.maskers.Array("aab"), "structure must be a Structure"),
        (
            lambda: c2fa.Explainer(len, lambda x: "masked")("x"),
            "the masker must return a c2fa.Masked, not str",
        ),
        (lambda: c2fa.Level([[1, 0]], [0.5], penalty=(1,)), "penalty must be L2"),
        (lambda: c2fa.Explainer(len, c2fa.maskers.Text(), budget=2**70), "budget must be at most 1,000,000,000 rows"),
    ],
)
def test_an_argument_of_another_kind_is_one_sentence(call, words):
    with pytest.raises((TypeError, ValueError), match=words):
        call()


def test_another_target_has_a_consistency_of_its_own():
    structure = c2fa.Structure.from_groups("aabb")
    model = lambda rows: np.stack([rows.sum(axis=1), np.tanh(rows[:, 0] * rows[:, 1]) * 3.0], axis=1)  # noqa: E731
    explain = c2fa.Explainer(
        model, c2fa.maskers.Array(structure), method="lime", outputs="all", target=0, budget=(4, 16)
    )
    e = explain(np.array([1.0, 2.0, 3.0, 4.0]))
    for target in (0, 1):
        own = e.for_target(target)
        assert own.diagnostics.consistency == pytest.approx(c2fa.metrics.consistency(own.values, structure))
    assert 0.0 < e.for_target(1).diagnostics.consistency < 0.5 * e.diagnostics.consistency
    assert e.for_target(0).diagnostics.consistency == e.diagnostics.consistency


A = c2fa.maskers.Array(c2fa.Structure.from_groups("aab"))


class Saying(c2fa.methods.BaseMethod):
    def __call__(self, task):
        return "x"


def sums(rows):
    return rows.sum(axis=1)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: c2fa.Explainer(sums, A, bugdet=9), "prior; did you mean 'budget'?"),
        (
            lambda: c2fa.Explainer(sums, A, method="c2fa", kernal="cosine"),
            "prior; did you mean 'kernel'?",
        ),
        (lambda: c2fa.Explainer(sums, A, colour="red"), "method 'owen' has no option 'colour'; it has sampler, smooth"),
        (lambda: c2fa.Explainer(sums, A, output_names=3), "output_names must be a list of names"),
        (lambda: c2fa.Explainer(sums, A, output_names="score"), "output_names must be a list of names"),
        (lambda: c2fa.Explainer(sums, A, model_name=np.arange(3)), "model_name must be a text"),
        (lambda: c2fa.Explainer(sums, A, link=np.zeros((0, 3))), "link must be one of"),
        (lambda: c2fa.Explainer(sums, A, ledger="\ud800", model_name="m"), "no file can have the name"),
        (lambda: c2fa.Explainer(sums, A, ledger="a\0b", model_name="m"), "no file can have the name"),
        (lambda: c2fa.Explainer(sums, A)(np.ones(3), key=np.arange(3)), "key must be a text that names the input"),
        (lambda: c2fa.Explainer(sums, A, method=Saying())(np.ones(3)), "a method must yield questions"),
        (lambda: c2fa.Explainer(sums, A)(np.ones(3)).top("5"), "n must be a whole number of at least 0; got '5'"),
        (lambda: c2fa.Explainer(sums, A)(np.ones(3)).top(-1), "n must be a whole number of at least 0; got -1"),
        (lambda: c2fa.Explainer(sums, A)(np.ones(3)).interactions(n="a"), "n must be a whole number of at least 0"),
        (lambda: c2fa.Explainer(sums, A)(np.ones(3)).to_text(leaves=-1), "leaves must be a whole number of at least 0"),
        (
            lambda: c2fa.Explainer(sums, A)(np.ones(3)).to_text(width=b""),
            "width must be a whole number of at least 1; got b''",
        ),
        (
            lambda: c2fa.Explainer(sums, A)(np.ones(3)).top(1, "top"),
            "level 'top' does not exist; the levels are parts, leaves",
        ),
        (lambda: c2fa.Structure(sorted, ("ab", "abc")), "parents must be a tuple with an array for each level"),
        (lambda: c2fa.maskers.Array(A.structure, baseline={1: 2}), "baseline must be a number or one for each leaf"),
        (lambda: c2fa.maskers.Array(A.structure, baseline="top"), "baseline must be a number or one for each leaf"),
        (lambda: c2fa.until.stderr({"a": 0.1}), "the bound of the standard errors must be a number above 0; got"),
        (lambda: c2fa.samplers.Planned(few="nan"), "few must be from 0 to"),
        (lambda: c2fa.penalties.L2Each([[1.0], 2.0]), "lams must be finite numbers of at least 0"),
        (lambda: c2fa.penalties.L2Each(2j), "lams must be finite numbers of at least 0"),
        (lambda: c2fa.L2(True), "must be a finite number of at least 0; got True"),
        (lambda: c2fa.models.http.limits.Bucket((1,), 2.0), "path must be the name of a file"),
        (lambda: c2fa.models.http.limits.Bucket("b", "fast"), "rate must be a number of requests a second above 0"),
        (lambda: c2fa.models.http.limits.Bucket("b", 1.0, burst=[1]), "burst must be a whole number of at least 1"),
        (lambda: c2fa.load("\ud800"), "path must be the name of a file, and no file can have this one"),
        (lambda: c2fa.citing.Question(3, "?"), "documents must be texts by their ids, or a list of documents; got 3"),
    ],
)
def test_wrong_arguments_are_told_in_words_of_ours(call, said):
    with pytest.raises((TypeError, ValueError, c2fa.asking.ledger.LedgerError)) as caught:
        call()
    assert said in str(caught.value)


def test_levels_that_contradict_each_other_are_given_apart():
    e = showcases.explain_contradiction()
    d = e.diagnostics
    told = " and ".join(f"{name} (R² {d.levels[k].r2:.2f})" for k, name in enumerate(e.level_names))
    assert d.levels[0].r2 < 0 > d.levels[1].r2
    assert d.contradiction == (
        f"{told} explain less than nothing of what the model does under their masks, so instances and features are "
        "given apart: read each level by itself"
    )
    assert d.warnings[0] == d.contradiction
    assert not any("much worse" in warning or "explain little" in warning for warning in d.warnings)
    text = c2fa.showing.printing.tree(e, leaves=2)
    lines = text.splitlines()
    first, second = lines.index("instances:"), lines.index("features:")
    assert [line.split()[-2:] for line in lines[first + 1 : second]] == [["instance", str(j + 1)] for j in range(5)]
    shown = np.argsort(-np.abs(e.low), kind="stable")[:8]
    assert [line.endswith(e.names[1][i]) for line, i in zip(lines[second + 1 :], shown, strict=False)] == [True] * 8
    assert "in 12 more" in lines[second + 9]
    assert not any(mark in text for mark in ("├", "└", "gap"))
    assert f"! {d.contradiction}" in lines


class OneOutOfEachLevel(c2fa.methods.BaseMethod):
    """What the output loses without each part and without each leaf."""

    def __call__(self, task):
        s, values = task.structure, []
        for level in range(s.depth):
            answer = yield Ask(level, ~np.eye(s.widths[level], dtype=bool))
            values.append(task.prediction - answer.outputs)
        return c2fa.methods.Attribution(tuple(values), (np.zeros(1),) * s.depth, stderr=None, levels=(None,) * s.depth)


def test_a_part_that_is_not_what_its_leaves_make_is_said():
    """Either leaf of a part will do, so that each alone is worth nothing."""
    s = c2fa.Structure.from_tree({"a": ["a1", "a2"], "b": ["b1", "b2"]})
    either = lambda b: 2.0 * b[:, :2].max(axis=1) + b[:, 2:].sum(axis=1)  # noqa: E731
    e = explain(s, either, method=OneOutOfEachLevel(), budget=40)
    assert e.diagnostics.contradiction == (
        "parts and leaves contradict each other by more than half of the largest (“a” has +2 by itself, and its leaves "
        "make +0), so parts and leaves are given apart: read each level by itself"
    )


def test_a_part_beyond_the_standard_errors_of_its_leaves_is_said():
    s = c2fa.Structure.from_groups(np.arange(12) // 3)
    either = lambda b: b.reshape(len(b), 4, 3).max(axis=2) @ [1.0, 2.0, 3.0, 4.0]  # noqa: E731
    e = explain(s, either, method="lime", budget=(200, 4000), penalty=None)
    errors = [error**2 for error in e.stderr]
    apart = np.abs(e.high - s.sums(e.low, 0)) > 3 * np.sqrt(errors[0] + s.sums(errors[1], 0))
    assert apart.any()
    assert "contradict each other beyond their standard errors" in e.diagnostics.contradiction


@given(structures(depths=(2, 3)), st.integers(0, 100), st.just("c2fa"))
@settings(max_examples=40)
def test_additive_models_never_contradict_themselves(s, seed, method):
    """Not so under the paper's preset: with its penalties and no intercept, few features explain less than nothing."""
    rng = np.random.default_rng(seed)
    w, base = rng.normal(size=s.leaves), rng.normal()
    budget = tuple(4 * width + 8 for width in s.widths)
    e = explain(s, lambda b: b @ w + base, budget=budget, seed=seed, method=method)
    assert e.diagnostics.contradiction == ""


@given(structures(depths=(2, 3)), st.integers(0, 100), st.sampled_from(["owen", "shapley"]))
@settings(max_examples=20)
def test_values_of_a_game_never_contradict_themselves(s, seed, method):
    w = np.random.default_rng(seed).normal(size=s.leaves)
    e = explain(s, lambda b: np.sin(9 * b @ w), budget=20, seed=seed, method=method)
    assert e.diagnostics.contradiction == ""
    text = " ".join(e.diagnostics.warnings)
    assert not any(word in text for word in ("rows for", "additive", "explain little", "together with"))
    left_out = e.diagnostics.levels[-1].r2_left_out
    rough = left_out is not None and left_out < 0.2 and not all(e.diagnostics.exact)
    assert ("these values are rough" in text) == rough

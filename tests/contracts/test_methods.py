"""One battery for every registered method and a method that is not the package's own."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import c2fa
from c2fa.asking.querying import Queries, step
from c2fa.asking.replies import as_outputs
from c2fa.methods import METHODS, PEERS

CHOSEN = {name: {"method": name} for name in METHODS}
try:
    from experiments.variants import TopDownProportional
except ImportError:  # the experiments are not part of every copy of the project
    pass
else:
    CHOSEN["proportional"] = {"method": TopDownProportional()}
PACKAGES = {name: kind.package for name, kind in PEERS.items()}
CONSISTENT = sorted(set(CHOSEN) - {"lime", "milli"})
RANKS = {"milli", "td-milli"}

STRUCTURES = {
    "ragged": c2fa.Structure.from_groups("aaabbbccccd"),
    "scattered": c2fa.Structure.from_groups("abcabcabcc"),
    "one part": c2fa.Structure.from_groups("aaaa"),
    "one leaf": c2fa.Structure.from_groups("a"),
    "two leaves": c2fa.Structure.from_groups("ab"),
    "one-leaf parts": c2fa.Structure.from_groups("abcde"),
    "three levels": c2fa.Structure.from_tree({"A": {"A1": ["x", "q"], "A2": ["y"]}, "B": {"B1": ["w", "v"]}}),
    "three levels, one part": c2fa.Structure.from_tree({"A": {"A1": ["x", "q"], "A2": ["y"]}}),
    "flat": c2fa.Structure.flat(6),
}


def each_method():
    return [
        pytest.param(
            name,
            marks=pytest.mark.filterwarnings("ignore::PendingDeprecationWarning") if name in PEERS else (),
        )
        for name in CHOSEN
    ]


@pytest.fixture(params=each_method())
def method(request):
    package = PACKAGES.get(request.param)
    if package:
        pytest.importorskip(package, reason=f"{package} is not installed; pip install 'c2fa[peers]'")
    return request.param


@pytest.fixture(params=STRUCTURES)
def structure(request):
    return STRUCTURES[request.param]


class Model:
    """A saturating model of two outputs that counts its rows."""

    def __init__(self, leaves, seed=0):
        self.weights = np.random.default_rng(seed).normal(size=(leaves, 2))
        self.rows = 0

    def __call__(self, batch):
        self.rows += len(batch)
        return np.tanh(batch @ self.weights + 0.3)


def explain(method, structure, model=None, budget=60, **kwargs):
    model = model or Model(structure.leaves)
    masker = c2fa.maskers.Array(structure)
    return c2fa.Explainer(model, masker, **CHOSEN[method], budget=budget, **kwargs)(np.ones(structure.leaves))


def generous(structure):
    return (2 * structure.widths[0] + 5, *[21] * (structure.depth - 1))


def test_the_budget_is_never_exceeded(method, structure):
    budgets = [structure.depth + 1, structure.depth + 2, 7, 12, 31]
    budgets += [tuple(2 + (k + n) % 3 for k in range(structure.depth)) for n in range(3)]
    budgets += [generous(structure)]
    explained = 0
    for budget in budgets:
        model = Model(structure.leaves)
        allowed = budget if isinstance(budget, int) else sum(budget)
        try:
            e = explain(method, structure, model, budget)
        except c2fa.BudgetError:
            assert method in RANKS | {"shap-kernel"}
            assert model.rows == 1, "a budget that is too small is refused before anything but the prediction"
            continue
        explained += 1
        assert model.rows == e.queries <= allowed
    assert explained


def test_values_have_the_levels_shapes_and_are_finite(method, structure):
    e = explain(method, structure, budget=generous(structure))
    assert [v.shape for v in e.values] == [(w,) for w in structure.widths]
    assert [v.shape for v in e.all_values] == [(w, 2) for w in structure.widths]
    assert [b.shape for b in e.all_intercepts] == [(2,)] * structure.depth
    assert all(np.isfinite(v).all() for v in e.all_values + e.all_intercepts)
    if e.all_stderr is not None:
        assert [v.shape for v in e.all_stderr] == [(w, 2) for w in structure.widths]
    assert str(e)
    assert c2fa.Explanation.from_json(e.to_json()).queries == e.queries


def test_the_same_seed_gives_the_same_answer_whatever_the_batch_size(method, structure):
    budget = generous(structure)
    one, two = (explain(method, structure, budget=budget, seed=5, batch_size=b) for b in (1, 64))
    for a, b in zip(one.all_values, two.all_values, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_the_target_alone_gets_the_values_it_gets_among_all(method):
    s = STRUCTURES["ragged"]
    both, one = (explain(method, s, budget=(13, 40), target=1, outputs=o) for o in ("all", "target"))
    if method == "shap-partition":  # it spends its rows where any of the outputs changes most
        pytest.skip("shap-partition descends by the outputs that it is given")
    for a, b in zip(both.values, one.values, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", CONSISTENT)
def test_parts_are_exactly_the_sums_of_their_leaves_where_promised(name, structure):
    if name in PACKAGES:
        pytest.importorskip(PACKAGES[name], reason=f"{PACKAGES[name]} is not installed")
    e = explain(name, structure, budget=generous(structure))
    assert e.diagnostics.consistency == 0.0
    for k in range(structure.depth):
        np.testing.assert_array_equal(e.values[k], structure.sums(e.values[-1], k))


def test_a_constant_model_has_nothing_to_attribute(method, structure):
    e = explain(method, structure, lambda batch: np.full((len(batch), 2), 0.7), budget=generous(structure))
    if method.startswith("td-"):
        np.testing.assert_allclose(e.high, 0.0, atol=1e-7)  # its leaves are random by design
    else:
        for values in e.values:
            np.testing.assert_allclose(values, 0.0, atol=1e-6)


def test_a_masker_that_cannot_be_empty_is_never_asked_to_be(method):
    s = STRUCTURES["ragged"]
    asked = []

    def inputs(x, masks, level):
        asked.append(masks.any(axis=1).all())
        return s.expand(masks, level) * 1.0

    masker = c2fa.maskers.Custom(s, inputs, allows_empty=False)
    explainer = c2fa.Explainer(Model(s.leaves), masker, **CHOSEN[method], budget=(13, 60))
    if method in PEERS and PEERS[method].needs_empty:
        with pytest.raises(ValueError, match="everything masked, which this masker does not allow"):
            explainer(None)
    else:
        explainer(None)
    assert all(asked)


def test_a_conversation_that_is_dropped_midway_leaves_nothing_behind(method):
    s = STRUCTURES["ragged"]
    explainer = c2fa.Explainer(Model(s.leaves), c2fa.maskers.Array(s), **CHOSEN[method], budget=(13, 30))
    masked = explainer.masker(np.ones(s.leaves))
    queries = explainer.queries(np.ones(s.leaves), masked)
    conversation = explainer.conversation(masked, queries)
    before = threading.active_count()
    ask, _ = step(conversation, None)
    answer_all(queries, explainer.model, ask)
    step(conversation, queries.answer(ask))
    conversation.close()
    assert threading.active_count() == before


def answer_all(queries: Queries, model, ask):
    pending = queries.plan(ask)
    queries.record(pending, as_outputs(model(queries.inputs(pending)), len(pending), "a test"))


def test_two_conversations_taken_in_turns_do_not_disturb_each_other(method):
    s = STRUCTURES["ragged"]
    alone = [explain(method, s, Model(s.leaves, seed), budget=(13, 30), seed=seed) for seed in (1, 2)]
    runs = []
    for seed in (1, 2):
        explainer = c2fa.Explainer(
            Model(s.leaves, seed), c2fa.maskers.Array(s), **CHOSEN[method], budget=(13, 30), seed=seed
        )
        masked = explainer.masker(np.ones(s.leaves))
        queries = explainer.queries(np.ones(s.leaves), masked)
        runs.append([explainer, queries, explainer.conversation(masked, queries), None, None])
    while any(run[4] is None for run in runs):
        for run in runs:
            explainer, queries, conversation, ask, result = run
            if result is not None:
                continue
            if ask is not None:
                answer_all(queries, explainer.model, ask)
            run[3], run[4] = step(conversation, None if ask is None else queries.answer(ask))
    for a, run in zip(alone, runs, strict=True):
        np.testing.assert_allclose(a.low, run[4].low, rtol=1e-9, atol=1e-12)


def test_nobody_elses_random_numbers_are_drawn(method):
    np.random.seed(4)  # noqa: NPY002 - the global generator is what must be left alone
    expected = np.random.random()  # noqa: NPY002
    np.random.seed(4)  # noqa: NPY002
    explain(method, STRUCTURES["ragged"], budget=(13, 30))
    assert np.random.random() == expected  # noqa: NPY002


def test_an_unknown_option_is_refused_by_name(method):
    with pytest.raises(TypeError, match=r"has no option 'colour'|options \['colour'\] belong to the method object"):
        c2fa.Explainer(len, c2fa.maskers.Array(STRUCTURES["flat"]), **CHOSEN[method], colour=1)


def test_a_failing_row_is_left_out_or_said(method):
    s = STRUCTURES["ragged"]
    clean = Model(s.leaves)

    def model(batch):
        out = clean(batch)
        out[(batch.sum(axis=1) == 5)] = np.nan
        return out

    explainer = c2fa.Explainer(model, c2fa.maskers.Array(s), **CHOSEN[method], budget=(15, 40), on_error="drop")
    if method in PEERS:
        with pytest.raises(c2fa.QueryError, match="cannot leave rows out"):
            explainer(np.ones(s.leaves))
    else:
        assert all(np.isfinite(v).all() for v in explainer(np.ones(s.leaves)).values)

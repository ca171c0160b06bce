"""Asking in stages: what the adaptive method asks, and that it is worth it where rows are few."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import c2fa
from c2fa.designs import Balanced, Narrowed, draw
from c2fa.methods import C2FA, C2FAAdaptive, Task
from c2fa.methods.adaptive import expected_to_matter
from c2fa.methods.base import Attribution
from c2fa.querying import Answer, step
from strategies import structures

FIXED = {"kernel": "cosine", "penalty": None, "smooth": None}  # strengths that do not follow from the answers
WIDE = c2fa.Structure.from_groups(np.repeat(np.arange(5), 24))
DEEP = c2fa.Structure.from_tree({p: {f"{p}{q}": [f"{p}{q}{i}" for i in range(9)] for q in "xy"} for p in "abc"})


def sparse(structure, seed, few=0.05):
    """A saturating model in which few leaves matter, and the weight of each."""
    rng = np.random.default_rng(seed)
    w = rng.normal(0, 0.03, structure.leaves)
    big = rng.random(structure.leaves) < few
    w[big] += rng.normal(0, 1, big.sum()) + 0.3
    i, j = rng.integers(structure.leaves, size=(2, 2 * structure.leaves))
    a = 0.1 * rng.normal(size=len(i)) * (np.abs(w[i]) + np.abs(w[j]))
    scale = np.sqrt(np.square(w).sum() / 4)
    half = (w.sum() + a.sum()) / 2

    def model(batch):
        s = (batch @ w + (batch[:, i] * batch[:, j]) @ a - half) / scale
        return np.tanh(s)

    return model, w


def drive(method, structure, budget, model, enough=None, seed=0):
    """Run a method by hand; return what it found and every question it asked."""
    full = np.ones((1, structure.leaves))
    task = Task(structure, budget, model(full), np.array([0]), 0, seed, enough=enough)
    conversation, asks = method(task), []
    ask, found = step(conversation, None)
    while ask is not None:
        asks.append(ask)
        outputs = model(structure.expand(ask.masks, ask.level) * 1.0)[:, None]
        ask, found = step(conversation, Answer(outputs, np.ones(len(outputs), bool)))
    return found, asks


@pytest.mark.parametrize("narrow", ["parts", "leaves"])
def test_rows_that_suffice_for_all_leaves_are_c2fas_own(narrow):
    model, _ = sparse(WIDE, 1)
    found, asks = drive(C2FAAdaptive(narrow=narrow), WIDE, (24, 120), model)
    plain, _ = drive(C2FA(sampler="planned"), WIDE, (24, 120), model)
    assert len(asks) == 2
    for mine, theirs in zip(found.values, plain.values, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    one, _ = drive(C2FAAdaptive(narrow="leaves", stages=1), WIDE, (24, 60), model)
    plain, _ = drive(C2FA(sampler="planned"), WIDE, (24, 60), model)
    np.testing.assert_array_equal(one.values[1], plain.values[1])


def level(masks, structure, k, model, options):
    """The level that the method should have fitted: the kernel, the penalty and an intercept, the prediction too."""
    rows = np.concatenate([masks, np.ones((1, structure.widths[k]), bool)])
    outputs = model(structure.expand(rows, k) * 1.0)[:, None]
    if options is FIXED:
        return c2fa.Level(rows, outputs, c2fa.kernels.cosine(rows), c2fa.L2(structure.widths[k] / 50), True)
    return c2fa.Level(rows, outputs, None, c2fa.Auto(), True)


def together(rows, chosen, structure=WIDE):
    """Whether what is left of every part is kept or hidden as a whole."""
    owner = structure.parents[-1]
    for part in range(structure.widths[-2]):
        rest = [leaf for leaf in np.flatnonzero(owner == part) if leaf not in chosen]
        if not (rows[:, rest] == rows[:, rest[:1]]).all():
            return False
    return True


@pytest.mark.parametrize("options", [{}, FIXED], ids=["default", "fixed"])
def test_leaves_are_told_apart_in_the_parts_that_matter(options):
    model, _ = sparse(WIDE, 2)
    for budget, split in ((20, 1), (27, 1), (28, 1), (51, 2), (52, 2), (74, 3), (97, 4), (119, 4)):
        _, asks = drive(C2FAAdaptive(**options), WIDE, (24, budget), model)
        assert [ask.level for ask in asks] == [0, 1]
        assert len(asks[1].masks) == budget
        fit = c2fa.solve(c2fa.Problem(c2fa.Structure.flat(5), (level(asks[0].masks, WIDE, 0, model, options),)))
        order = np.argsort(-np.abs(fit.values[0][:, 0]))
        chosen = set(np.flatnonzero(np.isin(WIDE.owners(0), order[:split])).tolist())
        assert together(asks[1].masks, chosen)
        columns = np.unique(asks[1].masks, axis=1).shape[1]
        assert columns > 0.9 * (24 * split + 5 - split)
        whole = len(asks[1].masks) >= 2 * (5 + 23 * split)  # two blocks: every unit on in half the rows
        if whole:
            assert np.abs(asks[1].masks.mean(axis=0) - 0.5).max() < 0.2


@pytest.mark.parametrize("options", [{}, FIXED], ids=["default", "fixed"])
def test_later_stages_tell_apart_as_many_leaves_as_rows_are_left(options):
    model, _ = sparse(WIDE, 2)
    found, asks = drive(C2FAAdaptive(narrow="leaves", first=0.5, stages=3, **options), WIDE, (24, 80), model)
    assert [ask.level for ask in asks] == [0, 1, 1, 1]
    assert [len(ask.masks) for ask in asks] == [24, 40, 60, 80]
    np.testing.assert_array_equal(asks[3].masks[:60], asks[2].masks)
    np.testing.assert_array_equal(asks[1].masks, Balanced("after")(np.random.default_rng((0, 1)), 40, 120))
    parts = level(asks[0].masks, WIDE, 0, model, options)
    for stage, (begin, end) in ((2, (40, 60)), (3, (60, 80))):
        solution = c2fa.solve(c2fa.Problem(WIDE, (parts, level(asks[stage - 1].masks, WIDE, 1, model, options))))
        score = solution.values[1][:, 0] ** 2 + solution.stderr[1][:, 0] ** 2
        chosen = set(np.argsort(-score)[: 80 - begin - 5].tolist())
        rows = asks[stage].masks[begin:end]
        assert together(rows, chosen)
        assert len(np.unique(rows[:, sorted(chosen)], axis=1).T) > 0.9 * len(chosen)
    assert len(found.levels[1].masks) == 81


def test_the_posterior_says_which_leaves_matter():
    values, errors = np.array([[0.0], [3.0], [-2.0], [0.1]]), np.array([[2.5], [0.1], [0.1], [0.1]])
    found = Attribution((values,), (np.zeros(1),), (errors,), (None,))
    task = Task(c2fa.Structure.flat(4), (3,), np.zeros(1), np.array([0]), 0, 0)
    assert expected_to_matter(found, task, 3).tolist() == [0, 1, 2]
    assert expected_to_matter(found, task, 2).tolist() == [0, 1]
    blind = Attribution((values,), (np.zeros(1),), None, (None,))
    assert expected_to_matter(blind, task, 2).tolist() == [1, 2]
    two = Attribution((np.array([[0.0, 5.0], [1.0, 0.0]]),), (np.zeros(2),), None, (None,))
    task = Task(c2fa.Structure.flat(2), (3,), np.zeros(9), np.array([4, 7]), 7, 0)
    assert expected_to_matter(two, task, 1).tolist() == [0]  # by the target's column


@given(structures(depths=(1, 2, 3)), st.integers(1, 30), st.integers(0, 20), st.integers(0, 4), st.booleans())
@settings(max_examples=40)
def test_narrowed_masks_keep_to_the_contract(s, few, more, seed, empty):
    rng = np.random.default_rng(seed)
    features = np.sort(rng.permutation(s.leaves)[: 1 + seed % s.leaves])
    small, large = (draw(Narrowed(features), np.random.default_rng(seed), n, s, -1, empty) for n in (few, few + more))
    np.testing.assert_array_equal(large[:few], small)
    assert small.shape == (few, s.leaves)
    assert empty or small.any(axis=1).all()
    owner = s.parents[-1] if s.depth > 1 else np.zeros(s.leaves, int)
    for part in np.unique(owner):
        rest = np.setdiff1d(np.flatnonzero(owner == part), features)
        assert (small[:, rest] == small[:, rest[:1]]).all()


@given(
    structures(depths=(1, 2, 3)),
    st.integers(6, 60),
    st.floats(0.01, 1.0),
    st.integers(1, 6),
    st.sampled_from(["parts", "leaves"]),
    st.sampled_from([None, "top2", "stderr:0.01"]),
    st.integers(0, 9),
)
@settings(max_examples=60)
def test_the_budget_holds_and_the_same_seed_gives_the_same_answer(s, budget, first, stages, narrow, until, seed):
    w = np.random.default_rng(seed).normal(size=(s.leaves, 2))
    rows = []

    def model(batch):
        rows.append(len(batch))
        return np.tanh(batch @ w)

    def explain():
        return c2fa.Explainer(
            model,
            c2fa.maskers.Array(s),
            method="c2fa-adaptive",
            budget=budget,
            first=first,
            stages=stages,
            narrow=narrow,
            until=until,
            seed=seed,
            batch_size=7,
        )(np.ones(s.leaves))

    e = explain()
    assert sum(rows) == e.queries <= budget
    for k in range(s.depth):
        np.testing.assert_array_equal(e.values[k], s.sums(e.low, k))
    np.testing.assert_array_equal(explain().low, e.low)


def gained_by_parts(options):
    """Over a dozen models in which the leaves of one part of eight matter, 20 of 160, and 80 rows."""
    many = c2fa.Structure.from_groups(np.repeat(np.arange(8), 20))
    gained = []
    for seed in range(12):
        w = np.random.default_rng(seed).normal(0, 0.03, 160)
        w[20:40] += np.random.default_rng(seed).normal(0.3, 1, 20)
        found = [
            c2fa.Explainer(
                lambda b, w=w: np.tanh(b @ w / 3),
                c2fa.maskers.Array(many),
                method=method,
                budget=80,
                seed=seed,
                **options,
            )(np.ones(160)).low
            for method in ("c2fa", "c2fa-adaptive")
        ]
        gained.append(np.corrcoef(found[1], w)[0, 1] - np.corrcoef(found[0], w)[0, 1])
    return np.array(gained)


def test_it_finds_the_part_that_matters_where_rows_are_few():
    """Clearly so with fixed strengths; chosen ones see it too, and a little is left to gain.

    In one of the models the leaves of the part cancel out, and the part is not split: it does not look as if it
    mattered.
    """
    fixed = gained_by_parts({"sampler": "planned", **FIXED})
    assert np.mean(fixed) > 0.15
    assert np.sum(fixed > 0) >= 11
    chosen = gained_by_parts({})
    assert np.median(chosen) > 0.01
    assert np.sum(chosen > 0) >= 9


def gained_by_leaves(options):
    """Over a dozen models of 300 leaves and 100 rows."""
    wide = c2fa.Structure.from_groups(np.repeat(np.arange(6), 50))
    gained = []
    for seed in range(12):
        model, w = sparse(wide, seed)
        found = [
            c2fa.Explainer(model, c2fa.maskers.Array(wide), budget=100, seed=seed, **method, **options)(
                np.ones(300)
            ).low
            for method in ({}, {"method": "c2fa-adaptive", "narrow": "leaves"})
        ]
        gained.append(np.corrcoef(found[1], w)[0, 1] - np.corrcoef(found[0], w)[0, 1])
    return np.array(gained)


def test_it_finds_the_leaves_that_matter_where_rows_are_few():
    """With fixed strengths the mean correlation with the weights is clearly higher; with chosen ones, no lower."""
    fixed = gained_by_leaves({"sampler": "planned", **FIXED})
    assert np.mean(fixed) > 0.08
    assert np.sum(fixed > 0) >= 10
    assert np.mean(gained_by_leaves({})) > 0.0


def test_a_rule_is_asked_between_stages():
    model, _ = sparse(WIDE, 3)
    looked = []

    def enough(found):
        looked.append(len(found.levels[1].masks) - 1)
        return len(looked) == 3

    _, asks = drive(C2FAAdaptive(narrow="leaves"), WIDE, (24, 80), model, enough)
    assert looked == [16, 32, 40]  # after sixteen rows and again, and where the first stage ends
    assert len(asks[-1].masks) == 40
    _, asks = drive(C2FAAdaptive(narrow="leaves"), WIDE, (24, 80), model, lambda found: False)
    assert [len(ask.masks) for ask in asks] == [24, 16, 32, 40, 48, 60, 64, 80]
    e = c2fa.Explainer(model, c2fa.maskers.Array(WIDE), method="c2fa-adaptive", budget=100, until="stderr:10")(
        np.ones(120)
    )
    assert e.queries < 60
    assert e.diagnostics.stop.startswith(f"stopped after {e.queries} of 100 rows: every standard error of level 1")
    whole = c2fa.Explainer(model, c2fa.maskers.Array(WIDE), method="c2fa-adaptive", budget=100, until="stderr:1e-9")(
        np.ones(120)
    )
    assert whole.diagnostics.stop.startswith("spent the whole budget of 100 rows")
    assert whole.diagnostics.settled is False


def test_trees_of_three_levels_and_lists_are_narrowed_too():
    for narrow, structure, budget, stages in (
        ("leaves", DEEP, (7, 12, 30), 3),
        ("parts", DEEP, (7, 12, 30), 1),
        ("leaves", c2fa.Structure.flat(40), (20,), 3),
        ("parts", c2fa.Structure.flat(40), (20,), 3),  # without parts, the leaves decide
    ):
        model, _ = sparse(structure, 4)
        found, asks = drive(C2FAAdaptive(narrow=narrow), structure, budget, model)
        assert [ask.level for ask in asks] == [*range(structure.depth - 1), *[structure.depth - 1] * stages]
        if narrow == "parts" and structure is DEEP:  # 30 rows for 54 leaves: three of six parts are split
            columns = np.unique(asks[-1].masks, axis=1).shape[1]
            assert columns == 3 * 9 + 3
        assert len(asks[-1].masks) == budget[-1]
        for k in range(structure.depth):
            np.testing.assert_allclose(found.values[k], structure.sums(found.values[-1], k), atol=1e-12)


def test_other_penalties_and_inputs_that_cannot_be_empty_are_taken():
    model, _ = sparse(WIDE, 5)
    for narrow in ("parts", "leaves"):
        penalty = (c2fa.L2(0.1), c2fa.L1(0.05))
        found, _ = drive(C2FAAdaptive(narrow=narrow, penalty=penalty), WIDE, (24, 60), model)
        assert found.stderr is None
    seen = []

    def inputs(x, masks, level):
        seen.append(masks)
        return WIDE.expand(masks, level) * x

    masker = c2fa.maskers.Custom(WIDE, inputs, allows_empty=False)
    c2fa.Explainer(model, masker, method="c2fa-adaptive", budget=90)(np.ones(120))
    assert all(masks.any(axis=1).all() for masks in seen)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"first": 0.0}, "first is a share of the rows, above 0 and at most 1; got 0.0"),
        ({"first": 1.5}, "got 1.5"),
        ({"stages": 0}, "stages must be a whole number of at least 1; got 0"),
        ({"stages": True}, "got True"),
        ({"narrow": "words"}, "narrow must be 'parts' or 'leaves'; got 'words'"),
    ],
)
def test_stages_that_cannot_be_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        C2FAAdaptive(**options)

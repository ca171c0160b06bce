"""Leaves that masking does not change."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import c2fa
import oracles
from c2fa import methods


def game(seed: int, ignored: np.ndarray) -> np.ndarray:
    """What a model says of every mask of five leaves, some of which it does not look at."""
    rng = np.random.default_rng(seed)
    weights, pairs = rng.normal(size=5), rng.normal(size=(5, 5))
    weights[ignored], pairs[ignored], pairs[:, ignored] = 0.0, 0.0, 0.0
    return lambda rows: np.asarray(rows) @ weights + np.einsum("ni,ij,nj->n", rows, pairs, rows)


@given(
    st.integers(0, 99), st.lists(st.booleans(), min_size=5, max_size=5), st.sampled_from(["aabbb", "abbcc", "aaaaa"])
)
def test_the_others_have_the_values_of_the_whole_game(seed, inert, groups):
    """Without its null players a game has the same Owen values, by all orders of all leaves."""
    x = np.where(inert, 0.0, 1.0)
    model, s = game(seed, np.array(inert)), c2fa.Structure.from_groups(groups)
    asked = []

    def counted(rows):
        asked.extend(map(tuple, rows))
        return model(np.asarray(rows, dtype=float))

    e = c2fa.Explainer(counted, c2fa.maskers.Array(s), budget=200)(x)
    masks = oracles.all_masks(5)
    expected = oracles.winter_weights(s, 1) @ model(masks * x)
    np.testing.assert_allclose(e.low, expected, atol=1e-6)
    assert (e.low[np.array(inert)] == 0.0).all()
    if not all(inert):
        assert len(asked) <= 2 ** (5 - sum(inert)) + 2  # and the two that are asked again
    np.testing.assert_allclose(e.high, s.sums(e.low, 0))


@pytest.mark.parametrize("method", sorted(set(methods.METHODS) - set(methods.PEERS)))
def test_a_value_equal_to_its_baseline_gets_exactly_0(method):
    masker = c2fa.maskers.Tabular({"g": ["a", "b"], "h": ["c"]}, [[1.0, 2.0, 3.0, 4.0]], list("abcd"))
    rows = []

    def model(batch):
        rows.extend(batch)
        return np.prod(np.asarray(batch), axis=1)

    found = c2fa.Explainer(model, masker, method=method, budget=30)(np.array([5.0, 2.0, 3.0, 1.0]))
    assert found.low[1] == found.low[2] == found.high[1] == 0.0
    assert found.names == (("g", "h", "d"), ("a", "b", "c", "d"))
    assert found.notes
    assert "(equal to the baseline)" in str(found)
    assert len(rows) <= 30


def test_an_input_that_is_its_baseline_changes_nowhere():
    e = c2fa.Explainer(lambda b: b.sum(axis=1), c2fa.maskers.Array(c2fa.Structure.from_groups("aab")), budget=20)(
        np.zeros(3)
    )
    assert (e.low == 0.0).all()
    assert any("same output" in warning for warning in e.diagnostics.warnings)


def test_pairs_that_act_together_are_those_of_the_whole_input():
    s = c2fa.Structure.flat(["no", "one", "two", "nothing", "three"])
    model = lambda b: 4.0 * b[:, 1] * b[:, 4] + b[:, 2]  # noqa: E731
    e = c2fa.Explainer(model, c2fa.maskers.Array(s), budget=40)(np.array([0.0, 1.0, 1.0, 0.0, 1.0]))
    [(first, second, value, _), *_] = e.interactions(level=-1)
    assert (first, second) == ("one", "three")
    assert value == pytest.approx(4.0)


def test_a_prior_and_a_ledger_know_the_whole_input(tmp_path):
    s = c2fa.Structure.from_groups("aabb", names=["p", "q", "r", "t"])
    explainer = c2fa.Explainer(
        lambda b: b @ np.array([1.0, 2.0, 3.0, 4.0]),
        c2fa.maskers.Array(s),
        budget=20,
        ledger=tmp_path / "answers.sqlite",
        model_name="sums",
    )
    found = [explainer(np.array(x)) for x in ([1.0, 0, 1, 1], [0.0, 1, 1, 1], [1.0, 1, 0, 1], [1.0, 1, 1, 0])]
    assert explainer(np.array([1.0, 0, 1, 1])).diagnostics.sent == 0
    prior = c2fa.Prior.learn(found)
    with_prior = explainer.with_prior(prior)(np.array([0.0, 1, 1, 1]))
    assert with_prior.low[0] == 0.0
    assert list(with_prior.descriptors) == ["p", "q", "r", "t"]
    assert c2fa.Explanation.from_json(with_prior.to_json()).low.tolist() == with_prior.low.tolist()

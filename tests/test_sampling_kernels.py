"""Masks and weights against their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from c2fa import kernels, sampling

SAMPLERS = {**sampling.SAMPLERS, "milli": None, "non-empty": sampling.non_empty(sampling.uniform)}


def sampler(name, width):
    if name != "milli":
        return SAMPLERS[name]
    return sampling.milli(sampling.milli_inclusion(np.arange(width), 0.3, -1.0))


@pytest.mark.parametrize("name", SAMPLERS)
@given(st.integers(1, 12), st.integers(1, 40), st.integers(1, 40), st.integers(0, 5))
def test_more_rows_begin_with_the_fewer(name, width, few, more, seed):
    draw = sampler(name, width)
    small = draw(np.random.default_rng(seed), few, width)
    large = draw(np.random.default_rng(seed), few + more, width)
    assert small.shape == (few, width)
    assert small.dtype == np.bool_
    np.testing.assert_array_equal(large[:few], small)


def test_uniform_is_a_fair_coin_that_keeps_empty_and_full():
    masks = sampling.uniform(np.random.default_rng(0), 8000, 3)
    codes = np.bincount(masks @ [1, 2, 4], minlength=8)
    assert codes.min() > 850
    assert codes.max() < 1150


def test_paired_rows_are_complements():
    masks = sampling.paired(np.random.default_rng(0), 11, 5)
    np.testing.assert_array_equal(masks[:10:2], ~masks[1:10:2])


def test_lime_text_removes_a_uniform_number():
    masks = sampling.lime_text(np.random.default_rng(0), 6000, 6)
    removed = np.bincount((~masks).sum(axis=1), minlength=7)
    assert removed[0] == 0
    assert removed[1:].min() > 850
    per_word = masks[(~masks).sum(axis=1) == 2].mean(axis=0)
    assert np.abs(per_word - 4 / 6).max() < 0.06


@pytest.mark.parametrize(
    ("alpha", "beta", "expected"),
    [  # the facts' table for five instances, to its two or three digits
        (0.05, 0.01, [0.05, 0.28, 0.51, 0.73, 0.95]),
        (0.05, -0.01, [0.05, 0.27, 0.49, 0.72, 0.95]),
        (0.3, -1.0, [0.30, 0.305, 0.327, 0.41, 0.70]),
        (0.008, -5.0, [0.008, 0.008, 0.008, 0.013, 0.992]),
    ],
)
def test_milli_inclusion_curve(alpha, beta, expected):
    np.testing.assert_allclose(sampling.milli_inclusion(np.arange(5), alpha, beta), expected, atol=0.006)


def test_milli_never_draws_empty_or_full_and_never_loops_for_ever():
    masks = sampling.milli(np.full(3, 0.5))(np.random.default_rng(0), 200, 3)
    assert masks.any(axis=1).all()
    assert not masks.all(axis=1).any()
    assert len(sampling.distinct(masks)[0]) == 6
    assert sampling.milli(np.array([0.5]))(np.random.default_rng(0), 4, 1).all()
    with pytest.raises(ValueError, match="nearly every draw was empty or full"):
        sampling.milli(np.zeros(3))(np.random.default_rng(0), 5, 3)
    with pytest.raises(ValueError, match="alpha is a probability"):
        sampling.milli_inclusion(np.arange(3), 1.5)


@given(st.integers(1, 5), st.integers(1, 60), st.integers(0, 3))
def test_distinct_counts_what_was_drawn(width, n, seed):
    masks = sampling.uniform(np.random.default_rng(seed), n, width)
    rows, counts = sampling.distinct(masks)
    assert counts.sum() == n
    assert len({tuple(r) for r in rows}) == len(rows) <= 2**width
    for row, count in zip(rows, counts, strict=True):
        assert (masks == row).all(axis=1).sum() == count


def test_kernels_by_their_formulas():
    masks = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 0, 0]], dtype=bool)
    d = [1 - math.sqrt(k / 4) for k in (4, 2, 0)]
    np.testing.assert_allclose(kernels.cosine(masks), [math.exp(-8 * x * x) for x in d])
    np.testing.assert_allclose(kernels.cosine(masks, 0.5), [math.exp(-x * x / 0.5) for x in d])
    np.testing.assert_allclose(kernels.similarity(masks), [1 - x for x in d])
    np.testing.assert_array_equal(kernels.uniform(masks), [1, 1, 1])
    with pytest.raises(ValueError, match="width must be positive"):
        kernels.cosine(masks, 0)


@given(st.integers(2, 40))
def test_shap_kernel_is_shapleys_up_to_a_factor(m):
    masks = np.tri(m + 1, m, -1, dtype=bool)  # sizes 0..m
    weights = kernels.shap(masks)
    exact = [(m - 1) / (math.comb(m, s) * s * (m - s)) for s in range(1, m)]
    np.testing.assert_allclose(weights[1:-1], np.array(exact) / exact[0], rtol=1e-9)
    assert weights[0] == weights[-1] == 1000


def test_shap_kernel_of_a_thousand_features_is_finite():
    masks = sampling.uniform(np.random.default_rng(0), 5, 2000)
    assert np.isfinite(kernels.shap(masks)).all()
    assert kernels.shap(np.ones((2, 1), dtype=bool)).tolist() == [1, 1]


def test_milli_kernel_is_the_members_mean():
    weigh = kernels.milli(np.array([0.2, 0.4, 0.9]))
    np.testing.assert_allclose(weigh(np.array([[1, 0, 1], [0, 1, 1]], dtype=bool)), [0.55, 0.65])

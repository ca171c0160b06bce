"""Weights against their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from c2fa import kernels


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
    masks = np.random.default_rng(0).random((5, 2000)) < 0.5
    assert np.isfinite(kernels.shap(masks)).all()
    assert kernels.shap(np.ones((2, 1), dtype=bool)).tolist() == [1, 1]


def test_milli_kernel_is_the_members_mean():
    weigh = kernels.milli(np.array([0.2, 0.4, 0.9]))
    np.testing.assert_allclose(weigh(np.array([[1, 0, 1], [0, 1, 1]], dtype=bool)), [0.55, 0.65])

"""Bags of vectors: what is absent is gone, what is masked is filled."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import c2fa
from c2fa.maskers import Bag


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4), st.integers(1, 4), st.sampled_from(["remove", "fill"]), st.integers(0, 999))
def test_against_a_slow_loop(instances, features, absent, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(instances, features))
    masked = Bag(absent, fill=np.arange(features))(x)

    def expected(mask, removes):
        """Entry by entry; an instance without entries is gone, but one of them always stays."""
        bag = [[x[j, d] if mask[j * features + d] else d for d in range(features)] for j in range(instances)]
        left = [j for j in range(instances) if any(mask[j * features + d] for d in range(features))]
        return [bag[j] for j in left or [0]] if removes else bag

    fine, coarse = rng.random((3, instances * features)) < 0.5, rng.random((3, instances)) < 0.5
    for masks, level in ((fine, 1), (coarse, 0)):
        for row, mask in zip(masked.inputs(masks, level), masked.structure.expand(masks, level), strict=True):
            np.testing.assert_array_equal(row, expected(mask, absent == "remove"))
    if absent == "fill":
        assert masked.apart is None
        return
    coarse[:, 0] = True  # under the paper's masks a bag is never empty
    apart = masked.apart()
    for row, mask in zip(apart.inputs(fine, 1), fine, strict=True):
        np.testing.assert_array_equal(row, expected(mask, False))
    for row, mask in zip(apart.inputs(coarse, 0), coarse, strict=True):
        np.testing.assert_array_equal(row, x[mask])


def test_types_and_the_mean():
    torch = pytest.importorskip("torch")
    x = torch.tensor([[1.0, 2.0], [3.0, 6.0]])
    batch = Bag("fill", "mean")(x).inputs([[True, False]], 0)
    assert isinstance(batch, torch.Tensor)
    assert batch.tolist() == [[[1, 2], [2, 4]]]
    removed = Bag()(x).inputs([[True, False]], 0)
    assert isinstance(removed, list)
    assert isinstance(removed[0], torch.Tensor)
    assert Bag()([(1, 2), (3, 4)]).inputs([[False, True]], 0)[0].tolist() == [[3, 4]]
    for level in (0, 1):
        empty = np.zeros((1, Bag()(x).structure.widths[level]), dtype=bool)
        assert [bag.tolist() for bag in Bag(fill=7)(x).inputs(empty, level)] == [[[7, 7]]]
    assert Bag()(x).allows_empty
    assert not Bag()(x).apart().allows_empty


def test_a_bag_that_adds_up_is_explained_exactly():
    x = np.array([[1.0, -2.0], [0.5, 4.0], [3.0, 0.0]])
    model = c2fa.Explainer(lambda bags: np.array([b.sum() for b in bags]), Bag(), budget=(40, 120))
    explanation = model(x)
    np.testing.assert_allclose(explanation.high, x.sum(axis=1), atol=0.3)
    assert np.argmax(explanation.low) == 3


def test_what_is_refused():
    with pytest.raises(ValueError, match="absent must be"):
        Bag("grey")
    with pytest.raises(ValueError, match="fill must be"):
        Bag(fill="median")
    with pytest.raises(ValueError, match=r"use maskers\.Custom"):
        Bag()([[1.0], [1.0, 2.0]])
    with pytest.raises(ValueError, match=r"got float64 of shape \(0,\)"):
        Bag()([])
    with pytest.raises(ValueError, match="1 names for 2 features"):
        Bag(names=["a"])([[1.0, 2.0]])
    with pytest.raises(ValueError, match=r"shape \(3,\) for 2 features"):
        Bag(fill=[1, 2, 3])([[1.0, 2.0]])


def test_half_precision_stays(in_half_precision):
    in_half_precision(
        """
        import torch
        from c2fa.maskers import Bag

        for kind in (torch.float16, torch.bfloat16):
            x = torch.ones(2, 3, dtype=kind)
            assert Bag("fill")(x).inputs([[True, False]], 0).dtype == kind
            assert Bag()(x).inputs([[True, False]], 0)[0].dtype == kind
        """
    )

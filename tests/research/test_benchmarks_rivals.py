"""The methods of others in the benchmark of citing, against scikit-learn and by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("experiments", reason="the benchmarks are in a clone, not in a source distribution")
from benchmarks.cite.rivals import ContextCite, HierarchicalLeaveOneOut

import c2fa
from driving import THREE, drive, model, task


@pytest.mark.parametrize("tokens", [(), (7, 7), (4, 9)])
@pytest.mark.parametrize("budget", [(5, 11), (14, 60)])
@pytest.mark.parametrize("alpha", [0.01, 0.1])
def test_context_cite_is_scikit_learns_pipeline_on_the_same_rows(alpha, budget, tokens):
    pipeline = pytest.importorskip("sklearn.pipeline").make_pipeline
    from sklearn.linear_model import Lasso
    from sklearn.preprocessing import StandardScaler

    found, [ask] = drive(ContextCite(alpha), replace(task(budget=budget), tokens=tokens))
    drawn = np.random.default_rng((3, 1, 0)).integers(0, 256, size=(sum(budget), 2), dtype=np.uint8)
    masks = np.unpackbits(drawn, axis=1, count=12).astype(bool)
    assert {row.tobytes() for row in ask.masks} == {row.tobytes() for row in masks}
    for column, count in enumerate(tokens or (1, 1)):
        scaler, lasso = StandardScaler(), Lasso(alpha=alpha, tol=1e-12, max_iter=100_000)
        pipeline(scaler, lasso).fit(masks * 1.0, model(masks * 1.0)[:, column] / count)
        weight = lasso.coef_ / scaler.scale_
        bias = lasso.intercept_ - (scaler.mean_ / scaler.scale_) @ lasso.coef_
        np.testing.assert_allclose(found.values[-1][:, column], weight * count, atol=1e-6)
        np.testing.assert_allclose(found.intercepts[-1][column], bias * count, atol=1e-6)
    assert (found.values[-1] == 0).any()  # the Lasso is at work


def test_context_cite_spends_every_row_on_leaves_and_takes_repeated_masks_as_repeated_rows():
    lasso = pytest.importorskip("sklearn.linear_model").Lasso
    s = c2fa.Structure.from_groups("aab")
    found, [ask] = drive(ContextCite(alpha=0.02), task(s, budget=(10, 30)))
    drawn = np.random.default_rng((3, 1, 0)).integers(0, 256, size=(40, 1), dtype=np.uint8)
    masks = np.unpackbits(drawn, axis=1, count=3).astype(bool)
    assert len(ask.masks) == len(np.unique(masks, axis=0)) <= 8
    x = (masks - masks.mean(axis=0)) / masks.std(axis=0)
    fit = lasso(alpha=0.02, tol=1e-12).fit(x, model(masks * 1.0, s)[:, 0])
    np.testing.assert_allclose(found.values[-1][:, 0], fit.coef_ / masks.std(axis=0), atol=1e-6)
    assert [v.shape for v in found.values] == [(2, 2), (3, 2)]


def output_of(kept):
    """The model's outputs with these leaves alone."""
    return model(np.isin(np.arange(12), sorted(kept))[None] * 1.0)[0]


def test_hierarchical_leave_one_out_step_by_step():
    """Three parts of three, four and five leaves; 14 rows are three for parts, one for what stays, ten for leaves."""
    groups = {0: {0, 1, 2}, 1: {3, 4, 5, 6}, 2: {7, 8, 9, 10, 11}}
    everything = set(range(12))
    cost = {j: output_of(everything) - output_of(everything - leaves) for j, leaves in groups.items()}
    ranked = sorted(cost, key=lambda j: -cost[j][0])
    for rows, parts_kept in ((15, 3), (14, 2), (8, 1)):
        found, asks = drive(HierarchicalLeaveOneOut(), task(budget=(4, rows - 4)))
        assert sum(len(ask.masks) for ask in asks) <= rows
        for j, lost in cost.items():
            np.testing.assert_allclose(found.values[0][j], lost)
        stay = set().union(*(groups[j] for j in ranked[:parts_kept]))
        for leaf in everything:
            expected = output_of(stay) - output_of(stay - {leaf}) if leaf in stay else np.zeros(2)
            np.testing.assert_allclose(found.values[1][leaf], expected, atol=1e-15)
        assert bool(found.notes) == (parts_kept < 3)


def test_hierarchical_leave_one_out_goes_as_far_as_its_rows():
    few, [ask] = drive(HierarchicalLeaveOneOut(), task(budget=(1, 1)))
    assert len(ask.masks) == 2
    assert (few.values[0] != 0).any(axis=1).sum() == 2
    assert not few.values[1].any()
    some, asks = drive(HierarchicalLeaveOneOut(), task(budget=(3, 3)))
    assert [len(ask.masks) for ask in asks] == [3, 1, 2]
    assert (some.values[1] != 0).any(axis=1).sum() == 2
    deep, asks = drive(HierarchicalLeaveOneOut(), task(THREE, budget=(9, 9, 9)))
    assert [ask.level for ask in asks] == [0, 1, 2]
    assert sum(len(ask.masks) for ask in asks) == 2 + 3 + 7
    assert not deep.notes

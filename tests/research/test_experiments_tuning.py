"""Choosing strengths: what is chosen where, one set of answers for the whole grid, and mistakes by their names."""

from __future__ import annotations

from collections import Counter
from typing import Any
from zlib import crc32

import numpy as np
import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("experiments", reason="the experiments are in a clone, not in a source distribution")

from experiments.harness.tuning import Tuned, tune

import c2fa
from c2fa.models import Lazy
from serving_helpers import Renders, Vectors

MASKER = c2fa.maskers.Array(c2fa.Structure.from_groups(np.repeat(np.arange(3), 8)))
WEIGHTS = np.random.default_rng(0).normal(size=24)
INPUTS = [np.random.default_rng(1 + i).normal(size=24) for i in range(3)]


def saturating(batch: np.ndarray) -> np.ndarray:
    return np.tanh(batch @ WEIGHTS / 4.0)


def noisy(batch: np.ndarray) -> np.ndarray:
    """An additive model with noise that belongs to the row: the same row gets the same answer."""
    noise = [np.random.default_rng(crc32(row.tobytes())).normal() for row in batch]
    return batch @ WEIGHTS + 8.0 * np.array(noise)


def tuned(model: Any = saturating, inputs: Any = INPUTS, *, masks: Any = ((8, 20),), **options: Any) -> Tuned:
    """One method's choice."""
    about = {name: options.pop(name) for name in ("criterion", "seeds") if name in options}
    return tune({"": options}, inputs, model, MASKER, masks=list(masks), **{"seeds": 1, **about})[""]


def test_the_penalty_is_weak_where_the_answers_are_exact_and_strong_where_they_are_noise() -> None:
    options = {"masks": [(8, 40)], "strengths": (1e-3, 10.0), "criterion": "infidelity@-1", "seeds": 2}
    exact = tuned(lambda b: b @ WEIGHTS, **options)
    assert exact.options["penalty"] == (c2fa.L2(1e-3), c2fa.L2(1e-3))
    assert tuned(noisy, **options).options["penalty"][-1] == c2fa.L2(10.0)
    assert "chose λ_H = 0.001, λ_L = 0.001 by the lowest mean infidelity at level -1 over 3 inputs" in str(exact)
    explainer = c2fa.Explainer(lambda b: b @ WEIGHTS, MASKER, **exact.options)
    assert explainer.method.penalty == exact.options["penalty"]


def test_the_whole_grid_is_asked_once() -> None:
    rows: Counter[bytes] = Counter()

    def model(batch: np.ndarray) -> np.ndarray:
        rows.update(row.tobytes() for row in batch)
        return saturating(batch)

    found = tuned(model, strengths=((0.1, 1.0), (0.1, 1.0, 10.0)))
    assert len(found.table) == 6
    one = sum(c2fa.Explainer(saturating, MASKER, method="c2fa", budget=(9, 20))(x).queries for x in INPUTS)
    assert found.rows.explaining == one
    assert not [row for row, times in rows.items() if times > 1 and any(row)]  # all inputs share the empty row
    assert found.table["score"].is_monotonic_decreasing


def test_the_papers_solver_has_the_papers_grid() -> None:
    found = tuned(inputs=INPUTS[:1], preset="paper")
    assert len(found.table) == 2 * 2 * 3
    assert found.options["solver_options"]["mu2"] in (0.001, 0.01, 0.1)
    assert list(found.table.columns[:3]) == ["λ_H", "λ_L", "μ₂"]


def test_a_method_may_be_a_class() -> None:
    options: dict[str, Any] = {"inputs": INPUTS[:1], "strengths": ((0.1,), (0.1, 1.0)), "anchor": False}
    by_name = tuned(method="lime", **options)
    by_class = tuned(method=c2fa.methods.Lime, **options)
    pd.testing.assert_frame_equal(by_class.table, by_name.table)
    assert by_class.options == {"method": c2fa.methods.Lime(penalty=by_name.options["penalty"], anchor=False)}


def test_several_sizes_decide_by_their_mean() -> None:
    both = tuned(masks=[(8, 10), (8, 30)])
    assert both.criterion.endswith("over 3 inputs at masks (8, 10), (8, 30)")
    each = [tuned(masks=[masks]) for masks in ((8, 10), (8, 30))]
    scores = [one.table.set_index(["λ_H", "λ_L"])["score"].sort_index() for one in (both, *each)]
    np.testing.assert_allclose(scores[0], (scores[1] + scores[2]) / 2)


def test_workers_share_the_inputs_and_methods_the_answers() -> None:
    options: dict[str, Any] = {"masks": [(4, 20)], "seeds": 1, "progress": False}
    inputs = [np.random.default_rng(i).normal(size=12) for i in range(5)]
    grids: dict[str, Any] = {"c2fa": {"strengths": (0.1, 1.0)}, "lime": {"method": "lime", "strengths": (0.1, 10.0)}}
    both = tune(grids, inputs, Lazy(Renders), Vectors(), workers=2, models=1, **options)
    for label in grids:
        one = tune({label: grids[label]}, inputs, Renders(), Vectors(), **options)[label]
        pd.testing.assert_frame_equal(both[label].table, one.table, rtol=0, atol=1e-12)
        assert both[label].options == one.options
        assert both[label].rows.explaining < 2 * one.rows.explaining


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"criterion": "deletion"}, "deletion@-1"),
        ({"criterion": "coverage@0"}, "which way is better"),
        ({"penalty": c2fa.L2(1.0)}, "give strengths="),
        ({"strengths": ((0.1,),)}, "one sequence for each of 2 levels"),
    ],
)
def test_mistakes_are_named(options: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        tuned(**options)

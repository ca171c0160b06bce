"""The benchmark of what an explanation costs beside the model: it times every stage that it names."""

from __future__ import annotations

import pytest

pytest.importorskip("experiments", reason="the benchmarks are in a clone, not in a source distribution")
from benchmarks import overhead


def test_every_stage_is_timed_and_all_add_up():
    """A stage whose function has another name by now would count as nothing, or as the rest."""
    [row] = overhead.measured(["50 leaves, 100 rows, 2 outputs"], 1).values()
    assert all(row[stage] > 0 for stage in overhead.COLUMNS)
    assert sum(row[stage] for stage in overhead.COLUMNS) == pytest.approx(row["all"])


def test_the_functions_are_put_back():
    before = [getattr(place, name) for places in overhead.STAGES.values() for place, name in places]
    with overhead.watched(overhead.Clock()):
        pass
    assert [getattr(place, name) for places in overhead.STAGES.values() for place, name in places] == before

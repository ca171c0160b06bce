"""Masks depend on the seed and on the input, and on nothing else: not on who asks, where, or beside whom."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import c2fa
from c2fa.asking.fingerprint import Identity, fingerprint, identify
from c2fa.batch import many
from c2fa.methods import Task

S = c2fa.Structure.from_groups("aaaaabbbbbcccccddddd")
FRESH = Path(__file__).parents[2] / "src"


class Opaque:
    """An input that cannot be hashed."""


def rows_of(x, **options):
    """The masks that an input is asked, in their order."""
    seen = []

    def model(batch):
        seen.extend(tuple(row) for row in batch.astype(int))
        return batch @ np.arange(20.0)

    key = options.pop("key", None)
    masker = c2fa.maskers.Custom(S, lambda x, masks, level: S.expand(masks, level).astype(float))
    c2fa.Explainer(model, masker, **{"budget": (9, 20), **options})(x, key=key)
    return seen


@pytest.mark.parametrize("sampler", ["planned", "uniform", "paired"])
def test_inputs_of_one_shape_have_masks_of_their_own(sampler):
    one, other = (rows_of(np.full(20, v), sampler=sampler) for v in (1.0, 2.0))
    assert set(one) != set(other)
    assert one == rows_of(np.full(20, 1.0), sampler=sampler)
    assert one != rows_of(np.full(20, 1.0), sampler=sampler, seed=1)


def test_many_inputs_are_as_many_draws():
    drawn = {tuple(rows_of(f"text {i}", sampler="uniform", budget=(6, 1))) for i in range(60)}
    assert len(drawn) == 60


def test_two_maskers_on_one_input_ask_the_same_masks(tmp_path):
    x = np.ones(20)
    assert identify(x, None, c2fa.maskers.Array(S)).number == identify(x, None, None).number == identify(x, "k").number
    assert identify(x, None, c2fa.maskers.Array(S)).key == fingerprint(x, c2fa.maskers.Array(S))  # as ledgers have it
    kept = rows_of(x, ledger=tmp_path / "answers.sqlite", model_name="m", key="first")
    assert kept == rows_of(x) == rows_of(x, key="any")


@pytest.mark.parametrize("method", ["lime", "td-lime"])
@pytest.mark.parametrize("sampler", ["uniform", "planned"])
def test_all_methods_share_their_rows_on_one_input(method, sampler):
    rows = rows_of("an input", method=method, sampler=sampler)
    assert set(rows) <= set(rows_of("an input", method="c2fa", sampler=sampler))
    assert not set(rows) <= set(rows_of("another input", method="c2fa", sampler=sampler))


@given(st.text(max_size=12), st.integers(0, 9), st.integers(2, 12), st.integers(0, 9), st.integers(1, 30))
@settings(max_examples=30)
def test_a_larger_budget_begins_with_the_masks_of_a_smaller(x, seed, few, more, leaves):
    small = rows_of(x, seed=seed, budget=(few, leaves), method="lime", sampler="uniform")
    large = rows_of(x, seed=seed, budget=(few + more, leaves + more), method="lime", sampler="uniform")
    assert set(small) <= set(large)


@pytest.mark.parametrize("method", ["c2fa", "milli", "td-lime"])
def test_alone_among_many_and_in_a_grid_it_is_asked_the_same(method, tmp_path):
    pytest.importorskip("pyarrow")
    pytest.importorskip("pandas")
    from batch_helpers import STRUCTURE, Model, explainer, inputs

    xs = inputs(3)
    made = explainer(method=method, seed=2, target=0, outputs="target")
    alone = [made(x).low for x in xs]
    assert not np.allclose(alone[0], alone[1])
    store = many(made, xs, tmp_path / "serial", engine="serial", precision="float64")
    named = many(
        made,
        [{"x": x, "name": i} for i, x in enumerate(xs)],
        tmp_path / "named",
        engine="serial",
        precision="float64",
        column="x",
        key="name",
    )
    seen = []
    c2fa.evaluate(
        [method],
        xs,
        Model(),
        c2fa.maskers.Array(STRUCTURE),
        masks=[(7, 24)],
        seeds=[2],
        metrics=[("low", _into(seen))],
        target=0,
    )
    for i in range(len(xs)):
        for low in (store[i].low, named[i].low, seen[i]):
            np.testing.assert_array_equal(low, alone[i])


def _into(seen):
    def metric(e, truth):
        seen.append(e.low)
        return 0.0

    return metric


def test_the_same_in_other_processes(tmp_path):
    pytest.importorskip("pyarrow")
    from batch_helpers import explainer, inputs

    xs, made = inputs(4), explainer(sampler="uniform")
    store = many(made, xs, tmp_path / "store", engine="processes", workers=2, shard_size=1, precision="float64")
    for i, x in enumerate(xs):
        np.testing.assert_array_equal(store[i].low, made(x).low)


def test_the_same_whatever_strings_hash_to():
    code = (
        "import numpy as np; from c2fa.asking.fingerprint import identify; "
        "print(*(identify(x).number for x in ('a text', np.arange(3.0), {'a': 1, 'b': {2}}, ['x', None])))"
    )
    told = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": str(FRESH), "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert told[0] == told[1]
    assert len(set(told[0].split())) == 4
    assert told[0].split()[0] == str(identify("a text").number)


def test_what_masks_are_drawn_never_changes():
    """A seed that is written down gives the same masks in every release: to change this is to change every result."""
    task = Task(S, (1, 1), np.ones(1), np.array([0]), 0, 7, identity=identify("a text"))
    assert task.rng(0).integers(1000, size=4).tolist() == [427, 89, 817, 60]


@pytest.mark.parametrize("x", [Opaque(), [1, Opaque()]], ids=["alone", "in a list"])
def test_what_cannot_be_hashed_goes_by_its_key(x):
    assert identify(x) == Identity()
    assert rows_of(x) == rows_of(Opaque())  # the masks of the seed
    by_key = [rows_of(x, key=key) for key in ("one", "two", "one")]
    assert by_key[0] == by_key[2] != by_key[1]
    assert by_key[0] != rows_of(x)


def test_a_grid_of_inputs_that_cannot_be_hashed_goes_by_their_keys():
    pytest.importorskip("pandas")
    seen = []

    def model(batch):
        seen.append(batch.astype(int).tolist())
        return batch @ np.arange(20.0)

    masker = c2fa.maskers.Custom(S, lambda x, masks, level: S.expand(masks, level).astype(float))

    def asked(keys):
        seen.clear()
        c2fa.evaluate(
            ["c2fa"], [Opaque(), Opaque()], model, masker, masks=[(5, 20)], seeds=1, metrics=["mihl"], keys=keys
        )
        return seen[: len(seen) // 2], seen[len(seen) // 2 :]

    one, other = asked(None)
    assert one == other
    one, other = asked(["one", "two"])
    assert one != other
    assert one == asked(["one", "three"])[0]


def test_scores_that_draw_do_so_for_each_input_and_alike_for_all_methods():
    pytest.importorskip("pandas")
    xs = [np.full(20, v) for v in (1.0, 2.0)]
    asked = {v: [] for v in (1.0, 2.0)}

    def model(batch):
        for row in batch:
            asked[row.max() or 1.0].append(tuple(row > 0))
        return batch @ np.arange(20.0)

    grid = c2fa.evaluate(
        ["lime", ("other", "lime", {"penalty": c2fa.L2(3.0)})],
        xs,
        model,
        c2fa.maskers.Array(S),
        masks=[(5, 5)],
        seeds=1,
        metrics=["infidelity@1", "lds@0"],
    )
    assert len(set(asked[1.0]) & set(asked[2.0])) < 0.5 * len(set(asked[1.0]))
    assert grid.rows.scoring < 0.75 * grid.rows.scoring_alone

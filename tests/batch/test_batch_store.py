"""The store: what goes in comes out; half a file is never seen; other settings are refused."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest

import c2fa
import showcases
from batch_helpers import RAISES, STRUCTURE, Model, explainer, inputs, side_files

pytest.importorskip("pyarrow")

from c2fa.batch import NotExplainedError, Store, StoreError, many
from c2fa.batch.packing import Item, packed
from c2fa.batch.store import settings_of


def small(path: Path, count: int = 10, **options: object) -> Store:
    return many(explainer(), inputs(count), path, engine="serial", shard_size=4, **options)  # type: ignore[arg-type]


def test_float64_gives_back_the_very_explanations(tmp_path: Path) -> None:
    store = Store.open(small(tmp_path / "s", precision="float64").path)
    assert len(store) == 10
    for (index, e), x in zip(store.items(), inputs(10), strict=True):
        alone = explainer()(x)
        assert e.provenance["index"] == index
        for one, other in zip(e.all_values, alone.all_values, strict=True):
            assert np.array_equal(one, other)
        assert e.all_stderr is not None
        assert alone.all_stderr is not None
        for one, other in zip(e.all_stderr, alone.all_stderr, strict=True):
            assert np.array_equal(one, other)
        assert np.array_equal(e.all_intercepts, alone.all_intercepts)
        assert e.diagnostics == alone.diagnostics
        assert (e.names, e.target, e.columns, e.queries) == (
            alone.names,
            alone.target,
            alone.columns,
            alone.queries,
        )
        assert np.array_equal(e.for_target(1 - e.target).low, alone.for_target(1 - e.target).low)
        assert e.provenance["method"] == "owen"
        assert np.array_equal(e.view.values, alone.view.values)
        assert str(e) == str(alone)


def test_float32_is_the_default_and_close(tmp_path: Path) -> None:
    store = small(tmp_path / "s")
    assert np.allclose(store[7].low, explainer()(inputs(10)[7]).low, rtol=1e-6)
    assert store[-1].queries == store[9].queries
    assert [e.queries for e in store[2:4]] == [store[2].queries, store[3].queries]
    with pytest.raises(IndexError):
        store[10]
    assert "10 inputs in 3 shards" in repr(store)


def test_pandas_polars_and_duckdb_read_the_folder(tmp_path: Path) -> None:
    store = small(tmp_path / "s")
    files = str(store.path / "part-*.parquet")
    low = np.concatenate([e.low for e in store])
    pd = pytest.importorskip("pandas")
    frame = pd.read_parquet(store.path)
    assert np.allclose(np.concatenate(list(frame.sort_values("index").values_1)), low)
    duckdb = pytest.importorskip("duckdb")
    total = duckdb.sql(f"SELECT sum(v) FROM (SELECT unnest(values_1) AS v FROM '{files}')").fetchall()[0]
    assert total[0] == pytest.approx(low.sum(), abs=1e-5)
    pl = pytest.importorskip("polars")
    assert pl.scan_parquet(files).select(pl.col("values_1").explode().sum()).collect().item() == pytest.approx(
        float(low.sum()), abs=1e-4
    )
    assert pl.read_parquet(store.path).height == 10


def test_the_encodings_are_the_small_ones(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    group = pq.ParquetFile(small(tmp_path / "s").file(0)).metadata.row_group(0)
    columns = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    values = columns["values_1.list.element"]
    assert "BYTE_STREAM_SPLIT" in values.encodings
    assert values.compression == "ZSTD"
    assert values.physical_type == "FLOAT"


def test_other_settings_are_refused_with_the_difference_named(tmp_path: Path) -> None:
    small(tmp_path / "s")
    with pytest.raises(StoreError, match=r"seed is 0 there and 7 now\. Give the same settings, or another folder"):
        many(explainer(seed=7), inputs(10), tmp_path / "s", engine="serial")
    with pytest.raises(StoreError, match=r"budget is \[8, 24\] there and 50 now"):
        many(explainer(budget=50), inputs(10), tmp_path / "s", engine="serial")
    with pytest.raises(StoreError, match="shard_size is 4 there and 5 now"):
        many(explainer(), inputs(10), tmp_path / "s", engine="serial", shard_size=5)
    with pytest.raises(StoreError, match="model is 'batch-test' there and 'other' now"):
        many(explainer(Model(name="other")), inputs(10), tmp_path / "s", engine="serial")
    with pytest.raises(StoreError, match="precision"):
        many(explainer(), inputs(10), tmp_path / "s", engine="serial", precision="float64")
    other = c2fa.Explainer(Model(), c2fa.maskers.Array(STRUCTURE, baseline=1.0), budget=(8, 24))
    with pytest.raises(StoreError, match="masker"):
        many(other, inputs(10), tmp_path / "s", engine="serial")


def test_other_inputs_are_refused(tmp_path: Path) -> None:
    small(tmp_path / "s")
    with pytest.raises(StoreError, match="inputs 0 to 3 are not those that shard 0"):
        many(explainer(), inputs(10, seed=1), tmp_path / "s", engine="serial")


def test_nothing_but_shards_is_left_and_half_a_shard_is_not_seen(tmp_path: Path) -> None:
    store = small(tmp_path / "s")
    assert side_files(store.path) == []
    (store.path / "_part-00000000-12345678.tmp").write_bytes(b"half of a shard")
    (store.path / "_part-00000099-12345678.tmp").write_bytes(b"someone is writing this")
    assert len(Store.open(store.path)) == 10
    pd = pytest.importorskip("pandas")
    assert len(pd.read_parquet(store.path)) == 10
    small(tmp_path / "s")
    assert side_files(store.path) == ["_part-00000099-12345678.tmp"]  # shard 0 is finished, 99 is not


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = explainer()
    outcomes = list(packed(made, [Item(0, inputs(1)[0])]))
    store = Store(tmp_path / "s")

    def broken(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", broken)
    with pytest.raises(OSError, match="No space left"):
        store.write(0, outcomes, settings_of(made, shard_size=4, precision="float32"))
    assert list(store.path.iterdir()) == []


def test_errors_are_rows(tmp_path: Path) -> None:
    xs = inputs(6)
    xs[2][0] = RAISES
    store = many(explainer(), xs, tmp_path / "s", engine="serial", shard_size=3, tries=2)
    assert len(store) == 6
    assert [f.index for f in store.errors()] == [2]
    assert [i for i, _ in store.items()] == [0, 1, 3, 4, 5]
    with pytest.raises(NotExplainedError, match=r"input 2 was set aside: ValueError: a poisoned row \(sent alone 2"):
        store[2]


def test_a_store_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no store at"):
        Store.open(tmp_path / "nowhere")
    empty = Store(tmp_path)
    assert (len(empty), list(empty), empty.errors(), dict(empty.settings)) == (0, [], [], {})
    (tmp_path / "part-00000000.parquet").write_bytes(b"PAR1")
    with pytest.raises(StoreError, match=r"cannot read .*; delete it and run the same command again"):
        len(empty)


def test_deep_and_flat_structures(tmp_path: Path) -> None:
    deep = c2fa.Structure.from_tree({"A": {"A1": ["x"], "A2": ["y", "z"]}, "B": ["w"]})
    for name, structure in (("deep", deep), ("flat", c2fa.Structure.flat(3))):
        made = c2fa.Explainer(lambda b: b.sum(axis=1), c2fa.maskers.Array(structure), budget=40)
        xs = [np.ones(structure.leaves), np.arange(structure.leaves)]
        store = many(made, xs, tmp_path / name, engine="serial", precision="float64")
        for e, x in zip(store, xs, strict=True):
            alone = made(x)
            assert e.structure.widths == alone.structure.widths
            assert np.array_equal(e.low, alone.low)
            assert np.array_equal(e.high, alone.high)


def test_a_finished_store_opens_where_nothing_can_be_written(tmp_path, monkeypatch):
    explain = c2fa.Explainer(lambda rows: rows.sum(axis=1), c2fa.maskers.Array(c2fa.Structure.flat(4)), budget=8)
    inputs = list(np.arange(12.0).reshape(3, 4))
    made = explain.many(inputs, tmp_path / "store", engine="serial", progress=False)

    def refuse(*args, **options):
        raise OSError(errno.EROFS, "Read-only file system")

    for name in ("unlink", "mkdir", "rename", "replace", "remove", "rmdir"):  # a missing file cannot be removed either
        monkeypatch.setattr(os, name, refuse)
    again = explain.many(inputs, tmp_path / "store", engine="serial", progress=False)
    assert again.run.inputs == 0
    assert len(Store.open(tmp_path / "store")) == len(again) == len(made) == 3
    np.testing.assert_array_equal(again[2].low, made[2].low)
    with pytest.raises(c2fa.batch.BatchError, match="Read-only file system; 0 inputs were written"):
        explain.many(inputs, tmp_path / "other", engine="serial", progress=False)


def test_a_store_still_says_that_levels_contradict_each_other(tmp_path: Path) -> None:
    said = showcases.explain_contradiction().diagnostics
    model = lambda bags: np.array([len(bag) + np.sin(9 * np.sum(bag)) for bag in bags])  # noqa: E731
    explainer = c2fa.Explainer(model, c2fa.maskers.Bag(absent="remove"), preset="paper", budget=60)
    store = many(
        explainer, [np.random.default_rng(0).normal(size=(5, 4))], tmp_path, precision="float64", engine="serial"
    )
    found = store[0].diagnostics
    assert said.contradiction
    assert (found.contradiction, found.warnings[0]) == (said.contradiction, said.contradiction)

"""A dataset into a store: inputs of every kind, resume, poison, processes, signals."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import c2fa
from batch_helpers import KILLS, RAISES, STALLS, Model, explainer, inputs, make, repeated, same, side_files

pytest.importorskip("pyarrow")

from c2fa.batch import ModelDownError, Recipe, Store, StoreError, WorkerError, many
from c2fa.batch.worker import ShardJournal
from c2fa.engines import Crew


def serial(path: Path, xs: object, **options: object) -> Store:
    options = {"engine": "serial", "shard_size": 4, "precision": "float64", **options}
    return many(explainer(), xs, path, **options)  # type: ignore[arg-type]


def test_two_processes_give_what_serial_gives(tmp_path: Path) -> None:
    xs = inputs(30)
    one = serial(tmp_path / "one", xs)
    two = many(explainer(), xs, tmp_path / "two", workers=2, shard_size=4, precision="float64")
    same(one, two)
    assert two.run.inputs == 30
    assert side_files(two.path) == []


def test_poison_of_every_kind_in_two_processes(tmp_path: Path) -> None:
    """One input raises, one kills its worker, one never answers: each gets a row with its error, the rest theirs."""
    xs = inputs(24)
    clean = serial(tmp_path / "clean", xs)
    xs[3][0], xs[10][0], xs[17][0] = RAISES, KILLS, STALLS
    store = many(make, xs, tmp_path / "s", workers=2, shard_size=8, precision="float64", tries=2, timeout=0.2)
    said = {f.index: f.error for f in store.errors()}
    assert said == {
        3: "ValueError: a poisoned row (sent alone 2 times)",
        10: "the worker died while this input was explained alone (2 times)",
        17: "the model gave no answer within 0.2 s while this input was explained alone (2 times)",
    }
    assert store.table(["index"])["index"].to_pylist() == list(range(24))
    for i in set(range(24)) - said.keys():
        assert np.array_equal(store[i].low, clean[i].low)
    assert side_files(store.path) == []


def test_finished_shards_are_not_done_again(tmp_path: Path) -> None:
    xs, log = inputs(20), tmp_path / "log"
    made = explainer(Model(log=str(log)))
    many(made, xs[:8], tmp_path / "s", engine="serial", shard_size=4)
    store = many(made, xs, tmp_path / "s", engine="serial", shard_size=4)
    assert store.run.inputs == 12
    assert many(made, xs, tmp_path / "s", engine="serial").run.inputs == 0
    assert repeated(log, store) == 0
    same(store, serial(tmp_path / "fresh", xs, precision="float32"))


def test_inputs_of_every_kind(tmp_path: Path) -> None:
    pa, pd = pytest.importorskip("pyarrow"), pytest.importorskip("pandas")
    import pyarrow.parquet as pq

    xs = [x.tolist() for x in inputs(10)]
    names = [f"n{i}" for i in range(10)]
    table = pa.table({"id": names, "x": xs})
    (tmp_path / "parquet").mkdir()
    (tmp_path / "jsonl").mkdir()
    for part in range(2):
        pq.write_table(table.slice(5 * part, 5), tmp_path / "parquet" / f"{part}.parquet")
        lines = [json.dumps({"id": names[i], "x": xs[i]}) for i in range(5 * part, 5 * part + 5)]
        (tmp_path / "jsonl" / f"{part}.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "parquet" / "_SUCCESS").touch()
    expected = [e.low for e in serial(tmp_path / "list", xs)]
    named = {"column": "x", "key": "id"}
    frame = pd.DataFrame({"id": names, "x": xs})
    for name, given, options in (
        ("stream", (x for x in xs), {}),
        ("frame", frame, named),
        ("column", frame, {"column": "x"}),
        ("single", frame[["x"]], {}),
        ("arrow", table, named),
        ("parquet", tmp_path / "parquet", named),
        ("jsonl", tmp_path / "jsonl", named),
        ("file", str(tmp_path / "jsonl" / "0.jsonl"), {"column": lambda row: row["x"]}),
    ):
        store = serial(tmp_path / f"store-{name}", given, **options)
        assert len(store) == (5 if name == "file" else 10)
        for e, low in zip(store, expected, strict=False):
            assert np.array_equal(e.low, low)
        if "key" in options:
            assert store[3].provenance["key"] == "n3"


def test_rows_of_sparse_arrays_are_inputs(tmp_path: Path) -> None:
    rows = np.array([[1.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 3.0]])
    masker = c2fa.maskers.Tabular(background=np.zeros((1, 3)))
    made = c2fa.Explainer(lambda batch: np.asarray(batch) @ [1.0, 2.0, 3.0], masker, budget=8, progress=False)
    dense = many(made, rows, tmp_path / "dense", engine="serial", precision="float64")
    for kind in (sparse.csr_array, sparse.dia_array):
        store = many(made, kind(rows), tmp_path / kind.__name__, engine="serial", precision="float64")
        assert store.errors() == []
        for ours, theirs in zip(store, dense, strict=True):
            np.testing.assert_array_equal(ours.low, theirs.low)


def test_a_frame_s_rows_keep_their_types(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": [1, 2, 3], "b": [0.5, 1.5, 2.5], "c": ["u", "v", "u"]})

    def model(batch: object) -> np.ndarray:
        assert list(batch.dtypes) == list(frame.dtypes)  # type: ignore[attr-defined]
        return (batch.a * batch.b + (batch.c == "u")).to_numpy()  # type: ignore[attr-defined]

    made = c2fa.Explainer(model, c2fa.maskers.Tabular({"n": ["a", "b"]}, background=frame), budget=(4, 8))
    assert serial_of(made, frame, tmp_path / "s", key="c")[1].provenance["key"] == "v"


def serial_of(made: c2fa.Explainer, xs: object, path: Path, **options: object) -> Store:
    return many(made, xs, path, engine="serial", **options)  # type: ignore[arg-type]


def test_lines_that_cannot_be_read_are_rows_with_an_error(tmp_path: Path) -> None:
    lines = [json.dumps({"x": x.tolist()}) for x in inputs(6)]
    lines[2], lines[4] = '{"x": [1.0, ', '{"y": 1}'
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    store = serial(tmp_path / "s", tmp_path / "in.jsonl", column="x")
    assert [f.index for f in store.errors()] == [2, 4]
    assert "line 3 of" in store.errors()[0].error
    assert "column='x' is not in the rows; they have y" in store.errors()[1].error


def test_mistakes_are_named(tmp_path: Path) -> None:
    xs = inputs(4)
    for given, error, said in (
        ({"engine": "spark"}, ValueError, "engine must be 'processes', 'ray', 'dask' or 'serial'"),
        ({"tries": 0}, ValueError, "tries must be a whole number of at least 1; got 0"),
        ({"precision": "half"}, ValueError, "precision must be one of 'float32', 'float64'"),
        ({"views": "some"}, ValueError, "views must be"),
        ({"timeout": 1.0}, ValueError, "needs a process with the model that can be ended: engine='serial'"),
        ({"timeout": "1 s"}, ValueError, "timeout must be seconds above 0; got '1 s'"),
        ({"patience": 0}, ValueError, "patience must be seconds above 0; got 0"),
        ({"shard_size": -1}, ValueError, "shard_size must be a whole number of at least 1"),
    ):
        with pytest.raises(error, match=said):
            serial(tmp_path / "s", xs, **given)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="for one input, call the explainer itself"):
        serial(tmp_path / "s", 3.5)
    with pytest.raises(FileNotFoundError, match="there is no file or folder"):
        serial(tmp_path / "s", tmp_path / "nothing")
    with pytest.raises(TypeError, match=r"must be a c2fa\.Explainer or a function that makes one"):
        many(3, xs, tmp_path / "s")  # type: ignore[arg-type]
    frame = pytest.importorskip("pandas").DataFrame({"a": [1.0], "b": [2.0]})
    with pytest.raises(KeyError, match="column='x' is not in the frame; it has a, b"):
        serial(tmp_path / "s", frame, column="x")


def test_numbers_of_numpy_bind_a_store_as_others_do(tmp_path: Path) -> None:
    for learn, target in (((4, np.int64(8)), np.int64(1)), ([np.int8(4), 8], 1)):
        made = explainer(target=target, method="c2fa", penalty="auto")
        store = made.many(inputs(12), tmp_path / "s", engine="serial", learn=learn)
        assert (store.settings["learn"], store.settings["target"]) == ([4, 8], 1)
    assert store.run.rows == 0, "the second call continued the first"


def test_a_worker_that_cannot_start_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'nothing' names no model"):
        many(explainer(), inputs(4), tmp_path / "s", workers=1, model="nothing")
    with pytest.raises(TypeError, match=r"the factory must return a c2fa\.Explainer; it returned int"):
        many(int, inputs(4), tmp_path / "s", workers=1)  # type: ignore[arg-type]
    many(make, inputs(4), tmp_path / "s", workers=1)
    recipe = Recipe(Model, explainer().masker, {"budget": 20})
    with pytest.raises(StoreError, match="budget is"):
        many(recipe, inputs(4), tmp_path / "s", workers=1)
    with pytest.raises(WorkerError, match="3 workers in a row died while they loaded the model"):
        many(_suicide, inputs(4), tmp_path / "t", workers=1)


def _suicide() -> c2fa.Explainer:
    os._exit(3)


def test_the_model_is_made_in_the_worker(tmp_path: Path) -> None:
    store = many(explainer(), inputs(4), tmp_path / "s", workers=1, model=functools.partial(Model, delay=0.0))
    assert np.allclose(store[0].low, explainer()(inputs(4)[0]).low, rtol=1e-5)


def test_a_model_that_is_down_ends_the_run_and_the_same_call_continues(tmp_path: Path) -> None:
    up = True

    def model(batch: np.ndarray) -> np.ndarray:
        if not up:
            raise ConnectionError("nobody is there")
        return batch.sum(axis=1)

    def stream() -> Iterator[np.ndarray]:
        nonlocal up
        for i, x in enumerate(inputs(20)):
            up = up and i < 12
            yield x

    made = c2fa.Explainer(model, explainer().masker, budget=(8, 24))
    with pytest.raises(ModelDownError, match=r"no longer answers|not answered once"):
        serial_of(made, stream(), tmp_path / "s", shard_size=10, patience=0.2)
    done = len(Store.open(tmp_path / "s"))
    up = True
    store = serial_of(made, inputs(20), tmp_path / "s", shard_size=10)
    assert done in (0, 10)
    assert len(store) == 20
    assert store.errors() == []


def test_the_journal_finds_who_kills(tmp_path: Path) -> None:
    """Each life dies at input 37 of 100: after a few its range is that input, after `tries` more it is set aside."""
    path, lives = tmp_path / "journal", 0
    while True:
        journal = ShardJournal(path, "run")
        plan = journal.plan(100)
        covered = [i for a, b in plan for i in range(a, b)]
        assert sorted(covered) == list(range(100))
        if len(journal.died((37, 38))) == 3:
            break
        lives += 1
        journal.__enter__()
        for start, stop in plan:
            journal.at(start, stop)
            if start <= 37 < stop:
                break
        with path.open("a") as file:
            file.write('{"at": [3')  # a line cut short by the death
    assert lives == 3 + 3
    assert plan[-1] == (37, 38)  # the others first


SCRIPT = """
import signal, sys
sys.path.insert(0, {tests!r})
from batch_helpers import Model, explainer, inputs
from c2fa.batch import many
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs are started deaf to it
    many(explainer(Model(delay=0.03, log={log!r})), inputs(60), {store!r}, workers=2, shard_size=5)
"""


def driver(tmp_path: Path, store: Path) -> subprocess.Popen[str]:
    script = tmp_path / "run.py"
    script.write_text(SCRIPT.format(tests=str(Path(__file__).parents[1]), store=str(store), log=str(tmp_path / "log")))
    return subprocess.Popen([sys.executable, str(script)], stderr=subprocess.PIPE, text=True)


def wait_for_shards(store: Path, count: int) -> None:
    end = time.monotonic() + 60
    while len(list(store.glob("part-*.parquet"))) < count:
        assert time.monotonic() < end, "no shard was written within a minute"
        time.sleep(0.02)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_finishes_what_runs_and_the_same_command_continues(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    process = driver(tmp_path, tmp_path / "s")
    wait_for_shards(tmp_path / "s", 2)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode in (code, -number)
    assert "finishing and writing the shards under way" in said
    assert side_files(tmp_path / "s") == []  # nothing was cut off
    done = len(Store.open(tmp_path / "s"))
    assert 10 <= done < 60
    assert repeated(tmp_path / "log", Store.open(tmp_path / "s")) == 0
    if number == signal.SIGINT:
        return
    again = driver(tmp_path, tmp_path / "s")
    again.communicate(timeout=120)
    assert again.returncode == 0
    store = Store.open(tmp_path / "s")
    assert repeated(tmp_path / "log", store) == 0
    same(serial(tmp_path / "fresh", inputs(60), shard_size=5, precision="float32"), store)


def test_a_bar_that_the_environment_forbids_is_not_drawn(tmp_path: Path) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parents[1])!r})\n"
        "from batch_helpers import Model, explainer, inputs\n"
        "from c2fa.batch import many\n"
        "slow = explainer(Model(delay=0.7), batch_size=64)  # a bar appears after a second\n"
        "for count in (4, 8):\n"
        f"    many(slow, inputs(count), {str(tmp_path / 's')!r}, engine='serial', shard_size=4, progress=True)\n"
    )
    for forbidden, shown in (("1", 0), ("", 2)):
        (tmp_path / "s" / "part-00000001.parquet").unlink(missing_ok=True)
        said = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "TQDM_DISABLE": forbidden},
            capture_output=True,
            text=True,
            check=True,
        )
        assert said.stderr.count("explaining: 100%") >= shown
        assert bool(said.stderr) == bool(shown)


def test_an_explainer_explains_a_dataset(tmp_path):
    import c2fa

    structure = c2fa.Structure.from_groups("aabb")
    explainer = c2fa.Explainer(lambda b: b.sum(axis=1), c2fa.maskers.Array(structure), budget=12)
    inputs = [np.ones(4), np.arange(4.0)]
    store = explainer.many(inputs, tmp_path / "store", engine="serial", precision="float64", progress=False)
    assert len(store) == 2
    for e, x in zip(store, inputs, strict=True):
        np.testing.assert_array_equal(e.low, explainer(x).low)


def test_the_batch_package_is_there_after_import_c2fa_and_loaded_when_used() -> None:
    code = "import sys, c2fa; print('c2fa.batch' in sys.modules, c2fa.batch.many.__name__, 'c2fa.batch' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["False", "many", "True"]


def test_no_more_workers_than_pay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    xs = inputs(24)
    one = many(explainer(), xs, tmp_path / "one", shard_size=4, precision="float64")
    assert (one.run.workers, one.run.inputs) == (1, 24)  # milliseconds of work, and a start takes a second
    left = []

    def paying(crew: Crew, busy: float, inputs: int, start: float) -> int:
        assert crew.left is not None
        left.append(crew.left())
        return 2

    monkeypatch.setattr(Crew, "paying", paying)
    two = many(explainer(), xs, tmp_path / "two", shard_size=4, precision="float64")
    assert (two.run.workers, left[0]) == (2, 20)
    same(one, two)
    two = many(explainer(), (x for x in xs), tmp_path / "stream", shard_size=4)
    assert (two.run.workers, left[-1]) == (2, None)
    assert many(explainer(), xs[:4], tmp_path / "small", shard_size=4, workers=2).run.workers == 1  # there is one shard
    assert many(explainer(), xs, tmp_path / "two", precision="float64").run.workers == 0


def test_workers_pay_where_each_has_more_to_do_than_its_start_takes() -> None:
    def crew(left: int | None) -> Crew:
        return Crew(4, left=lambda: left)

    assert crew(10).paying(busy=1.0, inputs=10, start=1.0) == 0  # the first call may have loaded the model
    assert crew(10).paying(busy=41.0, inputs=10, start=10.0) == 1
    assert crew(10).paying(busy=70.0, inputs=10, start=10.0) == 2
    assert crew(1000).paying(busy=50.0, inputs=10, start=10.0) == 4
    assert crew(0).paying(busy=1e6, inputs=10, start=1.0) == 0
    assert crew(None).paying(busy=100.0, inputs=10, start=10.0) == 3  # as much again as was done so far

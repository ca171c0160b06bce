"""What goes wrong around a run is never an input's fault: a model that is away, a broken ledger, a killed driver."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import c2fa
from batch_helpers import RAISES, STRUCTURE, TIRES, Model, explainer, inputs, same, side_files

pytest.importorskip("pyarrow")

from c2fa.asking.ledger import LedgerError
from c2fa.batch import BatchError, Item, ModelDownError, NoAnswerError, Store, StoreError, many, packed
from c2fa.batch.isolation import Isolation
from c2fa.batch.worker import ShardJournal


def run(path: Path, xs: object, made: c2fa.Explainer | None = None, **options: object) -> Store:
    options = {"engine": "serial", "shard_size": 4, "precision": "float64", **options}
    return many(made or explainer(), xs, path, **options)  # type: ignore[arg-type]


def answer(batch: np.ndarray) -> np.ndarray:
    return batch.sum(axis=1)


def of(model: Callable[[np.ndarray], np.ndarray]) -> c2fa.Explainer:
    return c2fa.Explainer(model, c2fa.maskers.Array(STRUCTURE), budget=(8, 24), progress=False)


# -- a model that is away


@pytest.mark.parametrize("engine", ["serial", "processes"])
def test_a_model_that_never_answers_sets_nothing_aside_and_the_same_call_continues(tmp_path: Path, engine: str) -> None:
    down = tmp_path / "down"
    down.touch()
    made = explainer(Model(down=str(down)))
    with pytest.raises(NoAnswerError, match=r"not answered once in 0\.3 s.*no input is set aside.*same command again"):
        run(tmp_path / "s", inputs(40), made, engine=engine, workers=2, shard_size=8, patience=0.3)
    assert len(Store.open(tmp_path / "s")) == 0
    down.unlink()
    store = run(tmp_path / "s", inputs(40), made, engine=engine, workers=2, shard_size=8)
    assert store.errors() == []
    assert len(store) == 40
    assert side_files(store.path) == []


def test_a_continued_run_knows_a_model_that_is_down_by_what_it_answered_before(tmp_path: Path) -> None:
    down = tmp_path / "down"
    made = explainer(Model(down=str(down)))
    run(tmp_path / "s", inputs(4), made)
    down.touch()
    with pytest.raises(ModelDownError, match="no longer answers, not even rows that it answered before"):
        run(tmp_path / "s", inputs(8), made, patience=0.1)
    assert len(Store.open(tmp_path / "s")) == 4


@pytest.mark.parametrize("begin", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(5, marks=pytest.mark.slow)])
def test_an_outage_of_any_length_costs_no_input(begin: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    for length in range(1, 16):
        calls = 0

        def model(batch: np.ndarray, length: int = length) -> np.ndarray:
            nonlocal calls
            calls += 1
            if begin <= calls < begin + length:
                raise ConnectionError("nobody is there")
            return answer(batch)

        found = list(packed(of(model), [Item(i, x) for i, x in enumerate(inputs(8))], batch_size=32))
        assert len(found) == 8
        assert [o.error for o in found if o.error] == [], f"an outage of {length} calls"


@pytest.mark.slow
@pytest.mark.parametrize("answered_before", [False, True])
def test_a_model_that_hangs_sets_nothing_aside(tmp_path: Path, answered_before: bool) -> None:
    hangs = tmp_path / "hangs"
    made = explainer(Model(hangs=str(hangs)))
    if answered_before:
        run(tmp_path / "s", inputs(2), made, shard_size=2)
    hangs.touch()
    options = {"engine": "processes", "workers": 1, "shard_size": 2, "tries": 1}
    with pytest.raises(ModelDownError, match="no input is set aside for it") as caught:
        run(tmp_path / "s", inputs(4), made, timeout=0.02, **options)
    assert isinstance(caught.value, NoAnswerError) is not answered_before
    assert len(Store.open(tmp_path / "s")) == 2 * answered_before
    hangs.unlink()
    store = run(tmp_path / "s", inputs(4), made, timeout=60.0, **options)
    assert (len(store), store.errors(), side_files(store.path)) == (4, [], [])


def test_a_bad_input_is_to_blame_even_if_it_comes_first(tmp_path: Path) -> None:
    xs = inputs(8)
    xs[0][0] = RAISES
    store = run(tmp_path / "s", xs, batch_size=1)
    assert [f.index for f in store.errors()] == [0]


@pytest.mark.parametrize("engine", ["serial", "processes"])
def test_shards_of_bad_inputs_alone_are_judged_by_what_others_were_answered(tmp_path: Path, engine: str) -> None:
    xs = inputs(24)
    for x in xs[:4]:
        x[0] = RAISES
    store = run(tmp_path / "s", xs, engine=engine, workers=2, patience=0.1, tries=1)
    assert [f.index for f in store.errors()] == [0, 1, 2, 3]
    assert len(store) == 24


def test_inputs_that_were_set_aside_are_asked_again(tmp_path: Path) -> None:
    xs, log = inputs(10), tmp_path / "log"
    sick = {3, 4, 9}

    def model(batch: np.ndarray) -> np.ndarray:
        if any((batch[:, 1] == xs[i][1]).any() and sick for i in (3, 4, 9)):
            raise ValueError("not today")
        return Model(log=str(log))(batch)

    made = of(model)
    first = run(tmp_path / "s", xs, made, tries=1, views="all")
    assert {f.index for f in first.errors()} == sick
    sick.clear()
    before = len(log.read_text().split())
    assert run(tmp_path / "s", xs, made).run.inputs == 0
    store = run(tmp_path / "s", xs, made, retry_failed=True, views="none")
    assert store.run.inputs == 3
    assert store.errors() == []
    assert len(log.read_text().split()) - before == sum(store[i].queries for i in (3, 4, 9))
    same(run(tmp_path / "fresh", xs, made), store)
    assert store[0].view
    assert store[3].provenance["method"] == "owen"
    assert run(tmp_path / "s", xs, made, retry_failed=True).run.inputs == 0


@pytest.mark.parametrize("engine", ["serial", "processes"])
def test_a_broken_ledger_sets_nothing_aside(tmp_path: Path, engine: str) -> None:
    ledger = tmp_path / "ledger.sqlite"
    made = explainer(ledger=ledger)
    made(inputs(1)[0])
    assert made.ledger is not None
    made.ledger.close()
    content = bytearray(ledger.read_bytes())
    content[4096:] = os.urandom(len(content) - 4096)  # the first page still says that it is a ledger
    ledger.write_bytes(content)
    Path(f"{ledger}-wal").unlink(missing_ok=True)
    with pytest.raises(LedgerError) as caught:
        run(tmp_path / "s", inputs(24), explainer(ledger=ledger), engine=engine, workers=2, shard_size=8)
    assert "no input is set aside for it, and the same command continues" in caught.value.__notes__[0]
    assert len(Store.open(tmp_path / "s")) == 0


# -- a driver that is killed


def lives(path: Path, runs: list[str]) -> ShardJournal:
    """The journal after workers of these runs died, each at input 0 where that is alone."""
    for name in runs:
        journal = ShardJournal(path, name)
        journal.__enter__()
        for start, stop in journal.plan(8):
            journal.at(start, stop)
            if start == 0:
                break
    return ShardJournal(path, runs[-1])


def test_a_worker_that_dies_with_its_run_is_not_an_input_s_doing(tmp_path: Path) -> None:
    lives(tmp_path / "j", ["a", "b", "c", "d", "e", "f"])
    journal = ShardJournal(tmp_path / "j", "g")
    assert journal.died((0, 1)) == []
    assert len(journal.plan(8)) == 8  # in pieces all the same, so that each life gets on
    assert len(lives(tmp_path / "j", ["g"] * 3).died((0, 1))) == 3


SCRIPT = """
import os, signal, sys
sys.path.insert(0, {tests!r})
from batch_helpers import Model, explainer, inputs
from c2fa.batch import many

class Kills(Model):
    def __call__(self, batch):
        if (batch[:, 1] == inputs(4)[2][1]).any() and len(open({lives!r}).read()) < 5:
            open({lives!r}, "a").write("x")
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__call__(batch)

many(explainer(Kills()), inputs(4), {store!r}, engine="serial", shard_size=4, precision="float64")
"""


@pytest.mark.slow
def test_a_driver_that_is_killed_five_times_costs_no_input(tmp_path: Path) -> None:
    (tmp_path / "lives").touch()
    code = SCRIPT.format(tests=str(Path(__file__).parents[1]), lives=str(tmp_path / "lives"), store=str(tmp_path / "s"))
    codes = [subprocess.run([sys.executable, "-c", code], check=False).returncode for _ in range(6)]
    assert codes == [-9] * 5 + [0]
    same(run(tmp_path / "calm", inputs(4)), Store.open(tmp_path / "s"))


@pytest.mark.parametrize("ledger", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_workers_that_are_killed_but_get_further_each_time_cost_no_input(tmp_path: Path, ledger: bool) -> None:
    xs, log = inputs(4), tmp_path / "log"
    xs[2][0] = TIRES
    options = {"ledger": tmp_path / "answers.sqlite"} if ledger else {}
    made = explainer(Model(log=str(log)), batch_size=4, **options)
    store = run(tmp_path / "s", xs, made, engine="processes", workers=1, tries=2)
    assert store.errors() == []
    same(store, run(tmp_path / "calm", xs, explainer(Model(tireless=True), batch_size=4)))
    assert side_files(store.path) == []


# -- equal inputs


def test_equal_inputs_of_a_shard_are_asked_once_even_one_after_the_other(tmp_path: Path) -> None:
    xs, log = inputs(3), tmp_path / "log"
    store = run(tmp_path / "s", xs * 4, explainer(Model(log=str(log))), shard_size=12, batch_size=1)
    assert len(log.read_text().split()) == sum(store[i].queries for i in range(3))
    for i in range(12):
        assert np.array_equal(store[i].low, store[i % 3].low)


# -- a store that is damaged


def test_a_store_that_is_deleted_during_the_run_is_told(tmp_path: Path) -> None:
    def stream() -> Iterator[np.ndarray]:
        for i, x in enumerate(inputs(20)):
            if i == 12:
                shutil.rmtree(tmp_path / "s")
            yield x

    said = r"3 shards that were finished are no longer in .*part-00000000.*The same command explains their inputs again"
    with pytest.raises(BatchError, match=said):
        run(tmp_path / "s", stream())
    store = run(tmp_path / "s", inputs(20))
    assert len(store) == 20
    assert store.run.inputs == 12


def test_a_flipped_bit_is_found(tmp_path: Path) -> None:
    file = run(tmp_path / "s", inputs(4)).file(0)
    content = file.read_bytes()
    true = Store.open(tmp_path / "s").table().to_pylist()
    rng = random.Random(0)
    silent = 0
    for _ in range(400):
        at = rng.randrange(len(content))
        file.write_bytes(content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :])
        with contextlib.suppress(StoreError):
            silent += repr(Store.open(tmp_path / "s").table().to_pylist()) != repr(true)
    assert silent == 0


@pytest.mark.parametrize("read", [lambda s: s[0], lambda s: s.errors(), lambda s: list(s), lambda s: s.to_frame()])
def test_a_damaged_shard_is_named(tmp_path: Path, read: Callable[[Store], object]) -> None:
    file = run(tmp_path / "s", inputs(4)).file(0)
    content = bytearray(file.read_bytes())
    content[4 : len(content) // 2] = bytes(len(content) // 2 - 4)
    file.write_bytes(content)
    with pytest.raises(StoreError, match=r"cannot read .*part-00000000\.parquet.*delete it and run the same command"):
        read(Store.open(tmp_path / "s"))


def test_damaged_side_files_do_not_stop_a_run(tmp_path: Path) -> None:
    calls = 0

    def fails_late(batch: np.ndarray) -> np.ndarray:
        nonlocal calls
        calls += 1
        if calls == 3:
            os._exit(9)
        return answer(batch)

    store = tmp_path / "s"
    child = os.fork()
    if not child:
        run(store, inputs(4), of(fails_late))
    assert os.waitpid(child, 0)[1]
    [journal] = store.glob("_part-*.journal")
    with journal.open("ab") as file:
        file.write(b'\x00\xff\xfe{"at": [[1], {}], "known": 0}\n{"at": [[1], {}], "known": 0}\n[3]\nnull\n')
    for i in range(4):
        journal.with_name(f"{journal.stem}-{i}-{i + 1}.kept").write_bytes(b"PAR1" + bytes(100) + b"PAR1")
    (store / "_part-foo.tmp").touch()
    done = run(store, inputs(4), of(answer))
    assert len(done) == 4
    assert done.errors() == []
    assert [name for name in side_files(store) if "part" in name] == ["_part-foo.tmp"]  # nobody knows whose it is


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_a_folder_that_cannot_be_written(tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    said = rf"cannot write to .*: {os.strerror(number)}; 0 inputs were.*See that the folder can be written"
    for name in ("pathlib.Path.mkdir", "c2fa.batch.store.write"):
        with monkeypatch.context() as patched:
            patched.setattr(name, refuse)
            with pytest.raises(BatchError, match=said):
                run(tmp_path / "s", inputs(4))


# -- cost


class Paid:
    """Every row costs 1, whether it is answered or not."""

    def __init__(self) -> None:
        self.cost = 0.0
        self.lock = threading.Lock()
        self.barrier: threading.Barrier | None = None

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        if self.barrier is not None:
            self.barrier.wait(10)
        with self.lock:
            self.cost += len(batch)
        if (batch[:, 0] == RAISES).any():
            raise ValueError("a poisoned row")
        return answer(batch)


def test_a_failed_batch_is_paid_by_each_of_its_inputs() -> None:
    xs = inputs(4)
    xs[0][0] = RAISES
    paid, isolation = Paid(), Isolation(tries=1)
    isolation.health.widths[1] = {100, 101}  # as is known after the first inputs, which are asked about alone
    items = [Item(i, x) for i, x in enumerate(xs)]
    found = {o.index: o.explanation for o in packed(of(paid), items, batch_size=64, isolation=isolation)}
    assert isolation.report.cost == paid.cost
    first_batch = {o.diagnostics.cost - o.diagnostics.sent for o in found.values() if o is not None}  # type: ignore[operator]
    assert first_batch == {1.0}  # one row in the batch that failed


def explained_at_once(made: c2fa.Explainer) -> list[c2fa.Explanation]:
    with ThreadPoolExecutor(4) as threads:
        return list(threads.map(made, [np.arange(1.0, 13.0) + i for i in range(4)]))


def test_the_costs_of_threads_that_share_a_model_add_up() -> None:
    paid = Paid()
    paid.barrier = threading.Barrier(4)
    found = explained_at_once(of(paid))
    assert sum(e.diagnostics.cost or 0.0 for e in found) == paid.cost == sum(e.queries for e in found)


def test_a_model_behind_http_charges_each_explanation_for_its_own_rows() -> None:
    pytest.importorskip("httpx2")
    from servers.fake import Model as Server

    with Server(lambda rows: np.asarray(rows, dtype=float).sum(axis=1)) as server:
        model = c2fa.models.OpenInference(server.url, "m", price_per_row=0.5, rows_per_request=3)
        model(np.ones((2, 12)))
        found = explained_at_once(of(model))
        # The empty input is the same for all, and of those that ask it at the same time one pays.
        assert all(0.0 <= 0.5 * e.diagnostics.sent - e.diagnostics.cost <= 0.5 for e in found)
        model.close()

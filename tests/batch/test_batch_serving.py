"""One model, many workers: processes that have the model, workers around them, and what becomes of them in trouble."""

from __future__ import annotations

import contextlib
import errno
import functools
import gc
import importlib.util
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import c2fa
from batch_helpers import KILL, RAISES, STALLS, inputs, make, repeated, same, side_files
from serving_helpers import (
    TEXTS,
    Refuses,
    Renders,
    Vector,
    Vectors,
    Watches,
    dies,
    explainer,
    killer,
    lines,
    text_classifier,
)

pytest.importorskip("pyarrow")

from c2fa.asking.masking import MaskedBatch, MaskedRows
from c2fa.asking.model import BILL, Bill
from c2fa.batch import ModelDownError, Recipe, Store, WorkerError, many
from c2fa.engines import Contact, RemoteModel, Serving, remote
from c2fa.engines import contact as contacts
from c2fa.engines.remote import connected
from c2fa.engines.serving import Server
from c2fa.maskers import _segmenting

needs_proc = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds processes in /proc")
BUDGET = {"budget": (8, 24)}
BATCH = 64


def serial(path: Path, xs: object) -> Store:
    return many(explainer(), xs, path, engine="serial", shard_size=4, precision="float64")


def recipe(**settings: Any) -> Recipe:
    return Recipe(functools.partial(Renders, **settings), Vectors(), BUDGET)


def around_one(made: Any, xs: object, path: Path, **options: Any) -> Store:
    return many(made, xs, path, **{"workers": 2, "models": 1, "shard_size": 4, "precision": "float64", **options})


# -- the same numbers


def test_workers_around_one_model_and_around_two_give_what_serial_gives(tmp_path: Path) -> None:
    xs = inputs(30)
    calm = serial(tmp_path / "calm", xs)
    for models in (1, 2):
        made = tmp_path / f"made{models}"
        store = around_one(recipe(made=str(made)), xs, tmp_path / f"s{models}", models=models)
        same(calm, store)
        assert len(lines(made)) == models  # and not one for each worker
        assert len(store.run.loads) == models
        assert sum(load.rows for load in store.run.loads.values()) == store.run.rows
        assert sum(load.launches for load in store.run.loads.values()) <= store.run.calls
        assert all(0.0 <= load.waiting <= load.seconds for load in store.run.loads.values())
        assert store.settings == calm.settings
        assert store[3].provenance == calm[3].provenance
        assert side_files(store.path) == []


def test_inputs_that_cannot_travel_are_masked_by_the_worker(tmp_path: Path) -> None:
    xs = inputs(8)
    store = around_one(explainer(local=True), xs, tmp_path / "s", workers=1)
    for x, e in zip(xs, store, strict=True):
        np.testing.assert_array_equal(e.low, explainer()(x).low)


def test_workers_have_neither_the_gpu_nor_what_only_the_model_imports_and_costs_add_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7,5")
    seen, made, gpu = tmp_path / "seen", tmp_path / "made", tmp_path / "gpu"
    model = functools.partial(Renders, heavy=True, made=str(made), gpu=str(gpu), price=0.5)
    recipe = Recipe(model, Watches(str(seen)), BUDGET)
    store = around_one(recipe, inputs(12), tmp_path / "s", models=0, gpus=1)
    assert {tuple(line.split()[1:]) for line in lines(seen)} == {("False", "[]")}
    assert lines(gpu) == ["7"]
    assert not {line.split()[0] for line in lines(seen)} & set(lines(made))
    assert store.run.cost == pytest.approx(0.5 * store.run.rows)
    assert sum(e.diagnostics.cost for e in store) == pytest.approx(store.run.cost)


def test_the_model_s_process_ends_by_itself_and_leaves_nothing(tmp_path: Path) -> None:
    """Progress bars have a lock of all processes; where one is killed that has it, Python warns of a leak."""
    script = tmp_path / "script.py"
    script.write_text(
        "import multiprocessing, sys\n"
        "from batch_helpers import STRUCTURE, Model, inputs\n"
        "import c2fa\n"
        "from c2fa.batch import Recipe, many\n\n"
        "def make():\n"
        "    global kept\n"
        "    kept = multiprocessing.RLock()\n"
        "    return Model()\n\n"
        "if __name__ == '__main__':\n"
        "    recipe = Recipe(make, c2fa.maskers.Array(STRUCTURE), {'budget': 20})\n"
        "    many(recipe, inputs(4), sys.argv[1], workers=1, models=1, progress=False)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])}
    command = [sys.executable, str(script), str(tmp_path / "s")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(Store.open(tmp_path / "s")) == 4


def _installed(name: str) -> None:
    if importlib.util.find_spec({"dask": "distributed"}.get(name, name)) is None:
        pytest.skip(f"{name} is not installed: pip install 'c2fa[{name}]'")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("engine", ["ray", "dask"])
def test_other_engines_give_what_serial_gives(tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _installed(engine)
    paths = [*map(str, Path(__file__).parents[:2]), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    xs = inputs(40)
    calm = serial(tmp_path / "calm", xs)
    xs[7][0], xs[20] = RAISES, killer(xs[20])
    for models in (1, 2):
        made = tmp_path / f"made{models}"
        store = around_one(
            recipe(made=str(made)), xs, tmp_path / f"s{models}", engine=engine, models=models, workers=2, tries=2
        )
        assert {f.index: f.error for f in store.errors()} == {
            7: "ValueError: a poisoned row (sent alone 2 times)",
            20: "ModelDiedError: the model's process died (sent alone 2 times)",
        }
        for i in set(range(40)) - {7, 20}:
            np.testing.assert_allclose(store[i].low, calm[i].low, rtol=0, atol=1e-12)
        assert side_files(store.path) == []
    with pytest.raises(ValueError, match="there are no weights here"):
        around_one(Recipe(Refuses, Vectors(), BUDGET), xs, tmp_path / "refused", engine=engine)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("how", [{}, {"models": 1}, {"engine": "ray", "models": 1}, {"engine": "dask", "models": 1}])
def test_a_network_explains_texts_alike_wherever_it_is(
    tmp_path: Path, how: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("torch")
    _installed(how.get("engine", "numpy"))
    paths = [*map(str, Path(__file__).parents[:2]), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    made = Recipe(text_classifier, c2fa.maskers.Text(), {"budget": 60, "model_name": "bert"})
    kept = {"shard_size": 4, "precision": "float64"}
    alone = many(made, TEXTS, tmp_path / "alone", engine="serial", **kept)
    shared = many(made, TEXTS, tmp_path / "shared", workers=2, **how, **kept)
    for one, other in zip(alone, shared, strict=True):
        np.testing.assert_allclose(other.low, one.low, rtol=0, atol=1e-6)


# -- faults


def meanwhile(when: Callable[[], bool], then: Callable[[], None]) -> threading.Thread:
    """Do something as soon as something is true, beside what the test does."""

    def wait() -> None:
        end = time.monotonic() + 60
        while not when() and time.monotonic() < end:
            time.sleep(0.005)
        then()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def rows_in(log: Path) -> int:
    return len(log.read_text().splitlines()) if log.exists() else 0


def kill_all_in(made: Path) -> None:
    for line in lines(made):
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(line), KILL)


def test_a_model_that_is_killed_is_started_again_and_nothing_is_lost(tmp_path: Path) -> None:
    xs, made, log = inputs(40), tmp_path / "made", tmp_path / "log"
    killing = meanwhile(lambda: rows_in(log) > 400, lambda: kill_all_in(made))
    store = around_one(recipe(made=str(made), log=str(log), delay=0.02), xs, tmp_path / "s")
    killing.join()
    same(serial(tmp_path / "calm", xs), store)
    assert len(lines(made)) == 2
    assert len(store.run.loads) == 2
    assert repeated(log, store) <= 2 * 2 * BATCH  # two workers with two batches each
    assert side_files(store.path) == []


@needs_proc
@pytest.mark.slow
def test_a_worker_that_is_killed_is_not_waited_for(tmp_path: Path) -> None:
    xs, made, log = inputs(60), tmp_path / "made", tmp_path / "log"

    def kill_a_worker() -> None:
        workers = [pid for pid in children(os.getpid()) if str(pid) not in lines(made)]
        os.kill(workers[0], KILL)

    killing = meanwhile(lambda: rows_in(log) > 300, kill_a_worker)
    store = around_one(recipe(made=str(made), log=str(log), delay=0.02), xs, tmp_path / "s")
    killing.join()
    same(serial(tmp_path / "calm", xs), store)
    assert len(lines(made)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("stalls", [False, True])
def test_poison_is_set_aside_and_nothing_else(tmp_path: Path, stalls: bool) -> None:
    """One input raises, one kills the model, one is never answered: each gets its error, the others their numbers."""
    xs = inputs(24)
    calm = serial(tmp_path / "calm", xs)
    xs[3][0], xs[10] = RAISES, killer(xs[10])
    expected = {
        3: "ValueError: a poisoned row (sent alone 1 times)",
        10: "ModelDiedError: the model's process died (sent alone 1 times)",
    }
    if stalls:
        xs[17][0] = STALLS
        expected[17] = "ModelDiedError: the model gave no answer within 0.3 s (sent alone 1 times)"
    store = around_one(recipe(delay=0.01), xs, tmp_path / "s", tries=1, timeout=0.3 if stalls else None)
    assert {f.index: f.error for f in store.errors()} == expected
    for i in set(range(24)) - expected.keys():
        np.testing.assert_array_equal(store[i].low, calm[i].low)
    assert side_files(store.path) == []


def test_a_model_that_cannot_be_made_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there are no weights here"):
        around_one(Recipe(Refuses, Vectors(), BUDGET), inputs(4), tmp_path / "s")
    with pytest.raises(WorkerError, match="died 3 times in a row while it loaded the model"):
        around_one(Recipe(dies, Vectors(), BUDGET), inputs(4), tmp_path / "s")
    assert side_files(tmp_path / "s") == []


SCRIPT = """
import functools, signal, sys
sys.path.insert(0, {tests!r})
from batch_helpers import inputs
from serving_helpers import Renders, Vectors
from c2fa.batch import Recipe, many
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs are started deaf to it
    model = functools.partial(Renders, delay=0.02, made={made!r}, log={log!r})
    many(Recipe(model, Vectors(), {{"budget": (8, 24)}}), inputs(60), {store!r}, workers=2, models=1, shard_size=4)
"""


def driver(tmp_path: Path) -> subprocess.Popen[bytes]:
    places = {name: str(tmp_path / name) for name in ("made", "log", "store")}
    (tmp_path / "run.py").write_text(SCRIPT.format(tests=str(Path(__file__).parents[1]), **places))
    return subprocess.Popen([sys.executable, str(tmp_path / "run.py")], stderr=subprocess.DEVNULL)


def children(pid: int) -> list[int]:
    """The processes that a driver has spawned."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            with contextlib.suppress(OSError):
                if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                    found.append(int(child))
    return found


@needs_proc
@pytest.mark.parametrize("number", [KILL, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_no_process_outlives_its_driver(tmp_path: Path, number: signal.Signals) -> None:
    process = driver(tmp_path)
    meanwhile(lambda: rows_in(tmp_path / "log") > 300, lambda: None).join()
    processes = children(process.pid)
    assert len(processes) == 3
    process.send_signal(number)
    assert process.wait(60) == (-9 if number == KILL else 143)
    end = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in processes) and time.monotonic() < end:
        time.sleep(0.05)
    assert not [pid for pid in processes if Path(f"/proc/{pid}").exists()]
    if number == signal.SIGTERM:
        assert repeated(tmp_path / "log", Store.open(tmp_path / "store")) == 0
        assert driver(tmp_path).wait(60) == 0  # the same command continues
        calm = many(explainer(), inputs(60), tmp_path / "calm", engine="serial", shard_size=4)
        same(calm, Store.open(tmp_path / "store"))


# -- what is refused, and how many workers there are


def test_what_is_refused(tmp_path: Path) -> None:
    xs = inputs(4)
    for options, error, said in (
        ({"models": -1}, ValueError, "models must be a whole number of at least 0"),
        ({"gpus": 0.5}, ValueError, "gpus must be a whole number of at least 0"),
        ({"models": 1, "gpus": 2}, ValueError, "leave out models=1"),
        ({"models": 1, "engine": "serial"}, ValueError, "engine='serial' is one process"),
    ):
        with pytest.raises(error, match=said):
            many(explainer(), xs, tmp_path / "s", **options)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"give an explainer, or c2fa\.batch\.Recipe"):
        many(make, xs, tmp_path / "s", models=1)


def test_a_core_is_left_to_each_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 16)
    asked = []

    def engine(make: Any, tasks: Any, *, workers: int, serving: Serving | None = None) -> Iterator[Any]:
        asked.append((workers, serving and (serving.models, serving.gpu, serving.batch_size, serving.timeout)))
        return iter(())

    for options in ({}, {"models": 1}, {"gpus": 4, "timeout": 9.0, "batch_size": 256}):
        many(explainer(), [], tmp_path / "s", engine=engine, **options)  # type: ignore[arg-type]
    assert asked == [(16, None), (14, (1, False, BATCH, None)), (11, (4, True, 256, 9.0))]


# -- the two ends of a connection


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., tuple[Server, Contact]]]:
    servers: list[tuple[Server, threading.Thread]] = []

    def begin(model: Any, **options: Any) -> tuple[Server, Contact]:
        contact = Contact(str(tmp_path), patience=0.2)
        server = Serving(lambda: model, contact, **options).start(0)
        thread = threading.Thread(target=server.run)
        servers.append((server, thread))
        thread.start()
        return server, contact

    yield begin
    for server, thread in servers:
        server.stop()
        thread.join(10)
        assert not thread.is_alive()


def rows(x: Any, count: int = 3) -> MaskedBatch:
    masks = np.random.default_rng(0).random((count, 4)) < 0.5
    return MaskedBatch([MaskedRows(Vector(np.asarray(x)), masks, 0)])


def test_rows_of_several_workers_share_a_call_and_each_gets_its_own(serve: Any) -> None:
    gate, sizes = threading.Event(), []

    def model(batch: np.ndarray) -> np.ndarray:
        sizes.append(len(batch))
        assert gate.wait(10)
        if (batch == RAISES).any():
            raise ValueError("a poisoned row")
        return batch.sum(axis=1)

    server, contact = serve(model, batch_size=6)
    workers = [RemoteModel(contact, 0) for _ in range(4)]
    gate.set()
    for worker in workers[:2]:  # who agree on how many outputs there are
        worker(np.zeros((1, 5)))
    gate.clear()
    sizes.clear()
    batches = [np.full((2, 5), float(k)) for k in range(4)]
    batches[2][0, 0] = RAISES
    answers = [workers[0].launch(batches[0])]
    meanwhile(lambda: bool(sizes), lambda: None).join()  # the model is busy with the first
    answers += [worker.launch(batch) for worker, batch in zip(workers[1:], batches[1:], strict=True)]
    meanwhile(lambda: len(server.waiting) == 3, gate.set).join()
    for k in (0, 1, 3):
        np.testing.assert_array_equal(answers[k](), np.full((2, 1), 5.0 * k))
    with pytest.raises(ValueError, match="a poisoned row"):
        answers[2]()
    assert sizes == [2, 6, 2, 2, 2]  # the first alone, three together, and each of these alone


def test_what_a_model_says_of_itself_is_told(serve: Any) -> None:
    class Said:
        name, output_names, batch_size, mask_token = "said", ("no", "yes"), 7, "<mask>"
        cost, notes = 0.0, ()

        def __call__(self, batch: list[str]) -> list[float]:
            self.cost, self.notes = self.cost + len(batch), ("it was tired",)
            return [0.5] * len(batch)

    _, contact = serve(Said())
    model = RemoteModel(contact, 0)
    told = c2fa.asking.model.describe(model)
    assert (told.name, told.output_names, told.batch_size, told.mask_token) == ("said", ("no", "yes"), 7, "<mask>")
    assert (told.cost, told.notes, told.chunk_size) == (0.0, (), None)
    bill = Bill()
    before = BILL.set(bill)
    model(["a", "b"])
    BILL.reset(before)
    assert (told.cost, bill.amount, told.notes) == (2.0, 2.0, ("it was tired",))
    assert not hasattr(model, "tokenizer")
    assert model.__name__ == "Said"


def test_what_a_model_says_wrongly_of_itself_ends_the_start(tmp_path: Any) -> None:
    class Wrong(Renders):
        notes = 3

    with pytest.raises(TypeError, match="not iterable"):
        Serving(Wrong, Contact(str(tmp_path))).start(0)


def test_a_language_model_that_cannot_score_says_so_to_its_workers(serve: Any) -> None:
    class Writes:
        def generate(self, prompt: str) -> str:
            return f"{prompt}!"

        def generate_many(self, prompts: list[str]) -> list[str]:
            return [f"{prompt}!" for prompt in prompts]

        def try_scoring(self) -> None:
            raise ValueError("this server scores no given answer")

    model = RemoteModel(serve(Writes())[1], 0)
    assert model.generate("a") == "a!"
    assert model.generate_many(["a", "b"]) == ["a!", "b!"]
    with pytest.raises(ValueError, match="scores no given answer"):
        model.try_scoring()


def test_what_a_model_masks_itself_travels_once_and_is_forgotten(serve: Any) -> None:
    server, contact = serve(Renders())
    model = RemoteModel(contact, 0)
    assert model.encode_inputs(lambda masks, level: None) is None
    [guest] = server.guests
    for seed in range(20):
        batch = rows(inputs(1, seed)[0])
        inputs_of = batch.pieces[0].inputs
        assert model.encode_inputs(inputs_of) is inputs_of
        answers = [model.launch(batch), model.launch(batch)]
        for answer in answers:
            np.testing.assert_array_equal(answer(), Renders()(batch))
        assert len(guest.inputs) <= 2
        assert len(model._numbers) == 1
        del batch, inputs_of, answers, answer
        gc.collect()
    assert len(model._pending) == 0
    assert len(server.waiting) == 0


def test_photos_are_segmented_where_the_gpu_is(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def label_maps(images: Any, segment: str, options: Any) -> Any:
        calls.append((len(images), segment, dict(options)))
        return [image[..., 0] + options["add"] for image in images]

    monkeypatch.setattr(_segmenting, "label_maps", label_maps)
    monkeypatch.setattr(_segmenting, "elsewhere", None)
    server, contact = serve(len)
    connected(contact, 0)
    assert _segmenting.elsewhere is None  # without a GPU workers do it themselves
    server.has_gpu = True
    connected(contact, 0)
    photos = [np.full((2, 2, 3), k) for k in range(3)]
    for k, labels in enumerate(_segmenting.elsewhere(photos, "slic", {"add": 10})):
        np.testing.assert_array_equal(labels, np.full((2, 2), k + 10))
    assert calls == [(3, "slic", {"add": 10})]


def test_an_error_brings_along_what_was_answered(serve: Any) -> None:
    class Half(RuntimeError):
        def __init__(self, partial: Any, reason: str) -> None:  # which pickle cannot call
            super().__init__(reason)
            self.partial = partial

    def model(batch: np.ndarray) -> np.ndarray:
        raise Half(np.array([1.0, np.nan]), "the server went away")

    _, contact = serve(model)
    with pytest.raises(RuntimeError, match="the server went away") as caught:
        RemoteModel(contact, 0)(np.zeros((2, 3)))
    np.testing.assert_array_equal(caught.value.partial, [1.0, np.nan])  # type: ignore[attr-defined]


def test_masked_inputs_that_cannot_travel_are_told_so(serve: Any) -> None:
    _, contact = serve(len)
    with pytest.raises(TypeError, match="cannot be sent to the model's process"):
        RemoteModel(contact, 0)([lambda: None])


def test_whoever_has_no_key_is_not_let_in(serve: Any) -> None:
    _, contact = serve(len)
    stranger = Contact(contact.folder, run=contact.run)
    assert stranger.connect(0) is None
    assert RemoteModel(contact, 0)([1]) == [[1.0]]


def test_an_answer_that_cannot_be_sent_is_asked_for_again(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _, contact = serve(half)
    model = RemoteModel(replace(contact, patience=600.0), 0)
    assert model([1]) == [[0.5]]
    send_bytes, failures = Connection.send_bytes, [errno.ENOBUFS]

    def sent(pipe: Connection, message: bytes) -> None:
        if failures and threading.current_thread().name == "c2fa-write":
            raise OSError(failures.pop(), "no room")
        send_bytes(pipe, message)

    monkeypatch.setattr(Connection, "send_bytes", sent)
    got: list[Any] = []
    asking = threading.Thread(target=lambda: got.append(model([2]).tolist()), daemon=True)
    asking.start()
    asking.join(30)
    assert got == [[[0.5]]]
    assert not failures


def test_a_model_that_never_comes_up_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "_FIRST_SECONDS", 0.2)
    with pytest.raises(WorkerError, match=r"no process with the model came up in 0\.3 s: see that it loads"):
        RemoteModel(Contact(str(tmp_path), patience=0.1), 0)


def serve_for_ever(contact: Contact) -> None:
    Serving(lambda: half, contact).start(0).run()


def half(batch: list[Any]) -> list[float]:
    return [0.5] * len(batch)


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="processes cannot be stopped here")
def test_a_model_that_is_stopped_is_waited_for_as_long_as_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contacts, "_GREETING_SECONDS", 0.5)
    contact = Contact(str(tmp_path), patience=0.2)
    process = multiprocessing.get_context("spawn").Process(target=serve_for_ever, args=(contact,))
    process.start()
    try:
        model = RemoteModel(contact, 0)
        assert model([1]) == [[0.5]]
        os.kill(process.pid or 0, signal.SIGSTOP)
        for batch in ([1], ["x" * (1 << 22)]):  # one that is sent at once, and one that is not
            with pytest.raises(ConnectionError, match=r"is gone or stopped, and none came back in 0\.2 s"):
                model(batch)
        os.kill(process.pid or 0, signal.SIGCONT)
        assert model([1]) == [[0.5]]
    finally:
        process.kill()
        process.join()
    contact.clear()


@pytest.mark.slow
@needs_proc
def test_a_model_that_is_stopped_for_good_ends_the_run(tmp_path: Path) -> None:
    made, pids = tmp_path / "made", []

    def stop() -> None:
        while not list((tmp_path / "s").glob("part-*")):
            time.sleep(0.01)
        pids.append(int(lines(made)[0]))
        os.kill(pids[0], signal.SIGSTOP)

    stopping = threading.Thread(target=stop)
    stopping.start()
    settings = {"made": str(made), "delay": 0.05}
    with pytest.raises(ModelDownError, match=r"no longer answers.*gone or stopped, and none came back in 1 s"):
        around_one(recipe(**settings), inputs(200), tmp_path / "s", patience=1.0)
    stopping.join()
    assert not Path(f"/proc/{pids[0]}").exists()


def test_a_model_that_is_gone_is_waited_for_as_long_as_told(serve: Any, tmp_path: Path) -> None:
    server, contact = serve(lambda batch: [0.5] * len(batch))
    model = RemoteModel(contact, 0)
    model([1])
    server.stop()
    begin = time.monotonic()
    with pytest.raises(ConnectionError, match=r"none came back in 0\.2 s"):
        model([1])
    assert time.monotonic() - begin < 5
    with pytest.raises(ConnectionError):
        model([1])
    serve_again = Serving(lambda: lambda batch: [0.25] * len(batch), contact).start(0)
    thread = threading.Thread(target=serve_again.run)
    thread.start()
    assert model([1]) == [[0.25]]
    serve_again.stop()
    thread.join()

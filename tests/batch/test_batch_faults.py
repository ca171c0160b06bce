"""Faults that really happen: workers and drivers killed, a full disk, an endpoint that goes away, on every engine.

After each, every input has exactly one row, equal to that of an undisturbed run.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import c2fa
from batch_helpers import KILLS, RAISES, Model, explainer, inputs, make, repeated, same, side_files

pytest.importorskip("pyarrow")

from c2fa.batch import BatchError, Store, many

COUNT, SIZE = 120, 6
BUDGET, AFTER = 8 + 24, 16
# Where workers find this folder's helpers, and the c2fa that is tested.
SEARCH_PATH = os.pathsep.join([*map(str, Path(__file__).parents[:2]), *filter(None, [os.environ.get("PYTHONPATH")])])
pytestmark = pytest.mark.slow


def undisturbed(path: Path, count: int = COUNT) -> Store:
    return many(explainer(), inputs(count), path, engine="serial", shard_size=SIZE)


def children(pid: int) -> list[int]:
    """The workers of a driver: its children that run the spawn entry, not the resource tracker."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            with contextlib.suppress(OSError):
                if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                    found.append(int(child))
    return found


def driver(
    tmp_path: Path,
    *,
    engine: str = "processes",
    ledger: bool = False,
    delay: float = 0.02,
    count: int = COUNT,
    learn: tuple[int, ...] | None = None,
) -> subprocess.Popen[bytes]:
    log, store = tmp_path / "log", tmp_path / "s"
    kept = f", ledger={str(tmp_path / 'ledger.sqlite')!r}" if ledger else ""
    (tmp_path / "run.py").write_text(
        f"import sys\nsys.path.insert(0, {str(Path(__file__).parents[1])!r})\n"
        "from batch_helpers import Model, explainer, inputs\n"
        "from c2fa.batch import many\n"
        "if __name__ == '__main__':\n"
        f"    made = explainer(Model(delay={delay}, log={str(log)!r}){kept})\n"
        f"    many(made, inputs({count}), {str(store)!r}, engine={engine!r}, workers=2, shard_size={SIZE}, "
        f"learn={learn}, budget_after={None if learn is None else AFTER})\n"
    )
    environment = {**os.environ, "PYTHONPATH": SEARCH_PATH}
    return subprocess.Popen([sys.executable, str(tmp_path / "run.py")], env=environment)


def shards(store: Path) -> int:
    return len(list(store.glob("part-*.parquet")))


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds the workers in /proc")
@pytest.mark.parametrize("ledger", [False, True])
def test_workers_killed_twenty_times_at_random(
    tmp_path: Path, ledger: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = random.Random(1)
    count = 1000
    process = driver(tmp_path, ledger=ledger, delay=0.1, count=count)
    killed = 0
    while killed < 20 and process.poll() is None:
        time.sleep(rng.uniform(0.3, 3.0))
        workers = children(process.pid) if process.poll() is None else []
        if workers and (tmp_path / "log").exists():
            os.kill(rng.choice(workers), signal.SIGKILL)
            killed += 1
    assert process.wait(300) == 0
    store = Store.open(tmp_path / "s")
    same(undisturbed(tmp_path / "calm", count), store)
    assert side_files(store.path) == []
    again = repeated(tmp_path / "log", store)
    with capsys.disabled():
        print(f"\n{killed} workers killed, ledger {ledger}: {again} of {count * (BUDGET + 1)} queries repeated")
    assert killed == 20
    assert store.errors() == []
    if ledger:  # what was answered but not yet written when the kill came: one batch at most
        assert again <= killed * 64
    else:
        assert again <= killed * SIZE * (BUDGET + 1)


@pytest.mark.parametrize("ledger", [False, True])
def test_driver_killed_and_continued(tmp_path: Path, ledger: bool, capsys: pytest.CaptureFixture[str]) -> None:
    process = driver(tmp_path, ledger=ledger, delay=0.05)
    end = time.monotonic() + 60
    while shards(tmp_path / "s") < 4 and time.monotonic() < end:
        time.sleep(0.02)
    workers = children(process.pid)
    assert len(workers) == 2
    process.kill()
    process.wait()
    end = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in workers) and time.monotonic() < end:
        time.sleep(0.05)
    assert not [pid for pid in workers if Path(f"/proc/{pid}").exists()], "workers outlived their driver"
    assert 4 <= shards(tmp_path / "s") < COUNT // SIZE
    assert driver(tmp_path, ledger=ledger).wait(300) == 0
    store = Store.open(tmp_path / "s")
    same(undisturbed(tmp_path / "calm"), store)
    again = repeated(tmp_path / "log", store)
    with capsys.disabled():
        print(f"\ndriver killed, ledger {ledger}: {again} of {COUNT * (BUDGET + 1)} queries repeated")
    assert again <= (2 * 64 if ledger else 2 * SIZE * (BUDGET + 1))


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds the workers in /proc")
@pytest.mark.parametrize("ledger", [False, True])
def test_killed_in_the_second_stage_of_learning_and_continued(
    tmp_path: Path, ledger: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    learn, count = (24, 312, 324), 336
    first, second, third = (tmp_path / "s" / f"prior-{n}.json" for n in learn)
    rng, moments, log = random.Random(3), list[int](), tmp_path / "log"
    while len(moments) < 6:
        begun, asked = first.exists(), log.stat().st_size if log.exists() else 0
        done = max(shards(tmp_path / "s"), learn[0] // SIZE)
        process = driver(tmp_path, ledger=ledger, delay=0.2, count=count, learn=learn)
        end = time.monotonic() + 120
        while time.monotonic() < end:  # until the stage begins, then until it is asked about, or gets on
            waits_for_shards = len(moments) % 2 == 1
            if first.exists() and (shards(tmp_path / "s") > done if waits_for_shards else log.stat().st_size > asked):
                break
            time.sleep(0.005)
        time.sleep(rng.uniform(0.0, 2.0 if begun else 0.2))
        assert not second.exists(), "the second stage is over"
        moments.append(shards(tmp_path / "s"))
        workers = children(process.pid)
        process.kill()
        process.wait()
        end = time.monotonic() + 10
        while any(Path(f"/proc/{pid}").exists() for pid in workers) and time.monotonic() < end:
            time.sleep(0.05)
    assert driver(tmp_path, ledger=ledger, count=count, learn=learn).wait(300) == 0
    store = Store.open(tmp_path / "s")
    made = explainer(ledger=tmp_path / "calm.sqlite" if ledger else None)  # by which the prior names its model
    options = {"engine": "serial", "shard_size": SIZE, "learn": learn, "budget_after": AFTER}
    calm = many(made, inputs(count), tmp_path / "calm", **options)
    same(calm, store)
    for prior in (first, second, third):
        assert prior.read_bytes() == (calm.path / prior.name).read_bytes()
    assert side_files(store.path) == []
    again = repeated(tmp_path / "log", store)
    with capsys.disabled():
        print(f"\ndriver killed with {moments} shards, ledger {ledger}: {again} queries repeated")
    assert moments[-1] > moments[0]
    assert again <= len(moments) * 2 * (64 if ledger else SIZE * (BUDGET + 1))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a small tmpfs: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("engine", ["serial", "processes"])
def test_a_full_disk(tmp_path: Path, small_disk: Path, engine: str) -> None:
    calm = undisturbed(tmp_path / "calm")
    with pytest.raises(BatchError, match=r"No space left on device; \d+ inputs were written .* continues"):
        many(explainer(), inputs(COUNT), small_disk / "s", engine=engine, workers=2, shard_size=SIZE)
    store = Store.open(small_disk / "s")
    done = store.table(["index"])["index"].to_pylist()
    assert 0 < len(done) < COUNT
    for index in done:
        assert np.array_equal(store[index].low, calm[index].low)
    assert not list((small_disk / "s").glob("*.tmp"))
    subprocess.run(["mount", "-o", "remount,size=20m", str(small_disk)], check=True)
    same(calm, many(explainer(), inputs(COUNT), small_disk / "s", engine=engine, workers=2))


def test_an_endpoint_that_goes_away_for_ten_seconds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    away = threading.Event()
    calls = refused = 0

    class Endpoint(Model):
        def __call__(self, batch: np.ndarray) -> np.ndarray:
            nonlocal calls, refused
            calls += 1
            if calls == 10:
                away.set()
                threading.Timer(10.0, away.clear).start()
            if away.is_set():
                refused += 1
                raise ConnectionRefusedError(111, "Connection refused")
            return super().__call__(batch)

    made = explainer(Endpoint(log=str(tmp_path / "log")))
    begin = time.monotonic()
    store = many(made, inputs(COUNT), tmp_path / "s", engine="serial", shard_size=SIZE)
    assert time.monotonic() - begin > 10
    same(undisturbed(tmp_path / "calm"), store)
    again = repeated(tmp_path / "log", store)
    with capsys.disabled():
        print(f"\nendpoint away for 10 s: {refused} calls refused, {again} answered queries repeated")
    assert again <= 5  # the rows with which it was asked whether it is back


def _installed(name: str) -> None:
    module = {"dask": "distributed"}.get(name, name)
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{name} is not installed: pip install 'c2fa[{name}]'")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("engine", ["ray", "dask"])
def test_other_engines_give_what_serial_gives(tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _installed(engine)
    monkeypatch.setenv("PYTHONPATH", SEARCH_PATH)
    xs = inputs(COUNT)
    xs[7][0], xs[40][0] = RAISES, KILLS
    calm = inputs(COUNT)
    store = many(make, xs, tmp_path / "s", engine=engine, workers=2, shard_size=SIZE, tries=2)
    assert {f.index for f in store.errors()} == {7, 40}
    assert "the worker died while this input was explained alone (2 times)" in store.errors()[1].error
    clean = many(explainer(), calm, tmp_path / "calm", engine="serial", shard_size=SIZE)
    assert store.table(["index"])["index"].to_pylist() == list(range(COUNT))
    for i in set(range(COUNT)) - {7, 40}:
        assert np.array_equal(store[i].low, clean[i].low)
    with pytest.raises(Exception, match="must return a c2fa"):
        many(int, xs, tmp_path / "t", engine=engine, workers=1)  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("engine", ["ray", "dask"])
def test_workers_of_other_engines_killed(tmp_path: Path, engine: str, capsys: pytest.CaptureFixture[str]) -> None:
    _installed(engine)
    process = driver(tmp_path, engine=engine, delay=0.1)
    rng, killed = random.Random(2), 0
    mark = b"ray::_Actor" if engine == "ray" else b"spawn_main"
    while killed < 5 and process.poll() is None:
        time.sleep(rng.uniform(1.0, 2.0))
        workers = [pid for pid in _below(process.pid) if _is_worker(pid, mark, engine)]
        if workers and (tmp_path / "log").exists():
            with contextlib.suppress(ProcessLookupError):
                os.kill(rng.choice(workers), signal.SIGKILL)
                killed += 1
    assert process.wait(300) == 0
    store = Store.open(tmp_path / "s")
    same(undisturbed(tmp_path / "calm"), store)
    with capsys.disabled():
        print(f"\n{engine}: {killed} workers killed, {repeated(tmp_path / 'log', store)} queries repeated")
    assert killed >= 3


def _below(pid: int) -> list[int]:
    """All processes that descend from one, by their parents in /proc."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                parents.setdefault(parent, []).append(int(entry.name))
    found, todo = [], [pid]
    while todo:
        here = parents.get(todo.pop(), [])
        found += here
        todo += here
    return found


def _is_worker(pid: int, mark: bytes, engine: str) -> bool:
    """A Ray actor by its title; a Dask worker as a process that its nanny spawned."""
    with contextlib.suppress(OSError):
        return mark in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def test_the_ledger_of_a_killed_run_is_used(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.sqlite"
    first = explainer(Model(log=str(tmp_path / "log")), ledger=ledger)
    for x in inputs(4):
        first(x)
    second = explainer(Model(log=str(tmp_path / "log")), ledger=ledger)
    store = many(second, inputs(8), tmp_path / "s", workers=2, shard_size=2)
    assert repeated(tmp_path / "log", store) == 0
    assert store[0].diagnostics.recalled == store[0].queries
    assert isinstance(second.ledger, c2fa.Ledger)

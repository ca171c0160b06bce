"""A model that workers share, under attack: whoever has a part in a run is killed or stopped, and strangers come.

In each run a driver explains a dataset with two workers around one model. The model's process, a worker or the driver
is killed, or stopped for a while, and strangers without the key connect to the model: they say nothing, half a word,
rubbish, or send a pickle that leaves a trace where it is read. Beside these runs, models do what no model should to
some of their inputs: they end their process, eat all its memory, or answer another number of outputs.

    python -m benchmarks.faults.shared ray|dask [kills]

does the same to actors of Ray, or to workers of Dask.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import random
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.faults import toys
from benchmarks.faults.kills import Run, lines
from benchmarks.faults.tally import COUNTS, Tally, compare, in_processes
from benchmarks.queries.tables import Table

from c2fa.batch import many

_AT_ONCE = 2
_PER_RUN = 20
_PER_DEED = 15  # strikes for each run of a model that does what it should not
_INPUTS = 15  # for each strike: more than a run gets done before the last
_DEEDS = ("exits", "interrupts", "eats", "widens", "dies", "raises")
_COUNT = 24  # inputs of a run with such a model
_MEMORY = 3 << 30  # bytes that its process may take
_WINDOW = 2 * 2 * toys.BATCH  # rows under way: two batches of each worker


def campaign(seed: int, tries: int) -> Tally:
    """Strike so many times."""
    total = Tally("shared")
    runs = -(-tries // _PER_RUN)
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        for tally in threads.map(lambda number: attacked("shared", seed, number, -(-tries // runs)), range(runs)):
            total.add(tally)
    total.add(in_processes(misdeeds, "shared", seed, max(tries // _PER_DEED, 1), at_once=2))
    return total


# ------------------------------------------------------------------------------------------- who has a part in a run


def attacked(way: str, seed: int, number: int, strikes: int) -> Tally:
    """One run, struck so many times."""
    with tempfile.TemporaryDirectory(prefix="c2fa-shared-") as folder:
        run = _Shared(Path(folder), way, number % 2 == 0, f"{seed}/{number}", strikes * _INPUTS, campaign="shared")
        try:
            run.disturb(strikes)
            run.finish()
        finally:
            run.end()
        tally = run.judged()
        tally.note("leaked", "a stranger's pickle was read", f"run {run.seed}", (run.folder / "ran").exists())
        return tally


class _Shared(Run):
    """A driver with two workers around one model."""

    def _strike(self, driver: subprocess.Popen[bytes], rng: random.Random) -> None:
        log = lines(self.folder / "log")
        model = int(log[-1].split()[0]) if log else 0
        parts = _parts(driver.pid, self.way)
        workers = [pid for pid in parts if pid != model]
        whom = rng.choice(["model", "worker", "driver"] if self.way == "shared" else ["model", "worker"])
        pid = {"model": model, "worker": rng.choice(workers or [0]), "driver": driver.pid}[whom]
        how = rng.choice(["kill", "kill", "stop", "strangers"]) if self.way == "shared" else "kill"
        if how == "strangers":
            self._send_strangers(rng)
        elif pid not in (*parts, driver.pid):
            return
        elif how == "stop":
            self._kill(pid, signal.SIGSTOP)
            time.sleep(rng.uniform(0.1, 3.0))
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        elif whom == "driver":
            self._kill_driver(driver, signal.SIGKILL)
            self._wait(driver)
        else:
            self._kill(pid, signal.SIGKILL)

    def _send_strangers(self, rng: random.Random) -> None:
        """Have some connect to the model, say something, and stay for a while."""
        payload = pickle.dumps(_Ran(self.folder / "ran"))
        sayings = [b"", b"x" * 7, b"x" * 32, b"x" * 64, rng.randbytes(4096), b"x" * 64 + payload, payload]
        for file in (self.folder / "store").glob("_model-*[0-9]"):
            with contextlib.suppress(OSError, ValueError):
                address = json.loads(file.read_text())
                for said in sayings:
                    line = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET)
                    line.settimeout(5.0)
                    line.connect(address if isinstance(address, str) else tuple(address))
                    line.sendall(said)
                    threading.Timer(rng.uniform(0.0, 3.0), line.close).start()
        toys.append(self.folder / "killed", "0")

    def repeated(self, log: Sequence[str], killed: Sequence[int]) -> int:
        """Rows asked again beyond what each strike excuses: those under way, and without a ledger two shards."""
        rows = [row for line in log for row in line.split()[1:]]
        allowed = _WINDOW + (0 if self.ledger else 2 * toys.SHARD * (toys.ROWS + 1))
        return max(len(rows) - len(set(rows)) - (len(killed) + 1) * allowed, 0)


@dataclass(frozen=True)
class _Ran:
    """Leaves a file where it is unpickled."""

    file: Path

    def __reduce__(self) -> Any:
        return Path.touch, (self.file,)


def _parts(pid: int, way: str) -> list[int]:
    """The workers and models below a driver, on whichever engine."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            parents.setdefault(parent, []).append(int(entry.name))
    found, todo = [], [pid]
    while todo:
        here = parents.get(todo.pop(), [])
        todo += here
        for child in here:
            with contextlib.suppress(OSError):
                said = Path(f"/proc/{child}/cmdline").read_bytes()
                if (b"ray::_" if way == "ray" else b"spawn_main") in said:
                    found.append(child)
    return found


# ------------------------------------------------------------------------------------------- models that misbehave


@dataclass
class Hostile(toys.Model):
    """Does what it should not when it is asked about one input, in the process that has it alone."""

    deed: str = ""
    bad: int = 0

    def __call__(self, batch: toys.Floats) -> toys.Floats:
        outputs = super().__call__(batch)
        if not (batch[:, 0] == self.bad).any():
            return outputs
        if self.deed == "exits":
            sys.exit(3)
        if self.deed == "interrupts":
            raise KeyboardInterrupt
        if self.deed == "eats":
            resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
            return outputs + len([bytearray(1 << 26) for _ in range(1 << 10)])
        if self.deed == "widens":
            return outputs[:, [0, 1, 1]]
        if self.deed == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        raise ValueError("a poisoned row")


def misdeeds(seed: int, cases: Sequence[int]) -> Tally:
    """Runs with models that do what they should not; the bad input is to be set aside, and no other."""
    tally = Tally("shared")
    for case in cases:
        rng = random.Random(f"{seed}/{case}")
        deed, bad = _DEEDS[case % len(_DEEDS)], rng.randrange(_COUNT)
        said = f"--seed {seed} --only shared, case {case}: input {bad} {deed}"
        tally.tries += 1
        with tempfile.TemporaryDirectory(prefix="c2fa-shared-") as folder:
            model = Hostile(Path(folder), deed=deed, bad=bad)
            options: Any = {"workers": 2, "models": 1, "shard_size": toys.SHARD, "precision": "float64"}
            try:
                store = many(toys.explainer(model), toys.inputs(_COUNT), Path(folder) / "s", progress=False, **options)
            except Exception as error:
                tally.note("lost", f"{deed}: the run ended", f"{said}: {error}", _COUNT)
                continue
            failed = {failure.index: failure.error for failure in store.errors()}
            for index in failed.keys() - {bad}:
                tally.note("set aside", f"{deed}: a healthy input", f"{said}, input {index}: {failed[index]}")
            tally.note("silent", f"{deed}: the bad input is explained", said, bad not in failed)
            expected = {i: e for i, e in toys.truth(_COUNT).items() if i != bad and i not in failed}
            compare(tally, deed, {i: e for i, e in store.items() if i != bad}, expected, said)
            asked = [row for line in lines(Path(folder) / "log") for row in line.split()[1:]]
            tally.billed, tally.reported = tally.billed + len(asked), tally.reported + store.run.rows
            left = len(asked) - len(set(asked)) - 12 * _WINDOW  # what failed in batches and was sent alone, some times
            tally.note("doubled", f"{deed}: rows", said, max(left, 0))
    return tally


if __name__ == "__main__":
    made = attacked(sys.argv[1], 0, 1, int(sys.argv[2]) if len(sys.argv) > 2 else 20)
    print(*made.examples(), sep="\n")
    print(Table(f"Every count from {COUNTS[0]} to {COUNTS[-1]} should be 0", [{**made.row, "campaign": sys.argv[1]}]))
    sys.exit(int(made.failed))

"""Processes killed at random moments, a few hundred times: afterwards everything is there, and nothing was asked twice.

Several runs go on at once. In each, a driver explains a dataset with two workers, or one input after the other, with or
without a ledger. Workers and drivers are killed, drivers are started again, and once there were enough kills the run
ends in peace and is judged.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from benchmarks.faults import toys
from benchmarks.faults.tally import Tally, compare

import c2fa
from c2fa.batch import Store

Batch: TypeAlias = tuple[int, list[str]]
"""A process and the rows that it asked at once."""

_ROOT = Path(__file__).parents[2]
_AT_ONCE = 3
_PER_RUN = 28
_INPUTS = {"many": 15, "one": 5}  # for each kill: more than a run gets done before the last
_KINDS = (("many", True), ("many", False), ("one", True))  # what is run, and whether with a ledger
_PATIENCE = 300.0  # seconds that a driver may take for anything


def campaign(seed: int, tries: int) -> Tally:
    """Kill so many processes."""
    total = Tally("kills")
    runs = max(-(-tries // _PER_RUN), len(_KINDS))
    each = -(-tries // runs)
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        for tally in threads.map(lambda number: _one_run(seed, number, each), range(runs)):
            total.add(tally)
    return total


def _one_run(seed: int, number: int, kills: int) -> Tally:
    way, ledger = _KINDS[number % len(_KINDS)]
    with tempfile.TemporaryDirectory(prefix="c2fa-kills-") as folder:
        run = Run(Path(folder), way, ledger, f"{seed}/{number}", kills * _INPUTS[way])
        try:
            run.disturb(kills)
            run.finish()
        finally:
            run.end()
        return run.judged()


@dataclass
class Run:
    """A driver, started again as often as it is killed."""

    folder: Path
    way: str
    ledger: bool
    seed: str
    count: int
    driver: subprocess.Popen[bytes] | None = None
    stuck: bool = False
    campaign: str = "kills"

    def start(self) -> subprocess.Popen[bytes]:
        """The driver, a new one where the last has ended."""
        if self.driver is None or self.driver.poll() is not None:
            arguments = [str(self.folder), self.way, str(self.count), self.seed, *["--ledger"] * self.ledger]
            with (self.folder / "said").open("ab") as said:
                path = os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")])  # for workers of other engines
                self.driver = subprocess.Popen(
                    [sys.executable, "-m", "benchmarks.faults.driver", *arguments],
                    stdout=said,
                    stderr=said,
                    env={**os.environ, "PYTHONPATH": path},
                )
        return self.driver

    def disturb(self, kills: int) -> None:
        """Kill workers mostly, the driver at times, and ask it to end at others, until it was often enough.

        Most kills wait until something was asked since the last, or nobody would ever get further than its imports.
        """
        rng = random.Random(self.seed)
        asked, deadline = 0, time.monotonic() + _PATIENCE
        while len(lines(self.folder / "killed")) < kills and time.monotonic() < deadline:
            if self.driver is not None and self.driver.poll() == 0:
                return
            driver = self.start()
            if _size(self.folder / "log") == asked and rng.random() > 0.02:
                time.sleep(0.05)
                continue
            time.sleep(rng.uniform(0.0, 1.2))
            self._strike(driver, rng)
            asked, deadline = _size(self.folder / "log"), time.monotonic() + _PATIENCE

    def _strike(self, driver: subprocess.Popen[bytes], rng: random.Random) -> None:
        workers, chance = children(driver.pid), rng.random()
        if workers and chance < 0.8:
            asked = {int(line.split()[0]) for line in lines(self.folder / "log")}
            busy = [pid for pid in workers if pid in asked and chance < 0.7]  # rather than one that still imports
            self._kill(rng.choice(busy or workers), signal.SIGKILL)
        elif chance < 0.9 or self.way == "one":
            deadly = [signal.SIGKILL, signal.SIGTERM, signal.SIGINT][: 1 if self.way == "many" else 3]
            self._kill_driver(driver, rng.choice(deadly))
            self._wait(driver)
        else:  # the shards under way are to be finished, so that no row of theirs may be asked again
            driver.send_signal(rng.choice([signal.SIGTERM, signal.SIGINT]))
            self._wait(driver)

    def _kill_driver(self, driver: subprocess.Popen[bytes], number: int) -> None:
        for pid in children(driver.pid):  # they die with it
            toys.append(self.folder / "orphans", str(pid))
        self._kill(driver.pid, number)

    def _kill(self, pid: int, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
            toys.append(self.folder / "killed", str(pid))

    def _wait(self, driver: subprocess.Popen[bytes]) -> None:
        try:
            driver.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self.stuck = True
            self._kill_driver(driver, signal.SIGKILL)

    def finish(self) -> None:
        """Let it come to its end in peace; a driver that was just killed is started once more."""
        (self.folder / "calm").touch()
        for _ in range(3):
            driver = self.start()
            self._wait(driver)
            if driver.returncode == 0:
                return

    def end(self) -> None:
        """Leave no process behind."""
        if self.driver is not None and self.driver.poll() is None:
            self.driver.kill()
            self.driver.wait()

    def judged(self) -> Tally:
        """Count what is missing, set aside or different, what was asked again, and which errors were raw."""
        kind = f"{self.way} {'with' if self.ledger else 'without'} a ledger"
        case = f"run {self.seed} of --only {self.campaign}"
        killed = [int(pid) for pid in lines(self.folder / "killed")]
        log = lines(self.folder / "log")
        tally = Tally(self.campaign, tries=len(killed), billed=sum(len(line.split()) - 1 for line in log))
        expected = toys.truth(self.count)
        found, failed = self._results()
        tally.reported = sum(e.queries for e in found.values())
        compare(tally, kind, found, {i: e for i, e in expected.items() if i not in failed}, case)
        for index, reason in failed.items():
            tally.note("set aside", f"{kind}: a healthy input", f"{case}, input {index}: {reason}")
        tally.note("lost", f"{kind}: a driver that did not end", case, int(self.stuck))
        tally.note("doubled", f"{kind}: rows", case, self.repeated(log, killed))
        for line in lines(self.folder / "errors"):
            clear, where, message = line.split("\t")
            tally.note("raw", f"{kind}: {where}", f"{case}: {message}", clear == "False")
        return tally

    def repeated(self, log: Sequence[str], killed: Sequence[int]) -> int:
        """Rows that were asked again although no kill excuses it."""
        return repeated(log, {*killed, *map(int, lines(self.folder / "orphans"))}, self.ledger)

    def _results(self) -> tuple[dict[int, c2fa.Explanation], dict[int, str]]:
        if self.way != "one":
            store = Store.open(self.folder / "store")
            return dict(store.items()), {failure.index: failure.error for failure in store.errors()}
        found, failed = {}, {}
        for file in (self.folder / "saved").glob("[0-9]*"):  # others were being written at a kill
            try:
                found[int(file.stem)] = c2fa.load(file)
            except ValueError as error:  # half a file
                failed[int(file.stem)] = str(error)
        return found, failed


def repeated(log: Sequence[str], killed: set[int], ledger: bool) -> int:
    """Rows asked again although no kill excuses it; a line of the log is a process and the rows of one batch.

    With a ledger, what a killed process may take with it is its last batch. Without one it is the shard that it was at.
    For each kill the model may be asked one prediction again, alone, to see that it answers before an input is blamed.
    """
    batches = _without_canaries([(int(pid), rows) for pid, *rows in map(str.split, log)], len(killed))
    last = {pid: number for number, (pid, _) in enumerate(batches)}
    asked: dict[str, int] = {}
    again = 0
    for number, (_, rows) in enumerate(batches):
        for row in rows:
            before = asked.get(row)
            if before is not None:
                pid = batches[before][0]
                excused = before == last[pid] if ledger else _shard(row) == _shard(batches[last[pid]][1][0])
                again += not (excused and pid in killed)
            asked[row] = number
    return again


def _without_canaries(batches: Sequence[Batch], most: int) -> list[Batch]:
    """The batches but for some predictions that are asked again, alone."""
    found, asked = [], set()
    for pid, rows in batches:
        if most and len(rows) == 1 and rows[0] in asked and rows[0].endswith(toys.UNMASKED):
            most -= 1
        else:
            found.append((pid, rows))
        asked.update(rows)
    return found


def _shard(row: str) -> int:
    return int(row.partition(":")[0]) // toys.SHARD


def lines(file: Path) -> list[str]:
    """The lines of a file that may not be there."""
    return file.read_text().splitlines() if file.exists() else []


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def children(pid: int) -> list[int]:
    """The workers of a driver: its children that run the spawn entry, not the resource tracker."""
    found = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                    found.append(int(child))
    return found

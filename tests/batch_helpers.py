"""Models and inputs of the batch tests; importable, so that workers of every kind find them."""

from __future__ import annotations

import hashlib
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np
import numpy.typing as npt

import c2fa
from c2fa.batch import Store

KILL = getattr(signal, "SIGKILL", signal.SIGTERM)  # Windows ends a process by either
LEAVES = 12
STRUCTURE = c2fa.Structure.from_groups("aaabbbcccddd", names=[f"x{i}" for i in range(LEAVES)])
WEIGHTS = np.linspace(-1.0, 2.0, LEAVES)
# In the first entry of an input: what it does to the model.
RAISES, KILLS, STALLS, NAN, TIRES, EXITS, INTERRUPTS, WIDENS, LACKS = (1e3 * k for k in range(1, 10))


@dataclass
class Model:
    """Two outputs by one sum for each row, so that a row's answer never depends on its batch."""

    log: str | None = None
    delay: float = 0.0
    name: str = "batch-test"
    down: str | None = None  # a file: while it exists, the model answers nothing
    hangs: str | None = None  # a file: while it exists, the model never comes back
    tireless: bool = False  # else a process dies after two batches with an input that tires
    tired: int = 0

    def __call__(self, batch: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        if self.down is not None and os.path.exists(self.down):
            raise ConnectionRefusedError(111, "Connection refused")
        if self.hangs is not None and os.path.exists(self.hangs):
            time.sleep(600)
        marks = batch[:, 0]
        if (marks == RAISES).any():
            raise ValueError("a poisoned row")
        if (marks == KILLS).any():
            os.kill(os.getpid(), KILL)
        if (marks == TIRES).any() and not self.tireless:
            self.tired += 1
            if self.tired > 2:
                os.kill(os.getpid(), KILL)
        if (marks == STALLS).any():
            time.sleep(600)
        if (marks == LACKS).any():
            import_module("a_package_that_nobody_has")
        if np.isin(marks, (EXITS, INTERRUPTS)).any():
            self._write_down(batch)
            raise SystemExit(3) if (marks == EXITS).any() else KeyboardInterrupt
        if self.delay:
            time.sleep(self.delay)
        score = np.sin((batch * WEIGHTS).sum(axis=1))
        score[marks == NAN] = np.nan
        self._write_down(batch)
        return np.stack([score, -score, *[score] * int((marks == WIDENS).any())], axis=1)

    def _write_down(self, batch: npt.NDArray[np.float64]) -> None:
        if self.log is not None:
            lines = "".join(hashlib.sha1(row.tobytes()).hexdigest() + "\n" for row in batch)
            handle = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            os.write(handle, lines.encode())
            os.close(handle)


def inputs(count: int, seed: int = 0) -> list[npt.NDArray[np.float64]]:
    return list(np.random.default_rng(seed).normal(size=(count, LEAVES)))


def explainer(model: Model | None = None, **options: object) -> c2fa.Explainer:
    settings = {"budget": (8, 24), "progress": False, **options}
    return c2fa.Explainer(model or Model(), c2fa.maskers.Array(STRUCTURE), **settings)


def make() -> c2fa.Explainer:
    return explainer()


def numbers(store: Store, index: int) -> list[npt.NDArray[np.float64]]:
    e = store[index]
    return [e.outputs, *e.all_values, *(e.all_stderr or ()), *e.all_intercepts]


def same(one: Store, other: Store) -> None:
    """Every input has exactly one row, and it is the same in both stores to the last bit."""
    places = one.table(["index"])["index"].to_pylist()
    assert places == list(range(len(places)))
    assert places == other.table(["index"])["index"].to_pylist()
    columns = [c for c in one.table().column_names if c not in ("sent", "recalled", "cost", "view")]
    a, b = one.table(columns).to_pylist(), other.table(columns).to_pylist()
    for left, right in zip(a, b, strict=True):
        for name in left:
            assert repr(left[name]) == repr(right[name]), f"{name} of input {left['index']} differs"


def repeated(log: Path, store: Store) -> int:
    """How many more rows the model answered than the explanations in the store took."""
    return len(log.read_text().split()) - sum(q or 0 for q in store.table(["queries"])["queries"].to_pylist())


def side_files(folder: Path) -> Sequence[str]:
    return sorted(p.name for p in folder.iterdir() if p.name.startswith(("_", ".")))

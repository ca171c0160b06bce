"""A small dataset and a cheap model that writes down every row it is asked."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import c2fa

Floats = npt.NDArray[np.float64]

LEAVES, BATCH, SHARD, ROWS = 12, 16, 6, 32
STRUCTURE = c2fa.Structure.from_groups("aaabbbcccddd")
UNMASKED = np.packbits(np.ones(LEAVES, dtype=bool)).tobytes().hex()  # as the log writes an input itself
_WEIGHTS = np.linspace(-1.0, 2.0, LEAVES)


def inputs(count: int) -> list[Floats]:
    """Vectors that begin with their own number, which no mask hides: the model knows which input a row belongs to."""
    values = np.random.default_rng(0).normal(size=(count, LEAVES))
    return list(np.column_stack([np.arange(count), values]))


def rows(x: Floats, masks: npt.NDArray[np.bool_], level: int) -> Floats:
    """The number of the input, then its values, 0 where they are masked."""
    on = STRUCTURE.expand(masks, level)
    return np.column_stack([np.full(len(on), x[0]), np.where(on, x[1:], 0.0)])


MASKER = c2fa.maskers.Custom(STRUCTURE, rows)


@dataclass
class Model:
    """Two outputs, by one sum for each row, so that an answer never depends on its batch.

    ``folder`` is where ``log`` gets a line for each batch, before it is answered: the process and its rows. The model
    is slow until the folder has a file ``calm``.
    """

    folder: Path | None = None
    delay: float = 0.0
    asked: int = 0
    name: str = "toy"

    def __call__(self, batch: Floats) -> Floats:
        self.asked += len(batch)
        if self.folder is not None:
            names = [f"{int(row[0])}:{np.packbits(row[1:] != 0).tobytes().hex()}" for row in batch]
            append(self.folder / "log", " ".join([str(os.getpid()), *names]))
            time.sleep(0.0 if (self.folder / "calm").exists() else self.delay)
        score = np.sin((np.ascontiguousarray(batch[:, 1:]) * _WEIGHTS).sum(axis=1))
        return np.stack([score, -score], axis=1)


def append(file: Path, line: str) -> None:
    """Add a line in one write, which is whole whoever else writes, and whoever is killed."""
    handle = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, f"{line}\n".encode())
    os.close(handle)


def explainer(model: Any = None, **options: Any) -> c2fa.Explainer:
    """Ask 32 rows for each input."""
    settings = {"budget": (8, 24), "batch_size": BATCH, "progress": False, **options}
    return c2fa.Explainer(Model() if model is None else model, MASKER, **settings)


@cache
def truth(count: int) -> Mapping[int, c2fa.Explanation]:
    """What an undisturbed run says of every input."""
    explain = explainer()
    return {i: explain(x) for i, x in enumerate(inputs(count))}

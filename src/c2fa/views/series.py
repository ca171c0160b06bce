"""A recording as an explanation keeps it: its channels, and where windows begin."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from c2fa.asking.masking import View
from c2fa.showing.numbers import scaled
from c2fa.structure import FloatArray, IntArray, Structure


@dataclass(frozen=True, eq=False)
class Series(View):
    """A recording, (channels, steps), and the first step of each window.

    ``order`` says what the parts are: channels that hold windows, or windows that hold channels.
    """

    kind = "series"
    called = ("channels", "windows")

    values: npt.NDArray[Any]
    starts: IntArray
    order: str = "channels"

    def check(self, structure: Structure) -> None:
        """Refuse windows that are not the leaves."""
        super().check(structure)
        if self.values.ndim != 2 or len(self.values) * len(self.starts) != structure.leaves:
            raise ValueError(
                f"the view has a recording of shape {self.values.shape} in {len(self.starts)} windows, and there are "
                f"{structure.leaves} leaves"
            )

    def grid(self, leaves: FloatArray) -> FloatArray:
        """What leaves have, as (channels, windows)."""
        channels = len(self.values)
        return leaves.reshape(channels, -1) if self.order == "channels" else leaves.reshape(-1, channels).T

    def contents(self, structure: Structure, level: int) -> list[Any] | None:
        """The mean of each window over the steps that it has, in the order of the leaves."""
        if level < structure.depth - 1:
            return None
        series = self.values.astype(np.float64)
        known = np.isfinite(series)
        total = np.add.reduceat(np.where(known, series, 0.0), self.starts, axis=1)
        count = np.add.reduceat(known, self.starts, axis=1, dtype=np.float64)
        means = np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
        return (means if self.order == "channels" else means.T).ravel().tolist()

    def page(self, structure: Structure, side: int, most: int = 600) -> dict[str, Any]:
        """The recording, each channel from 0 to 1, at ``most`` steps."""
        drawn = scaled(self.values.astype(np.float64))
        channels, steps = drawn.shape
        at = np.arange(steps)
        if steps > most:  # in each stretch the step that stands out most, so that peaks stay
            there = np.isfinite(drawn).sum(axis=1, keepdims=True)
            mean = np.nansum(drawn, axis=1, keepdims=True) / np.maximum(there, 1)
            away = np.abs(np.nan_to_num(drawn - mean)).max(axis=0)
            edges = (np.arange(most + 1) * steps // most).tolist()
            at = np.array([a + int(away[a:b].argmax()) for a, b in pairwise(edges)])
        return {
            "channels": channels,
            "steps": steps,
            "starts": self.starts,
            "order": self.order,
            "at": at,
            "lines": np.round(drawn[:, at], 3),
        }

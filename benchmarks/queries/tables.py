"""Numbers with intervals, targets, and tables in which the columns stand under each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from c2fa.evaluation import bootstrap


@dataclass(frozen=True)
class Estimate:
    """A mean with its 95 % interval; ``spread`` is the standard deviation of the means of the seeds."""

    mean: float
    low: float
    high: float
    spread: float = float("nan")
    digits: int = 3

    @classmethod
    def of(cls, values: npt.ArrayLike, digits: int = 3) -> Estimate:
        """From one number for each input and seed, (inputs, seeds); inputs are drawn anew, each with all its seeds.

        >>> Estimate.of([[1.0, 3.0], [1.0, 3.0]])
        Estimate(mean=2.0, low=2.0, high=2.0, spread=1.4142135623730951, digits=3)
        """
        table = np.asarray(values, dtype=np.float64)
        table = table[:, None] if table.ndim == 1 else table
        table = table[np.isfinite(table).all(axis=1)]
        if not len(table):
            return cls(*(float("nan"),) * 4, digits=digits)
        low, high = bootstrap(table.mean(axis=1)) if len(table) > 1 else (float("nan"),) * 2
        spread = float(table.mean(axis=0).std(ddof=1)) if table.shape[1] > 1 else float("nan")
        return cls(float(table.mean()), low, high, spread, digits)

    def __str__(self) -> str:
        d = self.digits
        if not np.isfinite(self.mean):
            return "–"
        said = f"{self.mean:.{d}f}" + (f" [{self.low:.{d}f}, {self.high:.{d}f}]" if np.isfinite(self.low) else "")
        return f"{said} ± {self.spread:.{d}f}" if np.isfinite(self.spread) else said


@dataclass(frozen=True)
class Target:
    """What a number should be: from ``least`` to ``most``, either of which may be open.

    >>> print(Target(least=0.9)), print(Target(least=0.93, most=0.97)), print(Target(most=10, unit=" ms"))
    ≥ 0.9
    0.93 to 0.97
    ≤ 10 ms
    (None, None, None)
    """

    least: float = -np.inf
    most: float = np.inf
    unit: str = ""

    def __str__(self) -> str:
        if np.isfinite(self.least) and np.isfinite(self.most):
            return f"{self.least:g} to {self.most:g}{self.unit}"
        return f"≥ {self.least:g}{self.unit}" if np.isfinite(self.least) else f"≤ {self.most:g}{self.unit}"

    def holds(self, value: float) -> bool:
        """Whether one number is within the target."""
        return bool(self.least <= value <= self.most)

    def verdict(self, found: Estimate) -> str:
        """Reached or missed by the mean, and "within chance" where the interval is not all on the same side or unknown.

        >>> Target(least=0.9).verdict(Estimate(0.91, 0.89, 0.93)), Target(least=0.9).verdict(Estimate(0.8, 0.7, 0.85))
        ('reached, within chance', 'missed')
        """
        if not np.isfinite(found.mean):
            return "not measured"
        reached = self.holds(found.mean)
        ends = self.holds(found.low), self.holds(found.high)
        # An interval that reaches over a target with two ends misses it at both, and yet may be centred on it.
        sure = all(ends) if reached else not any(ends) and not found.low < self.least < found.high
        sure &= not np.isnan([found.low, found.high]).any()
        return ("reached" if reached else "missed") + ("" if sure else ", within chance")


Cell: TypeAlias = Estimate | float | int | str | None


@dataclass
class Table:
    """A title, rows that name their cells, and what is to be said below."""

    title: str
    rows: list[Mapping[str, Cell]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        if not self.rows:
            return "\n".join([self.title, *(f"  {note}" for note in self.notes)])
        columns = list(dict.fromkeys(name for row in self.rows for name in row))
        cells = [columns, *([_text(row.get(name)) for name in columns] for row in self.rows)]
        widths = [max(len(line[k]) for line in cells) for k in range(len(columns))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in cells]
        return "\n".join([self.title, *(f"  {line.rstrip()}" for line in lines), *(f"  {n}" for n in self.notes)])

    def plain(self) -> dict[str, Any]:
        """The table as JSON can hold it, with all digits."""
        rows = [{name: _plain(cell) for name, cell in row.items()} for row in self.rows]
        return {"title": self.title, "rows": rows, "notes": self.notes}


def _text(cell: Cell) -> str:
    if cell is None:
        return "–"
    return f"{cell:.3g}" if isinstance(cell, float) else str(cell)


def _plain(cell: Cell) -> Any:
    if isinstance(cell, Estimate):
        return {name: _number(getattr(cell, name)) for name in ("mean", "low", "high", "spread")}
    return _number(cell) if isinstance(cell, float) else cell


def _number(value: float) -> float | str | None:
    """JSON has no infinity: it is written out; what is not a number is null."""
    return None if np.isnan(value) else float(value) if np.isfinite(value) else "infinite"


def resampled(n: int, draws: int = 2000) -> npt.NDArray[np.float64]:
    """Weights of n inputs in each of many resamples, (draws, n), each row adding up to one."""
    counts = np.random.default_rng(0).multinomial(n, np.full(n, 1.0 / n), size=draws)
    return counts / n


def interval(values: npt.ArrayLike) -> tuple[float, float]:
    """The middle 95 % of resampled values, some of which may be infinite."""
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    return float(ordered[int(0.025 * len(ordered))]), float(ordered[int(0.975 * len(ordered))])


def left_out(notes: Sequence[str]) -> list[str]:
    """Lines for what could not be run."""
    return [f"left out: {note}" for note in notes]

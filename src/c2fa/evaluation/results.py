"""The result of an evaluation: a folder that keeps finished inputs, a tidy table, its summary and curves."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from c2fa._system import atomic
from c2fa.asking.fingerprint import fingerprint
from c2fa.asking.ledger import Ledger
from c2fa.engines import Loads
from c2fa.showing.codec import seal, unseal
from c2fa.structure import FloatArray

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Size: TypeAlias = int | tuple[int, ...]
"""Rows in all, the prediction's among them; or the masks of each level, the prediction's row on top."""
Record: TypeAlias = dict[str, Any]
"""What is kept of an input: its levels' names, its rows, what they cost, runs that were refused, notes, and scores.

A score is (run, metric, level, value).
"""


class Store:
    """Finished inputs, one file of JSON each: an input is finished if and only if its file exists.

    Files of one grid lie in a folder that is named by a hash of its settings. Another grid begins another folder, on
    the same ledger, so that no question is repeated there either. Several processes may use one store.
    """

    def __init__(self, folder: str | os.PathLike[str], settings: str, keep_answers: bool = True) -> None:
        self.folder = Path(folder) / f"results-{settings[:12]}"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.ledger = Ledger(Path(folder) / "answers.sqlite") if keep_answers else None

    def read(self, cell: str) -> Record | None:
        """What is kept of an input; None where it is not finished, or its file is damaged and is to be made anew."""
        path = self._path(cell)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            return unseal(json.loads(data))
        except (ValueError, RecursionError) as error:
            warnings.warn(
                f"{path} is damaged ({error}): its input counts as not finished, and the same call does it again",
                stacklevel=2,
            )
            return None

    def write(self, cell: str, record: Record) -> None:
        """Keep a finished input; it is on the disk when this returns."""
        with atomic(self._path(cell)) as file:
            file.write(json.dumps(seal(record)).encode())

    def close(self) -> None:
        if self.ledger is not None:
            self.ledger.close()

    def _path(self, cell: str) -> Path:
        return self.folder / f"{fingerprint(cell)[:32]}.json"


@dataclass(frozen=True)
class RowCount:
    """Model rows: shared as they were, and what every run by itself would have used.

    ``sent`` are those sent by this call; the rest were in the store.
    """

    explaining: int
    explaining_alone: int
    scoring: int
    scoring_alone: int
    sent: int

    @classmethod
    def total(cls, counts: Sequence[Mapping[str, int]]) -> RowCount:
        return cls(**{f.name: sum(count[f.name] for count in counts) for f in fields(cls)})

    def __str__(self) -> str:
        return (
            f"{self.explaining:,} model rows for explanations (separate runs: {self.explaining_alone:,}) and "
            f"{self.scoring:,} more for scores (separately: {self.scoring_alone:,}); {self.sent:,} sent now"
        )


@dataclass(frozen=True, eq=False)
class Result:
    """The scores of an evaluation, and what they cost.

    Attributes
    ----------
    frame
        Tidy: method, the masks N_H and N_L (N_0, N_1, … for other depths; N, the rows in all, for budgets in one
        number), seed, input, metric, level, value.
    methods
        Their labels, in the order given.
    reference
        The method to which ``summary`` compares.
    rows
        The model rows that it cost.
    higher_is_better
        For each metric, which way it points.
    notes
        What was left out, and why.
    level_names
        What the levels are called, coarse to fine.
    whole
        The metrics that are of the whole explanation, and not of one level.
    cost
        What the model charged for the rows that were sent now, in its own unit; 0 where it charges nothing.
    loads
        How busy the processes were that own the model, by name; empty without such processes.
    """

    frame: pd.DataFrame
    methods: tuple[str, ...]
    reference: str
    rows: RowCount
    higher_is_better: Mapping[str, bool | None]
    notes: tuple[str, ...] = ()
    level_names: tuple[str, ...] = ()
    whole: frozenset[str] = frozenset()
    cost: float = 0.0
    loads: Loads = field(default_factory=Loads)

    @property
    def budgets(self) -> list[str]:
        """The columns that hold the budget."""
        return [str(c) for c in self.frame.columns if str(c).startswith("N")]

    def summary(self, *, confidence: float = 0.95, resamples: int = 2000, seed: int = 0) -> pd.DataFrame:
        """One row for each method, budget, metric and level.

        ``mean`` over inputs and seeds; ``std`` of the seeds' means, as the paper's error bars; ``difference`` to the
        reference with a paired bootstrap interval, ``low`` to ``high``: inputs are drawn with replacement, each with
        its own difference, averaged over seeds. Inputs whose score is undefined for either method are left out.
        """
        import pandas as pd

        rows = []
        cell = [*self.budgets, "metric", "level"]
        for at, group in self.frame.groupby(cell, sort=False):
            per_input = group.pivot_table("value", "input", "method", aggfunc="mean", sort=False)
            per_seed = group.groupby(["method", "seed"], sort=False)["value"].mean()
            for method in group["method"].unique():
                row: dict[str, Any] = {"method": method, **dict(zip(cell, at, strict=True))}
                row["higher_is_better"] = self.higher_is_better[str(row["metric"])]
                seeds = per_seed[method].to_numpy(dtype=np.float64)
                scores = group.loc[group["method"] == method, "value"]
                row["mean"], row["inputs"] = float(scores.mean()), 0
                row["std"] = float(seeds.std(ddof=1)) if len(seeds) > 1 else float("nan")
                low = high = middle = float("nan")
                if method in per_input and self.reference in per_input:
                    row["inputs"] = int(per_input[method].notna().sum())
                    gap = (per_input[method] - per_input[self.reference]).dropna().to_numpy(dtype=np.float64)
                    if len(gap):
                        middle = float(gap.mean())
                        low, high = bootstrap(gap, confidence=confidence, resamples=resamples, seed=seed)
                rows.append({**row, "difference": middle, "low": low, "high": high})
        order = ["method", *cell, "higher_is_better", "mean", "std", "inputs", "difference", "low", "high"]
        table = pd.DataFrame(rows, columns=order)
        methods = {name: k for k, name in enumerate(self.methods)}
        return table.sort_values(
            ["metric", "level", "method", *self.budgets],
            key=lambda column: column.map(methods) if column.name == "method" else column,
            ignore_index=True,
        )

    def label(self, metric: str, level: int) -> str:
        """A metric with the level that it is of, as people read it: ``deletion (words)``."""
        return metric if metric in self.whole else f"{metric} ({self._level(level)})"

    def _level(self, level: int) -> str:
        return self.level_names[level] if level < len(self.level_names) else f"level {level}"

    def to_text(self, **options: Any) -> str:
        """The summary as a plain table, with the rows it cost and what was left out."""
        table = self.summary(**options)
        table["metric"] = [self.label(*cell) for cell in zip(table["metric"], table.pop("level"), strict=True)]
        lines = [table.to_string(index=False, float_format=lambda v: f"{v:.4f}"), str(self.rows), *self.notes]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.to_text()

    def plot(self, metric: str, *, level: int | None = None) -> Figure:
        """Draw a metric over the leaves' budget, one line a method, with the seeds' standard deviation as error bars.

        Each value of the other levels' budgets has a row of panels, and each level of the metric a column; ``level``
        draws one of them alone.
        """
        from c2fa.plots._style import figure
        from c2fa.plots.curves import scores

        table = self.summary(resamples=1)
        table = table[table["metric"] == metric]
        if level is not None:
            table = table[table["level"] == level]
        if table.empty:
            raise ValueError(f"nothing to draw of {metric!r}: the metrics are {', '.join(self.higher_is_better)}")
        *fixed, across = self.budgets
        panels = table[fixed].drop_duplicates().to_dict("records") if fixed else [{}]
        levels = sorted(table["level"].unique())
        made = figure(5.6 * len(levels), 3.4 * len(panels))
        axes = made.subplots(len(panels), len(levels), squeeze=False)
        better = {True: "higher", False: "lower", None: None}[self.higher_is_better[metric]]
        for row, panel in zip(axes, panels, strict=True):
            for axis, depth in zip(row, levels, strict=True):
                part = table[table["level"] == depth]
                for name, size in panel.items():
                    part = part[part[name] == size]
                lines = {}
                for method, line in part.groupby("method", sort=False):
                    ordered = line.sort_values(across)[[across, "mean", "std"]].fillna({"std": 0.0})
                    lines[str(method)] = ordered.to_numpy(float).T
                of = [] if metric in self.whole else [self._level(depth)]
                where = ", ".join([*of, *(f"{c} = {v}" for c, v in panel.items())])
                scores(lines, across, metric, axis, title=where, better=better)
        return made


def bootstrap(
    differences: npt.ArrayLike, *, confidence: float = 0.95, resamples: int = 2000, seed: int = 0
) -> tuple[float, float]:
    """The percentile interval of the mean of paired differences, under resampling of the pairs.

    ``scipy.stats.bootstrap`` gives the same interval from the same seed. It resamples anew for every comparison, and a
    summary has hundreds of them on the same inputs: it takes 6 to 12 times as long.

    >>> low, high = bootstrap(np.arange(101.0))
    >>> 43 < low < 46 and 54 < high < 57
    True
    """
    gaps = np.asarray(differences, dtype=np.float64)
    if gaps.ndim != 1 or not len(gaps):
        raise ValueError(f"differences must be numbers, one for each pair; got shape {gaps.shape}")
    means = _draws(len(gaps), resamples, seed) @ gaps / len(gaps)
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(means, [tail, 1.0 - tail])
    return float(low), float(high)


@lru_cache(maxsize=8)
def _draws(n: int, resamples: int, seed: int) -> FloatArray:
    """How often each of n pairs is drawn in each resample; the same for every comparison, hence kept."""
    index = np.random.default_rng(seed).integers(0, n, size=(resamples, n))
    counts = np.zeros((resamples, n))
    np.add.at(counts, (np.arange(resamples)[:, None], index), 1.0)
    return counts


def tidy(records: Mapping[int, Record], cells: Sequence[tuple[str, Size, int]]) -> pd.DataFrame:
    """Put the records of all inputs, by their numbers, into one table."""
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError("evaluate needs pandas: pip install 'c2fa[frame]'") from error
    first = cells[0][1]
    depth = 0 if isinstance(first, int) else len(first)
    names = {0: ["N"], 2: ["N_H", "N_L"]}.get(depth, [f"N_{k}" for k in range(depth)])
    rows = []
    for number, record in records.items():
        for i, metric, level, value in record["scores"]:
            label, size, seed = cells[i]
            sizes = (size,) if isinstance(size, int) else size
            score = float("nan") if value is None else value
            rows.append((label, *sizes, seed, number, metric, level, score))
    return pd.DataFrame(rows, columns=["method", *names, "seed", "input", "metric", "level", "value"])

"""A run's results, read back: scores of inputs, means of seeds, seconds, what was run.

A folder of results holds ``images/`` and ``text/`` or one of them, each as ``reproduce`` wrote it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from c2fa.evaluation import bootstrap

Floats = npt.NDArray[np.float64]

FOLDER = Path(__file__).resolve().parents[1] / "results"
DOMAINS = ("images", "text")
FEW = 5  # the paper's N_H at which parts are hard
PAPER_FROM = 50  # the paper's smallest N_L; what is smaller is our addition

HIGHER_IS_BETTER: Mapping[str, bool] = {
    "ndcg": True,
    "auroc": True,
    "auroc-within": True,
    "insertion of parts": True,
    "deletion of parts": False,
    "insertion of leaves": True,
    "deletion of leaves": False,
    "consistency": False,
    "mihl": True,
    "held-out correlation": True,
}
NAMES: Mapping[str, str] = {
    "ndcg": "NDCG",
    "auroc": "AUROC",
    "auroc-within": "AUROC within the image",
    "insertion of parts": "insertion of HiFAs",
    "deletion of parts": "deletion of HiFAs",
    "insertion of leaves": "insertion of LoFAs",
    "deletion of leaves": "deletion of LoFAs",
    "consistency": "consistency",
    "mihl": "MIHL",
    "held-out correlation": "held-out correlation",
}


@dataclass(frozen=True)
class Gap:
    """The difference between two methods, paired by inputs: ``low`` to ``high`` is its 95 % interval."""

    difference: float
    low: float
    high: float
    higher_is_better: bool

    @property
    def gain(self) -> float:
        """The difference, positive where the first method is better."""
        return self.difference if self.higher_is_better else -self.difference

    @property
    def ahead(self) -> bool:
        """Whether the whole interval is on the first method's side."""
        return self.low > 0 if self.higher_is_better else self.high < 0

    @property
    def behind(self) -> bool:
        """Whether the whole interval is on the other method's side."""
        return self.high < 0 if self.higher_is_better else self.low > 0

    @property
    def worst(self) -> float:
        """The end of the interval that is worse for the first method, positive where even it is better."""
        return self.low if self.higher_is_better else -self.high


@dataclass(frozen=True, eq=False)
class Domain:
    """The results of one experiment.

    Parameters
    ----------
    name
        ``"images"`` or ``"text"``.
    frame
        One row for each method, N_H, N_L, seed and input; a column for each score.
    times
        Seconds of explanations: method, N_H, N_L, and a list with a number for each input.
    about, tuned
        What was run, and which strengths were tried and chosen.
    """

    name: str
    frame: Any
    times: Sequence[Mapping[str, Any]] = ()
    about: Mapping[str, Any] = field(default_factory=dict)
    tuned: Sequence[Mapping[str, Any]] = ()

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The methods: the paper's first, ours after them, each in the settings' order."""
        from experiments.harness.settings import OUR_METHODS, PAPER_METHODS

        there = set(self.frame["method"].astype(str))
        known = [label for label in (*PAPER_METHODS, *OUR_METHODS) if label in there]
        return (*known, *sorted(there - set(known)))

    @cached_property
    def scores(self) -> tuple[str, ...]:
        """The scores that were taken, in the order in which they are shown."""
        return tuple(score for score in HIGHER_IS_BETTER if score in self.frame.columns)

    @cached_property
    def many(self) -> int:
        """The larger N_H, at which parts are easy: 20 for bags, 50 for reviews."""
        return int(self.frame["N_H"].max())

    @cached_property
    def budgets(self) -> tuple[int, ...]:
        """The N_L there are."""
        return tuple(sorted(int(n) for n in self.frame["N_L"].unique()))

    @cached_property
    def _tables(self) -> dict[str, tuple[dict[Any, Floats], dict[Any, Floats]]]:
        return {}

    def _table(self, score: str) -> tuple[dict[Any, Floats], dict[Any, Floats]]:
        """For each method and budget: the inputs' scores (means over seeds), and the seeds' (means over inputs)."""
        if score not in self._tables:
            cell = ["method", "N_H", "N_L"]
            tidy = self.frame[[*cell, "seed", "input"]].assign(value=self.frame[score].astype(np.float64))
            tidy["method"] = tidy["method"].astype(str)
            tables = []
            for other in ("input", "seed"):
                wide = tidy.groupby([*cell, other])["value"].mean().unstack(other)
                tables.append(dict(zip(wide.index, wide.to_numpy(), strict=True)))
            self._tables[score] = (tables[0], tables[1])
        return self._tables[score]

    def has(self, score: str, label: str, n_h: int, n_l: int) -> bool:
        """Whether a score was taken there."""
        if score not in self.scores:
            return False
        inputs = self._table(score)[0].get((label, n_h, n_l))
        return inputs is not None and bool(np.isfinite(inputs).any())

    def inputs(self, score: str, label: str, n_h: int, n_l: int) -> Floats:
        """A score of every input, averaged over seeds; NaN where it was not taken."""
        return self._table(score)[0][label, n_h, n_l]

    def mean(self, score: str, label: str, n_h: int, n_l: int) -> tuple[float, float]:
        """The mean of a score, and the standard deviation of its means over the seeds (NaN where there is one)."""
        seeds = self._table(score)[1][label, n_h, n_l]
        spread = float(np.std(seeds, ddof=1)) if len(seeds) > 1 else float("nan")
        return float(np.nanmean(self.inputs(score, label, n_h, n_l))), spread

    def gap(self, score: str, label: str, other: str, n_h: int, n_l: int, *, other_n_l: int | None = None) -> Gap:
        """How a method compares to another at the same budget, or at another N_L of the other's."""
        mine = self.inputs(score, label, n_h, n_l)
        theirs = self.inputs(score, other, n_h, n_l if other_n_l is None else other_n_l)
        return gap(mine - theirs, HIGHER_IS_BETTER[score])

    def best(self, score: str, labels: Sequence[str], n_h: int, n_l: int) -> str:
        """The method with the best mean."""
        sign = 1.0 if HIGHER_IS_BETTER[score] else -1.0
        return max(labels, key=lambda label: sign * self.mean(score, label, n_h, n_l)[0])

    def seconds(self, label: str) -> dict[int, Floats]:
        """Seconds of one explanation for each N_L."""
        return {
            int(row["N_L"]): np.asarray(row["seconds"], dtype=np.float64)
            for row in self.times
            if row["method"] == label
        }


def gap(differences: npt.ArrayLike, higher_is_better: bool) -> Gap:
    """The mean of paired differences with its interval; pairs with a NaN are left out.

    >>> one = gap([0.1, 0.2, float("nan"), 0.3], higher_is_better=False)
    >>> round(one.difference, 6), one.behind, one.ahead
    (0.2, True, False)
    """
    pairs = np.asarray(differences, dtype=np.float64)
    pairs = pairs[np.isfinite(pairs)]
    low, high = bootstrap(pairs)
    return Gap(float(pairs.mean()), low, high, higher_is_better)


@dataclass(frozen=True, eq=False)
class Results:
    """The experiments that were run, by name."""

    domains: Mapping[str, Domain]

    def __getitem__(self, name: str) -> Domain:
        return self.domains[name]

    def __contains__(self, name: object) -> bool:
        return name in self.domains


def read(folder: Path | str = FOLDER) -> Results:
    """Read a folder of results."""
    import pandas as pd

    folder = Path(folder)
    domains = {}
    for name in DOMAINS:
        path = folder / name / "scores.parquet"
        if path.exists():
            extra = {key: _json(folder / name / f"{key}.json") for key in ("times", "about", "tuned")}
            domains[name] = Domain(
                name, pd.read_parquet(path), extra["times"] or (), extra["about"] or {}, extra["tuned"] or ()
            )
    if not domains:
        raise FileNotFoundError(
            f"there are no results in {str(folder)!r}: neither images/scores.parquet nor text/scores.parquet; "
            "run 'python -m experiments images' or 'python -m experiments text' first"
        )
    return Results(domains)


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

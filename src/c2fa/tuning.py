"""Choosing a method's strengths on validation inputs: the fits are many, the queries are made once."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any

from c2fa.evaluation import RowCount, evaluate
from c2fa.evaluation.scoring import MetricSpec, as_scores
from c2fa.masking import Masker
from c2fa.penalties import L2
from c2fa.querying import Model, OnError

if TYPE_CHECKING:
    import pandas as pd

PAPER_STRENGTHS = (0.1, 1.0)
PAPER_MU2 = (0.001, 0.01, 0.1)


@dataclass(frozen=True, eq=False)
class Tuned:
    """What was chosen, and among what.

    Attributes
    ----------
    options
        To be given to ``Explainer``: ``Explainer(model, masker, **tuned.options)``.
    table
        One row for each candidate, the best first: its strengths, mean score and standard deviation over seeds.
    criterion
        The metric that decided, and which way.
    rows
        The model rows that it cost, for all candidates together.
    """

    options: Mapping[str, Any]
    table: pd.DataFrame
    criterion: str
    rows: RowCount

    def __str__(self) -> str:
        best = {name: self.table.iloc[0][name] for name in self.table.columns if name not in ("score", "std")}
        chosen = ", ".join(f"{name} = {value:g}" for name, value in best.items())
        table = self.table.to_string(index=False, float_format=lambda v: f"{v:.4g}")
        return f"chose {chosen} by {self.criterion}\n{table}\n{self.rows}"


def tune(
    inputs: Sequence[Any],
    model: Model,
    masker: Masker,
    *,
    budget: tuple[int, ...] = (20, 50),
    method: str = "c2fa",
    strengths: Sequence[float] | Sequence[Sequence[float]] = PAPER_STRENGTHS,
    mu2: Sequence[float] | None = None,
    criterion: MetricSpec = "faithfulness",
    seeds: int | Sequence[int] = 1,
    truths: Sequence[Any] | None = None,
    keys: Sequence[str] | None = None,
    target: int | str | None = None,
    store: str | PathLike[str] | None = None,
    model_name: str | None = None,
    batch_size: int = 64,
    on_error: OnError = "raise",
    progress: bool | None = None,
    **options: Any,
) -> Tuned:
    """Choose λ for each level (and μ₂ for the paper's solver) on validation inputs.

    Every candidate is fitted to the same answers of the model, so that a larger grid costs no more rows for
    explanations; only scoring asks more, and shares what it can.

    Parameters
    ----------
    budget
        Masks for each level, as in ``evaluate``: N_H = 20 and N_L = 50 unless told.
    strengths
        The λ to try at every level, or one sequence for each level; all combinations are tried. The default is the
        paper's grid, {0.1, 1} at both levels.
    mu2
        For ``solver="paper"``, the μ₂ to try; by default the paper's {0.001, 0.01, 0.1}. Other solvers have none.
    criterion
        The metric that decides, by its mean over inputs and seeds; ties go to the earlier in the grid. The paper does
        not say which it used. The default, ``"faithfulness"``, is insertion minus deletion averaged over all levels:
        it needs no truth, and it is the largest where features that are called important are both enough for the
        prediction and needed for it. A metric of several levels must be given with its level: ``"deletion@-1"``.
    options
        Further options of the method, the same for every candidate (``solver``, ``intercept``, ``kernel``, …).

    Examples
    --------
    >>> import numpy as np, c2fa
    >>> s = c2fa.Structure.from_groups("aabb")
    >>> model = lambda batch: batch @ np.array([1.0, 2.0, 3.0, 4.0])
    >>> tuned = tune([np.ones(4)], model, c2fa.maskers.Array(s), budget=(3, 10), strengths=(0.1, 1.0))
    >>> tuned.options["penalty"], len(tuned.table)
    ((L2(lam=0.1, positive=False), L2(lam=0.1, positive=False)), 4)
    """
    (score,) = as_scores([criterion])
    if score.higher_is_better is None:
        raise ValueError(
            f"the criterion {score.name!r} does not say which way is better; mark your function with "
            "c2fa.metrics.higher_is_better(True) or (False)"
        )
    if not hasattr(budget, "__len__"):
        raise TypeError(f"budget must have the masks of each level, such as (20, 50); got {budget}")
    budget = tuple(budget)
    depth = len(budget)
    if score.levels == "all" and depth > 1:
        raise ValueError(
            f"the criterion {score.name!r} has a value at each of {depth} levels; say which decides, for instance "
            f"'{score.name}@-1' for the leaves"
        )
    grid = _candidates(strengths, mu2, depth, options)
    methods = [(str(i), method, settings) for i, (_, settings) in enumerate(grid)]
    result = evaluate(
        methods,
        inputs,
        model,
        masker,
        [budget],
        seeds,
        [criterion],
        truths=truths,
        keys=keys,
        target=target,
        store=store,
        model_name=model_name,
        batch_size=batch_size,
        on_error=on_error,
        progress=progress,
    )
    import pandas as pd

    summary = result.summary(resamples=1).set_index("method")
    table = pd.DataFrame([names for names, _ in grid])
    table["score"] = [float(summary["mean"][str(i)]) for i in range(len(grid))]
    table["std"] = [float(summary["std"][str(i)]) for i in range(len(grid))]
    if table["score"].isna().all():
        raise ValueError(f"the criterion {score.name!r} is undefined on all {len(inputs)} inputs; use another")
    table = table.sort_values("score", ascending=not score.higher_is_better, kind="stable")
    way = "highest" if score.higher_is_better else "lowest"
    level = f" at level {score.levels}" if isinstance(score.levels, int) else ""
    what = f"the {way} mean {score.name}{level} over {len(inputs)} inputs at masks {budget}"
    chosen = {"method": method, **grid[int(table.index[0])][1]}
    return Tuned(chosen, table.reset_index(drop=True), what, result.rows)


def _candidates(
    strengths: Sequence[float] | Sequence[Sequence[float]],
    mu2: Sequence[float] | None,
    depth: int,
    options: Mapping[str, Any],
) -> list[tuple[dict[str, float], dict[str, Any]]]:
    """Every combination, as what the table shows and as the method's options."""
    if "penalty" in options:
        raise ValueError("penalty is what tune chooses; give strengths= with the values to try")
    solver = options.get("solver", "paper" if options.get("preset") == "paper" else "auto")
    if mu2 is not None and solver != "paper":
        raise ValueError(f"mu2 belongs to solver='paper', and the solver is {solver!r}; leave mu2 out")
    tries = (PAPER_MU2 if mu2 is None else tuple(mu2)) if solver == "paper" else ()
    nested = [tuple(lams) for lams in strengths if isinstance(lams, Sequence)]
    plain = [lam for lam in strengths if not isinstance(lam, Sequence)]
    if not (plain or nested) or (nested and (plain or len(nested) != depth)):
        raise ValueError(f"strengths must be numbers, or one sequence for each of {depth} levels; got {strengths!r}")
    per_level = nested or [tuple(plain)] * depth
    names = ["λ_H", "λ_L"] if depth == 2 else [f"λ_{k}" for k in range(depth)]
    grid = []
    for lams in itertools.product(*per_level):
        for mu in tries or (None,):
            shown = dict(zip(names, lams, strict=True))
            settings = {**options, "penalty": tuple(L2(lam) for lam in lams)}
            if mu is not None:
                shown["μ₂"] = mu
                settings["solver_options"] = {**options.get("solver_options", {}), "mu2": mu}
            grid.append((shown, settings))
    return grid

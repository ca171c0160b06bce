"""Choosing methods' strengths on validation inputs: the fits are many, the queries are made once."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from c2fa.asking.masking import Masker
from c2fa.asking.model import Model
from c2fa.evaluation import RowCount, evaluate
from c2fa.evaluation.scoring import MetricSpec, as_scores
from c2fa.methods import BaseMethod
from c2fa.penalties import L2

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
        The model rows that it cost, for the candidates of all methods together.
    """

    options: Mapping[str, Any]
    table: pd.DataFrame
    criterion: str
    rows: RowCount

    def __str__(self) -> str:
        best = self.table.iloc[0].drop(["score", "std"])
        chosen = ", ".join(f"{name} = {value:g}" for name, value in best.items())
        table = self.table.to_string(index=False, float_format=lambda v: f"{v:.4g}")
        return f"chose {chosen} by {self.criterion}\n{table}\n{self.rows}"


def tune(
    methods: Mapping[str, Mapping[str, Any]],
    inputs: Sequence[Any],
    model: Model,
    masker: Masker,
    *,
    masks: Sequence[tuple[int, ...]],
    criterion: MetricSpec = "faithfulness",
    **options: Any,
) -> dict[str, Tuned]:
    """Choose λ for each level (and μ₂ for the paper's solver) of several methods on validation inputs.

    Every candidate is fitted to the same answers of the model, so that a larger grid costs no more rows for
    explanations; only scoring asks more, and shares what it can.

    Parameters
    ----------
    methods
        By a label, what ``candidates`` takes: ``method``, ``strengths``, ``mu2`` and further options of the method.
    masks
        The masks of each level, such as ``[(20, 50)]``. With several of them the mean over all decides.
    criterion
        The metric that decides, by its mean over inputs and seeds; ties go to the earlier in the grid. The paper does
        not say which it used. The default, ``"faithfulness"``, is insertion minus deletion averaged over all levels:
        it needs no truth, and it is the largest where features that are called important are both enough for the
        prediction and needed for it. A metric of several levels must be given with its level: ``"deletion@-1"``.
    options
        Further options of ``evaluate``.
    """
    depth = len(masks[0])
    (score,) = as_scores([criterion])
    if score.higher_is_better is None:
        raise ValueError(
            f"the criterion {score.name!r} does not say which way is better; mark your function with "
            "c2fa.metrics.higher_is_better(True) or (False)"
        )
    if score.levels == "all" and depth > 1:
        raise ValueError(
            f"the criterion {score.name!r} has a value at each of {depth} levels; say which decides, for instance "
            f"'{score.name}@-1' for the leaves"
        )
    grids = {label: list(candidates(depth, **grid)) for label, grid in methods.items()}
    specs = {f"{label} {k}".strip(): each for label, grid in grids.items() for k, (_, each) in enumerate(grid)}
    result = evaluate(
        [
            (name, method, settings) if isinstance(method, str) else (name, method(**settings), {})
            for name, (method, settings) in specs.items()
        ],
        inputs,
        model,
        masker,
        masks=masks,
        metrics=[criterion],
        **options,
    )
    means = result.frame.groupby("method")["value"].mean()
    spreads = result.frame.groupby(["method", "seed"])["value"].mean().groupby("method").std(ddof=1)
    way = "highest" if score.higher_is_better else "lowest"
    level = f" at level {score.levels}" if isinstance(score.levels, int) else ""
    what = f"the {way} mean {score.name}{level} over {len(inputs)} inputs at masks {', '.join(map(str, masks))}"
    tuned = {}
    for label, grid in grids.items():
        names = [f"{label} {k}".strip() for k in range(len(grid))]
        table = pd.DataFrame([strengths for strengths, _ in grid])
        table["score"], table["std"] = means.reindex(names).to_numpy(), spreads.reindex(names).to_numpy()
        if table["score"].isna().all():
            raise ValueError(f"the criterion {score.name!r} is undefined on all inputs; use another")
        table = table.sort_values("score", ascending=not score.higher_is_better, kind="stable")
        method, settings = grid[table.index[0]][1]
        chosen = {"method": method, **settings} if isinstance(method, str) else {"method": method(**settings)}
        tuned[label] = Tuned(chosen, table.reset_index(drop=True), what, result.rows)
    return tuned


def candidates(
    depth: int,
    method: str | Callable[..., BaseMethod] = "c2fa",
    strengths: Sequence[float] | Sequence[Sequence[float]] = PAPER_STRENGTHS,
    mu2: Sequence[float] = PAPER_MU2,
    **options: Any,
) -> Iterator[tuple[dict[str, float], tuple[str | Callable[..., BaseMethod], dict[str, Any]]]]:
    """Every combination of a method's strengths, by their names, and the method with its options for it.

    Parameters
    ----------
    depth
        The number of levels.
    method
        A name, or a class of methods such as one of your own, whose ``penalty`` is chosen.
    strengths
        The λ to try at every level, or one sequence for each level; all combinations are tried.
    mu2
        The μ₂ to try with ``solver="paper"``; other solvers have none.
    options
        Further options of the method, the same for every candidate (``solver``, ``intercept``, ``kernel``, …).
    """
    if "penalty" in options:
        raise ValueError("penalty is what tune chooses; give strengths= with the values to try")
    by_level = [tuple(lams) for lams in strengths if isinstance(lams, Sequence)]
    for_all = tuple(lam for lam in strengths if not isinstance(lam, Sequence))
    if bool(by_level) == bool(for_all) or (by_level and len(by_level) != depth):
        raise ValueError(f"strengths must be numbers, or one sequence for each of {depth} levels; got {strengths!r}")
    names = ["λ_H", "λ_L"] if depth == 2 else [f"λ_{k}" for k in range(depth)]
    for lams in itertools.product(*(by_level or [for_all] * depth)):
        named = dict(zip(names, lams, strict=True))
        settings = {**options, "penalty": tuple(L2(lam) for lam in lams)}
        if "paper" not in (options.get("solver"), options.get("preset")):
            yield named, (method, settings)
            continue
        for mu in mu2:
            solver_options = {**options.get("solver_options", {}), "mu2": mu}
            yield {**named, "μ₂": mu}, (method, {**settings, "solver_options": solver_options})

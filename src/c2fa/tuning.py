"""Choosing a method's strengths on validation inputs: the fits are many, the queries are made once."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeAlias

from c2fa.asking.masking import Masker
from c2fa.asking.model import Model
from c2fa.asking.querying import OnError
from c2fa.engines import Engine
from c2fa.evaluation import RowCount, evaluate
from c2fa.evaluation.scoring import MetricSpec, Score, as_scores
from c2fa.evaluation.sizes import Size, as_sizes
from c2fa.methods import AnyMethod
from c2fa.penalties import L2

if TYPE_CHECKING:
    import pandas as pd

PAPER_STRENGTHS = (0.1, 1.0)
PAPER_MU2 = (0.001, 0.01, 0.1)

_Candidate: TypeAlias = tuple[dict[str, float], dict[str, Any]]
"""One combination of strengths, by their names, and the method's options with it."""


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
    masks: Sequence[Sequence[int]] | None = None,
    budgets: Sequence[int | Sequence[int]] | None = None,
    method: str | Callable[..., AnyMethod] = "c2fa",
    strengths: Sequence[float] | Sequence[Sequence[float]] = PAPER_STRENGTHS,
    mu2: Sequence[float] | None = None,
    criterion: MetricSpec = "faithfulness",
    seeds: int | Sequence[int] = 1,
    truths: Sequence[Any] | None = None,
    keys: Sequence[str] | None = None,
    target: int | str | None = None,
    store: str | PathLike[str] | None = None,
    keep_answers: bool = True,
    model_name: str | None = None,
    batch_size: int = 64,
    on_error: OnError = "raise",
    progress: bool | None = None,
    workers: int = 0,
    gpus: int = 0,
    models: int = 0,
    engine: str | Engine = "processes",
    **options: Any,
) -> Tuned:
    """Choose λ for each level (and μ₂ for the paper's solver) on validation inputs.

    Every candidate is fitted to the same answers of the model, so that a larger grid costs no more rows for
    explanations; only scoring asks more, and shares what it can.

    Parameters
    ----------
    masks, budgets
        The masks of each level, such as ``masks=[(20, 50)]``, or budgets as ``Explainer`` takes them; see ``evaluate``.
        With several of them the mean over all decides.
    method
        A name, or a class of methods such as one of your own, whose ``penalty`` is chosen.
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
    workers, gpus, models, engine
        Processes that share the inputs, and those that own the model; see ``evaluate``.
    options
        Further options of the method, the same for every candidate (``solver``, ``intercept``, ``kernel``, …).

    Examples
    --------
    >>> import numpy as np, c2fa
    >>> s = c2fa.Structure.from_groups("aabb")
    >>> model = lambda batch: batch @ np.array([1.0, 2.0, 3.0, 4.0])
    >>> tuned = tune([np.ones(4)], model, c2fa.maskers.Array(s), masks=[(3, 10)], strengths=(0.1, 1.0))
    >>> tuned.options["penalty"], len(tuned.table)
    ((L2(lam=0.1, positive=False), L2(lam=0.1, positive=False)), 4)
    """
    tuned = tune_all(
        {"": {"method": method, "strengths": strengths, "mu2": mu2, **options}},
        inputs,
        model,
        masker,
        masks=masks,
        budgets=budgets,
        criterion=criterion,
        seeds=seeds,
        truths=truths,
        keys=keys,
        target=target,
        store=store,
        keep_answers=keep_answers,
        model_name=model_name,
        batch_size=batch_size,
        on_error=on_error,
        progress=progress,
        workers=workers,
        gpus=gpus,
        models=models,
        engine=engine,
    )
    return tuned[""]


def tune_all(
    methods: Mapping[str, Mapping[str, Any]],
    inputs: Sequence[Any],
    model: Model,
    masker: Masker,
    *,
    masks: Sequence[Sequence[int]] | None = None,
    budgets: Sequence[int | Sequence[int]] | None = None,
    criterion: MetricSpec = "faithfulness",
    seeds: int | Sequence[int] = 1,
    **evaluating: Any,
) -> dict[str, Tuned]:
    """Choose the strengths of several methods, all from the same answers of the model.

    Parameters
    ----------
    methods
        By a label, what ``tune`` takes for a method: ``method``, ``strengths``, ``mu2`` and further options.
    evaluating
        Further options of ``evaluate``.

    Returns
    -------
    dict of Tuned
        For each label what was chosen; ``rows`` are those of all methods together.
    """
    sizes = as_sizes(masks, budgets)
    depth = _depth(sizes, inputs, masker)
    score = _deciding(criterion, depth)
    grids = {label: _specs(label, depth, **grid) for label, grid in methods.items()}
    result = evaluate(
        [spec for _, specs in grids.values() for spec in specs],
        inputs,
        model,
        masker,
        masks=masks,
        budgets=budgets,
        seeds=seeds,
        metrics=[criterion],
        **evaluating,
    )
    way = "highest" if score.higher_is_better else "lowest"
    level = f" at level {score.levels}" if isinstance(score.levels, int) else ""
    unit = "rows" if isinstance(sizes[0], int) else "masks"
    what = f"the {way} mean {score.name}{level} over {len(inputs)} inputs at {unit} {', '.join(map(str, sizes))}"
    tuned = {}
    for label, (strengths, specs) in grids.items():
        table = _table(strengths, [name for name, _, _ in specs], result.frame, score)
        _, best, settings = specs[table.index[0]]
        tuned[label] = Tuned({"method": best, **settings}, table.reset_index(drop=True), what, result.rows)
    return tuned


def _specs(
    label: str,
    depth: int,
    method: str | Callable[..., AnyMethod] = "c2fa",
    strengths: Sequence[float] | Sequence[Sequence[float]] = PAPER_STRENGTHS,
    mu2: Sequence[float] | None = None,
    **options: Any,
) -> tuple[list[dict[str, float]], list[tuple[str, str | AnyMethod, Mapping[str, Any]]]]:
    """The strengths of each candidate of a method, and the candidates as ``evaluate`` takes them."""
    candidates = _candidates(depth, strengths, mu2, options)
    specs = [_spec(f"{label} {k}".strip(), method, settings) for k, (_, settings) in enumerate(candidates)]
    return [shown for shown, _ in candidates], specs


def _candidates(
    depth: int, strengths: Sequence[float] | Sequence[Sequence[float]], mu2: Sequence[float] | None, options: Any
) -> list[_Candidate]:
    """Every combination of strengths."""
    if "penalty" in options:
        raise ValueError("penalty is what tune chooses; give strengths= with the values to try")
    solver = options.get("solver", "paper" if options.get("preset") == "paper" else "auto")
    if mu2 is not None and solver != "paper":
        raise ValueError(f"mu2 belongs to solver='paper', and the solver is {solver!r}; leave mu2 out")
    names = ["λ_H", "λ_L"] if depth == 2 else [f"λ_{k}" for k in range(depth)]
    candidates = []
    for lams in itertools.product(*_per_level(strengths, depth)):
        shown: dict[str, float] = dict(zip(names, lams, strict=True))
        settings = {**options, "penalty": tuple(L2(lam) for lam in lams)}
        if solver != "paper":
            candidates.append((shown, settings))
            continue
        for mu in PAPER_MU2 if mu2 is None else mu2:
            solver_options = {**options.get("solver_options", {}), "mu2": mu}
            candidates.append(({**shown, "μ₂": mu}, {**settings, "solver_options": solver_options}))
    return candidates


def _spec(
    label: str, method: str | Callable[..., AnyMethod], settings: dict[str, Any]
) -> tuple[str, str | AnyMethod, Mapping[str, Any]]:
    """A candidate as ``evaluate`` takes it: a name and options, or an object that was made with them."""
    if isinstance(method, str):
        return label, method, settings
    return label, method(**settings), {}


def _table(
    strengths: Sequence[Mapping[str, float]], labels: Sequence[str], frame: pd.DataFrame, score: Score
) -> pd.DataFrame:
    """The mean score of each candidate and its standard deviation over seeds, the best first."""
    import pandas as pd

    mean = frame.groupby("method")["value"].mean()
    std = frame.groupby(["method", "seed"])["value"].mean().groupby("method").std(ddof=1)
    table = pd.DataFrame(strengths)
    table["score"], table["std"] = mean.reindex(list(labels)).to_numpy(), std.reindex(list(labels)).to_numpy()
    if table["score"].isna().all():
        raise ValueError(f"the criterion {score.name!r} is undefined on all inputs; use another")
    return table.sort_values("score", ascending=not score.higher_is_better, kind="stable")


def _depth(sizes: Sequence[Size], inputs: Sequence[Any], masker: Masker) -> int:
    """The levels for which strengths are chosen: as many as the sizes have, or the first input."""
    if not isinstance(sizes[0], int):
        return len(sizes[0])
    if not len(inputs):
        raise ValueError("inputs is empty: give at least one input to choose by")
    return masker(inputs[0]).structure.depth


def _deciding(criterion: MetricSpec, depth: int) -> Score:
    """The criterion as a score of one number that says which way is better."""
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
    return score


def _per_level(strengths: Sequence[float] | Sequence[Sequence[float]], depth: int) -> list[tuple[float, ...]]:
    """The strengths to try at each level, from those for all levels or a sequence for each."""
    nested = [tuple(lams) for lams in strengths if isinstance(lams, Sequence)]
    plain = [lam for lam in strengths if not isinstance(lam, Sequence)]
    if not (plain or nested) or (nested and (plain or len(nested) != depth)):
        raise ValueError(f"strengths must be numbers, or one sequence for each of {depth} levels; got {strengths!r}")
    return nested or [tuple(plain)] * depth

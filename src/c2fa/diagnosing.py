"""How far an explanation may be trusted, in numbers and in words."""

from __future__ import annotations

import numpy as np

from c2fa.explanation import Diagnostics, LevelReport
from c2fa.methods.base import Attribution
from c2fa.problem import Level, Problem
from c2fa.querying import Queries
from c2fa.solvers.direct import loss_alone
from c2fa.solvers.solve import solve
from c2fa.stopping import Judge
from c2fa.structure import Structure

_GAP = 0.25  # how much less of the variance the joint fit may explain than the level alone, before it is said
_WEAK = 0.2  # an R² below this is said
_ROUNDING = 1e-6  # a spread of this share of the outputs is what single precision makes of a constant
_TINY = 1e-140  # a spread whose square numbers cannot tell from 0
_LIGHT = 1e-12  # a row that weighs this share of the heaviest or less has no say
_TELLING = 20  # so many masked inputs, each without about half of the features, show whether any of them matters
_GUESS = 0.0  # and so is one of left-out rows below this: their mean predicts them better


def diagnose(
    structure: Structure,
    found: Attribution,
    column: int,
    queries: Queries,
    cost: float | None,
    notes: tuple[str, ...] = (),
    judge: Judge | None = None,
) -> Diagnostics:
    """Compare the joint fit with each level fitted alone, and put what is amiss into words."""
    reports, warnings = [], list(found.notes)
    spread = largest = 0.0
    for k, level in enumerate(found.levels):
        if level is None:
            reports.append(LevelReport(0, 0.0, 0.0, 0.0))
            continue
        one, factor = level.of_output(column), 1.0 if found.factors is None else found.factors[k]
        null = _null_loss(one) / factor
        spread = max(spread, float(np.ptp(one.outputs)))
        largest = max(largest, float(np.abs(one.outputs).max()))
        loss = found.loss(k, column)
        fit = 1.0 - loss / null if null > 0 else 1.0
        alone = _loss_alone(one) / factor
        reports.append(LevelReport(len(one.masks), loss, alone, fit, _left_out(one, found, k, column)))
        warnings += _level_warnings(structure, k, reports[-1], null)
        light = int((one.weights <= _LIGHT * one.weights.max()).sum())
        if 2 * light > len(one.weights):
            warnings.append(
                f"{light} of the {len(one.weights)} rows of level {k} weigh next to nothing beside the others, so that "
                "hardly any answer counts; use another kernel, or preset='shap' for SHAP's weights"
            )
    if spread == 0 and any(level is not None for level in found.levels):
        warnings = [*found.notes, _nothing(structure, found)]
    elif 0 < spread <= _ROUNDING * largest:
        warnings.append(
            f"the model's outputs differ by no more than {spread:.1g} around {largest:.3g}, which may be rounding: "
            "what is attributed is then noise; explain the model's own logits, or, where it "
            'answers in double precision, a probability with link="logit"'
        )
    if 0 < spread < _TINY:
        warnings.append(
            f"the model's outputs differ by no more than {spread:.1g}, whose square is next to 0 as numbers go: "
            'standard errors and R² say nothing here; use link="log", or explain a multiple of the output'
        )
    if structure.depth > 1 and structure.widths[0] == 1:
        warnings.append("the input has only one part, so the parts' level says no more than the prediction itself")
    if found.status.remedy:
        warnings.append(f"solver {found.status}: {found.status.remedy}")
    if queries.dropped:
        warnings.append(f"{queries.dropped} rows got no usable answer and were left out of the fit")
    stop = "" if judge is None else judge.says()
    if judge is not None and not judge.verdict:
        warnings.append(stop)
    leaves = found.values[-1]
    consistency = sum(
        float(np.square(found.values[k][:, column] - structure.sums(leaves[:, column], k)).sum())
        for k in range(structure.depth - 1)
    )
    best_part, best_leaf = int(np.argmax(found.values[0][:, column])), int(np.argmax(leaves[:, column]))
    return Diagnostics(
        levels=tuple(reports),
        consistency=consistency,
        agreement=bool(structure.owners(0)[best_leaf] == best_part),
        status=str(found.status),
        iterations=found.iterations,
        sent=queries.sent,
        recalled=queries.recalled,
        dropped=queries.dropped,
        cost=cost,
        warnings=(*warnings, *queries.notes, *notes),
        settled=None if judge is None else judge.verdict.enough,
        stop=stop,
    )


def _nothing(structure: Structure, found: Attribution) -> str:
    """Why nothing is attributed: the model is to blame only where enough was asked of it."""
    asked = sum(int((~level.masks.all(axis=1)).sum()) for level in found.levels if level is not None)
    if asked + 1 >= min(structure.leaves, _TELLING):
        return "the model gave the same output for every masked input, so nothing can be attributed"
    return (
        f"the {asked} masked inputs all got the same output, so nothing can be attributed; they are too few for "
        f"{structure.leaves} leaves to say that the model ignores them: raise the budget"
    )


def _level_warnings(structure: Structure, k: int, report: LevelReport, null: float) -> list[str]:
    width, warnings = structure.widths[k], []
    # With no more rows than features any model can be fitted, or missed: only more of them tell what it is like.
    scarce = report.rows < min(width + 1, 2 ** min(width, 30))
    few = f"{report.rows} rows are too few for {width} features to tell why; raise the budget"
    if null > 0 and report.loss - report.loss_alone > _GAP * null:
        warnings.append(
            f"level {k} is fitted much worse together with the others (R² {report.r2:.2f}) than alone "
            f"({1 - report.loss_alone / null:.2f}): "
            + (few if scarce else "the model does not add up across levels; read each level by itself")
        )
    elif (
        report.r2_left_out is not None
        and report.r2_left_out < _GUESS
        and report.r2 >= _WEAK
        and report.rows < 2 ** min(width, 60)  # else everything was asked, and a larger budget has nothing to add
    ):
        warnings.append(
            f"level {k} fits the rows it was given (R² {report.r2:.2f}) but hardly predicts a row left out "
            f"({report.r2_left_out:.2f}): its attributions are rough; raise the budget"
        )
    elif null > 0 and report.r2 < _WEAK:
        warnings.append(
            f"the attributions explain little of what the model does at level {k} (R² {report.r2:.2f}); "
            + (few if scarce else "it is far from additive")
        )
    if k < structure.depth - 1 and scarce:
        warnings.append(f"level {k} has {width} features and only {report.rows} rows; raise its budget")
    if k == structure.depth - 1 and 4 * report.rows < width:
        warnings.append(
            f"{report.rows} rows for {width} leaves: single leaves are rough guesses; raise the budget, or read parts"
        )
    return warnings


def _left_out(level: Level, found: Attribution, k: int, column: int) -> float | None:
    """The R² of rows each predicted by a fit without it, for which a linear fit needs no refitting."""
    if found.leverages is None or len(level.masks) < 2:
        return None
    residual = level.outputs - level.predict(found.values[k][:, column], found.intercepts[k][column])
    spread = level.outputs - np.average(level.outputs, weights=level.weights)
    without = residual / np.maximum(1.0 - found.leverages[k], 1e-9)
    share = level.weights / level.weights.sum()
    mean = spread / np.maximum(1.0 - share, 1e-9)  # the mean of the others predicts a row left out without any feature
    total = float(share @ mean**2)
    if not np.ptp(level.outputs) or not total:
        return None
    return float(1.0 - share @ without**2 / total)


def _null_loss(level: Level) -> float:
    if not np.ptp(level.outputs):  # the mean of equal numbers need not be that number
        return 0.0
    mean = np.average(level.outputs, weights=level.weights)
    return float(0.5 * level.weights @ np.square(level.outputs - mean))


def _loss_alone(level: Level) -> float:
    if level.penalty.ridge is not None:
        return loss_alone(level)
    return float(solve(Problem(Structure.flat(level.width), (level,))).losses[0])

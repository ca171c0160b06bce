"""How far an explanation may be trusted, in numbers and in words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from c2fa._system import suited
from c2fa.asking.masking import Masked
from c2fa.asking.querying import Queries
from c2fa.methods.base import Attribution
from c2fa.problem import Level, Problem
from c2fa.showing.printing import one_line
from c2fa.solution import Diagnostics, Interaction, LevelReport, consistency
from c2fa.solvers.direct import loss_alone
from c2fa.solvers.owen import Solved
from c2fa.solvers.solve import solve
from c2fa.stopping import Judge
from c2fa.structure import FloatArray, Structure

_MAX_GAP = 0.25  # the share of the variance by which the joint fit may miss the level's own fit
_MIN_R2 = 0.2  # below this the surrogate says little about the model
_APART = 3.0  # combined standard errors by which a part and the sum of its leaves may differ
_MAX_SHARE = 0.5  # where there are none: the share of the largest part by which they may
_MIN_LOO_R2 = 0.0  # below this the mean of the other rows predicts a left-out row better
_ROUNDING = 1e-6  # outputs that differ by this share of their size may be one number in single precision
_TINY = 1e-140  # the square of a difference this small underflows
_LIGHT = 1e-12  # a row that weighs this share of the heaviest or less does not count
_PAIRS = 10  # of features that act together, kept for each level
_TELLING = 20  # so many masked inputs, each without about half of the features, show whether any of them matters


@dataclass(frozen=True, eq=False)
class _Fit:
    """A level that was fitted: the target's rows, how well they are reproduced, and the loss of their mean."""

    name: str
    finest: bool
    rows: Level
    report: LevelReport
    null: float

    @property
    def width(self) -> int:
        return self.rows.width

    @property
    def worthless(self) -> bool:
        """Whether the mean of the outputs describes them better than the attributions, by a figure that is shown."""
        return self.null > 0 and round(self.report.r2, 2) < 0

    @property
    def few(self) -> str:
        return f"{self.report.rows} rows are too few for {self.width} {self.name}"

    @property
    def scarce(self) -> bool:
        """Whether any model could be fitted to the rows, or missed: only more of them tell what it is like."""
        enough: int = min(self.width + 1, 2 ** min(self.width, 30))
        return self.report.rows < enough


def diagnose(
    masked: Masked,
    found: Attribution,
    column: int,
    queries: Queries,
    cost: float | None,
    notes: tuple[str, ...] = (),
    judge: Judge | None = None,
) -> Diagnostics:
    """Compare the joint fit with each level fitted alone, and put into words what is wrong."""
    structure = masked.structure
    names = masked.level_names
    with suited(float(queries.used) ** 3):  # the same digits in every process
        interactions = () if found.game is None else _interactions(found.game, structure)
    fits = [None if found.levels[k] is None else _fit(found, k, column, name) for k, name in enumerate(names)]
    fitted = [fit for fit in fits if fit is not None]
    contradiction = "" if found.game is not None else _contradiction(structure, found, column, fitted, names)
    stop = "" if judge is None else judge.says()
    told = _warnings(structure, fitted, found.game, bool(contradiction))
    warnings = [*([contradiction] if contradiction else []), *masked.notes, *found.notes, *told]
    if structure.depth > 1 and structure.widths[0] == 1:
        warnings.append(
            "only one part changes when it is masked, so the parts' level says no more than the prediction itself"
        )
    if found.status.remedy:
        warnings.append(f"solver {found.status}: {found.status.remedy}")
    if queries.dropped:
        warnings.append(f"{queries.dropped} rows got no usable answer and were left out of the fit")
    if queries.unpaid:
        warnings.append(queries.left_out)
    if judge is not None and not judge.verdict:
        warnings.append(stop)
    values = [v[:, column] for v in found.values]
    top_part, top_leaf = int(np.argmax(values[0])), int(np.argmax(values[-1]))
    return Diagnostics(
        levels=tuple(LevelReport(0, 0.0, 0.0, 0.0) if fit is None else fit.report for fit in fits),
        consistency=consistency(values, structure),
        agreement=bool(structure.owners(0)[top_leaf] == top_part),
        status=str(found.status),
        iterations=found.iterations,
        sent=queries.sent,
        recalled=queries.recalled,
        dropped=queries.dropped,
        cost=cost,
        warnings=(*warnings, *queries.notes, *notes),
        settled=None if judge is None else judge.verdict.enough,
        stop=stop,
        contradiction=contradiction,
        exact=() if found.game is None else found.game.exact_levels(structure),
        interactions=interactions,
    )


def _interactions(game: Solved, structure: Structure) -> tuple[Interaction, ...]:
    """The pairs that act together most surely at each level, those of leaves within their parts."""
    if game.even is None:
        return ()
    levels = range(structure.depth) if game.game.structure is structure else [structure.depth - 1]
    least = _ROUNDING * float(np.ptp(game.game.outputs[:, game.game.output]))
    own = game.game.structure.depth - structure.depth
    return tuple(
        Interaction(k, first, second, value, error)
        for k in levels
        for first, second, value, error in game.even.pairs(k + own, _PAIRS)
        if abs(value) > least
    )


def _fit(found: Attribution, k: int, column: int, name: str) -> _Fit:
    level = found.levels[k]
    assert level is not None
    rows, factor = level.changed(outputs=level.outputs[:, column]), 1.0 if found.factors is None else found.factors[k]
    # The mean of equal numbers need not be that number.
    spread = rows.outputs - (rows.weights @ rows.outputs) / rows.weights.sum() if np.ptp(rows.outputs) else None
    null = 0.0 if spread is None else float(0.5 * rows.weights @ np.square(spread)) / factor
    loss = found.loss(k, column)
    r2 = 1.0 - loss / null if null > 0 else 1.0
    left_out = None if spread is None else _r2_left_out(rows, spread, found, k, column)
    if found.game is not None:  # values of a game are no fit, which another fit could undercut
        alone = loss
    elif rows.penalty.ridge is not None:
        alone = loss_alone(level.of_output(column)) / factor
    else:
        alone = float(solve(Problem(Structure.flat(rows.width), (rows,))).losses[0]) / factor
    report = LevelReport(len(rows.masks), loss, alone, r2, left_out)
    return _Fit(name, k == len(found.levels) - 1, rows, report, null)


def _r2_left_out(level: Level, spread: FloatArray, found: Attribution, k: int, column: int) -> float | None:
    """The R² of rows each predicted by a fit without it, for which a linear fit needs no refitting."""
    if found.game is not None:
        return found.game.r2_left_out
    if found.leverages is None or len(level.masks) < 2:
        return None
    residual = level.outputs - level.predict(found.values[k][:, column], found.intercepts[k][column])
    without = residual / np.maximum(1.0 - found.leverages[k], 1e-9)
    share = level.weights / level.weights.sum()
    mean = spread / np.maximum(1.0 - share, 1e-9)  # the mean of the others predicts a row left out without any feature
    total = float(share @ mean**2)
    return float(1.0 - share @ without**2 / total) if total else None


# -- warnings ------------------------------------------------------------------------------------------


def _contradiction(
    structure: Structure, found: Attribution, column: int, fits: list[_Fit], names: tuple[str, ...]
) -> str:
    """Why the levels cannot be shown as one answer: one is worse than none, or a part is not what its leaves make."""
    if structure.depth == 1:
        return ""
    apart = f"{', '.join(names[:-1])} and {names[-1]} are given apart: read each level by itself"
    worthless = [fit for fit in fits if fit.worthless]
    if worthless:
        told = " and ".join(
            f"{fit.name} (R² {fit.report.r2:z.2f}{f'; {fit.few}, raise the budget' if fit.scarce else ''})"
            for fit in worthless
        )
        return f"{told} explain less than nothing of what the model does under their masks, so {apart}"
    values = [v[:, column] for v in found.values]
    for k, own in enumerate(values[:-1]):
        sums = structure.sums(values[-1], k)
        size = max(float(np.abs(own).max()), float(np.abs(sums).max()))
        if found.stderr is None:
            bound = np.full(len(own), _MAX_SHARE * float(np.abs(own).max()))
            beyond = "by more than half of the largest"
        else:
            squares = [np.square(errors[:, column]) for errors in found.stderr]
            bound = _APART * np.sqrt(squares[k] + structure.sums(squares[-1], k))
            beyond = "beyond their standard errors"
        over = np.abs(own - sums) - np.maximum(bound, _ROUNDING * size)
        worst = int(np.argmax(np.nan_to_num(over, nan=-np.inf)))
        if over[worst] > 0:
            name = one_line(structure.names[k][worst])
            return (
                f"{names[k]} and {names[-1]} contradict each other {beyond} (“{name[:40]}{'…' * (len(name) > 40)}” has "
                f"{own[worst]:+.3g} by itself, and its {names[-1]} make {sums[worst]:+.3g}), so {apart}"
            )
    return ""


def _warnings(structure: Structure, fits: list[_Fit], game: Solved | None, apart: bool) -> list[str]:
    """What is wrong with the fit of each level, and with the outputs of all."""
    spread = max((float(np.ptp(fit.rows.outputs)) for fit in fits), default=1.0)
    largest = max((float(np.abs(fit.rows.outputs).max()) for fit in fits), default=1.0)
    if spread == 0:
        return [_why_nothing(structure, fits, game)]
    if game is None:
        warnings = [warning for fit in fits for warning in (*_r2_warnings(fit, apart), *_row_warnings(fit))]
    else:
        warnings = _game_warnings(game, structure)
    if spread <= _ROUNDING * largest:
        warnings.append(
            f"the model's outputs differ by no more than {spread:.1g} around {largest:.3g}, which may be rounding: "
            "what is attributed is then noise; explain the model's own logits, or, where it "
            'answers in double precision, a probability with link="logit"'
        )
    if spread < _TINY:
        warnings.append(
            f"the model's outputs differ by no more than {spread:.1g}, whose square is next to 0 as numbers go: "
            'standard errors and R² say nothing here; use link="log", or explain a multiple of the output'
        )
    return warnings


def _why_nothing(structure: Structure, fits: list[_Fit], game: Solved | None) -> str:
    """Why nothing is attributed: the model is to blame only where enough was asked of it."""
    asked = sum(int((~fit.rows.masks.all(axis=1)).sum()) for fit in fits)
    if game is not None:  # whose levels share rows
        asked = len(game.game.masks) - 1
    if asked + 1 >= min(structure.leaves, _TELLING):
        return "the model gave the same output for every masked input, so nothing can be attributed"
    return (
        f"the {asked} masked inputs all got the same output, so nothing can be attributed; they are too few for "
        f"{structure.leaves} leaves to say that the model ignores them: raise the budget"
    )


def _game_warnings(game: Solved, structure: Structure) -> list[str]:
    """Where the values of a game are rough: they need be neither additive nor of as many rows as there are features."""
    left_out = game.r2_left_out
    if all(game.exact_levels(structure)):
        return []
    rows = len(game.game.masks)
    more = "there are no other masks to ask" if rows == 1 << min(structure.leaves, 60) else "raise the budget"
    if left_out is None:
        return [f"{rows} rows do not tell how rough these values are: {more}"]
    if left_out >= _MIN_R2:
        return []
    return [
        f"the other rows hardly predict one that is left out (R² {left_out:z.2f}), so these values are rough: {more}"
    ]


def _r2_warnings(fit: _Fit, apart: bool) -> list[str]:
    report, warnings = fit.report, list[str]()
    if fit.worthless and apart:
        return warnings  # the levels are given apart for it, which says more
    few = f"{fit.few} to tell why; raise the budget"
    all_asked = report.rows >= 2 ** min(fit.width, 60)  # a larger budget has nothing to add
    if not apart and fit.null > 0 and report.loss - report.loss_alone > _MAX_GAP * fit.null:
        why = few if fit.scarce else "the model does not add up across levels; read each level by itself"
        warnings.append(
            f"{fit.name} are fitted much worse together with the other levels (R² {report.r2:z.2f}) than alone "
            f"({1 - report.loss_alone / fit.null:z.2f}): {why}"
        )
    elif report.r2 >= _MIN_R2 and report.r2_left_out is not None and report.r2_left_out < _MIN_LOO_R2 and not all_asked:
        warnings.append(
            f"the fit of {fit.name} reproduces the rows it was given (R² {report.r2:z.2f}) but hardly predicts a row "
            f"left out ({report.r2_left_out:z.2f}): these attributions are rough; raise the budget"
        )
    elif fit.null > 0 and report.r2 < _MIN_R2:
        why = few if fit.scarce else "it is far from additive"
        warnings.append(
            f"the attributions of {fit.name} explain little of what the model does (R² {report.r2:z.2f}); {why}"
        )
    return warnings


def _row_warnings(fit: _Fit) -> list[str]:
    """Where the rows are too few, or do not count."""
    rows, weights, warnings = fit.report.rows, fit.rows.weights, list[str]()
    if fit.scarce and not fit.finest:
        warnings.append(f"there are {fit.width} {fit.name} and only {rows} rows for them; raise their budget")
    if fit.finest and 4 * rows < fit.width:
        warnings.append(
            f"{rows} rows for {fit.width} {fit.name}: single ones are rough guesses; raise the budget, or read parts"
        )
    light = int((weights <= _LIGHT * weights.max()).sum())
    if 2 * light > len(weights):
        warnings.append(
            f"{light} of the {len(weights)} rows of {fit.name} weigh next to nothing beside the others, so that "
            "hardly any answer counts; use another kernel, or method='shapley' for Shapley values"
        )
    return warnings

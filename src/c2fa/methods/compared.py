"""Methods to compare with: LIME, MILLI, the paper's two-step methods, and leave one out.

LIME fits every level by itself; in two steps one level is fitted, and the others are sums or draws. MILLI draws
coalitions of parts from a ranking of single parts (Early, Evers and Ramchurn, "Model agnostic interpretability for
multiple instance learning", ICLR 2022).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from c2fa.asking.querying import Ask, BudgetError, Conversation
from c2fa.asking.replies import QueryError
from c2fa.kernels import milli as milli_kernel
from c2fa.methods.base import Attribution, BaseMethod, Fitting, Task, gather, per_level_penalties
from c2fa.penalties import L2
from c2fa.problem import Level, Problem
from c2fa.samplers import milli as milli_sampler
from c2fa.solution import Solution, Status
from c2fa.solvers.solve import solve
from c2fa.structure import FloatArray, IntArray, Structure


def fit(level: Level) -> Solution:
    """Fit one level by itself: a problem of one level."""
    return solve(Problem(Structure.flat(level.width), (level,)))


@dataclass(frozen=True)
class Lime(Fitting):
    """Every level fitted separately, at any depth: the paper's equations 2 and 3.

    With the same sampler, seed and budget it asks the very masks that ``C2FA`` asks. Parts need not be the sums of
    their leaves. Every option is one for all levels, or a sequence with one for each, coarse to fine; methods built on
    this one that do not fit a level themselves take its entry and leave it unused.

    Parameters
    ----------
    kernel, sampler, penalty, intercept, anchor
        As in ``C2FA``, but the defaults are fair coins, LIME's weights and ``L2(width / 50)`` at each level (None). The
        lime package's own ridge is ``L2(0.5)``.

    Examples
    --------
    >>> import numpy as np, c2fa
    >>> s = c2fa.Structure.from_groups("aab")
    >>> model = lambda batch: batch @ np.array([1.0, 2.0, 4.0])
    >>> e = c2fa.Explainer(model, c2fa.maskers.Array(s), method="lime", budget=30, penalty=c2fa.L2(1e-9))(np.ones(3))
    >>> e.high.round(3), e.low.round(3)
    (array([3., 4.]), array([1., 2., 4.]))
    """

    def fit(self, task: Task, level: int) -> Conversation[Solution]:
        """Ask about one level and fit it alone."""
        return fit((yield from self.gather(task, level, per_level_penalties(self.penalty, task)[level])))

    def coarsest(self, task: Task) -> Conversation[Solution]:
        """The parts' fit; a method that estimates the parts in another way puts its own here."""
        return (yield from self.fit(task, 0))

    def __call__(self, task: Task) -> Conversation[Attribution]:
        fits = [(yield from self.coarsest(task))]
        for level in range(1, task.structure.depth):
            fits.append((yield from self.fit(task, level)))
        from_bad_to_good = (Status.MAX_ITERATIONS, Status.NOT_UNIQUE, Status.CONVERGED, Status.EXACT)
        errors = tuple(one.stderr[0] for one in fits if one.stderr is not None)
        leverages = tuple(one.leverages[0] for one in fits if one.leverages is not None)
        return Attribution(
            values=tuple(one.values[0] for one in fits),
            intercepts=tuple(one.intercepts[0] for one in fits),
            stderr=errors if len(errors) == len(fits) else None,
            levels=tuple(one.problem.levels[0] for one in fits),
            status=min((one.status for one in fits), key=from_bad_to_good.index),
            iterations=sum(one.iterations for one in fits),
            leverages=leverages if len(leverages) == len(fits) else None,
        )


@dataclass(frozen=True)
class BottomUp(Lime):
    """LIME for the leaves, sums for the parts, so that consistency is exact.

    Only the leaves are asked about: the rows of the other levels' budgets stay unspent, so that its leaves are
    those of ``Lime`` at the same budget. Parts are sums, and their intercept is the leaves'.
    """

    def __call__(self, task: Task) -> Conversation[Attribution]:
        s = task.structure
        leaves = yield from self.fit(task, s.depth - 1)
        (level,) = leaves.problem.levels
        errors = None
        if level.penalty.ridge is not None:
            # The standard errors of sums need the covariance of the leaves. A level of one row with an intercept of its
            # own and no penalty says nothing, so the joint problem with such levels above the leaves is the leaves'
            # own, and the direct solver has every level's errors at hand.
            silent = [
                Level(np.ones((1, width), np.bool_), np.zeros((1, len(task.columns))), penalty=L2(0.0), intercept=True)
                for width in s.widths[:-1]
            ]
            errors = solve(Problem(s, (*silent, level))).stderr
        return Attribution(
            values=s.level_sums(leaves.values[0]),
            intercepts=leaves.intercepts * s.depth,
            stderr=errors,
            levels=(*(None,) * (s.depth - 1), level),
            status=leaves.status,
            iterations=leaves.iterations,
        )


@dataclass(frozen=True)
class TopDown(Lime):
    """LIME for the parts; each part's children drawn at random around it, as the paper's baseline does.

    A child of part j is drawn from a normal distribution with mean ``α_j`` (the part's whole value) and standard
    deviation ``1 / D_j``, D_j being the number of children; one child picked at random is then set so that the
    children add up to the part. Deeper trees are descended level by level in the same way. One draw serves every
    output, so that the answer for one does not depend on which others are kept.

    Only the coarsest level is asked about: the rows of the other levels' budgets stay unspent. It is a yardstick
    and not an explanation: its leaves know nothing but the part they are in.
    """

    def __call__(self, task: Task) -> Conversation[Attribution]:
        return drawn(task, (yield from self.coarsest(task)))


def drawn(task: Task, parts: Solution) -> Attribution:
    """Draw every level below the parts from the one above it."""
    s = task.structure
    rng = task.rng(1000)  # a stream away from the levels' streams, so that masks stay the same
    values = parts.values[0]
    for owner in s.parents:
        values = scatter(rng, values, owner)
    return Attribution(
        values=s.level_sums(values),
        intercepts=parts.intercepts * s.depth,
        stderr=None,
        levels=(*parts.problem.levels, *(None,) * (s.depth - 1)),
        status=parts.status,
        iterations=parts.iterations,
    )


def scatter(rng: np.random.Generator, parts: FloatArray, owner: IntArray) -> FloatArray:
    """Draw children of parts, (parts, columns), around their parts' values, and reset one so that the sums hold."""
    size = np.bincount(owner, minlength=len(parts))
    noise = rng.standard_normal(len(owner)) / size[owner]
    pick = np.floor(rng.random(len(parts)) * size).astype(np.intp)
    values = parts[owner] + noise[:, None]
    order = np.argsort(owner, kind="stable")
    chosen = order[np.cumsum(size) - size + pick]
    values[chosen] = 0.0
    totals = np.zeros_like(parts)
    np.add.at(totals, owner, values)
    values[chosen] = parts - totals
    return values


@dataclass(frozen=True)
class Milli(Lime):
    """MILLI for the coarsest level, LIME for every other.

    Each part is asked about alone first; these rows count against the first level's budget, which they do not in the
    authors' code, and are not fitted. Parts then enter coalitions with their inclusion weight as the chance, empty and
    full coalitions are redrawn, repeats are kept, a coalition weighs the mean inclusion weight of its members, and
    least squares with an intercept gives the attributions. Whether an absent part is removed or blanked out is the
    masker's business.

    The authors rank by ``1 − P(class 0)``, class 0 being the background by their convention. A target is known
    here, so parts are ranked by the target's own output. One part alone has no rank and no coalition: it is
    fitted by LIME.

    Parameters
    ----------
    kernel, sampler, penalty, intercept, anchor
        For the levels fitted by LIME; see ``Lime``.
    alpha
        The chance of the first-ranked part to be drawn; the last one's is ``1 − alpha``.
    beta
        How the chances go from one to the other: above 0 towards larger coalitions, below 0 towards smaller.
        The defaults of both are what the authors use for bags of about six instances. Their code's own (0.1 and
        1.0) draw the first-ranked part so rarely that some twenty rows often hold it not once.
    """

    alpha: float = 0.3
    beta: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 <= self.alpha <= 1.0:
            raise ValueError(f"alpha is the first rank's chance to be drawn, from 0 to 1; got {self.alpha}")
        if not np.isfinite(self.beta):
            raise ValueError(f"beta bends the weight curve and must be a finite number; got {self.beta}")

    def min_rows(self, structure: Structure) -> int:
        """The rows that the first level needs: the ranking and one coalition."""
        return structure.widths[0] + 1

    def preferred_rows(self, structure: Structure) -> tuple[int | None, ...]:
        """As LIME's, but for the first level, whose sampler is MILLI's own."""
        return (None, *super().preferred_rows(structure)[1:])

    def coarsest(self, task: Task) -> Conversation[Solution]:
        width = task.structure.widths[0]
        if width == 1:
            return (yield from self.fit(task, 0))
        inclusion = yield from self._rank(task)
        rows = yield from gather(
            replace(task, budget=(task.budget[0] - width, *task.budget[1:])),
            0,
            sampler=milli_sampler(inclusion),
            kernel=milli_kernel(inclusion),
            penalty=L2(0.5e-10),  # MILLI's own, scikit-learn's ``alpha = 1e-10``: least squares made safe
            intercept=True,
            anchor=False,
        )
        return fit(rows)

    def _rank(self, task: Task) -> Conversation[FloatArray]:
        """Ask about every part alone; each part's inclusion weight. A part whose answer is unusable ranks last."""
        width = task.structure.widths[0]
        if task.budget[0] <= width:
            raise BudgetError(
                f"MILLI ranks the {width} parts with one row each before it samples, so the first level needs a budget "
                f"of at least {width + 2} rows (the prediction, the ranking, one sample); it has {task.budget[0] + 1}; "
                "raise it, with budget=(rows of the first level, …)"
            )
        answer = yield Ask(0, np.eye(width, dtype=np.bool_))
        if not answer.ok.any():
            raise QueryError(f"not one of the {width} parts got an answer when asked alone, so they cannot be ranked")
        scores = np.where(answer.ok, answer.outputs[:, task.target], -np.inf)
        ranks = np.argsort(np.argsort(-scores, kind="stable"))
        return inclusion_weights(ranks, self.alpha, self.beta)


def inclusion_weights(ranks: IntArray, alpha: float, beta: float) -> FloatArray:
    """MILLI's weight of each part from its rank, of which 0 is the most important.

    It is both the chance to enter a coalition and the ingredient of the coalition's weight: ``alpha`` for the
    first rank, ``1 - alpha`` for the last; ``beta`` bends the curve towards larger (> 0) or smaller coalitions.

    >>> inclusion_weights(np.arange(5), alpha=0.3, beta=-1.0).round(3)
    array([0.3  , 0.305, 0.327, 0.41 , 0.7  ])
    """
    last = len(ranks) - 1
    if last == 0:  # one part has no rank to speak of: a fair coin
        return np.full(1, 0.5)
    rank = ranks.astype(np.float64)
    if alpha > 0.5:
        beta = -beta
    if beta >= 0:
        return (1 - alpha) - (1 - 2 * alpha) * (1 - rank / last) * np.exp(-beta * rank)
    return alpha + (1 - 2 * alpha) * (rank / last) * np.exp(beta * (last - rank))


@dataclass(frozen=True)
class TopDownMilli(Milli):
    """MILLI for the parts; their children drawn at random around them, as in ``TopDown``."""

    def __call__(self, task: Task) -> Conversation[Attribution]:
        return drawn(task, (yield from self.coarsest(task)))


@dataclass(frozen=True)
class LeaveOneOut(BaseMethod):
    """Every leaf removed once from the whole; its value is what the output loses, and parts are sums.

    A budget of fewer rows than leaves removes as many as it pays for, in an order drawn with the seed; the others get
    0, and the explanation says so.

    Examples
    --------
    >>> import numpy as np, c2fa
    >>> masker = c2fa.maskers.Array(c2fa.Structure.from_groups("aab"))
    >>> model = lambda batch: batch @ np.array([1.0, 2.0, 4.0])
    >>> c2fa.Explainer(model, masker, method="leave-one-out", budget=10)(np.ones(3)).low
    array([1., 2., 4.])
    """

    def __call__(self, task: Task) -> Conversation[Attribution]:
        s, last = task.structure, task.structure.depth - 1
        values, unknown = np.zeros((s.leaves, len(task.columns))), s.leaves
        if s.leaves > 1 or task.allows_empty:
            removed = task.rng(3000 + last).permutation(s.leaves)[: sum(task.budget)]  # away from the levels' streams
            answer = yield Ask(last, np.arange(s.leaves) != removed[:, None])
            values[removed[answer.ok]] = (task.prediction - answer.outputs[answer.ok])[:, task.columns]
            unknown -= int(answer.ok.sum())
        notes = (f"{unknown} of {s.leaves} leaves were not removed, for want of rows, and have 0",) if unknown else ()
        return Attribution(
            values=s.level_sums(values),
            intercepts=(task.prediction[task.columns] - values.sum(axis=0),) * s.depth,
            stderr=None,
            levels=(None,) * s.depth,
            notes=notes,
        )

"""ContextCite: a Lasso over the leaves, from rows that keep each of them by a fair coin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from c2fa.asking.querying import Conversation
from c2fa.kernels import uniform
from c2fa.methods.base import Attribution, BaseMethod, Task, gather
from c2fa.penalties import L2
from c2fa.problem import Level, Problem
from c2fa.solvers.solve import solve
from c2fa.structure import FloatArray, Structure


@dataclass(frozen=True, eq=False)
class _L1Each:
    """``Σ λ_i |v_i|``: an l1 penalty on features that are scaled to one variance is one of these on the masks."""

    lams: FloatArray

    @property
    def ridge(self) -> None:
        return None

    def value(self, v: FloatArray) -> float:
        return float((self.lams @ np.abs(v)).sum())

    def prox(self, v: FloatArray, step: float) -> FloatArray:
        shrunk: FloatArray = np.sign(v) * np.maximum(np.abs(v).T - step * self.lams, 0.0).T
        return shrunk


@dataclass(frozen=True)
class ContextCite(BaseMethod):
    """ContextCite's recipe (Cohen-Wang et al., NeurIPS 2024), for comparison: flat, with the parts as sums.

    All rows of the budget ask about leaves, each kept by a fair coin. What the model says is divided by ``tokens``,
    masks are scaled to mean 0 and variance 1, and scikit-learn's ``Lasso(alpha)`` is fitted to both; its coefficients
    are scaled back. The authors fit the log-odds of the answer: ``link="logit"``, which ``cite`` sets for this method.

    Parameters
    ----------
    alpha
        The strength of the Lasso, as scikit-learn counts it: it multiplies ``‖w‖₁`` beside half the *mean* squared
        error.
    tokens
        How many tokens the answer has, or one number for each output of the model; None takes what ``cite`` knows of
        its answer, and 1 elsewhere. ``alpha`` is for the log-odds per token, so that an answer of many tokens is
        penalised in proportion.

    Examples
    --------
    >>> import numpy as np, c2fa
    >>> model = lambda batch: batch @ np.array([1.0, 2.0, 0.0])
    >>> masker = c2fa.maskers.Array(c2fa.Structure.from_groups("aab"))
    >>> e = c2fa.Explainer(model, masker, method="context-cite", budget=40)(np.ones(3))
    >>> e.low.round(1), bool(e.high[0] == e.low[0] + e.low[1])
    (array([1., 2., 0.]), True)
    """

    alpha: float = 0.01
    tokens: int | Sequence[int] | None = None

    def __post_init__(self) -> None:
        if not (np.isfinite(self.alpha) and self.alpha >= 0):
            raise ValueError(f"alpha must be a finite number of at least 0; got {self.alpha!r}")
        tokens = np.asarray(1 if self.tokens is None else self.tokens)
        if tokens.ndim > 1 or tokens.dtype.kind not in "iu" or not tokens.size or (tokens < 1).any():
            raise ValueError(f"tokens must be a whole number above 0, or one for each output; got {self.tokens!r}")

    def __call__(self, task: Task) -> Conversation[Attribution]:
        s, last = task.structure, task.structure.depth - 1
        all_rows = replace(task, budget=(*(0,) * last, sum(task.budget)))
        rows = yield from gather(
            all_rows, last, sampler="uniform", kernel=uniform, penalty=L2(0.0), intercept=True, anchor=False
        )
        masks, counts, outputs = rows.masks, rows.weights, rows.outputs
        tokens = self._tokens(task)
        kept = counts @ masks / counts.sum()
        spread = np.sqrt(kept * (1.0 - kept))  # the scale of a column of bits; 0 where a leaf is constant, and gets 0
        penalty = _L1Each(self.alpha * counts.sum() * spread)
        level = Level(masks, outputs / tokens, counts, penalty, True)
        # To a fine tolerance, so that what is compared is the recipe and not the solver.
        fit = solve(Problem(Structure.flat(s.leaves), (level,)), rtol=1e-9, atol=1e-9)
        values, intercept = fit.values[0] * tokens, fit.intercepts[0] * tokens
        own = float(tokens[task.column])
        shown = Level(masks, outputs, counts, _L1Each(penalty.lams * own), True)  # in the units of the outputs
        return Attribution(
            values=s.level_sums(values),
            intercepts=(intercept,) * s.depth,
            stderr=None,
            levels=(*(None,) * (s.depth - 1), shown),
            status=fit.status,
            iterations=fit.iterations,
        )

    def _tokens(self, task: Task) -> FloatArray:
        """The tokens of each output that is explained."""
        given = np.asarray((task.tokens or 1) if self.tokens is None else self.tokens, dtype=np.float64)
        if given.ndim and len(given) != len(task.prediction):
            raise ValueError(
                f"tokens has {len(given)} numbers and the model {len(task.prediction)} outputs; give one for each"
            )
        return np.broadcast_to(given, len(task.prediction))[task.columns]

"""Metrics that ask the model, to see whether it does what the attributions say.

Each is a conversation, like a method: it yields questions, receives answers and returns its result. Its driver batches,
checks, counts and shares the rows; ``measure`` drives one metric alone.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from c2fa.asking.driver import Job, drive
from c2fa.asking.masking import Masked
from c2fa.asking.model import Model
from c2fa.asking.querying import Answer, Ask, Cache, Conversation, Queries
from c2fa.metrics.agreement import higher_is_better
from c2fa.structure import BoolArray, FloatArray

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Curve:
    """A model's output ``y`` over the share ``x`` of features added or removed, and the area under it."""

    x: FloatArray
    y: FloatArray
    auc: float

    def __float__(self) -> float:
        return self.auc


def measure(conversation: Conversation[T], masked: Masked, model: Model, *, batch_size: int = 64) -> T:
    """Ask the model one metric's questions and return the metric's value.

    >>> import c2fa
    >>> masked = c2fa.maskers.Array(c2fa.Structure.from_groups("ab"))(np.ones(2))
    >>> measure(deletion([0.1, 0.9]), masked, lambda batch: batch @ np.array([1.0, 3.0])).y
    array([4., 1., 0.])
    """
    job = Job(conversation, Queries(Cache(masked), budget=sys.maxsize))
    [job] = drive([job], model, batch_size=batch_size)
    return job.result()


@higher_is_better(False)
def deletion(
    values: npt.ArrayLike, level: int = -1, target: int = 0, *, points: int | None = None, empty: bool = True
) -> Conversation[Curve]:
    """Output while a level's features are masked one by one, the most important first, to the empty input.

    The curve has both ends, and its area is the trapezoid's on [0, 1]. Ties keep the features' own order.

    Parameters
    ----------
    points
        The most steps, each of several features; None masks one feature a step.
    empty
        Whether the model can take the input with everything masked; if not, the curve ends before it, and the area is
        divided by the part of [0, 1] that it covers.

    Examples
    --------
    >>> curve = deletion([0.1, 0.9])  # a conversation: measure() puts it to a model
    >>> next(curve).masks.astype(int).tolist()
    [[1, 1], [1, 0], [0, 0]]
    """
    return (yield from _curve(values, level, target, points, empty, remove=True))


@higher_is_better(True)
def insertion(
    values: npt.ArrayLike, level: int = -1, target: int = 0, *, points: int | None = None, empty: bool = True
) -> Conversation[Curve]:
    """Output while a level's features are shown one by one, the most important first, from the empty input.

    The mirror of ``deletion``.

    >>> next(insertion([0.1, 0.9])).masks.astype(int).tolist()
    [[0, 0], [0, 1], [1, 1]]
    """
    return (yield from _curve(values, level, target, points, empty, remove=False))


@higher_is_better(False)
def infidelity(
    values: npt.ArrayLike, masks: npt.ArrayLike, level: int = -1, target: int = 0, *, intercept: float = 0.0
) -> Conversation[float]:
    """Mean squared error of the surrogate ``intercept + masks · values`` on held-out masks (``held_out``).

    >>> import c2fa
    >>> masked = c2fa.maskers.Array(c2fa.Structure.from_groups("ab"))(np.ones(2))
    >>> measure(infidelity([1.0, 2.0], [[1, 1], [0, 1]]), masked, lambda batch: batch @ np.array([1.0, 3.0]))
    1.0
    """
    scores = _vector(values)
    rows = _masks(masks, len(scores))
    answer = yield Ask(level, rows)
    error = np.square(_output(answer, target) - (intercept + rows @ scores))
    return float(error[answer.ok].mean()) if answer.ok.any() else float("nan")


@higher_is_better(True)
def topk_drop(values: npt.ArrayLike, k: int = 1, level: int = -1, target: int = 0) -> Conversation[float]:
    """The fall of the output when the k features of highest value are removed from the whole input.

    In nats for an answer's log-probability. Ties keep the features' own order; NaN if a row got no answer.

    >>> import c2fa
    >>> masked = c2fa.maskers.Array(c2fa.Structure.from_groups("ab"))(np.ones(2))
    >>> measure(topk_drop([0.1, 0.9]), masked, lambda batch: batch @ np.array([1.0, 3.0]))
    3.0
    """
    scores = _vector(values)
    if k < 1:
        raise ValueError(f"k must be at least 1, the features to remove; got {k}")
    masks = _ladder(np.argsort(-scores, kind="stable"), np.array([0, min(k, len(scores))]))
    answer = yield Ask(level, masks)
    whole, without = _output(answer, target)
    return float(whole - without)


@higher_is_better(True)
def lds(values: npt.ArrayLike, masks: npt.ArrayLike, level: int = -1, target: int = 0) -> Conversation[float]:
    """Rank correlation (Spearman's) of predicted and real outputs on held-out masks (``held_out``).

    The linear datamodeling score, as ContextCite measures it: the prediction is the sum of the values that a mask
    keeps. 0 if all predictions are equal; NaN if all outputs are.

    >>> import c2fa
    >>> masked = c2fa.maskers.Array(c2fa.Structure.from_groups("ab"))(np.ones(2))
    >>> model = lambda batch: batch @ np.array([1.0, 3.0])
    >>> measure(lds([0.1, 0.9], [[1, 0], [0, 1], [1, 1]]), masked, model)
    1.0
    """
    from scipy.stats import rankdata

    scores = _vector(values)
    rows = _masks(masks, len(scores))
    answer = yield Ask(level, rows)
    outputs, predicted = _output(answer, target)[answer.ok], rows[answer.ok] @ scores
    if len(outputs) < 2 or np.ptp(outputs) == 0:
        return float("nan")
    if np.ptp(predicted) <= 1e-12 * np.abs(scores).sum():
        return 0.0
    return float(np.corrcoef(rankdata(predicted), rankdata(outputs))[0, 1])


def held_out(width: int, n: int, seed: int = 0, *, empty: bool = True) -> BoolArray:
    """Fair-coin masks from a random stream of their own, which no method draws from.

    >>> held_out(4, 100).shape
    (100, 4)
    """
    masks = np.random.default_rng((seed, 0x4E1D)).random((n, width)) < 0.5
    if not empty:
        masks[~masks.any(axis=1)] = True
    return masks


def _curve(
    values: npt.ArrayLike, level: int, target: int, points: int | None, empty: bool, *, remove: bool
) -> Conversation[Curve]:
    scores = _vector(values)
    n = len(scores)
    if points is not None and points < 1:
        raise ValueError(f"points must be at least 1; got {points}")
    steps = np.unique(np.linspace(0, n, min(points or n, n) + 1).round().astype(np.intp))
    masks = _ladder(np.argsort(-scores, kind="stable"), steps)
    masks = masks if remove else ~masks
    kept = np.asarray(masks.any(axis=1)) | empty
    answer = yield Ask(level, masks[kept])
    x, y = (steps[kept] / n)[answer.ok], _output(answer, target)[answer.ok]
    if not len(x):
        auc = float("nan")
    elif len(x) == 1:  # one feature that cannot be masked
        auc = float(y[0])
    else:
        auc = float(np.diff(x) @ (y[1:] + y[:-1])) / 2.0 / float(x[-1] - x[0])
    return Curve(x, y, auc)


def _ladder(order: npt.NDArray[np.intp], steps: npt.NDArray[np.intp]) -> BoolArray:
    """A mask for each step, without so many of the first features of an order."""
    rank = np.empty(len(order), dtype=np.intp)
    rank[order] = np.arange(len(order))
    ladder: BoolArray = rank[None, :] >= steps[:, None]
    return ladder


def _output(answer: Answer, target: int) -> FloatArray:
    width = answer.outputs.shape[1]
    if not 0 <= target < width:
        raise ValueError(f"target {target} does not exist; the model has outputs 0..{width - 1}")
    return answer.outputs[:, target]


def _masks(masks: npt.ArrayLike, width: int) -> BoolArray:
    rows = np.asarray(masks, dtype=np.bool_)
    if rows.ndim != 2 or rows.shape[1] != width:
        raise ValueError(f"masks must have shape (n, {width}), one column for each value; got {rows.shape}")
    return rows


def _vector(values: npt.ArrayLike) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not len(array) or not np.isfinite(array).all():
        raise ValueError(f"values must be finite numbers, one for each feature of the level; got shape {array.shape}")
    return array

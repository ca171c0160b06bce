"""Agreement of an explanation: of its levels, of its runs, and with known truth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from c2fa import solution
from c2fa.structure import FloatArray, Structure

Metric = TypeVar("Metric", bound=Callable[..., Any])


def higher_is_better(better: bool | None) -> Callable[[Metric], Metric]:
    """Mark a metric by whether more is better; None if a value in between is best.

    >>> higher_is_better(False)(lambda: 0).higher_is_better
    False
    """

    def mark(metric: Metric) -> Metric:
        metric.higher_is_better = better  # type: ignore[attr-defined]  # functions take attributes; types do not
        return metric

    return mark


consistency = higher_is_better(False)(solution.consistency)


@higher_is_better(True)
def mihl(values: Sequence[FloatArray], structure: Structure) -> float:
    """1 if the most important leaf is in the most important part of the coarsest level, else 0.

    >>> mihl([np.array([3.0, 4.0]), np.array([1.0, 2.5, 2.0])], Structure.from_groups("aab"))
    0.0
    """
    return float(structure.owners(0)[np.argmax(values[-1])] == np.argmax(values[0]))


@higher_is_better(True)
def stability(runs: npt.ArrayLike) -> float:
    """Mean rank correlation (Spearman's) over all pairs of runs, (runs, features); ties share their rank.

    NaN for fewer than two runs or features, or if all values of a run are equal.

    >>> stability([[1.0, 2.0, 3.0], [10.0, 20.0, 30.0], [3.0, 2.0, 1.0]])
    -0.333...
    """
    from scipy.stats import rankdata

    table = np.asarray(runs, dtype=np.float64)
    if table.ndim != 2:
        raise ValueError(f"runs must have shape (runs, features); got {table.shape}")
    ranks = rankdata(table, axis=1)
    ranks -= ranks.mean(axis=1, keepdims=True)
    norms = np.linalg.norm(ranks, axis=1)
    if len(table) < 2 or table.shape[1] < 2 or not norms.all():
        return float("nan")
    correlations = (ranks @ ranks.T) / np.outer(norms, norms)
    return float(correlations[np.triu_indices(len(table), 1)].mean())


@higher_is_better(None)
def coverage(values: npt.ArrayLike, stderr: npt.ArrayLike, truth: npt.ArrayLike, confidence: float = 0.95) -> float:
    """Share of true values inside ``value ± z · stderr``; best at ``confidence``, for too high is wrong as well.

    The truth is known for additive models: a feature's weight times the change of its value by masking.

    >>> coverage([1.0, 2.0, 3.0, 4.0], [0.1, 0.1, 0.1, 1.0], [1.1, 2.5, 3.0, 3.0])
    0.75
    """
    from scipy.special import ndtri

    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must lie between 0 and 1; got {confidence}")
    reach = ndtri(0.5 + confidence / 2.0) * np.asarray(stderr, dtype=np.float64)
    return float(np.mean(np.abs(np.asarray(values) - np.asarray(truth)) <= reach))


@higher_is_better(True)
def ndcg(values: npt.ArrayLike, relevant: npt.ArrayLike) -> float:
    """NDCG@n for n relevant features: 1 if they are exactly the top n; NaN if there are none.

    ``relevant`` is 1 for supporting features, 0 for neutral ones, -1 for refuting ones, and NaN for unknown ones, which
    are left out. Unlike scikit-learn's, the sum ends after n.

    >>> round(ndcg([0.9, 0.1, 0.5], [1, 1, 0]), 4)
    0.6131
    """
    scores, gains = _pair(values, relevant)
    n = int((gains == 1).sum())
    if n == 0:
        return float("nan")
    discount = 1.0 / np.log2(np.arange(2, n + 2))
    order = np.argsort(-scores, kind="stable")
    return float(gains[order][:n] @ discount / discount.sum())


@higher_is_better(True)
def top1(values: npt.ArrayLike, relevant: npt.ArrayLike) -> float:
    """1 if the feature with the largest attribution is relevant, else 0; NaN if nothing is relevant.

    >>> top1([0.9, 0.1], [1, 0]), top1([0.1, 0.9], [1, 0])
    (1.0, 0.0)
    """
    scores, gains = _pair(values, relevant)
    return float(gains[np.argmax(scores)] == 1) if (gains == 1).any() else float("nan")


@higher_is_better(True)
def evidence_recall(values: npt.ArrayLike, relevant: npt.ArrayLike, k: int = 1) -> float:
    """The share of the relevant features among the k of highest value; NaN if nothing is relevant.

    ``relevant`` is as in ``ndcg``. Ties keep the features' own order.

    >>> evidence_recall([0.9, 0.1, 0.5], [1, 1, 0], k=2)
    0.5
    """
    if k < 1:
        raise ValueError(f"k must be at least 1, the features to look among; got {k}")
    scores, gains = _pair(values, relevant)
    is_evidence = gains == 1
    top = np.argsort(-scores, kind="stable")[:k]
    return float(is_evidence[top].sum() / is_evidence.sum()) if is_evidence.any() else float("nan")


@higher_is_better(True)
def auroc(scores: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """The chance that a positive outranks a negative, ties counting half; NaN if there is only one kind.

    ``labels`` are 1, 0, or NaN to ignore the score; or a table (n, 2) of how much of each feature is positive and how
    much negative, such as ``pixel_counts`` gives.

    >>> auroc([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1])
    0.75
    >>> auroc([0.1, 0.4, 0.8, 0.9], [0, 0, 1, np.nan])
    1.0
    """
    values, truth = np.asarray(scores, dtype=np.float64), np.asarray(labels, dtype=np.float64)
    if truth.ndim == 1:
        truth = np.stack([truth == 1, truth == 0], axis=1).astype(np.float64)
    if values.ndim != 1 or truth.shape != (len(values), 2):
        raise ValueError(
            f"scores of shape {values.shape} need one label each, or a table of shape ({values.size}, 2); "
            f"got shape {np.shape(labels)}"
        )
    _check_known(values)
    levels, where = np.unique(values, return_inverse=True)
    positive, negative = (np.bincount(where, column, len(levels)) for column in truth.T)
    pairs = float(positive.sum() * negative.sum())
    below = np.cumsum(negative) - negative / 2.0
    return float(positive @ below) / pairs if pairs > 0 else float("nan")


def pixel_counts(
    segments: Sequence[npt.ArrayLike], truths: Sequence[npt.ArrayLike], void: int | None = 255
) -> FloatArray:
    """Positive and negative pixels of each super-pixel, (leaves, 2), over all images of a bag in order.

    With them ``auroc`` is that of pixels, each scored by its super-pixel. ``segments`` are label maps with labels
    0, 1, … in each image; ``truths`` are 1 for positive pixels, ``void`` for pixels to ignore, and negative otherwise.

    >>> pixel_counts([[[0, 0, 1]], [[0, 1, 1]]], [[[1, 0, 255]], [[0, 1, 1]]]).tolist()
    [[1.0, 1.0], [0.0, 0.0], [0.0, 1.0], [2.0, 0.0]]
    """
    tables = []
    for labels, truth in zip(map(np.asarray, segments), map(np.asarray, truths), strict=True):
        if labels.shape != truth.shape:
            raise ValueError(f"a label map of shape {labels.shape} needs a truth of that shape; got {truth.shape}")
        count = int(labels.max()) + 1
        valid = np.ones_like(truth, np.bool_) if void is None else truth != void
        tables.append([np.bincount(labels[valid & kind], minlength=count) for kind in (truth == 1, truth != 1)])
    return np.concatenate([np.stack(table, axis=1) for table in tables]).astype(np.float64)


def _pair(values: npt.ArrayLike, relevant: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    scores, gains = np.asarray(values, dtype=np.float64), np.asarray(relevant, dtype=np.float64)
    if scores.ndim != 1 or scores.shape != gains.shape:
        raise ValueError(f"{scores.shape} values need one mark of relevance each; got shape {gains.shape}")
    _check_known(scores)
    known = ~np.isnan(gains)
    return scores[known], gains[known]


def _check_known(values: FloatArray) -> None:
    """Refuse NaN, which sorting would put above all numbers."""
    if np.isnan(values).any():
        raise ValueError(f"the attribution of feature {int(np.isnan(values).argmax())} is NaN; it cannot be ranked")

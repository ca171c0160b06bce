"""Whether an explanation agrees: its levels with each other, its runs with each other, its intervals with the truth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from c2fa.structure import FloatArray, Structure

Metric = TypeVar("Metric", bound=Callable[..., Any])


def higher_is_better(better: bool | None) -> Callable[[Metric], Metric]:
    """Mark a metric with whether more of it is better; None where it is best at a value in between.

    >>> higher_is_better(False)(lambda: 0).higher_is_better
    False
    """

    def mark(metric: Metric) -> Metric:
        metric.higher_is_better = better  # type: ignore[attr-defined]  # functions take attributes; types do not
        return metric

    return mark


@higher_is_better(False)
def consistency(values: Sequence[FloatArray], structure: Structure) -> float:
    """``‖α − Mβ‖²``, summed over the levels above the leaves: 0 where every part is the sum of its leaves.

    ``values`` are an explanation's, one array for each level, coarse to fine.

    >>> consistency([np.array([3.0, 4.0]), np.array([1.0, 2.0, 2.0])], Structure.from_groups("aab"))
    4.0
    """
    leaves = values[-1]
    gaps = (values[k] - structure.sums(leaves, k) for k in range(structure.depth - 1))
    return float(sum(np.square(gap).sum() for gap in gaps))


@higher_is_better(True)
def mihl(values: Sequence[FloatArray], structure: Structure) -> float:
    """1 where the most important leaf lies in the most important part of the coarsest level, else 0.

    >>> mihl([np.array([3.0, 4.0]), np.array([1.0, 2.5, 2.0])], Structure.from_groups("aab"))
    0.0
    """
    return float(structure.owners(0)[np.argmax(values[-1])] == np.argmax(values[0]))


@higher_is_better(True)
def stability(runs: npt.ArrayLike) -> float:
    """Mean rank correlation (Spearman's) over all pairs of runs, (runs, features); ties share their rank.

    NaN where there are fewer than two runs or features, or where a run ranks nothing.

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
    """Share of true values inside ``value ± z · stderr``; best at ``confidence``, too high being wrong as well.

    The truth is known for additive models: a feature's weight times what masking takes from it.

    >>> coverage([1.0, 2.0, 3.0, 4.0], [0.1, 0.1, 0.1, 1.0], [1.1, 2.5, 3.0, 3.0])
    0.75
    """
    from scipy.special import ndtri

    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must lie between 0 and 1; got {confidence}")
    reach = ndtri(0.5 + confidence / 2.0) * np.asarray(stderr, dtype=np.float64)
    return float(np.mean(np.abs(np.asarray(values) - np.asarray(truth)) <= reach))

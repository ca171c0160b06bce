"""Whether another seed gives the same ranking of features."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from c2fa.metrics._direction import higher_is_better


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

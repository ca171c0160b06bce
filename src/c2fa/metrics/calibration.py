"""Whether intervals hold the truth as often as they claim."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from c2fa.metrics._direction import higher_is_better


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

"""Numbers as bars, colours and lines can show them, whatever they are."""

from __future__ import annotations

import numpy as np

from c2fa.structure import FloatArray


def largest(values: FloatArray) -> float:
    """The largest absolute value among those that are finite; 0 where there is none.

    >>> largest(np.array([-2.0, 1.0, np.nan, np.inf])), largest(np.array([]))
    (2.0, 0.0)
    """
    return float(np.abs(values[np.isfinite(values)]).max(initial=0.0))


def shares(values: FloatArray, most: float) -> FloatArray:
    """Values as shares of the largest, from −1 to 1; what is not a number has none.

    >>> shares(np.array([-1.0, np.nan, np.inf]), 2.0).tolist()
    [-0.5, 0.0, 1.0]
    """
    with np.errstate(over="ignore"):  # the largest may be as small as a number can be
        return np.clip(np.nan_to_num(values / most), -1.0, 1.0)


def settled(values: FloatArray) -> FloatArray:
    """Numbers without what is only rounding, which a picture would shade as if it were something.

    >>> settled(np.array([1e-13, -0.5])).tolist()
    [0.0, -0.5]
    """
    return np.where(np.abs(values) <= 1e-12, 0.0, values)


def of_largest(values: FloatArray) -> FloatArray:
    """Values as shares of the largest of them, from −1 to 1; all 0 where they are only rounding.

    >>> of_largest(np.array([-1.0, 2.0])).tolist(), of_largest(np.array([1e-14])).tolist()
    ([-0.5, 1.0], [0.0])
    """
    return shares(settled(values), largest(settled(values)) or 1.0)


def scaled(lines: FloatArray) -> FloatArray:
    """Each line of (lines, steps) from 0 to 1, a constant one at 0.5; what is not finite is a gap, NaN.

    >>> scaled(np.array([[1.0, np.inf, 3.0], [7.0, 7.0, np.nan], [np.nan] * 3])).tolist()
    [[0.0, nan, 1.0], [0.5, 0.5, nan], [nan, nan, nan]]
    """
    there = np.isfinite(lines)
    halves = np.where(there, lines / 2, np.nan)  # because the spread of finite numbers need not be finite
    low = halves.min(axis=1, keepdims=True, where=there, initial=np.inf)
    spread = halves.max(axis=1, keepdims=True, where=there, initial=-np.inf) - low
    varied = np.where(spread > 0, (halves - low) / np.where(spread > 0, spread, 1.0), 0.5)
    return np.where(there, varied, np.nan)

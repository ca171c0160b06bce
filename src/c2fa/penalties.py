"""Penalties on a level's attributions: value and prox, one small class each.

A penalty has ``value(v)``, ``prox(v, step)`` (the minimiser of ``step·Ω(u) + ½‖u − v‖²``) and ``ridge``, which says
whether the direct solver may be used: λ for ``λ‖v‖²``, one for each feature for ``Σ λ_i v_i²``, None for any other
penalty. The convention is the paper's, without a half: scikit-learn's ``alpha`` is ``2 λ``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn, Protocol, runtime_checkable

import numpy as np

from c2fa._system import is_real, is_whole
from c2fa.structure import FloatArray


@runtime_checkable
class Penalty(Protocol):
    """A penalty as solvers use it."""

    @property
    def ridge(self) -> float | FloatArray | None:
        """λ if the penalty is exactly ``λ‖v‖²``, or one for each feature; else None."""
        ...

    def value(self, v: FloatArray) -> float:
        """The penalty of v; infinite where v is not allowed."""
        ...

    def prox(self, v: FloatArray, step: float) -> FloatArray:
        """The proximal step from v."""
        ...


@dataclass(frozen=True)
class ElasticNet:
    """``l1 ‖v‖₁ + l2 ‖v‖²``, optionally with every value at least zero.

    >>> ElasticNet(l1=1.0, l2=0.5).prox(np.array([3.0, -0.5]), step=1.0)
    array([ 1., -0.])
    """

    l1: float
    l2: float
    positive: bool = False

    def __post_init__(self) -> None:
        for name, value in (("l1", self.l1), ("l2", self.l2)):
            _check_strength(name, value)

    @property
    def ridge(self) -> float | None:
        return self.l2 if self.l1 == 0 and not self.positive else None

    def value(self, v: FloatArray) -> float:
        if self.positive and (v < 0).any():
            return float("inf")
        return float(self.l1 * np.abs(v).sum() + self.l2 * np.square(v).sum())

    def prox(self, v: FloatArray, step: float) -> FloatArray:
        small = np.maximum(np.abs(v) - step * self.l1, 0.0) if self.l1 else np.abs(v)
        shrunk: FloatArray = np.sign(v) * small / (1.0 + 2.0 * step * self.l2)
        return np.maximum(shrunk, 0.0) if self.positive else shrunk


@dataclass(frozen=True)
class L2:
    """``λ ‖v‖²``: many small attributions; the solution is one linear solve.

    >>> L2(0.5).prox(np.array([2.0]), step=1.0)
    array([1.])
    """

    lam: float
    positive: bool = False

    def __post_init__(self) -> None:
        _check_strength("lam", self.lam)

    @property
    def ridge(self) -> float | None:
        return None if self.positive else self.lam

    def value(self, v: FloatArray) -> float:
        return ElasticNet(0.0, self.lam, self.positive).value(v)

    def prox(self, v: FloatArray, step: float) -> FloatArray:
        return ElasticNet(0.0, self.lam, self.positive).prox(v, step)


@dataclass(frozen=True, eq=False)
class L2Each:
    """``Σ λ_i v_i²``: an l2 penalty with a strength for each feature of the level.

    >>> L2Each([0.5, 2.0]).prox(np.array([2.0, 5.0]), step=1.0)
    array([1., 1.])
    """

    lams: FloatArray

    def __post_init__(self) -> None:
        try:
            lams = np.array(self.lams, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            lams = np.array(np.nan)
        if lams.ndim != 1 or not (np.isfinite(lams) & (lams >= 0)).all():
            raise ValueError("lams must be finite numbers of at least 0, one for each feature of the level")
        lams.setflags(write=False)
        object.__setattr__(self, "lams", lams)

    @property
    def ridge(self) -> FloatArray:
        return self.lams

    def value(self, v: FloatArray) -> float:
        return float((self.lams @ np.square(v)).sum())

    def prox(self, v: FloatArray, step: float) -> FloatArray:
        shrunk: FloatArray = (v.T / (1.0 + 2.0 * step * self.lams)).T
        return shrunk


@dataclass(frozen=True)
class L1:
    """``λ ‖v‖₁``: few attributions, the rest exactly zero.

    >>> L1(1.0).prox(np.array([3.0, -0.5]), step=1.0)
    array([ 2., -0.])
    """

    lam: float
    positive: bool = False

    def __post_init__(self) -> None:
        _check_strength("lam", self.lam)

    @property
    def ridge(self) -> float | None:
        return 0.0 if self.lam == 0 and not self.positive else None

    def value(self, v: FloatArray) -> float:
        return ElasticNet(self.lam, 0.0, self.positive).value(v)

    def prox(self, v: FloatArray, step: float) -> FloatArray:
        return ElasticNet(self.lam, 0.0, self.positive).prox(v, step)


@dataclass(frozen=True)
class NonNegative:
    """Non-negative; no shrinkage.

    >>> NonNegative().prox(np.array([2.0, -1.0]), step=1.0)
    array([2., 0.])
    """

    @property
    def ridge(self) -> float | None:
        return None

    def value(self, v: FloatArray) -> float:
        return float("inf") if (v < 0).any() else 0.0

    def prox(self, v: FloatArray, step: float) -> FloatArray:
        return np.maximum(v, 0.0)


@dataclass(frozen=True)
class Auto:
    """An l2 strength for each leaf, by maximum evidence of the outputs, when the problem is solved.

    Give it to every level; a level of parts may instead have ``L2(0)``, which it becomes there. See
    ``c2fa.solvers.auto``.

    Parameters
    ----------
    output
        The column of the outputs that decides; None lets all of them decide together, each in proportion to its
        variance. The explainer gives the target's.
    tail
        The degrees of freedom of the Student's t distribution of a part's leaves. Small numbers expect a few large
        leaves among many small ones; ``inf`` gives every leaf of a part the same strength. None estimates it.
    noiseless
        Whether the model always gives the same outputs for the same input. The leaves' standard errors are then those
        of a description of a fixed function, and smaller (``c2fa.solvers.misfit``); values are the same. None is True
        for log-probabilities of a given answer (``c2fa.cite``) and False for all others.
    sizes
        The expected variance of each leaf's value; only their ratios count. None expects all leaves of a part to be
        alike. In a fit around a prior's expectation, the prior's sizes replace them.
    """

    output: int | None = None
    tail: float | None = None
    noiseless: bool | None = None
    sizes: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.tail is not None and not (is_real(self.tail) and self.tail > 0):
            raise ValueError(f"tail must be above 0, inf, or None to estimate it; got {self.tail!r}")
        if self.output is not None and not (is_whole(self.output) and self.output >= 0):
            raise ValueError(f"output must be the place of an output, from 0, or None; got {self.output!r}")
        if not (self.noiseless is None or isinstance(self.noiseless, bool | np.bool_)):
            raise TypeError(f"noiseless must be True, False or None; got {self.noiseless!r}")
        if self.sizes is not None:
            sizes = np.asarray(self.sizes, dtype=np.float64)
            if sizes.ndim != 1 or not (np.isfinite(sizes) & (sizes > 0)).all():
                raise ValueError("sizes must be finite numbers above 0, one for each leaf")
            object.__setattr__(self, "sizes", tuple(sizes.tolist()))

    @property
    def columns(self) -> slice:
        """The columns of the outputs that decide."""
        return slice(None) if self.output is None else slice(self.output, self.output + 1)

    @property
    def ridge(self) -> None:
        return None

    def value(self, v: FloatArray) -> NoReturn:
        raise TypeError("Auto() has no strength until its problem is solved; solve it with c2fa.solve, or give L2(0.1)")

    def prox(self, v: FloatArray, step: float) -> NoReturn:
        self.value(v)


def _check_strength(name: str, value: float) -> None:
    if not (is_real(value) and 0 <= value < np.inf):
        raise ValueError(f"{name} must be a finite number of at least 0; got {value!r}")


def check_penalty(penalty: Any) -> None:
    if not isinstance(penalty, Penalty):
        raise TypeError(
            f"penalty must be L2(0.1), 'auto', L1(0.1), ElasticNet(...), NonNegative() or your own class with ridge, "
            f"value and prox, not {penalty!r}"
        )

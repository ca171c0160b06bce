"""Penalties on a level's attributions: value and prox, one small class each.

A penalty is anything with ``value(v)``, ``prox(v, step)`` (the minimiser of ``step·Ω(u) + ½‖u − v‖²``) and
``ridge``: its λ where it is exactly ``λ‖v‖²`` and None where it is not, so that the direct solver knows whether
it may be used. The convention is the paper's, without a half: scikit-learn's ``alpha`` is ``2 λ``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from c2fa.structure import FloatArray


class Penalty(Protocol):
    """What a solver may ask of a penalty."""

    @property
    def ridge(self) -> float | None:
        """λ where the penalty is exactly ``λ‖v‖²``, else None."""
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
    """``λ ‖v‖²``: many small attributions; the answer is one linear solve.

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
    """No attribution below zero, and no other wish.

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


def _check_strength(name: str, value: float) -> None:
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not (number and np.isfinite(value) and value >= 0):
        raise ValueError(f"{name} must be a finite number of at least 0; got {value!r}")

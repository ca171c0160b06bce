"""The Cholesky factor of a symmetric positive definite matrix, and what is computed with it.

LAPACK is called directly: on matrices of a hundred rows SciPy's wrappers take as long as the work itself.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from scipy.linalg import LinAlgError
from scipy.linalg.blas import dsyrk, dtrmm, dtrsm
from scipy.linalg.lapack import dpotrf, dpotrs, dtrtri

from c2fa.structure import FloatArray


class Cholesky:
    """``L`` with ``LL' = matrix``, of which the lower triangle is read and may be overwritten.

    >>> import numpy as np
    >>> factor = Cholesky(np.array([[4.0, 0.0], [2.0, 2.0]], order="F"))
    >>> factor.lower
    array([[2., 0.],
           [1., 1.]])
    >>> factor.solve(np.array([[8.0], [4.0]])).ravel()
    array([2., 0.])
    """

    def __init__(self, matrix: FloatArray) -> None:
        self.lower, wrong = dpotrf(matrix, lower=1, clean=1, overwrite_a=1)
        if wrong:
            raise LinAlgError("the matrix is not positive definite: its rows span too many orders of magnitude")

    def solve(self, right: FloatArray) -> FloatArray:
        """``(LL')⁻¹ right``, for right-hand sides of shape (n, k)."""
        solution: FloatArray = dpotrs(self.lower, right, lower=1)[0]
        return solution

    def half(self, right: FloatArray) -> FloatArray:
        """``L⁻¹ right``: its columns' squared lengths are the diagonal of ``right'(LL')⁻¹ right``."""
        solution: FloatArray = dtrsm(1.0, self.lower, right, lower=1)
        return solution

    @cached_property
    def inverse(self) -> FloatArray:
        """``L⁻¹``. Where it is needed anyway, a product with it takes half the time of a solve with L."""
        return self.invert(np.zeros(self.lower.shape, order="F"))

    def invert(self, out: FloatArray) -> FloatArray:
        """Write ``L⁻¹`` into the lower triangle of a matrix of zeros, or of another inverse."""
        _invert(self.lower, out)
        return out


def _invert(lower: FloatArray, out: FloatArray) -> None:
    """Invert a lower triangle by halves: products of blocks take half the time of LAPACK's ``dtrtri``."""
    n = len(lower)
    if n <= 64:  # LAPACK is as fast as any
        out[...] = dtrtri(lower, lower=1)[0]
        return
    first, second = slice(0, n // 2), slice(n // 2, n)
    _invert(lower[first, first], out[first, first])
    _invert(lower[second, second], out[second, second])
    product = dtrmm(1.0, out[first, first], lower[second, first], side=1, lower=1)
    out[second, first] = dtrmm(-1.0, out[second, second], product, lower=1, overwrite_b=1)


def symmetric_product(rows: FloatArray) -> FloatArray:
    """``rows' rows`` in its lower triangle: a symmetric product costs half of a general one."""
    product: FloatArray = dsyrk(1.0, rows.T, lower=1)
    return product


def triangle(matrix: FloatArray) -> FloatArray:
    """R of ``matrix = QR``."""
    upper: FloatArray = np.linalg.qr(matrix, mode="r")  # type: ignore[assignment]  # its stub does not tell modes apart
    return upper

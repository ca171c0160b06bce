"""Solvers: a Problem in, a Solution out."""

from c2fa.solvers.solve import SOLVERS, solve

__all__ = ["SOLVERS", "solve"]

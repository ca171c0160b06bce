"""Attributions that add up, at every level of a nested input."""

__version__ = "0.1.0"

from c2fa import maskers
from c2fa.explainer import Explainer
from c2fa.explanation import Diagnostics, Explanation, load
from c2fa.ledger import Ledger
from c2fa.penalties import L1, L2, ElasticNet, NonNegative
from c2fa.problem import Level, Problem
from c2fa.querying import BudgetError, QueryError
from c2fa.solution import Solution, Status
from c2fa.solvers import solve
from c2fa.structure import Structure

__all__ = [
    "L1",
    "L2",
    "BudgetError",
    "Diagnostics",
    "ElasticNet",
    "Explainer",
    "Explanation",
    "Ledger",
    "Level",
    "NonNegative",
    "Problem",
    "QueryError",
    "Solution",
    "Status",
    "Structure",
    "load",
    "maskers",
    "solve",
]

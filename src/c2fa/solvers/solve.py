"""One door to the solvers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from c2fa._system import suited
from c2fa.penalties import Auto, Penalty
from c2fa.problem import Problem
from c2fa.solution import Solution
from c2fa.solvers.admm import admm
from c2fa.solvers.auto import check_alike, choose
from c2fa.solvers.direct import direct
from c2fa.solvers.intervals import calibrated, with_choice
from c2fa.solvers.paper import paper

SOLVERS: Mapping[str, Callable[..., Solution]] = {"direct": direct, "admm": admm, "paper": paper}


def solve(problem: Problem, solver: str = "auto", **options: Any) -> Solution:
    """Solve a problem.

    Parameters
    ----------
    problem
        What is to be solved.
    solver
        ``"direct"`` (exact, l2 only), ``"admm"`` (any penalties), ``"paper"`` (Algorithm 1, two levels), or
        ``"auto"``: direct where every penalty is l2 or ``Auto``, else admm.
    options
        What the chosen solver takes, for instance ``max_iterations``; an unknown option is refused.
    """
    penalties = [level.penalty for level in problem.levels]
    to_choose = any(isinstance(penalty, Auto) for penalty in penalties)
    name = suited_to(penalties) if solver == "auto" else solver
    check_options(name, options)
    rows, leaves = problem.queries, problem.structure.leaves
    with suited(float(rows) * leaves * min(rows, leaves)):
        if not to_choose:
            return SOLVERS[name](problem, **options)
        if name == "direct":
            return calibrated(problem, **options)
        chosen = choose(problem)
        return with_choice(SOLVERS[name](chosen.problem, **options), chosen)


def suited_to(penalties: Sequence[Penalty]) -> str:
    """The solver that ``"auto"`` stands for."""
    exact = any(isinstance(p, Auto) for p in penalties) or all(p.ridge is not None for p in penalties)
    return "direct" if exact else "admm"


def check_together(solver: str, options: Mapping[str, Any], penalties: Sequence[Penalty]) -> None:
    """Refuse a solver, its options and levels' penalties that do not go together, before anything is asked."""
    check_options(suited_to(penalties) if solver == "auto" else solver, options)
    check_alike(penalties)


def check_options(solver: str, options: Mapping[str, Any]) -> None:
    """Refuse a solver that does not exist, options that it does not take, and values that they cannot have."""
    if solver not in SOLVERS:
        raise ValueError(f"solver must be 'auto' or one of {sorted(SOLVERS)}; got {solver!r}")
    known = [p.name for p in inspect.signature(SOLVERS[solver]).parameters.values() if p.kind == p.KEYWORD_ONLY]
    for option, value in options.items():
        if option not in known:
            raise TypeError(f"the {solver} solver has no option {option!r}; it has {', '.join(known)}")
        _check_value(option, value)


def _check_value(option: str, value: Any) -> None:
    """Refuse a value before anything is asked for its sake."""
    if option == "stderr":
        if not isinstance(value, bool | np.bool_):
            raise TypeError(f"stderr must be True or False; got {value!r}")
        return
    if option == "rho" and value is None:
        return
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if option == "max_iterations":
        if not (number and isinstance(value, int | np.integer) and value >= 0):
            raise ValueError(f"max_iterations must be a whole number of at least 0; got {value!r}")
    elif option in ("mu1", "mu2", "rho"):
        if not (number and 0 < value < np.inf):
            raise ValueError(f"{option} must be positive; got {value!r}")
    elif not (number and value >= 0):
        raise ValueError(f"{option} must be at least 0; got {value!r}")

"""One door to the solvers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from c2fa.penalties import Auto
from c2fa.problem import Problem
from c2fa.solution import Solution
from c2fa.solvers.admm import admm
from c2fa.solvers.calibrate import calibrated, in_place_of
from c2fa.solvers.direct import direct
from c2fa.solvers.evidence import bound, choose
from c2fa.solvers.paper import paper
from c2fa.solvers.threads import suited

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
    name, penalties = solver, [level.penalty for level in problem.levels]
    to_choose = any(isinstance(penalty, Auto) for penalty in penalties)
    if name == "auto":
        name = "direct" if to_choose or all(penalty.ridge is not None for penalty in penalties) else "admm"
    check_options(name, options)
    rows, leaves = problem.queries, problem.structure.leaves
    with suited(float(rows) * leaves * min(rows, leaves)):
        if not to_choose:
            return SOLVERS[name](problem, **options)
        problem = bound(problem)
        if name == "direct":
            return calibrated(problem, **options)
        chosen = choose(problem)
        return in_place_of(problem, chosen, SOLVERS[name](chosen.problem, **options))


def check_options(solver: str, options: Mapping[str, Any]) -> None:
    """Refuse a solver that does not exist, and options that it does not take."""
    if solver == "auto":
        return
    if solver not in SOLVERS:
        raise ValueError(f"solver must be 'auto' or one of {sorted(SOLVERS)}; got {solver!r}")
    known = [p.name for p in inspect.signature(SOLVERS[solver]).parameters.values() if p.kind == p.KEYWORD_ONLY]
    for option in options:
        if option not in known:
            raise TypeError(f"the {solver} solver has no option {option!r}; it has {', '.join(known)}")

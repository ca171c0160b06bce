"""The methods and budgets of both experiments, and the grids in which their strengths are chosen.

A method's strengths are chosen on validation inputs alone (``grid``); the test inputs see what was chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from c2fa import L2
from c2fa.methods import BaseMethod
from c2fa.methods.c2fa import PAPER
from experiments.harness.tuning import PAPER_MU2, PAPER_STRENGTHS
from experiments.variants import (
    FastPaper,
    TopDownProportional,
    c2fa_milli_on_top,
    milli_on_top,
    top_down_milli_on_top,
)

Kind = str | Callable[..., BaseMethod]
"""A method of the package by its name, or what makes another of its options."""
Method = tuple[str, str | BaseMethod, Mapping[str, Any]]
"""Label, method and options, as ``evaluate`` takes them."""

N_L = (20, 50, 100, 150, 200, 250, 300)
WIDER_LAMBDA = (0.1, 1.0, 10.0, 100.0)
CAP = 20_000  # iterations of Algorithm 1, for which the paper has no limit

AS_PRINTED: Mapping[str, Any] = {"kernel": "cosine", "sampler": "uniform", "intercept": False, "anchor": False}
EXACT: Mapping[str, Any] = {**PAPER, "solver": "auto"}
INTERCEPT: Mapping[str, Any] = {**EXACT, "intercept": True, "anchor": True}
PAPER_METHODS = ("C2FA", "LIME", "MILLI", "BU-LIME", "TD-LIME", "TD-MILLI")
OUR_METHODS = (
    "C2FA exact",
    "C2FA intercept",
    "C2FA paired",
    "C2FA-MILLI",
    "LIME intercept",
    "TD proportional",
)


@dataclass(frozen=True)
class Strengths:
    """λ of parts and leaves, and μ₂ where Algorithm 1 solves."""

    parts: float
    leaves: float
    mu2: float | None = None

    @property
    def penalty(self) -> tuple[L2, L2]:
        return L2(self.parts), L2(self.leaves)

    def __str__(self) -> str:
        mu2 = "" if self.mu2 is None else f", μ₂ = {self.mu2:g}"
        return f"λ_H = {self.parts:g}, λ_L = {self.leaves:g}{mu2}"


def method(label: str, strengths: Strengths) -> Method:
    """A method of the experiments with its strengths."""
    kind, options = _KINDS[label]
    options = {**options, "penalty": strengths.penalty}
    if strengths.mu2 is not None:
        options["solver_options"] = {**options["solver_options"], "mu2": strengths.mu2}
    return with_options(label, kind, options)


def with_options(label: str, kind: Kind, options: Mapping[str, Any]) -> Method:
    """A method with options; one that is not the package's own takes them when it is made."""
    return (label, kind, options) if isinstance(kind, str) else (label, kind(**options), {})


_KINDS: Mapping[str, tuple[Kind, dict[str, Any]]] = {
    "C2FA": (FastPaper, {**PAPER, "solver_options": {"max_iterations": CAP}}),
    "LIME": ("lime", {**AS_PRINTED}),
    "MILLI": (milli_on_top, {**AS_PRINTED}),
    "BU-LIME": ("bu-lime", {**AS_PRINTED}),
    "TD-LIME": ("td-lime", {**AS_PRINTED}),
    "TD-MILLI": (top_down_milli_on_top, {**AS_PRINTED}),
    "C2FA exact": ("c2fa", {**EXACT}),
    "C2FA intercept": ("c2fa", {**INTERCEPT}),
    "C2FA paired": ("c2fa", {**INTERCEPT, "sampler": "paired"}),
    "C2FA-MILLI": (c2fa_milli_on_top, {}),
    "LIME intercept": ("lime", {}),
    "TD proportional": (TopDownProportional, {}),
}

TUNED_AS: Mapping[str, str] = {
    "MILLI": "LIME",
    "BU-LIME": "LIME",
    "TD-LIME": "LIME",
    "TD-MILLI": "LIME",
    "TD proportional": "LIME intercept",
}
"""Methods that take over another's strengths: what they fit is what that one fits."""


def grid(label: str, tries: int | None = None) -> dict[str, Any]:
    """What ``tuning.tune`` tries on validation inputs: the paper's grid for the paper's methods, a wider one for ours.

    ``tries`` are the most λ of leaves, with one λ of parts and one μ₂; None tries the whole grid.
    """
    kind, given = _KINDS[label]
    options = {option: value for option, value in given.items() if option != "penalty"}
    leaves = PAPER_STRENGTHS if label in ("C2FA", "LIME", "C2FA exact") else WIDER_LAMBDA
    parts = tuple(lam for lam in leaves if lam <= 10.0)
    if tries is None:
        return {"method": kind, "strengths": (parts, leaves), **options}
    mu2 = {"mu2": PAPER_MU2[:1]} if options.get("solver") == "paper" else {}
    return {"method": kind, "strengths": (parts[:1], leaves[:tries]), **mu2, **options}


def to_tune() -> Sequence[str]:
    """The methods that are tuned by themselves."""
    return [label for label in (*PAPER_METHODS, *OUR_METHODS) if label not in TUNED_AS]

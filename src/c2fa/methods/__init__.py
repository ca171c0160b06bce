"""Methods: the same queries in, attributions out."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from c2fa._system import did_you_mean
from c2fa.methods.base import AnyMethod, Attribution, BaseMethod, Method, Task, as_method
from c2fa.methods.c2fa import C2FA, Focused
from c2fa.methods.context_cite import ContextCite
from c2fa.methods.leave_one_out import HierarchicalLeaveOneOut, LeaveOneOut
from c2fa.methods.lime import BottomUp, Lime, TopDown
from c2fa.methods.milli import C2FAMilli, Milli, TopDownMilli
from c2fa.methods.owen import Owen, Shapley
from c2fa.methods.peers import CaptumKernelShap, CaptumLime, LimePeer, ShapKernel, ShapPartition

PEERS: Mapping[str, type[Any]] = {
    "shap-partition": ShapPartition,
    "shap-kernel": ShapKernel,
    "lime-package": LimePeer,
    "captum-lime": CaptumLime,
    "captum-kernelshap": CaptumKernelShap,
}
"""Other libraries; each needs its package to be installed."""

METHODS: Mapping[str, type[Any]] = {
    "c2fa": C2FA,
    "c2fa-focused": Focused,
    "c2fa-milli": C2FAMilli,
    "owen": Owen,
    "shapley": Shapley,
    "lime": Lime,
    "milli": Milli,
    "bu-lime": BottomUp,
    "td-lime": TopDown,
    "td-milli": TopDownMilli,
    "context-cite": ContextCite,
    "leave-one-out": LeaveOneOut,
    "hierarchical-leave-one-out": HierarchicalLeaveOneOut,
    **PEERS,
}

# What shap and lime call our options.
_ELSEWHERE = {
    "nsamples": "budget",
    "num_samples": "budget",
    "max_evals": "budget",
    "npermutations": "budget",
    "class_names": "output_names",
    "random_state": "seed",
    "labels": "target",
}

__all__ = [
    "C2FA",
    "METHODS",
    "PEERS",
    "AnyMethod",
    "Attribution",
    "BaseMethod",
    "BottomUp",
    "C2FAMilli",
    "CaptumKernelShap",
    "CaptumLime",
    "ContextCite",
    "Focused",
    "HierarchicalLeaveOneOut",
    "LeaveOneOut",
    "Lime",
    "LimePeer",
    "Method",
    "Milli",
    "Owen",
    "ShapKernel",
    "ShapPartition",
    "Shapley",
    "Task",
    "TopDown",
    "TopDownMilli",
    "make",
]


def make(method: str | AnyMethod, options: Mapping[str, Any], also: Iterable[str] = ()) -> BaseMethod:
    """Return a method by its name with its options, or the method itself; what it does not take is refused.

    ``also`` is what a misspelt option may have been meant to be.
    """
    if not isinstance(method, str):
        if options:
            raise TypeError(f"options {sorted(options)} belong to the method object; set them there")
        if not callable(method):
            raise TypeError(f"method must be a name or a callable, not {type(method).__name__}")
        return as_method(method)
    if method not in METHODS:
        raise ValueError(
            f"method must be one of {sorted(METHODS)} or a callable; got {method!r}{did_you_mean(method, METHODS)}"
        )
    known = options_of(method)
    for option in options:
        if option not in known:
            near = did_you_mean(_ELSEWHERE.get(option, option), [*known, *also])
            raise TypeError(
                f"Explainer with method {method!r} has no option {option!r}; it has {', '.join([*known, *also])}{near}"
            )
    made: BaseMethod = METHODS[method](**options)
    return made


def options_of(method: str | AnyMethod) -> list[str]:
    """The options that a method takes by name; none for what is no name of a method."""
    if not isinstance(method, str) or method not in METHODS:
        return []
    return [f.name for f in dataclasses.fields(METHODS[method]) if f.init]

"""Methods: the same queries in, attributions out."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from c2fa._system import did_you_mean
from c2fa.methods.base import Attribution, BaseMethod, Task
from c2fa.methods.c2fa import C2FA, Focused
from c2fa.methods.compared import BottomUp, LeaveOneOut, Lime, Milli, TopDown, TopDownMilli
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
    "owen": Owen,
    "shapley": Shapley,
    "lime": Lime,
    "milli": Milli,
    "bu-lime": BottomUp,
    "td-lime": TopDown,
    "td-milli": TopDownMilli,
    "leave-one-out": LeaveOneOut,
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
    "Attribution",
    "BaseMethod",
    "BottomUp",
    "CaptumKernelShap",
    "CaptumLime",
    "Focused",
    "LeaveOneOut",
    "Lime",
    "LimePeer",
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


def make(method: object, options: Mapping[str, Any], also: Iterable[str] = ()) -> BaseMethod:
    """Return a method by its name with its options, or the method itself; what it does not take is refused.

    ``also`` is what a misspelt option may have been meant to be.
    """
    if not isinstance(method, str | BaseMethod):
        given = f"{method!r:.100}"
        if isinstance(method, type):
            given = f"the class {method.__name__}: write {method.__name__}()"
        raise TypeError(
            f"method must be a name such as 'owen' or of a class that derives from c2fa.methods.BaseMethod, not {given}"
        )
    if isinstance(method, BaseMethod):
        if options:
            raise TypeError(f"options {sorted(options)} belong to the method object; set them there")
        return method
    if method not in METHODS:
        raise ValueError(
            f"method must be one of {sorted(METHODS)} or a c2fa.methods.BaseMethod; got "
            f"{method!r}{did_you_mean(method, METHODS)}"
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


def options_of(method: str | BaseMethod) -> list[str]:
    """The options that a method takes by name; none for what is no name of a method."""
    if not isinstance(method, str) or method not in METHODS:
        return []
    return [f.name for f in dataclasses.fields(METHODS[method]) if f.init]

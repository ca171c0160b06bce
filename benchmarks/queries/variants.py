"""The methods that are compared, each with its options: what to add or change is changed here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import c2fa


@dataclass(frozen=True)
class Variant:
    """A row of the tables. ``main`` ones are run at all budgets, others at 200 rows alone."""

    label: str
    method: str = "c2fa"
    options: Mapping[str, Any] = field(default_factory=dict)
    main: bool = False

    def explain(self, model: Any, masker: Any, x: Any, **settings: Any) -> c2fa.Explanation:
        """Explain one input."""
        return c2fa.Explainer(model, masker, method=self.method, progress=False, **self.options, **settings)(x)


FIXED: Mapping[str, Any] = {"kernel": "cosine", "penalty": None, "smooth": None}
CHOSEN: Mapping[str, Any] = {"kernel": "uniform", "penalty": "auto", "smooth": None}
"""Everything but the masks: strengths fixed by the widths, under LIME's kernel, and strengths chosen by the answers."""

DEFAULT = Variant("owen, the default", "owen", main=True)
JOINT = Variant("c2fa, the joint fit", main=True)
COINS = Variant("c2fa, coins, fixed penalty", options={"sampler": "uniform", **FIXED}, main=True)
PLANNED = Variant("c2fa, planned, fixed penalty", options={"sampler": "planned", **FIXED}, main=True)
LIME = Variant("lime", "lime", main=True)
LIME_PACKAGE = Variant("lime package", "lime-package", main=True)

VARIANTS: Sequence[Variant] = (
    DEFAULT,
    Variant("shapley", "shapley", main=True),
    JOINT,
    Variant("c2fa as the paper has it", options={"preset": "paper"}),
    COINS,
    Variant("c2fa, coins, auto", options={"sampler": "uniform", **CHOSEN}),
    PLANNED,
    Variant("c2fa, planned, fixed, uniform kernel", options={"sampler": "planned", **FIXED, "kernel": "uniform"}),
    Variant("c2fa, planned, auto", options={"sampler": "planned", **CHOSEN}, main=True),
    LIME,
    LIME_PACKAGE,
    Variant("captum Lime", "captum-lime"),
    Variant("shap Partition", "shap-partition", main=True),
    Variant("shap Kernel", "shap-kernel"),
)


def usable(variants: Sequence[Variant]) -> tuple[list[Variant], list[str]]:
    """Those that can be run here, and for each other one the reason: a package that is missing, an option unknown."""
    masker = c2fa.maskers.Array(c2fa.Structure.from_groups("aab"))
    found, notes = [], []
    for variant in variants:
        try:
            c2fa.Explainer(np.sum, masker, method=variant.method, **variant.options)
        except (ImportError, TypeError, ValueError) as error:
            notes.append(f"{variant.label}: {error}")
        else:
            found.append(variant)
    return found, notes

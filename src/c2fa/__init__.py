"""Attributions that add up, at every level of a nested input."""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from c2fa import maskers, samplers
from c2fa import stopping as until
from c2fa._version import __version__
from c2fa.asking.ledger import Ledger
from c2fa.asking.masking import Masked
from c2fa.asking.querying import BudgetError
from c2fa.asking.replies import QueryError
from c2fa.explainer import Explainer
from c2fa.explanation import Explanation, load
from c2fa.penalties import L1, L2, Auto, ElasticNet, L2Each, NonNegative
from c2fa.priors.prior import Prior
from c2fa.priors.scouting import scout
from c2fa.problem import Level, Problem
from c2fa.solution import Diagnostics, Solution, Status
from c2fa.solvers import solve
from c2fa.structure import Structure

__all__ = [
    "L1",
    "L2",
    "Auto",
    "BudgetError",
    "Citer",
    "Diagnostics",
    "ElasticNet",
    "Explainer",
    "Explanation",
    "L2Each",
    "Ledger",
    "Level",
    "Masked",
    "NonNegative",
    "Prior",
    "Problem",
    "QueryError",
    "Solution",
    "Status",
    "Structure",
    "__version__",
    "batch",
    "cite",
    "evaluate",
    "load",
    "maskers",
    "metrics",
    "models",
    "plots",
    "report",
    "samplers",
    "scout",
    "solve",
    "to_shap",
    "until",
    "verify",
]

if find_spec("matplotlib") is None:  # `from c2fa import *` gives what is there
    __all__.remove("plots")

if TYPE_CHECKING:
    from c2fa import batch, metrics, models, plots, report
    from c2fa.citing import Citer, cite, verify
    from c2fa.evaluation import evaluate
    from c2fa.showing.for_shap import to_shap

# Loaded when first used, so that importing c2fa needs numpy and scipy alone.
_LATER = {
    "Citer": "c2fa.citing",
    "cite": "c2fa.citing",
    "evaluate": "c2fa.evaluation",
    "to_shap": "c2fa.showing.for_shap",
    "verify": "c2fa.citing",
}
_ROOMS = ("batch", "metrics", "models", "plots", "report")


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    if name in _ROOMS:
        try:
            return import_module(f"c2fa.{name}")
        except ImportError as error:  # hasattr, dir and help go on where a room's package is not installed
            raise AttributeError(str(error)) from error
    raise AttributeError(f"module 'c2fa' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__

"""Methods compared fairly: the same inputs, the same queries, the same scores."""

from __future__ import annotations

from c2fa.evaluation.grid import evaluate
from c2fa.evaluation.results import Result, RowCount, bootstrap
from c2fa.evaluation.scoring import SCORES

__all__ = ["SCORES", "Result", "RowCount", "bootstrap", "evaluate"]

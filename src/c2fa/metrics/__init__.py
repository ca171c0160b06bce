"""How good an explanation is: small functions, each with ``higher_is_better``."""

from __future__ import annotations

from c2fa.metrics.agreement import (
    auroc,
    consistency,
    coverage,
    evidence_recall,
    higher_is_better,
    mihl,
    ndcg,
    pixel_counts,
    stability,
    top1,
)
from c2fa.metrics.faithfulness import Curve, deletion, held_out, infidelity, insertion, lds, measure, topk_drop

__all__ = [
    "Curve",
    "auroc",
    "consistency",
    "coverage",
    "deletion",
    "evidence_recall",
    "held_out",
    "higher_is_better",
    "infidelity",
    "insertion",
    "lds",
    "measure",
    "mihl",
    "ndcg",
    "pixel_counts",
    "stability",
    "top1",
    "topk_drop",
]

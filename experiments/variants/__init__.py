"""Methods of the experiments that are no part of the package, made of what it offers to everyone."""

from __future__ import annotations

from experiments.variants.algorithm1 import FastPaper
from experiments.variants.joint_milli import C2FAMilli
from experiments.variants.proportional import TopDownProportional
from experiments.variants.ranking import RankingOnTop, c2fa_milli_on_top, milli_on_top, top_down_milli_on_top

__all__ = [
    "C2FAMilli",
    "FastPaper",
    "RankingOnTop",
    "TopDownProportional",
    "c2fa_milli_on_top",
    "milli_on_top",
    "top_down_milli_on_top",
]

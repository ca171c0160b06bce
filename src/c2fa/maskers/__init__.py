"""Maskers: one for each kind of input that people have."""

from c2fa.maskers.array import Array
from c2fa.maskers.custom import Custom
from c2fa.masking import Masked, Masker

__all__ = ["Array", "Custom", "Masked", "Masker"]

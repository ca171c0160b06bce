"""Maskers: one for each kind of input that people have."""

from c2fa.asking.masking import Masked, Masker
from c2fa.maskers.arrays import Array, Bag, TimeSeries
from c2fa.maskers.custom import Custom, Default
from c2fa.maskers.images import ImageBag
from c2fa.maskers.tabular import Tabular
from c2fa.maskers.text import Text

__all__ = [
    "Array",
    "Bag",
    "Custom",
    "Default",
    "ImageBag",
    "Masked",
    "Masker",
    "Tabular",
    "Text",
    "TimeSeries",
]

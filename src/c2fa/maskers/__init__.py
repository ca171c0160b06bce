"""Maskers: one for each kind of input that people have."""

from c2fa.asking.masking import Masked, Masker
from c2fa.maskers.bag import Bag
from c2fa.maskers.custom import Array, Custom
from c2fa.maskers.default import Default
from c2fa.maskers.images import ImageBag
from c2fa.maskers.series import TimeSeries
from c2fa.maskers.tabular import Tabular, groups_of
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
    "groups_of",
]

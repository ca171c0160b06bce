"""What an explanation keeps beside its numbers: its input, of one class for each kind, a prior's share, an answer."""

from c2fa.asking.masking import View
from c2fa.views.answer import Cited
from c2fa.views.descriptors import FromPrior
from c2fa.views.images import Images
from c2fa.views.inputs import Bag, Series, Table, Text, Vector
from c2fa.views.statement import Citation, CitedDocument, Source, Statement

__all__ = [
    "Bag",
    "Citation",
    "Cited",
    "CitedDocument",
    "FromPrior",
    "Images",
    "Series",
    "Source",
    "Statement",
    "Table",
    "Text",
    "Vector",
    "View",
]

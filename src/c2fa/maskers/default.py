"""The masker that fits the kind of an input, for whoever gave none."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from c2fa._system import is_frame
from c2fa.asking.masking import Masked, Masker
from c2fa.maskers._pictures import is_pil
from c2fa.maskers._tables import read_row
from c2fa.maskers.images import ImageBag
from c2fa.maskers.tabular import Tabular
from c2fa.maskers.text import Text


@dataclass(frozen=True)
class Default:
    """Masks a text as ``Text()`` does, an image as ``ImageBag()``, and a row of a table, of which 0 is taken for usual.

    A row is a DataFrame of one row, a Series, a dict or a vector. Its masked numbers become 0 and its masked texts
    empty, and the explanation says so, because nobody said what is usual. Other inputs need a masker.

    >>> Default()("Good room. Bad food.").structure.names[0]
    ('Good room.', 'Bad food.')
    """

    def __call__(self, x: Any) -> Masked:
        if isinstance(x, list):
            raise TypeError(
                f"explainer(x) explains one input, and this is a list of {len(x)}: explainer.many(inputs) explains each"
            )
        dimensions = len(getattr(x, "shape", ()))
        if isinstance(x, str):
            masker: Masker = Text()
        elif isinstance(x, os.PathLike) or dimensions == 3 or is_pil(x):
            masker = ImageBag()
        elif isinstance(x, dict) or is_frame(x) or dimensions == 1:
            return _row(x)
        else:
            of_shape, remedy = "", "give one of c2fa.maskers, such as TimeSeries(), Bag() or Custom(…)"
            if dimensions:
                of_shape = f" of shape {tuple(x.shape)}"
            if dimensions == 4:
                remedy = "give x[0], the image itself" if len(x) == 1 else "explainer.many(x) explains each image"
            raise TypeError(f"there is no masker by default for {type(x).__name__}{of_shape}: {remedy}")
        return replace(masker(x), chosen=f"{type(masker).__name__}(), by default")


def _row(x: Any) -> Masked:
    names, values = read_row(x)
    # What has nothing like 0, such as a date, stays.
    numbers = bool | int | float | np.generic
    empty = ["" if isinstance(v, str) else type(v)(0) if isinstance(v, numbers) else v for v in values]
    background = [empty] if names is None else dict(zip(names, empty, strict=True))
    masked = Tabular(background=background, strategy="row")(x)
    note = "what is masked became 0, or empty, because no masker said what is usual: c2fa.maskers.Tabular(background=…)"
    return replace(masked, chosen="Tabular(background=0), by default", notes=(*masked.notes, note))

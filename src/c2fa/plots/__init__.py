"""Pictures of explanations; matplotlib lives here alone.

Every function returns the figure, or draws on the axes it is given; none shows it. A notebook shows a figure that is
the value of a cell, and every figure of pyplot: with axes of pyplot, end the line with a semicolon, or it shows twice.
The Display objects compute once and draw as often as wanted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

try:
    from matplotlib.figure import Figure
except ImportError as error:
    raise ImportError("plots need matplotlib: pip install 'c2fa[plots]'") from error

from c2fa.explanation import Explanation
from c2fa.plots.bag import bag
from c2fa.plots.compare import compare
from c2fa.plots.curves import convergence, curves, scores
from c2fa.plots.images import ImagesDisplay, images
from c2fa.plots.nested import NestedDisplay, nested
from c2fa.plots.series import series
from c2fa.plots.text import TextDisplay, text

__all__ = [
    "Figure",
    "ImagesDisplay",
    "NestedDisplay",
    "TextDisplay",
    "bag",
    "compare",
    "convergence",
    "curves",
    "images",
    "nested",
    "plot",
    "scores",
    "series",
    "text",
]

_KINDS: dict[str, Callable[..., Figure]] = {
    "nested": nested,
    "text": text,
    "images": images,
    "table": nested,
    "bag": bag,
    "series": series,
}


def plot(e: Explanation, kind: str | None = None, **options: Any) -> Figure:
    """Draw an explanation in the way of its input.

    Parameters
    ----------
    e
        The explanation.
    kind
        ``"nested"`` (bars, for every input), ``"text"``, ``"images"``, ``"table"``, ``"bag"`` or
        ``"series"``; None takes what fits the input.
    options
        What the function of that name takes: ``ax``, ``parts``, ``leaves``, ``threshold``, …
    """
    if kind is None:
        own: Figure | None = e.view.figure(e, **options)
        return _KINDS.get(e.view.kind, nested)(e, **options) if own is None else own
    if kind not in _KINDS:
        raise ValueError(f"kind must be one of {', '.join(sorted(_KINDS))}; got {kind!r}")
    if kind not in (e.view.kind, "nested"):
        raise ValueError(f"a plot of kind {kind!r} does not fit an input of kind {e.view.kind!r}; try 'nested'")
    return _KINDS[kind](e, **options)

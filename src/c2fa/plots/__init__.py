"""Pictures of explanations; matplotlib lives here alone.

Every function returns the figure, a new one or that of the axes it is given. A notebook shows it once, at the end of
the cell or at ``plt.show()``; a script shows it at ``plt.show()`` where pyplot has windows.
The Display objects compute once and draw as often as wanted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

try:
    from matplotlib.figure import Figure
except ImportError as error:
    raise ImportError("plots need matplotlib: pip install 'c2fa[plots]'") from error

from c2fa._system import did_you_mean
from c2fa.plots.curves import curves, prior, scores
from c2fa.plots.maps import ImagesDisplay, bag, images, series
from c2fa.plots.nested import NestedDisplay, compare, nested
from c2fa.plots.text import TextDisplay, text

if TYPE_CHECKING:
    from c2fa.explanation import Explanation

__all__ = [
    "Figure",
    "ImagesDisplay",
    "NestedDisplay",
    "TextDisplay",
    "bag",
    "compare",
    "curves",
    "images",
    "nested",
    "plot",
    "prior",
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
        What the function of that name takes: ``ax``, ``parts``, ``leaves``, …
    """
    if not (kind is None or kind in _KINDS):
        raise ValueError(f"kind must be one of {', '.join(sorted(_KINDS))}; got {kind!r}{did_you_mean(kind, _KINDS)}")
    if kind not in (None, e.view.kind, "nested"):
        raise ValueError(f"a plot of kind {kind!r} does not fit an input of kind {e.view.kind!r}; try 'nested'")
    own: Figure | None = e.view.figure(e, **options) if kind is None else None
    return _KINDS.get(kind or e.view.kind, nested)(e, **options) if own is None else own

"""Explanations as shap has them, so that shap's plots can draw them."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from c2fa._system import is_missing, need
from c2fa.showing.printing import printable, singular

if TYPE_CHECKING:
    from c2fa.explanation import Explanation


def to_shap(explanations: Iterable[Explanation], level: int = -1) -> Any:
    """The values of a level of many explanations as one ``shap.Explanation``, a row for each.

    Inputs with the same features, such as rows of a table, are stacked: ``values`` is (n, features). Texts, and other
    inputs whose features differ, are rows of different lengths, as shap keeps its own texts.

    Parameters
    ----------
    explanations
        A list, or a store, of explanations of one output. ``explanation.to_shap()`` does it for a single one.
    level
        0 for the parts, -1 for the leaves.

    Returns
    -------
    shap.Explanation
        ``data`` holds what the features are: numbers (of a window, the mean), other cells as text, words with the white
        space that follows. It is None for images, for parts other than those of texts, and where the explanations have
        no view. ``base_values`` are the intercepts, ``error_std`` the standard errors, and
        ``lower_bounds`` and ``upper_bounds`` the values minus and plus one of them.
    """
    shap = need("shap", "peers")
    several = _checked(explanations)
    level = several[0].structure.level(level)
    names = [[printable(name) for name in e.names[level]] for e in several]
    is_text = several[0].view.kind == "text"
    stacks = not is_text and all(row == names[0] for row in names)
    join = np.stack if stacks else _ragged
    values = join([e.values[level] for e in several])
    fields: dict[str, Any] = {}
    contents = [row for e in several if (row := e.view.contents(e.structure, level)) is not None]
    if len(contents) == len(several):
        rows = [list(map(_cell, row)) for row in contents]
        kinds = [float if all(isinstance(cell, float) for cell in row) else object for row in rows]
        fields["data"] = join([np.array(row, dtype=kind) for row, kind in zip(rows, kinds, strict=True)])
    if is_text:
        # Bars and waterfalls print "value = name". A word's name is the word, so they show where it stands instead.
        part, places = singular(several[0].level_names[max(level - 1, 0)]), []
        for e in several:
            owners = e.structure.parents[level - 1] if level else np.arange(e.structure.widths[0])
            places.append(np.array([f"{part} {owner + 1}" for owner in owners], dtype=object))
        fields["display_data"] = join(places)
    errors = [e.stderr[level] for e in several if e.stderr is not None]
    if len(errors) == len(several):
        error = join(errors)
        fields |= {"error_std": error, "lower_bounds": values - error, "upper_bounds": values + error}
    return shap.Explanation(
        values,
        base_values=np.array([e.intercepts[level] for e in several]),
        feature_names=names[0] if stacks else names,
        output_names=several[0].target_name,
        **fields,
    )


def _checked(explanations: Iterable[Explanation]) -> list[Explanation]:
    """The explanations as a list; an error where they do not belong into one picture."""
    try:
        several = list(explanations)
        targets = sorted({e.target_name for e in several})
    except (TypeError, AttributeError):
        raise TypeError(
            f"c2fa.to_shap takes a list of explanations, not {explanations!r:.80}; for a single one, call its own "
            "to_shap()"
        ) from None
    if not several:
        raise ValueError("there are no explanations: give at least one")
    if len(targets) > 1:
        raise ValueError(
            f"the explanations are of different outputs ({', '.join(targets[:5])}), whose values cannot be compared: "
            f"explain all with target={targets[0]!r}, or take e.for_target({targets[0]!r}) of each"
        )
    units = sorted({e.link.name for e in several})
    if len(units) > 1:
        raise ValueError(f"the explanations are on different scales ({', '.join(units)}): explain all with one link")
    kinds = sorted({e.view.kind or "no view" for e in several})
    if len(kinds) > 1:
        raise ValueError(
            f"the explanations are of different kinds of input ({', '.join(kinds)}): give one kind; a store keeps the "
            "views of large inputs with views='all' alone"
        )
    return several


def _ragged(rows: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """An array of arrays; numpy would make a matrix of those that happen to be of one length."""
    out = np.empty(len(rows), dtype=object)
    for i, row in enumerate(rows):
        out[i] = row
    return out


def _cell(value: Any) -> float | str:
    """A value as shap's plots can show it: a number where it is one, NaN where it is missing, text otherwise."""
    if is_missing(value):
        return float("nan")
    return float(value) if isinstance(value, Real | Decimal | np.bool_) else printable(str(value))

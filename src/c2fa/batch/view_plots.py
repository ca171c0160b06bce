"""Pictures of many explanations: which names matter over a dataset, and how their attributions spread."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from c2fa.batch import views
from c2fa.batch.store import Store
from c2fa.links import ensure
from c2fa.structure import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DOTS = 2000  # more than these a name are drawn as a sample


def bars(
    store: Store,
    level: int = -1,
    n: int = 15,
    *,
    target: str | None = None,
    least: int = 2,
    name: Callable[[str], str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Mean attributions of the most important names, with 95 % intervals; see ``views.important``."""
    found = views.important(store, level, n, target=target, least=least, name=name)
    ax = _axes(ax, len(found))
    places = np.arange(len(found))
    means = np.array([f.mean for f in found])
    reach = np.array([[f.mean - f.low for f in found], [f.high - f.mean for f in found]])
    ax.barh(places, means, color=_colours(means))
    ax.errorbar(means, places, xerr=reach, fmt="none", ecolor="black", elinewidth=1, capsize=2)
    _label(ax, [f"{f.name} ({f.inputs})" for f in found], f"mean attribution{_unit(store)}, 95 % interval", target)
    return ax


def beeswarm(
    store: Store,
    level: int = -1,
    n: int = 15,
    *,
    target: str | None = None,
    least: int = 2,
    name: Callable[[str], str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """One dot for each input that has the name, so that a mean cannot hide two opposite habits."""
    found = views.important(store, level, n, target=target, least=least, name=name)
    ax = _axes(ax, len(found))
    spread = views.values_of(store, [f.name for f in found], level, target=target, name=name)
    rng = np.random.default_rng(0)
    for place, feature in enumerate(found):
        values = spread[feature.name]
        if len(values) > _DOTS:
            values = rng.choice(values, _DOTS, replace=False)
        ax.scatter(values, place + _swarm(values), s=6, c=_colours(values), alpha=0.6, linewidths=0)
    _label(ax, [f"{f.name} ({f.inputs})" for f in found], f"attribution{_unit(store)} in each input", target)
    return ax


def _swarm(values: FloatArray) -> FloatArray:
    """How far each dot moves up or down so that dots of like values lie beside each other."""
    if not len(values):
        return values
    edges = np.linspace(values.min(), values.max() + 1e-12, 41)
    bins = np.digitize(values, edges)
    counts = np.bincount(bins)
    order = np.zeros(len(values))
    for b in np.flatnonzero(counts):
        order[bins == b] = np.arange(counts[b])
    side = np.where(order % 2 == 0, 1.0, -1.0) * np.ceil(order / 2)
    moved: FloatArray = 0.4 * side / max(counts.max() / 2, 1.0)
    return moved


def _axes(ax: Axes | None, rows: int) -> Axes:
    from c2fa.plots._style import own_axes

    return own_axes(ax, 7, 0.32 * rows + 1.2)


def _colours(values: FloatArray) -> list[str]:
    """The colours that every picture has for and against."""
    from c2fa.plots._style import NEGATIVE, POSITIVE

    return [POSITIVE if value > 0 else NEGATIVE for value in values]


def _unit(store: Store) -> str:
    """What the attributions are in, where that is not the model's own output."""
    unit = ensure(store.settings.get("link") or "identity").unit
    return f" ({unit})" if unit else ""


def _label(ax: Axes, names: list[str], what: str, target: str | None) -> None:
    ax.axvline(0.0, color="black", linewidth=0.8)
    ax.set_yticks(range(len(names)), [n if len(n) <= 40 else n[:39] + "…" for n in names])
    ax.invert_yaxis()
    ax.set_xlabel(what if target is None else f"{what}, for {target}")
    ax.spines[["top", "right"]].set_visible(False)

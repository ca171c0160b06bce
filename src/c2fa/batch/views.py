"""Views over many explanations, read shard by shard: what matters most, and what to distrust."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from c2fa._system import need
from c2fa.asking.links import ensure
from c2fa.batch.overview import Overview
from c2fa.batch.records import arrow, opened
from c2fa.batch.store import Store
from c2fa.explanation import Explanation
from c2fa.structure import FloatArray

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Feature:
    """One name over a dataset: how often it occurs, and the mean of its attributions with a 95 % interval."""

    name: str
    inputs: int
    mean: float
    mean_abs: float
    low: float
    high: float


@dataclass(frozen=True)
class Single:
    """One feature of one input."""

    index: int
    key: str | None
    name: str
    value: float
    target: str


@dataclass(frozen=True)
class Warned:
    """An input whose explanation should be read with care, or that has none."""

    index: int
    key: str | None
    warnings: tuple[str, ...]
    error: str | None


def frame(rows: list[Any]) -> pd.DataFrame:
    """A view's rows as a pandas frame."""
    found: pd.DataFrame = need("pandas", "frame").DataFrame(list(map(asdict, rows)))
    return found


def word(name: str) -> str:
    """A word without its case and the punctuation around it.

    >>> word("(Great!")
    'great'
    """
    return re.sub(r"^\W+|\W+$", "", name).casefold()


def important(
    found: Overview,
    level: int = -1,
    n: int | None = 20,
    *,
    target: str | None = None,
    least: int = 2,
    name: Callable[[str], str] | None = None,
) -> list[Feature]:
    """The names with the largest mean absolute attribution over a dataset: words, columns, channels.

    A name that occurs twice in one input counts there with the sum of its attributions.

    Parameters
    ----------
    level
        The level of the features, coarse (0) to fine (-1).
    n
        How many; None for all.
    target
        Only inputs that were explained for this output; attributions of different outputs do not mix.
    least
        Leave out names that fewer inputs have.
    name
        What to make of a name first, such as ``views.word``.
    """
    places: dict[str, int] = {}
    sums = np.zeros((0, 4))
    for of, total in _totals(found, level, target, name, places):
        sums = np.concatenate([sums, np.zeros((len(places) - len(sums), 4))])
        for column, weights in enumerate((np.ones_like(total), total, np.abs(total), np.square(total))):
            sums[:, column] += np.bincount(of, weights=weights, minlength=len(places))
    features = []
    for key, place in places.items():
        count, total, total_abs, total_square = sums[place].tolist()
        if count < least or not key:
            continue
        mean = total / count
        half = 1.96 * np.sqrt(max(total_square / count - mean**2, 0.0) / max(count - 1, 1))
        features.append(Feature(key, int(count), mean, total_abs / count, mean - half, mean + half))
    return sorted(features, key=lambda f: -f.mean_abs)[:n]


def strongest(store: Store, level: int = 0, n: int = 20, *, target: str | None = None) -> list[Single]:
    """The single features with the largest absolute attributions over a dataset, such as its most telling sentences."""
    best: list[Single] = []
    level = _level(store, level)
    for table in _tables(store, level, target):
        owners, names, codes, values = _flat(table, level)
        index, key, said = (table[c].to_pylist() for c in ("index", "key", "target_name"))
        for i in np.argsort(-np.abs(values), kind="stable")[:n]:
            row = int(owners[i])
            best.append(Single(index[row], key[row], names[codes[i]], float(values[i]), said[row]))
        best = sorted(best, key=lambda s: -abs(s.value))[:n]
    return best


def warned(store: Store, *, errors: bool = True) -> list[Warned]:
    """The inputs whose diagnostics warn, and those that were set aside."""
    return [
        Warned(row["index"], row["key"], tuple(row["warnings"] or ()), row["error"])
        for table in store.tables(["index", "key", "warnings", "error"])
        for row in table.to_pylist()
        if row["warnings"] or (errors and row["error"] is not None)
    ]


def gallery(
    store: Store,
    n: int = 12,
    *,
    by: Literal["first", "certain", "warned"] = "first",
    target: str | None = None,
) -> list[Explanation]:
    """Some explanations to look at, for ``c2fa.report.html(gallery(store), path)``: first, surest, or warned."""
    if by not in ("first", "certain", "warned"):
        raise ValueError(f"by must be 'first', 'certain' or 'warned', not {by!r}")
    places: list[tuple[float, int]] = []
    for table in store.tables(["index", "prediction", "target_name", "warnings", "error"]):
        for row in table.to_pylist():
            fine = row["error"] is None and (target is None or row["target_name"] == target)
            if fine and (by != "warned" or row["warnings"]):
                places.append((-row["prediction"] if by == "certain" else 0.0, row["index"]))
        places = sorted(places)[:n]
    return [store[index] for _, index in places]


# -- reading ---------------------------------------------------------------------------------------


def _level(store: Store, level: int) -> int:
    """Turn a level that may be negative into its number, or say which levels there are."""
    first = next(iter(store.finished()), None)
    if first is None:
        return max(level, 0)
    with opened(store.file(first)) as parquet:
        columns = parquet.schema_arrow.names
    depth = sum(1 for c in columns if c.startswith("values_"))
    if not -depth <= level < depth:
        raise IndexError(f"level {level} does not exist: the store has levels 0..{depth - 1}")
    return level % depth


def _tables(store: Store, level: int, target: str | None) -> Iterator[Any]:
    """Each shard's explained rows, for one target where one is asked for."""
    pc = arrow("compute")
    for table in store.tables(["index", "key", "target_name", f"names_{level}", f"values_{level}"]):
        keep = pc.is_valid(table["target_name"])
        if target is not None:
            keep = pc.and_kleene(keep, pc.equal(table["target_name"], target))
        yield table.filter(pc.fill_null(keep, False)).combine_chunks()


def _flat(table: Any, level: int) -> tuple[Any, list[str], Any, FloatArray]:
    """All features of a shard in one row each: their inputs, the distinct names, each one's among them, and values."""
    pc = arrow("compute")
    names, values = table[f"names_{level}"], table[f"values_{level}"]
    coded = pc.dictionary_encode(pc.list_flatten(names)).combine_chunks()
    owners = np.asarray(pc.list_parent_indices(values.combine_chunks()), dtype=np.int64)
    flat = np.asarray(pc.list_flatten(values), dtype=np.float64)
    return owners, coded.dictionary.to_pylist(), np.asarray(coded.indices), flat


def _totals(
    found: Overview, level: int, target: str | None, name: Callable[[str], str] | None, places: dict[str, int]
) -> Iterator[tuple[Any, FloatArray]]:
    """Of each shard or input in memory, what each name has in each input: the place that the name gets, and its sum."""
    if not isinstance(found, Store):
        for _, e in found.items():
            if target in (None, e.target_name):
                own_level = e.level(level)
                own = [places.setdefault(name(k) if name else k, len(places)) for k in e.names[own_level]]
                distinct, inverse = np.unique(own, return_inverse=True)
                yield distinct, np.bincount(inverse, e.values[own_level], len(distinct)).astype(np.float64)
        return
    store, level = found, _level(found, level)
    for table in _tables(store, level, target):
        owners, names, codes, values = _flat(table, level)
        place_of = np.array([places.setdefault(name(k) if name else k, len(places)) for k in names], np.intp)
        pairs, at = np.unique(owners.astype(np.int64) * len(places) + place_of[codes], return_inverse=True)
        yield pairs % max(len(places), 1), np.bincount(at, values, len(pairs)).astype(np.float64)


# -- pictures --------------------------------------------------------------------------------------


def bars(found: Overview, level: int = -1, n: int = 15, *, ax: Axes | None = None, **which: Any) -> Axes:
    """Mean attributions of the most important names, with 95 % intervals; ``which`` are options of ``important``."""
    from c2fa.plots._style import own_axes, signs

    features = important(found, level, n, **which)
    ax = own_axes(ax, 7, 0.32 * len(features) + 1.2)
    places = np.arange(len(features))
    means = np.array([f.mean for f in features])
    reach = np.array([[f.mean - f.low for f in features], [f.high - f.mean for f in features]])
    ax.barh(places, means, color=signs(means))
    ax.errorbar(means, places, xerr=reach, fmt="none", ecolor="black", elinewidth=1, capsize=2)
    return _label(ax, features, f"mean attribution{_unit(found)}, 95 % interval", which.get("target"))


def beeswarm(found: Overview, level: int = -1, n: int = 15, *, ax: Axes | None = None, **which: Any) -> Axes:
    """One dot for each input that has the name, so that a mean cannot hide two opposite habits.

    The names are those of ``bars``; ``which`` are options of ``important``.
    """
    from c2fa.plots._style import own_axes, signs

    features = important(found, level, n, **which)
    ax = own_axes(ax, 7, 0.32 * len(features) + 1.2)
    target, name = which.get("target"), which.get("name")
    places: dict[str, int] = {}
    shards = list(_totals(found, level, target, name, places))
    rng = np.random.default_rng(0)
    for place, feature in enumerate(features):
        values = np.concatenate([total[of == places[feature.name]] for of, total in shards])
        if len(values) > 2000:  # as many dots as can be told apart
            values = rng.choice(values, 2000, replace=False)
        ax.scatter(values, place + _swarm(values), s=6, c=signs(values), alpha=0.6, linewidths=0)
    return _label(ax, features, f"attribution{_unit(found)} in each input", target)


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


def _unit(found: Overview) -> str:
    """What the attributions are in, where that is not the model's own output."""
    if isinstance(found, Store):
        unit = ensure(found.settings.get("link") or "identity").unit
    else:
        unit = next((e.link.unit for _, e in found.items()), "")
    return f" ({unit})" if unit else ""


def _label(ax: Axes, features: list[Feature], what: str, target: str | None) -> Axes:
    names = [f"{f.name} ({f.inputs})" for f in features]
    ax.axvline(0.0, color="black", linewidth=0.8)
    ax.set_yticks(range(len(names)), [n if len(n) <= 40 else n[:39] + "…" for n in names])
    ax.invert_yaxis()
    ax.set_xlabel(what if target is None else f"{what}, for {target}")
    ax.spines[["top", "right"]].set_visible(False)
    return ax

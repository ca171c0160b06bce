"""Views over many explanations, read shard by shard: what matters most, and what to distrust."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from c2fa._system import need
from c2fa.explanation import Explanation
from c2fa.structure import FloatArray, IntArray

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from c2fa.batch.overview import Brief, Overview
    from c2fa.batch.store import Store


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
    for _, of, total in _totals(found, level, target, name, places):
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


def strongest(found: Overview, level: int = 0, n: int = 20, *, target: str | None = None) -> list[Single]:
    """The single features with the largest absolute attributions over a dataset, such as its most telling sentences."""
    best: list[tuple[float, int, str]] = []
    for inputs, names, codes, values in found.flat(level, target):
        for i in np.argsort(-np.abs(values), kind="stable")[:n]:
            best.append((float(values[i]), int(inputs[i]), names[codes[i]]))
        best = sorted(best, key=lambda each: -abs(each[0]))[:n]
    places = {place for _, place, _ in best}
    briefs = {brief.index: brief for brief in found.briefs() if brief.index in places}
    return [Single(place, briefs[place].key, name, value, str(briefs[place].target)) for value, place, name in best]


def warned(found: Overview, *, errors: bool = True) -> list[Brief]:
    """The inputs whose diagnostics warn, and those that were set aside."""
    return [brief for brief in found.briefs() if brief.warnings or (errors and brief.error is not None)]


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
    briefs = [
        brief
        for brief in store.briefs()
        if brief.error is None and target in (None, brief.target) and (by != "warned" or brief.warnings)
    ]
    if by == "certain":
        briefs.sort(key=lambda brief: -brief.prediction)
    return [store[brief.index] for brief in briefs[:n]]


def overall(found: Overview, cards: Sequence[int]) -> dict[str, Any]:
    """What a page says of all inputs before the ``cards`` of some: names that matter, predictions, warnings, errors.

    Names and predictions are told apart by what was explained, the six most frequent outputs; the answers of a language
    model, of which each is an output of its own, are taken together.
    """
    first = next(e for _, e in found.items())
    level, name = first.view.telling, word if first.view.kind == "text" and first.answer is None else None
    card_of = {index: k for k, index in enumerate(cards)}
    predictions: dict[str | None, list[float]] = {}
    failed: dict[str, list[Brief]] = {}
    doubts: dict[str, list[int]] = {}
    inputs = 0
    for brief in found.briefs():
        inputs += 1
        if brief.error is not None:
            failed.setdefault(_kind(brief.error), []).append(brief)
            continue
        predictions.setdefault(brief.target if first.answer is None else None, []).append(brief.prediction)
        for kind in set(map(_kind, brief.warnings)):
            doubts.setdefault(kind, []).append(brief.index)
    outputs = []
    rng = np.random.default_rng(0)
    for target in sorted(predictions, key=lambda target: -len(predictions[target]))[:6]:
        features = important(found, level, 15, target=target, name=name)
        spread = _spread(found, level, features, target, name)
        values = np.array(predictions[target])
        finite = values[np.isfinite(values)]
        outputs.append(
            {
                "name": target,
                "inputs": len(values),
                "bins": np.histogram(finite, bins=20)[0],
                "ends": (finite.min(), finite.max()) if len(finite) else None,
                "median": np.median(finite) if len(finite) else None,
                "features": [
                    {
                        **asdict(feature),
                        "dots": rng.choice(of_inputs[1], min(len(of_inputs[1]), 200), replace=False),
                        "cards": [
                            (card_of[i], float(f"{v:.3g}")) for i, v in zip(*of_inputs, strict=True) if i in card_of
                        ],
                    }
                    for feature, of_inputs in zip(features, spread, strict=True)
                ],
            }
        )
    return {
        "inputs": inputs,
        "level": first.level_names[level],
        "unit": first.link.unit,
        "outputs": outputs,
        "warnings": [
            {"text": text, "inputs": len(indices), "cards": [card_of[i] for i in indices if i in card_of]}
            for text, indices in sorted(doubts.items(), key=lambda item: -len(item[1]))[:12]
        ],
        "failed": sum(map(len, failed.values())),
        "errors": [
            {"text": some[0].error, "inputs": len(some), "first": [brief.index for brief in some[:5]]}
            for some in sorted(failed.values(), key=lambda some: -len(some))[:20]
        ],
    }


def _kind(text: str) -> str:
    """A warning or an error without its names and numbers, by which it is told from others of its kind.

    >>> _kind("R² 0.31 of 'words': raise the budget")
    'R² … of …: raise the budget'
    """
    return re.sub(r"“.*?”|'.*?'|[−-]?\d[\d.,]*", "…", text)


# -- reading ---------------------------------------------------------------------------------------


def _totals(
    found: Overview, level: int, target: str | None, name: Callable[[str], str] | None, places: dict[str, int]
) -> Iterator[tuple[IntArray, IntArray, FloatArray]]:
    """What each name has in each input, shard by shard: the input, the place that the name gets, and the sum."""
    for inputs, names, codes, values in found.flat(level, target):
        place_of = np.array([places.setdefault(name(k) if name else k, len(places)) for k in names], np.intp)
        many = max(len(places), 1)
        pairs, at = np.unique(inputs * many + place_of[codes], return_inverse=True)
        yield pairs // many, pairs % many, np.bincount(at, values, len(pairs)).astype(np.float64)


def _spread(
    found: Overview, level: int, features: Sequence[Feature], target: str | None, name: Callable[[str], str] | None
) -> list[tuple[IntArray, FloatArray]]:
    """Of each feature the inputs that have it, and what it has there."""
    places: dict[str, int] = {}
    shards = list(_totals(found, level, target, name, places))
    if not shards:
        return []
    inputs, of, totals = (np.concatenate(column) for column in zip(*shards, strict=True))
    own = [of == places[feature.name] for feature in features]
    return [(inputs[mine], totals[mine]) for mine in own]


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
    target = which.get("target")
    rng = np.random.default_rng(0)
    for place, (_, values) in enumerate(_spread(found, level, features, target, which.get("name"))):
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

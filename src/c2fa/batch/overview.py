"""What many explanations have in common, be they in memory or in a store: names that matter, pictures, pages."""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload

import numpy as np

from c2fa import report
from c2fa._system import need
from c2fa.batch.isolation import Report
from c2fa.batch.packing import Outcome
from c2fa.explanation import Explanation
from c2fa.showing.for_shap import to_shap
from c2fa.structure import FloatArray, IntArray

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Flat: TypeAlias = tuple[IntArray, Sequence[str], IntArray, FloatArray]
"""Features of some inputs, one after another: the input of each, the distinct names, its name among them, its value."""
Name: TypeAlias = Callable[[str], str] | None


class NotExplainedError(LookupError):
    """The input at this place was set aside; the message is the error that is kept in its place."""


@dataclass(frozen=True)
class Failure:
    """An input that was set aside, and why."""

    index: int
    key: str | None
    error: str


@dataclass(frozen=True)
class Brief:
    """One input in a line: what was predicted and for which output, its warnings, or why it was set aside."""

    index: int
    key: str | None
    prediction: float
    target: str | None
    warnings: tuple[str, ...]
    error: str | None


@dataclass(frozen=True)
class Feature:
    """One name over a dataset: how often it occurs, and the mean of its attributions with a 95 % interval."""

    name: str
    inputs: int
    mean: float
    mean_abs: float
    low: float
    high: float


def word(name: str) -> str:
    """A word without its case and the punctuation around it.

    >>> word("(Great!")
    'great'
    """
    return re.sub(r"^\W+|\W+$", "", name).casefold()


class Overview(Sequence[Explanation]):
    """What is said of many explanations at once."""

    @abstractmethod
    def items(self) -> Iterator[tuple[int, Explanation]]:
        """Each explained input's place and its explanation."""

    @abstractmethod
    def briefs(self) -> Iterator[Brief]:
        """A line about each input, explained or not."""

    @abstractmethod
    def flat(self, level: int, target: str | None = None) -> Iterator[Flat]:
        """The features of a level of the inputs that were explained for a target, some inputs at a time."""

    def important(
        self, level: int = -1, n: int | None = 20, *, target: str | None = None, least: int = 2, name: Name = None
    ) -> list[Feature]:
        """The names with the largest mean absolute attribution: words, columns, channels.

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
            What to make of a name first. Words of texts lose their case and the punctuation around them unless it is
            given; ``name=str`` leaves them as they are.
        """
        places: dict[str, int] = {}
        sums = np.zeros((0, 4))
        for _, of, total in self._totals(level, target, name, places):
            sums = np.concatenate([sums, np.zeros((len(places) - len(sums), 4))])
            for column, weights in enumerate((np.ones_like(total), total, np.abs(total), np.square(total))):
                sums[:, column] += np.bincount(of, weights=weights, minlength=len(places))
        features = []
        for key, place in places.items():
            count, total, total_abs, total_square = sums[place].tolist()
            if count < least or not key:
                continue
            mean = total / count
            half = 1.96 * math.sqrt(max(total_square / count - mean**2, 0.0) / max(count - 1, 1))
            features.append(Feature(key, int(count), mean, total_abs / count, mean - half, mean + half))
        return sorted(features, key=lambda f: -f.mean_abs)[:n]

    def plot(
        self,
        kind: Literal["beeswarm", "bars"] = "beeswarm",
        level: int = -1,
        n: int = 15,
        *,
        ax: Axes | None = None,
        target: str | None = None,
        least: int = 2,
        name: Name = None,
    ) -> Figure:
        """Draw the most important names, as ``important`` finds them.

        ``"beeswarm"`` has a dot for each input that has the name, so that a mean cannot hide two opposite habits;
        ``"bars"`` has means with 95 % intervals.
        """
        if kind not in ("beeswarm", "bars"):
            raise ValueError(f"kind must be 'beeswarm' or 'bars'; got {kind!r}")
        # With matplotlib, which nothing else here needs.
        from c2fa.plots._style import clip, draw_bars, figure_of, name_ticks, own_axes, plain, signs, swarm

        features = self.important(level, n, target=target, least=least, name=name)
        if not features:
            whose = "" if target is None else f" explained for {target!r}"
            raise ValueError(f"there is nothing to draw: no name is in {least} or more inputs{whose}; give least=1")
        ax = own_axes(ax, 7.4, 1.0 + 0.28 * len(features))
        names = [f"{f.name} ({f.inputs})" for f in features]
        if kind == "bars":
            draw_bars(ax, names, [f.mean for f in features], [f.high - f.mean for f in features], 200)
        else:
            rng = np.random.default_rng(0)
            for place, (_, values) in enumerate(self._spread(level, features, target, name)):
                if len(values) > 2000:  # as many dots as can be told apart
                    values = rng.choice(values, 2000, replace=False)
                size = 20 if len(values) <= 50 else 6
                ax.scatter(values, place + swarm(values), s=size, c=signs(values), alpha=0.6, linewidths=0)
            ax.axvline(0.0, color="black", linewidth=0.8)
            name_ticks(ax.yaxis, np.arange(len(names)), (clip(name, 200, 8.5) for name in names))
            plain(ax)
            ax.tick_params(axis="y", length=0)
        ax.invert_yaxis()
        unit = next((e.link.unit for _, e in self.items()), "")
        unit = f" ({unit})" if unit else ""
        what = f"mean attribution{unit}, 95 % interval" if kind == "bars" else f"attribution{unit} in each input"
        what += "; in brackets the inputs that have the name"
        ax.set_xlabel(what if target is None else f"{what}, for {target}", fontsize=8, loc="left", parse_math=False)
        return figure_of(ax)

    def cohorts(self, by: Callable[[Explanation], Any] | Sequence[Any]) -> dict[str, Explanations]:
        """The explanations in groups: by what a function says of each, or by a label for each input."""
        groups: dict[str, list[Outcome]] = {}
        for index, e in self.items():
            label = by(e) if callable(by) else by[index]
            groups.setdefault(str(label), []).append(Outcome(index, None, e))
        return {label: Explanations(some, Report(inputs=len(some))) for label, some in sorted(groups.items())}

    def to_shap(self, level: int = -1) -> Any:
        """All as one ``shap.Explanation``, for shap's plots of a whole table; see ``c2fa.to_shap``."""
        return to_shap([e for _, e in self.items()], level)

    @overload
    def to_html(self, path: None = None, *, title: str | None = None, limit: int = 1000) -> str: ...
    @overload
    def to_html(
        self, path: str | PathLike[str] | None, *, title: str | None = None, limit: int = 1000
    ) -> str | None: ...
    def to_html(
        self, path: str | PathLike[str] | None = None, *, title: str | None = None, limit: int = 1000
    ) -> str | None:
        """One page that needs nothing else: what all inputs have in common, then a card for each of the first.

        ``limit`` is the most cards; every one of them opens to its whole explanation.
        """
        shown = dict(islice(self.items(), limit))
        if not shown:
            raise ValueError("there are no explanations to report: none of the inputs could be explained")
        if len(self) == 1:
            return report.html(next(iter(shown.values())), path, title=title)
        named = []
        for brief in self.briefs():
            if brief.index in shown:
                name, text = brief.key or str(brief.index), report.title_of(shown[brief.index])
                named.append((f"{name} · {text}" if text else brief.key or f"input {name}", shown[brief.index]))
        return report.html(named, path, title=title, overall=self.overall(list(shown)))

    def overall(self, cards: Sequence[int]) -> dict[str, Any]:
        """What a page says of all inputs, before the ``cards`` of some.

        Names and predictions are told apart by what was explained, the six most frequent outputs; answers of a language
        model, of which each is an output of its own, are taken together.
        """
        first = next(e for _, e in self.items())
        level = first.view.telling
        card_of = {index: k for k, index in enumerate(cards)}
        predictions: dict[str | None, list[float]] = {}
        failed: dict[str, list[Brief]] = {}
        doubts: dict[str, list[int]] = {}
        inputs = 0
        for brief in self.briefs():
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
            features = self.important(level, 15, target=target)
            spread = self._spread(level, features, target, None)
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

    def _spelling(self, level: int) -> Name:
        """What is made of the names of a level where nothing is given."""
        for _, e in self.items():
            tells = (level - e.view.telling) % e.structure.depth == 0
            return word if tells and e.view.kind == "text" and e.answer is None else None
        return None

    def _totals(
        self, level: int, target: str | None, name: Name, places: dict[str, int]
    ) -> Iterator[tuple[IntArray, IntArray, FloatArray]]:
        """What each name has in each input, shard by shard: the input, the place that the name gets, and the sum."""
        name = name or self._spelling(level)
        for inputs, names, codes, values in self.flat(level, target):
            place_of = np.array([places.setdefault(name(k) if name else k, len(places)) for k in names], np.intp)
            many = max(len(places), 1)
            pairs, at = np.unique(inputs * many + place_of[codes], return_inverse=True)
            yield pairs // many, pairs % many, np.bincount(at, values, len(pairs)).astype(np.float64)

    def _spread(
        self, level: int, features: Sequence[Feature], target: str | None, name: Name
    ) -> list[tuple[IntArray, FloatArray]]:
        """Of each feature the inputs that have it, and what it has there."""
        if not features:
            return []
        places: dict[str, int] = {}
        shards = list(self._totals(level, target, name, places))
        inputs, of, totals = (np.concatenate(column) for column in zip(*shards, strict=True))
        own = [of == places[feature.name] for feature in features]
        return [(inputs[mine], totals[mine]) for mine in own]


def _kind(text: str) -> str:
    """A warning or an error without its names and numbers, by which it is told from others of its kind.

    >>> _kind("R² 0.31 of 'words': raise the budget")
    'R² … of …: raise the budget'
    """
    return re.sub(r"“.*?”|'.*?'|[−-]?\d[\d.,]*", "…", text)


class Explanations(Overview):
    """Explanations of many inputs, in the inputs' order.

    ``found[i]`` is the explanation of input ``i``, or ``NotExplainedError`` where that input failed. Iterating raises
    it too, so that inputs and explanations stay side by side; ``items()`` passes over inputs that failed, and
    ``errors()`` lists them. ``run`` says what it took.
    """

    def __init__(self, outcomes: Sequence[Outcome], run: Report) -> None:
        self._outcomes = sorted(outcomes, key=lambda outcome: outcome.index)
        self.run = run

    @classmethod
    def of(cls, named: Iterable[tuple[str | None, Explanation]]) -> Explanations:
        """Explanations that are there already, with the names of their inputs."""
        outcomes = [Outcome(k, name, e) for k, (name, e) in enumerate(named)]
        return cls(outcomes, Report(inputs=len(outcomes)))

    def __repr__(self) -> str:
        failed = len(self.errors())
        return f"<Explanations of {len(self)} inputs{f', {failed} not explained' if failed else ''}>"

    def _repr_html_(self) -> str:
        most = 20
        first = ((o.index, o.explanation or str(o.error)) for o in self._outcomes[:most])
        rest = f", the first {most} of them here" if len(self) > most else ""
        return report.repr_many(f"{repr(self)[1:-1]}{rest}", first)

    def __len__(self) -> int:
        return len(self._outcomes)

    @overload
    def __getitem__(self, index: int) -> Explanation: ...
    @overload
    def __getitem__(self, index: slice) -> list[Explanation]: ...
    def __getitem__(self, index: int | slice) -> Explanation | list[Explanation]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        outcome = self._outcomes[index]
        if outcome.explanation is None:
            raise NotExplainedError(f"input {outcome.index} could not be explained: {outcome.error}")
        return outcome.explanation

    def items(self) -> Iterator[tuple[int, Explanation]]:
        """Each explained input's place and its explanation."""
        return ((o.index, o.explanation) for o in self._outcomes if o.explanation is not None)

    def briefs(self) -> Iterator[Brief]:
        """A line about each input, explained or not."""
        for o in self._outcomes:
            e = o.explanation
            if e is None:
                yield Brief(o.index, o.key, np.nan, None, (), o.error)
            else:
                yield Brief(o.index, o.key, e.prediction, e.target_name, e.diagnostics.warnings, None)

    def flat(self, level: int, target: str | None = None) -> Iterator[Flat]:
        """The features of a level of the inputs that were explained for a target, one input at a time."""
        for index, e in self.items():
            if target in (None, e.target_name):
                values = e.values[e.level(level)]
                yield np.full(len(values), index), e.names[e.level(level)], np.arange(len(values)), values

    def to_frame(self) -> pd.DataFrame:
        """A tidy table: one row for each feature of each level of each input that is explained."""
        frames = [e.to_frame().assign(input=index, prediction=e.prediction) for index, e in self.items()]
        found: pd.DataFrame = need("pandas", "frame").concat(frames, ignore_index=True)
        return found.set_index("input").reset_index()

    def errors(self) -> list[Failure]:
        """The inputs that failed, and why."""
        return [Failure(o.index, o.key, str(o.error)) for o in self._outcomes if o.explanation is None]

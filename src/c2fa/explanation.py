"""What people keep: values per level that add up, with names, standard errors and diagnostics; no drawing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from c2fa._system import at_least, did_you_mean, need
from c2fa.asking.links import Link, ensure
from c2fa.asking.masking import View
from c2fa.asking.model import resolve_target
from c2fa.showing import codec, for_shap
from c2fa.showing.numbers import Rounded, number
from c2fa.showing.printing import notes, printable, tree
from c2fa.solution import Diagnostics, consistency
from c2fa.structure import FloatArray, IntArray, Structure
from c2fa.views.answer import Cited
from c2fa.views.descriptors import Column, FromPrior
from c2fa.views.images import Images
from c2fa.views.statement import Statement

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Explanation:
    """Attributions at every level of one input, coarse to fine.

    Attributes
    ----------
    structure
        The tree of features.
    outputs, output_names
        The model's outputs for the input, (outputs,), and their names.
    target
        The index of the explained output.
    columns
        The outputs that have attributions; ``for_target`` switches between them.
    all_values, all_stderr, all_intercepts
        Per level, (width, columns) and (columns,).
    queries
        Model rows used, every one of them.
    view
        The input as it is named, listed and drawn, of one class for each kind; see ``c2fa.views``.
    prior
        With a prior: how much of the explanation it is. Else None.
    answer
        What ``c2fa.cite`` explained: the answer, its statements and what each rests on. Else None.
    provenance
        Method, settings, versions, seed.
    descriptors
        What the masker knows of the leaves, field by field, which a prior learns from; None where it knows nothing.
    """

    structure: Structure
    outputs: FloatArray
    output_names: tuple[str, ...]
    target: int
    columns: tuple[int, ...]
    all_values: tuple[FloatArray, ...]
    all_intercepts: tuple[FloatArray, ...]
    all_stderr: tuple[FloatArray, ...] | None
    queries: int
    diagnostics: Diagnostics
    view: View = field(default_factory=View)
    prior: FromPrior | None = None
    answer: Cited | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    descriptors: Mapping[str, Column] | None = None

    @property
    def _column(self) -> int:
        return self.columns.index(self.target)

    @property
    def values(self) -> tuple[FloatArray, ...]:
        """The target's attributions, one array for each level, coarse to fine."""
        return tuple(v[:, self._column] for v in self.all_values)

    @property
    def stderr(self) -> tuple[FloatArray, ...] | None:
        """Their standard errors, where the method has any."""
        return None if self.all_stderr is None else tuple(v[:, self._column] for v in self.all_stderr)

    @property
    def from_prior(self) -> tuple[FloatArray, ...] | None:
        """What the prior did to the target's attributions, whose rest this input's answers say; None without one."""
        parts = self.all_from_prior
        return None if parts is None else tuple(part[:, self._column] for part in parts)

    @property
    def all_from_prior(self) -> tuple[FloatArray, ...] | None:
        """The same for all columns, each (width, columns)."""
        if self.prior is None or self.prior.without is None:
            return None
        return tuple(whole - alone for whole, alone in zip(self.all_values, self.prior.without, strict=True))

    @property
    def intercepts(self) -> tuple[float, ...]:
        """What the surrogate of each level says of an empty input."""
        return tuple(float(b[self._column]) for b in self.all_intercepts)

    @property
    def base(self) -> float:
        """What the model says of an empty input, as far as the method knows: with the parts it makes the prediction."""
        return self.intercepts[0]

    def interactions(self, level: int | str = 0, n: int = 5) -> list[tuple[str, str, float, float]]:
        """The n pairs of a level's features that act together most surely: names, interaction, standard error.

        Both are under one parent. Above 0 the two do more together than each by itself; below 0 either will do.
        """
        n, at = at_least("n", n, 0), self.level(level)
        names = self.names[at]
        pairs = [pair for pair in self.diagnostics.interactions if pair.level == at]
        return [(names[pair.first], names[pair.second], pair.value, pair.stderr) for pair in pairs[:n]]

    @property
    def high(self) -> FloatArray:
        """The attributions of the coarsest level: ``values[0]``."""
        return self.values[0]

    @property
    def low(self) -> FloatArray:
        """The attributions of the leaves: ``values[-1]``."""
        return self.values[-1]

    @cached_property
    def rounded(self) -> Rounded:
        """The target's attributions as texts, plots and pages show them: rounded so that they add up as shown."""
        return Rounded.of(self.structure, self.values, self.intercepts[0], self.stderr or ())

    @property
    def names(self) -> tuple[tuple[str, ...], ...]:
        """The features' names, one tuple for each level."""
        return self.structure.names

    @property
    def notes(self) -> list[str]:
        """Sentences about the input that the numbers do not tell: which values are equal to the baseline."""
        return notes(self)

    @property
    def level_names(self) -> tuple[str, ...]:
        """What the features of each level are called: sentences, words."""
        return self.view.level_names(self.structure)

    @property
    def statements(self) -> tuple[Statement, ...]:
        """What ``c2fa.cite`` explained, statement by statement, each with what it rests on; else empty."""
        return () if self.answer is None else self.answer.each(self)

    def sources(self) -> list[dict[str, Any]]:
        """What ``c2fa.cite`` explained, as plain dicts that JSON takes: each statement, and in it what it rests on.

        A statement has its ``place`` in the answer, (start, end), and its ``verdict``; each of its ``sources`` the
        document's id and ``metadata``, the ``passage``, its ``passage_place`` in the document, ``value`` and
        ``stderr``. One that rests on nothing has no sources.
        """
        if self.answer is None:
            raise ValueError("sources are those of an answer that c2fa.cite explains; to_frame() has these values")
        return self.answer.sources(self)

    def to_records(self) -> list[dict[str, Any]]:
        """The same as rows of a table: a dict for each source of each statement, with the statement's own fields."""
        return [
            {**{name: value for name, value in statement.items() if name != "sources"}, **source}
            for statement in self.sources()
            for source in statement["sources"]
        ]

    def level(self, level: int | str) -> int:
        """The index of a level that is given by its number, coarse (0) to fine (-1), or by its name, such as words."""
        if not isinstance(level, str):
            return self.structure.level(level)
        if level not in self.level_names:
            near = did_you_mean(level, self.level_names)
            raise ValueError(f"level {level!r} does not exist; the levels are {', '.join(self.level_names)}{near}")
        return self.level_names.index(level)

    @property
    def prediction(self) -> float:
        """The model's output for the input, at the target."""
        return float(self.outputs[self.target])

    @property
    def link(self) -> Link:
        """The scale that the attributions add up on; ``link.unit`` says in words what they are in."""
        return ensure(self.provenance.get("link", "identity"))

    @property
    def linked(self) -> float:
        """The prediction on the attributions' scale: what intercept and attributions add up to, where they fit."""
        return float(self.link.at(self.outputs)(self.outputs)[self.target])

    @property
    def target_name(self) -> str:
        """The name of the explained output."""
        return self.output_names[self.target]

    def for_target(self, target: int | str) -> Explanation:
        """The same explanation for another output, without another query."""
        index = resolve_target(target, self.outputs, self.output_names)
        if index not in self.columns:
            raise ValueError(
                f"output {self.output_names[index]!r} was not kept; explain with outputs='all' to switch targets"
            )
        e = replace(self, target=index)
        with np.errstate(invalid="ignore", over="ignore"):  # a stranger's values may be infinite
            return replace(e, diagnostics=replace(e.diagnostics, consistency=consistency(e.values, e.structure)))

    def within(
        self, structure: Structure, places: tuple[IntArray, ...], view: View, descriptors: Mapping[str, Column] | None
    ) -> Explanation:
        """The same values in a larger input, at these ``places`` of each level; what is elsewhere has exactly 0."""

        def wide(values: tuple[FloatArray, ...]) -> tuple[FloatArray, ...]:
            out = tuple(np.zeros((width, len(self.columns))) for width in structure.widths)
            for all_of, at, own in zip(out, places, values, strict=True):
                all_of[at] = own
            return out

        pairs = self.diagnostics.interactions
        prior = self.prior
        if prior is not None and prior.without is not None:
            prior = replace(prior, without=wide(prior.without))
        at = [(int(places[pair.level][pair.first]), int(places[pair.level][pair.second])) for pair in pairs]
        moved = tuple(replace(pair, first=i, second=j) for pair, (i, j) in zip(pairs, at, strict=True))
        return replace(
            self,
            structure=structure,
            all_values=wide(self.all_values),
            all_stderr=None if self.all_stderr is None else wide(self.all_stderr),
            diagnostics=replace(self.diagnostics, interactions=moved),
            prior=prior,
            view=view,
            descriptors=descriptors,
        )

    def top(self, n: int = 5, level: int | str = -1) -> list[tuple[str, float]]:
        """The n features of a level with the largest absolute attributions, as (name, attribution)."""
        n, at = at_least("n", n, 0), self.level(level)
        values, names = self.values[at], self.names[at]
        return [(names[i], float(values[i])) for i in np.argsort(-np.abs(values), kind="stable")[:n]]

    def to_frame(self) -> pd.DataFrame:
        """A tidy table: one row for each feature of each level.

        Columns of a table have their value in ``input_value``, and a word where it is equal to the baseline.
        """
        pandas, frames = need("pandas", "frame"), []
        cells = self.view.cells()
        for k, names in enumerate(self.names):
            columns = {
                "level": k,
                "index": np.arange(len(names)),
                "name": list(map(printable, names)),
                "parent": -1,
                "parent_name": "",
                "value": self.values[k],
                "stderr": np.nan if self.stderr is None else self.stderr[k],
            }
            if self.from_prior is not None:
                columns["from_prior"] = self.from_prior[k]
            if k:
                parent, above = self.structure.parents[k - 1], list(map(printable, self.names[k - 1]))
                columns |= {"parent": parent, "parent_name": [above[j] for j in parent]}
            if cells:
                columns["input_value"] = cells if k == self.structure.depth - 1 else ""
            frames.append(pandas.DataFrame(columns))
        found: pd.DataFrame = pandas.concat(frames, ignore_index=True)
        return found

    def to_shap(self, level: int | str = -1) -> Any:
        """The values of a level as a ``shap.Explanation``, for shap's plots; ``c2fa.to_shap`` takes many at once."""
        return for_shap.to_shap([self], self.level(level))[0]

    def heatmap(self, level: int | str = -1, *, density: bool = False) -> list[FloatArray]:
        """The attributions of images pixel by pixel: one array, (H, W), for each image, of the image's own size.

        Each pixel has the attribution of its super-pixel (level -1), or of the image or region that it lies in (0), for
        what compares pixels by rank: pointing games, deletion curves, overlap with a mask. With ``density`` that is
        divided by the area, so that the pixels of a map add up to the attributions, for what takes sums.
        """
        if not isinstance(self.view, Images):
            kept = f"is of kind {self.view.kind!r}" if self.view.kind else "was kept without its input's view"
            raise ValueError(f"heatmap is for images, and this explanation {kept}: to_frame() has its values")
        at = self.level(level)
        return self.view.heatmaps(self.values[at], self.structure.owners(at), density)

    def to_json(self, indent: int | None = None) -> str:
        """The whole explanation as JSON; ``from_json`` gives it back."""
        return codec.to_json(self, indent)

    @classmethod
    def from_json(cls, text: str) -> Explanation:
        """Read what ``to_json`` wrote; ValueError where it is anything else, or was changed."""
        return codec.from_json(cls, text)

    def save(self, path: str | PathLike[str]) -> None:
        """Write to a ``.json`` file, whole or not at all.

        ``c2fa.load`` reads it. Values of the input that JSON has no word for, such as dates, come back as their text.
        """
        codec.save(self, path)

    def to_text(self, leaves: int = 5, width: int = 100) -> str:
        """A tree: the parts with their attributions, the most important features under each."""
        return tree(self, leaves=at_least("leaves", leaves, 0), width=at_least("width", width, 1))

    def plot(self, kind: str | None = None, **options: Any) -> Any:
        """Draw it in the way of its input and return the matplotlib figure; see ``c2fa.plots``."""
        from c2fa import plots

        return plots.plot(self, kind, **options)

    @overload
    def to_html(self, path: None = None, *, title: str | None = None) -> str: ...
    @overload
    def to_html(self, path: str | PathLike[str], *, title: str | None = None) -> None: ...
    def to_html(self, path: str | PathLike[str] | None = None, *, title: str | None = None) -> str | None:
        """Write one self-contained HTML page to a file, or return it where no file is named; see ``c2fa.report``."""
        from c2fa import report

        return report.html(self, path, title=title)

    def _repr_html_(self) -> str:
        from c2fa import report

        return report.repr_html(self)

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        widths, said = "×".join(map(str, self.structure.widths)), number(self.prediction)
        unit = f" in {self.link.unit}" if self.link.unit else ""
        return f"<Explanation of {self.target_name!r} ({said}){unit}, levels {widths}, {self.queries} rows>"


def load(path: str | PathLike[str]) -> Explanation:
    """Read an explanation from a ``.json`` file.

    A file that is damaged, or that ``save`` did not write, is a ValueError that names it. Nothing in a file is run.
    """
    several = load_all(path)
    if len(several) != 1:
        raise ValueError(f"{path} holds {len(several)} explanations; c2fa.explanation.load_all reads them all")
    return several[0]


def load_all(path: str | PathLike[str]) -> list[Explanation]:
    """Read all explanations of a file: one, or the list of them that ``c2fa explain`` writes for several inputs."""
    return codec.load_all(Explanation, path)

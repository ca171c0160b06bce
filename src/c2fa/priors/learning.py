"""How explained inputs are learned from: their leaves become features, whose effects and sizes are fitted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from c2fa.explanation import Explanation
from c2fa.structure import FloatArray, IntArray
from c2fa.views.descriptors import Column

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

FOLDS = 4  # inputs are left out by quarters
MOST = 4.0  # a leaf's size is e⁴ times the usual one, or a part of it, at the most


@dataclass(frozen=True)
class Field:
    """How the entries of one field become features: categories by their names, numbers by hats over knots."""

    categories: Mapping[str, int] = field(default_factory=dict)
    knots: tuple[float, ...] = ()

    @property
    def width(self) -> int:
        """The number of features."""
        return len(self.categories) + len(self.knots)

    @classmethod
    def of(cls, entries: Column) -> Field:
        """The categories that were met, and knots at the quantiles of the numbers."""
        met = {entry for entry in entries if isinstance(entry, str)}
        numbers = [float(e) for e in entries if e is not None and not isinstance(e, str) and np.isfinite(e)]
        knots = np.unique(np.quantile(numbers, np.linspace(0.0, 1.0, 9))) if numbers else np.empty(0)
        return cls({name: k for k, name in enumerate(sorted(met))}, tuple(knots.tolist()))

    def features(self, entries: Column) -> tuple[IntArray, IntArray, FloatArray]:
        """The leaves, features and values that are not 0."""
        found: list[tuple[int, int, float]] = []
        for leaf, entry in enumerate(entries):
            if isinstance(entry, str):
                if entry in self.categories:
                    found.append((leaf, self.categories[entry], 1.0))
            elif entry is not None and self.knots and np.isfinite(entry):
                at = float(np.interp(entry, self.knots, np.arange(len(self.knots))))
                below = min(int(at), len(self.knots) - 1)
                for knot, height in ((below, 1.0 - (at - below)), (below + 1, at - below)):
                    if height > 0.0:
                        found.append((leaf, len(self.categories) + knot, height))
        leaves, columns, heights = np.array(found, dtype=np.float64).reshape(-1, 3).T
        return leaves.astype(np.intp), columns.astype(np.intp), heights


def kind_of(prediction: FloatArray, names: Sequence[str], middle: float) -> str:
    """The class that is predicted; of a single output the side of the middle that it is on."""
    if len(names) > 1:
        return names[int(np.argmax(prediction))]
    return "above" if prediction[0] > middle else "below"


def names_of(descriptors: Mapping[str, Column]) -> list[tuple[str, str] | None]:
    """Of each leaf the first field that names it, and its name; None where it has numbers alone."""
    found: list[tuple[str, str] | None] = [None] * len(next(iter(descriptors.values()), ()))
    for name, entries in descriptors.items():
        for leaf, entry in enumerate(entries):
            if found[leaf] is None and isinstance(entry, str):
                found[leaf] = name, entry
    return found


def of_kind(descriptors: Mapping[str, Column], kind: str) -> dict[str, Column]:
    """The table with one more field: of each leaf what names it, together with the kind of the input.

    >>> of_kind({"word": ["good", None], "size": [1.0, 2.0]}, "positive")["with the prediction"]
    ['word good positive', None]
    """
    crossed: Column = [named and " ".join([*named, kind]) for named in names_of(descriptors)]
    return {**descriptors, "with the prediction": crossed} if any(crossed) else dict(descriptors)


def features_of(fields: Mapping[str, Field], descriptors: Mapping[str, Column]) -> csr_matrix:
    """The features of leaves, (leaves, features)."""
    from scipy.sparse import csr_matrix

    leaves = len(next(iter(descriptors.values()), ()))
    start, parts = 0, []
    for name, one in fields.items():
        if name in descriptors:
            rows, columns, values = one.features(descriptors[name])
            parts.append((rows, columns + start, values))
        start += one.width
    if not parts:
        return csr_matrix((leaves, start))
    rows, columns, values = (np.concatenate(some) for some in zip(*parts, strict=True))
    return csr_matrix((values, (rows, columns)), shape=(leaves, start))


def _usable(given: Sequence[Explanation]) -> tuple[list[Explanation], list[Mapping[str, Column]]]:
    """The explanations that can be learned from, each once, and what each knows of its leaves."""
    usable = [_by_itself(e) for e in given]
    usable = list({(e.names[-1], e.outputs.tobytes(), e.all_values[-1].tobytes()): e for e in usable}.values())
    tables = [e.descriptors for e in usable if e.descriptors is not None]
    if len(tables) < len(usable):
        raise ValueError("an explanation knows nothing of its leaves; use a masker that has descriptors")
    if len(usable) < FOLDS:
        raise ValueError(f"there are {len(usable)} different explanations to learn from; give {FOLDS} at least")
    links = {e.link.name for e in usable}
    if len(links) > 1:
        raise ValueError(f"the explanations are on different scales, {sorted(links)}; give those of one link")
    return usable, tables


def _by_itself(e: Explanation) -> Explanation:
    """What an input's own answers say: what a prior expected of it must not come back as what was found.

    Where values are ``v ± s`` with the prior and ``w`` without it, the mean square error of ``w`` is ``(v − w)² + s²``.
    """
    if e.prior is None or e.prior.without is None:
        return e
    errors = e.all_stderr
    if errors is not None:
        levels = zip(errors, e.all_values, e.prior.without, strict=True)
        errors = tuple(np.hypot(error, whole - alone) for error, whole, alone in levels)
    return replace(e, all_values=e.prior.without, all_stderr=errors, prior=None)


@dataclass(frozen=True, eq=False)
class Lessons:
    """The leaves of explanations, one after another: their features, and of each output their values and errors."""

    fields: Mapping[str, Field]
    features: csr_matrix
    inputs: IntArray
    values: Mapping[str, FloatArray]
    errors: Mapping[str, FloatArray]
    middle: float
    link: str
    model: str

    @classmethod
    def of(cls, explanations: Iterable[Explanation]) -> Lessons:
        """Gather what can be learned from; an output that an explanation does not have is NaN there."""
        if isinstance(explanations, str | PathLike):
            raise TypeError(
                f"learn takes explanations, not the name {str(explanations)!r}: c2fa.batch.Store.open reads a store, "
                "c2fa.load a file, and Prior.load a prior"
            )
        given = list(explanations) if isinstance(explanations, Iterable) else [explanations]
        for one in given:
            if not isinstance(one, Explanation):
                raise TypeError(f"learn takes a list of explanations, or a store; got {type(one).__name__}")
        usable, tables = _usable(given)
        middle = float(np.mean([e.outputs[0] for e in usable]))
        kinds = [kind_of(e.outputs, e.output_names, middle) for e in usable]
        tables = [of_kind(table, kind) for table, kind in zip(tables, kinds, strict=True)]
        sizes = [e.structure.leaves for e in usable]
        inputs = np.repeat(np.arange(len(usable)), sizes)
        table = _joined(tables, sizes)
        fields = {name: Field.of(entries) for name, entries in table.items()}
        outputs = list(dict.fromkeys(e.output_names[c] for e in usable for c in e.columns))
        values, errors = {}, {}
        for name in outputs:
            found = [_unshrunk(_of_output(e, name, e.all_values), _of_output(e, name, e.all_stderr)) for e in usable]
            values[name], errors[name] = (np.concatenate(some) for some in zip(*found, strict=True))
        models = {str(e.provenance.get("model", "")) for e in usable}
        model = models.pop() if len(models) == 1 else ""
        return cls(fields, features_of(fields, table), inputs, values, errors, middle, usable[0].link.name, model)

    @property
    def count(self) -> int:
        """The number of inputs."""
        return int(self.inputs[-1]) + 1

    @property
    def met(self) -> IntArray:
        """In how many inputs each feature is."""
        from scipy.sparse import csr_matrix

        leaves = np.arange(len(self.inputs))
        owns = csr_matrix((np.ones(len(leaves)), (self.inputs, leaves)))
        return np.asarray(((owns @ self.features) > 0).sum(axis=0)).ravel()

    def learned(self, output: str) -> tuple[FloatArray, FloatArray, FloatArray, float]:
        """The features' effects on an output, their sizes, the effects' standard errors, and their worth elsewhere."""
        y, errors, power = _near_one(self.values[output], self.errors[output])
        known = np.isfinite(y)
        noise = np.where(np.isfinite(errors), np.square(errors), 0.0)
        weights = 1.0 / (noise + max(float(noise[known].mean()), float(np.var(y[known])), 1e-300))
        weights *= np.var(y[known]) or 1.0
        fold = self.inputs % FOLDS
        strengths = self._strengths(y, weights, known & (fold != 0), known & (fold == 0))
        effects = self._ridge(y, weights, known, strengths, tolerance=1e-5)
        foreseen = np.empty(len(y))  # from other inputs alone, so that no fit may begin at the effects
        without = []
        for k in range(FOLDS):
            there = self._ridge(y, weights, known & (fold != k), strengths)
            foreseen[fold == k] = self.features[fold == k] @ there
            without.append(there)
        errors = np.sqrt(FOLDS - 1) * np.std(without, axis=0)  # the jackknife's, by quarters
        measured_on = known & (fold == 1)
        worth = _correlation(foreseen[measured_on], y[measured_on])
        sizes = self._sizes(np.where(known, y - foreseen, 0.0), known)
        return _rounded(np.ldexp(effects, power)), _rounded(sizes), _rounded(np.ldexp(errors, power)), worth

    def _sizes(self, left: FloatArray, known: Any) -> FloatArray:
        """What features add to the logarithm of a leaf's size, from what is left of the leaves' values.

        What is left is taken to be normal, with a scale that is each input's own. The strength is the likeliest on a
        quarter of the inputs that is left out; where none is likelier there than that leaves are alike, they are.
        """
        squares = np.square(left)
        counts = np.bincount(self.inputs, known)
        means = np.bincount(self.inputs, squares) / np.maximum(counts, 1.0)
        known = known & (means > 0.0)[self.inputs]
        squares = squares / np.where(means > 0.0, means, 1.0)[self.inputs]
        chosen_on = known & (self.inputs % FOLDS == 0)
        fit = known & ~chosen_on

        def unlikely(logs: FloatArray) -> float:
            inputs = self.inputs[chosen_on]
            scales = np.bincount(inputs, squares[chosen_on] * np.exp(-logs)) / np.maximum(np.bincount(inputs), 1)
            return float(np.log(scales[inputs]).sum() + logs.sum())

        alike = there = np.zeros(self.features.shape[1])
        best, chosen = unlikely(self.features[chosen_on] @ alike), None
        for strength in (1000.0, 300.0, 100.0, 30.0, 10.0, 3.0):  # one for all fields, from the strongest on
            there = self._scored(squares, fit, strength, there)
            seen = unlikely(np.clip(self.features[chosen_on] @ there, -MOST, MOST))
            if seen >= best:
                break
            best, chosen = seen, strength
        return alike if chosen is None else self._scored(squares, known, chosen, there)

    def _scored(self, squares: FloatArray, rows: Any, strength: float, start: FloatArray) -> FloatArray:
        """The likeliest sizes under a strength, by Fisher's scoring: each round is a ridge fit."""
        sizes, ones, strengths = start, np.ones(len(squares)), dict.fromkeys(self.fields, strength)
        for _ in range(3):
            logs = np.clip(self.features @ sizes, -MOST, MOST)
            sizes = self._ridge(logs + squares * np.exp(-logs) - 1.0, ones, rows, strengths, start=sizes)
        return sizes

    def _strengths(self, y: FloatArray, weights: FloatArray, fit: Any, look: Any) -> dict[str, float]:
        """A strength for each field, each in turn made stronger or weaker as long as other inputs gain by it."""

        there = None

        def error(strengths: Mapping[str, float]) -> float:
            nonlocal there
            there = self._ridge(y, weights, fit, strengths, start=there)
            return float(weights[look] @ np.square(y[look] - self.features[look] @ there))

        strengths = dict.fromkeys(self.fields, 30.0)
        best, whole = error(strengths), float(weights[look] @ np.square(y[look])) or 1.0
        for name in self.fields:
            for factor in (3.0, 1.0 / 3.0):
                while 0.1 <= strengths[name] * factor <= 1e4:
                    tried = {**strengths, name: strengths[name] * factor}
                    seen = error(tried)
                    if seen > best - 1e-4 * whole:  # what a step must gain, of R²
                        break
                    strengths, best = tried, seen
        return strengths

    def _ridge(
        self,
        y: FloatArray,
        weights: FloatArray,
        rows: Any,
        strengths: Mapping[str, float],
        tolerance: float = 1e-4,
        start: FloatArray | None = None,
    ) -> FloatArray:
        """The effects that fit some of the rows, looked for from others that are near."""
        from scipy.sparse import diags, vstack
        from scipy.sparse.linalg import lsmr

        root = np.sqrt(weights[rows])
        ridge = np.concatenate([np.full(one.width, np.sqrt(strengths[name])) for name, one in self.fields.items()])
        system = vstack([diags(root) @ self.features[rows], diags(ridge)]).tocsr()
        right = np.concatenate([root * y[rows], np.zeros(len(ridge))])
        effects: FloatArray = lsmr(system, right, atol=tolerance, btol=tolerance, x0=start)[0]
        return effects


def _rounded(numbers: FloatArray) -> FloatArray:
    return np.array([float(f"{number:.6g}") for number in numbers])


def _correlation(a: FloatArray, b: FloatArray) -> float:
    """0 where one of them is constant, or there is nothing."""
    return float(np.corrcoef(a, b)[0, 1]) if len(a) > 1 and np.ptp(a) > 0.0 and np.ptp(b) > 0.0 else 0.0


def _near_one(values: FloatArray, errors: FloatArray) -> tuple[FloatArray, FloatArray, int]:
    """Values and their errors over a power of two, so that squares do not underflow, and its exponent."""
    power = int(np.frexp(np.abs(values[np.isfinite(values)]).max(initial=0.0))[1])
    return np.ldexp(values, -power), np.ldexp(errors, -power), power


def _unshrunk(values: FloatArray, errors: FloatArray) -> tuple[FloatArray, FloatArray]:
    """An input's values as large as they should be, and their errors: few rows leave values that are too small.

    Of a posterior mean ``v`` and its error ``s`` the truth has the mean square ``v² + s²``.
    """
    near, errors_near, _ = _near_one(values, errors)
    known = np.isfinite(values) & np.isfinite(errors)
    found, unsure = np.square(near[known]).sum(), np.square(errors_near[known]).sum()
    # To a quarter at the most: below it noise would be all there is.
    shrunk = max(found / (found + unsure), 0.25) if found > 0.0 else 1.0
    return values / shrunk, errors / shrunk


def _joined(tables: Sequence[Mapping[str, Column]], sizes: Sequence[int]) -> dict[str, list[Any]]:
    """The tables of several inputs as one, with None for the leaves of an input that does not have a field."""
    names = dict.fromkeys(name for table in tables for name in table)
    joined: dict[str, list[Any]] = {name: [] for name in names}
    for table, size in zip(tables, sizes, strict=True):
        for name, entries in joined.items():
            entries.extend(table.get(name, [None] * size))
    return joined


def _of_output(e: Explanation, name: str, arrays: tuple[FloatArray, ...] | None) -> FloatArray:
    """The leaves' numbers for one output; NaN where the explanation has none."""
    if arrays is None or name not in e.output_names or e.output_names.index(name) not in e.columns:
        return np.full(e.structure.leaves, np.nan)
    return arrays[-1][:, e.columns.index(e.output_names.index(name))]

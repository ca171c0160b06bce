"""What explained inputs teach about others: the effect that a leaf is expected to have, from what is known of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from c2fa._system import atomic, did_you_mean, is_whole, need
from c2fa.asking.fingerprint import fingerprint
from c2fa.explanation import Explanation
from c2fa.solvers.expected import Expectation
from c2fa.structure import FloatArray, IntArray
from c2fa.views.descriptors import Column

if TYPE_CHECKING:
    import pandas as pd
    from scipy.sparse import csr_matrix

_VERSION = 5
_WITH = "with the prediction"  # the field that is added to those of a masker
_KNOTS = 9  # of a field of numbers, at its quantiles
_FOLDS = 4
_STRENGTH, _FACTOR = 30.0, 3.0  # where the search for a field's strength begins, and its steps
_RANGE = (0.1, 1e4)
_TOLERANCE, _ROUGHLY = 1e-5, 1e-4  # of a ridge fit, and while strengths are looked for
_DIGITS = 6  # of an effect, and of a size
_SIZE_STRENGTHS = (1000.0, 300.0, 100.0, 30.0, 10.0, 3.0)  # of sizes, for all fields: tried from the strongest on
_SIZE_ROUNDS = 3  # of scoring, for each of them
_MOST = 4.0  # a leaf's size is e⁴ times the usual one, or a part of it, at the most
_LEAST_SHRUNK = 0.25  # values are taken to be shrunk to a quarter at the most: below it noise would be all there is
_BETTER = 1e-4  # of R²: what a step must gain
_SEAL = b', "checksum": '


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
        knots = np.unique(np.quantile(numbers, np.linspace(0.0, 1.0, _KNOTS))) if numbers else np.empty(0)
        return cls.named(sorted(met), knots.tolist())

    @classmethod
    def named(cls, categories: Iterable[str], knots: Iterable[float]) -> Field:
        """From the categories in the order of their features."""
        return cls({name: k for k, name in enumerate(categories)}, tuple(knots))

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


@dataclass(frozen=True)
class Learned:
    """What was learned of one thing that leaves may be: its effect on an output, and from how many inputs.

    ``value`` is a category of the field, such as a word, or a number, around which the effect holds.
    """

    field: str
    value: str | float
    output: str
    effect: float
    stderr: float
    inputs: int

    @property
    def name(self) -> str:
        """The field and its value."""
        return f"{self.field}: {self.value}" if isinstance(self.value, str) else f"{self.field} ≈ {self.value:.4g}"


@dataclass(frozen=True, eq=False)
class Prior:
    """The effects that leaves are expected to have, and how large what is left of them usually is, learned from others.

    In a fit the expected effects count as far as the answers bear them out: where they do not, the explanation is as
    without them (``c2fa.solvers.expected``). It depends on nothing but itself and the input.

    Attributes
    ----------
    fields
        How descriptors become features.
    effects
        For each output by its name, the effect of each feature, one field's after another's.
    sizes
        In the same way, what each feature adds to the logarithm of the size of a leaf: how large, as a variance beside
        that of the input's other leaves, what is left of its value usually is.
    errors
        The standard errors of the effects, by how they differ where each quarter of the inputs in turn is left out.
    met
        In how many inputs each feature was met.
    worth
        For each output the correlation of expected with explained effects, on inputs that were not learned from.
    inputs
        How many explanations it was learned from.
    middle
        What the model said of them on average, where it has a single output.
    link, model
        Their scale and their model.
    """

    fields: Mapping[str, Field]
    effects: Mapping[str, FloatArray]
    sizes: Mapping[str, FloatArray]
    errors: Mapping[str, FloatArray]
    met: IntArray
    worth: Mapping[str, float]
    inputs: int
    middle: float
    link: str
    model: str

    @classmethod
    def learn(cls, explanations: Iterable[Explanation]) -> Prior:
        """Learn from explanations: a list, or a store. The same one twice counts once.

        Effects are a ridge fit on what is known of the leaves, one strength for each field. Strengths are chosen on a
        quarter of the inputs, and what they are worth is measured on another. Sizes are learned from what effects leave
        unexplained on inputs that were not learned from. Explanations that had a prior themselves
        are left out, as those behind the first of ``many(learn=)``: what was expected of them would come back as
        what was found.
        """
        data = _Data.of(explanations)
        effects, sizes, errors, worth = {}, {}, {}, {}
        for name in data.outputs:
            effects[name], sizes[name], errors[name], worth[name] = data.learned(name)
        return cls(data.fields, effects, sizes, errors, data.met, worth, data.count, data.middle, data.link, data.model)

    def kind(self, prediction: FloatArray, names: Sequence[str]) -> str:
        """What kind of input it is, by what the model says of it: effects may depend on it."""
        return _kind(prediction, names, self.middle)

    def expected(
        self, descriptors: Mapping[str, Column] | None, outputs: Sequence[str], kind: str | None = None
    ) -> Expectation | None:
        """What is expected of the leaves of an input of some kind; None where none of them was ever met."""
        if descriptors is None or not any(name in self.effects for name in outputs):
            return None
        names = [named for named in _named(descriptors) if named is not None]
        if names and not any(field in self.fields and name in self.fields[field].categories for field, name in names):
            return None  # of leaves that it never met it would only know where they stand, and the like
        features = _features(self.fields, descriptors if kind is None else _of_kind(descriptors, kind))
        nothing = np.zeros(features.shape[1])
        effects, logs = (
            np.column_stack([features @ learned.get(name, nothing) for name in outputs])
            for learned in (self.effects, self.sizes)
        )
        return Expectation(effects, np.exp(np.clip(logs, -_MOST, _MOST))) if effects.any() else None

    def top(self, n: int | None = 10, output: str | None = None) -> list[Learned]:
        """The n things with the largest effects on an output, by default on the last; None gives all.

        Those that tell what was predicted as well, such as ``word good positive``, add to the others.
        """
        if output is None:
            output = list(self.effects)[-1]
        if output not in self.effects:
            near = did_you_mean(output, self.effects)
            raise ValueError(f"output {output!r} does not exist; there are {', '.join(self.effects)}{near}")
        if not (n is None or is_whole(n)):
            raise TypeError(f"n must be a whole number, or None for all; got {n!r}")
        things: list[tuple[str, str | float]] = []
        for name, one in self.fields.items():
            things += [*((name, category) for category in one.categories), *((name, knot) for knot in one.knots)]
        rows = zip(things, self.effects[output].tolist(), self.errors[output].tolist(), self.met.tolist(), strict=True)
        found = [Learned(*thing, output, effect, error, met) for thing, effect, error, met in rows]
        return sorted(found, key=lambda one: -abs(one.effect))[:n]

    def to_frame(self) -> pd.DataFrame:
        """A table of all that was learned, a row for each ``Learned``, the largest effects on each output first."""
        frame = need("pandas", "frame").DataFrame
        found: pd.DataFrame = frame([asdict(one) for output in self.effects for one in self.top(None, output)])
        return found

    def plot(self, n: int = 15, output: str | None = None, **options: Any) -> Any:
        """Draw the largest effects on an output with their standard errors; see ``c2fa.plots.prior``."""
        from c2fa import plots

        return plots.prior(self, n, output, **options)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of what was learned."""
        return fingerprint(json.dumps(self._record(), sort_keys=True))

    def save(self, path: str | PathLike[str]) -> None:
        """Write it to a JSON file, which ends with a checksum of all that is before it."""
        content = json.dumps(self._record()).encode()
        with atomic(path) as file:
            file.write(content[:-1] + _SEAL + _sealed(content))

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Prior:
        """Read what ``save`` wrote; a file in which a single bit has changed is refused."""
        try:
            data = Path(path).read_bytes()
            record = json.loads(data)
            if record.get("c2fa prior") != _VERSION:
                raise ValueError(f"it has version {record.get('c2fa prior')!r} and not {_VERSION}")
            content, _, seal = data.rpartition(_SEAL)
            if seal != _sealed(content + b"}"):
                raise ValueError("its content does not fit its checksum")
            fields = {name: Field.named(f["categories"], f["knots"]) for name, f in record["fields"].items()}
            effects, sizes, errors = (
                {name: np.array(values) for name, values in record[kind].items()}
                for kind in ("effects", "sizes", "errors")
            )
            met = np.array(record["met"])
            width = sum(one.width for one in fields.values())
            for name, numbers in [*effects.items(), *sizes.items(), *errors.items(), ("met", met)]:
                if numbers.shape != (width,) or not np.isfinite(numbers).all():
                    raise ValueError(f"{name!r} must have {width} finite numbers, one for each feature")
            rest = (record[name] for name in ("worth", "inputs", "middle", "link", "model"))
            return cls(fields, effects, sizes, errors, met, *rest)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{str(path)!r} is no prior that Prior.save wrote: {error}") from error

    def _record(self) -> dict[str, Any]:
        return {
            "c2fa prior": _VERSION,
            "fields": {name: {"categories": list(f.categories), "knots": f.knots} for name, f in self.fields.items()},
            "effects": {name: values.tolist() for name, values in self.effects.items()},
            "sizes": {name: values.tolist() for name, values in self.sizes.items()},
            "errors": {name: values.tolist() for name, values in self.errors.items()},
            "met": self.met.tolist(),
            "worth": dict(self.worth),
            "inputs": self.inputs,
            "middle": self.middle,
            "link": self.link,
            "model": self.model,
        }

    @property
    def name(self) -> str:
        """What provenance calls it."""
        return f"{self.fingerprint[:16]}, from {self.inputs} inputs"

    def __repr__(self) -> str:
        worth = ", ".join(f"{name!r}: {value:.2f}" for name, value in self.worth.items())
        return f"Prior(from {self.inputs} inputs; correlation with effects on others: {worth})"


def _sealed(content: bytes) -> bytes:
    """What comes behind the name of the checksum."""
    return f'"{hashlib.sha256(content).hexdigest()}"}}'.encode()


def _kind(prediction: FloatArray, names: Sequence[str], middle: float) -> str:
    """The class that is predicted; of a single output the side of the middle that it is on."""
    if len(names) > 1:
        return names[int(np.argmax(prediction))]
    return "above" if prediction[0] > middle else "below"


def _named(descriptors: Mapping[str, Column]) -> list[tuple[str, str] | None]:
    """Of each leaf the first field that names it, and its name; None where it has numbers alone."""
    found: list[tuple[str, str] | None] = [None] * len(next(iter(descriptors.values()), ()))
    for name, entries in descriptors.items():
        for leaf, entry in enumerate(entries):
            if found[leaf] is None and isinstance(entry, str):
                found[leaf] = name, entry
    return found


def _of_kind(descriptors: Mapping[str, Column], kind: str) -> dict[str, Column]:
    """The table with one more field: of each leaf what names it, together with the kind of the input.

    >>> _of_kind({"word": ["good", None], "size": [1.0, 2.0]}, "positive")["with the prediction"]
    ['word good positive', None]
    """
    crossed: Column = [named and " ".join([*named, kind]) for named in _named(descriptors)]
    return {**descriptors, _WITH: crossed} if any(crossed) else dict(descriptors)


def _features(fields: Mapping[str, Field], descriptors: Mapping[str, Column]) -> csr_matrix:
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


def _told(given: Sequence[Explanation]) -> tuple[list[Explanation], list[Mapping[str, Column]]]:
    """The explanations that can be learned from, each once, and what each knows of its leaves."""
    told = [e for e in given if e.all_from_prior is None]
    if len(told) < _FOLDS <= len(given):
        raise ValueError(
            f"{len(given) - len(told)} of {len(given)} explanations had a prior themselves, and what it expected "
            "would come back as what was found; explain inputs without prior= and learn from those"
        )
    told = list({(e.names[-1], e.outputs.tobytes(), e.all_values[-1].tobytes()): e for e in told}.values())
    tables = [e.descriptors for e in told if e.descriptors is not None]
    if len(tables) < len(told):
        raise ValueError("an explanation knows nothing of its leaves; use a masker that has descriptors")
    if len(told) < _FOLDS:
        raise ValueError(f"there are {len(told)} different explanations to learn from; give {_FOLDS} at least")
    links = {e.link.name for e in told}
    if len(links) > 1:
        raise ValueError(f"the explanations are on different scales, {sorted(links)}; give those of one link")
    return told, tables


@dataclass(frozen=True, eq=False)
class _Data:
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
    def of(cls, explanations: Iterable[Explanation]) -> _Data:
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
        told, tables = _told(given)
        middle = float(np.mean([e.outputs[0] for e in told]))
        kinds = [_kind(e.outputs, e.output_names, middle) for e in told]
        tables = [_of_kind(table, kind) for table, kind in zip(tables, kinds, strict=True)]
        sizes = [e.structure.leaves for e in told]
        inputs = np.repeat(np.arange(len(told)), sizes)
        table = _joined(tables, sizes)
        fields = {name: Field.of(entries) for name, entries in table.items()}
        outputs = list(dict.fromkeys(e.output_names[c] for e in told for c in e.columns))
        values, errors = {}, {}
        for name in outputs:
            found = [_unshrunk(_of_output(e, name, e.all_values), _of_output(e, name, e.all_stderr)) for e in told]
            values[name], errors[name] = (np.concatenate(some) for some in zip(*found, strict=True))
        models = {str(e.provenance.get("model", "")) for e in told}
        model = models.pop() if len(models) == 1 else ""
        return cls(fields, _features(fields, table), inputs, values, errors, middle, told[0].link.name, model)

    @property
    def outputs(self) -> Sequence[str]:
        """The names of the outputs."""
        return tuple(self.values)

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
        fold = self.inputs % _FOLDS
        strengths = self._strengths(y, weights, known & (fold != 0), known & (fold == 0))
        effects = self._ridge(y, weights, known, strengths)
        foreseen = np.empty(len(y))  # from other inputs alone, so that no fit may begin at the effects
        without = []
        for k in range(_FOLDS):
            there = self._ridge(y, weights, known & (fold != k), strengths, _ROUGHLY)
            foreseen[fold == k] = self.features[fold == k] @ there
            without.append(there)
        errors = np.sqrt(_FOLDS - 1) * np.std(without, axis=0)  # the jackknife's, by quarters
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
        chosen_on = known & (self.inputs % _FOLDS == 0)
        fit = known & ~chosen_on

        def unlikely(logs: FloatArray) -> float:
            inputs = self.inputs[chosen_on]
            scales = np.bincount(inputs, squares[chosen_on] * np.exp(-logs)) / np.maximum(np.bincount(inputs), 1)
            return float(np.log(scales[inputs]).sum() + logs.sum())

        alike = there = np.zeros(self.features.shape[1])
        best, chosen = unlikely(self.features[chosen_on] @ alike), None
        for strength in _SIZE_STRENGTHS:
            there = self._scored(squares, fit, strength, there)
            seen = unlikely(np.clip(self.features[chosen_on] @ there, -_MOST, _MOST))
            if seen >= best:
                break
            best, chosen = seen, strength
        return alike if chosen is None else self._scored(squares, known, chosen, there)

    def _scored(self, squares: FloatArray, rows: Any, strength: float, start: FloatArray) -> FloatArray:
        """The likeliest sizes under a strength, by Fisher's scoring: each round is a ridge fit."""
        sizes, ones, strengths = start, np.ones(len(squares)), dict.fromkeys(self.fields, strength)
        for _ in range(_SIZE_ROUNDS):
            logs = np.clip(self.features @ sizes, -_MOST, _MOST)
            sizes = self._ridge(logs + squares * np.exp(-logs) - 1.0, ones, rows, strengths, _ROUGHLY, sizes)
        return sizes

    def _strengths(self, y: FloatArray, weights: FloatArray, fit: Any, look: Any) -> dict[str, float]:
        """A strength for each field, each in turn made stronger or weaker as long as other inputs gain by it."""

        there = None

        def error(strengths: Mapping[str, float]) -> float:
            nonlocal there
            there = self._ridge(y, weights, fit, strengths, _ROUGHLY, there)
            return float(weights[look] @ np.square(y[look] - self.features[look] @ there))

        strengths = dict.fromkeys(self.fields, _STRENGTH)
        best, whole = error(strengths), float(weights[look] @ np.square(y[look])) or 1.0
        for name in self.fields:
            for factor in (_FACTOR, 1.0 / _FACTOR):
                while _RANGE[0] <= strengths[name] * factor <= _RANGE[1]:
                    tried = {**strengths, name: strengths[name] * factor}
                    seen = error(tried)
                    if seen > best - _BETTER * whole:
                        break
                    strengths, best = tried, seen
        return strengths

    def _ridge(
        self,
        y: FloatArray,
        weights: FloatArray,
        rows: Any,
        strengths: Mapping[str, float],
        tolerance: float = _TOLERANCE,
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
    return np.array([float(f"{number:.{_DIGITS}g}") for number in numbers])


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
    shrunk = max(found / (found + unsure), _LEAST_SHRUNK) if found > 0.0 else 1.0
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

"""What explained inputs teach about others: the effect that a leaf is expected to have, from what is known of it."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from c2fa._system import atomic, did_you_mean, is_whole
from c2fa.asking.fingerprint import fingerprint
from c2fa.explanation import Explanation
from c2fa.priors.learning import MOST, Field, Lessons, features_of, kind_of, names_of, of_kind
from c2fa.showing.codec import check_unpacked, decode, dumps, encode, read, seal, unseal
from c2fa.solvers.expected import Expectation
from c2fa.structure import FloatArray, IntArray
from c2fa.views.descriptors import Column

if TYPE_CHECKING:
    from c2fa.explainer import Explainer

_VERSION = 6  # of the files


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

    In a fit the expected effects count as far as the answers bear them out (``c2fa.solvers.expected``).

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
    own_rows
        What it takes of the budget.
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
    own_rows: ClassVar[int] = 0

    @classmethod
    def learn(cls, explanations: Iterable[Explanation]) -> Prior:
        """Learn from explanations: a list, or a store. The same one twice counts once.

        Effects are a ridge fit on what is known of the leaves, one strength for each field. Strengths are chosen on a
        quarter of the inputs, and what they are worth is measured on another. Sizes are learned from what effects leave
        unexplained on inputs that were not learned from. An explanation that had a prior itself teaches what it would
        be without it: what was only expected would come back as what was found.
        """
        data = Lessons.of(explanations)
        effects, sizes, errors, worth = {}, {}, {}, {}
        for name in data.values:
            effects[name], sizes[name], errors[name], worth[name] = data.learned(name)
        return cls(data.fields, effects, sizes, errors, data.met, worth, data.count, data.middle, data.link, data.model)

    def check(self, explainer: Explainer) -> None:
        """Refuse an explainer on another scale."""
        if self.link != explainer.link.name:
            raise ValueError(
                f"the prior was learned with link={self.link!r} and this explainer has link={explainer.link.name!r}; "
                "give both the same"
            )

    def kind(self, prediction: FloatArray, names: Sequence[str]) -> str:
        """What kind of input it is, by what the model says of it: effects may depend on it."""
        return kind_of(prediction, names, self.middle)

    def expected(
        self, descriptors: Mapping[str, Column] | None, outputs: Sequence[str], kind: str | None = None
    ) -> Expectation | None:
        """What is expected of the leaves of an input of some kind; None where none of them was ever met."""
        if descriptors is None or not any(name in self.effects for name in outputs):
            return None
        names = [named for named in names_of(descriptors) if named is not None]
        if names and not any(field in self.fields and name in self.fields[field].categories for field, name in names):
            return None  # of leaves that it never met it would only know where they stand, and the like
        features = features_of(self.fields, descriptors if kind is None else of_kind(descriptors, kind))
        nothing = np.zeros(features.shape[1])
        effects, logs = (
            np.column_stack([features @ learned.get(name, nothing) for name in outputs])
            for learned in (self.effects, self.sizes)
        )
        return Expectation(effects, np.exp(np.clip(logs, -MOST, MOST))) if effects.any() else None

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

    def plot(self, n: int = 15, output: str | None = None, **options: Any) -> Any:
        """Draw the largest effects on an output with their standard errors; see ``c2fa.plots.prior``."""
        from c2fa import plots

        return plots.prior(self, n, output, **options)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of what was learned."""
        return fingerprint(json.dumps(encode(self), sort_keys=True))

    def _document(self) -> bytes:
        return dumps(seal({"c2fa prior": _VERSION, **encode(self)})).encode()

    def save(self, path: str | PathLike[str]) -> None:
        """Write it to a JSON file with a checksum."""
        with atomic(path) as file:
            file.write(self._document())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Prior:
        """Read what ``save`` wrote; a file in which a single bit has changed is refused."""
        is_path = isinstance(path, str | PathLike)
        if not (is_path and Path(path).exists()):
            raise (FileNotFoundError if is_path else TypeError)(
                f"{path!r:.100} is no prior, nor a file of one; a model that goes ahead is prior=c2fa.scout(model)"
            )
        try:
            data = Path(path).read_bytes()
            document = unseal(json.loads(data))
            version = document.pop("c2fa prior", None)
            if version != _VERSION:
                raise ValueError(f"it has version {version!r} and not {_VERSION}")
            check_unpacked(document)
            record = decode(document)
            record["fields"] = {name: read(Field, one) for name, one in record["fields"].items()}
            prior = read(cls, record)
            width = sum(one.width for one in prior.fields.values())
            arrays = [*prior.effects.items(), *prior.sizes.items(), *prior.errors.items(), ("met", prior.met)]
            for name, numbers in arrays:
                if numbers.shape != (width,) or not np.isfinite(numbers).all():
                    raise ValueError(f"{name!r} must have {width} finite numbers, one for each feature")
            if prior._document() != data:  # of an "E" in the place of an "e" a checksum tells nothing
                raise ValueError("it is not written as it would be")
            return prior
        except (ValueError, KeyError, TypeError, AttributeError, zlib.error) as error:
            raise ValueError(f"{str(path)!r} is no prior that Prior.save wrote: {error}") from error

    @property
    def name(self) -> str:
        """What provenance calls it."""
        return f"{self.fingerprint[:16]}, from {self.inputs} inputs"

    def __repr__(self) -> str:
        worth = ", ".join(f"{name!r}: {value:.2f}" for name, value in self.worth.items())
        return f"Prior(from {self.inputs} inputs; correlation with effects on others: {worth})"

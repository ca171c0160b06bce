"""Another model that costs little goes ahead: what it makes of the same input is what is expected there."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from c2fa._system import is_whole
from c2fa.asking.driver import Job, drive
from c2fa.asking.fingerprint import Identity, fingerprint
from c2fa.asking.links import ensure
from c2fa.asking.masking import Masked
from c2fa.asking.model import Shell, describe
from c2fa.asking.querying import Cache
from c2fa.explanation import Explanation
from c2fa.models.loading import Lazy, taken
from c2fa.solvers.expected import Expectation
from c2fa.structure import FloatArray

if TYPE_CHECKING:
    from c2fa.explainer import Explainer


def scout(model: Any, rows: int = 200) -> Scout:
    """Make a prior of a model that costs little: its own explanation of an input is what is expected of the other's.

    How much of it is believed, and on which scale, the other model's answers decide: none of it where they are no
    likelier with it than without. ``budget`` counts the other model's rows alone; those of the scout and what they
    cost stand apart in the explanation, in ``e.prior``.

    Parameters
    ----------
    model
        Whatever ``Explainer`` takes, or for ``c2fa.cite`` a language model, which reads the answer of the large one; or
        a line of text as ``c2fa.models.load`` takes it, which every process loads when it is first needed.
    rows
        The rows that it is asked for each input.

    Examples
    --------
    >>> import numpy as np, c2fa
    >>> weights = np.random.default_rng(0).normal(size=40)
    >>> masker = c2fa.maskers.Array(c2fa.Structure.flat(40))
    >>> large, small = (lambda x: x @ weights), (lambda x: 0.1 * (x @ weights))
    >>> e = c2fa.Explainer(large, masker, budget=16, prior=c2fa.scout(small))(np.ones(40))
    >>> e.queries, e.prior.scouted, bool(np.abs(e.low - weights).max() < 0.1)
    (16, 200, True)
    """
    if not (is_whole(rows) and rows > 0):
        raise TypeError(f"rows must be a whole number above 0; got {rows!r}")
    return Scout(Lazy(model) if isinstance(model, str) else taken(model), int(rows))


@dataclass(frozen=True, eq=False)
class Scout:
    """A model that goes ahead, as ``c2fa.scout`` makes it, and the rows that it is asked for each input."""

    model: Any
    rows: int

    @cached_property
    def fingerprint(self) -> str:
        """A hash of what is expected of any input, as far as the model's name tells."""
        return fingerprint("scout", self._called, self.rows)

    @property
    def name(self) -> str:
        """What provenance calls it."""
        return f"{self.fingerprint[:16]}, {self.rows} rows of {self._called}"

    @property
    def _called(self) -> str:
        if isinstance(self.model, Lazy):  # which is not loaded for its name
            return str(self.model.make)
        return describe(self.model).name or str(getattr(self.model, "__name__", type(self.model).__name__))

    def check(self, other: Any) -> None:
        """Refuse a model that cannot go ahead of another one, before anything is asked."""
        if isinstance(other, Shell):
            if not isinstance(self.model, Lazy):  # which is not to be made yet
                other.scouting(self.model).check()
        elif not callable(self.model):
            raise TypeError(f"{type(self.model).__name__} is a language model, which scouts for c2fa.cite alone")

    def explained(self, explainer: Explainer, masked: Masked, identity: Identity, target: int) -> Explanation:
        """What the scout's model says of an input, explained as the other's is: by its method and under its masks."""
        own = copy.copy(explainer)
        own.model = explainer.model.scouting(self.model) if isinstance(explainer.model, Shell) else self.model
        kind = explainer.link.name.removesuffix("-of-log")  # the other model may return probabilities themselves
        own.link = ensure(kind, log_probabilities=describe(own.model).log_probabilities)
        own.budget, own.target, own.outputs, own.prior, own.until = self.rows, target, "all", None, None
        own.money = own.model_name = own.output_names = None
        # Its answers are kept in no ledger: those of a language model are about what the other model wrote.
        queries = own.queries(None, masked, cache=Cache(masked, own.on_error, identity))
        [job] = drive([Job(own.conversation(masked, queries), queries)], own.model, batch_size=own.batch_size)
        if job.error is not None:
            job.error.add_note(f"it is the scout that failed, {self._called}")
        return job.result()


def expectation(e: Explanation, outputs: list[str]) -> Expectation:
    """What a scout's explanation leads to expect of the outputs of these names.

    Outputs are matched by name, and where none is called the same by their places.
    """
    names = [e.output_names[c] for c in e.columns]
    if not set(names) & set(outputs):
        if len(names) != len(outputs):
            raise ValueError(
                f"the scout has the outputs {', '.join(names[:20])} and the model {', '.join(outputs[:20])}: give a "
                "scout with outputs of the same names, or as many"
            )
        names = outputs
    nothing = np.zeros(e.structure.leaves)
    effects = np.column_stack([e.all_values[-1][:, names.index(n)] if n in names else nothing for n in outputs])
    effects /= np.maximum(np.abs(effects).max(axis=0), np.finfo(float).tiny)  # which are in no unit
    return Expectation(effects, sizes_of(effects), in_units=False)


def sizes_of(effects: FloatArray) -> FloatArray:
    """How large what is left of leaves is taken to be, as variances: larger where the scout found large values.

    Leaves that do something in one model do something in the other, if not the same. A fifth of the mean was chosen on
    validation reviews (``python -m benchmarks.queries --only scout``).
    """
    squares = np.square(effects)
    sizes: FloatArray = squares + 0.2 * squares.mean(axis=0)
    return np.where(sizes > 0.0, sizes, 1.0)

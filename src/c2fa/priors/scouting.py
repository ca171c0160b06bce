"""Another model that costs little goes ahead: what it makes of the same input is what is expected there."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from c2fa._system import is_whole
from c2fa.asking.driver import Job, Policy, drive
from c2fa.asking.fingerprint import fingerprint
from c2fa.asking.links import Link, RangeError, ensure
from c2fa.asking.model import describe, innermost, shell_of
from c2fa.asking.querying import Cache, Queries
from c2fa.asking.replies import Calls, QueryError
from c2fa.asking.spending import Purse
from c2fa.explanation import Explanation
from c2fa.models.loading import Lazy, is_made, taken
from c2fa.solvers.expected import Expectation
from c2fa.structure import FloatArray, IntArray

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
        ``"attention"`` is the language model itself: how much it looks at each source when it reads its answer. That
        takes one row, which is one of the budget.
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
    if model == "attention":
        return Attention(None, 1)
    return Scout(Lazy(model) if isinstance(model, str) else taken(model), int(rows))


@dataclass(frozen=True, eq=False)
class Found:
    """What a scout found of an input: what each leaf does for outputs of these names, in no unit, and what it took."""

    names: Sequence[str]
    effects: FloatArray
    rows: int
    cost: float | None

    def expectation(self, outputs: Sequence[str], columns: IntArray, leaves: IntArray | slice) -> Expectation:
        """What is to be expected of some of the outputs of a model that calls them so, and of some of the leaves."""
        places = counterparts(outputs, self.names)
        nothing = np.zeros(len(self.effects))
        chosen = [nothing if places[c] is None else self.effects[:, places[c]] for c in columns]
        effects = np.column_stack(chosen)[leaves]
        effects /= np.maximum(np.abs(effects).max(axis=0), np.finfo(float).tiny)
        return Expectation(effects, sizes_of(effects), in_units=False)


def counterparts(outputs: Sequence[str], names: Sequence[str]) -> list[int | None]:
    """Where a scout, which calls its outputs by ``names``, has each output of the model.

    It is the one of the same name; where none is called the same, that in the same place.

    >>> counterparts(["negative", "neutral", "positive"], ["positive", "negative"])
    [1, None, 0]
    """
    if set(outputs) & set(names) and list(outputs) != list(names):  # two may be called the same
        return [names.index(output) if output in names else None for output in outputs]
    if len(outputs) != len(names):
        raise ValueError(
            f"the scout has the outputs {', '.join(names[:20])} and the model {', '.join(outputs[:20])}: give a scout "
            "with outputs of the same names, or as many"
        )
    return list(range(len(names)))


@dataclass(frozen=True, eq=False)
class Scout:
    """A model that goes ahead, as ``c2fa.scout`` makes it, and the rows that it is asked for each input.

    ``policy`` says what to do where it fails. ``own_rows`` are those that it takes of the explained model's budget.
    """

    model: Any
    rows: int
    policy: Policy = field(default_factory=Policy, repr=False)
    own_rows: ClassVar[int] = 0
    worth: ClassVar[Mapping[str, float]] = {}

    @cached_property
    def fingerprint(self) -> str:
        """A hash of what is expected of any input, as far as the model's name tells."""
        return fingerprint("scout", self._called, self.rows)

    @property
    def name(self) -> str:
        """What provenance calls it."""
        return f"{self.fingerprint[:16]}, {self.rows} rows of {self._called}"

    @cached_property  # for a name may be a hash of all weights
    def _called(self) -> str:
        if isinstance(self.model, Lazy):  # which is not loaded for its name
            return str(self.model.make)
        return describe(self.model).name or describe(self.model).called

    def check(self, explainer: Explainer) -> None:
        """Refuse a model that cannot go ahead of the explainer's; of one that is to be made, ``ready`` does so."""
        if not is_made(self.model):
            return
        with self._named():
            if shell := shell_of(explainer.model):
                shell.scouting(self.model).check()
            elif not callable(self.model):
                raise TypeError(f"{type(self.model).__name__} is a language model, which scouts for c2fa.cite alone")

    def ready(self, explainer: Explainer) -> None:
        """Make the model where it is used, before anything is asked there."""
        if not is_made(self.model):
            with self._named():
                _ = self.model.model
            self.check(explainer)

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        """Whatever is raised says that it is about the scout, and keeps its kind where others look at that."""
        try:
            yield
        except Exception as error:
            sentence = f"the scout, {self._called}: {error}"
            error.args = (sentence, *error.args[1:])
            if str(error) == sentence:
                raise
            kind = ImportError if isinstance(error, ImportError) else QueryError
            raise kind(sentence) from error

    def found(self, explainer: Explainer, queries: Queries, outputs: Sequence[str], target: int) -> Found:
        """What the scout finds of an input, for which the model has these outputs; equal inputs are looked at once."""
        ahead: dict[Scout, Found] = queries.cache.ahead
        if self not in ahead:
            with self._named():
                ahead[self] = self.look(explainer, queries, outputs, target)
        return ahead[self]

    def look(self, explainer: Explainer, queries: Queries, outputs: Sequence[str], target: int) -> Found:
        """The scout's model is explained as the other is: by its method and under its masks."""
        own, masked, identity = copy.copy(explainer), queries.cache.masked, queries.cache.identity
        shell = shell_of(explainer.model)
        own.model = self.model if shell is None else shell.scouting(self.model)
        own.budget, own.outputs, own.prior, own.until = self.rows, "all", None, None
        own.money = own.model_name = own.output_names = None
        own.target = lambda names: counterparts(outputs, names)[target]
        # Its answers are kept in no ledger: those of a language model are about what the other model wrote.
        cache = Cache(masked, own.on_error, identity, unkept="rows of a scout are kept in no ledger")
        purse = Purse()

        def explanation(link: Link) -> Explanation:
            own.link = link
            asked = replace(own.queries(None, masked, cache=cache), purse=purse)
            job = Job(own.conversation(masked, asked), asked, SimpleNamespace(index=identity.number))
            [job] = drive([job], own.model, batch_size=own.batch_size, policy=self.policy)
            return job.result()

        kind = explainer.link.name.removesuffix("-of-log")  # the other model may return probabilities themselves
        try:
            e = explanation(ensure(kind, log_probabilities=describe(own.model).log_probabilities))
        except RangeError:  # its outputs are on a scale of their own
            e = explanation(ensure("identity"))
        return Found([e.output_names[c] for c in e.columns], e.all_values[-1], e.queries, e.diagnostics.cost)


@dataclass(frozen=True, eq=False)
class Attention(Scout):
    """What a language model looks at when it reads its own answer, which takes a row of it."""

    own_rows: ClassVar[int] = 1

    @property
    def name(self) -> str:
        """What provenance calls it."""
        return f"{self.fingerprint[:16]}, the model's own attention"

    @cached_property
    def _called(self) -> str:
        return "attention"

    def check(self, explainer: Explainer) -> None:
        """Refuse a model that does not tell of its attention."""
        shell = shell_of(explainer.model)
        if shell is None:
            raise TypeError(
                "c2fa.scout('attention') is for c2fa.cite, which has a language model; give c2fa.scout a model that "
                "costs less"
            )
        if is_made(shell) and not hasattr(shell.model, "attention"):
            raise TypeError(
                f"{type(innermost(shell)).__name__} does not tell of its attention, as c2fa.models.CausalLM does; give "
                "c2fa.scout a model that costs less"
            )

    def ready(self, explainer: Explainer) -> None:
        """The model is made, if it is not yet: it is what will be asked anyway."""
        innermost(explainer.model)
        self.check(explainer)

    def look(self, explainer: Explainer, queries: Queries, outputs: Sequence[str], target: int) -> Found:
        """How much the answer looks at each leaf; what that costs is paid for none of the rows."""
        call = Calls(explainer.model).method("attention", [queries.cache.masked], 1)
        try:
            return Found(outputs, call.reply(), self.rows, None)
        finally:
            queries.purse.pay(call.cost, call.cost, 0)


def sizes_of(effects: FloatArray) -> FloatArray:
    """How large what is left of leaves is taken to be, as variances: larger where the scout found large values.

    Leaves that do something in one model do something in the other, if not the same. A fifth of the mean was chosen on
    validation reviews (``python -m benchmarks.queries --only scout``).
    """
    squares = np.square(effects)
    sizes: FloatArray = squares + 0.2 * squares.mean(axis=0)
    return np.where(sizes > 0.0, sizes, 1.0)

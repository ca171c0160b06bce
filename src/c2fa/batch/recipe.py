"""How a worker comes by its explainer: made where it is needed, with its own model and what others taught."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any, Protocol, TypeAlias, runtime_checkable

from c2fa.asking.fingerprint import fingerprint
from c2fa.asking.masking import Masker
from c2fa.asking.model import Model, Shell, describe
from c2fa.batch.records import StoreError
from c2fa.batch.store import Store
from c2fa.explainer import Explainer
from c2fa.methods.budget import as_budget
from c2fa.models.loading import is_language_model, taken
from c2fa.prior import Prior

MakeModel: TypeAlias = str | Callable[[], Any]
Divided: TypeAlias = tuple[Callable[[], Model], Callable[[Any], Explainer]]
"""What makes a model, for its own process, and what makes an explainer around one, for workers."""


@runtime_checkable
class Divisible(Protocol):
    """What makes an explainer, and can have its model made in another process."""

    def __call__(self, model: Any = None) -> Explainer:
        """Make the explainer, with its own model or around one."""
        ...

    def divided(self) -> Divided:
        """What makes the model, and what makes the rest around one."""
        ...


@dataclass(frozen=True, eq=False)
class Recipe:
    """A model that is still to be loaded, a masker and options: calling it makes the explainer.

    Parameters
    ----------
    model
        A line of text as the command line has it (``"demo"``, ``"onnx:model.onnx"``), or a function without
        arguments that returns the model, such as a class or ``functools.partial(load, path)``.
    masker
        The masker.
    options
        The explainer's options.

    Examples
    --------
    >>> import c2fa
    >>> Recipe("python:math:fsum", c2fa.maskers.Text(), {"budget": 50})().budget
    50
    """

    model: MakeModel
    masker: Masker
    options: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, model: Any = None) -> Explainer:
        return Explainer(make_model(self.model) if model is None else model, self.masker, **self.options)

    def divided(self) -> Divided:
        """What makes the model, and the recipe without it."""
        return functools.partial(make_model, self.model), replace(self, model=_absent)

    def without_model(self) -> Explainer:
        """An explainer that cannot explain, to see its settings before a model is loaded."""
        options = {"model_name": "not loaded", **self.options, "ledger": None}
        return Explainer(_absent, self.masker, **options)


@dataclass(frozen=True, eq=False)
class PortableExplainer:
    """An explainer that travels to a worker, where it may be given a model that is made there."""

    explainer: Explainer
    model: MakeModel | None

    @classmethod
    def of(cls, explainer: Explainer, model: MakeModel | None = None) -> PortableExplainer:
        """Leave the model behind where workers make their own; the explainer itself stays as it is."""
        if explainer.ledger is not None and explainer.ledger.path == ":memory:":
            raise ValueError("a ledger in memory cannot be shared by workers; give a file, or engine='serial'")
        return cls(explainer if model is None else explainer.with_model(_absent), model)

    def __call__(self, model: Any = None) -> Explainer:
        if self.model is not None and model is None:
            model = make_model(self.model)
        return self.explainer if model is None else self.explainer.with_model(model)

    def divided(self) -> Divided:
        """What makes the model, or has it, and the explainer without it."""
        model = self.explainer.model
        held = _Held(model.model if isinstance(model, Shell) else model)
        make = held if self.model is None else functools.partial(make_model, self.model)
        return make, PortableExplainer(self.explainer.with_model(_absent), None)


@dataclass(frozen=True, eq=False)
class _Held:
    """A model that is made already, as what makes it."""

    model: Model

    def __call__(self) -> Model:
        return self.model


def _absent(batch: Any = None) -> Any:
    raise AssertionError("the model stayed behind; the worker makes its own")


def make_model(model: MakeModel) -> Model:
    """Load a model from a line of text, or call what makes it."""
    if isinstance(model, str):
        from c2fa.models import load

        return load(model)
    made = model()
    if not callable(made) and not is_language_model(made):
        raise TypeError(
            f"model must be a function without arguments that returns the model; {model!r} returned "
            f"{type(made).__name__}"
        )
    return taken(made)


def settings_of(explainer: Explainer) -> dict[str, Any]:
    """What the answers of an explainer depend on, in plain values; batch sizes and the like are not among it."""
    model = explainer.model
    name = explainer.model_name or describe(model).name
    name = name or getattr(model, "__qualname__", type(model).__qualname__)
    try:
        masker: str = fingerprint(explainer.masker)[:16]
    except TypeError:
        masker = ""

    def text(thing: object) -> str:
        """Its text without addresses, which are others in every process."""
        return re.sub(r" at 0x[0-9a-fA-F]+", "", str(thing))

    shown = text(repr(explainer.masker))
    return {
        "method": explainer.method_name,
        "options": text(explainer.method),
        "budget": list(explainer.budget) if isinstance(explainer.budget, tuple) else explainer.budget,
        "money": explainer.money and explainer.money.text,
        "target": explainer.target,
        "seed": explainer.seed,
        "until": None if explainer.until is None else text(explainer.until),
        "link": explainer.link.name if explainer.link.unit else None,  # as in stores from before there were links
        "masks": "the paper's" if explainer.preset == "paper" else None,
        "prior": None if explainer.prior is None else explainer.prior.fingerprint,
        "on_error": explainer.on_error,
        "outputs": explainer.outputs,
        "model": str(name),
        "masker": shown if len(shown) <= 300 else f"{shown[:299]}…",
        "masker_digest": masker,
    }


@dataclass(frozen=True, eq=False)
class Lesson:
    """How many inputs are learned from, the budget of those behind them, and the settings that bind the store."""

    inputs: int
    budget_after: int | Sequence[int] | None
    bound: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        explainer: Explainer | Callable[[], Explainer],
        learn: int,
        budget_after: int | Sequence[int] | None,
    ) -> Lesson:
        """Refuse what cannot be done before anything is explained."""
        if isinstance(learn, bool) or not isinstance(learn, int) or learn < 1:
            raise ValueError(f"learn must be a whole number of inputs above 0, not {learn!r}")
        if isinstance(explainer, Recipe):
            first = explainer.without_model()
        elif isinstance(explainer, Explainer):
            first = explainer
        else:
            raise TypeError("learn= needs an explainer or c2fa.batch.Recipe(…), which can be given a prior")
        first.check_prior(None)
        after = as_budget(budget_after) if budget_after is not None else first.budget
        own = {name: settings_of(first)[name] for name in ("budget", "prior")}
        shown = list(after) if isinstance(after, tuple) else after
        return cls(learn, budget_after, {**own, "learn": learn, "budget_after": shown})

    def shard_size(self, wanted: int, given: bool) -> int:
        """A size of which the inputs to learn from are whole shards, so that numbers do not depend on it."""
        if given and self.inputs % wanted:
            raise ValueError(
                f"learn={self.inputs} must be a multiple of shard_size={wanted}, so that the inputs to learn from are "
                "whole shards"
            )
        return next(size for size in range(min(wanted, self.inputs), 0, -1) if self.inputs % size == 0)

    def applied(
        self, explainer: Explainer | Callable[[], Explainer], store: Store
    ) -> Explainer | Callable[[], Explainer]:
        """The explainer with what the first shards taught; what was learned once is kept in the store."""
        file = store.path / "prior.json"
        if not file.exists():
            first = takewhile(lambda item: item[0] < self.inputs, Store(store.path).items())
            Prior.learn(e for _, e in first).save(file)
        try:
            prior = Prior.load(file)
        except ValueError as error:
            raise StoreError(f"{error}; delete it, and the same command learns it again") from error
        shards = (store.shard(number) for number in store.finished())
        used = {s.shared.get("prior", prior.name) for s in shards if s.number * s.settings["shard_size"] >= self.inputs}
        if not used <= {prior.name}:
            raise StoreError(
                f"{str(file)!r} is the prior {prior.name}, and inputs in the store were explained with "
                f"{min(used - {prior.name})}; put that one back, or give another folder"
            )
        if isinstance(explainer, Recipe):
            after = {} if self.budget_after is None else {"budget": self.budget_after}
            return replace(explainer, options={**explainer.options, "prior": prior, **after})
        assert isinstance(explainer, Explainer)
        return explainer.with_prior(prior, self.budget_after)

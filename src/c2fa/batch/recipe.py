"""How a worker comes by its explainer: made where it is needed, with its own model and what others taught."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, takewhile
from typing import Any, Protocol, TypeAlias, runtime_checkable

from c2fa._system import is_whole
from c2fa.asking.masking import Masker
from c2fa.asking.model import Model, Shell, describe
from c2fa.batch.isolation import Health
from c2fa.batch.records import Precision, StoreError, Views
from c2fa.batch.store import Store, settings_of
from c2fa.batch.worker import Worker
from c2fa.explainer import Explainer
from c2fa.methods.budget import as_budget
from c2fa.models.loading import is_language_model, load, taken
from c2fa.priors.prior import Prior

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


@runtime_checkable
class Teachable(Protocol):
    """What makes an explainer, and can give it what other inputs taught."""

    def __call__(self, model: Any = None) -> Explainer:
        """Make the explainer, with its own model or around one."""
        ...

    def bare(self) -> Explainer:
        """An explainer that cannot explain, to see its settings before a model is loaded."""
        ...

    def taught(self, prior: Prior, budget: int | Sequence[int] | None) -> Teachable:
        """The same with what other inputs taught, and another budget where one is given."""
        ...


@dataclass(frozen=True, eq=False)
class Recipe:
    """What makes an explainer where it is needed: a model that is still to be loaded, a masker and options.

    Parameters
    ----------
    model
        A line of text as the command line has it (``"demo"``, ``"onnx:model.onnx"``), or a function without
        arguments that returns the model, such as a class or ``functools.partial(load, path)``.
    masker
        The masker.
    options
        The explainer's options.
    explainer
        One that is made already, in place of masker and options; its own model is not used.

    Examples
    --------
    >>> import c2fa
    >>> Recipe("python:math:fsum", c2fa.maskers.Text(), {"budget": 50})().budget
    50
    """

    model: MakeModel
    masker: Masker | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    explainer: Explainer | None = None

    @classmethod
    def of(cls, explainer: Explainer, model: MakeModel | None = None) -> Recipe:
        """An explainer that travels, with its model or with what makes one; the explainer itself stays as it is."""
        own = explainer.model.model if isinstance(explainer.model, Shell) else explainer.model
        return cls(_Held(own) if model is None else model, explainer=explainer.with_model(_absent))

    def __call__(self, model: Any = None) -> Explainer:
        model = make_model(self.model) if model is None else model
        if self.explainer is not None:
            return self.explainer.with_model(model)
        return Explainer(model, self.masker, **self.options)

    def divided(self) -> Divided:
        """What makes the model, and the recipe without it."""
        return functools.partial(make_model, self.model), replace(self, model=_absent)

    def bare(self) -> Explainer:
        """An explainer that cannot explain, to see its settings before a model is loaded."""
        if self.explainer is not None:
            return self.explainer
        return Explainer(_absent, self.masker, **{"model_name": "not loaded", **self.options, "ledger": None})

    def taught(self, prior: Prior, budget: int | Sequence[int] | None) -> Recipe:
        """The same with what other inputs taught, and another budget where one is given."""
        if self.explainer is not None:
            return replace(self, explainer=self.explainer.with_prior(prior, budget))
        after = {} if budget is None else {"budget": budget}
        return replace(self, options={**self.options, "prior": prior, **after})


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
        return load(model)
    if isinstance(model, _Held):
        return model.model
    made = model()
    if not callable(made) and not is_language_model(made):
        raise TypeError(
            f"model must be a function without arguments that returns the model; {model!r} returned "
            f"{type(made).__name__}"
        )
    return taken(made)


@dataclass(frozen=True, eq=False)
class MakeWorker:
    """Everything a worker needs, ready to travel; calling it loads the model, or takes one, and gives the worker."""

    make: Callable[..., Explainer]
    store: str
    shard_size: int
    run: str
    batch_size: int | None = None
    tries: int = 3
    timeout: float | None = None
    patience: float = 60.0
    in_flight: int = 1
    precision: Precision = "float32"
    views: Views = "auto"
    settings: Mapping[str, Any] | None = None
    bound: Mapping[str, Any] = field(default_factory=dict)  # settings of the store that are not the explainer's

    def __call__(self, model: Model | None = None) -> Worker:
        explainer = self.make() if model is None else self.make(model)
        if not isinstance(explainer, Explainer):
            raise TypeError(f"the factory must return a c2fa.Explainer; it returned {type(explainer).__name__}")
        settings = self.settings
        if settings is None:
            settings = settings_of(explainer, **self.bound)
            Store(self.store).check(settings)
        return Worker(
            self,
            explainer,
            settings,
            Health(self.patience, describe(explainer.model).outputs_vary, on_answer=self._tell_the_run),
        )

    def _tell_the_run(self) -> None:
        """The model has answered this worker, so that it is not down."""
        with contextlib.suppress(OSError):
            Store(self.store).sign_of_life(self.run).touch()


@dataclass(frozen=True, eq=False)
class Lesson:
    """After how many inputs to learn, the budget of those behind the first, and the settings that bind the store.

    After each stage the prior is learned anew from all inputs so far, and it serves those of the next stage. No stage
    begins before the one before it is whole, so that numbers do not depend on the order of workers.
    """

    stages: tuple[int, ...]
    budget_after: int | Sequence[int] | None
    bound: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        make: Callable[..., Explainer],
        learn: int | Sequence[int] | None,
        budget_after: int | Sequence[int] | None,
    ) -> Lesson | None:
        """Refuse what cannot be done before anything is explained; None where nothing is to be learned."""
        if learn is None and budget_after is not None:
            raise ValueError(
                f"budget_after={budget_after!r} is for inputs after those that were learned from; give learn="
            )
        if learn is None:
            return None
        stages: tuple[Any, ...] = tuple(learn) if isinstance(learn, Sequence) else (learn,)
        if not stages or not all(is_whole(n) and n > 0 for n in stages):
            raise ValueError(
                f"learn must be a whole number of inputs above 0, or several such as (50, 200, 1000), not {learn!r}"
            )
        if any(n >= later for n, later in pairwise(stages)):
            raise ValueError(f"learn={learn!r} must increase: the prior is learned anew after so many inputs in all")
        if not isinstance(make, Teachable):
            raise TypeError("learn= needs an explainer or c2fa.batch.Recipe(…), which can be given a prior")
        first = make.bare()
        first.check_prior(None)
        after = as_budget(budget_after) if budget_after is not None else first.budget
        own = {name: settings_of(first)[name] for name in ("budget", "prior")}
        shown = list(after) if isinstance(after, tuple) else after
        told = list(stages) if len(stages) > 1 else stages[0]
        return cls(stages, budget_after, {**own, "learn": told, "budget_after": shown})

    def shard_size(self, wanted: int, given: bool) -> int:
        """A size of which the inputs of each stage are whole shards, so that numbers do not depend on it."""
        common = math.gcd(*self.stages)
        for stage in self.stages:
            if given and stage % wanted:
                raise ValueError(
                    f"learn={stage} must be a multiple of shard_size={wanted}, so that the inputs to learn from are "
                    "whole shards"
                )
        return next(size for size in range(min(wanted, common), 0, -1) if common % size == 0)

    def applied(self, recipe: Teachable, store: Store, stage: int) -> Teachable:
        """The recipe with what the inputs up to a stage taught; what was learned once is kept in the store."""
        file = store.path / ("prior.json" if len(self.stages) == 1 else f"prior-{stage}.json")
        if not file.exists():
            first = takewhile(lambda item: item[0] < stage, Store(store.path).items())
            Prior.learn(e for _, e in first).save(file)
        try:
            prior = Prior.load(file)
        except ValueError as error:
            raise StoreError(f"{error}; delete it, and the same command learns it again") from error
        end = next((later for later in self.stages if later > stage), math.inf)
        shards = (store.shard(number) for number in store.finished())
        served = (shard for shard in shards if stage <= shard.number * shard.settings["shard_size"] < end)
        used = {shard.shared.get("prior", prior.name) for shard in served}
        if not used <= {prior.name}:
            raise StoreError(
                f"{str(file)!r} is the prior {prior.name}, and inputs in the store were explained with "
                f"{min(used - {prior.name})}; put that one back, or give another folder"
            )
        return recipe.taught(prior, self.budget_after)

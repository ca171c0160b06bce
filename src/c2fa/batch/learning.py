"""A run whose first inputs teach about the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

from c2fa.batch.recipe import Recipe, settings_of
from c2fa.batch.records import StoreError
from c2fa.batch.store import Store
from c2fa.explainer import Explainer
from c2fa.methods.budget import as_budget
from c2fa.prior import Prior

_FILE = "prior.json"


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
        first.check_uses_prior()
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
        file = store.path / _FILE
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

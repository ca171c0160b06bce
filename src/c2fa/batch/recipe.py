"""How a worker comes by its explainer: made where it is needed, so that each worker loads its own model."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from c2fa.asking.fingerprint import fingerprint
from c2fa.asking.masking import Masker
from c2fa.asking.model import Model, Shell, describe
from c2fa.explainer import Explainer
from c2fa.models.loading import is_language_model, taken

MakeModel: TypeAlias = str | Callable[[], Any]
Divided: TypeAlias = tuple[Callable[[], Model], Callable[[Any], Explainer]]
"""What makes a model, for its own process, and what makes an explainer around one, for workers."""
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_SHOWN = 300


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
    text = _ADDRESS.sub("", repr(explainer.masker))
    return {
        "method": explainer.method_name,
        "options": _ADDRESS.sub("", str(explainer.method)),
        "budget": list(explainer.budget) if isinstance(explainer.budget, tuple) else explainer.budget,
        "target": explainer.target,
        "seed": explainer.seed,
        "until": None if explainer.until is None else _ADDRESS.sub("", str(explainer.until)),
        "link": explainer.link.name if explainer.link.unit else None,  # as in stores from before there were links
        "masks": "the paper's" if explainer.preset == "paper" else None,
        "prior": None if explainer.prior is None else explainer.prior.fingerprint,
        "on_error": explainer.on_error,
        "outputs": explainer.outputs,
        "model": str(name),
        "masker": text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…",
        "masker_digest": masker,
    }

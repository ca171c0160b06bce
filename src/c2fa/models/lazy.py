"""A model that is made where it is first used."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from c2fa.asking.model import Model, ModelProxy, launcher
from c2fa.models.loading import load, taken


class Lazy(ModelProxy):
    """A model that is made where it is first used, and travels to other processes as its constructor.

    Workers that share one model need not load it, and neither does the process that starts them.

    Parameters
    ----------
    make
        A function without arguments that returns the model, such as ``functools.partial(load, path)``, or a line of
        text as ``c2fa.models.load`` takes it.

    Examples
    --------
    >>> model = Lazy("demo")     # nothing is loaded yet
    >>> model(["What a wonderful day."]).shape
    (1, 2)
    """

    def __init__(self, make: str | Callable[[], Any]) -> None:
        self.make = make
        self._made: Model | None = None
        self._making = threading.Lock()

    @property
    def model(self) -> Model:
        """The model, made now if it was not before."""
        with self._making:
            if self._made is None:
                self._made = load(self.make) if isinstance(self.make, str) else taken(self.make())
            return self._made

    @property
    def launch(self) -> Any:
        """The model's own ``launch``; None where it has none."""
        return launcher(self.model)

    def __call__(self, batch: Any) -> Any:
        return self.model(batch)

    def __repr__(self) -> str:
        return f"Lazy({self.make!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.make,)

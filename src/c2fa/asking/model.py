"""What a model is, and what it may say of itself."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from c2fa._system import did_you_mean, from_outside
from c2fa.asking.ledger import Ledger
from c2fa.asking.masking import Inputs
from c2fa.structure import FloatArray


class Model(Protocol):
    """Any callable from a batch to one row of numbers for each input, (n,) or (n, outputs).

    It may have any of the attributes of ``Description``; ``describe`` reads them.
    """

    def __call__(self, batch: Inputs, /) -> Any:
        """Return the outputs of a batch, in its order."""
        ...


@dataclass(frozen=True)
class Outputs:
    """What a model says of its outputs for one input, once it was asked about it.

    Attributes
    ----------
    names
        What they are called.
    tokens
        Of how many tokens each is the log-probability, which has no noise; () where outputs are none.
    notes
        Sentences for people.
    answer
        What an explanation keeps of an answer that they are scores of: a ``c2fa.views.Cited``.
    """

    names: tuple[str, ...] = ()
    tokens: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    answer: Any = None


@dataclass(frozen=True)
class Description:
    """What a model says of itself, without what it leaves open.

    Each attribute is read when it is asked for: costs grow, a name may be a hash of all weights, and some servers name
    their outputs only in their replies.
    """

    model: Any

    def _own(self, name: str) -> Any | None:
        """What the model has under a name; None where it leaves that open."""
        return getattr(self.model, name, None)

    @property
    def name(self) -> str | None:
        """What a ledger keeps outputs under; it changes whenever the model does."""
        return self._own("name")

    @property
    def called(self) -> str:
        """What people call a model without a name: its function, or its type."""
        return str(self._own("__name__") or type(self.model).__name__)

    @property
    def output_names(self) -> tuple[str, ...]:
        """The names of the outputs, such as classes."""
        return tuple(map(str, self._own("output_names") or ()))

    @property
    def outputs_vary(self) -> bool:
        """Whether inputs may have different numbers of outputs, as answers have statements."""
        return bool(self._own("outputs_vary"))

    @property
    def outputs_of(self) -> Callable[[Any, Ledger | None, str], Callable[[FloatArray], Outputs]]:
        """``outputs_of(input, ledger, name)``: told of an input, and of where its rows are kept, before they are asked.

        What it returns is called with the outputs of the rows that stand beside it, and says what its outputs are.
        """
        return self._own("outputs_of") or (lambda x, ledger, name: lambda _: Outputs(self.output_names))

    @property
    def log_probabilities(self) -> bool:
        """Whether the outputs are logarithms of probabilities, so that their log-odds are made of these."""
        return bool(self._own("log_probabilities"))

    @property
    def cost(self) -> float | None:
        """The money spent so far; None for a model that does not count it."""
        cost = self._own("cost")
        if cost is None:
            return None
        number = float(cost) if np.ndim(cost) == 0 and hasattr(cost, "__float__") else np.nan
        if not 0.0 <= number < np.inf:
            raise TypeError(
                f"a model's cost must be what its rows have cost so far, a number from 0; got {cost!r:.100}"
            )
        return number

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for people about the outputs so far."""
        return tuple(map(str, self._own("notes") or ()))

    @property
    def batch_size(self) -> int | None:
        """How many rows to send at a time."""
        return self._own("batch_size")

    @property
    def chunk_size(self) -> int | None:
        """How many rows go into one request to a server."""
        size = self._own("chunk_size")
        return size() if callable(size) else size

    @property
    def mask_token(self) -> str | None:
        """The word that the model reads as a masked one: its own, or its tokenizer's."""
        tokenizer = self._own("tokenizer")
        return self._own("mask_token") or getattr(tokenizer, "mask_token", None)

    @property
    def encode_inputs(self) -> Callable[[Any], Any]:
        """``encode_inputs(inputs)``: what it needs of a masker's ``inputs`` to mask rows itself; None where it cannot.

        Such rows reach it as a ``MaskedBatch``: what was encoded, once for each input, and masks. Where the model is
        in a process of its own, workers encode: it is a function that can travel, not a method of the model.
        """
        return self._own("encode_inputs") or _nothing

    @property
    def expect(self) -> Callable[[Any], object]:
        """``expect(encoded)``: told of an input before its rows come, from any thread, to bring it to a device."""
        return self._own("expect") or _nothing

    @property
    def steady(self) -> Callable[[], contextlib.AbstractContextManager[object]]:
        """``with steady():`` many rows are asked, and nobody changes the model: what it prepares for them pays."""
        return self._own("steady") or contextlib.nullcontext


@dataclass
class Bill:
    """What one call of a model cost, where the model tells it by ``charge``; ``beside`` was for no row."""

    amount: float = 0.0
    told: bool = False
    beside: float = 0.0


BILL: ContextVar[Bill | None] = ContextVar("c2fa-bill", default=None)


def charge(amount: float) -> None:
    """Tell what a request cost, to the call that it belongs to.

    A model that several threads call at once should do so beside keeping ``cost``, which cannot tell whose rows cost
    what. Coroutines and tasks that a call starts belong to the call.
    """
    bill = BILL.get()
    if bill is not None:
        bill.amount += amount
        bill.told = True


@contextlib.contextmanager
def beside_rows(model: Any) -> Iterator[None]:
    """What is spent in here is no price of the rows that a call is about, as for an answer that is written first."""
    bill = BILL.get() or Bill()
    amount, cost = bill.amount, describe(model).cost or 0.0
    try:
        yield
    finally:
        bill.beside += bill.amount - amount if bill.told else (describe(model).cost or 0.0) - cost


class ExitError(RuntimeError):
    """A model or a masker wanted to end the process that called it."""


@contextlib.contextmanager
def contained(what: str = "the model") -> Iterator[None]:
    """Calls of a stranger's code: where it would end the process, by ``sys.exit()`` for instance, it has failed."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, Exception) or from_outside(error):
            raise
        failure = ExitError(f"{what} raised {type(error).__name__}({error}), which would end the process")
        failure.partial = getattr(error, "partial", None)  # type: ignore[attr-defined]
        raise failure from error


def _nothing(inputs: Any) -> None:
    return None


def launcher(model: Any) -> Callable[[Inputs], Callable[[], Any]] | None:
    """A model's ``launch``, which begins a batch and returns a function that waits for its outputs; None without one.

    While a batch is under way the next can be masked, and what has ended be fitted. A model around another one has a
    ``launch`` only if it says so itself: it may have something to do in between.
    """
    launch: Callable[[Inputs], Callable[[], Any]] | None = getattr(model, "launch", None)
    return launch


# What a language model can do and says of itself, as c2fa.citing.LanguageModel has it.
_LANGUAGE = (
    *("generate", "generate_many", "pieces", "score", "score_many", "launch_scores", "attention", "try_scoring"),
    *("template", "fits", "close", "concurrency", "special_tokens", "max_new_tokens"),
)
_ATTRIBUTES = frozenset(name for name, value in vars(Description).items() if isinstance(value, property))


def describe(model: Any) -> Description:
    """Read what a model says of itself.

    >>> class Counted:
    ...     output_names, cost = ("score",), 0.5
    >>> describe(Counted()).output_names, describe(Counted()).cost, describe(len).name
    (('score',), 0.5, None)
    """
    return Description(model)


class ModelProxy:
    """A model around another one: what that one says of itself goes for both, and what a language model can do."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def __getattr__(self, name: str) -> Any:
        if name in _LANGUAGE:
            return getattr(self.model, name)
        if name not in _ATTRIBUTES:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(describe(self.model), name)


class Shell(ModelProxy, abc.ABC):
    """A model that makes outputs of what another one says, as a scorer does of a language model's answers.

    The other one is what is loaded: a worker makes its own, or reaches it in a process of its own.
    """

    @abc.abstractmethod
    def around(self, model: Any) -> Shell:
        """The same around another model."""

    ahead_of: Any = None
    """The shell whose own answers are asked about, where inputs leave open what they are."""

    def scouting(self, model: Any) -> Shell:
        """The same around a model that goes ahead of this one."""
        made = self.around(model)
        made.ahead_of = self
        return made

    def check(self) -> None:
        """Refuse a model that cannot do what is asked of it."""


def shell_of(model: Any) -> Shell | None:
    """The shell that a model is, or that another is around; None where it has none."""
    while isinstance(model, ModelProxy) and not isinstance(model, Shell):
        model = vars(model).get("model")  # which a model that is still to be made does not have
    return model if isinstance(model, Shell) else None


def innermost(model: Any) -> Any:
    """The model inside all that is around it."""
    while isinstance(model, ModelProxy):
        model = model.model
    return model


def cut_answers(cut: int, written: int, tokens: int) -> tuple[str, ...]:
    """What the notes of a model that writes answers say where some were cut: of all so far, whatever is explained now.

    >>> cut_answers(2, 24, 40)
    ('2 of 24 answers were cut at 40 tokens; raise max_new_tokens for longer ones',)
    """
    if not cut:
        return ()
    were = "was" if cut == 1 else "were"
    return (f"{cut} of {written} answers {were} cut at {tokens} tokens; raise max_new_tokens for longer ones",)


Target: TypeAlias = int | str | Callable[[tuple[str, ...]], int | None] | None
"""Which output is explained: its index, its name, a function of all names, or None for the predicted class."""


def names_of(outputs: FloatArray, given: tuple[str, ...]) -> tuple[str, ...]:
    """What a model's outputs are called: as given, by their numbers, or "output" where there is one."""
    names = given or (tuple(map(str, range(len(outputs)))) if len(outputs) > 1 else ("output",))
    if len(names) != len(outputs):
        raise ValueError(f"{len(names)} output names for a model with {len(outputs)} outputs; give one for each")
    return names


def resolve_target(target: Target, outputs: FloatArray, names: tuple[str, ...]) -> int:
    """Turn a target into an index; "1" is an index if no name is."""
    if callable(target):
        target = target(names)
    if target is None:
        return int(np.argmax(outputs))
    if isinstance(target, str) and target not in names and target.isascii() and target.isdigit():
        target = int(target)
    if isinstance(target, str):
        if target not in names:
            near = did_you_mean(target, names)
            raise ValueError(f"target {target!r} does not exist; the outputs are {', '.join(names[:20])}{near}")
        if names.count(target) > 1:
            raise ValueError(f"target {target!r} is the name of {names.count(target)} outputs; give its index")
        return names.index(target)
    if isinstance(target, bool) or not isinstance(target, int | np.integer):
        raise TypeError(f"target must be an index, a name or None, not {target!r}")
    if not 0 <= target < len(outputs):
        raise ValueError(f"target {target} does not exist; the model has outputs 0..{len(outputs) - 1}")
    return int(target)

"""Many inputs at once: their rows packed into the same batches of the model, and bad inputs kept from the others.

A review may need 200 rows and a GPU want 1,024 at a time. The masks are those of explaining one by one, and so are the
answers of a model that answers a row the same way in every batch.
"""

from __future__ import annotations

import copy
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np

from c2fa._system import at_least
from c2fa.asking.driver import Job, Share, drive
from c2fa.asking.fingerprint import Identity, fingerprint
from c2fa.asking.ledger import LedgerError
from c2fa.asking.model import Model, contained
from c2fa.asking.querying import Ask, BudgetError, Cache, Conversation, Queries
from c2fa.asking.replies import QueryError
from c2fa.batch.isolation import Isolation, ModelDownError, PostponedError, in_words, missing_package
from c2fa.explanation import Explanation
from c2fa.priors import Scout

if TYPE_CHECKING:
    from c2fa.explainer import Explainer


class Unreadable(str):
    """Stands in the place of an input that could not be read; it says why."""

    __slots__ = ()


@dataclass(frozen=True, eq=False)
class Item:
    """An input to be explained: its position in the dataset, and a name for people and for the ledger."""

    index: int
    x: Any
    key: str | None = None


@dataclass(frozen=True, eq=False)
class Outcome:
    """What became of one input: an explanation, or why there is none."""

    index: int
    key: str | None
    explanation: Explanation | None
    error: str | None = None


def packed(
    explainer: Explainer,
    items: Iterable[Item],
    *,
    batch_size: int | None = None,
    in_flight: int = 1,
    model: Model | None = None,
    isolation: Isolation | None = None,
) -> Iterator[Outcome]:
    """Explain inputs with their rows packed into shared batches; yield each as soon as it is done.

    An input that fails, or that makes the model fail, is set aside with its error and the others go on.

    Parameters
    ----------
    items
        The inputs, read as they are needed: memory does not depend on how many there are.
    batch_size
        Rows sent to the model at a time; the explainer's own where it is None.
    in_flight
        Batches sent at the same time, each from a thread of its own: for models that wait for something else than
        this machine's cores.
    model
        What to call instead of the explainer's model, for instance a model with a time limit around it.
    isolation
        What to do when the model raises, and where to count what was sent; one for all calls of a run.

    Examples
    --------
    >>> import c2fa
    >>> s = c2fa.Structure.from_groups("aab")
    >>> explainer = c2fa.Explainer(lambda batch: batch.sum(axis=1), c2fa.maskers.Array(s), budget=9)
    >>> items = [Item(0, [1.0, 2.0, 3.0]), Item(1, "not a vector"), Item(2, [0.0, 0.0, 1.0])]
    >>> [(o.index, o.error is None) for o in sorted(packed(explainer, items), key=lambda o: o.index)]
    [(0, True), (1, False), (2, True)]
    """
    size = at_least("batch_size", explainer.batch_size if batch_size is None else batch_size, 1)
    at_least("in_flight", in_flight, 1)
    isolation = Isolation() if isolation is None else isolation
    if isinstance(scout := explainer.prior, Scout):
        scout.ready(explainer)  # one that cannot be made is no input's fault
        explainer = copy.copy(explainer)
        explainer.prior = replace(scout, policy=isolation.of_scouts)
    while items:
        postponed: list[Item] = []
        unusable: list[Outcome] = []
        driven = drive(
            _jobs(explainer, items, unusable),
            model or explainer.model,
            batch_size=size,
            ahead=(3 + in_flight) * size,  # as many inputs as can still fill four batches, or more in threads
            in_flight=in_flight,
            policy=isolation,
        )
        for job in driven:
            yield from unusable
            unusable.clear()
            isolation.report.recalled += job.queries.recalled
            if isinstance(job.error, LedgerError):  # no input's fault
                raise job.error
            if isinstance(job.error, ModelDownError):  # of a scout, which says nothing of whether the model answers
                raise ModelDownError(*job.error.args) from job.error
            if isinstance(job.error, ImportError):
                raise missing_package(job.error) from job.error
            if isinstance(job.error, PostponedError):
                postponed.append(job.about)
            elif job.error is not None:
                yield _set_aside(job.about, job.error)
            else:
                yield Outcome(job.about.index, job.about.key, job.result())
        yield from unusable
        items = postponed


def _jobs(explainer: Explainer, items: Iterable[Item], unusable: list[Outcome]) -> Iterator[Job[Explanation]]:
    """A job for each input that the masker takes; the others are listed.

    Equal inputs share their answers while they are open, and with the one before.
    """
    caches: WeakValueDictionary[Identity, Cache] = WeakValueDictionary()
    last: deque[Cache] = deque(maxlen=1)  # of the input before, which may be done
    for item in items:
        try:
            if isinstance(item.x, Unreadable):
                raise ValueError(item.x)
            with contained("the masker"):
                masked = explainer.under(explainer.masker(item.x))
            queries = explainer.queries(item.x, masked, item.key)
        except ImportError as error:
            raise missing_package(error) from error
        except Exception as error:  # a stranger's masker may raise anything
            unusable.append(_set_aside(item, error))
            continue
        if queries.cache.identity.number:  # else nothing tells it from other inputs
            queries.cache = caches.setdefault(queries.cache.identity, queries.cache)
            last.append(queries.cache)
        yield Job(explainer.conversation(masked, queries), queries, item)


def together(items: Sequence[Item]) -> list[Item]:
    """The inputs with equal ones next to each other, so that their rows are asked once.

    >>> [item.index for item in together([Item(0, "a"), Item(1, "b"), Item(2, "a")])]
    [0, 2, 1]
    """
    return sorted(items, key=_places())


def cut(items: Sequence[Item], size: int) -> list[list[Item]]:
    """Inputs that are ``together`` in pieces of so many, or of more where those are equal.

    >>> [[item.x for item in piece] for piece in cut([Item(k, x) for k, x in enumerate("aaabcd")], 2)]
    [['a', 'a', 'a'], ['b', 'c'], ['d']]
    """
    pieces: list[list[Item]] = [[]]
    for _, equal in itertools.groupby(items, key=_places()):
        if len(pieces[-1]) >= size:
            pieces.append([])
        pieces[-1] += equal
    return [piece for piece in pieces if piece]


def _places() -> Callable[[Item], int]:
    """What tells the place of the first input that is equal to one."""
    first: dict[str, int] = {}

    def place(item: Item) -> int:
        try:
            return first.setdefault(fingerprint(item.x), item.index)
        except Exception:  # a user's type may do anything when it is read
            return item.index

    return place


def _set_aside(item: Item, error: Exception) -> Outcome:
    plain = isinstance(error, QueryError | BudgetError | ValueError | TypeError)
    return Outcome(item.index, item.key, None, str(error) if plain and str(error) else in_words(error))


def _prediction_job(explainer: Explainer, item: Item) -> Job[None]:
    """A job that asks about the input itself, with nothing masked."""
    masked = explainer.masker(item.x)
    structure = masked.structure

    def ask() -> Conversation[None]:
        yield Ask(structure.depth - 1, np.ones((1, structure.leaves), dtype=np.bool_))

    return Job(ask(), Queries(Cache(masked), masked.rows_per_mask), item)


def prediction_row(explainer: Explainer, item: Item) -> Share:
    """The row of an input itself."""
    job = _prediction_job(explainer, item)
    rows = job.queries.plan(next(job.conversation))
    return Share(job, rows, job.queries.inputs(rows))


def ask_again(explainer: Explainer, item: Item, model: Model, isolation: Isolation) -> None:
    """Ask for a prediction that the model gave before, and so wait for a model that is down."""
    list(drive([_prediction_job(explainer, item)], model, batch_size=1, policy=isolation))

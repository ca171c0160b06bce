"""What every method receives and returns, and the steps that they share."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, TypeAlias, cast

import numpy as np

from c2fa.asking.fingerprint import Identity
from c2fa.asking.querying import Answer, Ask, Conversation, step
from c2fa.asking.replies import QueryError
from c2fa.graph import Graph
from c2fa.kernels import KERNELS, Kernel
from c2fa.masks import distinct
from c2fa.methods.budget import Budget, rows_per_level
from c2fa.penalties import L2, Auto, Penalty, check_penalty
from c2fa.problem import Level
from c2fa.samplers import AnySampler, Sampler, draw, ensure, preference
from c2fa.solution import Solution, Status
from c2fa.solvers.expected import Expectation
from c2fa.solvers.owen import Solved
from c2fa.structure import FloatArray, IntArray, Structure

Penalties: TypeAlias = Penalty | Literal["auto"] | Sequence[Penalty] | None


@dataclass(frozen=True, eq=False)
class Task:
    """What a method may know before it asks anything.

    Attributes
    ----------
    budget
        Rows for each level, coarse to fine; the row of the prediction is paid for already.
    prediction
        The model's outputs for the input itself, (outputs,).
    columns
        Which outputs are to be explained; values come back with one column for each.
    target
        The output that the reader asked about.
    neighbours
        Gives the graph of leaves that may be held to matter alike; None where the masker knows of none.
    smooth_by_default
        Whether to smooth where the user does not say; the masker knows what its neighbours are like.
    identity
        Which input it is, so that it gets masks of its own.
    tokens
        Of outputs that are log-probabilities of texts, how many tokens each is of; else ().
    expected
        What the leaves are expected to do, of the columns, where other inputs taught it; else None.
    at_once
        Whether questions about several levels may be asked as one, in masks of leaves.
    """

    structure: Structure
    budget: tuple[int, ...]
    prediction: FloatArray
    columns: IntArray
    target: int
    seed: int
    allows_empty: bool = True
    neighbours: Callable[[], Graph] | None = None
    smooth_by_default: bool = False
    identity: Identity = field(default_factory=Identity)
    tokens: tuple[int, ...] = ()
    expected: Expectation | None = None
    at_once: bool = False

    @property
    def column(self) -> int:
        """The target's place among the columns."""
        return int(np.flatnonzero(self.columns == self.target)[0])

    def rng(self, stream: int) -> np.random.Generator:
        """A generator of its own for each input and each level (0, 1, …) or other use, the same for every method."""
        return np.random.default_rng((self.seed, stream, self.identity.number))


@dataclass(frozen=True, eq=False)
class Attribution:
    """What a method found: values per level, (width, columns), coarse to fine, and what they rest on.

    Attributes
    ----------
    levels
        What each level's values were fitted to, as it was solved; None where they follow from another level's.
    factors
        By how much each level's weights were multiplied for the fit, beside those that were given.
    solution
        The joint solution, where all levels were fitted together as one problem; else None.
    without_prior
        What the values would be if nothing had been expected of the leaves; None where nothing was.
    prior_share
        The share of what was expected that the answers bear out; None where nothing was.
    game
        The values of a game with their posterior, where all levels' are of one; else None.
    """

    values: tuple[FloatArray, ...]
    intercepts: tuple[FloatArray, ...]
    stderr: tuple[FloatArray, ...] | None
    levels: tuple[Level | None, ...]
    status: Status = Status.EXACT
    iterations: int = 0
    notes: tuple[str, ...] = ()
    leverages: tuple[FloatArray, ...] | None = None
    factors: tuple[float, ...] | None = None
    solution: Solution | None = None
    without_prior: tuple[FloatArray, ...] | None = None
    prior_share: float | None = None
    game: Solved | None = None

    @classmethod
    def of(cls, solution: Solution) -> Attribution:
        """What a joint solution says."""
        return cls(
            solution.values,
            solution.intercepts,
            solution.stderr,
            solution.problem.levels,
            solution.status,
            solution.iterations,
            leverages=solution.leverages,
            factors=solution.factors,
            solution=solution,
        )

    def loss(self, k: int, column: int) -> float:
        """A level's loss in one column, by the weights that were given."""
        if self.solution is not None:
            return float(self.solution.losses[k][column])
        level = self.levels[k]
        assert level is not None
        rows = level.changed(outputs=level.outputs[:, column])
        return float(rows.loss(self.values[k][:, [column]], self.intercepts[k][[column]])[0])


class BaseMethod(abc.ABC):
    """A way from questions to attributions: a frozen set of options, called with a task.

    What it answers about its rows is what most methods do; a method overrides what is different for it.
    """

    can_stop_early: ClassVar[bool] = True
    """Whether a larger budget begins with the rows of a smaller one, so that ``until`` can look in between."""

    @property
    def uses_prior(self) -> bool:
        """Whether it makes use of what leaves are expected to do, ``Task.expected``."""
        return False

    def min_rows(self, structure: Structure) -> int:
        """The fewest rows with which the first level can be estimated; a budget of one number is split accordingly."""
        return 1

    def preferred_rows(self, structure: Structure) -> tuple[int | None, ...]:
        """The rows that each level of parts gets of a budget of one number, if it allows them; None for the usual."""
        return (None,) * structure.depth

    def split(self, budget: Budget, structure: Structure) -> tuple[int, ...]:
        """The rows of each level for a budget, after the one for the prediction."""
        return rows_per_level(budget, structure, self.min_rows(structure), self.preferred_rows(structure))

    @abc.abstractmethod
    def __call__(self, task: Task) -> Conversation[Attribution]:
        """Ask what must be asked, and return the attributions."""


def ask_all(task: Task, asks: Sequence[Ask]) -> Conversation[list[Answer]]:
    """Ask questions that do not depend on each other's answers: at once, where that may be."""
    answers = []
    if not task.at_once:
        for ask in asks:
            answers.append((yield ask))
        return answers
    leaves = [task.structure.expand(ask.masks, ask.level) for ask in asks]
    whole = yield Ask(task.structure.depth - 1, np.concatenate(leaves))
    end = 0
    for masks in leaves:
        start, end = end, end + len(masks)
        answers.append(Answer(whole.outputs[start:end], whole.ok[start:end]))
    return answers


def gather(
    task: Task,
    level: int,
    *,
    sampler: AnySampler,
    kernel: Kernel,
    penalty: Penalty,
    intercept: bool,
    anchor: bool,
) -> Conversation[Level]:
    """Draw one level's masks, ask for their outputs, weigh them.

    ``anchor`` adds the prediction as a row of its own: it is paid for already, and it is the point that the
    explanation is about.
    """
    drawn = draw(ensure(sampler), task.rng(level), task.budget[level], task.structure, level, task.allows_empty)
    masks, counts = distinct(drawn)
    answer = yield Ask(level, masks)
    ok = answer.ok
    if not ok.any():
        raise QueryError(
            f"not one of the {len(ok)} rows that mask some of {masks.shape[1]} features got an answer, so there is "
            "nothing to fit"
        )
    masks, counts, outputs = masks[ok], counts[ok], answer.outputs[ok][:, task.columns]
    if anchor and not masks.all(axis=1).any():
        masks = np.concatenate([masks, np.ones_like(masks[:1])])
        counts = np.append(counts, 1.0)
        outputs = np.concatenate([outputs, task.prediction[None, task.columns]])
    weights = kernel(masks)
    # What was asked once is one answer, however often it was drawn; strengths are chosen by how many answers there are.
    if not isinstance(penalty, Auto):
        weights = weights * counts
    return Level(masks, outputs, weights, penalty, intercept)


def per_level(name: str, option: Any, depth: int) -> tuple[Any, ...]:
    """Give an option to every level, or check that there is one for each."""
    if isinstance(option, str) or not isinstance(option, Sequence):
        return (option,) * depth
    if len(option) != depth:
        raise ValueError(
            f"{name} has {len(option)} entries and the structure {depth} levels; give one for all, or one for each"
        )
    return tuple(option)


def listed(name: str, option: Any) -> tuple[Any, ...]:
    """An option that is one for all levels, or a sequence with one for each, as a tuple."""
    items = tuple(option) if isinstance(option, Sequence) and not isinstance(option, str) else (option,)
    if not items:
        raise ValueError(f"{name} is empty; give one for all levels, or one for each")
    return items


def as_kernel(kernel: str | Kernel) -> Kernel:
    """Return a kernel by its name, or the kernel itself."""
    if callable(kernel):
        return kernel
    if kernel not in KERNELS:
        raise ValueError(f"kernel must be a function or one of {sorted(KERNELS)}; got {kernel!r}")
    return KERNELS[kernel]


def per_level_penalties(option: Penalties, task: Task) -> tuple[Penalty, ...]:
    """Give every level its penalty; None gives each level ``L2(width / 50)``.

    What a level explains is shared by its features, so the more there are the less each of them should matter, in
    proportion. For five parts of ten leaves these are the paper's 0.1 and 1 (``benchmarks/defaults.py``).

    ``"auto"`` has the strengths chosen from the target's answers, so that they are the same whichever other outputs are
    explained beside it. The log-probabilities of a given text are known to come without noise.
    """
    if option is None:
        return tuple(L2(width / 50) for width in task.structure.widths)
    given = per_level("penalty", Auto() if isinstance(option, str) else option, task.structure.depth)
    return tuple(_auto(task, p) if isinstance(p, Auto) else p for p in given)


def _auto(task: Task, penalty: Auto) -> Auto:
    """What the task knows of what the penalty leaves open: which column decides, and whether there is noise."""
    column = np.flatnonzero(task.columns == (task.target if penalty.output is None else penalty.output))
    if not len(column):
        outputs = len(task.prediction)
        there = "" if 0 <= (penalty.output or 0) < outputs else f", and the model has outputs 0..{outputs - 1}"
        raise ValueError(
            f"Auto(output={penalty.output}) names an output that is not explained{there}; leave it to the target, or "
            "explain with outputs='all'"
        )
    noiseless = bool(task.tokens) if penalty.noiseless is None else penalty.noiseless
    return replace(penalty, output=int(column[0]), noiseless=noiseless)


def joint_penalties(option: Penalties, task: Task) -> tuple[Penalty, ...]:
    """The penalties of levels that are fitted together: parts without any, beside ``Auto`` leaves, have it too."""
    given = per_level_penalties(option, task)
    return (given[-1],) * len(given) if isinstance(given[-1], Auto) else given


def given_penalties(option: Penalties) -> tuple[Penalty, ...]:
    """The penalties as far as they are known before the input is; None is l2 of any strength, and gives none."""
    if option is None:
        return ()
    given = (Auto(),) if isinstance(option, str) and option == "auto" else listed("penalty", option)
    for penalty in given:
        check_penalty(penalty)
    return given


@dataclass(frozen=True)
class Fitting(BaseMethod):
    """What methods that fit levels have in common; see ``Lime`` and ``C2FA`` for the options."""

    kernel: str | Kernel | Sequence[str | Kernel] = "cosine"
    sampler: AnySampler | Sequence[AnySampler] = "uniform"
    penalty: Penalties = None
    intercept: bool | Sequence[bool] = True
    anchor: bool = True

    def __post_init__(self) -> None:
        for kernel in listed("kernel", self.kernel):
            as_kernel(kernel)
        for sampler in listed("sampler", self.sampler):
            ensure(sampler)
        given_penalties(self.penalty)
        for name, option in (("intercept", self.intercept), ("anchor", self.anchor)):
            for value in listed(name, option):
                if not isinstance(value, bool | np.bool_):  # "no" would count as yes
                    raise TypeError(f"{name} must be True or False; got {value!r}")

    def preferred_rows(self, structure: Structure) -> tuple[int | None, ...]:
        """The rows that the samplers of the levels prefer for parts."""
        samplers = per_level("sampler", self.sampler, structure.depth)
        return tuple(preference(sampler, width) for sampler, width in zip(samplers, structure.widths, strict=True))

    def gather(self, task: Task, level: int, penalty: Penalty, sampler: Sampler | None = None) -> Conversation[Level]:
        """Ask about one level, with the options that it was given."""
        depth = task.structure.depth
        return gather(
            task,
            level,
            sampler=sampler or per_level("sampler", self.sampler, depth)[level],
            kernel=as_kernel(per_level("kernel", self.kernel, depth)[level]),
            penalty=penalty,
            intercept=bool(per_level("intercept", self.intercept, depth)[level]),
            anchor=self.anchor,
        )

    def gather_all(self, task: Task, penalties: Sequence[Penalty]) -> Conversation[list[Level]]:
        """Ask about the first levels, as many as there are penalties."""
        gathering = [self.gather(task, k, penalty) for k, penalty in enumerate(penalties)]
        answers = yield from ask_all(task, [next(one) for one in gathering])
        return [cast(Level, step(one, answer)[1]) for one, answer in zip(gathering, answers, strict=True)]

"""Other libraries as methods, for comparison: shap, lime and captum, on the same masker and the same budget.

Each works over leaf masks, with the whole budget whatever the level, and its values of parts are the sums of its
leaves'. Each runs as its authors ship it, except where its docstring says so, and with settings under which it
cannot ask for more rows than there are. They are imported when used: ``pip install 'c2fa[peers]'``.

These libraries call the model themselves. So each runs in a thread of its own, in which the model is a function that
hands the masks over to the conversation and waits for its answer.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from queue import SimpleQueue
from threading import Thread
from typing import Any, ClassVar, TypeAlias

import numpy as np

from c2fa.asking.querying import Ask, BudgetError, Conversation
from c2fa.asking.replies import QueryError
from c2fa.masks import distinct, mask_keys
from c2fa.methods.base import Attribution, BaseMethod, Task
from c2fa.structure import BoolArray, FloatArray, Structure

Play: TypeAlias = Callable[[BoolArray], FloatArray]
"""Leaf masks, (n, leaves), to how far the outputs that are to be explained are from the prediction, (n, columns)."""
Leaves: TypeAlias = tuple[FloatArray, FloatArray]
"""A library's result: values of the leaves, (leaves, columns), and its intercept, (columns,)."""


class _Stop(BaseException):
    """Ends a library's run; not an Exception, so that no library swallows it."""


@dataclass(frozen=True)
class Peer(BaseMethod):
    """Another library, run over leaf masks."""

    package: ClassVar[str]
    needs_empty: ClassVar[bool] = True  # whether it must know the model's answer to the empty input
    can_stop_early: ClassVar[bool] = False  # with more rows to spend it asks others, not the same ones first

    def __post_init__(self) -> None:
        if find_spec(self.package) is None:
            raise ImportError(
                f"{type(self).__name__} needs the package {self.package}: pip install 'c2fa[peers]'",
                name=self.package,
            )

    def __call__(self, task: Task) -> Conversation[Attribution]:
        s, name = task.structure, type(self).__name__
        with warnings.catch_warnings():  # before its thread, so that torch is there to be seeded where it needs it
            warnings.simplefilter("ignore")
            import_module(self.package if self.package != "captum" else "captum.attr")
        # Told differences from the prediction, they round to nothing where a constant model leaves nothing.
        base = task.prediction[task.columns]
        known = {mask_keys(np.ones((1, s.leaves), dtype=np.bool_))[0]: np.zeros(len(base))}

        def reply(masks: BoolArray) -> Conversation[FloatArray]:
            new, _ = distinct(masks)
            new = new[[key not in known for key in mask_keys(new)]]
            left = sum(task.budget) + 1 - len(known)
            if len(new) > left:
                raise BudgetError(f"{name} asked for {len(new)} more rows with {left} left; raise the budget")
            if not (task.allows_empty or new.any(axis=1).all()):
                raise ValueError(
                    f"{name} needs the model's answer with everything masked, which this masker does not allow; use "
                    "another method, or a masker that blanks out instead of removing"
                )
            if len(new):
                answer = yield Ask(s.depth - 1, new)
                if not answer.ok.all():
                    raise QueryError(
                        f"{(~answer.ok).sum()} of {len(new)} rows got no usable answer, and {name} cannot leave rows "
                        "out; repair the model, or use a method of this package"
                    )
                known.update(zip(mask_keys(new), answer.outputs[:, task.columns] - base, strict=True))
            return np.array([known[key] for key in mask_keys(masks)])

        seed = int(task.rng(2000).integers(2**32))  # a stream away from the levels' streams
        values, intercept = yield from _in_thread(lambda play: self._explain(task, play), reply, seed)
        return Attribution(
            values=s.level_sums(values),
            intercepts=(base + intercept,) * s.depth,
            stderr=None,
            levels=(None,) * s.depth,
        )

    def _explain(self, task: Task, play: Play) -> Leaves:
        if self.needs_empty and task.structure.leaves == 1:  # these libraries fail on a single feature
            base = play(np.zeros((1, 1), dtype=np.bool_))
            return play(np.ones((1, 1), dtype=np.bool_)) - base, base[0]
        return self._run(task, play, sum(task.budget))

    def _run(self, task: Task, play: Play, rows: int) -> Leaves:
        raise NotImplementedError


def _in_thread(
    work: Callable[[Play], Leaves], reply: Callable[[BoolArray], Conversation[FloatArray]], seed: int
) -> Conversation[Leaves]:
    """Run ``work(play)`` in a thread and reply to what it plays.

    The two never run at the same time. In its turns the library has warnings silenced and the global random numbers,
    which these libraries draw from, to itself.
    """
    asked: SimpleQueue[BoolArray | None] = SimpleQueue()
    replies: SimpleQueue[FloatArray | None] = SimpleQueue()
    done: Future[Leaves] = Future()

    def play(masks: BoolArray) -> FloatArray:
        asked.put(masks)
        answer = replies.get()
        if answer is None:
            raise _Stop
        return answer

    def run() -> None:
        try:
            done.set_result(work(play))
        except BaseException as error:  # whatever ends it is raised again by the conversation
            done.set_exception(error)
        asked.put(None)

    generators: list[tuple[Callable[[], Any], Callable[[Any], None]]] = [(np.random.get_state, np.random.set_state)]
    own: list[Any] = [np.random.RandomState(seed).get_state()]
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        generators.append((torch.get_rng_state, torch.set_rng_state))
        own.append(torch.Generator().manual_seed(seed).get_state())

    @contextmanager
    def turn() -> Iterator[None]:
        before = [get() for get, _ in generators]
        for (_, put), state in zip(generators, own, strict=True):
            put(state)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield
        finally:
            own[:] = [get() for get, _ in generators]
            for (_, put), state in zip(generators, before, strict=True):
                put(state)

    thread = Thread(target=run, daemon=True)
    try:
        with turn():
            thread.start()
            masks = asked.get()
        while masks is not None:
            answer = yield from reply(masks)
            with turn():
                replies.put(answer)
                masks = asked.get()
    finally:
        replies.put(None)  # which ends a run that waits
        thread.join()
    return done.result()


@dataclass(frozen=True)
class ShapPartition(Peer):
    """shap's PartitionExplainer over the structure's own tree, made binary by halving."""

    package: ClassVar[str] = "shap"

    def _run(self, task: Task, play: Play, rows: int) -> Leaves:
        import shap

        leaves = task.structure.leaves
        masker = shap.maskers.Partition(np.zeros((1, leaves)), clustering=linkage(task.structure))
        explainer = shap.explainers.PartitionExplainer(lambda x: play(x > 0.5), masker)
        # Of max_evals two are for the ends, of which the full one is known; the rest is spent two at a time, and
        # an odd rest would be overspent by one.
        result = explainer(np.ones((1, leaves)), max_evals=2 * ((rows - 1) // 2) + 2, silent=True)
        return result.values[0], np.asarray(result.base_values[0])


@dataclass(frozen=True)
class ShapKernel(Peer):
    """shap's KernelExplainer, without its default of keeping only ten features (``l1_reg=False``)."""

    package: ClassVar[str] = "shap"

    def _run(self, task: Task, play: Play, rows: int) -> Leaves:
        import shap

        if rows < 2:
            raise BudgetError(
                f"ShapKernel needs at least 2 rows beside the prediction, one with everything masked; it has {rows}"
            )
        leaves = task.structure.leaves
        explainer = shap.KernelExplainer(lambda x: play(x > 0.5), np.zeros((1, leaves)))
        values = explainer.shap_values(np.ones(leaves), nsamples=rows - 1, l1_reg=False, silent=True)
        return np.asarray(values).reshape(leaves, -1), np.asarray(explainer.expected_value).reshape(-1)


@dataclass(frozen=True)
class LimePeer(Peer):
    """The lime package's text explainer over a text with one word for each leaf.

    Its sampling (how many words to remove, then which), its kernel and its ridge are its own; no feature is
    selected away. Where the input cannot be empty, it removes all words but one at the most.
    """

    package: ClassVar[str] = "lime"
    needs_empty: ClassVar[bool] = False

    def _run(self, task: Task, play: Play, rows: int) -> Leaves:
        from lime.lime_text import LimeTextExplainer

        leaves, columns = task.structure.leaves, range(len(task.columns))

        def model(texts: list[str]) -> FloatArray:
            return play(np.array([[word != "_" for word in text.split()] for text in texts]))

        keeps_one = not task.allows_empty and leaves > 1
        explainer = LimeTextExplainer(
            feature_selection="none",
            split_expression=r"\s+",
            bow=False,
            mask_string="_",
            random_state=(_KeepsOne if keeps_one else np.random.RandomState)(int(task.rng(2000).integers(2**32))),
        )
        text = " ".join(f"w{i}" for i in range(leaves))
        # The first of its samples is the input itself, which is known.
        result = explainer.explain_instance(text, model, labels=columns, num_features=leaves, num_samples=rows + 1)
        values = np.zeros((leaves, len(columns)))
        for c in columns:
            for leaf, value in result.local_exp[c]:
                values[leaf, c] = value
        return values, np.array([result.intercept[c] for c in columns])


class _KeepsOne(np.random.RandomState):
    """Draws the number of words to remove from one fewer than lime asks for."""

    def randint(self, low: Any, high: Any = None, size: Any = None, dtype: Any = int) -> Any:
        return super().randint(low, high - 1, size, dtype)


@dataclass(frozen=True)
class CaptumLime(Peer):
    """captum's Lime: fair coins, a cosine kernel, the lasso."""

    package: ClassVar[str] = "captum"
    needs_empty: ClassVar[bool] = False

    def _run(self, task: Task, play: Play, rows: int) -> Leaves:
        from captum.attr import Lime

        return _captum(task, play, rows, Lime)


@dataclass(frozen=True)
class CaptumKernelShap(Peer):
    """captum's KernelShap: sizes drawn by SHAP's kernel, the ends pinned, least squares."""

    package: ClassVar[str] = "captum"

    def _run(self, task: Task, play: Play, rows: int) -> Leaves:
        from captum.attr import KernelShap

        return _captum(task, play, rows + 1, KernelShap)  # its first sample is the input itself, which is known


def _captum(task: Task, play: Play, samples: int, make: Any) -> Leaves:
    """Run a captum method once for each output, with the same draws, so that only the first run costs rows."""
    import torch

    def forward(inputs: Any) -> Any:
        return torch.from_numpy(play(inputs.numpy() > 0.5))

    ones = torch.ones(1, task.structure.leaves)
    state = torch.get_rng_state()
    values, intercepts = [], []
    for column in range(len(task.columns)):
        torch.set_rng_state(state)
        method = make(forward)
        coefficients = method.attribute(
            ones, target=column, n_samples=samples, perturbations_per_eval=samples, return_input_shape=False
        )
        values.append(np.asarray(coefficients, dtype=np.float64).ravel())
        intercepts.append(float(method.interpretable_model.bias()))
    return np.stack(values, axis=1), np.array(intercepts)


def linkage(structure: Structure) -> FloatArray:
    """The structure as a binary tree in scipy's format, (leaves − 1, 4): children are halved until two are left.

    >>> linkage(Structure.from_groups("aabb"))[:, :2].astype(int).tolist()
    [[0, 1], [2, 3], [4, 5]]
    """
    rows: list[tuple[float, float, float, float]] = []
    sizes = [1.0] * structure.leaves

    def join(nodes: list[int]) -> int:
        if len(nodes) == 1:
            return nodes[0]
        half = (len(nodes) + 1) // 2
        left, right = join(nodes[:half]), join(nodes[half:])
        sizes.append(sizes[left] + sizes[right])
        rows.append((left, right, len(rows) + 1.0, sizes[-1]))
        return len(sizes) - 1

    nodes = list(range(structure.leaves))
    for parent, width in zip(reversed(structure.parents), reversed(structure.widths[:-1]), strict=True):
        children: list[list[int]] = [[] for _ in range(width)]
        for node, owner in zip(nodes, parent.tolist(), strict=True):
            children[owner].append(node)
        nodes = [join(group) for group in children]
    join(nodes)
    return np.array(rows).reshape(-1, 4)

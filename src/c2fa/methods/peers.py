"""Other libraries as methods, for comparison: shap, lime and captum, on the same masker and the same budget.

Each works over leaf masks, with the whole budget whatever the level, and its values of parts are the sums of its
leaves'. Each runs as its authors ship it, except where its docstring says so, and with settings under which it
cannot ask for more rows than there are. They are imported when used: ``pip install 'c2fa[peers]'``.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar, Literal

import numpy as np

from c2fa.asking.querying import BudgetError, Conversation
from c2fa.methods.base import Attribution, BaseMethod, Task
from c2fa.methods.bridge import Play, bridge
from c2fa.structure import FloatArray, Structure


@dataclass(frozen=True, eq=False)
class _Leaves:
    """A library's result: values of the leaves, (leaves, columns), and its intercept, (columns,)."""

    values: FloatArray
    intercept: FloatArray


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
        s = task.structure
        if self.needs_empty and not task.allows_empty:
            raise ValueError(
                f"{type(self).__name__} needs the model's answer with everything masked, which this masker does not "
                "allow; use another method, or a masker that blanks out instead of removing"
            )
        with warnings.catch_warnings():  # before its turn, so that what it loads is known when the turn begins
            warnings.simplefilter("ignore")
            import_module(self.package if self.package != "captum" else "captum.attr")
        # Told differences from the prediction, they round to nothing where a constant model leaves nothing.
        base = task.prediction[task.columns]
        result = yield from bridge(
            task, type(self).__name__, lambda play: self._explain(task, lambda masks: play(masks) - base)
        )
        return Attribution(
            values=s.level_sums(result.values),
            intercepts=(base + result.intercept,) * s.depth,
            stderr=None,
            levels=(None,) * s.depth,
        )

    def _explain(self, task: Task, play: Play) -> _Leaves:
        if self.needs_empty and task.structure.leaves == 1:  # these libraries fail on a single feature
            base = play(np.zeros((1, 1), dtype=np.bool_))
            return _Leaves(play(np.ones((1, 1), dtype=np.bool_)) - base, base[0])
        return self._run(task, play, sum(task.budget))

    def _run(self, task: Task, play: Play, rows: int) -> _Leaves:
        raise NotImplementedError


@dataclass(frozen=True)
class ShapPartition(Peer):
    """shap's PartitionExplainer over the structure's own tree, made binary by halving.

    Parameters
    ----------
    fixed_context
        shap's own option: None visits every node in both contexts, 0 or 1 in one.
    """

    package: ClassVar[str] = "shap"

    fixed_context: Literal[0, 1] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fixed_context not in (None, 0, 1):
            raise ValueError(f"fixed_context must be None, 0 or 1; got {self.fixed_context!r}")

    def _run(self, task: Task, play: Play, rows: int) -> _Leaves:
        import shap

        leaves = task.structure.leaves
        masker = shap.maskers.Partition(np.zeros((1, leaves)), clustering=linkage(task.structure))
        explainer = shap.explainers.PartitionExplainer(lambda x: play(x > 0.5), masker)
        # Of max_evals two are for the ends, of which the full one is known; the rest is spent two at a time, and
        # an odd rest would be overspent by one.
        pairs = (rows - 1) // 2
        result = explainer(np.ones((1, leaves)), max_evals=2 * pairs + 2, fixed_context=self.fixed_context, silent=True)
        return _Leaves(result.values[0], np.asarray(result.base_values[0]))


@dataclass(frozen=True)
class ShapKernel(Peer):
    """shap's KernelExplainer, without its default of keeping only ten features (``l1_reg=False``)."""

    package: ClassVar[str] = "shap"

    def _run(self, task: Task, play: Play, rows: int) -> _Leaves:
        import shap

        if rows < 2:
            raise BudgetError(
                f"ShapKernel needs at least 2 rows beside the prediction, one with everything masked; it has {rows}"
            )
        leaves = task.structure.leaves
        explainer = shap.KernelExplainer(lambda x: play(x > 0.5), np.zeros((1, leaves)))
        values = explainer.shap_values(np.ones(leaves), nsamples=rows - 1, l1_reg=False, silent=True)
        return _Leaves(np.asarray(values).reshape(leaves, -1), np.asarray(explainer.expected_value).reshape(-1))


@dataclass(frozen=True)
class LimePeer(Peer):
    """The lime package's text explainer over a text with one word for each leaf.

    Its sampling (how many words to remove, then which), its kernel and its ridge are its own; no feature is
    selected away. Where the input cannot be empty, it removes all words but one at the most.

    Parameters
    ----------
    kernel_width
        lime's own option, in hundredths of cosine distance.
    """

    package: ClassVar[str] = "lime"
    needs_empty: ClassVar[bool] = False

    kernel_width: float = 25.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_positive("kernel_width", self.kernel_width)

    def _run(self, task: Task, play: Play, rows: int) -> _Leaves:
        from lime.lime_text import LimeTextExplainer

        leaves, columns = task.structure.leaves, range(len(task.columns))

        def model(texts: list[str]) -> FloatArray:
            return play(np.array([[word != "_" for word in text.split()] for text in texts]))

        explainer = LimeTextExplainer(
            kernel_width=self.kernel_width,
            feature_selection="none",
            split_expression=r"\s+",
            bow=False,
            mask_string="_",
            random_state=_random_state(task),
        )
        text = " ".join(f"w{i}" for i in range(leaves))
        # The first of its samples is the input itself, which is known.
        result = explainer.explain_instance(text, model, labels=columns, num_features=leaves, num_samples=rows + 1)
        values = np.zeros((leaves, len(columns)))
        for c in columns:
            for leaf, value in result.local_exp[c]:
                values[leaf, c] = value
        return _Leaves(values, np.array([result.intercept[c] for c in columns]))


@dataclass(frozen=True)
class CaptumLime(Peer):
    """captum's Lime: fair coins, a cosine kernel, the lasso.

    Parameters
    ----------
    kernel_width, alpha
        captum's defaults: the width of its kernel and the strength of its lasso.
    """

    package: ClassVar[str] = "captum"
    needs_empty: ClassVar[bool] = False

    kernel_width: float = 1.0
    alpha: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_positive("kernel_width", self.kernel_width)
        _check_positive("alpha", self.alpha)

    def _run(self, task: Task, play: Play, rows: int) -> _Leaves:
        from captum._utils.models.linear_model import SkLearnLasso
        from captum.attr import Lime
        from captum.attr._core.lime import get_exp_kernel_similarity_function

        similarity = get_exp_kernel_similarity_function("cosine", self.kernel_width)
        return _captum(
            task,
            play,
            rows,
            lambda forward: Lime(
                forward, interpretable_model=SkLearnLasso(alpha=self.alpha), similarity_func=similarity
            ),
        )


@dataclass(frozen=True)
class CaptumKernelShap(Peer):
    """captum's KernelShap: sizes drawn by SHAP's kernel, the ends pinned, least squares."""

    package: ClassVar[str] = "captum"

    def _run(self, task: Task, play: Play, rows: int) -> _Leaves:
        from captum.attr import KernelShap

        return _captum(task, play, rows + 1, KernelShap)  # its first sample is the input itself, which is known


def _captum(task: Task, play: Play, samples: int, make: Any) -> _Leaves:
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
    return _Leaves(np.stack(values, axis=1), np.array(intercepts))


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


def _random_state(task: Task) -> Any:
    """A generator of the kind that lime takes; where the input cannot be empty, it never removes every word."""
    seed = int(task.rng(2000).integers(2**32))
    kind: Any = np.random.RandomState if task.allows_empty or task.structure.leaves == 1 else _KeepsOne
    return kind(seed)


class _KeepsOne(np.random.RandomState):
    """Draws the number of words to remove from one fewer than lime asks for."""

    def randint(self, low: Any, high: Any = None, size: Any = None, dtype: Any = int) -> Any:
        return super().randint(low, high - 1, size, dtype)


def _check_positive(name: str, value: float) -> None:
    if not (np.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a finite number above 0; got {value}")

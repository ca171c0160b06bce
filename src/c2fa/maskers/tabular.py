"""Rows of tables: groups of columns, masked by what a background says of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from c2fa.extras import need
from c2fa.maskers._columns import groups_of, names_of, tree_of
from c2fa.maskers._tables import Table, read_background, read_row, typical
from c2fa.masking import Masked
from c2fa.model import ModelProxy
from c2fa.querying import as_outputs
from c2fa.structure import BoolArray

__all__ = ["Blocks", "Tabular", "groups_of", "over_background"]


@dataclass(frozen=True)
class Tabular:
    """Masks a row of a table: its parts are groups of columns, its leaves the columns.

    The input is a DataFrame of one row, a Series, a dict or a vector. The model receives a DataFrame with the
    same columns and types for the first two, a list of dicts, or an array (n, columns).

    Parameters
    ----------
    groups
        A dict from part to columns (names or positions), nested to any depth, such as shap's
        ``partition_tree``; or a fitted scikit-learn ``ColumnTransformer`` or ``Pipeline``, when the input is
        what that transformer gives: the columns that come from one column (as one-hot columns do) form a
        part. A column that no group names is a part of its own. None makes one level, of columns alone.
    background
        What the model is used to see: a DataFrame, an array, or one row, whose columns are the input's.
    names
        The names of the columns where neither the input nor the background has them.
    strategy
        What a masked column becomes. ``"mean"``: the background's mean of that column (rounded for integers)
        or its most frequent value (for anything else than numbers); empty cells do not count. ``"row"``: the value
        of the one row that the background is. ``"average"``: each of the background's m rows in turn. Then one
        mask is m rows of the table, kept together as one input, and the model must be wrapped in
        ``over_background``, which averages its m outputs: a budget of 100 costs 100 m of its rows.

    Examples
    --------
    >>> masker = Tabular({"size": ["height", "weight"]}, background=[[1.0, 2.0, 3.0], [3.0, 4.0, 5.0]],
    ...                  names=["height", "weight", "age"])
    >>> masked = masker([10.0, 20.0, 30.0])
    >>> masked.structure.names
    (('size', 'age'), ('height', 'weight', 'age'))
    >>> masked.inputs([[True, False], [False, True]], 0)
    array([[10., 20., 4.], [ 2., 3., 30.]])
    """

    groups: Any = None
    background: Any = None
    names: Sequence[str] | None = None
    strategy: str = "mean"
    _baselines: dict[tuple[Any, ...], list[list[Any]]] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        if self.strategy not in ("mean", "row", "average"):
            raise ValueError(f"strategy must be 'mean', 'row' or 'average', not {self.strategy!r}")
        if self.background is None:
            raise ValueError("Tabular needs a background: give rows that the model is used to, or one row")
        if isinstance(self.names, str):
            raise TypeError(f"names must be a sequence of column names, not the string {self.names!r}")
        if hasattr(self.groups, "get_params"):  # scikit-learn's: what it says is kept in its place
            if self.names is None:
                object.__setattr__(self, "names", names_of(self.groups))
            object.__setattr__(self, "groups", groups_of(self.groups))

    def __call__(self, x: Any) -> Masked:
        columns, values = read_row(x)
        if columns is None:
            named = getattr(self.background, "columns", range(len(values)))
            columns = list(named if self.names is None else self.names)
        if len(columns) != len(values):
            raise ValueError(f"{len(columns)} column names for {len(values)} values: give one name per column")
        baselines = self._baselines.get(tuple(columns))
        if baselines is None:  # a large background is read once, however many rows are explained
            background = read_background(self.background, columns)
            baselines = background if self.strategy == "average" else [self._baseline(background)]
            self._baselines[tuple(columns)] = baselines
        structure = tree_of(self.groups, columns)
        table = Table(x, columns, values, baselines, getattr(self.background, "dtypes", None))

        def inputs(masks: BoolArray, level: int) -> Any:
            leaves = structure.expand(masks, level)
            if self.strategy != "average":
                return table.rows(leaves, np.zeros(len(leaves), dtype=np.intp))
            m = len(baselines)
            rows = table.rows(np.repeat(leaves, m, axis=0), np.tile(np.arange(m), len(leaves)))
            return Blocks(rows, m)

        view = {"kind": "table", "columns": [str(c) for c in columns], "values": list(values)}
        return Masked(structure, inputs, view=view)

    def _baseline(self, background: list[list[Any]]) -> list[Any]:
        if self.strategy == "row":
            if len(background) != 1:
                raise ValueError(
                    f"strategy='row' needs a background of one row, not {len(background)}: give one row, "
                    "or take strategy='mean' or 'average'"
                )
            return background[0]
        return [typical(column) for column in zip(*background, strict=True)]


@dataclass(frozen=True, eq=False)
class Blocks(Sequence[Any]):
    """A batch of inputs each of which is ``size`` rows of a table; ``rows`` holds them all, one after another."""

    rows: Any
    size: int

    def __len__(self) -> int:
        return len(self.rows) // self.size

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Blocks: ...
    def __getitem__(self, index: int | slice) -> Any:
        chosen = range(len(self))[index]
        if isinstance(chosen, range):
            at = [i for block in chosen for i in range(block * self.size, (block + 1) * self.size)]
            return Blocks(_take(self.rows, at), self.size)
        return _take(self.rows, list(range(chosen * self.size, (chosen + 1) * self.size)))

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __array__(self, *_: Any, **__: Any) -> npt.NDArray[Any]:
        raise TypeError("strategy='average' makes each input a block of rows: give the model as over_background(model)")


def over_background(model: Callable[[Any], Any]) -> Callable[[Any], npt.NDArray[np.float64]]:
    """Wrap a model of table rows for ``Tabular(strategy="average")``: its outputs averaged over the background.

    Each input is a block of rows; the model is called once with the rows of all blocks, and so receives as
    many rows per input as the background has. An estimator is made callable first, by ``c2fa.models.wrap``; the names
    of the model and of its outputs stay.

    >>> masked = Tabular(background=[[0.0], [4.0]], strategy="average")([9.0])
    >>> over_background(lambda rows: rows[:, 0] ** 2)(masked.inputs([[False], [True]], 0))
    array([ 8., 81.])
    """

    if not callable(model):
        raise TypeError(
            f"{type(model).__name__} is not callable: give over_background(c2fa.models.wrap(model)), which makes it so"
        )
    return _Averaged(model)


class _Averaged(ModelProxy):
    """A model whose outputs are averaged over blocks of rows."""

    batch_size = chunk_size = None  # the inner model's count its rows, not blocks of them

    def __call__(self, blocks: Any) -> npt.NDArray[np.float64]:
        if isinstance(blocks, Blocks):
            rows, sizes = blocks.rows, np.full(len(blocks), blocks.size)
        else:
            sizes = np.array([len(block) for block in blocks])
            rows = _stack(list(blocks))
        outputs = as_outputs(self.model(rows), len(rows), "averaging over the background")
        starts = np.cumsum(sizes) - sizes
        mean: npt.NDArray[np.float64] = np.add.reduceat(outputs, starts, axis=0) / sizes[:, None]
        return mean[:, 0] if mean.shape[1] == 1 else mean


def _take(rows: Any, at: list[int]) -> Any:
    if hasattr(rows, "iloc"):
        return rows.iloc[at]
    return [rows[i] for i in at] if isinstance(rows, list) else rows[at]


def _stack(blocks: list[Any]) -> Any:
    if hasattr(blocks[0], "iloc"):
        return need("pandas", "tabular").concat(blocks)
    return [row for block in blocks for row in block] if isinstance(blocks[0], list) else np.concatenate(blocks)

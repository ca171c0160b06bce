"""Rows of tables: groups of columns, masked by what a background says of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from c2fa import views
from c2fa.asking.masking import Masked
from c2fa.maskers._columns import groups_of, names_of, tree_of
from c2fa.maskers._tables import Table, described, read_background, read_row, typical_row
from c2fa.structure import BoolArray, Structure
from c2fa.views.descriptors import own_fields

__all__ = ["Tabular", "groups_of"]


@dataclass(frozen=True)
class Tabular:
    """Masks a row of a table: its parts are groups of columns, its leaves the columns.

    The input is a DataFrame of one row (of pandas or polars), a Series, a dict or a vector. The model receives a
    DataFrame with the same columns and types for the first two, a list of dicts, or an array (n, columns).

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
        What a masked column becomes. ``"mean"``: what is usual in the background. That is a column's mean where it
        holds measurements (rounded for integers), the median of dates, times and periods, and the most frequent value
        of anything else: texts, truth values, and numbers of which there are at most ten, each twice or more on
        average, because these are codes or counts. Columns of one group that are one-hot take their most frequent
        combination. Empty cells do not count. ``"row"``: the value of the one row that the background is.
        ``"average"``: the values of each of the background's rows in turn; the model's outputs are averaged. A mask
        then takes as many rows of the model as the background has, and the budget counts each of them.

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
        structure = tree_of(self.groups, columns)
        baselines = self._baselines.get(tuple(columns))
        if baselines is None:  # a large background is read once, however many rows are explained
            background = read_background(self.background, columns)
            baselines = background if self.strategy == "average" else [self._baseline(background, structure)]
            self._baselines[tuple(columns)] = baselines
        dtypes = getattr(self.background, "dtypes", None)
        table = Table(x, columns, values, baselines, dtypes)
        m = len(baselines)

        def inputs(masks: BoolArray, level: int) -> Any:
            leaves = structure.expand(masks, level)
            return table.rows(np.repeat(leaves, m, axis=0), np.tile(np.arange(m), len(leaves)))

        def descriptors() -> dict[str, list[Any]]:
            return own_fields([str(c) for c in columns], described(x, columns, values, dtypes))

        view = views.Table(tuple(values), tuple(table.at_baseline()))
        return Masked(structure, inputs, view=view, rows_per_mask=m, descriptors=descriptors)

    def _baseline(self, background: list[list[Any]], structure: Structure) -> list[Any]:
        if self.strategy == "row":
            if len(background) != 1:
                raise ValueError(
                    f"strategy='row' needs a background of one row, not {len(background)}: give one row, "
                    "or take strategy='mean' or 'average'"
                )
            return background[0]
        return typical_row(background, structure)

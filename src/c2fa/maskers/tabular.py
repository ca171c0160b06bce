"""Rows of tables: groups of columns, masked by what a background says of them."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from c2fa import views
from c2fa._system import is_frame
from c2fa.asking.masking import Masked
from c2fa.maskers._tables import Table, described, kind_of, read_background, read_row, typical_row
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
            if self.names is not None:
                columns = list(self.names)
            elif is_frame(self.background):
                columns = list(self.background.columns)
            else:
                columns = list(range(len(values)))
        if len(columns) != len(values):
            raise ValueError(f"{len(columns)} column names for {len(values)} values: give one name per column")
        structure = tree_of(self.groups, columns)
        baselines = self._baselines.get(tuple(columns))
        if baselines is None:  # a large background is read once, however many rows are explained
            background = read_background(self.background, columns)
            baselines = background if self.strategy == "average" else [self._baseline(background, structure)]
            self._baselines[tuple(columns)] = baselines
        is_typed = is_frame(self.background) and kind_of(self.background) == "frame"
        dtypes = self.background.dtypes if is_typed else None
        table = Table(x, columns, values, baselines, dtypes)
        m = len(baselines)

        def inputs(masks: BoolArray, level: int) -> Any:
            leaves = structure.expand(masks, level)
            return table.rows(np.repeat(leaves, m, axis=0), np.tile(np.arange(m), len(leaves)))

        def descriptors() -> dict[str, list[Any]]:
            return own_fields([str(c) for c in columns], described(x, columns, values, dtypes))

        same = tuple(table.at_baseline())
        view = views.Table(tuple(values), same)
        return Masked(structure, inputs, view=view, rows_per_mask=m, descriptors=descriptors, inert=same)

    def _baseline(self, background: list[list[Any]], structure: Structure) -> list[Any]:
        if self.strategy == "row":
            if len(background) != 1:
                raise ValueError(
                    f"strategy='row' needs a background of one row, not {len(background)}: give one row, "
                    "or take strategy='mean' or 'average'"
                )
            return background[0]
        return typical_row(background, structure)


def groups_of(transformer: Any) -> dict[str, list[str]]:
    """Group what a fitted ``ColumnTransformer`` or ``Pipeline`` gives by the columns that it comes from.

    The columns that a ``OneHotEncoder`` makes of one column are one group; a column that is scaled, imputed
    or passed on is a group of its own; what cannot be told apart (principal components, say) is one group for
    each step. A predictor at the end of a pipeline is left out.

    Returns
    -------
    dict
        From the name of a column of the table to the names of the transformed columns, in their order.
    """
    fitted = _transforming(transformer)
    names = names_of(fitted)
    owners = _through(fitted, _names_in(fitted, range(fitted.n_features_in_)), "all")
    groups: dict[str, list[str]] = {}
    for owner, name in zip(owners, names, strict=True):
        groups.setdefault(owner, []).append(name)
    return groups


def names_of(transformer: Any) -> list[str]:
    """The names of the columns that a fitted transformer gives."""
    return [str(name) for name in _transforming(transformer).get_feature_names_out()]


def _transforming(transformer: Any) -> Any:
    """A pipeline without the predictor at its end."""
    if hasattr(transformer, "steps") and hasattr(transformer.steps[-1][1], "predict"):
        transformer = transformer[:-1]
    if not hasattr(transformer, "get_feature_names_out"):
        raise TypeError(
            f"groups must be a dict of columns or a fitted ColumnTransformer or Pipeline, "
            f"not {type(transformer).__name__}"
        )
    return transformer


def _names_in(step: Any, numbers: Iterable[Any]) -> list[str]:
    """The names of the columns that a step was fitted on; their numbers where they had none."""
    return [str(c) for c in getattr(step, "feature_names_in_", numbers)]


def _through(step: Any, owners: list[str], name: str) -> list[str]:
    """Follow the owners of a step's input columns to its output columns."""
    from sklearn.compose import ColumnTransformer
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import OneHotEncoder

    if step is None or step == "passthrough":
        return owners
    if isinstance(step, Pipeline):
        for inner_name, inner in step.steps:
            owners = _through(inner, owners, inner_name)
        return owners
    if isinstance(step, ColumnTransformer):
        return _through_columns(step, owners)
    if isinstance(step, OneHotEncoder):
        return _through_encoder(step, owners)
    places = {c: k for k, c in enumerate(_names_in(step, (f"x{k}" for k in range(len(owners)))))}
    outputs = [str(c) for c in step.get_feature_names_out()]
    if all(c in places for c in outputs):
        return [owners[places[c]] for c in outputs]
    return [name] * len(outputs)


def _through_encoder(encoder: Any, owners: list[str]) -> list[str]:
    """Ask a OneHotEncoder to name each column by its origin."""
    plain = copy.copy(encoder)
    plain.feature_name_combiner = lambda feature, category: feature
    vars(plain).pop("feature_names_in_", None)
    return [owners[int(k)] for k in plain.get_feature_names_out([str(k) for k in range(len(owners))])]


def _through_columns(step: Any, owners: list[str]) -> list[str]:
    """Follow the owners through each transformer of a ColumnTransformer."""
    inputs = _names_in(step, range(len(owners)))
    out = [""] * len(step.get_feature_names_out())
    for name, inner, columns in step.transformers_:
        if isinstance(inner, str) and inner == "drop":
            continue
        chosen = [inputs.index(c) if isinstance(c, str) else int(c) for c in _listed(columns, len(owners))]
        out[step.output_indices_[name]] = _through(inner, [owners[k] for k in chosen], name)
    return out


def _listed(columns: Any, count: int) -> list[Any]:
    """Columns chosen by a name, names, positions, a slice or a boolean mask, as a list."""
    if isinstance(columns, str | int):
        return [columns]
    if isinstance(columns, slice):
        return list(range(count))[columns]
    chosen = list(columns)
    if chosen and all(isinstance(c, bool | np.bool_) for c in chosen):
        return [k for k, on in enumerate(chosen) if on]
    return chosen


def tree_of(groups: Any, columns: list[Any]) -> Structure:
    """The tree of columns, whose leaves keep the order of the columns."""
    leaves = [str(c) for c in columns]
    if groups is None:
        return Structure.flat(leaves)
    repeated = _repeated(leaves)
    if repeated is not None:
        raise ValueError(f"two columns are called {repeated!r}: groups go by name, so give each a name of its own")
    places = {name: j for j, name in enumerate(leaves)}
    try:
        tree = _named(groups, leaves, places)
    except (RecursionError, TypeError):  # a list that holds itself, a sparse array
        raise TypeError(f"groups must be lists of columns, or dicts of them by name; got {groups!r:.100}") from None
    grouped = Structure.from_tree(tree).names[-1]
    repeated = _repeated(grouped)
    if repeated is not None:
        raise ValueError(f"column {repeated!r} is in two groups: put it into one")
    ungrouped = [name for name in leaves if name not in set(grouped)]
    branches = [tree] if isinstance(tree, Mapping) else list(tree)
    whole = Structure.from_tree([*branches, *ungrouped])
    if whole.depth == 1:
        return Structure.flat(leaves)
    order = np.argsort([places[name] for name in whole.names[-1]])
    return Structure((*whole.parents[:-1], whole.parents[-1][order]), (*whole.names[:-1], tuple(leaves)))


def _repeated(names: Sequence[str]) -> str | None:
    """The first name that comes more than once."""
    return next((name for name, times in Counter(names).items() if times > 1), None)


def _named(node: Any, leaves: list[str], places: Mapping[str, int]) -> Any:
    """A tree of groups in which every column goes by its name; it may be given by its position too."""
    if isinstance(node, Mapping):
        return {str(name): _named(child, leaves, places) for name, child in node.items()}
    if not isinstance(node, str) and isinstance(node, Iterable):
        return [_named(child, leaves, places) for child in node]
    if str(node) in places:
        return str(node)
    if isinstance(node, int | np.integer) and 0 <= node < len(leaves):
        return leaves[node]
    raise ValueError(f"the groups name a column {node!r} that the input does not have: {leaves[:20]}")

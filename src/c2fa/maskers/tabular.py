"""Rows of tables: groups of columns, masked by values of a background."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt

from c2fa import views
from c2fa._system import did_you_mean, is_frame, is_missing, is_real, need
from c2fa.asking.masking import Masked
from c2fa.structure import BoolArray, Structure
from c2fa.views.descriptors import category, known_of, own_fields


@dataclass(frozen=True)
class Tabular:
    """Masks a row of a table: its parts are groups of columns, its leaves the columns.

    The input is a DataFrame of one row (of pandas or polars), a Series, a dict or a vector. The model receives a
    DataFrame with the same columns and types for the first two, a list of dicts, or an array (n, columns).

    Parameters
    ----------
    groups
        A dict from part to columns (names or positions), nested to any depth, such as shap's ``partition_tree``. A
        column that no group names is a part of its own. None makes one level, of columns alone.
    background
        What the model is used to see: a DataFrame, an array, or one row, whose columns are the input's.
    names
        The names of the columns where neither the input nor the background has them.
    strategy
        What a masked column becomes. ``"mean"``: what is usual in the background, the mean of measurements (rounded
        for integers), the median of dates, times and periods, and the most frequent value of anything else: texts,
        truth values, and numbers of which there are at most ten, each twice or more on average, because these are
        codes or counts. Columns of one group that are one-hot take their most frequent combination. Empty cells do
        not count. ``"row"``: the value of the one row that the background is. ``"average"``: the values of each of the
        background's rows in turn; the model's outputs are averaged, and the budget counts each of these rows.

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
            baselines = read_background(self.background, columns)
            if self.strategy == "mean":
                baselines = [typical_row(baselines, structure)]
            elif self.strategy == "row" and len(baselines) != 1:
                raise ValueError(
                    f"strategy='row' needs a background of one row, not {len(baselines)}: give one row, "
                    "or take strategy='mean' or 'average'"
                )
            self._baselines[tuple(columns)] = baselines
        is_typed = is_frame(self.background) and kind_of(self.background) == "frame"
        dtypes = self.background.dtypes if is_typed else None
        table = Table(x, columns, values, baselines, dtypes)
        m = len(baselines)

        def inputs(masks: BoolArray, level: int) -> Any:
            leaves = structure.expand(masks, level)
            return table.rows(np.repeat(leaves, m, axis=0), np.tile(np.arange(m), len(leaves)))

        def descriptors() -> dict[str, list[Any]]:
            kinds = _dtypes(x, columns, dtypes) if kind_of(x) == "frame" else [None] * len(columns)
            # Numbers in a categorical column are codes, not quantities.
            facts = [category(v) if str(k) == "category" else known_of(v) for v, k in zip(values, kinds, strict=True)]
            return own_fields([str(c) for c in columns], facts)

        same = tuple(table.at_baseline())
        view = views.Table(tuple(values), same)
        return Masked(structure, inputs, view=view, rows_per_mask=m, descriptors=descriptors, inert=same)


# -- groups ------------------------------------------------------------------------------------------


def tree_of(groups: Any, columns: list[Any]) -> Structure:
    """The tree of the columns, with leaves in the columns' order."""
    leaves = [str(c) for c in columns]
    if groups is None:
        return Structure.flat(leaves)
    for name in _repeated(leaves):
        raise ValueError(f"two columns are called {name!r}: groups go by name, so give each a name of its own")
    places = {name: j for j, name in enumerate(leaves)}
    try:
        tree = _named(groups, leaves, places)
    except (RecursionError, TypeError):  # a list that holds itself, a sparse array
        raise TypeError(f"groups must be lists of columns, or dicts of them by name; got {groups!r:.100}") from None
    grouped = Structure.from_tree(tree).names[-1]
    for name in _repeated(grouped):
        raise ValueError(f"column {name!r} is in two groups: put it into one")
    ungrouped = [name for name in leaves if name not in set(grouped)]
    branches = [tree] if isinstance(tree, Mapping) else list(tree)
    whole = Structure.from_tree([*branches, *ungrouped])
    if whole.depth == 1:
        return Structure.flat(leaves)
    order = np.argsort([places[name] for name in whole.names[-1]])
    return Structure((*whole.parents[:-1], whole.parents[-1][order]), (*whole.names[:-1], tuple(leaves)))


def _repeated(names: Iterable[Any]) -> list[Any]:
    return [name for name, times in Counter(names).items() if times > 1]


def _named(node: Any, leaves: list[str], places: Mapping[str, int]) -> Any:
    """Groups in which each column goes by its name, though the user may have given its position."""
    if isinstance(node, Mapping):
        return {str(name): _named(child, leaves, places) for name, child in node.items()}
    if not isinstance(node, str) and isinstance(node, Iterable):
        return [_named(child, leaves, places) for child in node]
    if str(node) in places:
        return str(node)
    if isinstance(node, int | np.integer) and 0 <= node < len(leaves):
        return leaves[node]
    near = did_you_mean(node, leaves)
    raise ValueError(f"the groups name a column {node!r} that the input does not have: {leaves[:20]}{near}")


# -- rows --------------------------------------------------------------------------------------------


class Table:
    """An input and its baselines; masks make rows of them, in the input's own type."""

    def __init__(
        self, x: Any, columns: list[Any], values: list[Any], baselines: list[list[Any]], dtypes: Any = None
    ) -> None:
        self.columns = columns
        self.kind = kind_of(x)
        if self.kind == "vector":
            own = array_of(x)
            others = np.array(baselines, dtype=object if own.dtype.kind == "O" else None)
            kind = own.dtype if own.dtype.kind == "f" else np.result_type(own, others)
            self.vector, self.baselines = own.astype(kind), others.astype(kind)
            self.pairs: list[Any] = list(np.vstack((self.vector, self.baselines)).T)
            return
        pairs = [[v, *b] for v, b in zip(values, zip(*baselines, strict=True), strict=True)]
        if self.kind == "dict":
            self.pairs = [np.fromiter(pair, dtype=object) for pair in pairs]
        elif self.kind == "polars":
            self.pairs = [_polars(p, k, c) for p, (c, k) in zip(pairs, x.schema.items(), strict=True)]
        else:
            kinds = _dtypes(x, columns, dtypes)
            self.pairs = [_typed(p, k, c) for p, k, c in zip(pairs, kinds, columns, strict=True)]

    def rows(self, leaves: BoolArray, which: npt.NDArray[np.intp]) -> Any:
        """One row for each row of leaves: the input's values where True, elsewhere those of baseline ``which``."""
        if self.kind == "vector":
            return np.where(leaves, self.vector, self.baselines[which])
        at = np.where(leaves, 0, which[:, None] + 1)
        picked = [pair[at[:, j]] for j, pair in enumerate(self.pairs)]
        if self.kind == "dict":
            return [dict(zip(self.columns, row, strict=True)) for row in zip(*picked, strict=True)]
        if self.kind == "polars":
            import polars

            return polars.DataFrame(picked)
        pandas = need("pandas", "tabular")
        # pandas would guess a new type for a column of objects, such as its own type for texts.
        objects = [isinstance(p, np.ndarray) and p.dtype.kind == "O" for p in picked]
        series = (pandas.Series(p, dtype=object) if o else p for p, o in zip(picked, objects, strict=True))
        frame = pandas.DataFrame(dict(enumerate(series)))
        frame.columns = self.columns
        return frame

    def at_baseline(self) -> list[bool]:
        """For each column, whether masking changes nothing, because every baseline has the input's value."""

        def same(a: Any, b: Any) -> bool:
            if is_missing(a) or is_missing(b):
                return is_missing(a) and is_missing(b)
            return bool(np.all(a == b))

        return [all(same(first, other) for other in others) for first, *others in map(list, self.pairs)]


def kind_of(x: Any) -> str:
    """The kind of an input: a "frame" (also a Series) of pandas, a frame of "polars", a "dict" or a "vector"."""
    if hasattr(x, "iloc"):
        return "frame"
    if isinstance(x, Mapping):
        return "dict"
    return "polars" if is_frame(x) and type(x).__module__.startswith("polars.") else "vector"


def _dtypes(x: Any, columns: list[Any], dtypes: Any) -> list[Any]:
    """The types of a frame's columns; a Series of mixed values takes those of the background."""
    if is_frame(x):
        return list(x.dtypes)
    if x.dtype != object:
        return [x.dtype] * len(columns)
    return [None if dtypes is None else dtypes[c] for c in columns]


def read_row(x: Any) -> tuple[list[Any] | None, list[Any]]:
    """The names of an input's columns, None for a vector, and its values."""
    kind = kind_of(x)
    if kind == "dict":
        return list(x), list(x.values())
    if is_frame(x):
        row = "df[i]" if kind == "polars" else "df.iloc[[i]]"
        if len(x) != 1:
            raise ValueError(
                f"the input must be one row of a DataFrame, not {len(x)}: give {row}, or explainer.many(df)"
            )
        values = x.row(0) if kind == "polars" else [x.iloc[0, j] for j in range(x.shape[1])]
        return list(x.columns), list(values)
    if kind == "frame":
        return list(x.index), x.tolist()
    vector = array_of(x)
    if vector.ndim != 1:
        hint = "give x[0]" if vector.shape[:1] == (1,) else "explainer.many(rows) explains each of several"
        raise ValueError(f"the input must be one row, (columns,); got an array of shape {vector.shape}: {hint}")
    return None, vector.tolist()


def array_of(x: Any) -> npt.NDArray[Any]:
    """A row, or rows, as an array; numbers beside texts stay numbers, and sparse arrays become dense."""
    if hasattr(x, "toarray"):
        dense = np.asarray(x.toarray())
        return dense[0] if len(dense) == 1 else dense
    array = np.asarray(x)
    return np.asarray(x, dtype=object) if array.dtype.kind in "US" and isinstance(x, list | tuple) else array


# -- the background ----------------------------------------------------------------------------------


def read_background(background: Any, columns: list[Any]) -> list[list[Any]]:
    """The background as rows of plain values, in the order of the input's columns."""
    if isinstance(background, Mapping):
        background = [background]
    if isinstance(background, Sequence) and background and isinstance(background[0], Mapping):
        _require_columns(columns, {c for c in columns if all(c in record for record in background)})
        rows = [[record[c] for c in columns] for record in background]
    elif kind_of(background) in ("frame", "polars"):
        frame = background if is_frame(background) else background.to_frame().T
        for name in _repeated(frame.columns):
            raise ValueError(f"the background has two columns {name!r}")
        _require_columns(columns, set(frame.columns))
        rows = [list(row) for row in zip(*(frame[c].to_list() for c in columns), strict=True)]
    else:
        array = array_of(background)
        array = array[None] if array.ndim == 1 else array
        if array.ndim != 2 or array.shape[1] != len(columns):
            raise ValueError(f"the background has shape {array.shape}; it must be (rows, {len(columns)}) as the input")
        # tolist() would turn dates in nanoseconds into whole numbers.
        rows = [list(row) for row in array] if array.dtype.kind in "mM" else array.tolist()
    if not rows:
        raise ValueError("the background has no rows: give at least one")
    return rows


def _require_columns(columns: list[Any], there: set[Any]) -> None:
    for column in columns:
        if column not in there:
            raise ValueError(f"the background has no column {column!r}; it must have the input's columns")


def typical_row(background: list[list[Any]], structure: Structure) -> list[Any]:
    """The typical value of each column; one-hot columns of a part are taken together.

    One by one, the columns of three colours could all be 0 most often, which is no colour.
    """
    columns = list(zip(*background, strict=True))
    row = [typical(column) for column in columns]
    if structure.depth == 1:
        return row
    parents = structure.parents[-1]
    for part in range(structure.widths[-2]):
        own = np.flatnonzero(parents == part).tolist()
        combinations = list(zip(*(columns[j] for j in own), strict=True))
        array = np.asarray(combinations)
        if len(own) == 1 or len(array) < 2 or array.dtype.kind not in "biuf":
            continue
        if np.isin(array, (0, 1)).all() and (array.sum(axis=1) <= 1).all():  # they are one-hot
            for j, value in zip(own, _most_frequent(combinations), strict=True):
                row[j] = value
    return row


def typical(column: Sequence[Any]) -> Any:
    """The typical value of a column: the mean of measurements, the median of dates, else the most frequent value.

    Numbers are measurements if more than a few are different, or hardly any comes twice. Empty cells do not count.

    >>> typical([1, None, 4]), typical(["b", "a", "b", float("nan"), float("nan"), float("nan")])
    (2.5, 'b')
    >>> typical([1.0, 2.0, 1.0, 1.0]), typical([date(2020, 1, 1), date(2021, 5, 1), date(2024, 1, 1)])
    (1.0, datetime.date(2021, 5, 1))
    """
    times = (date, timedelta, np.datetime64, np.timedelta64)
    array = np.asarray(column)
    is_numeric = array.dtype.kind in "iuf"  # spares a large background a look at each value
    values = array[~np.isnan(array)].tolist() if is_numeric else [v for v in column if not is_missing(v)]
    if not values:
        return column[0]
    if is_numeric or all(map(is_real, values)):
        # Ten numbers or fewer, often repeated, are codes or counts, whose mean may be no value that the model knows.
        different = len(set(values))
        if different > 10 or 2 * different > len(values):
            return float(np.mean(values))
    elif all(isinstance(v, times) or type(v).__name__ == "Period" for v in values):  # of any library
        try:
            return sorted(values)[(len(values) - 1) // 2]  # a date that occurs, with its time zone
        except TypeError:  # only some of them have a time zone
            pass
    return _most_frequent(values)


def _most_frequent(values: Sequence[Any]) -> Any:
    """The most frequent value; of equally frequent ones, the first as a text."""
    counts = Counter(map(str, values))
    winner = min(counts, key=lambda text: (-counts[text], text))
    return next(v for v in values if str(v) == winner)


def _typed(values: list[Any], kind: Any, column: Any) -> Any:
    """A column as a pandas array of the type that the input has."""
    pandas = need("pandas", "tabular")
    if kind is None:
        return pandas.Series(values).array
    if isinstance(kind, pandas.CategoricalDtype):
        unknown = next((v for v in values if not is_missing(v) and v not in kind.categories), None)
        if unknown is not None:
            raise ValueError(
                f"the background has {unknown!r} in column {column!r}, which is no category of the input's"
            )
        return pandas.Categorical(values, dtype=kind)
    if pandas.api.types.is_integer_dtype(kind):
        if isinstance(kind, np.dtype) and any(map(is_missing, values)):
            raise ValueError(
                f"the background has an empty cell in column {column!r}, which holds whole numbers in the input: "
                "make it a column of real numbers, or fill the cell"
            )
        values = [v if is_missing(v) else round(v) for v in values]
    plain = isinstance(kind, np.dtype) and kind.kind not in "mM"  # numpy does not know pandas' NaT
    return np.array(values, dtype=kind) if plain else pandas.array(values, dtype=kind)


def _polars(values: list[Any], kind: Any, column: str) -> Any:
    """A column as a polars Series of the type that the input has."""
    import polars

    if kind.is_integer():
        values = [v if is_missing(v) else round(v) for v in values]
    return polars.Series(column, values, dtype=kind, strict=False)

"""A row of a table and its baselines, column by column."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Sized
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from c2fa._system import is_frame, is_missing, need
from c2fa.structure import BoolArray, Structure


class Table:
    """The input and its baselines, and the rows that masks make of them, in the type that came in."""

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
            return
        pairs = [[v, *b] for v, b in zip(values, zip(*baselines, strict=True), strict=True)]
        if self.kind == "dict":
            self.pairs: list[Any] = [_objects(pair) for pair in pairs]
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
        # Without a type of its own a column of objects would be guessed anew, and texts become another type.
        own = [isinstance(p, np.ndarray) and p.dtype.kind == "O" for p in picked]
        kept = (pandas.Series(p, dtype=object) if o else p for p, o in zip(picked, own, strict=True))
        frame = pandas.DataFrame(dict(enumerate(kept)))
        frame.columns = self.columns
        return frame

    def at_baseline(self) -> list[bool]:
        """Of each column, whether masking it changes nothing: every baseline has the value of the input."""
        if self.kind == "vector":
            stacks: list[Any] = list(np.vstack((self.vector, self.baselines)).T)
        else:
            stacks = self.pairs
        same = []
        for first, *others in map(list, stacks):
            if is_missing(first):
                same.append(all(map(is_missing, others)))
            else:
                same.append(all(not is_missing(value) and bool(np.all(value == first)) for value in others))
        return same


def kind_of(x: Any) -> str:
    """What an input is: a "frame" or a Series of pandas, a frame of "polars", a "dict" or a "vector"."""
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


def described(x: Any, columns: list[Any], values: list[Any], dtypes: Any) -> list[str | float | None]:
    """What is known of each cell of a row: a number or a category; None of a text too long to come again."""
    categorical = [False] * len(values)
    if kind_of(x) == "frame":
        categorical = [hasattr(kind, "categories") for kind in _dtypes(x, columns, dtypes)]
    return [_category(v) if c else known_of(v) for v, c in zip(values, categorical, strict=True)]


def known_of(value: Any) -> str | float | None:
    """A cell as a number or a category; times are days.

    >>> [known_of(v) for v in (3, True, "Rome", None, date(1970, 1, 3), timedelta(hours=12), [1, 2])]
    [3.0, 'True', 'Rome', 'missing', 2.0, 0.5, None]
    """
    value = value.item() if isinstance(value, np.generic) else value
    if is_missing(value) or isinstance(value, bool):
        return _category(value)
    if isinstance(value, Real | Decimal):
        return float(value)
    if isinstance(value, timedelta):
        return value / timedelta(days=1)
    if isinstance(value, datetime):
        own = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
        return (own - datetime(1970, 1, 1)) / timedelta(days=1)
    if isinstance(value, date):
        return float(value.toordinal() - date(1970, 1, 1).toordinal())
    return _category(value)


def _category(value: Any) -> str | None:
    if is_missing(value):
        return "missing"
    text = str(value)
    is_one = isinstance(value, str) or not isinstance(value, Sized)  # and no list or array
    return text if is_one and len(text) <= 100 else None  # a longer text hardly comes twice


def read_row(x: Any) -> tuple[list[Any] | None, list[Any]]:
    """The names and values of a row."""
    kind = kind_of(x)
    if kind == "dict":
        return list(x), list(x.values())
    if kind == "polars":
        if len(x) != 1:
            raise ValueError(
                f"the input must be one row of a DataFrame, not {len(x)}: give df[i], or explainer.many(df)"
            )
        return list(x.columns), list(x.row(0))
    if kind == "frame":
        if is_frame(x):
            if len(x) != 1:
                raise ValueError(
                    f"the input must be one row of a DataFrame, not {len(x)}: give df.iloc[[i]], or explainer.many(df)"
                )
            return list(x.columns), [x.iloc[0, j] for j in range(x.shape[1])]
        return list(x.index), x.tolist()
    vector = array_of(x)
    if vector.ndim != 1:
        hint = "give x[0]" if vector.shape[:1] == (1,) else "explainer.many(rows) explains each of several"
        raise ValueError(f"the input must be one row, (columns,); got an array of shape {vector.shape}: {hint}")
    return None, vector.tolist()


def array_of(x: Any) -> npt.NDArray[Any]:
    """A row, or rows, as an array; numbers beside texts stay numbers, and what is sparse is written out."""
    if hasattr(x, "toarray"):
        full = np.asarray(x.toarray())
        return full[0] if len(full) == 1 else full
    array = np.asarray(x)
    return np.asarray(x, dtype=object) if array.dtype.kind in "US" and isinstance(x, list | tuple) else array


def read_background(background: Any, columns: list[Any]) -> list[list[Any]]:
    """The background as rows of plain values, in the order of the input's columns."""
    if isinstance(background, Mapping):
        background = [background]
    if isinstance(background, Sequence) and background and isinstance(background[0], Mapping):
        _require_columns(columns, lambda c: all(c in record for record in background))
        rows = [[record[c] for c in columns] for record in background]
    elif kind_of(background) == "frame":
        frame = background if is_frame(background) else background.to_frame().T
        if not frame.columns.is_unique:
            raise ValueError(f"the background has two columns {frame.columns[frame.columns.duplicated()][0]!r}")
        _require_columns(columns, lambda c: c in frame.columns)
        rows = [list(row) for row in zip(*(frame[c].tolist() for c in columns), strict=True)]
    elif kind_of(background) == "polars":
        _require_columns(columns, lambda c: c in background.columns)
        rows = [list(row) for row in background.select(columns).rows()]
    else:
        array = array_of(background)
        array = array[None] if array.ndim == 1 else array
        if array.ndim != 2 or array.shape[1] != len(columns):
            raise ValueError(f"the background has shape {array.shape}; it must be (rows, {len(columns)}) as the input")
        # As lists, dates in nanoseconds would be whole numbers.
        rows = [list(row) for row in array] if array.dtype.kind in "mM" else array.tolist()
    if not rows:
        raise ValueError("the background has no rows: give at least one")
    return rows


def _require_columns(columns: list[Any], has: Callable[[Any], bool]) -> None:
    for column in columns:
        if not has(column):
            raise ValueError(f"the background has no column {column!r}; it must have the input's columns")


def typical_row(background: list[list[Any]], structure: Structure) -> list[Any]:
    """What is usual in each column, and in one-hot columns of one part together.

    One by one, the columns of three colours could all be most often 0, which is no colour.
    """
    columns = list(zip(*background, strict=True))
    row = [typical(column) for column in columns]
    if structure.depth == 1:
        return row
    parents = structure.parents[-1]
    for part in range(structure.widths[-2]):
        own = np.flatnonzero(parents == part).tolist()
        combinations = list(zip(*(columns[j] for j in own), strict=True))
        if len(own) > 1 and _one_hot(combinations):
            for j, value in zip(own, _most_frequent(combinations), strict=True):
                row[j] = value
    return row


def _one_hot(combinations: list[tuple[Any, ...]]) -> bool:
    """Whether columns hold 0 and 1, with no more than one 1 in a row."""
    array = np.asarray(combinations)
    if array.dtype.kind not in "biuf" or len(combinations) < 2:
        return False
    return bool(np.isin(array, (0, 1)).all() and (array.sum(axis=1) <= 1).all())


def typical(column: Sequence[Any]) -> Any:
    """What is usual in a column: the mean of measurements, the median of dates, else the most frequent value.

    Numbers are measurements where there are more than a few different ones, or hardly any comes twice. What is missing
    does not count.

    >>> typical([1, None, 4]), typical(["b", "a", "b", float("nan"), float("nan"), float("nan")])
    (2.5, 'b')
    >>> typical([1.0, 2.0, 1.0, 1.0]), typical([date(2020, 1, 1), date(2021, 5, 1), date(2024, 1, 1)])
    (1.0, datetime.date(2021, 5, 1))
    """
    times = (date, timedelta, np.datetime64, np.timedelta64)
    array = np.asarray(column)
    numbers = array.dtype.kind in "iuf"  # told at once, since a background may be large
    known = array[~np.isnan(array)].tolist() if numbers else [v for v in column if not is_missing(v)]
    if not known:
        return column[0]
    if numbers or all(
        isinstance(v, int | float | np.number) and not isinstance(v, bool | np.timedelta64) for v in known
    ):
        # A column of no more than ten numbers holds codes or counts, whose mean may be no value that the model knows.
        different = len(set(known))
        if different > 10 or 2 * different > len(known):
            return float(np.mean(known))
    elif all(isinstance(v, times) or type(v).__name__ == "Period" for v in known):  # of any library
        try:
            return sorted(known)[(len(known) - 1) // 2]  # a date that occurs, with its time zone
        except TypeError:  # some of them have a time zone and others none
            pass
    return _most_frequent(known)


def _most_frequent(known: Sequence[Any]) -> Any:
    """The most frequent value, the smallest text of those that are equally frequent."""
    counts = Counter(map(str, known))
    wanted = min(counts, key=lambda text: (-counts[text], text))
    return next(v for v in known if str(v) == wanted)


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


def _objects(values: list[Any]) -> npt.NDArray[Any]:
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return out

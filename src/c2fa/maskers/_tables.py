"""A row of a table and its baselines, column by column."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from c2fa.extras import is_missing, need
from c2fa.structure import BoolArray


class Table:
    """The input and its baselines, and the rows that masks make of them, in the type that came in."""

    def __init__(
        self, x: Any, columns: list[Any], values: list[Any], baselines: list[list[Any]], dtypes: Any = None
    ) -> None:
        self.columns = columns
        self.framed = hasattr(x, "iloc")
        self.mapped = isinstance(x, Mapping)
        if not self.framed and not self.mapped:
            own = array_of(x)
            others = np.array(baselines, dtype=object if own.dtype.kind == "O" else None)
            kind = own.dtype if own.dtype.kind == "f" else np.result_type(own, others)
            self.vector, self.baselines = own.astype(kind), others.astype(kind)
            return
        pairs = [[v, *b] for v, b in zip(values, zip(*baselines, strict=True), strict=True)]
        if self.mapped:
            self.pairs: list[Any] = [_objects(pair) for pair in pairs]
        else:
            kinds = _dtypes(x, columns, dtypes)
            self.pairs = [_typed(p, k, c) for p, k, c in zip(pairs, kinds, columns, strict=True)]

    def rows(self, leaves: BoolArray, which: npt.NDArray[np.intp]) -> Any:
        """One row for each row of leaves: the input's values where True, elsewhere those of baseline ``which``."""
        if not self.framed and not self.mapped:
            return np.where(leaves, self.vector, self.baselines[which])
        at = np.where(leaves, 0, which[:, None] + 1)
        picked = [pair[at[:, j]] for j, pair in enumerate(self.pairs)]
        if self.mapped:
            return [dict(zip(self.columns, row, strict=True)) for row in zip(*picked, strict=True)]
        pandas = need("pandas", "tabular")
        # Without a type of its own a column of objects would be guessed anew, and texts become another type.
        own = [isinstance(p, np.ndarray) and p.dtype.kind == "O" for p in picked]
        kept = (pandas.Series(p, dtype=object) if o else p for p, o in zip(picked, own, strict=True))
        frame = pandas.DataFrame(dict(enumerate(kept)))
        frame.columns = self.columns
        return frame


def _dtypes(x: Any, columns: list[Any], dtypes: Any) -> list[Any]:
    """The types of a frame's columns; a Series of mixed values takes those of the background."""
    if hasattr(x, "columns"):
        return list(x.dtypes)
    if x.dtype != object:
        return [x.dtype] * len(columns)
    return [dtypes[c] if hasattr(dtypes, "index") else None for c in columns]


def read_row(x: Any) -> tuple[list[Any] | None, list[Any]]:
    """The names and values of a row."""
    if isinstance(x, Mapping):
        return list(x), list(x.values())
    if hasattr(x, "iloc"):
        if hasattr(x, "columns"):
            if len(x) != 1:
                raise ValueError(f"the input must be one row of a DataFrame, not {len(x)}: give df.iloc[[i]]")
            return list(x.columns), [x.iloc[0, j] for j in range(x.shape[1])]
        return list(x.index), x.tolist()
    vector = array_of(x)
    if vector.ndim != 1:
        hint = ": give x[0]" if vector.shape[:1] == (1,) else ""
        raise ValueError(f"the input must be one row, (columns,); got an array of shape {vector.shape}{hint}")
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
    elif hasattr(background, "iloc"):
        rows = _frame_rows(background, columns)
    else:
        rows = _array_rows(background, len(columns))
    if not rows:
        raise ValueError("the background has no rows: give at least one")
    return rows


def _frame_rows(background: Any, columns: list[Any]) -> list[list[Any]]:
    frame = background if hasattr(background, "columns") else background.to_frame().T
    if not frame.columns.is_unique:
        raise ValueError(f"the background has two columns {frame.columns[frame.columns.duplicated()][0]!r}")
    _require_columns(columns, lambda c: c in frame.columns)
    return [list(row) for row in zip(*(frame[c].tolist() for c in columns), strict=True)]


def _array_rows(background: Any, width: int) -> list[list[Any]]:
    array = array_of(background)
    array = array[None] if array.ndim == 1 else array
    if array.ndim != 2 or array.shape[1] != width:
        raise ValueError(f"the background has shape {array.shape}; it must be (rows, {width}) as the input")
    rows: list[list[Any]] = array.tolist()
    return rows


def _require_columns(columns: list[Any], has: Callable[[Any], bool]) -> None:
    for column in columns:
        if not has(column):
            raise ValueError(f"the background has no column {column!r}; it must have the input's columns")


def typical(column: Sequence[Any]) -> Any:
    """The mean of numbers, the most frequent value of anything else; what is missing does not count.

    >>> typical([1, None, 4]), typical(["b", "a", "b", float("nan"), float("nan"), float("nan")])
    (2.5, 'b')
    """
    array = np.asarray(column)
    if array.dtype.kind in "iuf" and not np.isnan(array).all():
        return float(np.nanmean(array))
    known = [v for v in column if not is_missing(v)]
    if not known:
        return column[0]
    if all(isinstance(v, int | float | np.number) and not isinstance(v, bool) for v in known):
        return float(np.mean(known))
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
    return np.array(values, dtype=kind) if isinstance(kind, np.dtype) else pandas.array(values, dtype=kind)


def _objects(values: list[Any]) -> npt.NDArray[Any]:
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return out

"""An ONNX model in an ONNX Runtime session."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime

from c2fa._system import host_array, is_frame

_TYPES = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(uint8)": np.uint8,
    "tensor(bool)": np.bool_,
    "tensor(string)": np.object_,
}


class Onnx:
    """An ONNX model: arrays or texts in, or a frame where it has an input for each column.

    Parameters
    ----------
    session
        A path to an ``.onnx`` file, or an ``onnxruntime.InferenceSession``.
    output
        The name of the output to read; where there are several, the one of real numbers unless given.
    output_names
        The names of the output's columns, such as classes.
    batch
        The most rows in one run; a model made for a fixed number of rows is given just that many.
    providers
        ONNX Runtime's execution providers for a path, such as ``["CUDAExecutionProvider"]``.
    """

    def __init__(
        self,
        session: str | os.PathLike[str] | onnxruntime.InferenceSession,
        *,
        output: str | None = None,
        output_names: Sequence[str] = (),
        batch: int = 1024,
        providers: Sequence[str] | None = None,
    ) -> None:
        if isinstance(session, str | os.PathLike):
            if not Path(session).is_file():
                raise ValueError(f"there is no ONNX file {os.fspath(session)!r}")
            providers = list(providers or ["CPUExecutionProvider"])
            session = onnxruntime.InferenceSession(os.fspath(session), providers=providers)
        if not hasattr(session, "get_inputs"):
            raise TypeError(f"session must be a path or an InferenceSession, not {type(session).__name__}")
        if batch < 1:
            raise ValueError(f"batch must be at least 1, not {batch}")
        self.session = session
        self.output = _output_of(session, output)
        self.output_names = tuple(output_names)
        sizes = {i.shape[0] for i in session.get_inputs() if i.shape and isinstance(i.shape[0], int)}
        self._fixed = sizes.pop() if len(sizes) == 1 else None  # the number of rows that the model is made for
        self.batch = self._fixed or batch

    @property
    def name(self) -> str:
        """The hash of the file that the session was made from."""
        path, data = getattr(self.session, "_model_path", None), getattr(self.session, "_model_bytes", None)
        if path:
            data = Path(path).read_bytes()
        if not data:
            return f"onnx:{self.output}"
        return f"onnx:{hashlib.sha256(data).hexdigest()[:32]}:{self.output}"

    def __repr__(self) -> str:
        return f"Onnx(output={self.output!r})"

    def __call__(self, batch: Any) -> npt.NDArray[np.float64]:
        inputs = self.session.get_inputs()
        if is_frame(batch) and {i.name for i in inputs} <= {str(c) for c in batch.columns}:
            feeds = {i.name: _cast(batch[i.name].to_numpy().reshape(-1, 1), i) for i in inputs}
        elif len(inputs) == 1:
            array = host_array(batch)
            if array.ndim == 1 and len(inputs[0].shape) == 2:
                array = array.reshape(-1, 1)
            feeds = {inputs[0].name: _cast(array, inputs[0])}
        else:
            names = [i.name for i in inputs]
            raise ValueError(f"the model has {len(inputs)} inputs, {names}; give a frame with a column for each")
        rows = len(next(iter(feeds.values())))
        if rows == 0:
            raise ValueError("the batch is empty; an ONNX session needs at least one row")
        starts = range(0, rows, self.batch)
        return np.concatenate([self._run(feeds, start, min(start + self.batch, rows)) for start in starts])

    def _run(self, feeds: Mapping[str, npt.NDArray[Any]], start: int, stop: int) -> npt.NDArray[np.float64]:
        part = {name: array[start:stop] for name, array in feeds.items()}
        if self._fixed is not None and stop - start < self._fixed:
            part = {name: a[np.arange(self._fixed) % len(a)] for name, a in part.items()}
        (outputs,) = self.session.run([self.output], part)
        if isinstance(outputs, list) and outputs and isinstance(outputs[0], Mapping):  # scikit-learn's ZipMap
            self.output_names = self.output_names or tuple(map(str, outputs[0]))
            outputs = [[row[k] for k in outputs[0]] for row in outputs]
        array = np.asarray(outputs, dtype=np.float64)[: stop - start]
        return array if array.ndim == 1 else array.reshape(len(array), -1)


def _cast(array: npt.NDArray[Any], wanted: Any) -> npt.NDArray[Any]:
    dtype = _TYPES.get(wanted.type)
    if dtype is None:
        raise ValueError(f"the input {wanted.name!r} is {wanted.type}, which cannot be made from an array")
    try:
        return array.astype(dtype)
    except (TypeError, ValueError):
        raise ValueError(f"the input {wanted.name!r} is {wanted.type}; rows of {array.dtype} do not fit") from None


def _output_of(session: Any, output: str | None) -> str:
    """Return the name of the output to read: the given one, the only one, or the only one of real numbers."""
    outputs = session.get_outputs()
    names = [o.name for o in outputs]
    if output is not None and output not in names:
        raise ValueError(f"the model has no output {output!r}; it has {names}")
    if output is not None:
        return output
    real = [o.name for o in outputs if any(t in o.type for t in ("float", "double"))]
    candidates = names if len(names) == 1 else real
    if len(candidates) != 1:
        raise ValueError(f"the model has several outputs, {names}; pass output='...' with one of them")
    return str(candidates[0])

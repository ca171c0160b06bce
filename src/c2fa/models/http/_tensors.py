"""Tensors of the Open Inference Protocol: JSON, and the binary extension where a server has it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from c2fa.models.http._rows import jsonable
from c2fa.models.http._send import Reply, Request

_DTYPES = {
    "BOOL": "?", "UINT8": "u1", "UINT16": "u2", "UINT32": "u4", "UINT64": "u8", "INT8": "i1", "INT16": "i2",
    "INT32": "i4", "INT64": "i8", "FP16": "f2", "FP32": "f4", "FP64": "f8",
}  # fmt: skip
_NAMES = {np.dtype(code): name for name, code in _DTYPES.items()}
_LENGTH = "inference-header-content-length"


def tensor(name: str, array: npt.NDArray[Any], datatype: str | None) -> tuple[dict[str, Any], bytes]:
    """Return a tensor's description and its bytes, little-endian and row by row; texts are BYTES.

    >>> tensor("x", np.array([[1.5]]), "FP32")
    ({'name': 'x', 'shape': [1, 1], 'datatype': 'FP32'}, b'\\x00\\x00\\xc0?')
    >>> tensor("x", np.array(["né"]), None)[1]
    b'\\x03\\x00\\x00\\x00n\\xc3\\xa9'
    """
    head: dict[str, Any] = {"name": name, "shape": list(array.shape)}
    if array.dtype.kind in "UO":
        texts = [("" if text is None else str(text)).encode() for text in array.flat]
        return head | {"datatype": "BYTES"}, b"".join(len(t).to_bytes(4, "little") + t for t in texts)
    datatype = datatype if datatype in _DTYPES else _NAMES.get(array.dtype, "FP64")
    data = np.ascontiguousarray(array, dtype=np.dtype(_DTYPES[datatype]).newbyteorder("<"))
    return head | {"datatype": datatype}, data.tobytes()


def encode(
    path: str,
    arrays: Sequence[tuple[str, npt.NDArray[Any], str | None]],
    outputs: Sequence[str],
    binary: bool,
    parameters: Mapping[str, Any],
) -> Request:
    """Return the request for these tensors."""
    inputs, blobs = [], []
    for name, array, datatype in arrays:
        head, blob = tensor(name, array, datatype)
        inputs.append(head)
        is_text = head["datatype"] == "BYTES"
        if binary:
            head["parameters"] = {"binary_data_size": len(blob)}
            blobs.append(blob)
            continue
        typed = array if is_text else array.astype(_DTYPES[head["datatype"]], copy=False)
        head["data"] = jsonable(typed.ravel())
        if is_text and parameters:
            head["parameters"] = {"content_type": "str"}
    body: dict[str, Any] = {"inputs": inputs}
    wanted = {"parameters": {"binary_data": True}} if binary else {}
    if outputs:
        body["outputs"] = [{"name": name, **wanted} for name in outputs]
    if parameters or (binary and not outputs):
        body["parameters"] = dict(parameters) | ({"binary_data_output": True} if binary else {})
    text = json.dumps(body).encode()
    if not binary:
        return Request(path, text)
    headers = {_LENGTH: str(len(text)), "content-type": "application/octet-stream"}
    return Request(path, text + b"".join(blobs), headers)


def decode(reply: Reply) -> dict[str, npt.NDArray[Any]]:
    """Return the outputs of a reply by name."""
    length, data, at = reply.headers.get(_LENGTH), reply.data, 0
    if length is not None:
        at, data = int(length), json.loads(reply.body[: int(length)])
    if not isinstance(data, Mapping) or not isinstance(data.get("outputs"), list):
        raise ValueError("the answer has no list of outputs; is this an Open Inference Protocol server?")
    arrays: dict[str, npt.NDArray[Any]] = {}
    for output in data["outputs"]:
        name, shape, datatype = output["name"], output["shape"], output["datatype"]
        if datatype not in _DTYPES:
            raise ValueError(
                f"the output {name!r} is {datatype}, not numbers; pass output='...' with one that is "
                "(MLServer's scikit-learn runtime has output='predict_proba')"
            )
        size = output.get("parameters", {}).get("binary_data_size")
        if size is not None:
            array = np.frombuffer(reply.body[at : at + size], dtype=np.dtype(_DTYPES[datatype]).newbyteorder("<"))
            at += size
        else:
            array = np.asarray(output["data"], dtype=np.float64)
        if array.size != int(np.prod(shape)):
            raise ValueError(f"the output {name!r} has {array.size} values for its shape {shape}")
        arrays[name] = array.reshape(shape)
    return arrays

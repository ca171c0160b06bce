"""Models behind servers of the Open Inference Protocol v2 (KServe, Triton, MLServer, OpenVINO) and of MLflow."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from c2fa.models.http._send import EndpointError, Portal, Reply, Request, WireRows, jsonable, send
from c2fa.models.http._settings import check_url
from c2fa.models.http.endpoint import Endpoint, Floats

_DTYPES = {
    "BOOL": "?", "UINT8": "u1", "UINT16": "u2", "UINT32": "u4", "UINT64": "u8", "INT8": "i1", "INT16": "i2",
    "INT32": "i4", "INT64": "i8", "FP16": "f2", "FP32": "f4", "FP64": "f8",
}  # fmt: skip


class OpenInference(Endpoint):
    """A model served under ``<url>/v2/models/<model>``.

    Texts go as a BYTES tensor, arrays as one tensor, and a frame as one tensor for each column. Names and
    types of the inputs come from the server's own description of the model. Tensors go as JSON.

    Parameters
    ----------
    url
        The server's address, up to but without ``/v2``.
    model, version
        The model's name, and its version where the server keeps several.
    input
        The name of the input, where the server does not describe it.
    output
        The name of the output to read, where there are several.
    output_names
        The names of the output's columns, such as classes.
    **settings
        Any of `c2fa.models.http.endpoint.Settings`.
    """

    kind = "oip"

    def __init__(
        self,
        url: str,
        model: str,
        *,
        version: str | None = None,
        input: str | None = None,
        output: str | None = None,
        output_names: Sequence[str] = (),
        **settings: Any,
    ) -> None:
        super().__init__(url, output_names, **settings)
        if not model:
            raise ValueError("model must be the name of a model on the server, not an empty string")
        self.model, self.version, self.input, self.output = model, version, input, output
        self._path = f"/v2/models/{quote(model, safe='')}"
        if version is not None:
            self._path += f"/versions/{quote(str(version), safe='')}"
        self._inputs: dict[str, dict[str, Any]] = {}
        self._is_mlserver = False

    @property
    def name(self) -> str:
        return f"{self.kind}:{self.url}{self._path}"

    async def connect(self, portal: Portal) -> None:
        server = await self._describe(portal, "/v2")
        self._is_mlserver = "mlserver" in str(server.get("name", "")).lower()
        model = await self._describe(portal, self._path)
        self._inputs = {i["name"]: i for i in model.get("inputs") or []}

    async def _describe(self, portal: Portal, path: str) -> Mapping[str, Any]:
        what = f"{self!r}, connecting to {path}"
        try:
            reply = await send(portal, Request(path), what)
        except EndpointError as error:
            # A gateway may hide descriptions; the first row then shows whether the model is there.
            if error.status in (404, 405):
                return {}
            raise
        return reply.data if isinstance(reply.data, Mapping) else {}

    def request(self, rows: WireRows) -> Request:
        parameters: dict[str, Any] = {}
        if rows.columns is not None:
            arrays = {k: _column(v) for k, v in rows.columns.items()}
            parameters = {"content_type": "pd"} if self._is_mlserver else {}
        else:
            name = self.input or next(iter(self._inputs), "input")
            texts = rows.texts
            array: npt.NDArray[Any] = np.asarray(texts, dtype=object) if texts is not None else rows.array  # type: ignore[assignment]
            if texts is not None and len(self._inputs.get(name, {}).get("shape", [1])) == 2:
                array = array.reshape(-1, 1)
            arrays = {name: array}
            parameters = {"content_type": "str"} if self._is_mlserver and texts is not None else {}
        inputs = []
        for name, array in arrays.items():
            inputs.append(tensor(name, array, self._inputs.get(name, {}).get("datatype")))
            if inputs[-1]["datatype"] == "BYTES" and parameters:
                inputs[-1]["parameters"] = {"content_type": "str"}
        body: dict[str, Any] = {"inputs": inputs}
        if self.output is not None:
            body["outputs"] = [{"name": self.output}]
        if parameters:
            body["parameters"] = parameters
        return Request(f"{self._path}/infer", json.dumps(body).encode())

    def answer(self, reply: Reply, rows: WireRows) -> Floats:
        data = reply.data
        if not isinstance(data, Mapping) or not isinstance(data.get("outputs"), list):
            raise ValueError("the answer has no list of outputs; is this an Open Inference Protocol server?")
        outputs: dict[str, npt.NDArray[Any]] = {}
        for each in data["outputs"]:
            name, shape, datatype = each["name"], each["shape"], each["datatype"]
            if datatype not in _DTYPES:
                raise ValueError(
                    f"the output {name!r} is {datatype}, not numbers; pass output='...' with one that is "
                    "(MLServer's scikit-learn runtime has output='predict_proba')"
                )
            array = np.asarray(each["data"], dtype=np.float64)
            if array.size != int(np.prod(shape)):
                raise ValueError(f"the output {name!r} has {array.size} values for its shape {shape}")
            outputs[name] = array.reshape(shape)
        if self.output is None and len(outputs) > 1:
            raise ValueError(f"the model has several outputs, {sorted(outputs)}; pass output='...' with one of them")
        if not outputs or (self.output is not None and self.output not in outputs):
            raise ValueError(f"the model has no output {self.output!r}; it has {sorted(outputs)}")
        output = outputs[self.output] if self.output is not None else next(iter(outputs.values()))
        return output.reshape(len(output), -1) if output.ndim else output


def _column(values: Sequence[Any]) -> npt.NDArray[Any]:
    """Return a column as a tensor of shape (n, 1); a missing number is NaN."""
    if all(v is None or isinstance(v, int | float) for v in values) and None in values:
        return np.asarray([np.nan if v is None else v for v in values]).reshape(-1, 1)
    array = np.asarray(values)
    return (array if array.dtype.kind in "biuf" else np.asarray(values, dtype=object)).reshape(-1, 1)


def tensor(name: str, array: npt.NDArray[Any], datatype: str | None) -> dict[str, Any]:
    """Return a tensor in the protocol's JSON, row by row; texts are BYTES.

    >>> tensor("x", np.array([[1.5]]), "FP32")
    {'name': 'x', 'shape': [1, 1], 'datatype': 'FP32', 'data': [1.5]}
    """
    if array.dtype.kind in "UO":
        datatype = "BYTES"
    else:
        if datatype not in _DTYPES:
            datatype = next((name for name, code in _DTYPES.items() if np.dtype(code) == array.dtype), "FP64")
        array = array.astype(_DTYPES[datatype], copy=False)
    return {"name": name, "shape": list(array.shape), "datatype": datatype, "data": jsonable(array.ravel())}


class MLflow(Endpoint):
    """A model served under ``<url>/invocations``.

    A frame goes as ``dataframe_split``, an array or texts as ``inputs``. The model must return numbers:
    log a scikit-learn classifier with ``pyfunc_predict_fn="predict_proba"``.

    Parameters
    ----------
    url
        The server's address, without ``/invocations``.
    column
        The name of the column for texts, where the model wants a frame.
    params
        Parameters of the model's signature, sent with each request.
    output_names
        The names of the output's columns; taken from the answer where it names them.
    **settings
        Any of `c2fa.models.http.endpoint.Settings`.
    """

    kind = "mlflow"

    def __init__(
        self,
        url: str,
        *,
        column: str | None = None,
        params: Mapping[str, Any] | None = None,
        output_names: Sequence[str] = (),
        **settings: Any,
    ) -> None:
        super().__init__(check_url(url).removesuffix("/invocations"), output_names, **settings)
        self.column, self.params = column, dict(params or {})

    def request(self, rows: WireRows) -> Request:
        body: dict[str, Any]
        columns = rows.columns
        if rows.texts is not None and self.column is not None:
            columns = {self.column: list(rows.texts)}
        if columns is not None:
            data = [list(row) for row in zip(*columns.values(), strict=True)]
            body = {"dataframe_split": {"columns": list(columns), "data": data}}
        elif rows.texts is not None:
            body = {"inputs": list(rows.texts)}
        else:
            body = {"inputs": jsonable(np.asarray(rows.array))}
        if self.params:
            body["params"] = self.params
        return Request("/invocations", json.dumps(body).encode())

    def answer(self, reply: Reply, rows: WireRows) -> Floats:
        data = reply.data
        predictions = data.get("predictions") if isinstance(data, Mapping) else data
        if isinstance(predictions, Mapping):  # {"column": [values]}
            predictions = [dict(zip(predictions, row, strict=True)) for row in zip(*predictions.values(), strict=True)]
        if not isinstance(predictions, list):
            raise ValueError("the answer has no list of predictions; is this an MLflow scoring server?")
        if predictions and all(isinstance(row, Mapping) for row in predictions):
            names = list(predictions[0])
            self.output_names = self.output_names or tuple(reply.secret.hide(str(name)) for name in names)
            predictions = [[row[name] for name in names] for row in predictions]
        first = np.ravel(np.asarray(predictions[:1], dtype=object))
        if any(isinstance(value, str) for value in first):
            raise ValueError(
                f"the model returns labels such as {first[0]!r}, not numbers; log it again with "
                "pyfunc_predict_fn='predict_proba'"
            )
        return np.asarray(predictions, dtype=np.float64)

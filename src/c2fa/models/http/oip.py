"""A model behind the Open Inference Protocol v2: KServe, Triton, MLServer, OpenVINO Model Server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from c2fa.models.http._portal import Portal
from c2fa.models.http._rows import WireRows
from c2fa.models.http._send import EndpointError, Reply, Request, send
from c2fa.models.http._tensors import decode, encode
from c2fa.models.http.endpoint import Endpoint, Floats


class OpenInference(Endpoint):
    """A model served under ``<url>/v2/models/<model>``.

    Texts go as a BYTES tensor, arrays as one tensor, and a frame as one tensor for each column. Names and
    types of the inputs come from the server's own description of the model. Tensors go as JSON; they go
    as bytes where ``/v2`` says that the server reads ``binary_tensor_data``.

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
    binary
        Whether tensors go as bytes; None asks the server.
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
        binary: bool | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(url, output_names, **settings)
        if not model:
            raise ValueError("model must be the name of a model on the server, not an empty string")
        self.model, self.version, self.input, self.output, self.binary = model, version, input, output, binary
        self._path = f"/v2/models/{quote(model, safe='')}"
        if version is not None:
            self._path += f"/versions/{quote(str(version), safe='')}"
        self._inputs: dict[str, dict[str, Any]] = {}
        self._is_mlserver = self._is_binary = False

    @property
    def name(self) -> str:
        """The identity of the model: where it is, what it is called, which version."""
        return f"{self.kind}:{self.url}{self._path}"

    async def connect(self, portal: Portal) -> None:
        """Read what the server and the model say of themselves."""
        server = await self._describe(portal, "/v2")
        self._is_mlserver = "mlserver" in str(server.get("name", "")).lower()
        advertised = "binary_tensor_data" in (server.get("extensions") or [])
        self._is_binary = advertised if self.binary is None else self.binary
        model = await self._describe(portal, self._path)
        self._inputs = {i["name"]: i for i in model.get("inputs") or []}

    async def _describe(self, portal: Portal, path: str) -> Mapping[str, Any]:
        what = f"{self!r}, connecting to {path}"
        try:
            reply = await send(portal, Request(path), what)
        except EndpointError as error:
            # A gateway may hide the descriptions; the first row then shows whether the model is there.
            if error.status in (404, 405):
                return {}
            raise
        return reply.data if isinstance(reply.data, Mapping) else {}

    def request(self, rows: WireRows) -> Request:
        """Return the request that asks for these rows."""
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
        typed = [(n, a, self._inputs.get(n, {}).get("datatype")) for n, a in arrays.items()]
        outputs = [self.output] if self.output is not None else []
        return encode(f"{self._path}/infer", typed, outputs, self._is_binary, parameters)

    def answer(self, reply: Reply, rows: WireRows) -> Floats:
        """Return the chosen output, flattened to one vector for each row."""
        outputs = decode(reply)
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

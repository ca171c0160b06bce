"""A model behind an MLflow scoring server (`mlflow models serve`)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from c2fa.models.http._send import Reply, Request, WireRows, jsonable
from c2fa.models.http._settings import check_url
from c2fa.models.http.endpoint import Endpoint, Floats


class MLflow(Endpoint):
    """A model served under ``<url>/invocations``.

    A frame goes as ``dataframe_split``, an array or texts as ``inputs``. The model must return numbers:
    log a scikit-learn classifier with ``pyfunc_predict_fn="predict_proba"``.

    Parameters
    ----------
    url
        The server's address, without ``/invocations``.
    column
        The name of the one column of a frame in which texts go, where the model wants a frame.
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
        """Return the request that asks for these rows."""
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
        """Return the predictions as numbers."""
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

"""Concurrent requests from synchronous code, with retries, and the rows of a batch in the forms that travel."""

from __future__ import annotations

import asyncio
import concurrent.futures
import datetime
import hashlib
import json
import os
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, TypeVar

import httpx2
import numpy as np
import numpy.typing as npt

from c2fa._system import host_array, is_frame, is_missing, is_tensor
from c2fa.models.http._settings import Secret, Settings, is_local, shown
from c2fa.models.http.limits import Bucket, concerns_all, is_transient, retry_after

T = TypeVar("T")


class Portal:
    """Runs coroutines on an event loop in a thread of its own, with one pool of connections.

    The caller's thread may run a loop already, as in a notebook; and connections stay open between batches.
    """

    def __init__(self, url: str, settings: Settings, bucket: Bucket) -> None:
        self.url, self.settings, self.bucket = url, settings, bucket
        self.pid = os.getpid()  # a forked child has the object but not the thread
        self._trust_env = not is_local(url)  # the environment's proxy is for other hosts
        self._ready = threading.Event()
        self._failure: BaseException | None = None

        def main() -> None:
            try:
                asyncio.run(self._serve())
            except BaseException as error:
                self._failure = error
                self._ready.set()

        self._thread = threading.Thread(target=main, name="c2fa-http", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            raise self._failure

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self.slots = asyncio.Semaphore(self.settings.concurrency)
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=self.settings.concurrency)
        async with httpx2.AsyncClient(timeout=None, limits=limits, trust_env=self._trust_env) as client:
            self.client = client
            self._ready.set()
            await self._stop.wait()

    @property
    def alive(self) -> bool:
        return self.pid == os.getpid() and self._thread.is_alive()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end; Ctrl-C cancels it, with its connections, before it is raised."""
        done = threading.Event()

        async def watched() -> T:
            try:
                return await coroutine
            finally:
                done.set()

        future: concurrent.futures.Future[T] = asyncio.run_coroutine_threadsafe(watched(), self._loop)
        try:
            return future.result()
        except BaseException:
            if future.cancel() or not future.done():
                done.wait(2.0)
            raise

    def close(self) -> None:
        if not self.alive:
            return
        self._loop.call_soon_threadsafe(self._stop.set)
        if threading.current_thread() is not self._thread:  # the collector may run in any thread
            self._thread.join(5.0)
        self.bucket.close()


class EndpointError(RuntimeError):
    """A model behind HTTP gave no usable answer; the message says why, for which rows, and what to do.

    ``status`` is the HTTP status of a refusal, ``transient`` whether the same request may succeed later, ``wait`` the
    seconds that the server asked for, ``tries`` how often the request was sent, and ``partial`` the batch's answers.
    """

    def __init__(
        self,
        message: str,
        status: int | None = None,
        *,
        transient: bool = False,
        wait: float | None = None,
        tries: int = 1,
    ) -> None:
        super().__init__(message)
        self.status, self.transient, self.wait, self.tries = status, transient, wait, tries
        self.partial: Any = None


@dataclass(eq=False)
class _Failure(Exception):
    """Why one request got no answer, and what to do; if ``transient`` is None, the status decides."""

    reason: str
    hint: str
    status: int | None = None
    transient: bool | None = None
    wait: float | None = None


@dataclass(frozen=True)
class Request:
    """An adapter's request: a path below the address, and for a POST its body."""

    path: str
    body: bytes | None = None


@dataclass(frozen=True)
class Reply:
    """A server's reply; ``secret.hide`` its words before a person reads them, because servers repeat what they get."""

    data: Any
    secret: Secret = field(default_factory=Secret)


async def send(
    portal: Portal, request: Request, what: str, probe: bool = False, stopped: Callable[[], bool] = lambda: False
) -> Reply:
    """Send a request, again where that may help, and return the reply or raise an EndpointError.

    A ``probe`` is the first row, alone; if the server answers only with 500s, its shape may be the cause. ``stopped()``
    says that another request of the batch has failed for good, so that this one need not be sent again.
    """
    settings, bucket = portal.settings, portal.bucket
    tries = crashes = 0
    while True:
        try:
            return await _send_once(portal, request)
        except _Failure as error:
            failure = error
        tries += 1
        crashes += failure.status == 500  # as several servers answer to a wrong shape
        seconds = settings.retry.pause(failure, tries)
        too_long = (failure.wait or 0.0) > settings.max_wait
        if seconds is None or too_long or stopped():
            transient, hint, sent = is_transient(failure), failure.hint, ""
            if transient:
                sent = " (tried once)" if tries == 1 else f" (tried {tries} times)"
            if probe and crashes == tries:
                hint += "; it fails on even one row, so perhaps its inputs must have another shape or type"
            message = f"{what}: {failure.reason}{sent}; {hint}"
            raise EndpointError(message, failure.status, transient=transient, wait=failure.wait, tries=tries)
        if concerns_all(failure):
            bucket.pause(seconds)
        else:
            await asyncio.sleep(seconds)


async def _send_once(portal: Portal, request: Request) -> Reply:
    settings = portal.settings
    secret = settings.secret()
    headers = {"accept": "application/json", "accept-encoding": "gzip, deflate", **settings.headers}
    if request.body is not None:
        headers.setdefault("content-type", "application/json")
    if secret:
        headers[settings.auth_header] = secret.header(settings.auth_scheme)
    method = "GET" if request.body is None else "POST"
    async with portal.slots:
        for seconds in portal.bucket.waits():
            await asyncio.sleep(seconds)
        try:
            async with asyncio.timeout(settings.timeout):
                response = await _received(portal, method, request, headers)
        except TimeoutError:
            reason = f"no whole answer within {settings.timeout:g} s"
            raise _Failure(reason, "raise timeout or lower rows_per_request", transient=True) from None
        except httpx2.RequestError as error:  # the connection is lost, or the reply is not what its header says
            reason = f"the connection failed ({_quoted(str(error), secret) or type(error).__name__})"
            raise _Failure(reason, "see that the server runs and call again", transient=True) from None
    if not response.is_success:
        raise _refusal(response, settings.max_wait, secret)
    kind = response.headers.get("content-type", "json")
    try:
        return Reply(json.loads(response.content), secret)
    except (ValueError, RecursionError):
        if "json" in kind:
            hint = "see the server's log and call again"
            raise _Failure("half an answer came back", hint, transient=True) from None
    reason = f"the server answered {_quoted(kind, secret)}, not JSON: {_quoted(response.text, secret, 120)!r}"
    raise _Failure(reason, "check the address", transient=False)


async def _received(portal: Portal, method: str, request: Request, headers: Mapping[str, str]) -> httpx2.Response:
    """The whole response, if it is no larger than ``max_reply``."""
    most, body = portal.settings.max_reply, bytearray()
    sent = portal.client.stream(method, portal.url + request.path, content=request.body, headers=headers)
    async with sent as response:
        packing = response.headers.get("content-encoding", "").strip().lower()
        if packing not in ("", "identity", "gzip", "deflate"):  # others, or several at once, would unpack without bound
            reason = f"the server packed its answer as {packing[:40]!r}"
            raise _Failure(reason, "have it send gzip, deflate, or plain answers", transient=False)
        async for piece in response.aiter_bytes():
            body += piece
            if len(body) > most:
                reason = f"the answer has more than max_reply={most} bytes"
                raise _Failure(reason, "lower rows_per_request, or raise max_reply", transient=False)
        encodings = ("content-encoding", "transfer-encoding")
        plain_headers = {name: value for name, value in response.headers.items() if name.lower() not in encodings}
        return httpx2.Response(response.status_code, headers=plain_headers, content=bytes(body))


def _refusal(response: httpx2.Response, max_wait: float, secret: Secret) -> _Failure:
    """Why the server refused, in its own words if it gives any, and what to do."""
    try:
        text = response.json()
    except (ValueError, RecursionError):
        text = response.text
    for _ in range(3):
        if isinstance(text, Mapping):
            keys = ("error", "message", "detail", "error_msg", "msg")
            text = next((text[k] for k in keys if text.get(k)), dict(text))
        if isinstance(text, list) and text:
            text = text[0]
    quoted, status = _quoted(str(text), secret), response.status_code
    reason = f"the server answered {status}" + (f": {quoted!r}" if quoted else "")
    hint = {
        401: "set the secret in the environment variable named by auth_env",
        403: "set the secret in the environment variable named by auth_env",
        404: "check the address and the model's name",
        413: "lower rows_per_request",
        429: "lower rate or concurrency, or raise retries",
    }.get(status, "see the server's log")
    if 300 <= status < 400:  # not followed: a POST may arrive as a GET, and the secret at another host
        hint = f"give the address that it points to, {shown(_quoted(response.headers.get('location', ''), secret))!r}"
    wait = retry_after(response.headers)
    if wait is not None and wait > max_wait:
        reason += f" and asked to wait {wait:.0f} s, longer than max_wait={max_wait:g}"
    return _Failure(reason, hint, status, wait=wait)


def _quoted(words: str, secret: Secret, most: int = 300) -> str:
    """A server's words on one line, cut after the secret is hidden."""
    text = " ".join(secret.hide(words).split())
    return text if len(text) <= most else text[: most - 1] + "…"


@dataclass(frozen=True, eq=False)
class WireRows:
    """The rows of a batch in one of three forms; exactly one of them is set.

    Examples
    --------
    >>> WireRows.of(["a text", "another"]).texts
    ('a text', 'another')
    >>> rows = WireRows.of([[1, 2], [3, 4], [1, 2]])
    >>> rows.array.shape, rows.keys()[0] == rows.keys()[2]
    ((3, 2), True)
    >>> WireRows.of([{"age": 3}, {"age": 4}]).take([1]).columns
    {'age': [4]}
    """

    texts: tuple[str, ...] | None = None
    array: npt.NDArray[Any] | None = None
    columns: dict[str, list[Any]] | None = None

    @classmethod
    def of(cls, batch: Any) -> WireRows:
        """The rows of a list of texts, an array, a tensor, a frame, or a list of records or vectors."""
        if is_frame(batch):
            return cls(columns={str(name): _plain(name, batch[name]) for name in batch.columns})
        if isinstance(batch, np.ndarray) or is_tensor(batch):
            return cls._of_array(host_array(batch))
        rows = list(batch)
        if rows and all(isinstance(row, str) for row in rows):
            return cls(texts=tuple(rows))
        if rows and all(isinstance(row, Mapping) for row in rows):
            return cls(columns={str(name): _plain(name, [row[name] for row in rows]) for name in rows[0]})
        try:
            return cls._of_array(np.asarray([host_array(row) if is_tensor(row) else row for row in rows]))
        except ValueError:
            shapes = sorted({np.shape(row) for row in rows})
            if len(shapes) < 2:
                raise
            raise ValueError(
                f"the rows of one batch must have one shape to travel over HTTP; got {shapes[:3]}; pad them in the "
                "masker"
            ) from None

    @classmethod
    def _of_array(cls, array: npt.NDArray[Any]) -> WireRows:
        if array.dtype.kind in "US" or (array.size > 0 and all(isinstance(item, str) for item in array.flat)):
            if array.ndim != 1:
                raise ValueError(f"texts must be a list of strings, not an array of shape {array.shape}")
            return cls(texts=tuple(map(str, array)))
        if array.dtype.kind not in "biuf":
            raise TypeError(
                f"a model behind HTTP takes numbers, texts or a frame, not rows of {array.dtype}; "
                "wrap it in a function that turns your inputs into one of these"
            )
        return cls(array=array)

    def __len__(self) -> int:
        if self.columns is not None:
            return len(next(iter(self.columns.values()), []))
        return len(self.texts if self.texts is not None else self.array)  # type: ignore[arg-type]

    def take(self, index: Sequence[int]) -> WireRows:
        if self.texts is not None:
            return WireRows(texts=tuple(self.texts[i] for i in index))
        if self.array is not None:
            return WireRows(array=self.array[list(index)])
        assert self.columns is not None
        return WireRows(columns={k: [v[i] for i in index] for k, v in self.columns.items()})

    def keys(self) -> list[bytes]:
        """Return one key for each row; keys are equal only for equal rows."""
        if self.texts is not None:
            return [b"t" + text.encode("utf-8", "surrogatepass") for text in self.texts]
        if self.array is not None:
            head = f"{self.array.dtype.str}{self.array.shape[1:]}".encode()
            return [_digest(head + np.ascontiguousarray(row).tobytes()) for row in self.array]
        assert self.columns is not None
        head = repr(list(self.columns)).encode()
        return [_digest(head + repr(row).encode()) for row in zip(*self.columns.values(), strict=True)]


def jsonable(array: npt.NDArray[Any]) -> Any:
    """Return nested lists, with None for what JSON cannot say (NaN, infinity)."""
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        return np.where(np.isfinite(array), array, None).tolist()  # type: ignore[call-overload]
    return array.tolist()


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def _plain(name: Any, column: Iterable[Any]) -> list[Any]:
    """Return the values of a column as JSON has them, with None for missing ones and infinities."""
    plain: list[Any] = []
    for value in column:
        own = value.item() if isinstance(value, np.generic) else value
        if is_missing(own) or own in (np.inf, -np.inf):
            own = None
        elif isinstance(own, datetime.date | datetime.time):
            own = own.isoformat()
        elif isinstance(own, Decimal):
            own = float(own)
        elif not isinstance(own, str | int | float | list | tuple | Mapping):
            raise TypeError(
                f"a model behind HTTP takes numbers, texts and dates, and column {name!r} holds "
                f"{type(own).__name__}: wrap it in a function that turns the column into one of these"
            )
        plain.append(own)
    return plain

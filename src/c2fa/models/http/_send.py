"""One request, sent until it is answered, refused, or given up: all in one sentence where it fails."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx2

from c2fa.models.http._portal import Portal
from c2fa.models.http._retry import concerns_all, is_transient, retry_after
from c2fa.models.http._settings import Secret, shown

_PACKINGS = ("", "identity", "gzip", "deflate")  # others, and several at once, unpack without any bound
_CRASH = 500  # the server failed on the request itself, as several do on a shape that they will never take
_HINTS = {
    401: "set the secret in the environment variable named by auth_env",
    403: "set the secret in the environment variable named by auth_env",
    404: "check the address and the model's name",
    413: "lower rows_per_request",
    429: "lower rate or concurrency, or raise retries",
}


class EndpointError(RuntimeError):
    """A model behind HTTP gave no usable answer; the message says why, for which rows, and what to do.

    ``status`` is the HTTP status of a refusal, ``transient`` whether the same may be answered later, ``wait`` how many
    seconds the server asked for, ``tries`` how often the request was sent, and ``partial`` what was answered of the
    batch.
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


class _Failure(Exception):
    """Why one request brought no answer, and what to do about it."""

    def __init__(
        self,
        reason: str,
        hint: str,
        status: int | None = None,
        *,
        transient: bool | None = None,
        wait: float | None = None,
    ) -> None:
        super().__init__(reason)
        self.hint, self.status, self.wait = hint, status, wait
        self.transient = transient  # None where the status tells


@dataclass(frozen=True)
class Request:
    """What an adapter wants sent: a path below the address, and for a POST its body."""

    path: str
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Reply:
    """What came back: the headers, in small letters, the body, and what it says where it is JSON.

    ``secret.hide`` is for any word of it that a person may read: servers repeat what they were sent.
    """

    headers: Mapping[str, str]
    body: bytes
    data: Any = None
    secret: Secret = field(default_factory=Secret)


async def send(
    portal: Portal, request: Request, what: str, probe: bool = False, stopped: Callable[[], bool] = lambda: False
) -> Reply:
    """Send a request, again where that may help, and return the reply or raise an EndpointError.

    A probe is the first row, alone; where nothing but 500s come back, its shape may be the cause. ``stopped`` tells
    that another request of the same batch has failed for good, so that sending this one again is of no use.
    """
    settings, bucket = portal.settings, portal.bucket
    tries = crashes = 0
    while True:
        try:
            return await _send_once(portal, request)
        except _Failure as error:
            failure = error
        tries += 1
        crashes += failure.status == _CRASH
        seconds = settings.retry.pause(failure, tries)
        too_long = (failure.wait or 0.0) > settings.max_wait
        if seconds is None or too_long or stopped():
            raise _final(failure, what, tries, never_worked=probe and crashes == tries)
        if concerns_all(failure):
            bucket.pause(seconds)
        else:
            await asyncio.sleep(seconds)


def _final(failure: _Failure, what: str, tries: int, never_worked: bool) -> EndpointError:
    """The failure as an error that names the rows, says how often they were sent, and what to do."""
    transient, hint, sent = is_transient(failure), failure.hint, ""
    if transient:
        sent = " (tried once)" if tries == 1 else f" (tried {tries} times)"
    if never_worked:
        hint += "; it fails on even one row, so perhaps the inputs do not have the shape or type that it expects"
    message = f"{what}: {failure}{sent}; {hint}"
    return EndpointError(message, failure.status, transient=transient, wait=failure.wait, tries=tries)


async def _send_once(portal: Portal, request: Request) -> Reply:
    settings = portal.settings
    secret = settings.secret()
    headers = {"accept": "application/json", "accept-encoding": "gzip, deflate", **settings.headers, **request.headers}
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
        except httpx2.RequestError as error:  # lost, or not what its header says it is
            reason = f"the connection failed ({_quoted(str(error), secret) or type(error).__name__})"
            raise _Failure(reason, "see that the server runs and call again", transient=True) from None
    if response.is_success:
        return _reply(response, secret)
    raise _refusal(response, settings.max_wait, secret)


async def _received(portal: Portal, method: str, request: Request, headers: Mapping[str, str]) -> httpx2.Response:
    """The whole response, unless it is larger than a reply may be."""
    most, body = portal.settings.max_reply, bytearray()
    sent = portal.client.stream(method, portal.url + request.path, content=request.body, headers=headers)
    async with sent as response:
        packing = response.headers.get("content-encoding", "").strip().lower()
        if packing not in _PACKINGS:
            reason = f"the server packed its answer as {packing[:40]!r}"
            raise _Failure(reason, "have it send gzip, deflate, or plain answers", transient=False)
        async for piece in response.aiter_bytes():
            body += piece
            if len(body) > most:
                reason = f"the answer has more than max_reply={most} bytes"
                raise _Failure(reason, "lower rows_per_request, or raise max_reply", transient=False)
        kept = {k: v for k, v in response.headers.items() if k.lower() not in ("content-encoding", "transfer-encoding")}
        return httpx2.Response(response.status_code, headers=kept, content=bytes(body))


def _reply(response: httpx2.Response, secret: Secret) -> Reply:
    headers = {k.lower(): v for k, v in response.headers.items()}
    kind = headers.get("content-type", "json")
    if "octet-stream" in kind:
        return Reply(headers, response.content, secret=secret)
    try:
        return Reply(headers, response.content, json.loads(response.content), secret)
    except (ValueError, RecursionError):
        if "json" in kind:
            hint = "see the server's log and call again"
            raise _Failure("half an answer came back", hint, transient=True) from None
    reason = f"the server answered {_quoted(kind, secret)}, not JSON: {_quoted(response.text, secret, 120)!r}"
    raise _Failure(reason, "check the address", transient=False)


def _refusal(response: httpx2.Response, max_wait: float, secret: Secret) -> _Failure:
    status = response.status_code
    said = _quoted(_error_text(response), secret)
    reason = f"the server answered {status}" + (f": {said!r}" if said else "")
    hint = _HINTS.get(status, "see the server's log")
    if 300 <= status < 400:  # a POST that is sent on may arrive as a GET, and a secret at another host
        hint = f"give the address that it points to, {shown(_quoted(response.headers.get('location', ''), secret))!r}"
    wait = retry_after(response.headers)
    if wait is not None and wait > max_wait:
        reason += f" and asked to wait {wait:.0f} s, longer than max_wait={max_wait:g}"
    return _Failure(reason, hint, status, wait=wait)


def _error_text(response: httpx2.Response) -> str:
    """Find the sentence that the server itself gives for its refusal."""
    try:
        said = response.json()
    except (ValueError, RecursionError):
        said = response.text
    for _ in range(3):
        if isinstance(said, Mapping):
            keys = ("error", "message", "detail", "error_msg", "msg")
            said = next((said[k] for k in keys if said.get(k)), dict(said))
        if isinstance(said, list) and said:
            said = said[0]
    return str(said)


def _quoted(said: str, secret: Secret, most: int = 300) -> str:
    """A server's words on one line, without the secret, and then cut."""
    text = " ".join(secret.hide(said).split())
    return text if len(text) <= most else text[: most - 1] + "…"

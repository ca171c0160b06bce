"""One request, sent until it is answered, refused, or given up: all in one sentence where it fails."""

from __future__ import annotations

import asyncio
import datetime
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any

import httpx2
import stamina

from c2fa.models._portal import Portal
from c2fa.models._settings import Settings

# stamina logs every retry; without a handler of the user's own those lines would break a progress bar.
logging.getLogger("stamina").addHandler(logging.NullHandler())

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
    seconds the server asked for, and ``partial`` what was answered of the batch.
    """

    def __init__(
        self, message: str, status: int | None = None, *, transient: bool = False, wait: float | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.transient, self.wait = status, transient, wait
        self.partial: Any = None


class _Again(Exception):
    """A failure that may pass; ``wait`` is what the server asked for, in seconds."""

    def __init__(self, reason: str, hint: str, wait: float | None = None, status: int | None = None) -> None:
        super().__init__(reason)
        self.hint, self.wait, self.status = hint, wait, status

    @property
    def broken(self) -> bool:
        """Whether the server failed on the request itself."""
        return self.status == 500


@dataclass(frozen=True)
class Request:
    """What an adapter wants sent: a path below the address, and for a POST its body."""

    path: str
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Reply:
    """What came back: the headers, in small letters, the body, and what it says where it is JSON."""

    headers: Mapping[str, str]
    body: bytes
    data: Any = None


async def send(
    portal: Portal,
    url: str,
    settings: Settings,
    request: Request,
    what: str,
    probe: bool = False,
    stopped: Callable[[], bool] = lambda: False,
) -> Reply:
    """Send a request, again where that may help, and return the reply or raise an EndpointError.

    A probe gives up after the second 500 in a row: several servers answer 500 to a shape that they will
    never take. ``stopped`` tells that another request of the same batch has failed for good, so that
    sending this one again is of no use.
    """
    broken = 0

    def again(error: Exception) -> bool | float:
        nonlocal broken
        if not isinstance(error, _Again):
            return False
        broken = broken + 1 if error.broken else 0
        if stopped() or (probe and broken > 1) or (error.wait or 0.0) > settings.max_wait:
            return False
        return True if error.wait is None else error.wait

    tries = 0
    try:
        async for attempt in stamina.retry_context(
            on=again,
            attempts=settings.retries + 1,
            timeout=None,
            wait_initial=settings.wait,
            wait_max=settings.max_wait,
            wait_jitter=settings.wait / 2,
        ):
            with attempt:
                tries += 1
                return await _once(portal, url, settings, request, what)
    except _Again as error:
        count = "once" if tries == 1 else f"{tries} times"
        hint = error.hint
        if probe and error.broken:
            hint = "it fails on even one row, so compare the shape and type of the inputs with what it expects"
        # A server that fails on even one row will fail again; any other such failure may pass.
        lasting = probe and error.broken
        raise EndpointError(
            f"{what}: {error} (tried {count}); {hint}", error.status, transient=not lasting, wait=error.wait
        ) from None
    raise AssertionError("unreachable")


async def _once(portal: Portal, url: str, settings: Settings, request: Request, what: str) -> Reply:
    secret = settings.secret()
    headers = {"accept": "application/json", **settings.headers, **request.headers}
    if request.body is not None:
        headers.setdefault("content-type", "application/json")
    if secret is not None:
        headers[settings.auth_header] = f"{settings.auth_scheme} {secret}".strip()
    method = "GET" if request.body is None else "POST"
    async with portal.slots:
        await asyncio.sleep(max(0.0, portal.resume_at - asyncio.get_running_loop().time()))
        if portal.limiter is not None:
            await portal.limiter.acquire()
        try:
            async with asyncio.timeout(settings.timeout):
                response = await portal.client.request(
                    method, url + request.path, content=request.body, headers=headers
                )
        except TimeoutError:
            reason = f"no whole answer within {settings.timeout:g} s"
            raise _Again(reason, "raise timeout or lower rows_per_request") from None
        except httpx2.TransportError as error:
            text = _hide(str(error) or type(error).__name__, secret)
            raise _Again(f"the connection failed ({text})", "see that the server runs and call again") from None
    return _checked(portal, response, settings, secret, what)


def _checked(portal: Portal, response: httpx2.Response, settings: Settings, secret: str | None, what: str) -> Reply:
    status = response.status_code
    if response.is_success:
        headers = {k.lower(): v for k, v in response.headers.items()}
        kind = headers.get("content-type", "json")
        if "octet-stream" in kind:
            return Reply(headers, response.content)
        try:
            return Reply(headers, response.content, json.loads(response.content))
        except ValueError:
            if "json" in kind:
                raise _Again("half an answer came back", "see the server's log and call again") from None
        said = _hide(" ".join(response.text.split())[:120], secret)
        raise EndpointError(f"{what}: the server answered {kind}, not JSON: {said!r}; check the address")
    said = _hide(_error_text(response), secret)
    reason = f"the server answered {status}" + (f": {said!r}" if said else "")
    hint = _HINTS.get(status, "see the server's log")
    if 300 <= status < 400:  # a POST that is sent on may arrive as a GET, and a secret at another host
        hint = f"give the address that it points to, {response.headers.get('location', '').partition('?')[0]!r}"
    if status in (408, 425, 429) or (status >= 500 and status not in (501, 505)):
        wait = _retry_after(response.headers.get("retry-after"))
        if wait is not None:
            if wait > settings.max_wait:
                reason += f" and asked to wait {wait:.0f} s, longer than max_wait={settings.max_wait:g}"
            else:  # every other request of this model waits too
                portal.resume_at = max(portal.resume_at, asyncio.get_running_loop().time() + wait)
        raise _Again(reason, hint, wait, status)
    raise EndpointError(f"{what}: {reason}; {hint}", status)


def _retry_after(value: str | None) -> float | None:
    if not value:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        then = parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, (then - datetime.datetime.now(datetime.UTC)).total_seconds())


def _error_text(response: httpx2.Response) -> str:
    """Find the sentence that the server itself gives for its refusal."""
    try:
        found = response.json()
    except ValueError:
        found = response.text
    for _ in range(3):
        if isinstance(found, Mapping):
            keys = ("error", "message", "detail", "error_msg", "msg")
            found = next((found[k] for k in keys if found.get(k)), dict(found))
        if isinstance(found, list) and found:
            found = found[0]
    text = " ".join(str(found).split())
    return text if len(text) <= 300 else text[:299] + "…"


def _hide(text: str, secret: str | None) -> str:
    return text.replace(secret, "***") if secret else text

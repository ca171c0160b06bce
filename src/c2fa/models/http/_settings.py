"""How to talk to a model behind HTTP: patience, pace, authentication and prices."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from c2fa._system import is_real
from c2fa.models.http.limits import Retry


@dataclass(frozen=True)
class Settings:
    """The settings of every model behind HTTP; the adapters take each of them by name.

    Parameters
    ----------
    rows_per_request
        The most rows sent in one request.
    concurrency
        The most requests under way at once.
    timeout
        Seconds that one request may take from its first byte to its last.
    retries
        How often a request is sent again after a time-out, a broken connection, a 408, a 429 or a 5xx.
    wait
        Seconds before the first retry; doubled each time. A server's ``Retry-After`` takes precedence.
    max_wait
        The longest wait between two tries; a server that asks for a longer one is an error.
    rate
        The most requests per second, retries included; None for no limit.
    auth_env
        The name of the environment variable that holds the secret, which is read when a request is sent and appears in
        no message, file or repr.
    auth_header, auth_scheme
        The header that carries the secret and the word before it, ``Authorization: Bearer ...``.
    auth_over_http
        Whether the secret may go to another machine over ``http://``, where anybody on the way can read it.
    headers
        Further headers, none of them secret.
    price_per_row
        What one answered row costs.
    price_per_token
        What one token costs, or (input token, output token), where the server counts them.
    max_reply
        The most bytes of one reply, unpacked.

    Examples
    --------
    >>> Settings(timeout=5, rate=0.5).retries
    5
    >>> Settings(retries=-1)
    Traceback (most recent call last):
        ...
    ValueError: retries must be at least 0, not -1
    """

    rows_per_request: int = 256
    concurrency: int = 4
    timeout: float = 60.0
    retries: int = 5
    wait: float = 0.5
    max_wait: float = 60.0
    rate: float | None = None
    auth_env: str | None = None
    auth_header: str = "Authorization"
    auth_scheme: str = "Bearer"
    auth_over_http: bool = False
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    price_per_row: float = 0.0
    price_per_token: float | tuple[float, float] = 0.0
    max_reply: int = 2**28

    def __post_init__(self) -> None:
        for name, least in (("rows_per_request", 1), ("concurrency", 1), ("retries", 0), ("max_reply", 1)):
            value = vars(self)[name]
            if not isinstance(value, int) or value < least:
                raise ValueError(f"{name} must be at least {least}, not {value!r}")
        for name in ("timeout", "wait", "max_wait", "rate"):
            value = vars(self)[name]
            if not (is_real(value) and 0 < value < math.inf) and (name, value) != ("rate", None):
                raise ValueError(f"{name} must be a number above 0, not {value!r}")
        prices = (self.price_per_row, *self.token_prices)
        if len(prices) != 3 or not all(is_real(price) and 0 <= price < math.inf for price in prices):
            raise ValueError(f"prices must be numbers of at least 0, and those of tokens one or two; got {prices}")
        named = isinstance(self.auth_env, str) and re.fullmatch(r"[A-Z_][A-Z0-9_]*", self.auth_env)
        if self.auth_env is not None and not named:
            raise ValueError(
                "auth_env takes the name of an environment variable in capitals, such as 'API_TOKEN', "
                "not the secret itself (what was given is not shown)"
            )
        texts = [*self.headers, *self.headers.values()] if isinstance(self.headers, Mapping) else [None]
        if not all(isinstance(text, str) for text in texts):
            raise ValueError("headers must be a dict of texts, as {'X-Team': 'search'} (what was given is not shown)")
        for name in self.headers:
            if re.search(r"auth|token|key|secret|cookie|password", name, re.IGNORECASE):
                raise ValueError(
                    f"the header {name!r} looks like a secret; put its value in an environment variable and "
                    f"pass auth_env='NAME', auth_header={name!r}"
                )

    @property
    def retry(self) -> Retry:
        return Retry(self.retries, self.wait, self.max_wait)

    @property
    def token_prices(self) -> tuple[float, float]:
        price = self.price_per_token
        return price if isinstance(price, tuple) else (price, price)

    def secret(self) -> Secret:
        """Read the secret from the environment; it is never kept. Without ``auth_env`` there is none."""
        if self.auth_env is None:
            return Secret()
        value = os.environ.get(self.auth_env, "").strip()
        if not value:
            raise ValueError(f"the environment variable {self.auth_env} is not set; put the server's secret in it")
        if not re.fullmatch(r"[ -~]+", value):  # the client would show the header that it refuses
            raise ValueError(
                f"the environment variable {self.auth_env} holds a character that no header can carry, such as a line "
                "break inside it; put the secret alone in it (what it holds is not shown)"
            )
        return Secret(value)


class Secret:
    """A text that only the server may read: it goes into a header, and is hidden in all that the server says.

    >>> Secret("s3/cret").hide("no user S3%2Fcret")
    'no user ***'
    >>> Secret("s3/cret")
    Secret(***)
    """

    def __init__(self, text: str = "") -> None:
        self._text = text

    def __bool__(self) -> bool:
        return bool(self._text)

    def header(self, scheme: str) -> str:
        return f"{scheme} {self._text}".strip()

    def hide(self, words: str) -> str:
        """A server's words without the secret. Cut them only afterwards: half a secret is not recognised."""
        if not self._text:
            return words
        return re.sub(_written(self._text), "***", words, flags=re.IGNORECASE)

    def __repr__(self) -> str:
        return "Secret(***)"

    def __reduce__(self) -> Any:
        raise TypeError("a secret is not sent to other processes or files; each reads its own environment")


def _written(text: str) -> str:
    """A pattern for a text, plain or as escaped in JSON, in an address or in HTML.

    Any number of backslashes may stand before a letter, so those of the text itself are left out. A run of them matches
    only from its beginning, because a search from each place in it would take the square of its length.
    """
    letters = []
    for letter in text.replace("\\", ""):
        code, plain, spaced = ord(letter), re.escape(letter), r"|\+" if letter == " " else ""
        html = rf"&(?:amp;)*(?:#0*{code}|#x0*{code:x}|{re.escape(escape(letter).strip('&;'))});"
        letters.append(rf"(?:%(?:25)*{code:02x}|u{code:04x}|x{code:02x}|{html}{spaced}|{plain})")
    run = r"(?:\\++|%(?:25)*5c|&(?:amp;)*(?:#0*92|#x0*5c|bsol);)" if "\\" in text else r"\\"
    if not letters:
        return f"{run}+"
    return rf"(?:(?<!\\)(?<!5c)(?<!;){run}+)?" + f"{run}*".join(letters) + f"{run}*" * text.endswith("\\")


def shown(address: str) -> str:
    """An address for messages: without a user's name and password, and up to a '?'.

    >>> shown("mlflow:http://me:password@host/m?token=1")
    'mlflow:http://***@host/m'
    """
    return re.sub(r"(//).*@|[^/]*:[^/]*@", r"\1***@", address.split("?")[0])


def is_local(url: str) -> bool:
    """Whether an address is on this machine.

    >>> is_local("http://127.0.0.1:8080"), is_local("http://[::1]"), is_local("http://models.example")
    (True, True, False)
    """
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_url(url: str) -> str:
    """Return the URL without its last slash, or say what is wrong with it.

    >>> check_url("http://127.0.0.1:8080/")
    'http://127.0.0.1:8080'
    >>> check_url("127.0.0.1:8080")
    Traceback (most recent call last):
        ...
    ValueError: the address of a model must begin with http:// or https:// and name a host, not '127.0.0.1:8080'
    """
    if not isinstance(url, str):
        raise TypeError(f"the address of a model must be a text such as 'http://127.0.0.1:8080'; got {url!r}")
    parts, bare = urlsplit(url), shown(url.split("#")[0])
    if "@" in parts.netloc:
        raise ValueError(
            "the address must not hold a user name or password; put the secret in an environment variable "
            "and pass auth_env='NAME'"
        )
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"the address of a model must begin with http:// or https:// and name a host, not {bare!r}")
    if parts.query or parts.fragment:
        raise ValueError(
            "the address of a model must have no '?' or '#'; pass a secret with auth_env='NAME' and "
            f"a model by its name (the address up to there is {bare!r})"
        )
    return url.rstrip("/")

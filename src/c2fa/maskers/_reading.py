"""Images that are given by the name of a file or by an address: read once, upright, and of a size that memory holds."""

from __future__ import annotations

import io
import os
import re
import time
from pathlib import Path
from typing import Any

from c2fa._system import need

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://|(data):")


def is_name(x: Any) -> bool:
    """Whether an image is given by its name: a path, or an http(s) address."""
    return isinstance(x, str | os.PathLike)


def short_name(x: Any) -> str:
    """The last part of a path or an address.

    >>> short_name("photos/cat.jpg"), short_name("https://example.org/a/dog.png?size=2")
    ('cat.jpg', 'dog.png')
    """
    text = _public(os.fspath(x))
    return Path(text).name or text


def read_image(x: str | os.PathLike[str]) -> Any:
    """The PIL image of a file or an address, turned as its camera was held."""
    pillow, operations = need("PIL.Image", "images"), need("PIL.ImageOps", "images")
    text = os.fspath(x)
    scheme = _SCHEME.match(text) if isinstance(x, str) else None
    if scheme is not None:
        file: Any = io.BytesIO(_fetch(text, (scheme[1] or scheme[2]).lower()))
    elif os.path.isfile(text):
        file = text
    else:
        raise FileNotFoundError(f"there is no file {text[:200]!r}; an image is an array, a path or an address")
    try:
        with pillow.open(file) as opened:
            return operations.exif_transpose(opened)  # a copy that is read, also where there is nothing to turn
    except (OSError, ValueError, SyntaxError, pillow.DecompressionBombError) as error:
        raise ValueError(f"cannot read {_public(text)!r} as an image: {error}") from error


def _fetch(address: str, scheme: str, seconds: int = 60, most: int = 64 * 2**20) -> bytes:
    """What an address holds, unless it takes longer or has more bytes."""
    import http.client  # imported where they are used: they are slow to load
    import urllib.error
    import urllib.request as web

    if scheme not in ("http", "https"):
        raise ValueError(f"an image's address begins with http:// or https://; got {address[:80]!r}")
    # Addresses of the web alone: an answer cannot send the request on to a file of this machine.
    opener = web.OpenerDirector()
    for handler in (
        *(web.ProxyHandler, web.HTTPHandler, web.HTTPSHandler, web.HTTPRedirectHandler),
        *(web.HTTPErrorProcessor, web.HTTPDefaultErrorHandler, web.UnknownHandler),
    ):
        opener.add_handler(handler())
    request = web.Request(address, headers={"User-Agent": "c2fa"})
    end, data = time.monotonic() + seconds, bytearray()
    try:
        with opener.open(request, timeout=seconds) as answer:
            # Piece by piece: a server that sends a byte now and then would never be late for a single read.
            while piece := answer.read1(2**16):
                data += piece
                if len(data) > most:
                    raise ValueError(f"it is larger than {most // 2**20} MiB; download it and give its path")
                if time.monotonic() > end:
                    raise ValueError(f"it takes longer than {seconds} seconds; download it and give its path")
    except (OSError, ValueError, http.client.HTTPException) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()  # it holds the connection
        raise ValueError(f"cannot fetch {_public(address)!r}: {error}") from error
    return bytes(data)


def _public(address: str) -> str:
    """An address without a password and what follows its path, which may be a key; a path as it is."""
    return re.sub("//[^/]*@", "//", re.split("[?#]", address)[0]) if _SCHEME.match(address) else address

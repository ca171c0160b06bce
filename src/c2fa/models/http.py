"""Models behind HTTP: what every adapter shares — batching, concurrency, retries, and what it cost."""

from __future__ import annotations

import abc
import asyncio
import weakref
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from c2fa.models._portal import Portal
from c2fa.models._rows import WireRows
from c2fa.models._send import EndpointError, Reply, Request, send
from c2fa.models._settings import Settings, check_url

__all__ = ["Endpoint", "EndpointError", "Reply", "Request", "Settings", "Usage", "WireRows"]

Floats = npt.NDArray[np.float64]
_MEMO = 65_536


@dataclass
class Usage:
    """What a model behind HTTP has been asked so far."""

    rows: int = 0
    requests: int = 0
    tokens_in: int = 0
    tokens_out: int = 0


class Endpoint(abc.ABC):
    """A model behind HTTP, called like any other: ``model(batch)`` gives one row of numbers per input.

    A batch is cut into requests that run side by side. The first row asked is a request of its own: it
    shows at once whether the server takes such rows. The answers of a batch that fails or is interrupted
    half-way are kept, so that calling again asks for the missing rows alone; the exception has them too, as
    ``partial``, with NaN for the rows without an answer.
    """

    kind = "http"

    def __init__(self, url: str, output_names: Sequence[str] = (), **settings: Any) -> None:
        self.url = check_url(url)
        try:
            self.settings = Settings(**settings)
        except TypeError:
            known = ", ".join(Settings.__dataclass_fields__)
            wrong = ", ".join(repr(k) for k in settings if k not in Settings.__dataclass_fields__)
            raise TypeError(f"{type(self).__name__} has no option {wrong}; it takes {known}") from None
        self.output_names = tuple(output_names)
        self.usage = Usage()
        self.notes: list[str] = []
        self._fresh()

    def _fresh(self) -> None:
        self._portal: Portal | None = None
        self._connected = self._probed = False
        self._memo: dict[bytes, Floats] = {}

    # What an adapter answers.

    @abc.abstractmethod
    def request(self, rows: WireRows) -> Request:
        """Return the request that asks for these rows."""

    @abc.abstractmethod
    def answer(self, reply: Reply, rows: WireRows) -> Floats:
        """Return one row of outputs for each row asked, or raise ValueError in half a sentence."""

    async def connect(self, portal: Portal) -> None:
        """Ask the server about itself, once, before the first row."""
        return None

    def finish(self) -> None:
        """Say what there is to say about a whole batch, in the caller's own thread."""
        return None

    def chunk_size(self) -> int:
        """Return how many rows one request may hold."""
        return self.settings.rows_per_request

    # What the rest of the library reads.

    @property
    def name(self) -> str:
        """The identity of the model; a server does not tell when its weights change."""
        return f"{self.kind}:{self.url}"

    @property
    def cost(self) -> float:
        """What the answered rows and tokens have cost so far."""
        used, (price_in, price_out) = self.usage, self.settings.token_prices
        tokens = used.tokens_in * price_in + used.tokens_out * price_out
        return used.rows * self.settings.price_per_row + tokens

    @property
    def batch_size(self) -> int:
        """How many rows keep every connection busy."""
        return self.chunk_size() * self.settings.concurrency

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def __call__(self, batch: Any) -> Floats:
        rows = WireRows.of(batch)
        if len(rows) == 0:
            raise ValueError("the batch is empty; a model behind HTTP needs at least one row")
        keys = rows.keys()
        portal = self._open()
        try:
            answers = portal.run(self._ask(portal, rows, keys))
        except BaseException as error:
            error.partial = self._partial(keys)  # type: ignore[attr-defined]
            if isinstance(error, KeyboardInterrupt):
                self.close()
            raise
        widths = {len(a) for a in answers.values()}
        if len(widths) > 1:
            raise EndpointError(f"{self!r} gave rows of {sorted(widths)} outputs in one batch; they must agree")
        bad = {key for key, row in answers.items() if not np.isfinite(row).all()}
        for key in bad or answers:  # where some rows are no numbers, the others need not be asked again
            self._memo.pop(key, None)
        self.finish()
        return np.stack([answers[key] for key in keys])

    def _partial(self, keys: Sequence[bytes]) -> Floats | None:
        """Return what was answered of a batch that failed, NaN elsewhere: a ledger may keep it."""
        found = {key: self._memo[key] for key in keys if key in self._memo}
        if not found:
            return None
        blank = np.full(len(next(iter(found.values()))), np.nan)
        return np.stack([found.get(key, blank) for key in keys])

    def close(self) -> None:
        """Close the connections; the next call opens them again."""
        portal, self._portal = self._portal, None
        if portal is not None:
            self._finalizer()

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        for name in ("_portal", "_finalizer", "_memo"):
            state.pop(name, None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._fresh()

    # How a batch is asked.

    def _open(self) -> Portal:
        if self._portal is None or not self._portal.alive:
            self._portal = Portal(self.url, self.settings)
            self._finalizer = weakref.finalize(self, self._portal.close)
        return self._portal

    async def _ask(self, portal: Portal, rows: WireRows, keys: Sequence[bytes]) -> dict[bytes, Floats]:
        if not self._connected:
            await self.connect(portal)
            self._connected = True
        answers = {key: self._memo[key] for key in keys if key in self._memo}
        first: dict[bytes, int] = {}
        for i, key in enumerate(keys):
            first.setdefault(key, i)
        missing = [i for key, i in first.items() if key not in answers]
        errors: list[Exception] = []

        async def ask(chunk: list[int], probe: bool = False) -> None:
            part = rows.take(chunk)
            what = f"{self!r}, {_span(chunk)} of {len(rows)}"
            reply = await send(portal, self.url, self.settings, self.request(part), what, probe, lambda: bool(errors))
            try:
                found = np.asarray(self.answer(reply, part), dtype=np.float64)
            except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
                reason = error if type(error) is ValueError else f"the answer has no {error}"
                raise EndpointError(f"{what}: {reason}") from error
            found = found.reshape(-1, 1) if found.ndim == 1 else found
            if found.ndim != 2 or len(found) != len(chunk):
                raise EndpointError(
                    f"{what}: the server returned {_shape(found)} for {len(chunk)} inputs; "
                    "it must return one row per input"
                )
            self.usage.rows += len(chunk)
            self.usage.requests += 1
            for i, row in zip(chunk, found, strict=True):
                answers[keys[i]] = self._memo[keys[i]] = row

        if missing and not self._probed:
            await ask(missing[:1], probe=True)
            self._probed, missing = True, missing[1:]
        pending = deque(_cut(missing, self.chunk_size()))

        async def work() -> None:
            while pending and not errors:
                try:
                    await ask(pending.popleft())
                except Exception as error:
                    errors.append(error)

        await asyncio.gather(*(work() for _ in range(min(self.settings.concurrency, len(pending)))))
        while len(self._memo) > _MEMO:
            del self._memo[next(iter(self._memo))]
        if errors:
            raise errors[0]
        return answers


def _cut(items: list[int], size: int) -> list[list[int]]:
    """Cut into pieces of nearly one size, none longer than asked."""
    pieces = -(-len(items) // size)
    return [p.tolist() for p in np.array_split(np.asarray(items, dtype=int), pieces)] if items else []


def _span(chunk: Sequence[int]) -> str:
    return f"row {chunk[0]}" if len(chunk) == 1 else f"rows {min(chunk)}–{max(chunk)}"


def _shape(found: Floats) -> str:
    return f"{len(found)} rows" if found.ndim == 2 else f"an array of shape {found.shape}"

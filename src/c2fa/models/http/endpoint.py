"""Models behind HTTP: what every adapter shares: batching, concurrency, retries and costs."""

from __future__ import annotations

import abc
import asyncio
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt

from c2fa.asking.model import charge, describe
from c2fa.models.http._send import EndpointError, Portal, Reply, Request, WireRows, send
from c2fa.models.http._settings import Settings, check_url, is_local
from c2fa.models.http.limits import Bucket, Paced

__all__ = ["Endpoint", "EndpointError", "Reply", "Request", "Settings", "Usage", "WireRows"]

Floats = npt.NDArray[np.float64]


@dataclass
class Usage:
    """The use of a model behind HTTP so far."""

    rows: int = 0
    requests: int = 0
    tokens_in: int = 0
    tokens_out: int = 0


class RowError(ValueError):
    """A bad answer to one row of a request, with the row's position in the request."""

    def __init__(self, position: int, wrong: str) -> None:
        super().__init__(wrong)
        self.position = position


class Endpoint(Paced):
    """A model behind HTTP, called like any other: ``model(batch)`` gives one row of numbers per input.

    A batch is cut into concurrent requests. The first row is a request of its own, which shows at once whether the
    server takes such rows. If a batch fails or is interrupted, its answers are kept, so that calling again asks for the
    missing rows alone; the exception has them as ``partial``, with NaN for the rows without an answer.
    """

    kind = "http"
    forgets = True  # whether a row of a later batch is sent again; False where a server's numbers vary a little

    def __init__(self, url: str, output_names: Sequence[str] = (), **settings: Any) -> None:
        self.url = check_url(url)
        known = Settings.__dataclass_fields__
        if wrong := ", ".join(repr(name) for name in settings if name not in known):
            raise TypeError(f"{type(self).__name__} has no option {wrong}; it takes {', '.join(known)}")
        self.settings = Settings(**settings)
        in_the_open = urlsplit(self.url).scheme == "http" and not is_local(self.url)
        if self.settings.auth_env and in_the_open and not self.settings.auth_over_http:
            raise ValueError(
                f"{self.url} is another machine, and over http:// whoever is on the way could read the secret; "
                "give an address with https://, or auth_over_http=True where nobody is"
            )
        rate = self.settings.rate
        self.bucket = Bucket(":memory:", rate, burst=max(int(rate or 1), 1))  # a second's requests may go at once
        self.output_names = tuple(output_names)
        self.usage = Usage()
        self.notes: list[str] = []
        self._fresh()

    def _fresh(self) -> None:
        self._portal: Portal | None = None
        self._opening = threading.Lock()
        self._connected = self._probed = False
        self._memo: dict[bytes, Floats] = {}

    # What an adapter defines.

    @abc.abstractmethod
    def request(self, rows: WireRows) -> Request:
        """Return the request that asks for these rows."""

    @abc.abstractmethod
    def answer(self, reply: Reply, rows: WireRows) -> Floats:
        """Return one row of outputs for each row, or raise a ValueError with half a sentence."""

    async def connect(self, portal: Portal) -> None:
        """Ask the server about itself, once, before the first row."""
        return None

    async def encode(self, portal: Portal, rows: WireRows) -> WireRows:
        """Return the rows as ``request`` needs them, such as in the tokens of the server."""
        return rows

    def finish(self) -> None:
        """Write notes or warnings about a whole batch, in the caller's own thread."""
        return None

    def chunk_size(self) -> int:
        """Return the most rows of one request."""
        return self.settings.rows_per_request

    # What the rest of the library reads.

    @property
    def name(self) -> str:
        """The identity of the model; a server does not say when its weights change."""
        return f"{self.kind}:{self.url}"

    @property
    def cost(self) -> float:
        """What the answered rows and tokens have cost so far."""
        price_in, price_out = self.settings.token_prices
        tokens = self.usage.tokens_in * price_in + self.usage.tokens_out * price_out
        return self.usage.rows * self.settings.price_per_row + tokens

    @property
    def batch_size(self) -> int:
        """The rows that keep every connection busy."""
        return self.chunk_size() * self.settings.concurrency

    def spend(self, read: Any, written: Any) -> None:
        """Count the tokens that, by a reply, were read and written; None counts as 0."""
        for tokens in (read, written):
            if tokens is not None and (type(tokens) is not int or tokens < 0):
                raise ValueError(f"the server counts {tokens!r} tokens, by which costs go; see the server's log")
        self.usage.tokens_in += read or 0
        self.usage.tokens_out += written or 0

    def pace(self, bucket: Bucket) -> None:
        """Take slots for all requests from this bucket, in place of the model's own ``rate``."""
        self.close()
        self.bucket = bucket

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def __call__(self, batch: Any) -> Floats:
        rows = WireRows.of(batch)
        if len(rows) == 0:
            raise ValueError("the batch is empty; a model behind HTTP needs at least one row")
        keys = rows.keys()
        request = _Batch(rows, keys, self._answered(keys))
        portal = self._open()
        try:
            portal.run(self._ask(portal, request))
        except BaseException as error:
            answers = self._answered(keys)
            blanks = [np.full(width, np.nan) for width in set(map(len, answers.values()))]
            error.partial = None  # type: ignore[attr-defined]
            if len(blanks) == 1:  # else there is nothing, or nobody can tell what is right; a ledger may keep the rest
                error.partial = np.stack([answers.get(key, blanks[0]) for key in keys])  # type: ignore[attr-defined]
            if isinstance(error, KeyboardInterrupt):
                self.close()
            raise
        answers = request.answers
        widths = {len(row) for row in answers.values()}
        if len(widths) > 1:
            for key in answers:  # nobody can tell which are right, so all are asked again
                self._memo.pop(key, None)
            raise EndpointError(
                f"{self!r} gave rows of {sorted(widths)} outputs in one batch; they must agree: call again, and see "
                "the server's log if it stays so"
            )
        bad = {key for key, row in answers.items() if not np.isfinite(row).all()}
        if bad:  # the caller will fail and may call again: only these rows are then sent again
            for key in bad:
                self._memo.pop(key, None)
        elif self.forgets:
            for key in answers:
                self._memo.pop(key, None)
        self.finish()
        return np.stack([answers[key] for key in keys])

    def _answered(self, keys: Sequence[bytes]) -> dict[bytes, Floats]:
        """The answers to these rows that earlier calls have left, such as one that failed."""
        return {key: self._memo[key] for key in keys if key in self._memo}

    def close(self) -> None:
        """Close the connections; the next call opens them again."""
        with self._opening:
            portal, self._portal = self._portal, None
            if portal is not None:
                self._finalizer()

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        for name in ("_portal", "_opening", "_finalizer", "_memo"):
            state.pop(name, None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._fresh()

    # How a batch is asked.

    def _open(self) -> Portal:
        """The one portal of all threads; in its thread alone, limits are kept, and answers counted and remembered."""
        with self._opening:
            if self._portal is None or not self._portal.alive:
                self._portal = Portal(self.url, self.settings, self.bucket)
                self._finalizer = weakref.finalize(self, self._portal.close)
            return self._portal

    async def _ask(self, portal: Portal, batch: _Batch) -> None:
        if not self._connected:
            await self.connect(portal)
            self._connected = True
        missing = batch.missing()
        if missing and not self._probed:
            await self._ask_chunk(portal, batch, missing[:1], probe=True)
            self._probed, missing = True, missing[1:]
        chunks = deque(_cut(missing, self.chunk_size()))
        workers = min(self.settings.concurrency, len(chunks))
        await asyncio.gather(*(self._work(portal, batch, chunks) for _ in range(workers)))
        while len(self._memo) > 65_536:
            self._memo.pop(next(iter(self._memo)), None)  # None: another thread may have removed it
        if batch.errors:
            raise batch.errors[0]

    async def _work(self, portal: Portal, batch: _Batch, chunks: deque[list[int]]) -> None:
        while chunks and not batch.errors:
            try:
                await self._ask_chunk(portal, batch, chunks.popleft())
            except Exception as error:
                batch.errors.append(error)

    async def _ask_chunk(self, portal: Portal, batch: _Batch, chunk: list[int], probe: bool = False) -> None:
        span = f"row {chunk[0]}" if len(chunk) == 1 else f"rows {min(chunk)}–{max(chunk)}"
        what = f"{self!r}, {span} of {len(batch.rows)}"
        part = await self.encode(portal, batch.rows.take(chunk))
        reply = await send(portal, self.request(part), what, probe, stopped=lambda: bool(batch.errors))
        before = self.cost
        outputs = self._outputs(reply, part, what, chunk)
        self.usage.rows += len(chunk)
        self.usage.requests += 1
        charge(self.cost - before)
        for i, row in zip(chunk, outputs, strict=True):
            batch.answers[batch.keys[i]] = self._memo[batch.keys[i]] = row

    def _outputs(self, reply: Reply, part: WireRows, what: str, chunk: Sequence[int]) -> Floats:
        """The outputs that the adapter reads from a reply, one row for each row of the request."""
        wrong = None
        try:
            outputs = np.asarray(self.answer(reply, part), dtype=np.float64)
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
            wrong = _wrong(error)
            if isinstance(error, RowError) and len(chunk) > 1:
                wrong = f"row {chunk[error.position]}: {wrong}"
        if wrong is not None:  # raised out here, so that no traceback repeats the server's words
            raise EndpointError(f"{what}: {reply.secret.hide(wrong)}")
        outputs = outputs.reshape(-1, 1) if outputs.ndim == 1 else outputs
        if outputs.ndim != 2 or len(outputs) != len(part):
            got = f"{len(outputs)} rows" if outputs.ndim == 2 else f"an array of shape {outputs.shape}"
            raise EndpointError(
                f"{what}: the server returned {got} for {len(part)} inputs; it must return one row per input"
            )
        names = describe(self).output_names
        if names and outputs.shape[1] != len(names):
            raise EndpointError(
                f"{what}: the server returned rows of {outputs.shape[1]} outputs, and there are {len(names)} output "
                "names; give one for each output, or call again where the server has erred"
            )
        return outputs


@dataclass(eq=False)
class _Batch:
    """The rows of one call, the answers so far by the rows' keys, and the errors that end the call."""

    rows: WireRows
    keys: list[bytes]
    answers: dict[bytes, Floats]
    errors: list[Exception] = field(default_factory=list)

    def missing(self) -> list[int]:
        first: dict[bytes, int] = {}
        for i, key in enumerate(self.keys):
            first.setdefault(key, i)
        return [i for key, i in first.items() if key not in self.answers]


def _wrong(error: Exception) -> str:
    if type(error) in (ValueError, RowError):
        return str(error)
    if isinstance(error, KeyError):
        return f"the answer has no {error}"
    return f"the answer cannot be read ({error})"


def _cut(items: list[int], size: int) -> list[list[int]]:
    """Pieces of at most ``size`` items, as equal in length as can be."""
    pieces = -(-len(items) // size)
    return [p.tolist() for p in np.array_split(np.asarray(items, dtype=int), pieces)] if items else []

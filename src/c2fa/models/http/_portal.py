"""A thread with an event loop and one HTTP client: how synchronous code sends many requests at once."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

import httpx2

from c2fa.models.http._settings import Settings, is_local
from c2fa.models.http.limits import Bucket

T = TypeVar("T")


class Portal:
    """Runs coroutines on a loop in a thread of its own, with one pool of connections.

    A loop of its own works where the caller's thread already runs one (a notebook), and keeps connections
    alive from one batch to the next.
    """

    def __init__(self, url: str, settings: Settings, bucket: Bucket) -> None:
        self.url, self.settings, self.bucket = url, settings, bucket
        self.pid = os.getpid()  # a forked child has the object but not the thread
        # A proxy of the environment is for other hosts; a server on this machine is reached directly.
        self._trust_env = not is_local(url)
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._main, name="c2fa-http", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            raise self._failure

    def _main(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._failure = error
            self._ready.set()

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
        """Whether the thread of this very process still runs."""
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
        """Close the connections and end the thread."""
        if not self.alive:
            return
        self._loop.call_soon_threadsafe(self._stop.set)
        if threading.current_thread() is not self._thread:  # the collector may run in any thread
            self._thread.join(5.0)
        self.bucket.close()

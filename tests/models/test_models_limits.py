"""A rate that processes share: kept to, used up, and paused together; and one rule of when to ask again."""

from __future__ import annotations

import multiprocessing as mp
import pickle
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from c2fa import models
from c2fa.batch import Bucket, Limited
from c2fa.models.http.limits import Retry
from servers.fake import Model, Proxy


def _take(path: str, rate: float, count: int, times: object) -> None:
    bucket = Bucket(path, rate)
    for _ in range(count):
        bucket.take()
        times.append(time.monotonic())  # type: ignore[attr-defined]


def test_the_rate_is_shared_by_processes_and_used_up(tmp_path: Path) -> None:
    context = mp.get_context("spawn")
    with context.Manager() as manager:
        times = manager.list()
        workers = [context.Process(target=_take, args=(str(tmp_path / "b"), 50.0, 25, times)) for _ in range(2)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(60)
        stamps = sorted(times)
    assert len(stamps) == 50
    for i in range(len(stamps) - 20):
        assert stamps[i + 20] - stamps[i] > 20 / 50.0 - 0.15  # never much faster than allowed


def test_a_burst_and_then_the_rate(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path / "b", rate=20.0, burst=5)
    begin = time.monotonic()
    for _ in range(5):
        bucket.take()
    burst = time.monotonic() - begin
    for _ in range(4):
        bucket.take()
    assert burst < 0.15
    assert time.monotonic() - begin > 0.15


def test_all_pause_together(tmp_path: Path) -> None:
    one, other = Bucket(tmp_path / "b", 1000.0), Bucket(tmp_path / "b", 1000.0)
    one.take()
    one.pause(0.3)
    one.pause(0.1)  # within the first, so it changes nothing
    begin = time.monotonic()
    other.take()
    assert time.monotonic() - begin > 0.2


def test_a_bucket_in_memory_is_shared_by_threads_and_begins_anew_elsewhere() -> None:
    bucket = Bucket(":memory:", 100.0)
    begin = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: bucket.take(), range(40)))
    assert time.monotonic() - begin > 0.35
    bucket.pause(60.0)
    begin = time.monotonic()
    pickle.loads(pickle.dumps(bucket)).take()
    assert time.monotonic() - begin < 5.0


def test_closing_does_not_free_a_bucket_in_memory_of_its_pause() -> None:
    bucket = Bucket(":memory:", 100.0)
    bucket.take()
    bucket.pause(0.3)
    bucket.close()
    begin = time.monotonic()
    bucket.take()
    assert time.monotonic() - begin > 0.2
    bucket.close()


def test_without_a_rate_only_pauses_count() -> None:
    bucket = Bucket(":memory:", None)
    begin = time.monotonic()
    for _ in range(1000):
        bucket.take()
    assert time.monotonic() - begin < 1.0
    bucket.pause(0.2)
    bucket.take()
    assert time.monotonic() - begin > 0.2


def test_pauses_grow_up_to_the_longest_and_begin_short_again() -> None:
    retry = Retry(retries=4, wait=0.01, max_wait=0.05)
    pauses = [retry.pause(Busy("slow down"), tries) for tries in (1, 2, 3, 4, 5)]
    assert 0.01 <= pauses[0] <= 0.015  # type: ignore[operator]
    assert 0.02 <= pauses[1] <= 0.025  # type: ignore[operator]
    assert pauses[3:] == [0.05, None]
    assert retry.pause(Told(True), 3) == 0.01  # what the server asks for
    assert retry.pause(TimeoutError(), 3) == 0.0


class Busy(Exception):
    status_code = 429


class Flaky:
    """Fails with each of some errors in turn, then answers."""

    cost = 1.5

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls = 0

    def __call__(self, batch: list[str]) -> int:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return len(batch)


class Unavailable(Exception):
    def __init__(self) -> None:
        super().__init__("no status in these words")
        self.response = SimpleNamespace(status_code=503, headers={})


class ReadTimeout(type("TransportError", (Exception,), {})):  # type: ignore[misc]
    """As httpx has it: no relation of Python's own errors."""


class Told(Exception):
    def __init__(self, transient: bool) -> None:
        super().__init__("503: a time-out of the connection")
        self.transient, self.status, self.wait = transient, 429 if transient else None, 0.01


def test_transient_failures_are_asked_again(tmp_path: Path) -> None:
    failures = (
        Busy("slow down"),
        TimeoutError(),
        ConnectionResetError("gone"),
        Unavailable(),
        ReadTimeout(),
        Told(True),
    )
    model = Flaky(*failures)
    limited = Limited(model, tmp_path / "b", 1000.0, wait=0.01)
    assert limited(["a", "b"]) == 2
    assert model.calls == len(failures) + 1
    assert limited.cost == 1.5
    assert pickle.loads(pickle.dumps(limited)).bucket.rate == 1000.0
    with pytest.raises(AttributeError):
        _ = limited.nothing


def test_failures_that_stay_are_raised_at_once(tmp_path: Path) -> None:
    for error in (ValueError("a poisoned row, not a 503 or a lost connection"), Told(False)):
        model = Flaky(error)
        with pytest.raises(type(error)):
            Limited(model, tmp_path / "b", 1000.0)(["a"])
        assert model.calls == 1
    model = Flaky(*[TimeoutError("no answer")] * 9)
    with pytest.raises(TimeoutError):
        Limited(model, tmp_path / "b", 1000.0, retries=2)(["a"])
    assert model.calls == 3


@pytest.fixture
def server() -> Iterator[Model]:
    pytest.importorskip("httpx2")
    with Model(lambda rows: [float(np.sum(row)) for row in rows]) as running:
        yield running


X = np.arange(20.0).reshape(10, 2)


def test_a_model_behind_http_is_repeated_by_itself_alone(tmp_path: Path, server: Model) -> None:
    for wrapped in (lambda model: model, lambda model: lambda batch: model(batch)):
        with Proxy(server.port, [None] + [503] * 20) as proxy:
            endpoint = models.MLflow(proxy.url, retries=1, wait=0.01, rows_per_request=10)
            limited = Limited(wrapped(endpoint), tmp_path / "b", 1000.0, wait=0.01)
            with pytest.raises(models.EndpointError, match="tried 2 times"):
                limited(X)
            assert proxy.seen == ["", "503", "503"]
            endpoint.close()


def test_each_request_of_a_model_behind_http_takes_its_turn(tmp_path: Path, server: Model) -> None:
    limited = Limited(models.MLflow(server.url, rows_per_request=1, concurrency=10), tmp_path / "b", 20.0)
    begin = time.monotonic()
    np.testing.assert_array_equal(limited(X)[:, 0], X.sum(axis=1))
    assert time.monotonic() - begin > 0.4  # ten requests
    assert len(server.sizes) == 10
    Bucket(tmp_path / "b", 20.0).pause(0.5)
    begin = time.monotonic()
    sent = pickle.loads(pickle.dumps(limited))
    sent(X[:1])
    assert time.monotonic() - begin > 0.4
    assert sent.model.bucket is sent.bucket
    sent.model.close()
    limited.model.close()


def test_a_server_that_asks_for_a_pause_is_obeyed_by_all(tmp_path: Path, server: Model) -> None:
    """A model behind HTTP is told to wait, and another process's model of another kind waits too."""
    with Proxy(server.port, [(503, {"retry-after": "0.5"})]) as proxy, ThreadPoolExecutor(1) as thread:
        endpoint = Limited(models.MLflow(proxy.url, wait=0.01), tmp_path / "b", 1000.0)
        answer = thread.submit(endpoint, X)
        while not proxy.seen:
            time.sleep(0.01)
        time.sleep(0.1)
        begin = time.monotonic()
        assert Limited(len, tmp_path / "b", 1000.0)(["a"]) == 1
        assert time.monotonic() - begin > 0.2
        assert len(answer.result(20)) == len(X)
        endpoint.model.close()


def test_mistakes_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="rate must be a number of requests a second above 0, not 0"):
        Bucket(tmp_path / "b", 0)
    with pytest.raises(ValueError, match="burst must be a whole number of at least 1"):
        Bucket(tmp_path / "b", 1.0, burst=0)
    with pytest.raises(TypeError, match="model must be callable"):
        Limited(3, tmp_path / "b", 1.0)  # type: ignore[arg-type]

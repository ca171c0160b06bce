"""A rate that processes share: kept to, used up, and paused together."""

from __future__ import annotations

import multiprocessing as mp
import pickle
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from c2fa.batch import Bucket, Limited


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
    assert one.back_off(0.3) >= 0.3
    begin = time.monotonic()
    other.take()
    assert time.monotonic() - begin > 0.2


def test_pauses_grow_and_begin_short_again(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path / "b", 1000.0)
    first = bucket.back_off(least=0.01)
    assert bucket.back_off(least=0.01) <= first  # they pause already: a second refusal of the same moment is no news
    time.sleep(first)
    second = bucket.back_off(least=0.01)
    assert second > 1.5 * 0.01
    time.sleep(second)
    bucket.answered()
    assert bucket.back_off(least=0.01) < 0.015


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


def test_mistakes_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="rate must be a number of requests a second above 0, not 0"):
        Bucket(tmp_path / "b", 0)
    with pytest.raises(ValueError, match="burst must be at least 1"):
        Bucket(tmp_path / "b", 1.0, burst=0)
    with pytest.raises(TypeError, match="model must be callable"):
        Limited(3, tmp_path / "b", 1.0)  # type: ignore[arg-type]

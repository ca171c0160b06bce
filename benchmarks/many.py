"""What explaining many inputs costs: ratios of one run on one machine, so that they mean the same elsewhere.

    python benchmarks/many.py [throughput] [workers] [tables] [memory] [endpoint]

throughput  rows a second of `many` beside the bare model on the same rows, and beside a plain loop over inputs
workers     two workers beside one, on each engine that is installed
tables      rows of a table through 300 boosted trees in a process of their own: what of its time is not the trees'
memory      10,000 and 100,000 small inputs: peak memory, time and space for each, read back with DuckDB
endpoint    a server with a rate limit, slow answers and time-outs, and eight clients: achieved beside allowed
"""

from __future__ import annotations

import functools
import http.client
import importlib.util
import io
import os
import random
import resource
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # one core for each process, so that two workers can be twice one

import numpy as np

import c2fa
from c2fa.batch import Limited, Recipe, many
from c2fa.batch.packing import Item, packed

LEAVES = 12
STRUCTURE = c2fa.Structure.from_groups("aaabbbcccddd")
WORDS = "the a it was not never good great bad awful wonderful loved hated price quality broke after day works fine"


def reviews(count: int) -> list[str]:
    rng = random.Random(0)
    sentence = lambda: " ".join(rng.choices(WORDS.split(), k=rng.randint(5, 14))).capitalize() + "."  # noqa: E731
    return [" ".join(sentence() for _ in range(rng.randint(3, 7))) for _ in range(count)]


def vectors(count: int) -> Iterator[np.ndarray]:
    rng = np.random.default_rng(0)
    return (rng.normal(size=LEAVES) for _ in range(count))


def smooth(batch: np.ndarray) -> np.ndarray:
    return np.sin((batch * np.linspace(-1.0, 2.0, LEAVES)).sum(axis=1))


def torch_model() -> Callable[[Any], Any]:
    """A small convolutional network for pictures of 32 by 32."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    torch.set_num_threads(1)
    layers: list[Any] = []
    for before, after in ((3, 32), (32, 64), (64, 64)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    net = nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 16, 10)).eval()

    def model(batch: Any) -> Any:
        with torch.inference_mode():
            return net(batch).softmax(dim=1)

    return model


def torch_masker() -> c2fa.maskers.Custom:
    """Pictures of 4 by 4 patches in 4 quarters."""
    import torch

    patch = np.arange(4)[:, None] * 4 + np.arange(4)
    quarter = (np.arange(4)[:, None] // 2) * 2 + np.arange(4) // 2
    structure = c2fa.Structure.from_groups(quarter.ravel())
    pixels = np.kron(patch, np.ones((8, 8), dtype=np.intp))

    def inputs(x: np.ndarray, masks: np.ndarray, level: int) -> Any:
        kept = structure.expand(masks, level)[:, pixels][:, None]
        return torch.from_numpy(np.where(kept, x, np.float32(0.0)))

    return c2fa.maskers.Custom(structure, inputs)


# -- throughput ------------------------------------------------------------------------------------


def throughput(batch_size: int = 256) -> None:
    print("rows of the model a second of CPU time, one process, one core; the best of four turns each")
    texts = reviews(12)
    _throughput("embedded text model", c2fa.models.DemoSentiment(), c2fa.maskers.Text(), texts, batch_size)
    if importlib.util.find_spec("torch"):
        images = list(np.random.default_rng(0).normal(size=(60, 3, 32, 32)).astype(np.float32))
        _throughput("torch model", torch_model(), torch_masker(), images, 64)  # more no longer fits the cache


def _throughput(name: str, model: Any, masker: Any, xs: list[Any], batch_size: int) -> None:
    batches: list[Any] = []

    def seen(batch: Any) -> Any:
        batches.append(batch)
        return model(batch)

    own = [0.0]

    def timed(batch: Any) -> Any:
        begin = time.process_time()
        reply = model(batch)
        own[0] += time.process_time() - begin
        return reply

    explainer = c2fa.Explainer(timed, masker, progress=False, model_name="bench")
    for _ in packed(explainer, (Item(i, x) for i, x in enumerate(xs)), batch_size=batch_size, model=seen):
        pass
    rows = sum(len(batch) for batch in batches)
    best = {"bare": np.inf, "many": np.inf, "loop": np.inf}
    share = 0.0
    for _ in range(4):
        best["bare"] = min(best["bare"], _seconds(lambda: [model(batch) for batch in batches]))
        with tempfile.TemporaryDirectory() as folder:
            own[0] = 0.0
            seconds = _seconds(lambda: many(explainer, xs, folder, engine="serial", batch_size=batch_size))
            best["many"], share = min(best["many"], seconds), max(share, own[0] / seconds)
        best["loop"] = min(best["loop"], _seconds(lambda: [explainer(x) for x in xs]))
    rate = {k: rows / v for k, v in best.items()}
    print(
        f"  {name}: bare {rate['bare']:,.0f}, many {rate['many']:,.0f} = {rate['many'] / rate['bare']:.1%} of it "
        f"(at least 90 %), loop over inputs {rate['loop']:,.0f} = {rate['loop'] / rate['bare']:.1%}; "
        f"of the time of many, {share:.1%} is the model's own; "
        f"batches {rows / len(batches) / batch_size:.0%} full"
    )


def _seconds(work: Callable[[], object]) -> float:
    begin = time.process_time()  # the cores are shared with whatever else runs
    work()
    return time.process_time() - begin


# -- workers ---------------------------------------------------------------------------------------


def workers() -> None:
    print("two workers beside one, CPU-bound model (the embedded one); best of three turns each")
    texts = reviews(48)
    recipe = Recipe("demo", c2fa.maskers.Text(), {"budget": (15, 35), "batch_size": 256})
    serial = None
    for engine in ("processes", "ray", "dask"):
        if engine != "processes" and not importlib.util.find_spec({"dask": "distributed"}.get(engine, engine)):
            print(f"  {engine}: not installed")
            continue
        rates = {1: 0.0, 2: 0.0}
        for count in (1, 2, 1, 2, 1, 2):
            with tempfile.TemporaryDirectory() as folder:
                store = many(recipe, texts, folder, engine=engine, workers=count, shard_size=2, precision="float64")
                ends = sorted(store.file(n).stat().st_mtime for n in store.finished())
                rates[count] = max(rates[count], (len(ends) - count) / (ends[-1] - ends[count - 1]))
                values = [e.low for e in store]
                serial = serial or values
                same = all(np.array_equal(a, b) for a, b in zip(serial, values, strict=True))
        print(
            f"  {engine}: {2 * rates[1]:.2f} and {2 * rates[2]:.2f} inputs a second, {rates[2] / rates[1]:.2f} times "
            f"(at least 1.7); same answers to the last bit: {same}"
        )


# -- tables ----------------------------------------------------------------------------------------


class Boosted:
    """Boosted trees that note how much of their process's time is their own."""

    name, batch_size = "boosted", 4096

    def __init__(self, notes: str) -> None:
        from sklearn.ensemble import HistGradientBoostingClassifier

        x, y = table(2000)
        estimator = HistGradientBoostingClassifier(max_iter=300, early_stopping=False).fit(x, y)
        self.model, self.file = c2fa.models.Sklearn(estimator), Path(notes)
        self.own, self.since = 0.0, 0.0

    def __call__(self, batch: Any) -> Any:
        begin = time.thread_time()
        self.since = self.since or time.process_time()
        outputs = self.model(batch)
        self.own += time.thread_time() - begin
        self.file.write_text(f"{self.own} {time.process_time() - self.since}")
        return outputs


def table(rows: int) -> tuple[Any, Any]:
    import pandas as pd

    x = np.random.default_rng(0).normal(size=(rows, 30))
    return pd.DataFrame(x, columns=[f"column {i}" for i in range(30)]), x[:, 0] + x[:, 1] * x[:, 2] > 0


def tables() -> None:
    frame, _ = table(2000)
    groups = {f"group {k}": list(frame.columns[5 * k : 5 * k + 5]) for k in range(6)}
    with tempfile.TemporaryDirectory() as folder:
        notes = os.path.join(folder, "notes")
        masker = c2fa.maskers.Tabular(groups, background=frame)
        recipe = Recipe(functools.partial(Boosted, notes), masker, {"budget": 200})
        store = many(recipe, frame.iloc[:400], os.path.join(folder, "store"), models=1, workers=2)
        own, whole = map(float, Path(notes).read_text().split())
        print(
            f"rows of a table, 30 columns in 6 groups, through 300 boosted trees: {store.run.rows / own:,.0f} rows a "
            f"second of the trees' own time; {1 - own / whole:.1%} of their process's time is not theirs (at most 20 %)"
        )


# -- memory ----------------------------------------------------------------------------------------


def memory() -> None:
    print("small inputs (12 leaves, 17 rows each) on two workers, streamed")
    for count in (10_000, 100_000):
        with tempfile.TemporaryDirectory() as folder:
            begin = time.monotonic()
            told = subprocess.run(
                [sys.executable, __file__, "_memory", str(count), folder], check=True, capture_output=True, text=True
            ).stdout.split()
            seconds = time.monotonic() - begin
            driver, worker, cpu = float(told[0]), float(told[1]), float(told[2])
            size = sum(f.stat().st_size for f in Path(folder).iterdir())
            files = len(list(Path(folder).iterdir()))
            print(
                f"  {count:,}: peak {driver:.0f} MiB driver, {worker:.0f} MiB worker; {1e3 * seconds / count:.2f} ms "
                f"wall and {1e3 * cpu / count:.2f} ms CPU an input; {size / count:.0f} bytes an input in {files} files"
            )
            if importlib.util.find_spec("duckdb"):
                import duckdb

                begin = time.monotonic()
                query = "SELECT count(*), count(error), avg(list_sum(values_1)), max(len(warnings)) FROM "
                rows = duckdb.sql(f"{query} '{folder}/part-*.parquet'").fetchall()[0]
                print(
                    f"    DuckDB read it back in {time.monotonic() - begin:.2f} s: {rows[0]:,} rows, {rows[1]} errors"
                )
    print(
        f"  100 million of these, on paper: {1e8 * cpu / count / 3600:,.0f} core-hours beside the model's own, "
        f"{1e8 * size / count / 1e9:,.0f} GB in {1e8 / 10_000:,.0f} files with shard_size=10,000"
    )


def _memory(count: str, folder: str) -> None:
    explainer = c2fa.Explainer(smooth, c2fa.maskers.Array(STRUCTURE), budget=(5, 12), batch_size=1024, model_name="s")
    many(explainer, vectors(int(count)), folder, workers=2, shard_size=1000, progress=False)
    own, below = (resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    cpu = sum(u.ru_utime + u.ru_stime for u in (own, below))
    # ru_maxrss of a process begins at what its parent held when it forked, so the driver's own peak is read here.
    driver = int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
    print(driver / 1024, below.ru_maxrss / 1024, cpu)


# -- endpoint --------------------------------------------------------------------------------------


class Server(ThreadingHTTPServer):
    """Answers in 50 ms, one in a hundred far too late, and refuses more than 100 requests a second."""

    daemon_threads = True
    request_queue_size = 64
    rate, burst = 100.0, 10.0

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock = threading.Lock()
        self.rng = random.Random(0)
        self.tokens, self.at = self.burst, time.monotonic()
        self.accepted: list[float] = []
        self.ids: list[str] = []
        self.refused = self.late = 0

    def admit(self, name: str) -> float | None:
        with self.lock:
            now = time.monotonic()
            self.tokens = min(self.burst, self.tokens + (now - self.at) * self.rate)
            self.at = now
            if self.tokens < 1:
                self.refused += 1
                return None
            self.tokens -= 1
            self.accepted.append(now)
            self.ids.append(name)
            late = self.rng.random() < 0.01
            self.late += late
            return 2.0 if late else 0.05


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        assert isinstance(self.server, Server)
        body = self.rfile.read(int(self.headers["content-length"]))
        delay = self.server.admit(self.headers["x-request-id"])
        status, answer = 429, b""
        if delay is not None:
            time.sleep(delay)
            out = io.BytesIO()
            np.save(out, smooth(np.load(io.BytesIO(body))))
            status, answer = 200, out.getvalue()
        try:
            self.send_response(status)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)
        except OSError:
            self.close_connection = True  # the client gave up

    def log_message(self, *_: object) -> None:
        return None


class Busy(Exception):
    status_code = 429


class Client:
    """One connection for each thread; a second is enough for any answer."""

    name = "simulated"

    def __init__(self, port: int) -> None:
        self.port = port
        self.own = threading.local()

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        body = io.BytesIO()
        np.save(body, batch)
        try:
            if getattr(self.own, "connection", None) is None:
                self.own.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=1.0)
            self.own.connection.request("POST", "/", body.getvalue(), {"x-request-id": uuid.uuid4().hex})
            reply = self.own.connection.getresponse()
            answer = reply.read()
        except OSError:
            self.own.connection.close()
            self.own.connection = None
            raise
        if reply.status == 429:
            raise Busy("429")
        found: np.ndarray = np.load(io.BytesIO(answer))
        return found


def limited_client(port: int, path: str) -> Limited:
    return Limited(Client(port), path, rate=Server.rate, wait=0.2)


def endpoint(inputs: int = 6000) -> None:
    print("simulated endpoint: 50 ms a request, 1 % time-outs, 100 requests a second, 8 clients of 3 requests each")
    from functools import partial

    server = Server()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    masker, options = c2fa.maskers.Array(STRUCTURE), {"budget": (8, 24), "batch_size": 64}
    with tempfile.TemporaryDirectory() as folder:
        bucket = str(Path(folder) / "rate.sqlite")
        recipe = Recipe(partial(limited_client, server.server_port, bucket), masker, options)
        store = many(
            recipe,
            list(vectors(inputs)),
            Path(folder) / "s",
            workers=8,
            in_flight=3,
            shard_size=100,
            precision="float64",
        )
        times = np.array(sorted(server.accepted))
        begin, end = np.quantile(times, [0.1, 0.8])  # all eight are loaded, and none has run out of shards
        achieved = ((times >= begin) & (times <= end)).sum() / (end - begin)
        places = store.table(["index"])["index"].to_pylist()
        plain = c2fa.Explainer(smooth, masker, **options)
        same = all(np.array_equal(store[i].low, plain(x).low) for i, x in zip(range(200), vectors(200), strict=True))
        print(
            f"  {len(times)} requests accepted, {server.refused} refused, {server.late} too late; achieved "
            f"{achieved:.1f} a second of {server.rate:.0f} = {achieved / server.rate:.1%} (at least 95 %)"
        )
        print(
            f"  inputs with exactly one row: {len(set(places))} of {inputs}, {len(places) - len(set(places))} doubled, "
            f"{len(store.errors())} set aside; requests doubled: {len(server.ids) - len(set(server.ids))}; "
            f"the first 200 equal to explaining alone: {same}"
        )
    server.shutdown()
    server.server_close()


SECTIONS = {"throughput": throughput, "workers": workers, "tables": tables, "memory": memory, "endpoint": endpoint}

if __name__ == "__main__":
    if sys.argv[1:2] == ["_memory"]:
        _memory(*sys.argv[2:])
    else:
        unknown = [name for name in sys.argv[1:] if name not in SECTIONS]
        if unknown:
            sys.exit(f"{unknown[0]!r} is no section; give any of {', '.join(SECTIONS)}")
        print(f"load of this machine now: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        for section in sys.argv[1:] or SECTIONS:
            SECTIONS[section]()

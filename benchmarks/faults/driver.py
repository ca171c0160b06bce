"""The process that is killed: it explains a small dataset into a folder, and continues where the last one was killed.

    python -m benchmarks.faults.driver FOLDER many|one|shared|ray|dask COUNT SEED [--ledger]

``many`` is ``c2fa.batch.many`` with two workers; ``shared`` the same around one model, and ``ray`` and ``dask`` that on
another engine; ``one`` explains one input after the other and saves each. The model is slow until the folder has a file
``calm``; until then this process and its workers also kill themselves now and then where they open, rename or remove a
file of the folder: moments that a kill from outside seldom hits.
"""

from __future__ import annotations

import multiprocessing as mp
import os
import random
import signal
import sys
from pathlib import Path
from typing import Any

from benchmarks.faults import toys
from benchmarks.faults.tally import verdict

from c2fa.batch import many

_CHANCE = 0.02  # of a kill at each touch of a file
_DELAY = 0.1  # seconds that a batch takes
_EVENTS = ("open", "os.rename", "os.remove")


def kill_at_files(folder: Path, seed: str) -> None:
    """Kill this process at some of the moments at which it touches a file of the folder."""
    rng = random.Random(seed)
    ours = [str(folder / name) for name in ("log", "killed", "orphans", "errors")]

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in _EVENTS or not str(arguments[0]).startswith(str(folder)) or str(arguments[0]) in ours:
            return
        if rng.random() < _CHANCE and not (folder / "calm").exists():
            for worker in mp.active_children():  # they die with their driver
                toys.append(folder / "orphans", str(worker.pid))
            toys.append(folder / "killed", str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def main(name: str, way: str, count: str, seed: str, *ledger: str) -> None:
    """Explain what is not explained yet."""
    folder = Path(name)
    options: dict[str, Any] = {"ledger": folder / "answers.sqlite"} if ledger else {}
    explain = toys.explainer(toys.Model(folder, _DELAY), **options)
    xs = toys.inputs(int(count))
    if way != "one":
        settings: Any = {"workers": 2, "shard_size": toys.SHARD, "precision": "float64", "progress": False}
        settings |= {"models": int(way != "many"), "engine": way if way in ("ray", "dask") else "processes"}
        many(explain, xs, folder / "store", **settings)
        return
    (folder / "saved").mkdir(exist_ok=True)
    for i, x in enumerate(xs):
        file = folder / "saved" / f"{i}.json"
        if not file.exists():
            explain(x).save(file)


if __name__ in ("__main__", "__mp_main__") and sys.argv[2] not in ("ray", "dask"):  # the workers too
    kill_at_files(Path(sys.argv[1]), f"{sys.argv[4]}/{os.getpid()}")
if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Exception as error:  # the campaign counts it
        count, where = verdict(error)
        said = " ".join(str(error).split())
        toys.append(Path(sys.argv[1]) / "errors", f"{count is None}\t{where}\t{said}")
        sys.exit(1)

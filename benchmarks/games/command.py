"""What the command line asks for: games, methods and rows, run in some processes."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import games
from benchmarks.games.games import load
from benchmarks.games.measuring import DEFAULT, Task, measure, missing
from benchmarks.games.peers import TREES
from benchmarks.games.tables import tables

import c2fa


def main(argv: Sequence[str] | None = None) -> None:
    """Run the methods, print their tables, keep their results."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.games",
        description=games.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "games", type=Path, nargs="?", default=Path("../shared/data/games"), help="a folder or .npz file"
    )
    parser.add_argument("--methods", type=_words, help=f"by default those of {','.join(DEFAULT)} that are installed")
    parser.add_argument("--kinds", type=_words, help="all by default")
    parser.add_argument("--rows", type=_numbers, default=(2, 5, 11, 24), help="rows a leaf; 2,5,11,24 by default")
    parser.add_argument("--games", dest="most", metavar="N", type=int, help="the first N games of each kind")
    parser.add_argument("--seeds", type=int, default=1, help="how often each game is estimated; 1 by default")
    parser.add_argument("--jobs", type=int, default=2, help="processes; 2 by default")
    parser.add_argument("--json", type=Path, help="a file for the result of every run")
    parser.add_argument("--beside", type=Path, help="a file of --json; its results of other methods are in the tables")
    given = parser.parse_args(argv)
    for method in given.methods or ():
        why = missing(method)
        if why is not None:
            parser.error(why)
    left_out = [] if given.methods else [why for method in DEFAULT if (why := missing(method))]
    methods = given.methods or [method for method in DEFAULT if not missing(method)]
    for why in left_out:
        print(f"left out: {why}")
    if any(method.startswith("regression-msr") for method in methods):
        print(f"regression-msr has the boosted trees of {TREES}")
    chosen = load(given.games, given.kinds, given.most)
    tasks = [
        Task(game, method, rows, seed)
        for seed in range(given.seeds)
        for rows in given.rows
        for game in chosen
        for method in methods
    ]
    records: list[dict[str, Any]] = []
    if given.beside is not None:
        names = {game.name for game in chosen}
        stored = json.loads(given.beside.read_text(encoding="utf-8"))["results"]
        records = [r for r in stored if r["method"] not in methods and r["game"] in names and r["rows"] in given.rows]
    begin = time.monotonic()
    for number, record in enumerate(_run(tasks, given.jobs), 1):
        records.append(record)
        if number % 100 == 0 or number == len(tasks):
            print(f"{number} of {len(tasks)} runs, {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
            if given.json is not None:  # now and then, so that a run that is ended keeps what it has
                kept = {"c2fa": c2fa.__version__, "trees": TREES, "results": records}
                given.json.write_text(json.dumps(kept), encoding="utf-8")
    print("", *map(str, tables(records)), sep="\n\n")


def _run(tasks: Sequence[Task], jobs: int) -> Iterator[dict[str, Any]]:
    """The results, in order; with one job in this process."""
    if jobs <= 1:
        yield from map(measure, tasks)
        return
    # Not by fork: libraries that were loaded with threads may hang in a process made by it.
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap(measure, tasks, chunksize=4)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(","))

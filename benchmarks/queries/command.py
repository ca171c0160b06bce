"""What the command line asks for, done part by part."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import queries
from benchmarks.queries import (
    additive,
    cost,
    coverage,
    networks,
    prior_stages,
    prior_tables,
    prior_words,
    scouts,
    stopping,
    synthetic,
)
from benchmarks.queries.tables import Table

import c2fa

PARTS: Mapping[str, Callable[[argparse.Namespace], list[Table]]] = {
    "a": lambda args: synthetic.tables(args.quick),
    "additive": lambda args: additive.tables(args.quick, args.data),
    "until": lambda args: stopping.tables(args.quick, args.data),
    "coverage": lambda args: coverage.tables(args.quick),
    "cost": lambda args: cost.tables(args.quick),
    "prior": lambda args: [
        *prior_words.tables(args.quick, args.data, args.answers, args.weights, args.device, args.workers, args.inputs),
        *prior_tables.tables(args.quick, args.data, args.workers),
    ],
    "stages": lambda args: prior_stages.tables(args.quick, args.data, args.answers, args.workers, args.inputs),
    "scout": lambda args: scouts.tables(args.quick, args.data),
    "images": lambda args: networks.tables("images", args.results),
    "text": lambda args: networks.tables("text", args.results),
}


def main(argv: Sequence[str] | None = None) -> None:
    """Run the parts, print their tables, store their numbers."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.queries",
        description=queries.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--only", default=",".join(PARTS), help="parts to run, with commas between them; all by default"
    )
    parser.add_argument("--quick", action="store_true", help="a trial of seconds whose numbers mean nothing")
    parser.add_argument("--out", type=Path, default=None, help="a JSON file for all numbers")
    parser.add_argument("--results", type=Path, default=None, help="the folder of the experiments' results")
    parser.add_argument("--data", type=Path, default=None, help="the folder of the reviews; ../shared/data by default")
    of_prior = parser.add_argument_group("part prior")
    of_prior.add_argument("--answers", type=Path, default=None, help="where answers are kept; build/prior by default")
    of_prior.add_argument("--weights", type=Path, default=None, help="the text network; build/text/bert.safetensors")
    of_prior.add_argument("--device", default="cpu", help="where the text network runs: cpu, the default, or cuda")
    of_prior.add_argument("--workers", type=int, default=None, help="processes that explain; one for each core")
    of_prior.add_argument("--inputs", choices=("test", "validation"), default="test", help="the reviews to report on")
    args = parser.parse_args(argv)
    names = [name.strip() for name in args.only.split(",") if name.strip()]
    for name in names:
        if name not in PARTS:
            parser.error(f"there is no part {name!r}; the parts are {', '.join(PARTS)}")
    stored: dict[str, Any] = {"c2fa": c2fa.__version__, "quick": args.quick, "parts": {}}
    for number, name in enumerate(names, 1):
        print(f"part {number} of {len(names)}: {name} …", flush=True)
        begin = time.monotonic()
        tables = PARTS[name](args)
        print("", *map(str, tables), f"  ({time.monotonic() - begin:.0f} s)\n", sep="\n\n", flush=True)
        stored["parts"][name] = [table.plain() for table in tables]
        if args.out is not None:  # after every part, so that one which fails does not take the others with it
            args.out.write_text(json.dumps(stored, indent=1, ensure_ascii=False), encoding="utf-8")

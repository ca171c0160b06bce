"""What the command line asks for, campaign by campaign."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence

from benchmarks import faults
from benchmarks.faults import calls, flips, fuzz, kills, server, shared
from benchmarks.faults.tally import COUNTS, Tally
from benchmarks.queries.tables import Table

# For each campaign: what runs it, and how many tries make it full and quick.
CAMPAIGNS: Mapping[str, tuple[Callable[[int, int], Tally], int, int]] = {
    "kills": (kills.campaign, 340, 12),
    "shared": (shared.campaign, 120, 16),
    "server": (server.campaign, 600, 24),
    "fuzz": (fuzz.campaign, 12_000, 1_000),
    "flips": (flips.campaign, 1_000, 100),
    "calls": (calls.campaign, 10_000, 60),
}


def main(
    argv: Sequence[str] | None = None, campaigns: Mapping[str, tuple[Callable[[int, int], Tally], int, int]] = CAMPAIGNS
) -> int:
    """Run the campaigns and print what they counted; return 1 where a count is above 0."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.faults",
        description=faults.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", default=",".join(campaigns), help="campaigns to run, with commas between them")
    parser.add_argument("--quick", action="store_true", help="a trial of a minute, with few tries of each kind")
    parser.add_argument("--seed", type=int, default=0, help="decides on the kills, faults, arguments and bits")
    args = parser.parse_args(argv)
    names = [name.strip() for name in args.only.split(",") if name.strip()]
    for name in names:
        if name not in campaigns:
            parser.error(f"there is no campaign {name!r}; the campaigns are {', '.join(campaigns)}")
    tallies = []
    for name in names:
        run, full, quick = campaigns[name]
        begin = time.monotonic()
        print(f"{name}, seed {args.seed} …", flush=True)
        tally = run(args.seed, quick if args.quick else full)
        tallies.append(tally)
        print(*(f"  {line}" for line in tally.examples()), sep="\n")
        if tally.tried:
            kinds = [kind.split(", ") for kind in tally.tried]
            runs, columns = (sorted({kind[i] for kind in kinds}) for i in (0, 1))
            rows = [{"run": r, **{c: tally.tried[f"{r}, {c}"] for c in columns}} for r in runs]
            print(Table("Points tried", rows))
        print(f"  ({tally.tries} tries in {time.monotonic() - begin:.0f} s)\n", flush=True)
    print(Table(f"Every count from {COUNTS[0]} to {COUNTS[-1]} should be 0", [tally.row for tally in tallies]))
    return int(any(tally.failed for tally in tallies))

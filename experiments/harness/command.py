"""What the two experiments' commands have in common: their options, and what is done once a domain is ready."""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from experiments.harness import queries
from experiments.harness import reproduce as harness
from experiments.harness.reproduce import SCALES, Domain, Scale
from experiments.harness.showing import N_L, Describe, keep_examples


@dataclass(frozen=True)
class Options:
    """What was asked for on the command line.

    Attributes
    ----------
    batch
        Images, or word pieces, in one forward pass.
    """

    scale_name: str
    data: Path
    model: Path
    cache: Path
    out: Path
    device: str
    workers: int
    seconds: float | None
    queries: bool
    batch: int

    @property
    def scale(self) -> Scale:
        return SCALES[self.scale_name]

    @property
    def small(self) -> bool:
        """Whether it is a trial that must do on any machine."""
        return self.scale_name == "small"

    @property
    def cuda(self) -> bool:
        return self.device.startswith("cuda")


def options(
    argv: Sequence[str] | None,
    description: str,
    *,
    data: Path,
    model: Path,
    work: Path,
    results: Path,
    batches: tuple[int, int],
    unit: str,
) -> Options:
    """Read the command line of an experiment.

    Parameters
    ----------
    work, results
        Folders: of what is kept between runs, a trial's results among it, and of results at the paper's scale.
    batches, unit
        How much goes through the network at once by default, on a CPU and on a GPU, and what it is counted in.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--scale", choices=sorted(SCALES), default="small")
    parser.add_argument("--data", type=Path, default=data, help="the folder with the data, or what was prepared of it")
    parser.add_argument("--model", type=Path, default=model, help="the network that the experiment's training wrote")
    parser.add_argument("--cache", type=Path, default=work, help="where decoded, cut or tokenised data is kept")
    parser.add_argument("--out", type=Path, default=None, help="where results go")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--workers", type=int, default=0, help="processes that draw, fit and score")
    parser.add_argument("--seconds", type=float, default=None, help="begin no shard after so long")
    parser.add_argument("--queries", action="store_true", help="compare what budgets buy, and nothing else")
    parser.add_argument("--batch", type=int, default=None, help=f"{unit} in one forward pass")
    a = parser.parse_args(argv)
    return Options(
        a.scale,
        a.data,
        a.model,
        a.cache,
        a.out or (work / "small" if a.scale == "small" else results),
        a.device,
        a.workers,
        a.seconds,
        a.queries,
        a.batch or batches[a.device.startswith("cuda")],
    )


def run(domain: Domain, describe: Describe, o: Options, *, shown: Sequence[str], alone: float, unit: str) -> None:
    """Run an experiment, or compare what budgets buy on its inputs.

    Parameters
    ----------
    shown
        The methods of the example figures.
    alone, unit
        What the network does a second by itself, and what it is counted in.
    """
    print(f"the network alone: {alone:,.0f} {unit} a second in batches of {o.batch:,}", flush=True)
    about = {**domain.about, f"{unit} a second, network alone": alone, "batch": o.batch}
    domain = dataclasses.replace(domain, about=about)
    if o.queries:
        queries.compare(domain, o.out, small=o.small, workers=o.workers, seconds=o.seconds)
        return
    harness.reproduce(domain, o.out, o.scale_name, workers=o.workers, seconds=o.seconds)
    keep_examples(domain, o.out, describe, methods=shown, n_l=min(N_L, max(o.scale.leaf_rows)))


def rate(step: Callable[[], int], cuda: bool, seconds: float) -> float:
    """The work a second of a step that says how much it did, repeated; its first time is not counted."""

    def wait() -> None:
        if cuda:
            torch.cuda.synchronize()

    with torch.inference_mode():
        step()
        wait()
        done, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < seconds:
            done += step()
            wait()
        return done / (time.perf_counter() - begin)

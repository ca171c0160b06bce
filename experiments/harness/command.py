"""What the two experiments' commands have in common: their options, and what is done once a domain is ready."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from experiments.harness import queries
from experiments.harness import reproduce as harness
from experiments.harness.grid import Crew
from experiments.harness.reproduce import SCALES, Domain, Scale
from experiments.harness.showing import N_L, Describe, keep_examples


@dataclass(frozen=True)
class Options:
    """What was asked for on the command line; what was not asked for is the experiment's own.

    Attributes
    ----------
    data, model
        The folder of data, or of what was prepared of it, and the network that the experiment's training wrote.
    cache
        Where decoded, cut or tokenised data is kept.
    out
        Where results go.
    workers
        Processes that draw, fit and score, around one that owns the network; 0 does all of it in this one.
    seconds
        Begin no input after so long.
    queries
        Compare what budgets buy, and nothing else.
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

    @property
    def crew(self) -> Crew:
        return Crew(self.workers, self.cuda)


@dataclass(frozen=True)
class Defaults:
    """What an experiment takes where nothing was asked for.

    Attributes
    ----------
    work, results
        Folders: of what is kept between runs, a trial's results among it, and of results at the paper's scale.
    batches
        How much goes through the network at once, on a CPU and on a GPU.
    """

    data: Path
    model: Path
    work: Path
    results: Path
    batches: tuple[int, int]

    def options(
        self,
        *,
        scale: str = "small",
        data: Path | None = None,
        model: Path | None = None,
        cache: Path | None = None,
        out: Path | None = None,
        device: str | None = None,
        workers: int | None = None,
        seconds: float | None = None,
        queries: bool = False,
        batch: int | None = None,
    ) -> Options:
        """The options that were given, with this experiment's own in the place of the others."""
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        return Options(
            scale,
            data or self.data,
            model or self.model,
            cache or self.work,
            out or (self.work / "small" if scale == "small" else self.results),
            device,
            workers or 0,
            seconds,
            queries,
            batch or self.batches[device.startswith("cuda")],
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
        queries.compare(domain, o.out, o.crew, small=o.small, seconds=o.seconds)
        return
    harness.reproduce(domain, o.out, o.scale_name, o.crew, seconds=o.seconds)
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

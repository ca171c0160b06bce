"""``c2fa reproduce``: the paper's experiments, run, judged and drawn.

The experiments are code of the repository, not of the package: the commands look for them in the current folder, then
where the package's own source lies, and pass their options on.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from c2fa.cli import _options as o
from c2fa.cli._errors import USAGE, RefusedError, guarded
from c2fa.cli._saying import out as out_
from c2fa.cli._saying import out_json, say

reproduce = typer.Typer(
    no_args_is_help=True,
    help="Run the paper's experiments on real networks, judge its claims, draw its figures (in a clone of the "
    "repository).",
)

_SCALES = ("small", "paper")
_DEVICES = ("cpu", "cuda")

Scale = Annotated[
    str,
    typer.Option(metavar="small|paper", help="A few inputs, to see that all works; or as much as the results hold."),
]
Data = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="The folder of data and weights.", show_default="../shared/data"),
]
Model = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The trained network.", show_default="what the experiment's training wrote"),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        metavar="DIR",
        help="Where results go.",
        show_default="experiments/results/…; a small run: build/…/small",
    ),
]
Device = Annotated[
    str | None, typer.Option(metavar="cpu|cuda", help="Where the network runs.", show_default="cuda where there is one")
]
Workers = Annotated[
    int | None,
    typer.Option(min=0, help="Processes that explain; 0 is this one alone.", show_default="the experiment's own"),
]
Seconds = Annotated[
    float | None,
    typer.Option(min=0, help="Begin nothing new after so long; the same command continues.", show_default=False),
]
Queries = Annotated[
    bool, typer.Option("--queries", help="Compare what budgets buy instead: the table of 'make bench-queries'.")
]
Results = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="The folder of results.", show_default="experiments/results"),
]


@reproduce.command()
def images(
    scale: Scale = "small",
    data: Data = None,
    model: Model = None,
    out: Out = None,
    device: Device = None,
    workers: Workers = None,
    seconds: Seconds = None,
    queries: Queries = False,
    debug: o.Debug = False,
) -> None:
    """Explain bags of Pascal VOC images: which image holds the cat, and where.

    \bExamples:
      c2fa reproduce images
      c2fa reproduce images --scale paper --device cuda --workers 28
    """
    with guarded(debug):
        _run("images", scale, data, model, out, device, workers, seconds, queries)


@reproduce.command()
def text(
    scale: Scale = "small",
    data: Data = None,
    model: Model = None,
    out: Out = None,
    device: Device = None,
    workers: Workers = None,
    seconds: Seconds = None,
    queries: Queries = False,
    debug: o.Debug = False,
) -> None:
    """Explain product reviews: which sentences and word pieces decide.

    \bExamples:
      c2fa reproduce text
      c2fa reproduce text --scale paper --device cuda --workers 28
    """
    with guarded(debug):
        _run("text", scale, data, model, out, device, workers, seconds, queries)


@reproduce.command()
def figures(
    results: Results = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="DIR", help="Where figures go.", show_default="experiments/figures"),
    ] = None,
    svg: Annotated[bool, typer.Option("--svg", help="Write each as SVG too.")] = False,
    debug: o.Debug = False,
) -> None:
    """Draw the paper's figures from results.

    \bExamples:
      c2fa reproduce figures
      c2fa reproduce figures --results experiments/results --out figures
    """
    with guarded(debug):
        drawing = _load("harness.figures", needs={"matplotlib": "plots", "pandas": "frame", "pyarrow": "store"})
        folder = _results(results)
        for path in drawing.draw_all(folder, out or drawing.OUT, ("png", "svg") if svg else ("png",)):
            say(f"wrote {path}")


@reproduce.command()
def claims(
    results: Results = None,
    ours: Annotated[
        str, typer.Option(metavar="METHOD", help="The method that takes C2FA's place in the table printed.")
    ] = "C2FA",
    readme: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The page whose generated parts are refreshed.",
            show_default="experiments/README.md, where the results are the repository's",
        ),
    ] = None,
    json: o.Json = False,
    debug: o.Debug = False,
) -> None:
    """Judge the paper's claims by results, and refresh the page that shows them.

    \bExamples:
      c2fa reproduce claims
      c2fa reproduce claims --ours "C2FA intercept"
      c2fa reproduce claims --json
    """
    with guarded(debug):
        pages = _load("harness.pages", needs={"pandas": "frame", "pyarrow": "store"})
        reading = importlib.import_module("experiments.harness.reading")
        folder = _results(results)
        page = readme or (pages.README if folder.resolve() == reading.FOLDER.resolve() else None)
        if page is not None and not page.exists():
            raise RefusedError(f"there is no page {str(page)!r} to refresh")
        found = reading.read(folder)
        known = {label for d in found.domains.values() for label in d.labels}
        if ours not in known:
            raise RefusedError(f"--ours {ours!r} is not among the methods: {', '.join(sorted(known))}", USAGE)
        judged = pages.tables(found)
        shown = judged[ours] if ours in judged else pages.tables(found, [ours])[ours]
        if json:
            import json as json_

            out_json(json_.dumps(pages.plain({ours: shown}), ensure_ascii=False))
        else:
            out_(pages.summary(shown))
        for path in pages.write(found, judged, folder):
            say(f"wrote {path}")
        if page is not None:
            done = pages.refresh(page, pages.blocks(found, judged))
            say(f"refreshed {', '.join(done) or 'nothing: it has no markers'} in {page}")


def _run(
    name: str,
    scale: str,
    data: Path | None,
    model: Path | None,
    out: Path | None,
    device: str | None,
    workers: int | None,
    seconds: float | None,
    queries: bool,
) -> None:
    """Check what can be checked, and run an experiment with the options that were given."""
    for flag, value, known in (("--scale", scale, _SCALES), ("--device", device, _DEVICES)):
        kind = value.partition(":")[0] if value is not None and flag == "--device" else value
        if kind is not None and kind not in known:
            raise RefusedError(f"{flag} must be {' or '.join(known)}; got {value!r}", USAGE)
    needs = {"torch": "torch", "pandas": "frame", "pyarrow": "store"}
    main = _load(f"{name}.run", needs=needs | ({"skimage": "images"} if name == "images" else {})).main
    if data is not None and not data.is_dir():
        raise RefusedError(f"--data: there is no folder {str(data)!r}; experiments/README.md says what it must hold")
    # Weights may also lie in parts, or squeezed, under a name that begins alike.
    if model is not None and not model.exists() and not list(model.parent.glob(f"{model.stem}.*")):
        raise RefusedError(f"--model: there is no file {str(model)!r}; experiments/README.md says how it is trained")
    if device is not None and device.startswith("cuda") and not importlib.import_module("torch").cuda.is_available():
        raise RefusedError("--device cuda: torch sees no GPU here; leave it out, or give --device cpu")
    given: dict[str, object] = {
        "data": data,
        "model": model,
        "out": out,
        "device": device,
        "workers": workers,
        "seconds": seconds,
    }
    argv = ["--scale", scale, *(["--queries"] if queries else [])]
    for option, chosen in given.items():
        if chosen is not None:
            argv += [f"--{option}", str(chosen)]
    code = main(argv)
    if isinstance(code, int) and code:
        raise typer.Exit(code)


def _results(given: Path | None) -> Path:
    folder = given if given is not None else Path(importlib.import_module("experiments.harness.reading").FOLDER)
    if not folder.is_dir():
        raise RefusedError(
            f"there is no folder of results {str(folder)!r}; run 'c2fa reproduce images' or 'c2fa reproduce text' first"
        )
    return folder


def _load(module: str, needs: dict[str, str]) -> Any:
    """A module of the experiments, once the repository is found and what it needs is installed."""
    root = _root()
    missing = [(package, extra) for package, extra in needs.items() if importlib.util.find_spec(package) is None]
    if missing:
        names, extras = zip(*missing, strict=True)
        wanted = ",".join(dict.fromkeys(extras))
        raise RefusedError(f"this needs {', '.join(names)}: pip install 'c2fa[{wanted}]'")
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    return importlib.import_module(f"experiments.{module}")


def _root() -> Path:
    """The clone of the repository: the current folder, or where the package's own source lies."""
    import c2fa

    for folder in (Path.cwd(), Path(c2fa.__file__).resolve().parents[2]):
        if (folder / "experiments" / "harness" / "claims.py").exists():
            return folder
    raise RefusedError(
        "the experiments are not part of the installed package: run this in a clone of the repository (its root)"
    )

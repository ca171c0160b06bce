"""``python -m experiments``: run the paper's experiments, judge its claims, draw its figures."""

from __future__ import annotations

import importlib
import json as json_
from pathlib import Path
from typing import Annotated

import typer

from c2fa.cli import run as run_commands
from c2fa.cli.output import USAGE, RefusedError, need, out_json, say
from c2fa.cli.output import out as out_
from c2fa.cli.session import guarded

NAME = "python -m experiments"
app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Run the paper's experiments on real networks, judge its claims, draw its figures.",
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else to stdout.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Scale = Annotated[str, typer.Option(metavar="small|paper", help="A few inputs to try it out, or the whole experiment.")]
Data = Annotated[
    Path | None, typer.Option(metavar="DIR", help="The folder of data and weights.", show_default="../shared/data")
]
Model = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The trained network.", show_default="what the experiment's training wrote"),
]
Cache = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Where decoded, cut or tokenised data is kept.", show_default="build/…"),
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
    typer.Option(min=0, help="Processes that explain; 0 uses this one alone.", show_default="the experiment's own"),
]
Seconds = Annotated[
    float | None,
    typer.Option(min=0, help="Start nothing new after this time; the same command continues.", show_default=False),
]
Batch = Annotated[
    int | None,
    typer.Option(min=1, help="Images, or word pieces, in one forward pass.", show_default="by the device"),
]
Queries = Annotated[
    bool, typer.Option("--queries", help="Compare what budgets buy instead: the table of 'make bench-queries'.")
]
Results = Annotated[
    Path | None, typer.Option(metavar="DIR", help="The folder of results.", show_default="experiments/results")
]


def _help(name: str, what: str) -> str:
    return f"""Explain {what}.

    \bExamples:
      {NAME} {name}
      {NAME} {name} --scale paper --device cuda --workers 28
    """


@app.command("images", help=_help("images", "bags of Pascal VOC images: which image holds the cat, and where"))
@app.command("text", help=_help("text", "product reviews: which sentences and word pieces decide"))
def experiment(
    context: typer.Context,
    scale: Scale = "small",
    data: Data = None,
    model: Model = None,
    cache: Cache = None,
    out: Out = None,
    device: Device = None,
    workers: Workers = None,
    seconds: Seconds = None,
    queries: Queries = False,
    batch: Batch = None,
    debug: Debug = False,
) -> None:
    name = str(context.command.name)
    with guarded(debug):
        need(("torch", "pandas", "pyarrow", *(("skimage",) if name == "images" else ())), f"the {name} experiment")
        _check(scale, data, model, device)
        module = importlib.import_module(f"experiments.{name}.run")
        module.main(
            module.DEFAULTS.options(
                scale=scale,
                data=data,
                model=model,
                cache=cache,
                out=out,
                device=device,
                workers=workers,
                seconds=seconds,
                queries=queries,
                batch=batch,
            )
        )


def _check(scale: str, data: Path | None, model: Path | None, device: str | None) -> None:
    """Refuse what can be refused before anything is loaded."""
    if scale not in ("small", "paper"):
        raise RefusedError(f"--scale must be small or paper; got {scale!r}", USAGE)
    if device is not None and device.partition(":")[0] not in ("cpu", "cuda"):
        raise RefusedError(f"--device must be cpu or cuda; got {device!r}", USAGE)
    if data is not None and not data.is_dir():
        raise RefusedError(f"--data: there is no folder {str(data)!r}; experiments/README.md says what it must hold")
    # Weights may also lie in parts, or compressed, under a name that begins with the same word.
    if model is not None and not model.exists() and not list(model.parent.glob(f"{model.stem}.*")):
        raise RefusedError(f"--model: there is no file {str(model)!r}; experiments/README.md says how it is trained")
    if device is not None and device.startswith("cuda") and not importlib.import_module("torch").cuda.is_available():
        raise RefusedError("--device cuda: torch sees no GPU here; leave it out, or give --device cpu")


@app.command()
def figures(
    results: Results = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="DIR", help="Where figures go.", show_default="experiments/figures"),
    ] = None,
    svg: Annotated[bool, typer.Option("--svg", help="Write each as SVG too.")] = False,
    debug: Debug = False,
) -> None:
    """Draw the paper's figures from results.

    \bExamples:
      python -m experiments figures
      python -m experiments figures --results experiments/results --out figures
    """
    with guarded(debug):
        need(("matplotlib", "pandas", "pyarrow"), "drawing figures")
        from experiments.harness import figures as drawing

        for path in drawing.draw_all(_results(results), out or drawing.OUT, ("png", "svg") if svg else ("png",)):
            say(f"wrote {path}")


@app.command()
def claims(
    results: Results = None,
    ours: Annotated[
        str, typer.Option(metavar="METHOD", help="The method that takes C2FA's place in the printed table.")
    ] = "C2FA",
    readme: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The page whose generated parts are refreshed.",
            show_default="experiments/README.md, where the results are the repository's",
        ),
    ] = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Judge the paper's claims by results, and refresh the page that shows them.

    \bExamples:
      python -m experiments claims
      python -m experiments claims --ours "C2FA intercept"
      python -m experiments claims --json
    """
    with guarded(debug):
        need(("pandas", "pyarrow"), "judging claims")
        from experiments.harness import pages, reading

        folder = _results(results)
        if readme is None and folder.resolve() == reading.FOLDER.resolve():
            readme = pages.README
        if readme is not None and not readme.exists():
            raise RefusedError(f"there is no page {str(readme)!r} to refresh")
        read = reading.read(folder)
        labels = {label for domain in read.domains.values() for label in domain.labels}
        if ours not in labels:
            raise RefusedError(f"--ours {ours!r} is not among the methods: {', '.join(sorted(labels))}", USAGE)
        judged = pages.tables(read)
        shown = judged[ours] if ours in judged else pages.tables(read, [ours])[ours]
        if json:
            out_json(json_.dumps(pages.plain({ours: shown}), ensure_ascii=False))
        else:
            out_(pages.summary(shown))
        for path in pages.write(read, judged, folder):
            say(f"wrote {path}")
        if readme is not None:
            done = pages.refresh(readme, pages.blocks(read, judged))
            say(f"refreshed {', '.join(done) or 'nothing: it has no markers'} in {readme}")


def _results(given: Path | None) -> Path:
    from experiments.harness.reading import FOLDER

    folder = given or FOLDER
    if not folder.is_dir():
        raise RefusedError(f"there is no folder of results {str(folder)!r}; run '{NAME} images' or '{NAME} text' first")
    return folder


if __name__ == "__main__":
    run_commands(app, NAME)

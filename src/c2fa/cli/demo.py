"""``c2fa demo``: a two-level explanation in seconds, from a model that comes with the package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from c2fa.cli import _options as o
from c2fa.cli import _parsing as parsing
from c2fa.cli._errors import USAGE, RefusedError, as_usage, guarded
from c2fa.cli._outputs import check, write_explanations
from c2fa.cli._saying import interactive, out, out_json, say, show

REVIEW = (
    "I have used this backpack every day for six months. "
    "The straps are comfortable and I love the many pockets. "
    "However, the zipper broke after only two weeks. "
    "Customer service was friendly and sent me a new one within days. "
    "It is a little heavier than I expected. "
    "All in all a great bag that I would happily recommend to a friend."
)
_MODEL = (
    "The model: a small transformer that comes with c2fa and tells whether a review is negative or positive "
    "(numpy alone, no network)."
)


def demo(
    text: Annotated[
        str | None, typer.Option("--text", "-t", help="A text of your own.", show_default="a review of a backpack")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="A file with a text of your own.", show_default=False)
    ] = None,
    budget: o.Budget = "50,150",
    method: o.Method = "c2fa",
    seed: o.Seed = 0,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html", metavar="FILE", help="Write a page to look at.", show_default=False, rich_help_panel=o.WRITING
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot", metavar="FILE", help="Draw a picture of it.", show_default=False, rich_help_panel=o.WRITING
        ),
    ] = None,
    json: o.Json = False,
    debug: o.Debug = False,
) -> None:
    """Explain a review by its sentences and words, with a model that comes along.

    \bExamples:
      c2fa demo
      c2fa demo --text "The food was great. The waiter was rude."
      c2fa demo --file review.txt --html review.html
      c2fa demo --plot review.png
      c2fa demo --method lime --budget 300
    """
    with guarded(debug):
        from c2fa import Explainer, maskers, models

        if html is not None:
            check(html, (".html",), "--html")
        if plot is not None:
            check(plot, (".png", ".pdf", ".svg"), "--plot")
        with as_usage():
            explainer = Explainer(
                models.DemoSentiment(),
                maskers.Text(),
                method=method,
                budget=parsing.budget(budget),
                seed=seed,
                progress=interactive(),
            )
        e = explainer(_read(text, file))
        if html is not None:
            write_explanations(html, [("", e)])
        if plot is not None:
            e.plot().savefig(plot, dpi=110)
        if json:
            out_json(e.to_json())
        else:
            out(_MODEL)
            out("Each sentence's number is the sum of its words'; together they say what the prediction is made of.\n")
            show(e)
        for path in (html, plot):
            if path is not None:
                say(f"wrote {path}")


def _read(text: str | None, file: Path | None) -> str:
    if text is not None and file is not None:
        raise RefusedError("give --text or --file, not both", USAGE)
    if file is not None:
        from c2fa.cli._inputs import read_text

        return str(read_text(file).values[0])
    return REVIEW if text is None else text

"""``c2fa demo``: a two-level explanation in seconds, from the model that comes with the package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from c2fa import Explainer, maskers, models
from c2fa.cli import options as o
from c2fa.cli import output
from c2fa.cli.inputs import read_text
from c2fa.cli.output import USAGE, RefusedError, as_usage
from c2fa.cli.session import guarded

REVIEW = (
    "I have used this backpack every day for six months. "
    "The straps are comfortable and I love the many pockets. "
    "However, the zipper broke after only two weeks. "
    "Customer service was friendly and sent me a new one within days. "
    "It is a little heavier than I expected. "
    "All in all a great bag that I would happily recommend to a friend."
)


def demo(
    text: Annotated[
        str | None, o.flag(o.INPUTS, "--text", "-t", help="A text of your own.", show_default="a review of a backpack")
    ] = None,
    file: Annotated[Path | None, o.flag(o.INPUTS, "--file", "-f", help="A file with a text of your own.")] = None,
    method: o.Method = None,
    budget: o.Budget = None,
    seed: o.Seed = 0,
    html: Annotated[Path | None, o.flag(o.OUTPUT, metavar="FILE", help="Write a page (.html).")] = None,
    plot: Annotated[Path | None, o.flag(o.OUTPUT, metavar="FILE", help="Draw it (.png, .svg or .pdf).")] = None,
    json: o.Json = False,
    debug: o.Debug = False,
) -> None:
    """Explain a review by its sentences and words, with the model that comes with c2fa.

    \bExamples:
      c2fa demo
      c2fa demo --text "The food was great. The waiter was rude."
      c2fa demo --file review.txt --html review.html
      c2fa demo --plot review.png
      c2fa demo --method lime --budget 300
    """
    with guarded(debug):
        if html is not None:
            output.check(html, (".html",), "--html")
        if plot is not None:
            output.check(plot, output.PICTURES, "--plot")
        if text is not None and file is not None:
            raise RefusedError("give --text or --file, not both", USAGE)
        if file is not None:
            text = str(read_text(file).values[0])
        with as_usage():
            explainer = Explainer(
                models.DemoSentiment(),
                maskers.Text(),
                method=method,
                budget=o.budget(budget),
                seed=seed,
                progress=output.interactive(),
            )
        e = explainer(REVIEW if text is None else text)
        if html is not None:
            output.write_explanations(html, [("", e)])
            output.say(f"wrote {html}")
        if plot is not None:
            output.write_figure(plot, e.plot(), dpi=110)
            output.say(f"wrote {plot}")
        if json:
            output.out_json(e.to_json())
        else:
            output.out(
                "The model: a small transformer that comes with c2fa and tells whether a review is negative or "
                "positive (numpy alone, no network).\n"
                "Each sentence's number is the sum of its words'; together they say what the prediction is made of.\n"
            )
            output.show(e)

"""One self-contained HTML file: both levels together, for a browser, a phone, paper and a notebook."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from html import escape
from os import PathLike
from textwrap import shorten
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import numpy as np

from c2fa._system import atomic
from c2fa.report._page import facts, island, overall_table, pack, page, plain, plain_view, summary
from c2fa.showing.numbers import number
from c2fa.showing.printing import shown_names
from c2fa.views.images import Images, fitting_side
from c2fa.views.inputs import shortened

if TYPE_CHECKING:
    from c2fa.explanation import Explanation

__all__ = ["html", "repr_html", "repr_many"]

Several: TypeAlias = "Explanation | Iterable[Explanation | tuple[str, Explanation]] | Mapping[str, Explanation]"
Overall: TypeAlias = Mapping[str, Any]
"""What ``c2fa.batch.Store.overall`` says of many inputs."""


@overload
def html(
    explanations: Several, path: None = None, *, title: str | None = None, overall: Overall | None = None
) -> str: ...
@overload
def html(
    explanations: Several,
    path: str | PathLike[str] | None,
    *,
    title: str | None = None,
    overall: Overall | None = None,
) -> str | None: ...
def html(
    explanations: Several,
    path: str | PathLike[str] | None = None,
    *,
    title: str | None = None,
    overall: Overall | None = None,
) -> str | None:
    """Write an explanation, or many as a gallery, into one HTML file that needs nothing else.

    Parameters
    ----------
    explanations
        One, several, or titles with explanations: pairs, or a mapping.
    path
        The file to write; None returns the page.
    title
        The page's title.
    overall
        What is said of all inputs before their cards, as ``to_html`` of a store and of ``many``'s explanations does.

    Returns
    -------
    str | None
        The page, where no file is named. Nothing in it is fetched from anywhere, and text from the input stays text. Up
        to ten classes can be switched between; pictures are made smaller until all of them take about 12 MB.
    """
    pairs = _named(explanations)
    if not pairs:
        raise ValueError("there are no explanations to report: give at least one")
    title = title or (pairs[0][0] if len(pairs) == 1 else f"{len(pairs)} explanations")
    side = _side(e for _, e in pairs)
    blocks = [pack(e, name, side, numbers=4_000_000 // max(len(pairs), 10)) for name, e in pairs]
    several = len(pairs) > 1 or overall is not None
    index = {
        "title": title,
        "cards": [summary(e, name) for name, e in pairs] if several else [],
        "overall": plain(overall),
    }
    tables = "" if overall is None else overall_table(overall)
    tables += "".join(plain_view(e, f"c2fa-{k}") for k, (_, e) in enumerate(pairs[:20]))
    text = page(title, index, blocks, tables)
    if path is None:
        return text
    with atomic(path) as file:
        file.write(text.encode())
    return None


def repr_html(e: Explanation) -> str:
    """The same view for a notebook's cell.

    It carries its own style inside a shadow tree and its own names, so that several in one notebook leave each other
    and the notebook alone. Where scripts do not run, a plain view with folding parts stays in its place.
    """
    name = f"c2fa-{uuid.uuid4().hex}"
    return island(name, pack(e, facts(e), _side([e])), plain_view(e, f"{name}-plain", styled=True))


def repr_many(title: str, inputs: Iterable[tuple[int, Explanation | str]]) -> str:
    """A table for a notebook's cell: of each input what was predicted, its largest parts and what to beware of.

    An input has its explanation, or the error in place of one.
    """
    cell = "text-align:left;vertical-align:top;padding:3px 8px;border-bottom:1px solid #d5dae0"
    several = list(inputs)
    titled = any(not isinstance(e, str) and title_of(e) for _, e in several)  # rows of a table have no titles
    columns = ("", *("input",) * titled, "predicted", "largest parts")
    heads = "".join(f"<th scope='col' style='{cell}'>{name}</th>" for name in columns)
    rows = []
    for index, e in several:
        shown, predicted, parts = "", "", ""
        beware: tuple[str, ...] = (f"could not be explained: {e}",)
        if not isinstance(e, str):
            names, units = shown_names(e)[0], e.rounded.values[0]
            largest = [(e.rounded.signed(units[j]), names[j]) for j in np.argsort(-np.abs(e.high), kind="stable")[:3]]
            parts = "<br>".join(
                f"<code>{n}</code> {escape(shorten(name, 60, placeholder=' …'))}" for n, name in largest
            )
            shown, predicted = title_of(e), f"{e.target_name}: {number(e.prediction)}"
            beware = e.diagnostics.warnings
        parts += "".join(f"<div style='color:#8a1c14'>⚠ {escape(sentence)}</div>" for sentence in beware)
        texts = (*(escape(shown),) * titled, escape(predicted), parts)
        cells = "".join(f"<td style='{cell}'>{text}</td>" for text in texts)
        rows.append(f"<tr><th scope='row' style='{cell}'>{index}</th>{cells}</tr>")
    frame = "background-color:#ffffff;color:#1b1f24;border-collapse:collapse;font-size:13px;line-height:1.45"
    return (
        f"<table style='{frame}'><caption style='text-align:left'>{escape(title)}</caption>"
        f"<thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    )


def _named(explanations: Several) -> list[tuple[str, Explanation]]:
    """Explanations with the titles they were given, or those of their inputs; of equal ones each has its number."""
    if not isinstance(explanations, Iterable):
        explanations = [explanations]
    named = []
    for given in explanations.items() if isinstance(explanations, Mapping) else explanations:
        name, e = given if isinstance(given, tuple) else ("", given)
        try:
            title = title_of(e)
        except AttributeError:
            raise TypeError(f"a report is made of explanations, not of {type(e).__name__}") from None
        named.append((str(name) or title or "Explanation", e))
    count = Counter(name for name, _ in named)
    return [(f"{name} ({k + 1})" if count[name] > 1 else name, e) for k, (name, e) in enumerate(named)]


def title_of(e: Explanation) -> str:
    return e.view.title(e.structure) if e.answer is None else shortened(e.answer.query, 160)


def _side(explanations: Iterable[Explanation]) -> int:
    """The longest side of pictures, the same for all: together they take about 12 MB."""
    images = [image for e in explanations if isinstance(e.view, Images) for image in e.view.images]
    return fitting_side(images, 12_000_000)

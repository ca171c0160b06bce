"""One self-contained HTML file: both levels together, for a browser, a phone, paper and a notebook."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from os import PathLike

import numpy as np

from c2fa._system import atomic
from c2fa.explanation import Explanation
from c2fa.report._data import pack, summary
from c2fa.report._page import island, page
from c2fa.report._pictures import fitting_side
from c2fa.report._plain import facts, styled, table

__all__ = ["html", "repr_html"]

_ROOM = 12_000_000  # bytes for all pictures of a report


def html(
    explanations: Explanation | Iterable[Explanation] | Mapping[str, Explanation],
    path: str | PathLike[str] | None = None,
    *,
    title: str | None = None,
) -> str:
    """Write an explanation, or many as a gallery, into one HTML file that needs nothing else.

    Parameters
    ----------
    explanations
        One, several, or a mapping from titles to explanations.
    path
        The file to write; None only returns the text.
    title
        The page's title.

    Returns
    -------
    str
        The page. Nothing in it is fetched from anywhere, and text from the input stays text. Up to ten classes can be
        switched between; pictures are made smaller until all of them take about 12 MB.
    """
    pairs = _named(explanations)
    if not pairs:
        raise ValueError("there are no explanations to report: give at least one")
    title = title or (pairs[0][0] if len(pairs) == 1 else f"{len(pairs)} explanations")
    blocks = [pack(e, name, side) for (name, e), side in zip(pairs, _sides([e for _, e in pairs]), strict=True)]
    index = {"title": title, "cards": [summary(e, name) for name, e in pairs] if len(pairs) > 1 else []}
    plain = "".join(table(e, f"c2fa-{k}") for k, (_, e) in enumerate(pairs[:20]))
    text = page(title, index, blocks, plain)
    if path is not None:
        with atomic(path) as file:
            file.write(text.encode())
    return text


def repr_html(e: Explanation) -> str:
    """The same view for a notebook's cell.

    It carries its own style inside a shadow tree and its own names, so that several in one notebook leave each other
    and the notebook alone. Where scripts do not run, a plain view with folding parts stays in its place.
    """
    name = f"c2fa-{uuid.uuid4().hex}"
    return island(name, pack(e, facts(e), _sides([e])[0]), styled(e, f"{name}-plain"))


def _named(
    explanations: Explanation | Iterable[Explanation] | Mapping[str, Explanation],
) -> list[tuple[str, Explanation]]:
    if isinstance(explanations, Explanation):
        explanations = [explanations]
    if isinstance(explanations, Mapping):
        named = [(str(name), e) for name, e in explanations.items()]
    else:
        named = [("", e) for e in explanations]
    for _, e in named:
        if not isinstance(e, Explanation):
            raise TypeError(f"a report is made of explanations, not of {type(e).__name__}")
    return [(name or _title(e, f" {k + 1}" if len(named) > 1 else ""), e) for k, (name, e) in enumerate(named)]


def _title(e: Explanation, number: str) -> str:
    asked = str(e.view.get("query", ""))
    text, most = " ".join((asked or str(e.view.get("text", ""))).split()), 160 if asked else 70
    short = text if len(text) <= most else text[:most].rsplit(" ", 1)[0] + "…"
    if short or e.view.get("kind") != "images":
        return short or f"Explanation{number}"
    return f"{_named_images(e)}{number and f' ({number.strip()})'}"


def _named_images(e: Explanation) -> str:
    """What a page of images is called: by the names of their files, or by how many there are."""
    if e.level_names[0] != "images":
        return str(e.view.get("title") or f"An image of {e.structure.widths[0]} regions")
    names, count = e.names[0], len(e.names[0])
    told = ", ".join(names[:3]) + (", …" if count > 3 else "")
    plain = all(name == f"image {j + 1}" for j, name in enumerate(names))
    many = f"{count} images" if count > 1 else "1 image"
    return f"A bag of {many}" if plain else f"{told} ({many})"


def _sides(explanations: list[Explanation]) -> list[int]:
    """The longest side of pictures: the same for all that have any."""
    images = [np.asarray(image, dtype=np.uint8) for e in explanations for image in e.view.get("images", ())]
    return [fitting_side(images, _ROOM) if images else 0] * len(explanations)

"""One self-contained HTML file: both levels together, for a browser, a phone, paper and a notebook."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from os import PathLike

from c2fa._system import atomic
from c2fa.explanation import Explanation
from c2fa.report._data import pack, summary
from c2fa.report._page import island, page
from c2fa.report._plain import facts, styled, table
from c2fa.views.images import Images, fitting_side
from c2fa.views.text import shortened

__all__ = ["html", "repr_html"]


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
    side = _side(e for _, e in pairs)
    blocks = [pack(e, name, side) for name, e in pairs]
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
    return island(name, pack(e, facts(e), _side([e])), styled(e, f"{name}-plain"))


def _named(
    explanations: Explanation | Iterable[Explanation] | Mapping[str, Explanation],
) -> list[tuple[str, Explanation]]:
    """Explanations with the titles they were given, or those of their inputs; of equal ones each has its number."""
    if isinstance(explanations, Explanation):
        explanations = [explanations]
    given = explanations.items() if isinstance(explanations, Mapping) else [("", e) for e in explanations]
    named = []
    for name, e in given:
        if not isinstance(e, Explanation):
            raise TypeError(f"a report is made of explanations, not of {type(e).__name__}")
        own = e.view.title(e.structure) if e.answer is None else shortened(e.answer.query, 160)
        named.append((str(name) or own or "Explanation", e))
    count = Counter(name for name, _ in named)
    return [(f"{name} ({k + 1})" if count[name] > 1 else name, e) for k, (name, e) in enumerate(named)]


def _side(explanations: Iterable[Explanation], room: int = 12_000_000) -> int:
    """The longest side of pictures, the same for all: together they take about ``room`` bytes."""
    return fitting_side([image for e in explanations if isinstance(e.view, Images) for image in e.view.images], room)

"""What adds up, adds up as shown: in the tree, in plots, in the page with and without its script."""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import c2fa
import showcases
from c2fa.showing.numbers import Rounded, digits_for, number, written
from strategies import structures

_NUMBER = r"[+\-−]?[\d,]+(?:\.\d+)?(?:e[+-]\d+)?"


def read(text: str) -> Decimal:
    return Decimal(text.replace("−", "-").replace(",", ""))


@st.composite
def explanations(draw: Any, adds_up: bool = True) -> c2fa.Explanation:
    """An explanation of random numbers, of any size, exact zeros among them."""
    s = draw(structures(depths=(1, 2, 3)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scale = 10.0 ** draw(st.integers(-9, 9))
    low = scale * rng.normal(size=s.leaves) * (rng.random(s.leaves) < 0.8)
    values = [s.sums(low, k) for k in range(s.depth - 1)] + [low]
    if not adds_up:
        values = [scale * rng.normal(size=len(v)) for v in values]
    base = scale * rng.normal() * draw(st.sampled_from([0.0, 1.0, 1e3]))
    fits = tuple(c2fa.solution.LevelReport(9, 0.1, 0.1, 0.9) for _ in values)
    return c2fa.Explanation(
        structure=s,
        outputs=np.array([base + values[0].sum()]),
        output_names=("y",),
        target=0,
        columns=(0,),
        all_values=tuple(v[:, None] for v in values),
        all_intercepts=tuple(np.array([base]) for _ in values),
        all_stderr=tuple(np.abs(v[:, None]) / 10 for v in values),
        queries=20,
        diagnostics=c2fa.explanation.Diagnostics(fits, 0.0, True, "exact", 1, 20, 0, 0),
    )


@given(explanations())
def test_units_add_up_and_are_less_than_one_from_the_exact_numbers(e: c2fa.Explanation) -> None:
    r = e.rounded
    for k, parents in enumerate(e.structure.parents):
        assert np.array_equal(np.bincount(parents, r.values[k + 1]), r.values[k])
    for units, exact in zip(r.values, e.values, strict=True):
        assert np.array_equal(units, np.rint(units))
        assert np.all(np.abs(units - exact * 10.0**r.digits) < 1 + 1e-6)
        assert np.all(units[exact == 0] == 0)
    assert abs(r.made - (e.intercepts[0] + e.high.sum()) * 10.0**r.digits) <= 0.5 + 1e-6


def literal(exact: list[float], total: int) -> list[list[int]]:
    """Every way to round each number up or down such that they add up, the closest ones in all."""
    ways = [[]]
    for x in exact:
        ways = [[*way, n] for way in ways for n in {int(np.floor(x)), int(np.ceil(x))}]
    ways = [way for way in ways if sum(way) == total]
    off = [sum((n - x) ** 2 for n, x in zip(way, exact, strict=True)) for way in ways]
    return [way for way, o in zip(ways, off, strict=True) if o < min(off) + 1e-9]


@given(st.lists(st.floats(-5, 5).map(lambda x: round(x, 3)), min_size=1, max_size=7))
def test_no_other_rounding_that_adds_up_is_closer(exact: list[float]) -> None:
    s = c2fa.Structure.from_groups("a" * len(exact))
    r = Rounded.of(s, (np.array([sum(exact)]), np.array(exact)), 0.0)
    scaled = [x * 10**r.digits for x in exact]
    assert r.values[1].astype(int).tolist() in literal([round(x, 6) for x in scaled], int(r.values[0][0]))


@given(explanations(adds_up=False))
def test_levels_that_do_not_add_up_are_rounded_by_themselves(e: c2fa.Explanation) -> None:
    for units, exact in zip(e.rounded.values, e.values, strict=True):
        assert np.all(np.abs(units - exact * 10.0**e.rounded.digits) < 1 + 1e-6)
    lines = e.to_text(leaves=99, width=200)
    gaps = sum(
        np.count_nonzero(np.bincount(p, e.rounded.values[k + 1]) != e.rounded.values[k])
        for k, p in enumerate(e.structure.parents)
    )
    skipped = sum(
        1
        for k, p in enumerate(e.structure.parents)
        for i in range(len(e.names[k]))
        if (p == i).sum() == 1 and e.names[k][i] == e.names[k + 1][int(np.flatnonzero(p == i)[0])]
    )
    assert lines.count("gap to its own value") >= gaps - skipped


def test_what_is_no_number_is_a_dash() -> None:
    s = c2fa.Structure.from_groups("aab")
    low = np.array([np.nan, 0.25, np.inf])
    r = Rounded.of(s, (np.array([np.nan, np.inf]), low), 0.5)
    assert [r.text(u) for u in r.values[1]] == ["–", "+0.250", "–"]
    assert (r.text(r.base), r.digits) == ("+0.500", 3)


@given(st.floats(-1e300, 1e300))
def test_a_number_by_itself_says_three_digits_or_more(value: float) -> None:
    said = float(read(number(value)))
    assert said == pytest.approx(value, rel=0.0051, abs=0.00051 if abs(value) >= 0.01 else 1e-290)


def test_a_million_is_written_out() -> None:
    assert number(1000108) == "1,000,108"
    assert written(-12345, digits_for(123.45)) == "-123.45"


# -- as shown


def sums_of_tree(text: str) -> list[tuple[Decimal, Decimal]]:
    """Each feature of a printed tree with what the lines under it add up to."""
    stack: list[tuple[int, Decimal, list[Decimal]]] = []
    done: list[tuple[Decimal, Decimal]] = []
    for line in text.splitlines()[1:]:
        found = re.match(rf"^((?:[│ ]  )*[├└]─)? *({_NUMBER}) ", line)
        if found is None:
            continue
        depth, value = (len(found[1] or "") + 1) // 3, read(found[2])
        while stack and stack[-1][0] >= depth:
            _, own, below = stack.pop()
            done += [(own, sum(below, Decimal(0)))] if below else []
        if stack:
            stack[-1][2].append(value)
        stack.append((depth, value, []))
    done += [(own, sum(below, Decimal(0))) for _, own, below in stack if below]
    return done


@settings(max_examples=60)
@given(explanations(), st.integers(1, 6))
def test_the_printed_tree_adds_up(e: c2fa.Explanation, leaves: int) -> None:
    pairs = sums_of_tree(e.to_text(leaves=leaves, width=200))
    assert len(pairs) >= (e.structure.depth > 1)
    for own, below in pairs:
        assert own == below


def labels_of(rows: tuple[Any, ...]) -> list[tuple[Decimal, Decimal]]:
    pairs = []
    for y, row in enumerate(rows):
        stop = next((k for k in range(y + 1, len(rows)) if rows[k].depth <= row.depth), len(rows))
        own = [rows[k] for k in range(y + 1, stop) if rows[k].depth == row.depth + 1]
        if own:
            read_all = [read(re.match(_NUMBER, r.text)[0]) for r in (row, *own)]  # type: ignore[index]
            pairs.append((read_all[0], sum(read_all[1:], Decimal(0))))
    return pairs


@settings(max_examples=30)
@given(explanations(), st.integers(1, 4))
def test_the_labels_of_a_plot_add_up(e: c2fa.Explanation, leaves: int) -> None:
    pytest.importorskip("matplotlib")
    from c2fa import plots

    display = plots.NestedDisplay.from_explanation(e, leaves=leaves)
    for own, below in labels_of(display.rows):
        assert own == below
    made, *terms = (read(n) for n in reversed(re.findall(rf"(?<!\w){_NUMBER}", display.note.split(";")[0])))
    if terms:
        assert made == sum(terms, Decimal(0))


@settings(max_examples=30)
@given(explanations())
def test_the_page_without_its_script_adds_up(e: c2fa.Explanation) -> None:
    from c2fa.report import _page

    page = _page.plain_view(e, "key", styled=True)
    for part, inner in re.findall(r"<details><summary><code>([^<]*)</code>(.*?)</details>", page, re.DOTALL):
        shown = [read(text.split(" ")[0]) for text in re.findall(r"<code>([^<]*)</code>", inner)]
        if e.structure.depth == 2:
            assert read(part.split(" ")[0]) == sum(shown, Decimal(0))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["text", "images", "table", "series"])
def test_the_page_adds_up_as_its_card_says(kind: str, tmp_path: Any) -> None:
    """In a browser: every open part's rows add up, the sums line does, and card and page have the same digits."""
    browsing = pytest.importorskip("browsing")
    from c2fa import report

    e = showcases.explain_text() if kind == "text" else getattr(showcases, f"explain_{kind}")()
    pages = report.html({"one": e, "two": replace(e)})
    with browsing.browser() as driver, browsing.watched(driver, tmp_path) as show:
        show(pages)
        lead = browsing.texts(driver, ".card-bars")[0]
        browsing.all_of(driver, ".card-head")[0].click()
        for own, below in sums_of_page(browsing, driver):
            assert own == below
        said = browsing.texts(driver, ".sums")[0].split(";")[0]
        made, *terms = (read(n) for n in reversed(re.findall(rf"(?<!\w){_NUMBER}", said)))
        assert not terms or made == sum(terms, Decimal(0))
        digits = set(map(len, re.findall(r"[+−][\d,]+\.(\d+)", lead)))
        assert digits == {e.rounded.digits}


def sums_of_page(browsing: Any, driver: Any) -> list[tuple[Decimal, Decimal]]:
    rows = [
        (int(li.get_attribute("aria-level")), read(li.find_element("css selector", ".val").text))
        for li in browsing.all_of(driver, "[role=treeitem]")
    ]
    pairs = []
    for y, (level, value) in enumerate(rows):
        stop = next((k for k in range(y + 1, len(rows)) if rows[k][0] <= level), len(rows))
        own = [v for depth, v in rows[y + 1 : stop] if depth == level + 1]
        if own:
            pairs.append((value, sum(own, Decimal(0))))
    assert pairs
    return pairs

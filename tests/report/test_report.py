"""The report as a file: what is in it, and what can never be."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
import tracemalloc
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import c2fa
import showcases
from c2fa import report, views
from c2fa.batch.overview import word
from c2fa.report import _page
from c2fa.views import images


class Reader(HTMLParser):
    """What a browser would see: elements, and the text of scripts, styles and data."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.raw: list[tuple[str, dict[str, str | None], str]] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self.raw.append((tag, dict(attrs), ""))
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("script", "style"):
            tag, attrs, text = self.raw[-1]
            self.raw[-1] = (tag, attrs, text + data)


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader


def blocks(page: str) -> dict[str, Any]:
    return {
        str(attrs["id"]): json.loads(text)
        for _, attrs, text in read(page).raw
        if attrs.get("type") == "application/json"
    }


@pytest.fixture(scope="module")
def review() -> Any:
    return showcases.explain_text()


@pytest.fixture(scope="module")
def hostile() -> Any:
    def model(texts: list[str]) -> np.ndarray:
        return np.array([len(t) for t in texts]) / 100

    masker = c2fa.maskers.Text()
    return c2fa.Explainer(model, masker, budget=(6, 60), output_names=("</script>",), progress=False)(showcases.HOSTILE)


def test_is_one_file_that_fetches_nothing(review: Any) -> None:
    page = report.html(review, title="A review")
    reader = read(page)
    assert not [attrs for _, attrs in reader.tags if {"src", "href", "action"} & set(attrs)]
    # The one address in it names the SVG language, and is never asked for.
    assert set(re.findall(r"https?://[^\s\"']*", page)) == {"http://www.w3.org/2000/svg"}
    assert "@import" not in page
    assert "url(" not in page
    assert ("title", {}) in reader.tags
    assert "<title>A review</title>" in page


def test_policy_names_exactly_the_script_and_the_style(review: Any) -> None:
    reader = read(report.html(review))
    policy = next(a["content"] for t, a in reader.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["img-src"] == "data:"
    for kind in ("script", "style"):
        own = [text for tag, attrs, text in reader.raw if tag == kind and "type" not in attrs]
        digest = base64.b64encode(hashlib.sha256(own[0].encode()).digest()).decode()
        assert len(own) == 1
        assert rules[f"{kind}-src"] == f"'sha256-{digest}'"
    assert "unsafe" not in policy
    # A policy of hashes forbids inline handlers and style attributes, so there must be none.
    assert not [a for _, a in reader.tags if any(k.startswith("on") or k == "style" for k in a)]


def test_markup_in_the_input_stays_data(hostile: Any) -> None:
    page = report.html({"</title><script>1</script>": hostile, "<b>": hostile}, title="<script>alert(1)</script>")
    tags = [tag for tag, _ in read(page).tags]
    assert tags.count("script") == 4  # index, two blocks, code
    assert "img" not in tags
    assert tags.count("style") == 1
    found = blocks(page)
    assert found["c2fa-data-0"]["view"]["text"] == showcases.HOSTILE
    assert found["c2fa-index"]["cards"][0]["title"] == "</title><script>1</script>"
    for text in re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.S):
        assert not set("<>&\u2028\u2029") & set(text)


def test_half_a_surrogate_pair_can_be_written(tmp_path: Path) -> None:
    masker = c2fa.maskers.Text()
    e = c2fa.Explainer(lambda t: np.ones(len(t)), masker, budget=(4, 8), progress=False)(
        "bad \ud83d half. And 😀 whole."
    )
    report.html(e, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    view = blocks(page)["c2fa-data-0"]["view"]
    assert view["text"] == "bad \ud83d half. And 😀 whole."
    # Steps are in units of 16 bits, of which the smiling face takes two.
    assert view["steps"] == [0, 3, 1, 1, 1, 5, 1, 3, 1, 2, 1, 6]


def test_numbers_survive_packing(review: Any) -> None:
    block = blocks(report.html(review))["c2fa-data-0"]
    for k in range(2):
        units, errors = (
            np.frombuffer(base64.b64decode(block[name][k]["data"]), dtype=f"<i{block[name][k]['bytes']}").reshape(3, -1)
            for name in ("units", "stderr")
        )
        each = [review.for_target(c) for c in range(3)]
        assert np.array_equal(units, [e.rounded.values[k] for e in each])
        assert np.array_equal(errors, [np.rint(e.stderr[k] * 10**e.rounded.digits) for e in each])
        halves = np.frombuffer(base64.b64decode(block["values"][k]), dtype="<u2").astype("<u4") << 16
        np.testing.assert_allclose(halves.view("<f4").reshape(3, -1), review.all_values[k].T, rtol=4e-3, atol=1e-9)
    assert block["target"] == review.target
    assert block["names"][1] is None  # they are read off the text
    assert block["parents"] == [{"counts": np.bincount(review.structure.owners(0)).tolist()}]


def test_parents_that_are_not_in_order() -> None:
    e = showcases.explain_array(["a", "b", "a"])
    assert blocks(report.html(e))["c2fa-data-0"]["parents"] == [{"owners": [0, 1, 0]}]


def test_a_long_document_of_ten_classes_stays_small() -> None:
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(16, 40))

    def model(texts: list[str]) -> np.ndarray:
        return np.array([[np.cos(len(t) * w).sum() for w in weights] for t in texts])

    e = showcases.explain_text(showcases.long_text(2000), budget=(20, 30), model=model)
    page = report.html(e)
    assert len(blocks(page)["c2fa-data-0"]["classes"]) == 10
    assert len(page.encode()) < 300_000


def test_pictures_shrink_until_they_fit() -> None:
    rng = np.random.default_rng(0)
    noise = [rng.integers(0, 256, size=(400, 300, 3)).astype(np.uint8) for _ in range(3)]
    assert images.fitting_side(noise, 10_000_000) == 512
    assert images.fitting_side(noise, 30_000) < 160


def test_a_report_of_images_is_called_after_them() -> None:
    e = showcases.explain_images()
    titles = {name: blocks(report.html(x))["c2fa-data-0"]["title"] for name, x in _renamed(e).items()}
    assert titles == {
        "plain": "A bag of 5 images",
        "named": "a.jpg, b.jpg, c.jpg, … (5 images)",
        "file": "beach.jpg",
        "one": "An image of 4 regions",
    }
    both = blocks(report.html([e, e]))
    assert both["c2fa-data-1"]["title"] == "A bag of 5 images (2)"


def _renamed(e: Any) -> dict[str, Any]:
    named = c2fa.Structure(e.structure.parents, (tuple(f"{c}.jpg" for c in "abcde"), e.names[1]))
    one = showcases.explain_image()
    return {
        "plain": e,
        "named": dataclasses.replace(e, structure=named),
        "file": dataclasses.replace(one, view=dataclasses.replace(one.view, name="beach.jpg")),
        "one": one,
    }


def test_png_is_read_back_as_it_was() -> None:
    image = pytest.importorskip("PIL.Image")
    import io

    pixels = np.random.default_rng(1).integers(0, 256, size=(7, 5, 3)).astype(np.uint8)
    np.testing.assert_array_equal(np.asarray(image.open(io.BytesIO(images.png(pixels)))), pixels)


def test_runs_of_labels() -> None:
    labels = np.array([[0, 0, 0], [300, 300, 1]])
    assert base64.b64decode(images.runs(labels)) == bytes([0, 3, 0b10101100, 0b10, 2, 1, 1])


def test_every_kind_has_its_view() -> None:
    kinds = {
        "images": showcases.explain_images(),
        "table": showcases.explain_table(),
        "series": showcases.explain_series(),
        "bag": showcases.explain_bag(),
        "deep": showcases.explain_deep(),
    }
    found = blocks(report.html(kinds))
    for k, kind in enumerate(kinds):
        block = found[f"c2fa-data-{k}"]
        assert block["kind"] == {"deep": "table"}.get(kind, kind)
        assert block["view"]
        assert len(block["labels"]) == len(block["widths"])
    assert found["c2fa-data-1"]["view"]["cells"][0] == "58,000"
    assert found["c2fa-data-2"]["labels"] == ["channels", "windows"]
    assert [card["title"] for card in found["c2fa-index"]["cards"]] == list(kinds)


def test_a_view_of_names_alone_gives_bars() -> None:
    named = dataclasses.replace(showcases.explain_array(["a", "b"]), view=views.View(levels=("rooms", "things")))
    block = blocks(report.html(named))["c2fa-data-0"]
    assert block["labels"] == ["rooms", "things"]
    assert block["view"] == {"cells": []}


def test_levels_are_called_by_their_names_and_one_that_was_not_fitted_has_no_fit() -> None:
    e = showcases.explain_text(method="c2fa")
    assert e.level_names == ("sentences", "words")
    assert all(
        f"R² {level.r2:.2f} of {name}" in str(e)
        for level, name in zip(e.diagnostics.levels, e.level_names, strict=True)
    )
    assert showcases.explain_series("windows").level_names == ("windows", "channels")
    assert showcases.explain_deep().level_names[-1] == "leaves"
    explainer = c2fa.Explainer(showcases.mood, c2fa.maskers.Text(), method="bu-lime", budget=60, progress=False)
    page = report.html(explainer("A great day. It rained."))
    assert "of words" in page
    assert "R² 0.00 of sentences" not in page


def test_long_recordings_keep_their_peaks() -> None:
    values = np.zeros((1, 50_000))
    values[0, 31_234] = 9.0
    view = views.Series(values, np.array([0, 25_000])).page(c2fa.Structure.flat(2), 0)
    assert len(view["at"]) == 600
    assert 31_234 in view["at"]
    assert max(view["lines"][0]) == 1.0


def test_not_a_number_is_no_json_but_a_report() -> None:
    e = showcases.explain_array(["a", "b"])
    changed = {name: getattr(e, name) for name in e.__dataclass_fields__}
    odd = c2fa.Explanation(**{**changed, "outputs": np.array([np.nan])})
    assert blocks(report.html(odd))["c2fa-data-0"]["classes"] == [
        {"name": "output", "output": None, "linked": None, "base": 0.0, "digits": 3}
    ]


def test_a_page_of_many_says_what_they_have_in_common_before_its_cards() -> None:
    explainer = c2fa.Explainer(showcases.mood, c2fa.maskers.Text(), budget=30, progress=False)
    texts = ["A great day. It rained.", "A great film. A bad end.", "Bad food. A great bar.", "Bad. So bad."]
    with pytest.warns(UserWarning, match="1 of 5 inputs"):
        found = explainer.many([*texts, ""])
    page = found.to_html(title="Days")
    index = blocks(page)["c2fa-index"]
    overall = index["overall"]
    assert (overall["inputs"], overall["failed"], overall["level"]) == (5, 1, "words")
    assert overall["errors"][0]["first"] == [4]
    assert "no words" in overall["errors"][0]["text"]
    for output in overall["outputs"]:
        own = [(k, e) for k, e in found.items() if e.target_name == output["name"]]
        assert output["inputs"] == len(own) == sum(output["bins"])
        predicted = [e.prediction for _, e in own]
        assert output["ends"] == pytest.approx([min(predicted), max(predicted)])
        for feature in output["features"]:
            sums = {
                k: sum(v for n, v in zip(e.names[-1], e.low, strict=True) if word(n) == feature["name"])
                for k, e in own
                if feature["name"] in map(word, e.names[-1])
            }
            assert feature["inputs"] == len(sums)
            assert feature["mean"] == pytest.approx(np.mean(list(sums.values())))
            assert dict(feature["cards"]) == pytest.approx(sums, rel=6e-3)
            assert sorted(feature["dots"]) == pytest.approx(sorted(sums.values()))
    assert [card["title"].partition(" · ")[0] for card in index["cards"]] == ["0", "1", "2", "3"]
    assert len(blocks(found.to_html(limit=2))["c2fa-index"]["cards"]) == 2
    assert "5 inputs, 1 of them set aside" in page, "also where no script runs"


def test_what_cannot_be_reported() -> None:
    with pytest.raises(ValueError, match="at least one"):
        report.html([])
    with pytest.raises(TypeError, match="not of str"):
        report.html(["no"])  # type: ignore[list-item]


def test_notebook_views_have_names_of_their_own(review: Any, hostile: Any) -> None:
    one, two = report.repr_html(review), report.repr_html(review)
    names = [re.match(r'<div id="(c2fa-\w+)"', view) for view in (one, two)]
    assert names[0] is not None
    assert names[1] is not None
    assert names[0][1] != names[1][1]
    assert len(one) < 120_000
    tags = [tag for tag, _ in read(report.repr_html(hostile)).tags]
    assert tags.count("script") == 1
    assert "img" not in tags
    assert "style" not in tags


def test_the_plain_view_shows_words_pictures_and_parts() -> None:
    view = report.repr_html(showcases.explain_images())
    reader = read(view)
    assert [tag for tag, _ in reader.tags].count("details") == 5
    pictures = [a["src"] for t, a in reader.tags if t == "img"]
    assert len(pictures) == 5
    assert all(src is not None and src.startswith("data:image/") for src in pictures)


def test_assets_are_small_and_name_no_library() -> None:
    assert len(_page.script()) < 61_000
    assert len(_page.script(cited=True, several=True)) < 80_000
    assert len(_page.style()) < 30_000
    assert "innerHTML" not in _page.script(cited=True, several=True)
    assert "eval(" not in _page.script(cited=True, several=True)


def test_rounding_is_shaded_nowhere() -> None:
    e = showcases.explain_text("Nothing here. Matters at all.", model=lambda texts: np.full((len(texts), 2), 0.1))
    changed = {name: getattr(e, name) for name in e.__dataclass_fields__}
    noise = tuple(1e-17 * (1 + np.arange(v.size)).reshape(v.shape) for v in e.all_values)
    e = c2fa.Explanation(**{**changed, "all_values": noise, "all_stderr": noise})
    found = blocks(report.html([e, e]))
    for packed in (*found["c2fa-data-0"]["values"], *(p["data"] for p in found["c2fa-data-0"]["stderr"])):
        assert not any(base64.b64decode(packed))
    assert {units for _, units in found["c2fa-index"]["cards"][0]["lead"]} == {0.0}
    assert '<span style="background' not in _page.plain_view(e, "key", styled=True)


def test_a_large_photograph_is_made_small_before_it_is_tinted() -> None:
    labels = np.zeros((1200, 1600), dtype=np.intp)
    labels[:, 800:] = 1
    e = showcases.explain_array(["a", "b"])
    view = views.Images((np.zeros((1200, 1600, 3), np.uint8),), (labels,))
    tracemalloc.start()
    try:
        plain = _page.plain_view(dataclasses.replace(e, view=view), "key", styled=True)
        assert tracemalloc.get_traced_memory()[1] < 80e6
    finally:
        tracemalloc.stop()
    assert "data:image/" in plain


_ODD = (np.nan, np.inf, -np.inf, 1e300, 1e-320)


def _odd(e: Any, number: float) -> list[Any]:
    """The explanation with a number in every place that has numbers."""

    def all_of(arrays: Any, number: float = number) -> Any:
        return tuple(np.full_like(array, number) for array in arrays)

    def first_of(arrays: Any) -> Any:
        return tuple(np.concatenate([np.full_like(array[:1], number), array[1:]]) for array in arrays)

    d = e.diagnostics
    levels = tuple(dataclasses.replace(level, r2=number) for level in d.levels)
    return [
        dataclasses.replace(e, all_values=all_of(e.all_values)),
        dataclasses.replace(e, all_values=first_of(e.all_values)),
        dataclasses.replace(e, all_stderr=all_of(e.all_stderr, abs(number)), all_intercepts=all_of(e.all_intercepts)),
        dataclasses.replace(e, outputs=np.full_like(e.outputs, number)),
        dataclasses.replace(e, diagnostics=dataclasses.replace(d, levels=levels, consistency=number, cost=number)),
    ]


@pytest.mark.parametrize("number", _ODD)
@pytest.mark.parametrize("kind", ["text", "image", "table", "deep"])
def test_numbers_of_any_kind_are_shown_without_a_warning(kind: str, number: float) -> None:
    options = {"budget": (4, 8)} if kind == "text" else {}
    e = getattr(showcases, f"explain_{kind}")(**options)
    for odd in _odd(e, number):
        blocks(report.html([odd, odd]))
        odd._repr_html_()
        str(odd)
        if kind == "table" and find_spec("matplotlib"):
            odd.plot()


@pytest.mark.parametrize("steps", [0, 1, 40, 2000])
@pytest.mark.parametrize("number", [*_ODD, 5.0])
def test_recordings_of_any_numbers_are_drawn_without_a_warning(number: float, steps: int) -> None:
    e = showcases.explain_series()
    values = np.tile(np.linspace(0, 1, steps), (e.structure.widths[0], 1))
    values[0], values[1, :1], values[1, 1:2] = number, number, -number
    odd = dataclasses.replace(e, view=dataclasses.replace(e.view, values=values))
    view = blocks(report.html(odd))["c2fa-data-0"]["view"]
    assert len(view["lines"][2]) == min(steps, 600)
    shown = [v for v in view["lines"][0] if v is not None]
    assert shown == ([0.5] * min(steps, 600) if np.isfinite(number) else [])
    if steps > max(e.view.starts) and find_spec("matplotlib"):
        odd.plot()


def test_levels_that_contradict_each_other_are_no_tree_on_a_page() -> None:
    e = showcases.explain_contradiction()
    page = report.html(e)
    block = blocks(page)["c2fa-data-0"]
    said = e.diagnostics.contradiction
    assert block["contradiction"] == said
    assert said not in block["warnings"]  # it stands at the top, once
    plain = _page.plain_view(e, "key")
    assert plain.index("<h3>instances") < plain.index("instance 5") < plain.index("<h3>features")
    assert "<details>" not in plain + _page.plain_view(e, "key", styled=True)
    assert _page.pack(showcases.explain_contradiction(preset=None), "", 0)["contradiction"] == ""

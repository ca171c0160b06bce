"""Plots: what is in them, how they look, and that no label covers another."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import c2fa
import showcases
from showcases import planted

matplotlib = pytest.importorskip("matplotlib")
pytest.importorskip("pandas")
Image = pytest.importorskip("PIL.Image")
from matplotlib.figure import Figure
from matplotlib.text import Text

from c2fa import plots
from c2fa.plots import _style
from c2fa.plots.maps import outlines

_STORED = Path(__file__).parents[1] / "images"
_SHAPED = tuple(map(int, matplotlib.__version__.split(".")[:2])) >= (3, 11)


@dataclass
class Curve:
    x: np.ndarray
    y: np.ndarray
    auc: float


def example_curves() -> dict[str, Curve]:
    x = np.linspace(0, 1, 21)
    return {"deletion": Curve(x, np.exp(-5 * x), 0.2), "insertion": Curve(x, 1 - np.exp(-4 * x), 0.76)}


def example_scores(**options: Any) -> Figure:
    rng, at = np.random.default_rng(0), np.array([50.0, 100.0, 150.0, 200.0])
    lines = {}
    for name, base, gain in (("C2FA", 0.8, 0.05), ("LIME", 0.6, 0.09), ("MILLI", 0.65, 0.07), ("BU-LIME", 0.5, 0.1)):
        runs = base + gain * np.log(at / 50)[:, None] + 0.02 * rng.normal(size=(4, 3))
        lines[name] = np.stack([at, runs.mean(axis=1), runs.std(axis=1)])
    return plots.scores(lines, "budget", "score", **options)


def explanations_of_two_methods() -> dict[str, Any]:
    e = showcases.explain_text()
    changed = {name: getattr(e, name) for name in e.__dataclass_fields__}
    apart = (e.all_values[0] * 0.6, e.all_values[1])
    d = e.diagnostics
    spoilt = {**d.__dict__, "consistency": 0.03, "agreement": False}
    other = c2fa.Explanation(**{**changed, "all_values": apart, "diagnostics": type(d)(**spoilt)})
    return {"c2fa": e, "levels apart": other}


PICTURES: dict[str, Callable[[], Figure]] = {
    "nested": lambda: plots.nested(planted(showcases.explain_text())),
    "text": lambda: plots.plot(planted(showcases.explain_text())),
    "images": lambda: plots.images(planted(showcases.explain_images())),
    "image": lambda: plots.plot(planted(showcases.explain_image())),
    "table": lambda: plots.plot(planted(showcases.explain_table())),
    "series": lambda: plots.plot(planted(showcases.explain_series())),
    "windows": lambda: plots.plot(planted(showcases.explain_series("windows"))),
    "bag": lambda: plots.plot(planted(showcases.explain_bag())),
    "deep": lambda: plots.plot(planted(showcases.explain_deep())),
    "curves": lambda: plots.curves(example_curves()),
    "scores": lambda: example_scores(better="higher"),
    "compare": lambda: plots.compare(
        {name: planted(e, seed) for seed, (name, e) in enumerate(explanations_of_two_methods().items())}, leaves=2
    ),
}


def pixels(figure: Figure, dpi: int = 40) -> np.ndarray:
    import io

    file = io.BytesIO()
    figure.savefig(file, dpi=dpi)
    return np.asarray(Image.open(file).convert("RGB"))


def blurred(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    return np.asarray(Image.fromarray(image).resize(size, Image.Resampling.BOX), dtype=float)


@pytest.mark.parametrize("name", PICTURES)
def test_looks_as_it_did(name: str) -> None:
    """Compared in coarse blocks, so that another release's fonts pass and a moved or missing bar does not."""
    drawn = pixels(PICTURES[name]())
    if not _SHAPED:
        pytest.skip("the stored pictures are of matplotlib 3.11, which sets text in its own way")
    stored = _STORED / f"{name}.png"
    if os.environ.get("C2FA_STORE_IMAGES"):
        stored.parent.mkdir(exist_ok=True)
        Image.fromarray(drawn).quantize(64).save(stored, optimize=True)
    before = np.asarray(Image.open(stored).convert("RGB"))
    assert drawn.shape == pytest.approx(before.shape, rel=0.04)
    size = (before.shape[1] // 10, before.shape[0] // 10)
    difference = np.abs(blurred(drawn, size) - blurred(before, size))
    assert difference.mean() < 4
    assert np.percentile(difference, 99) < 30


def test_a_missing_bar_would_be_seen() -> None:
    before = np.asarray(Image.open(_STORED / "nested.png").convert("RGB"))
    e = planted(showcases.explain_text())
    changed = {name: getattr(e, name) for name in e.__dataclass_fields__}
    values = tuple(v * (1 if k else 0.3) for k, v in enumerate(e.all_values))
    drawn = pixels(plots.nested(c2fa.Explanation(**{**changed, "all_values": values})))
    size = (before.shape[1] // 10, before.shape[0] // 10)
    assert np.percentile(np.abs(blurred(drawn, size) - blurred(before, size)), 99) > 30


def overlaps(figure: Figure) -> list[str]:
    """Pairs of texts that cover one another, and texts that the figure's edge cuts."""
    figure.canvas.draw()
    edge = figure.bbox
    found = []
    outside = set()  # labels of hidden axes, and of ticks beyond the axes' limits, exist and are not drawn
    for ax in [a for top in figure.axes for a in (top, *top.child_axes)]:
        for axis in (ax.xaxis, ax.yaxis):
            low, high = sorted(axis.get_view_interval())
            for tick in axis.get_major_ticks():
                if not ax.axison or not low <= tick.get_loc() <= high:
                    outside |= {tick.label1, tick.label2}
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        if text.get_visible() and text.get_text().strip() and text not in outside:
            box = text.get_window_extent()
            if box.width > 0 and (text.axes is None or text.axes.get_visible()):
                found.append((text.get_text(), box.x0 + 1, box.y0 + 1, box.x1 - 1, box.y1 - 1))
    bad = [
        f"{name!r} is cut"
        for name, x0, y0, x1, y1 in found
        if x0 < edge.x0 - 1 or x1 > edge.x1 + 1 or y0 < edge.y0 - 1 or y1 > edge.y1 + 1
    ]
    boxes = np.array([box[1:] for box in found])
    for i, (name, x0, y0, x1, y1) in enumerate(found):
        later = boxes[i + 1 :]
        hit = (later[:, 0] < x1) & (later[:, 2] > x0) & (later[:, 1] < y1) & (later[:, 3] > y0)
        bad += [f"{name!r} covers {found[i + 1 + int(j)][0]!r}" for j in np.flatnonzero(hit)]
    return bad


def crowd(**options: Any) -> Any:
    groups = [
        f"part {i % 40:02d} with a name that goes on and on until it has reached eighty characters" for i in range(500)
    ]
    names = [
        f"leaf {i:03d} " + "whose name is long as well, because somebody generated it from a path" for i in range(500)
    ]
    return showcases.explain_array(groups, names, **options)


CROWDED: dict[str, Callable[[], Figure]] = {
    "nested: 40 parts, 500 leaves, long names": lambda: plots.nested(crowd()),
    "nested: all parts": lambda: plots.nested(crowd(), parts=40, leaves=3),
    "nested: all zero": lambda: plots.nested(crowd(zero=True)),
    "nested: one part": lambda: plots.nested(showcases.explain_array(["only"] * 30)),
    "nested: one leaf": lambda: plots.nested(showcases.explain_array(["only"])),
    "nested: right to left": lambda: plots.nested(showcases.explain_hebrew()),
    "nested: flat": lambda: plots.nested(
        c2fa.Explainer(
            lambda b: b.sum(axis=1), c2fa.maskers.Array(c2fa.Structure.flat(90)), budget=300, progress=False
        )(np.ones(90))
    ),
    "text: 40 sentences, 500 words": lambda: plots.text(showcases.explain_text(showcases.long_text(500))),
    "text: right to left": lambda: plots.text(showcases.explain_hebrew()),
    "text: words alone": lambda: plots.text(
        c2fa.Explainer(
            showcases.mood, c2fa.maskers.Text(levels=("words",)), budget=100, progress=False
        )(showcases.REVIEW)
    ),
    "text: one sentence": lambda: plots.text(showcases.explain_text("A great day.")),
    "text: all zero": lambda: plots.text(showcases.explain_text("One day. Two days.")),
    "text: a word as long as a line": lambda: plots.text(showcases.explain_text(f"So {'long' * 60}. It was great.")),
    "images: 20": lambda: plots.images(showcases.explain_images((0, 1) * 10, side=24, budget=(30, 60))),
    "bag": lambda: plots.bag(showcases.explain_bag()),
    "series": lambda: plots.series(showcases.explain_series()),
    "compare": lambda: plots.compare({"one": crowd(), "two": crowd()}),
    "scores": example_scores,
    "curves": lambda: plots.curves(example_curves(), title="A title"),
}  # fmt: skip


@pytest.mark.parametrize("case", CROWDED)
def test_no_label_covers_another(case: str) -> None:
    if "right to left" in case and not _SHAPED:
        pytest.skip("matplotlib before 3.11 sets every script from left to right")
    assert overlaps(CROWDED[case]()) == []


def test_the_children_of_a_part_add_up_to_it() -> None:
    e = showcases.explain_text()
    display = plots.NestedDisplay.from_explanation(e)
    parts = [row for row in display.rows if row.depth == 0]
    assert [row.value for row in parts] == pytest.approx(e.high.tolist())
    ends = [n for n, row in enumerate(display.rows) if row.depth == 0] + [len(display.rows)]
    for a, b in pairwise(ends):
        below = display.rows[a + 1 : b]
        assert below[0].start == 0
        assert [row.start for row in below[1:]] == pytest.approx([r.start + r.value for r in below[:-1]])
        assert below[-1].start + below[-1].value == pytest.approx(display.rows[a].value)
        assert below[-1].kind == "rest"
    assert all(row.kind != "gap" for row in display.rows)


def test_levels_that_do_not_add_up_show_the_gap() -> None:
    other = explanations_of_two_methods()["levels apart"]
    gaps = [row for row in plots.NestedDisplay.from_explanation(other).rows if row.kind == "gap"]
    assert len(gaps) == 5
    assert [g.value for g in gaps] == pytest.approx((other.high - other.structure.sums(other.low, 0)).tolist())


def test_draws_on_given_axes_and_shows_nothing() -> None:
    own = _style.figure(8, 6)
    ax = own.add_subplot()
    assert plots.nested(showcases.explain_table(), ax=ax) is own
    assert plots.curves(example_curves()["deletion"], own.add_subplot()) is own
    assert plots.text(showcases.explain_text(), own.add_subplot()) is own
    code = "import sys, c2fa, c2fa.plots; assert 'matplotlib.pyplot' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_display_draws_as_often_as_wanted() -> None:
    display = plots.TextDisplay.from_explanation(showcases.explain_text())
    first, second = display.draw(), display.draw_with_bars()
    assert first is not second
    drawn = {text.get_text() for text in second.findobj(Text) if isinstance(text, Text)}
    assert {"excellent!", "terrible", "top 5 words", "sentences"} <= drawn


def test_words_of_sentences_that_are_leaves_are_placed_one_by_one() -> None:
    text = "Bern is the capital of Switzerland. " + "It lies on a river, and on hills, in the middle of it all. " * 3
    masker = c2fa.maskers.Text(levels=("paragraphs", "sentences"))
    e = c2fa.Explainer(lambda texts: np.array([float(len(t)) for t in texts]), masker, budget=20)(text)
    words = [piece for piece in plots.TextDisplay.from_explanation(e).pieces if piece.leaf >= 0]
    assert [piece.text for piece in words] == text.split()
    assert {piece.leaf for piece in words} == set(range(4))
    for one, other in pairwise(words):
        assert other.line > one.line or other.x > one.x + one.width


def test_a_long_text_shows_its_most_important_sentences() -> None:
    e = showcases.explain_text(showcases.long_text(800), budget=(80, 200))
    display = plots.TextDisplay.from_explanation(e, words=100)
    words = [piece for piece in display.pieces if piece.leaf >= 0]
    assert 50 < len(words) <= 100
    assert int(np.argmax(np.abs(e.high))) in {piece.part for piece in words}
    assert any(piece.text == "[…]" for piece in display.pieces)


def test_sentences_inside_paragraphs_have_their_own_lines_and_bars() -> None:
    e = showcases.explain_letter()
    display = plots.TextDisplay.from_explanation(e)
    assert display.inner == 1
    assert {piece.part for piece in display.pieces} == set(range(e.structure.widths[1]))
    made = display.draw_with_bars()
    assert overlaps(made) == []
    bars = made.axes[2]
    assert bars.get_title(loc="left") == "paragraphs › sentences"
    names = [tick.get_text() for tick in bars.get_yticklabels()]
    assert [name for name in names if not name[0].isdigit()] == ["Paragraph 1", "Paragraph 2", "Paragraph 3"]
    assert [name[0] for name in names] == ["P", "1", "2", "P", "3", "4", "5", "P", "6", "7"]
    widths = [bar.get_width() for bar in bars.patches]
    np.testing.assert_allclose([widths[0], widths[3], widths[7]], e.high)
    np.testing.assert_allclose(np.delete(widths, [0, 3, 7]), e.values[1])
    few = [bar.name.split("  ")[0] for bar in display._part_bars([4, 6])]
    assert few == ["Paragraph 2", "5", "Paragraph 3", "7"]


def test_dollars_are_not_mathematics() -> None:
    e = showcases.explain_text("It cost $5 and $_{x. A great price of $9^.")
    assert overlaps(plots.text(e)) == []
    assert overlaps(plots.nested(e)) == []


def test_images_are_tinted_and_the_top_one_is_framed() -> None:
    e = showcases.explain_images()
    display = plots.ImagesDisplay.from_explanations(e)
    assert [j for j, panel in enumerate(display.images) if panel.framed] == [2]
    tinted = display.rows[0][1][2].picture
    assert np.ptp(tinted.astype(int), axis=-1).max() > 60


def test_images_are_outlined_and_their_weightiest_numbered() -> None:
    labels = np.array([[0, 0, 1], [0, 2, 2]])
    lines = {tuple(line.ravel().tolist()) for line in outlines(labels)}
    assert lines == {(1.5, -0.5, 1.5, 0.5), (0.5, 0.5, 2.5, 0.5), (0.5, 0.5, 0.5, 1.5)}
    e = showcases.explain_images()
    panels = plots.ImagesDisplay.from_explanations(e).rows[0][1]
    assert panels[0].numbers == (), "nothing of weight is in the first image"
    best = int(np.argmax(e.low))
    x, y, number = panels[2].numbers[0]
    assert e.names[1][best].startswith(f"image 3 #{number},")
    assert e.view.labels[2][int(y), int(x)] == int(number) - 1


def test_the_scale_of_images_has_numbers() -> None:
    e = showcases.explain_images()
    drawn = [t.get_text() for t in plots.images(e).findobj(Text)]
    assert f"for +{np.abs(e.low).max():.3f}" in drawn
    several = [t.get_text() for t in plots.images({"one": e, "two": e}).findobj(Text)]
    assert "for +" in several


def test_dispatch_and_its_refusals() -> None:
    e = showcases.explain_table()
    assert isinstance(plots.plot(e), Figure)
    assert isinstance(plots.plot(e, kind="nested", leaves=1), Figure)
    with pytest.raises(ValueError, match="does not fit an input of kind 'table'"):
        plots.plot(e, kind="text")
    with pytest.raises(ValueError, match="kind must be one of"):
        plots.plot(e, kind="pie")
    with pytest.raises(TypeError, match="leafs"):
        plots.plot(e, leafs=3)
    with pytest.raises(ValueError, match="better must be 'higher', 'lower' or None; got 'more'"):
        example_scores(better="more")
    with pytest.raises(ValueError, match="at least two"):
        plots.compare([e])
    with pytest.raises(ValueError, match="different inputs"):
        plots.compare([e, showcases.explain_bag()])


def test_without_matplotlib_it_says_how_to_install_it() -> None:
    code = "import sys; sys.modules['matplotlib'] = None; import c2fa; import c2fa.plots"
    said = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True).stderr
    assert said.splitlines()[-1] == "ImportError: plots need matplotlib: pip install 'c2fa[plots]'"


def test_long_names_of_columns_are_slanted() -> None:
    def drawn(names: list[str]) -> list[Text]:
        masker = c2fa.maskers.Bag(names=names, absent="fill")
        e = c2fa.Explainer(lambda bags: [b.sum() for b in bags], masker, budget=60, progress=False)(np.ones((3, 8)))
        return plots.bag(e).axes[0].get_xticklabels()

    names = [f"the {word} of a wine" for word in ("colour", "taste", "smell", "age", "price", "year", "label", "cork")]
    assert {label.get_rotation() for label in drawn(list("abcdefgh"))} == {0}
    slanted = drawn(names)
    assert {label.get_rotation() for label in slanted} == {35}
    assert [label.get_text() for label in slanted] == names


def test_what_is_exact_has_no_whiskers() -> None:
    figure = Figure()
    _style.draw_bars(figure.add_subplot(), ["a", "b"], [1.0, 2.0], [0.0, 0.5], 100)
    [whiskers] = figure.axes[0].collections
    lengths = [np.ptp(path.vertices[:, 0]) for path in whiskers.get_paths()]
    assert [length for length in lengths if length > 0] == [1.0]


def test_both_ends_of_the_scale_stay_apart_without_colour() -> None:
    """Blue and orange differ for people who see no red or green: their blue channels are far apart."""
    low, high = np.array(_style.colour(-1.0)), np.array(_style.colour(1.0))
    assert high[2] - low[2] > 0.4
    assert _style.colour(0.0)[:3] == pytest.approx((1, 1, 1), abs=0.01)


def test_rounding_is_not_drawn_as_if_it_were_something() -> None:
    e = showcases.explain_text("Nothing here. Matters at all.", model=lambda texts: np.full((len(texts), 2), 0.1))
    changed = {name: getattr(e, name) for name in e.__dataclass_fields__}
    noise = tuple(1e-17 * (1 + np.arange(v.size)).reshape(v.shape) for v in e.all_values)
    e = c2fa.Explanation(**{**changed, "all_values": noise, "all_stderr": noise})
    assert plots.NestedDisplay.from_explanation(e).limits == (-1.0, 1.0)
    passage = plots.text(e).axes[0]
    assert not [p for p in passage.patches if "FancyBbox" in type(p).__name__], "no word has a box"
    assert [axes.get_xlim() for axes in plots.text(e).axes[-2:]] == [(-1.0, 1.0)] * 2


def test_every_figure_says_that_levels_contradict_each_other() -> None:
    e = showcases.explain_contradiction()
    said = e.diagnostics.contradiction
    owen = showcases.explain_contradiction(preset=None)
    given = Figure().subplots()
    made = [plots.plot(e), plots.plot(e, kind="nested"), plots.compare([e, owen]), plots.nested(e, given)]
    text, pictures = showcases.explain_text(), showcases.explain_images()
    for other in (text, pictures):
        d = dataclasses.replace(other.diagnostics, contradiction=said)
        made += [plots.plot(dataclasses.replace(other, diagnostics=d))]
    for figure in made:
        told = [artist for artist in figure.findobj(Text) if said in " ".join(artist.get_text().split())]
        assert [artist.get_color() for artist in told] == [_style.WARN]
    for figure in map(plots.plot, (owen, text, pictures)):
        assert not any("given apart" in artist.get_text() for artist in figure.findobj(Text))


def test_levels_that_contradict_each_other_are_drawn_as_blocks() -> None:
    e = showcases.explain_contradiction()
    rows = plots.NestedDisplay.from_explanation(e, parts=3).rows
    top = sorted(np.argsort(-np.abs(e.high))[:3].tolist())
    best = np.argsort(-np.abs(e.low), kind="stable")[:20].tolist()
    blocks = ["instances:", *(e.names[0][j] for j in top), "2 more", "features:", *(e.names[1][i] for i in best)]
    assert [row.name for row in rows] == blocks
    assert all(row.start == 0.0 and row.depth == 0 and row.kind != "gap" for row in rows)

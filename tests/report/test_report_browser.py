"""The report in a real browser: what a reader points at, presses and switches."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import c2fa
import showcases
from browsing import (
    PARTS,
    ActionChains,
    Browser,
    Keys,
    Open,
    all_of,
    choose,
    hover,
    one,
    press,
    slide,
    texts,
    until,
)
from c2fa import report

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def review() -> Any:
    return showcases.explain_text()


def test_hovering_links_both_levels(driver: Browser, show: Open, review: Any) -> None:
    show(report.html(review))
    part = all_of(driver, PARTS)[1]
    hover(driver, part)
    lit = texts(driver, ".word.lit")
    own = [name for name, owner in zip(review.names[1], review.structure.owners(0), strict=True) if owner == 1]
    assert lit == own
    assert "sum of its 13 words" in one(driver, ".status").text
    word = next(w for w in all_of(driver, ".word") if w.text == "excellent!")
    hover(driver, word)
    assert texts(driver, ".word.lit") == ["excellent!"]
    assert [row.split("again")[0] for row in texts(driver, ".row.kin .name")] == ["All the same I would stay here "]
    assert texts(driver, ".row.lit .name") == ["excellent!"]
    assert "in sentence 5" in one(driver, ".status").text
    hover(driver, one(driver, "h1"))
    assert texts(driver, ".lit, .kin") == []


def test_a_clicked_word_is_kept_and_escape_lets_go(driver: Browser, show: Open, review: Any) -> None:
    show(report.html(review))
    next(b for b in all_of(driver, "button") if b.text == "Collapse all").click()
    next(w for w in all_of(driver, ".word") if w.text == "excellent!").click()
    hover(driver, one(driver, "h1"))
    assert texts(driver, ".row.lit .name") == ["excellent!"]
    one(driver, ".passage").send_keys(Keys.ESCAPE)
    assert texts(driver, ".lit") == []


def test_parts_expand_and_collapse(driver: Browser, show: Open, review: Any) -> None:
    show(report.html(review))
    next(b for b in all_of(driver, "button") if b.text == "Collapse all").click()
    assert len(all_of(driver, "[role=treeitem]")) == 5
    assert {i.get_attribute("aria-expanded") for i in all_of(driver, "[role=treeitem]")} == {"false"}
    all_of(driver, PARTS)[1].click()
    item = all_of(driver, "[role=treeitem]")[1]
    assert item.get_attribute("aria-expanded") == "true"
    assert texts(driver, "[aria-level='2'] .name")[0] == "terrible"
    next(b for b in all_of(driver, "button") if b.text == "Expand all").click()
    assert {i.get_attribute("aria-expanded") for i in all_of(driver, "[aria-level='1']")} == {"true"}


def test_the_bars_of_a_part_end_where_its_own_does(driver: Browser, show: Open, review: Any) -> None:
    show(report.html(review))
    ends = driver.execute_script(
        "const items = Array.from(document.querySelectorAll('.tree li'));"
        "const starts = items.map((li, n) => li.ariaLevel === '1' ? n : -1).filter(n => n >= 0);"
        "return starts.map((a, k) => {"
        " const far = b => { const r = b.getBoundingClientRect();"
        "  return b.classList.contains('neg') ? r.left : r.right };"
        " const bars = items.slice(a, starts[k + 1]).map(li => li.querySelector('.bar'));"
        " return [far(bars[0]), far(bars[bars.length - 1])] })"
    )
    assert len(ends) == 5
    np.testing.assert_allclose(*np.array(ends).T, atol=2.5)


def test_largest_first(driver: Browser, show: Open, review: Any) -> None:
    show(report.html(review))
    box = next(label for label in all_of(driver, ".check") if label.text == "Largest first")
    assert texts(driver, PARTS + " .val")[0].replace("−", "-") == f"{review.high[0]:+.3f}"
    box.click()
    shown = [abs(float(t.replace("−", "-"))) for t in texts(driver, PARTS + " .val")]
    assert shown == sorted(shown, reverse=True)


def test_level_switch(driver: Browser, show: Open, review: Any) -> None:
    show(report.html(review))
    choose(driver, "words")
    assert texts(driver, ".tree .name")[0] == review.top(1)[0][0]
    assert all_of(driver, ".sent.line") == []
    choose(driver, "sentences")
    assert len(all_of(driver, "[role=treeitem]")) == 5
    assert all_of(driver, ".word.pos, .word.neg") == []
    assert len(all_of(driver, ".sent.wash")) == 5
    hover(driver, all_of(driver, ".word")[0])
    assert len(all_of(driver, ".sent.lit")) == 1
    choose(driver, "both")
    assert all_of(driver, ".word.pos")
    assert all_of(driver, ".sent.line")


def test_class_switch(driver: Browser, show: Open, review: Any) -> None:
    show(report.html(review))
    choose(driver, "negative")
    other = review.for_target("negative")
    assert one(driver, ".big").text == f"{other.prediction:.3f}"
    shown = [float(t.replace("−", "-")) for t in texts(driver, PARTS + " .val")]
    np.testing.assert_allclose(shown, other.high, atol=6e-4)


def test_many_classes_come_as_a_list_of_the_likeliest(driver: Browser, show: Open) -> None:
    def model(texts: list[str]) -> np.ndarray:
        return np.array([[len(t) * (k + 1) / 1000 for k in range(25)] for t in texts])

    e = showcases.explain_text("One small text. And one more.", budget=(10, 40), model=model)
    show(report.html(e))
    options = texts(driver, "select option")
    assert len(options) == 10
    assert options[-1].startswith("24 (")
    driver.execute_script(
        "const s = document.querySelector('select'); s.value = 0; s.dispatchEvent(new Event('change'))"
    )
    assert one(driver, ".what").text == "15"


def test_slider_shows_so_many_leaves(driver: Browser, show: Open, review: Any) -> None:
    show(report.html(review))
    slide(driver, 4)
    assert one(driver, "output").text == "5 of 66"
    assert sorted(texts(driver, ".word.pos, .word.neg")) == sorted(name for name, _ in review.top(5))
    slide(driver, 0)
    assert all_of(driver, ".word.pos, .word.neg") == []
    assert texts(driver, "[aria-level='2'] .name")[1] == "13 words"
    slide(driver, 99)
    assert one(driver, "output").text == "66 of 66"
    assert texts(driver, ".row.rest") == []


def test_table_sorts_and_copies(driver: Browser, show: Open, review: Any) -> None:
    show(report.html(review))
    one(driver, ".numbers summary").click()
    heads = all_of(driver, "thead button")
    assert until(lambda: len(all_of(driver, "tbody tr")) == 66)
    assert texts(driver, "tbody tr:first-child th") == ["excellent!"]
    heads[2].click()
    assert texts(driver, "tbody tr:first-child th") == ["terrible"]
    assert all_of(driver, "thead th")[2].get_attribute("aria-sort") == "ascending"
    heads[0].click()
    names = texts(driver, "tbody th")
    assert names[0] in ("a", "again,", "All")
    next(b for b in all_of(driver, "button") if b.text == "Copy table").click()
    assert until(lambda: one(driver, ".status").text == "Copied 66 rows")
    copied = driver.execute_script("return document.querySelector('.numbers').copied")
    assert copied.splitlines()[0].split("\t") == ["Name", "Part of", "Attribution", "Standard error"]
    assert len(copied.splitlines()) == 67


def test_the_table_tells_what_is_the_priors(driver: Browser, show: Open, review: Any) -> None:
    from dataclasses import replace

    leaves = review.all_values[-1].copy()
    leaves[0] += 0.5  # what the prior is taken to have done, and nothing to any other word
    levels = tuple(review.structure.sums(leaves, k) for k in range(2))
    show(report.html(replace(review, all_values=levels, prior=c2fa.views.FromPrior(1.0, 0.5, 0.5, review.all_values))))
    one(driver, ".numbers summary").click()
    heads = all_of(driver, "thead button")
    assert heads[-1].text == "From prior"
    heads[-1].click()  # ascending at first, then descending
    heads[-1].click()
    assert texts(driver, "tbody tr:first-child th") == [review.names[-1][0]]
    cells = texts(driver, "tbody tr td:last-child")
    assert cells[0].startswith("0.50")
    assert float(cells[1]) == 0.0
    next(b for b in all_of(driver, "button") if b.text == "Copy table").click()
    copied = driver.execute_script("return document.querySelector('.numbers').copied").splitlines()
    assert copied[0].split("\t")[-1] == "From prior"
    assert copied[1].split("\t")[-1].startswith("0.50")


def test_everything_works_from_the_keyboard(driver: Browser, show: Open, review: Any) -> None:
    show(report.html(review))
    active = "const e = document.activeElement; return [e.tagName, e.getAttribute('role'), e.className, e.type || '']"
    seen = []
    for _ in range(14):
        press(driver, Keys.TAB)
        seen.append(driver.execute_script(active))
        if seen[-1][1] == "treeitem":
            break
    kinds = [(tag, kind) for tag, _, _, kind in seen]
    assert kinds.count(("INPUT", "radio")) == 2
    assert ("INPUT", "range") in kinds
    assert ["DIV", "group", "passage", ""] in seen
    assert seen[-1][1] == "treeitem"
    outline = "return getComputedStyle(document.activeElement.firstChild).outlineStyle"
    assert driver.execute_script(outline) == "solid"
    expanded = "return document.activeElement.getAttribute('aria-expanded')"
    press(driver, Keys.ARROW_LEFT)
    assert driver.execute_script(expanded) == "false"
    press(driver, Keys.ARROW_DOWN)
    assert "Breakfast" in driver.execute_script("return document.activeElement.getAttribute('aria-label')")
    assert len(all_of(driver, ".word.lit")) == 13
    press(driver, Keys.ARROW_RIGHT)
    assert texts(driver, ".word.lit") == ["terrible"]
    press(driver, Keys.ARROW_LEFT)
    assert len(all_of(driver, ".word.lit")) == 13
    press(driver, Keys.END)
    press(driver, Keys.HOME)
    press(driver, Keys.ENTER)
    assert driver.execute_script(expanded) == "true"
    one(driver, ".passage").send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert texts(driver, ".word.lit") == ["room"]
    assert "in sentence 1" in one(driver, "[role=status]").text
    radio = next(r for r in all_of(driver, "input[type=radio]") if r.is_selected())
    radio.send_keys(Keys.ARROW_LEFT)
    assert one(driver, ".what").text == "neutral"
    one(driver, "input[type=range]").send_keys(Keys.HOME)
    assert one(driver, "output").text == "0 of 66"
    one(driver, ".numbers summary").send_keys(Keys.ENTER)
    assert until(lambda: len(all_of(driver, "tbody tr")) == 66)


def test_pointing_at_a_picture_finds_its_super_pixel(driver: Browser, show: Open) -> None:
    e = showcases.explain_images()
    show(report.html(e))
    time.sleep(0.3)
    canvas = all_of(driver, "canvas")[2]
    best = int(np.argmax(e.low))
    y, x = np.median(np.argwhere(e.view.labels[2] == best - 2 * 36), axis=0) / 96 - 0.5
    offset = round(x * canvas.rect["width"]), round(y * canvas.rect["height"])
    ActionChains(driver, duration=20).move_to_element_with_offset(canvas, *offset).perform()
    assert f"“{e.names[1][best]}”" in one(driver, ".status").text
    assert texts(driver, ".row.kin .name") == ["image 3"]
    hover(driver, all_of(driver, PARTS)[1])
    assert "lit" in all_of(driver, "figure")[1].get_attribute("class")


def test_a_bag_has_a_title_a_scale_and_lines(driver: Browser, show: Open) -> None:
    e = showcases.explain_images()
    show(report.html(e))
    assert one(driver, "h1").text == "A bag of 5 images"
    assert until(lambda: drawn(driver, 2))
    most = f"{np.abs(e.low).max():.3f}"
    assert f"−{most} against" in one(driver, ".images ~ .legend").text
    assert f"for +{most}" in one(driver, ".images ~ .legend").text
    assert driver.execute_script("return document.querySelectorAll('canvas')[0].width") == 288, "lines stay thin"
    choose(driver, "images")
    assert f"for +{np.abs(e.high).max():.3f}" in one(driver, ".images ~ .legend").text


def test_pictures_are_saved_as_they_are_shown(driver: Browser, show: Open, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    folder = tmp_path / "saved"
    driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(folder)})
    show(report.html(showcases.explain_images()))
    assert until(lambda: drawn(driver, 2))
    next(b for b in all_of(driver, ".pane.input button") if b.text == "Save PNG").click()
    file = folder / "A-bag-of-5-images.png"
    assert until(file.exists)
    pixels = np.asarray(image.open(file).convert("RGB")).astype(int)
    assert pixels.shape[1] == 5 * (320 + 12) + 12
    blue = pixels[..., 2] - pixels[..., 0] > 80
    at = np.flatnonzero(blue[: pixels.shape[0] - 60].any(axis=0))  # without the scale at the bottom
    assert 2 * 332 < at.min() < at.max() < 3 * 332, "the sun is in the third picture"


def drawn(driver: Browser, n: int) -> bool:
    """Whether a picture has been drawn; a blank one is next to nothing as a file."""
    script = "return document.querySelectorAll('figure canvas')[arguments[0]].toDataURL().length"
    return bool(driver.execute_script(script, n) > 5000)


def test_the_lines_under_words_are_those_of_the_parts_that_hold_them(driver: Browser, show: Open) -> None:
    e = showcases.explain_letter()
    show(report.html(e))
    lines = all_of(driver, ".sent")
    sentences = e.values[1]
    assert ["line pos" if v >= 0 else "line neg" for v in sentences] == [
        line.get_attribute("class").removeprefix("sent ") for line in lines
    ]
    strengths = [float(line.get_attribute("style").split("--s:")[1].split(";")[0]) for line in lines]
    np.testing.assert_allclose(strengths, 0.12 + 0.88 * np.abs(sentences) / np.abs(sentences).max(), atol=5e-3)
    assert "Lines under words: their sentence." in one(driver, ".legend").text


def test_a_column_that_is_in_no_group_shows_its_value(driver: Browser, show: Open) -> None:
    masker = c2fa.maskers.Tabular({"g": ["a", "b"]}, [[0.0, 0.0, 7.0], [2.0, 4.0, 7.0]], names=["a", "b", "c"])
    e = c2fa.Explainer(lambda rows: rows.sum(axis=1), masker, budget=30)([5.0, 6.0, 7.0])
    show(report.html(e))
    assert texts(driver, PARTS + " .name") == ["g", "c = 7 (equal to the baseline)"]
    assert sorted(texts(driver, "[aria-level='2'] .name")) == ["a = 5", "b = 6"]


def test_levels_that_contradict_each_other_are_two_lists(driver: Browser, show: Open) -> None:
    e = showcases.explain_contradiction()
    show(report.html(e))
    assert e.diagnostics.contradiction[1:] in one(driver, ".contradiction").text
    assert texts(driver, "h3.level") == ["Instances", "Features"]
    assert [len(tree.find_elements("css selector", ".row")) for tree in all_of(driver, ".tree")] == [
        5,
        16,
    ]  # the largest, and the rest
    assert texts(driver, ".row.gap, [aria-expanded], [aria-level='2']") == []
    hover(driver, all_of(driver, PARTS)[0])
    assert "sum of" not in one(driver, ".status").text


def test_the_fit_is_told_as_in_the_text(driver: Browser, show: Open, review: Any) -> None:
    show(report.html(review))
    assert review.diagnostics.exact == (True, False)
    left_out = f"R² {review.diagnostics.levels[-1].r2_left_out:.2f} of rows left out"
    assert left_out in review.to_text()
    first, second = texts(driver, ".fit")
    assert (first, second.rpartition(" (")[0]) == ("sentences exact", left_out)
    fitted = showcases.explain_text(method="c2fa")
    show(report.html(fitted))
    levels = zip(fitted.level_names, fitted.diagnostics.levels, strict=True)
    assert [text.rpartition(" (")[0] for text in texts(driver, ".fit")] == [f"{n} R² {fit.r2:.2f}" for n, fit in levels]


def test_a_value_that_is_written_as_0_has_no_bar(driver: Browser, show: Open) -> None:
    def first(bags: Any) -> list[float]:
        return [bag[0, 0] for bag in bags]

    masker = c2fa.maskers.Bag(absent="fill")
    show(report.html(c2fa.Explainer(first, masker, budget=40, progress=False)(np.array([[1.0, 2.0], [3.0, 1.0]]))))
    assert texts(driver, ".row .val") == ["+1.000", "+1.000", "0.000", "0.000", "0.000", "0.000"]
    kinds = [bar.get_attribute("class").split()[1] for bar in all_of(driver, ".row .bar")]
    assert kinds == ["part", "leaf", "none", "none", "none", "none"]


def test_under_its_part_a_leaf_does_not_say_its_part_again(driver: Browser, show: Open) -> None:
    show(report.html(showcases.explain_bag()))
    assert {name for name in texts(driver, "[aria-level='2'] .name") if "more" not in name} <= {
        "width", "height", "weight", "price", "age",
    }  # fmt: skip
    pytest.importorskip("skimage", reason="it cuts images into super-pixels")
    show(report.html(showcases.explain_images()))
    names = [name for name in texts(driver, "[aria-level='2'] .feature .name") if name]
    assert names
    assert all(name.startswith("#") for name in names)

"""A cited answer in a real browser: choosing statements, following sources, with keys and without scripts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import showcases
from browsing import Browser, Keys, Open, all_of, hover, one, press, texts, until
from c2fa import report

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def answer() -> Any:
    return showcases.explain_answer()


def test_pointing_at_a_statement_marks_its_sentences(driver: Browser, show: Open, answer: Any) -> None:
    show(report.html(answer))
    items = all_of(driver, ".statements > li")
    hover(driver, items[1])
    assert texts(driver, ".word.marked") == ["The Rhine flows through Basel.", "Basel has a port."]
    hover(driver, items[2])
    assert texts(driver, ".word.marked") == []
    assert "rests on nothing in these documents" in items[2].text
    hover(driver, one(driver, "h1"))
    assert texts(driver, ".word.marked") == []


def test_a_chosen_statement_has_its_own_numbers_below(driver: Browser, show: Open, answer: Any) -> None:
    show(report.html(answer))
    second = answer.for_target(2)
    totals = lambda e: [e.rounded.text(units).replace("-", "−") for units in e.rounded.values[0]]  # noqa: E731
    shown = lambda: [text.split(" ±")[0] for text in texts(driver, ".document-head .val")]  # noqa: E731
    assert shown() == totals(answer)
    statement = all_of(driver, "button.statement")[1]
    statement.click()
    assert statement.get_attribute("aria-pressed") == "true"
    assert shown() == totals(second)
    assert texts(driver, ".sums b")[0] == "For statement [2]: "
    hover(driver, one(driver, "h1"))
    assert texts(driver, ".word.marked") == ["The Rhine flows through Basel.", "Basel has a port."]
    one(driver, ".whole-answer .button").click()
    assert shown() == totals(answer)
    assert statement.get_attribute("aria-pressed") == "false"


def test_a_source_leads_to_its_sentence_and_back_by_keys(driver: Browser, show: Open, answer: Any) -> None:
    show(report.html(answer), width=375, height=700)
    link = all_of(driver, "a.source")[2]
    driver.execute_script("arguments[0].focus()", link)
    press(driver, Keys.ENTER)
    assert texts(driver, ".word.lit") == ["Basel has a port."]
    inside = (
        "const r = document.querySelector('.word.lit').getBoundingClientRect(); return r.top >= 0 && r.bottom <= 700"
    )
    assert until(lambda: bool(driver.execute_script(inside)))
    assert "±" in one(driver, ".status").text
    assert texts(driver, ".statements > li.chosen .count") == ["[2]"]
    cites = all_of(driver, ".cites a")[0]
    driver.execute_script("arguments[0].focus()", cites)
    press(driver, Keys.ENTER)
    assert driver.execute_script("return document.activeElement.querySelector('.count').textContent") == "[2]"


def test_noise_stays_pale(driver: Browser, show: Open, answer: Any) -> None:
    show(report.html(answer))
    all_of(driver, "button.statement")[2].click()
    assert texts(driver, ".sums b")[0] == "For statement [3]: "
    shades = driver.execute_script(
        "return Array.from(document.querySelectorAll('.word.pos, .word.neg'), w => +w.style.getPropertyValue('--a'))"
    )
    assert all(shade < 0.15 for shade in shades)


def test_only_what_is_settled_is_shaded(driver: Browser, show: Open, answer: Any) -> None:
    show(report.html(answer))
    settled = np.abs(answer.low) > 2 * answer.stderr[-1]
    assert 0 < settled.sum() < len(settled)
    expected = [name for name, is_settled in zip(answer.names[-1], settled, strict=True) if is_settled]
    assert set(texts(driver, ".word.pos, .word.neg")) <= set(expected)
    assert "Bern is the capital." in texts(driver, ".word.pos")


def test_an_answer_of_one_statement_has_nothing_to_choose(driver: Browser, show: Open) -> None:
    show(report.html(showcases.explain_answer(answer="Bern is the capital.")))
    assert texts(driver, ".statement") == ["Bern is the capital."]
    assert all_of(driver, "button.statement") == []
    one(driver, "a.source").click()
    assert texts(driver, ".word.lit") == ["Bern is the capital."]


def test_without_scripts_a_link_leads_to_the_sentence(driver: Browser, show: Open, answer: Any) -> None:
    driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        show(report.html(answer), height=300)
        link = one(driver, "noscript a")
        target = link.get_attribute("href").split("#")[1]
        link.click()
        assert driver.current_url.endswith(f"#{target}")
        assert one(driver, f"tr[id='{target}']").text.startswith("Bern is the capital.")
    finally:
        driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_several_answers_in_a_notebook_leave_each_other_alone(driver: Browser, show: Open, answer: Any) -> None:
    show(f"<!DOCTYPE html><html lang='en'><title>x</title><body>{report.repr_html(answer)}{report.repr_html(answer)}")
    lit = driver.execute_script(
        "const roots = Array.from(document.querySelectorAll('div'), d => d.shadowRoot).filter(Boolean);"
        "roots[0].querySelector('a.source').click();"
        "return roots.map(r => Array.from(r.querySelectorAll('.word.lit'), w => w.textContent))"
    )
    assert lit == [["Bern is the capital."], []]

"""A cited answer for the eye: what its statements say of themselves, on a page, in a plot and in a terminal."""

from __future__ import annotations

import dataclasses
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from test_report import blocks, read

import c2fa
import showcases
from c2fa import report
from c2fa.report import _page
from c2fa.views.answer import cited_level
from c2fa.views.statement import Source, Statement

NOTHING = "rests on nothing in these documents"


@pytest.fixture(scope="module")
def answer() -> Any:
    return showcases.explain_answer()


class Anchors(HTMLParser):
    """The anchors of a page and the links that lead to them, what is shown without scripts included."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if found.get("id"):
            self.ids.append(str(found["id"]))
        if tag == "a":
            self.links.append(str(found["href"]))


def said(**changes: Any) -> Statement:
    source = Source(1, 0, "a", "It is so.", 3.0, 0.1, "+3.000 ± 0.100")
    given = {
        "text": "So.",
        "place": (0, 3),
        "output": 0,
        "score": -1.0,
        "without": -6.0,
        "sources": (source,),
        "least_gain": 0.69,
        "unit": "nats",
    }
    return Statement(**{**given, **changes})


@pytest.mark.parametrize(
    ("changes", "verdict", "words"),
    [
        ({}, "rests", "150 times as likely with the documents (-1.000 nats, -6.000 without)"),
        ({"score": -5.9, "sources": ()}, "nothing", NOTHING),
        ({"score": -9.0, "sources": ()}, "nothing", NOTHING),
        ({"sources": ()}, "unsettled", "is not settled; more rows may tell"),
        ({"score": -6.0}, "opposed", "no likelier with these documents than without"),
        ({"score": -61.0, "without": -60.0}, "nothing", NOTHING),  # 3 nats are little beside 60
        ({"score": -59.0, "without": -60.0}, "little", "rests on little in these documents: 2.7 times as likely"),
        ({"score": 0.9, "without": 0.2, "unit": "", "least_gain": 0.1}, "rests", "0.700 more alike with the documents"),
    ],
)
def test_a_statement_says_what_it_rests_on(changes, verdict, words):
    statement = said(**changes)
    assert statement.verdict == verdict
    assert words in statement.told
    assert bool(statement.shown) == (verdict != "nothing" and bool(statement.sources))


def test_a_source_too_small_to_matter_leaves_a_statement_on_nothing():
    small = dataclasses.replace(said().sources[0], value=0.2)
    assert said(score=-5.8, sources=(small,)).verdict == "nothing"


def test_the_made_answer_has_a_statement_of_each_kind(answer):
    assert [s.verdict for s in answer.statements] == ["rests", "rests", "nothing", "opposed"]
    assert [[source.name for source in s.shown] for s in answer.statements] == [
        ["cities.md: Bern is the capital."],
        ["rivers.md: The Rhine flows through Basel.", "cities.md: Basel has a port."],
        [],
        ["rivers.md: Swans like it."],
    ]


@pytest.mark.parametrize(
    ("levels", "level", "names"),
    [
        (("documents", "sentences", "words"), 1, ["cities.md: Bern is the capital."]),
        (("documents",), 0, ["cities.md"]),
        (("sentences",), 0, ["Bern is the capital."]),
        (("paragraphs", "sentences"), 1, ["Bern is the capital."]),
    ],
)
def test_sources_are_sentences_where_there_are_any(levels, level, names):
    c = showcases.explain_answer(levels=levels, budget=160)
    assert cited_level(c) == level
    assert [source.name for source in c.statements[0].sources] == names


def test_the_page_has_each_statement_with_its_sources_and_scores(answer):
    packed = blocks(report.html(answer))["c2fa-data-0"]
    found = packed["answer"]
    assert found["query"] == "Which <capital>, which river?"
    assert [s["text"] for s in found["statements"]] == [s.text for s in answer.statements]
    assert [s["column"] for s in found["statements"]] == [1, 2, 3, 4]
    assert found["statements"][2]["told"].startswith(NOTHING)
    assert found["statements"][2]["sources"] == []
    [source] = found["statements"][0]["sources"]
    level, index = source["at"]
    assert answer.names[level][index] == source["text"] == "Bern is the capital."
    units = _units(packed["units"][level], column=1, width=packed["widths"][level])
    assert source["told"].startswith(f"+{units[index] / 1000:.3f} ± ")
    assert found["whole"]["told"] == answer.answer.statement(answer, 0).told.replace(" -", " −").replace("(-", "(−")


def _units(data: dict[str, Any], column: int, width: int) -> np.ndarray:
    import base64

    raw = np.frombuffer(base64.b64decode(data["data"]), dtype=f"<i{data['bytes']}")
    return raw[column * width : (column + 1) * width]


def test_a_blank_line_is_no_statement():
    text = "\n\nBern is the capital.\n\nZermatt bans cars.\n"
    c = showcases.explain_answer(answer=text)
    assert [s.text for s in c.statements] == ["Bern is the capital.", "Zermatt bans cars."]

    class Letters(showcases.Reader):
        def pieces(self, answer):
            return list(answer)

    c = c2fa.cite(Letters(text, []), showcases.DOCUMENTS, "?", budget=20, progress=False)
    assert [s.text for s in c.statements] == ["Bern is the capital.", "Zermatt bans cars."]


def test_markup_goes_with_the_sentence_that_it_is_in():
    masked = c2fa.maskers.Text(levels=("sentences",), mask=None)("A <b>bold</b> word. Done <i>now</i>.")
    assert masked.inputs([[True, False], [False, True], [False, False]], 0) == [
        "A <b>bold</b> word.",
        "Done <i>now</i>.",
        "",
    ]


def test_every_statement_can_be_chosen_however_many_there_are():
    text = " ".join(f"Claim {chr(65 + k)} is made in {1990 + k}." for k in range(12))
    lm = showcases.Reader(text, [("fact 3", "Claim D", 8.0)])
    documents = {f"d{k}": f"Here is fact {k}. It is fine." for k in range(10)}
    c = c2fa.cite(lm, documents, "?", budget=80, progress=False)
    found = blocks(c.to_html())["c2fa-data-0"]["answer"]["statements"]
    assert [s["column"] for s in found] == list(range(1, 13))
    assert [s["verdict"] for s in found] == ["rests" if k == 3 else "nothing" for k in range(12)]
    assert _page.summary(c, "x")["unsupported"] == "11 of 12 rest on nothing"


def test_without_scripts_links_lead_from_statements_to_sentences_and_back(answer):
    page = report.html([answer, answer])
    found = Anchors(page)
    assert len(set(found.ids)) == len(found.ids)
    assert found.links
    assert all(link.startswith("#") and link[1:] in found.ids for link in found.links)
    noscript = page.split("<noscript>")[1].split("</noscript>")[0]
    assert noscript.count(NOTHING) == 2
    assert "Zermatt bans &lt;cars&gt;." in noscript
    island = Anchors(report.repr_html(answer).split("<script>")[0])
    assert island.links
    assert all(link[1:] in island.ids for link in island.links)


def test_the_plain_page_lists_every_sentence_with_its_value(answer):
    plain = _page.plain_view(answer, "key")
    for k, level in enumerate(answer.names):
        for i, units in enumerate(answer.rounded.values[k]):
            row = plain.split(f"id='key-{k}-{i}'")[1].split("</tr>")[0]
            assert answer.rounded.text(units).replace("-", "−") in row, level[i]


def test_nothing_of_a_document_becomes_markup(answer):
    for page in (report.html(answer), report.repr_html(answer)):
        found = read(page)
        assert not [attrs for tag, attrs in found.tags if tag == "img" or "onerror" in attrs]
        assert sum(tag == "script" and "type" not in attrs for tag, attrs in found.tags) == 1


def test_a_stored_answer_is_shown_as_before(answer, tmp_path):
    answer.save(tmp_path / "answer.json")
    again = c2fa.load(tmp_path / "answer.json")
    assert again.to_text() == answer.to_text()
    assert again.to_html() == answer.to_html()


def test_the_title_is_the_query(answer):
    assert "<title>Which &lt;capital&gt;, which river?</title>" in answer.to_html()


def test_the_text_tells_which_statement_its_tree_is_of(answer):
    assert (
        f"What the documents do for the whole answer ({answer.answer.statement(answer, 0).scores}):" in answer.to_text()
    )
    assert "What the documents do for statement [2] (" in answer.for_target(2).to_text()


def test_the_text_keeps_to_its_width(answer):
    lines = answer.to_text(width=60).splitlines()[1:]
    assert max(len(line) for line in lines if not line.startswith("!")) <= 60


def test_a_similarity_is_said_to_be_one(answer):
    pytest.importorskip("matplotlib")

    c = dataclasses.replace(answer, answer=dataclasses.replace(answer.answer, scored_by="similarity"))
    note = "no log-probability"
    assert note in c.to_text()
    assert note in blocks(c.to_html())["c2fa-data-0"]["notes"][0]
    assert note in report.repr_html(c).split("<script>")[0]
    assert "nats" not in c.to_text()
    assert note not in answer.to_text()


def test_the_plot_of_a_cited_answer_is_that_of_its_documents(answer):
    pytest.importorskip("matplotlib")
    for kind in (None, "text", "nested"):
        assert answer.plot(kind).axes

"""Citations as answers and models' interfaces have them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from c2fa.citing.annotations import read_citations

DOCUMENTS = {
    "rivers": {"title": "On rivers", "url": "https://example.org/rivers"},
    "cities": {"title": "On cities", "file_id": "file-2", "filename": "cities.txt"},
    "hills": {},
}
ANSWER = "Bern is the capital. The Rhine is long."


def cited(answer, citations=None):
    """The sentence that each citation is of, by its first word, and its source."""
    marked = read_citations(answer, citations, DOCUMENTS)
    second = marked.text.find("The Rhine")
    return [("Bern" if claim.start < second else "Rhine", claim.source) for claim in marked.claims]


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ("Bern is the capital [2]. The Rhine is long [1].", [("Bern", "cities"), ("Rhine", "rivers")]),
        ("Bern is the capital.[2] The Rhine is long. [1]", [("Bern", "cities"), ("Rhine", "rivers")]),
        ("Bern is the capital [2, 3]. The Rhine is long.", [("Bern", "cities"), ("Bern", "hills")]),
        ("Bern is the capital [2][3]. The Rhine is long.", [("Bern", "cities"), ("Bern", "hills")]),
        ("Bern is the capital.[2][3] The Rhine is long.", [("Bern", "cities"), ("Bern", "hills")]),
        ("Bern is the capital [1-3]. The Rhine is long.", [("Bern", d) for d in DOCUMENTS]),
        ("Bern is the capital [cities]. The Rhine is long.", [("Bern", "cities")]),
        ("Bern is the capital [Cities; rivers]. The Rhine is long.", [("Bern", "cities"), ("Bern", "rivers")]),
        ("Bern is the capital (source: cities). The Rhine is long.", [("Bern", "cities")]),
        (
            "Bern is the capital (Sources: On cities, hills). The Rhine is long.",
            [("Bern", "cities"), ("Bern", "hills")],
        ),
        ("Bern is the capital [source: cities.txt]. The Rhine is long.", [("Bern", "cities")]),
        ("Bern is the capital 【2†source】. The Rhine is long.", [("Bern", "cities")]),
        ("Bern is the capital [^2]. The Rhine is long.", [("Bern", "cities")]),
        ("Bern is the capital [Doc 2]. The Rhine is long.", [("Bern", "cities")]),
        ("[2] Bern is the capital. The Rhine is long.", [("Bern", "cities")]),
    ],
)
def test_markers_are_read_and_left_out(answer, found):
    assert cited(answer) == found
    assert read_citations(answer, None, DOCUMENTS).text == ANSWER


def test_a_marker_may_name_many_documents_at_length():
    documents = {f"https://example.org/{'long/' * 12}{i}": {} for i in range(20)}
    marked = read_citations(f"It rains [{', '.join(documents)}].", None, documents)
    assert (marked.text, [claim.source for claim in marked.claims]) == ("It rains.", list(documents))


def test_what_is_no_citation_stays():
    for answer in ("He wrote [sic] that.", "See [the page](https://example.org).", "It is (in short) long."):
        assert read_citations(answer, None, DOCUMENTS) == read_citations(answer, [], DOCUMENTS)
        assert read_citations(answer, None, DOCUMENTS).text == answer


@pytest.mark.parametrize("answer", ["To do: [ ] buy milk, [none] of it sour.", "It holds [,] and [;] alone."])
@pytest.mark.parametrize("about", [{}, {"title": None}, {"title": ""}])
def test_empty_brackets_and_none_name_no_document_that_lacks_a_title(answer, about):
    marked = read_citations(answer, None, {"only": about})
    assert (marked.text, marked.claims) == (answer, ())


@pytest.mark.parametrize("marker", ["[9]", "(source: seas)", "[0]"])
def test_a_document_that_is_not_there(marker):
    [claim] = read_citations(f"Bern is the capital {marker}.", None, DOCUMENTS).claims
    assert not claim.exists
    assert claim.source in ("9", "seas", "0")


GEMINI = {
    "groundingChunks": [
        {"web": {"uri": "https://example.org/rivers", "title": "x"}},
        {"retrievedContext": {"title": "On cities"}},
    ],
    "groundingSupports": [
        {"segment": {"endIndex": 20, "text": "Bern is the capital."}, "groundingChunkIndices": [1]},
        {"segment": {"startIndex": 21, "endIndex": 39}, "groundingChunkIndices": [0, 1]},
    ],
}
BLOCKS = [
    {"type": "text", "text": "Bern is the capital.", "citations": [{"type": "char_location", "document_index": 1}]},
    {"type": "text", "text": " "},
    {
        "type": "text",
        "text": "The Rhine is long.",
        "citations": [{"type": "page_location", "document_title": "On rivers"}],
    },
]
BOTH = [("Bern", "cities"), ("Rhine", "rivers")]


@pytest.mark.parametrize(
    ("citations", "found"),
    [
        ([("Bern is", "cities"), ("Rhine", "rivers")], BOTH),
        ([((0, 4), "cities"), ([25, 30], 1)], BOTH),
        ([{"statement": "Bern is the capital.", "source": "cities"}], BOTH[:1]),
        ([{"type": "citation", "url": "https://example.org/rivers", "start_index": 21, "end_index": 39}], BOTH[1:]),
        ([{"type": "citation", "id": "lc_1", "title": "On cities", "start_index": 0, "end_index": 20}], BOTH[:1]),
        ([{"start": 0, "end": 4, "text": "Bern", "document_ids": ["doc_1", "hills"]}], [BOTH[0], ("Bern", "hills")]),
        ([{"start": 0, "end": 4, "text": "Bern", "sources": [{"type": "document", "id": "doc:1"}]}], BOTH[:1]),
        ([{"start": 0, "end": 4, "sources": [{"id": "x", "document": {"id": "cities"}}]}], BOTH[:1]),
        (GEMINI, [("Bern", "cities"), ("Rhine", "rivers"), ("Rhine", "cities")]),
        ({"groundingMetadata": GEMINI}, [("Bern", "cities"), ("Rhine", "rivers"), ("Rhine", "cities")]),
        (
            {
                "citationMetadata": {
                    "citationSources": [{"startIndex": 21, "endIndex": 39, "uri": "https://example.org/rivers"}]
                }
            },
            BOTH[1:],
        ),
        ([{"type": "url_citation", "start_index": 21, "end_index": 39, "url": "https://example.org/rivers"}], BOTH[1:]),
        (
            [
                {
                    "type": "url_citation",
                    "url_citation": {"start_index": 0, "end_index": 20, "url": "u", "title": "On cities"},
                }
            ],
            BOTH[:1],
        ),
        ([{"type": "file_citation", "index": 20, "file_id": "file-2", "filename": "cities.txt"}], BOTH[:1]),
        (
            [{"type": "file_citation", "start_index": 0, "end_index": 20, "file_citation": {"file_id": "file-2"}}],
            BOTH[:1],
        ),
    ],
)
def test_citations_as_models_interfaces_have_them(citations, found):
    assert cited(ANSWER, citations) == found
    assert all(claim.exists for claim in read_citations(ANSWER, citations, DOCUMENTS).claims)


def test_blocks_with_their_citations_are_an_answer():
    assert read_citations(BLOCKS, None, DOCUMENTS).text == ANSWER
    assert cited(BLOCKS) == BOTH


def test_gemini_counts_bytes():
    answer = "Zürich is a città. The Rhine is long."
    start = len(answer[: answer.index("The")].encode())
    support = {"segment": {"startIndex": start, "endIndex": len(answer.encode())}, "groundingChunkIndices": [0]}
    marked = read_citations(answer, {**GEMINI, "groundingSupports": [support]}, DOCUMENTS)
    [claim] = marked.claims
    assert marked.text[claim.start : claim.end] == "The Rhine is long."


def test_places_count_in_the_answer_as_it_was_given():
    answer = "Bern is the capital [2]. The Rhine is long [1]."
    start = answer.index("The")
    marked = read_citations(answer, [((start, start + 18), "hills")], DOCUMENTS)
    [claim] = marked.claims
    assert marked.text[claim.start : claim.end] == "The Rhine is long"


@given(st.lists(st.tuples(st.text("abc .", min_size=1, max_size=12), st.integers(1, 3)), min_size=1, max_size=6))
def test_leaving_markers_out_gives_back_the_text(parts):
    plain = [f"x{text}y" for text, _ in parts]
    marked = read_citations("".join(f"{t} [{n}]" for t, (_, n) in zip(plain, parts, strict=True)), None, DOCUMENTS)
    assert marked.text == "".join(plain)
    ends = [len("".join(plain[: k + 1])) for k in range(len(plain))]
    assert [(c.end, c.source) for c in marked.claims] == [
        (end, list(DOCUMENTS)[n - 1]) for end, (_, n) in zip(ends, parts, strict=True)
    ]

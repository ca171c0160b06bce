"""Verified citations: toy language models whose truth is known by construction; every verdict is provoked."""

from __future__ import annotations

import itertools
import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import c2fa
from c2fa.citing import PROMPT
from c2fa.citing.verdicts import Share

KINDS = ("used", "either", "both", "known", "against", "made up")
WORDS = ("Alpha", "Beta", "Gamma", "Delta", "Epsilon", "Zeta")


class Toy:
    """A statement's log-probability is a function of which documents' keys the prompt holds."""

    name = "toy"

    def __init__(self, truths, noise=0.0, style=0.0):
        """``truths``: of each statement, the kind and the documents that it is about."""
        self.truths, self.style = truths, style
        self.noise, self.rng, self.rows = noise, np.random.default_rng(0), 0

    def generate(self, prompt):
        raise AssertionError("the answer is given")

    def pieces(self, answer):
        return answer.replace(". ", ".| ").split("|")  # a statement is one piece

    def log_probability(self, kind, about, there):
        first, second = about[0] in there, about[-1] in there
        return {
            "used": -9.0 + 8.0 * first,
            "either": -9.0 + 8.0 * (first or second),
            "both": -9.0 + 8.0 * (first and second),
            "known": -0.5,
            "against": -5.0 - 6.0 * first,
            "made up": -9.0,
        }[kind]

    def score(self, prompts, answer):
        self.rows += len(prompts)
        out = []
        for prompt in prompts:
            there = {d for d in range(20) if f"key-{d}." in prompt}
            row = [self.log_probability(kind, about, there) for kind, about in self.truths]
            out.append([x + self.style * len(there) + self.noise * self.rng.normal() for x in row])
        return np.array(out)


def documents(count):
    return {f"d{d}": f"Nothing is said here. This is key-{d}. More words follow." for d in range(count)}


def answer_of(truths, cited):
    """Statements that each cite some documents by number."""
    sentences = [f"{WORDS[k % 6]} is number {k}" for k in range(len(truths))]
    return " ".join(f"{s} [{', '.join(str(d + 1) for d in some)}]." for s, some in zip(sentences, cited, strict=True))


def verdicts(v):
    return {(c.statement, c.source): c.verdict for c in v.citations}


def expected(kind, about, d):
    """The verdict on citing document d for a statement of a kind, read off the definition."""
    if kind == "known":
        return "known without"
    if d not in (about[:1] if kind in ("used", "against") else about) or kind == "made up":
        return "not used"
    if kind == "against":
        return "against"
    return "one of several" if kind == "either" and about[0] != about[-1] else "used"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_every_verdict_is_found(kind, noise):
    truths = [(kind, (1, 3))]
    v = c2fa.verify(Toy(truths, noise), documents(5), "?", answer_of(truths, [(0, 1, 3)]), budget=48)
    assert {c.source: c.verdict for c in v.citations} == {f"d{d}": expected(kind, (1, 3), d) for d in (0, 1, 3)}
    assert v.queries <= 48


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_verdicts_are_those_of_the_construction(data):
    count = data.draw(st.integers(3, 7))
    pairs = list(itertools.permutations(range(count), 2))
    truths = data.draw(st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from(pairs)), min_size=1, max_size=3))
    cited = [data.draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=3, unique=True)) for _ in truths]
    lm = Toy(truths, style=data.draw(st.sampled_from([0.0, 0.05])))
    v = c2fa.verify(lm, documents(count), "?", answer_of(truths, cited), budget=96, seed=data.draw(st.integers(0, 9)))
    assert len(v.citations) == sum(map(len, cited))
    for (kind, about), some, statement in zip(truths, cited, v.statements, strict=True):
        assert [c.verdict for c in statement.citations] == [expected(kind, about, d) for d in some]
        assert [c.source for c in statement.citations] == [f"d{d}" for d in some]
    assert lm.rows == v.queries <= 96


def test_what_was_used_and_not_cited_is_named():
    truths = [("used", (2, 2)), ("either", (0, 1))]
    v = c2fa.verify(Toy(truths), documents(4), "?", answer_of(truths, [(3,), (0,)]), budget=64)
    first, second = v.statements
    assert [(c.source, c.verdict, c.carriers) for c in first.citations] == [("d3", "not used", ("d2",))]
    assert [c.source for c in first.uncited] == ["d2"]
    assert [(c.source, c.verdict) for c in second.uncited] == [("d1", "one of several")]
    assert not first.supported
    assert second.supported
    [c] = second.citations
    assert c.others == ("d1",)
    assert c.alone == pytest.approx(0.0)
    assert c.together == c.back == pytest.approx(8.0)


@pytest.mark.parametrize("copies", [3, 5])
def test_many_copies_stand_in_for_each_other(copies):
    class Copies(Toy):
        def log_probability(self, kind, about, there):
            return -9.0 + 8.0 * bool(there & set(range(copies)))

    truths = [("used", (0, 0))]
    v = c2fa.verify(Copies(truths), documents(7), "?", answer_of(truths, [(0, 6)]), budget=64)
    assert [c.verdict for c in v.citations] == ["one of several", "not used"]


def test_few_rows_do_not_settle_and_more_do():
    truths = [("used", (1, 1))]
    answer = answer_of(truths, [range(9)])
    v = c2fa.verify(Toy(truths), documents(9), "?", answer, budget=8)
    unsettled = [c for c in v.citations if c.verdict == "not settled"]
    assert unsettled
    assert v.queries <= 8
    rows = max(c.rows for c in unsettled)
    assert all(f"about {c.rows} rows would tell" in c.told() for c in unsettled)
    more = c2fa.verify(Toy(truths), documents(9), "?", answer, budget=rows)
    assert sum(c.verdict == "not settled" for c in more.citations) < len(unsettled)
    enough = c2fa.verify(Toy(truths), documents(9), "?", answer, budget=64)
    assert [c.verdict for c in enough.citations] == ["used" if d == 1 else "not used" for d in range(9)]


def test_much_noise_does_not_settle_and_says_how_many_rows_would():
    class Weak(Toy):
        def log_probability(self, kind, about, there):
            return -9.0 + 1.0 * (about[0] in there)

    truths = [("used", (1, 1))]
    v = c2fa.verify(Weak(truths, noise=2.0), documents(4), "?", answer_of(truths, [(1,)]), budget=40)
    [c] = v.citations
    assert c.verdict == "not settled"
    assert c.rows > v.queries


def test_with_noise_each_removal_is_asked_twice():
    asked = Counter()

    class Counting(Toy):
        def score(self, prompts, answer):
            asked.update(prompts)
            return super().score(prompts, answer)

    lm, cited = Counting([("used", (1, 1))], noise=0.2), (0, 1, 3)
    v = c2fa.verify(lm, documents(5), "?", answer_of(lm.truths, [cited]), budget=64)
    assert all(c.verdict != "not settled" for c in v.citations)
    texts = list(documents(5).values())
    for gone in (set(), set(range(5)), *({d} for d in cited)):
        context = "\n\n".join(text for d, text in enumerate(texts) if d not in gone)
        assert asked[PROMPT.format(context=context, query="?")] == 2


def test_a_citation_of_no_document_is_not_used():
    truths = [("used", (1, 1))]
    v = c2fa.verify(Toy(truths), documents(3), "?", "Alpha is number 0 [2][9].", budget=40)
    assert [(c.source, c.verdict, c.exists) for c in v.citations] == [("d1", "used", True), ("9", "not used", False)]
    assert "no such document" in v.to_text()


def test_markers_are_not_what_is_scored():
    class Seen(Toy):
        def pieces(self, answer):
            assert "[" not in answer
            return super().pieces(answer)

    truths = [("used", (1, 1))]
    v = c2fa.verify(Seen(truths), documents(3), "?", "Alpha is number 0 [2].", budget=30)
    assert v.answer == v.citations[0].statement == "Alpha is number 0."


def test_it_is_told_as_text_records_frame_json_and_a_page(tmp_path):
    truths = [("used", (1, 1)), ("made up", (0, 0))]
    given = [{"id": f"<b>{d}", "text": text, "page": d} for d, text in enumerate(documents(3).values())]
    v = c2fa.verify(Toy(truths), given, "Which & why?", answer_of(truths, [(1, 0), ()]).replace(" []", ""), budget=48)
    text = v.to_text()
    assert text.index("<b>1: used: removing it takes 8.00 nats") < text.index("<b>0: not used")
    assert "cites nothing" in text
    first, second = v.to_records()
    assert (first["source"], first["verdict"], first["cited"]) == ("<b>1", "used", True)
    assert first["metadata"] == {"page": 1}
    assert first["passage"] == "This is key-1."
    start, end = first["passage_place"]
    assert given[1]["text"][start:end] == first["passage"]
    start, end = second["place"]
    assert v.answer[start:end] == second["statement"] == "Alpha is number 0."
    assert list(v.to_frame()["verdict"]) == ["used", "not used"]
    assert [len(s["citations"]) for s in json.loads(v.to_json())["statements"]] == [2, 0]
    page = v.to_html(tmp_path / "verified.html")
    assert (tmp_path / "verified.html").read_text() == page
    assert "<b>1" not in page
    assert "&lt;b&gt;1" in page
    assert "Which &amp; why?" in page


def test_scores_over_many_answers():
    truths = [("used", (1, 1))]
    citer = c2fa.Citer(Toy(truths), method="owen", budget=40)
    questions = [
        {"documents": documents(3), "query": "?", "answer": "Alpha is number 0 [2]."},
        {"documents": documents(3), "query": "??", "answer": "Alpha is number 0 [1]."},
        {"documents": documents(3), "query": "?", "answer": "Alpha is number 0.", "citations": [((0, 5), "d1")]},
    ]
    found = citer.verify_many(questions)
    assert (found.used.count, found.used.of) == (2, 3)
    assert (found.supported.count, found.supported.of) == (2, 3)
    assert "citations used: 2 of 3" in found.to_text()
    assert len(found.to_frame()) == 4  # and one that was used and not cited
    assert found.to_html().count("<h2") == 3


GOOD = {"documents": documents(3), "query": "?", "answer": "Alpha is number 0 [2]."}
BAD = [
    {"documents": documents(3), "query": "?"},
    {"documents": [], "query": "?", "answer": "Alpha [1]."},
    {"documents": documents(3), "query": "?", "answer": "Alpha is.", "citations": [("Omega", "d1")]},
    "no question",
]


def test_bad_questions_are_set_aside_with_their_sentences():
    citer = c2fa.Citer(Toy([("used", (1, 1))]), method="owen", budget=40)
    with pytest.warns(UserWarning, match="4 of 6 inputs could not be explained"):
        found = citer.verify_many([*BAD, GOOD, GOOD])
    assert [(failure.index, failure.error.split(";")[0][:40]) for failure in found.errors()] == [
        (0, "verify needs the answer whose citations "),
        (1, "there are no documents"),
        (2, "the answer does not hold 'Omega', which "),
        (3, "a question must be a dict with documents"),
    ]
    assert [index for index, _ in found.items()] == [4, 5]
    assert (found.used.count, found.used.of) == (2, 2)
    assert found.to_text().endswith("set aside: 4 of 6 questions")
    with pytest.raises(c2fa.batch.NotExplainedError, match="there are no documents"):
        found[1]
    with pytest.raises(c2fa.batch.NotExplainedError, match="none of the 4 inputs"):
        citer.verify_many(BAD)


def test_a_store_is_continued_and_gives_the_same_verdicts_back(tmp_path):
    truths = [("either", (0, 1)), ("used", (2, 2))]
    given = [{"id": f"d{d}", "text": text, "page": d} for d, text in enumerate(documents(4).values())]
    rows = [{"documents": given, "query": f"{k}?", "answer": answer_of(truths, [(0, 3), (1,)])} for k in range(5)]
    options = {"engine": "serial", "shard_size": 2, "precision": "float64"}
    lm = Toy(truths)
    citer = c2fa.Citer(lm, method="owen", budget=48)
    citer.verify_many(rows[:4], tmp_path / "verified", **options)  # two shards, as a run that was stopped leaves them
    found = citer.verify_many(rows, tmp_path / "verified", **options)
    assert found.explanations.run.inputs == 1, "what was written before is not done again"
    assert len(found) == 5
    own = citer.verify_many(rows)
    for one, other in zip(found, own, strict=True):
        assert one.citations == other.citations
        assert one.uncited == other.uncited
        assert one.to_json() == other.to_json()
    assert found[0].uncited[0].metadata == {"page": 1}
    again = c2fa.citing.Verifications(c2fa.batch.Store.open(tmp_path / "verified"))
    assert str(again.used) == str(own.used)
    asked = lm.rows
    citer.verify_many(rows, tmp_path / "verified", **options)
    assert lm.rows == asked
    with pytest.raises(c2fa.batch.StoreError, match="other settings"):
        citer.many(rows, tmp_path / "verified", **options)


def test_an_explanation_in_a_file_keeps_its_verdicts(tmp_path):
    v = c2fa.verify(Toy([("used", (1, 1))]), GOOD["documents"], "?", GOOD["answer"], budget=40)
    v.explanation.save(tmp_path / "v.json")
    assert c2fa.citing.Verification(c2fa.load(tmp_path / "v.json")).to_json() == v.to_json()


def test_an_empty_list_of_citations_is_none():
    v = c2fa.verify(Toy([("used", (1, 1))]), GOOD["documents"], "?", GOOD["answer"], [], budget=40)
    assert not v.citations
    assert [c.source for c in v.uncited] == ["d1"]


def test_a_frame_of_questions():
    pandas = pytest.importorskip("pandas")
    found = c2fa.Citer(Toy([("used", (1, 1))]), method="owen", budget=40).verify_many(pandas.DataFrame([GOOD, GOOD]))
    assert [v.citations[0].verdict for v in found] == ["used", "used"]


class Guide(Toy):
    """A statement is likely where the prompt holds what it needs."""

    def score(self, prompts, answer):
        self.rows += len(prompts)
        needs = ("Ada Morn built", "in Lund")
        return [[-1.0 if need in prompt else -9.0 for need in needs] for prompt in prompts]


CHAT = [
    {"role": "system", "content": "You are a guide."},
    {"role": "user", "content": "I am in Lund. I like bridges."},
    {"role": "assistant", "content": "Good to know."},
    {"role": "tool", "name": "search", "content": "Ada Morn built it. It took nine years."},
    {"role": "user", "content": "Who built it?"},
]
SAID = "Ada Morn built it [turn 4 (tool search)]. You are in Lund [turn 3 (assistant)]."


@pytest.mark.parametrize(
    "arguments",
    [
        {"messages": CHAT, "answer": SAID},
        {"messages": [*CHAT, {"role": "assistant", "content": SAID}]},
        {
            "messages": CHAT,
            "answer": [{"type": "text", "text": "Ada Morn built it. You are in Lund."}],
            "citations": [("Ada Morn", "turn 4 (tool search)"), ("Lund", "turn 3 (assistant)")],
        },
    ],
)
def test_a_chats_turns_are_cited(arguments):
    v = c2fa.verify(Guide([]), **arguments, budget=48)
    assert [(c.source, c.verdict) for c in v.citations] == [
        ("turn 4 (tool search)", "used"),
        ("turn 3 (assistant)", "not used"),
    ]
    assert [c.source for c in v.uncited] == ["turn 2 (user)"]
    assert v.query == "Who built it?"


def test_langchains_messages_are_a_chat_and_an_answer():
    langchain = pytest.importorskip("langchain_core.messages")
    calls = [{"name": "search", "args": {"q": "bridge"}, "id": "c1"}]
    chat = [
        langchain.SystemMessage("You are a guide."),
        langchain.HumanMessage("I am in Lund. I like bridges."),
        langchain.AIMessage("", tool_calls=calls),
        langchain.ToolMessage("Ada Morn built it. It took nine years.", tool_call_id="c1"),
        langchain.HumanMessage([{"type": "text", "text": "Who built it?"}]),
    ]
    answer = langchain.AIMessage("Ada Morn built it [turn 4 (tool search)]. You are in Lund [turn 4 (tool search)].")
    v = c2fa.verify(Guide([]), messages=chat, answer=answer, budget=48)
    assert [(c.source, c.verdict) for c in v.citations] == [
        ("turn 4 (tool search)", "used"),
        ("turn 4 (tool search)", "not used"),
    ]
    assert [c.source for c in v.uncited] == ["turn 2 (user)"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"messages": [*CHAT, {"role": "assistant", "content": "So."}], "answer": "So."}, "leave answer= out"),
        ({"messages": CHAT}, "needs the answer"),
        ({"messages": CHAT, "query": "Who?", "answer": SAID}, "leave the query out"),
        ({"query": "Who?", "answer": SAID}, "no 'documents'"),
        ({"documents": ["It rains."], "answer": SAID}, "no 'query'"),
    ],
)
def test_a_chat_that_cannot_be_verified(arguments, message):
    lm = Guide([])
    with pytest.raises((TypeError, ValueError), match=message):
        c2fa.verify(lm, **arguments)
    assert not lm.rows


class Metered(Toy):
    """Counts what its rows cost."""

    cost = 0.0

    def score(self, prompts, answer):
        self.cost += 0.5 * len(prompts)
        return super().score(prompts, answer)


@pytest.mark.parametrize("budget", [8, 9, 13, 21, 48])
@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_the_budget_is_never_exceeded_and_all_of_it_is_counted(budget, noise):
    lm = Metered([("either", (0, 2)), ("used", (1, 1))], noise)
    answer = answer_of(lm.truths, [(0, 1, 3), (1, 2)])
    e = c2fa.verify(lm, documents(6), "?", answer, budget=budget).explanation
    assert lm.rows == e.queries == e.diagnostics.sent <= budget
    assert e.diagnostics.cost == lm.cost == 0.5 * lm.rows


@settings(max_examples=50, deadline=None)
@given(of=st.integers(1, 500), data=st.data())
def test_shares_have_wilsons_interval(of, data):
    count = data.draw(st.integers(0, of))
    low, high = Share(count, of).interval
    for end in (low, high):  # where the share is just 1.96 standard errors of the end away from it
        if 0.0 < end < 1.0:
            assert abs(count / of - end) == pytest.approx(1.96 * np.sqrt(end * (1 - end) / of), abs=2e-3)


def test_a_ledger_repeats_no_row(tmp_path):
    truths = [("either", (0, 1))]
    first, second = Toy(truths), Toy(truths)
    options = {"budget": 40, "ledger": tmp_path / "rows.sqlite"}
    once = c2fa.verify(first, documents(4), "?", answer_of(truths, [(0, 2)]), **options)
    again = c2fa.verify(second, documents(4), "?", answer_of(truths, [(0, 2)]), **options)
    assert first.rows
    assert not second.rows
    assert verdicts(once) == verdicts(again)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"answer": None}, "needs the answer"),
        ({"answer": 3}, "must be a text, or a list of blocks"),
        ({"answer": "[1]"}, "the answer is empty"),
        ({"budget": (20, 20)}, "give budget= one number"),
        ({"levels": ("sentences",)}, "documents as the first of levels"),
        ({"budget": 3}, "too small"),
        ({"budget": 5}, "too small"),
        ({"citations": "d1"}, "must be a list of pairs"),
        ({"citations": [("Omega", "d1")]}, "does not hold 'Omega'"),
        ({"citations": [((3, 99), "d1")]}, "not inside the answer"),
        ({"citations": [(3, "d1")]}, "a citation's place"),
        ({"citations": ["d1"]}, "a pair of a place"),
        ({"citations": [{"start": 0, "end": 5}]}, "names no source"),
        ({"citations": [("Alpha", None)]}, "names no source: .* name a document"),
        ({"citations": [{"start": -4, "end": -1, "source": "d1"}]}, "whole numbers, from 0 on; got -4 to -1"),
        ({"citations": [{"start": "one", "end": 5, "source": "d1"}]}, "whole numbers, from 0 on; got 'one' to 5"),
        ({"query": None}, "has no 'query'; it has 'documents', 'answer'$"),
        ({"query": 3}, "the query must be a text, not int"),
        ({"messages": "Who?", "query": None}, "a chat must be a list of messages; got 'Who\\?'"),
        ({"lm": Toy}, "must be an object with generate, pieces and score.*got <class"),
        ({"lm": "gpt-4"}, "must be an object with generate, pieces and score.*got 'gpt-4'"),
        ({"bugdet": 3}, "did you mean 'budget'"),
        ({"documents": []}, "no documents"),
        ({"prompt": "{context} {question}"}, "no {query}"),
        ({"prompt": "{query}"}, "no {context}"),
        ({"prompt": 3}, "must be a text with"),
        ({"prompt": [{"role": "user", "content": "{context} {query}"}]}, "a chat is for messages="),
        ({"document": "no place"}, "with {text} in it once"),
        ({"document": "{title} {text}"}, "asks for {title}"),
    ],
)
def test_what_is_refused_is_said_before_anything_is_asked(change, message):
    lm = Toy([("used", (1, 1))])
    arguments = {"lm": lm, "documents": documents(3), "query": "?", "answer": "Alpha is number 0 [1].", **change}
    with pytest.raises((ValueError, TypeError), match=message):
        c2fa.verify(**arguments)
    assert not lm.rows


@settings(max_examples=30, deadline=None)
@given(start=st.integers(0, 36), length=st.integers(1, 8), method=st.sampled_from(["owen", "c2fa"]))
def test_every_place_is_of_a_statement(start, length, method):
    truths, answer = [("used", (0, 0)), ("used", (1, 1))], "Alpha is number 0. Beta is number 1."
    place = (start, min(start + length, len(answer)))
    if place[0] < place[1]:
        v = c2fa.verify(Toy(truths), documents(2), "?", answer, [(place, "d1")], budget=24, method=method)
        assert len(v.citations) in (1, 2)
        assert {c.verdict for c in v.citations} <= {"used", "not used"}
        assert all(c.verdict == ("used" if c.statement.startswith("Beta") else "not used") for c in v.citations)

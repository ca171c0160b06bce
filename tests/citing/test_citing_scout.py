"""A small language model scouts for a large one: it scores what the large one wrote."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import c2fa
from c2fa.asking.model import charge
from c2fa.citing import PROMPT
from c2fa.citing.prompts import _changed

WORDS = ["amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heron", "ivory", "jolly", "karst", "larch"]
DOCUMENTS = {f"d{i}": " ".join(f"The {word} {i} is here." for word in WORDS[3 * i : 3 * i + 3]) for i in range(4)}
WORTH = dict(zip(WORDS, np.random.default_rng(0).gamma(0.5, size=len(WORDS)), strict=True))


class Reader:
    """A language model that finds an answer likelier by the words it reads, each worth something to it."""

    def __init__(self, name: str, scale: float, answer: str, cost: float = 0.0) -> None:
        self.name, self.scale, self.answer, self.price = name, scale, answer, cost
        self.cost, self.scored, self.written = 0.0, list[str](), 0

    def generate(self, prompt: str) -> str:
        self.written += 1
        return self.answer

    def pieces(self, answer: str) -> list[str]:
        return [answer[:5], answer[5:]]

    def score(self, prompts: Sequence[str], answer: str) -> Any:
        self.cost += self.price * len(prompts)
        self.scored += [answer] * len(prompts)
        found = [sum(worth for word, worth in WORTH.items() if word in prompt) for prompt in prompts]
        return [[self.scale * one - 20.0, -1.0] for one in found]


def test_the_small_model_scores_what_the_large_one_wrote() -> None:
    large = Reader("large", 1.0, "It is the large one's answer.", 1.0)
    small = Reader("small", 0.3, "Mine would be another.", 0.01)
    e = c2fa.cite(large, DOCUMENTS, "What is here?", budget=10, prior=c2fa.scout(small, rows=40))
    assert (large.written, small.written) == (1, 0)
    assert set(small.scored) == {large.answer}
    assert (e.queries, len(small.scored)) == (10, e.prior.scouted)
    assert e.prior.scouted <= 40
    assert (e.diagnostics.cost, e.prior.scout_cost) == (pytest.approx(10.0), pytest.approx(0.01 * e.prior.scouted))
    alone = c2fa.cite(Reader("large", 1.0, large.answer), DOCUMENTS, "What is here?", budget=10)
    truth = np.array([WORTH[word] for word in WORDS])
    assert e.prior.share > 0.5
    assert np.abs(e.low - truth).max() < 0.5 * np.abs(alone.low - truth).max()


def test_many_questions_have_scouts_of_their_own() -> None:
    large, small = Reader("large", 1.0, "An answer of mine."), Reader("small", 2.0, "No.")
    citer = c2fa.Citer(large, budget=10, prior=c2fa.scout(small, rows=30))
    questions = [{"documents": DOCUMENTS, "query": q} for q in ("What?", "Which one?")]
    for question, e in zip(questions, citer.many(questions), strict=True):
        np.testing.assert_allclose(e.low, citer(question).low)
        assert e.prior.scouted > 0


def test_a_small_model_that_cannot_score_is_refused_before_anything_is_asked() -> None:
    class Writer:
        def generate(self, prompt: str) -> str:
            return "yes"

    large = Reader("large", 1.0, "An answer.")
    with pytest.raises(TypeError, match="Writer cannot score a given answer: it has no pieces and score"):
        c2fa.cite(large, DOCUMENTS, "What?", prior=c2fa.scout(Writer()))
    assert not large.written
    assert not large.scored


class Attentive(Reader):
    """It looks at what it finds worth something."""

    def attention(self, prompt: str, answer: str) -> Any:
        spans = [(found.start(), found.end()) for found in re.finditer(r"\S+", prompt)]
        looked = [[WORTH.get(prompt[a:b], 0.0), 0.0] for a, b in spans]
        return np.array(spans), np.array(looked)


@pytest.mark.parametrize("prompt", [PROMPT, "{query} {context}", lambda c, q: f"{q}\n{c}\nIn short."])
def test_attention_of_the_model_itself_is_one_row_of_the_budget(prompt: Any) -> None:
    large = Attentive("large", 1.0, "It is the large one's answer.")
    e = c2fa.cite(large, DOCUMENTS, "What is here?", budget=10, prior=c2fa.scout("attention"), prompt=prompt)
    assert (e.queries, len(large.scored), e.prior.scouted) == (9, 9, 1)
    alone = c2fa.cite(Reader("large", 1.0, large.answer), DOCUMENTS, "What is here?", budget=10, prompt=prompt)
    truth = np.array([WORTH[word] for word in WORDS])
    assert np.abs(e.low - truth).max() < 0.5 * np.abs(alone.low - truth).max()
    assert "come from the prior (the model's own attention)" in str(e)


def test_many_questions_are_looked_at_by_workers_too(tmp_path: Any) -> None:
    questions = [{"documents": DOCUMENTS, "query": q, "answer": "An answer."} for q in ("What?", "Which one?", "Why?")]
    citer = c2fa.Citer(Attentive("large", 1.0, "An answer."), budget=10, prior=c2fa.scout("attention"))
    alone = [citer(question) for question in questions]
    here, there = citer.many(questions), citer.many(questions, tmp_path / "store", models="here", precision="float64")
    for found in (here, there):
        for one, other in zip(found, alone, strict=True):
            np.testing.assert_allclose(one.low, other.low)
            assert one.prior.scouted == 1


def test_attention_is_asked_of_models_that_tell_of_it() -> None:
    with pytest.raises(TypeError, match=r"Reader does not tell of its attention, as c2fa\.models\.CausalLM does"):
        c2fa.cite(Reader("large", 1.0, "An answer."), DOCUMENTS, "What?", prior=c2fa.scout("attention"))
    with pytest.raises(TypeError, match=r"c2fa\.scout\('attention'\) is for c2fa\.cite"):
        c2fa.Explainer(len, c2fa.maskers.Text(), prior=c2fa.scout("attention"))


@pytest.mark.parametrize("charges", [False, True])
def test_what_attention_costs_is_part_of_the_bill(charges: bool) -> None:
    class Dear(Attentive):
        def attention(self, prompt: str, answer: str) -> Any:
            if charges:
                charge(0.05)
            self.cost += 0.05
            return super().attention(prompt, answer)

        def score(self, prompts: Sequence[str], answer: str) -> Any:
            if charges:
                charge(0.01 * len(prompts))
            return super().score(prompts, answer)

    large = Dear("large", 1.0, "It is the large one's answer.", 0.01)
    e = c2fa.cite(large, DOCUMENTS, "What is here?", budget="$0.20", prior=c2fa.scout("attention"))
    assert e.diagnostics.cost == pytest.approx(large.cost)
    assert 0.15 < large.cost <= 0.20 + 1e-9


def test_attention_that_fails_says_so() -> None:
    class Fused(Attentive):
        def attention(self, prompt: str, answer: str) -> Any:
            raise RuntimeError("no weights are kept")

    large = Fused("large", 1.0, "It is the large one's answer.")
    with pytest.raises(RuntimeError, match="the scout, attention: no weights are kept"):
        c2fa.cite(large, DOCUMENTS, "What is here?", budget=10, prior=c2fa.scout("attention"))


def test_answers_are_explained_for_money_and_verified_for_rows() -> None:
    large = Reader("large", 1.0, "An answer.", 0.01)
    e = c2fa.cite(large, DOCUMENTS, "What?", budget="$0.12")
    assert (e.queries, len(large.scored)) == (12, 12)
    assert e.diagnostics.cost == pytest.approx(0.12)
    with pytest.raises(ValueError, match=r"verify splits its rows by itself: give budget= one number, not \$1"):
        c2fa.Citer(large, budget="$1").verify({"documents": DOCUMENTS, "query": "What?"}, "An answer [d1].")
    assert len(large.scored) == 12


@pytest.mark.parametrize("wrong", ["wide", "short", "fewer rows", "fails"])
def test_scores_of_several_questions_are_checked_as_those_of_one(wrong: str) -> None:
    alone = Reader("large", 1.0, "")

    class Together:
        name, pieces, score = "together", alone.pieces, alone.score

        def score_many(self, asked: Any) -> Any:
            found = [np.array(alone.score(prompts, answer)) for prompts, answer in asked]
            if wrong == "wide":
                return [np.column_stack([scores, scores]) for scores in found]
            if wrong == "short":
                return found[:-1]
            if wrong == "fewer rows":
                return [scores[:-1] for scores in found]
            raise RuntimeError("not now")

    questions = [{"documents": DOCUMENTS, "query": q, "answer": "An answer."} for q in ("What?", "Which one?", "Why?")]
    found = c2fa.Citer(Together(), budget=12).many(questions)
    for one, other in zip(found, c2fa.Citer(alone, budget=12).many(questions), strict=True):
        np.testing.assert_allclose(one.low, other.low)


@given(st.text("ab ", max_size=12), st.text("ab ", max_size=5), st.text("ab ", max_size=12), st.text("ab ", max_size=3))
def test_what_changed_is_all_that_differs(before: str, gone: str, behind: str, instead: str) -> None:
    text, other = before + gone + behind, before + instead + behind
    first, end = _changed(text, other)
    assert 0 <= first <= end <= len(text)
    assert other.startswith(text[:first])
    assert other.endswith(text[end:])
    assert first + len(text) - end <= len(other)
    assert first == len(other) or first == len(text) or text[first] != other[first]  # and it is no longer than need be
    assert first in (end, end - len(text) + len(other)) or text[end - 1] != other[len(other) - len(text) + end - 1]


class Writer(Reader):
    """A reader that is paid for writing too; one that ``charges`` tells what each call cost in place of all."""

    def __init__(self, charges: bool) -> None:
        super().__init__("large", 1.0, "An answer.", 0.0 if charges else 0.01)
        self.charges = charges

    def generate(self, prompt: str) -> str:
        if self.charges:
            charge(0.05)
        else:
            self.cost += 0.05
        return super().generate(prompt)

    def score(self, prompts: Sequence[str], answer: str) -> Any:
        if self.charges:
            charge(0.01 * len(prompts))
        return super().score(prompts, answer)


@pytest.mark.parametrize("charges", [False, True])
def test_an_answer_that_is_written_first_makes_no_row_dearer(charges: bool, tmp_path: Any) -> None:
    large = Writer(charges)
    e = c2fa.cite(large, DOCUMENTS, "What?", budget="$0.25")
    in_rows = c2fa.cite(Writer(charges), DOCUMENTS, "What?", budget=20)
    assert e.provenance["budget"] == in_rows.provenance["budget"]
    assert (e.queries, large.written, len(large.scored)) == (in_rows.queries, 1, in_rows.queries)
    assert e.diagnostics.cost == pytest.approx(0.05 + 0.01 * e.queries)
    given = c2fa.cite(Writer(charges), DOCUMENTS, "What?", large.answer, budget="$0.20")
    assert given.provenance["budget"] == e.provenance["budget"]
    sentence = r"\$0.08 pays for 3 masks at 0.01 each, with 0.05 paid beside them, and this input takes 4 at least"
    with pytest.raises(ValueError, match=sentence):
        c2fa.cite(Writer(charges), DOCUMENTS, "What?", budget="$0.08", ledger=tmp_path / "answers")
    again = Writer(charges)
    with pytest.raises(ValueError, match=sentence):  # the answer from the ledger counts as it was paid, and so apart
        c2fa.cite(again, DOCUMENTS, "What?", budget="$0.08", ledger=tmp_path / "answers")
    assert (again.written, again.scored) == (0, [])
    e = c2fa.cite(again, DOCUMENTS, "What?", budget="$0.25", ledger=tmp_path / "answers")
    assert e.provenance["budget"] == in_rows.provenance["budget"]
    assert (again.written, len(again.scored)) == (0, in_rows.queries - 2)


@pytest.mark.parametrize("charges", [False, True])
def test_equal_questions_count_one_answer_each(charges: bool) -> None:
    large = Writer(charges)
    question = {"documents": DOCUMENTS, "query": "What?"}
    found = c2fa.Citer(large, budget="$0.25").many([question, question, {**question, "query": "Who?"}], in_flight=3)
    assert [sum(e.provenance["budget"]) for e in found] == [18, 18, 18]  # beside the two ends
    assert (large.written, len(large.scored)) == (2, found[0].queries + found[2].queries)
    assert found[0].queries == found[1].queries


def test_a_model_in_a_process_of_its_own_tells_the_price_of_writing(tmp_path: Any) -> None:
    pytest.importorskip("pyarrow")
    citer = c2fa.Citer(Writer(False), budget="$0.25")
    store = citer.many([{"documents": DOCUMENTS, "query": "What?"}], tmp_path, workers=1, models=1)
    assert [sum(e.provenance["budget"]) for e in store] == [18]


@pytest.mark.parametrize("workers", [1, 2])
def test_answers_of_one_and_of_several_statements_have_one_scout(workers: int) -> None:
    answers = ["It is.", "It is. So it goes.", "No. It is. So it goes.", "Yes."]
    questions = [{"documents": DOCUMENTS, "query": "What?", "answer": answer} for answer in answers]
    small = Reader("small", 0.3, "")
    citer = c2fa.Citer(Reader("large", 1.0, ""), budget=20, prior=c2fa.scout(small, rows=30), progress=False)
    for question, e in zip(questions, citer.many(questions, workers=workers), strict=True):
        np.testing.assert_allclose(e.all_values[-1], citer(question).all_values[-1])


@pytest.mark.parametrize("few", [0, 1, 2])
def test_too_few_answers_written_at_once_are_nobodys(few: int) -> None:
    class Hasty:
        name, pieces = "hasty", Reader.pieces

        def generate(self, prompt: str) -> str:
            return f"An answer to {prompt.rpartition(' ')[2]}."

        def score(self, prompts: Sequence[str], answer: str) -> Any:
            return [[-1.0, -2.0] for _ in prompts]

        def score_many(self, asked: Any) -> Any:
            return [self.score(prompts, answer) for prompts, answer in asked]

        def generate_many(self, prompts: Sequence[str]) -> list[str]:
            return ["Whose answer is this?"] * few

    questions = [{"documents": DOCUMENTS, "query": q} for q in ("What?", "Why?", "Who?")]
    found = c2fa.Citer(Hasty(), budget=12).many(questions)
    assert [e.answer.text for e in found] == [f"An answer to {q['query']}." for q in questions]


@pytest.mark.parametrize(("questions", "budget"), [(1, 42), (3, 12)])
def test_a_model_that_works_ahead_has_its_next_call_while_one_is_waited_for(questions: int, budget: int) -> None:
    alone = Reader("large", 1.0, "")
    events: list[tuple[str, int]] = []

    class Ahead:
        name, batch_size, pieces, score = "ahead", 16, alone.pieces, alone.score

        def score_many(self, asked: Any) -> Any:
            return self.launch_scores(asked)()

        def launch_scores(self, asked: Any) -> Any:
            number = len(events)
            events.append(("begun", number))

            def wait() -> Any:
                events.append(("waited for", number))
                return [np.array(alone.score(prompts, answer)) for prompts, answer in asked]

            return wait

    asked = [{"documents": DOCUMENTS, "query": f"What {k}?", "answer": "An answer."} for k in range(questions)]
    found = c2fa.Citer(Ahead(), budget=budget, progress=False).many(asked)
    first, *_ = [k for k, (what, _) in enumerate(events) if what == "waited for"][1:]  # behind the inputs themselves
    assert [what for what, _ in events[first - 2 : first]] == ["begun", "begun"], events
    for question, e in zip(asked, found, strict=True):
        np.testing.assert_allclose(e.low, c2fa.Citer(alone, budget=budget)(question).low)


def test_a_bad_question_leaves_the_others_together() -> None:
    alone = Reader("large", 1.0, "")
    calls: list[int] = []

    class Together:
        name, score = "together", alone.score

        def pieces(self, answer: str) -> list[str]:
            if answer == "Ill.":
                raise RuntimeError("it cannot be read")
            return alone.pieces(answer)

        def score_many(self, asked: Any) -> Any:
            calls.append(len(asked))
            return [np.array(alone.score(prompts, answer)) for prompts, answer in asked]

    answers = ["An answer.", "Ill.", "Another answer.", "A third."]
    questions = [{"documents": DOCUMENTS, "query": "What?", "answer": answer} for answer in answers]
    with pytest.warns(UserWarning, match="1 of 4 inputs could not be explained"):
        found = c2fa.Citer(Together(), budget=12, progress=False).many(questions)
    assert [failure.index for failure in found.errors()] == [1]
    assert calls == [3, 3], "what each input is as it stands, and then the other rows"
    for k, e in found.items():
        np.testing.assert_allclose(e.low, c2fa.Citer(alone, budget=12)(questions[k]).low)


def test_the_name_of_a_scout_is_asked_once() -> None:
    """It may be a hash of all its weights."""

    class Heavy(Reader):
        asked = 0

        @property
        def name(self) -> str:
            self.asked += 1
            return "heavy"

        @name.setter
        def name(self, name: str) -> None:
            pass

    heavy = Heavy("", 0.3, "")
    citer = c2fa.Citer(Reader("large", 1.0, ""), budget=12, prior=c2fa.scout(heavy, rows=20), progress=False)
    questions = [{"documents": DOCUMENTS, "query": f"What {k}?", "answer": "An answer."} for k in range(3)]
    assert {e.provenance["prior"].partition(", ")[2] for e in map(citer, questions)} == {"20 rows of heavy"}
    assert heavy.asked == 1


@pytest.mark.parametrize(("begins", "lost"), [(False, 0), (True, 16)])
def test_ctrl_c_in_a_call_of_several_questions_asks_nothing_more(begins: bool, lost: int, tmp_path: Any) -> None:
    class Stopped:
        """Ctrl-C comes in its third call."""

        name, batch_size, pieces, calls = "stopped", 16, Reader.pieces, 0

        def __init__(self) -> None:
            self.alone = Reader("large", 1.0, "")
            self.score = self.alone.score

        def score_many(self, asked: Any) -> Any:
            self.calls += 1
            if self.calls == 3:
                raise KeyboardInterrupt
            return [np.array(self.score(prompts, answer)) for prompts, answer in asked]

        def __getattr__(self, name: str) -> Any:
            if name == "launch_scores" and begins:  # it answers at once, as on a CPU
                return lambda asked: (lambda found: lambda: found)(self.score_many(asked))
            raise AttributeError(name)

    lm = Stopped()
    citer = c2fa.Citer(lm, budget=12, progress=False, ledger=tmp_path / "answers")
    questions = [{"documents": DOCUMENTS, "query": f"What {k}?", "answer": "An answer."} for k in range(6)]
    with pytest.raises(KeyboardInterrupt) if begins else pytest.warns(UserWarning, match="stopped by Ctrl-C"):
        citer.many(questions)
    assert (lm.calls, len(lm.alone.scored)) == (3, 12 + 16)
    found = citer.many(questions)
    assert len(lm.alone.scored) == sum(e.queries for e in found) + lost, "a call that was begun and not waited for"

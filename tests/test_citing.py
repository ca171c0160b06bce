"""Citing: an answer's log-probability on documents and sentences, with a model that can be computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

import c2fa
import c2fa.statements

DOCUMENTS = {
    "rivers": "The Rhine flows through Basel. It is long. Swans like it.",
    "hills": "The Gurten is a hill near Bern. From there one sees the Alps.",
    "cities": "Basel has a port.\n\nBern is the capital. Bern has bears.",
}
ANSWER = "The Rhine flows through Basel. Bern is the capital."


class Additive:
    """Its log-probabilities are sums over what the prompt holds: a literal reading, so that truth is known."""

    name = "additive"
    worth = (("The Rhine flows", 0, 3.0), ("It is long", 0, 0.5), ("Bern is the capital", 1, 4.0), ("bears", 1, -1.0))

    def __init__(self):
        self.prompts, self.generated = [], 0

    def generate(self, prompt):
        self.generated += 1
        return ANSWER

    def pieces(self, answer):
        return answer.replace(" ", "| ").split("|")

    def score(self, prompts, answer):
        self.prompts += prompts
        pieces = self.pieces(answer)
        first = pieces.index(" Bern")  # where the second statement begins
        rows = np.full((len(prompts), len(pieces)), -2.0)
        for i, prompt in enumerate(prompts):
            for text, statement, value in self.worth:
                rows[i, first if statement else 0] += value * (text in prompt)
        return rows


def test_every_statement_rests_on_its_sentences():
    c = c2fa.cite(Additive(), DOCUMENTS, "What flows where, and what is the capital?", budget=64)
    assert c.output_names == ("answer", "The Rhine flows through Basel.", "Bern is the capital.")
    assert c.structure.names[0] == ("rivers", "hills", "cities")
    sentences = dict(zip(c.structure.names[1], c.low, strict=True))
    for text, _, value in Additive.worth:
        [found] = [v for sentence, v in sentences.items() if text in sentence]
        assert found == pytest.approx(value, abs=1e-6)
    np.testing.assert_allclose(c.high, [3.5, 0.0, 3.0], atol=1e-6)
    np.testing.assert_allclose(c.all_values[1][:, 1] + c.all_values[1][:, 2], c.low, atol=1e-9)
    pieces = len(Additive().pieces(ANSWER))
    assert c.view["without_documents"][0] == pytest.approx(-2.0 * pieces)
    assert c.view["answer"] == ANSWER


def test_the_budget_holds_every_row_and_the_generation_comes_beside_it():
    lm = Additive()
    c = c2fa.cite(lm, DOCUMENTS, "?", budget=30)
    assert len(lm.prompts) == c.queries <= 30
    assert lm.generated == 1
    assert c.view["written_by_the_model"]
    lm = Additive()
    c2fa.cite(lm, DOCUMENTS, "?", ANSWER, budget=30)
    assert lm.generated == 0


def test_what_is_kept_stays_readable_and_the_prompt_is_never_masked():
    lm = Additive()
    c2fa.cite(
        lm, DOCUMENTS, "Which capital?", ANSWER, budget=40, prompt="Read.\n{context}\n---\n{query}", system="Be brief."
    )
    assert all(
        prompt.startswith("Be brief.\n\nRead.\n") and prompt.endswith("\n---\nWhich capital?") for prompt in lm.prompts
    )
    whole = "\n\n".join(DOCUMENTS.values())
    assert sum(whole in prompt for prompt in lm.prompts) == 1
    assert sum("Read.\n\n---" in prompt for prompt in lm.prompts) == 1
    assert not any("\n\n\n" in prompt for prompt in lm.prompts)


@pytest.mark.parametrize("levels", [("documents",), ("documents", "words"), ("documents", "paragraphs", "sentences")])
def test_levels_add_up(levels):
    c = c2fa.cite(Additive(), DOCUMENTS, "?", ANSWER, levels=levels, budget=80)
    assert c.structure.depth == len(levels)
    for level in range(c.structure.depth - 1):
        sums = np.bincount(c.structure.owners(level), c.low, minlength=c.structure.widths[level])
        np.testing.assert_allclose(sums, c.values[level], atol=1e-9)


@pytest.mark.parametrize(
    "documents",
    [list(DOCUMENTS.values()), [{"id": k, "text": t} for k, t in DOCUMENTS.items()], "\n\n".join(DOCUMENTS.values())],
)
def test_documents_come_in_several_forms(documents):
    c = c2fa.cite(Additive(), documents, "?", ANSWER, budget=40)
    assert c.low.sum() == pytest.approx(6.5, abs=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"documents": {}}, "no documents"),
        ({"documents": {"a": "One.", "b": " "}}, "'b' is empty"),
        ({"documents": {"a": 3}}, "'a' must be a text"),
        ({"documents": [{"id": "a", "text": "x"}, {"id": "a", "text": "y"}]}, "one id"),
        ({"answer": " "}, "the answer is empty"),
        ({"prompt": "{query}"}, "no {context}"),
    ],
)
def test_what_is_refused_is_said_before_anything_is_asked(change, message):
    lm = Additive()
    given = {"documents": DOCUMENTS, "query": "?", "answer": ANSWER, **change}
    with pytest.raises((ValueError, TypeError), match=message):
        c2fa.cite(lm, **given)
    assert not lm.prompts


def test_a_ledger_repeats_no_row(tmp_path):
    first, second = Additive(), Additive()
    ledger = tmp_path / "answers.sqlite"
    c = c2fa.cite(first, DOCUMENTS, "?", ANSWER, budget=40, ledger=ledger)
    again = c2fa.cite(second, DOCUMENTS, "?", ANSWER, budget=40, ledger=ledger)
    assert not second.prompts
    np.testing.assert_array_equal(c.low, again.low)
    c2fa.cite(second, DOCUMENTS, "Another question?", ANSWER, budget=40, ledger=ledger)
    assert second.prompts


def test_each_statement_is_printed_with_its_sources():
    text = c2fa.cite(Additive(), DOCUMENTS, "?", ANSWER, budget=64).to_text()
    first, second = text.index("[1] The Rhine flows"), text.index("[2] Bern is the capital")
    assert first < text.index("rivers: The Rhine flows through Basel.") < second
    assert second < text.index("cities: Bern is the capital.")
    assert "rests on nothing" not in text


def test_a_statement_that_rests_on_nothing_is_said_to():
    class FromMemory(Additive):
        worth = (("The Rhine flows", 0, 3.0),)

    c = c2fa.cite(FromMemory(), DOCUMENTS, "?", ANSWER, budget=64)
    one, two = c2fa.statements.statements(c)
    assert one.rests_on_documents
    assert not two.rests_on_documents
    assert [source.document for source in one.sources] == ["rivers"]
    said = c.to_text()
    assert said.index("[2]") < said.index("rests on nothing in these documents")


def test_log_odds_of_the_answer_and_of_each_statement():
    c = c2fa.cite(Additive(), DOCUMENTS, "?", ANSWER, budget=64, link="logit")
    plain = c2fa.cite(Additive(), DOCUMENTS, "?", ANSWER, budget=64)
    assert c.link.unit == "log-odds"
    np.testing.assert_array_equal(c.outputs, plain.outputs)
    for column, log_p in enumerate(c.outputs):
        assert c.for_target(column).linked == pytest.approx(log_p - np.log1p(-np.exp(log_p)))
    # An answer of e^-12 has nearly the same log-odds as its logarithm; its likelier second statement has others.
    np.testing.assert_allclose(c.low, plain.low, atol=1e-2)


def test_context_cite_by_name_is_its_authors_recipe():
    options = {"budget": 64, "method": "context-cite"}
    c = c2fa.cite(Additive(), DOCUMENTS, "?", ANSWER, **options)
    pieces = Additive().pieces(ANSWER)
    first = pieces.index(" Bern")
    tokens = (len(pieces), first, len(pieces) - first)
    assert c.link.name == "logit-of-log"
    same = c2fa.cite(Additive(), DOCUMENTS, "?", ANSWER, link="logit", tokens=tokens, **options)
    np.testing.assert_array_equal(c.low, same.low)
    weaker = c2fa.cite(Additive(), DOCUMENTS, "?", ANSWER, tokens=1, **options)
    assert np.abs(weaker.low).sum() > np.abs(c.low).sum()
    sentences = dict(zip(c.structure.names[1], c.low, strict=True))
    assert max(sentences, key=sentences.__getitem__) == "Bern is the capital."


@pytest.mark.parametrize("method", ["leave-one-out", "hierarchical-leave-one-out"])
def test_peers_that_remove_one_by_one(method):
    c = c2fa.cite(Additive(), DOCUMENTS, "?", ANSWER, budget=32, method=method)
    sentences = dict(zip(c.structure.names[1], c.low, strict=True))
    for text, _, value in Additive.worth:
        [found] = [v for sentence, v in sentences.items() if text in sentence]
        assert found == pytest.approx(value, abs=1e-9)

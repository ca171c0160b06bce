"""The page that answers back: what the kernel does for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("anywidget", reason="anywidget is not installed: pip install 'c2fa[live]'")

import c2fa
import showcases


@pytest.fixture
def live() -> Any:
    return showcases.live_vector()


def test_switching_off_asks_one_row_and_compares(live: Any) -> None:
    model = live._explainer.model
    before = model.rows
    live.off = [0]
    assert live.answer["says"] == pytest.approx(20.0)
    assert live.answer["predicted"] == pytest.approx(live.explanation.base + live.explanation.low[1:].sum())
    assert model.rows - before <= 1
    assert live.answer["rows"] == model.rows
    assert live.answer["cost"] == pytest.approx(model.cost)
    asked = model.rows
    live.off = []
    live.off = [0]
    assert model.rows - asked <= 1  # what was asked once is known; the whole input was asked by the explanation


def test_more_rows_are_added_to_those_that_were_asked(live: Any) -> None:
    model = live._explainer.model
    live.more(60)
    assert live.explanation.queries <= 72
    assert model.rows <= 72
    assert live.answer["rows"] == model.rows
    np.testing.assert_allclose(live.explanation.low, [3.0, 2, 3, 4, 5, 8], atol=1e-6)


def test_rows_stay_within_the_budget_that_is_shown(live: Any) -> None:
    model = live._explainer.model
    for act in (
        lambda: None,
        lambda: setattr(live, "off", [1, 4]),
        lambda: live.more(5),
    ):
        act()
        assert live.answer["rows"] == model.rows <= live.answer["budget"]
        assert live.answer["cost"] == pytest.approx(model.cost)


def test_rows_are_added_to_those_that_money_bought() -> None:
    class Shop:
        cost, rows = 0.0, 0

        def __call__(self, batch: Any) -> Any:
            self.cost, self.rows = self.cost + 0.01 * len(batch), self.rows + len(batch)
            return batch @ np.arange(40.0)

    model, masker = Shop(), c2fa.maskers.Array(c2fa.Structure.flat(40))
    live = c2fa.Explainer(model, masker, budget="$0.50").live(np.ones(40))
    assert model.rows == live.answer["budget"] == 50
    live.more(30)
    assert model.rows == live.answer["budget"] == live.explanation.queries == 80


@pytest.fixture
def cited() -> Any:
    return showcases.live_answer()


def test_a_chosen_span_of_an_answer_is_explained_from_the_rows_that_were_asked(cited: Any) -> None:
    before = cited.answer["rows"]
    for k, statement in enumerate(cited.explanation.answer.statements, start=1):
        cited.span(statement)  # a span that is a statement has the statement's values
        e = cited.explanation.for_target(k)
        values = dict(zip(e.names[1], e.values[1], strict=True))
        errors = dict(zip(e.names[1], e.stderr[1], strict=True))
        for name, value in cited.answer["span"]["values"]:
            shown = float(value.split()[0].replace("−", "-"))
            assert abs(shown - values[name]) <= 3 * errors[name] + 0.001
    assert cited.answer["rows"] == before
    assert cited.explanation.provenance["model"] == "Reader"


def test_a_span_is_the_sum_of_the_pieces_that_touch_it() -> None:
    class Letters:
        """Each word is a piece of its own, and likelier with the document that has it."""

        def generate(self, prompt: str) -> str:
            return "red green blue"

        def pieces(self, answer: str) -> list[str]:
            return ["red", " green", " blue"]

        def score(self, prompts: Any, answer: str) -> Any:
            return [[-1.0 - 4.0 * (word not in prompt) for word in ("red", "green", "blue")] for prompt in prompts]

    documents = {"a": "It is red.", "b": "It is green.", "c": "It is blue."}
    live = c2fa.Citer(Letters(), levels=("documents",)).live({"documents": documents, "query": "Which?"})
    for words, worth in (("green", [0, 4, 0]), ("red gr", [4, 4, 0]), ("blue", [0, 0, 4])):
        live.span(words)
        found = {name: float(value.split()[0].replace("−", "-")) for name, value in live.answer["span"]["values"]}
        assert [found[name] for name in "abc"] == pytest.approx(worth, abs=0.3)


def test_words_that_are_not_in_the_answer_are_told(cited: Any, live: Any) -> None:
    cited._do({"words": "elephants"})
    assert "'elephants' does not stand in the answer" in cited.answer["error"]
    live._do({"words": "elephants"})
    assert "c2fa.cite" in live.answer["error"]


def test_an_error_of_the_model_is_told_on_the_page(live: Any) -> None:
    live._explainer.model = lambda batch: 1 / 0
    live.off = [3]
    assert live.answer["error"].startswith("QueryError: ZeroDivisionError: division by zero")


def test_a_saved_notebook_keeps_the_page(live: Any) -> None:
    data, _ = live._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in data
    assert "bootIsland" in data["text/html"]

"""The benchmark of priors: answers that are kept, reviews that are masked, verdicts where the right one is known."""

from __future__ import annotations

import doctest
from collections.abc import Mapping
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import c2fa

pytest.importorskip("pandas")
pytest.importorskip("experiments", reason="the experiments are in a clone, not in a source distribution")
from benchmarks.queries import prior_answers, prior_tables, prior_words
from benchmarks.queries.prior_answers import Answers, Known, MissingModel
from benchmarks.queries.prior_reviews import Review, masker, words_alone
from benchmarks.queries.prior_words import PLAIN, Run, Setting, Sizes, exchanged, judged, negated, shuffled

FEW = Sizes((40,), 40, (10, 80), (21, 60), (60,), (21, 60), ((21, 60),), 60, (64, 300), 10, 4, 2)


def drawn(count: int, seed: int) -> list[Review]:
    """Reviews of words whose effects are known, each of one word piece."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        numbers = rng.integers(30, size=24)
        words = tuple(f"w{k}" for k in numbers)
        owner = tuple(np.repeat([0, 1, 2], 8).tolist())
        sentences = tuple(" ".join(words[a : a + 8]) for a in (0, 8, 16))
        topic = tuple(float(k % 3) - 1.0 for k in numbers)
        made.append(Review(" ".join(words), sentences, words, owner, tuple(numbers), tuple(range(24)), topic))
    return made


REVIEWS = {"learn": drawn(40, 0), "validation": drawn(6, 1), "test": drawn(6, 2), "others": drawn(40, 3)}
EFFECTS = np.random.default_rng(4).normal(size=30)


def says(wanted: Mapping[Any, Any]) -> dict[Any, Any]:
    """A model that adds up what words are worth."""
    return {(name, k): masks @ EFFECTS[list(REVIEWS[name][k].ids)] for (name, k), masks in wanted.items()}


@pytest.mark.parametrize("module", [prior_answers, prior_words, prior_tables])
def test_examples_in_docstrings(module: Any) -> None:
    found = doctest.testmod(module)
    assert found.attempted
    assert not found.failed


def test_answers_are_found_again_and_only_these(tmp_path: Path) -> None:
    masks = np.random.default_rng(0).random((50, 24)) < 0.5
    first = Answers(tmp_path / "a.npz", says)
    first.ask({("test", 1): masks[:30], ("learn", 0): masks[:5]})
    first.ask({("test", 1): masks[20:40]})
    assert first.asked == 45
    again = Answers(tmp_path / "a.npz", None, "there is no model")
    expected = says({("test", 1): masks})["test", 1]
    found = again.of(("test", 1))(masks)
    assert np.allclose(found[:40], expected[:40], rtol=1e-6)
    assert np.isnan(found[40:]).all()
    assert np.isnan(Known()(masks)).all()
    again.ask({("test", 1): masks[:40]})
    with pytest.raises(MissingModel, match="10 rows are not among the answers"):
        again.ask({("test", 1): masks})
    with pytest.raises(MissingModel, match="give --device cuda"):
        Answers(tmp_path / "a.npz", says, most=9).ask({("test", 1): masks})


def test_a_word_s_pieces_go_with_it_and_others_stay() -> None:
    review = Review("a bc", ("a bc",), ("a", "bc"), (0, 0), (7, 8, 9, 10), (0, 1, 1, -1), (0.0, 0.0))
    kept = np.array([[True, False], [False, True]])
    assert review.pieces(kept).astype(int).tolist() == [[1, 0, 0, 1], [0, 1, 1, 1]]
    assert review.rendered(kept, "_") == ["a _", "_ bc"]


def test_reviews_are_masked_as_texts_are() -> None:
    text = "Not so good. I would not buy it again!"
    masked = c2fa.maskers.Text()(text)
    s = masked.structure
    review = Review(text, s.names[0], s.names[1], tuple(s.owners(0).tolist()), (), (), ())
    ours = masker(review)
    assert ours.structure.names == s.names
    assert masked.descriptors is not None
    assert ours.descriptors is not None
    assert ours.descriptors() == masked.descriptors()
    assert words_alone(review).structure.widths == (s.leaves,)


def explained() -> list[c2fa.Explanation]:
    model = prior_words.Recorded
    return [
        prior_words.explain(model(lambda masks, r=r: masks @ EFFECTS[list(r.ids)]), r, Setting(PLAIN, (10, 80)))
        for r in REVIEWS["learn"]
    ]


def test_what_misleads_misleads() -> None:
    told = explained()
    truth = c2fa.Prior.learn(told)

    def agreement(changed: list[c2fa.Explanation]) -> float:
        prior = c2fa.Prior.learn(changed)
        table = told[0].descriptors
        a, b = (p.expected(table, ("positive",)) for p in (truth, prior))
        assert a is not None
        return 0.0 if b is None else float(np.corrcoef(a.effects[:, 0], b.effects[:, 0])[0, 1])

    assert agreement(negated(told)) < -0.99
    assert abs(agreement(exchanged(told))) < 0.6
    moved = exchanged(told)
    for before, after in zip(told, moved, strict=True):
        assert before.all_values[-1].shape == after.all_values[-1].shape
    for before, after in zip(told, shuffled(told), strict=True):
        assert np.allclose(np.sort(before.low), np.sort(after.low))
    assert c2fa.Prior.learn(exchanged(told)).worth["positive"] > 0.9  # it looks as good as the true one


@pytest.mark.slow
def test_a_run_whose_outcome_is_known(tmp_path: Path) -> None:
    answers = Answers(tmp_path / "a.npz", says)
    run = Run(FEW, REVIEWS, answers, answers, map, tmp_path, "test")
    found = {table.title.split(":")[0].split(",")[0] + str(k): table for k, table in enumerate(judged(run))}
    curve = next(t for t in found.values() if "correlation with fresh answers: mean" in t.title)
    rows = {row["method"]: row for row in curve.rows}
    assert rows["with a prior of 40"]["21"].mean > rows["c2fa"]["21"].mean + 0.05  # type: ignore[union-attr]
    assert rows["with a prior of 40"]["21"].mean > 0.95  # type: ignore[union-attr]
    assert rows["least squares"]["300"].mean > 0.999  # type: ignore[union-attr]
    assert not any(np.isnan(run.correlations(label, 21)).any() for label in run.priors)
    # A second run asks nothing, and says the same.
    again = Run(FEW, REVIEWS, Answers(tmp_path / "a.npz", None), answers, map, tmp_path, "test")
    titles = [table.title for table in judged(again)]
    assert not any("not measured" in title for title in titles)
    assert np.array_equal(run.correlations("40", 21), again.correlations("40", 21))


def test_shapley_values_are_those_of_all_orders() -> None:
    outputs = np.random.default_rng(0).normal(size=16)
    exact = np.zeros(4)
    orders = list(permutations(range(4)))
    for order in orders:
        seen = 0
        for column in order:
            exact[column] += (outputs[seen | 1 << column] - outputs[seen]) / len(orders)
            seen |= 1 << column
    assert np.allclose(prior_tables.shapley(outputs), exact)


def test_a_game_looks_up_what_the_model_says() -> None:
    weights = np.array([1.0, 2.0, -3.0])
    boosted = prior_tables.Boosted("linear", lambda rows: rows @ weights, np.zeros((1, 3)), None, None)
    game = prior_tables.Game.of(boosted, np.array([1.0, 1.0, 2.0]))
    assert np.allclose(prior_tables.shapley(game.outputs), weights * [1.0, 1.0, 2.0])
    assert np.allclose(game(np.array([[True, False, True]])), -5.0)
    assert game.scores([8, 60], {})[-1] > 0.999


@pytest.mark.slow
def test_tables_run_and_the_budget_pays() -> None:
    pytest.importorskip("sklearn")
    found = prior_tables.judged(prior_tables.diabetes(3), (8, 100), 8, map)
    for row in found.rows:
        assert float(str(row["100"])) > max(float(str(row["8"])), 0.95)

"""Leaves that are asked about only inside the parts that matter."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import c2fa
from c2fa import methods
from c2fa.samplers import Planned, Together
from c2fa.structure import Structure

PARTS = Structure.from_groups(np.repeat(np.arange(8), 6))  # eight sentences of six words
DEEP = Structure((np.repeat([0, 1], 4), np.repeat(np.arange(8), 6)), (("A", "B"), tuple("abcdefgh"), ("w",) * 48))


def needs_two(batch):
    """A model in which the words 13 and 14, of part 2, are needed, and one of part 5 helps."""
    return 6.0 * (batch[:, 13] * batch[:, 14]) + 3.0 * batch[:, 31] + 0.01 * batch.sum(axis=1)


def rows_asked(structure, **options):
    """The explanation of a model, and every mask over the leaves that it was asked about."""
    asked = []

    def model(batch):
        asked.append(np.asarray(batch) > 0)
        return needs_two(np.asarray(batch))

    e = c2fa.Explainer(model, c2fa.maskers.Array(structure), method="c2fa-focused", **options)(np.ones(48))
    return e, np.concatenate(asked)


@pytest.mark.parametrize("structure", [PARTS, DEEP], ids=["two levels", "three levels"])
@pytest.mark.parametrize("budget", [16, 32, 64, 200])
def test_levels_add_up_and_the_budget_is_kept(structure, budget):
    e, asked = rows_asked(structure, budget=budget)
    assert len(asked) <= budget
    for k in range(structure.depth):
        np.testing.assert_allclose(structure.sums(e.low, k), e.values[k], atol=1e-9)


def test_words_are_asked_only_inside_the_parts_that_matter():
    e, asked = rows_asked(PARTS, budget=64)
    by_part = asked.reshape(len(asked), 8, 6)
    split = (by_part.any(axis=2) & ~by_part.all(axis=2)).any(axis=0)  # the parts of which a row has some words
    assert np.flatnonzero(split).tolist() == [2, 5]
    assert set(np.argsort(-e.low)[:3].tolist()) == {13, 14, 31}


def test_a_part_that_was_not_asked_about_shares_its_value_evenly_and_says_that_it_does_not_know():
    e, _ = rows_asked(PARTS, budget=64)
    words, errors = e.low.reshape(8, 6), e.stderr[-1].reshape(8, 6)
    for part in (0, 1, 3, 4, 6, 7):
        np.testing.assert_allclose(words[part], words[part].mean(), atol=1e-6)
        np.testing.assert_allclose(errors[part], errors[part].mean(), rtol=1e-6)
        assert errors[part].min() > e.stderr[0][part] / 6


def test_no_more_leaves_than_rows_unless_one_part_has_them():
    _, asked = rows_asked(PARTS, budget=(20, 8))
    by_part = asked.reshape(len(asked), 8, 6)
    split = (by_part.any(axis=2) & ~by_part.all(axis=2)).any(axis=0)
    assert np.flatnonzero(split).tolist() == [2]


def test_options_can_be_given_level_by_level():
    e, asked = rows_asked(DEEP, budget=64, sampler=("exhaustive", "planned", "uniform"), kernel=("uniform",) * 3)
    assert len(asked) <= 64
    assert e.provenance["budget"] == [3, 13, 47]


def test_of_one_level_it_is_c2fa():
    found = [
        c2fa.Explainer(needs_two, c2fa.maskers.Array(Structure.flat(48)), method=method, budget=60)(np.ones(48)).low
        for method in ("c2fa", "c2fa-focused")
    ]
    np.testing.assert_array_equal(*found)


@given(st.integers(4, 3000), st.sampled_from([PARTS, DEEP, Structure.from_groups("aab"), Structure.from_groups("aaa")]))
def test_half_of_a_budget_goes_to_the_parts_but_no_more_than_two_rows_each(budget, structure):
    rows = methods.Focused().split(budget, structure)
    assert sum(rows) == budget - 1
    assert min(rows) >= 1
    assert sum(rows[:-1]) <= max(min(budget // 2, 2 * structure.widths[-2]), structure.depth)
    assert all(n < 2**width for n, width in zip(rows[:-1], structure.widths, strict=False))


def test_it_cannot_stop_early():
    with pytest.raises(ValueError, match="'c2fa-focused' asks other rows when it has more of them"):
        c2fa.Explainer(needs_two, c2fa.maskers.Array(PARTS), method="c2fa-focused", until=c2fa.until.top(1, level=0))


def test_features_of_one_unit_are_hidden_together():
    units = np.array([0, 1, 1, 2, 3, 3, 3, 4])
    masks = Together(Planned(), units)(np.random.default_rng(2), 20, Structure.flat(8), 0)
    np.testing.assert_array_equal(masks, Planned()(np.random.default_rng(2), 20, Structure.flat(5), 0)[:, units])


class Reader:
    """A language model whose answer needs two words of one sentence."""

    def generate(self, prompt):
        return "Bern is."

    def pieces(self, answer):
        return [answer]

    def score(self, prompts, answer):
        return [[-9.0 + 4.0 * ("capital" in p) + 3.0 * ("Bern" in p) + 0.1 * p.count("the")] for p in prompts]


def test_words_of_sources_are_asked_only_inside_the_sentences_that_matter():
    documents = {
        "rivers": "The Rhine flows through Basel and on to the sea. It is long and wide. Swans like it in the winter.",
        "cities": "Basel has a large port on the river. The capital of Switzerland is Bern, as all know. Zug is small.",
    }
    levels = ("documents", "sentences", "words")
    c = c2fa.cite(Reader(), documents, "What is the first city?", levels=levels, budget=64)
    assert c.queries <= 64
    s, words = c.structure, np.array(c.names[-1])
    for k in range(3):
        np.testing.assert_allclose(s.sums(c.low, k), c.values[k], atol=1e-9)
    assert set(words[np.argsort(-c.low)[:2]]) == {"capital", "Bern,"}
    asked = int(np.argmax(c.values[1]))
    for sentence in set(range(s.widths[1])) - {asked}:
        inside = c.low[s.parents[-1] == sentence]
        np.testing.assert_allclose(inside, inside.mean(), atol=1e-6)
    assert c2fa.cite(Reader(), documents, "?", levels=levels, method="c2fa").provenance["method"] == "c2fa"

"""An explanation is of one function of leaf masks: a part is masked exactly when all of its leaves are."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import c2fa
from c2fa import maskers
from c2fa.asking.driver import Job, drive
from c2fa.asking.querying import Ask, Cache, Queries
from c2fa.citing import Question, QuestionMasker, Rows

PIECES = [
    "Not good.",
    "But I smiled!",
    "He said: “Go”.",
    "\n\n",
    "<br />",
    "今天很好。",
    "  ",
    "see a.org",
    "<p>So</p>",
]


@dataclass
class Case:
    """A masker, an input, and whether a row is that input."""

    masker: Any
    x: Any
    is_whole: Callable[[Any], bool]
    built_in: bool = True


# -- inputs of every kind --------------------------------------------------------------------------


@st.composite
def structures(draw) -> c2fa.Structure:
    """A tree of any depth, whose parts may have their leaves anywhere."""
    node = st.recursive(st.none(), lambda inner: st.lists(inner, min_size=1, max_size=3), max_leaves=9)
    tree = draw(st.lists(node, min_size=1, max_size=3))
    names = iter(range(99))

    def named(node):
        return str(next(names)) if node is None else [named(child) for child in node]

    s = c2fa.Structure.from_tree(named(tree))
    if s.depth == 1:
        return s
    order = draw(st.permutations(range(s.leaves)))
    return c2fa.Structure((*s.parents[:-1], s.parents[-1][list(order)]), s.names)


def vector(n: int) -> np.ndarray:
    return 1.0 + np.arange(n)


@st.composite
def arrays(draw) -> Case:
    s = draw(structures())
    x = vector(s.leaves)
    return Case(maskers.Array(s, -1.0), x, lambda row: np.array_equal(row, x))


@st.composite
def customs(draw) -> Case:
    """The function tells what it was asked, and at which level."""
    s = draw(structures())
    masker = maskers.Custom(s, lambda x, masks, level: [(level, *row) for row in masks])
    return Case(masker, None, lambda row: row == (s.depth - 1, *[True] * s.leaves), built_in=False)


texts = st.lists(st.sampled_from(PIECES), min_size=1, max_size=5).map(lambda some: "One. " + " ".join(some))


@st.composite
def written(draw) -> Case:
    pytest.importorskip("sentencex")
    x: Any = draw(st.one_of(texts, st.lists(texts, min_size=2, max_size=3)))
    if isinstance(x, list):
        x = draw(st.sampled_from([x, tuple(x), {f"text {k}": text for k, text in enumerate(x)}]))
    levels = draw(
        st.sampled_from(
            [
                ("sentences", "words"),
                ("paragraphs", "sentences", "words"),
                ("texts", "paragraphs", "sentences", "words"),
                ("documents", "sentences"),
                ("words",),
            ]
        )
    )
    cut = None if levels[-1] != "words" else draw(st.sampled_from([None, thirds]))
    return Case(
        maskers.Text(levels, mask=draw(st.sampled_from([None, "[MASK]"])), tokenizer=cut), x, lambda row: row == x
    )


def thirds(text: str) -> list[tuple[int, int]]:
    return [(i, i + 3) for i in range(0, len(text), 3)]


@st.composite
def questions(draw) -> Case:
    pytest.importorskip("sentencex")
    documents = {f"document {k}": text for k, text in enumerate(draw(st.lists(texts, min_size=1, max_size=3)))}
    masker = QuestionMasker(draw(st.sampled_from([("documents", "sentences"), ("documents", "sentences", "words")])))
    question = Question(documents, "Why?", "So.")
    whole = masker.asking.chat(documents, question)
    return Case(masker, question, lambda row: row == whole)


@st.composite
def tables(draw) -> Case:
    groups = draw(st.sampled_from([None, {"a": [0, 3]}, {"a": [1, 2], "b": {"c": [0], "d": [4, 3]}}]))
    strategy = draw(st.sampled_from(["mean", "average", "row"]))
    x = vector(5)
    background = np.random.default_rng(0).normal(size=(1 if strategy == "row" else 3, 5))
    masker = maskers.Tabular(groups, background, strategy=strategy)
    return Case(masker, x, lambda row: np.array_equal(row, x))


@st.composite
def series(draw) -> Case:
    x = np.random.default_rng(0).normal(size=(9, 2))
    fill = draw(st.sampled_from(["mean", "zero", "linear"]))
    masker = maskers.TimeSeries(3, draw(st.sampled_from(["channels", "windows"])), fill)
    return Case(masker, x, lambda row: np.array_equal(row, x))


@st.composite
def bags(draw) -> Case:
    x = np.random.default_rng(0).normal(size=(draw(st.integers(1, 4)), draw(st.integers(1, 3))))
    masker = maskers.Bag(draw(st.sampled_from(["remove", "fill"])), draw(st.sampled_from([0.0, "mean"])))
    return Case(masker, x, lambda row: np.array_equal(row, x))


def halves(image: np.ndarray) -> np.ndarray:
    return np.broadcast_to(np.arange(image.shape[1]) * 2 // image.shape[1], image.shape[:2])


@st.composite
def pictures(draw) -> Case:
    rng = np.random.default_rng(0)
    sizes = draw(st.lists(st.sampled_from([(4, 4), (4, 6)]), min_size=1, max_size=4))
    x: Any = [rng.integers(0, 256, (*size, 3)).astype(np.uint8) for size in sizes]
    masker = maskers.ImageBag(halves, absent=draw(st.sampled_from(["remove", "fill"])), fill=7, regions=halves(x[0]))
    if draw(st.booleans()):
        return Case(masker, x[0], lambda row: np.array_equal(row, x[0]))
    return Case(masker, x, lambda row: len(row) == len(x) and all(map(np.array_equal, row, x)))


CASES = st.one_of(arrays(), customs(), written(), questions(), tables(), series(), bags(), pictures())


# -- what is asked ---------------------------------------------------------------------------------


def rows(batch: Any) -> list[Any]:
    return list(batch.chats if isinstance(batch, Rows) else batch)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        return bool(np.array_equal(a, b))
    if isinstance(a, list) and len(a) and isinstance(a[0], np.ndarray):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


def received(masked: Any, level: int, masks: np.ndarray) -> list[Any]:
    """What a model receives that is asked a question."""
    seen: list[Any] = []

    def model(batch):
        seen.extend(rows(batch))
        return np.zeros(len(batch))

    def question():
        yield Ask(level, masks)

    [job] = drive([Job(question(), Queries(Cache(masked), sys.maxsize))], model, batch_size=3)
    job.result()
    return seen


@settings(max_examples=150, deadline=None)
@given(CASES, st.data())
def test_a_part_is_masked_exactly_when_all_of_its_leaves_are(case, data):
    masked = case.masker(case.x)
    s = masked.structure
    last = s.depth - 1
    assert masked.allows_empty
    for level, width in enumerate(s.widths):
        drawn = st.lists(st.booleans(), min_size=width, max_size=width)
        masks = np.array([[True] * width, [False] * width, *data.draw(st.lists(drawn, max_size=3))])
        leaves = s.expand(masks, level)
        asked = received(masked, level, masks)
        assert asked
        assert all(map(same, asked, received(masked, last, leaves)))
        each = masked.rows_per_mask
        assert all(map(case.is_whole, asked[:each])), "the full mask gives the input itself"
        if case.built_in:
            fine, coarse = rows(masked.inputs(leaves, last)), rows(masked.inputs(masks, level))
            assert len(fine) == len(coarse) == len(masks) * each
            assert all(map(same, coarse, fine))


@settings(max_examples=60, deadline=None)
@given(structures(), st.data())
def test_a_function_of_leaf_masks_is_asked_about_once_for_all_levels(s, data):
    masked = maskers.Custom(s, lambda x, masks, level: s.expand(masks, level) * 1.0)(None)
    asked = []
    queries = Queries(Cache(masked), sys.maxsize)

    def conversation():
        for level, width in enumerate(s.widths):
            masks = np.array(data.draw(st.lists(st.lists(st.booleans(), min_size=width, max_size=width), min_size=1)))
            asked.extend(map(tuple, s.expand(masks, level)))
            answer = yield Ask(level, masks)
            assert answer.outputs[:, 0].tolist() == (s.expand(masks, level) @ vector(s.leaves)).tolist()

    [job] = drive([Job(conversation(), queries)], lambda batch: batch @ vector(s.leaves), batch_size=4)
    job.result()
    assert queries.sent == len(set(asked))


# -- the paper's masks -----------------------------------------------------------------------------


IMAGES = [np.random.default_rng(k).integers(1, 250, (4, 4)).astype(np.uint8) for k in range(3)]
VECTORS = np.random.default_rng(0).normal(size=(3, 2))


def literal_images(level: int, mask: np.ndarray) -> list[np.ndarray]:
    if level == 0:
        return [image for image, kept in zip(IMAGES, mask, strict=True) if kept]
    bag = [image.copy() for image in IMAGES]
    for leaf in np.flatnonzero(~mask):
        bag[leaf // 2][:, 2 * (leaf % 2) : 2 * (leaf % 2) + 2] = 0
    return bag


def literal_vectors(level: int, mask: np.ndarray) -> list[np.ndarray]:
    if level == 0:
        return [vector for vector, kept in zip(VECTORS, mask, strict=True) if kept]
    return [np.array([VECTORS[j, d] if mask[2 * j + d] else 0.0 for d in range(2)]) for j in range(3)]


def literal_own(level: int, mask: np.ndarray) -> list[np.ndarray]:
    return [np.array([level, *mask], dtype=float)]


def own(x: Any, masks: np.ndarray, level: int) -> list[list[np.ndarray]]:
    return [literal_own(level, mask) for mask in masks]


BAGS = {
    "images": (maskers.ImageBag(halves), IMAGES, literal_images),
    "vectors": (maskers.Bag(), VECTORS, literal_vectors),
    "own": (maskers.Custom(c2fa.Structure.from_groups("aabbcc"), own, allows_empty=False), "x", literal_own),
}


def score(bags: Any) -> list[float]:
    """A model of bags that is not linear, and cannot take an empty one."""
    return [float(np.sin(sum(np.asarray(item, dtype=float).sum() for item in bag)) / len(bag)) for bag in bags]


def key(bag: Any) -> tuple[bytes, ...]:
    return tuple(np.asarray(item).tobytes() for item in bag)


def spied(conversation, asks):
    """The same conversation; its questions are listed."""
    answer = None
    while True:
        try:
            ask = conversation.send(answer)
        except StopIteration as stop:
            return stop.value
        asks.append(ask)
        answer = yield ask


@pytest.mark.parametrize("name", list(BAGS))
@pytest.mark.parametrize("method", ["c2fa", "lime", "milli", "td-lime"])
def test_the_papers_preset_asks_under_the_papers_masks(name, method):
    masker, x, literal = BAGS[name]
    explainer = c2fa.Explainer(score, masker, method=method, preset="paper", budget=(6, 30))
    masked = explainer.under(masker(x))
    asks, seen = [], []

    def model(bags):
        seen.extend(map(key, bags))
        return score(bags)

    queries = explainer.queries(x, masked)
    conversation = spied(explainer.conversation(masked, queries), asks)
    [job] = drive([Job(conversation, queries)], model, batch_size=7)
    job.result()
    full = key(literal(1, np.ones(6, dtype=bool)))
    wanted = [
        full if mask.all() else key(literal(masked.structure.level(ask.level), mask))
        for ask in asks
        for mask in ask.masks
    ]
    assert {ask.level for ask in asks} == {0, 1}
    assert all(mask.any() for ask in asks for mask in ask.masks), "an empty bag is never asked about"
    assert set(seen) == set(wanted)
    assert len(seen) == len(set(seen)), "nothing is asked twice"


@pytest.mark.parametrize("name", ["images", "vectors"])
def test_an_image_leaves_its_bag_with_its_last_leaf_but_not_under_the_papers_masks(name):
    masker, x, literal = BAGS[name]
    masked, mask = masker(x), np.array([False, False, True, False, True, True])
    filled = literal(1, mask)
    [bag] = received(masked, 1, mask[None])
    assert key(bag) == key(filled[1:])
    [bag] = received(masked.apart(), 1, mask[None])
    assert key(bag) == key(filled)
    [bag] = received(masked, 0, np.zeros((1, 3), dtype=bool))
    assert key(bag) == key(literal(1, np.zeros(6, dtype=bool))[:1]), "the first, filled, stands for the empty bag"


@pytest.mark.parametrize("name", list(BAGS))
def test_a_ledger_never_takes_one_kind_of_masks_for_the_other(name, tmp_path):
    masker, x, _ = BAGS[name]
    if name == "own":  # a ledger tells maskers apart by what they hold
        masker = maskers.Custom(lambda x: c2fa.Structure.from_groups("aabbcc"), own, allows_empty=False)
    ways = [{"preset": "paper"}, {}]
    alone = [c2fa.Explainer(score, masker, budget=(6, 40), **way)(x).low for way in ways]
    assert not np.allclose(*alone)
    ledger = c2fa.Ledger(tmp_path / "answers.sqlite")
    for _ in range(2):
        for way, low in zip(ways, alone, strict=True):
            kept = c2fa.Explainer(score, masker, budget=(6, 40), ledger=ledger, model_name="m", **way)(x)
            np.testing.assert_array_equal(kept.low, low)
    asked = len(ledger)
    c2fa.Explainer(score, masker, budget=(6, 40), ledger=ledger, model_name="m", preset="paper")(x)
    assert len(ledger) == asked


def test_the_papers_preset_is_the_same_among_many_and_in_a_grid(tmp_path):
    pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    made = [
        c2fa.Explainer(score, maskers.Bag(), method="c2fa", budget=(6, 40), target=0, preset=p) for p in (None, "paper")
    ]
    alone = [explainer(VECTORS).low for explainer in made]
    assert not np.allclose(*alone)
    for i, explainer in enumerate(made):
        np.testing.assert_array_equal(explainer.many([VECTORS])[0].low, alone[i])
    store = tmp_path / "store"
    made[1].many([VECTORS], store, engine="serial")
    with pytest.raises(c2fa.batch.StoreError, match='masks is "the paper\'s" there and None now'):
        made[0].many([VECTORS], store, engine="serial")
    seen = []
    grid = c2fa.evaluate(
        ["c2fa", ("printed", "c2fa", {"preset": "paper"})],
        [VECTORS],
        score,
        maskers.Bag(),
        masks=[(5, 40)],
        seeds=1,
        metrics=[("low", lambda e, truth: seen.append(e.low) or 0.0), "deletion"],
        store=tmp_path / "grid",
        model_name="m",
    )
    for low, wanted in zip(seen, alone, strict=True):
        np.testing.assert_array_equal(low, wanted)
    again = c2fa.evaluate(
        ["c2fa"], [VECTORS], score, maskers.Bag(), masks=[(5, 40)], seeds=1, store=tmp_path / "grid", model_name="m"
    )
    assert grid.rows.explaining > again.rows.explaining, "two kinds of masks are other questions"
    assert again.rows.sent <= again.rows.scoring, "the explanation's rows are known"

"""Graphs of leaves: what they are made of, and what smoothing over them keeps."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import c2fa
from c2fa import graph as graphs_
from c2fa.graph import Graph, Smoother, chain, disjoint_union
from c2fa.maskers._quickshift import lab, linear
from c2fa.maskers._segmenting import superpixel_graph


def graphs(leaves):
    pairs = list(itertools.combinations(range(leaves), 2))
    edge = st.tuples(st.sampled_from(pairs), st.floats(0.0, 3.0))
    return st.lists(edge, max_size=12, unique_by=lambda e: e[0]).map(
        lambda found: Graph([pair for pair, _ in found], [weight for _, weight in found])
    )


@given(graphs(6), st.lists(st.floats(-3, 3), min_size=6, max_size=6))
def test_the_laplacian_adds_up_squared_differences(graph, values):
    beta = np.array(values)
    literal = sum(w * (beta[i] - beta[k]) ** 2 for (i, k), w in zip(graph.edges, graph.weights, strict=True))
    assert beta @ (graph.laplacian(6) @ beta) == pytest.approx(literal, abs=1e-9)


@given(graphs(6), st.floats(0.0, 30.0))
def test_smoothing_is_the_inverse_and_keeps_sums(graph, strength):
    rows = np.random.default_rng(0).normal(size=(4, 6))
    found = Smoother(graph, strength, 6)(rows)
    dense = np.linalg.inv(np.eye(6) + strength * graph.laplacian(6).toarray())
    np.testing.assert_allclose(found, rows @ dense, atol=1e-9)
    np.testing.assert_allclose(found.sum(axis=1), rows.sum(axis=1), atol=1e-9)


def test_part_by_part_or_all_at_once_smoothing_is_the_same(monkeypatch):
    rows = np.random.default_rng(0).normal(size=(4, 60))
    few = chain(np.repeat([0, 1, 2, 3], [20, 1, 9, 30]), np.linspace(0.1, 2.0, 60))
    by_parts = Smoother(few, 3.0, 60)(rows)
    monkeypatch.setattr(graphs_, "_FEW", 59)
    np.testing.assert_allclose(Smoother(few, 3.0, 60)(rows), by_parts, atol=1e-12)


def test_runs_are_what_edges_stay_within():
    found = Graph([[3, 1], [5, 6], [1, 2]], [1.0, 2.0, 3.0]).runs
    assert [run for run, _ in found] == [slice(1, 4), slice(5, 7)]
    assert found[0][1].tolist() == [[0, 3, 1], [3, 0, 0], [1, 0, 0]]
    assert Graph(np.empty((0, 2), dtype=int)).runs == ()


def test_smoothing_within_parts_leaves_the_parts_alone():
    s = c2fa.Structure.from_groups("aaabbbb")
    graph = chain(s.owners(0))
    graph.check(s)
    beta = np.random.default_rng(1).normal(size=(1, 7))
    smooth = Smoother(graph, 5.0, 7)(beta)
    np.testing.assert_allclose(s.sums(smooth[0], 0), s.sums(beta[0], 0))


def test_edges_between_parts_are_refused():
    with pytest.raises(ValueError, match="leaves 1 and 2 are tied but belong to different parts"):
        Graph([[1, 2]]).check(c2fa.Structure.from_groups("aab"))
    with pytest.raises(ValueError, match="an edge names leaf 9"):
        Graph([[1, 9]]).check(c2fa.Structure.from_groups("aab"))
    with pytest.raises(ValueError, match="two different leaves"):
        Graph([[1, 1]])
    with pytest.raises(ValueError, match="2 finite numbers"):
        Graph([[0, 1], [1, 2]], [1.0, np.nan])
    with pytest.raises(ValueError, match="at least 0; got -1"):
        Smoother(Graph([[0, 1]]), -1.0, 2)


def test_graphs_side_by_side():
    both = disjoint_union([Graph([[0, 1]], [2.0]), Graph([[0, 2]], [3.0])], [2, 3])
    assert both.edges.tolist() == [[0, 1], [2, 4]]
    assert both.weights.tolist() == [2.0, 3.0]


def test_superpixels_are_tied_to_those_they_touch_and_to_those_of_their_colour():
    labels = np.repeat(np.arange(9).reshape(3, 3), 4, axis=0).repeat(4, axis=1)
    shades = np.array([0, 200, 0, 200, 0, 200, 0, 200, 0], dtype=np.uint8)  # a board of black and light squares
    graph = superpixel_graph(np.repeat(shades[labels][..., None], 3, axis=2), labels)
    weight = {tuple(edge): w for edge, w in zip(graph.edges.tolist(), graph.weights, strict=True)}
    touching = {
        (i, k)
        for i, k in itertools.combinations(range(9), 2)
        if sum(np.abs(np.subtract(divmod(i, 3), divmod(k, 3)))) == 1
    }
    assert touching <= set(weight)
    assert all(weight[pair] < 1e-6 for pair in touching)  # black and light have little in common
    assert weight[0, 8] == pytest.approx(0.5)  # of one colour, though far apart
    assert all(i < k for i, k in weight)


def test_lab_agrees_with_scikit_image():
    colour = pytest.importorskip("skimage.color")
    rgb = np.random.default_rng(0).integers(0, 256, (50, 3)).astype(float)
    np.testing.assert_allclose(lab(linear(rgb / 255.0)), colour.rgb2lab(rgb[None] / 255.0)[0], atol=1e-9)


def test_an_image_of_one_superpixel_has_no_neighbours():
    assert not len(superpixel_graph(np.zeros((4, 4, 3), np.uint8), np.zeros((4, 4), np.intp)).edges)


def test_maskers_say_who_is_whose_neighbour():
    text = c2fa.maskers.Text()("Good plot. It was too long.")
    assert text.neighbours().edges.tolist() == [[0, 1], [2, 3], [3, 4], [4, 5]]
    pieces = c2fa.maskers.Text(tokenizer=lambda t: [(0, 2), (2, 5), (6, 9)])("ab cde fgh"[:9].replace(" ", "x", 1))
    assert pieces.neighbours().weights.tolist() == [3.0, 1.0]
    series = c2fa.maskers.TimeSeries(windows=3)(np.arange(24.0).reshape(12, 2))
    assert series.neighbours().edges.tolist() == [[0, 1], [1, 2], [3, 4], [4, 5]]
    assert c2fa.maskers.TimeSeries(windows=3, order="windows")(np.arange(24.0).reshape(12, 2)).neighbours is None
    halves = np.array([[0, 0, 1, 1]] * 4)
    bag = c2fa.maskers.ImageBag(segment=[halves, halves])([np.zeros((4, 4, 3), np.uint8)] * 2)
    assert bag.neighbours().edges.tolist() == [[0, 1], [2, 3]]
    bag.neighbours().check(bag.structure)


@pytest.mark.parametrize("edges", [[[0, 1, 2]], [0, 1], [[0.5, 1]], [["0", "1"]], [[[0, 1]]]])
def test_what_are_no_pairs_of_leaves_is_refused(edges):
    with pytest.raises(ValueError, match=r"pairs of leaves' indices, whole numbers of shape \(m, 2\); got"):
        Graph(edges)
    assert Graph([]).edges.shape == (0, 2)

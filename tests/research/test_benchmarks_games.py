"""The benchmark on tabulated games: exact values against their definitions, others' estimators, folders, tables."""

from __future__ import annotations

import doctest
import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("experiments", reason="the benchmarks are in a clone, not in a source distribution")
from benchmarks.games import exact, measuring, peers, tables
from benchmarks.games.command import main
from benchmarks.games.exact import winter_values
from benchmarks.games.games import Game, load

import c2fa

# ------------------------------------------------------------------------------------------------ exact values


def by_orders(table, tree):
    """Each leaf's mean contribution over all orders of leaves in which no part is interrupted, part within part.

    ``tree`` is a leaf, or a list of trees.
    """

    def orders(node):
        if isinstance(node, int):
            return [(node,)]
        return [
            tuple(itertools.chain(*chosen))
            for order in itertools.permutations(node)
            for chosen in itertools.product(*map(orders, order))
        ]

    every = orders(tree)
    values = np.zeros(len(every[0]))
    for order in every:
        mask = 0
        for leaf in order:
            values[leaf] += (table[mask | 1 << leaf] - table[mask]) / len(every)
            mask |= 1 << leaf
    return values


def as_structure(tree):
    """The structure of a tree whose leaves are numbers, at whatever depth; leaves in the order of their numbers."""
    made = c2fa.Structure.from_tree(tree)
    order = np.argsort([int(name) for name in made.names[-1]])
    parents = (*made.parents[:-1], made.parents[-1][order]) if made.parents else ()
    return c2fa.Structure(parents, (*made.names[:-1], tuple(str(i) for i in range(made.leaves))))


TREES = [
    [0],
    [0, 1, 2, 3],
    [[0, 1], [2, 3, 4]],
    [[0, 3], [1], [2, 4]],
    [[0, 1, 2, 3]],
    [[[0, 4], [1]], [[2], [3]]],
    [[[0, 1], [2, 5]], [[3, 4]]],
    [[[[0], [3, 1]], [[2]]], [[[4]]]],
]


@pytest.mark.parametrize("tree", TREES, ids=str)
@given(seed=st.integers(0, 10**6))
def test_values_are_means_over_the_orders_that_respect_the_parts(tree, seed):
    structure = as_structure(tree)
    table = np.random.default_rng(seed).normal(size=2**structure.leaves)
    np.testing.assert_allclose(winter_values(table, structure), by_orders(table, tree), atol=1e-12)


@given(owner=st.lists(st.integers(0, 3), min_size=1, max_size=8), seed=st.integers(0, 10**6))
def test_parts_are_worth_what_they_are_among_themselves_and_all_is_shared_out(owner, seed):
    structure = c2fa.Structure.from_groups(owner)
    table = np.random.default_rng(seed).normal(size=2 ** len(owner))
    leaves = winter_values(table, structure)
    assert leaves.sum() == pytest.approx(table[-1] - table[0])
    among_parts = c2fa.Structure.flat(structure.widths[0])
    masks = structure.expand(np.arange(2 ** structure.widths[0])[:, None] >> np.arange(structure.widths[0]) & 1, 0)
    of_parts = winter_values(table[masks @ 2 ** np.arange(len(owner))], among_parts)
    np.testing.assert_allclose(structure.sums(leaves, 0), of_parts, atol=1e-12)


def test_examples_of_exact_values():
    assert doctest.testmod(exact) == (0, 2)


def test_a_table_of_another_size_is_refused():
    with pytest.raises(ValueError, match=r"3 leaves needs a table of 8 outputs, one for each mask; got shape \(4,\)"):
        winter_values(np.zeros(4), c2fa.Structure.flat(3))


# ------------------------------------------------------------------------------------------------ others' estimators


def random_game(seed, leaves=5):
    table = np.random.default_rng(seed).normal(size=2**leaves).cumsum()
    return Game(f"random_{seed}", "random", table, [range(2), range(2, leaves)])


@given(leaves=st.integers(2, 8), rows=st.integers(2, 300), seed=st.integers(0, 10**6))
def test_masks_come_in_pairs_once_each_and_sizes_alike(leaves, rows, seed):
    masks, chance = peers.paired_masks(leaves, rows, np.random.default_rng(seed))
    assert len(masks) == len(chance) == min(rows // 2 * 2, 2**leaves)
    assert not masks[0].any()
    assert masks[1].all()
    np.testing.assert_array_equal(masks[2::2], ~masks[3::2])
    assert len(np.unique(masks, axis=0)) == len(masks)
    size = masks.sum(axis=1)
    counts = np.bincount(size, minlength=leaves + 1)
    every = np.bincount((np.arange(2**leaves)[:, None] >> np.arange(leaves) & 1).sum(axis=1))
    np.testing.assert_allclose(chance, (counts / every)[size])
    not_all = counts[counts < every]
    assert np.ptp(not_all) <= 2 if len(not_all) else True  # a pair of the middle size is two masks of it


@pytest.mark.parametrize("leaves", [2, 3, 4, 6])
@pytest.mark.parametrize("seed", range(3))
def test_leverage_is_exact_with_all_masks(seed, leaves):
    game = random_game(seed, leaves)
    np.testing.assert_allclose(peers.leverage(game, 2**leaves, 0), game.shapley[0], atol=1e-9)


def test_leverage_is_least_squares_with_shapleys_kernel_and_a_given_sum():
    """Against a general solver: the same rows and weights, the constraint as a row of immense weight."""
    game = random_game(1, 6)
    masks, chance = peers.paired_masks(6, 30, np.random.default_rng(game.seed(0)))
    z, size = masks[2:].astype(float), masks[2:].sum(axis=1)
    kernel = 1 / (np.array([1, 6, 15, 20, 15, 6, 1])[size] * size * (6 - size)) / chance[2:]
    rows = np.vstack([np.sqrt(kernel)[:, None] * z, np.full(6, 1e6)])
    wanted = np.append(np.sqrt(kernel) * (game(z) - game.table[0]), 1e6 * (game.table[-1] - game.table[0]))
    np.testing.assert_allclose(peers.leverage(game, 30, 0), np.linalg.lstsq(rows, wanted)[0], rtol=1e-6)


@pytest.mark.parametrize("folds", [1, 2, 5])
@pytest.mark.parametrize("leaves", [4, 5])
def test_regression_msr_is_exact_with_all_masks(leaves, folds):
    pytest.importorskip("sklearn")
    game = random_game(3, leaves)
    np.testing.assert_allclose(peers.regression_msr(game, 2**leaves, 0, folds), game.shapley[0], atol=1e-4)


def test_regression_msr_is_the_trees_values_and_the_weighted_means_of_their_misses():
    """Against the authors' formula, with trees and rows that are the same."""
    pytest.importorskip("sklearn")
    game = random_game(3, 6)
    masks, chance = peers.paired_masks(6, 30, np.random.default_rng(game.seed(0)))
    trees = peers._trees(game.seed(0)).fit(masks.astype(float), game(masks))
    every = (np.arange(64)[:, None] >> np.arange(6) & 1).astype(float)
    expected = winter_values(trees.predict(every), c2fa.Structure.flat(6))
    weight = 1 / (6 * np.array([1, 5, 10, 10, 5, 1]))
    for mask, output, predicted, likely in zip(masks, game(masks), trees.predict(masks), chance, strict=True):
        for leaf in range(6):
            sign = weight[mask.sum() - 1] if mask[leaf] else -weight[mask.sum()]
            expected[leaf] += sign * (output - predicted) / likely
    np.testing.assert_allclose(peers.regression_msr(game, 30, 0, 1), expected, atol=1e-4)


def test_regression_msr_across_folds_has_no_bias():
    pytest.importorskip("sklearn")
    game = random_game(4)
    found = np.array([peers.regression_msr(game, 18, seed, folds=2) for seed in range(80)])
    error = found.std(axis=0) / np.sqrt(len(found))
    assert (np.abs(found.mean(axis=0) - game.shapley[0]) < 4 * error).all()
    assert np.abs(game.shapley[0]).max() > 10 * error.max()  # a bias of the values' size would show


@pytest.mark.parametrize("name", ["KernelSHAP", "KernelSHAPIQ", "SVARM"])
def test_shapiqs_are_near_with_all_masks(name):
    pytest.importorskip("shapiq")
    game = random_game(5)
    np.testing.assert_allclose(peers.shapiq(name, game, 32, 0), game.shapley[0], atol=1e-3)


# ------------------------------------------------------------------------------------------------ games


def test_a_game_is_a_model_of_its_masks():
    game = random_game(0)
    masks = np.array([[0, 0, 0, 0, 0], [1, 0, 0, 0, 0], [0, 1, 0, 0, 1]])
    np.testing.assert_array_equal(game(masks), game.table[[0, 1, 18]])
    e = game.explain(game.tree, "c2fa", 40, 0)
    assert e.structure.widths == (2, 5)
    assert e.prediction == game.table[-1]
    assert game.seed(0) != game.seed(1) != random_game(1).seed(1)


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "a.npz", **{f"small4_{i:02}": rng.normal(size=16).astype(np.float32) for i in range(3)})
    np.savez(tmp_path / "b.npz", own7=rng.normal(size=64), bike12_01=rng.normal(size=2**12))
    (tmp_path / "parts.json").write_text(json.dumps({"own": [[0, 5], [1, 2, 3, 4]], "small4": [[0, 1], [2, 3]]}))
    return tmp_path


def test_a_folder_of_tables_is_read_with_its_parts(folder):
    games = load(folder)
    assert [(game.name, game.kind, game.leaves) for game in games] == [
        ("small4_00", "small4", 4),
        ("small4_01", "small4", 4),
        ("small4_02", "small4", 4),
        ("own7", "own", 6),
        ("bike12_01", "bike12", 12),
    ]
    assert games[0].tree.widths == (2, 4)
    assert games[3].tree.owners(0).tolist() == [0, 1, 1, 1, 1, 0]
    assert games[4].tree.owners(0).tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert games[0].table.dtype == np.float64
    assert [game.name for game in load(folder, ["own", "small4"], 1)] == ["own7", "small4_00"]
    assert len(load(folder / "a.npz")) == 3


def test_unknown_kinds_have_neighbours_for_parts(tmp_path):
    np.savez(tmp_path / "x.npz", new_1=np.zeros(2**10), tiny_1=np.zeros(2))
    ten, one = load(tmp_path)
    assert ten.tree.owners(0).tolist() == [0] * 5 + [1] * 5
    assert one.tree.widths == (1, 1)


def test_what_is_no_game_is_named(folder, tmp_path):
    with pytest.raises(SystemExit, match="has no games of kind 'vit16'; it has small4, own, bike12"):
        load(folder, ["vit16"])
    with pytest.raises(SystemExit, match=r"give a folder with \.npz files"):
        load(tmp_path / "none")
    (folder / "parts.json").write_text(json.dumps({"own": [[0, 5], [1, 2, 3]]}))
    with pytest.raises(SystemExit, match="must hold each leaf of own7, 0 to 5, just once"):
        load(folder)
    np.savez(folder / "c.npz", odd_1=np.zeros(6))
    (folder / "parts.json").unlink()
    with pytest.raises(SystemExit, match=r"odd_1 of .* has shape \(6,\); a game has 2\^d outputs"):
        load(folder)


# ------------------------------------------------------------------------------------------------ measuring, tables


def test_errors_are_over_the_spread_of_the_exact_values():
    game = random_game(2)
    record = measuring.measure(measuring.Task(game, "leverage", 4, 0))
    exact = game.shapley[0]
    squared = (peers.leverage(game, 20, 0) - exact) ** 2
    assert record["error"] == pytest.approx([squared.sum() / ((exact - exact.mean()) ** 2).sum()])
    assert record["mse"] == pytest.approx([squared.mean()])


def test_intervals_and_sums_are_those_of_the_explanation():
    game = random_game(6, 6)
    record = measuring.measure(measuring.Task(game, "c2fa", 4, 1))
    e = game.explain(game.tree, "c2fa", 24, 1)
    assert record["asked"] == e.queries <= 24
    inside = [np.abs(v - t) <= 1.645 * s for v, t, s in zip(e.values, game.owen, e.stderr, strict=True)]
    assert record["held"] == [pytest.approx(np.mean(level)) for level in inside]
    assert len(record["sums"]) == len(record["error"]) == 2


def test_a_game_with_nothing_to_tell_apart_has_no_error():
    game = Game("same_0", "same", np.full(16, 3.0), [range(2), range(2, 4)])
    assert measuring.measure(measuring.Task(game, "leverage", 3, 0))["error"] == [None]


def test_a_run_that_fails_is_named_in_the_tables():
    record = measuring.measure(measuring.Task(random_game(0), "c2fa", 0, 0))
    assert "budget" in record["failed"]
    said = str(tables.tables([record, *made("owen", 2, [1.0])])[-1])
    assert f"c2fa, random, 0 rows a leaf, 1 times: {record['failed']}" in said


def test_methods_that_cannot_be_run_are_named():
    assert measuring.missing("c2fa") is None
    assert measuring.missing("flat:c2fa") is None
    assert measuring.missing("leverage") is None
    assert "c2fa has no method 'none'" in str(measuring.missing("none"))
    assert "shapiq has no estimator 'None'" in str(measuring.missing("shapiq:None"))


def made(method, rows, errors, value="owen", kind="text14", **more):
    return [
        {"method": method, "rows": rows, "kind": kind, "value": value, "error": [e, e], "mse": [e, e], **more}
        for e in errors
    ]


def test_ratios_are_of_medians_and_missed_ones_are_marked():
    records = made("owen", 2, [1, 2, 9]) + made("c2fa", 2, [4, 4, 4]) + made("owen", 5, [4]) + made("c2fa", 5, [2])
    (leaves, parts) = tables.before(tables.Results(records)).rows
    assert leaves == {"kind": "text14", "values of": "leaves", "2": "0.50", "5": "2.00 !"}
    assert parts["5"] == "2.00 !"
    said = str(tables.tables(records)[-1])
    assert "! owen, text14, leaves, 5 rows a leaf: error beside c2fa: 4, target ≤ 2" in said
    assert "! owen, text14, leaves: error with 5 rows a leaf beside that with 2: 4, target ≤ 2" in said
    assert "error beside c2fa: 2" not in said


def test_the_best_peer_is_found_in_each_cell():
    records = [
        *made("shapley", 2, [1.04], "shapley"),
        *made("leverage", 2, [1.0], "shapley"),
        *made("regression-msr", 2, [1.5], "shapley"),
        *made("flat:c2fa", 2, [0.1], "shapley"),
        *made("shapley", 5, [1.06], "shapley"),
        *made("leverage", 5, [3.0], "shapley"),
        *made("regression-msr", 5, [1.0], "shapley"),
    ]
    (row,) = tables.peers(tables.Results(records)).rows
    assert row == {"kind": "text14", "2": "1.04 of 1, leverage", "5": "1.06 ! of 1, regression-msr"}
    said = str(tables.targets(tables.Results(records)))
    assert "! shapley, text14, leaves, 5 rows a leaf: error beside regression-msr: 1.06, target ≤ 1.05" in said
    assert "beside leverage" not in said


def test_errors_intervals_and_kinds_have_their_targets():
    records = [
        *made("owen", 11, [0.06], held=[0.9, 0.98]),
        *made("owen", 11, [0.06], kind="vit16"),
        *made("owen", 24, [0.016], held=[0.9, 0.9]),
    ]
    said = str(tables.targets(tables.Results(records)))
    assert "! owen, text14, leaves, 11 rows a leaf: error: 0.06, target ≤ 0.05" in said
    assert "vit16" not in said
    assert "! owen, text14, parts, 24 rows a leaf: error: 0.016, target ≤ 0.015" in said
    assert "! owen, text14, leaves, 11 rows a leaf: inside 90 % intervals: 0.98, target 0.87 to 0.97" in said
    assert "parts, 11 rows a leaf: inside" not in said


def test_the_command_keeps_its_results_and_takes_those_of_others(folder, capsys):
    kept = folder / "kept.json"
    args = [str(folder), "--kinds", "small4", "--rows", "2,3", "--jobs", "1"]
    main([*args, "--methods", "c2fa,leverage", "--json", str(kept)])
    said = capsys.readouterr().out
    assert "Owen values of parts, by rows a leaf: error" in said
    assert "Shapley values of leaves, by rows a leaf: mean squared error" in said
    results = json.loads(kept.read_text())["results"]
    assert len(results) == 2 * 2 * 3
    assert not [record for record in results if "failed" in record]
    main([*args, "--methods", "flat:c2fa", "--games", "2", "--beside", str(kept)])
    said = capsys.readouterr().out
    assert "flat:c2fa" in said
    assert "leverage" in said
    with pytest.raises(SystemExit):
        main([*args, "--methods", "nothing"])
    assert "c2fa has no method 'nothing'" in capsys.readouterr().err


def test_two_processes_find_what_one_finds(folder, capsys):
    """A worker has the game's masks and values, whatever runs beside it."""
    args = [str(folder), "--kinds", "small4", "--games", "2", "--rows", "3", "--methods", "c2fa,leverage"]
    found = []
    for jobs in ("1", "2"):
        main([*args, "--jobs", jobs, "--json", str(folder / f"{jobs}.json")])
        results = json.loads((folder / f"{jobs}.json").read_text())["results"]
        found.append([{k: v for k, v in record.items() if k != "seconds"} for record in results])
    assert found[0] == found[1]

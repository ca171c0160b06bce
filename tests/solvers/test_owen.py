"""Winter values by a Gaussian process over leaf masks, against orders, masks and covariances written out in full."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import c2fa
from c2fa.samplers import Apart
from c2fa.solvers.expected import Expectation, solve_game_about
from c2fa.solvers.interactions import Interactions
from c2fa.solvers.owen import exact_values, solve_game
from c2fa.solvers.process import Game
from oracles import all_masks, membership, pair_weights, product_kernel, winter_weights

GROUPS = {
    "one leaf": c2fa.Structure.flat(1),
    "two leaves": c2fa.Structure.flat(2),
    "no parts": c2fa.Structure.flat(5),
    "one part": c2fa.Structure.from_groups("aaaa"),
    "parts of one leaf": c2fa.Structure.from_groups("abcd"),
    "two parts": c2fa.Structure.from_groups("aaabb"),
    "scattered": c2fa.Structure.from_groups("abcabb"),
    "three levels": c2fa.Structure.from_tree([[["1", "2"], ["3"]], [["4", "5", "6"]]]),
    "three levels, scattered": c2fa.Structure(
        (np.array([1, 0, 1]), np.array([0, 2, 1, 0, 2, 1])), (("p", "q"), ("a", "b", "c"), tuple("123456"))
    ),
}
trees = st.sampled_from(sorted(GROUPS)).map(GROUPS.__getitem__)
seeds = st.integers(0, 2**20)
weights_of = functools.cache(winter_weights)


def signs(masks):
    return np.where(masks, 1.0, -1.0)


def drawn(s, seed):
    """Interactions with weights of every size."""
    rng = np.random.default_rng(seed)
    return Interactions(rng.uniform(0.02, 0.9, size=s.leaves) ** rng.integers(1, 4))


def literal(kind, x, other):
    """The odd and the even kernel: the product's differences and sums under complements, less what is additive."""
    one, flipped = product_kernel(kind.weights, x, other), product_kernel(kind.weights, x, -other)
    return (one - flipped) / 2 - (x * kind.weights) @ other.T, (one + flipped) / 2 - 1.0


def scaled(kernel, s, which, kind):
    """A kernel whose value at any mask beside itself is 1; nothing where there is nothing."""
    ones = np.ones((1, s.leaves))
    scale = literal(kind, ones, ones)[which][0, 0]
    return kernel / scale if scale > 1e-12 else np.zeros(kernel.shape)


# -- the kernels, and what values make of them -----------------------------------------------------


@given(s=trees, seed=seeds)
def test_kernels_are_the_product_kernel_split_by_complements(s, seed):
    kind, x = drawn(s, seed), signs(all_masks(s.leaves))
    odd, even = literal(kind, x, x)
    exponents, additive = kind.exponents(x, x), (x * kind.weights) @ x.T
    assert np.allclose(kind.odd(exponents, additive), scaled(odd, s, 0, kind), atol=1e-8)
    assert np.allclose(kind.even(exponents), scaled(even, s, 1, kind), atol=1e-8)


@pytest.mark.parametrize("alike", [0.0, 0.7, 1.0])
@given(s=trees, seed=seeds)
def test_sums_over_leaves_from_those_with_other_weights(alike, s, seed):
    """Whether all of the weights are in proportion to the others, most are, or none."""
    rng, kind, x = np.random.default_rng(seed), drawn(s, seed), signs(all_masks(s.leaves))
    factors = np.where(rng.random(s.leaves) < alike, 0.5, rng.uniform(0.5, 1.0, size=s.leaves))
    for weights, found in ((np.arctanh(kind.weights), kind.own_exponents), (kind.weights, kind.additive)):
        sizes = factors * weights
        expected = np.tril((x * weights) @ x.T)
        assert np.allclose(np.tril(found((x * sizes) @ x.T, sizes, x)), expected, atol=1e-10)


@given(s=trees, seed=seeds)
def test_values_of_the_kernel_are_means_over_orders(s, seed):
    kind, x = drawn(s, seed), signs(all_masks(s.leaves))
    odd, even = (scaled(k, s, which, kind) for which, k in enumerate(literal(kind, x, x)))
    assert np.allclose(kind.values(x, s), weights_of(s, s.depth - 1) @ odd, atol=1e-8)
    for k, variance in enumerate(kind.variances(s)):
        w = weights_of(s, k)
        assert np.allclose(variance, np.diag(w @ odd @ w.T), atol=1e-8)
        assert np.allclose(w @ even, 0.0, atol=1e-8)
        assert np.allclose(w, membership(s, k) @ weights_of(s, s.depth - 1), atol=1e-12)


@given(s=trees, seed=seeds)
def test_variances_of_sums_of_leaves_without_parts(s, seed):
    kind, x = drawn(s, seed), signs(all_masks(s.leaves))
    odd = scaled(literal(kind, x, x)[0], s, 0, kind)
    each = weights_of(_flat(s.leaves), 0)
    for k in range(s.depth):
        sums = membership(s, k) @ each
        found = kind.sum_variances(s.owners(k), s.widths[k])
        assert np.allclose(found, np.diag(sums @ odd @ sums.T), atol=1e-8)


@functools.cache
def _flat(leaves):
    return c2fa.Structure.flat(leaves)


@given(s=trees, seed=seeds)
def test_interactions_of_pairs_are_means_over_orders(s, seed):
    kind, x = drawn(s, seed), signs(all_masks(s.leaves))
    odd, even = (scaled(k, s, which, kind) for which, k in enumerate(literal(kind, x, x)))
    for k in range(s.depth):
        pairs = siblings(s, k)
        if not len(pairs):
            continue
        w = np.stack([pair_weights(s, k, a, b) for a, b in pairs.tolist()])
        assert np.allclose(kind.pairs(x, s, k, pairs), w @ even, atol=1e-8)
        assert np.allclose(kind.pair_variances(s, k, pairs), np.diag(w @ even @ w.T), atol=1e-8)
        assert np.allclose(w @ odd, 0.0, atol=1e-8)


def siblings(s, level):
    """All pairs of a level's features that have one parent."""
    parents = s.parents[level - 1] if level else np.zeros(s.widths[0], dtype=int)
    pairs = [(a, b) for a, b in itertools.combinations(range(s.widths[level]), 2) if parents[a] == parents[b]]
    return np.array(pairs, dtype=np.intp).reshape(-1, 2)


def test_weights_go_with_sizes_and_stay_below_one():
    made = Interactions.of(1.5, np.array([1.0, 1.0, 2.0]))
    assert np.allclose(made.weights, [0.375, 0.375, 0.75])
    assert Interactions.of(6.0, np.array([1.0, 100.0])).weights.max() < 1.0


# -- games -----------------------------------------------------------------------------------------


def full_game(s, seed, kind="any", outputs=1):
    """Every output of a game, (2^leaves, outputs)."""
    rng, z = np.random.default_rng(seed), all_masks(s.leaves)
    beta, pair = rng.normal(size=(s.leaves, outputs)), rng.integers(s.leaves, size=2)
    total = z @ beta
    if kind == "additive":
        return 0.7 + total
    if kind == "pair":
        return total + 2.0 * (z[:, pair[0]] & z[:, pair[1]])[:, None]
    if kind == "saturating":
        return 1.0 / (1.0 + np.exp(-2.0 * (total - beta.sum(axis=0) / 2)))
    if kind == "hard":
        return (total > beta.sum(axis=0) / 3).astype(float)
    return rng.normal(size=(len(z), outputs))


KINDS = ["any", "additive", "pair", "saturating", "hard"]
kinds = st.sampled_from(KINDS)


def some_rows(s, seed, share, paired):
    """The places of some masks, the full and the empty one among them, with their complements or not."""
    rng, last = np.random.default_rng(seed), 2**s.leaves - 1
    places = [last, 0]
    for place in rng.permutation(np.arange(1, last)).tolist():
        if len(places) < 2 + share * (last - 1):
            places += [p for p in ((place, last - place) if paired else (place,)) if p not in places]
    return np.array(places)


def game_of(s, table, places, **options):
    return Game(s, all_masks(s.leaves)[places], table[places], **options)


@given(s=trees, seed=seeds, kind=kinds, paired=st.booleans())
def test_a_value_is_exact_where_all_its_masks_were_asked(s, seed, kind, paired):
    table = full_game(s, seed, kind, outputs=2)
    everything = game_of(s, table, np.arange(2**s.leaves)[::-1])
    less = game_of(s, table, some_rows(s, seed, 0.8, paired))
    for k, ((known, found), (all_known, all_found)) in enumerate(
        zip(exact_values(less), exact_values(everything), strict=True)
    ):
        w = weights_of(s, k)
        assert all_known.all()
        assert np.allclose(all_found, w @ table)
        for i in range(s.widths[k]):
            assert known[i] == all(mask in less.rows for mask in keys(s, np.flatnonzero(np.abs(w[i]) > 1e-12)))
            assert not known[i] or np.allclose(found[i], w[i] @ table)


def keys(s, places):
    return [np.packbits(mask).tobytes() for mask in all_masks(s.leaves)[places]]


@given(s=trees, seed=seeds, kind=kinds)
def test_all_masks_give_exact_values(s, seed, kind):
    table = full_game(s, seed, kind, outputs=2)
    found = solve_game(game_of(s, table, np.arange(2**s.leaves)[::-1]))
    assert all(level.all() for level in found.exact)
    for k in range(s.depth):
        assert np.allclose(found.values[k], weights_of(s, k) @ table)
        assert not found.stderr[k].any()
    assert found.exact_levels(s) == (True,) * s.depth


def covariance(process, x, other):
    """The prior covariance of the additive and the odd part, and of the even part, over any masks."""
    kinds, noises = process.interactions, process.scales.noises
    odd = (0.5 * x * process.scales.variances) @ (0.5 * other.T)
    s = process.game.structure
    even = np.zeros(odd.shape)
    for i, kind in enumerate(kinds):
        one, two = literal(kind, x, other)
        odd += noises[i] * scaled(one, s, 0, kind)
        even += (noises[len(kinds) + i] if process.observed.alone.any() else 1.0) * scaled(two, s, 1, kind)
    return odd, even


def conditioned(process):
    """The posterior of the leaves' values by Gauss, given half differences of pairs and the mean of other rows unknown.

    What even orders of rows without a complement have in common with those of pairs is left out, as the process does.
    """
    game, s, observed = process.game, process.game.structure, process.observed
    x, everything, alone = observed.x, signs(all_masks(s.leaves)), observed.alone[:, None]
    odd, even = covariance(process, x, x)
    noise = process.scales.noises[-1] if game.noisy else 0.0  # half a difference of two has half of it
    v = odd + even * (alone @ alone.T) + np.diag(1e-9 + noise * (0.5 + 0.5 * observed.alone))
    inverse = np.linalg.inv(v)
    if alone.any():
        inverse -= inverse @ alone @ alone.T @ inverse / (alone.T @ inverse @ alone)
    w = weights_of(s, s.depth - 1)
    across = w @ covariance(process, everything, x)[0]
    prior = w @ covariance(process, everything, everything)[0] @ w.T
    return across @ inverse @ observed.targets, prior - across @ inverse @ across.T


def test_pairs_of_rows_hold_no_more_than_half_their_differences():
    """Given rows and their complements as they are, even orders and all, the posterior is the same."""
    s = c2fa.Structure.from_groups("aaabbb")
    found = solve_game(game_of(s, full_game(s, 1, "mixed", outputs=1), some_rows(s, 1, 0.5, True)))
    process = found.likeliest
    x, y = signs(process.game.masks), (process.game.outputs - process.game.outputs[0]) / process.observed.unit
    odd, even = covariance(process, x, x)
    inverse, ones = np.linalg.inv(odd + even + 2e-9 * np.eye(len(x))), np.ones((len(x), 1))
    inverse -= inverse @ ones @ ones.T @ inverse / (ones.T @ inverse @ ones)
    across = weights_of(s, 1) @ covariance(process, signs(all_masks(s.leaves)), x)[0]
    assert np.allclose(process.leaves, across @ inverse @ y, atol=1e-4 * np.abs(process.leaves).max())


@settings(max_examples=60)
@given(s=trees, seed=seeds, kind=kinds, paired=st.booleans(), noisy=st.booleans())
def test_the_posterior_is_that_of_a_gaussian_given_the_rows(s, seed, kind, paired, noisy):
    table = full_game(s, seed, kind, outputs=2)
    found = solve_game(game_of(s, table, some_rows(s, seed, 0.5, paired), noisy=noisy))
    if found.likeliest is None:
        return
    process = found.likeliest
    means, variances = conditioned(process)
    size = np.abs(means).max() + np.abs(process.leaves).max()
    assert np.allclose(process.leaves, means, atol=1e-4 * size)
    for k in range(s.depth):
        m = membership(s, k)
        expected = np.diag(m @ variances @ m.T)[:, None] * process.sizes
        prior = (s.sums(process.scales.variances, k) + process.odd_variances(s, k))[:, None] * process.sizes
        assert np.allclose(process.variances(s, k), np.maximum(expected, 0.0), atol=1e-4 * prior.max() + 1e-12)


@given(seed=seeds, kind=kinds, paired=st.booleans(), leaves=st.integers(3, 5))
def test_values_without_parts_are_the_posterior_means(seed, kind, paired, leaves):
    s = _flat(leaves)
    found = solve_game(game_of(s, full_game(s, seed, kind), some_rows(s, seed, 0.5, paired)))
    if found.likeliest is None or found.exact[0].any():
        return
    means, variances = conditioned(found.likeliest)
    unit = found.likeliest.observed.unit
    assert np.allclose(found.values[0], means * unit, atol=1e-3 * unit)
    sure = np.sqrt(np.maximum(np.diag(variances) * found.likeliest.sizes[0], 0.0)) * unit
    assert (found.stderr[0][:, 0] >= sure - 1e-3 * unit).all()


@settings(max_examples=80)
@given(s=trees, seed=seeds, kind=kinds, paired=st.booleans(), share=st.sampled_from([0.0, 0.1, 0.4, 0.8]))
def test_everything_adds_up(s, seed, kind, paired, share):
    table = full_game(s, seed, kind, outputs=3)
    found = solve_game(game_of(s, table, some_rows(s, seed, share, paired), output=1))
    size = np.abs(table).max()
    assert np.allclose(found.base, table[0], atol=1e-9 * size)
    for k in range(s.depth):
        assert np.allclose(found.base + found.values[k].sum(axis=0), table[-1], rtol=0, atol=1e-9 * size)
        assert np.allclose(found.values[k], membership(s, k) @ found.values[-1], rtol=0, atol=1e-9 * size)
        assert np.isfinite(found.stderr[k]).all()
        assert (found.stderr[k] >= 0).all()
        assert (found.stderr[k][found.exact[k]] == 0).all()


@given(seed=seeds, tree=st.sampled_from(["aaabbbccc", "abcabcabb", "aaaaaaaaa"]), scale=st.sampled_from([1e-3, 1e6]))
def test_an_additive_model_is_found_from_few_more_rows_than_leaves(seed, tree, scale):
    s, rng = c2fa.Structure.from_groups(tree), np.random.default_rng(seed)
    beta = rng.normal(size=s.leaves) * scale
    rows = Apart()(rng, 4 * s.leaves, s, 1)  # half of them are complements
    ends = np.array([[True], [False]]).repeat(s.leaves, axis=1)
    masks = np.concatenate([ends, rows])
    assume(np.linalg.matrix_rank(signs(masks)) == s.leaves)
    found = solve_game(Game(s, masks, (3.0 * scale + masks @ beta)[:, None]))
    assert np.allclose(found.values[1][:, 0], beta, atol=2e-2 * np.abs(beta).max())
    assert found.stderr[1].max() < 0.2 * np.abs(beta).max()
    assert np.allclose(found.base, 3.0 * scale)


@given(s=trees, seed=seeds, level=st.sampled_from([0.0, 1.0, -1e6]))
def test_a_constant_has_no_values(s, seed, level):
    found = solve_game(game_of(s, np.full((2**s.leaves, 2), level), some_rows(s, seed, 0.5, False)))
    assert not any(v.any() for v in (*found.values, *found.stderr))
    assert (found.base == level).all()
    assert found.even is None
    assert [found.stderr_of(s, k).shape for k in range(s.depth)] == [(width, 2) for width in s.widths]


@given(s=trees, seed=seeds, kind=kinds, paired=st.booleans(), output=st.integers(0, 1))
def test_an_output_that_varies_has_values_beside_one_that_does_not(s, seed, kind, paired, output):
    table = full_game(s, seed, kind, outputs=2)
    table[:, output] = 5.0
    found = solve_game(game_of(s, table, some_rows(s, seed, 0.5, paired), output=output))
    for k in range(s.depth):
        assert np.allclose(found.base + found.values[k].sum(axis=0), table[-1])
        assert not found.values[k][:, output].any()
        assert not found.stderr[k][:, output].any()
    alone = solve_game(game_of(s, table[:, [1 - output]], some_rows(s, seed, 0.5, paired)))
    assert np.allclose(found.values[-1][:, 1 - output], alone.values[-1][:, 0], atol=1e-4)
    assert found.even is None
    assert not found.left_out.any()
    assert all((a == b).all() for a, b in zip(found.exact, alone.exact, strict=True))


@given(s=trees, seed=seeds, kind=kinds, paired=st.booleans(), scale=st.sampled_from([-2.0, 1e-6, 1e6]))
def test_values_go_with_the_scale_of_outputs_and_not_with_their_level(s, seed, kind, paired, scale):
    table, places = full_game(s, seed, kind), some_rows(s, seed, 0.5, paired)
    one, other = (solve_game(game_of(s, t, places)) for t in (table, scale * (table + 10.0)))
    size = abs(scale) * np.abs(table).max()
    assert np.allclose(other.base, scale * (one.base + 10.0), atol=1e-6 * size)
    for k in range(s.depth):
        assert np.allclose(other.values[k], scale * one.values[k], atol=1e-4 * size)
        assert np.allclose(other.stderr[k], abs(scale) * one.stderr[k], atol=1e-3 * size)


@given(s=trees, seed=seeds, kind=kinds, paired=st.booleans())
def test_an_output_that_is_there_twice_has_the_same_values_twice(s, seed, kind, paired):
    table, places = full_game(s, seed, kind), some_rows(s, seed, 0.5, paired)
    alone = solve_game(game_of(s, table, places))
    found = solve_game(game_of(s, np.concatenate([table, -3.0 * table], axis=1), places))
    for k in range(s.depth):
        assert np.allclose(found.values[k][:, 0], alone.values[k][:, 0], atol=1e-4)
        assert np.allclose(found.values[k][:, 1], -3.0 * alone.values[k][:, 0], atol=3e-4)
        assert np.allclose(found.stderr[k][:, 1], 3.0 * alone.stderr[k][:, 0], atol=1e-2)


@given(s=trees, seed=seeds, kind=kinds, paired=st.booleans(), noisy=st.booleans())
def test_the_order_of_rows_does_not_matter(s, seed, kind, paired, noisy):
    table, places = full_game(s, seed, kind), some_rows(s, seed, 0.5, paired)
    one, other = (solve_game(game_of(s, table, p, noisy=noisy)) for p in (places, places[::-1]))
    for k in range(s.depth):
        assert np.allclose(one.values[k], other.values[k], atol=1e-4)
    assert np.allclose(one.base, other.base, atol=1e-4)


@given(seed=seeds, kind=kinds, paired=st.booleans())
def test_renaming_leaves_renames_values(seed, kind, paired):
    """Which leaf is first, or beside which, says nothing."""
    rng, s = np.random.default_rng(seed), c2fa.Structure.from_groups("aaabbc")
    order = rng.permutation(s.leaves)
    moved = c2fa.Structure((s.parents[0][order],), s.names)
    game = game_of(s, full_game(s, seed, kind), some_rows(s, seed, 0.4, paired))
    one, other = solve_game(game), solve_game(Game(moved, game.masks[:, order], game.outputs))
    assert np.allclose(one.values[1][order], other.values[1], atol=1e-4)
    assert np.allclose(one.values[0], other.values[0], atol=1e-4)


@pytest.mark.parametrize("paired", [True, False])
def test_what_only_even_orders_do_is_not_taken_for_nothing(paired):
    """Of two leaves either one: neither has a value, and the two are found to act together."""
    s = c2fa.Structure.flat(8)
    z = all_masks(8)
    found = solve_game(game_of(s, (z[:, 2] ^ z[:, 5])[:, None].astype(float), some_rows(s, 0, 0.4, paired)))
    assert np.abs(found.values[0]).max() < 0.2
    assert found.stderr[0].max() > 0.0
    assert not found.exact[0].any()
    assert found.even is not None
    [(first, second, value, stderr)] = found.even.pairs(0, 1)
    assert (first, second) == (2, 5)
    assert value < (-5 if paired else -2) * stderr


def test_pairs_of_which_no_row_tells_are_left_out():
    """Where complements were asked of whole parts alone, what rounding leaves of leaves' products ranks no pair."""
    s, parts = c2fa.Structure.from_groups("aaabbbcccddd"), all_masks(4)
    masks = np.concatenate([s.expand(parts, 0), np.eye(s.leaves, dtype=bool)])
    outputs = np.tanh(masks @ np.random.default_rng(0).normal(size=s.leaves))[:, None]
    found = solve_game(Game(s, masks, outputs))
    assert found.even is not None
    assert len(found.even.pairs(0, 10)) == 6
    assert found.even.pairs(1, 10) == []


def test_noise_is_averaged_out():
    s, rng = c2fa.Structure.from_groups("aaabbbccc"), np.random.default_rng(3)
    beta = rng.normal(size=9)
    masks = np.unique(rng.random((260, 9)) < 0.5, axis=0)
    masks = np.concatenate([np.ones((1, 9), bool), np.zeros((1, 9), bool), masks])
    masks = masks[np.sort(np.unique(masks, axis=0, return_index=True)[1])]
    clear = solve_game(Game(s, masks, (masks @ beta)[:, None]))
    errors, errors_of_noiseless = [], []
    for _ in range(6):
        y = (masks @ beta + rng.normal(size=len(masks)))[:, None]
        noisy, fooled = (solve_game(Game(s, masks, y, noisy=said)) for said in (True, False))
        errors.append(np.square(noisy.values[1][:, 0] - beta).mean())
        errors_of_noiseless.append(np.square(fooled.values[1][:, 0] - beta).mean())
        assert noisy.stderr[1].min() > 10 * clear.stderr[1].max()
        assert np.mean(np.abs(noisy.values[1][:, 0] - beta) <= 3 * noisy.stderr[1][:, 0]) > 0.8
    assert np.mean(errors) < 0.06
    assert np.mean(errors) < np.mean(errors_of_noiseless)
    assert np.allclose(clear.values[1][:, 0], beta, atol=1e-3)


@pytest.mark.parametrize("paired", [True, False])
def test_rows_left_out_are_missed_by_as_much_as_without_them(paired):
    """Against fits of all rows but one (and its complement), the scales as they are."""
    s = c2fa.Structure.from_groups("aabbb")
    rows = some_rows(s, 1, 0.6, paired)
    if not paired:  # none with its complement, but the input itself, whose number is the last
        whole = 2**s.leaves - 1
        rows = np.array([whole, *(row for row in rows if 0 < row < 2 ** (s.leaves - 1))])
    game = game_of(s, full_game(s, 5), rows)
    found = solve_game(game)
    process = found.likeliest
    x, y = signs(game.masks), game.outputs[:, 0]
    odd, even = covariance(process, x, x)
    if paired:
        kind = found.even.interactions
        even = found.even.unit**2 * scaled(literal(kind, x, x)[1], s, 1, kind) / process.observed.unit**2
    v = odd + even + 1e-9 * np.eye(len(x))
    close = 1e-4 * np.abs(y).max()
    for i in range(len(x)):
        out = [i, *(np.flatnonzero((game.masks == ~game.masks[i]).all(axis=1)) if paired else ())]
        kept = np.setdiff1d(np.arange(len(x)), out)
        inverse, ones = np.linalg.inv(v[np.ix_(kept, kept)]), np.ones(len(kept))
        mean = ones @ inverse @ y[kept] / (ones @ inverse @ ones)
        predicted = mean + v[i, kept] @ inverse @ (y[kept] - mean)
        assert found.left_out[i] == pytest.approx(y[i] - predicted, abs=close)
    total = np.square(y - y.mean()).sum()
    assert found.r2_left_out == pytest.approx(1 - np.square(found.left_out).sum() / total)


@given(s=trees, seed=seeds, kind=kinds, paired=st.booleans(), noisy=st.booleans())
def test_correlations_are_correlations(s, seed, kind, paired, noisy):
    found = solve_game(game_of(s, full_game(s, seed, kind), some_rows(s, seed, 0.4, paired), noisy=noisy))
    flat = solve_game(game_of(_flat(s.leaves), full_game(s, seed, kind), some_rows(s, seed, 0.4, paired), noisy=noisy))
    for solved, k in itertools.product((found, flat), range(s.depth)):
        correlation = solved.correlation(s, k, np.arange(s.widths[k]))
        assert np.allclose(correlation, correlation.T)
        assert (np.abs(correlation) <= 1 + 1e-9).all()
        assert np.linalg.eigvalsh(correlation).min() > -1e-9
        assert np.all(np.isclose(np.diag(correlation), 1.0) | (np.diag(correlation) == 0.0))


# -- what is expected beforehand -------------------------------------------------------------------


def expected_game(seed, noise):
    s, rng = c2fa.Structure.from_groups(np.repeat(range(6), 10).tolist()), np.random.default_rng(seed)
    beta = rng.normal(size=60) * (rng.random(60) < 0.4)
    rows = Apart()(rng, 40, s, 1)
    masks = np.concatenate([np.ones((1, 60), bool), np.zeros((1, 60), bool), rows])
    expectation = Expectation((beta + noise * rng.normal(size=60))[:, None], np.ones((60, 1)))
    return Game(s, masks, np.tanh((masks @ beta) / 3.0)[:, None]), expectation, beta


@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_evidence_compares_processes_of_other_tails(scale):
    """Rows with and without an additive part that is known: the likelier the less is left, whatever the tails are."""
    for seed in range(5):
        game, _, beta = expected_game(seed, 0.0)
        additive = Game(game.structure, game.masks, scale * (game.masks @ beta)[:, None])
        heights = [solve_game(additive.less(t * scale * beta[:, None])).log_evidence for t in (0.0, 0.3, 0.6, 0.9)]
        rows = solve_game(
            additive
        ).likeliest.observed.free  # a game that is k times as large is less likely by a factor k for each row
        assert np.allclose(np.diff(heights), -rows * np.diff(np.log([1.0, 0.7, 0.4, 0.1])), atol=1.0)


@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_what_is_expected_and_right_makes_values_better(noise):
    better = []
    for seed in range(5):
        game, expectation, beta = expected_game(seed, noise)
        about = solve_game_about(game, expectation)
        found, share, without = about.solution, about.share, about.without
        correlations = [np.corrcoef(v.values[1][:, 0], beta)[0, 1] for v in (found, without)]
        better.append(correlations[0] - correlations[1])
        assert 0.0 < share < 1.0
        for k in (0, 1):
            assert np.allclose(found.base + found.values[k].sum(axis=0), game.outputs[0])
            assert np.allclose(found.values[k], game.structure.sums(found.values[1], k))
            assert np.isfinite(found.stderr[k]).all()
    assert np.mean(better) > 0.03


def test_what_is_expected_and_wrong_changes_little():
    for seed in range(5):
        game, expectation, beta = expected_game(seed, 0.0)
        rng = np.random.default_rng(seed + 100)
        wrong = Expectation(rng.permutation(expectation.effects), expectation.sizes)
        about = solve_game_about(game, wrong)
        one, other = (np.corrcoef(v.values[1][:, 0], beta)[0, 1] for v in (about.solution, about.without))
        assert one > other - 0.1


def test_nothing_is_expected_of_a_constant():
    game, expectation, _ = expected_game(0, 0.0)
    constant = Game(game.structure, game.masks, np.ones_like(game.outputs))
    about = solve_game_about(constant, expectation)
    assert about.share == 0.0
    assert about.solution is about.without
    assert not about.solution.values[1].any()

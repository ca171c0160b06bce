"""Winter values by a Gaussian process over leaf masks, against orders, masks and covariances written out in full."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import c2fa
from c2fa.samplers import Apart
from c2fa.solvers.expected import Expectation, solve_game_about
from c2fa.solvers.interactions import Interactions
from c2fa.solvers.process import Game, exact_value, solve_game
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
    assert np.allclose(kind.odd(x, x), scaled(odd, s, 0, kind), atol=1e-8)
    assert np.allclose(kind.even(x, x), scaled(even, s, 1, kind), atol=1e-8)


@given(s=trees, seed=seeds)
def test_values_of_the_kernel_are_means_over_orders(s, seed):
    kind, x = drawn(s, seed), signs(all_masks(s.leaves))
    odd, even = (scaled(k, s, which, kind) for which, k in enumerate(literal(kind, x, x)))
    assert np.allclose(kind.values(x, s), (weights_of(s, s.depth - 1) @ odd).T, atol=1e-8)
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
        assert np.allclose(kind.pairs(x, s, k, pairs), (w @ even).T, atol=1e-8)
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
    for k in range(s.depth):
        w = weights_of(s, k)
        for i in range(s.widths[k]):
            assert np.allclose(exact_value(everything, k, i), w[i] @ table)
            known = all(mask in less.rows for mask in keys(s, np.flatnonzero(np.abs(w[i]) > 1e-12)))
            found = exact_value(less, k, i)
            assert (found is not None) == known
            assert found is None or np.allclose(found, w[i] @ table)


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
        even += (1.0 if process.observed.paired else noises[len(kinds) + i]) * scaled(two, s, 1, kind)
    return odd, even


def conditioned(process):
    """The posterior of the leaves' values by Gauss, given all rows as they are, the mean of all masks unknown."""
    game, s = process.game, process.game.structure
    x, everything = signs(game.masks), signs(all_masks(s.leaves))
    odd, even = covariance(process, x, x)
    # A model's noise and rounding are of each row; half a difference of two has half as much of the noise.
    rounding = 2e-9 if process.observed.paired else 1e-9
    v = odd + even + (rounding + (process.scales.noises[-1] if game.noisy else 0.0)) * np.eye(len(x))
    inverse, ones = np.linalg.inv(v), np.ones((len(x), 1))
    inverse -= inverse @ ones @ ones.T @ inverse / (ones.T @ inverse @ ones)
    w = weights_of(s, s.depth - 1)
    across = w @ covariance(process, everything, x)[0]
    prior = w @ covariance(process, everything, everything)[0] @ w.T
    y = (game.outputs - game.outputs[0]) / process.observed.unit
    return across @ inverse @ y, prior - across @ inverse @ across.T


@settings(max_examples=60)
@given(s=trees, seed=seeds, kind=kinds, paired=st.booleans(), noisy=st.booleans())
def test_the_posterior_is_that_of_a_gaussian_given_the_rows(s, seed, kind, paired, noisy):
    table = full_game(s, seed, kind, outputs=2)
    found = solve_game(game_of(s, table, some_rows(s, seed, 0.5, paired), noisy=noisy))
    if found.likeliest is None:
        return
    process = found.likeliest
    assert process.observed.paired == (process.game.complements is not None)
    means, variances = conditioned(process)
    size = np.abs(means).max() + np.abs(process.leaves).max()
    assert np.allclose(process.leaves, means, atol=1e-4 * size)
    for k in range(s.depth):
        m = membership(s, k)
        expected = np.diag(m @ variances @ m.T)[:, None] * process.sizes
        prior = (s.sums(process.scales.variances, k) + process.odd_variances[k])[:, None] * process.sizes
        assert np.allclose(process.variances(k), np.maximum(expected, 0.0), atol=1e-4 * prior.max() + 1e-12)


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

"""Samplers: what each promises of its masks, at every number of rows."""

from __future__ import annotations

import functools
import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import c2fa
from c2fa import samplers
from c2fa.asking.fingerprint import fingerprint
from c2fa.masks import distinct, up_to
from c2fa.methods.compared import inclusion_weights
from c2fa.samplers import SAMPLERS, Exhaustive, Planned, draw, ensure
from strategies import structures


def first_or_the_others(rng, n, structure, level):
    """A sampler of a user's own, which looks at the structure: of each part the first feature, or all others."""
    parent = structure.parents[level - 1] if level else np.zeros(structure.widths[0], dtype=int)
    first = np.unique(parent, return_index=True)[1]
    turn = rng.random((n, int(parent.max()) + 1)) < 0.5
    return turn[:, parent] ^ np.isin(np.arange(len(parent)), first)


def seldom_on(rng, n, structure, level):
    return rng.random((n, structure.widths[level])) < 0.05


def mostly_on(rng, n, width, share=0.8):
    return rng.random((n, width)) < share


EVERY = {
    **SAMPLERS,
    "planned for more": Planned(few=2),
    "a plain function": mostly_on,
    "a sampler of one's own": first_or_the_others,
}
DEEP = c2fa.Structure.from_tree({"A": {"A1": ["x", "q"], "A2": ["y"]}, "B": {"B1": ["w", "v", "u"], "B2": ["t"]}})
SCATTERED = c2fa.Structure.from_groups("abcabcabccdd")


def rng(seed=0):
    return np.random.default_rng(seed)


def masks_of(sampler, n, width, seed=0):
    return sampler(rng(seed), n, c2fa.Structure.flat(width), 0)


def milli(width):
    return samplers.milli(inclusion_weights(np.arange(width), 0.3, -1.0))


# ---------------------------------------------------------------------------------------------- what holds for all


@pytest.mark.parametrize("name", [*EVERY, "milli"])
@given(structures(depths=(1, 2, 3)), st.integers(0, 40), st.integers(1, 40), st.integers(0, 3), st.booleans())
@settings(max_examples=25)
def test_more_rows_begin_with_the_fewer(name, s, few, more, seed, empty):
    for level in range(s.depth):
        sampler = milli(s.widths[level]) if name == "milli" else ensure(EVERY[name])
        small = draw(sampler, rng(seed), few, s, level, empty)
        large = draw(sampler, rng(seed), few + more, s, level, empty)
        assert small.dtype == np.bool_
        assert small.shape[1] == s.widths[level]
        assert len(small) <= few
        assert len(large) >= len(small)
        np.testing.assert_array_equal(large[: len(small)], small)
        if len(small) < few:  # nothing is left to ask
            assert len(large) == len(small)
            if name != "apart":  # which has a test of its own
                assert len({row.tobytes() for row in small}) == 2 ** s.widths[level] - (not empty)
        assert empty or small.any(axis=1).all()


@given(structures(depths=(1, 2, 3), most_leaves=6), st.integers(0, 3))
@settings(max_examples=40)
def test_apart_ends_when_all_rows_that_values_are_means_over_were_asked(s, seed):
    """Of parts, and of leaves without any, all but the full and the empty mask; of leaves, one part taken apart."""
    for level, width in enumerate(s.widths):
        masks = ensure("apart")(rng(seed), 200, s, level)
        found = {row.tobytes() for row in masks}
        assert len(found) == len(masks) < 200
        assert found == {row.tobytes() for row in ~masks}
        every = np.array(list(itertools.product([False, True], repeat=width)))[1:-1].reshape(-1, width)
        if level < s.depth - 1 or s.depth == 1 or s.widths[-2] in (1, width):
            assert found == {row.tobytes() for row in every}
            continue
        for row in every:
            for leaf in range(width):
                beside = []  # features beside an ancestor of the leaf, or beside none
                for k in range(level):
                    at, above = s.owners(k), s.owners(k - 1) if k else np.zeros(width)
                    beside += [at == j for j in set(at[above == above[leaf]]) - {at[leaf]}]
                own = row[s.owners(-2) == s.owners(-2)[leaf]]
                if own.any() and not own.all() and all(row[some].all() or not row[some].any() for some in beside):
                    assert row.tobytes() in found


@pytest.mark.parametrize("name", EVERY)
@given(structures(depths=(1, 2)), st.integers(0, 60), st.integers(0, 3))
@settings(max_examples=15)
def test_leaving_out_the_empty_mask_changes_no_other(name, s, n, seed):
    sampler = ensure(EVERY[name])
    for level in range(s.depth):
        if s.widths[level] == 1:
            continue
        without = draw(sampler, rng(seed), n, s, level, False)
        whole = draw(sampler, rng(seed), 8 * n + 64, s, level)
        np.testing.assert_array_equal(without, whole[whole.any(axis=1)][: len(without)])


def test_the_empty_mask_is_left_out_where_it_is_not_allowed():
    three = c2fa.Structure.flat(3)
    assert len(draw(Exhaustive(), rng(), 50, three, 0, False)) == 7
    kept = draw(seldom_on, rng(), 200, three, 0, False)
    assert len(kept) == 200
    assert kept.any(axis=1).all()
    assert draw(seldom_on, rng(), 4, c2fa.Structure.flat(1), 0, False).all()

    def nothing(rng, n, structure, level):
        return np.zeros((n, structure.widths[level]), dtype=bool)

    with pytest.raises(ValueError, match=r"nearly every mask of .* is empty, and this input cannot be"):
        draw(nothing, rng(), 5, three, 0, False)
    with pytest.raises(ValueError, match=r"only 0 of 5 masks could be drawn: nearly every draw was empty or full"):
        draw(ensure(lambda rng, n, width: np.zeros((n, width), dtype=bool)), rng(), 5, three, 0, False)


@given(st.integers(1, 5), st.integers(1, 60), st.integers(0, 3))
def test_distinct_counts_what_was_drawn(width, n, seed):
    masks = masks_of(samplers.uniform, n, width, seed)
    rows, counts = distinct(masks)
    assert counts.sum() == n
    assert len({tuple(r) for r in rows}) == len(rows) <= 2**width
    for row, count in zip(rows, counts, strict=True):
        assert (masks == row).all(axis=1).sum() == count


# ---------------------------------------------------------------------------------------------------- the one door


def test_samplers_are_found_by_name_or_given():
    assert ensure("exhaustive") == Exhaustive()
    assert ensure(Planned(3)) == Planned(3)
    assert ensure(first_or_the_others) is first_or_the_others
    for refused in ("best", 3, ["planned"]):
        with pytest.raises(ValueError, match=r"sampler must be a function or one of \['apart', 'exhaustive', .* got "):
            ensure(refused)
    with pytest.raises(TypeError, match=r"sampler must be a value such as Planned\(\), not the class itself"):
        ensure(Planned)


class WithWidth:
    def __call__(self, rng, n, width):
        return mostly_on(rng, n, width)


class WithStructure:
    def __call__(self, rng, n, structure, level):
        return mostly_on(rng, n, structure.widths[level])


@pytest.mark.parametrize(
    "sampler",
    [
        mostly_on,
        lambda rng, n, width: mostly_on(rng, n, width),
        lambda rng, n, width, *, share=0.8: mostly_on(rng, n, width, share),
        functools.partial(mostly_on, share=0.8),
        WithWidth(),
        WithWidth().__call__,
        WithStructure(),
        lambda rng, n, structure, level: mostly_on(rng, n, structure.widths[level]),
        lambda *given: mostly_on(given[0], given[1], given[2].widths[given[3]]),
    ],
)
def test_a_plain_function_is_told_by_its_signature(sampler):
    found = ensure(sampler)
    np.testing.assert_array_equal(found(rng(), 9, SCATTERED, 0), mostly_on(rng(), 9, 4))
    np.testing.assert_array_equal(found(rng(), 9, SCATTERED, 1), mostly_on(rng(), 9, 12))
    assert ensure(found) is found  # adapted once


@pytest.mark.parametrize(
    "sampler",
    [
        lambda rng, n: None,
        lambda rng, n, structure, level, other: None,
        lambda rng, n, width, *, share: None,
        lambda: None,
    ],
)
def test_a_function_of_something_else_is_refused_before_anything_is_asked(sampler):
    with pytest.raises(
        TypeError, match=r"takes \(rng, n, structure, level\) or \(rng, n, width\); <lambda> takes \(.*\)"
    ):
        c2fa.Explainer(lambda batch: 1 / 0, c2fa.maskers.Array(SCATTERED), sampler=sampler)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Planned(few=20), "few must be from 0 to 16"),
        (lambda: samplers.milli(np.zeros(2))(rng(), 5, c2fa.Structure.flat(3), 0), "2 inclusion chances for masks of"),
    ],
)
def test_a_sampler_that_cannot_be_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("masks", "message"),
    [
        (lambda rng, n, width: rng.random((n, width)), "must hold only 0 and 1"),
        (lambda rng, n, width: np.ones((n, width + 1)), r"must have shape \(n, 5\), one column for each feature"),
        (lambda rng, n, width: None, "must have shape"),
    ],
)
@pytest.mark.parametrize("allows_empty", [True, False])
def test_what_a_function_draws_is_checked(masks, message, allows_empty):
    with pytest.raises(ValueError, match=message):
        samplers.draw(samplers.ensure(masks), rng(), 4, c2fa.Structure.flat(5), 0, allows_empty)
    zeros_and_ones = samplers.ensure(lambda rng, n, width: [[1, 0, 1, 1, 0]] * n)
    assert samplers.draw(zeros_and_ones, rng(), 4, c2fa.Structure.flat(5), 0, allows_empty).dtype == np.bool_


def test_samplers_survive_pickling_and_have_names_of_their_own():
    for sampler in EVERY.values():
        found = pickle.loads(pickle.dumps(ensure(sampler)))
        np.testing.assert_array_equal(found(rng(), 9, DEEP, 1), ensure(sampler)(rng(), 9, DEEP, 1))
    assert fingerprint(Planned(3)) != fingerprint(Planned(4))


# --------------------------------------------------------------------------------------------------- row after row


def test_uniform_is_a_fair_coin_that_keeps_empty_and_full():
    codes = np.bincount(masks_of(samplers.uniform, 8000, 3) @ [1, 2, 4], minlength=8)
    assert codes.min() > 850
    assert codes.max() < 1150


def test_paired_rows_are_complements():
    masks = masks_of(samplers.paired, 11, 5)
    np.testing.assert_array_equal(masks[:10:2], ~masks[1:10:2])


@pytest.mark.parametrize(
    ("alpha", "beta", "expected"),
    [  # the facts' table for five instances, to its two or three digits
        (0.05, 0.01, [0.05, 0.28, 0.51, 0.73, 0.95]),
        (0.05, -0.01, [0.05, 0.27, 0.49, 0.72, 0.95]),
        (0.3, -1.0, [0.30, 0.305, 0.327, 0.41, 0.70]),
        (0.008, -5.0, [0.008, 0.008, 0.008, 0.013, 0.992]),
    ],
)
def test_milli_inclusion_curve(alpha, beta, expected):
    np.testing.assert_allclose(inclusion_weights(np.arange(5), alpha, beta), expected, atol=0.006)


def test_milli_never_draws_empty_or_full_and_never_loops_for_ever():
    masks = masks_of(samplers.milli(np.full(3, 0.5)), 200, 3)
    assert masks.any(axis=1).all()
    assert not masks.all(axis=1).any()
    assert len(distinct(masks)[0]) == 6
    assert masks_of(samplers.milli(np.array([0.5])), 4, 1).all()
    with pytest.raises(ValueError, match="nearly every draw was empty or full"):
        masks_of(samplers.milli(np.zeros(3)), 5, 3)


# ------------------------------------------------------------------------------------------------ planned together


@given(st.integers(1, 8), st.integers(1, 300), st.integers(0, 3))
def test_exhaustive_never_asks_twice_and_asks_everything(width, n, seed):
    masks = masks_of(Exhaustive(), n, width, seed)
    assert len(masks) == min(n, 2**width)
    assert len({tuple(row) for row in masks}) == len(masks)
    if n >= 2**width:
        assert {tuple(row) for row in masks.tolist()} == set(itertools.product([False, True], repeat=width))
        assert masks[-1].all()
    else:
        assert not masks.all(axis=1).any()


@pytest.mark.parametrize("width", [17, 40, 300])
def test_exhaustive_masks_of_wide_levels_differ_too(width):
    masks = masks_of(Exhaustive(), 700, width)
    assert len({row.tobytes() for row in masks}) == len(masks) == 700


def test_exhaustive_masks_come_in_no_fixed_order():
    first = [tuple(masks_of(Exhaustive(), 1, 4, seed)[0]) for seed in range(400)]
    assert len(set(first)) == 15  # all but the full one
    counts = np.unique([str(row) for row in first], return_counts=True)[1]
    assert counts.min() > 10


def paley_order(width):
    """One more than the first prime of the form 4k + 3 that is no less than the width, by trying all divisors."""
    q = max(3, width)
    while q % 4 != 3 or any(q % d == 0 for d in range(2, q)):
        q += 1
    return q + 1


def balanced(n, width, seed=0):
    """The blocks that ``Planned`` takes its rows from, repeats and the full mask among them."""
    return np.concatenate(list(up_to(n, c2fa.masks.balanced(rng(seed), width))))


@given(st.integers(1, 70), st.integers(0, 3), st.integers(1, 3))
@settings(max_examples=60)
def test_balanced_blocks_are_orthogonal(width, seed, blocks):
    size = 2 * paley_order(width)
    masks = balanced(blocks * size, width, seed)
    for block in masks.reshape(blocks, size, width):
        signs = 2 * block.astype(int) - 1
        np.testing.assert_array_equal(signs.sum(axis=0), 0)
        np.testing.assert_array_equal(signs.T @ signs, size * np.eye(width))
        for i, j, k in itertools.combinations(range(min(width, 6)), 3):
            assert (signs[:, i] * signs[:, j] * signs[:, k]).sum() == 0  # no product of two looks like a third
        np.testing.assert_array_equal(block[: size // 2], ~block[size // 2 :])
        np.testing.assert_array_equal(signs[: size // 2].T @ signs[: size // 2], size // 2 * np.eye(width))


def test_part_of_a_balanced_block_is_less_correlated_than_coins():
    def correlation(sampler):
        signs = 2.0 * np.stack([masks_of(sampler, 90, 100, seed) for seed in range(20)]) - 1
        gram = np.swapaxes(signs, 1, 2) @ signs / 90
        return np.square(gram[:, ~np.eye(100, dtype=bool)]).mean()

    assert correlation(samplers.uniform) == pytest.approx(1 / 90, rel=0.02)
    # 90 rows drawn without replacement out of a block of 104
    assert correlation(Planned()) == pytest.approx(1 / 90 * (104 - 90) / 103, rel=0.05)


def test_planned_is_balanced_blocks_without_repeats_and_ends_with_every_mask():
    for width in range(1, 9):
        masks = masks_of(Planned(), 1000, width, 2)
        assert len({row.tobytes() for row in masks}) == len(masks) == 2**width
        assert masks[-1].all()
        blocks = [tuple(row) for row in balanced(6 * paley_order(width), width, 2).tolist()]
        different = [row for row in dict.fromkeys(blocks) if not all(row)]
        assert [tuple(row) for row in masks[: len(different)].tolist()] == different
    np.testing.assert_array_equal(masks_of(Planned(), 70, 20, 2), balanced(70, 20, 2))


def test_a_wide_level_costs_no_more_than_its_rows():
    assert masks_of(Planned(), 20, 100_000).shape == (20, 100_000)
    assert masks_of(Exhaustive(), 20, 100_000).shape == (20, 100_000)


# ------------------------------------------------------------------------------------------------ in an explanation


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("structure", [SCATTERED, DEEP, c2fa.Structure.flat(6), c2fa.Structure.from_groups("a")])
def test_every_sampler_explains_within_its_budget(name, structure):
    w = rng(1).normal(size=structure.leaves)
    for budget in (60, (2, 3, 4)[: structure.depth]):
        explainer = c2fa.Explainer(
            lambda batch: np.tanh(batch @ w), c2fa.maskers.Array(structure), budget=budget, sampler=EVERY[name]
        )
        e = explainer(np.ones(structure.leaves))
        assert e.queries <= (budget if isinstance(budget, int) else sum(budget))
        np.testing.assert_array_equal(e.low, explainer(np.ones(structure.leaves)).low)


def test_a_sampler_with_options_is_named_in_the_provenance():
    e = c2fa.Explainer(lambda batch: batch.sum(axis=1), c2fa.maskers.Array(SCATTERED), sampler=Planned(3))(np.ones(12))
    assert "Planned(few=3)" in e.provenance["settings"]


def test_every_level_may_have_a_sampler_of_its_own():
    asked = []

    def model(batch):
        asked.append(batch.copy())
        return batch.sum(axis=1)

    s = c2fa.Structure.from_groups(np.repeat(np.arange(4), 5))
    samplers = ("exhaustive", "uniform")
    c2fa.Explainer(model, c2fa.maskers.Array(s), method="c2fa", budget=(16, 40), sampler=samplers)(np.ones(20))
    rows = np.concatenate(asked)
    whole = [row for row in rows if set(s.sums(row, 0).tolist()) <= {0.0, 5.0}]
    assert len(whole) == 16  # all masks of four parts, the prediction among them


class Modest:
    def __call__(self, rng, n, structure, level):
        return samplers.uniform(rng, n, structure, level)

    def preferred_rows(self, width):
        return width if width < 8 else None


@pytest.mark.parametrize("method", ["c2fa", "lime", "bu-lime"])
def test_a_budget_in_one_number_gives_parts_the_rows_that_their_sampler_prefers(method):
    def split(structure, budget=200, sampler="planned"):
        made = c2fa.Explainer(len, c2fa.maskers.Array(structure), method=method, budget=budget, sampler=sampler)
        return made.rows(made.masker(np.ones(structure.leaves)))

    five, eight = (c2fa.Structure.from_groups(np.repeat(np.arange(parts), 20)) for parts in (5, 8))
    assert split(five) == split(five, sampler=("exhaustive", "planned")) == (31, 168)
    assert split(five, sampler="uniform") == (20, 179)
    assert split(c2fa.Structure.from_groups("a"), sampler="uniform") == (2, 197)
    assert split(five, 100) == (24, 75)
    assert split(five, 3) == (1, 1)
    assert split(eight) == (48, 151)
    assert split(five, 50) == (12, 37)
    assert split(eight, 50) == (16, 33)  # two a part, up to a third
    assert split(five, sampler=Modest()) == (5, 194)
    assert split(eight, sampler=Modest()) == (32, 167)
    milli = c2fa.Explainer(len, c2fa.maskers.Array(five), method="milli", budget=200, sampler="planned")
    assert milli.rows(milli.masker(np.ones(five.leaves))) == (20, 179)

"""Designs: what each promises of its masks, at every number of rows."""

from __future__ import annotations

import copy
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import c2fa
from c2fa import designs, sampling
from c2fa.designs import DESIGNS, Balanced, Exhaustive, Focused, Halves, Nested, Stratified, draw
from c2fa.methods.base import as_sampler
from strategies import structures

EVERY = {
    **DESIGNS,
    **sampling.SAMPLERS,
    "exhaustive in pairs": Exhaustive("paired"),
    "exhaustive by size": Exhaustive("size"),
    "balanced pairs": Balanced("each"),
    "planned for more": designs.Planned(few=2),
    "stratified singles": Stratified("even", paired=False),
    "two in focus": Focused(2, "on"),
    "half in focus": Focused(0.5, "off"),
    "keep 0.9": sampling.Keep(0.9),
}
DEEP = c2fa.Structure.from_tree({"A": {"A1": ["x", "q"], "A2": ["y"]}, "B": {"B1": ["w", "v", "u"], "B2": ["t"]}})
SCATTERED = c2fa.Structure.from_groups("abcabcabccdd")


def rng(seed=0):
    return np.random.default_rng(seed)


@pytest.mark.parametrize("name", EVERY)
@given(structures(depths=(1, 2, 3)), st.integers(0, 40), st.integers(1, 40), st.integers(0, 3), st.booleans())
@settings(max_examples=25)
def test_more_rows_begin_with_the_fewer(name, s, few, more, seed, empty):
    for level in range(s.depth):
        small = draw(EVERY[name], rng(seed), few, s, level, empty)
        large = draw(EVERY[name], rng(seed), few + more, s, level, empty)
        assert small.dtype == np.bool_
        assert small.shape[1] == s.widths[level]
        assert len(small) <= few
        assert len(large) >= len(small)
        np.testing.assert_array_equal(large[: len(small)], small)
        if len(small) < few:  # nothing is left to ask
            assert len(large) == len(small)
            assert len({row.tobytes() for row in small}) == 2 ** s.widths[level] - (not empty)
        assert empty or small.any(axis=1).all()


def test_plain_samplers_draw_the_masks_they_always_drew():
    for sampler in sampling.SAMPLERS.values():
        np.testing.assert_array_equal(draw(sampler, rng(), 30, SCATTERED, 1), sampler(rng(), 30, 12))
        np.testing.assert_array_equal(
            draw(sampler, rng(), 30, SCATTERED, 0, False), sampling.non_empty(sampler)(rng(), 30, 4)
        )


@pytest.mark.parametrize("order", ["paired", "random", "size"])
@given(st.integers(1, 8), st.integers(1, 300), st.integers(0, 3))
def test_exhaustive_never_asks_twice_and_asks_everything(order, width, n, seed):
    masks = Exhaustive(order)(rng(seed), n, width)
    assert len(masks) == min(n, 2**width)
    assert len({tuple(row) for row in masks}) == len(masks)
    if n >= 2**width:
        assert {tuple(row) for row in masks.tolist()} == set(itertools.product([False, True], repeat=width))
        assert masks[-1].all()
    else:
        assert not masks.all(axis=1).any()


@pytest.mark.parametrize("width", [5, 17, 40, 300])
@pytest.mark.parametrize("n", [30, 31, 700])
def test_exhaustive_orders_hold_for_wide_levels_too(width, n):
    if n > 2**width:
        n = 2**width - 2
    masks = Exhaustive("paired")(rng(), n, width)
    assert len({row.tobytes() for row in masks}) == len(masks) == n
    np.testing.assert_array_equal(masks[: n // 2 * 2 : 2], ~masks[1::2])
    singles = Exhaustive("random")(rng(), n, width)
    assert len({row.tobytes() for row in singles}) == len(singles) == n
    sizes = Exhaustive("size")(rng(), n, width)
    assert len({row.tobytes() for row in sizes}) == len(sizes) == n
    hidden = (~sizes).sum(axis=1)
    assert (np.diff(hidden) >= 0).all()
    for hide in range(1, hidden[-1]):  # every size is complete before the next begins
        assert (hidden == hide).sum() == math.comb(width, hide)


def test_exhaustive_masks_come_in_no_fixed_order():
    first = [tuple(Exhaustive()(rng(seed), 1, 4)[0]) for seed in range(400)]
    assert len(set(first)) == 15  # all but the full one
    counts = np.unique([str(row) for row in first], return_counts=True)[1]
    assert counts.min() > 10


def paley_order(width):
    """One more than the first prime of the form 4k + 3 that is no less than the width, by trying all divisors."""
    q = max(3, width)
    while q % 4 != 3 or any(q % d == 0 for d in range(2, q)):
        q += 1
    return q + 1


@pytest.mark.parametrize("complements", ["never", "after", "each"])
@given(st.integers(1, 70), st.integers(0, 3), st.integers(1, 3))
@settings(max_examples=30)
def test_balanced_blocks_are_orthogonal(complements, width, seed, blocks):
    size = paley_order(width) * (1 if complements == "never" else 2)
    masks = Balanced(complements)(rng(seed), blocks * size, width)
    for block in masks.reshape(blocks, size, width):
        signs = 2 * block.astype(int) - 1
        np.testing.assert_array_equal(signs.sum(axis=0), 0)
        np.testing.assert_array_equal(signs.T @ signs, size * np.eye(width))
        if complements != "never":  # and no product of two features looks like a third
            for i, j, k in itertools.combinations(range(min(width, 6)), 3):
                assert (signs[:, i] * signs[:, j] * signs[:, k]).sum() == 0
        if complements == "after":
            np.testing.assert_array_equal(block[: size // 2], ~block[size // 2 :])
            np.testing.assert_array_equal(signs[: size // 2].T @ signs[: size // 2], size // 2 * np.eye(width))
    if complements == "each":
        np.testing.assert_array_equal(masks[::2], ~masks[1::2])


def test_part_of_a_balanced_block_is_less_correlated_than_coins():
    def correlation(sampler):
        signs = 2.0 * np.stack([sampler(rng(seed), 90, 100) for seed in range(20)]) - 1
        gram = np.swapaxes(signs, 1, 2) @ signs / 90
        return np.square(gram[:, ~np.eye(100, dtype=bool)]).mean()

    assert correlation(sampling.uniform) == pytest.approx(1 / 90, rel=0.02)
    # 90 rows drawn without replacement out of a block of 104
    assert correlation(Balanced()) == pytest.approx(1 / 90 * (104 - 90) / 103, rel=0.05)


@pytest.mark.parametrize("mass", ["even", "shapley"])
@pytest.mark.parametrize("width", [1, 2, 9])
def test_stratified_sizes_are_spread_as_their_mass_says(mass, width):
    singles = Stratified(mass, paired=False)(rng(), 600, width)
    size = np.arange(1, width) if width > 1 else np.array([0])
    share = 1 / (size * (width - size)) if mass == "shapley" and width > 1 else np.ones(len(size))
    expected = 600 * share / share.sum()
    for rows in (60, 601):  # over few rows as over many: off by less than a few, where chance would be off by tens
        found = np.array([(singles[:rows].sum(axis=1) == s).sum() for s in size])
        assert np.abs(found - expected * min(rows, 600) / 600).max() < 4
    pairs = Stratified(mass)(rng(), 600, width)
    np.testing.assert_array_equal(pairs[::2], ~pairs[1::2])
    if width > 1:
        assert pairs.any(axis=1).all()
        assert not pairs.all(axis=1).any()
    assert np.abs(singles.mean(axis=0) - singles.mean()).max() < 0.07


@pytest.mark.parametrize("structure", [SCATTERED, DEEP, c2fa.Structure.flat(7)])
def test_halves_keep_half_of_every_part(structure):
    for level in range(structure.depth):
        masks = Halves().masks(rng(), 500, structure, level)
        owner = structure.parents[level - 1] if level else np.zeros(structure.widths[0], dtype=int)
        for part in np.unique(owner):
            inside = masks[:, owner == part]
            kept, size = inside.sum(axis=1), inside.shape[1]
            assert set(kept.tolist()) == {size // 2, -(-size // 2)}
            assert abs(kept.mean() - size / 2) < 0.07
            np.testing.assert_allclose(inside.mean(axis=0), 0.5, atol=0.08)


def test_nested_parts_are_on_off_or_open_at_their_chances():
    wide = c2fa.Structure.from_tree([[[f"{i}{j}{k}" for k in range(30)] for j in range(2)] for i in range(2)])
    masks = Nested(on=0.5, off=0.2).masks(rng(), 4000, wide, -1)
    of = wide.sums(masks.T.astype(float), 1).T / 30
    # A part of level 1 is wholly on where its own part is, or where that is open (0.3) and it is on itself.
    assert (of == 1).mean() == pytest.approx(0.5 + 0.3 * 0.5, abs=0.02)
    assert (of == 0).mean() == pytest.approx(0.2 + 0.3 * 0.2, abs=0.02)
    inside = of[(of > 0) & (of < 1)]
    assert inside.mean() == pytest.approx(0.5, abs=0.01)
    top = wide.sums(masks.T.astype(float), 0).T / 60
    assert (top == 1).mean() == pytest.approx(0.5 + 0.3 * 0.5**2, abs=0.02)
    assert np.isin(Nested(0, 0).masks(rng(), 2000, wide, -1).mean(axis=0).round(1), [0.5]).all()
    np.testing.assert_array_equal(
        Nested(0.5, 0.5).masks(rng(), 50, SCATTERED, 1),
        SCATTERED.expand(Nested(0.5, 0.5).masks(rng(), 50, SCATTERED, 1)[:, [0, 1, 2, 10]], 0),
    )


@pytest.mark.parametrize(("parts", "several"), [(1, 1), (2, 2), (3, 3), (9, 4), (0.5, 2), (0.3, 2)])
@pytest.mark.parametrize("others", ["coin", "on", "off"])
def test_focused_rows_vary_in_few_parts_that_take_turns(parts, several, others):
    s = c2fa.Structure.from_groups(np.arange(120) % 4)  # 30 leaves a part: coins are all but never all alike
    masks = Focused(parts, others).masks(rng(), 240, s, 1)
    share = s.sums(masks.T.astype(float), 0).T / 30
    varies = (share > 0) & (share < 1)
    np.testing.assert_array_equal(varies.sum(axis=1), several)
    counts = varies.sum(axis=0)
    assert counts.max() - counts.min() <= (0 if 4 % several == 0 else 80)
    rest = share[~varies]
    if several < 4:
        assert rest.mean() == pytest.approx({"coin": 0.5, "on": 1.0, "off": 0.0}[others], abs=0.08)
    top = Focused(parts, others).masks(rng(), 40, s, 0)
    assert top.shape == (40, 4)


def test_designs_leave_out_the_empty_mask_where_it_is_not_allowed():
    three = c2fa.Structure.flat(3)
    masks = draw(Exhaustive(), rng(), 50, three, 0, False)
    assert len(masks) == 7
    kept = draw(Focused(1, "off"), rng(), 200, three, 0, False)
    assert len(kept) == 200
    assert kept.any(axis=1).all()
    one = c2fa.Structure.flat(1)
    assert draw(Stratified(), rng(), 4, one, 0, False).all()

    class Nothing:
        def masks(self, rng, n, structure, level):
            return np.zeros((n, structure.widths[level]), dtype=bool)

    with pytest.raises(ValueError, match=r"nearly every mask of .* is empty, and this input cannot be"):
        draw(Nothing(), rng(), 5, three, 0, False)


def test_drawing_without_the_empty_mask_leaves_the_generator_as_a_contract_would():
    state = rng(3)
    before = copy.deepcopy(state)
    draw(Exhaustive(), state, 9, SCATTERED, 1, False)
    np.testing.assert_array_equal(
        draw(Exhaustive(), before, 9, SCATTERED, 1, False), draw(Exhaustive(), rng(3), 9, SCATTERED, 1, False)
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Exhaustive("alphabetical"), "order must be 'random', 'paired' or 'size'; got 'alphabetical'"),
        (lambda: Stratified("heavy"), "mass must be 'even' or 'shapley'; got 'heavy'"),
        (lambda: Balanced("always"), "complements must be 'never', 'after' or 'each'; got 'always'"),
        (lambda: Nested(0.7, 0.7), "add up to no more than 1; got 0.7 and 0.7"),
        (lambda: Focused(0), "at least 1 or a share between 0 and 1; got 0"),
        (lambda: Focused(1.5), "at least 1 or a share between 0 and 1; got 1.5"),
        (lambda: Focused(1, "away"), "others must be 'coin', 'on' or 'off'; got 'away'"),
        (lambda: sampling.Keep(1.0), "between 0 and 1; got 1.0"),
    ],
)
def test_a_design_that_cannot_be_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_samplers_are_found_by_name_or_given():
    assert as_sampler("exhaustive") == Exhaustive()
    assert as_sampler(Halves()) == Halves()
    with pytest.raises(ValueError, match=r"sampler must be a function or one of .*'balanced', .* got 'best'"):
        as_sampler("best")
    with pytest.raises(TypeError, match=r"sampler must be a value such as Balanced\(\), not the class itself"):
        as_sampler(Balanced)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("structure", [SCATTERED, DEEP, c2fa.Structure.flat(6), c2fa.Structure.from_groups("a")])
def test_every_design_explains_within_its_budget(name, structure):
    w = rng(1).normal(size=structure.leaves)
    for budget in (60, (2, 3, 4)[: structure.depth]):
        explainer = c2fa.Explainer(
            lambda batch: np.tanh(batch @ w), c2fa.maskers.Array(structure), budget=budget, sampler=EVERY[name]
        )
        e = explainer(np.ones(structure.leaves))
        assert e.queries <= (budget if isinstance(budget, int) else sum(budget))
        assert str(EVERY[name]) in e.provenance["settings"] or callable(EVERY[name])
        np.testing.assert_array_equal(e.low, explainer(np.ones(structure.leaves)).low)


def test_a_level_may_have_a_design_and_another_a_sampler():
    asked = []

    def model(batch):
        asked.append(batch.copy())
        return batch.sum(axis=1)

    s = c2fa.Structure.from_groups(np.repeat(np.arange(4), 5))
    c2fa.Explainer(model, c2fa.maskers.Array(s), budget=(16, 40), sampler=("exhaustive", "uniform"))(np.ones(20))
    rows = np.concatenate(asked)
    whole = [row for row in rows if set(s.sums(row, 0).tolist()) <= {0.0, 5.0}]
    assert len(whole) == 16  # all masks of four parts, the prediction among them


@pytest.mark.parametrize("method", ["c2fa", "lime", "td-lime-proportional"])
def test_a_budget_in_one_number_asks_everything_of_few_parts(method):
    s = c2fa.Structure.from_groups(np.repeat(np.arange(5), 20))
    for sampler, rows in (("planned", (31, 168)), (("exhaustive", "mirror"), (31, 168)), ("mirror", (20, 179))):
        explainer = c2fa.Explainer(len, c2fa.maskers.Array(s), method=method, budget=200, sampler=sampler)
        assert explainer.rows(s) == rows
    assert explainer.rows(c2fa.Structure.from_groups("a")) == (2, 197)
    assert c2fa.Explainer(len, c2fa.maskers.Array(s), budget=100, sampler="planned").rows(s) == (24, 75)
    assert c2fa.Explainer(len, c2fa.maskers.Array(s), budget=3, sampler="planned").rows(s) == (1, 1)
    eight = c2fa.Structure.from_groups(np.repeat(np.arange(8), 20))
    assert c2fa.Explainer(len, c2fa.maskers.Array(s), budget=200, sampler="planned").rows(eight) == (48, 151)
    assert c2fa.Explainer(len, c2fa.maskers.Array(s), budget=50).rows(s) == (12, 37)
    assert c2fa.Explainer(len, c2fa.maskers.Array(s), budget=50).rows(eight) == (16, 33)  # two a part, up to a third
    milli = c2fa.Explainer(len, c2fa.maskers.Array(s), method="milli", budget=200, sampler="planned")
    assert milli.rows(s) == (20, 179)


def test_planned_is_balanced_blocks_without_repeats_and_ends_with_every_mask():
    for width in range(1, 9):
        masks = designs.Planned()(rng(2), 1000, width)
        assert len({row.tobytes() for row in masks}) == len(masks) == 2**width
        assert masks[-1].all()
        blocks = [tuple(row) for row in Balanced("after")(rng(2), 6 * paley_order(width), width).tolist()]
        different = [row for row in dict.fromkeys(blocks) if not all(row)]
        assert [tuple(row) for row in masks[: len(different)].tolist()] == different
    np.testing.assert_array_equal(designs.Planned()(rng(2), 70, 20), Balanced("after")(rng(2), 70, 20))
    with pytest.raises(ValueError, match="few must be from 0 to 16"):
        designs.Planned(few=20)


def test_designs_survive_pickling_and_have_names_of_their_own():
    import pickle

    from c2fa.masking import fingerprint

    for design in EVERY.values():
        if isinstance(design, designs.Design):
            assert pickle.loads(pickle.dumps(design)) == design
    assert fingerprint(Focused(1)) != fingerprint(Focused(2))

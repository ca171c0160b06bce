"""Methods against literal oracles and hand-computed cases."""

from __future__ import annotations

import dataclasses
import sys

import numpy as np
import pytest

import c2fa
import oracles_methods as oracle
from c2fa import methods
from c2fa.asking.querying import Answer, step
from c2fa.graph import chain
from c2fa.methods import bridge as bridging
from c2fa.methods import lime, milli, peers
from c2fa.methods.base import Task
from c2fa.methods.c2fa import SHAP, ShapSizes
from c2fa.methods.milli import inclusion_weights
from c2fa.samplers import milli as milli_sampler

S = c2fa.Structure.from_groups("aaabbbbccccc")
THREE = c2fa.Structure.from_tree({"A": {"A1": ["x", "q"], "A2": ["y", "z"]}, "B": {"B1": ["w", "v", "u"]}})


def model(batch, structure=S):
    w = np.random.default_rng(7).normal(size=(structure.leaves, 2))
    return np.tanh(batch @ w - 0.2)


def task(structure=S, budget=(14, 60), seed=3, target=0, columns=(0, 1)):
    prediction = model(np.ones((1, structure.leaves)), structure)[0]
    return Task(structure, budget, prediction, np.array(columns), target, seed)


def drive(method, given):
    """Run a method by hand; return what it found and every question it asked."""
    s = given.structure
    conversation, asks = method(given), []
    ask, found = step(conversation, None)
    while ask is not None:
        asks.append(ask)
        outputs = model(s.expand(ask.masks, ask.level) * 1.0, s)
        ask, found = step(conversation, Answer(outputs, np.ones(len(outputs), bool)))
    return found, asks


# -- shared queries --------------------------------------------------------------------------------


def keys(asks, level):
    return {row.tobytes() for ask in asks if ask.level == level for row in ask.masks}


def test_methods_that_can_share_their_queries_ask_the_same_masks():
    of = {name: drive(methods.METHODS[name](), task())[1] for name in methods.METHODS if name not in methods.PEERS}
    planned, of["c2fa"] = of["c2fa"], drive(methods.C2FA(sampler="uniform"), task())[1]
    for name in ("lime", "td-lime"):
        assert keys(of[name], 0) == keys(of["c2fa"], 0)
    for name in ("lime", "bu-lime", "milli"):
        assert keys(of[name], 1) == keys(of["c2fa"], 1)
    assert keys(of["td-milli"], 0) == keys(of["milli"], 0)
    alike = drive(methods.Lime(sampler="planned"), task())[1]
    for level in (0, 1):
        assert keys(alike, level) == keys(planned, level) != keys(of["c2fa"], level)
    assert not keys(of["bu-lime"], 0)
    assert not keys(of["td-lime"], 1)
    assert not keys(of["td-milli"], 1)


@pytest.mark.parametrize("name", [name for name, kind in methods.METHODS.items() if kind.can_stop_early])
def test_a_larger_budget_asks_everything_that_a_smaller_one_asks(name):
    small = drive(methods.METHODS[name](), task(budget=(9, 20)))[1]
    large = drive(methods.METHODS[name](), task(budget=(14, 61)))[1]
    for level in (0, 1):
        assert keys(small, level) <= keys(large, level)


# -- LIME ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("anchor", [True, False])
@pytest.mark.parametrize("structure", [S, THREE])
def test_lime_is_scikit_learns_ridge_at_every_level(intercept, anchor, structure):
    budget = (14, 40, 60)[: structure.depth]
    lambdas = (0.3, 0.1, 1.0)[: structure.depth]
    given = task(structure, budget)
    found, asks = drive(methods.Lime(penalty=[c2fa.L2(v) for v in lambdas], intercept=intercept, anchor=anchor), given)
    for k, ask in enumerate(asks):
        drawn = np.random.default_rng((given.seed, k)).integers(
            0, 256, size=(budget[k], -(-structure.widths[k] // 8)), dtype=np.uint8
        )
        masks = np.unpackbits(drawn, axis=1, count=structure.widths[k]).astype(bool)
        assert {r.tobytes() for r in masks} == {r.tobytes() for r in ask.masks}
        if anchor and not masks.all(axis=1).any():
            masks = np.concatenate([masks, np.ones((1, masks.shape[1]), bool)])
        weights = [oracle.lime_weight(m) for m in masks]
        outputs = model(structure.expand(masks, k) * 1.0, structure)
        values, b = oracle.ridge(masks, outputs, weights, lambdas[k], intercept)
        np.testing.assert_allclose(found.values[k], values, atol=1e-9)
        np.testing.assert_allclose(found.intercepts[k], b, atol=1e-9)


def test_lime_at_each_level_is_c2fa_of_that_level_alone():
    found, _ = drive(methods.Lime(), task())
    flat = c2fa.solve(c2fa.Problem(c2fa.Structure.flat(12), (found.levels[1],)))
    np.testing.assert_allclose(found.values[1], flat.values[0], atol=1e-12)
    np.testing.assert_allclose(found.stderr[1], flat.stderr[0], atol=1e-12)


def test_lime_takes_penalties_other_than_l2():
    found, _ = drive(methods.Lime(penalty=(c2fa.L2(0.1), c2fa.L1(0.5))), task())
    assert found.stderr is None
    assert (found.values[1] == 0).any()
    bottom_up, _ = drive(methods.BottomUp(penalty=c2fa.L1(0.5)), task())
    np.testing.assert_allclose(bottom_up.values[1], found.values[1], atol=1e-12)
    assert bottom_up.stderr is None


@pytest.mark.parametrize("kind", [methods.Lime, methods.Milli, methods.BottomUp, methods.TopDown])
def test_bad_options_are_refused_when_the_method_is_made(kind):
    with pytest.raises(ValueError, match="kernel must be a function or one of"):
        kind(kernel="round")
    with pytest.raises(ValueError, match="sampler must be a function or one of"):
        kind(sampler="all")
    with pytest.raises(TypeError, match="penalty must be"):
        kind(penalty=0.1)
    with pytest.raises(ValueError, match="kernel is empty"):
        kind(kernel=())
    with pytest.raises(ValueError, match=r"penalty has 3 entries and the structure 2 levels"):
        drive(kind(penalty=[c2fa.L2(0.1)] * 3), task())


# -- MILLI -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("alpha", "beta", "expected"),
    [
        (0.05, 0.01, [0.05, 0.28, 0.51, 0.73, 0.95]),
        (0.05, -0.01, [0.05, 0.27, 0.49, 0.72, 0.95]),
        (0.3, -1.0, [0.30, 0.31, 0.33, 0.41, 0.70]),
        (0.008, -5.0, [0.008, 0.008, 0.008, 0.013, 0.992]),
    ],
)
def test_millis_weight_curve_has_its_known_values(alpha, beta, expected):
    curve = inclusion_weights(np.arange(5), alpha, beta)
    np.testing.assert_allclose(curve, expected, atol=0.006 if alpha > 0.01 else 0.0006)


@pytest.mark.parametrize("alpha", [0.0, 0.1, 0.3, 0.5, 0.7, 0.99])
@pytest.mark.parametrize("beta", [-3.0, -0.01, 0.0, 0.5, 4.0])
def test_millis_weight_curve_is_the_formula(alpha, beta):
    for count in (2, 3, 7):
        curve = inclusion_weights(np.arange(count), alpha, beta)
        np.testing.assert_allclose(
            curve, [oracle.milli_weight(r, count, alpha, beta) for r in range(count)], atol=1e-14
        )
        assert curve[0] == pytest.approx(alpha)
        assert curve[-1] == pytest.approx(1 - alpha)
    wide = inclusion_weights(np.arange(7), alpha, beta).sum()
    assert wide >= inclusion_weights(np.arange(7), alpha, -abs(beta)).sum() - 1e-12 or beta < 0


def test_milli_draws_each_part_as_often_as_its_weight_says():
    inclusion = inclusion_weights(np.arange(4), 0.2, 0.5)
    masks = milli_sampler(inclusion)(np.random.default_rng(0), 20_000, c2fa.Structure.flat(4), 0)
    assert masks.any(axis=1).all()
    assert not masks.all(axis=1).any()
    np.testing.assert_allclose(masks.mean(axis=0), oracle.coalition_frequencies(inclusion), atol=0.012)


def test_milli_is_its_steps_one_by_one():
    given = task(budget=(14, 60), target=1)
    found, asks = drive(methods.Milli(alpha=0.2, beta=0.5), given)
    alone, drawn = asks[0], asks[1]
    np.testing.assert_array_equal(alone.masks, np.eye(3, dtype=bool))
    scores = model(S.expand(alone.masks, 0) * 1.0)[:, 1]
    inclusion = [oracle.milli_weight(sorted(-scores).index(-v), 3, 0.2, 0.5) for v in scores]
    rows = milli_sampler(np.array(inclusion))(np.random.default_rng((3, 0)), 14 - 3, c2fa.Structure.flat(3), 0)
    assert {r.tobytes() for r in rows} == {r.tobytes() for r in drawn.masks}
    weights = [oracle.milli_sample_weight(r, inclusion) for r in rows]
    values, b = oracle.ridge(rows, model(S.expand(rows, 0) * 1.0), weights, 0.5e-10, True)
    np.testing.assert_allclose(found.values[0], values, atol=1e-5)
    np.testing.assert_allclose(found.intercepts[0], b, atol=1e-5)
    lime, _ = drive(methods.Lime(), given)
    np.testing.assert_array_equal(found.values[1], lime.values[1])


def test_milli_ranks_by_the_targets_own_output():
    for target in (0, 1):
        conversation = milli.rank(task(target=target), 0.1, 0.0)
        step(conversation, None)
        outputs = np.array([[0.1, 0.9], [0.5, 0.3], [0.9, 0.2]])
        _, ranking = step(conversation, Answer(outputs, np.ones(3, bool)))
        assert np.argmin(ranking.inclusion) == np.argmax(outputs[:, target])


def test_milli_puts_a_part_without_an_answer_last():
    conversation = milli.rank(task(), 0.1, 0.0)
    step(conversation, None)
    outputs = np.array([[np.nan, np.nan], [-5.0, 0.0], [1.0, 0.0]])
    _, ranking = step(conversation, Answer(outputs, np.array([False, True, True])))
    np.testing.assert_allclose(ranking.inclusion, [0.9, 0.5, 0.1])
    assert len(ranking.masks) == 2


def test_milli_says_when_the_budget_cannot_rank_and_sample():
    with pytest.raises(c2fa.BudgetError, match=r"ranks the 3 parts .* at least 5 rows .* it has 4"):
        drive(methods.Milli(), task(budget=(3, 60)))
    drive(methods.Milli(), task(budget=(4, 60)))


def test_milli_does_not_loop_on_small_bags():
    two = c2fa.Structure.from_groups("ab")
    found, _ = drive(methods.Milli(alpha=0.01, beta=-5.0), task(two, budget=(200, 10)))
    assert found.levels[0].weights.sum() > 100  # repeats are kept as weight


@pytest.mark.parametrize("kind", [methods.Milli, methods.TopDownMilli, methods.C2FAMilli])
def test_a_curve_that_is_none_is_refused(kind):
    with pytest.raises(ValueError, match=r"alpha .* got 1.5"):
        kind(alpha=1.5)
    with pytest.raises(ValueError, match=r"beta .* got inf"):
        kind(beta=float("inf"))


# -- bottom up, top down ---------------------------------------------------------------------------


@pytest.mark.parametrize("structure", [S, THREE])
def test_bottom_up_is_limes_leaves_and_their_sums(structure):
    given = task(structure, (14, 40, 60)[: structure.depth])
    lime, _ = drive(methods.Lime(), given)
    found, _ = drive(methods.BottomUp(), given)
    np.testing.assert_array_equal(found.values[-1], lime.values[-1])
    np.testing.assert_allclose(found.stderr[-1], lime.stderr[-1], atol=1e-12)
    for k in range(structure.depth - 1):
        by_hand = np.zeros_like(found.values[k])
        for leaf, part in enumerate(structure.owners(k)):
            by_hand[part] += lime.values[-1][leaf]
        np.testing.assert_allclose(found.values[k], by_hand, atol=1e-12)
        assert found.levels[k] is None


def test_bottom_ups_standard_errors_are_those_of_sums():
    found, _ = drive(methods.BottomUp(penalty=c2fa.L2(0.1)), task(budget=(14, 200)))
    level = found.levels[1]
    z = level.masks - np.average(level.masks, axis=0, weights=level.weights)
    matrix = z.T @ (level.weights[:, None] * z) + 0.2 * np.eye(12)
    residual = level.outputs - level.predict(found.values[1], found.intercepts[1])
    energy = level.weights @ residual**2 + 0.2 * (found.values[1] ** 2).sum(axis=0)
    used = 1 + np.trace(np.linalg.solve(matrix, z.T @ (level.weights[:, None] * z)))
    noise = np.sqrt(np.maximum(energy / (len(z) - 1), level.weights @ residual**2 / (len(z) - used)))
    m = S.membership(0).toarray()
    spread = np.sqrt(np.diag(m @ np.linalg.inv(matrix) @ m.T))
    np.testing.assert_allclose(found.stderr[0], spread[:, None] * noise, rtol=1e-8)


@pytest.mark.parametrize(("top", "down"), [("lime", "td-lime"), ("milli", "td-milli")])
@pytest.mark.parametrize("structure", [S, THREE])
def test_top_down_keeps_the_parts_and_its_leaves_add_up(top, down, structure):
    given = task(structure, (14, 40, 60)[: structure.depth])
    parts, _ = drive(methods.METHODS[top](), given)
    found, _ = drive(methods.METHODS[down](), given)
    np.testing.assert_allclose(found.values[0], parts.values[0], atol=1e-12)
    for k in range(structure.depth):
        np.testing.assert_array_equal(found.values[k], structure.sums(found.values[-1], k))


def test_top_down_draws_around_the_whole_part_and_resets_one_child():
    owner = np.repeat([0, 1], [400, 4])
    parts = np.array([[2.0], [-1.0]])
    seen = []
    for seed in range(200):
        values = lime.scatter(np.random.default_rng(seed), parts, owner)[:, 0]
        assert values[:400].sum() == pytest.approx(2.0)
        assert values[400:].sum() == pytest.approx(-1.0)
        far = np.flatnonzero(np.abs(values[:400] - 2.0) > 10 / 400)
        assert len(far) == 1  # the one that was set
        seen.append((far[0], np.delete(values[:400], far)))
    assert len({which for which, _ in seen}) > 100
    drawn = np.concatenate([rest for _, rest in seen])
    assert drawn.mean() == pytest.approx(2.0, abs=1e-4)
    assert drawn.std() == pytest.approx(1 / 400, rel=0.02)


def test_a_part_with_one_child_hands_its_value_down():
    values = lime.scatter(np.random.default_rng(0), np.array([[0.3], [0.7]]), np.array([1, 0]))
    np.testing.assert_allclose(values, [[0.7], [0.3]])


# -- C2FA's variants -------------------------------------------------------------------------------


@pytest.mark.parametrize("structure", [S, THREE])
@pytest.mark.parametrize("reuse", [True, False])
def test_c2fa_milli_is_the_joint_fit_of_millis_rows(structure, reuse):
    given = task(structure, (14, 40, 60)[: structure.depth], target=1)
    found, asks = drive(methods.C2FAMilli(alpha=0.2, beta=0.5, carry=0.5, reuse=reuse, penalty=c2fa.L2(0.1)), given)
    scores = model(structure.expand(asks[0].masks, 0) * 1.0, structure)[:, 1]
    width = structure.widths[0]
    parts = np.array([oracle.milli_weight(sorted(-scores).index(-v), width, 0.2, 0.5) for v in scores])
    levels = []
    for k in range(structure.depth):
        inclusion = parts
        if k > 0:
            up = [structure.owners(0)[list(structure.owners(k)).index(i)] for i in range(structure.widths[k])]
            inclusion = 0.5 + 0.5 * (parts[up] - 0.5)
        n = given.budget[k] - (width if k == 0 else 0)
        rows = milli_sampler(inclusion)(np.random.default_rng((3, k)), n, structure, k)
        drawn = {r.tobytes() for r in rows}
        extra = [r for r in np.eye(width, dtype=bool) if r.tobytes() not in drawn] if k == 0 and reuse else []
        rows = np.array([*rows, np.ones(structure.widths[k], bool), *extra])
        weights = np.array([oracle.milli_sample_weight(r, inclusion) for r in rows])
        outputs = model(structure.expand(rows, k) * 1.0, structure)
        levels.append(c2fa.Level(rows, outputs, weights, c2fa.L2(0.1), True))
    joint = c2fa.solve(c2fa.Problem(structure, tuple(levels)))
    for mine, theirs in zip(found.values, joint.values, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-9)


@pytest.mark.parametrize("penalty", [None, "auto"])
def test_c2fa_milli_of_one_part_is_c2fa_with_fair_coins_and_limes_weights(penalty):
    one = c2fa.Structure.from_groups("aaaa")
    given = dataclasses.replace(task(one, (4, 20)), neighbours=lambda: chain(one.owners(0)))
    found, asks = drive(methods.C2FAMilli(penalty=penalty), given)
    plain, same = drive(methods.C2FA(kernel="cosine", sampler="uniform", penalty=penalty, smooth=None), given)
    np.testing.assert_array_equal(found.values[1], plain.values[1])
    assert keys(asks, 1) == keys(same, 1)
    np.testing.assert_array_equal(found.levels[1].weights, plain.levels[1].weights)


def test_shapley_values_are_never_smooth():
    given = dataclasses.replace(task(S), neighbours=lambda: chain(S.owners(0)), smooth_by_default=True)
    there, _ = drive(methods.C2FA(**{**SHAP, "penalty": "auto"}), given)
    without, _ = drive(methods.C2FA(**{**SHAP, "penalty": "auto"}), task(S))
    np.testing.assert_array_equal(there.values[1], without.values[1])


def test_c2fa_milli_refuses_a_share_that_is_none():
    with pytest.raises(ValueError, match=r"carry is a share, from 0 to 1; got 2"):
        methods.C2FAMilli(carry=2)


def test_the_preset_shap_gives_shapley_values_where_everything_is_asked():
    flat = c2fa.Structure.flat(4)
    found, asks = drive(methods.C2FA(**{**SHAP, "penalty": c2fa.L2(1e-9)}), task(flat, (6000,)))
    assert len(asks[0].masks) == 15  # all but the prediction's
    for c in (0, 1):
        exact = oracle.shapley(lambda mask, c=c: model(mask[None] * 1.0, flat)[0, c], 4)
        np.testing.assert_allclose(found.values[0][:, c], exact, atol=0.02)


def test_shap_sizes_have_the_kernels_mass():
    masks = ShapSizes()(np.random.default_rng(1), 40_001, 6)
    assert not masks[0].any()
    sizes = np.bincount(masks[1:].sum(axis=1), minlength=7) / 40_000
    mass = np.array([0, *(1 / (s * (6 - s)) for s in range(1, 6)), 0])
    np.testing.assert_allclose(sizes, mass / mass.sum(), atol=0.01)
    np.testing.assert_allclose(masks[1:].mean(axis=0), 0.5)
    one = ShapSizes()(np.random.default_rng(1), 3, 1)
    assert one.ravel().tolist() == [False, True, True]
    assert "at 0x" not in str(methods.C2FA(**SHAP))  # settings that are kept read the same in every process


def test_every_method_recovers_an_additive_model():
    w = np.arange(1.0, 13.0)
    exact = {"penalty": c2fa.L2(1e-9)}
    options = {
        "c2fa": exact, "lime": exact, "milli": exact, "bu-lime": exact, "c2fa-milli": exact,
        "shap-partition": {}, "shap-kernel": {}, "captum-kernelshap": {},
    }  # fmt: skip
    for name, given in options.items():
        if name in methods.PEERS and not installed(methods.PEERS[name].package):
            continue
        e = c2fa.Explainer(lambda b: b @ w, c2fa.maskers.Array(S), method=name, budget=(40, 400), **given)(np.ones(12))
        np.testing.assert_allclose(e.low, w, atol=1e-3, err_msg=name)
        np.testing.assert_allclose(e.high, S.sums(w, 0), atol=1e-3, err_msg=name)
    e = c2fa.Explainer(lambda b: b @ w, c2fa.maskers.Array(S), preset="shap", budget=(40, 400), **exact)(np.ones(12))
    np.testing.assert_allclose(e.low, w, atol=1e-3)


# -- peers -----------------------------------------------------------------------------------------


def installed(package):
    from importlib.util import find_spec

    return find_spec(package) is not None


@pytest.mark.parametrize("name", methods.PEERS)
def test_a_peer_that_is_not_installed_says_how_to_install_it(name, monkeypatch):
    monkeypatch.setattr(peers, "find_spec", lambda package: None)
    with pytest.raises(ImportError, match=r"needs the package \w+: pip install 'c2fa\[peers\]'"):
        methods.METHODS[name]()


def test_peers_are_not_imported_with_the_package():
    import subprocess

    code = "import sys, c2fa; print([m for m in ('shap', 'lime', 'captum', 'torch', 'sklearn') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_bad_options_of_peers_are_refused():
    for package, kind, options, words in [
        ("shap", methods.ShapPartition, {"fixed_context": 2}, "fixed_context must be None, 0 or 1; got 2"),
        (
            "lime",
            methods.LimePeer,
            {"kernel_width": 0.0},
            "kernel_width must be a finite number above 0; got 0.0",
        ),
        ("captum", methods.CaptumLime, {"alpha": -1.0}, "alpha must be a finite number above 0; got -1.0"),
    ]:
        if installed(package):
            with pytest.raises(ValueError, match=words):
                kind(**options)


@pytest.mark.skipif(not installed("shap"), reason="shap is not installed")
def test_shap_partition_fully_expanded_is_the_owen_value_by_hand():
    two = c2fa.Structure.from_groups("ab")
    found, _ = drive(methods.ShapPartition(), task(two, (4, 10)))
    for c in (0, 1):
        exact = oracle.shapley(lambda mask, c=c: model(mask[None] * 1.0, two)[0, c], 2)
        np.testing.assert_allclose(found.values[1][:, c], exact, atol=1e-9)


@pytest.mark.skipif(not installed("shap"), reason="shap is not installed")
def test_shap_kernel_with_every_mask_is_exact_and_keeps_more_than_ten_features():
    five = c2fa.Structure.flat(5)
    found, _ = drive(methods.ShapKernel(), task(five, (40,)))
    for c in (0, 1):
        exact = oracle.shapley(lambda mask, c=c: model(mask[None] * 1.0, five)[0, c], 5)
        np.testing.assert_allclose(found.values[0][:, c], exact, atol=1e-7)
    wide, _ = drive(methods.ShapKernel(), task(S, (20, 300)))
    assert (wide.values[1] != 0).all()


@pytest.mark.skipif(not installed("lime"), reason="lime is not installed")
def test_lime_package_is_ridge_with_alpha_one_on_the_rows_it_asked():
    wide = c2fa.Structure.flat(40)
    found, asks = drive(methods.LimePeer(), task(wide, (60,)))
    rows = np.concatenate([np.ones((1, 40), bool), *[ask.masks for ask in asks]])
    assert len(rows) == 61, "a row was drawn twice, and how often is not seen from outside: take another seed"
    weights = [oracle.lime_weight(r) for r in rows]
    values, b = oracle.ridge(rows, model(rows * 1.0, wide), weights, 0.5, True)
    np.testing.assert_allclose(found.values[0], values, atol=1e-6)
    np.testing.assert_allclose(found.intercepts[0], b, atol=1e-6)


def test_linkage_halves_children_and_keeps_parts_together():
    z = peers.linkage(c2fa.Structure.from_groups("abab"))
    assert z[:, :2].astype(int).tolist() == [[0, 2], [1, 3], [4, 5]]
    assert z[:, 3].tolist() == [2, 2, 4]
    deep = peers.linkage(THREE)
    assert len(deep) == THREE.leaves - 1
    members = [{i} for i in range(THREE.leaves)]
    for left, right, _, size in deep:
        members.append(members[int(left)] | members[int(right)])
        assert len(members[-1]) == size
    for level in (0, 1):
        for j in range(THREE.widths[level]):
            assert set(np.flatnonzero(THREE.owners(level) == j).tolist()) in members


def test_the_bridge_asks_a_mask_once_and_the_full_one_never():
    given = task(budget=(2, 3))
    half = np.zeros(12, bool)
    half[:6] = True

    def work(play):
        first = play(np.stack([half, half, np.ones(12, bool)]))
        return first, play(half[None])

    conversation = bridging.bridge(given, "test", work)
    ask, _ = step(conversation, None)
    np.testing.assert_array_equal(ask.masks, half[None])
    ask, (first, again) = step(conversation, Answer(np.array([[5.0, 6.0]]), np.ones(1, bool)))
    assert ask is None
    np.testing.assert_array_equal(first, [[5.0, 6.0], [5.0, 6.0], given.prediction])
    np.testing.assert_array_equal(again, [[5.0, 6.0]])


def test_the_bridge_does_not_ask_beyond_the_budget_and_passes_errors_on():
    conversation = bridging.bridge(task(budget=(2, 3)), "test", lambda play: play(np.eye(12, dtype=bool)))
    with pytest.raises(c2fa.BudgetError, match="test asked for 12 more rows with 5 left"):
        step(conversation, None)

    def fails(play):
        raise KeyError("theirs")

    with pytest.raises(KeyError, match="theirs"):
        step(bridging.bridge(task(), "test", fails), None)


# -- ContextCite and leave one out -------------------------------------------------------------------


@pytest.mark.parametrize("tokens", [1, 7, (4, 9)])
@pytest.mark.parametrize("budget", [(5, 11), (14, 60)])
@pytest.mark.parametrize("alpha", [0.01, 0.1])
def test_context_cite_is_scikit_learns_pipeline_on_the_same_rows(alpha, budget, tokens):
    pipeline = pytest.importorskip("sklearn.pipeline").make_pipeline
    from sklearn.linear_model import Lasso
    from sklearn.preprocessing import StandardScaler

    found, [ask] = drive(methods.ContextCite(alpha=alpha, tokens=tokens), task(budget=budget))
    drawn = np.random.default_rng((3, 1, 0)).integers(0, 256, size=(sum(budget), 2), dtype=np.uint8)
    masks = np.unpackbits(drawn, axis=1, count=12).astype(bool)
    assert {row.tobytes() for row in ask.masks} == {row.tobytes() for row in masks}
    for column, count in enumerate(np.broadcast_to(tokens, 2)):
        scaler, lasso = StandardScaler(), Lasso(alpha=alpha, tol=1e-12, max_iter=100_000)
        pipeline(scaler, lasso).fit(masks * 1.0, model(masks * 1.0)[:, column] / count)
        weight = lasso.coef_ / scaler.scale_
        bias = lasso.intercept_ - (scaler.mean_ / scaler.scale_) @ lasso.coef_
        np.testing.assert_allclose(found.values[-1][:, column], weight * count, atol=1e-6)
        np.testing.assert_allclose(found.intercepts[-1][column], bias * count, atol=1e-6)
    assert (found.values[-1] == 0).any()  # the Lasso is at work


def test_context_cite_spends_every_row_on_leaves_and_takes_repeated_masks_as_repeated_rows():
    lasso = pytest.importorskip("sklearn.linear_model").Lasso
    s = c2fa.Structure.from_groups("aab")
    found, [ask] = drive(methods.ContextCite(alpha=0.02), task(s, budget=(10, 30)))
    drawn = np.random.default_rng((3, 1, 0)).integers(0, 256, size=(40, 1), dtype=np.uint8)
    masks = np.unpackbits(drawn, axis=1, count=3).astype(bool)
    assert len(ask.masks) == len(np.unique(masks, axis=0)) <= 8
    x = (masks - masks.mean(axis=0)) / masks.std(axis=0)
    fit = lasso(alpha=0.02, tol=1e-12).fit(x, model(masks * 1.0, s)[:, 0])
    np.testing.assert_allclose(found.values[-1][:, 0], fit.coef_ / masks.std(axis=0), atol=1e-6)
    assert [v.shape for v in found.values] == [(2, 2), (3, 2)]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"alpha": -1.0}, "alpha must be a finite number of at least 0"),
        ({"tokens": 0}, "tokens must be a whole number above 0, or one for each output; got 0"),
        ({"tokens": ()}, "tokens must be a whole number"),
        ({"tokens": 2.5}, "tokens must be a whole number"),
    ],
)
def test_context_cites_options_are_checked(options, said):
    with pytest.raises(ValueError, match=said):
        methods.ContextCite(**options)


def test_context_cite_needs_tokens_for_every_output():
    with pytest.raises(ValueError, match="tokens has 3 numbers and the model 2 outputs; give one for each"):
        drive(methods.ContextCite(tokens=(1, 2, 3)), task())


def said_of(kept, s=S):
    """The model's outputs with these leaves alone."""
    return model(np.isin(np.arange(s.leaves), sorted(kept))[None] * 1.0, s)[0]


@pytest.mark.parametrize("structure", [S, THREE])
def test_leave_one_out_is_what_each_leaf_costs(structure):
    found, [ask] = drive(methods.LeaveOneOut(), task(structure, budget=(14, 60, 9)[: structure.depth]))
    assert len(ask.masks) == structure.leaves
    everything = set(range(structure.leaves))
    for leaf in everything:
        lost = said_of(everything, structure) - said_of(everything - {leaf}, structure)
        np.testing.assert_allclose(found.values[-1][leaf], lost)
    for level, values in enumerate(found.values):
        np.testing.assert_allclose(values, structure.sums(found.values[-1], level))
    np.testing.assert_allclose(found.intercepts[0] + found.values[-1].sum(axis=0), said_of(everything, structure))
    assert not found.notes


def test_leave_one_out_removes_what_the_rows_pay_for():
    found, [ask] = drive(methods.LeaveOneOut(), task(budget=(2, 5)))
    assert len(ask.masks) == 7
    assert (found.values[-1] != 0).any(axis=1).sum() == 7
    assert found.notes == ("5 of 12 leaves were not removed, for want of rows, and have 0",)
    other, _ = drive(methods.LeaveOneOut(), task(budget=(2, 5), seed=4))
    assert ((found.values[-1] != 0) != (other.values[-1] != 0)).any()


def test_hierarchical_leave_one_out_step_by_step():
    """Three parts of three, four and five leaves; 14 rows are three for parts, one for what stays, ten for leaves."""
    groups = {0: {0, 1, 2}, 1: {3, 4, 5, 6}, 2: {7, 8, 9, 10, 11}}
    everything = set(range(12))
    cost = {j: said_of(everything) - said_of(everything - leaves) for j, leaves in groups.items()}
    ranked = sorted(cost, key=lambda j: -cost[j][0])
    for rows, parts_kept in ((15, 3), (14, 2), (8, 1)):
        found, asks = drive(methods.HierarchicalLeaveOneOut(), task(budget=(4, rows - 4)))
        assert sum(len(ask.masks) for ask in asks) <= rows
        for j, lost in cost.items():
            np.testing.assert_allclose(found.values[0][j], lost)
        stay = set().union(*(groups[j] for j in ranked[:parts_kept]))
        for leaf in everything:
            expected = said_of(stay) - said_of(stay - {leaf}) if leaf in stay else np.zeros(2)
            np.testing.assert_allclose(found.values[1][leaf], expected, atol=1e-15)
        assert bool(found.notes) == (parts_kept < 3)


def test_hierarchical_leave_one_out_goes_as_far_as_its_rows():
    few, [ask] = drive(methods.HierarchicalLeaveOneOut(), task(budget=(1, 1)))
    assert len(ask.masks) == 2
    assert (few.values[0] != 0).any(axis=1).sum() == 2
    assert not few.values[1].any()
    some, asks = drive(methods.HierarchicalLeaveOneOut(), task(budget=(3, 3)))
    assert [len(ask.masks) for ask in asks] == [3, 1, 2]
    assert (some.values[1] != 0).any(axis=1).sum() == 2
    deep, asks = drive(methods.HierarchicalLeaveOneOut(), task(THREE, budget=(9, 9, 9)))
    assert [ask.level for ask in asks] == [0, 1, 2]
    assert sum(len(ask.masks) for ask in asks) == 2 + 3 + 7
    assert not deep.notes

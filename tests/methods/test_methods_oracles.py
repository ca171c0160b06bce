"""Methods against literal oracles and hand-computed cases."""

from __future__ import annotations

import sys
import threading

import numpy as np
import pytest

import c2fa
import oracles_methods as oracle
from c2fa import methods
from c2fa.asking.querying import Answer, step
from c2fa.methods import peers
from c2fa.methods.compared import inclusion_weights, scatter
from c2fa.samplers import milli as milli_sampler
from driving import THREE, S, drive, model, task

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
        conversation = methods.Milli(alpha=0.1, beta=0.0)._rank(task(target=target))
        step(conversation, None)
        outputs = np.array([[0.1, 0.9], [0.5, 0.3], [0.9, 0.2]])
        _, inclusion = step(conversation, Answer(outputs, np.ones(3, bool)))
        assert np.argmin(inclusion) == np.argmax(outputs[:, target])


def test_milli_puts_a_part_without_an_answer_last():
    conversation = methods.Milli(alpha=0.1, beta=0.0)._rank(task())
    step(conversation, None)
    outputs = np.array([[np.nan, np.nan], [-5.0, 0.0], [1.0, 0.0]])
    _, inclusion = step(conversation, Answer(outputs, np.array([False, True, True])))
    np.testing.assert_allclose(inclusion, [0.9, 0.5, 0.1])


def test_milli_says_when_the_budget_cannot_rank_and_sample():
    with pytest.raises(c2fa.BudgetError, match=r"ranks the 3 parts .* at least 5 rows .* it has 4"):
        drive(methods.Milli(), task(budget=(3, 60)))
    drive(methods.Milli(), task(budget=(4, 60)))


def test_milli_does_not_loop_on_small_bags():
    two = c2fa.Structure.from_groups("ab")
    found, _ = drive(methods.Milli(alpha=0.01, beta=-5.0), task(two, budget=(200, 10)))
    assert found.levels[0].weights.sum() > 100  # repeats are kept as weight


@pytest.mark.parametrize("kind", [methods.Milli, methods.TopDownMilli])
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
        values = scatter(np.random.default_rng(seed), parts, owner)[:, 0]
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
    values = scatter(np.random.default_rng(0), np.array([[0.3], [0.7]]), np.array([1, 0]))
    np.testing.assert_allclose(values, [[0.7], [0.3]])


# -- all of them -----------------------------------------------------------------------------------


def test_every_method_recovers_an_additive_model():
    w = np.arange(1.0, 13.0)
    exact = {"penalty": c2fa.L2(1e-9)}
    options = {
        "c2fa": exact, "lime": exact, "milli": exact, "bu-lime": exact,
        "shap-partition": {}, "shap-kernel": {}, "captum-kernelshap": {},
    }  # fmt: skip
    for name, given in options.items():
        if name in methods.PEERS and not installed(methods.PEERS[name].package):
            continue
        e = c2fa.Explainer(lambda b: b @ w, c2fa.maskers.Array(S), method=name, budget=(40, 400), **given)(np.ones(12))
        np.testing.assert_allclose(e.low, w, atol=1e-3, err_msg=name)
        np.testing.assert_allclose(e.high, S.sums(w, 0), atol=1e-3, err_msg=name)


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


class Scripted(peers.Peer):
    """A library that does what a test says."""

    package = "numpy"

    def __init__(self, work):
        self.work = work

    def _run(self, task, play, rows):
        return self.work(play)


def test_a_peer_runs_once_and_asks_a_mask_once_and_the_full_one_never():
    given = task(budget=(2, 3))
    half = np.arange(12) < 6
    drawn = []

    def work(play):
        drawn.append(np.random.random())  # noqa: NPY002 - as the libraries draw
        first = play(np.stack([half, half, np.ones(12, bool)]))
        np.testing.assert_array_equal(first, play(np.stack([half, half, np.ones(12, bool)])))
        second = play(~half[None])
        drawn.append(np.random.random())  # noqa: NPY002
        return np.outer(np.ones(12), second[0]), first[0]

    outside = np.random.get_state()[1]  # noqa: NPY002
    found, asks = drive(Scripted(work), given)
    np.testing.assert_array_equal([ask.masks for ask in asks], [half[None], ~half[None]])
    np.testing.assert_allclose(found.values[1], np.tile(model(~half[None] * 1.0) - given.prediction, (12, 1)))
    np.testing.assert_allclose(found.intercepts[1], model(half[None] * 1.0)[0])
    seed = int(given.rng(2000).integers(2**32))
    np.testing.assert_array_equal(drawn, np.random.RandomState(seed).random(2))  # one stream, whoever draws in between
    np.testing.assert_array_equal(np.random.get_state()[1], outside)  # noqa: NPY002


def test_a_peer_does_not_ask_beyond_the_budget_and_its_errors_are_passed_on():
    with pytest.raises(c2fa.BudgetError, match="Scripted asked for 12 more rows with 5 left"):
        drive(Scripted(lambda play: play(np.eye(12, dtype=bool))), task(budget=(2, 3)))

    def fails(play):
        raise KeyError("theirs")

    with pytest.raises(KeyError, match="theirs"):
        drive(Scripted(fails), task())


def test_a_conversation_with_a_peer_that_is_left_leaves_no_thread():
    before = threading.active_count()
    talk = Scripted(lambda play: play(np.zeros((1, 12), dtype=bool)))(task())
    next(talk)
    assert threading.active_count() == before + 1
    talk.close()
    assert threading.active_count() == before


# -- leave one out ---------------------------------------------------------------------------------


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

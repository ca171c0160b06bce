"""Metrics by hand on tiny inputs, and against literal implementations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import c2fa
from c2fa import metrics
from c2fa.asking.replies import QueryError

WEIGHTS = np.array([1.0, 2.0, 4.0, 8.0])
STRUCTURE = c2fa.Structure.from_groups("aabb")


def additive(batch):
    return np.asarray(batch) @ WEIGHTS


def masked(x=None):
    return c2fa.maskers.Array(STRUCTURE)(np.ones(4) if x is None else x)


# -- correctness -----------------------------------------------------------------------------------------------


def test_ndcg_by_hand():
    first, second = 1.0, 1.0 / np.log2(3)
    assert metrics.ndcg([3, 2, 1], [1, 0, 0]) == 1.0
    assert metrics.ndcg([1, 2, 3], [1, 0, 0]) == 0.0  # truncated at n = 1: a third place earns nothing
    assert metrics.ndcg([3, 2, 1], [1, 0, 1]) == pytest.approx(first / (first + second))
    assert metrics.ndcg([3, 2, 1], [0, 1, 1]) == pytest.approx(second / (first + second))
    assert metrics.ndcg([3, 2, 1], [-1, 1, 1]) == pytest.approx((second - first) / (first + second))
    assert metrics.ndcg([9, 2, 1], [np.nan, 1, 0]) == 1.0  # the unknown one is skipped, not counted as wrong
    assert np.isnan(metrics.ndcg([1, 2], [0, 0]))


def ndcg_oracle(values, relevant):
    pairs = [(v, r) for v, r in zip(values, relevant, strict=True) if not np.isnan(r)]
    pairs = sorted(pairs, key=lambda pair: -pair[0])
    n = sum(r == 1 for _, r in pairs)
    gain = sum(r / np.log2(i + 2) for i, (_, r) in enumerate(pairs[:n]))
    return gain / sum(1 / np.log2(i + 2) for i in range(n))


@given(st.lists(st.tuples(st.integers(-5, 5), st.sampled_from([1, 0, -1, np.nan])), min_size=1, max_size=12))
def test_ndcg_is_the_literal_sum(pairs):
    values, relevant = map(list, zip(*pairs, strict=True))
    if 1 in relevant:
        assert metrics.ndcg(values, relevant) == pytest.approx(ndcg_oracle(values, relevant))


def test_ndcg_differs_from_the_untruncated_one():
    ndcg_score = pytest.importorskip("sklearn.metrics").ndcg_score
    values, relevant = [1, 2, 3, 4], [1, 0, 0, 1]
    n = sum(relevant)
    assert metrics.ndcg(values, relevant) == pytest.approx(ndcg_score([relevant], [values], k=n))
    assert metrics.ndcg(values, relevant) != pytest.approx(ndcg_score([relevant], [values]))


def auroc_oracle(scores, positive, negative):
    wins = total = 0.0
    for s, p in zip(scores, positive, strict=True):
        for t, q in zip(scores, negative, strict=True):
            wins += p * q * (1.0 if s > t else 0.5 if s == t else 0.0)
            total += p * q
    return wins / total


@given(st.lists(st.tuples(st.integers(-3, 3), st.sampled_from([0, 1]), st.integers(1, 4)), min_size=2, max_size=15))
def test_auroc_is_the_share_of_pairs(rows):
    scores, labels, weights = map(np.array, zip(*rows, strict=True))
    if 0 < labels.sum() < len(labels):
        table = np.stack([weights * labels, weights * (1 - labels)], axis=1)
        assert metrics.auroc(scores, labels) == pytest.approx(auroc_oracle(scores, labels, 1 - labels))
        assert metrics.auroc(scores, table) == pytest.approx(auroc_oracle(scores, *table.T))
    else:
        assert np.isnan(metrics.auroc(scores, labels))


def test_auroc_is_scikit_learns():
    roc_auc_score = pytest.importorskip("sklearn.metrics").roc_auc_score
    rng = np.random.default_rng(0)
    labels, scores = rng.integers(0, 2, 200), rng.normal(size=200).round(1)
    assert metrics.auroc(scores, labels) == pytest.approx(roc_auc_score(labels, scores))


def test_auroc_of_pixel_counts_is_that_of_all_pixels_that_are_not_void():
    rng = np.random.default_rng(1)
    segments = [np.arange(5)[rng.integers(0, 5, (6, 7))], rng.integers(0, 4, (5, 3))]
    for labels, count in zip(segments, (5, 4), strict=True):
        labels.flat[:count] = np.arange(count)
    truths = [rng.choice([0, 1, 255, 7], labels.shape) for labels in segments]  # 7: another object, so negative
    values = rng.normal(size=9)
    pixels = np.concatenate([values[:5][segments[0]].ravel(), values[5:][segments[1]].ravel()])
    flat = np.concatenate([t.ravel() for t in truths])
    keep = flat != 255
    expected = auroc_oracle(pixels[keep], flat[keep] == 1, flat[keep] != 1)
    counts = metrics.pixel_counts(segments, truths)
    assert metrics.auroc(values, counts) == pytest.approx(expected)
    one, own = values[5:][segments[1]].ravel(), truths[1].ravel()
    expected = auroc_oracle(one[own != 255], own[own != 255] == 1, own[own != 255] != 1)
    assert metrics.auroc(values[5:], counts[5:]) == pytest.approx(expected)


def test_correctness_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match="one mark of relevance each"):
        metrics.ndcg([1, 2], [1])
    with pytest.raises(ValueError, match="need one label each"):
        metrics.auroc([1, 2], [1, 0, 1])
    with pytest.raises(ValueError, match="needs a truth of that shape"):
        metrics.pixel_counts([np.zeros((2, 2), int)], [np.zeros((2, 3), int)])


# -- faithfulness ----------------------------------------------------------------------------------------------


def test_deletion_and_insertion_by_hand():
    values = [0.1, 0.2, 0.8, 0.4]  # order: 4, 8, 2, 1
    gone = metrics.measure(metrics.deletion(values), masked(), additive)
    assert gone.y.tolist() == [15, 11, 3, 1, 0]
    assert gone.x.tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert gone.auc == (15 / 2 + 11 + 3 + 1) / 4
    come = metrics.measure(metrics.insertion(values), masked(), additive)
    assert come.y.tolist() == [0, 4, 12, 14, 15]
    assert float(come) == (4 + 12 + 14 + 15 / 2) / 4


def test_curves_of_parts_ask_about_all_of_their_leaves_or_as_the_paper_does():
    seen = []

    def inputs(x, masks, level):
        seen.append(level)
        return STRUCTURE.expand(masks, level) * (1.0 if level else 10.0)

    case = c2fa.maskers.Custom(STRUCTURE, inputs)(None)
    for masked, level, y in ((case, 1, [15.0, 3.0, 0.0]), (case.apart(), 0, [150.0, 30.0, 0.0])):
        seen.clear()
        assert metrics.measure(metrics.deletion([0.0, 1.0], level=0), masked, additive).y.tolist() == y
        assert set(seen) == {level}


def test_a_curve_of_few_points_takes_several_features_a_step():
    curve = metrics.measure(metrics.deletion([4, 3, 2, 1], points=2), masked(), additive)
    assert curve.x.tolist() == [0, 0.5, 1]
    assert curve.y.tolist() == [15, 12, 0]


def test_where_nothing_may_be_empty_the_curve_ends_before_it():
    asked = next(metrics.deletion([4, 3, 2, 1], empty=False)).masks
    assert asked.any(axis=1).all()
    assert len(asked) == 4
    curve = metrics.measure(metrics.insertion([1, 2, 3, 4], empty=False), masked(), additive)
    assert curve.x.tolist() == [0.25, 0.5, 0.75, 1.0]
    assert curve.auc == pytest.approx((8 / 2 + 12 + 14 + 15 / 2) / 3)
    alone = c2fa.maskers.Array(c2fa.Structure.flat(1))(np.ones(1))
    assert metrics.measure(metrics.deletion([1.0], empty=False), alone, lambda b: 3.0 * b[:, 0]).auc == 3.0


def curve_oracle(values, model, start_full):
    """RISE's algorithm, one feature at a time."""
    on = np.full(len(values), start_full)
    ys = [model(on[None].astype(float))[0]]
    for i in sorted(range(len(values)), key=lambda i: -values[i]):
        on[i] = not start_full
        ys.append(model(on[None].astype(float))[0])
    return (sum(ys) - ys[0] / 2 - ys[-1] / 2) / (len(ys) - 1)


@given(st.lists(st.integers(-3, 3), min_size=4, max_size=4))
def test_curves_are_rises_algorithm(values):
    def model(batch):
        return np.tanh(batch @ WEIGHTS / 5.0)

    gone, come = (metrics.measure(metric(values), masked(), model) for metric in (metrics.deletion, metrics.insertion))
    assert gone.auc == pytest.approx(curve_oracle(values, model, True))
    assert come.auc == pytest.approx(curve_oracle(values, model, False))


def test_curves_go_through_the_checks_of_the_querying_room():
    with pytest.raises(QueryError, match="NaN or infinity"):
        metrics.measure(metrics.deletion([1, 2, 3, 4]), masked(), lambda b: np.full(len(b), np.nan))
    with pytest.raises(ValueError, match="finite numbers"):
        next(metrics.deletion([1, np.nan]))


def test_infidelity_by_hand():
    masks = [[1, 1, 1, 1], [1, 0, 0, 0], [0, 0, 0, 1]]
    values = [1.0, 2.0, 4.0, 5.0]  # the last is 3 too small
    found = metrics.measure(metrics.infidelity(values, masks), masked(), additive)
    assert found == pytest.approx((9 + 0 + 9) / 3)
    found = metrics.measure(metrics.infidelity(values, masks, intercept=3.0), masked(), additive)
    assert found == pytest.approx((0 + 9 + 0) / 3)


def test_held_out_masks_are_not_those_of_a_method():
    fitted = c2fa.methods.Task(STRUCTURE, (1, 1), np.ones(1), np.array([0]), 0, seed=0).rng(1).random((50, 4)) < 0.5
    assert (fitted != metrics.held_out(4, 50)).any()
    assert metrics.held_out(2, 200, empty=False).any(axis=1).all()


# -- consistency, stability, calibration -----------------------------------------------------------------------


def test_consistency_and_agreement_by_hand():
    leaves = np.array([1.0, 2.0, 3.0, -1.0])
    assert metrics.consistency((np.array([3.0, 2.0]), leaves), STRUCTURE) == 0.0
    assert metrics.consistency((np.array([4.0, 4.0]), leaves), STRUCTURE) == 1.0 + 4.0
    assert metrics.mihl((np.array([3.0, 2.0]), leaves), STRUCTURE) == 0.0
    assert metrics.mihl((np.array([1.0, 2.0]), leaves), STRUCTURE) == 1.0


def test_consistency_of_three_levels_counts_each():
    s = c2fa.Structure.from_tree({"A": {"a": ["x", "y"]}, "B": {"b": ["z"]}})
    values = (np.array([3.0, 5.0]), np.array([3.0, 4.0]), np.array([1.0, 2.0, 4.0]))
    assert metrics.consistency(values, s) == 1.0


def test_what_the_explanation_says_of_itself_agrees():
    e = c2fa.Explainer(additive, c2fa.maskers.Array(STRUCTURE), budget=(6, 20), method="lime")(np.ones(4))
    assert metrics.consistency(e.values, e.structure) == pytest.approx(e.diagnostics.consistency)
    assert metrics.mihl(e.values, e.structure) == e.diagnostics.agreement


def test_stability_is_spearmans():
    from scipy.stats import spearmanr

    rng = np.random.default_rng(2)
    runs = rng.normal(size=(3, 8)).round(1)
    pairs = [spearmanr(runs[i], runs[j]).statistic for i, j in ((0, 1), (0, 2), (1, 2))]
    assert metrics.stability(runs) == pytest.approx(np.mean(pairs))
    assert np.isnan(metrics.stability(runs[:1]))
    assert np.isnan(metrics.stability([[1.0, 1.0], [1.0, 2.0]]))


def test_coverage_by_hand_and_on_its_own_normal_law():
    assert metrics.coverage([0, 0], [1, 1], [1.9, 2.0]) == 0.5
    rng = np.random.default_rng(4)
    assert metrics.coverage(rng.normal(size=20_000), np.ones(20_000), 0.0) == pytest.approx(0.95, abs=0.01)
    assert metrics.coverage(rng.normal(size=20_000), np.ones(20_000), 0.0, 0.5) == pytest.approx(0.5, abs=0.02)


def test_coverage_of_a_noisy_additive_model():
    rng = np.random.default_rng(5)
    s = c2fa.Structure.from_groups(np.repeat(np.arange(4), 5))
    truth, shares = rng.normal(size=20), []
    for seed in range(20):
        model = lambda batch, seed=seed: batch @ truth + np.random.default_rng(seed).normal(size=len(batch))  # noqa: E731
        e = c2fa.Explainer(
            model,
            c2fa.maskers.Array(s),
            budget=(20, 300),
            batch_size=1000,
            kernel="uniform",
            penalty=c2fa.L2(0.01),
            seed=seed,
            anchor=False,
        )(np.ones(20))
        shares.append(metrics.coverage(e.low, e.stderr[1], truth))
    assert 0.85 < np.mean(shares) < 1.0


# -- of an answer's sources ------------------------------------------------------------------------------------


def spearman_oracle(one, other):
    """Pearson's correlation of ranks, a rank being the mean place among all, counted by hand."""

    def rank(values):
        return [sum(w < v for w in values) + (sum(w == v for w in values) + 1) / 2 for v in values]

    x, y = rank(one), rank(other)
    mean = (len(x) + 1) / 2
    top = sum((a - mean) * (b - mean) for a, b in zip(x, y, strict=True))
    return top / (sum((a - mean) ** 2 for a in x) * sum((b - mean) ** 2 for b in y)) ** 0.5


@given(st.lists(st.integers(-4, 4), min_size=4, max_size=4), st.sampled_from([0, 1]), st.integers(0, 50))
def test_lds_is_the_rank_correlation_over_fresh_masks(leaves, level, seed):
    values = STRUCTURE.sums(np.array(leaves, float), level)
    masks = metrics.held_out(len(values), 12, seed)
    found = metrics.measure(metrics.lds(values, masks, level), masked(), additive)
    predicted = [sum(int(v) for v, keep in zip(values, row, strict=True) if keep) for row in masks]
    owners = STRUCTURE.owners(level)
    said = [sum(int(WEIGHTS[i]) for i in range(4) if row[owners[i]]) for row in masks]
    if len(set(predicted)) == 1:
        assert found == 0.0
    else:
        assert found == pytest.approx(spearman_oracle(predicted, said))


def test_lds_has_nothing_to_rank_where_the_model_says_one_thing():
    masks = metrics.held_out(4, 20)
    assert np.isnan(metrics.measure(metrics.lds(WEIGHTS, masks), masked(), lambda batch: np.ones(len(batch))))


@given(st.lists(st.integers(-3, 3), min_size=4, max_size=4), st.integers(1, 6))
def test_topk_drop_is_what_the_top_features_were_worth(values, k):
    order = sorted(range(4), key=lambda i: (-values[i], i))
    expected = sum(WEIGHTS[i] for i in order[:k])
    assert metrics.measure(metrics.topk_drop(values, k), masked(), additive) == pytest.approx(expected)
    parts = [values[0] + values[1], values[2] + values[3]]
    best = [3.0, 12.0][int(parts[1] > parts[0])]
    assert metrics.measure(metrics.topk_drop(parts, 1, level=0), masked(), additive) == pytest.approx(best)


@given(st.lists(st.tuples(st.integers(-3, 3), st.sampled_from([1, 0, np.nan])), min_size=1, max_size=9))
@pytest.mark.parametrize("k", [1, 3])
def test_evidence_recall_is_the_share_that_is_found(k, pairs):
    values, relevant = map(list, zip(*pairs, strict=True))
    known = [i for i in range(len(pairs)) if relevant[i] == relevant[i]]
    order = sorted(known, key=lambda i: (-values[i], i))
    evidence = {i for i in known if relevant[i] == 1}
    found = metrics.evidence_recall(values, relevant, k)
    if evidence:
        assert found == pytest.approx(len(evidence & set(order[:k])) / len(evidence))
    else:
        assert np.isnan(found)


@pytest.mark.parametrize(
    ("name", "better"),
    [
        ("ndcg", True),
        ("top1", True),
        ("auroc", True),
        ("insertion", True),
        ("deletion", False),
        ("infidelity", False),
        ("lds", True),
        ("topk_drop", True),
        ("evidence_recall", True),
        ("consistency", False),
        ("mihl", True),
        ("stability", True),
        ("coverage", None),
    ],
)
def test_every_metric_says_which_way_it_points(name, better):
    assert getattr(metrics, name).higher_is_better is better


def test_what_cannot_be_ranked_or_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="k must be at least 1, the features to look among; got 0"):
        metrics.evidence_recall([1.0], [1], k=0)
    for metric in (metrics.auroc, metrics.ndcg, metrics.top1, metrics.evidence_recall):
        with pytest.raises(ValueError, match="the attribution of feature 0 is NaN"):
            metric([np.nan, 1.0, 2.0], [1, 0, 0])
    masked = c2fa.maskers.Array(c2fa.Structure.from_groups("aabb"))(np.ones(4))
    for conversation, match in (
        (metrics.insertion([1, 2, 3, 4], target=3), r"target 3 does not exist; the model has outputs 0\.\.0"),
        (metrics.topk_drop([1, 2, 3, 4], k=0), "k must be at least 1, the features to remove; got 0"),
        (metrics.lds([1, 2], [[1, 0, 1, 1]]), r"shape \(n, 2\), one column for each value; got \(1, 4\)"),
        (metrics.infidelity([1, 2], [[1, 0, 1, 1]]), r"shape \(n, 2\), one column for each value; got \(1, 4\)"),
    ):
        with pytest.raises(ValueError, match=match):
            metrics.measure(conversation, masked, lambda batch: batch.sum(axis=1))

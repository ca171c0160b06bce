"""The harness: queries shared, the same numbers as separate runs, the same again, and on after a kill."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
from collections import Counter

import numpy as np
import pytest

import c2fa
from c2fa import metrics
from c2fa.evaluation import Result, RowCount, bootstrap, evaluate

pd = pytest.importorskip("pandas")

STRUCTURE = c2fa.Structure.from_groups(np.repeat(np.arange(3), 8))
MASKER = c2fa.maskers.Array(STRUCTURE)
WEIGHTS = np.random.default_rng(0).normal(size=24)
INPUTS = [np.random.default_rng(1 + i).normal(size=24) for i in range(3)]
C2FA = ("c2fa", "c2fa", {"sampler": "uniform", "kernel": "cosine", "penalty": None})  # the masks that the others ask
SIX = [C2FA, "lime", "milli", "bu-lime", "td-lime", "td-milli"]
BUDGETS = [(8, n) for n in (10, 20, 30, 40, 50, 60)]


class Counting:
    """A saturating model that counts the rows it is given."""

    name = "counting"

    def __init__(self):
        self.rows = Counter()

    def __call__(self, batch):
        self.rows.update(row.tobytes() for row in batch)
        return np.tanh(batch @ WEIGHTS / 4.0)

    @property
    def total(self):
        return sum(self.rows.values())

    @property
    def repeated(self):
        """Rows given more than once; all inputs share the empty one, which is one row for each of them."""
        return [row for row, times in self.rows.items() if times > 1 and any(row)]


def test_a_sweep_of_methods_that_share_masks_costs_one_run_of_the_largest():
    x, alone = INPUTS[0], Counting()
    largest = c2fa.Explainer(alone, MASKER, budget=(9, 60), **C2FA[2])(x)
    model = Counting()
    result = evaluate(
        [C2FA, "lime", "bu-lime", "td-lime"],
        [x],
        model,
        MASKER,
        masks=BUDGETS,
        seeds=1,
        metrics=["consistency", "mihl"],
    )
    assert result.rows.explaining == largest.queries == alone.total
    assert model.total == result.rows.sent == result.rows.explaining
    assert result.rows.scoring == 0


def test_a_sweep_of_the_joint_fit_costs_one_run_of_the_largest():
    x, alone, model = INPUTS[0], Counting(), Counting()
    largest = c2fa.Explainer(alone, MASKER, method="c2fa", budget=(9, 60))(x)
    result = evaluate(["c2fa"], [x], model, MASKER, masks=BUDGETS, seeds=1, metrics=["consistency", "mihl"])
    assert result.rows.explaining == largest.queries == alone.total == model.total == 68
    planned = [("lime", "lime", {"sampler": "planned"}), ("bu-lime", "bu-lime", {"sampler": "planned"})]
    both = evaluate(
        ["c2fa", *planned], [x], Counting(), MASKER, masks=BUDGETS, seeds=1, metrics=["consistency", "mihl"]
    )
    assert both.rows.explaining == 68  # with its sampler, the others ask its masks


def test_six_methods_and_six_budgets_ask_no_row_twice_and_say_what_separate_runs_would_cost():
    model, separate = Counting(), Counting()
    result = evaluate(SIX, INPUTS, model, MASKER, masks=BUDGETS, seeds=2, metrics=["deletion", "mihl"])
    assert model.total == result.rows.sent == result.rows.explaining + result.rows.scoring
    assert not model.repeated
    used = 0
    for _, method, options in [spec if isinstance(spec, tuple) else (spec, spec, {}) for spec in SIX]:
        for n_h, n_l in BUDGETS:
            for seed in range(2):
                for x in INPUTS:
                    budget = (n_h + 1, n_l)
                    explain = c2fa.Explainer(separate, MASKER, method=method, budget=budget, seed=seed, **options)
                    used += explain(x).queries
    assert result.rows.explaining_alone == used == separate.total
    assert used > 10 * result.rows.explaining
    assert f"{used:,}" in str(result.rows)


def test_scores_are_those_of_a_run_by_itself():
    result = evaluate(
        ["c2fa", "milli"],
        INPUTS[:1],
        Counting(),
        MASKER,
        masks=BUDGETS[:2],
        seeds=[4],
        metrics=["deletion", "infidelity"],
    )
    frame = result.frame.set_index(["method", "N_L", "metric", "level"])["value"]
    for method in ("c2fa", "milli"):
        for n_h, n_l in BUDGETS[:2]:
            e = c2fa.Explainer(Counting(), MASKER, method=method, budget=(n_h + 1, n_l), seed=4)(INPUTS[0])
            for level in (0, 1):
                curve = metrics.deletion(e.values[level], level)
                expected = metrics.measure(curve, MASKER(INPUTS[0]), Counting()).auc
                assert frame[method, n_l, "deletion", level] == pytest.approx(expected, rel=1e-12)


def test_the_scores_of_sources_are_those_of_the_metrics():
    truth = (None, (np.arange(24) < 2).astype(float))
    names = ["lds", "top1-drop", "top3-drop", "top1-recall", "top3-recall"]
    result = evaluate(
        ["leave-one-out", "bu-lime"],
        INPUTS[:1],
        Counting(),
        MASKER,
        budgets=[40],
        seeds=[4],
        metrics=names,
        truths=[truth],
    )
    frame = result.frame.set_index(["method", "metric", "level"])["value"]
    assert set(result.frame.query("level == 0").metric) == {"lds"}
    masked = MASKER(INPUTS[0])
    for method in ("leave-one-out", "bu-lime"):
        e = c2fa.Explainer(Counting(), MASKER, method=method, budget=40, seed=4)(INPUTS[0])
        for k in (1, 3):
            drop = metrics.measure(metrics.topk_drop(e.low, k), masked, Counting())
            assert frame[method, f"top{k}-drop", 1] == pytest.approx(drop)
            assert frame[method, f"top{k}-recall", 1] == metrics.evidence_recall(e.low, truth[1], k)
        others = [metrics.held_out(e.structure.widths[level], 2000, 99) for level in (0, 1)]
        for level, masks in enumerate(others):
            precise = metrics.measure(metrics.lds(e.values[level], masks, level), masked, Counting())
            assert frame[method, "lds", level] == pytest.approx(precise, abs=0.15)


def test_the_drop_of_all_parts_is_not_asked_of_what_cannot_be_empty():
    s = c2fa.Structure.flat(3)
    masker = c2fa.maskers.Custom(s, lambda x, masks, level: masks * 1.0, allows_empty=False)
    result = evaluate(
        ["c2fa"], [0], lambda b: b.sum(axis=1), masker, budgets=[8], seeds=1, metrics=["top1-drop", "top3-drop"]
    )
    drops = result.frame.set_index("metric")["value"]
    assert drops["top1-drop"] == pytest.approx(1.0)
    assert np.isnan(drops["top3-drop"])


def test_the_grid_is_deterministic_whatever_the_batches():
    runs = [
        evaluate(
            SIX,
            INPUTS,
            Counting(),
            MASKER,
            masks=BUDGETS[:2],
            seeds=2,
            metrics=["insertion", "top3-drop", "stability"],
            batch_size=b,
        )
        for b in (7, 64)
    ]
    again = evaluate(
        SIX,
        INPUTS,
        Counting(),
        MASKER,
        masks=BUDGETS[:2],
        seeds=2,
        metrics=["insertion", "top3-drop", "stability"],
        batch_size=7,
    )
    pd.testing.assert_frame_equal(runs[0].frame, again.frame, check_exact=True)
    # One row in a batch or 64 may differ in the last bit of the model's own product.
    pd.testing.assert_frame_equal(runs[0].frame, runs[1].frame, rtol=1e-9)


def test_stability_is_each_seeds_rank_correlation_with_the_others():
    result = evaluate(["c2fa"], INPUTS[:1], Counting(), MASKER, masks=[(8, 20)], seeds=3, metrics=["stability@1"])
    runs = [c2fa.Explainer(Counting(), MASKER, method="c2fa", budget=(9, 20), seed=s)(INPUTS[0]).low for s in range(3)]
    assert result.frame["value"].mean() == pytest.approx(metrics.stability(runs))


# -- the summary -----------------------------------------------------------------------------------------------


def test_summary_by_hand():
    frame = pd.DataFrame(
        [(m, 5, 50, s, i, "auroc", 1, v + 0.1 * s) for m, vs in (("c2fa", (0.8, 0.6)), ("lime", (0.7, 0.2)))
         for i, v in enumerate(vs) for s in (0, 1)],
        columns=["method", "N_H", "N_L", "seed", "input", "metric", "level", "value"],
    )  # fmt: skip
    result = Result(frame, ("c2fa", "lime"), "c2fa", RowCount(0, 0, 0, 0, 0), {"auroc": True})
    summary = result.summary().set_index("method")
    assert summary["mean"].tolist() == pytest.approx([0.75, 0.5])
    assert summary["std"].tolist() == pytest.approx([np.std([0.7, 0.8], ddof=1), np.std([0.45, 0.55], ddof=1)])
    assert summary["difference"].tolist() == pytest.approx([0.0, -0.25])
    assert (summary["low"]["lime"], summary["high"]["lime"]) == pytest.approx((-0.4, -0.1))
    assert summary["inputs"].tolist() == [2, 2]


def test_a_metric_is_printed_with_the_level_that_it_is_of(tmp_path):
    whole = ("mihl@0", ("mine", lambda e, truth: 1.0))
    settings = {"masks": [(8, 20)], "seeds": 1, "metrics": ["deletion", *whole], "store": tmp_path, "model_name": "m"}
    for _ in range(2):  # asked, then read from the store
        result = evaluate(["c2fa"], INPUTS[:1], Counting(), MASKER, **settings)
        printed = {" ".join(line.split()[3:5]) for line in result.to_text().splitlines()[1:5]}
        assert printed == {"deletion (parts)", "deletion (leaves)", "mihl True", "mine None"}
        assert result.label("deletion", 1) == "deletion (leaves)"
        titles = [axis.get_title(loc="left") for axis in result.plot("deletion").axes]
        assert [title.partition(",")[0] for title in titles] == ["parts", "leaves"]


def test_bootstrap_is_the_plain_one():
    gaps = np.random.default_rng(3).normal(0.3, 1.0, 25)
    rng = np.random.default_rng(7)
    means = []
    for index in rng.integers(0, 25, size=(500, 25)):
        means.append(np.mean([gaps[i] for i in index]))
    low, high = bootstrap(gaps, resamples=500, seed=7, confidence=0.9)
    assert low == pytest.approx(np.quantile(means, 0.05))
    assert high == pytest.approx(np.quantile(means, 0.95))


def test_undefined_scores_are_left_out_in_pairs():
    truths = [([1, 0, 0], None), ([0, 0, 0], None), ([0, 1, 0], None)]
    result = evaluate(
        ["c2fa", "lime"], INPUTS, Counting(), MASKER, masks=[(8, 20)], seeds=1, metrics=["ndcg"], truths=truths
    )
    assert result.summary()["inputs"].tolist() == [2, 2]
    assert result.frame["value"].isna().sum() == 2


def test_plot_draws_one_line_a_method_with_error_bars():
    result = evaluate(
        ["c2fa", "lime"], INPUTS, Counting(), MASKER, masks=[(4, 10), (8, 10), (8, 20)], seeds=2, metrics=["deletion"]
    )
    _, axis = result.plot("deletion", level=1).axes  # of two values of N_H
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["c2fa", "lime"]
    assert len(axis.containers) == 2
    assert axis.get_xlabel() == "N_L"
    assert len(result.plot("deletion").axes) == 4  # two levels, two values of N_H
    with pytest.raises(ValueError, match="nothing to draw"):
        result.plot("auroc")


# -- what people may pass --------------------------------------------------------------------------------------


def test_methods_by_label_with_options_and_metrics_of_ones_own():
    def largest(e, truth):
        return float(e.low.max())

    def first_leaf(e, truth):
        answer = yield c2fa.asking.querying.Ask(1, np.eye(24, dtype=bool)[:1])
        return answer.outputs[0, e.target]

    result = evaluate(
        ["c2fa", ("weak", "c2fa", {"penalty": c2fa.L2(100.0)}), ("printed", "c2fa", {"preset": "paper"})],
        INPUTS[:1],
        Counting(),
        MASKER,
        masks=[(8, 20)],
        seeds=1,
        metrics=[("largest", largest), ("first leaf", first_leaf)],
    )
    table = result.frame.pivot_table("value", "metric", "method")
    assert table["weak"]["largest"] < table["c2fa"]["largest"]
    assert table["c2fa"]["first leaf"] == pytest.approx(np.tanh(INPUTS[0][0] * WEIGHTS[0] / 4.0))
    assert result.rows.scoring == 1


def test_budgets_in_one_number_and_any_depth():
    result = evaluate(["c2fa"], INPUTS[:1], Counting(), MASKER, budgets=[30, 60], seeds=1, metrics=["mihl"])
    assert result.frame["N"].tolist() == [30, 60]
    deep = c2fa.maskers.Array(c2fa.Structure.from_tree([[["a", "b"], ["c"]], [["d", "e"]]]))
    result = evaluate(
        ["c2fa", "lime"],
        [np.ones(5)],
        lambda b: b.sum(axis=1),
        deep,
        masks=[(4, 6, 8)],
        seeds=1,
        metrics=["deletion", "faithfulness"],
    )
    assert [c for c in result.frame if c.startswith("N")] == ["N_0", "N_1", "N_2"]
    assert sorted(result.frame.query("metric == 'deletion' and method == 'lime'")["level"]) == [0, 1, 2]


def test_bags_from_which_instances_are_removed():
    bag = np.random.default_rng(5).normal(size=(4, 6))
    seen = []

    def model(batch):
        seen.extend(len(rows) for rows in batch)
        return np.array([np.tanh(rows.sum()) for rows in batch])

    result = evaluate(
        SIX, [bag], model, c2fa.maskers.Bag(), masks=[(10, 20)], seeds=2, metrics=["insertion", "deletion", "lds"]
    )
    assert min(seen) >= 1
    assert result.frame["value"].notna().all()


def test_a_method_that_refuses_its_budget_is_left_out_and_named():
    result = evaluate(
        ["c2fa", "milli"], INPUTS, Counting(), MASKER, masks=[(3, 10), (8, 10)], seeds=1, metrics=["mihl"]
    )
    assert set(result.frame.query("method == 'milli'")["N_H"]) == {8}
    (note,) = result.notes
    assert note.startswith("milli was left out on 3 of 3 inputs at (3, 10)")


def test_unusable_answers_are_dropped_where_that_is_wished():
    def model(batch):
        outputs = np.tanh(batch @ WEIGHTS / 4.0)
        return np.where(outputs < -0.6, np.nan, outputs)

    result = evaluate(
        ["c2fa", "lime"], INPUTS, model, MASKER, masks=[(8, 40)], seeds=1, metrics=["deletion"], on_error="drop"
    )
    assert result.frame["value"].notna().all()
    with pytest.raises(c2fa.QueryError, match="NaN or infinity"):
        evaluate(["c2fa"], INPUTS, model, MASKER, masks=[(8, 40)], seeds=1, metrics=["deletion"])


def test_progress_is_shown_where_it_is_wished(capsys):
    def slow(batch):
        time.sleep(0.4)
        return batch.sum(axis=1)

    evaluate(["c2fa"], INPUTS, slow, MASKER, masks=[(8, 20)], seeds=1, metrics=["mihl"], progress=True)
    assert "evaluating" in capsys.readouterr().err
    evaluate(["c2fa"], INPUTS, Counting(), MASKER, masks=[(8, 20)], seeds=1, metrics=["mihl"])
    assert not capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"methods": "c2fa"}, "must be a list"),
        ({"methods": ["c2fa", ("c2fa", "lime", {})]}, "one label"),
        ({"methods": [("x", "c2fa", {"penlaty": 1})]}, "penlaty"),
        ({"budgets": [(8, 20), 30]}, "all numbers or all tuples"),
        ({"budgets": []}, "must be a list"),
        ({"metrics": ["auc"]}, "does not exist"),
        ({"metrics": []}, "metrics is empty"),
        ({"metrics": ["deletion@2"]}, "asked at level 2"),
        ({"metrics": ["ndcg"]}, "give truths="),
        ({"truths": [None]}, "1 truths for 3 inputs"),
        ({"reference": "shap"}, "not one of the methods"),
    ],
)
def test_mistakes_are_named(change, match):
    settings = {"methods": ["c2fa"], "metrics": ["mihl"], **change}
    settings = settings if "budgets" in settings else {"masks": [(8, 20)], **settings}
    with pytest.raises((ValueError, TypeError), match=match):
        evaluate(inputs=INPUTS, model=Counting(), masker=MASKER, seeds=1, **settings)


def test_an_error_says_where_it_happened():
    def metric(e, truth):
        raise RuntimeError("no")

    with pytest.raises(RuntimeError) as caught:
        evaluate(["lime"], INPUTS, Counting(), MASKER, masks=[(8, 20)], seeds=[5], metrics=[("mine", metric)])
    assert "the scores of method 'lime' at masks (8, 20), seed 5, input 0" in caught.value.__notes__[0]


# -- going on --------------------------------------------------------------------------------------------------


def test_a_second_call_sends_nothing_and_another_grid_only_what_is_new(tmp_path):
    model = Counting()
    sizes = {"masks": [(8, 10), (8, 20)], "seeds": 2, "metrics": ["deletion"], "store": tmp_path}
    first = evaluate(["c2fa", "lime"], INPUTS, model, MASKER, **sizes)
    before = model.total
    second = evaluate(["c2fa", "lime"], INPUTS, model, MASKER, **sizes)
    assert model.total == before
    assert second.rows.sent == 0
    assert second.rows.explaining == first.rows.explaining
    pd.testing.assert_frame_equal(first.frame, second.frame, check_exact=True)
    third = evaluate(["c2fa", "bu-lime"], INPUTS, model, MASKER, **sizes)
    assert third.rows.explaining == first.rows.explaining
    assert not model.repeated
    with pytest.raises(ValueError, match="model_name"):
        evaluate(["c2fa"], INPUTS, lambda b: b @ WEIGHTS, MASKER, **sizes)


def test_an_input_that_was_being_written_is_done_again(tmp_path):
    model = Counting()
    given = (["c2fa"], INPUTS, model, MASKER)
    options = {"masks": [(8, 10)], "seeds": 1, "metrics": ["mihl"], "store": tmp_path}
    first = evaluate(*given, **options)
    paths = sorted(tmp_path.glob("results-*/*"))
    assert len(paths) == 3
    whole = paths[0].read_bytes()
    paths[0].with_name("_half-12345678.tmp").write_bytes(whole[:-7])
    paths[0].unlink()
    again = evaluate(*given, **options)
    assert again.rows.sent == 0  # the answers are in the ledger
    pd.testing.assert_frame_equal(first.frame, again.frame, check_exact=True)
    assert json.loads(paths[0].read_bytes())["scores"] == json.loads(whole)["scores"]


@pytest.mark.parametrize("damage", ["cut", "digit", "binary", "list", "foreign"])
def test_a_damaged_input_is_named_and_done_again(tmp_path, damage):
    model = Counting()
    options = {"masks": [(8, 10)], "seeds": 1, "metrics": ["deletion"], "store": tmp_path}
    first = evaluate(["c2fa"], INPUTS, model, MASKER, **options)
    path = sorted(tmp_path.glob("results-*/*"))[1]
    whole = path.read_bytes()
    at = whole.index(b"deletion") + len(b'deletion", 0, 0.')
    path.write_bytes(
        {
            "cut": whole[:-7],
            "digit": whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :],
            "binary": b"\xff\x00",
            "list": b"[]",
            "foreign": b'{"rows": 1}',
        }[damage]
    )
    with pytest.warns(UserWarning, match="counts as not finished, and the same call does it again") as said:
        again = evaluate(["c2fa"], INPUTS, model, MASKER, **options)
    assert str(path) in str(said[0].message)
    assert again.rows.sent == 0  # the answers are in the ledger
    pd.testing.assert_frame_equal(first.frame, again.frame, check_exact=True)
    assert json.loads(path.read_bytes())["scores"] == json.loads(whole)["scores"]


def test_a_full_disk_leaves_no_half_of_an_input(tmp_path, monkeypatch):
    def full(handle):
        raise OSError(28, "No space left on device")

    options = {"masks": [(8, 10)], "seeds": 1, "metrics": ["mihl"], "store": tmp_path, "keep_answers": False}
    with monkeypatch.context() as broken:
        broken.setattr("os.fsync", full)
        with pytest.raises(OSError, match="No space left on device; nothing was written"):
            evaluate(["c2fa"], INPUTS, Counting(), MASKER, **options)
    assert not list(tmp_path.glob("results-*/*"))


def test_processes_that_share_a_store_make_what_one_call_makes(tmp_path):
    options = {"masks": [(8, 10), (3, 10)], "seeds": 2, "metrics": ["deletion"], "keep_answers": False}
    methods = ["c2fa", "milli"]
    whole = evaluate(methods, INPUTS, Counting(), MASKER, **options)
    for i in (2, 0):  # as two processes would, each with inputs of its own
        evaluate(methods, [INPUTS[i]], Counting(), MASKER, store=tmp_path, **options)
    model = Counting()
    some = evaluate(methods, INPUTS, model, MASKER, store=tmp_path, seconds=0, **options)
    assert model.total == some.rows.sent == 0
    pd.testing.assert_frame_equal(some.frame, whole.frame[whole.frame["input"] != 1].reset_index(drop=True))
    assert some.notes[0].startswith("milli was left out on 2 of 2 inputs at (3, 10)")
    assert some.notes[1] == "1 of 3 inputs were not begun in time; the same call does them"
    every = evaluate(methods, INPUTS, model, MASKER, store=tmp_path, **options)
    assert model.total == every.rows.sent > 0
    pd.testing.assert_frame_equal(every.frame, whole.frame)
    assert every.notes == whole.notes
    assert dataclasses.replace(every.rows, sent=whole.rows.sent) == whole.rows
    assert not list(tmp_path.glob("*.sqlite"))


def test_nothing_is_begun_when_the_time_is_over():
    model = Counting()
    result = evaluate(["c2fa"], INPUTS, model, MASKER, masks=[(8, 10)], seconds=0)
    assert model.total == 0
    assert result.frame.empty
    assert result.summary().empty
    assert "3 of 3 inputs were not begun in time" in str(result)


SCRIPT = """
import os, signal, sys
import numpy as np
import c2fa
from c2fa.evaluation import evaluate

folder, die = sys.argv[1], int(sys.argv[2])
weights = np.random.default_rng(0).normal(size=24)
calls = 0

def model(batch):
    global calls
    calls += 1
    if calls == die:
        os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))
    with open(folder + "/rows.log", "a") as log:
        log.writelines(row.tobytes().hex() + "\\n" for row in batch)
        log.flush()
    return np.tanh(batch @ weights / 4.0)

s = c2fa.Structure.from_groups(np.repeat(np.arange(3), 8))
inputs = [np.random.default_rng(i).normal(size=24) for i in range(4)]
result = evaluate(
    ["c2fa", "lime", "milli"], inputs, model, c2fa.maskers.Array(s), masks=[(8, 20), (8, 40)], seeds=2,
    metrics=["deletion", "mihl"], store=folder + "/store", model_name="m", batch_size=16,
)
result.frame.to_json(folder + "/frame.json", orient="records", double_precision=15)
print(result.rows)
"""


def test_it_goes_on_after_kill_9_and_repeats_no_query(tmp_path):
    def run(name, die):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        command = [sys.executable, "-c", SCRIPT, str(folder), str(die)]
        env = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        return subprocess.run(command, capture_output=True, text=True, env=env, timeout=120)

    whole = run("whole", -1)
    assert whole.returncode == 0, whole.stderr
    deaths = [run("killed", die).returncode for die in (3, 40, 11)]
    assert 0 not in deaths
    last = run("killed", -1)
    assert last.returncode == 0, last.stderr
    rows, expected = ((tmp_path / name / "rows.log").read_text().split() for name in ("killed", "whole"))
    assert sorted(rows) == sorted(expected)
    assert [row for row, times in Counter(rows).items() if times > 1] == ["0" * len(rows[0])]  # empty, once an input
    assert (tmp_path / "killed" / "frame.json").read_text() == (tmp_path / "whole" / "frame.json").read_text()
    assert last.stdout.split(";")[0] == whole.stdout.split(";")[0]  # the same counts, whoever sent the rows


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"inputs": []}, "inputs is empty"),
        ({"inputs": 5}, "inputs must be a list of inputs; got 5"),
        ({"seeds": 0}, "seeds must be their number"),
        ({"seeds": 2**63}, "seeds must be their number, 1 to a million"),
        ({"metrics": "deletion"}, "metrics must be a list"),
        ({"batch_size": 0}, "batch_size must be a whole number of at least 1"),
        ({"keys": {0: "a", 1: "b"}}, "keys must be a list with one for each input; got {0: 'a'"),
        ({"keys": -1.5}, r"keys must be a list with one for each input; got -1\.5"),
        (
            {"inputs": iter(INPUTS), "truths": [None] * 3},
            "inputs must be a list where truths are given; got <list_iter",
        ),
        ({"inputs": 5, "truths": [None]}, "inputs must be a list of inputs; got 5"),
        ({"methods": [3]}, r"a method is a name such as 'lime', or \(label, name, options\); got 3"),
        ({"methods": [("mine",)]}, r"a method is a name such as 'lime', or .*; got \('mine',\)"),
        (
            {"methods": [("mine", "owen", {"budget": 9})]},
            "budget is the same for all .*: leave it out of those of 'mine'",
        ),
        ({"metrics": [3]}, r"a metric is a name, or \(name, function\) of \(explanation, truth\); got 3"),
        ({"metrics": [("mine",)]}, r"a metric is a name, or \(name, function\) of .*; got \('mine',\)"),
        ({"metrics": ["deletion@2"]}, r"the metric 'deletion' is asked at level 2, and the input has levels 0\.\.1"),
        ({"metrics": ["ndcg"]}, "the metric 'ndcg' needs to know the truth at level 0"),
        ({"metrics": ["auroc"], "truths": [([1, 0, 1],)]}, "the metric 'auroc' needs to know the truth at level 1"),
    ],
)
def test_a_grid_that_cannot_be_run_is_refused_in_one_sentence(change, match):
    model = Counting()
    with pytest.raises((TypeError, ValueError), match=match):
        evaluate(
            **{"methods": ["c2fa"], "inputs": INPUTS[:1], "seeds": 1, "masks": [(8, 10)], **change},
            model=model,
            masker=MASKER,
        )
    assert not model.total


def test_a_metric_that_returns_no_number_is_named():
    with pytest.raises(TypeError, match="the metric 'mine' must return a number; got None"):
        evaluate(
            ["c2fa"], INPUTS[:1], Counting(), MASKER, masks=[(8, 10)], seeds=1, metrics=[("mine", lambda e, t: None)]
        )


def test_no_masker_is_the_one_that_fits_the_input():
    texts = ["Not good. But I smiled!"]
    model = c2fa.models.DemoSentiment()
    given, fitting = (evaluate(["owen"], texts, model, m, budgets=[20], seeds=1) for m in (c2fa.maskers.Text(), None))
    pd.testing.assert_frame_equal(given.frame, fitting.frame)


def test_a_grid_as_numpy_and_scikit_learn_hold_it():
    linear = pytest.importorskip("sklearn.linear_model").LinearRegression().fit(np.array(INPUTS), [0.0, 1.0, 2.0])
    given = (INPUTS[:1], linear, MASKER)
    plain = evaluate(["c2fa"], *given, masks=[(8, 10), (8, 20)], seeds=2, metrics=["deletion"])
    same = evaluate(["c2fa"], *given, masks=np.array([[8, 10], [8, 20]]), seeds=np.int64(2), metrics=["deletion"])
    pd.testing.assert_frame_equal(plain.frame, same.frame)
    found = evaluate(["c2fa"], *given, budgets=[np.int64(20)], seeds=1, metrics=["deletion"])
    assert set(found.frame["N"]) == {20}


def test_masks_leave_the_prediction_out_and_budgets_count_it():
    x, sizes = INPUTS[:1], {"seeds": 1, "metrics": ["deletion"]}
    masks = evaluate(["c2fa"], x, Counting(), MASKER, masks=[(8, 10)], **sizes)
    rows = evaluate(["c2fa"], x, Counting(), MASKER, budgets=[(9, 10)], **sizes)
    pd.testing.assert_frame_equal(masks.frame, rows.frame)
    assert set(rows.frame["N_H"]) == {8}


@pytest.mark.parametrize(
    ("sizes", "match"),
    [
        ({}, "give either masks=.* or budgets=.*; got neither"),
        ({"masks": [(8, 10)], "budgets": [20]}, "got both"),
        ({"masks": (8, 10)}, "masks must be a list with one number for each level"),
        ({"masks": [(0, 10)]}, "above 0, one for each level; got \\(0, 10\\)"),
        ({"masks": [(8, 10, 12)]}, "are for 3 levels and the structure has 2"),
        ({"masks": [(8, 10), (8,)]}, "tuples of one length"),
        ({"budgets": [(1, 10)]}, "at least 2, one row being the prediction"),
        ({"budgets": 20}, "budgets must be a list"),
        ({"budgets": ["$2"]}, r"budgets must be a list of rows such as \[100, 200\]; got \['\$2'\]"),
    ],
)
def test_sizes_are_given_once_and_fit_the_input(sizes, match):
    model = Counting()
    with pytest.raises(ValueError, match=match):
        evaluate(["c2fa"], INPUTS, model, MASKER, **sizes)
    assert not model.total

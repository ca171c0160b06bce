"""The benchmark of what a budget buys: truths against slow definitions, verdicts where the right one is known."""

from __future__ import annotations

import doctest
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import c2fa
from c2fa.asking.querying import Answer

pd = pytest.importorskip("pandas")
pytest.importorskip("experiments", reason="the experiments are in a clone, not in a source distribution")
from benchmarks.queries import cost, coverage, family, networks, stopping, synthetic, tables
from benchmarks.queries.command import PARTS, main
from benchmarks.queries.tables import Estimate, Table, Target, interval
from benchmarks.queries.variants import COINS, DEFAULT, LIME, Variant, usable
from experiments.harness import queries
from experiments.harness.reading import Domain

# ------------------------------------------------------------------------------------------------ the family's truth


def small(link: str = "sigmoid", seed: int = 3) -> family.Saturating:
    return family.draw(seed, "dense", 0.2, link, sizes=(3, 2, 3))


def outputs_of_all(model: family.Saturating) -> dict[frozenset[int], float]:
    """The output for every set of leaves."""
    leaves = range(len(model.weights))
    sets = [frozenset(s) for k in range(len(leaves) + 1) for s in itertools.combinations(leaves, k)]
    masks = np.array([[leaf in s for leaf in leaves] for s in sets], dtype=float)
    return dict(zip(sets, model(masks).tolist(), strict=True))


@pytest.mark.parametrize("link", family.LINKS)
def test_leaf_shapley_values_are_those_of_all_orders(link: str) -> None:
    model = small(link)
    value = outputs_of_all(model)
    leaves = frozenset(range(len(model.weights)))
    exact = np.zeros(len(leaves))
    for leaf in leaves:
        for s in (s for s in value if leaf not in s):
            chance = 1.0 / (len(leaves) * len(list(itertools.combinations(range(len(leaves) - 1), len(s)))))
            exact[leaf] += chance * (value[s | {leaf}] - value[s])
    found, error = family.leaf_shapley_and_error(model, 20_000)
    assert np.abs(found - exact).max() < 5 * error.max() + 1e-12
    assert error.max() < 0.05 * exact.std()
    assert found.sum() == pytest.approx(value[leaves] - value[frozenset()])


def test_part_shapley_values_are_those_of_all_orders() -> None:
    model = small()
    exact = np.zeros(3)
    for order in itertools.permutations(range(3)):
        there = np.zeros(3, dtype=bool)
        for part in order:
            before = model(there[None, model.owners])[0]
            there[part] = True
            exact[part] += (model(there[None, model.owners])[0] - before) / 6
    np.testing.assert_allclose(family.part_shapley(model), exact, atol=1e-12)


def test_the_nearest_additive_functions_are_least_squares() -> None:
    model = small("tanh")
    for truth, masks in (
        (family.part_additive(model), np.array(list(itertools.product([0.0, 1.0], repeat=3)))),
        (family.leaf_additive(model), np.array(list(itertools.product([0.0, 1.0], repeat=8)))),
    ):
        outputs = model(masks[:, model.owners] if masks.shape[1] == 3 else masks)
        exact = np.linalg.lstsq(np.column_stack([masks, np.ones(len(masks))]), outputs, rcond=None)[0][:-1]
        assert np.abs(truth - exact).max() < 0.02 * np.abs(exact).max()


@pytest.mark.parametrize("share", family.SHARES.values())
def test_the_sum_has_variance_one_and_the_pairs_their_share_of_it(share: float) -> None:
    model = family.draw(1, "sparse", share, "tanh")
    masks = (np.random.default_rng(0).random((40_000, 100)) < 0.5).astype(float)
    total = masks @ model.weights + (masks[:, model.pairs[:, 0]] * masks[:, model.pairs[:, 1]]) @ model.strengths
    design = np.column_stack([masks, np.ones(len(masks))])
    rest = total - design @ np.linalg.lstsq(design, total, rcond=None)[0]
    assert total.var() == pytest.approx(1.0, abs=0.05)
    assert rest.var() == pytest.approx(share, abs=0.02)


def test_the_benchmark_draws_models_that_nothing_was_chosen_on() -> None:
    models = family.suite(18)
    assert len({(m.kind, m.link) for m in models}) == 18
    np.testing.assert_array_equal(models[0].weights, family.draw(family.FIRST, "sparse", 0.04, "sigmoid").weights)
    assert family.suite(2)[1].link == models[1].link


# ------------------------------------------------------------------------------------------------ numbers and verdicts


@pytest.mark.parametrize(
    ("target", "found", "words"),
    [
        (Target(least=0.9), (0.95, 0.92, 0.97), "reached"),
        (Target(least=0.9), (0.91, 0.89, 0.93), "reached, within chance"),
        (Target(least=0.9), (0.89, 0.87, 0.91), "missed, within chance"),
        (Target(least=0.9), (0.85, 0.8, 0.88), "missed"),
        (Target(most=0.5), (0.4, 0.3, 0.45), "reached"),
        (Target(most=0.5), (0.8, 0.6, 2.0), "missed"),
        (Target(most=0.5), (0.8, 0.4, 2.0), "missed, within chance"),
        (Target(least=0.93, most=0.97), (0.95, 0.94, 0.96), "reached"),
        (Target(least=0.93, most=0.97), (0.99, 0.98, 1.0), "missed"),
        (Target(least=0.93, most=0.97), (0.92, 0.8, 0.99), "missed, within chance"),
        (Target(least=0.9), (0.95, float("nan"), float("nan")), "reached, within chance"),
        (Target(least=0.9), (0.8, float("nan"), float("nan")), "missed, within chance"),
        (Target(least=0.9), (float("nan"),) * 3, "not measured"),
    ],
)
def test_verdicts(target: Target, found: tuple[float, float, float], words: str) -> None:
    assert target.verdict(Estimate(*found)) == words


@given(st.floats(-1, 1), st.floats(0, 1), st.floats(0, 1), st.floats(-1, 1))
def test_a_verdict_is_sure_only_where_the_whole_interval_agrees(
    mean: float, down: float, up: float, least: float
) -> None:
    found = Estimate(mean, mean - down, mean + up)
    words = Target(least=least).verdict(found)
    assert words.startswith("reached") == (mean >= least)
    assert words.endswith("chance") == (found.low < least <= found.high)


def test_an_interval_is_of_inputs_and_a_spread_of_seeds() -> None:
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(400, 1))
    same = Estimate.of(np.repeat(inputs, 3, axis=1))
    assert same.spread == pytest.approx(0.0, abs=1e-12)
    assert same.high - same.low == pytest.approx(2 * 1.96 * inputs.std() / 20, rel=0.1)
    assert Estimate.of(np.tile([1.0, 2.0], (50, 1))).low == 1.5
    assert np.isnan(Estimate.of([[1.0, 2.0]]).low)
    assert Estimate.of([[float("nan")], [1.0], [2.0]]).mean == 1.5
    assert str(Estimate(0.5, 0.4, 0.6, 0.01, digits=2)) == "0.50 [0.40, 0.60] ± 0.01"
    assert interval([*range(99), np.inf]) == (2.0, 97.0)


@pytest.mark.parametrize("module", [tables, stopping, cost])
def test_examples_in_docstrings(module: Any) -> None:
    found = doctest.testmod(module)
    assert found.attempted
    assert not found.failed


def test_columns_stand_under_each_other() -> None:
    table = Table("title", [{"method": "a", "b": 1.0}, {"method": "longer", "b": None, "c": "x"}], ["said"])
    title, head, first, second, note = str(table).splitlines()
    assert (title, note) == ("title", "  said")
    assert head.index("b") == first.index("1") == second.index("–")
    assert head.index("c") == second.index("x")
    plain = Table("t", [{"e": Estimate(1.0, 0.0, np.inf)}]).plain()["rows"][0]["e"]
    assert plain == {"mean": 1.0, "low": 0.0, "high": "infinite", "spread": None}
    json.dumps(plain, allow_nan=False)


# ------------------------------------------------------------------------------------------------ part a


def made_up(curves: dict[str, Any], models: int = 5, seeds: int = 2) -> synthetic.Scores:
    """Scores of methods whose leaf correlation over rows is given; models differ by a constant."""
    rng = np.random.default_rng(0)
    easy = rng.normal(0, 0.01, (models, 1))
    easy -= easy.mean()
    return {
        (label, rows): np.stack([np.tile(curve(rows) + easy, seeds), *[np.full((models, seeds), 0.5)] * 3], axis=2)
        for label, curve in curves.items()
        for rows in synthetic.BUDGETS
    }


def test_rows_needed_to_reach_lime() -> None:
    curves = {
        LIME.label: lambda n: n / 1000,
        "twice as good": lambda n: 2 * n / 1000,
        "hopeless": lambda n: -1.0,
        "perfect": lambda n: 1.0,
    }
    found = synthetic.needed(made_up(curves), list(curves))
    by = {row["method"]: row for row in found.rows}
    assert by["twice as good"]["leaf of lime at 200 (0.200)"] == "100"
    assert by["twice as good"]["leaf of lime at 150 (0.150)"] == "75"
    assert by["hopeless"]["leaf of lime at 200 (0.200)"] == "> 400"
    assert by["perfect"]["leaf of lime at 200 (0.200)"] == "≤ 50"
    assert by[LIME.label]["leaf of lime at 200 (0.200)"] == "200"
    assert found.notes == [f"lime package was not run with {n} rows" for n in (150, 200)]


def test_targets_of_the_table_at_200_rows() -> None:
    scores = made_up({"good": lambda n: 0.95, "bad": lambda n: 0.8})
    scores["good", 200][:, :, 1] = 0.995
    good, bad = synthetic.at_rows(scores, ["good", "bad"], 5, 2).rows
    assert (good["leaf target"], good["part target"], good["in runs"]) == ("reached", "reached", "100%")
    assert (bad["leaf target"], bad["part target"], bad["in runs "]) == ("missed", "missed", "0%")


def test_a_quick_run_of_part_a(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    few = (DEFAULT, LIME, Variant("no such option", options={"sampler": "no such design"}))
    monkeypatch.setattr(synthetic, "VARIANTS", few)
    main(["--quick", "--only", "a", "--out", str(tmp_path / "a.json")])
    said = capsys.readouterr().out
    assert "part 1 of 1: a" in said
    assert "left out: no such option: sampler must be" in said
    stored = json.loads((tmp_path / "a.json").read_text())
    first, *others = stored["parts"]["a"]
    assert [row["method"] for row in first["rows"]] == [DEFAULT.label, LIME.label]
    for row in first["rows"]:
        assert 0.7 < row["leaf"]["mean"] < 1.0
        assert row["leaf target"].split(",")[0] == ("reached" if row["leaf"]["mean"] >= 0.9 else "missed")
        assert 150 < int(row["rows used"]) <= 200
    assert [len(table["rows"]) for table in others] == [2, 2, 2]


def test_a_method_that_overspends_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Spends(Variant):
        def explain(self, model: Any, masker: Any, x: Any, **settings: Any) -> c2fa.Explanation:
            return super().explain(model, masker, x, **{**settings, "budget": 99})

    with pytest.raises(AssertionError, match=r"used 9\d rows of a budget of 50"):
        synthetic.score(Spends("greedy"), family.suite(1)[0], 50, 0)


def test_an_unknown_part_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--only", "a,b"])
    assert "there is no part 'b'; the parts are a, additive, until" in capsys.readouterr().err


def test_what_is_refused_is_said() -> None:
    found, notes = usable([DEFAULT, Variant("odd", options={"colour": "red"}), COINS])
    assert found == [DEFAULT, COINS]
    assert len(notes) == 1
    assert notes[0].startswith("odd: Explainer with method 'c2fa' has no option 'colour'")


# ------------------------------------------------------------------------------------------------ part until


def test_a_rule_that_stops_at_half_of_the_budget_saves_half() -> None:
    budgets = np.array([100.0, 200.0, 400.0])
    fixed = np.array([[0.5] * 8, [0.7] * 8, [0.9] * 8])
    at, ratio, bound = stopping.saving(budgets, fixed, np.full(8, 100.0), np.full(8, 0.7))
    assert (at, ratio.mean, ratio.low, ratio.high, bound) == (pytest.approx(200.0), *[pytest.approx(0.5)] * 3, "")
    assert stopping.saving(budgets, fixed, np.full(8, 100.0), np.full(8, 0.95))[::2] == (400.0, "at most")
    assert stopping.saving(budgets, fixed, np.full(8, 50.0), np.full(8, 0.4))[::2] == (100.0, "at least")
    apart = stopping.saving(budgets, fixed, np.linspace(50, 350, 8), np.full(8, 0.7))[1]
    assert apart.mean == pytest.approx(1.0)
    assert apart.low < 1.0 < apart.high


def test_agreement_counts_the_largest_whatever_their_sign() -> None:
    assert stopping.agreement(np.array([-9.0, 0.0, 1.0, 2.0, 3.0]), np.array([5.0, 4.0, 0.0, 0.0, -6.0])) == 2 / 3
    assert stopping.agreement(np.array([1.0, 2.0]), np.array([2.0, 1.0])) == 1.0
    nearly = np.array([9.0, 8.0, 0.0, 1.0]), np.array([9.0, 8.0, 5.0, -4.0])
    assert stopping.agreement(*nearly) == stopping.agreement(*nearly, margin=0.2) == 2 / 3
    assert stopping.agreement(*nearly, margin=0.25) == 1.0


def test_a_model_that_remembers_asks_every_text_once() -> None:
    asked: list[str] = []

    def network(texts: list[str]) -> np.ndarray:
        asked.extend(texts)
        return np.array([[len(t), 1.0] for t in texts])

    network.output_names = ("a", "b")  # type: ignore[attr-defined]
    model = stopping.Remembering(network)
    np.testing.assert_array_equal(model(["x", "yy", "x"])[:, 0], [1, 2, 1])
    np.testing.assert_array_equal(model(["zzz", "yy"])[:, 0], [3, 2])
    assert asked == ["x", "yy", "zzz"]


# ------------------------------------------------------------------------------------------------ coverage and cost


def test_a_noisy_model_adds_each_levels_own_noise() -> None:
    problem = coverage.Noisy.of(0, "gaussian")
    exact = coverage.Noisy(problem.values, problem.structure, 600, (0.0, 0.0), 0)
    e = exact.explain(Variant("", options={"penalty": c2fa.L2(1e-9)}))
    for values, truth in zip(e.values, exact.truth, strict=True):
        np.testing.assert_allclose(values, truth, atol=1e-4)
    losses = []
    for noise in ((0.5, 0.0), (0.0, 0.5)):
        noisy = coverage.Noisy(problem.values, problem.structure, 600, noise, 0)
        losses.append([level.loss_alone for level in noisy.explain(COINS).diagnostics.levels])
    assert losses[0][0] > 3 * losses[1][0]
    assert losses[1][1] > 3 * losses[0][1]


def test_coverage_of_a_few_problems() -> None:
    found = coverage.additive([DEFAULT], 1)
    assert found.rows[0]["method"] == DEFAULT.label
    assert any(str(row["method"]).startswith("fit alone") for row in found.rows)
    for row in found.rows:
        assert isinstance(row["leaves"], Estimate)
        assert 0.5 < row["leaves"].mean <= 1.0


def test_growth_and_milliseconds() -> None:
    assert cost.growth({10_000: 1.0, 100_000: 100.0}) == pytest.approx(2.0)
    taken = cost.milliseconds(DEFAULT, 100, 3)
    assert 0.1 < taken.low <= taken.mean <= taken.high < 1000


# ------------------------------------------------------------------------------------------------ networks


def results(name: str, ours: dict[str, float], inputs: int = 30) -> Domain:
    """Scores where LIME rises with N_L, LIME with an intercept is a little better, and ours is given at every N_L."""
    scores = (*networks.SCORES[name], *((networks.EXACT,) if name == "images" else ()))
    rng = np.random.default_rng(0)
    easy = rng.normal(0, 0.05, inputs)
    easy -= easy.mean()
    rows = []
    for method in ("LIME", "LIME intercept", "MILLI", "C2FA new"):
        for n_l, seed, i in itertools.product((20, 50, 100, 150, 300), range(2), range(inputs)):
            row: dict[str, Any] = {"method": method, "N_H": 20, "N_L": n_l, "seed": seed, "input": i}
            for score in scores:
                sign = -1.0 if score.startswith("deletion") else 1.0
                base = {"LIME": 0.4, "LIME intercept": 0.42, "MILLI": 0.3}.get(method, 0.0) + 0.001 * n_l
                value = ours.get(score, 0.8) if method == "C2FA new" else sign * base
                row[score] = 0.8 if score == networks.EXACT else value + easy[i]
            rows.append(row)
    return Domain(name, pd.DataFrame(rows))


def verdicts(judged: list[Table]) -> dict[tuple[str, str], str]:
    found = {}
    for row in judged[1].rows:
        rival = str(row["others"]).split(" 0.")[0].split(" -")[0]
        found[str(row["score"]), rival] = str(row["verdict"])
    return found


def test_images_are_judged_against_the_better_lime() -> None:
    good = {"auroc": 0.85, "auroc-within": 0.73, "deletion of leaves": -0.73, "ndcg": 0.9, "mihl": 0.95}
    judged = networks.judged(results("images", good))
    said = verdicts(judged)
    assert said["AUROC", "LIME"] == "reached"  # LIME with an intercept has 0.72 at 300: 0.13 above it
    assert said["AUROC within the image", "LIME"] == "reached"
    assert said["deletion of LoFAs", "LIME"] == "reached"
    assert said["MIHL", ""].startswith("reached")
    assert said["NDCG", "exact Shapley values"] == "reached"
    assert judged[1].rows[0]["others"] == "LIME 0.700, LIME intercept 0.720"

    # Above LIME as printed by 0.11, above LIME with an intercept by 0.09 alone.
    bad = {"auroc": 0.81, "auroc-within": 0.71, "deletion of leaves": -0.71, "ndcg": 0.7, "mihl": 0.8}
    said = verdicts(networks.judged(results("images", bad)))
    assert said["AUROC", "LIME"] == "missed"
    assert said["AUROC within the image", "LIME"] == "missed"
    assert said["deletion of LoFAs", "LIME"] == "missed"
    assert said["MIHL", ""] == "missed"
    assert said["NDCG", "exact Shapley values"] == "missed"


def test_text_is_judged_against_lime_and_milli() -> None:
    values = {"deletion of leaves": -0.73, "deletion of parts": -0.65, "mihl": 1.0}
    judged = networks.judged(results("text", values))
    said = verdicts(judged)
    assert said["deletion of LoFAs", "LIME"] == "reached"
    assert said["deletion of LoFAs", "MILLI"] == "reached"
    assert said["deletion of HiFAs", "LIME"] == "missed"
    assert said["deletion of HiFAs", "MILLI"] == "reached"
    needed = {str(row["method"]): row for row in judged[2].rows}
    printed, better = (name for name in judged[2].rows[0] if name != "method")
    assert needed["C2FA new"][printed] == "≤ 20"
    assert needed["LIME"][printed] == "150"
    assert str(needed["LIME intercept"][printed]).startswith("130")
    assert str(needed["LIME"][better]).startswith("170")
    assert needed["MILLI"][printed] == "250"


def test_without_a_file_it_says_which_command_makes_it(tmp_path: Path) -> None:
    (table,) = networks.tables("text", tmp_path)
    assert "python -m experiments text --scale paper --queries" in str(table)
    wrong = Domain("text", results("text", dict.fromkeys(networks.SCORES["text"], 0.5)).frame.assign(N_H=5))
    assert "no method that begins with Owen or C2FA was run with N_H = 20, N_L = 50" in str(networks.judged(wrong)[0])


def test_results_are_read_from_a_file(tmp_path: Path) -> None:
    d = results("images", dict.fromkeys(networks.SCORES["images"], 0.5), inputs=4)
    (tmp_path / "images").mkdir()
    d.frame.to_parquet(tmp_path / "images" / "queries.parquet")
    first, *_ = networks.tables("images", tmp_path)
    assert "4 inputs, 2 seeds" in first.title
    assert any(row["method"] == "exact Shapley values of the parts" for row in first.rows)


def test_what_is_called_the_default_is_the_default() -> None:
    kind, options = queries.VARIANTS[networks.DEFAULT]
    assert not options
    assert kind == c2fa.Explainer(np.sum, c2fa.maskers.Array(c2fa.Structure.from_groups("aab"))).method_name
    assert queries.VARIANTS[networks.JOINT] == ("c2fa", {})
    assert queries.VARIANTS[networks.ROUGH] == (kind, {"smooth": None})


def test_the_default_is_shown_beside_the_joint_fit_with_every_number_of_rows() -> None:
    d = results("images", {"auroc": 0.9})
    frame = d.frame.replace({"method": {"C2FA new": "Owen"}})
    joint = frame[frame["method"] == "Owen"].assign(method="C2FA joint")
    joint["auroc"] += np.where(joint["N_L"] == 50, 0.05, -0.05)
    joint["deletion of leaves"] -= 0.1
    _, _, beside, *_ = networks.judged(Domain("images", pd.concat([frame, joint], ignore_index=True)))
    rows = {str(row["score"]): row for row in beside.rows}
    assert rows["AUROC"]["N_L = 50"] == "0.900, -0.050 [-0.050, -0.050]"
    assert rows["AUROC"]["N_L = 300"] == "0.900, 0.050 [0.050, 0.050]"
    assert str(rows["deletion of LoFAs"]["N_L = 20"]).endswith("-0.100 [-0.100, -0.100]")  # lower is better
    assert "held-out correlation" not in rows  # which nobody took


def test_held_out_correlation_is_that_with_answers_to_coins() -> None:
    weights = np.array([1.0, -2.0, 0.5, 3.0])
    masker = c2fa.maskers.Array(c2fa.Structure.from_groups("aabb"))
    explained = c2fa.Explainer(lambda batch: batch @ weights, masker, budget=16, target=0, progress=False)(np.ones(4))
    asked = queries.held_out(explained, None)
    masks = next(asked).masks
    outputs = np.exp(masks @ weights)[:, None]
    answer = Answer(outputs, np.ones(len(masks), dtype=bool))
    with pytest.raises(StopIteration) as stop:
        asked.send(answer)
    assert stop.value.value == pytest.approx(np.corrcoef(masks @ weights, outputs[:, 0])[0, 1])


@pytest.mark.slow
def test_the_whole_command_runs(tmp_path: Path) -> None:
    main(["--quick", "--out", str(tmp_path / "all.json"), "--results", str(tmp_path)])
    stored = json.loads((tmp_path / "all.json").read_text())
    assert list(stored["parts"]) == list(PARTS)
    assert all(table["rows"] for name in ("a", "until", "coverage", "cost") for table in stored["parts"][name])

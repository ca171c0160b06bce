"""A cheap model goes ahead: what it finds counts as far as the large model's answers bear it out."""

from __future__ import annotations

import pickle
import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest

import c2fa
from c2fa.priors.scouting import counterparts

LEAVES = 60
STRUCTURE = c2fa.Structure.from_groups([f"part {i // 10}" for i in range(LEAVES)])
MASKER = c2fa.maskers.Array(STRUCTURE)
WEIGHTS = np.random.default_rng(3).standard_t(3, size=LEAVES)
X = np.ones(LEAVES)


def large(rows: Any) -> Any:
    score = np.asarray(rows) @ WEIGHTS
    return score + 0.2 * np.tanh(score)


def small(rows: Any) -> Any:
    """Mostly the same weights, on another scale."""
    off = np.random.default_rng(5).normal(scale=0.4, size=LEAVES)
    return 0.01 * (np.asarray(rows) @ (WEIGHTS + off))


def misled(rows: Any) -> Any:
    return np.asarray(rows) @ np.random.default_rng(7).permutation(WEIGHTS)


class Priced:
    """A model that counts what it costs."""

    name = "priced"

    def __init__(self, model: Any, price: float) -> None:
        self.model, self.price, self.cost, self.rows = model, price, 0.0, 0

    def __call__(self, rows: Any) -> Any:
        self.cost += self.price * len(rows)
        self.rows += len(rows)
        return self.model(rows)


def explained(prior: Any, method: str, budget: int = 30, model: Any = large, **options: Any) -> c2fa.Explanation:
    return c2fa.Explainer(model, MASKER, method=method, budget=budget, prior=prior, progress=False, **options)(X)


def held_out(e: c2fa.Explanation) -> float:
    masks = c2fa.metrics.held_out(LEAVES, 300, seed=1)
    return float(np.corrcoef(masks @ e.low, large(masks))[0, 1])


@pytest.mark.parametrize("method", ["owen", "c2fa", "shapley"])
def test_thirty_rows_and_a_scout_say_more_than_forty(method: str) -> None:
    with_scout = explained(c2fa.scout(small), method)
    assert held_out(with_scout) > held_out(explained(None, method, 40)) + 0.01
    assert with_scout.prior is not None
    assert with_scout.prior.share > 0.5
    for level, above in zip(with_scout.values[1:], with_scout.values, strict=False):
        np.testing.assert_allclose(STRUCTURE.sums(level, 0), above, atol=1e-9)


@pytest.mark.parametrize("method", ["owen", "c2fa"])
@pytest.mark.parametrize("wrong", [misled, lambda rows: -large(rows), lambda rows: np.zeros(len(rows))])
def test_a_scout_that_misleads_costs_next_to_nothing(method: str, wrong: Any) -> None:
    alone = explained(None, method)
    e = explained(c2fa.scout(wrong), method)
    assert held_out(e) > held_out(alone) - 0.02
    assert e.prior is not None
    assert e.prior.without is not None
    np.testing.assert_allclose(e.prior.without[-1], alone.all_values[-1])


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e5])
def test_the_scale_of_a_scout_does_not_matter(scale: float) -> None:
    one = explained(c2fa.scout(small), "c2fa")
    other = explained(c2fa.scout(lambda rows: scale * small(rows)), "c2fa")
    np.testing.assert_allclose(other.low, one.low, rtol=1e-4, atol=1e-5)


def test_rows_and_costs_of_both_stand_apart() -> None:
    dear, cheap = Priced(large, 1.0), Priced(small, 0.001)
    e = explained(c2fa.scout(cheap, rows=100), "owen", model=dear)
    assert (e.queries, dear.rows, cheap.rows) == (30, 30, 100)
    assert e.diagnostics.cost == pytest.approx(30.0)
    assert e.prior is not None
    assert (e.prior.scouted, e.prior.scout_cost) == (100, pytest.approx(0.1))
    assert e.provenance["prior"].endswith(", 100 rows of priced")
    assert "come from the prior (100 rows of priced)" in str(e)


def test_an_explanation_with_a_scout_is_saved_and_read(tmp_path: Any) -> None:
    e = explained(c2fa.scout(small), "owen")
    e.save(tmp_path / "e.json")
    again = c2fa.load(tmp_path / "e.json")
    assert again.prior is not None
    assert again.prior.scouted == 200
    np.testing.assert_array_equal(again.low, e.low)


def test_in_many_each_input_has_its_own_scouting(tmp_path: Any) -> None:
    explainer = c2fa.Explainer(large, MASKER, budget=30, prior=c2fa.scout(small), progress=False)
    inputs = [X, 0.5 * X, 2.0 * X]
    one_by_one = [explainer(x).low for x in inputs]
    for found in (explainer.many(inputs), explainer.many(inputs, tmp_path / "store", workers=1)):
        for e, alone in zip(found, one_by_one, strict=True):
            np.testing.assert_allclose(e.low, alone)
            assert e.prior.scouted == 200


def test_outputs_are_matched_by_name_and_else_by_place() -> None:
    def two(model: Any, names: tuple[str, ...], turned: bool = False) -> Any:
        class Two:
            output_names = names

            def __call__(self, rows: Any) -> Any:
                outputs = np.column_stack([-model(rows), model(rows)])
                return outputs[:, ::-1] if turned else outputs

        return Two()

    dear = two(large, ("no", "yes"))
    options: dict[str, Any] = {"target": "yes", "model": dear}
    by_name = explained(c2fa.scout(two(small, ("yes", "no"), turned=True)), "c2fa", **options)
    by_place = explained(c2fa.scout(two(small, ("a", "b"))), "c2fa", **options)
    np.testing.assert_allclose(by_name.low, by_place.low, rtol=1e-3, atol=1e-3)
    with pytest.raises(ValueError, match="the scout has the outputs output and the model no, yes: give a scout with"):
        explained(c2fa.scout(small), "c2fa", model=dear, target=0)


def test_a_scout_from_a_line_of_text_is_loaded_where_it_is_needed() -> None:
    explainer = c2fa.Explainer(
        c2fa.models.load("demo"), c2fa.maskers.Text(), budget=20, prior=c2fa.scout("demo", rows=40), progress=False
    )
    explainer = pickle.loads(pickle.dumps(explainer))
    e = explainer("What a lovely book. I would read it again.")
    assert e.prior.scouted == 40
    assert e.provenance["prior"].endswith("40 rows of demo")


def test_what_cannot_scout_is_refused_before_anything_is_asked() -> None:
    model = Priced(large, 1.0)
    with pytest.raises(TypeError, match="a model must be callable or have predict_proba, not int"):
        c2fa.scout(3)
    with pytest.raises(TypeError, match="rows must be a whole number above 0; got '50'"):
        c2fa.scout(small, rows="50")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="cannot use a prior"):
        c2fa.Explainer(model, MASKER, method="lime", prior=c2fa.scout(small))

    for prior in ("demo", small):
        with pytest.raises((OSError, TypeError), match=r"is no prior, nor a file of one; .*c2fa\.scout\(model\)"):
            c2fa.Explainer(model, MASKER, prior=prior)  # type: ignore[arg-type]

    class Writer:
        def generate(self, prompt: str) -> str:
            return "yes"

    with pytest.raises(TypeError, match=r"Writer is a language model, which scouts for c2fa\.cite alone"):
        c2fa.Explainer(model, MASKER, prior=c2fa.scout(Writer()))
    assert model.rows == 0


def test_a_scout_that_fails_says_who_it_was() -> None:
    def broken(rows: Any) -> Any:
        raise RuntimeError("no battery")

    with pytest.raises(c2fa.QueryError, match="the scout, broken: RuntimeError: no battery") as caught:
        explained(c2fa.scout(broken), "owen")
    assert not any("200 rows were sent" in note for note in caught.value.__notes__), "no ledger keeps rows of a scout"


def test_a_scout_goes_ahead_where_masking_changes_nothing_of_some_leaves() -> None:
    table = pd.DataFrame([[0.0] * 6], columns=list("uvwxyz"))
    masker = c2fa.maskers.Tabular({"a": ["u", "v", "w"], "b": ["x", "y", "z"]}, table)
    weights = np.array([3.0, 1.0, -2.0, 1.0, 5.0, -1.0])
    row = pd.Series([1.0, 0.0, 1.0, 1.0, 0.0, 1.0], index=list("uvwxyz"))

    def values(rows: Any) -> Any:
        return np.asarray(rows, dtype=float) @ weights

    e = c2fa.Explainer(values, masker, budget=12, prior=c2fa.scout(lambda rows: 0.1 * values(rows)))(row)
    np.testing.assert_allclose(e.low, weights * row.to_numpy(), atol=1e-6)
    assert e.prior is not None
    assert e.prior.scouted > 0


class Named:
    """A model with outputs of these names, each of them some weights' sum."""

    def __init__(self, **weights: Any) -> None:
        self.output_names, self.weights = tuple(weights), np.column_stack(list(weights.values()))

    def __call__(self, rows: Any) -> Any:
        return np.asarray(rows) @ self.weights


def test_the_scout_is_asked_about_the_output_of_the_same_name() -> None:
    """In another order the same scout finds the same, and an output that it does not have is expected nothing of."""
    other = np.roll(WEIGHTS, 7)
    model = Named(no=other, maybe=np.full(LEAVES, 0.1), yes=WEIGHTS)
    ways = [Named(no=other, yes=WEIGHTS), Named(yes=WEIGHTS, no=other)]
    for target in ("yes", "no"):
        one, turned = (explained(c2fa.scout(scout), "owen", model=model, target=target) for scout in ways)
        np.testing.assert_allclose(one.low, turned.low)
        np.testing.assert_allclose(one.low, WEIGHTS if target == "yes" else other, atol=0.2)
    assert np.isfinite(explained(c2fa.scout(ways[0]), "owen", model=model, target="maybe").low).all()
    alone = explained(c2fa.scout(ways[0]), "owen", model=model, target="yes", outputs="target")
    np.testing.assert_allclose(alone.low, WEIGHTS, atol=0.2)


def test_a_scout_without_names_stands_in_the_same_places_though_one_output_is_kept() -> None:
    model, scout = Named(no=-WEIGHTS, yes=WEIGHTS), lambda rows: np.asarray(rows) @ np.column_stack([-WEIGHTS, WEIGHTS])
    e = explained(c2fa.scout(scout), "owen", model=model, target="yes", outputs="target")
    np.testing.assert_allclose(e.low, WEIGHTS, atol=0.2)


def test_two_outputs_of_one_name_keep_their_places() -> None:
    assert counterparts(["answer", "Yes.", "Yes."], ["answer", "Yes.", "Yes."]) == [0, 1, 2]


def test_a_scout_may_be_on_another_scale_than_the_link_takes() -> None:
    def likely(rows: Any) -> Any:
        return 1.0 / (1.0 + np.exp(-0.3 * (np.asarray(rows) @ WEIGHTS)))

    scout = Priced(lambda rows: 40.0 + np.asarray(rows) @ WEIGHTS, 0.01)
    e = explained(c2fa.scout(scout, rows=90), "owen", model=likely, link="logit")
    assert np.corrcoef(e.low, WEIGHTS)[0, 1] > 0.99
    assert e.prior is not None
    assert (scout.rows, e.prior.scouted, e.prior.scout_cost) == (90, 90, pytest.approx(0.9)), "asked once"


def test_a_scout_that_is_away_for_a_while_sets_no_input_aside() -> None:
    calls = 0

    def hiccups(rows: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls in (3, 4, 9):
            raise ConnectionError("try again")
        return small(rows)

    inputs = [X * scale for scale in (1.0, 0.5, 2.0, 3.0)]
    steady = c2fa.Explainer(large, MASKER, budget=30, prior=c2fa.scout(small, rows=40), progress=False)
    shaky = c2fa.Explainer(large, MASKER, budget=30, prior=c2fa.scout(hiccups, rows=40), progress=False)
    for one, other in zip(steady.many(inputs), shaky.many(inputs), strict=True):
        np.testing.assert_allclose(one.low, other.low)
    assert calls > 12


def test_a_scout_that_is_down_ends_the_run_and_not_its_inputs(tmp_path: Any) -> None:
    def down(rows: Any) -> Any:
        raise ConnectionError("nobody there")

    explainer = c2fa.Explainer(large, MASKER, budget=30, prior=c2fa.scout(down), progress=False)
    with pytest.raises(c2fa.batch.ModelDownError, match=r"the scout, down: the model has not answered once in 0\.2 s"):
        explainer.many([X, 2.0 * X], tmp_path / "store", engine="serial", patience=0.2)


@pytest.mark.parametrize("says", ["raise ImportError('no such wheel')", "open('/no/such/weights')", "f = 3"])
def test_a_scout_that_cannot_be_loaded_is_noticed_before_anything_is_asked(
    says: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "away.py").write_text(says)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "away", raising=False)
    for line in ("nothing_like_it", "python:away:f"):
        model = Priced(large, 1.0)
        explainer = c2fa.Explainer(model, MASKER, budget=30, prior=c2fa.scout(line), progress=False)
        with pytest.raises((ValueError, TypeError, ImportError, c2fa.QueryError), match=f"the scout, {line}: "):
            explainer(X)
        with pytest.raises((ValueError, TypeError, ImportError, c2fa.QueryError), match=f"the scout, {line}: "):
            explainer.many([X, 2.0 * X])
        for engine in ("serial", "processes"):
            with pytest.raises((c2fa.batch.BatchError, ImportError), match=f"the scout, {line}: "):
                explainer.many([X, 2.0 * X], tmp_path / "store", engine=engine, tries=1, workers=1)
        assert model.rows == 0


def test_equal_inputs_are_scouted_once() -> None:
    scout = Priced(small, 0.01)
    explainer = c2fa.Explainer(large, MASKER, budget=30, prior=c2fa.scout(scout, rows=40), progress=False)
    one, other = explainer.many([X, X.copy()])
    assert scout.rows == 40
    np.testing.assert_array_equal(one.low, other.low)

"""Attributions on another scale: log-odds and logarithms are fitted, the model's own answers are kept."""

from __future__ import annotations

import decimal
import pickle
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import c2fa
from c2fa.asking import links
from c2fa.asking.replies import QueryError
from c2fa.batch import Store
from c2fa.batch.store import StoreError
from c2fa.cli import app
from c2fa.methods import METHODS
from running import RUNNER
from strategies import structures

S = c2fa.Structure.from_groups("aaabbbccc", names=[f"x{i}" for i in range(9)])
W = np.array([1.0, -2.0, 0.5, 0.0, 0.3, 2.0, -1.0, 0.7, 0.2])
EXACT = {"budget": 600, "penalty": c2fa.L2(1e-10)}


def sigmoid(score):
    return 1 / (1 + np.exp(-np.asarray(score)))


def probability(batch):
    """The probabilities of two classes, row by row, so that no answer depends on its batch."""
    p = sigmoid([(row * W).sum() - 0.4 for row in batch])
    return np.stack([1 - p, p], axis=1)


def explain(model=probability, structure=S, **options):
    return c2fa.Explainer(model, c2fa.maskers.Array(structure), **options)(np.ones(structure.leaves))


@given(structures(depths=(1, 2, 3), most_leaves=9), st.integers(0, 100))
@settings(max_examples=20)
def test_a_logistic_model_is_recovered_on_its_log_odds(s, seed):
    w = np.random.default_rng(seed).normal(size=s.leaves)
    e = explain(lambda b: sigmoid(b @ w - 0.3), s, link="logit", seed=seed, **EXACT)
    np.testing.assert_allclose(e.low, w, atol=1e-6)
    np.testing.assert_allclose(e.intercepts, -0.3, atol=1e-6)
    assert e.prediction == pytest.approx(sigmoid(w.sum() - 0.3))
    assert e.linked == pytest.approx(w.sum() - 0.3)


@pytest.mark.parametrize("size", [1e-150, 1e-9, 1.0, 1e6])
@given(structures(depths=(1, 2, 3), most_leaves=9), st.integers(0, 100))
@settings(max_examples=5)
def test_a_product_is_recovered_on_its_logarithm_whatever_its_size(size, s, seed):
    w = np.random.default_rng(seed).normal(size=s.leaves)
    e = explain(lambda b: size * np.exp(b @ w), s, link="log", seed=seed, **EXACT)
    np.testing.assert_allclose(e.low, w, atol=1e-6)
    np.testing.assert_allclose(e.intercepts, np.log(size), atol=1e-5)


@pytest.mark.parametrize("method", [name for name in METHODS if "-" not in name or name.startswith("c2fa")])
def test_every_method_explains_what_it_would_of_a_model_that_returns_log_odds(method):
    linked = explain(method=method, link="logit", target=1, outputs="all")
    plain = explain(lambda b: np.log(probability(b)) - np.log(1 - probability(b)), method=method, target=1)
    for ours, theirs in zip(linked.all_values, plain.all_values, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
    assert linked.diagnostics.levels[-1].r2 == pytest.approx(plain.diagnostics.levels[-1].r2, abs=1e-6)


def log_odds(log_probability):
    """``log p − log(1 − p)`` with sixty digits."""
    with decimal.localcontext(prec=60):
        log_p = decimal.Decimal(log_probability)
        return float(log_p - (1 - log_p.exp()).ln())


@given(st.floats(-600.0, -2e-7) | st.floats(-1e-3, -2e-7) | st.floats(-0.7, -0.68))
def test_log_odds_of_a_log_probability_keep_their_digits(log_probability):
    scale = links.ensure("logit", log_probabilities=True).at(np.array([-1.0]))
    found = scale(np.array([log_probability]))[0]
    assert found == pytest.approx(log_odds(log_probability), rel=1e-13, abs=1e-14)


@pytest.mark.parametrize("certain", [0.0, -0.0, -1e-300, -1e-9, 5e-7])
def test_a_certain_answer_is_held_off(certain):
    scale = links.ensure("logit", log_probabilities=True).at(np.array([certain]))
    assert scale(np.array([certain]))[0] == pytest.approx(np.log(1e7), rel=1e-6)
    assert scale.notes(np.array([certain, -3.0])) == (
        "1 of 2 rows answered above -1e-07, where link='logit-of-log' grows without bound, and were held there",
    )
    assert scale(np.array([np.nan, -np.inf]))[1] == -np.inf


class LogProbability:
    """The logarithms of what ``probability`` says."""

    log_probabilities = True
    name = "log p"

    def __call__(self, batch):
        return np.log(probability(batch))


def test_a_model_of_log_probabilities_is_explained_on_its_log_odds(tmp_path):
    plain = explain(link="logit", target=1, outputs="all", **EXACT)
    e = explain(LogProbability(), link="logit", target=1, outputs="all", **EXACT)
    np.testing.assert_allclose(e.all_values[-1], plain.all_values[-1], atol=1e-6)
    assert e.linked == pytest.approx(plain.linked)
    assert e.prediction == pytest.approx(np.log(plain.prediction))
    assert (e.link.name, e.link.unit) == ("logit-of-log", "log-odds")
    e.save(tmp_path / "e.json")
    assert c2fa.load(tmp_path / "e.json").linked == e.linked
    assert explain(LogProbability(), link="identity").link.name == "identity"
    by_name = explain(lambda b: np.log(probability(b)), link="logit-of-log", target=1, **EXACT)
    np.testing.assert_allclose(by_name.low, plain.low, atol=1e-6)


def test_what_is_no_log_probability_is_refused():
    with pytest.raises(QueryError, match=r"^the model returned 0\.5, and link='logit-of-log' takes log-prob"):
        explain(lambda b: np.full(len(b), 0.5), link="logit-of-log")


def test_rules_and_standard_errors_are_on_the_scale():
    e = explain(link="logit", budget=300, until="stderr:0.05")
    assert e.diagnostics.settled
    assert max(error.max() for error in e.stderr) <= 0.05
    assert e.diagnostics.levels[-1].r2 > 0.999


def test_answers_at_the_ends_are_held_off_and_counted():
    e = explain(lambda b: (b[:, 0] > 0).astype(float), link="logit", budget=100)
    assert e.low[0] == pytest.approx(2 * np.log(1e7), rel=0.05)
    said = [w for w in e.diagnostics.warnings if "held" in w]
    assert said == [
        f"{e.queries} of {e.queries} rows answered below 1e-07 or above 0.9999999, where link='logit' grows without "
        "bound, and were held there"
    ]
    some = explain(lambda b: 5e6 * b[:, 0], link="log", budget=100)
    (said,) = [w for w in some.diagnostics.warnings if "held" in w]
    assert "rows answered below 0.5," in said
    assert some.low[0] == pytest.approx(np.log(1e7), rel=0.05)
    assert not [w for w in explain(link="logit").diagnostics.warnings if "held" in w]


def test_a_row_is_counted_once_however_often_a_rule_looks():
    e = explain(lambda b: b[:, 0] * 0.5, link="logit", budget=100, until="stderr:1e-9")
    (said,) = [w for w in e.diagnostics.warnings if "held" in w]
    held, of = int(said.split()[0]), int(said.split()[2])
    assert 0 < held < of == e.queries


@pytest.mark.parametrize(
    ("link", "value", "said"),
    [
        ("logit", 1.3, "the model returned 1.3, and link='logit' takes outputs from 0 to 1; give a model that"),
        ("logit", -0.2, "the model returned -0.2, and link='logit' takes outputs from 0 to 1"),
        ("log", -3.0, "the model returned -3, and link='log' takes outputs of at least 0"),
    ],
)
@pytest.mark.parametrize("on_error", ["raise", "drop"])
def test_answers_out_of_range_are_refused_in_the_input_and_later(link, value, said, on_error):
    with pytest.raises(QueryError, match=f"^{said}"):
        explain(lambda b: np.full(len(b), value), link=link, on_error=on_error)
    with pytest.raises(QueryError, match=f"^{said}"):
        explain(lambda b: np.where(b.all(axis=1), 0.5, value), link=link, on_error=on_error)
    with pytest.raises(QueryError, match=f"^{said}"):
        explain(lambda b: np.where(b.all(axis=1), 0.5, value), link=link, until="top1")


def test_rounding_beyond_the_range_is_borne():
    over = np.float32(1) + np.float32(1.2e-7)
    e = explain(lambda b: np.where(b[:, 0] > 0, over, -1e-7), link="logit", budget=60)
    assert e.linked == pytest.approx(np.log(1e7), rel=1e-3)


def test_an_input_without_a_logarithm_is_refused():
    with pytest.raises(QueryError, match=r"^the model returned 0 for the input itself, .* leave out link='log'"):
        explain(lambda b: 1 - b.all(axis=1), link="log")


@pytest.mark.parametrize("link", ["probit", None, 3, "Logit"])
def test_an_unknown_link_is_refused_before_anything_is_asked(link):
    with pytest.raises(ValueError, match=r"^link must be one of 'identity', 'logit', 'log', 'logit-of-log'; got "):
        c2fa.Explainer(lambda b: pytest.fail("asked"), c2fa.maskers.Array(S), link=link)


def test_rows_without_an_answer_are_still_dropped():
    def model(batch):
        p = probability(batch)[:, 1]
        p[(batch[:, 0] == 0) & (batch[:, 1] == 0)] = np.nan
        return p

    e = explain(model, link="logit", on_error="drop", **EXACT)
    assert e.diagnostics.dropped
    np.testing.assert_allclose(e.low, W, atol=1e-6)


def test_another_link_asks_nothing_again(tmp_path):
    asked = []

    def model(batch):
        asked.append(len(batch))
        return probability(batch)

    options = {"ledger": tmp_path / "answers.sqlite", "model_name": "p"}
    plain = explain(model, **options)
    rows = sum(asked)
    for link in ("logit", "log"):
        e = explain(model, link=link, **options)
        assert (sum(asked), e.diagnostics.sent, e.diagnostics.recalled) == (rows, 0, plain.queries)
        assert e.prediction == plain.prediction


def test_a_refused_range_keeps_what_was_answered(tmp_path):
    options = {"ledger": tmp_path / "answers.sqlite", "model_name": "sum"}
    model = lambda batch: batch @ np.abs(W)  # noqa: E731
    with pytest.raises(QueryError, match="link='logit'"):
        explain(lambda b: np.where(b.all(axis=1), 0.5, model(b)), link="logit", **options)
    assert explain(lambda b: np.where(b.all(axis=1), 0.5, model(b)), **options).diagnostics.recalled > 1


def test_many_gives_what_one_gives_and_a_store_has_one_link(tmp_path):
    pytest.importorskip("pyarrow")
    made = c2fa.Explainer(probability, c2fa.maskers.Array(S), budget=(8, 24), link="logit", progress=False)
    inputs = list(np.random.default_rng(0).normal(size=(5, 9)))
    store = made.many(inputs, tmp_path / "s", engine="serial", precision="float64")
    for x, e in zip(inputs, store, strict=True):
        one = made(x)
        for ours, theirs in zip(e.all_values, one.all_values, strict=True):
            np.testing.assert_array_equal(ours, theirs)
        assert (e.provenance["link"], e.link.unit, e.linked) == ("logit", "log-odds", one.linked)
        assert e.to_text() == one.to_text()
    if find_spec("matplotlib"):
        assert "(log-odds)" in store.plot("bars", 0).axes[0].get_xlabel()
    with pytest.raises(StoreError, match="link is 'logit' there and None now"):
        c2fa.Explainer(probability, c2fa.maskers.Array(S), budget=(8, 24)).many(inputs, tmp_path / "s", engine="serial")
    assert len(Store(tmp_path / "s")) == 5
    assert pickle.loads(pickle.dumps(made)).link == links.ensure("logit")


def test_evaluate_takes_a_link_and_scores_on_its_scale(tmp_path):
    pytest.importorskip("pandas")
    methods = [("plain", "c2fa", {}), ("logit", "c2fa", {"link": "logit"})]
    for known in (methods, [methods[0], ("logit", "c2fa", {"link": "log"})]):
        result = c2fa.evaluate(
            known,
            [np.ones(9)],
            probability,
            c2fa.maskers.Array(S),
            masks=[(7, 400)],
            seeds=1,
            metrics=["infidelity@-1"],
            store=tmp_path / "store",
            model_name="p",
        )
        table = result.summary(resamples=1).set_index("method")["mean"]
        if known is methods:
            assert table["logit"] < 0.1 * table["plain"]
            first = table["logit"]
    assert table["logit"] != first  # another link is another run, not one that was done already


def test_it_is_said_wherever_an_explanation_is_shown(tmp_path):
    pytest.importorskip("matplotlib")
    e = explain(link="logit")
    said = f"(log-odds {e.linked:+.2f})"
    assert e.to_text().startswith(f"1: {e.prediction:.3f} {said} = base {e.base:.3f} ")
    assert "in log-odds" in repr(e)
    assert said in e._repr_html_()
    page = e.to_html()
    assert said in page
    assert '"unit":"log-odds"' in page.replace(" ", "")
    figure = e.plot("nested")
    assert "log-odds" in figure.axes[0].get_xlabel()
    assert any(said in text.get_text() for text in figure.axes[0].texts)
    compared = c2fa.plots.compare([e, explain()])
    assert [("log-odds" in ax.get_xlabel()) for ax in compared.axes] == [True, False]
    low = e.for_target(0)
    assert f"(log-odds {-e.linked:+.2f})" in low.to_text()
    assert "log-odds" not in explain().to_text()


def test_it_survives_a_file(tmp_path):
    e = explain(link="logit")
    e.save(tmp_path / "e.json")
    again = c2fa.load(tmp_path / "e.json")
    assert (again.link, again.linked, again.to_text()) == (links.ensure("logit"), e.linked, e.to_text())


def test_files_from_before_there_were_links_are_in_the_models_own_output():
    e = explain()
    old = {k: v for k, v in e.provenance.items() if k != "link"}
    assert c2fa.Explanation(**{**e.__dict__, "provenance": old}).linked == e.prediction


def test_the_command_line_has_it(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "a.txt").write_text("The food was good. The waiter was rude.")
    args = ["explain", str(tmp_path / "a.txt"), "-m", "demo", "--budget", "40"]
    found = RUNNER.invoke(app, [*args, "--link", "logit"])
    assert found.exit_code == 0, found.output
    assert "(log-odds +" in found.output
    refused = RUNNER.invoke(app, [*args, "--link", "probit"])
    assert refused.exit_code != 0
    assert "link must be one of" in refused.stderr

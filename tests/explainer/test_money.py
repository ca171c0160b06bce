"""A budget in money: rows are bought at the price of the first, and what is recalled counts as it was paid."""

from __future__ import annotations

import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import c2fa
from c2fa.asking.model import charge
from c2fa.asking.spending import Money, Purse

LEAVES = 24
STRUCTURE = c2fa.Structure.from_groups([f"part {i // 6}" for i in range(LEAVES)])
MASKER = c2fa.maskers.Array(STRUCTURE)
WEIGHTS = np.random.default_rng(0).normal(size=LEAVES)
X = np.ones(LEAVES)


class Shop:
    """A model that charges for each row, more for those that keep more."""

    name = "shop"

    def __init__(self, price: Any = lambda rows: np.full(len(rows), 0.01), after: float = np.inf) -> None:
        self.price, self.cost, self.rows, self.after = price, 0.0, 0, after
        self.dearest = 0.0

    def __call__(self, rows: Any) -> Any:
        if self.rows + len(rows) > self.after:
            raise RuntimeError("out of stock")
        prices = self.price(np.asarray(rows))
        self.cost += float(prices.sum())
        self.dearest = max(self.dearest, float(prices.max()))
        self.rows += len(rows)
        return (np.asarray(rows) * WEIGHTS[: np.shape(rows)[1]]).sum(axis=1)


def explainer(model: Any, budget: Any = "$1.00", **options: Any) -> c2fa.Explainer:
    return c2fa.Explainer(model, MASKER, budget=budget, progress=False, **options)


@pytest.mark.parametrize("method", ["owen", "c2fa", "lime", "shapley"])
def test_money_buys_as_many_rows_as_it_pays_for(method: str) -> None:
    model = Shop()
    e = explainer(model, method=method)(X)
    in_rows = explainer(Shop(), 100, method=method)(X)
    assert (model.rows, e.queries) == (in_rows.queries, in_rows.queries)
    np.testing.assert_allclose(e.low, in_rows.low, atol=1e-9)
    assert e.diagnostics.cost == pytest.approx(0.01 * e.queries)
    assert e.diagnostics.cost <= 1.0 + 1e-9
    assert e.provenance["money"] == "$1.00"


@pytest.mark.parametrize("seed", range(5))
def test_rows_of_any_price_exceed_it_by_no_more_than_one(seed: int) -> None:
    draw = np.random.default_rng(seed)
    model = Shop(lambda rows: draw.uniform(0.5, 1.0, size=len(rows)))
    e = explainer(model, "20 credits", method="c2fa")(X)
    assert model.cost <= 20.0 + model.dearest
    assert e.diagnostics.cost == pytest.approx(model.cost)


def test_rows_that_turn_out_dearer_than_the_first_are_left_out_and_told() -> None:
    model = Shop(lambda rows: np.where(rows.all(axis=1), 0.1, 0.19))
    e = explainer(model, "$5", method="c2fa")(X)
    assert model.cost <= 5.0 + 0.19
    assert model.cost > 4.5
    assert e.queries == model.rows < 50
    assert e.diagnostics.dropped == 0
    told = [note for note in e.diagnostics.warnings if "not asked" in note or "no usable answer" in note]
    assert told == [f"{50 - model.rows} masks were not asked: the money is spent, with {model.cost:.4g} by now"]


@pytest.mark.parametrize("seed", range(8))
def test_prices_that_vary_widely_exceed_it_by_a_row(seed: int) -> None:
    draw = np.random.default_rng(seed)
    model = Shop(lambda rows: 0.01 * draw.lognormal(-0.5, size=len(rows)))
    e = explainer(model, "$0.50", method="c2fa")(X)
    assert model.cost <= 0.5 + model.dearest
    assert e.diagnostics.cost == pytest.approx(model.cost)


def test_one_cheap_row_does_not_send_hundreds_of_dear_ones() -> None:
    model = Shop(lambda rows: np.where(rows.all(axis=1), 0.001, 0.05))
    explainer(model, "$0.50")(X)
    assert 0.45 < model.cost <= 0.5 + 0.05
    with pytest.raises(c2fa.QueryError, match=r"masks were not asked: the money is spent, .* 'c2fa' has no result"):
        explainer(Shop(model.price), "$0.50", method="c2fa")(X)  # whose rows for the parts took all of it


def test_a_batch_has_as_many_masks_as_have_a_price() -> None:
    purse, sizes = Purse(100.0), []
    while len(sizes) < 6:
        sizes.append(purse.affordable())
        purse.pay(0.01 * sizes[-1], 0.0, sizes[-1])
    assert sizes == [1, 1, 2, 4, 8, 16]


def test_calls_that_fail_count_but_make_no_row_dearer() -> None:
    class Flaky(Shop):
        calls = 0

        def __call__(self, rows: Any) -> Any:
            self.calls += 1
            answers = super().__call__(rows)
            if self.calls in (2, 4):  # between them the first row is asked, which is answered
                raise RuntimeError("it was paid, and failed")
            return answers

    model = Flaky()
    [e] = explainer(model).many([X])
    assert e.queries == 98  # of 100, as the second row was paid three times
    assert e.diagnostics.cost == pytest.approx(1.0)


def test_what_always_fails_is_tried_while_there_is_money(tmp_path: Any) -> None:
    pytest.importorskip("pyarrow")

    class Dear(Shop):
        def __call__(self, rows: Any) -> Any:
            answers = super().__call__(rows)
            if np.asarray(rows).max() > 1.0:
                raise RuntimeError("too large")
            return answers

    store = explainer(Dear(lambda rows: np.where(rows.max(axis=1) > 1.0, 0.5, 0.01))).many(
        [X, 2.0 * X], tmp_path, engine="serial", tries=50
    )
    assert [f.error for f in store.errors()] == ["RuntimeError: too large (sent alone 1 times)"]


def test_the_ledger_counts_the_same_money(tmp_path: Any) -> None:
    def price(rows: Any) -> Any:
        return np.full(len(rows), 0.02)

    file = tmp_path / "answers.sqlite"
    whole = explainer(Shop(price))(X)
    broken = Shop(price, after=20)
    with pytest.raises(c2fa.QueryError, match="out of stock"):
        explainer(broken, ledger=file, batch_size=8)(X)
    assert 0 < broken.rows <= 20
    again = Shop(price)
    resumed = explainer(again, ledger=file)(X)
    np.testing.assert_array_equal(resumed.low, whole.low)
    assert resumed.queries == whole.queries == 50
    assert broken.cost + again.cost == pytest.approx(1.0)
    assert resumed.diagnostics.cost == pytest.approx(again.cost)  # what this run paid
    third = Shop(price)
    np.testing.assert_array_equal(explainer(third, ledger=file)(X).low, whole.low)
    assert third.rows == 0
    more = Shop(price)
    assert explainer(more, "$1.50", ledger=file)(X).queries == 75
    assert more.cost == pytest.approx(0.5)


def test_rows_that_another_answers_meanwhile_count_as_they_were_paid(tmp_path: Any) -> None:
    def price(rows: Any) -> Any:
        return np.where(rows.all(axis=1), 0.01, 0.019)

    class Slow(Shop):
        def __call__(self, rows: Any) -> Any:
            time.sleep(0.005)  # so that both have rows under way all the time
            return super().__call__(rows)

    def explain(model: Shop) -> c2fa.Explanation:
        return explainer(model, ledger=tmp_path / "answers")(X)

    models = Slow(price), Slow(price)
    with ThreadPoolExecutor() as threads:
        found = list(threads.map(explain, models))
    alone = Shop(price)
    e = explainer(alone)(X)
    assert [one.queries for one in found] == [e.queries] * 2 == [54] * 2
    assert sum(model.cost for model in models) == pytest.approx(alone.cost)
    for one in found:
        np.testing.assert_array_equal(one.low, e.low)


def test_what_a_call_is_charged_counts_as_cost_does() -> None:
    class Charging:
        cost = 0.0

        def __call__(self, rows: Any) -> Any:
            charge(0.05 * len(rows))
            return np.asarray(rows) @ WEIGHTS

    assert explainer(Charging())(X).queries == 20


def test_inputs_of_different_prices_are_told_their_own(tmp_path: Any) -> None:
    pytest.importorskip("pyarrow")

    class Endpoint(Shop):
        """Answers several at once, and tells what each call cost unless it is ``silent``."""

        def __init__(self, silent: bool) -> None:
            super().__init__(lambda rows: 0.01 * rows.max(axis=1, initial=1.0))
            self.silent, self.lock, self.now, self.most = silent, threading.Lock(), 0, 0

        def __call__(self, rows: Any) -> Any:
            with self.lock:
                self.now += 1
                self.most = max(self.most, self.now)
            time.sleep(0.01)
            with self.lock:
                self.now -= 1
                before = self.cost
                answers = super().__call__(rows)
                if not self.silent:
                    charge(self.cost - before)
            return answers

    inputs = [(1.0 + k % 3) * X for k in range(6)]
    for silent in (False, True):
        model = Endpoint(silent)
        found = explainer(model, "$0.60").many(inputs, in_flight=4)
        assert [e.queries for e in found] == [60, 30, 20] * 2
        assert [e.diagnostics.cost for e in found] == pytest.approx(
            [0.6, 0.59, 0.58] + [0.0] * 3
        )  # an empty row is 0.01
        assert model.most == 1 if silent else model.most > 1


def test_equal_inputs_are_told_the_same(tmp_path: Any) -> None:
    model = Shop(lambda rows: np.where(rows.all(axis=1), 0.1, 0.19))
    first, second = explainer(model, "$5", method="c2fa").many([X, X])
    assert first.queries == second.queries == model.rows
    assert first.diagnostics.dropped == second.diagnostics.dropped == 0
    np.testing.assert_array_equal(first.low, second.low)
    assert [note for note in second.diagnostics.warnings if "the money is spent" in note] == [
        note for note in first.diagnostics.warnings if "the money is spent" in note
    ]


def test_a_library_that_leaves_no_rows_out_says_that_the_money_is_spent() -> None:
    pytest.importorskip("shap")
    model = Shop(lambda rows: np.where(rows.all(axis=1), 0.01, 0.02))
    sentence = r"not asked: the money is spent, with 1\.?0?\d? by now, and method 'shap-kernel' has no result"
    with pytest.raises(c2fa.QueryError, match=sentence):
        explainer(model, method="shap-kernel")(X)


def test_in_many_each_input_has_the_money(tmp_path: Any) -> None:
    pytest.importorskip("pyarrow")
    pytest.importorskip("cloudpickle", reason="the shop's prices are a lambda")
    model = Shop()
    found = explainer(model).many([X, 2.0 * X])
    assert [e.queries for e in found] == [100, 100]
    store = explainer(Shop()).many([X, 2.0 * X], tmp_path / "store", workers=1)
    for e, other in zip(store, found, strict=True):
        np.testing.assert_allclose(e.low, other.low)
        assert e.provenance["money"] == "$1.00"


@pytest.mark.parametrize("engine", ["serial", "processes"])
def test_a_model_that_is_still_to_be_made_is_looked_at_where_it_is_made(engine: str, tmp_path: Any) -> None:
    pytest.importorskip("pyarrow")
    pytest.importorskip("cloudpickle", reason="the model is a lambda")
    from c2fa.batch import Recipe, many

    with pytest.raises(ValueError, match="is money, and this model counts no cost"):
        many(Recipe(lambda: lambda rows: rows @ WEIGHTS, MASKER, {"budget": "$0.30"}), [X], tmp_path, engine=engine)
    with pytest.raises(ValueError, match="is money, and this model counts no cost"):
        explainer(Shop()).many([X], tmp_path, engine=engine, model=lambda: lambda rows: rows @ WEIGHTS)
    assert not list(tmp_path.glob("*.parquet"))
    store = many(Recipe(Shop, MASKER, {"budget": "$0.30"}), [X, 2.0 * X], tmp_path, engine=engine, workers=1)
    assert [e.queries for e in store] == [30, 30]
    assert store.run.cost == pytest.approx(0.6)


def test_a_rule_may_stop_before_the_money_is_spent() -> None:
    model = Shop()
    e = explainer(model, "$50", until="stderr:1.0", method="c2fa")(X)
    assert e.queries == model.rows < 5000
    assert e.diagnostics.stop.startswith(f"stopped after {e.queries} of 5000 rows that $50 pays for: every standard")
    e = explainer(Shop(), "$0.50", until="stderr:1e-9", method="c2fa")(X)
    assert e.diagnostics.stop.startswith("spent the whole budget of $0.50 on 50 rows: the largest standard error")


def test_what_is_known_for_nothing_is_free_and_the_next_row_has_the_price(tmp_path: Any) -> None:
    for ledger in ("answers", "others"):
        free = explainer(lambda rows: rows @ WEIGHTS, 40, ledger=tmp_path / ledger, model_name="shop")(X)
        assert free.queries == 40
    model = Shop()
    e = explainer(model, "$0.30", ledger=tmp_path / "answers")(X)
    assert (e.queries, model.rows, e.diagnostics.cost) == (70, 30, pytest.approx(0.3))
    np.testing.assert_allclose(e.low, explainer(Shop(), 70)(X).low)
    with pytest.raises(ValueError, match="the first row cost nothing"):
        explainer(Shop(lambda rows: np.zeros(len(rows))), "$9", ledger=tmp_path / "others")(X)


def test_a_model_that_remembers_its_answers_is_asked_for_more() -> None:
    class Remembers(Shop):
        def __call__(self, rows: Any) -> Any:
            new = [row for row in map(bytes, np.asarray(rows)) if row not in known]
            known.update(new)
            self.cost += 0.01 * len(new)
            return rows @ WEIGHTS

    known = set[bytes]()
    model = Remembers()
    first, second = explainer(model)(X), explainer(model)(X)
    assert (first.queries, first.diagnostics.cost) == (100, pytest.approx(0.98))  # two rows were asked twice
    assert second.queries > 190
    assert 0.9 < second.diagnostics.cost <= 1.0 + 1e-9


def test_no_more_rows_than_can_be_fitted() -> None:
    model = Shop(lambda rows: np.full(len(rows), 1e-9))
    e = c2fa.Explainer(model, c2fa.maskers.Array(c2fa.Structure.flat(3)), budget="$1", progress=False)(np.ones(3))
    assert e.queries <= 10_000


@pytest.mark.parametrize(
    ("budget", "error", "sentence"),
    [
        ("$0", ValueError, r"budget must be more than nothing, and finite; got '\$0'"),
        ("$" + "9" * 400, ValueError, r"budget must be more than nothing, and finite; got '\$9"),
        *(
            (
                budget,
                TypeError,
                "budget must be a whole number of model rows such as 60, one for each level, or money such as "
                rf"'\$60', '1000.50 EUR' or '60 credits'; got {re.escape(repr(budget))}",
            )
            for budget in ("2.00", "$2.00 EUR", "$-2", "$", "$1,000", b"$2", "60 rows", "60 masks", "2k", "3m", "5%")
        ),
    ],
)
def test_what_is_no_money_is_refused(budget: Any, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        explainer(Shop(), budget)


def test_a_model_without_a_cost_is_refused_before_anything_is_asked() -> None:
    asked = []
    with pytest.raises(ValueError, match=r"budget='\$2' is money, and this model counts no cost; give it a price"):
        explainer(lambda rows: asked.append(rows), "$2")
    assert not asked


def test_a_model_whose_first_row_is_free_is_refused_after_it() -> None:
    model = Shop(lambda rows: np.zeros(len(rows)))
    with pytest.raises(ValueError, match=r"budget='\$1.00' is money, and the first row cost nothing; give the model"):
        explainer(model)(X)
    assert model.rows == 1


def test_a_price_that_is_given_as_the_cost_is_refused_after_the_first_row() -> None:
    """It never grows, so that ten thousand rows would be asked for any money."""

    class Misunderstood(Shop):
        def __call__(self, rows: Any) -> Any:
            self.cost, self.rows = 0.01, self.rows + len(rows)
            return np.asarray(rows) @ WEIGHTS

    model = Misunderstood()
    model.cost = 0.01
    with pytest.raises(ValueError, match=r"budget='\$1.00' is money, and the first row cost nothing; give the model"):
        explainer(model)(X)
    assert model.rows == 1


def test_too_little_money_says_what_it_pays_for() -> None:
    model = Shop()
    with pytest.raises(ValueError, match=r"\$0.02 pays for 2 masks at 0.01 each, and this input takes 3"):
        explainer(model, "$0.02")(X)
    assert model.rows == 1


def test_amounts_are_read_with_their_unit() -> None:
    texts = ("$2", "€1.50", "3 USD", ".5credits", " 7 ¢ ", "US$ 4", "CHF 1000.50", "1 token", "₹9")
    assert [Money.of(text).amount for text in texts] == [2, 1.5, 3, 0.5, 7, 4, 1000.5, 1, 9]  # type: ignore[union-attr]


@pytest.mark.parametrize("cost", ["0.5", lambda: 0.5, np.nan, np.inf, -1.0, np.ones(2)])
def test_a_cost_that_is_no_number_is_refused(cost: Any) -> None:
    def model(rows: Any) -> Any:
        return rows @ WEIGHTS

    model.cost = cost  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="a model's cost must be what its rows have cost so far, a number from 0; got"):
        explainer(model)
    with pytest.raises(TypeError, match="a model's cost must be what its rows have cost so far, a number from 0; got"):
        explainer(model, 20)(X)


@pytest.mark.parametrize("price", [np.nan, np.inf, -0.01])
def test_a_cost_that_is_none_later_ends_the_run_at_once(price: float) -> None:
    model = Shop(lambda rows: np.full(len(rows), price))
    with pytest.raises(TypeError, match="a model's cost must be what its rows have cost so far, a number from 0"):
        explainer(model)(X)
    assert model.rows == 1


def test_a_ledger_counts_answers_and_not_their_costs(tmp_path: Any) -> None:
    e = explainer(Shop(), "$0.30", ledger=tmp_path / "answers")
    assert len(e.ledger) == 0
    assert e(X).queries == len(e.ledger) == 30  # type: ignore[arg-type]


def test_the_command_line_takes_money(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    testing = pytest.importorskip("typer.testing")
    from c2fa.cli import app

    (tmp_path / "shop_of_texts.py").write_text(
        "class Shop:\n"
        "    cost = 0.0\n"
        "    def __call__(self, texts):\n"
        "        self.cost += 0.01 * len(texts)\n"
        "        return [text.count('good') for text in texts]\n"
        "model = Shop()\n"
    )
    (tmp_path / "a.txt").write_text("A good book of a good author. I read it in a day, and lent it to all my friends.")
    monkeypatch.chdir(tmp_path)
    arguments = ["explain", "a.txt", "-m", "python:shop_of_texts:model", "--budget", "$0.30", "--out", "e.json"]
    result = testing.CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    e = c2fa.load("e.json")
    assert e.provenance["money"] == "$0.30"
    assert (e.queries, e.diagnostics.cost) == (30, pytest.approx(0.3))
    pytest.importorskip("pyarrow")
    result = testing.CliRunner().invoke(app, [*arguments[:-2], "--store", "store", "--workers", "1"])
    assert result.exit_code == 0, result.output
    assert [e.queries for e in c2fa.batch.Store("store")] == [30]

"""The only room that calls the model: counting, checking, remembering."""

from __future__ import annotations

import copy
import pickle
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

import c2fa
from c2fa.asking.driver import Job, drive
from c2fa.asking.querying import Ask, Cache, Queries
from c2fa.asking.replies import as_outputs, concatenate

S = c2fa.Structure.from_tree({f"P{j}": [f"{j}.{i}" for i in range(4)] for j in range(5)})
W = np.linspace(-1, 2, 20)
X = np.ones(20)


class Model:
    """A saturating model that remembers every row it was ever asked."""

    def __init__(self, fail_at=None, bad=None):
        self.rows, self.calls, self.fail_at, self.bad = [], 0, fail_at, bad

    def __call__(self, batch):
        self.calls += 1
        if self.fail_at is not None and len(self.rows) + len(batch) > self.fail_at:
            raise ConnectionError("the server went away")
        self.rows += [row.tobytes() for row in batch]
        out = np.tanh(batch @ W / 5)
        return out if self.bad is None else self.bad(out)


def explain(model, **options):
    masker = options.pop("masker", c2fa.maskers.Array(S))
    options.setdefault("method", "c2fa")  # which asks no row twice
    return c2fa.Explainer(model, masker, **options)(X)


@pytest.mark.parametrize("budget", [3, 7, 50, 201, (2, 1), (2, 9), (40, 3), (50, 150)])
@pytest.mark.parametrize("batch_size", [1, 7, 64])
@pytest.mark.parametrize("method", ["owen", "shapley", "c2fa"])
def test_the_budget_is_never_exceeded_by_one_row(budget, batch_size, method):
    model = Model()
    e = explain(model, budget=budget, batch_size=batch_size, method=method)
    total = budget if isinstance(budget, int) else sum(budget)
    assert len(model.rows) == e.queries <= total
    again = 2 if total > 65 and method != "c2fa" else 0  # to find out whether the model has noise
    assert len(set(model.rows)) == len(model.rows) - again, "an identical masked input was sent twice"


def test_a_wide_tree_spends_the_whole_budget():
    wide = c2fa.Structure.from_tree([[f"{j}.{i}" for i in range(20)] for j in range(30)])
    sizes = []

    def model(batch):
        sizes.append(len(batch))
        return batch.sum(axis=1)

    c2fa.Explainer(model, c2fa.maskers.Array(wide), budget=300)(np.ones(600))
    assert sum(sizes) == 300
    assert max(sizes) == 64


def test_a_few_parts_do_not_waste_queries():
    """Five parts have 32 masks; fifty draws cost at most 32 rows and weigh as often as they were drawn."""
    model = Model()
    e = explain(model, budget=(500, 1), method=c2fa.methods.C2FA(anchor=False))
    assert e.diagnostics.levels[0].rows <= 32
    assert len(model.rows) <= 33


def test_a_question_beyond_the_budget_is_not_asked():
    queries = Queries(Cache(c2fa.maskers.Array(S)(X)), budget=3)
    with pytest.raises(c2fa.BudgetError, match="budget of 3 model rows has 3 left, and this question needs 5"):
        queries.plan(Ask(0, np.eye(5, dtype=bool)))


def test_levels_share_an_input_but_under_the_papers_masks():
    masked = c2fa.maskers.Custom(S, lambda x, masks, level: [level] * len(masks))(X)
    part = np.array([[1, 0, 0, 0, 0]], dtype=bool)
    ask = Ask(0, part)
    queries = Queries(Cache(masked), budget=99)
    pending = queries.plan(ask)
    assert queries.inputs(pending) == [1], "a masker is asked about leaves"
    queries.record(pending, np.array([[1.0]]))
    assert len(queries.plan(Ask(1, S.expand(part, 0)))) == 0
    apart = Queries(Cache(masked.apart()), budget=99)
    pending = apart.plan(ask)
    assert apart.inputs(pending) == [0]
    apart.record(pending, np.array([[1.0]]))
    assert len(apart.plan(Ask(1, S.expand(part, 0)))) == 1
    apart.record(apart.plan(Ask(1, np.ones((1, 20), dtype=bool))), np.array([[2.0]]))
    assert len(apart.plan(Ask(0, np.ones((1, 5), dtype=bool)))) == 0, "nothing hidden is the input itself"


def test_messages_name_the_features_that_were_asked_about():
    masked = c2fa.maskers.Text()("Not good. But I smiled! So it was.")
    queries = Queries(Cache(masked), budget=99)
    for level, features in ((0, "sentences"), (-1, "words")):
        asked = np.eye(masked.structure.widths[level], dtype=bool)
        assert str(queries.plan(Ask(level, asked))) == f"masks 0–{len(asked) - 1} of {len(asked)} of {features}"


class Noisy:
    """Never says the same twice."""

    def __init__(self):
        self.said = 0

    def __call__(self, batch):
        self.said += len(batch)
        return 100.0 * np.arange(self.said - len(batch), self.said) + batch.sum(axis=1)


def twice(level, masks):
    """Ask a question, ask it again, and again."""
    first = yield Ask(level, masks)
    second = yield Ask(level, masks, again=True)
    third = yield Ask(level, masks, again=True)
    return first.outputs[:, 0].tolist(), second.outputs[:, 0].tolist(), third.outputs[:, 0].tolist()


@pytest.mark.parametrize("by_level", [False, True])
def test_a_question_may_be_asked_again(tmp_path, by_level):
    masked = c2fa.maskers.Custom(S, lambda x, masks, level: S.expand(masks, level) * 1.0)(X)
    masked = masked.apart() if by_level else masked
    masks = np.array([[1, 0, 0, 0, 0], [1, 1, 0, 0, 0]], dtype=bool)
    model, ledger, told = Noisy(), c2fa.Ledger(tmp_path / "answers.sqlite"), []
    for _ in range(2):
        queries = Queries(Cache(masked, "raise", c2fa.asking.fingerprint.Identity(0, "x"), ledger, "m"), budget=4)
        [job] = drive([Job(twice(0, masks), queries)], model, batch_size=8)
        told.append(job.result())
        assert queries.used == 4, "the budget counts both"
        assert len(queries.answers) == 4
    first, second, third = told[0]
    assert first != second
    assert second == third, "the second answers are answers, too"
    assert told[0] == told[1]
    assert model.said == 4, "the ledger recalls both"
    queries = Queries(Cache(masked), budget=3)
    [job] = drive([Job(twice(0, masks), queries)], model, batch_size=8)
    with pytest.raises(c2fa.BudgetError, match="has 1 left, and this question needs 2"):
        job.result()


def test_rows_that_are_asked_again_are_no_others_rows():
    """Not those of another level of the paper's masks, and not those of the same masks asked once."""
    deep = c2fa.Structure.from_tree({"A": {"B": ["x"]}, "C": {"D": ["y"]}})
    masked = c2fa.maskers.Custom(deep, lambda x, masks, level: deep.expand(masks, level) * 1.0)(None)
    queries = Queries(Cache(masked.apart()), budget=99)
    masks = np.array([[1, 0]], dtype=bool)
    planned = [queries.plan(Ask(level, masks, again=again)).keys[0] for level in (0, 1, 2) for again in (False, True)]
    assert len(set(planned)) == 6


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ([0.1, 0.2], [[0.1], [0.2]]),
        (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        (np.array([True, False]), [[1], [0]]),
        (((0.5, 0.5), (0.1, 0.9)), [[0.5, 0.5], [0.1, 0.9]]),
    ],
)
def test_outputs_are_taken_as_models_give_them(reply, expected):
    np.testing.assert_array_equal(as_outputs(reply, 2, "here"), expected)


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (np.array(["2020-01-01", "NaT"], dtype="datetime64[D]"), "ndarray of datetime64"),
        (np.array([1, 2], dtype="timedelta64[s]"), "ndarray of timedelta64"),
        (np.array([np.timedelta64(1, "s"), 2], dtype=object), "ndarray of timedelta64"),
        (np.array(["0.5", "0.2"], dtype=object), "ndarray of strings"),
        ([b"0.5", b"0.2"], "list of bytes"),
        (np.array([(1.0,), (2.0,)], dtype=[("p", float)]), "ndarray of void"),
        (np.array([0.5, "0.2"], dtype=object), "ndarray of float"),
        (np.array("2020-01-01", dtype="datetime64[D]"), "ndarray"),
    ],
)
def test_answers_that_are_no_numbers_are_refused(reply, kind):
    with pytest.raises(c2fa.QueryError, match=f"here: the model returned {kind}; it must return numbers"):
        as_outputs(reply, 2, "here")


def test_what_a_masked_array_hides_is_no_answer():
    hidden = np.ma.array([[0.1, 0.2], [0.3, 99.0]], mask=[[0, 0], [0, 1]])
    expected = [[0.1, 0.2], [0.3, np.nan]]
    np.testing.assert_array_equal(as_outputs(hidden, 2, ""), expected)
    np.testing.assert_array_equal(as_outputs(list(hidden), 2, ""), expected)
    np.testing.assert_array_equal(as_outputs(np.ma.array([3, 4], mask=[0, 1]), 2, ""), [[3], [np.nan]])
    np.testing.assert_array_equal(as_outputs(hidden.astype(object), 2, ""), expected)

    def hides(out):
        return np.ma.array(out, mask=np.arange(len(out)) % 5 == 4)

    e = explain(Model(bad=hides), on_error="drop")
    dropped = explain(Model(bad=lambda out: hides(out).filled(np.nan)), on_error="drop")
    np.testing.assert_array_equal(e.low, dropped.low)
    with pytest.raises(c2fa.QueryError, match="NaN or infinity"):
        explain(Model(bad=hides))


def test_whole_numbers_beyond_any_float_are_refused_in_words_and_dropped():
    def huge(out):
        return [10**400 if i % 5 == 4 else float(value) for i, value in enumerate(out)]

    with pytest.raises(c2fa.QueryError, match=r"numbers beyond 1e100 for \d+ of"):
        explain(Model(bad=huge))
    assert explain(Model(bad=huge), on_error="drop").diagnostics.dropped > 20
    np.testing.assert_array_equal(as_outputs([Decimal("0.5"), Fraction(1, 4)], 2, ""), [[0.5], [0.25]])
    wide = np.array([np.finfo(np.longdouble).max, 1.0], dtype=np.longdouble)
    assert as_outputs(wide, 2, "")[1, 0] == 1.0


def test_torch_and_pandas_outputs():
    torch, pd = pytest.importorskip("torch"), pytest.importorskip("pandas")
    np.testing.assert_array_equal(as_outputs(torch.ones(2, 3, requires_grad=True), 2, ""), np.ones((2, 3)))
    np.testing.assert_array_equal(as_outputs([torch.tensor(1.0), torch.tensor(2.0)], 2, ""), [[1], [2]])
    np.testing.assert_array_equal(as_outputs(pd.Series([1.0, 2.0]), 2, ""), [[1], [2]])
    assert as_outputs(3.0, 1, "").tolist() == [[3.0]]


def test_outputs_in_half_precision(in_half_precision):
    in_half_precision(
        """
        import torch
        from c2fa.asking.replies import as_outputs

        assert as_outputs(torch.ones(2, dtype=torch.bfloat16), 2, "").tolist() == [[1.0], [1.0]]
        """
    )


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (
            lambda out: out[:-1] if len(out) > 1 else out,
            r"returned 6 rows for 7 inputs; it must return one row per",
        ),
        (lambda out: ["yes"] * len(out), "returned list of strings; it must return numbers"),
        (lambda out: None, "returned NoneType; it must return numbers"),
        (lambda out: np.zeros((len(out), 2, 2)), "an array of shape"),
        (lambda out: np.zeros((len(out), 0)), "without any output"),
        (lambda out: np.where(out < np.inf, np.nan, out), "NaN or infinity for 1 of 1 rows"),
        (lambda out: out * 1j, "complex"),
    ],
)
def test_bad_replies_are_met_with_one_sentence(bad, message):
    with pytest.raises(c2fa.QueryError, match=message):
        explain(Model(bad=bad), budget=(8, 7), batch_size=7)


def test_the_number_of_outputs_may_not_change():
    replies = iter([1, 2])
    with pytest.raises(c2fa.QueryError, match="2 outputs a row and 1 before"):
        explain(lambda batch: np.ones((len(batch), next(replies))))


def test_an_exception_names_the_rows_and_keeps_its_cause():
    sentence = r"^ConnectionError: .* \(raised by the model, asked about masks 16–23 of \d+ of leaves\)"
    with pytest.raises(c2fa.QueryError, match=sentence) as caught:
        explain(Model(fail_at=20), batch_size=8)
    assert isinstance(caught.value.__cause__, ConnectionError)
    assert any("ledger=" in note for note in caught.value.__notes__)


def test_drop_leaves_bad_rows_out_counts_and_says_them():
    def every_fifth(out):
        return np.where(np.arange(len(out)) % 5 == 4, np.nan, out)

    e = explain(Model(bad=every_fifth), on_error="drop")
    assert e.diagnostics.dropped > 20
    assert any("left out of the fit" in w for w in e.diagnostics.warnings)
    assert all(np.isfinite(v).all() for v in e.values)
    assert sum(r.rows for r in e.diagnostics.levels) < e.queries


def test_drop_survives_a_failing_batch_but_not_a_missing_prediction():
    model = Model()

    def flaky(batch):
        if model.calls == 2:
            model.calls += 1
            raise TimeoutError("too slow")
        return model(batch)

    e = explain(flaky, on_error="drop", batch_size=16)
    assert 1 <= e.diagnostics.dropped <= 16
    assert any("TimeoutError" in w for w in e.diagnostics.warnings)
    with pytest.raises(c2fa.QueryError, match="no usable answer for the input itself"):
        explain(lambda batch: np.full(len(batch), np.nan), on_error="drop")
    with pytest.raises(c2fa.QueryError, match="not one of the"):
        explain(lambda batch: np.full(len(batch), 1.0 if len(batch) == 1 else np.nan), on_error="drop")


def test_a_masker_that_gives_the_wrong_number_of_inputs():
    masker = c2fa.maskers.Custom(S, lambda x, masks, level: [x])
    with pytest.raises(c2fa.QueryError, match=r"the masker gave 1 inputs for \d+ masks of leaves"):
        explain(lambda b: [0.0] * len(b), masker=masker)


def test_a_failed_run_goes_on_where_it_stopped(tmp_path):
    undisturbed = explain(Model())
    first, second, third = Model(fail_at=100), Model(), Model()
    options = {"ledger": tmp_path / "answers.sqlite", "model_name": "m", "batch_size": 16}
    with pytest.raises(c2fa.QueryError):
        explain(first, **options)
    e = explain(second, **options)
    assert not set(first.rows) & set(second.rows), "an answered query was asked again"
    assert len(first.rows) + len(second.rows) == undisturbed.queries == e.queries
    assert e.diagnostics.recalled == len(first.rows)
    np.testing.assert_allclose(e.low, undisturbed.low, atol=1e-12)
    again = explain(third, **options)
    assert third.rows == []
    np.testing.assert_array_equal(again.low, e.low)


def test_a_bad_row_does_not_cost_the_good_ones_of_its_batch(tmp_path):
    options = {"ledger": tmp_path / "answers.sqlite", "model_name": "m", "batch_size": 16}
    first, second = Model(bad=lambda out: np.where(np.arange(len(out)) == 9, np.nan, out)), Model()
    with pytest.raises(c2fa.QueryError, match=r"NaN or infinity for 1 of 16 rows \(first: row 9"):
        explain(first, **options)
    explain(second, **options)
    assert len(set(first.rows) & set(second.rows)) == 1, "only the row without an answer is asked again"


@pytest.mark.parametrize("kind", [TimeoutError, KeyboardInterrupt])
def test_answers_that_an_exception_brings_along_are_kept(tmp_path, kind):
    options = {"ledger": tmp_path / "answers.sqlite", "model_name": "m", "batch_size": 16}
    first, second = Model(), Model()

    def halfway(batch):
        if len(batch) == 1:
            return first(batch)
        error = kind("gone")
        error.partial = np.concatenate([first(batch[:10]), np.full(len(batch) - 10, np.nan)])[:, None]
        raise error

    with pytest.raises((c2fa.QueryError, KeyboardInterrupt)):
        explain(halfway, **options)
    explain(second, **options)
    assert len(first.rows) == 11
    assert not set(first.rows) & set(second.rows)


def test_answers_of_another_width_that_an_exception_brings_along_are_dropped():
    model = Model()

    def halfway(batch):
        if model.calls != 1:
            return model(batch)
        model.calls += 1
        error = TimeoutError("gone")
        error.partial = np.ones((len(batch), 3))
        raise error

    e = explain(halfway, on_error="drop", batch_size=16)
    assert e.diagnostics.dropped == 16
    assert any("TimeoutError" in w for w in e.diagnostics.warnings)


def test_ctrl_c_loses_nothing(tmp_path):
    model = Model()

    def interrupted(batch):
        if len(model.rows) > 60:
            raise KeyboardInterrupt
        return model(batch)

    options = {"ledger": tmp_path / "answers.sqlite", "model_name": "m", "batch_size": 10}
    with pytest.raises(KeyboardInterrupt):
        explain(interrupted, **options)
    paid = list(model.rows)
    explain(model, **options)
    assert len(set(model.rows)) == len(model.rows) > len(paid)


def test_the_ledger_tells_models_inputs_and_maskers_apart(tmp_path):
    options = {"ledger": tmp_path / "answers.sqlite", "budget": 30}
    explain(Model(), model_name="a", **options)
    for change in (
        {"model_name": "b"},
        {"model_name": "a", "masker": c2fa.maskers.Array(S, baseline=0.5)},
    ):
        model = Model()
        explain(model, **{**options, **change})
        assert model.rows
    other = Model()
    c2fa.Explainer(other, c2fa.maskers.Array(S), model_name="a", **options)(2 * X)
    assert other.rows
    with pytest.raises(ValueError, match="this model has none; give model_name="):
        explain(Model(), **options)


def test_inputs_that_cannot_be_hashed_need_a_key(tmp_path):
    class Odd:
        pass

    masker = c2fa.maskers.Custom(S, lambda x, masks, level: np.ones((len(masks), 20)))
    explainer = c2fa.Explainer(Model(), masker, ledger=tmp_path / "l.sqlite", model_name="m", budget=20)
    with pytest.raises(TypeError, match="pass key="):
        explainer(Odd())
    assert explainer(Odd(), key="odd-1").queries


def test_a_file_that_is_no_ledger_is_refused(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("these are my notes, please do not overwrite them, thank you very much")
    with pytest.raises(RuntimeError, match=r"cannot open .*notes.txt as a ledger"):
        c2fa.Ledger(path)
    assert path.read_text().startswith("these are my notes")
    newer = tmp_path / "new.sqlite"
    c2fa.Ledger(newer).close()
    db = sqlite3.connect(newer)
    db.execute("PRAGMA user_version=99")
    db.close()
    with pytest.raises(RuntimeError, match="version 99"):
        c2fa.Ledger(newer)


def test_a_full_disk_does_not_cost_the_explanation(tmp_path):
    ledger = c2fa.Ledger(tmp_path / "small.sqlite")
    (pages,) = ledger._db.execute("PRAGMA page_count").fetchone()
    ledger._db.execute(f"PRAGMA max_page_count={pages + 1}")  # SQLite then says what a full disk makes it say
    e = explain(Model(), ledger=ledger, model_name="m")
    assert any("disk is full" in w and "not kept" in w for w in e.diagnostics.warnings)
    np.testing.assert_array_equal(e.low, explain(Model()).low)
    ledger.close()


def test_one_explainer_with_a_ledger_serves_several_threads(tmp_path):
    explainer = c2fa.Explainer(Model(), c2fa.maskers.Array(S), ledger=tmp_path / "l.sqlite", model_name="m", budget=40)
    inputs = [np.full(20, float(i)) for i in range(8)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(explainer, inputs))
    for x, e in zip(inputs, found, strict=True):
        np.testing.assert_allclose(e.low, explainer(x).low, rtol=1e-9, atol=1e-12)
    assert len(explainer.ledger) == sum(e.queries for e in found)
    explainer.ledger.close()
    with pytest.raises(RuntimeError, match=r"cannot read answers from .*l.sqlite: Cannot operate on a closed database"):
        explainer(inputs[0])


def test_an_explainer_with_a_ledger_can_be_copied_and_sent(tmp_path):
    explainer = c2fa.Explainer(
        plain_sum, c2fa.maskers.Array(S), ledger=tmp_path / "l.sqlite", model_name="m", budget=40
    )
    e = explainer(np.ones(20))
    for sent in (pickle.loads(pickle.dumps(explainer)), copy.deepcopy(explainer)):
        again = sent(np.ones(20))
        assert again.diagnostics.recalled == e.queries
        assert again.diagnostics.sent == 0
        sent.ledger.close()
    explainer.ledger.close()
    with pytest.raises(TypeError, match="give it a file"):
        pickle.dumps(c2fa.Ledger(":memory:"))


def plain_sum(batch):
    return batch.sum(axis=1)


def test_a_progress_bar_appears_on_long_work(capsys):
    def model(batch):
        time.sleep(0.3)
        return batch.sum(axis=1)

    explain(model, progress=True, batch_size=10)
    assert "asking the model" in capsys.readouterr().err
    explain(Model(), progress=True)
    assert capsys.readouterr().err == ""
    explain(Model(), progress=False)
    assert capsys.readouterr().err == ""


def test_batches_of_different_inputs_can_be_joined():
    torch, pd = pytest.importorskip("torch"), pytest.importorskip("pandas")
    assert concatenate([["a"], ["b", "c"]]) == ["a", "b", "c"]
    assert concatenate([np.ones((1, 2)), np.zeros((2, 2))]).shape == (3, 2)
    assert concatenate([torch.ones(1, 2), torch.ones(2, 2)]).shape == (3, 2)
    assert len(concatenate([pd.DataFrame({"a": [1]}), pd.DataFrame({"a": [2]})])) == 2


def asks(*questions):
    """A conversation that asks about rows of leaves and returns all answers; an exception among them is raised."""
    found = []
    for rows in questions:
        if isinstance(rows, Exception):
            raise rows
        answer = yield Ask(1, np.eye(20, dtype=bool)[rows])
        found.append(answer.outputs[:, 0])
    return np.concatenate(found)


@pytest.mark.parametrize("in_flight", [1, 3])
@pytest.mark.parametrize("batch_size", [1, 3, 64])
def test_jobs_about_one_input_ask_equal_rows_once(batch_size, in_flight):
    model, cache = Model(), Cache(c2fa.maskers.Array(S)(X))
    questions = [([0, 1, 2], [5]), ([2, 1], [0, 5, 6]), ([7, 8, 9, 0],), ([0],)]
    jobs = [Job(asks(*rows), Queries(cache, budget=9), rows) for rows in questions]
    driven = list(drive(jobs, model, batch_size=batch_size, in_flight=in_flight))
    assert len(driven) == len(jobs)
    assert len(model.rows) == len(set(model.rows)) == cache.sent == 8
    for job in jobs:
        rows = [row for some in job.about for row in some]
        np.testing.assert_allclose(job.result(), np.tanh(W[rows] / 5))
        assert job.queries.used == len(rows)
    assert sum(job.queries.sent for job in jobs) == 8
    assert not cache.under_way


def test_rows_of_a_job_that_failed_are_asked_by_those_who_wait_for_them():
    def model(batch):
        if batch[:, 3].any() and len(batch) > 1:
            raise ValueError("not this row in company")
        return batch.sum(axis=1)

    cache = Cache(c2fa.maskers.Array(S)(X))
    jobs = [
        Job(asks([3, 4, 5]), Queries(cache, 9)),
        Job(asks([5, 4, 3, 6]), Queries(cache, 9)),
        Job(asks([4]), Queries(cache, 9)),
    ]
    assert set(drive(jobs, model, batch_size=2)) == set(jobs)
    with pytest.raises(c2fa.QueryError, match="not this row in company"):
        jobs[0].result()
    assert isinstance(jobs[1].error, c2fa.QueryError)
    np.testing.assert_array_equal(jobs[2].result(), [1.0])
    assert not cache.under_way


def test_one_conversation_that_raises_ends_alone_and_all_are_closed_when_the_caller_stops():
    cache = Cache(c2fa.maskers.Array(S)(X))
    jobs = [Job(asks(rows, last), Queries(cache, 9)) for rows, last in (([0], KeyError("x")), ([1], [2]), ([1], [3]))]
    driven = drive(jobs, Model(), batch_size=1)
    first = next(driven)
    assert isinstance(first.error, KeyError)
    driven.close()
    assert all(job.conversation.gi_frame is None for job in jobs)


def test_an_interrupt_keeps_what_it_brings_along_for_every_input_of_the_batch(tmp_path):
    def model(batch):
        error = KeyboardInterrupt()
        error.partial = np.where(np.arange(len(batch)) % 2, np.nan, batch.sum(axis=1))
        raise error

    ledger = c2fa.Ledger(tmp_path / "l.sqlite")
    jobs = []
    for name in "ab":
        cache = Cache(c2fa.maskers.Array(S)(X), "drop", c2fa.asking.fingerprint.Identity(0, name), ledger, "m")
        jobs.append(Job(asks([0, 1, 2]), Queries(cache, 9)))
    with pytest.raises(KeyboardInterrupt):
        list(drive(jobs, model, batch_size=64))
    assert len(ledger) == 3
    ledger.close()


def test_batches_of_a_maskers_own_kind_are_never_joined():
    pytest.importorskip("pandas")
    s = c2fa.Structure.from_groups("aabb")

    class Batch:
        def __init__(self, on):
            self.on = on

        def __len__(self):
            return len(self.on)

    def model(batch):
        return batch.on.sum(axis=1)

    masker = c2fa.maskers.Custom(s, lambda x, masks, level: Batch(s.expand(masks, level).astype(float)))
    e = c2fa.Explainer(model, masker, budget=20)(None)
    result = c2fa.evaluate(["c2fa", "lime"], [0, 1], model, masker, masks=[(3, 8)], metrics=["deletion"])
    np.testing.assert_allclose(e.low, 1.0, atol=1e-3)
    assert len(result.frame)

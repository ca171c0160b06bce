"""Tables: rows come back as they came in, and one-hot columns find each other."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

pd = pytest.importorskip("pandas")
pytest.importorskip("sklearn")
from sklearn.datasets import load_diabetes, load_wine
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.feature_extraction import DictVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import c2fa
from c2fa.maskers import Tabular

FRAME = pd.DataFrame(
    {
        "age": [40, 20, 33],
        "job": pd.Categorical(["nurse", "cook", "cook"]),
        "city": ["Rome", "Oslo", "Oslo"],
        "pay": [1.5, np.nan, 4.0],
        "since": pd.to_datetime(["2020-01-01", "2021-01-01", "2021-01-01"]),
        "member": [True, False, False],
    }
)


def test_a_frame_keeps_its_columns_and_types():
    masked = Tabular({"who": ["age", "city"], "what": ["job", "pay", "since", "member"]}, FRAME)(FRAME.iloc[[0]])
    batch = masked.inputs([[True, True], [False, True], [True, False]], 0)
    pd.testing.assert_series_equal(batch.dtypes, FRAME.dtypes)
    assert list(batch["age"]) == [40, 31, 40], "an integer's mean is rounded"
    assert list(batch["city"]) == ["Rome", "Oslo", "Rome"]
    assert list(batch["job"]) == ["nurse", "nurse", "cook"]
    assert list(batch["pay"]) == [1.5, 1.5, 2.75]
    assert list(batch["member"]) == [True, True, False]


def test_an_empty_date_stays_one():
    frame = pd.DataFrame({"since": pd.to_datetime([None, "2020-01-01"]), "wait": pd.to_timedelta([None, "2h"])})
    batch = Tabular(background=frame.iloc[[1]])(frame.iloc[[0]]).inputs([[True, True], [False, False]], 0)
    pd.testing.assert_frame_equal(batch, frame)


def test_a_series_and_a_dict():
    series = FRAME.iloc[0]
    batch = Tabular(background=FRAME)(series).inputs(np.ones((2, 6)), 0)
    pd.testing.assert_frame_equal(batch.iloc[[0]], FRAME.iloc[[0]])
    numbers = pd.Series({"a": 1.0, "b": 2.0})
    pd.testing.assert_frame_equal(
        Tabular(background=[0.0, 0.0], strategy="row")(numbers).inputs([[True, False]], 0),
        pd.DataFrame({"a": [1.0], "b": [0.0]}),
    )
    row = {"a": 1, "b": "x"}
    masked = Tabular(background=[{"a": 3, "b": "y"}], strategy="row")(row)
    assert masked.inputs([[True, False], [True, True]], 0) == [{"a": 1, "b": "y"}, row]


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(1, 5))
def test_vectors_against_a_slow_loop(seed, columns, rows):
    rng = np.random.default_rng(seed)
    x, background = rng.normal(size=columns), rng.normal(size=(rows, columns))
    masks = rng.random((4, columns)) < 0.5
    mean = Tabular(background=background)(x).inputs(masks, 0)
    blocks = Tabular(background=background, strategy="average")(x).inputs(masks, 0)
    answers = blocks.sum(axis=1).reshape(len(masks), rows).mean(axis=1)
    for i, mask in enumerate(masks):
        np.testing.assert_allclose(mean[i], [x[j] if mask[j] else background[:, j].mean() for j in range(columns)])
        expected = [sum(x[j] if mask[j] else b[j] for j in range(columns)) for b in background]
        np.testing.assert_allclose(answers[i], np.mean(expected))


def test_groups_of_any_depth_keep_the_order_of_columns():
    x = np.arange(5.0)
    tree = {"late": {"last": ["e"], "fourth": ["d"]}, "early": ["b"]}
    masked = Tabular(tree, np.zeros((1, 5)), names=list("abcde"))(x)
    assert masked.structure.names[0] == ("late", "early", "a", "c")
    assert masked.structure.names[-1] == tuple("abcde")
    assert masked.structure.depth == 3
    assert masked.inputs([[False, True, True, True]], 0)[0].tolist() == [0.0, 1.0, 2.0, 0.0, 0.0]
    by_position = Tabular([[3, 1], [0]], np.zeros((1, 5)), names=list("abcde"))(x)
    assert by_position.inputs([[True, False, False, False]], 0)[0].tolist() == [0.0, 1.0, 0.0, 3.0, 0.0]


def test_averaging_takes_the_model_itself_and_counts_every_row():
    seen = []

    def model(rows):
        seen.append(len(rows))
        return np.stack((rows["age"] * rows["pay"], rows["pay"]), axis=1)

    frame = FRAME[["age", "pay"]].fillna(0.0)
    masker = Tabular(background=frame, strategy="average")
    masked = masker(frame.iloc[[0]])
    assert masked.rows_per_mask == 3
    pd.testing.assert_frame_equal(masked.inputs([[True, False]], 0), frame.assign(age=40), check_names=False)
    options = {"target": 0, "penalty": c2fa.L2(1e-9), "kernel": "uniform"}
    e = c2fa.Explainer(model, masker, budget=13, batch_size=7, **options)(frame.iloc[[0]])
    assert (e.queries, e.diagnostics.sent, sum(seen)) == (12, 12, 12), "four masks of three rows; one more costs three"
    assert max(seen) <= 7
    assert e.prediction == 60.0
    mean_age, mean_pay, mean_product = 31.0, 5.5 / 3, (60 + 0 + 33 * 4.0) / 3
    outputs = {(1, 1): 60.0, (1, 0): 40 * mean_pay, (0, 1): 1.5 * mean_age, (0, 0): mean_product}
    rows = np.array([[*mask, 1.0] for mask in outputs])
    fit = np.linalg.lstsq(rows, np.array(list(outputs.values())), rcond=None)[0]
    np.testing.assert_allclose(e.low, fit[:2], rtol=1e-5)


def test_an_average_that_lacks_an_output_is_no_answer_and_a_budget_that_pays_no_mask_is_refused():
    rows = np.arange(12.0).reshape(4, 3)
    masker = Tabular(background=rows, strategy="average")

    def holes(batch):
        return np.where(batch[:, 0] == 3.0, np.nan, batch.sum(axis=1))

    with pytest.raises(c2fa.QueryError, match=r"NaN or infinity for \d+ of \d+ rows"):
        c2fa.Explainer(holes, masker, budget=40)(rows[2])
    e = c2fa.Explainer(holes, masker, budget=40, on_error="drop")(rows[2])
    assert e.diagnostics.dropped % 4 == 0
    assert 0 < e.diagnostics.dropped < e.queries <= 40
    for budget, masks in ((7, "1 masks"), ((7,), r"\(1,\) masks")):
        with pytest.raises(ValueError, match=f"each mask takes 4 rows.*pays for {masks}: give a background of fewer"):
            c2fa.Explainer(len, masker, budget=budget)(rows[0])
    with pytest.raises(c2fa.QueryError, match="returned 1 rows for 4"):
        c2fa.Explainer(lambda batch: np.zeros(1), masker, budget=40)(rows[0])


def test_averages_are_shared_evaluated_and_explained_in_bulk(tmp_path):
    rows = np.random.default_rng(0).normal(size=(30, 4))
    masker = Tabular({"a": [0, 1], "b": [2, 3]}, rows[:5], strategy="average")
    calls = []

    def model(batch):
        calls.append(len(batch))
        return np.tanh(batch.sum(axis=1))

    one = c2fa.Explainer(model, masker, budget=100, ledger=tmp_path / "l.sqlite", model_name="m")
    first, sent = one(rows[7]), sum(calls)
    assert first.queries == sent <= 100
    again = one(rows[7])
    assert (again.diagnostics.sent, again.diagnostics.recalled, sum(calls)) == (0, sent, sent)
    np.testing.assert_array_equal(again.low, first.low)
    calls.clear()
    plain = Tabular(masker.groups, rows[:5])
    asked = [
        c2fa.evaluate(["c2fa"], [rows[7]], model, each, masks=[(3, 9)], seeds=1, metrics=["deletion"]).rows
        for each in (plain, masker)
    ]
    assert asked[1].explaining == 5 * asked[0].explaining, "the same masks, and every row of the model counts"
    assert sum(r.sent for r in asked) == sum(calls)
    calls.clear()
    several = c2fa.Explainer(model, masker, budget=100)
    store = several.many(list(rows[7:10]), tmp_path / "s", batch_size=64, engine="serial")
    np.testing.assert_allclose(store[0].low, first.low)
    assert max(calls) <= 64
    assert sum(calls) == sum(store[i].queries for i in range(3))


def test_codes_are_masked_by_the_most_frequent_one_and_dates_by_the_median():
    days = pd.to_datetime(["2020-01-01", "2020-01-01", "2021-06-01", "2022-01-01", "2024-01-01", "2025-01-01"])
    frame = pd.DataFrame(
        {
            "sex": [1.0, 2.0, 1.0, 1.0, 2.0, 1.0],
            "children": [0, 0, 2, 2, 2, 1],
            "pay": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
            "born": days,
            "abroad": days.tz_localize("Asia/Tokyo"),
            "late": days - days[0],
            "month": days.to_period("M"),
            "day": [d.date() for d in days],
        }
    )
    masked = Tabular(background=frame)(frame.iloc[[4]]).inputs(np.zeros((1, 8)), 0)
    pd.testing.assert_series_equal(masked.dtypes, frame.dtypes)
    row = masked.iloc[0]
    assert (row["sex"], row["children"], row["pay"]) == (1.0, 2, 3.5)
    for name in ("born", "abroad", "late", "month", "day"):
        assert row[name] == frame[name][2], name
    many = np.repeat(np.arange(11.0), 3)[:, None]
    assert Tabular(background=many)(many[0]).inputs([[False]], 0)[0, 0] == 5.0, "eleven numbers are measurements"


def test_one_hot_columns_of_a_group_take_a_combination_that_occurs():
    rows = np.array([[1, 0, 0, 7.0], [1, 0, 0, 1.0], [0, 1, 0, 2.0], [0, 1, 0, 3.0], [0, 0, 1, 4.0]])
    together = Tabular({"colour": [0, 1, 2]}, rows)(rows[4])
    assert together.inputs([[False, True]], 0)[0].tolist() in ([0, 1, 0, 4.0], [1, 0, 0, 4.0])


def test_a_value_equal_to_the_baseline_is_said_to_be():
    data = load_diabetes(as_frame=True, scaled=False)
    model = RandomForestRegressor(10, random_state=0).fit(data.data, data.target)
    masker = Tabular({"blood": [f"s{k}" for k in range(1, 7)]}, data.data)
    woman, man = (data.data[data.data["sex"] == sex].iloc[[0]] for sex in (1.0, 2.0))
    e = c2fa.Explainer(model, masker, budget=100)(woman)
    assert "sex = 1 (equal to the baseline)" in str(e)
    assert e.notes[0].startswith("1 of 10 columns is equal to the baseline (sex)")
    assert f"· {e.notes[0]}" in str(e)
    assert not any("baseline" in warning for warning in e.diagnostics.warnings), "it is no reason for distrust"
    assert "sex = 1 (equal to the baseline)" in e.to_html()
    frame = e.to_frame().query("level == 1").set_index("name")
    assert frame.loc["sex", "input_value"] == "1 (equal to the baseline)"
    again = c2fa.Explanation.from_json(e.to_json())
    assert str(again) == str(e)
    other = c2fa.Explainer(model, masker, budget=100)(man)
    assert "baseline" not in str(other)
    assert "sex = 2" in str(other)
    averaged = Tabular(masker.groups, data.data[::60], strategy="average")
    assert not any(averaged(woman).view.at_baseline)
    drawn = [text.get_text() for ax in e.plot().axes for text in ax.texts]
    assert "sex = 1 (equal to the baseline)" in drawn
    assert any(text.startswith("age = ") for text in drawn), "a column that is in no group shows its value too"


def test_rows_of_every_kind_reach_an_estimator_as_it_was_fitted():
    pl = pytest.importorskip("polars")
    data = load_diabetes(as_frame=True, scaled=False)
    by_name = RandomForestRegressor(5, random_state=0).fit(data.data, data.target)
    by_place = RandomForestRegressor(5, random_state=0).fit(data.data.to_numpy(), data.target)
    row = data.data.iloc[3]
    rows = {
        "frame": row.to_frame().T,
        "series": row,
        "dict": row.to_dict(),
        "array": row.to_numpy(),
        "polars": pl.from_pandas(data.data)[3],
        "reordered": row[::-1].to_frame().T,
    }
    expected = by_name.predict(data.data.iloc[[3]])[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for model in (by_name, by_place, by_name.predict):
            for kind, x in rows.items():
                if model is by_place and kind == "reordered":
                    continue  # it knows its columns by their places alone
                e = c2fa.Explainer(model, Tabular(background=data.data), budget=30)(x)
                assert e.prediction == expected, kind
                assert e.target_name == "output"
    polars = Tabular(background=pl.from_pandas(data.data))(rows["polars"]).inputs(np.eye(10), 0)
    assert polars.schema == rows["polars"].schema
    with pytest.raises(ValueError, match=r"one row of a DataFrame, not 442: give df\[i\]"):
        Tabular(background=data.data)(pl.from_pandas(data.data))


def test_dicts_stay_dicts_for_an_estimator_that_takes_them():
    records = [{"town": "Bern", "age": 3.0}, {"town": "Chur", "age": 4.0}, {"town": "Bern", "age": 5.0}]
    model = make_pipeline(DictVectorizer(), LogisticRegression()).fit(records, ["a", "b", "a"])
    e = c2fa.Explainer(model, Tabular(background=records), budget=20, target="b")(records[1])
    assert e.prediction == model.predict_proba(records[1:2])[0, 1]
    by_method = c2fa.Explainer(model.predict_proba, Tabular(background=records), budget=20, target="b")(records[1])
    assert by_method.output_names == ("a", "b"), "an estimator's method knows the names of its classes"


def test_empty_cells_of_the_background_are_no_value():
    frame = pd.DataFrame(
        {
            "city": pd.Series(["Rome", None, "Rome", None, None], dtype=object),
            "town": ["Oslo", np.nan, "Oslo", np.nan, np.nan],
            "count": pd.array([1, pd.NA, 4, pd.NA, pd.NA], dtype="Int64"),
            "nothing": [np.nan] * 5,
        }
    )
    batch = Tabular(background=frame)(frame.iloc[[0]]).inputs([[False] * 4], 0)
    assert batch["city"][0] == "Rome"
    assert batch["town"][0] == "Oslo"
    assert batch["count"][0] == 2
    assert np.isnan(batch["nothing"][0])
    pd.testing.assert_series_equal(batch.dtypes, frame.dtypes)
    records = [{"a": 1, "b": None}, {"a": None, "b": None}, {"a": 4, "b": "q"}]
    assert Tabular(background=records)({"a": 5, "b": "y"}).inputs([[False, False]], 0) == [{"a": 2.5, "b": "q"}]


def test_numbers_beside_texts_stay_numbers_and_sparse_rows_are_read():
    masker = Tabular(background=[["red", 1.0], ["red", 3.0], ["blue", 5.0]], names=["colour", "size"])
    assert masker(["blue", 9.0]).inputs([[False, False], [True, True]], 0).tolist() == [["red", 3.0], ["blue", 9.0]]
    rows = sparse.csr_matrix([[1.0, 0.0, 2.0]])
    batch = Tabular(background=sparse.csr_matrix((2, 3)))(rows).inputs([[True, False, False]], 0)
    assert batch.tolist() == [[1.0, 0.0, 0.0]]


def test_groups_that_are_no_tree_are_refused():
    within: list[object] = []
    within.append(within)
    for groups in (within, sparse.dia_array(np.eye(3))):
        with pytest.raises(TypeError, match="groups must be lists of columns, or dicts of them by name; got"):
            Tabular(background=np.zeros((2, 3)), groups=groups)(np.ones(3))


def test_a_background_is_read_once():
    class Counting(pd.DataFrame):
        reads = 0

        def __getitem__(self, key):
            Counting.reads += 1
            return super().__getitem__(key)

    masker = Tabular(background=Counting({"a": [1.0, 2.0], "b": [3.0, 4.0]}))
    for _ in range(3):
        masker([0.0, 0.0])
    assert Counting.reads == 2


def test_a_forest_on_real_wine_is_explained_in_groups():
    data = load_wine(as_frame=True)
    model = RandomForestClassifier(50, random_state=0).fit(data.data, data.target)
    groups = {
        "phenols": ["total_phenols", "flavanoids", "nonflavanoid_phenols"],
        "look": ["color_intensity", "hue"],
    }
    masker = Tabular(groups, data.data)
    explanation = c2fa.Explainer(model.predict_proba, masker, budget=(60, 200))(data.data.iloc[[0]])
    structure = masker(data.data.iloc[[0]]).structure
    np.testing.assert_allclose(structure.sums(explanation.low, 0), explanation.high)
    averaged = Tabular(groups, data.data.iloc[::30], strategy="average")
    e = c2fa.Explainer(model.predict_proba, averaged, budget=(180, 360))(data.data.iloc[[0]])
    assert e.target == explanation.target


def test_what_is_refused():
    with pytest.raises(ValueError, match="needs a background"):
        Tabular()
    with pytest.raises(ValueError, match="strategy must be"):
        Tabular(background=[1], strategy="median")
    with pytest.raises(TypeError, match="names must be a sequence"):
        Tabular(background=[1], names="abc")
    zeros = np.zeros((2, 3))
    with pytest.raises(ValueError, match="one row, not 2"):
        Tabular(background=zeros, strategy="row")(zeros[0])
    with pytest.raises(ValueError, match="'z' that the input does not have"):
        Tabular({"a": ["z"]}, zeros)(zeros[0])
    with pytest.raises(ValueError, match="'1' is in two groups"):
        Tabular({"a": [1], "b": [0, 1]}, zeros)(zeros[0])
    with pytest.raises(ValueError, match=r"background has shape \(2, 3\)"):
        Tabular(background=zeros)(np.zeros(4))
    with pytest.raises(ValueError, match=r"df.iloc\[\[i\]\]"):
        Tabular(background=FRAME)(FRAME)
    with pytest.raises(ValueError, match="no column 'pay'"):
        Tabular(background=FRAME.drop(columns="pay"))(FRAME.iloc[[0]])
    with pytest.raises(ValueError, match=r"got an array of shape \(2, 3\)"):
        Tabular(background=zeros)(zeros)
    with pytest.raises(ValueError, match="2 column names for 3 values"):
        Tabular(background=zeros, names=["a", "b"])(zeros[0])
    with pytest.raises(ValueError, match="no rows"):
        Tabular(background=zeros[:0])(zeros[0])
    with pytest.raises(ValueError, match=r"shape \(1, 3\): give x\[0\]"):
        Tabular(background=zeros)(zeros[:1])
    with pytest.raises(ValueError, match="'pilot' in column 'job', which is no category"):
        Tabular(background=FRAME.assign(job="pilot"))(FRAME.iloc[[0]])
    with pytest.raises(ValueError, match="empty cell in column 'age'"):
        Tabular(background=FRAME.assign(age=np.nan))(FRAME.iloc[[0]])
    twice = pd.DataFrame([[1.0, 2.0]], columns=["a", "a"])
    with pytest.raises(ValueError, match="two columns 'a'"):
        Tabular(background=twice)(twice)
    with pytest.raises(ValueError, match="two columns are called 'a'"):
        Tabular({"g": ["a"]}, background=zeros, names=["a", "a", "b"])(zeros[0])


def test_without_a_masker_a_date_of_numpy_stays_because_no_date_is_zero():
    row = {"when": np.datetime64("2020-01-01"), "age": np.float32(40)}
    masked = c2fa.maskers.Default()(row)
    assert masked.inputs([[False, False]], 0) == [{"when": row["when"], "age": 0.0}]

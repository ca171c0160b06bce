"""Tables: rows come back as they came in, and one-hot columns find each other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

pd = pytest.importorskip("pandas")
pytest.importorskip("sklearn")
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_iris, load_wine
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_selection import SelectKBest, chi2
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import c2fa
from c2fa.fingerprint import fingerprint
from c2fa.maskers import Tabular, groups_of, over_background

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
    answers = over_background(lambda table: table.sum(axis=1))(blocks)
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


def test_averaging_calls_the_model_once_with_rows_times_background():
    seen = []

    def model(rows):
        seen.append(len(rows))
        return np.stack((rows["age"], rows["pay"]), axis=1)

    frame = FRAME[["age", "pay"]].fillna(0.0)
    masked = Tabular(background=frame, strategy="average")(frame.iloc[[0]])
    blocks = masked.inputs([[True, False], [False, False]], 0)
    assert len(blocks) == 2
    assert blocks[0].shape == (3, 2)
    np.testing.assert_allclose(over_background(model)(blocks), [[40, 5.5 / 3], [31, 5.5 / 3]])
    assert seen == [6]
    np.testing.assert_allclose(over_background(model)(list(blocks)), over_background(model)(blocks))
    np.testing.assert_allclose(over_background(model)(blocks[1:]), [[31, 5.5 / 3]])
    with pytest.raises(c2fa.QueryError, match="returned 1 rows for 6"):
        over_background(lambda rows: np.zeros(1))(blocks)
    hidden = over_background(lambda rows: np.ma.array(np.ones(6), mask=[0, 0, 0, 1, 0, 0]))(blocks)
    np.testing.assert_array_equal(hidden, [1.0, np.nan])


def test_an_averaged_model_keeps_its_names_and_a_model_that_is_not_averaged_is_told():
    frame, kind = load_wine(return_X_y=True, as_frame=True)
    estimator = LogisticRegression(max_iter=50).fit(frame.to_numpy() / frame.to_numpy().max(axis=0), kind)
    model = c2fa.models.wrap(estimator)
    averaged = over_background(model)
    assert averaged.output_names == ("0", "1", "2")
    assert averaged.name == model.name
    assert averaged.batch_size is None
    with pytest.raises(TypeError, match=r"over_background\(c2fa.models.wrap\(model\)\)"):
        over_background(estimator)
    rows = frame.to_numpy()
    masker = Tabular(background=rows[:5], strategy="average")
    with pytest.raises(c2fa.QueryError, match=r"over_background\(model\)"):
        c2fa.Explainer(estimator, masker, budget=10)(rows[0])


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


def flowers():
    """A real table with columns to encode: iris, its lengths cut into named classes."""
    data = load_iris(as_frame=True)
    frame = data.data.rename(columns=lambda c: c.removesuffix(" (cm)"))
    for name in ("petal length", "sepal width"):
        frame[name] = pd.cut(frame[name], 4, labels=["tiny", "small", "large", "huge"]).astype(str)
    return frame, data.target


def test_one_hot_columns_of_a_fitted_transformer_are_groups():
    frame, _ = flowers()
    transformer = ColumnTransformer(
        [
            ("number", make_pipeline(SimpleImputer(), StandardScaler()), ["sepal length", "petal width"]),
            (
                "class",
                make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(drop="first")),
                ["petal length", "sepal width"],
            ),
        ]
    ).fit(frame)
    groups = groups_of(transformer)
    assert list(groups) == ["sepal length", "petal width", "petal length", "sepal width"]
    assert [len(g) for g in groups.values()] == [1, 1, 3, 3]
    assert [name for group in groups.values() for name in group] == list(transformer.get_feature_names_out())
    matrix = transformer.transform(frame)
    masker = Tabular(transformer, background=matrix)
    assert masker(matrix[0]).structure.widths == (4, 8)
    assert fingerprint(masker) == fingerprint(Tabular(groups, matrix, transformer.get_feature_names_out().tolist()))


def test_one_hot_columns_in_other_arrangements():
    frame, target = flowers()
    words = ["petal length", "sepal width"]
    rest = ColumnTransformer([("class", OneHotEncoder(), words)], remainder="passthrough").fit(frame)
    assert list(groups_of(rest)) == [*words, "sepal length", "petal width"]
    # A whole pipeline with its predictor, a transformer by positions, a step that mixes columns, a selection.
    whole = make_pipeline(rest, LogisticRegression(max_iter=500)).fit(frame, target)
    assert groups_of(whole) == groups_of(rest)
    mixed = ColumnTransformer(
        [
            ("hot", OneHotEncoder(min_frequency=20), [1, 2]),
            ("pca", PCA(2), slice(0, 4, 3)),
            ("none", "drop", []),
        ]
    ).fit(frame.to_numpy())
    groups = groups_of(mixed)
    assert list(groups) == ["1", "2", "pca"]
    assert len(groups["pca"]) == 2
    chosen = make_pipeline(OneHotEncoder(sparse_output=False), SelectKBest(chi2, k=3)).fit(frame[words], target)
    assert sum(map(len, groups_of(chosen).values())) == 3
    assert groups_of(OneHotEncoder().fit(frame[words]))["sepal width"][0] == "sepal width_huge"
    with pytest.raises(TypeError, match="not LogisticRegression"):
        groups_of(LogisticRegression())


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
    e = c2fa.Explainer(over_background(model.predict_proba), averaged, budget=(30, 60))(data.data.iloc[[0]])
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

"""Estimators of scikit-learn, on the wines that it ships with, and the files that hold them."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest

from c2fa.models import Sklearn, load, wrap
from strangers import Ran

joblib = pytest.importorskip("joblib")
pd = pytest.importorskip("pandas")
pytest.importorskip("sklearn")
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC


@pytest.fixture(scope="module")
def wines():
    data = load_wine(as_frame=True)
    frame = data.data.copy()
    for column in ("alcohol", "hue"):
        frame[column] = pd.qcut(frame[column], 3, labels=["low", "middle", "high"]).astype(str)
    names = np.asarray(data.target_names)[data.target]
    return frame, names


@pytest.fixture(scope="module")
def pipeline(wines):
    frame, names = wines
    words = ["alcohol", "hue"]
    rest = [c for c in frame if c not in words]
    encode = ColumnTransformer([("words", OneHotEncoder(), words), ("numbers", StandardScaler(), rest)])
    return make_pipeline(encode, LogisticRegression(max_iter=1000)).fit(frame, names)


def test_a_pipeline_on_a_frame_gives_named_probabilities(wines, pipeline):
    frame, names = wines
    model = Sklearn(pipeline)
    found = model(frame)
    np.testing.assert_array_equal(found, pipeline.predict_proba(frame))
    assert model.output_names == ("class_0", "class_1", "class_2")
    accuracy = np.mean(np.asarray(model.output_names)[found.argmax(axis=1)] == names)
    assert accuracy > 0.95


def test_the_name_of_an_estimator_changes_with_what_it_learnt(wines, pipeline):
    frame, names = wines
    copy = pickle.loads(pickle.dumps(pipeline))
    assert Sklearn(copy).name == Sklearn(pipeline).name
    copy.fit(frame[:-1], names[:-1])
    assert Sklearn(copy).name != Sklearn(pipeline).name
    code = "import sys, pickle; from c2fa.models import Sklearn; print(Sklearn(pickle.load(sys.stdin.buffer)).name)"
    done = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(pipeline), capture_output=True, check=True)
    assert done.stdout.decode().strip() == Sklearn(pipeline).name


def test_estimators_without_probabilities(wines):
    frame, names = wines
    numbers = frame.drop(columns=["alcohol", "hue"])
    margins = Sklearn(LinearSVC(dual="auto").fit(StandardScaler().fit_transform(numbers), names))
    assert margins.method == "decision_function"
    assert margins(numbers.to_numpy()).shape == (len(frame), 3)
    two = Sklearn(RidgeClassifier().fit(numbers, names == "class_1"))
    assert two(numbers).shape == (len(frame),)
    assert two.output_names == ("True",)
    number = Sklearn(Ridge().fit(numbers, numbers["ash"]))
    assert (number.method, number.output_names) == ("predict", ())
    assert number(numbers).shape == (len(frame),)
    with pytest.raises(ValueError, match=r"gives labels such as .*class_"):
        Sklearn(margins.estimator, method="predict")(numbers.to_numpy())
    with pytest.raises(TypeError, match="StandardScaler has no predict_proba"):
        Sklearn(StandardScaler())
    with pytest.raises(ValueError, match="method must be one of"):
        Sklearn(margins.estimator, method="transform")
    several = RandomForestClassifier(3).fit(numbers, np.stack([names, names], axis=1))
    with pytest.raises(ValueError, match="for each of 2 targets"):
        Sklearn(several)(numbers)


def test_wrap_knows_an_estimator(pipeline):
    assert isinstance(wrap(pipeline), Sklearn)


def test_a_pickle_is_read_only_where_it_is_allowed(pipeline, wines, tmp_path):
    frame, _ = wines
    joblib.dump(pipeline, tmp_path / "pipe.joblib")
    with pytest.raises(ValueError, match="a pickle can run any code"):
        load(f"sklearn:{tmp_path}/pipe.joblib")
    found = load(f"sklearn:{tmp_path}/pipe.joblib", allow_pickle=True)
    np.testing.assert_allclose(found(frame), pipeline.predict_proba(frame))


def test_skops_files_need_no_trust(wines, tmp_path):
    skops = pytest.importorskip("skops.io")
    numbers = wines[0].drop(columns=["alcohol", "hue"]).to_numpy()
    estimator = make_pipeline(StandardScaler(), LogisticRegression()).fit(numbers, wines[1])
    skops.dump(estimator, tmp_path / "m.skops")
    model = load(f"sklearn:{tmp_path}/m.skops")
    np.testing.assert_allclose(model(numbers), estimator.predict_proba(numbers))
    assert model.output_names == ("class_0", "class_1", "class_2")


def test_a_skops_file_runs_nothing(wines, tmp_path, monkeypatch):
    skops = pytest.importorskip("skops.io")
    numbers = wines[0].drop(columns=["alcohol", "hue"]).to_numpy()
    estimator = make_pipeline(StandardScaler(), FunctionTransformer(touch), LogisticRegression()).fit(numbers, wines[1])
    skops.dump(estimator, tmp_path / "m.skops")
    with pytest.raises(ValueError, match=r"holds the types test_models_sklearn\.touch, which are not scikit-learn's"):
        load(f"sklearn:{tmp_path}/m.skops")
    (tmp_path / "p.skops").write_bytes(pickle.dumps(Ran(tmp_path / "ran")))
    with pytest.raises(Exception, match="not a zip"):
        load(f"sklearn:{tmp_path}/p.skops", allow_pickle=True)
    assert not (tmp_path / "ran").exists()
    monkeypatch.setattr("c2fa._system.version", lambda package: {"skops": "0.11.0"}[package])
    with pytest.raises(ImportError, match=r"skops 0.11.0 .*CVE-.*pip install 'skops>=0.12'"):
        load(f"sklearn:{tmp_path}/m.skops")


def touch(rows):
    return rows

"""Estimators in .skops files: scikit-learn's types load as they are, others only by name."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

skops = pytest.importorskip("skops.io")

from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import clear_data_home, load_wine
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_selection import SelectKBest
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, SplineTransformer
from sklearn.tree import DecisionTreeClassifier

from c2fa.models import load
from c2fa.models.loading import options_of
from c2fa.models.local.sklearn import is_scikit_learns


@pytest.mark.parametrize(
    "estimator",
    [
        DecisionTreeClassifier(),
        RandomForestClassifier(3),
        GradientBoostingClassifier(n_estimators=3),
        HistGradientBoostingClassifier(max_iter=3),
        MLPClassifier(max_iter=5),
        KNeighborsClassifier(),
        CalibratedClassifierCV(LogisticRegression(max_iter=5), cv=2),
        make_pipeline(SimpleImputer(), SelectKBest(k=2), GaussianProcessClassifier()),
        make_pipeline(SplineTransformer(), LogisticRegression(max_iter=5)),
    ],
    ids=lambda estimator: type(estimator[-2] if hasattr(estimator, "steps") else estimator).__name__,
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_types_of_scikit_learn_need_no_trust(estimator: Any, tmp_path: Path) -> None:
    numbers, kinds = load_wine(return_X_y=True)
    estimator.fit(numbers, kinds)
    skops.dump(estimator, tmp_path / "m.skops")
    model = load(f"sklearn:{tmp_path}/m.skops")
    np.testing.assert_allclose(model(numbers), estimator.predict_proba(numbers))


def test_functions_of_scikit_learn_that_open_files_are_not_trusted(tmp_path: Path) -> None:
    skops.dump(FunctionTransformer(clear_data_home), tmp_path / "m.skops")
    with pytest.raises(ValueError, match=r"holds the types sklearn\.datasets\._base\.clear_data_home, which are not"):
        load(f"sklearn:{tmp_path}/m.skops")
    for name in ("sklearn.datasets._base.os", "sklearn.utils._testing.TempMemmap", "sklearn.nowhere.Type", "sklearn"):
        assert not is_scikit_learns(name)


def test_other_types_are_trusted_by_their_names_and_found_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scaling_of_mine.py").write_text("def double(rows):\n    return 2 * rows\n")
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as context:
        context.syspath_prepend(tmp_path)
        double = importlib.import_module("scaling_of_mine").double
    rows = np.arange(6.0).reshape(3, 2)
    estimator = make_pipeline(FunctionTransformer(double), LogisticRegression()).fit(rows, [0, 1, 1])
    skops.dump(estimator, "m.skops")
    monkeypatch.delitem(sys.modules, "scaling_of_mine")
    with pytest.raises(ValueError, match=r"give trusted='scaling_of_mine\.double'"):
        load("sklearn:m.skops")
    assert "scaling_of_mine" not in sys.modules
    for trusted in ("scaling_of_mine.double", "mine.Other, scaling_of_mine.double", ["scaling_of_mine.double"]):
        found = load("sklearn:m.skops", trusted=trusted)
        np.testing.assert_allclose(found(rows), estimator.predict_proba(rows))
    assert "trusted" in options_of("sklearn:m.skops")

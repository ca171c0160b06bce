"""A scikit-learn estimator, or any object with its methods, and how one is loaded from a .skops file."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Collection, Mapping
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from c2fa._system import is_frame, need, refuse_older

_METHODS = ("predict_proba", "decision_function", "predict")


class Sklearn:
    """An estimator as a model: class probabilities where it has them, else decisions or predictions.

    Rows may be a frame, an array or a list of dicts. The estimator gets them with the columns' names, and in their
    order, if it was fitted on named columns, else without names.

    Parameters
    ----------
    estimator
        A fitted estimator or pipeline.
    method
        ``"predict_proba"``, ``"decision_function"`` or ``"predict"``; the first that it has unless given.

    Examples
    --------
    >>> class Constant:
    ...     classes_ = np.array(["no", "yes"])
    ...     def predict_proba(self, X):
    ...         return np.tile([0.25, 0.75], (len(X), 1))
    >>> model = Sklearn(Constant())
    >>> model([[1.0], [2.0]]), model.output_names
    (array([[0.25, 0.75],
           [0.25, 0.75]]), ('no', 'yes'))
    """

    def __init__(self, estimator: Any, method: str | None = None) -> None:
        # hasattr on the object: a support vector machine has predict_proba only if made with probability=True.
        first = next((m for m in _METHODS if hasattr(estimator, m)), None)
        if method is not None and method not in _METHODS:
            raise ValueError(f"method must be one of {', '.join(_METHODS)}, not {method!r}")
        if first is None or (method is not None and not hasattr(estimator, method)):
            wanted = method or "predict_proba, decision_function and predict"
            raise TypeError(f"{type(estimator).__name__} has no {wanted}; pass a fitted scikit-learn estimator")
        self.estimator = estimator
        self.method: str = method or first

    @property
    def output_names(self) -> tuple[str, ...]:
        """The names of the classes, if each of them has an output."""
        classes = getattr(self.estimator, "classes_", None)
        if classes is None or isinstance(classes, list) or self.method == "predict":
            return ()
        if self.method == "decision_function" and len(classes) == 2:
            return (str(classes[1]),)  # the only column speaks for the second class
        return tuple(str(c) for c in classes)

    @property
    def name(self) -> str:
        """The estimator's class with a hash of its state."""
        name = f"sklearn:{type(self.estimator).__name__}.{self.method}"
        try:
            joblib = import_module("joblib")
        except ImportError:
            return name
        try:
            # A saved and loaded estimator has the same name: a view of an array is an array of its own in both.
            return f"{name}:{joblib.hash(pickle.loads(pickle.dumps(self.estimator)))}"
        except Exception:  # it cannot be pickled, and so not hashed either
            return name

    def _as_fitted(self, batch: Any) -> Any:
        """The rows in the form that the estimator was fitted on; rows that are no table, such as texts, stay."""
        names = getattr(self.estimator, "feature_names_in_", None)
        width = getattr(self.estimator, "n_features_in_", None)
        if width is None:  # it takes no table, as where a DictVectorizer or a text vectorizer comes first
            return batch
        if isinstance(batch, list) and batch and isinstance(batch[0], Mapping):
            batch = need("pandas", "tabular").DataFrame(batch)
        if names is None:
            # Other libraries' estimators may read types from a frame, so they get it as it is.
            is_own = type(self.estimator).__module__.partition(".")[0] == "sklearn"
            return batch.to_numpy() if is_own and is_frame(batch) else batch
        if is_frame(batch):
            reordered = list(batch.columns) != list(names) and set(batch.columns) == set(names)
            return batch[list(names)] if reordered else batch
        if not isinstance(batch, np.ndarray) or batch.ndim != 2 or batch.shape[1] != len(names):
            return batch
        frame = need("pandas", "tabular").DataFrame(batch, columns=names)
        return frame.infer_objects()  # numbers beside texts are numbers again

    def __repr__(self) -> str:
        return f"Sklearn({self.estimator!r})"

    def __call__(self, batch: Any) -> npt.NDArray[np.float64]:
        outputs = getattr(self.estimator, self.method)(self._as_fitted(batch))
        if isinstance(outputs, list):
            raise ValueError(
                f"{type(self.estimator).__name__}.{self.method} gives one array for each of {len(outputs)} targets; "
                "wrap it in a function that returns one of them"
            )
        array = np.asarray(outputs)
        if array.dtype.kind not in "biuf":
            raise ValueError(
                f"{type(self.estimator).__name__}.{self.method} gives labels such as {array.flat[0]!r}, not numbers; "
                "use an estimator with predict_proba, such as CalibratedClassifierCV around yours"
            )
        return array.astype(np.float64, copy=False)


def load_skops(path: str, trusted: Collection[str] = ()) -> Any:
    """Load a .skops file; types that are neither scikit-learn's nor trusted by name are refused, and named."""
    io = need("skops.io", "tabular")
    refuse_older("skops", "0.12", "can be made to run code hidden in a .skops file (CVE-2025-54412)")
    types = io.get_untrusted_types(file=path)
    unknown = [name for name in types if name not in trusted and not is_scikit_learns(name)]
    if unknown:
        raise ValueError(
            f"{path!r} holds the types {', '.join(unknown)}, which are not scikit-learn's, and their code would run; "
            f"if you trust it, give trusted='{','.join(unknown)}'"
        )
    return io.load(path, trusted=types)


def is_scikit_learns(name: str) -> bool:
    """Whether a name in a file is a type or a score of scikit-learn, or a harmless one of numpy or scipy.

    It must be defined in scikit-learn, whose modules also import ``os`` and ``partial``, by which a file could do harm.

    >>> is_scikit_learns("sklearn.tree._tree.Tree"), is_scikit_learns("sklearn.feature_selection.f_classif")
    (True, True)
    >>> is_scikit_learns("sklearn.model_selection._search.partial"), is_scikit_learns("os.system")
    (False, False)
    """
    harmless = (
        "numpy.dtype",
        "numpy.mean",
        "scipy.interpolate._bsplines.BSpline",
        "scipy._lib.array_api_compat.numpy._aliases.asarray",
    )
    if name in harmless:
        return True
    module, _, attribute = name.rpartition(".")
    if not _computes(module):
        return False
    try:
        thing = getattr(import_module(module), attribute, None)
    except ImportError:
        return False
    home = str(getattr(thing, "__module__", ""))
    if not _computes(home):
        return False
    is_score = inspect.isfunction(thing) and home.startswith(("sklearn.feature_selection.", "sklearn.metrics."))
    return inspect.isclass(thing) or is_score


def _computes(module: str) -> bool:
    """Whether a module of scikit-learn is none of those that open files or start processes."""
    dangerous = {"datasets", "externals", "tests", "conftest", "_testing"}
    return module.startswith("sklearn.") and dangerous.isdisjoint(module.split("."))

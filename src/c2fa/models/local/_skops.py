"""A .skops file: scikit-learn's own types are trusted, and so are those that are named; nothing else is loaded."""

from __future__ import annotations

import inspect
from collections.abc import Collection
from importlib import import_module
from typing import Any

from c2fa._system import need, refuse_older


def load(path: str, trusted: Collection[str] = ()) -> Any:
    """Load an estimator; types that are neither scikit-learn's nor trusted by name are refused, and named."""
    io = need("skops.io", "tabular")
    refuse_older("skops", "0.12", "can be made to run code hidden in a .skops file (CVE-2025-54412)")
    found = io.get_untrusted_types(file=path)
    unknown = [name for name in found if name not in trusted and not is_scikit_learns(name)]
    if unknown:
        raise ValueError(
            f"{path!r} holds the types {', '.join(unknown)}, which are not scikit-learn's, and their code would run; "
            f"if you trust it, give trusted='{','.join(unknown)}'"
        )
    return io.load(path, trusted=found)


def is_scikit_learns(name: str) -> bool:
    """Whether a name in a file is that of a type or a score of scikit-learn itself, or of a harmless one beneath it.

    It must be defined there: modules of scikit-learn import ``os`` and ``partial`` too, by which a file could do harm.

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
    """Whether it is a module of scikit-learn, and none of those that open files or start processes."""
    others = {"datasets", "externals", "tests", "conftest", "_testing"}
    return module.startswith("sklearn.") and others.isdisjoint(module.split("."))

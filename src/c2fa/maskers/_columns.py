"""Which columns of a table belong together."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from c2fa.structure import Structure


def groups_of(transformer: Any) -> dict[str, list[str]]:
    """Group what a fitted ``ColumnTransformer`` or ``Pipeline`` gives by the columns that it comes from.

    The columns that a ``OneHotEncoder`` makes of one column are one group; a column that is scaled, imputed
    or passed on is a group of its own; what cannot be told apart (principal components, say) is one group for
    each step. A predictor at the end of a pipeline is left out.

    Returns
    -------
    dict
        From the name of a column of the table to the names of the transformed columns, in their order.
    """
    fitted = _transforming(transformer)
    names = names_of(fitted)
    inputs = [str(c) for c in getattr(fitted, "feature_names_in_", range(fitted.n_features_in_))]
    owners = _through(fitted, inputs, "all")
    groups: dict[str, list[str]] = {}
    for owner, name in zip(owners, names, strict=True):
        groups.setdefault(owner, []).append(name)
    return groups


def names_of(transformer: Any) -> list[str]:
    """The names of the columns that a fitted transformer gives."""
    return [str(name) for name in _transforming(transformer).get_feature_names_out()]


def _transforming(transformer: Any) -> Any:
    """A pipeline without the predictor at its end."""
    if hasattr(transformer, "steps") and hasattr(transformer.steps[-1][1], "predict"):
        transformer = transformer[:-1]
    if not hasattr(transformer, "get_feature_names_out"):
        raise TypeError(
            f"groups must be a dict of columns or a fitted ColumnTransformer or Pipeline, "
            f"not {type(transformer).__name__}"
        )
    return transformer


def _through(step: Any, owners: list[str], name: str) -> list[str]:
    """Follow the owners of a step's input columns to its output columns."""
    if step is None or step == "passthrough":
        return owners
    if hasattr(step, "steps"):
        for inner_name, inner in step.steps:
            owners = _through(inner, owners, inner_name)
        return owners
    if hasattr(step, "transformers_"):
        return _through_columns(step, owners)
    if hasattr(step, "feature_name_combiner"):  # OneHotEncoder: ask it to name each column by its origin
        plain = copy.copy(step)
        plain.feature_name_combiner = lambda feature, category: feature
        inputs = [str(k) for k in range(len(owners))]
        if hasattr(plain, "feature_names_in_"):
            del plain.feature_names_in_
        return [owners[int(k)] for k in plain.get_feature_names_out(inputs)]
    given = getattr(step, "feature_names_in_", [f"x{k}" for k in range(len(owners))])
    at = {str(c): k for k, c in enumerate(given)}
    made = [str(c) for c in step.get_feature_names_out()]
    return [owners[at[c]] for c in made] if all(c in at for c in made) else [name] * len(made)


def _through_columns(step: Any, owners: list[str]) -> list[str]:
    inputs = [str(c) for c in getattr(step, "feature_names_in_", range(len(owners)))]
    out = [""] * len(step.get_feature_names_out())
    for name, inner, columns in step.transformers_:
        if isinstance(inner, str) and inner == "drop":
            continue
        places = step.output_indices_[name]
        chosen = [inputs.index(c) if isinstance(c, str) else int(c) for c in _listed(columns, len(owners))]
        followed = _through(inner, [owners[k] for k in chosen], name)
        out[places] = followed
    return out


def _listed(columns: Any, count: int) -> list[Any]:
    """Columns chosen by a name, names, positions, a slice or a boolean mask, as a list."""
    if isinstance(columns, str | int):
        return [columns]
    if isinstance(columns, slice):
        return list(range(count))[columns]
    chosen = list(columns)
    if chosen and all(isinstance(c, bool | np.bool_) for c in chosen):
        return [k for k, on in enumerate(chosen) if on]
    return chosen


def tree_of(groups: Any, columns: list[Any]) -> Structure:
    """The tree of columns, whose leaves keep the order of the columns."""
    leaves = [str(c) for c in columns]
    if groups is None:
        return Structure.flat(leaves)
    twice = next((name for name, times in Counter(leaves).items() if times > 1), None)
    if twice is not None:
        raise ValueError(f"two columns are called {twice!r}: groups go by name, so give each a name of its own")
    at = {name: j for j, name in enumerate(leaves)}

    def named(node: Any) -> Any:
        if isinstance(node, Mapping):
            return {str(k): named(v) for k, v in node.items()}
        if isinstance(node, str) or not hasattr(node, "__iter__"):
            if str(node) in at:
                return str(node)
            if isinstance(node, int | np.integer) and 0 <= node < len(leaves):
                return leaves[node]
            raise ValueError(f"the groups name a column {node!r} that the input does not have: {leaves[:20]}")
        return [named(child) for child in node]

    tree = named(groups)
    found = Structure.from_tree(tree).names[-1]
    name, times = Counter(found).most_common(1)[0]
    if times > 1:
        raise ValueError(f"column {name!r} is in two groups: put it into one")
    rest = [name for name in leaves if name not in set(found)]
    branches = [tree] if isinstance(tree, Mapping) else list(tree)
    whole = Structure.from_tree([*branches, *rest])
    order = np.argsort([at[name] for name in whole.names[-1]])
    if whole.depth == 1:
        return Structure.flat(leaves)
    return Structure((*whole.parents[:-1], whole.parents[-1][order]), (*whole.names[:-1], tuple(leaves)))

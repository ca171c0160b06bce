"""The tree of features, whichever way it is given."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import dia_array

import c2fa
from c2fa import Structure
from oracles import membership
from strategies import structures


@given(structures(depths=(1, 2, 3, 4)), st.data())
def test_expand_sums_and_membership_follow_the_definition(s, data):
    rng = np.random.default_rng(0)
    for k in range(s.depth):
        m = membership(s, k)
        np.testing.assert_array_equal(s.membership(k).toarray(), m)
        masks = rng.random((3, s.widths[k])) < 0.5
        np.testing.assert_array_equal(s.expand(masks, k), (masks.astype(float) @ m) > 0)
        values = rng.normal(size=(s.leaves, 2))
        np.testing.assert_allclose(s.sums(values, k), m @ values, atol=1e-12)
        np.testing.assert_allclose(s.sums(values[:, 0], k), m @ values[:, 0], atol=1e-12)
    np.testing.assert_array_equal(s.expand(np.ones((1, s.leaves)), -1), np.ones((1, s.leaves), bool))


def test_groups_keep_the_order_of_first_appearance():
    s = Structure.from_groups(["b", "a", "b"], names=["x", "y", "z"])
    assert s.names == (("b", "a"), ("x", "y", "z"))
    assert s.owners(0).tolist() == [0, 1, 0]
    assert Structure.from_groups(np.array([[3, 3], [1, 1]])).names[0] == ("3", "1")


def test_shaps_partition_tree_is_taken_verbatim():
    tree = {
        "Demographics": ["Age", "Gender", "Education"],
        "Financial": {"Income": ["Salary", "Bonus"], "Assets": ["Savings", "Investments"]},
    }
    s = Structure.from_tree(tree)
    assert s.widths == (2, 5, 7)
    assert s.names[1] == ("Age", "Gender", "Education", "Income", "Assets")
    assert s.names[2][-4:] == ("Salary", "Bonus", "Savings", "Investments")
    linkage = {"group_4": [{"group_3": ["a", "b"]}, "c"]}  # what shap makes of a scipy linkage
    assert Structure.from_tree(linkage).names == (("group_4",), ("group_3", "c"), ("a", "b", "c"))


def test_lists_and_one_leaf_parts():
    s = Structure.from_tree([["a"], ["b", "c"], "d"])
    assert s.names == (("0", "1", "d"), ("a", "b", "c", "d"))
    assert s.sums([1, 2, 3, 4], 0).tolist() == [1, 5, 4]


def test_a_hundred_thousand_leaves_are_ordinary():
    s = Structure.from_tree([[str(i) for i in range(1000)] for _ in range(100)])
    assert s.widths == (100, 100_000)
    assert s.membership(0).nnz == 100_000


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Structure.from_groups([]), "groups is empty"),
        (lambda: Structure.from_groups([1.0, float("nan")]), "the part label of leaf 1 is nan"),
        (lambda: Structure.from_groups([["a"], ["b"]]), "the part label of leaf 0 is .'a'."),
        (lambda: Structure.from_groups(dia_array(np.eye(3))), "groups must be a sequence with one part label"),
        (lambda: Structure.from_tree({}), "no features"),
        (lambda: Structure.from_tree([]), "no features"),
        (lambda: Structure.from_tree({"a": ["x"], "b": []}), "part 'b' has no leaves"),
        (lambda: Structure.from_tree("text"), "must be a dict or a list"),
        (lambda: Structure.flat([]), "no features"),
        (
            lambda: Structure((np.array([0, 0]),), (("a", "b"), ("x", "y"))),
            "part 1 .'b'. of level 0 has no leaves",
        ),
        (lambda: Structure((np.array([0, 5]),), (("a",), ("x", "y"))), "must lie in 0..0"),
        (lambda: Structure((), (("a",), ("x",))), "need 1 arrays of parents"),
        (lambda: Structure.from_groups("ab", names=["x"]), "1 names for 2 leaves"),
    ],
)
def test_bad_structures_are_met_with_one_sentence(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


def test_bad_masks_levels_and_values():
    s = c2fa.Structure.from_groups("aab")
    with pytest.raises(ValueError, match=r"masks of level 0 must have shape \(n, 2\).*got \(1, 3\)"):
        s.expand([[1, 0, 1]], 0)
    with pytest.raises(ValueError, match="only 0 and 1"):
        s.expand([[2, 0]], 0)
    with pytest.raises(IndexError, match=r"level 2 does not exist: the structure has levels 0\.\.1"):
        s.membership(2)
    with pytest.raises(ValueError, match="one row for each of 3 leaves"):
        s.sums([1.0, 2.0], 0)


def test_groups_as_a_tensor_holds_them():
    torch = pytest.importorskip("torch")
    assert Structure.from_groups(torch.tensor([4, 4, 7])).names[0] == ("4", "7")


def test_a_structure_leaves_the_callers_arrays_alone():
    owners = np.array([0, 0, 1])
    s = Structure((owners,), (("a", "b"), ("x", "y", "z")))
    owners[:] = 9
    assert s.sums([1, 2, 3], 0).tolist() == [3, 3]
    assert Structure.flat(np.int64(3)).widths == (3,)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Structure.from_groups(5), "groups must be a sequence with one part label for each leaf; got 5"),
        (lambda: Structure.from_groups(None), "groups must be a sequence .*; got None"),
        (lambda: Structure.from_groups("ab", names=5), "names must be a sequence with one name for each leaf; got 5"),
        (lambda: Structure.flat(2.5), "names must be the leaves' names, or how many leaves there are; got 2.5"),
    ],
)
def test_what_is_no_sequence_is_refused_in_one_sentence(make, message):
    with pytest.raises(TypeError, match=message):
        make()

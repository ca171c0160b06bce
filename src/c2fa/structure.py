"""The tree of features: who owns whom, from the coarsest level down to the leaves."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from c2fa._system import host_array, is_tensor, is_whole

if TYPE_CHECKING:
    from scipy.sparse import csr_array

BoolArray: TypeAlias = npt.NDArray[np.bool_]
FloatArray: TypeAlias = npt.NDArray[np.float64]
IntArray: TypeAlias = npt.NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Structure:
    """A tree whose levels run from coarse (0) to fine (-1); the finest level's features are the leaves.

    Parameters
    ----------
    parents
        One array for each level but the coarsest: ``parents[k][i]`` is the index, at level ``k``, of the
        feature that owns feature ``i`` of level ``k + 1``. Leaves keep the order in which they were given;
        the leaves of one part need not be neighbours.
    names
        The features' names, one tuple for each level. Names need not be unique.

    Examples
    --------
    >>> s = Structure.from_tree({"S1": ["not", "good"], "S2": ["but", "I", "smiled"]})
    >>> s.depth, s.widths
    (2, (2, 5))
    >>> s.sums([1.0, 2.0, 0.0, 3.0, 4.0], level=0)
    array([3., 7.])
    >>> s.expand([[True, False]], level=0).astype(int)
    array([[1, 1, 0, 0, 0]])
    """

    parents: tuple[IntArray, ...]
    names: tuple[tuple[str, ...], ...]
    widths: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        if not isinstance(self.names, tuple | list):
            raise TypeError(f"names must be a tuple with the names of each level, coarse to fine; got {self.names!r}")
        if not self.names or not self.names[-1]:
            raise ValueError("the structure has no features: give at least one part with one leaf")
        if not isinstance(self.parents, tuple | list):
            raise TypeError(f"parents must be a tuple with an array for each level but the first; got {self.parents!r}")
        if len(self.parents) != len(self.names) - 1:
            raise ValueError(
                f"{len(self.names)} levels of names need {len(self.names) - 1} arrays of parents, "
                f"not {len(self.parents)}"
            )
        parents = tuple(np.array(p, dtype=np.intp) for p in self.parents)
        widths = tuple(len(n) for n in self.names)
        for k, owner in enumerate(parents):
            if owner.shape != (widths[k + 1],):
                raise ValueError(
                    f"level {k + 1} has {widths[k + 1]} features but parents of shape {owner.shape}; "
                    "give the index of one owner for each feature"
                )
            if owner.min() < 0 or owner.max() >= widths[k]:
                raise ValueError(f"parents of level {k + 1} must lie in 0..{widths[k] - 1}")
            childless = np.flatnonzero(np.bincount(owner, minlength=widths[k]) == 0)
            if childless.size:
                j = int(childless[0])
                raise ValueError(
                    f"part {j} ({self.names[k][j]!r}) of level {k} has no leaves: "
                    "leave it out, or give it at least one leaf"
                )
            owner.setflags(write=False)
        object.__setattr__(self, "parents", parents)
        object.__setattr__(self, "widths", widths)

    # -- ways in -----------------------------------------------------------------------------------

    @classmethod
    def from_groups(cls, groups: Iterable[Any], names: Sequence[str] | None = None) -> Structure:
        """Make a two-level structure from one part label per leaf; parts in order of first appearance.

        >>> Structure.from_groups(["S1", "S1", "S2"]).names
        (('S1', 'S2'), ('0', '1', '2'))
        """
        if is_tensor(groups):  # a tensor's items are all different, whatever they hold
            groups = host_array(groups)
        try:
            labels = list(groups.ravel().tolist()) if isinstance(groups, np.ndarray) else list(groups)
        except TypeError:  # some sparse arrays say that they can be iterated over
            raise TypeError(f"groups must be a sequence with one part label for each leaf; got {groups!r}") from None
        if not labels:
            raise ValueError("groups is empty: give one part label for each leaf")
        for i, label in enumerate(labels):
            if not isinstance(label, Hashable) or label != label:  # NaN, and the like
                raise ValueError(
                    f"the part label of leaf {i} is {label!r}; use labels that equal themselves, such as names"
                )
        order: dict[Hashable, int] = {}
        owner = np.array([order.setdefault(label, len(order)) for label in labels], dtype=np.intp)
        return cls((owner,), (tuple(map(str, order)), _leaf_names(names, len(labels))))

    @classmethod
    def from_tree(cls, tree: Any) -> Structure:
        """Make a structure from nested dicts and lists of names, of any depth.

        A dict maps the name of a part to its children; a list holds leaves or further parts (its unnamed
        inner lists are numbered). shap's ``partition_tree`` is taken verbatim. A leaf that sits higher than
        the deepest one becomes a part with that one leaf, so that every level covers every leaf.

        >>> Structure.from_tree([["a", "b"], ["c"]]).names
        (('0', '1'), ('a', 'b', 'c'))
        >>> Structure.from_tree({"A": {"A1": ["x"], "A2": ["y", "z"]}, "B": "w"}).widths
        (2, 3, 4)
        """
        try:
            root = _children(tree, path="the tree")
        except RecursionError:
            raise ValueError("the tree is nested too deeply; does it contain itself?") from None
        depth = max(_height(child) for child in root) if root else 0
        names: list[list[str]] = [[] for _ in range(depth)]
        parents: list[list[int]] = [[] for _ in range(depth - 1)]

        def place(node: _Node, level: int, owner: int) -> None:
            name, children = node
            while True:
                if level:
                    parents[level - 1].append(owner)
                names[level].append(name)
                owner = len(names[level]) - 1
                level += 1
                if children is not None or level == depth:
                    break
            for child in children or ():
                place(child, level, owner)

        for child in root:
            place(child, 0, 0)
        return cls(
            tuple(np.array(p, dtype=np.intp) for p in parents),
            tuple(tuple(level) for level in names),
        )

    @classmethod
    def flat(cls, names: int | Sequence[str]) -> Structure:
        """Make a structure of one level: leaves without parts."""
        if isinstance(names, int | np.integer):
            return cls((), (_leaf_names(None, int(names)),))
        if not isinstance(names, Iterable):
            raise TypeError(f"names must be the leaves' names, or how many leaves there are; got {names!r}")
        return cls((), (tuple(map(str, names)),))

    # -- what it tells -----------------------------------------------------------------------------

    @property
    def depth(self) -> int:
        """The number of levels."""
        return len(self.names)

    @property
    def leaves(self) -> int:
        """The number of leaves."""
        return self.widths[-1]

    @cached_property
    def _owners(self) -> tuple[IntArray, ...]:
        owners = [np.arange(self.leaves, dtype=np.intp)]
        for parent in reversed(self.parents):
            owners.append(parent[owners[-1]])
        return tuple(reversed(owners))

    @cached_property
    def _starts(self) -> tuple[IntArray | None, ...]:
        """Where each feature's run of leaves begins, for the levels at which the runs are contiguous."""
        starts = []
        for owner, width in zip(self._owners, self.widths, strict=True):
            ordered = bool(np.all(owner[1:] >= owner[:-1]))
            starts.append(np.searchsorted(owner, np.arange(width)) if ordered else None)
        return tuple(starts)

    @cached_property
    def _families(self) -> tuple[tuple[IntArray, ...], ...]:
        levels = []
        for k in range(self.depth):
            parents = self.above(k)
            counts = np.bincount(parents)
            order, starts = np.argsort(parents, kind="stable"), np.cumsum(counts) - counts
            numbers = np.flatnonzero(np.bincount(counts)).tolist()
            levels.append(tuple(order[starts[counts == n][:, None] + np.arange(n)] for n in numbers))
        return tuple(levels)

    @cached_property
    def _matrices(self) -> dict[int, csr_array]:
        """Memberships that were needed for sums; making one takes longer than using it."""
        return {}

    def level(self, level: int) -> int:
        """Turn a level that may be negative into its index, or say which levels there are."""
        if type(level) is not int and not is_whole(level):
            raise TypeError(f"level must be a whole number, 0 for the coarsest and -1 for the leaves; got {level!r}")
        depth = len(self.widths)
        if not -depth <= level < depth:
            raise IndexError(f"level {level} does not exist: the structure has levels 0..{depth - 1}")
        return level % depth

    def owners(self, level: int) -> IntArray:
        """For each leaf, the index of its ancestor at a level."""
        return self._owners[self.level(level)]

    def above(self, level: int) -> IntArray:
        """For each feature of a level, the index of its parent; those of the coarsest have one in common."""
        level = self.level(level)
        return self.parents[level - 1] if level else np.zeros(self.widths[0], dtype=np.intp)

    def families(self, level: int) -> tuple[IntArray, ...]:
        """The features of a level by their parents, an array (parents, children) for each number of children."""
        return self._families[self.level(level)]

    def sizes(self, level: int) -> IntArray:
        """How many leaves each feature of a level holds."""
        return np.bincount(self.owners(level), minlength=self.widths[self.level(level)])

    def first_leaves(self, level: int) -> IntArray:
        """The first leaf of each feature of a level."""
        first = np.empty(self.widths[level], dtype=np.intp)
        first[self.owners(level)[::-1]] = np.arange(self.leaves)[::-1]
        return first

    def starts(self, level: int) -> IntArray | None:
        """Where each feature's run of leaves begins, or None where its leaves are not neighbours."""
        return self._starts[self.level(level)]

    def membership(self, level: int) -> csr_array:
        """The sparse 0/1 matrix, (widths[level], leaves), that sums leaves into a level's features."""
        from scipy.sparse import csr_array

        level = self.level(level)
        ones = np.ones(self.leaves)
        return csr_array((ones, (self._owners[level], np.arange(self.leaves))), shape=(self.widths[level], self.leaves))

    def check_masks(self, masks: npt.ArrayLike, level: int) -> BoolArray:
        """Return masks as a boolean (n, widths[level]) array, or say what is wrong with them."""
        level = self.level(level)
        array = np.asarray(masks)
        if array.ndim != 2 or array.shape[1] != self.widths[level]:
            raise ValueError(
                f"masks of level {level} must have shape (n, {self.widths[level]}), "
                f"one column for each feature; got {array.shape}"
            )
        if array.dtype == np.bool_:
            return array
        if not np.isin(array, (0, 1)).all():
            raise ValueError(f"masks of level {level} must hold only 0 and 1 (or booleans)")
        return array.astype(np.bool_)

    def expand(self, masks: npt.ArrayLike, level: int) -> BoolArray:
        """Turn masks of a level, (n, widths[level]), into masks of the leaves, (n, leaves)."""
        array = self.check_masks(masks, level)
        return array if self.level(level) == self.depth - 1 else array[:, self.owners(level)]

    def sums(self, values: npt.ArrayLike, level: int) -> FloatArray:
        """Sum leaf values, (leaves,) or (leaves, outputs), into the values of a level."""
        try:
            array = np.asarray(values, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"values must be numbers, one for each leaf: {error}") from error
        if array.shape[:1] != (self.leaves,):
            raise ValueError(f"values must have one row for each of {self.leaves} leaves; got {array.shape}")
        level = self.level(level)
        if level == self.depth - 1:
            return array.copy()
        starts = self._starts[level]
        if starts is not None:
            total: FloatArray = np.add.reduceat(array, starts, axis=0)
            return total
        if level not in self._matrices:
            self._matrices[level] = self.membership(level)
        product: FloatArray = self._matrices[level] @ array
        return product

    def level_sums(self, values: npt.ArrayLike) -> tuple[FloatArray, ...]:
        """Sum leaf values into the values of every level, coarse to fine."""
        return tuple(self.sums(values, k) for k in range(self.depth))

    def __repr__(self) -> str:
        return f"Structure(widths={self.widths})"


_Node: TypeAlias = tuple[str, "list[_Node] | None"]


def _leaf_names(names: Sequence[str] | None, count: int, most: int = 100_000_000) -> tuple[str, ...]:
    """The names that were given, or numbers."""
    if names is None:
        if count > most:
            raise ValueError(f"{count} leaves are more than a structure can hold ({most:,}); give fewer")
        return tuple(map(str, range(count)))
    if not isinstance(names, Sized):
        raise TypeError(f"names must be a sequence with one name for each leaf; got {names!r}")
    if len(names) != count:
        raise ValueError(f"{len(names)} names for {count} leaves; give one name per leaf")
    return tuple(map(str, names))


def _children(tree: Any, path: str) -> list[Any]:
    """Read the children of one node as (name, children or None for a leaf) pairs."""
    if isinstance(tree, Mapping):
        return [(str(name), _part(child, str(name))) for name, child in tree.items()]
    if not isinstance(tree, Iterable) or isinstance(tree, str | bytes):
        raise TypeError(f"{path} must be a dict or a list, not {type(tree).__name__}")
    nodes: list[Any] = []
    for item in tree:
        if isinstance(item, Mapping):
            nodes += _children(item, path)
        elif isinstance(item, Iterable) and not isinstance(item, str | bytes):
            name = str(len(nodes))
            nodes.append((name, _part(item, name)))
        else:
            nodes.append((str(item), None))
    return nodes


def _part(child: Any, name: str) -> list[Any] | None:
    if child is None:
        return None
    if isinstance(child, str) or not isinstance(child, Iterable):
        return [(str(child), None)]
    nodes = _children(child, path=f"part {name!r}")
    if not nodes:
        raise ValueError(f"part {name!r} has no leaves: leave it out, or give it at least one leaf")
    return nodes


def _height(node: Any) -> int:
    _, children = node
    return 1 if children is None else 1 + max(_height(child) for child in children)

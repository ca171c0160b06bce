"""Graphs of neighbouring leaves, over which explanations are smooth."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from c2fa.structure import FloatArray, IntArray, Structure

# Up to so many leaves, in runs up to so long, a full matrix for each run is faster than a sparse factor of all.
_FEW, _SHORT = 512, 128


@dataclass(frozen=True, eq=False)
class Graph:
    """Pairs of leaves that are expected to matter about equally, each pair with a weight.

    Parameters
    ----------
    edges
        Indices of leaves, (m, 2); each pair once, in any order.
    weights
        The strength of each pair's tie, at least 0; None is 1 for every pair.

    Examples
    --------
    >>> Graph([[0, 1], [1, 2]]).laplacian(3).toarray()
    array([[ 1., -1.,  0.],
           [-1.,  2., -1.],
           [ 0., -1.,  1.]])
    """

    edges: IntArray
    weights: FloatArray = None  # type: ignore[assignment]  # None is turned into ones below

    def __post_init__(self) -> None:
        given = np.asarray(self.edges)
        if given.size and (given.ndim != 2 or given.shape[1] != 2 or given.dtype.kind not in "iu"):
            raise ValueError(
                f"edges must be pairs of leaves' indices, whole numbers of shape (m, 2); got {given.dtype} of shape "
                f"{given.shape}"
            )
        edges = given.astype(np.intp, copy=False).reshape(-1, 2)
        weights = np.ones(len(edges)) if self.weights is None else np.asarray(self.weights, dtype=np.float64)
        if weights.shape != (len(edges),) or not (np.isfinite(weights) & (weights >= 0)).all():
            raise ValueError(f"weights must be {len(edges)} finite numbers of at least 0, one for each edge")
        if len(edges) and (edges.min() < 0 or (edges[:, 0] == edges[:, 1]).any()):
            raise ValueError("an edge must join two different leaves, by their indices from 0")
        object.__setattr__(self, "edges", edges)
        object.__setattr__(self, "weights", weights)

    def check(self, structure: Structure) -> None:
        """Refuse edges between leaves that do not share a parent: smoothing would carry value from part to part."""
        if not len(self.edges):
            return
        if self.edges.max() >= structure.leaves:
            raise ValueError(f"an edge names leaf {self.edges.max()}, and the structure has {structure.leaves} leaves")
        if structure.depth > 1:
            a, b = structure.owners(structure.depth - 2)[self.edges.T]
            if (a != b).any():
                i, k = self.edges[int(np.argmax(a != b))]
                raise ValueError(f"leaves {i} and {k} are tied but belong to different parts; tie leaves of one part")

    @cached_property
    def runs(self) -> tuple[tuple[slice, FloatArray], ...]:
        """The runs of two leaves or more that no edge leaves, each with the ties in it, (size, size)."""
        i, k = self.edges.T
        reach = np.arange(self.edges.max(initial=-1) + 1)
        np.maximum.at(reach, np.minimum(i, k), np.maximum(i, k))
        ends = np.flatnonzero(np.maximum.accumulate(reach) == np.arange(len(reach))) + 1
        runs = []
        for start, end in itertools.pairwise([0, *ends.tolist()]):
            if end - start == 1:
                continue
            inside = (start <= i) & (i < end)
            ties = np.zeros((end - start, end - start))
            np.add.at(ties, (i[inside] - start, k[inside] - start), self.weights[inside])
            runs.append((slice(start, end), ties + ties.T))
        return tuple(runs)

    def laplacian(self, leaves: int) -> sp.csc_array:
        """``L`` with ``β'Lβ = Σ w (β_i − β_k)²`` over the edges."""
        i, k = self.edges.T
        ties = sp.coo_array((self.weights, (i, k)), shape=(leaves, leaves)).tocsc()
        ties = ties + ties.T
        return sp.csc_array(sp.diags_array(np.asarray(ties.sum(axis=0)).ravel()) - ties)


@dataclass(frozen=True, eq=False)
class Smoother:
    """``S = (I + τL)⁻¹``: each leaf becomes a weighted mean of itself and the leaves that edges lead to.

    Rows of S add up to 1, and S is symmetric, so smoothing does not change the sum over connected leaves: if edges stay
    within parts, a smoothed explanation has the same parts.

    >>> s = Smoother(Graph([[0, 1]]), 1.0, 3)
    >>> s(np.array([[3.0, 0.0, 5.0]])).round(3)
    array([[2., 1., 5.]])
    """

    graph: Graph
    strength: float
    leaves: int

    def __post_init__(self) -> None:
        if not (np.isfinite(self.strength) and self.strength >= 0):
            raise ValueError(f"the strength of smoothing must be a finite number of at least 0; got {self.strength!r}")

    @cached_property
    def _blocks(self) -> list[tuple[slice, FloatArray]]:
        """The blocks of S for the runs of the graph."""
        blocks = []
        for run, ties in self.graph.runs:
            inverse: FloatArray = np.diag(1.0 + self.strength * ties.sum(axis=0)) - self.strength * ties
            blocks.append((run, np.asarray(np.linalg.inv(inverse), dtype=np.float64)))
        return blocks

    @cached_property
    def _factor(self) -> object:
        from scipy.sparse.linalg import splu  # slow to import

        matrix = sp.eye_array(self.leaves, format="csc") + self.strength * self.graph.laplacian(self.leaves)
        return splu(sp.csc_matrix(matrix), permc_spec="MMD_AT_PLUS_A", options={"SymmetricMode": True})

    def __call__(self, rows: FloatArray) -> FloatArray:
        """``rows S`` for rows of shape (n, leaves)."""
        if not (self.strength and len(self.graph.edges)):
            return rows
        if self.leaves <= _FEW and all(len(ties) <= _SHORT for _, ties in self.graph.runs):
            smooth = rows.copy()
            for run, block in self._blocks:
                smooth[:, run] = rows[:, run] @ block
            return smooth
        solved: FloatArray = np.ascontiguousarray(self._factor.solve(np.ascontiguousarray(rows.T)).T)  # type: ignore[attr-defined]
        return solved


def chain(owner: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> Graph:
    """The graph that ties each leaf to the leaf before it, if both belong to one part.

    ``weights`` has one number for each leaf, for its tie to the leaf before.

    >>> chain([0, 0, 0, 1, 1]).edges.tolist()
    [[0, 1], [1, 2], [3, 4]]
    """
    owners = np.asarray(owner)
    second = np.flatnonzero(owners[1:] == owners[:-1]) + 1
    edges = np.stack([second - 1, second], axis=1)
    ties = np.ones(len(owners)) if weights is None else np.asarray(weights, dtype=np.float64)
    return Graph(edges, ties[second])


def disjoint_union(graphs: list[Graph], sizes: list[int]) -> Graph:
    """One graph of several, whose leaves follow one another."""
    starts = np.cumsum([0, *sizes[:-1]])
    return Graph(
        np.concatenate([g.edges + at for g, at in zip(graphs, starts, strict=True)]),
        np.concatenate([g.weights for g in graphs]),
    )

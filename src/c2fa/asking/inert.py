"""Leaves that masking does not change: nothing is asked about them, and they have exactly 0."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

import numpy as np

from c2fa.asking.masking import Masked
from c2fa.asking.querying import Conversation, step
from c2fa.graph import Graph
from c2fa.structure import IntArray, Structure

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Moving:
    """An input without its inert leaves: ``masked`` has the others, ``places`` are each level's places in the whole.

    In a game, leaving null players out changes no other player's value.

    >>> s = Structure.from_groups("aabbc")
    >>> moving = Moving.of(Masked(s, lambda masks, level: masks, inert=(False, True, False, False, True)))
    >>> moving.masked.structure.names, [places.tolist() for places in moving.places]
    ((('a', 'b'), ('0', '2', '3')), [[0, 1], [0, 2, 3]])
    """

    masked: Masked
    places: tuple[IntArray, ...]

    @classmethod
    def of(cls, masked: Masked) -> Moving | None:
        """None if no leaf is inert, all leaves are, or the input takes masks of each level."""
        changes = ~np.asarray(masked.inert, dtype=np.bool_)
        if changes.all() or not changes.any() or masked.by_level:
            return None
        s = masked.structure
        places = tuple(np.unique(s.owners(k)[changes]) for k in range(s.depth))
        parents = [np.searchsorted(places[k], owner[places[k + 1]]) for k, owner in enumerate(s.parents)]
        names = [tuple(s.names[k][i] for i in at) for k, at in enumerate(places)]
        leaves = places[-1]

        def neighbours() -> Graph:
            assert masked.neighbours is not None
            graph = masked.neighbours()
            both = np.isin(graph.edges, leaves).all(axis=1)
            return Graph(np.searchsorted(leaves, graph.edges[both]), graph.weights[both])

        def descriptors() -> dict[str, list[Any]]:
            assert masked.descriptors is not None
            return {name: [column[i] for i in leaves] for name, column in masked.descriptors().items()}

        others = replace(
            masked,
            structure=Structure(tuple(parents), tuple(names)),
            neighbours=None if masked.neighbours is None else neighbours,
            descriptors=None if masked.descriptors is None else descriptors,
            beside=np.asarray(masked.beside)[:, leaves] if len(masked.beside) else (),
            inert=(),
        )
        return cls(others, places)

    def asked(self, conversation: Conversation[T], structure: Structure) -> Conversation[T]:
        """A conversation about these leaves, asked about the whole input, whose inert leaves stay."""
        try:
            ask, result = step(conversation, None)
            while ask is not None:
                masks = np.ones((len(ask.masks), structure.leaves), dtype=np.bool_)
                masks[:, self.places[-1]] = self.masked.structure.expand(ask.masks, ask.level)
                answer = yield replace(ask, level=structure.depth - 1, masks=masks)
                ask, result = step(conversation, answer)
            return cast(T, result)
        finally:
            conversation.close()

"""Tabulated games: where they are read from, their parts, and a game as a model that can be explained."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from benchmarks.games.exact import Floats, winter_values

import c2fa

Parts = Sequence[Sequence[int]]

PARTS: Mapping[str, Parts] = {
    "text14": (range(5), range(5, 10), range(10, 14)),
    "resnet14": (range(5), range(5, 10), range(10, 14)),
    "vit16": ((0, 1, 4, 5), (2, 3, 6, 7), (8, 9, 12, 13), (10, 11, 14, 15)),
    "adult14": (range(4), range(4, 8), range(8, 11), range(11, 14)),
    "bike12": (range(4), range(4, 8), range(8, 12)),
}


@dataclass(frozen=True, eq=False)
class Game:
    """The outputs of a model for every mask, that of a mask at index ``Σ mask_i 2^i``, and the parts of its leaves."""

    name: str
    kind: str
    table: Floats
    parts: Parts

    @property
    def leaves(self) -> int:
        return len(self.table).bit_length() - 1

    @property
    def scale(self) -> float:
        """How far its outputs range, or 1 where they are all the same."""
        return float(np.ptp(self.table)) or 1.0

    @cached_property
    def tree(self) -> c2fa.Structure:
        """Parts and leaves."""
        owner = np.zeros(self.leaves, dtype=np.intp)
        for k, part in enumerate(self.parts):
            owner[list(part)] = k
        return c2fa.Structure((owner,), (tuple(map(str, range(len(self.parts)))), tuple(map(str, range(self.leaves)))))

    @cached_property
    def owen(self) -> tuple[Floats, Floats]:
        """The exact Owen values, parts before leaves as an explanation has them."""
        leaves = winter_values(self.table, self.tree)
        return self.tree.sums(leaves, 0), leaves

    @cached_property
    def shapley(self) -> tuple[Floats]:
        """The exact Shapley values of the leaves."""
        return (winter_values(self.table, c2fa.Structure.flat(self.leaves)),)

    def __call__(self, masks: Floats) -> Floats:
        """The model: masks, (n, leaves), in and outputs, (n,), out."""
        return self.table[(np.asarray(masks) > 0.5) @ 2 ** np.arange(self.leaves)]

    def explain(self, structure: c2fa.Structure, method: str, rows: int, seed: int) -> c2fa.Explanation:
        """Run one of c2fa's methods; another game has other masks."""
        masker = c2fa.maskers.Array(structure)
        explainer = c2fa.Explainer(
            self, masker, method=method, budget=rows, seed=self.seed(seed), progress=False, target=0
        )
        return explainer(np.ones(self.leaves))

    def seed(self, seed: int) -> int:
        """A seed of the game's own, the same in every process."""
        return zlib.crc32(f"{self.name} {seed}".encode())


def load(path: Path, kinds: Sequence[str] | None = None, most: int | None = None) -> list[Game]:
    """Read a file of tables or all of a folder, kind by kind; of each kind the first few where ``most`` is given.

    A table's name is its kind, then a number. The parts of a kind are those in the folder's ``parts.json``,
    ``{kind: [[leaf, …], …]}``, else those in ``PARTS``, else neighbours, about four a part.
    """
    files = sorted(path.glob("*.npz")) if path.is_dir() else [path]
    if not files or not path.exists():
        raise SystemExit(f"{path} has no tables; give a folder with .npz files, or one such file")
    listed = (path if path.is_dir() else path.parent) / "parts.json"
    known = {**PARTS, **(json.loads(listed.read_text(encoding="utf-8")) if listed.exists() else {})}
    found: dict[str, list[Game]] = {}
    for file in files:
        with np.load(file) as tables:
            for name in tables.files:
                table = tables[name]
                leaves = table.size.bit_length() - 1
                if leaves < 1 or table.shape != (2**leaves,):
                    raise SystemExit(
                        f"{name} of {file} has shape {table.shape}; a game has 2^d outputs, one for each mask"
                    )
                named = re.fullmatch(r"(.+?)[-_. ]*\d+", name)
                kind = named[1] if named else name
                count = max(1, round(leaves / 4))
                parts = known.get(kind) or [part.tolist() for part in np.array_split(np.arange(leaves), count)]
                if sorted(leaf for part in parts for leaf in part) != list(range(leaves)):
                    raise SystemExit(
                        f"the parts of {kind}, {parts}, must hold each leaf of {name}, 0 to {leaves - 1}, just once"
                    )
                found.setdefault(kind, []).append(Game(name, kind, table.astype(np.float64), parts))
    for kind in kinds or ():
        if kind not in found:
            raise SystemExit(f"{path} has no games of kind {kind!r}; it has {', '.join(found)}")
    return [game for kind in kinds or found for game in found[kind][:most]]

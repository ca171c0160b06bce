"""The network as a model of bags with super-pixels masked.

The network adds up a vector for each image (DeepSets), so what a bag under a mask needs is the vector of each of its
images under its part of the mask. Most of these occur many times: an image with nothing masked, one wholly masked, an
image that a step of a curve left alone. So the vectors of the bags that are asked about are kept on the device.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from c2fa._system import on_device
from c2fa.asking.masking import MaskedBatch, MaskedRows
from experiments.harness.items import item_of, leaves_of
from experiments.harness.network import Network, Outputs


@dataclass(eq=False)
class _Table:
    """The vectors of one bag's masked images.

    ``known`` tells the slot of each (image of the bag, its mask as bits), in the order of the slots; the first
    ``filled`` have their vectors.
    """

    known: dict[bytes, int] = field(default_factory=dict)
    vectors: Any = None
    filled: int = 0

    def slots(self, keys: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
        """The slots of keys, (n, images, bytes); new ones get the next."""
        known = self.known
        flat = keys.reshape(-1, keys.shape[-1]).view(f"V{keys.shape[-1]}").ravel().tolist()
        return np.array([known.setdefault(key, len(known)) for key in flat]).reshape(keys.shape[:-1])

    def new(self) -> list[bytes]:
        """The keys that have no vector yet."""
        return list(itertools.islice(self.known, self.filled, None))

    def add(self, vectors: Any) -> None:
        """Keep the vectors of the new keys; the table grows as it must."""
        stop = self.filled + len(vectors)
        if self.vectors is None or stop > len(self.vectors):
            larger = vectors.new_empty((max(4096, 2 * stop), vectors.shape[1]))
            if self.filled:
                larger[: self.filled] = self.vectors[: self.filled]
            self.vectors = larger
        self.vectors[self.filled : stop] = vectors
        self.filled = stop


class BagNetwork(Network):
    """The network with all images and their super-pixels on its device, where masked images are painted.

    Parameters
    ----------
    images
        (N, height, width, 3) uint8.
    labels
        Super-pixels of each image, (N, height, width), from 0.
    members
        The images of every bag.
    phi
        Embeds (n, 3, height, width) normalised images, n up to ``batch``, as (n, features).
    rho
        From sums of embeddings to probabilities.
    bags
        The most bags whose vectors are kept from one batch to the next; those that were not asked about for the
        longest time are dropped.
    """

    def __init__(
        self,
        images: npt.NDArray[np.uint8],
        labels: npt.NDArray[Any],
        members: Sequence[npt.NDArray[Any]],
        phi: Callable[[Any], Any],
        rho: Callable[[Any], Any],
        *,
        mean: Sequence[float],
        std: Sequence[float],
        device: str = "cuda",
        batch: int = 512,
        bags: int = 64,
    ) -> None:
        import torch

        self.torch, self.device, self.batch, self.phi, self.rho = torch, device, batch, phi, rho
        self.members, self.bags = members, bags
        kind = torch.half if device.startswith("cuda") else torch.float
        centre, scale = (torch.tensor(v, device=device) for v in (mean, std))
        pixels = torch.empty(images.shape, dtype=kind, device=device)
        for k in range(0, len(images), 64):
            block = torch.as_tensor(images[k : k + 64], device=device).float() / 255
            pixels[k : k + 64] = ((block - centre) / scale).to(kind)
        self.pixels = pixels  # channels last; a masked pixel is 0, the mean colour of the network's training images
        self.labels = torch.as_tensor(labels.reshape(len(labels), -1), device=device).long()
        self.segments = int(labels.max()) + 1
        self.bytes = 1 + -(-self.segments // 8)  # of a key: which image of its bag, and which super-pixels are shown
        self.tables: dict[int, _Table] = {}  # the one that was asked about last is the last

    def launch(self, batch: MaskedBatch) -> Callable[[], Outputs]:
        """Begin to answer; the new images of all bags are embedded in shared batches."""
        from c2fa.models.local.torch import to_host  # workers know this class and do without torch

        torch = self.torch
        tables = [self._table(rows) for rows in batch.pieces]
        slots = [table.slots(self._keys(rows)) for table, rows in zip(tables, batch.pieces, strict=True)]
        with torch.inference_mode():
            self._fill(dict.fromkeys(item_of(rows).number for rows in batch.pieces))
            answers = [self._sums(t.vectors, on_device(s, self.device)) for t, s in zip(tables, slots, strict=True)]
            for number in list(self.tables)[: -self.bags]:
                del self.tables[number]
            return to_host(torch.cat(answers))

    def forget(self) -> None:
        """Drop all vectors."""
        self.tables.clear()

    def _table(self, rows: MaskedRows) -> _Table:
        """The table of the bag that rows are of, which becomes the last to be dropped."""
        number = item_of(rows).number
        self.tables[number] = self.tables.pop(number) if number in self.tables else _Table()
        return self.tables[number]

    def _keys(self, rows: MaskedRows) -> npt.NDArray[np.uint8]:
        """For every row and image of the bag: which image it is, and its super-pixels as bits; (n, images, bytes)."""
        item, leaves = item_of(rows), leaves_of(rows)
        bag = self.members[item.number]
        keys = np.zeros((len(leaves), len(bag), self.bytes), dtype=np.uint8)
        for j in range(len(bag)):
            bits = np.packbits(leaves[:, item.owner == j], axis=1)
            keys[:, j, 0] = j
            keys[:, j, 1 : 1 + bits.shape[1]] = bits
        return keys

    def _fill(self, numbers: Iterable[int]) -> None:
        """Embed what the tables of some bags lack."""
        new = {number: np.frombuffer(b"".join(self.tables[number].new()), np.uint8) for number in numbers}
        new = {number: keys.reshape(-1, self.bytes) for number, keys in new.items() if len(keys)}
        if not new:
            return
        images = [self.members[number][keys[:, 0]] for number, keys in new.items()]
        bits = np.concatenate([keys[:, 1:] for keys in new.values()])
        vectors = self.embed(np.concatenate(images), np.unpackbits(bits, axis=1, count=self.segments))
        for number, own in zip(new, vectors.split(list(map(len, images))), strict=True):
            self.tables[number].add(own)

    def embed(self, images: npt.NDArray[np.int64], shown: npt.NDArray[np.uint8]) -> Any:
        """Vectors of masked images, (n, features), in batches."""
        where, keep = on_device(images, self.device), on_device(shown, self.device)
        found = []
        for start in range(0, len(where), self.batch):  # phi may cut what is left over smaller still
            stop = start + self.batch
            found.append(self.phi(self.paint(where[start:stop], keep[start:stop])).float())
        self.work += len(where)
        return self.torch.cat(found)

    def paint(self, images: Any, shown: Any) -> Any:
        """Masked images, (n, 3, height, width), of images and which of their super-pixels are shown."""
        keep = shown.to(self.pixels.dtype).gather(1, self.labels[images])
        keep = keep.view(len(images), *self.pixels.shape[1:3], 1)
        return self.torch.mul(self.pixels[images], keep).permute(0, 3, 1, 2)

    def _sums(self, vectors: Any, slots: Any) -> Any:
        return self.torch.cat([self.rho(vectors[block].sum(dim=1)) for block in slots.split(8192)])

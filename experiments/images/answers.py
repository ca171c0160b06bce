"""What a network says of bags with super-pixels masked: both ends of the line, in the worker and at the device.

The network adds up a vector for each image (DeepSets), so what a bag under a mask needs is the vector of each of its
images under its part of the mask. Most of these occur many times: an image with nothing masked, one wholly masked, an
image that a step of a curve left alone. The worker remembers which it has asked for, and asks for the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from experiments.harness.service import Outputs, Question, down, pack, unpack, up


@dataclass(frozen=True, eq=False)
class BagRequest:
    """Images to be embedded, and the sums of embeddings that are wanted.

    Attributes
    ----------
    first
        The slot of the first new embedding in the sender's table; 0 begins a new table.
    images
        Which image each new embedding is of, (new,).
    masks
        Its super-pixels, as bits, (new, bytes); True shows one.
    slots
        For every bag that is asked about, the slots of its images' embeddings, (n, images).
    """

    first: int
    images: npt.NDArray[np.int32]
    masks: npt.NDArray[np.uint8]
    slots: npt.NDArray[np.int32]


@dataclass(eq=False)
class BagClient:
    """A worker's memory of the bag at hand.

    Parameters
    ----------
    members
        The images of every bag.
    width
        The largest number of super-pixels of an image.
    """

    members: Sequence[npt.NDArray[np.intp]]
    width: int
    _bag: int = -1
    _known: dict[tuple[int, bytes], int] = field(default_factory=dict)

    def request(self, question: Question) -> BagRequest:
        """Say what must be embedded to answer a question, and which sums are wanted."""
        if question.item.number != self._bag:
            self._bag, self._known = question.item.number, {}
        first = len(self._known)
        images: list[int] = []
        masks: list[npt.NDArray[np.uint8]] = []
        members = self.members[question.item.number]
        slots = np.empty((len(question), len(members)), dtype=np.int32)
        for j, image in enumerate(members):
            own = question.leaves[:, question.item.owner == j]
            padded = np.zeros((len(own), -(-self.width // 8)), dtype=np.uint8)
            packed = pack(own)
            padded[:, : packed.shape[1]] = packed
            kinds, where = np.unique(padded.view(f"V{padded.shape[1]}").ravel(), return_inverse=True)
            at = np.empty(len(kinds), dtype=np.int32)
            for k, kind in enumerate(kinds):
                key = (j, kind.tobytes())
                slot = self._known.get(key)
                if slot is None:
                    slot = self._known[key] = len(self._known)
                    images.append(int(image))
                    masks.append(np.frombuffer(key[1], dtype=np.uint8))
                at[k] = slot
            slots[:, j] = at[where]
        block = np.stack(masks) if masks else np.empty((0, -(-self.width // 8)), dtype=np.uint8)
        return BagRequest(first, np.array(images, dtype=np.int32), block, slots)


class BagNetwork:
    """The network with all images and their super-pixels on its device, where masked images are painted.

    Parameters
    ----------
    images
        (N, height, width, 3) uint8.
    labels
        Super-pixels of each image, (N, height, width), from 0.
    phi
        Embeds (n, 3, height, width) normalised images, n up to ``batch``, as (n, features).
    rho
        From sums of embeddings to probabilities.
    """

    def __init__(
        self,
        images: npt.NDArray[np.uint8],
        labels: npt.NDArray[Any],
        phi: Callable[[Any], Any],
        rho: Callable[[Any], Any],
        *,
        mean: Sequence[float],
        std: Sequence[float],
        device: str = "cuda",
        batch: int = 512,
    ) -> None:
        import torch

        self.torch, self.device, self.batch, self.phi, self.rho = torch, device, batch, phi, rho
        kind = torch.half if device.startswith("cuda") else torch.float
        centre, scale = (torch.tensor(v, device=device) for v in (mean, std))
        pixels = torch.empty(images.shape, dtype=kind, device=device)
        for k in range(0, len(images), 64):
            block = torch.as_tensor(images[k : k + 64], device=device).float() / 255
            pixels[k : k + 64] = ((block - centre) / scale).to(kind)
        self.pixels = pixels  # channels last; a masked pixel is 0, the mean colour of the network's training images
        self.labels = torch.as_tensor(labels.reshape(len(labels), -1), device=device).long()
        self.segments = int(labels.max()) + 1
        self.tables: dict[int, Any] = {}
        self.rows = self.work = 0  # the time goes into images

    def paint(self, images: Any, masks: Any) -> Any:
        """Masked images, (n, 3, height, width), of a batch of (image, packed mask)."""
        torch = self.torch
        keep = unpack(masks, self.segments).to(self.pixels.dtype)
        shown = keep.gather(1, self.labels[images]).view(len(images), *self.pixels.shape[1:3], 1)
        return torch.mul(self.pixels[images], shown).permute(0, 3, 1, 2)

    def embed(self, images: npt.NDArray[np.int32], masks: npt.NDArray[np.uint8]) -> Any:
        """Vectors of masked images, (n, features), in batches."""
        torch = self.torch
        where, packed = up(images, self.device).long(), up(masks, self.device)
        found = []
        for start in range(0, len(where), self.batch):  # phi may cut what is left over smaller still
            stop = start + self.batch
            found.append(self.phi(self.paint(where[start:stop], packed[start:stop])).float())
        self.rows += len(where)
        self.work = self.rows
        return torch.cat(found) if found else None

    def launch(self, requests: Sequence[tuple[int, BagRequest]]) -> Callable[[], list[Outputs]]:
        """Begin to answer; all requests' new images are embedded in shared batches."""
        torch = self.torch
        with torch.inference_mode():
            new = self.embed(
                np.concatenate([request.images for _, request in requests]),
                np.concatenate([request.masks for _, request in requests]),
            )
            answers, start = [], 0
            for sender, request in requests:
                count = len(request.images)
                if count:
                    self._keep(sender, request.first, new[start : start + count])
                start += count
                answers.append(self._sums(self.tables[sender], up(request.slots, self.device).long()))
            return down(answers)

    def _sums(self, table: Any, slots: Any) -> Any:
        parts = [self.rho(table[block].sum(dim=1)) for block in slots.split(8192)]
        return self.torch.cat(parts)

    def _keep(self, sender: int, first: int, new: Any) -> None:
        """Write new vectors into a sender's table, which grows as it must."""
        table = self.tables.get(sender)
        if table is None or first + len(new) > len(table):
            size = max(4096, 2 * (first + len(new)))
            larger = self.torch.empty((size, new.shape[1]), device=new.device)
            if table is not None and first:
                larger[:first] = table[:first]
            table = self.tables[sender] = larger
        table[first : first + len(new)] = new

"""The encoder as a model of reviews with pieces masked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from c2fa._system import on_device
from c2fa.asking.masking import MaskedBatch, MaskedRows
from experiments.harness.items import item_of, leaves_of
from experiments.harness.network import Network, Outputs


class ReviewNetwork(Network):
    """The encoder with all reviews on its device, where masked pieces become ``[MASK]``.

    Rows of one length go through together, so that a batch needs no padding. Short reviews are many to a batch, long
    ones few: a batch has about ``tokens`` pieces.

    Parameters
    ----------
    reviews
        The pieces of each review, without ``[CLS]`` and ``[SEP]``.
    classify
        From pieces, (n, length), to probabilities.
    special
        The ids of ``[CLS]``, ``[SEP]`` and ``[MASK]``.
    """

    def __init__(
        self,
        reviews: Sequence[npt.NDArray[Any]],
        classify: Callable[[Any], Any],
        special: tuple[int, int, int],
        *,
        device: str = "cuda",
        tokens: int = 1 << 17,
    ) -> None:
        import torch

        self.torch, self.device, self.classify, self.tokens = torch, device, classify, tokens
        self.cls, self.sep, self.mask = special
        self.reviews = [torch.as_tensor(np.asarray(ids, dtype=np.int64), device=device) for ids in reviews]

    def launch(self, batch: MaskedBatch) -> Callable[[], Outputs]:
        """Begin to answer."""
        from c2fa.models.local.torch import to_host  # workers know this class and do without torch

        torch = self.torch
        alike: dict[int, list[int]] = {}
        for k, rows in enumerate(batch.pieces):
            alike.setdefault(len(self.reviews[item_of(rows).number]), []).append(k)
        answers: list[Any] = [None] * len(batch.pieces)
        with torch.inference_mode():
            for length, places in alike.items():
                together = [batch.pieces[k] for k in places]
                blocks = self.masked(together).split(max(self.tokens // (length + 2), 1))
                outputs = torch.cat([self.classify(block) for block in blocks])
                for k, part in zip(places, outputs.split([len(rows) for rows in together]), strict=True):
                    answers[k] = part
                self.work += len(outputs) * (length + 2)
            return to_host(torch.cat(answers))

    def masked(self, together: Sequence[MaskedRows]) -> Any:
        """The pieces that the network reads, (n, length + 2), for rows of reviews of one length."""
        torch = self.torch
        shown = np.concatenate([leaves_of(rows) for rows in together])
        review = np.repeat(np.arange(len(together)), [len(rows) for rows in together])
        pieces = torch.stack([self.reviews[item_of(rows).number] for rows in together])[on_device(review, self.device)]
        ids = torch.full((len(shown), pieces.shape[1] + 2), self.mask, dtype=pieces.dtype, device=self.device)
        ids[:, 0], ids[:, -1] = self.cls, self.sep
        ids[:, 1:-1] = torch.where(on_device(shown, self.device), pieces, self.mask)
        return ids

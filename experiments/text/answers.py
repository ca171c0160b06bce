"""What a network says of reviews with pieces masked: both ends of the line, in the worker and at the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from experiments.harness.service import Outputs, Question, down, pack, unpack, up


@dataclass(frozen=True, eq=False)
class ReviewRequest:
    """Masked versions of one review: its number, and its pieces as bits, (n, bytes); True shows one."""

    review: int
    masks: npt.NDArray[np.uint8]


@dataclass(frozen=True)
class ReviewClient:
    """A worker's side: it has nothing to remember."""

    def request(self, question: Question) -> ReviewRequest:
        """Pack a question's masks."""
        return ReviewRequest(question.item.number, pack(question.leaves))


class ReviewNetwork:
    """The encoder with all reviews on its device, where masked pieces become ``[MASK]``.

    All versions of a review have one length, so that a batch needs no padding. Short reviews are many to a batch,
    long ones few: a batch has about ``tokens`` pieces.

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
        self.rows = 0
        self.work = 0  # word pieces

    def masked(self, review: Any, masks: Any) -> Any:
        """Pieces under masks, (n, length + 2)."""
        torch = self.torch
        shown = unpack(masks, len(review))
        ids = torch.full((len(masks), len(review) + 2), self.mask, dtype=review.dtype, device=review.device)
        ids[:, 0], ids[:, -1] = self.cls, self.sep
        ids[:, 1:-1] = torch.where(shown, review, ids[:, 1:-1])
        return ids

    def launch(self, requests: Sequence[tuple[int, ReviewRequest]]) -> Callable[[], list[Outputs]]:
        """Begin to answer."""
        torch = self.torch
        answers = []
        with torch.inference_mode():
            for _, request in requests:
                packed = up(request.masks, self.device)
                review = self.reviews[request.review]
                rows = max(self.tokens // (len(review) + 2), 1)
                parts = [self.classify(self.masked(review, block)) for block in packed.split(rows)]
                answers.append(torch.cat(parts))
                self.rows += len(packed)
                self.work += len(packed) * (len(review) + 2)
            return down(answers)

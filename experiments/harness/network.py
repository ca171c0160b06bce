"""A network as a model of c2fa: items reach it as masks, and it masks them on its device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from c2fa.asking.masking import MaskedBatch
from experiments.harness.items import ItemInputs

Outputs = npt.NDArray[np.float64]


class Network(ABC):
    """Where the forward passes happen.

    Attributes
    ----------
    work
        What went through the network so far, in what its time is proportional to: images, or word pieces.
    """

    work: int = 0

    @property
    def cost(self) -> float:
        """The same as a cost, which whoever asks is told: of a network in another process nothing else is seen."""
        return float(self.work)

    @staticmethod
    def encode_inputs(inputs: Any) -> ItemInputs | None:
        """Items are masked by the network itself."""
        return inputs if isinstance(inputs, ItemInputs) else None

    @abstractmethod
    def launch(self, batch: MaskedBatch) -> Callable[[], Outputs]:
        """Begin to answer a batch; the function returned waits for the outputs."""

    def __call__(self, batch: MaskedBatch) -> Outputs:
        return self.launch(batch)()

    def forget(self) -> None:
        """Forget what was computed for items before, so that the next is answered as if it were the first."""
        return None

"""CUDA graphs: what a network does on a GPU is recorded once for each shape of its inputs, and replayed."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

import torch

Inputs: TypeAlias = Mapping[str, torch.Tensor]
Network: TypeAlias = Callable[[Inputs], torch.Tensor]

MOST = 512  # recordings; other shapes are computed as they come


class Graphs:
    """A network, step by step until ``steady`` is entered, and by recordings inside.

    Python begins the hundreds of steps of a network one by one, which on a fast GPU takes as long as the steps, and
    longer beside other threads. A recording is begun at once. It repeats what the network did when it was recorded,
    so it is dropped as soon as somebody may have changed the network.

    A network that cannot be recorded, because it looks at its numbers on the way, or because memory does not suffice,
    goes on step by step. So does one whose recording does not answer as it does itself.
    """

    def __init__(self, network: Network) -> None:
        self.network = network
        self._lock = threading.Lock()
        self._steady, self._works = 0, True
        self._stream: torch.cuda.Stream | None = None
        self._recorded: dict[tuple[tuple[str, torch.Size], ...], tuple[torch.cuda.CUDAGraph, Inputs, torch.Tensor]] = {}

    @contextlib.contextmanager
    def steady(self) -> Iterator[None]:
        """While the network does not change."""
        with self._lock:
            self._steady += 1
        try:
            yield
        finally:
            with self._lock:
                self._steady -= 1
                if not self._steady:
                    self._forget()
                    self._works = True

    @property
    def records(self) -> bool:
        """Whether recordings are made, so that inputs of few shapes pay."""
        return self._steady > 0 and self._works

    def __call__(self, inputs: Inputs) -> torch.Tensor:
        """The network's outputs."""
        shape = tuple((name, tensor.shape) for name, tensor in inputs.items())
        with self._lock:
            if not self.records or (shape not in self._recorded and len(self._recorded) == MOST):
                return self.network(inputs)
            if shape in self._recorded:
                return self._replayed(shape, inputs)
            expected = None if self._recorded else self.network(inputs)  # which also loads what a graph cannot load
            try:
                self._recorded[shape] = self._record(inputs)
                outputs = self._replayed(shape, inputs)
            except Exception as error:  # if it is not about recording, the network raises it again
                reason = f"{type(error).__name__}: {error}".partition("\n")[0]
            else:
                if expected is None or torch.allclose(outputs, expected, rtol=0.01, atol=0.01, equal_nan=True):
                    return outputs
                reason = "its recording gives other outputs"
            self._works = False
            self._forget()
            warnings.warn(f"the network goes on without CUDA graphs, which is slower ({reason})", stacklevel=2)
            return self.network(inputs)

    def _record(self, inputs: Inputs) -> tuple[torch.cuda.CUDAGraph, Inputs, torch.Tensor]:
        """Record the network for inputs of this shape; nothing is computed yet."""
        device = next(iter(inputs.values())).device
        own = {name: torch.zeros_like(tensor) for name, tensor in inputs.items()}
        # They take turns, so that one pool has the memory of all, which is that of the largest if they share a stream.
        pool = next((graph.pool() for graph, _, _ in self._recorded.values()), None)
        self._stream = self._stream or torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        # Weights that autocast has cast and keeps are gone when its context is left.
        kind = device.type
        on, dtype = torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)
        cast = torch.autocast(kind, dtype, on, cache_enabled=False)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(self._stream), cast:
            graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            try:
                outputs = self.network(own)
            finally:
                graph.capture_end()
        return graph, own, outputs

    def _replayed(self, shape: tuple[tuple[str, torch.Size], ...], inputs: Inputs) -> torch.Tensor:
        graph, own, outputs = self._recorded[shape]
        for name, tensor in inputs.items():
            own[name].copy_(tensor)
        graph.replay()
        return outputs.clone()

    def _forget(self) -> None:
        if self._recorded and self._stream is not None:
            torch.cuda.synchronize(self._stream.device)  # they may be under way
            self._recorded.clear()
            torch.cuda.empty_cache()

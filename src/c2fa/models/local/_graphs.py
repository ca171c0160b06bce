"""CUDA graphs: a network's work on a GPU is recorded once for each shape of its inputs, and replayed."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

import torch

Inputs: TypeAlias = Mapping[str, torch.Tensor]
Network: TypeAlias = Callable[[Inputs], torch.Tensor]
Shape: TypeAlias = tuple[tuple[str, torch.Size], ...]

MOST = 512  # recordings; inputs of further shapes are computed step by step
TRIES = 3  # recordings that may fail: what a first one lacked, such as a kernel, may be there for the next


class Graphs:
    """A network that is replayed from recordings inside ``steady``, and computed step by step outside.

    Python launches the hundreds of steps of a network one by one, which on a fast GPU takes as long as the steps
    themselves, and longer beside other threads. A recording is launched at once. It repeats the network as it was, so
    it is dropped as soon as somebody may have changed the network.

    A network is computed step by step if it cannot be recorded in a few tries, because it looks at its numbers on the
    way or memory does not suffice, or if its recording gives other outputs.
    """

    def __init__(self, network: Network) -> None:
        self.network = network
        self._lock = threading.Lock()
        self._steady, self._tries = 0, TRIES
        self._stream: torch.cuda.Stream | None = None
        self._compared: set[bool] = set()
        self._recorded: dict[Shape, tuple[torch.cuda.CUDAGraph, Inputs, torch.Tensor]] = {}

    @contextlib.contextmanager
    def steady(self) -> Iterator[None]:
        """The context in which the network does not change."""
        with self._lock:
            self._steady += 1
        try:
            yield
        finally:
            with self._lock:
                self._steady -= 1
                if not self._steady:
                    self._forget()
                    self._tries = TRIES

    @property
    def records(self) -> bool:
        """Whether recordings are made, so that few shapes of inputs are faster than many."""
        return self._steady > 0 and self._tries > 0

    def __call__(self, inputs: Inputs) -> torch.Tensor:
        shape = tuple((name, tensor.shape) for name, tensor in inputs.items())
        with self._lock:
            if not self.records:
                return self.network(inputs)
            if shape in self._recorded:
                return self._replayed(shape, inputs)
            if len(self._recorded) == MOST:
                return self.network(inputs)
            # The first of each way to attend is compared; to compute it also loads kernels, as recordings cannot.
            way = torch.backends.cuda.cudnn_sdp_enabled()  # type: ignore[no-untyped-call]
            expected = None if way in self._compared else self.network(inputs)
            try:
                self._recorded[shape] = self._record(inputs)
                outputs = self._replayed(shape, inputs)
            except Exception as error:  # if recording is not the cause, the network raises it again below
                reason = f"{type(error).__name__}: {error}".partition("\n")[0]
                self._tries -= 1
            else:
                if expected is None or torch.allclose(outputs, expected, rtol=0.01, atol=0.01, equal_nan=True):
                    self._compared.add(way)
                    return outputs
                reason = "its recording gives other outputs"
                self._tries = 0
            self._forget()  # also the pool of memory, into which a recording that failed may be stuck
            if not self._tries:
                warnings.warn(f"the network goes on without CUDA graphs, which is slower ({reason})", stacklevel=2)
            return self.network(inputs) if expected is None else expected

    def _record(self, inputs: Inputs) -> tuple[torch.cuda.CUDAGraph, Inputs, torch.Tensor]:
        """Record the network for inputs of this shape; nothing is computed yet."""
        device = next(iter(inputs.values())).device
        buffers = {name: torch.zeros_like(tensor) for name, tensor in inputs.items()}
        # Recordings take turns on one stream, so they can share a pool of memory as large as the largest needs.
        pool = next((graph.pool() for graph, _, _ in self._recorded.values()), None)
        self._stream = self._stream or torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        # Without a cache: weights that autocast casts and caches are gone when its context is left.
        kind = device.type
        on, dtype = torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)
        cast = torch.autocast(kind, dtype, on, cache_enabled=False)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(self._stream), cast:
            graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            try:
                outputs = self.network(buffers)
            except BaseException:
                with contextlib.suppress(Exception):  # its error would only say that there was another
                    graph.capture_end()
                self._mend(device)
                raise
            graph.capture_end()
        return graph, buffers, outputs

    def _mend(self, device: torch.device) -> None:
        """Record something small: after a recording that failed, nobody gets random numbers until one ends well."""
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin(capture_error_mode="thread_local")
        torch.zeros(1, device=device)
        graph.capture_end()

    def _replayed(self, shape: Shape, inputs: Inputs) -> torch.Tensor:
        graph, buffers, outputs = self._recorded[shape]
        for name, tensor in inputs.items():
            buffers[name].copy_(tensor)
        graph.replay()
        return outputs.clone()

    def _forget(self) -> None:
        self._compared.clear()
        if self._recorded and self._stream is not None:
            torch.cuda.synchronize(self._stream.device)  # a replay may be under way
            self._recorded.clear()
            torch.cuda.empty_cache()

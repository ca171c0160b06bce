"""One network, many workers: they send masks, it makes the masked inputs where it is and answers in large batches.

Explaining costs two things, forward passes on a device and fits on CPUs, and one process can do only one at a time. So
the network sits in the main process and never waits: while the device works on one set of questions the next is
launched. Workers draw masks, fit and score. What travels between them is packed masks and outputs, never an image or
a text.
"""

from __future__ import annotations

import collections
import multiprocessing
import multiprocessing.connection
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from c2fa import Structure
from c2fa.graph import Graph
from c2fa.masking import Masked

Outputs = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]

_IN_FLIGHT = 2  # sets of questions on the device: one at work, one that waits for it


@dataclass(frozen=True, eq=False)
class Item:
    """An input as a worker knows it: its number among the network's inputs, its tree, its truth, who is neighbours.

    The number and the tree alone, what is shown of it, decide on its masks: weights of neighbours differ from machine
    to machine in the last bit.
    """

    number: int
    owner: npt.NDArray[np.intp]
    truth: Any = field(default=None, repr=False)
    graph: Graph | None = field(default=None, repr=False)
    smooth_by_default: bool = field(default=False, repr=False)


@dataclass(frozen=True, eq=False)
class Question:
    """Masked versions of one input: (n, leaves), True where a leaf is shown."""

    item: Item
    leaves: Bools

    def __len__(self) -> int:
        return len(self.leaves)


def masker(x: Item) -> Masked:
    """Mask an item: its masked inputs are questions to the network, which alone knows what it looks like.

    A masked part is the part with all of its leaves masked, at every level.
    """
    structure, graph = Structure.from_groups(x.owner.tolist()), x.graph
    return Masked(
        structure,
        lambda masks, level: Question(x, structure.expand(masks, level)),
        nested=True,
        allows_empty=True,
        neighbours=None if graph is None else lambda: graph,
        smooth_by_default=x.smooth_by_default,
    )


class Network(Protocol):
    """Where the forward passes happen."""

    rows: int
    """Inputs that went through the network so far."""

    work: int
    """The same in what its time is proportional to: images, or word pieces."""

    def launch(self, requests: Sequence[tuple[int, Any]]) -> Callable[[], list[Outputs]]:
        """Begin to answer requests, each with the number of its sender; the function returned waits for the answers."""
        ...


class Client(Protocol):
    """A worker's side of a network: turns questions into requests."""

    def request(self, question: Question) -> Any: ...


@dataclass(eq=False)
class Remote:
    """A model for ``evaluate`` and ``Explainer`` whose answers come from a network in another process, or in this."""

    client: Client
    ask: Callable[[Any], Outputs]
    output_names: tuple[str, ...] | None = None

    def __call__(self, question: Question) -> Outputs:
        return self.ask(self.client.request(question))


def here(network: Network) -> Callable[[Any], Outputs]:
    """Ask a network of this process, as the only one who asks."""
    return lambda request: network.launch([(0, request)])()[0]


@dataclass(eq=False)
class Load:
    """How much was asked, and in which time between the first question and the last answer."""

    rows: int = 0
    work: int = 0
    seconds: float = 0.0
    waiting: float = 0.0
    sets: int = 0

    @property
    def rate(self) -> float:
        """Work a second."""
        return self.work / self.seconds if self.seconds else 0.0


@dataclass(eq=False)
class _Set:
    """Questions that are on the device."""

    senders: list[multiprocessing.connection.Connection]
    wait: Callable[[], list[Outputs]]


def serve(network: Network, connections: Sequence[multiprocessing.connection.Connection]) -> Load:
    """Answer until every worker has hung up. ``waiting`` is the time in which nobody had a question."""
    number = {id(c): k for k, c in enumerate(connections)}
    open_: list[multiprocessing.connection.Connection] = list(connections)
    flying: collections.deque[_Set] = collections.deque()
    load, rows, work, begin, end = Load(), network.rows, network.work, 0.0, 0.0
    while open_ or flying:
        idle = time.perf_counter()
        ready = multiprocessing.connection.wait(open_, timeout=0 if flying else None) if open_ else []
        if begin and not flying:
            load.waiting += time.perf_counter() - idle
        senders, requests = [], []
        for connection in ready:
            assert isinstance(connection, multiprocessing.connection.Connection)
            try:
                requests.append((number[id(connection)], connection.recv()))
                senders.append(connection)
            except (EOFError, ConnectionResetError):  # done, or dead: its shard is not written and is done again
                open_.remove(connection)
        if requests:
            begin = begin or time.perf_counter()
            flying.append(_Set(senders, network.launch(requests)))
            load.sets += 1
        if flying and (len(flying) >= _IN_FLIGHT or not requests):
            first = flying.popleft()
            for connection, outputs in zip(first.senders, first.wait(), strict=True):
                try:
                    connection.send(outputs)
                except (BrokenPipeError, ConnectionResetError):
                    continue  # found out above
            end = time.perf_counter()
    load.rows, load.work, load.seconds = network.rows - rows, network.work - work, max(end - begin, 0.0)
    return load


@dataclass(eq=False)
class Crew:
    """Worker processes, each with a line to the network of this process."""

    workers: list[Any] = field(default_factory=list)
    lines: list[multiprocessing.connection.Connection] = field(default_factory=list)

    @classmethod
    def start(cls, count: int, work: Callable[..., None], *args: Any) -> Crew:
        """Start workers that run ``work(connection, number, *args)``."""
        context = multiprocessing.get_context("spawn")
        crew = cls()
        for number in range(count):
            mine, theirs = context.Pipe()
            process = context.Process(target=work, args=(theirs, number, *args), daemon=True)
            with _without_main():
                process.start()
            theirs.close()
            crew.workers.append(process)
            crew.lines.append(mine)
        return crew

    def finish(self) -> None:
        """Wait for the workers, which have hung up; say so if one failed."""
        for process in self.workers:
            process.join()
        failed = [process.exitcode for process in self.workers if process.exitcode]
        if failed:
            raise RuntimeError(
                f"{len(failed)} of {len(self.workers)} workers failed (exit codes {failed}); their errors are above, "
                "what was finished is kept, and the same command continues"
            )


@contextmanager
def _without_main() -> Iterator[None]:
    """Start a process that does not import this one's main module again: with it would come PyTorch, for nothing.

    Fourteen workers that load it at once took a minute before the first question.
    """
    main = sys.modules["__main__"]
    names: tuple[str, ...] = ("__spec__", "__file__")
    kept = {name: main.__dict__.pop(name) for name in names if name in main.__dict__}
    main.__spec__ = None
    try:
        yield
    finally:
        main.__dict__.update(kept)


def pack(masks: Bools) -> npt.NDArray[np.uint8]:
    """Masks as bits, for the way."""
    return np.packbits(masks, axis=1)


def up(array: npt.NDArray[Any], device: str) -> Any:
    """An array as a tensor on a device, without waiting for the way."""
    import torch

    tensor = torch.from_numpy(np.ascontiguousarray(array))
    return tensor.pin_memory().to(device, non_blocking=True) if device.startswith("cuda") else tensor


def down(answers: Sequence[Any]) -> Callable[[], list[Outputs]]:
    """Begin to bring answers from their device; the function returned waits until they are here."""
    import torch

    sizes = [len(answer) for answer in answers]
    outputs = torch.cat(list(answers)).float()
    if not outputs.is_cuda:
        return lambda: [part.numpy() for part in torch.split(outputs, sizes)]
    host = torch.empty(outputs.shape, dtype=outputs.dtype, pin_memory=True)
    host.copy_(outputs, non_blocking=True)
    done = torch.cuda.Event()  # type: ignore[no-untyped-call]
    done.record()

    def wait() -> list[Outputs]:
        done.synchronize()
        return [part.numpy().copy() for part in torch.split(host, sizes)]

    return wait


def unpack(packed: Any, count: int) -> Any:
    """Bits to a boolean tensor, (n, count), on the tensor's own device."""
    import torch

    shifts = torch.arange(7, -1, -1, device=packed.device, dtype=torch.uint8)
    bits = (packed[:, :, None] >> shifts) & 1
    return bits.flatten(1)[:, :count].bool()

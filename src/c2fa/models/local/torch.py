"""A torch module: evaluated without gradients, on its own device, in batches of one shape."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import torch

from c2fa._system import is_frame
from c2fa.asking.masking import MaskedBatch, stacking
from c2fa.structure import BoolArray

Floats = npt.NDArray[np.float64]
T = TypeVar("T")


class Torch:
    """A torch module as a model.

    The module is put in eval mode and called without gradients. Rows of different shapes (bags, sequences) are batched
    with rows of the same shape, so that no padding can change an output. Outputs come in the order of the rows.

    Parameters
    ----------
    module
        The module. ``module(inputs)`` gives a tensor, or an object with ``logits``.
    device
        Where to run; the module is moved there. Its own device unless given.
    autocast
        ``"bfloat16"``, ``"float16"`` or a torch dtype for mixed precision.
    softmax
        Turn logits into probabilities.
    batch
        The most rows in one call of the module.
    collate
        ``collate(rows)`` turns a list of rows into the module's input; a tuple becomes positional arguments,
        a dict named ones, and a list stays one argument.
    bags
        ``"stack"``: a row that is a list of images or vectors of one shape is one tensor, and the module takes a
        batch of them, (n, instances, ...). ``"list"``: the module takes one row at a time, a list of tensors that may
        differ in shape, and returns its outputs.
    output_names
        The names of the outputs, such as classes.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        *,
        device: str | torch.device | None = None,
        autocast: str | torch.dtype | None = None,
        softmax: bool = False,
        batch: int = 256,
        collate: Callable[[list[Any]], Any] | None = None,
        bags: str = "stack",
        output_names: Sequence[str] = (),
    ) -> None:
        if not isinstance(module, torch.nn.Module):
            raise TypeError(f"module must be a torch.nn.Module, not {type(module).__name__}")
        if batch < 1:
            raise ValueError(f"batch must be at least 1, not {batch}")
        if bags not in ("stack", "list"):
            raise ValueError(f"bags must be 'stack' or 'list', not {bags!r}")
        if bags == "list" and collate is not None:
            raise ValueError("bags='list' hands over one row at a time, so it does not go with collate")
        self.module = module if device is None else module.to(device)
        self.device = torch.device(device) if device is not None else device_of(module)
        self.autocast = autocast_dtype(autocast)
        self.softmax, self.batch, self.collate, self.bags = softmax, batch, collate, bags
        self.output_names = tuple(output_names)
        self._placed: WeakKeyDictionary[Any, Callable[[BoolArray, int], Any]] = WeakKeyDictionary()
        self._background = Background(self.device)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_placed"}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        vars(self).update(state, _placed=WeakKeyDictionary())

    @property
    def name(self) -> str:
        """The module's class with a hash of its weights and of how it is run."""
        return f"torch:{type(self.module).__name__}:{self.autocast}:{self.softmax}:{weights_hash(self.module)}"

    def __repr__(self) -> str:
        return f"Torch({type(self.module).__name__}, device={str(self.device)!r})"

    @property
    def batch_size(self) -> int:
        return self.batch

    @property
    def encode_inputs(self) -> Callable[[Any], Any] | None:
        """Sends arrays and tensors of one shape as they are, to be masked on the device; None where it cannot."""
        return stacking if self.collate is None and self.bags == "stack" else None

    def expect(self, inputs: Any) -> None:
        """Bring an input to the device before its rows are asked for; another thread may run the network meanwhile."""
        self._on_device(inputs)

    def __call__(self, batch: Any) -> Floats:
        return self.launch(batch)()

    def launch(self, batch: Any) -> Callable[[], Floats]:
        """Begin a batch of rows, or of masks; the function that is returned waits for the outputs."""
        if len(batch) == 0:
            raise ValueError("the batch is empty; a torch module needs at least one row")
        return self._background(self._launch, batch)

    def _launch(self, batch: Any) -> Callable[[], Floats]:
        evaluating(self.module)
        order: list[int] = []
        outputs: list[torch.Tensor] = []
        with torch.inference_mode(), precision(self.device, self.autocast):
            for index, inputs in self._batches(batch):
                outputs.append(self._outputs(inputs, len(index)))
                order += index
            answers = to_host(torch.cat(outputs))
        return lambda: restored(order, answers())

    def _batches(self, batch: Any) -> Iterator[tuple[Sequence[int], Any]]:
        """The module's batches: the numbers of their rows, and the inputs on the device."""
        if isinstance(batch, MaskedBatch):
            yield from self._masked(batch)
            return
        rows = batch if isinstance(batch, torch.Tensor) else self._tensors(batch)
        for index in self._buckets(rows):
            yield index, self._inputs(rows, index)

    def _masked(self, batch: MaskedBatch) -> Iterator[tuple[Sequence[int], Any]]:
        """Batches of rows that are masked on the device; rows of several inputs go together if they have one shape."""
        together: list[torch.Tensor] = []
        first = end = 0  # the numbers of the rows that go together are from ``first`` up to ``end``

        def joined() -> Iterator[tuple[Sequence[int], Any]]:
            nonlocal first
            if together:
                yield range(first, end), self._moved(torch.cat(together))
            together.clear()
            first = end

        for rows in batch.pieces:
            inputs = self._on_device(rows.inputs)
            at = 0
            while at < len(rows):
                masked = inputs(rows.masks[at : at + self.batch - (end - first)], rows.level)
                at += len(masked)
                if isinstance(masked, list):  # of several shapes, as bags without some of their images
                    yield from joined()
                    for index in self._buckets(masked):
                        yield [first + i for i in index], self._inputs(masked, index)
                    first = end = first + len(masked)
                    continue
                if together and together[0].shape[1:] != masked.shape[1:]:
                    yield from joined()
                together.append(masked)
                end += len(masked)
                if end - first == self.batch:
                    yield from joined()
        yield from joined()

    def _on_device(self, inputs: Any) -> Callable[[BoolArray, int], Any]:
        """An input that is masked on the device, to which it travels once."""
        if inputs not in self._placed:
            self._placed[inputs] = inputs.on(self.device)
        return self._placed[inputs]

    def _outputs(self, inputs: Any, rows: int) -> torch.Tensor:
        """Call the module, and return one row of numbers for each row."""
        if isinstance(inputs, Mapping):
            outputs = self.module(**inputs)
        elif isinstance(inputs, tuple):
            outputs = self.module(*inputs)
        else:
            outputs = self.module(inputs)
        logits = tensor_of(outputs).float()
        if self.bags == "list" and logits.ndim == 1:
            logits = logits.reshape(1, -1)
        if len(logits) != rows:
            raise ValueError(
                f"{type(self.module).__name__} returned {len(logits)} rows for {rows} inputs; "
                "it must return one row per input"
            )
        return logits.softmax(dim=-1) if self.softmax else logits

    def _tensors(self, batch: Any) -> Any:
        if self.collate is not None:
            return list(batch)
        if self.bags == "list":
            return [[_tensor(item) for item in row] for row in batch]
        if isinstance(batch, np.ndarray) or is_frame(batch):
            return _tensor(batch)
        return [_stacked(row) if isinstance(row, list | tuple) else _tensor(row) for row in batch]

    def _buckets(self, rows: Any) -> Iterator[Sequence[int]]:
        """Yield the numbers of the rows that go into one call of the module."""
        if self.bags == "list":
            yield from ((i,) for i in range(len(rows)))
            return
        if isinstance(rows, torch.Tensor) or self.collate is not None:
            yield from (range(i, min(i + self.batch, len(rows))) for i in range(0, len(rows), self.batch))
            return
        shapes = [tuple(row.shape) for row in rows]
        bucket: list[int] = []
        for i in sorted(range(len(rows)), key=lambda i: (shapes[i][1:], shapes[i])):
            if bucket and (len(bucket) == self.batch or shapes[i] != shapes[bucket[0]]):
                yield bucket
                bucket = []
            bucket.append(i)
        yield bucket

    def _inputs(self, rows: Any, index: Sequence[int]) -> Any:
        if self.bags == "list":
            return [self._moved(item) for item in rows[index[0]]]
        if isinstance(rows, torch.Tensor):
            return self._moved(rows[index[0] : index[-1] + 1])
        chosen = [rows[i] for i in index]
        if self.collate is not None:
            return self._moved(self.collate(chosen))
        return self._moved(torch.stack(chosen))

    def _moved(self, value: Any) -> Any:
        """Move tensors to the device; numbers take the precision of the weights."""
        if isinstance(value, torch.Tensor):
            dtype = next((p.dtype for p in self.module.parameters() if p.is_floating_point()), torch.float32)
            return value.to(self.device, dtype if value.is_floating_point() else None)
        if isinstance(value, Mapping):
            return {k: self._moved(v) for k, v in value.items()}
        if type(value) in (tuple, list):
            return type(value)(self._moved(v) for v in value)
        return value


def _tensor(value: Any) -> torch.Tensor:
    """A tensor of an array, a frame, an image or numbers."""
    if isinstance(value, torch.Tensor):
        return value
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise TypeError(
            f"a torch module takes numbers, not {type(value).__name__}; a transformers model goes with its tokenizer, "
            "c2fa.models.HuggingFace(model, tokenizer)"
        )
    return torch.from_numpy(np.require(array, requirements=["C", "W"]))


def _stacked(row: Sequence[Any]) -> torch.Tensor:
    """One tensor of a list of numbers, or of vectors or images of one shape."""
    if all(np.isscalar(item) or isinstance(item, list | tuple) for item in row):
        return _tensor(row)
    items = [_tensor(item) for item in row]
    shapes = sorted({tuple(item.shape) for item in items})
    if len(shapes) > 1:
        raise ValueError(
            f"a bag holds tensors of the shapes {', '.join(map(str, shapes[:3]))}, which make no one tensor: give "
            "c2fa.models.Torch(module, bags='list') for a module that takes a list of tensors, or make them one size"
        )
    return torch.stack(items)


class Background:
    """Begins calls of a network on a GPU in a thread of its own, so that the calling thread can go on.

    Launching a network's steps takes time by itself, and a network may wait for the GPU in the middle of a call.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._thread: ThreadPoolExecutor | None = None

    def __call__(self, begin: Callable[[Any], Callable[[], T]], batch: Any) -> Callable[[], T]:
        """Begin a call; the function that is returned waits for its outputs."""
        if self.device.type != "cuda":
            return begin(batch)
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "c2fa-device")
        future = self._thread.submit(begin, batch)
        return lambda: future.result()()

    def __reduce__(self) -> Any:
        return Background, (self.device,)


def evaluating(module: torch.nn.Module) -> None:
    """Put a module in eval mode, unless it is: checking each part costs less than setting its mode."""
    if any(part.training for part in module.modules()):
        module.eval()


def restored(order: npt.ArrayLike, outputs: Floats) -> Floats:
    """The outputs in the order of the rows, from those in another order."""
    result = np.empty_like(outputs)
    result[np.asarray(order, dtype=int)] = outputs
    return result


def to_host(tensor: torch.Tensor) -> Callable[[], Floats]:
    """Begin to copy numbers to the host; the function that is returned waits for them."""
    tensor = tensor.detach()
    if not tensor.is_cuda:
        return lambda: np.asarray(tensor.double().cpu().numpy())
    here = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    here.copy_(tensor, non_blocking=True)
    done = torch.cuda.Event()  # type: ignore[no-untyped-call]
    done.record(torch.cuda.current_stream(tensor.device))  # which need not be the current device

    def numbers() -> Floats:
        done.synchronize()
        return np.asarray(here.double().numpy())

    return numbers


def tensor_of(outputs: Any) -> torch.Tensor:
    """Return the tensor of a module's outputs: the outputs themselves, their ``logits``, or the first of several."""
    tensor = getattr(outputs, "logits", outputs)
    if isinstance(tensor, Mapping) and "logits" in tensor:
        tensor = tensor["logits"]
    if isinstance(tensor, tuple | list) and tensor:
        tensor = tensor[0]
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"the module must return a tensor or have logits, not {type(tensor).__name__}")
    return tensor.reshape(1) if tensor.ndim == 0 else tensor


def device_of(module: torch.nn.Module) -> torch.device:
    first = next(itertools.chain(module.parameters(), module.buffers()), None)
    return torch.device("cpu") if first is None else first.device


def precision(device: torch.device, autocast: torch.dtype | None) -> AbstractContextManager[Any]:
    """Return the context of mixed precision, or an empty one."""
    return nullcontext() if autocast is None else torch.autocast(device.type, autocast)


def autocast_dtype(value: str | torch.dtype | None) -> torch.dtype | None:
    """Return the dtype of mixed precision, or None for none."""
    dtype = getattr(torch, value, None) if isinstance(value, str) else value
    if value is not None and dtype not in (torch.bfloat16, torch.float16):
        raise ValueError(f"autocast must be 'bfloat16', 'float16' or None, not {value!r}")
    return dtype


def weights_hash(module: torch.nn.Module) -> str:
    """Return a hash that changes when the weights do.

    Of large tensors it reads the sum and every k-th value: enough to notice training, and quick for billions.
    """
    digest = hashlib.sha256(repr(module).encode())
    for name, tensor in module.state_dict().items():
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        flat = tensor.detach().reshape(-1)
        if flat.is_floating_point() and flat.numel() > 65_536:
            digest.update(flat.sum(dtype=torch.float64).cpu().numpy().tobytes())
        step = max(1, flat.numel() // 65_536)
        digest.update(flat[::step].cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]

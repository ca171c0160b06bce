"""DeepSets on ResNet-50: does one of the images of a bag show a cat?

``phi`` takes each image to 2,048 features, a bag is the sum of its images' features, and ``rho``, two layers, takes
that to the probabilities of "no cat" and "cat", as in the paper. The modules have torchvision's names, so its weights
fit, but the stride of a stage sits on the *first* 1 x 1 convolution of its first block (v1), where the weights at
hand were trained with it. Batch-norm always uses the statistics it was loaded with.

``FastPhi`` is a copy of ``phi`` for asking very many questions: batch-norm is folded into the convolutions, and on a
GPU they run in half precision, fused with what follows them, replayed as one CUDA graph.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from experiments.harness import weights
from experiments.images.bags import DATA, SIDE

FEATURES, HIDDEN = 2048, 1024
IMAGENET = DATA / "resnet50_imagenet_caffe_v1_fp16.safetensors"
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class BatchNorm(nn.Module):
    """Batch-norm whose statistics are given, never estimated; its scale and shift can be trained."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.register_buffer("running_mean", torch.zeros(width))
        self.register_buffer("running_var", torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps)


def fold(conv: nn.Conv2d, norm: BatchNorm) -> tuple[Tensor, Tensor]:
    """The weight and the bias of the one convolution that does what the two do."""
    scale = norm.weight * torch.rsqrt(norm.running_var + norm.eps)
    return conv.weight * scale[:, None, None, None], norm.bias - norm.running_mean * scale


def _plain(x: Tensor, conv: nn.Conv2d, norm: BatchNorm) -> Tensor:
    done: Tensor = norm(conv(x))
    return done


def _folded(x: Tensor, conv: nn.Conv2d, norm: BatchNorm) -> Tensor:
    weight, bias = fold(conv, norm)
    return F.conv2d(x, weight, bias, conv.stride, conv.padding)


class Bottleneck(nn.Module):
    """Three convolutions and a way past them; the first, 1 x 1, has the stride."""

    def __init__(self, inner: int, outer: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inner, width, 1, stride, bias=False), BatchNorm(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, 1, 1, bias=False), BatchNorm(width)
        self.conv3, self.bn3 = nn.Conv2d(width, outer, 1, bias=False), BatchNorm(outer)
        self.downsample = None
        if stride != 1 or inner != outer:
            self.downsample = nn.Sequential(nn.Conv2d(inner, outer, 1, stride, bias=False), BatchNorm(outer))

    def forward(self, x: Tensor, step: Callable[..., Tensor] = _plain) -> Tensor:
        past = x if self.downsample is None else step(x, *self.downsample)
        x = step(x, self.conv1, self.bn1).relu()
        x = step(x, self.conv2, self.bn2).relu()
        return (step(x, self.conv3, self.bn3) + past).relu()


class ResNet50(nn.Module):
    """ResNet-50 (v1) without its last layer: normalised images, (n, 3, H, W), to features, (n, 2048).

    Parameters
    ----------
    folded
        Multiply batch-norm into the convolutions' weights before each pass instead of applying it after them. The
        function and its gradients are the same, and training needs less time and memory.
    """

    def __init__(self, folded: bool = False) -> None:
        super().__init__()
        self.folded = folded
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), BatchNorm(64)
        inner = 64
        for k, (blocks, width) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512)), start=1):
            stage = [Bottleneck(inner, 4 * width, width, 1 if k == 1 else 2)]
            stage += [Bottleneck(4 * width, 4 * width, width, 1) for _ in range(blocks - 1)]
            self.add_module(f"layer{k}", nn.ModuleList(stage))
            inner = 4 * width
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    @property
    def blocks(self) -> Iterator[Bottleneck]:
        """All blocks, in order."""
        for k in range(1, 5):
            yield from getattr(self, f"layer{k}")

    def forward(self, x: Tensor) -> Tensor:
        step = _folded if self.folded else _plain
        x = F.max_pool2d(step(x, self.conv1, self.bn1).relu(), 3, 2, 1)
        for block in self.blocks:
            x = block(x, step)
        return x.mean((2, 3), dtype=torch.float32)


class DeepSets(nn.Module):
    """A bag of images to the probabilities that none of them, and that one of them, shows a cat.

    Examples
    --------
    >>> model = DeepSets()
    >>> images = torch.zeros(5, 3, 64, 64)  # a bag of two, then a bag of three
    >>> model.probabilities(model.pool(model.phi(images), torch.tensor([0, 0, 1, 1, 1]), 2)).shape
    torch.Size([2, 2])
    """

    def __init__(self) -> None:
        super().__init__()
        self.phi = ResNet50()
        self.rho = nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 2))

    @staticmethod
    def pool(features: Tensor, owner: Tensor, bags: int) -> Tensor:
        """The sums of the features, (n, 2048), by the bag that owns each, (n,): (bags, 2048)."""
        return features.new_zeros(bags, features.shape[1]).index_add(0, owner, features)

    def probabilities(self, pooled: Tensor) -> Tensor:
        """What rho says of bags that are already sums of features, (bags, 2): the second column is "cat"."""
        logits: Tensor = self.rho(pooled)
        return logits.softmax(1)

    def forward(self, images: Tensor, owner: Tensor, bags: int) -> Tensor:
        """The probabilities of bags, (bags, 2), from all their images, normalised, and the bag that owns each."""
        return self.probabilities(self.pool(self.phi(images), owner, bags))

    @classmethod
    def pretrained(cls, path: str | Path = IMAGENET) -> DeepSets:
        """A network whose phi comes from ImageNet and whose rho is random."""
        model = cls()
        tensors = _tensors(path, f"give --data the folder that holds {IMAGENET.name}")
        model.phi.load_state_dict({name: tensors[name] for name in tensors if not name.startswith("fc.")})
        return model

    @classmethod
    def load(cls, path: str | Path) -> DeepSets:
        """A network that was saved."""
        model = cls()
        model.load_state_dict(_tensors(path, f"train them with 'python -m experiments.images.train --out {path}'"))
        return model.eval()

    def save(self, path: str | Path, part_mib: float | None = None) -> list[Path]:
        """Write the weights, matrices and kernels as fp16 and vectors (batch-norm's among them) as fp32.

        With ``part_mib`` they are cut into files of at most so many MiB; ``load`` takes the name without the number.
        """
        arrays = {}
        for name, tensor in self.state_dict().items():
            array = tensor.detach().float().contiguous().cpu().numpy()
            with np.errstate(over="ignore"):  # found below
                arrays[name] = array.astype(np.float16) if array.ndim > 1 else array
            if not np.isfinite(arrays[name]).all():
                raise ValueError(f"{name} is not finite in {arrays[name].dtype}; the network cannot be saved")
        return weights.write(path, arrays, part_mib=part_mib)


def _tensors(path: str | Path, how: str) -> dict[str, Tensor]:
    arrays, _ = weights.read(path, how)
    return {name: torch.from_numpy(array.astype(np.float32)) for name, array in arrays.items()}


def normalise(images: Tensor) -> Tensor:
    """Images, (n, H, W, 3) uint8, as the network reads them: (n, 3, H, W) fp32, channels last in memory."""
    scale, shift = _constants(images.device)
    return images.permute(0, 3, 1, 2).float() * scale + shift


def _constants(device: torch.device) -> tuple[Tensor, Tensor]:
    """What a pixel, 0 to 255, is multiplied by and what is then added, each (3, 1, 1)."""
    mean, std = (torch.tensor(values, dtype=torch.float64)[:, None, None] for values in (MEAN, STD))
    return (1 / (255 * std)).float().to(device), (-mean / std).float().to(device)


class FastPhi:
    """A copy of phi that answers fast: its batch-norm is folded away and it never learns.

    On a GPU it computes in fp16, channels last, each convolution fused with its bias, the addition and the ReLU that
    follow, and the whole is one CUDA graph of a fixed batch. More images are cut up; what is left over is padded, to a
    quarter of a batch where it fits. Elsewhere it is plain fp32. Features are averaged, and returned, in fp32.

    Parameters
    ----------
    model
        The network, or its phi; later changes to it are not seen.
    batch
        How many images go through at once.
    device
        Where to run; None is where the model is.
    dtype
        None is fp16 on a GPU and fp32 elsewhere.
    graph
        Replay a CUDA graph; on a GPU alone.
    """

    def __init__(
        self,
        model: DeepSets | ResNet50,
        batch: int = 512,
        device: str | torch.device | None = None,
        dtype: torch.dtype | None = None,
        graph: bool = True,
    ) -> None:
        phi = model.phi if isinstance(model, DeepSets) else model
        self.device = torch.device(device) if device is not None else phi.conv1.weight.device
        cuda = self.device.type == "cuda"
        self.dtype = dtype or (torch.float16 if cuda else torch.float32)
        self.batch, self.graph = batch, graph and cuda
        self._fuses = cuda and hasattr(torch, "cudnn_convolution_relu") and hasattr(torch, "cudnn_convolution_add_relu")
        self._refused: set[int] = set()
        with torch.no_grad():
            self._stem = self._take(phi.conv1, phi.bn1)
            self._blocks = [
                (
                    self._take(block.conv1, block.bn1),
                    self._take(block.conv2, block.bn2),
                    self._take(block.conv3, block.bn3),
                    None if block.downsample is None else self._take(*block.downsample),
                )
                for block in phi.blocks
            ]
        # Made once: while a graph is captured nothing may be copied to the GPU.
        self._scale, self._shift = _constants(self.device)
        self._captured: dict[tuple[torch.dtype, int], tuple[Any, Tensor, Tensor]] = {}

    def _take(self, conv: nn.Conv2d, norm: BatchNorm) -> tuple[Tensor, Tensor, tuple[int, ...], tuple[int, ...]]:
        weight, bias = (tensor.detach().float().to(self.device) for tensor in fold(conv, norm))
        weight = weight.to(self.dtype).contiguous(memory_format=torch.channels_last)
        if not (torch.isfinite(weight).all() and torch.isfinite(bias.to(self.dtype)).all()):
            raise ValueError(f"a folded weight of phi is not finite in {self.dtype}; give dtype=torch.float32")
        return weight, bias.to(self.dtype), conv.stride, cast(tuple[int, ...], conv.padding)

    @torch.inference_mode()
    def __call__(self, images: npt.ArrayLike | Tensor) -> Tensor:
        """The features, (n, 2048) fp32 on the device, of (n, 224, 224, 3) uint8 or normalised (n, 3, 224, 224)."""
        images = images if isinstance(images, Tensor) else torch.from_numpy(np.ascontiguousarray(images))
        raw = images.dtype == torch.uint8
        wanted = (SIDE, SIDE, 3) if raw else (3, SIDE, SIDE)
        if tuple(images.shape[1:]) != wanted:
            raise ValueError(
                f"{images.dtype} images must be (n, {', '.join(map(str, wanted))}), not {(*images.shape,)}"
            )
        features = torch.empty(len(images), FEATURES, device=self.device)
        for at, size in cut(len(images), self.batch):
            some = images[at : at + size]
            features[at : at + size] = self._replay(some, size) if self.graph else self._run(some.to(self.device))
        return features

    def _replay(self, images: Tensor, size: int) -> Tensor:
        kind = torch.uint8 if images.dtype == torch.uint8 else self.dtype
        if (kind, size) not in self._captured:
            self._captured[kind, size] = self._capture(kind, size)
        graph, given, features = self._captured[kind, size]
        given[: len(images)].copy_(images)
        graph.replay()
        return features[: len(images)]

    def _capture(self, kind: torch.dtype, size: int) -> tuple[Any, Tensor, Tensor]:
        shape = (size, SIDE, SIDE, 3)
        given = torch.zeros(shape, dtype=kind, device=self.device)
        given = given if kind == torch.uint8 else given.permute(0, 3, 1, 2)
        with torch.cuda.device(self.device), _benchmarked():
            stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(3):  # chooses the convolutions' algorithms, and finds those that cannot be fused
                    self._run(given)
            torch.cuda.current_stream().wait_stream(stream)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                features = self._run(given)
        return graph, given, features

    def _run(self, images: Tensor) -> Tensor:
        if images.dtype == torch.uint8:
            images = images.permute(0, 3, 1, 2).float() * self._scale + self._shift
        x = images.to(self.dtype).contiguous(memory_format=torch.channels_last)
        x = F.max_pool2d(self._relu(x, self._stem), 3, 2, 1)
        for one, two, three, way in self._blocks:
            past = x if way is None else F.conv2d(x, *way)
            x = self._relu(self._relu(x, one), two)
            x = self._relu(x, three, past)
        return x.mean((2, 3), dtype=torch.float32)

    def _relu(self, x: Tensor, layer: tuple[Any, ...], past: Tensor | None = None) -> Tensor:
        """The convolution, what is added to it if anything, and the ReLU; one kernel where the GPU has it."""
        weight, bias, stride, padding = layer
        if self._fuses and id(layer) not in self._refused:
            try:
                if past is None:
                    return torch.cudnn_convolution_relu(x, weight, bias, stride, padding, (1, 1), 1)
                return torch.cudnn_convolution_add_relu(x, weight, past, 1.0, bias, stride, padding, (1, 1), 1)
            except RuntimeError:
                if torch.cuda.is_current_stream_capturing():
                    raise
                self._refused.add(id(layer))
        y = F.conv2d(x, weight, bias, stride, padding)
        return (y if past is None else y.add_(past)).relu_()


def cut(count: int, batch: int) -> list[tuple[int, int]]:
    """Where batches begin and how large they are: whole ones, then quarters for what is left, if three are enough.

    >>> cut(1100, 512)
    [(0, 512), (512, 512), (1024, 128)]
    >>> cut(500, 512)
    [(0, 512)]
    """
    quarter = max(batch // 4, 1)
    found, at = [], 0
    while at < count:
        size = quarter if count - at <= 3 * quarter else batch
        found.append((at, size))
        at += size
    return found


@contextmanager
def _benchmarked() -> Iterator[None]:
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


@contextmanager
def _exact() -> Iterator[None]:
    """No tensor-float-32: fp32 is fp32."""
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before


@torch.inference_mode()
def features(phi: Callable[[Tensor], Tensor], images: npt.NDArray[np.uint8], device: Any, batch: int = 128) -> Tensor:
    """The features of raw images, (n, 2048) on the device, by a phi that takes normalised ones."""
    some = (torch.from_numpy(images[at : at + batch]).to(device) for at in range(0, len(images), batch))
    return torch.cat([phi(normalise(part)) for part in some])


@torch.inference_mode()
def predict(model: DeepSets, known: Tensor, used: npt.NDArray[Any], members: Sequence[npt.NDArray[Any]]) -> Tensor:
    """The probability of "cat" for bags, (bags,), from features known for the images `used` (sorted), one row each.

    An image that is in many bags so goes through phi once.
    """
    rows = torch.from_numpy(np.searchsorted(used, np.concatenate(members))).to(known.device)
    owner = torch.from_numpy(np.repeat(np.arange(len(members)), [len(bag) for bag in members])).to(known.device)
    return model.probabilities(model.pool(known[rows], owner, len(members)))[:, 1]


def agreement(
    model: DeepSets, fast: FastPhi, images: npt.NDArray[np.uint8], members: Sequence[npt.NDArray[Any]]
) -> tuple[float, float]:
    """The mean and the largest difference, over bags of raw images, of the fast copy's probabilities from fp32's."""
    used = np.unique(np.concatenate(members))
    with _exact():
        exact = predict(model, features(model.phi, images[used], model.phi.conv1.weight.device), used, members)
        quick = predict(model, fast(images[used]).to(exact.device), used, members)
    if not bool(torch.isfinite(quick).all()):
        raise ValueError(f"the fast copy gives numbers that are not finite in {fast.dtype}; give dtype=torch.float32")
    difference = (exact - quick).abs()
    return float(difference.mean()), float(difference.max())


def speed(fast: FastPhi, seconds: float = 2.0) -> float:
    """How many raw images a second the fast copy takes that are on its device already."""
    images = torch.zeros(fast.batch, SIDE, SIDE, 3, dtype=torch.uint8, device=fast.device)
    float(fast(images).sum())  # everything is ready, and done
    begin, done = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        for _ in range(8):
            answer = fast(images)
        float(answer.sum())
        done += 8 * len(images)
    return done / (time.perf_counter() - begin)

"""How busy explaining keeps a GPU: the bare network's time for the very batches of a run, over the run's time.

    python benchmarks/gpu.py [texts] [images] [memory] [profile] [--network minilm] [--data ../shared/data]

texts    a text classifier, reviews of 60 to 220 words, 200 rows each: one call around one model into a store, in
         memory with and without workers, and a plain loop over explainer(x), also where nobody changes the network
images   bags of four photos of VOC 2012, ResNet-50 fused and in half precision, cut by quickshift as they come
memory   peak memory of every process, with 1,000 and with 10,000 inputs
profile  the kernels in which the device spends its time, in one process

The text classifier is gte-small (twelve layers) or has the shape of MiniLM-L6 (six layers), which is twice as fast and
gets random weights: what it says is of no interest here.

The bare network gets batches of the same lengths, shapes and sizes, made beforehand on its device. A share is given for
the time from the first row to the last answer, for the whole call with the start of its processes, in which the model
is loaded and warmed up, and for the middle four fifths of the work, without what comes slowly first and last.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import functools
import io
import json
import lzma
import math
import os
import shutil
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import c2fa
from c2fa.batch import Recipe, many

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the experiments' networks
from benchmarks import sentences

sentences.ensure()  # here, as workers import this file

ROWS = 200
WORDS = (60, 220)
SIDE = 224
SAMPLE = 20  # batches on which the bare network is timed
TIMES = 3


# -- models that note the shapes of their batches --------------------------------------------------


class Notes:
    """What a model's batches looked like and where time went; a copy lies in a file that another process can read."""

    def __init__(self, path: str) -> None:
        self.path, self._written = Path(path), 0.0
        self.shapes = collections.Counter[tuple[int, ...]]()
        self.stages = collections.Counter[str]()
        self.begun: list[tuple[float, int]] = []  # when each batch was, and its size
        self._inner = threading.local()

    def clear(self) -> None:
        self.shapes.clear()
        self.stages.clear()
        self.begun.clear()

    def shape(self, *shape: int) -> None:
        self.shapes[shape] += 1
        self.begun.append((time.monotonic(), math.prod(shape)))
        if time.monotonic() - self._written > 0.5:
            self.write()

    def stage(self, owner: Any, name: str, stage: str) -> None:
        """Count the seconds of a function, without those of others that are counted, in the thread that calls it."""
        whole = getattr(owner, name)
        whole = getattr(whole, "__wrapped__", whole)  # another run's notes are of no use here

        @functools.wraps(whole)
        def timed(*args: Any, **options: Any) -> Any:
            outer, self._inner.seconds = getattr(self._inner, "seconds", 0.0), 0.0
            begin = time.perf_counter()
            try:
                return whole(*args, **options)
            finally:
                spent = time.perf_counter() - begin
                self.stages[stage] += spent - self._inner.seconds
                self._inner.seconds = outer + spent

        setattr(owner, name, timed)

    def write(self) -> None:
        self._written = time.monotonic()
        whole = self.path.with_suffix(".new")
        shapes = [[list(shape), n] for shape, n in list(self.shapes.items())]
        whole.write_text(json.dumps({"shapes": shapes, "stages": dict(self.stages), "begun": self.begun}))
        whole.replace(self.path)

    @staticmethod
    def read(path: str) -> tuple[list[tuple[tuple[int, ...], int]], dict[str, float], tuple[float, float, float]]:
        """Shapes and how often each came, the seconds of stages, and those of the work's first tenth, middle and last.

        The last tenth ends where its last batch begins.
        """
        kept = json.loads(Path(path).read_text())
        moments, sizes = np.array(kept["begun"]).T
        done = np.cumsum(sizes) / sizes.sum()
        first, last = np.interp([0.1, 0.9], done, moments)
        seconds = float(first - moments[0]), float(last - first), float(moments[-1] - last)
        return [(tuple(shape), n) for shape, n in kept["shapes"]], kept["stages"], seconds


def stages_of_a_worker(notes: Notes) -> None:
    """Time what a worker does."""
    from c2fa.asking.querying import Queries
    from c2fa.batch.store import Store
    from c2fa.methods.owen import Owen
    from c2fa.models.local._tokens import Tokenize

    notes.stage(c2fa.maskers.Text, "__call__", "split texts")
    notes.stage(c2fa.maskers.ImageBag, "__call__", "read and segment photos")
    notes.stage(Tokenize, "__call__", "tokenise")
    for name in ("plan", "record", "answer"):
        notes.stage(Queries, name, "plan and keep rows")
    notes.stage(Owen, "_attribution", "fit")
    notes.stage(c2fa.explainer, "diagnose", "diagnose")
    notes.stage(Store, "write", "write")


def text_network(network: str, data: str, device: str) -> Any:
    """A sequence classifier; in half precision on a GPU."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    config = BertConfig.from_json_file(str(Path(data) / "gte_small_config.json"))
    if network == "minilm":
        config.num_hidden_layers = 6
    with torch.device(device):
        model = BertForSequenceClassification(config).eval()
    if network == "gte-small":
        from safetensors.torch import load_file

        weights = load_file(Path(data) / "gte_small_bert_fp16.safetensors")
        missing, unknown = model.load_state_dict({f"bert.{k}": v.float() for k, v in weights.items()}, strict=False)
        assert not unknown
        assert all(name.startswith(("bert.pooler", "classifier")) for name in missing), missing
    return model.half() if device.startswith("cuda") else model


def text_model(network: str, data: str, device: str, batch: int, shapes: str) -> Any:
    import torch
    from transformers import PreTrainedTokenizerFast

    from c2fa.models.local import huggingface

    class Noted(huggingface.HuggingFace):
        def _outputs(self, columns: Any, lengths: Any, index: Any) -> Any:
            notes.shape(len(index), self._width(int(lengths[index].max())))
            return super()._outputs(columns, lengths, index)

        name = network

    notes = Notes(shapes)
    notes.stage(huggingface, "token_rows", "choose tokens")
    notes.stage(Noted, "_outputs", "start the network")
    torch.backends.cuda.matmul.allow_tf32 = True
    names = {f"{word}_token": f"[{word.upper()}]" for word in ("pad", "unk", "cls", "sep", "mask")}
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(Path(data) / "bert_uncased_tokenizer.json"), **names)
    tokenizer.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    model = Noted(text_network(network, data, device), tokenizer, batch=batch, max_length=512)
    model.notes_kept = notes
    return model


def image_model(data: str, device: str, batch: int, shapes: str) -> Any:
    """DeepSets on the experiments' fused ResNet-50: a bag of images, (n, images, 224, 224, 3) uint8, to two classes."""
    import torch
    from experiments.images.network import DeepSets, FastPhi

    class Bags(torch.nn.Module):
        def __init__(self, whole: DeepSets) -> None:
            super().__init__()
            self.rho = whole.rho
            self.phi = [FastPhi(whole, batch=512, device=device)]  # in a list, as it is no module

        def forward(self, bags: torch.Tensor) -> torch.Tensor:
            n, images = bags.shape[:2]
            notes.shape(n, images)
            return self.rho(self.phi[0](bags.flatten(0, 1)).view(n, images, -1).sum(1)).softmax(1)

    notes = Notes(shapes)
    notes.stage(c2fa.models.Torch, "_on_device", "bring photos to the device")
    notes.stage(c2fa.models.Torch, "_outputs", "start the network")
    torch.manual_seed(0)
    weights = Path(data) / "resnet50_imagenet_caffe_v1_fp16.safetensors"
    whole = DeepSets.pretrained(weights) if weights.exists() else DeepSets()  # which is as fast
    whole = whole.to(device).eval()
    model = c2fa.models.Torch(Bags(whole), device=device, batch=batch)
    model.notes_kept = notes
    if device.startswith("cuda"):
        for rows in (batch, 16, 1):
            model(np.zeros((rows, 4, SIDE, SIDE, 3), dtype=np.uint8))
        grain = list(np.random.default_rng(0).integers(0, 256, (4, SIDE, SIDE, 3), dtype=np.uint8))
        c2fa.Explainer(model, c2fa.maskers.ImageBag(absent="fill"), budget=40)(grain)  # compiles the kernels
        notes.clear()
    return model


# -- the bare network ------------------------------------------------------------------------------


def bare_texts(model: Any, shapes: Sequence[tuple[tuple[int, ...], int]], device: str) -> float:
    """Seconds that the network alone needs for batches of these shapes.

    A few shapes are all timed. Of many, some are drawn as often as they came, and time grows with their tokens.
    """
    import torch

    rng = np.random.default_rng(0)
    counts = np.array([n for _, n in shapes], dtype=float)
    sample = SAMPLE if device.startswith("cuda") else 2
    drawn = rng.choice(len(shapes), sample, p=counts / counts.sum())
    batches = []
    for rows, width in (shapes[k][0] for k in (range(len(shapes)) if len(shapes) <= 3 * sample else drawn)):
        ids = torch.randint(1000, 20000, (rows, width), device=device)
        lengths = torch.full((rows, 1), width, device=device)
        lengths[: rows // 2] -= 1  # a batch is padded, so that its attention has a mask
        place = torch.arange(width, device=device)
        batches.append({"input_ids": ids, "attention_mask": (place < lengths).long()})
    if len(batches) == len(shapes):
        each = [clocked(functools.partial(model.model, **batch), device) for batch in batches]
        return float(counts @ each)
    seconds = clocked(lambda: [model.model(**batch) for batch in batches], device)
    work = sum(batch["input_ids"].numel() for batch in batches)
    return seconds * sum(rows * width * n for (rows, width), n in shapes) / work


def bare_images(model: Any, shapes: Sequence[tuple[tuple[int, ...], int]], device: str) -> float:
    """The same for bags of images."""
    import torch

    size = max(rows for (rows, _), _ in shapes)
    bags = torch.randint(0, 256, (size, shapes[0][0][1], SIDE, SIDE, 3), dtype=torch.uint8, device=device)
    times = 10 if device.startswith("cuda") else 1
    seconds = clocked(lambda: [model.module(bags) for _ in range(times)], device)
    return seconds * sum(rows * n for (rows, _), n in shapes) / (times * size)


def clocked(work: Callable[[], Any], device: str) -> float:
    """Seconds of some work on the device, the best of a few."""
    import torch

    taken = []
    with torch.inference_mode():
        for _ in range(TIMES + 1):
            if device.startswith("cuda"):
                torch.cuda.synchronize()
            begin = time.perf_counter()
            work()
            if device.startswith("cuda"):
                torch.cuda.synchronize()
            taken.append(time.perf_counter() - begin)
    return min(taken[1:])


# -- inputs ----------------------------------------------------------------------------------------


def reviews(data: str, count: int) -> list[str]:
    """Reviews of 60 to 220 words, again from the first where there are not so many."""
    with lzma.open(Path(data) / "amazon_polarity_test_first6459.jsonl.xz", "rt") as file:
        texts = [json.loads(line)["text"] for line in file]
    texts = [text for text in texts if WORDS[0] <= len(text.split()) <= WORDS[1]]
    return [texts[i % len(texts)] + (f" {i // len(texts)}" if i >= len(texts) else "") for i in range(count)]


def photos(data: str, count: int) -> np.ndarray[Any, Any]:
    """Photos of VOC 2012, (n, 224, 224, 3) uint8."""
    from PIL import Image

    found = []
    with tarfile.open(Path(data) / "voc2012_seg_256.tar.xz") as archive:
        for member in archive:
            if member.name.endswith(".jpg") and len(found) < count:
                image = Image.open(io.BytesIO(archive.extractfile(member).read())).convert("RGB")  # type: ignore[union-attr]
                found.append(np.asarray(image.resize((SIDE, SIDE), Image.Resampling.BILINEAR)))
    return np.stack(found)


def bags(pictures: np.ndarray[Any, Any], count: int) -> Iterator[list[np.ndarray[Any, Any]]]:
    """Bags of four photos, drawn at random."""
    rng = np.random.default_rng(0)
    for _ in range(count):
        yield [pictures[k] for k in rng.choice(len(pictures), 4, replace=False)]


# -- runs ------------------------------------------------------------------------------------------


class Run:
    """One way to explain inputs, timed, beside the bare network's time for the same batches."""

    def __init__(self, a: argparse.Namespace, make: Callable[..., Any], masker: Any, batch: int, sent: int) -> None:
        self.a, self.masker, self.batch, self.sent = a, masker, batch, sent
        self.folder = tempfile.mkdtemp(prefix="c2fa-gpu-")
        self.shapes = os.path.join(self.folder, "shapes.json")
        self.make = functools.partial(make, a.data, a.device, batch, self.shapes)
        self.options = {"budget": a.budget, "batch_size": sent, "model_name": "benchmark"}

    def one_call(self, inputs: Any) -> dict[str, float]:
        """`many` with workers around one model."""
        recipe = Recipe(self.make, self.masker, self.options)
        begin = time.perf_counter()
        store = many(
            recipe, inputs, os.path.join(self.folder, "store"), workers=self.a.workers, gpus=self.a.gpus, models=1
        )
        seconds = time.perf_counter() - begin
        [load] = store.run.loads.values()
        return {"rows": store.run.rows, "seconds": seconds, "answering": load.seconds, "waiting": load.waiting}

    def here(self, inputs: Any) -> dict[str, float]:
        """`many` with workers around the model of this process, which is made before the clock runs."""
        return self._around(inputs, os.path.join(self.folder, "here"), models="here", workers=self.a.workers)

    def in_memory(self, inputs: Any) -> dict[str, float]:
        """The same in memory."""
        return self._around(inputs, workers=self.a.workers)

    def one_process(self, inputs: Any) -> dict[str, float]:
        """`many` in memory, all in this process."""
        return self._around(inputs)

    def _around(self, inputs: Any, *store: str, **options: Any) -> dict[str, float]:
        explainer = c2fa.Explainer(self.make(), self.masker, **self.options)
        explainer(next(iter(inputs)))
        notes = explainer.model.notes_kept
        if not options:
            stages_of_a_worker(notes)
        notes.clear()
        begin = time.perf_counter()
        found = explainer.many(inputs, *store, **options)
        seconds = time.perf_counter() - begin
        notes.write()
        numbers = {"rows": found.run.rows, "seconds": seconds, "answering": seconds}
        for load in found.run.loads.values():
            numbers |= {"answering": load.seconds, "waiting": load.waiting}
        return numbers

    def loop(self, inputs: Any, steady: bool = False) -> dict[str, float]:
        """A plain loop over explainer(x)."""
        explainer = c2fa.Explainer(self.make(), self.masker, **self.options)
        explainer(next(iter(inputs)))
        stages_of_a_worker(explainer.model.notes_kept)
        explainer.model.notes_kept.clear()
        begin, rows = time.perf_counter(), 0
        with explainer.model.steady() if steady else contextlib.nullcontext():
            for x in inputs:
                rows += explainer(x).queries
        seconds = time.perf_counter() - begin
        explainer.model.notes_kept.write()
        return {"rows": rows, "seconds": seconds, "answering": seconds}

    def steady_loop(self, inputs: Any) -> dict[str, float]:
        """The same where nobody changes the network, so that it is replayed from CUDA graphs."""
        return self.loop(inputs, steady=True)

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def compare(a: argparse.Namespace, make: Any, bare: Any, masker: Any, ways: dict[str, Any], batch: int) -> None:
    """Print the share of each way."""
    print(f"{'':28}{'inputs':>8}{'rows/s':>10}{'bare':>10}{'share':>8}{'with start':>12}{'middle':>8}", flush=True)
    for name, (inputs, count, sent) in ways.items():
        run = Run(a, make, masker, batch, sent)
        try:
            found = getattr(run, name)(inputs)
            shapes, stages, (first, middle, last) = Notes.read(run.shapes)
            alone = bare(make(a.data, a.device, batch, run.shapes), shapes, a.device)
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {error}", flush=True)
            raise
        finally:
            run.close()
        rows = found["rows"]
        more = f"   nobody had a row for {found['waiting']:.1f} s" if "waiting" in found else ""
        print(
            f"{name:28}{count:8,}{rows / found['answering']:10,.0f}{rows / alone:10,.0f}"
            f"{alone / found['answering']:8.1%}{alone / found['seconds']:12.1%}{0.8 * alone / middle:8.1%}{more}",
            flush=True,
        )
        each = {"the network alone": alone, **dict(sorted(stages.items(), key=lambda pair: -pair[1]))}
        each["in all"] = found["answering"]
        print(f"    the first tenth of the work took {first:.2f} s, the last {last:.2f} s", flush=True)
        print(
            "    ms an input: " + ", ".join(f"{stage} {1e3 * s / count:.2f}" for stage, s in each.items()), flush=True
        )


def texts(a: argparse.Namespace) -> None:
    print(f"\nreviews of {WORDS[0]} to {WORDS[1]} words, {a.budget} rows each, batches of {a.batch:,}", flush=True)
    few = max(a.inputs // 8, 1)
    ways = {
        "one_call": (reviews(a.data, a.inputs), a.inputs, 4 * a.batch),
        "here": (reviews(a.data, a.inputs), a.inputs, 4 * a.batch),
        "in_memory": (reviews(a.data, a.inputs), a.inputs, 4 * a.batch),
        "one_process": (reviews(a.data, a.inputs // 4), a.inputs // 4, 4 * a.batch),
        "loop": (reviews(a.data, few), few, a.batch),
        "steady_loop": (reviews(a.data, few), few, a.batch),
    }
    make = functools.partial(text_model, a.network)
    compare(a, make, bare_texts, c2fa.maskers.Text(), {k: v for k, v in ways.items() if k in a.ways}, a.batch)


def images(a: argparse.Namespace) -> None:
    count, size = max(a.inputs // 4, 1), a.batch // 16
    few = max(count // 4, 1)
    pictures = photos(a.data, 4 * count)
    print(f"\nbags of four photos, {a.budget} rows each, batches of {size} bags, quickshift included", flush=True)
    ways = {
        "one_call": (list(bags(pictures, count)), count, 16 * size),
        "in_memory": (list(bags(pictures, count)), count, 16 * size),
        "one_process": (list(bags(pictures, few)), few, 4 * size),
    }
    masker = c2fa.maskers.ImageBag(absent="fill")
    compare(a, image_model, bare_images, masker, {k: v for k, v in ways.items() if k in a.ways}, size)


def profile(a: argparse.Namespace) -> None:
    """Where the device's own time goes, in one process: the ten kernels that take most, of texts and of images."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as watch

    size = a.batch // 16
    kinds = {
        "reviews": (functools.partial(text_model, a.network), a.batch, c2fa.maskers.Text(), reviews(a.data, 40)),
        "bags": (image_model, size, c2fa.maskers.ImageBag(absent="fill"), list(bags(photos(a.data, 80), 20))),
    }
    for name, (make, batch, masker, inputs) in kinds.items():
        run = Run(a, make, masker, batch, 4 * batch)
        explainer = c2fa.Explainer(run.make(), masker, **run.options)
        explainer(inputs[0])
        with watch(activities=[ProfilerActivity.CUDA]) as seen:
            explainer.many(inputs, os.path.join(run.folder, "serial"), engine="serial")
        run.close()
        print(f"\n{name}", flush=True)
        print(seen.key_averages().table(sort_by="self_cuda_time_total", row_limit=14, max_name_column_width=60))


# -- memory ----------------------------------------------------------------------------------------


class Watch:
    """The peak memory of this process and of each of its children, by their names."""

    def __init__(self) -> None:
        self.peaks: dict[str, float] = {}
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _look(self) -> None:
        import multiprocessing

        while not self._done.wait(0.2):
            for process in (None, *multiprocessing.active_children()):
                pid = os.getpid() if process is None else process.pid
                name = "driver" if process is None else process.name
                try:
                    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
                except (OSError, IndexError):
                    continue
                mib = pages * os.sysconf("SC_PAGE_SIZE") / 2**20
                self.peaks[name] = max(self.peaks.get(name, 0.0), mib)


def memory(a: argparse.Namespace) -> None:
    """Few rows for each input, since memory is in question and not speed."""
    print("\npeak memory in MiB", flush=True)
    for count in (a.inputs // 2, 5 * a.inputs):
        make = functools.partial(text_model, a.network)
        run = Run(argparse.Namespace(**{**vars(a), "budget": 30}), make, c2fa.maskers.Text(), a.batch, a.batch)
        with Watch() as watch:
            run.one_call(reviews(a.data, count))
        run.close()
        workers = [mib for name, mib in watch.peaks.items() if name.startswith("c2fa-") and "model" not in name]
        model = max((mib for name, mib in watch.peaks.items() if "model" in name), default=float("nan"))
        print(
            f"{count:,} inputs: driver {watch.peaks['driver']:,.0f}, "
            f"workers {min(workers):,.0f} to {max(workers):,.0f}, "
            f"model's process {model:,.0f}{_on_device()}",
            flush=True,
        )


def _on_device() -> str:
    import subprocess

    query = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader"]
    try:
        listed = subprocess.run(query, capture_output=True, text=True, check=True).stdout.split("\n")
    except (OSError, subprocess.CalledProcessError):
        return ""
    return f"; processes on the device: {[line for line in listed if line]}"


PARTS = {"texts": texts, "images": images, "memory": memory, "profile": profile}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="*", default=["texts", "images", "memory"])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--network", default="minilm", choices=("minilm", "gte-small"))
    parser.add_argument("--data", default="../shared/data")
    parser.add_argument("--inputs", type=int, default=2000)
    parser.add_argument("--budget", type=int, default=ROWS)
    parser.add_argument("--batch", type=int, default=2048)
    parser.add_argument("--workers", type=int, default=14)
    parser.add_argument("--ways", default="one_call,here,in_memory,one_process,loop,steady_loop")
    a = parser.parse_args()
    a.gpus = int(a.device.startswith("cuda"))
    a.ways = a.ways.split(",")
    for name in a.what:
        PARTS[name](a)


if __name__ == "__main__":
    main()

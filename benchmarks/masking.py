"""How fast maskers are, beside the models they feed and beside other libraries' maskers; and what memory they take.

    python benchmarks/masking.py                 # everything that is installed
    python benchmarks/masking.py text memory     # some of it: text, models, memory

Every figure is of one core, in rows per second of its time, so that a busy machine does not change it much; a ratio
compares two measurements of one run.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from c2fa import maskers

BATCH = 64
SENTENCE = "nobody in the old town looks up from what they are reading. "


def review(words: int) -> str:
    return " ".join((SENTENCE * (words // 12 + 1)).split()[:words])


def rate(step: Callable[[np.ndarray], Any], width: int, seconds: float = 1.0, rows: int = BATCH) -> float:
    """Rows per second of a function of masks: the best of three rounds."""
    rng = np.random.default_rng(0)
    batches = [rng.random((rows, width)) < 0.5 for _ in range(20)]
    step(batches[0])
    best = 0.0
    for _ in range(3):
        done, begin = 0, time.process_time()
        while time.process_time() - begin < seconds / 3 or not done:
            step(batches[done % len(batches)])
            done += 1
        best = max(best, done * rows / (time.process_time() - begin))
    return best


def masking_rate(masker: Any, x: Any, level: int = -1, **options: Any) -> float:
    masked = masker(x)

    def step(masks: np.ndarray) -> None:
        for _ in masked.inputs(masks, level):  # reads every row, because some batches are built as they are read
            pass

    return rate(step, masked.structure.widths[level], **options)


def line(name: str, ours: float, other: str = "", theirs: float | None = None) -> None:
    ratio = f"   {other} {theirs:>11,.0f}   ratio {ours / theirs:,.1f}" if theirs else ""
    print(f"  {name:<42}{ours:>12,.0f} rows/s{ratio}", flush=True)


def text() -> None:
    """Masked texts of 100 words per second, beside other libraries' where they are installed."""
    print("texts of 100 words")
    x = review(100)
    ours = {
        "mask token": masking_rate(maskers.Text(), x),
        "removal": masking_rate(maskers.Text(mask=None), x),
        "mask token, sentences masked": masking_rate(maskers.Text(), x, level=0),
    }
    peers = peer_text_rates(x)
    fastest = max(peers.items(), key=lambda item: item[1], default=("", None))
    for name, value in ours.items():
        line(f"c2fa Text, {name}", value, f"{fastest[0]}", fastest[1])
    for name, value in peers.items():
        line(name, value)
    line("c2fa Text, 50,000 words", masking_rate(maskers.Text(), review(50_000), rows=8))


def peer_text_rates(x: str) -> dict[str, float]:
    """The same work by lime's and shap's text maskers."""
    rates = {}
    try:
        from lime.lime_text import IndexedString

        indexed = IndexedString(x, bow=False)

        def remove(masks: np.ndarray) -> None:
            for row in masks:
                indexed.inverse_removing(np.flatnonzero(~row))

        rates["lime IndexedString"] = rate(remove, indexed.num_words())
    except ImportError:
        pass
    try:
        from shap.maskers import Text as ShapText

        masker = ShapText(r"\W")

        def mask(masks: np.ndarray) -> None:
            for row in masks:
                masker(row, x)

        rates["shap Text"] = rate(mask, masker.shape(x)[1])
    except ImportError:
        pass
    return rates


def models() -> None:
    """Each masker alone beside a real model that takes what it makes."""
    print("maskers beside the models they feed")
    rng = np.random.default_rng(0)
    table_beside_forest(rng)
    bag_beside_convolutions(rng)
    text_beside_demo()
    line("TimeSeries, 8 channels of 1,000 steps", masking_rate(maskers.TimeSeries(20), rng.random((1000, 8))))
    line(
        "TimeSeries, straight lines",
        masking_rate(maskers.TimeSeries(20, fill="linear"), rng.random((1000, 8))),
    )
    line("Bag, 50 vectors of 200, left out", masking_rate(maskers.Bag(), rng.random((50, 200)), level=0))
    line("Bag, 50 vectors of 200, filled", masking_rate(maskers.Bag("fill"), rng.random((50, 200))))


def model_rate(model: Callable[[Any], Any], masked: Any) -> float:
    """Rows per second of the model alone: its masked inputs are made beforehand."""
    masks = np.random.default_rng(0).random((BATCH, masked.structure.leaves)) < 0.5
    batch = masked.inputs(masks, -1)
    ready = list(batch) if not hasattr(batch, "dtype") and not hasattr(batch, "iloc") else batch
    return rate(lambda _: model(ready), 1)


def table_beside_forest(rng: np.random.Generator) -> None:
    try:
        import pandas as pd
        from sklearn.compose import make_column_transformer
        from sklearn.ensemble import HistGradientBoostingClassifier
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import OneHotEncoder, StandardScaler
    except ImportError:
        return
    numbers = [f"n{k}" for k in range(16)]
    frame = pd.DataFrame(rng.normal(size=(2000, 16)), columns=numbers)
    frame["town"] = rng.choice(["Rome", "Oslo", "Lima"], 2000)
    target = (frame["n0"] + (frame["town"] == "Oslo") > 0.4).astype(int)
    columns = make_column_transformer((StandardScaler(), numbers), (OneHotEncoder(sparse_output=False), ["town"]))
    model = make_pipeline(columns, HistGradientBoostingClassifier(max_iter=50)).fit(frame, target)
    masker, x = maskers.Tabular({"numbers": numbers}, frame), frame.iloc[[0]]
    line(
        "Tabular, frame of 17 columns",
        masking_rate(masker, x),
        "pipeline",
        model_rate(model.predict_proba, masker(x)),
    )
    vector = maskers.Tabular(background=frame[numbers].to_numpy())
    line("Tabular, vector of 16", masking_rate(vector, frame[numbers].to_numpy()[0]))


def bag_beside_convolutions(rng: np.random.Generator) -> None:
    try:
        import torch
        from torch import nn
    except ImportError:
        return
    torch.set_num_threads(1)
    embed = nn.Sequential(
        nn.Conv2d(3, 16, 5, stride=2, padding=2), nn.ReLU(), nn.Conv2d(16, 32, 5, stride=2, padding=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 2),
    )  # fmt: skip
    bag = torch.from_numpy(rng.random((5, 3, 64, 64), dtype=np.float32))

    @torch.no_grad()
    def filled(batch: torch.Tensor) -> np.ndarray:
        return embed(batch.flatten(0, 1)).view(len(batch), -1, 2).sum(1).numpy()

    @torch.no_grad()
    def ragged(batch: Any) -> np.ndarray:
        rows = list(batch)
        out = embed(torch.stack([image for row in rows for image in row]))
        return np.stack([part.sum(0).numpy() for part in out.split([len(row) for row in rows])])

    for name, masker, model in (
        ("filled", maskers.ImageBag(grid, "fill", "mean"), filled),
        ("left out", maskers.ImageBag(grid, fill="mean"), ragged),
    ):
        alone = model_rate(model, masker(bag))
        line(f"ImageBag, 5 images of 64², {name}, segments", masking_rate(masker, bag), "DeepSets", alone)
        line(
            f"ImageBag, 5 images of 64², {name}, images",
            masking_rate(masker, bag, level=0),
            "DeepSets",
            alone,
        )


def grid(image: np.ndarray) -> np.ndarray:
    """A label map of 7 x 7 squares; segmenting is done once for each input and not part of these figures."""
    height, width = image.shape[:2]
    return 7 * (np.arange(height)[:, None] * 7 // height) + np.arange(width)[None] * 7 // width


def text_beside_demo() -> None:
    try:
        from c2fa.models.local.demo import DemoSentiment

        model = DemoSentiment()
        model(["good"])
    except (ImportError, OSError):
        return
    x = review(100)
    line("Text, 100 words", masking_rate(maskers.Text(), x), "demo model", model_rate(model, maskers.Text()(x)))


MEMORY = """
import sys, time
import numpy as np
sys.path.insert(0, {folder!r})
from masking import grid, peak
from c2fa import maskers

def model(batch):
    return [sum(int(image[0, 0, 0]) for image in bag) for bag in batch]

rng = np.random.default_rng(0)
bag = [rng.integers(0, 256, (224, 224, 3)).astype(np.uint8) for _ in range(64)]
before = peak()
masked = maskers.ImageBag(grid, absent={absent!r})(bag)
masks = rng.random((1000, masked.structure.widths[{level}])) < 0.5
begin = time.process_time()
for start in range(0, 1000, 64):
    model(masked.inputs(masks[start : start + 64], {level}))
print(peak(), before, time.process_time() - begin)
"""


def peak() -> float:
    """The most memory, in bytes, that this process ever held."""
    try:
        with open("/proc/self/status") as status:
            return next(float(row.split()[1]) * 1024 for row in status if row.startswith("VmHWM"))
    except OSError:
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return float(used if sys.platform == "darwin" else used * 1024)


def memory() -> None:
    """The peak of a process of its own that masks a bag of 64 images of 224 x 224 a thousand times."""
    print("a bag of 64 images of 224² (uint8), 1,000 masks in batches of 64")
    folder = os.path.dirname(os.path.abspath(__file__))
    for absent in ("remove", "fill"):
        for level, name in ((0, "images"), (1, "segments")):
            script = MEMORY.format(folder=folder, absent=absent, level=level)
            done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
            most, before, spent = map(float, done.stdout.split())
            print(
                f"  absent={absent!r:<9} {name:<9} masked   peak {most / 1e6:>6,.0f} MB "
                f"({'under' if most < 1e9 else 'OVER'} 1 GB; {before / 1e6:,.0f} MB before masking)   "
                f"{1000 / spent:>9,.0f} rows/s",
                flush=True,
            )


def main() -> None:
    if os.environ.get("OMP_NUM_THREADS") != "1":  # libraries read it when they are loaded
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "OMP_NUM_THREADS": "1"})
    wanted = sys.argv[1:] or ["text", "models", "memory"]
    for name in wanted:
        {"text": text, "models": models, "memory": memory}[name]()


if __name__ == "__main__":
    main()

"""Examples of explanations: kept by a run, drawn later without the network or the data.

``examples.json`` in a folder of results lists them, each with its prediction, budget and the attributions of every
method; the pictures of bags are in ``examples.npz`` beside it (JPEG bytes and label maps), under the example's name.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from c2fa.plots._style import INK, MUTED, figure, largest, paint, width_of
from c2fa.plots.maps import ImagesDisplay, Panel, outlines
from c2fa.plots.text import Bar, _bars, _place
from c2fa.views.images import tint

Values = Mapping[str, tuple[npt.ArrayLike, npt.ArrayLike]]
"""For each method its attributions: of parts (HiFAs), of leaves (LoFAs)."""

SHOWN = 0.3  # super-pixels of less than this share of the largest attribution are not tinted
QUALITY = 92  # of the pictures that are kept
TOP = 5


@dataclass(frozen=True, eq=False)
class BagExample:
    """A bag of images.

    Parameters
    ----------
    name
        What it is called in files.
    images
        (J, H, W, 3) uint8.
    labels
        The super-pixels of each image, (J, H, W), each image's from 0.
    positive
        Which images are positive, (J,).
    values
        Attributions by method; leaves run through the images in order.
    prediction
        What the network says of the bag.
    budget
        (N_H, N_L).
    """

    name: str
    images: npt.NDArray[np.uint8]
    labels: npt.NDArray[Any]
    positive: npt.ArrayLike
    values: Values
    prediction: float
    budget: tuple[int, int]


@dataclass(frozen=True, eq=False)
class ReviewExample:
    """A review.

    Parameters
    ----------
    pieces
        The word pieces; one that continues a word begins with ``##``.
    owner
        The sentence of each piece.
    sentences
        The sentences as they were written.
    values
        Attributions by method.
    prediction
        The probability of the class that is explained.
    target
        The name of that class.
    budget
        (N_H, N_L).
    """

    name: str
    pieces: Sequence[str]
    owner: npt.ArrayLike
    sentences: Sequence[str]
    values: Values
    prediction: float
    target: str
    budget: tuple[int, int]


Example = BagExample | ReviewExample


def save_example(folder: Path | str, example: Example) -> None:
    """Add an example to a folder of results; one of the same name is replaced."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    listed = {one["name"]: one for one in _listed(folder)}
    entry: dict[str, Any] = {
        "name": example.name,
        "prediction": round(float(example.prediction), 6),
        "budget": list(example.budget),
        "values": {method: [_numbers(v) for v in pair] for method, pair in example.values.items()},
    }
    if isinstance(example, BagExample):
        entry["positive"] = np.asarray(example.positive, dtype=bool).tolist()
        arrays = _arrays(folder)
        arrays = {key: value for key, value in arrays.items() if key.partition("/")[0] != example.name}
        for j, image in enumerate(example.images):
            arrays[f"{example.name}/image/{j}"] = np.frombuffer(_jpeg(image), dtype=np.uint8)
        arrays[f"{example.name}/labels"] = np.asarray(example.labels, dtype=np.uint16)
        half = folder / "examples.half"
        with half.open("wb") as file:
            np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
        os.replace(half, folder / "examples.npz")
    else:
        entry |= {
            "pieces": list(example.pieces),
            "owner": np.asarray(example.owner, dtype=int).tolist(),
            "sentences": list(example.sentences),
            "target": example.target,
        }
    listed[example.name] = entry
    (folder / "examples.json").write_text(
        json.dumps(list(listed.values()), ensure_ascii=False, indent=1), encoding="utf-8"
    )


def load_examples(folder: Path | str) -> list[Example]:
    """The examples of a folder of results; none where it has none."""
    folder = Path(folder)
    arrays = _arrays(folder)
    examples: list[Example] = []
    for one in _listed(folder):
        values = {method: (np.array(a), np.array(b)) for method, (a, b) in one["values"].items()}
        budget = (int(one["budget"][0]), int(one["budget"][1]))
        if "pieces" in one:
            examples.append(
                ReviewExample(
                    one["name"],
                    one["pieces"],
                    np.array(one["owner"]),
                    one["sentences"],
                    values,
                    one["prediction"],
                    one["target"],
                    budget,
                )
            )
        else:
            positive = np.array(one["positive"])
            images = np.stack([_pixels(arrays[f"{one['name']}/image/{j}"]) for j in range(len(positive))])
            labels = arrays[f"{one['name']}/labels"]
            examples.append(BagExample(one["name"], images, labels, positive, values, one["prediction"], budget))
    return examples


def _listed(folder: Path) -> list[dict[str, Any]]:
    path = folder / "examples.json"
    return list(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else []


def _arrays(folder: Path) -> dict[str, npt.NDArray[Any]]:
    path = folder / "examples.npz"
    if not path.exists():
        return {}
    with np.load(path) as kept:
        return dict(kept)


def _numbers(values: npt.ArrayLike) -> list[float]:
    return [float(f"{v:.5g}") for v in np.asarray(values, dtype=np.float64)]


def _jpeg(image: npt.NDArray[np.uint8]) -> bytes:
    from PIL import Image

    made = io.BytesIO()
    Image.fromarray(image).save(made, "JPEG", quality=QUALITY)
    return made.getvalue()


def _pixels(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(data.tobytes())).convert("RGB"))


# ------------------------------------------------------------------------------------------------ drawing


def draw_examples(domain: str, folder: Path | str) -> dict[str, Figure]:
    """A figure for each example of a folder of results, by the name of its file."""
    return {f"{domain}-example-{one.name}": draw_example(one) for one in load_examples(folder)}


def draw_example(example: Example) -> Figure:
    """Draw an example as the paper does: the input above, each method below it."""
    return draw_bag(example) if isinstance(example, BagExample) else draw_review(example)


def draw_bag(example: BagExample) -> Figure:
    """Images with the positive ones framed; below, super-pixels tinted by LoFA under the image's HiFA."""
    starts = np.concatenate([[0], np.cumsum([int(labels.max()) + 1 for labels in example.labels])])
    rows = []
    for method, (parts, leaves) in example.values.items():
        high, low = (np.asarray(v, dtype=np.float64) for v in (parts, leaves))
        shares = low / largest(low)
        shares = np.where(np.abs(shares) < SHOWN, 0.0, shares)
        panels = tuple(
            Panel(
                f"HiFA {_signed(float(high[j]), 2)}",
                tint(image, shares[starts[j] + example.labels[j].astype(int)]),
                edges=outlines(example.labels[j]),
            )
            for j, image in enumerate(example.images)
        )
        rows.append((method, panels))
    n_h, n_l = example.budget
    positive = np.asarray(example.positive).tolist()
    display = ImagesDisplay(
        images=tuple(Panel("positive" * p, image, p) for image, p in zip(example.images, positive, strict=True)),
        rows=tuple(rows),
        title=f"cat: {example.prediction:.3f} · N_H = {n_h}, N_L = {n_l} · super-pixels above {SHOWN:g} of the largest",
        scale=None,
    )
    return display.draw()


_SIZE, _LINE, _WIDTH, _MARGIN = 10.0, 18.0, 560.0, 14.0  # points


def draw_review(example: ReviewExample) -> Figure:
    """The review with each method's top five pieces marked; below, bars of its sentences and of those pieces."""
    methods = list(example.values)
    low = {m: np.asarray(example.values[m][1], dtype=np.float64) for m in methods}
    top = {m: np.argsort(-low[m], kind="stable")[:TOP] for m in methods}
    placed, lines = _lay_out(example)
    count = len(example.sentences)
    bars = 15.0 * max(count, TOP)
    head, key = 24.0, 26.0
    passage = lines * _LINE
    height = head + passage + key + len(methods) * (bars + 52) + 6
    made = figure((_WIDTH + 2 * _MARGIN) / 72, height / 72)
    made.set_layout_engine("none")
    ax = _place(made, _MARGIN, head, _WIDTH, passage)
    ax.set_xlim(0, _WIDTH)
    ax.set_ylim(lines, 0)
    ax.axis("off")
    n_h, n_l = example.budget
    title = f"{example.target}: {example.prediction:.3f} · N_H = {n_h}, N_L = {n_l}"
    ax.set_title(title, loc="left", fontsize=10, weight="bold", color=INK, parse_math=False)
    for text, x, width, line, leaf in placed:
        for k, method in enumerate(methods):
            if leaf in top[method]:
                _mark(ax, x, width, line, k)
        bold = leaf < 0
        ax.text(
            x,
            line + 0.68,
            text,
            fontsize=_SIZE,
            va="baseline",
            color=MUTED if bold else INK,
            weight="bold" if bold else "normal",
            parse_math=False,
        )
    _key(made, methods, head + passage + 4)
    for k, method in enumerate(methods):
        above = head + passage + key + k * (bars + 52) + 30
        parts = np.asarray(example.values[method][0], dtype=np.float64)
        left = _place(made, _MARGIN + 30, above, 190, bars)
        rows = max(count, TOP)
        sentences = [Bar(f"S{j + 1}", v, None, _signed(v)) for j, v in enumerate(parts.tolist())]
        _bars(left, sentences, f"{method}: sentences (HiFA)", 30, rows)
        right = _place(made, _MARGIN + 370, above, 140, bars)
        words = []
        for i in top[method]:
            value = float(low[method][i])
            name = f"{example.pieces[i]}  (S{np.asarray(example.owner)[i] + 1})"
            words.append(Bar(name, value, None, _signed(value)))
        _bars(right, words, f"{method}: top {TOP} words (LoFA)", 84, rows)
    return made


def _signed(value: float, digits: int = 3) -> str:
    text = f"{value:+.{digits}f}".replace("-", "−")
    return text if float(f"{value:.{digits}f}") else text[1:]


def _lay_out(example: ReviewExample) -> tuple[list[tuple[str, float, float, int, int]], int]:
    """Pieces where they stand, (text, x, width, line, leaf), every sentence on a new line; how many lines there are."""
    placed: list[tuple[str, float, float, int, int]] = []
    indent = width_of("S10:", _SIZE, True) + 8
    at, line, before = 0.0, -1, -1
    for leaf, (piece, part) in enumerate(zip(example.pieces, np.asarray(example.owner).tolist(), strict=True)):
        joined = piece.startswith("##")
        text = piece[2:] if joined else piece
        width = width_of(text, _SIZE)
        if part != before:
            line, at, before = line + 1, indent, part
            placed.append((f"S{part + 1}:", 0.0, 0.0, line, -1))
        else:
            at += 0.6 if joined else 4.2
        if at + width > _WIDTH and any(map(str.isalnum, text)):  # no line of a full stop alone
            line, at = line + 1, indent
        placed.append((text, at, width, line, leaf))
        at += width
    return placed, line + 1


_FILL = ("#bcd8f0", "none", "none", "none")
_EDGE = ("none", paint(-1.0), "#2e7d4f", "#7b4fa3")


def _mark(ax: Any, x: float, width: float, line: float, k: int) -> None:
    """The first method's words are filled, those of the others framed, each a little wider than the last."""
    out = 1.2 + 1.1 * max(0, k - 1)
    ax.add_patch(
        FancyBboxPatch(
            (x - out, line + 0.10 - 0.05 * max(0, k - 1)),
            width + 2 * out,
            0.78 + 0.10 * max(0, k - 1),
            boxstyle="round,pad=0,rounding_size=2.2",
            mutation_aspect=1 / _LINE,
            fc=_FILL[k % 4],
            ec=_EDGE[k % 4],
            lw=1.1 if k else 0,
            zorder=1 + k,
        )
    )


def _key(made: Figure, methods: Sequence[str], above: float) -> None:
    ax = _place(made, _MARGIN, above, _WIDTH, _LINE)
    ax.set_xlim(0, _WIDTH)
    ax.set_ylim(1, 0)
    ax.axis("off")
    at = width_of("S10:", _SIZE, True) + 8
    for k, method in enumerate(methods):
        text = f"top {TOP} of {method}"
        width = width_of(text, 8.5) + 2
        _mark(ax, at, width, 0, k)
        ax.text(at + 1, 0.66, text, fontsize=8.5, va="baseline", color=INK, parse_math=False)
        at += width + 18

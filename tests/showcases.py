"""Explanations of constructed models, of every kind of input, for the tests of what is drawn."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

import c2fa

REVIEW = (
    "The room was bright and the bed was wonderful. Breakfast, however, was a disappointment: cold eggs, weak "
    "coffee and a terrible queue. The staff at the desk were friendly and helped us find a great restaurant. "
    "Our shower leaked, and nobody came to fix it although we complained twice. "
    "All the same I would stay here again, because the view over the harbour is simply excellent!"
)
_MOOD = {
    "bright": 0.5, "wonderful": 1.6, "disappointment": -1.7, "cold": -0.6, "weak": -0.5, "terrible": -1.8,
    "friendly": 1.0, "helped": 0.6, "great": 1.2, "leaked": -0.8, "nobody": -0.5, "complained": -1.1,
    "again": 0.7, "excellent": 1.9, "simply": 0.2, "good": 0.8, "bad": -0.9, "slow": -0.6, "fine": 0.4,
}  # fmt: skip


def mood(texts: list[str]) -> np.ndarray:
    """A model of three classes that reads single words, and doubts a text that says "however"."""
    scores = []
    for text in texts:
        words = [w.strip(".,!:;\"'").lower() for w in text.split()]
        score = sum(_MOOD.get(w, 0.0) for w in words) * (0.8 if "however" in words else 1.0)
        scores.append([-score, 0.6, score])
    raw = np.exp(np.array(scores) / 4)
    return raw / raw.sum(axis=1, keepdims=True)


def explain_text(text: str = REVIEW, budget: Any = (50, 300), model: Callable[..., Any] = mood, **options: Any) -> Any:
    names = ("negative", "neutral", "positive") if model is mood else None
    options = {"target": "positive" if model is mood else None, **options}
    return c2fa.Explainer(model, c2fa.maskers.Text(), budget=budget, output_names=names, progress=False, **options)(
        text
    )


LETTER = (
    "We arrived late. Nobody helped, and the room was bad.\n\nBreakfast was great. The friendly staff helped. "
    "It rained.<br><br>All in all it was excellent! The lift was slow."
)


def explain_letter() -> Any:
    """A text of three levels, one of whose paragraphs holds sentences of both signs."""
    masker = c2fa.maskers.Text(levels=("paragraphs", "sentences", "words"))
    names = ("negative", "neutral", "positive")
    return c2fa.Explainer(mood, masker, budget=200, output_names=names, target="positive", progress=False)(LETTER)


def long_text(words: int = 2000, seed: int = 0) -> str:
    rng = np.random.default_rng(seed)
    filler = [
        "the",
        "a",
        "of",
        "we",
        "hotel",
        "night",
        "city",
        "room",
        "walk",
        "with",
        "in",
        "on",
        "at",
        "table",
        "two",
    ]
    pool = np.array([*filler, *filler, *_MOOD])
    out, left = [], words
    while left > 0:
        n = int(min(rng.integers(6, 22), left))
        sentence = " ".join(rng.choice(pool, n))
        out.append(sentence.capitalize() + ".")
        left -= n
    return " ".join(out)


def picture(kind: int, side: int = 96, seed: int = 0) -> np.ndarray:
    """A landscape; kind 1 has a yellow sun in it, kind 2 a red house."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:side, 0:side] / side
    hill = 0.62 + 0.1 * np.sin(4 * x + rng.uniform(0, 6)) + 0.05 * np.sin(11 * x)
    sky = np.stack([110 + 90 * y, 160 + 60 * y, 225 - 20 * y], axis=-1)
    grass = np.stack([70 + 60 * y, 130 - 20 * y, 60 + 0 * y], axis=-1)
    image = np.where((y > hill)[..., None], grass, sky)
    if kind == 1:
        image[(x - 0.68) ** 2 + (y - 0.25) ** 2 < 0.016] = (250, 210, 60)
    if kind == 2:
        image[(abs(x - 0.35) < 0.12) & (abs(y - 0.62) < 0.11)] = (176, 58, 46)
        image[(abs(x - 0.35) < 0.16 - (0.52 - y) * 1.0) & (y > 0.4) & (y < 0.52)] = (92, 51, 40)
    return np.clip(image + rng.normal(0, 6, image.shape), 0, 255).astype(np.uint8)


def tiles(image: np.ndarray) -> np.ndarray:
    """Super-pixels without a library: wavy tiles."""
    y, x = np.mgrid[0 : image.shape[0], 0 : image.shape[1]]
    row = ((y + 3 * np.sin(x / 7)) * 6 / image.shape[0]).clip(0, 5).astype(int)
    column = ((x + 3 * np.sin(y / 6)) * 6 / image.shape[1]).clip(0, 5).astype(int)
    return row * 6 + column


def sunny(bags: Any) -> np.ndarray:
    """Whether there is a sun in any image of a bag, or houses, which speak against it."""
    out = []
    for images in bags:
        sun = house = 0.0
        for image in images:
            r, g, b = (image[..., k].astype(float) for k in range(3))
            sun += float(np.mean((r > 220) & (g > 180) & (b < 110)))
            house += float(np.mean((r > 150) & (g < 85) & (b < 80)))
        p = 1 / (1 + np.exp(-(90 * sun - 25 * house - 2)))
        out.append([1 - p, p])
    return np.array(out)


def explain_images(kinds: tuple[int, ...] = (0, 2, 1, 0, 2), side: int = 96, seed: int = 0, **options: Any) -> Any:
    images = [picture(kind, side, seed + j) for j, kind in enumerate(kinds)]
    masker = c2fa.maskers.ImageBag(segment=tiles, fill=128)
    options = {"budget": (25, 250), "target": "sunny", **options}
    return c2fa.Explainer(sunny, masker, output_names=("not sunny", "sunny"), progress=False, **options)(images)


def explain_image(**options: Any) -> Any:
    masker = c2fa.maskers.ImageBag(segment=tiles, regions=_quarters, fill=128)
    model = lambda batch: sunny([image] for image in batch)  # noqa: E731
    options = {"budget": (16, 200), "target": 1, **options}
    return c2fa.Explainer(model, masker, output_names=("not sunny", "sunny"), progress=False, **options)(picture(1))


def _quarters(image: np.ndarray) -> np.ndarray:
    y, x = np.mgrid[0 : image.shape[0], 0 : image.shape[1]]
    return (2 * (y >= image.shape[0] // 2) + (x >= image.shape[1] // 2)).astype(int)


def explain_table(**options: Any) -> Any:
    groups = {
        "income": ["salary", "bonus", "years in job"],
        "debts": ["mortgage", "card balance", "late payments"],
        "person": ["age", "town", "children"],
    }
    row = {
        "salary": 58000.0, "bonus": 4200.0, "years in job": 7, "mortgage": 210000.0, "card balance": 6400.0,
        "late payments": 3, "age": 41, "town": "Zürich", "children": 2,
    }  # fmt: skip
    usual = {**row, "salary": 47000.0, "bonus": 1000.0, "years in job": 4, "mortgage": 120000.0}
    usual.update({"card balance": 1500.0, "late payments": 0, "age": 38, "town": "Basel", "children": 1})

    def model(rows: list[dict[str, Any]]) -> np.ndarray:
        z = [
            0.00004 * (r["salary"] - 47000) + 0.0001 * r["bonus"] + 0.06 * r["years in job"]
            - 0.000004 * r["mortgage"] - 0.00011 * r["card balance"] - 0.45 * r["late payments"]
            + (0.2 if r["town"] == "Zürich" else 0.0) + 0.6
            for r in rows
        ]  # fmt: skip
        p = 1 / (1 + np.exp(-np.array(z)))
        return np.stack([1 - p, p], axis=1)

    masker = c2fa.maskers.Tabular(groups, background=[usual], strategy="row")
    options = {"budget": (8, 120), "target": "granted", **options}
    return c2fa.Explainer(model, masker, output_names=("refused", "granted"), progress=False, **options)(row)


def explain_series(order: str = "channels", **options: Any) -> Any:
    rng = np.random.default_rng(3)
    t = np.arange(240)
    values = np.stack([np.sin(t / (7 + 4 * c)) + 0.15 * rng.normal(size=240) for c in range(3)])
    values[1, 120:144] += 2.2
    values[2, 48:72] -= 1.5
    weights = np.zeros((3, 240))
    weights[1, 120:144], weights[2, 48:72], weights[0] = 0.03, 0.02, 0.002
    model = lambda batch: 1 / (1 + np.exp(-(np.asarray(batch) * weights).sum(axis=(1, 2))))  # noqa: E731
    masker = c2fa.maskers.TimeSeries(windows=10, order=order, names=["pulse", "pressure", "breath"])
    options = {"budget": (16, 240), **options}
    return c2fa.Explainer(model, masker, output_names=("alarm",), progress=False, **options)(values)


def explain_bag(**options: Any) -> Any:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(6, 5))
    model = lambda bags: np.array([np.tanh(0.4 * np.sum(b[:, 0] - b[:, 3])) for b in bags])  # noqa: E731
    masker = c2fa.maskers.Bag(absent="fill", names=["width", "height", "weight", "price", "age"])
    return c2fa.Explainer(model, masker, budget=(30, 200), progress=False, **options)(x)


def explain_array(groups: list[str], names: list[str] | None = None, zero: bool = False, **options: Any) -> Any:
    s = c2fa.Structure.from_groups(groups, names=names)
    weights = np.zeros(s.leaves) if zero else np.random.default_rng(1).normal(size=s.leaves) / 5
    options = {"budget": (60, 400), **options}
    return c2fa.Explainer(lambda b: b @ weights, c2fa.maskers.Array(s), progress=False, **options)(np.ones(s.leaves))


def explain_deep() -> Any:
    """Three levels: floors of rooms of things."""
    tree = {
        "ground floor": {"kitchen": ["oven", "sink", "fridge"], "hall": ["lamp", "mirror"]},
        "first floor": {"bath": ["shower", "tub"], "study": ["desk", "chair", "shelf", "books"]},
        "garden": {"shed": ["mower", "spade"]},
    }
    s = c2fa.Structure.from_tree(tree)
    weights = np.random.default_rng(4).normal(size=s.leaves)
    return c2fa.Explainer(lambda b: b @ weights, c2fa.maskers.Array(s), budget=200, progress=False)(np.ones(s.leaves))


HOSTILE = (
    "<script>window.hacked = 1</script> was a great start. "
    '</script><img src=x onerror="window.hacked = 2"> --> <!-- terrible \' " ` ${1+1} {{ 7*7 }} &amp; &lt;b&gt;. '
    "A line\u2028separator and a\u2029paragraph, javascript:alert(1) <style>*{display:none}</style> excellent!"
)
HEBREW = "החדר היה נפלא והמיטה נוחה מאוד. ארוחת הבוקר הייתה מאכזבת והקפה היה חלש. הצוות היה אדיב מאוד!"


def explain_hebrew() -> Any:
    good = {"נפלא": 1.2, "נוחה": 0.5, "מאכזבת": -1.5, "חלש": -0.6, "אדיב": 1.0}

    def model(texts: list[str]) -> np.ndarray:
        return np.tanh([sum(good.get(w.strip(".!"), 0.0) for w in t.split()) / 2 for t in texts])

    return c2fa.Explainer(model, c2fa.maskers.Text(language="he"), budget=(20, 150), progress=False)(HEBREW)


class Reader:
    """Stands for a language model: sentences in its prompt make the words of an answer likelier by known amounts."""

    name = "reader"

    def __init__(self, answer: str, worth: list[tuple[str, str, float]]) -> None:
        self.answer, self.worth = answer, worth

    def generate(self, prompt: str) -> str:
        return self.answer

    def pieces(self, answer: str) -> list[str]:
        return re.findall(r"\s*\S+|\s+\Z", answer)

    def score(self, prompts: list[str], answer: str) -> np.ndarray:
        starts = np.cumsum([0, *map(len, self.pieces(answer))])[:-1]
        rows = np.full((len(prompts), len(starts)), -4.0)
        for text, said, nats in (known for known in self.worth if known[1] in answer):
            piece = np.searchsorted(starts, answer.index(said), side="right") - 1
            rows[:, piece] += [nats * (text in prompt) for prompt in prompts]
        # What no sentence accounts for, so that there are standard errors.
        return rows + 0.01 * np.sin([[len(prompt) + 7.0 * k for k in range(len(starts))] for prompt in prompts])


DOCUMENTS = {
    "rivers.md": "The Rhine flows through Basel. It is long. Swans like it.",
    "hills <script>window.hacked = 1</script>": "The Gurten is a hill near Bern. From there one sees <b>the Alps</b>. "
    "</script><img src=x onerror='window.hacked = 2'> is no tag here.",
    "cities.md": "Basel has a port.\n\nBern is the capital. Bern has bears. Some say that it is Zürich.",
}
ANSWER = "Bern is the capital. The Rhine flows through Basel. Zermatt bans <cars>. Swans fear the Alps."
WORTH = [
    ("Bern is the capital", "Bern is", 9.0),
    ("Some say", "Bern is", -2.0),
    ("Rhine flows", "The Rhine", 8.0),
    ("Basel has a port", "The Rhine", 2.0),
    ("Swans like", "Swans", 4.0),
    ("sees <b>the Alps", "Swans", -4.2),
]


def explain_answer(**options: Any) -> Any:
    """A cited answer: a statement with one source, one with two, one with none, one with sentences for and against."""
    given = {
        "budget": 64,
        "documents": DOCUMENTS,
        "query": "Which <capital>, which river?",
        "progress": False,
        **options,
    }
    return c2fa.cite(Reader(ANSWER, WORTH), **given)


def planted(e: Any, seed: int = 7) -> Any:
    """The same input with values from a generator, for pictures that must not change when a solver does."""
    rng = np.random.default_rng(seed)
    s = e.structure
    leaves = rng.standard_t(3, size=(s.leaves, len(e.columns))) / 20
    values = tuple(s.sums(leaves, k) for k in range(s.depth))
    changed = {name: getattr(e, name) for name in e.__dataclass_fields__}
    changed |= {"all_values": values, "all_stderr": tuple(np.full_like(v, 0.02) for v in values), "queries": 200}
    changed |= {"all_intercepts": tuple(np.full_like(b, 0.1) for b in e.all_intercepts)}
    return c2fa.Explanation(**changed)


def explain_contradiction(**options: Any) -> Any:
    """A bag whose instances, removed, and features, filled, say different things under the paper's masks."""
    model = lambda bags: np.array([len(bag) + np.sin(9 * np.sum(bag)) for bag in bags])  # noqa: E731
    bag = np.random.default_rng(0).normal(size=(5, 4))
    options = {"preset": "paper", "budget": 60, **options}
    return c2fa.Explainer(model, c2fa.maskers.Bag(absent="remove"), progress=False, **options)(bag)


class Counting:
    """The sum of the entries; knows its rows and its cost."""

    output_names = ("sum",)

    def __init__(self) -> None:
        self.rows, self.cost = 0, 0.0

    def __call__(self, batch: Any) -> Any:
        self.rows += len(batch)
        self.cost += 0.5 * len(batch)
        return batch @ np.arange(1.0, 7.0) + 4.0 * batch[:, 0] * batch[:, 5]


def live_vector() -> Any:
    """A vector on a page that answers back, explained from few rows."""
    masker = c2fa.maskers.Array(c2fa.Structure.from_groups("aaabbb"))
    return c2fa.Explainer(Counting(), masker, budget=12).live(np.ones(6))


def live_answer() -> Any:
    """A cited answer on a page that answers back."""
    return c2fa.Citer(Reader(ANSWER, WORTH)).live({"documents": DOCUMENTS, "query": "Which capital?"})

"""What ``benchmarks/unchanged.py`` explains: every masker, method, solver, penalty and option, on small models.

Cases rest on public names alone, so that the same file runs on both sides of a change of the insides; what left the
package is taken from ``experiments/variants``. A case is made
first and run later: what a version does not know (a method, an option, a name) is refused while it is made, and that
tells "this no longer exists" from "this gives another answer".
"""

from __future__ import annotations

import dataclasses
import functools
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from experiments.harness.tuning import tune
from experiments.variants import TopDownProportional

import c2fa
from c2fa.methods.c2fa import PAPER

Run = Callable[[], Any]

OWN = ("c2fa", "c2fa-milli", "c2fa-shap", "lime", "milli", "bu-lime", "td-lime", "td-milli", "td-lime-proportional")
PEERS = ("shap-partition", "shap-kernel", "lime-package", "captum-lime", "captum-kernelshap")
SAMPLERS = ("planned", "uniform", "paired", "keep", "lime-text", "exhaustive")
KERNELS = ("uniform", "cosine", "similarity", "shap")
SOLVERS = ("auto", "direct", "admm", "paper")
METRICS = (
    *("ndcg", "top1", "auroc", "auroc-within", "insertion", "deletion", "faithfulness", "aopc-r", "infidelity"),
    *("consistency", "mihl", "coverage", "stability", "deletion@0"),
)


@dataclass(frozen=True)
class Case:
    """One thing to be computed: ``make()`` prepares it, and what that returns computes it."""

    group: str
    name: str
    make: Callable[[], Run]


# ------------------------------------------------------------------------------------------------ models

_shake = 0.0


def shake(size: float) -> None:
    """Change every answer of every model from now on, by this share of it and each in its own way."""
    global _shake
    _shake = size


def shaken(answers: Any) -> np.ndarray:
    """The answers, moved as rounding would move them where that was asked for."""
    exact = np.asarray(answers, dtype=np.float64)
    return exact * (1.0 + _shake * np.cos(1e6 * exact)) if _shake else exact


def _answering(model: Callable[[Any], Any]) -> Callable[[Any], np.ndarray]:
    @functools.wraps(model)
    def answer(batch: Any) -> np.ndarray:
        return shaken(model(batch))

    return answer


def _waves(n: int, shift: float = 0.0) -> np.ndarray:
    """Numbers of both signs and many sizes that no generator has to be trusted for."""
    return np.sin(1.7 * np.arange(n) + 0.3 + shift) * (1.0 + 0.2 * (np.arange(n) % 5))


def _softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def _scores(batch: Any, outputs: int) -> np.ndarray:
    x = np.asarray(batch, dtype=np.float64)
    return np.stack([x @ _waves(x.shape[1], k) for k in range(outputs)], axis=1)


@_answering
def linear(batch: Any) -> Any:
    return _scores(batch, 1)[:, 0] + 0.25


@_answering
def saturating(batch: Any) -> Any:
    return np.tanh(_scores(batch, 1)[:, 0]) + 0.1 * np.cos(_scores(batch, 2)[:, 1])


@_answering
def classes(batch: Any) -> Any:
    return _softmax(_scores(batch, 3))


@_answering
def forty(batch: Any) -> Any:
    return np.tanh(_scores(batch, 40))


@_answering
def labels(batch: Any) -> Any:
    return np.eye(3)[_scores(batch, 3).argmax(axis=1)]


@_answering
def constant(batch: Any) -> Any:
    return np.full(len(batch), 0.7)


@_answering
def counts(batch: Any) -> Any:
    return np.exp(_scores(batch, 2)) + 1.0


@_answering
def gaps(batch: Any) -> Any:
    """No answer for some inputs, and for the whole input always one."""
    x = np.asarray(batch, dtype=np.float64)
    answers = np.tanh(_scores(x, 2))
    answers[(x[:, 1] == 0) & (x[:, -1] == 0)] = np.nan
    return answers


_WORDS = {"wonderful": 1.5, "good": 0.8, "slow": -0.6, "dull": -1.2, "not": -0.5, "cast": 0.2}


def _mood(text: str) -> float:
    words = [word.strip(".,!?").lower() for word in text.split()]
    score = sum(_WORDS.get(word, _small(word)) for word in words if word != "[mask]")
    return -score if "not" in words and "good" in words else score


def _small(word: str) -> float:
    """A little of its own for every word, so that no two matter exactly alike."""
    return 1e-4 * (sum(ord(letter) * (k + 1) for k, letter in enumerate(word)) % 997)


@_answering
def mood(texts: Any) -> Any:
    score = np.array([_mood(text) for text in texts])
    return np.stack([1 / (1 + np.exp(score)), 1 / (1 + np.exp(-score))], axis=1)


@_answering
def agrees(pairs: Any) -> Any:
    return np.array([np.tanh(_mood(pair["premise"]) * _mood(pair["hypothesis"])) for pair in pairs])


@_answering
def kept_words(batch: Any) -> Any:
    return np.array([np.tanh(_mood(" ".join(words))) for words in batch])


def _light(image: Any) -> float:
    pixels = np.asarray(image, dtype=np.float64) / 255.0
    rows = np.linspace(-1, 1, pixels.shape[0])[:, None]
    red = pixels[..., 0] if pixels.ndim == 3 else pixels
    return float((red * rows).mean() * 3 + red.max())


@_answering
def lights(bags: Any) -> Any:
    score = np.array([max((_light(image) for image in bag), default=0.0) for bag in bags])
    return np.stack([score, np.tanh(2 * score)], axis=1)


@_answering
def light(images: Any) -> Any:
    return np.array([_light(image) for image in images])


@_answering
def record(rows: Any) -> Any:
    """Rows of a table as frames, dicts or arrays."""
    if hasattr(rows, "to_numpy"):
        rows = rows.to_numpy()
    values = [list(row.values()) if isinstance(row, Mapping) else list(row) for row in rows]
    numbers = np.array([[float(len(v)) if isinstance(v, str) else float(v) for v in row] for row in values])
    return _softmax(_scores(numbers / 10.0, 2))


@_answering
def beat(batch: Any) -> Any:
    x = np.nan_to_num(np.asarray(batch, dtype=np.float64)).reshape(len(batch), -1)
    return np.stack([np.tanh(_scores(x, 1)[:, 0] / 5), np.abs(x).max(axis=1)], axis=1)


@_answering
def pooled(bags: Any) -> Any:
    """Multiple-instance: an attention over the instances that are there."""
    found = []
    for bag in bags:
        scores = _scores(bag, 2)
        share = np.exp(scores[:, :1]) / np.exp(scores[:, :1]).sum()
        found.append(np.tanh((share * scores).sum(axis=0)))
    return np.array(found)


# ------------------------------------------------------------------------------------------------ inputs


@dataclass(frozen=True)
class Scene:
    """An input with its masker and its model."""

    model: Callable[[Any], Any]
    masker: Callable[[], Any]
    x: Callable[[], Any]
    depth: int = 2


REVIEW = (
    "The cast is wonderful, and the songs are good. It is slow at first.\n\nI was not bored! The end is dull. "
    "Still a good film."
)
PAIR = {"premise": "A good film. Not slow.", "hypothesis": "The film is dull. The cast is good."}
GROUPS = ["a"] * 3 + ["b"] * 4 + ["c"] * 2 + ["d"] * 4 + ["e"]
DEEP = {
    "north": {"hills": ["a", "b", "c"], "coast": ["d", "e"]},
    "south": {"town": ["f", "g", "h"], "port": ["i"], "farms": ["j", "k"]},
    "west": ["l"],
}
COLUMNS = ["height", "weight", "age", "city", "income", "rent", "floor"]
ROW = [1.8, 80.0, 41, "Lyon", 30.5, 9.5, 3]
BACKGROUND = [
    *([1.6, 60.0, 20, "Rome", 20.0, 8.0, 1], [1.7, 75.5, 35, "Rome", 25.0, 7.5, 2]),
    *([1.9, 90.0, 50, "Oslo", 45.0, 12.0, 5], [1.5, 55.0, 64, "Brno", 15.5, 5.0, 0]),
]
COLUMN_GROUPS = {"body": ["height", "weight", "age"], "home": ["city", "rent", "floor"]}
COLUMN_TREE = {"person": {"body": ["height", "weight"], "other": ["age"]}, "money": {"out": ["rent"], "in": ["income"]}}


def grouped() -> c2fa.Structure:
    return c2fa.Structure.from_groups(GROUPS)


def deep() -> c2fa.Structure:
    return c2fa.Structure.from_tree(DEEP)


def flat(n: int = 9) -> c2fa.Structure:
    return c2fa.Structure.from_tree([f"f{i}" for i in range(n)])


def _array(structure: Callable[[], c2fa.Structure], model: Any, baseline: float = 0.0, depth: int = 2) -> Scene:
    return Scene(
        model,
        lambda: c2fa.maskers.Array(structure(), baseline=baseline),
        lambda: 0.4 + 0.1 * np.arange(structure().widths[-1]),
        depth,
    )


def _keep_words(x: Sequence[str], masks: np.ndarray, level: int) -> list[list[str]]:
    leaves = _word_structure(x).expand(masks, level)
    return [[word for word, on in zip(x, row, strict=True) if on] for row in leaves]


def _word_structure(x: Sequence[str]) -> c2fa.Structure:
    return c2fa.Structure.from_groups([i // 3 for i in range(len(x))])


def _images(n: int = 3, size: int = 12) -> list[np.ndarray]:
    y, x = np.mgrid[:size, : size + 2]
    found = []
    for k in range(n):
        waves = [np.sin((0.3 + 0.1 * k) * x + c) * np.cos(0.4 * y - k) for c in range(3)]
        found.append((127 + 120 * np.stack(waves, axis=2)).astype(np.uint8))
    return found


def _tiles(image: Any, side: int = 4) -> np.ndarray:
    y, x = np.mgrid[: image.shape[0], : image.shape[1]]
    return (y // side) * 10 + x // side


def _halves(image: Any) -> np.ndarray:
    return _tiles(image, 7)


def _frame(rows: Sequence[Sequence[Any]]) -> Any:
    import pandas as pd

    return pd.DataFrame([list(row) for row in rows], columns=COLUMNS)


def _numbers(rows: Sequence[Sequence[Any]]) -> np.ndarray:
    return np.array([[float(len(v)) if isinstance(v, str) else float(v) for v in row] for row in rows])


def _tabular(x: Any, background: Any, groups: Any = COLUMN_GROUPS, depth: int = 2, strategy: str = "mean") -> Scene:
    def masker() -> Any:
        return c2fa.maskers.Tabular(groups, background=background(), names=COLUMNS, strategy=strategy)

    return Scene(record, masker, x, depth)


def _series(order: str, fill: Any = "mean", windows: Any = 4, axis: int = 0, x: Any = None) -> Scene:
    return Scene(
        beat,
        lambda: c2fa.maskers.TimeSeries(windows=windows, order=order, fill=fill, time_axis=axis),
        x or (lambda: _recording().T if axis else _recording()),
    )


def _recording() -> np.ndarray:
    t = np.arange(24)[:, None]
    return np.sin(0.5 * t + np.arange(3)) + (t > 10) * np.array([1.0, -0.5, 0.2])


def _with_holes() -> np.ndarray:
    holes = _recording()
    holes[5:7, 1] = np.nan
    return holes


def _text(model: Any = mood, x: Any = REVIEW, depth: int = 2, **options: Any) -> Scene:
    return Scene(model, lambda: c2fa.maskers.Text(**options), lambda: x, depth)


def _bag(**options: Any) -> Scene:
    return Scene(pooled, lambda: c2fa.maskers.Bag(**options), lambda: _waves(20).reshape(5, 4))


def _image_bag(model: Any = lights, x: Callable[[], Any] = _images, **options: Any) -> Scene:
    return Scene(model, lambda: c2fa.maskers.ImageBag(**options), x)


def _function_masker() -> Any:
    return c2fa.maskers.Custom(_word_structure, _keep_words, allows_empty=False)


def _known_structure_masker() -> Any:
    x = REVIEW.split()[:11]
    return c2fa.maskers.Custom(_word_structure(x), _keep_words)


SCENES: Mapping[str, Scene] = {
    "array": _array(grouped, classes),
    "array-linear": _array(grouped, linear),
    "array-saturating": _array(grouped, saturating, baseline=-0.2),
    "array-labels": _array(grouped, labels),
    "array-constant": _array(grouped, constant),
    "array-forty": _array(grouped, forty),
    "array-flat": _array(flat, saturating, depth=1),
    "array-deep": _array(deep, classes, depth=3),
    "custom": Scene(kept_words, _function_masker, lambda: REVIEW.split()[:11]),
    "custom-nested": Scene(kept_words, _known_structure_masker, lambda: REVIEW.split()[:11]),
    "text": _text(),
    "text-words": _text(levels=("words",), depth=1),
    "text-deep": _text(levels=("paragraphs", "sentences", "words"), depth=3),
    "text-removed": _text(mask=None),
    "text-pair": _text(agrees, PAIR, levels=("texts", "sentences", "words"), depth=3),
    "images": _image_bag(segment=_tiles),
    "images-fill": _image_bag(segment=_tiles, absent="fill", fill="mean"),
    "images-segments": _image_bag(segment=_tiles, fill="segments"),
    "images-named": _image_bag(segment=_tiles, fill="blur", x=lambda: dict(zip("xyz", _images(), strict=True))),
    "image": _image_bag(light, lambda: _images(1, 16)[0], segment=_tiles, regions=_halves),
    "tabular-frame": _tabular(lambda: _frame([ROW]), lambda: _frame(BACKGROUND)),
    "tabular-dict": _tabular(lambda: dict(zip(COLUMNS, ROW, strict=True)), lambda: _frame(BACKGROUND)),
    "tabular-row": _tabular(lambda: _numbers([ROW])[0], lambda: _numbers(BACKGROUND[:1]), strategy="row"),
    "tabular-average": _tabular(lambda: _numbers([ROW])[0], lambda: _numbers(BACKGROUND), strategy="average"),
    "tabular-flat": _tabular(lambda: _numbers([ROW])[0], lambda: _numbers(BACKGROUND), groups=None, depth=1),
    "tabular-deep": _tabular(lambda: _numbers([ROW])[0], lambda: _numbers(BACKGROUND), COLUMN_TREE, depth=3),
    "series-channels": _series("channels"),
    "series-windows": _series("windows", fill="zero"),
    "series-linear": _series("channels", fill="linear", axis=1),
    "series-changes": _series("windows", fill=0.5, windows="changes"),
    "series-one": _series("channels", windows=[5, 9, 17], x=lambda: _recording()[:, 0]),
    "series-holes": _series("channels", x=_with_holes),
    "bag": _bag(),
    "bag-fill": _bag(absent="fill", fill="mean", names=["w", "x", "y", "z"]),
}
SEGMENTED: Mapping[str, Scene] = {
    "images-slic": _image_bag(segment="slic", options={"n_segments": 6}),
    "images-quickshift": _image_bag(x=lambda: _images(2, 10)),
    "image-slic": _image_bag(light, lambda: _images(1, 16)[0], segment="slic", regions=3),
}
TUPLES = {1: (40,), 2: (21, 40), 3: (11, 15, 40)}
# MILLI fits its parts by bare least squares: with fewer coalitions than parts, rounding decides.
RANKED = {1: (60,), 2: (41, 30), 3: (31, 15, 30)}


# ------------------------------------------------------------------------------------------------ explanations


def explained(group: str, scene: str, method: str = "c2fa", told: str = "", **options: Any) -> Case:
    """A case that explains a scene; ``told`` is what its name says of the options."""
    place = SCENES[scene] if scene in SCENES else SEGMENTED[scene]
    options = {"budget": _usual_budget(method, place), **options}
    budget = str(options["budget"]).replace(" ", "")
    name = "/".join(filter(None, (scene, method, told, f"budget={budget}")))
    return Case(group, name, lambda: _explaining(place, method, options))


def _usual_budget(method: str, scene: Scene) -> int | tuple[int, ...]:
    return RANKED[scene.depth] if method in ("milli", "td-milli") else 60


def _explaining(scene: Scene, method: str, options: Mapping[str, Any]) -> Run:
    explainer = c2fa.Explainer(scene.model, scene.masker(), **_chosen(method, _ready(options)))
    return lambda: explainer(scene.x())


def _chosen(method: str, options: dict[str, Any]) -> dict[str, Any]:
    """A method by its name, or by what a name of earlier versions stands for now."""
    if method == "c2fa-shap":
        return {"preset": "shap", **options}
    if method == "td-lime-proportional":
        preset = PAPER if options.pop("preset", None) == "paper" else {}
        names = {field.name for field in dataclasses.fields(TopDownProportional)}
        own = {name: value for name, value in preset.items() if name in names}
        return {"method": TopDownProportional(**own), **options}
    return {"method": method, **options}


def _ready(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options, with what a version may not have looked up only now."""
    return {name: value() if isinstance(value, Later) else value for name, value in options.items()}


@dataclass(frozen=True)
class Later:
    """An option that is made when its case is."""

    make: Callable[[], Any]

    def __call__(self) -> Any:
        return self.make()


def by_masker() -> Iterator[Case]:
    """Every input under every method of the package, and more rows or other budgets under the default one."""
    for name, scene in SCENES.items():
        for method in OWN:
            yield explained("maskers × methods", name, method)
        yield explained("maskers × budgets", name, budget=TUPLES[scene.depth])
        if scene.model not in (linear, constant):  # few rows and no noise: errors of nothing but rounding
            yield explained("maskers × budgets", name, budget=23)
        yield explained("maskers × budgets", name, "lime", budget=TUPLES[scene.depth], seed=3, told="seed=3")
        yield explained("maskers × paper", name, told="preset=paper", preset="paper")
    for name in SEGMENTED:
        yield explained("maskers × methods", name)
    for name in ("array", "array-flat", "array-deep"):
        yield Case("maskers × budgets", f"{name}/c2fa/default-budget", functools.partial(_by_default, name))


def _by_default(scene: str) -> Run:
    explainer = c2fa.Explainer(SCENES[scene].model, SCENES[scene].masker())
    return lambda: explainer(SCENES[scene].x())


def by_peer() -> Iterator[Case]:
    for method in PEERS:
        for scene in ("array", "array-flat", "array-deep", "text", "bag"):
            yield explained("peers", scene, method, budget=120 if scene == "text" else 40)


PENALTIES: Mapping[str, Any] = {
    "auto": "auto",
    "Auto": Later(lambda: c2fa.Auto()),
    "Auto(tail=inf)": Later(lambda: c2fa.Auto(tail=np.inf)),
    "Auto(output=1)": Later(lambda: c2fa.Auto(output=1)),
    "None": None,
    "L2": c2fa.L2(0.1),
    "L2(0)": c2fa.L2(0.0),
    "L2+": c2fa.L2(0.1, positive=True),
    "L1": c2fa.L1(0.02),
    "L1+": c2fa.L1(0.02, positive=True),
    "ElasticNet": c2fa.ElasticNet(0.02, 0.1),
    "ElasticNet+": c2fa.ElasticNet(0.02, 0.1, positive=True),
    "NonNegative": c2fa.NonNegative(),
}
MIXED: Mapping[str, Any] = {
    "L2,L1": (c2fa.L2(0.1), c2fa.L1(0.02)),
    "L1,L2": (c2fa.L1(0.02), c2fa.L2(0.3)),
    "L2,L2": (c2fa.L2(0.01), c2fa.L2(2.0)),
    "NonNegative,ElasticNet": (c2fa.NonNegative(), c2fa.ElasticNet(0.01, 0.05)),
    "L2(0),auto": Later(lambda: (c2fa.L2(0.0), c2fa.Auto())),
}


def by_penalty() -> Iterator[Case]:
    """Penalties under every solver at two levels; at one and three levels under the one that is chosen for them."""
    for solver in SOLVERS:
        for said, penalty in (*PENALTIES.items(), *MIXED.items()):
            told = f"{said}/{solver}"
            # The paper's solver keeps no smoother, and other solvers have none to keep on vectors.
            yield explained("penalties × solvers", "array", told=told, penalty=penalty, solver=solver, smooth=None)
    for said, penalty in PENALTIES.items():
        for scene in ("array-flat", "array-deep", "bag"):
            yield explained("penalties", scene, told=said, penalty=penalty)
        for method in ("lime", "c2fa-milli", "c2fa-shap", "bu-lime", "milli"):
            yield explained("penalties × methods", "array", method, told=said, penalty=penalty)
    yield from _by_solver_option()


def _by_solver_option() -> Iterator[Case]:
    told: Mapping[str, tuple[str, Any, dict[str, Any]]] = {
        "direct/stderr=False": ("direct", c2fa.L2(0.1), {"stderr": False}),
        "admm/tight": ("admm", c2fa.L1(0.02), {"atol": 1e-8, "rtol": 1e-8}),
        "admm/rho=3": ("admm", c2fa.ElasticNet(0.02, 0.1), {"rho": 3.0}),
        "admm/stopped": ("admm", c2fa.L1(0.02), {"max_iterations": 7}),
        "paper/mu": ("paper", c2fa.L2(0.1), {"mu1": 0.2, "mu2": 0.01}),
        "paper/eps": ("paper", c2fa.L2(1.0), {"eps1": 1e-7, "eps2": 1e-7}),
        "paper/stopped": ("paper", c2fa.L2(0.1), {"max_iterations": 5}),
    }
    for said, (solver, penalty, options) in told.items():
        yield explained("solvers", "array", told=said, penalty=penalty, solver=solver, solver_options=options)


def by_sampler() -> Iterator[Case]:
    for sampler in SAMPLERS:
        for scene in ("array", "array-flat", "array-deep", "bag"):
            for method in ("c2fa", "lime"):
                yield explained("samplers", scene, method, told=f"sampler={sampler}", sampler=sampler)
    yield explained("samplers", "array", told="sampler=exhaustive,paired", sampler=("exhaustive", "paired"))
    yield explained("samplers", "array", told="sampler=function", sampler=_mostly_on)
    for kernel in KERNELS:
        for scene in ("array", "array-flat", "array-deep", "bag"):
            for method in ("c2fa", "lime"):
                yield explained("kernels", scene, method, told=f"kernel={kernel}", kernel=kernel)
        yield explained("kernels", "array", told=f"kernel={kernel}/L2", kernel=kernel, penalty=c2fa.L2(0.1))
    yield explained("kernels", "array", told="kernel=shap,cosine", kernel=("shap", "cosine"))
    yield explained("kernels", "array", told="kernel=function", kernel=_by_size)


def _mostly_on(rng: np.random.Generator, n: int, width: int) -> np.ndarray:
    return rng.random((n, width)) < 0.8


def _by_size(masks: np.ndarray) -> np.ndarray:
    return 0.1 + masks.mean(axis=1)


def by_option() -> Iterator[Case]:
    for scene in ("array", "array-flat", "array-deep", "text"):
        for method in ("c2fa", "lime", "bu-lime"):
            yield explained("fit options", scene, method, told="intercept=False", intercept=False)
            yield explained("fit options", scene, method, told="anchor=False", anchor=False)
    yield explained("fit options", "array", told="intercept=True,False", intercept=(True, False))
    yield explained("fit options", "array", "c2fa-milli", told="curve", alpha=0.1, beta=1.0, carry=1.0, reuse=False)
    yield explained("fit options", "array", "milli", told="curve", alpha=0.2, beta=-1.0)
    for method in (method for method in OWN if method != "c2fa-shap"):  # its pins are too stiff for Algorithm 1
        yield explained("paper", "array", method, told="preset=paper", preset="paper", budget=(21, 60))
    for scene in ("text", "text-deep", "images", "image", "series-channels", "array"):
        for smooth in ("auto", None, 0.0, 1.0, 10.0, (0.0, 1.0, 10.0)):
            yield explained("smooth", scene, told=f"smooth={smooth}", smooth=smooth)
    yield explained("smooth", "text", told="smooth=1/L2", smooth=1.0, penalty=c2fa.L2(0.1))
    yield explained("smooth", "text", told="smooth=1/L1", smooth=1.0, penalty=c2fa.L1(0.02))


def by_link() -> Iterator[Case]:
    for link in ("identity", "logit", "log"):
        for method in ("c2fa", "lime", "milli", "c2fa-milli"):
            for scene in ("array", "text", "array-deep"):
                yield explained("links", scene, method, told=f"link={link}", link=link)
    yield explained("links", "array-saturating", told="link=logit", link="logit")  # answers below 0 are refused


def by_rule() -> Iterator[Case]:
    rules: Mapping[str, Any] = {
        "top3": Later(lambda: c2fa.until.top(3)),
        "top2@0": Later(lambda: c2fa.until.top(2, level=0)),
        "top3:0.8": Later(lambda: c2fa.until.top(3, confidence=0.8)),
        "stderr": Later(lambda: c2fa.until.stderr(0.05)),
        "stderr@0": Later(lambda: c2fa.until.stderr(0.08, level=0)),
        "words-top3": "top3",
        "words-stderr": "stderr:0.05",
        "function": _after_forty,
    }
    for said, rule in rules.items():
        for scene, budget in (("array", 150), ("array-deep", 120), ("text", (40, 100))):
            yield explained("until", scene, told=f"until={said}", until=rule, budget=budget)
    for method in ("lime", "milli", "c2fa-milli", "bu-lime", "td-lime"):
        yield explained("until", "array", method, told="until=stderr", until=rules["stderr"], budget=120)


def _after_forty(standing: Any) -> bool:
    return bool(standing.rows >= 40)


def by_output() -> Iterator[Case]:
    for outputs in ("auto", "all", "target"):
        for scene in ("array", "array-forty", "array-deep", "text"):
            yield explained("outputs", scene, told=f"outputs={outputs}", outputs=outputs)
            yield explained("outputs", scene, "lime", told=f"outputs={outputs}/target=1", outputs=outputs, target=1)
    named = {"output_names": ["red", "green", "blue"], "target": "green"}
    yield explained("outputs", "array", told="target=green", **named)
    yield explained("outputs", "array", "milli", told="target=green", **named)
    for size in (1, 7, 1000):
        yield explained("outputs", "array", told=f"batch_size={size}", batch_size=size)
    for seed in (1, 2, 12345):
        for method in OWN:
            yield explained("seeds", "array", method, told=f"seed={seed}", seed=seed)


def by_failure() -> Iterator[Case]:
    """Answers that are missing, with and without leave to drop them."""
    for method in OWN:
        for on_error in ("drop", "raise"):
            make = functools.partial(_with_gaps, method, on_error)
            yield Case("on_error", f"array-gaps/{method}/on_error={on_error}", make)


def _with_gaps(method: str, on_error: str) -> Run:
    scene = _array(grouped, gaps)
    return _explaining(scene, method, {"budget": _usual_budget(method, scene), "on_error": on_error})


def by_refusal() -> Iterator[Case]:
    """What cannot be done: that it is refused, and with which kind of error."""
    wrong: Mapping[str, tuple[str, str, dict[str, Any]]] = {
        "small-budget": ("array", "c2fa", {"budget": 2}),
        "small-ranking": ("array", "milli", {"budget": (4, 30)}),
        "budget-per-level": ("array", "c2fa", {"budget": (10, 10, 10)}),
        "budget-fraction": ("array", "c2fa", {"budget": 10.5}),
        "no-such-method": ("array", "none", {}),
        "no-such-option": ("array", "c2fa", {"nothing": 1}),
        "no-such-target": ("array", "c2fa", {"target": 7}),
        "no-such-link": ("array", "c2fa", {"link": "cube"}),
        "no-such-solver": ("array", "c2fa", {"solver": "none"}),
        "direct-l1": ("array", "c2fa", {"solver": "direct", "penalty": c2fa.L1(0.1)}),
        "paper-deep": ("array-deep", "c2fa", {"solver": "paper", "penalty": c2fa.L2(0.1), "smooth": None}),
        "smooth-nothing": ("array", "c2fa", {"smooth": 1.0}),
        "never-empty": ("custom", "shap-kernel", {}),
    }
    for said, (scene, method, options) in wrong.items():
        yield explained("refusals", scene, method, told=said, **options)


# ------------------------------------------------------------------------------------------------ files and stores


def by_file() -> Iterator[Case]:
    for scene in ("array", "text-deep", "images", "tabular-frame", "series-channels", "bag"):
        yield Case("files", f"{scene}/c2fa/saved-and-read", functools.partial(_saved, scene))
        yield Case("ledger", f"{scene}/c2fa/ledger", functools.partial(_kept, scene))
    for scene in ("array", "text", "bag", "array-deep"):
        for precision in ("float64", "float32"):
            make = functools.partial(_dataset, scene, {"precision": precision})
            yield Case("many", f"{scene}/c2fa/many/{precision}", make)
    yield Case("many", "array/lime/many/shards", functools.partial(_dataset, "array", {"shard_size": 2}, method="lime"))
    yield Case("many", "array/c2fa/many/failures", _failing_dataset)


def _saved(scene: str) -> Run:
    explain = _explaining(SCENES[scene], "c2fa", {"budget": 60})

    def run() -> dict[str, Any]:
        e = explain()
        found = {"from_json": c2fa.Explanation.from_json(e.to_json())}
        with tempfile.TemporaryDirectory() as folder:
            for ending in ("json",):
                path = Path(folder) / f"e.{ending}"
                e.save(path)
                found[ending] = c2fa.load(path)
        return {**found, "top": [value for _, value in e.top(5)], "list": [value for _, value in e.as_list(level=0)]}

    return run


def _kept(scene: str) -> Run:
    """The same input twice with a ledger, and with more rows: what is recalled is not asked again."""
    place = SCENES[scene]

    def run() -> list[Any]:
        with tempfile.TemporaryDirectory() as folder:
            common = {"ledger": Path(folder) / "ledger.db", "model_name": "m"}
            found = []
            for budget in (40, 40, 70):
                explainer = c2fa.Explainer(place.model, place.masker(), budget=budget, **common)
                found.append(explainer(place.x(), key="x"))
            return found

    return run


def _dataset(scene: str, options: Mapping[str, Any], method: str = "c2fa") -> Run:
    place = SCENES[scene]
    explainer = c2fa.Explainer(place.model, place.masker(), method=method, budget=40)
    inputs = _variants(place.x())

    def run() -> list[Any]:
        with tempfile.TemporaryDirectory() as folder:
            store = explainer.many(inputs, Path(folder) / "store", engine="serial", workers=1, **options)
            return [len(store), len(store.errors()), *(store[i] for i in range(len(store)))]

    return run


def _failing_dataset() -> Run:
    """Five inputs, one of which cannot be masked."""
    explainer = c2fa.Explainer(classes, SCENES["array"].masker(), budget=40)
    inputs = _variants(SCENES["array"].x())
    inputs[2] = inputs[2][:3]

    def run() -> list[Any]:
        with tempfile.TemporaryDirectory() as folder:
            store = explainer.many(inputs, Path(folder) / "store", engine="serial", workers=1, tries=1)
            return [len(store.errors()), *(_or_nothing(store, i) for i in range(len(store)))]

    return run


def _or_nothing(store: Any, i: int) -> Any:
    try:
        return store[i]
    except LookupError:
        return None


def _variants(x: Any) -> list[Any]:
    """Five inputs of the kind of one."""
    if isinstance(x, str):
        return [x, x + " A slow one.", "Good. Not dull.", x.upper(), "The cast is good, the end is slow."]
    return [x, x * 0.5, -x, x + 0.1, x[::-1].copy()]


# ------------------------------------------------------------------------------------------------ solve


def by_problem() -> Iterator[Case]:
    """Raw problems: every solver and penalty, odd weights, few and many rows, one output and many."""
    shapes = {"flat": flat, "two": grouped, "three": deep}
    penalties = {**PENALTIES}
    del penalties["auto"], penalties["None"]
    for shape, structure in shapes.items():
        for said, penalty in penalties.items():
            for outputs in (0, 2):
                name = f"solve/{shape}/{said}/outputs={outputs}"
                make = functools.partial(_problem, structure, penalty, outputs=outputs)
                yield Case("solve × penalties", name, make)
    for weights in ("zero", "huge", "tiny", "mixed"):
        for solver in SOLVERS:
            if (weights, solver) == ("mixed", "paper"):
                continue  # a step size for 1e40 and 1 at once does not exist
            for said in ("L2", "L1", "Auto"):
                name = f"solve/two/{said}/{solver}/weights={weights}"
                make = functools.partial(_problem, grouped, PENALTIES[said], solver=solver, weights=weights)
                yield Case("solve × weights", name, make)
    for rows in (1, 3, 80):
        for said in ("L2", "L2(0)", "L1", "Auto", "NonNegative"):
            for intercept in (False, True):
                name = f"solve/two/{said}/rows={rows}/intercept={intercept}"
                make = functools.partial(_problem, grouped, PENALTIES[said], rows=rows, intercept=intercept)
                yield Case("solve × rows", name, make)
    for said, penalties_ in MIXED.items():
        for solver in SOLVERS:
            make = functools.partial(_problem, grouped, penalties_, solver=solver, outputs=3)
            yield Case("solve × penalties", f"solve/two/{said}/{solver}", make)
    for said in ("L2", "Auto"):  # more leaves than rows: the other way round of the linear algebra
        for shape, structure in (("wide", _wide), ("wide-three", _wide_three)):
            make = functools.partial(_problem, structure, PENALTIES[said], rows=40, outputs=2, intercept=True)
            yield Case("solve × rows", f"solve/{shape}/{said}", make)


def _wide() -> c2fa.Structure:
    return c2fa.Structure.from_groups([i // 25 for i in range(300)])


def _wide_three() -> c2fa.Structure:
    return c2fa.Structure.from_tree([[[f"{i}{j}{k}" for k in range(9)] for j in range(3)] for i in range(6)])


_WEIGHTS: Mapping[str, Callable[[int], np.ndarray | None]] = {
    "": lambda n: None,
    "zero": lambda n: (np.arange(n) % 3 > 0) * 1.0,
    "huge": lambda n: np.full(n, 1e40),
    "tiny": lambda n: np.full(n, 1e-40),
    "mixed": lambda n: np.where(np.arange(n) == 1, 1e40, 1.0),
}


def _problem(
    structure: Callable[[], c2fa.Structure],
    penalty: Any,
    *,
    solver: str = "auto",
    rows: int = 30,
    outputs: int = 0,
    weights: str = "",
    intercept: bool = False,
) -> Run:
    s = structure()
    given = penalty() if isinstance(penalty, Later) else penalty
    each = given if isinstance(given, tuple) else (given,) * s.depth
    levels = tuple(
        _level(s, k, max(rows // (2 if k < s.depth - 1 else 1), 1), outputs, _WEIGHTS[weights], each[k], intercept)
        for k in range(s.depth)
    )
    problem = c2fa.Problem(s, levels)
    if weights == "mixed":  # 1e40 times a residual of rounding alone says nothing, so losses are left out
        return lambda: {"values": c2fa.solve(problem, solver=solver).values}
    return lambda: c2fa.solve(problem, solver=solver)


def _level(
    s: c2fa.Structure, k: int, rows: int, outputs: int, weights: Callable[[int], Any], penalty: Any, intercept: bool
) -> c2fa.Level:
    masks = np.random.default_rng([k, rows]).random((rows, s.widths[k])) < 0.6
    x = s.expand(masks, k) * (0.4 + 0.1 * (np.arange(s.widths[-1]) % 7))
    answers = np.tanh(_scores(x, max(outputs, 1)) / 3)
    answers = shaken(answers if outputs else answers[:, 0])
    return c2fa.Level(masks, answers, weights(rows), penalty=penalty, intercept=intercept)


# ------------------------------------------------------------------------------------------------ evaluation


def by_evaluation() -> Iterator[Case]:
    told = {
        "array": ("c2fa", "lime", "milli", "bu-lime", "td-lime", "c2fa-milli"),
        "array-deep": ("c2fa", "lime"),
        "text": ("c2fa", "lime", "td-lime"),
        "bag": ("c2fa", "lime", "milli"),
    }
    for scene, methods in told.items():
        rows = [method for method in methods if "milli" not in method]
        yield Case("evaluate", f"evaluate/{scene}/rows", functools.partial(_evaluation, scene, rows, [40, 80]))
        masks = [RANKED[SCENES[scene].depth]]
        yield Case("evaluate", f"evaluate/{scene}/masks", functools.partial(_evaluation, scene, methods, masks))
    settings = [("plain", "c2fa", {}), ("ridge", "c2fa", {"penalty": c2fa.L2(0.1)}), ("lime", "lime", {})]
    yield Case("evaluate", "evaluate/array/options", functools.partial(_evaluation, "array", settings, [48]))
    yield Case("evaluate", "evaluate/array/stored", _stored_evaluation)
    yield Case("evaluate", "tune/array", _tuning)
    yield Case("metrics", "metrics/functions", _functions)


def _evaluation(scene: str, methods: Sequence[Any], budgets: Sequence[Any]) -> Run:
    place = SCENES[scene]
    inputs = _variants(place.x())[:3]
    truths = [_truth(place.masker()(x).structure) for x in inputs]
    evaluate = c2fa.evaluate
    options = {"seeds": 2, "metrics": list(METRICS), "truths": truths, **_masks(budgets)}
    return lambda: evaluate(methods, inputs, place.model, place.masker(), **options)


def _masks(sizes: Sequence[Any]) -> dict[str, Any]:
    """Tuples are masks for each level; single numbers are rows in all."""
    return {"masks" if isinstance(sizes[0], tuple) else "budgets": sizes}


def _truth(s: c2fa.Structure) -> tuple[np.ndarray, ...]:
    return tuple((np.arange(width) % 3 == 1).astype(float) for width in s.widths)


def _stored_evaluation() -> Run:
    """Once, and again from what was stored."""
    place = SCENES["array"]
    inputs = _variants(place.x())[:3]

    def run() -> list[Any]:
        with tempfile.TemporaryDirectory() as folder:
            options = {"budgets": [30], "seeds": 2, "store": Path(folder) / "store", "model_name": "m"}
            return [c2fa.evaluate(["c2fa", "lime"], inputs, place.model, place.masker(), **options) for _ in range(2)]

    return run


def _tuning() -> Run:
    place = SCENES["array"]

    def run() -> dict[str, Any]:
        inputs = _variants(place.x())[:3]
        (found,) = tune({"": {}}, inputs, place.model, place.masker(), masks=[(20, 30)], seeds=1).values()
        return {"score": found.table["score"].tolist(), "chosen": [p.lam for p in found.options["penalty"]]}

    return run


def _functions() -> Run:
    """The metrics that need no model."""
    m = c2fa.metrics
    s = grouped()
    leaves = _waves(len(GROUPS))
    values = (s.sums(leaves, 0) + 0.1, leaves)
    truth = _truth(s)
    return lambda: {
        "ndcg": [m.ndcg(v, t) for v, t in zip(values, truth, strict=True)],
        "top1": [m.top1(v, t) for v, t in zip(values, truth, strict=True)],
        "auroc": [m.auroc(v, t) for v, t in zip(values, truth, strict=True)],
        "consistency": m.consistency(values, s),
        "mihl": m.mihl(values, s),
        "coverage": m.coverage(leaves, np.abs(leaves) / 2 + 0.1, leaves + 0.3),
        "stability": m.stability([leaves, leaves[::-1], leaves**2]),
    }


# ------------------------------------------------------------------------------------------------ citing and priors


class _Reading:
    """A language model whose log-probabilities follow from the words of its prompt."""

    name = "reading"

    def generate(self, prompt: str) -> str:
        return "The Rhine flows through Basel. Bern is the capital."

    def pieces(self, answer: str) -> list[str]:
        return answer.replace(" ", "| ").split("|")

    def score(self, prompts: Sequence[str], answer: str) -> np.ndarray:
        pieces = self.pieces(answer)
        rows = [
            [-4.0 + 3.0 * (piece.strip(" .") in p) + 0.2 * np.sin(len(p) + k) for k, piece in enumerate(pieces)]
            for p in prompts
        ]
        return shaken(-np.logaddexp(0.0, -np.array(rows)))


_DOCUMENTS = {
    "rivers": "The Rhine flows through Basel. It is long. Swans like it.",
    "hills": "The Gurten is a hill near Bern. From there one sees the Alps.",
    "cities": "Basel has a port.\n\nBern is the capital. Bern has bears.",
}


def by_citing() -> Iterator[Case]:
    for told, options in {
        "default": {},
        "given": {"answer": "Bern is the capital."},
        "words": {"levels": ("documents", "sentences", "words")},
        "paragraphs": {"levels": ("documents", "paragraphs", "sentences"), "budget": 40},
        "until": {"until": c2fa.until.top(1)},
        "context-cite": {"method": "context-cite"},
        "owen": {"method": "owen"},
        "similarity": {"similarity": "words"},
    }.items():
        yield Case("cite", f"cite/{told}", functools.partial(_citing, options))
    yield Case("cite", "cite/many", _citing_many)


def _citing(options: Mapping[str, Any]) -> Run:
    return lambda: c2fa.cite(_Reading(), _DOCUMENTS, "What is where?", **options)


def _citing_many() -> Run:
    citer = c2fa.Citer(_Reading(), budget=32)
    questions = [{"documents": _DOCUMENTS, "query": q} for q in ("What?", "Where?")]

    def run() -> list[Any]:
        with tempfile.TemporaryDirectory() as folder:
            store = citer.many(questions, Path(folder) / "store", engine="serial", workers=1)
            return [*store, *citer.many(questions)]

    return run


def by_prior() -> Iterator[Case]:
    for scene in ("array", "text", "tabular-frame"):
        for method in ("owen", "c2fa"):
            yield Case("prior", f"{scene}/{method}/prior", functools.partial(_with_prior, scene, method))


def _with_prior(scene: str, method: str) -> Run:
    place = SCENES[scene]
    explainer = c2fa.Explainer(place.model, place.masker(), method=method, budget=40)
    inputs = _variants(place.x()) if scene != "tabular-frame" else [place.x()] * 5

    def run() -> list[Any]:
        prior = c2fa.Prior.learn(list(explainer.many(inputs)))
        again = c2fa.Explainer(place.model, place.masker(), method=method, budget=24, prior=prior)
        return [again(x) for x in inputs]

    return run


def by_owen() -> Iterator[Case]:
    for name in SCENES:
        for method in ("owen", "shapley"):
            yield explained("owen", name, method)


# ------------------------------------------------------------------------------------------------ all of them

# Left out, because rounding alone moves them by more than what is allowed: coalitions that do not determine MILLI's
# parts, weights that differ by six orders, and curves of features that are equal but for rounding.
SENSITIVE = frozenset(
    {
        "images/c2fa-shap/budget=60",
        "images-fill/c2fa-shap/budget=60",
        "array/c2fa-milli/L1/budget=60",
        "text-deep/milli/budget=(31,15,30)",
        "text-deep/td-milli/budget=(31,15,30)",
        "tabular-dict/milli/budget=(41,30)",
        "tabular-row/milli/budget=(41,30)",
        "evaluate/array-deep/rows",
    }
)

ROOMS = (
    *(by_masker, by_penalty, by_sampler, by_option, by_link, by_rule, by_output, by_failure, by_refusal),
    *(by_file, by_problem, by_evaluation, by_peer, by_citing, by_prior, by_owen),
)


def cases() -> dict[str, Case]:
    """All cases by their names."""
    found: dict[str, Case] = {}
    for room in ROOMS:
        for case in room():
            if case.name in found:
                raise ValueError(f"two cases are called {case.name!r}; let their names tell them apart")
            found[case.name] = case
    return {name: case for name, case in found.items() if name not in SENSITIVE}

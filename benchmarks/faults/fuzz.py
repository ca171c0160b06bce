"""Public functions called with hostile arguments: a sound result, or an error of the library's own.

Every call begins with good arguments, of which one or two are replaced: by something that no one should give, or by
what someone might, such as the same value in a list.
"""

from __future__ import annotations

import contextlib
import datetime
import decimal
import fractions
import json
import random
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from benchmarks.faults import toys
from benchmarks.faults.tally import SHOWN, HangError, Tally, in_processes, time_limit
from scipy import sparse

import c2fa
from c2fa import batch, maskers, models, samplers, until
from c2fa.methods.budget import as_budget, rows_per_level

_SECONDS = 30.0  # of CPU time; the slowest solver takes some for a hopeless problem
_SHOWN = 100  # characters of an argument
X = toys.inputs(1)[0]
TABLE = pd.DataFrame({"a": [1.0, 2.0], "b": [3, 4], "c": ["x", "y"]})
_LOOP: list[Any] = []
_LOOP.append(_LOOP)

# fmt: off
HOSTILE: Sequence[Any] = (
    None, True, False, 0, 1, -1, 3, 2**63, 2**70, -(2**70), 0.0, -0.0, 0.5, 1e-320, 1e308, -1.5, 2j,
    float("nan"), float("inf"), float("-inf"), decimal.Decimal("0.1"), fractions.Fraction(1, 3), np.float16(2.0),
    "", " ", "x", "0", "0.5", "nan", "top", "top0", "top-1", "stderr:x", "\ud800", "\0", "ü" * 300, b"", b"x",
    (), (1,), (2, -1), (2, 2, 2), [], [[]], [[], [1]], [None], ["a", 1], [1, [2, [3]]], {}, {1: 2}, {"a": {}}, _LOOP,
    {1, 2}, frozenset(), range(0), range(3), slice(1), Ellipsis, NotImplemented, int, Exception("x"), object(),
    len, sorted, str.upper, lambda: None, lambda *a, **k: None, lambda *a, **k: "x", lambda *a, **k: np.nan,
    datetime.date(2020, 1, 1), np.datetime64("NaT"), np.timedelta64(1, "s"), np.str_("x"), np.bool_(True),
    np.array(3), np.array([]), np.zeros((0, 3)), np.zeros((2, 2, 2)), np.array([1, "a"], dtype=object),
    np.array([np.nan, 1.0]), np.full(13, np.inf), np.arange(13)[::-1], np.array(["a", "b"]), np.array([1 + 2j]),
    np.ma.masked_array(X, mask=X > 0), np.ma.masked_all(13), np.zeros(2, dtype=[("a", int)]),
    np.array(["NaT"], dtype="datetime64[s]"), memoryview(b"ab"), Path("nowhere"), "nowhere.json",
    "/proc/nowhere/x.json",
)
# Tables refuse comparisons in words of their own, so that they are given only where someone might give a table.
TABLES: Sequence[Any] = (TABLE, TABLE.a, pd.NA, pd.Series([], dtype=float), pd.DataFrame(), sparse.eye_array(3))
DATA = ("x", "inputs", "background", "groups", "masks", "outputs", "weights", "values", "value", "mask", "baseline")
# fmt: on


# -- models that answer strange things ----------------------------------------------------------------

ROWS: Counter[str] = Counter()  # asked of models, and reported, by all explanations so far
Answer = Callable[[np.ndarray], Any]
GOOD: Mapping[str, Answer] = {
    "plain": lambda s: s,
    "one output": lambda s: s[:, 0],
    "a list": lambda s: s.tolist(),
    "float32": lambda s: s.astype(np.float32),
    "a frame": pd.DataFrame,
    "booleans": lambda s: s > 0,
    "huge ints": lambda s: [[2**70, int(9 * v)] for v in s[:, 0]],
    "constant": np.zeros_like,
    "tiny": lambda s: s * 1e-300,
    "large": lambda s: s * 1e90,
}
# What these return holds no number for some row, so that an explanation without a word must not come of it.
BAD: Mapping[str, Answer] = {
    "masked": lambda s: np.ma.masked_array(s, mask=s > 0.3),
    "all masked": lambda s: np.ma.masked_all(s.shape),
    "NaT": lambda s: np.full(s.shape, "NaT", dtype="datetime64[s]"),
    "dates": lambda s: (s * 1e6).astype("datetime64[s]"),
    "durations": lambda s: (s * 1e6).astype("timedelta64[s]"),
    "strings": lambda s: s.astype(str),
    "bytes": lambda s: s.astype("S8"),
    "text objects": lambda s: s.astype(str).astype(object),
    "byte objects": lambda s: [[b"1", b"2"] for _ in s],
    "nothing": lambda s: None,
    "a generator": lambda s: (v for v in s),
    "a set": lambda s: set(s[:, 0]),
    "a dict": lambda s: dict(enumerate(s[:, 0])),
    "records": lambda s: np.zeros(len(s), dtype=[("a", float), ("b", float)]),
    "sparse": sparse.csr_array,
    "complex": lambda s: s + 1j,
    "too few": lambda s: s[:-1],
    "too many": lambda s: np.concatenate([s, s]),
    "turned": lambda s: s.T if len(s) != s.shape[1] else s[:-1],
    "deep": lambda s: s[:, :, None],
    "ragged": lambda s: [[1.0] * (1 + i % 2) for i in range(len(s) + 1)],
    "no output": lambda s: s[:, :0],
    "NaN": lambda s: np.where(s > 0.3, np.nan, s * 0.0 + np.nan),
    "infinite": lambda s: s * np.inf,
    "pandas NA": lambda s: pd.DataFrame(s).astype("Float64").mask(lambda f: f < 2),
    "a type": lambda s: float,
    "raises": lambda s: {}["no such key"],
    "raises nothing said": lambda s: (_ for _ in ()).throw(RuntimeError()),
    "stops": lambda s: next(iter(())),
}


def explain(answer: str, x: Any, masker: Any, key: Any, **options: Any) -> c2fa.Explanation:
    """Explain with a model that counts its rows, and check that the library counts the same."""
    scores = toys.Model()
    asked = 0

    def model(rows: Any) -> Any:
        nonlocal asked
        asked += len(rows)
        return {**GOOD, **BAD}[answer](scores(np.asarray(rows, dtype=float)))

    explainer = c2fa.Explainer(model, masker, progress=False, **options)
    e = explainer(x, key=key)
    ROWS.update(billed=asked, reported=e.diagnostics.sent)
    most = explainer.budget if isinstance(explainer.budget, int) else sum(explainer.budget)
    sound(asked <= most, f"{asked} rows asked of a budget of {most}")
    sound(asked == e.diagnostics.sent, f"{asked} rows asked, and {e.diagnostics.sent} reported")
    sound(answer in GOOD or options["on_error"] == "drop", f"an explanation of answers that are {answer}")
    return e


class UnsoundError(Exception):
    """A result that breaks an invariant."""


def sound(holds: Any, what: str) -> None:
    """Refuse a result for which something does not hold."""
    if not holds:
        raise UnsoundError(what)


def check(result: Any) -> None:
    """Refuse a result whose numbers are not finite, or whose levels do not add up."""
    if isinstance(result, np.ndarray) and result.dtype.kind == "f":
        sound(np.isfinite(result).all(), "numbers that are not finite")
    if isinstance(result, c2fa.Solution):
        _check_levels(result.problem.structure, result.values, 0.0)
    if isinstance(result, c2fa.Explanation):
        values, told = (
            [v[:, result.columns.index(result.target)] for v in result.all_values],
            result.diagnostics.consistency,
        )
        _check_levels(result.structure, values, told)
        sound(np.isfinite(result.outputs).all(), "outputs that are not finite")
        sound(result.target in result.columns, f"target {result.target} of columns {result.columns}")


def _check_levels(structure: c2fa.Structure, levels: Sequence[Any], told: float) -> None:
    """Parts are the sums of their leaves, but for what the method itself says that they are off."""
    leaves = np.asarray(levels[-1], dtype=float)
    sound(np.isfinite(leaves).all(), "attributions that are not finite")
    off = sum(float(np.square(values - structure.sums(leaves, k)).sum()) for k, values in enumerate(levels))
    most = 1.001 * told + (1e-9 * np.abs(leaves).sum()) ** 2
    sound(off <= most, "levels that are further off the sums of their leaves than it says")


# -- the calls ----------------------------------------------------------------------------------------


def _masked(kind: type[Any]) -> Callable[..., None]:
    def call(x: Any, **options: Any) -> None:
        masked = kind(**options)(x)
        for level, width in enumerate(masked.structure.widths):
            made = masked.inputs(np.ones((3, width), dtype=bool), level)
            wanted = 3 * masked.rows_per_mask
            if kind is not c2fa.maskers.Custom:  # whose inputs are made by the caller's own function
                sound(len(made) == wanted, f"{len(made)} inputs for 3 masks of level {level}, and not {wanted}")

    return call


def _loaded(place: float, value: Any) -> c2fa.Explanation:
    """Read an explanation in which one value of the file was replaced."""
    plain = json.loads(toys.truth(1)[0].to_json())
    places = list(_places(plain))
    holder, name = places[int(place * len(places))]
    holder[name] = value
    try:
        text = json.dumps(plain, default=repr)
    except ValueError:  # a list that holds itself
        holder[name] = repr(value)
        text = json.dumps(plain)
    return c2fa.Explanation.from_json(text)


def _places(plain: Any) -> Iterator[tuple[Any, Any]]:
    """All places of a tree of dicts and lists."""
    for name, value in list(plain.items() if isinstance(plain, dict) else enumerate(plain)):
        yield plain, name
        if isinstance(value, dict | list):
            yield from _places(value)


def _solved(masks: Any, outputs: Any, weights: Any, penalty: Any, intercept: Any, solver: Any) -> c2fa.Solution:
    leaves = c2fa.Level(masks, outputs, weights, penalty, intercept)
    parts = c2fa.Level(np.eye(4, dtype=bool), np.arange(4.0), penalty=penalty)
    return c2fa.solve(c2fa.Problem(toys.STRUCTURE, (parts, leaves)), solver)


def _kept(path: Any, model: Any, key: Any, level: Any, masks: Any, outputs: Any) -> None:
    ledger = c2fa.Ledger(path)
    ledger.put(model, key, level, masks, outputs)
    found = ledger.get(model, key, level, masks)
    ledger.close()
    for mask, row in dict(zip(masks, outputs, strict=True)).items():
        same = mask in found and np.array_equal(found[mask], np.ravel(row), equal_nan=True)
        sound(same, "the ledger gives another answer back")


def _stored(inputs: Any, **options: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for e in batch.many(toys.explainer(), inputs, folder, progress=False, **options):
            check(e)


def _saved(path: Any) -> c2fa.Explanation:
    toys.truth(1)[0].save(path)
    return c2fa.load(path)


def _told(level: Any, n: Any, target: Any, width: Any) -> None:
    e = toys.truth(1)[0].for_target(target)
    e.top(n, level)
    e.to_text(n, width)


def _drawn(sampler: Any, n: Any, level: Any, allows_empty: Any) -> Any:
    masks = samplers.draw(samplers.ensure(sampler), np.random.default_rng(0), n, toys.STRUCTURE, level, allows_empty)
    return toys.STRUCTURE.check_masks(masks, level)


def _structure(parents: Any, names: Any, masks: Any, values: Any, level: Any) -> Any:
    s = c2fa.Structure(parents, names)
    s.expand(masks, level)
    return s.sums(values, level)


def _split(budget: Any, min_rows: Any) -> Any:
    return rows_per_level(as_budget(budget), toys.STRUCTURE, min_rows)


def _evaluated(**options: Any) -> Any:
    return c2fa.evaluate(model=toys.Model(), progress=False, **options).frame


OURS = ("answer", "place")  # arguments of the campaign itself, not of the library
PICTURE = np.arange(192).reshape(8, 8, 3).astype(np.uint8)
QUARTERS = lambda image: np.arange(64).reshape(8, 8) // 16  # noqa: E731
# fmt: off
CALLS: Mapping[str, tuple[Callable[..., Any], Mapping[str, Sequence[Any]]]] = {
    "Explainer": (explain, {
        "answer": [*GOOD, *BAD], "x": [X], "masker": [toys.MASKER], "key": [None, "k"], "seed": [0, 7],
        "method": ["c2fa", "c2fa", "lime", "milli", "bu-lime", "td-lime", "td-milli"],
        "budget": [None, 20, 60, (8, 12), [9, 30]], "target": [None, 0, "0"], "batch_size": [None, 1, 7],
        "until": [None, "top2", "stderr:0.1", until.top(1)], "link": ["identity", "identity", "logit", "log"],
        "on_error": ["raise", "raise", "drop"], "outputs": ["auto", "all", "target"], "output_names": [None],
        "preset": [None, "paper"], "ledger": [None], "model_name": [None, "m"]}),
    "Explainer, options": (lambda **options: toys.explainer(**options)(X), {
        "sampler": ["planned", "uniform", samplers.Planned(3)], "kernel": ["uniform", "cosine", "shap"],
        "penalty": ["auto", c2fa.L2(0.1), c2fa.L1(0.1), (c2fa.L2(0.1), c2fa.L1(0.1))], "intercept": [True, False],
        "smooth": ["auto", None, 1.0], "solver": ["auto", "direct", "admm"]}),
    "maskers.Array": (_masked(maskers.Array), {
        "structure": [toys.STRUCTURE], "baseline": [0.0, np.zeros(12)], "x": [X[1:]]}),
    "maskers.Bag": (_masked(maskers.Bag), {
        "x": [np.ones((3, 2))], "absent": ["remove", "fill"], "fill": [0.0, "mean"], "names": [None, ["a", "b"]]}),
    "maskers.Custom": (_masked(maskers.Custom), {
        "x": [X], "structure": [toys.STRUCTURE], "inputs": [toys.rows], "allows_empty": [True]}),
    "maskers.TimeSeries": (_masked(maskers.TimeSeries), {
        "x": [np.arange(24.0).reshape(12, 2)], "windows": [3, [0, 5]], "order": ["channels", "windows"],
        "fill": ["mean", "zero", "linear", 1.0], "time_axis": [None, 0], "names": [None, ["a", "b"]]}),
    "maskers.Tabular": (_masked(maskers.Tabular), {
        "x": [TABLE.iloc[:1], TABLE.iloc[0], {"a": 1.0, "b": 2, "c": "x"}], "groups": [None, {"g": ["a", "b"]}],
        "background": [TABLE], "names": [None, ["a", "b", "c"]], "strategy": ["mean", "average"]}),
    "maskers.Text": (_masked(maskers.Text), {
        "x": ["Good. Bad day.", ["one text", "another"]], "levels": [("sentences", "words")], "language": ["en"],
        "mask": ["[MASK]", None]}),
    "maskers.ImageBag": (_masked(maskers.ImageBag), {
        "x": [[PICTURE, PICTURE], PICTURE], "segment": [QUARTERS], "absent": ["remove", "fill"], "regions": [2],
        "fill": [0, "mean", "segments", "blur"], "channels": ["auto", "last"]}),
    "Structure": (_structure, {
        "parents": [([0, 0, 1],)], "names": [(("a", "b"), ("x", "y", "z"))], "masks": [np.ones((2, 2))],
        "values": [[1.0, 2.0, 3.0]], "level": [0]}),
    "Structure.from_groups": (c2fa.Structure.from_groups, {"groups": ["aab"], "names": [None, "xyz"]}),
    "Structure.from_tree": (c2fa.Structure.from_tree, {"tree": [{"A": ["x", "y"], "B": {"C": ["z"], "D": ["u"]}}]}),
    "Structure.flat": (c2fa.Structure.flat, {"names": [3, ["a", "b"]]}),
    "solve": (_solved, {
        "masks": [np.eye(12, dtype=bool)], "outputs": [np.arange(12.0), np.ones((12, 2))], "intercept": [True, False],
        "weights": [None, np.ones(12)], "solver": ["auto", "admm"],
        "penalty": [c2fa.L2(0.1), c2fa.L1(0.1), c2fa.ElasticNet(0.1, 0.1), c2fa.NonNegative()]}),
    "L1": (c2fa.L1, {"lam": [1.0], "positive": [False]}),
    "L2": (c2fa.L2, {"lam": [1.0], "positive": [False]}),
    "L2Each": (c2fa.L2Each, {"lams": [[1.0, 2.0]]}),
    "ElasticNet": (c2fa.ElasticNet, {"l1": [1.0], "l2": [1.0], "positive": [False]}),
    "Auto": (c2fa.Auto, {"output": [None, 0], "tail": [None, 3.0]}),
    "samplers": (_drawn, {
        "sampler": [*samplers.SAMPLERS], "n": [5], "level": [0, 1, -1], "allows_empty": [True, False]}),
    "samplers.Planned": (samplers.Planned, {"few": [5]}),
    "until.top": (until.top, {"k": [3]}),
    "until.stderr": (until.stderr, {"bound": [0.1]}),
    "from_json": (_loaded, {"place": np.linspace(0.0, 0.999, 200).tolist(), "value": [0]}),
    "load": (c2fa.load, {"path": ["nowhere.json"]}),
    "save": (_saved, {"path": ["e.json"]}),
    "Explanation": (_told, {"level": [0, -1], "n": [3], "target": [0, "1"], "width": [80]}),
    "Ledger": (_kept, {
        "path": ["ledger"], "model": ["m"], "key": ["k"], "level": [0], "masks": [[b"a", b"b"]],
        "outputs": [np.ones((2, 2))]}),
    "evaluate": (_evaluated, {
        "methods": [["lime"]], "inputs": [[X]], "masker": [toys.MASKER], "budgets": [[20]], "seeds": [1, [0]],
        "metrics": [["deletion"]], "keys": [None], "target": [None, 0], "reference": [None], "batch_size": [64],
        "on_error": ["raise"]}),
    "budget": (_split, {"budget": [60, (20, 30)], "min_rows": [1]}),
    "many": (_stored, {
        "inputs": [toys.inputs(2)], "engine": ["serial"], "shard_size": [None, 1], "batch_size": [None, 8],
        "tries": [3], "patience": [1.0], "in_flight": [1], "precision": ["float64"], "views": ["auto"], "key": [None],
        "column": [None]}),
    "models.MLflow": (models.MLflow, {
        "url": ["http://127.0.0.1:9"], "rows_per_request": [4], "concurrency": [2], "timeout": [1.0], "retries": [0],
        "wait": [0.1], "rate": [None, 5.0], "auth_env": [None, "A_KEY"], "headers": [{}], "price_per_row": [0.0],
        "price_per_token": [0.0]}),
    "models.load": (models.load, {"spec": ["demo"]}),
    "Bucket": (batch.Bucket, {"path": [":memory:"], "rate": [None, 5.0], "burst": [1]}),
}
# fmt: on


def campaign(seed: int, tries: int) -> Tally:
    """Make so many calls."""
    return in_processes(work, "fuzz", seed, tries, at_once=500)


def work(seed: int, cases: Sequence[int], calls: Mapping[str, Any] = CALLS) -> Tally:
    """Make the calls with these numbers; explaining is half of them, for it has the most to go wrong."""
    tally = Tally("fuzz")
    names = list(calls)
    for case in cases:
        with tempfile.TemporaryDirectory(prefix="c2fa-fuzz-") as folder, contextlib.chdir(folder):
            _call(tally, seed, case, names, calls)
    return tally


def _call(tally: Tally, seed: int, case: int, names: Sequence[str], calls: Mapping[str, Any]) -> None:
    rng = random.Random(f"{seed}/{case}")
    name = names[0] if rng.random() < 0.5 else rng.choice(names)
    function, good = calls[name]
    arguments = {parameter: rng.choice(values) for parameter, values in good.items()}
    open_to_all = [parameter for parameter in good if parameter not in OURS]
    replaced = rng.sample(open_to_all, k=min(rng.choice([0, 1, 1, 1, 1, 2]), len(open_to_all)))
    for parameter in replaced:
        arguments[parameter] = _hostile(rng, arguments[parameter], parameter in DATA)
    shown = ", ".join(f"{p}={str_of(arguments[p])}" for p in good if p in (*OURS, *replaced))
    judge(tally, name, lambda: function(**arguments), f"--seed {seed}, case {case}: {name}({shown})")


def _hostile(rng: random.Random, value: Any, is_data: bool) -> Any:
    """Something no one should give, or the same value in another shape."""
    near = ([value], (value, value), str_of(value), {"a": value}, np.array([value, None], dtype=object)[:1])
    if rng.random() < 0.15:
        return rng.choice(near)
    return rng.choice([*HOSTILE, *TABLES] if is_data else HOSTILE)


def str_of(value: Any) -> str:
    """A value in one short line."""
    said = " ".join(repr(value).split())
    return said if len(said) <= _SHOWN else said[: _SHOWN - 1] + "…"


def judge(tally: Tally, name: str, call: Callable[[], Any], case: str) -> None:
    """Make one call and count what came of it."""
    tally.tries += 1
    with warnings.catch_warnings(), np.errstate(all="ignore"), time_limit(_SECONDS):
        warnings.simplefilter("ignore")
        try:
            result = call()
        except UnsoundError as error:
            tally.note("silent", f"{name}: {error}", case)
        except (Exception, HangError) as error:
            tally.error(name, error, case, vague=SHOWN)
        else:
            try:
                check(result)
            except Exception as error:  # whatever has no numbers to look at is no sound result either
                tally.note("silent", f"{name}: {error}", case)
    tally.billed, tally.reported = ROWS["billed"], ROWS["reported"]

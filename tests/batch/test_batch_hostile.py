"""Models that do to their callers what no model should: end the process, answer another width, lack a package."""

from __future__ import annotations

import functools
import importlib.util
import os
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import c2fa
from batch_helpers import EXITS, INTERRUPTS, LACKS, STRUCTURE, WIDENS, Model, explainer, inputs, repeated, side_files
from serving_helpers import Renders, Vectors

pytest.importorskip("pyarrow")

from c2fa._system import Signals
from c2fa.batch import Recipe, Store, many
from c2fa.batch.worker import ShardJournal

HERE = {"engine": "serial"}
TWO = {"workers": 2}
SHARED = {"workers": 2, "models": 1}
OTHERS = [
    pytest.param({"engine": name, "workers": 2, **more}, marks=[pytest.mark.slow, pytest.mark.filterwarnings("ignore")])
    for name in ("ray", "dask")
    for more in ({}, {"models": 1})
]
EVERYWHERE = pytest.mark.parametrize("how", [HERE, TWO, SHARED, {**TWO, "in_flight": 2}, *OTHERS], ids=str)
BUDGET = {"budget": (8, 24)}


def run(path: Path, xs: object, how: dict[str, Any], monkeypatch: pytest.MonkeyPatch, **settings: Any) -> Store:
    """Explain with a model of the helpers, which masks its inputs itself where workers share it."""
    module = {"dask": "distributed"}.get(how.get("engine", ""), how.get("engine", ""))
    if module not in ("", "serial") and importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed: pip install 'c2fa[{how['engine']}]'")
    paths = [*map(str, Path(__file__).parents[:2]), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    shared = Recipe(functools.partial(Renders, **settings), Vectors(), BUDGET)
    made = shared if "models" in how else explainer(Model(**settings))
    return many(made, xs, path, shard_size=8, precision="float64", tries=2, **how)


def same_but_for(store: Store, bad: set[int], xs: list[Any]) -> None:
    """Every input has its row: the bad ones an error, the others the numbers of an explanation of its own."""
    assert {failure.index for failure in store.errors()} == bad
    assert store.table(["index"])["index"].to_pylist() == list(range(len(xs)))
    explain = explainer()
    for i in set(range(len(xs))) - bad:
        np.testing.assert_allclose(store[i].low, explain(xs[i]).low, rtol=0, atol=1e-12)
    assert side_files(store.path) == []


# -- models that end the process


@EVERYWHERE
def test_a_model_that_exits_is_a_model_that_fails(
    tmp_path: Path, how: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    xs = inputs(24)
    xs[3][0], xs[10][0] = EXITS, INTERRUPTS
    store = run(tmp_path / "s", xs, how, monkeypatch, log=str(tmp_path / "log"))
    same_but_for(store, {3, 10}, xs)
    assert {failure.index: failure.error for failure in store.errors()} == {
        3: "ExitError: the model raised SystemExit(3), which would end the process (sent alone 2 times)",
        10: "ExitError: the model raised KeyboardInterrupt(), which would end the process (sent alone 2 times)",
    }
    assert repeated(tmp_path / "log", store) < 10 * 64  # a few batches that failed, and their rows sent alone


def test_one_explanation_of_a_model_that_exits() -> None:
    x = inputs(1)[0]
    x[0] = EXITS
    with pytest.raises(c2fa.QueryError, match=r"the model raised SystemExit\(3\), which would end the process"):
        explainer()(x)


def test_ctrl_c_is_no_model_s_failure() -> None:
    def model(batch: np.ndarray) -> np.ndarray:
        os.kill(os.getpid(), signal.SIGINT)
        return batch.sum(axis=1)

    explain = c2fa.Explainer(model, c2fa.maskers.Array(STRUCTURE), **BUDGET, progress=False)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            explain(inputs(1)[0])

        def leave(number: int) -> None:
            raise SystemExit(128 + number)

        with Signals(leave), pytest.raises(SystemExit):
            explain(inputs(1)[0])
    finally:
        signal.signal(signal.SIGINT, before)


class Leaves:
    """A masker that ends the process for one of its inputs, when it is made or when its rows are."""

    def __init__(self, late: bool) -> None:
        self.late = late

    def __call__(self, x: Any) -> Any:
        if x[0] == EXITS and not self.late:
            raise SystemExit(3)
        masked = c2fa.maskers.Array(STRUCTURE)(x)

        def rows(masks: np.ndarray, level: int) -> Any:
            if x[0] == EXITS:
                raise SystemExit(3)
            return masked.inputs(masks, level)

        return c2fa.asking.masking.Masked(STRUCTURE, rows)


@pytest.mark.parametrize("late", [False, True])
def test_a_masker_that_exits_is_a_masker_that_fails(tmp_path: Path, late: bool) -> None:
    xs = inputs(8)
    xs[3][0] = EXITS
    made = c2fa.Explainer(Model(), Leaves(late), **BUDGET, progress=False)
    store = many(made, xs, tmp_path / "s", engine="serial", shard_size=8, precision="float64")
    same_but_for(store, {3}, xs)
    assert "the masker raised SystemExit(3)" in store.errors()[0].error


def test_whatever_ends_a_worker_is_a_crash_and_an_error_is_not(tmp_path: Path) -> None:
    class Abort(BaseException):
        pass

    for error, crashes in ((ValueError(), 0), (Abort(), 1), (SystemExit(), 1)):
        path = tmp_path / type(error).__name__

        def work(path: Path = path, error: BaseException = error) -> None:
            with ShardJournal(path, "run") as journal:
                journal.at(0, 4)
                raise error

        with pytest.raises(type(error)):
            work()
        assert len(ShardJournal(path, "run").deaths.get((0, 4), ())) == crashes
    assert threading.current_thread() is threading.main_thread()  # where Ctrl-C comes, and is no crash


# -- rows of another width


@EVERYWHERE
@pytest.mark.parametrize("bad", [0, 10])
def test_an_input_whose_rows_are_of_another_width_is_set_aside_alone(
    tmp_path: Path, how: dict[str, Any], bad: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model answers whole batches with three outputs where a row of one input is in them, and else with two."""
    xs = inputs(24)
    xs[bad][0] = WIDENS
    store = run(tmp_path / "s", xs, how, monkeypatch)
    same_but_for(store, {bad}, xs)
    assert all(len(e.outputs) == 2 for e in store)
    [failure] = store.errors()
    assert "the model returned 3 outputs a row and 2 for other inputs" in failure.error


def test_a_model_of_two_widths_ends_all_the_same(tmp_path: Path) -> None:
    """As many inputs of one width as of the other: nothing tells which are right, and the first is taken."""
    xs = inputs(2)
    xs[1][0] = WIDENS
    store = many(explainer(), xs, tmp_path / "s", engine="serial")
    assert [failure.index for failure in store.errors()] == [1]


# -- packages that are missing


@EVERYWHERE
def test_a_missing_package_ends_the_run_and_is_no_input_s_fault(
    tmp_path: Path, how: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    xs = inputs(24)
    xs[3][0] = LACKS
    with pytest.raises(
        ImportError, match=r"No module named 'a_package_that_nobody_has'.*no input is set aside"
    ) as said:
        run(tmp_path / "s", xs, how, monkeypatch)
    assert "install it where the workers run, then run the same command again" in str(said.value)
    assert Store.open(tmp_path / "s").errors() == []


def test_a_masker_that_lacks_a_package_ends_the_run(tmp_path: Path) -> None:
    def masker(x: Any) -> Any:
        raise ImportError("images need Pillow: pip install 'c2fa[images]'")

    made = c2fa.Explainer(Model(), masker, **BUDGET, progress=False)
    with pytest.raises(ImportError, match=r"images need Pillow: pip install 'c2fa\[images\]'; no input is set aside"):
        many(made, inputs(4), tmp_path / "s", engine="serial")

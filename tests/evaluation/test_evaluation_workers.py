"""Evaluations in several processes, around one model or several: the same numbers, whoever is killed."""

from __future__ import annotations

import functools
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pd = pytest.importorskip("pandas")

import c2fa
from batch_helpers import KILL, RAISES, WEIGHTS, inputs
from c2fa.asking.model import describe, launcher
from c2fa.cli import app
from c2fa.engines import WorkerError
from c2fa.evaluation import Result, evaluate
from c2fa.models import Lazy
from running import RUNNER
from serving_helpers import Renders, Vectors, append, lines

INPUTS = inputs(5)
METHODS = ["c2fa", "lime"]


def twice(e: Any, truth: Any) -> float:
    """A metric of one's own, which a worker must find."""
    return 2.0 * float(truth[0][0]) + e.prediction


def run(model: Any, masker: Any = Vectors(), **options: Any) -> Result:  # noqa: B008
    settings: dict[str, Any] = {
        "masks": [(4, 10), (4, 20)],
        "seeds": 2,
        "metrics": ["deletion", "mihl", ("twice", twice)],
        "truths": [((i,),) for i in range(len(INPUTS))],
        "keys": list("abcde"),
        "progress": False,
        **options,
    }
    return evaluate(METHODS, INPUTS, model, masker, **settings)


@functools.cache
def alone() -> Result:
    return run(Renders())


def same(result: Result, rows: bool = True) -> None:
    """The result is that of one process."""
    pd.testing.assert_frame_equal(result.frame, alone().frame, rtol=0, atol=1e-12)
    if rows:
        assert result.rows == alone().rows
    assert str(result).splitlines()[:3] == str(alone()).splitlines()[:3]


# ------------------------------------------------------------------------------------------------ the same numbers


def test_workers_with_models_of_their_own_find_what_one_process_finds() -> None:
    result = run(Renders(), workers=2)
    same(result)
    assert result.loads == {}


def test_workers_around_one_model_find_what_one_process_finds(tmp_path: Path) -> None:
    made, log = tmp_path / "made", tmp_path / "log"
    model = functools.partial(Renders, price=0.25, made=str(made), log=str(log))
    result = run(Lazy(model), workers=2, models=1)
    same(result)
    [pid] = lines(made)  # one process made it, once
    assert int(pid) != os.getpid()
    [load] = result.loads.values()
    assert load.rows == result.rows.sent == len(lines(log))
    assert 0 < load.launches < load.rows
    assert 0.0 <= load.waiting <= load.seconds
    assert result.cost == pytest.approx(0.25 * load.rows)


def test_inputs_that_the_model_does_not_mask_travel_as_they_are() -> None:
    same(run(Renders(), Vectors(local=True), workers=2, models=2))


# ------------------------------------------------------------------------------------------------ whoever is killed


@dataclass(frozen=True)
class KillsOnce(Vectors):
    """Kills the process that masks the third input, the first time."""

    file: str = ""

    def __call__(self, x: Any) -> Any:
        if np.array_equal(x, INPUTS[2]) and not os.path.exists(self.file):
            append(self.file, str(os.getpid()))
            os.kill(os.getpid(), KILL)
        return super().__call__(x)


@dataclass
class DiesOnce(Renders):
    """Kills its process in the third batch, if that was never done before."""

    file: str = ""
    calls: int = 0

    def launch(self, batch: Any) -> Any:
        self.calls += 1
        if self.calls == 3 and not os.path.exists(self.file):
            append(self.file, str(os.getpid()))
            os.kill(os.getpid(), KILL)
        return super().launch(batch)


def test_an_input_whose_worker_is_killed_is_done_again(tmp_path: Path) -> None:
    file = tmp_path / "killed"
    result = run(Renders(), KillsOnce(file=str(file)), workers=2, models=1, store=tmp_path / "store", model_name="m")
    assert len(lines(file)) == 1
    same(result)


@dataclass(frozen=True)
class Kills(KillsOnce):
    """Kills the process that masks the third input, each time."""

    def __call__(self, x: Any) -> Any:
        if os.path.exists(self.file):
            os.rename(self.file, f"{self.file}-{os.getpid()}")
        return super().__call__(x)


def test_an_input_that_kills_each_worker_is_named(tmp_path: Path) -> None:
    with pytest.raises(WorkerError, match="input 2 was begun 3 times, and its worker was killed each time"):
        run(Renders(), Kills(file=str(tmp_path / "killed")), workers=2)
    assert len(list(tmp_path.glob("killed*"))) == 3


def test_a_model_whose_process_is_killed_is_made_again(tmp_path: Path) -> None:
    file, made = tmp_path / "killed", tmp_path / "made"
    model = functools.partial(DiesOnce, made=str(made), file=str(file))
    result = run(Lazy(model), workers=2, models=1)
    assert len(lines(file)) == 1
    assert len(set(lines(made))) == 2
    same(result)
    assert len(result.loads) == 2


# ------------------------------------------------------------------------------------------------ stores and time


def test_a_store_that_has_everything_starts_nothing(tmp_path: Path) -> None:
    made, store = tmp_path / "made", tmp_path / "store"
    model = Lazy(functools.partial(Renders, made=str(made)))
    options: dict[str, Any] = {"store": store, "model_name": "m", "workers": 2, "models": 1}
    run(model, **options)
    assert len(lines(made)) == 1
    again = run(model, **options)
    same(again, rows=False)
    assert (again.rows.sent, again.cost, again.loads) == (0, 0.0, {})
    assert len(lines(made)) == 1
    assert [p for p in store.iterdir() if p.name.startswith("_model")] == []
    alone_again = run(model, store=store, model_name="m", seconds=0)  # one store, whoever filled it
    same(alone_again, rows=False)


def test_nothing_begins_when_the_time_is_over(tmp_path: Path) -> None:
    made = tmp_path / "made"
    result = run(Lazy(functools.partial(Renders, made=str(made))), workers=2, models=1, seconds=0)
    assert result.frame.empty
    assert not made.exists()
    assert "5 of 5 inputs were not begun in time" in str(result.notes)


def test_an_error_ends_the_evaluation_and_says_where_it_happened() -> None:
    bad = [*INPUTS[:1], np.array([RAISES, *INPUTS[1][1:]])]
    with pytest.raises(c2fa.QueryError, match="a poisoned row") as caught:
        evaluate(METHODS, bad, Renders(), Vectors(), masks=[(4, 10)], seeds=1, workers=2, models=1, progress=False)
    assert "input 1" in str(caught.value.__notes__)


SLOW = """
import sys
from pathlib import Path
sys.path[:0] = {path!r}
from test_evaluation_workers import Renders, Vectors, run
if __name__ == "__main__":
    run(Renders(delay=0.2, made={made!r}), workers=2, models=1, store={store!r}, model_name="m")
"""


@pytest.mark.skipif(os.name == "nt", reason="Ctrl-C is another thing there")
def test_ctrl_c_ends_all_processes_and_the_same_call_goes_on(tmp_path: Path) -> None:
    script, store, made = tmp_path / "slow.py", tmp_path / "store", tmp_path / "made"
    here = [*map(str, Path(__file__).parents[:2]), str(Path(c2fa.__file__).parents[1])]
    script.write_text(SLOW.format(path=here, made=str(made), store=str(store)))
    process = subprocess.Popen([sys.executable, str(script)], start_new_session=True, stderr=subprocess.PIPE)
    until = time.monotonic() + 60
    while not list(store.glob("results-*/*.json")):
        assert time.monotonic() < until
        assert process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert b"KeyboardInterrupt" in said
    [model] = lines(made)
    with pytest.raises(ProcessLookupError):  # the process that owned the model is gone
        os.kill(int(model), 0)
    result = run(Renders(), store=store, model_name="m")
    assert 0 < result.rows.sent < alone().rows.sent
    same(result, rows=False)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"models": 1}, "give workers= too"),
        ({"workers": 2, "models": 1, "gpus": 1}, "gpus=1 or models=1"),
        ({"workers": -1}, "workers must be a whole number of at least 0; got -1"),
        ({"workers": 2, "engine": "steam"}, "engine must be"),
        ({"workers": 2, "models": 1, "engine": "serial"}, "engine='serial' is one process"),
    ],
)
def test_mistakes_are_named(options: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        run(Renders(), **options)


# ------------------------------------------------------------------------------------------------ the command line


def test_the_command_shares_its_inputs_among_workers(tmp_path: Path) -> None:
    texts = [tmp_path / f"{k}.txt" for k in range(3)]
    for k, text in enumerate(texts):
        text.write_text(f"Day {k} was wonderful. The food was cold and the {'room ' * k}dirty.")
    command = ["evaluate", *map(str, texts), "-m", "demo", "--budget", "20", "--seeds", "1", "--json", "--no-resume"]
    alone, shared = (RUNNER.invoke(app, [*command, *more]) for more in ([], ["--workers", "2"]))
    assert alone.exit_code == shared.exit_code == 0, shared.output
    one, several = (json.loads(result.stdout) for result in (alone, shared))
    summaries = [pd.DataFrame(facts.pop("summary")) for facts in (one, several)]
    pd.testing.assert_frame_equal(*summaries, atol=1e-6)  # single precision, by another number of threads
    assert one == several


# ------------------------------------------------------------------------------------------------ Lazy


def test_a_lazy_model_is_made_once_and_says_what_the_made_one_says(tmp_path: Path) -> None:
    made = tmp_path / "made"
    lazy = Lazy(functools.partial(Renders, made=str(made)))
    assert c2fa.models.wrap(lazy) is lazy
    assert "Renders" in repr(lazy)
    sent = pickle.loads(pickle.dumps(lazy))
    assert not made.exists()
    masks = np.eye(12, dtype=bool)
    rows = Vectors()(INPUTS[0]).inputs(masks, 1)
    np.testing.assert_array_equal(lazy(rows), Renders()(rows))
    np.testing.assert_array_equal(lazy.launch(rows)(), Renders()(rows))
    assert describe(lazy).name == "batch-test"
    assert describe(lazy).encode_inputs(Vectors()(INPUTS[0]).inputs) is not None
    assert len(lines(made)) == 1
    assert describe(pickle.loads(pickle.dumps(lazy))).name == describe(sent).name  # made where they are asked
    assert len(lines(made)) == 3


def test_a_lazy_model_without_launch_has_none_and_may_be_a_line_of_text() -> None:
    lazy = Lazy("demo")
    assert launcher(lazy) is None
    text = "A fine day."
    np.testing.assert_array_equal(lazy([text]), c2fa.models.DemoSentiment()([text]))
    assert describe(lazy).output_names == ("negative", "positive")


def test_a_lazy_model_is_explained_as_itself() -> None:
    x = np.linspace(0.5, 1.5, len(WEIGHTS))
    lazy, plain = (c2fa.Explainer(m, Vectors(), budget=(8, 24))(x) for m in (Lazy(Renders), Renders()))
    np.testing.assert_array_equal(lazy.low, plain.low)

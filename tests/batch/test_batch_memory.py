"""Many inputs without a store: in order, in this process, with what failed in its place."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import c2fa
from batch_helpers import EXITS, KILL, KILLS, LEAVES, NAN, RAISES, STRUCTURE, Model, explainer, inputs
from c2fa.batch import Explanations, NoAnswerError, NotExplainedError


def test_explanations_come_back_in_order_and_are_those_of_a_loop() -> None:
    xs = inputs(20)
    xs[11] = xs[2]  # equal inputs are put next to each other on the way
    found = explainer().many(xs)
    assert isinstance(found, Explanations)
    assert len(found) == found.run.inputs == 20
    for e, x in zip(found, xs, strict=True):
        assert np.array_equal(e.low, explainer()(x).low)
    assert [e.prediction for e in found[3:5]] == [found[3].prediction, found[4].prediction]
    assert found[-1].prediction == found[19].prediction
    assert found.errors() == []
    assert found.run.calls < 20 * 2  # a loop asks at least twice about each input


def test_what_needs_no_folder_needs_no_pyarrow() -> None:
    code = """
        import sys
        sys.modules["pyarrow"] = None
        from batch_helpers import explainer, inputs
        assert len(explainer().many(inputs(3))) == 3
        try:
            explainer().many(inputs(3), "folder")
        except ImportError as error:
            print(error)
    """
    command, here = [sys.executable, "-c", textwrap.dedent(code)], Path(__file__).parents[1]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=here, check=False)
    assert "needs pyarrow" in ended.stdout, ended.stderr


def test_a_frame_is_its_rows() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": [0.5, 1.5, 2.5]})
    masker = c2fa.maskers.Tabular({"one": ["a"], "other": ["b"]}, background=frame)
    made = c2fa.Explainer(lambda batch: (batch.a + 2 * batch.b).to_numpy(), masker, budget=(4, 8))
    assert [e.prediction for e in made.many(frame)] == [2.0, 5.0, 8.0]


def test_an_input_that_fails_keeps_its_place() -> None:
    xs = inputs(6)
    xs[1][0], xs[4] = RAISES, np.ones(LEAVES + 1)
    with pytest.warns(
        UserWarning, match=r"2 of 6 inputs could not be explained \(input 1: ValueError: a poisoned"
    ) as w:
        found = explainer().many(xs, tries=2)
    assert w[0].filename == __file__
    assert len(found) == 6
    assert [i for i, _ in found.items()] == [0, 2, 3, 5]
    assert [(f.index, f.error[:29]) for f in found.errors()] == [
        (1, "ValueError: a poisoned row (s"),
        (4, found.errors()[1].error[:29]),
    ]
    assert np.array_equal(found[5].low, explainer()(xs[5]).low)
    with pytest.raises(NotExplainedError, match="input 1 could not be explained: ValueError: a poisoned row"):
        list(found)
    assert "2 not explained" in repr(found)


def test_where_nothing_can_be_explained_the_reason_is_raised() -> None:
    xs = inputs(3)
    for x in xs:
        x[0] = NAN
    with pytest.raises(NotExplainedError, match=r"none of the 3 inputs could be explained \(input 0: .*returned NaN"):
        explainer().many(xs)
    begin = time.monotonic()
    with pytest.raises(NoAnswerError, match=r"not answered once .*Connection refused") as raised:
        explainer(Model(down=__file__)).many(inputs(3))
    assert isinstance(raised.value.__cause__, ConnectionRefusedError)
    assert time.monotonic() - begin < 30  # patience is for models that have answered


def test_what_needs_a_folder_says_so() -> None:
    with pytest.raises(TypeError, match=r"gpus=2 goes with a folder.*many\(inputs, 'explained/', gpus=2\)"):
        explainer().many(inputs(2), gpus=2)
    with pytest.raises(ValueError, match="a ledger in memory cannot be shared by workers"):
        explainer(ledger=c2fa.Ledger(":memory:")).many(inputs(4), workers=2)
    with pytest.raises(TypeError, match="no option 'wokers'"):
        explainer().many(inputs(2), wokers=2)
    assert len(explainer().many([])) == 0


def test_workers_around_the_model_of_this_process_give_the_same() -> None:
    xs = inputs(24)
    xs[3][0] = RAISES
    with pytest.warns(UserWarning, match="1 of 24 inputs could not be explained"):
        alone = explainer().many(xs)
    with pytest.warns(UserWarning, match="1 of 24 inputs could not be explained"):
        found = explainer(Calling(), ledger=None).many(xs, workers=2)
    assert (found.run.workers, found.run.rows, found.run.inputs) == (2, alone.run.rows, 24)
    assert found.errors() == alone.errors()
    for (_, mine), (_, theirs) in zip(found.items(), alone.items(), strict=True):
        np.testing.assert_array_equal(mine.low, theirs.low)


@dataclass
class Calling(Model):
    """Must stay in this process; it may be told to stop, as by Ctrl-C, when it is called for the 45th time."""

    stops: bool = False
    calls: int = 0

    def __call__(self, batch: Any) -> Any:
        self.calls += 1
        if self.stops and self.calls == 45:
            os.kill(os.getpid(), signal.SIGINT)
        return super().__call__(batch)

    def __reduce__(self) -> Any:
        raise TypeError("this model does not travel")


@pytest.mark.parametrize("workers", [1, 2])
def test_ctrl_c_returns_what_is_done(workers: int) -> None:
    made = explainer(Calling(stops=True, delay=0.05), batch_size=32)
    with pytest.warns(UserWarning, match=r"\d+ of 60 inputs are missing, .* \(stopped by Ctrl-C\)"):
        found = made.many(inputs(60), workers=workers)
    done = dict(found.items())
    assert 0 < len(done) < 60 == len(found)
    for index, e in done.items():
        np.testing.assert_array_equal(e.low, explainer()(inputs(60)[index]).low)


@pytest.mark.parametrize("count", [4, 32])  # in tasks of one input and of several
def test_an_input_of_which_workers_die_keeps_its_place(count: int) -> None:
    made = c2fa.Explainer(Model(), Deadly(STRUCTURE), budget=(8, 24), progress=False)
    xs = inputs(count)
    xs[2][0] = KILLS
    with pytest.warns(UserWarning, match=r"input 2: 2 workers died of it \(exit code -9\)"):
        found = made.many(xs, workers=2, tries=2)
    assert [failure.index for failure in found.errors()] == [2]


@pytest.mark.parametrize("mark", [RAISES, EXITS])
def test_workers_that_meet_bad_inputs_alone_lose_nothing(mark: float) -> None:
    xs = inputs(17)
    for bad in (0, 1, 16):  # the first task of a worker, and the last of all
        xs[bad][0] = mark
    with pytest.warns(UserWarning, match=r"3 of 17 inputs could not be explained \(input 0: .*sent alone 3 times"):
        found = explainer().many(xs, workers=2)
    assert [failure.index for failure in found.errors()] == [0, 1, 16]


def test_workers_whose_model_never_answers_say_so() -> None:
    with pytest.raises(NoAnswerError, match=r"not answered once in 1 s.*Connection refused"):
        explainer(Model(down=__file__)).many(inputs(6), workers=2)


class Cancelled(Calling):
    """A model whose event loop is gone, from its 31st call on."""

    def __call__(self, batch: Any) -> Any:
        if self.calls >= 30:
            raise asyncio.CancelledError
        return super().__call__(batch)


class Unmetered(Calling):
    """A model that cannot tell its cost any more, from its 31st call on."""

    @property
    def cost(self) -> float:
        if self.calls >= 30:
            raise ConnectionError("the meter is gone")
        return 0.5 * self.calls


@pytest.mark.parametrize(("made", "why"), [(Cancelled, "CancelledError"), (Unmetered, "the meter is gone")])
@pytest.mark.parametrize("workers", [1, 2])
def test_whatever_the_model_raises_here_it_takes_nothing_else_along(made: Any, why: str, workers: int) -> None:
    with pytest.warns(UserWarning, match=rf"\d+ of 60 inputs are missing, .*{why}"):
        found = explainer(made(delay=0.05), batch_size=32).many(inputs(60), workers=workers, patience=0.2)
    assert 0 < len(dict(found.items())) < 60 == len(found)


@pytest.mark.parametrize("workers", [1, 2])
def test_an_outage_returns_what_is_done(workers: int) -> None:
    made = explainer(Failing(), batch_size=32)
    with pytest.warns(UserWarning, match=r"\d+ of 60 inputs are missing, .*rows that it answered before, for 0\.2 s"):
        found = made.many(inputs(60), workers=workers, patience=0.2)
    done = dict(found.items())
    assert 0 < len(done) < 60 == len(found)
    assert "same command" not in found.errors()[0].error  # which would begin anew
    assert f"{60 - len(done)} not explained" in repr(found)
    for index, e in done.items():
        np.testing.assert_array_equal(e.low, explainer()(inputs(60)[index]).low)


def _brightness(bags: Any) -> list[float]:
    return [float(sum(image.mean() for image in bag)) for bag in bags]


def test_bags_of_images_travel_to_a_function_here() -> None:
    """Rows of bags are built as they are read, since they may not all fit into memory; workers send some at a time."""
    bags = list(np.random.default_rng(0).integers(0, 256, (4, 2, 16, 16, 3)).astype(np.uint8))
    made = c2fa.Explainer(_brightness, c2fa.maskers.ImageBag(), budget=20, progress=False)
    for mine, theirs in zip(made.many(bags, workers=2), made.many(bags), strict=True):
        np.testing.assert_array_equal(mine.low, theirs.low)


def test_equal_inputs_are_asked_about_by_one_worker() -> None:
    found = explainer().many([*inputs(20), *[inputs(1)[0]] * 20], workers=2)
    assert found.run.rows == explainer().many(inputs(20)).run.rows


@pytest.mark.parametrize("workers", [1, 2])
def test_a_bad_input_is_to_blame_where_a_ledger_answers_for_the_others(workers: int, tmp_path: Path) -> None:
    made, xs = explainer(ledger=tmp_path / "answers.sqlite"), inputs(5)
    made.many(xs[:4])
    xs[4][0] = RAISES
    with pytest.warns(UserWarning, match="1 of 5 inputs could not be explained .*sent alone 3 times"):
        made.many(xs, workers=workers)


def test_a_script_whose_call_every_worker_repeats_is_told_at_once(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("print('asked')\nfrom batch_helpers import *\nexplainer().many(inputs(8), workers=2)")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])}
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "put the call under 'if __name__ == \"__main__\":'" in done.stderr.splitlines()[-1]
    assert done.stdout.count("asked") <= 3  # by the script itself and each of its workers, and by none again


@pytest.mark.skipif(os.name == "nt", reason="Windows ends a process without a signal")
def test_sigterm_leaves_no_folder(tmp_path: Path) -> None:
    code = """
        from batch_helpers import *
        if __name__ == "__main__":
            explainer(Model(delay=0.2)).many(inputs(200), workers=2)
    """
    (tmp_path / "script.py").write_text(textwrap.dedent(code))
    paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(paths)}
    process = subprocess.Popen([sys.executable, str(tmp_path / "script.py")], env=environment)
    while not list(tmp_path.glob("c2fa-*/answered")):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 143
    assert [file.name for file in tmp_path.iterdir()] == ["script.py"]


def test_a_scout_that_cannot_be_sent_to_workers_says_what_can() -> None:
    made = explainer(prior=c2fa.scout(Calling(), rows=10))
    with pytest.raises(
        TypeError, match=r"does not travel\); give .*c2fa\.scout\('python:module:object'\), or leave out wo"
    ):
        made.many(inputs(4), workers=2)


def test_inputs_that_cannot_be_sent_to_workers_are_told() -> None:
    class Local:
        """Cannot be pickled, even by value."""

        def __array__(self, *_: Any, **__: Any) -> Any:
            return inputs(1)[0]

        def __reduce__(self) -> Any:
            raise TypeError("it stays here")

    assert len(explainer().many([Local(), Local()])) == 2
    with pytest.raises(TypeError, match=r"an input cannot be sent to another process .*it stays here\); give what can"):
        explainer().many([Local(), Local()], workers=2)


def test_a_warning_is_about_the_line_that_called_whichever_way() -> None:
    xs = inputs(3)
    xs[1][0] = RAISES
    with pytest.warns(UserWarning, match="1 of 3") as w:
        c2fa.batch.in_memory(explainer(), xs)
    assert w[0].filename == __file__


@dataclass
class Failing(Model):
    """Answers 40 times, and then nobody any more."""

    calls: int = 0

    def __call__(self, batch: Any) -> Any:
        self.calls += 1
        if self.calls > 40:
            raise ConnectionError("gone")
        return super().__call__(batch)


def test_workers_hand_back_each_explanation_when_it_is_done() -> None:
    """Which is what Ctrl-C can return: tasks have 64 inputs."""
    made = explainer(Calling(stops=True, delay=0.05), batch_size=32)
    with pytest.warns(UserWarning, match="stopped by Ctrl-C"):
        found = made.many(inputs(600), workers=2)
    assert len(dict(found.items())) > 20


class Deadly(c2fa.maskers.Array):
    """A masker that one input kills, and with it the process."""

    def __call__(self, x: Any) -> c2fa.Masked:
        if x[0] == KILLS:
            os.kill(os.getpid(), KILL)
        return super().__call__(x)


def test_progress_is_shown_where_it_is_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    explainer().many(inputs(4))
    assert capsys.readouterr().err == ""
    explainer(Model(delay=0.5), progress=True, batch_size=32).many(inputs(4))
    assert "4/4" in capsys.readouterr().err


@pytest.fixture(scope="module")
def reviews() -> Any:
    """Explanations of a few texts, in memory."""
    texts = ["A great book. I loved it.", "It was bad. Great price.", "Bad, bad. The end.", "Great. I loved the end."]
    return c2fa.Explainer(c2fa.models.DemoSentiment(), budget=60, target="positive").many(texts)


def test_what_matters_over_all_is_the_same_in_memory_and_in_a_store(reviews: Any, tmp_path: Any) -> None:
    pytest.importorskip("pyarrow")
    texts = [e.view.text for e in reviews]
    explainer = c2fa.Explainer(c2fa.models.DemoSentiment(), budget=60, target="positive")
    store = explainer.many(texts, tmp_path / "store", engine="serial", progress=False)
    here, there = reviews.important(), store.important()
    assert {f.name for f in here} == {f.name for f in there}
    there_by_name = {f.name: f for f in there}
    for feature in here:
        assert feature.mean == pytest.approx(there_by_name[feature.name].mean, abs=1e-6)
        assert feature.inputs == there_by_name[feature.name].inputs
    assert [f.name for f in here] == [f.name for f in sorted(here, key=lambda f: -f.mean_abs)]


def test_many_are_one_frame(reviews: Any) -> None:
    pytest.importorskip("pandas")
    frame = reviews.to_frame()
    assert len(frame) == sum(sum(e.structure.widths) for e in reviews)
    leaves = frame[(frame["input"] == 2) & (frame["level"] == 1)]
    np.testing.assert_array_equal(leaves["value"], reviews[2].low)


def test_cohorts_are_looked_at_apart(reviews: Any) -> None:
    by = ["long", "long", "short", "short"]
    found = reviews.cohorts(by)
    assert list(found) == ["long", "short"]
    assert {f.name for f in found["short"].important(least=1, name=str)} == {
        name for e in reviews[2:] for name in e.names[-1]
    }
    groups = reviews.cohorts(lambda e: e.prediction > 0.5)
    assert sum(len(some) for some in groups.values()) == 4


def test_many_are_drawn(reviews: Any) -> None:
    pytest.importorskip("matplotlib")
    [ax] = reviews.plot(least=1).axes
    dots = sum(len(c.get_offsets()) for c in ax.collections)
    assert dots == sum(f.inputs for f in reviews.important(n=15, least=1))
    assert reviews.plot("bars", least=1, ax=ax) is ax.figure
    assert len(ax.get_yticklabels()) == len(reviews.important(n=15, least=1)) == 11
    with pytest.raises(ValueError, match=r"nothing to draw: no name is in 9 or more inputs; give least=1"):
        reviews.plot(least=9)
    with pytest.raises(ValueError, match="kind must be 'beeswarm' or 'bars'; got 'pie'"):
        reviews.plot("pie")


def test_a_whole_table_becomes_shaps() -> None:
    pytest.importorskip("shap", reason="it is shap's own")
    found = explainer(target=1).many(inputs(5)).to_shap()
    assert found.values.shape[0] == 5

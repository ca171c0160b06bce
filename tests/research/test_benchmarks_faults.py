"""The campaign of faults can fail: each of its parts counts what a deliberately faulty stand-in does."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import c2fa
from c2fa._system import suited
from c2fa.batch import many

pytest.importorskip("pyarrow")
pytest.importorskip("httpx2")
pytest.importorskip("resource", reason="the campaign limits memory by it")

from benchmarks.faults import calls, flips, fuzz, kills, server, shared, toys
from benchmarks.faults.command import main
from benchmarks.faults.tally import COUNTS, HangError, Tally, in_processes, same, time_limit, verdict


def altered(e: c2fa.Explanation) -> c2fa.Explanation:
    """The explanation with one number moved in its last bits."""
    leaves = e.all_values[-1].copy()
    leaves[0] *= 1.0 + 1e-12
    return dataclasses.replace(e, all_values=(*e.all_values[:-1], leaves))


def caught(call: Callable[[], Any]) -> BaseException:
    with pytest.raises(BaseException) as caught:
        call()
    return caught.value


def test_same_means_to_the_last_bit() -> None:
    e = toys.truth(1)[0]
    assert same(e, c2fa.Explanation.from_json(e.to_json()))
    assert not same(e, altered(e))


@pytest.mark.parametrize(
    ("call", "count"),
    [
        (lambda: c2fa.Structure.flat(0), None),
        (lambda: c2fa.load("no such file.json"), None),
        (lambda: suited(None).__enter__(), "vague"),  # type: ignore[arg-type]
        (lambda: c2fa.kernels.cosine(5), "raw"),  # type: ignore[arg-type]
        (lambda: json.loads("{"), "raw"),
    ],
)
def test_which_errors_are_clear(call: Callable[[], Any], count: str | None) -> None:
    assert verdict(caught(call))[0] == count


def test_what_does_not_end_is_raw() -> None:
    def hang() -> None:
        with time_limit(0.02):
            while True:
                pass

    error = caught(hang)
    assert isinstance(error, HangError)
    assert verdict(error)[0] == "raw"


# ------------------------------------------------------------------------------------------------ kills


@pytest.mark.parametrize(
    ("log", "killed", "with_ledger", "without"),
    [
        (["1 0:a 0:b", "1 0:c"], set(), 0, 0),
        (["1 0:a 0:b", "2 0:b 0:c"], set(), 1, 1),  # nobody was killed
        (["1 0:a 0:b", "2 0:b 0:c"], {1}, 0, 0),  # in flight
        (
            ["1 0:a", "1 0:b", "2 0:a 0:b"],
            {1},
            1,
            0,
        ),  # the first batch was in the ledger; without one its shard is lost
        (["1 0:a", "1 6:a", "2 0:a"], {1}, 1, 1),  # a shard that was done
        (["1 0:a", "2 0:a", "3 0:a"], {1}, 1, 1),  # the second process was not killed
    ],
)
def test_rows_asked_again(log: Sequence[str], killed: set[int], with_ledger: int, without: int) -> None:
    assert kills.repeated(log, killed, ledger=True) == with_ledger
    assert kills.repeated(log, killed, ledger=False) == without


def test_a_run_that_loses_changes_and_repeats(tmp_path: Path) -> None:
    truth = toys.truth(4)
    (tmp_path / "saved").mkdir()
    truth[0].save(tmp_path / "saved" / "0.json")
    altered(truth[1]).save(tmp_path / "saved" / "1.json")
    (tmp_path / "saved" / "2.json").write_bytes(b"half")
    (tmp_path / "killed").write_text("7\n")
    (tmp_path / "log").write_text("1 0:a 0:b\n2 0:b\n")
    (tmp_path / "errors").write_text("False\tKeyError in json\t'x'\nTrue\tValueError in c2fa\tclear\n")
    tally = kills.Run(tmp_path, "one", True, "0/0", 4, stuck=True).judged()
    assert tally.tries == 1
    assert tally.billed == 3
    assert tally.counts == {"lost": 2, "doubled": 1, "set aside": 1, "different": 1, "silent": 2, "raw": 1}
    assert all("run 0/0" in case for case in tally.cases.values())


def test_rows_asked_again_of_a_model_that_is_shared(tmp_path: Path) -> None:
    """A kill excuses what was under way, and no more."""
    run = shared._Shared(tmp_path, "shared", True, "0/0", 4, campaign="shared")
    log = [f"1 0:{k}" for k in range(200)]
    assert run.repeated(log, []) == 0
    assert run.repeated([*log, *log], []) == 200 - shared._WINDOW
    assert run.repeated([*log, *log], [7]) == max(200 - 2 * shared._WINDOW, 0)


def test_misdeeds_that_are_not_seen_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "_DEEDS", ("nothing",))
    monkeypatch.setattr(shared, "many", lambda *args, models, workers, **more: many(*args, engine="serial", **more))
    monkeypatch.setattr(shared.Hostile, "__call__", toys.Model.__call__)
    tally = shared.misdeeds(0, range(1))
    assert tally.counts == {"silent": 1}


# ------------------------------------------------------------------------------------------------ server


def test_a_client_that_says_the_key_asks_twice_and_changes_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    real = toys.explainer

    def careless(model: Any, **options: Any) -> Callable[[Any], c2fa.Explanation]:
        explain = real(model, **options)
        failures = [KeyError(f"the key is {server.KEY[3:20]}")]

        def call(x: Any) -> c2fa.Explanation:
            e = explain(x)
            if model.url.endswith(server.CALM):
                return e
            if failures:
                raise failures.pop()
            model(np.stack([x]))
            return altered(e)

        return call

    monkeypatch.setattr(server.toys, "explainer", careless)
    tally = server.campaign(seed=1, tries=3)
    assert tally.tries == 2
    assert tally.counts["different"] == tally.counts["silent"] == 2
    assert tally.counts["raw"] >= 2
    assert tally.counts["leaked"] >= 2
    assert tally.counts["doubled"] >= 2
    assert tally.billed >= tally.reported > 0


def test_an_honest_client_and_a_server_without_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_SHARE", 0.0)
    monkeypatch.setattr(server, "_TIMEOUT", 60.0)
    tally = server.campaign(seed=0, tries=9)
    assert tally.tries == 9
    assert not tally.failed
    assert tally.billed == tally.reported > 0


# ------------------------------------------------------------------------------------------------ fuzz and flips


def test_calls_that_give_wrong_numbers_or_raw_errors() -> None:
    e = toys.truth(1)[0]
    wrong = dataclasses.replace(e, all_values=(e.all_values[0] + 1.0, *e.all_values[1:]))
    calls = {
        "wrong": (lambda value: wrong, {"value": [1]}),
        "deep": (lambda value: json.loads("{"), {"value": [1]}),
        "good": (lambda value: e, {"value": [1]}),
    }
    tally = fuzz.work(0, range(40), calls)
    assert tally.tries == 40
    assert set(tally.cases) == {
        ("silent", "wrong: levels that are further off the sums of their leaves than it says"),
        next(kind for kind in tally.cases if kind[0] == "raw" and kind[1].startswith("deep: JSONDecodeError")),
    }
    assert tally.counts["silent"] > 10
    assert tally.counts["raw"] > 3


def test_a_model_that_is_asked_more_than_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = {name: values[0] for name, values in fuzz.CALLS["Explainer"][1].items()}
    fuzz.check(fuzz.explain(**arguments))
    monkeypatch.setitem(fuzz.BAD, "masked", lambda scores: scores)  # type: ignore[arg-type]
    with pytest.raises(fuzz.UnsoundError, match="answers that are masked"):
        fuzz.explain(**{**arguments, "answer": "masked"})
    e = toys.truth(1)[0]
    monkeypatch.setattr(c2fa.Explainer, "__call__", lambda self, x, key=None: [self.model([x] * 300), e][1])
    with pytest.raises(fuzz.UnsoundError, match="300 rows asked of a budget of 200"):
        fuzz.explain(**arguments)


def _keeps(read: Callable[[bool], c2fa.Explanation]) -> flips.Kind:
    """A way to keep things whose reader learns whether the file is damaged."""
    intact = bytes(range(64))
    return flips.Kind(
        lambda folder: (folder / "file").write_bytes(intact) and None,
        lambda folder, model: {0: read((folder / "file").read_bytes() != intact)},
    )


def test_readers_of_damaged_files() -> None:
    e = toys.truth(1)[0]

    def warns(damaged: bool) -> c2fa.Explanation:
        if damaged:
            warnings.warn("the file is damaged", stacklevel=1)
        return altered(e) if damaged else e

    kinds = {
        "careless": _keeps(lambda damaged: altered(e) if damaged else e),
        "warns": _keeps(warns),
        "deep": _keeps(lambda damaged: json.loads("{") if damaged else e),
        "clear": _keeps(lambda damaged: c2fa.load("no such file.json") if damaged else e),
    }
    tally = flips.work(0, range(8), kinds)
    assert tally.counts == {"different": 4, "silent": 2, "raw": 2}


# ------------------------------------------------------------------------------------------------ calls


def _tears(folder: Path) -> dict[int, c2fa.Explanation]:
    """Writes in place, so that half a file may stay, and then takes it for the whole."""
    file = folder / "e.json"
    if not file.exists():
        with file.open("w") as out:
            out.write(toys.truth(1)[0].to_json())
    return {0: c2fa.load(file)}


def _forgets(folder: Path) -> dict[int, c2fa.Explanation]:
    """Takes a failure for an answer, in silence."""
    try:
        with (folder / "log").open("w") as out:
            out.write("asked")
    except OSError:
        return {0: altered(toys.truth(1)[0])}
    return {0: toys.truth(1)[0]}


@pytest.mark.parametrize(
    ("run", "counts"),
    [(_tears, {"lost": 3, "raw": 3}), (_forgets, {"different": 6, "silent": 6}), (calls.with_ledger, {})],
)
def test_calls_that_fail(run: Callable[[Path], Any], counts: dict[str, int], tmp_path: Path) -> None:
    """Half a file, what is taken for an answer, and none of both: each is counted for each error of each call."""
    (tmp_path / "calm").mkdir()
    points = calls.points(run, tmp_path / "calm")
    expected = run(tmp_path / "calm")
    tally = Tally("calls")
    for kind, at, number in points[:: 1 if counts else 20]:
        folder = tmp_path / f"{kind}-{at}-{number}"
        folder.mkdir()
        calls.judge(tally, "run", run, calls.Trap(folder, (kind, at), number), expected, "case")
    assert tally.tries >= 6
    assert tally.counts == counts


def test_a_call_that_never_comes_is_told(tmp_path: Path) -> None:
    tally = Tally("calls")
    trap = calls.Trap(tmp_path, ("rename", 999), 28)
    calls.judge(tally, "run", calls.with_ledger, trap, calls.with_ledger(tmp_path), "case")
    assert tally.cases == {("silent", "run, rename: the call never came"): "case"}


def _dies(seed: int, cases: Sequence[int]) -> Tally:
    if 1 in cases:
        os.kill(os.getpid(), signal.SIGKILL)
    return Tally("dies", tries=len(cases))


@pytest.mark.slow  # three processes, each of which imports everything
def test_a_crash_counts_against_its_case() -> None:
    tally = in_processes(_dies, "dies", seed=5, cases=2, at_once=2)
    assert tally.tries == 2
    assert tally.cases == {("raw", "the process ended with -9"): "--seed 5, case 1"}


# ------------------------------------------------------------------------------------------------ the command


@pytest.mark.parametrize("count", [None, "vague", *COUNTS])
def test_the_exit_status(count: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    def campaign(seed: int, tries: int) -> Tally:
        tally = Tally("toy", tries)
        if count is not None:
            tally.note(count, "a kind", f"--seed {seed}, case 3", 2)
        return tally

    status = main(["--seed", "9", "--quick"], {"toy": (campaign, 100, 7)})
    said = capsys.readouterr().out
    assert status == (count in COUNTS)
    assert (f"{count} × 2: a kind\n      --seed 9, case 3" in said) == (count is not None)
    assert said.splitlines()[-1].split()[:2] == ["toy", "7"]

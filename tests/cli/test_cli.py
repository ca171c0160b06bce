"""The command line as scripts use it: files, JSON, exit codes, one sentence for each thing that goes wrong."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import c2fa
from c2fa.cli import app, output
from c2fa.cli.commands import STORE_OPTIONS
from c2fa.cli.explain import Explain
from c2fa.cli.inputs import mask_token
from c2fa.cli.options import LANGUAGE_MODELS, MODELS
from c2fa.cli.output import RefusedError, clean, plain_json
from c2fa.cli.session import Resume, cache_folder
from c2fa.models import loading
from running import RUNNER

TEXT = "The food was good and good. The waiter was bad. We waited a long time."
MODEL = '''
"""Counts good and bad words, and keeps a log of what it is asked."""
import pathlib
import numpy as np

output_names = ("bad", "good")

def words(texts):
    with open("asked.log", "a") as log:
        log.writelines(text.replace("\\n", " ") + "\\n" for text in texts)
    good = np.array([t.count("good") - t.count("bad") for t in texts], float)
    return np.column_stack([1 - good, good])

def breaks(texts):
    if len(asked()) + len(texts) > 100 and not pathlib.Path("repaired").exists():
        raise RuntimeError("out of \\x1b[31mmemory")
    return words(texts)

def asked():
    log = pathlib.Path("asked.log")
    return log.read_text().splitlines() if log.exists() else []

def nan(texts):
    return [float("nan")] * len(texts)

def table(frame):
    return frame["a"].to_numpy(float) * 2 + frame["b"].to_numpy(float)

def double(frame):
    return 2 * frame

def bag(bags):
    return np.array([sum(float(np.mean(image)) for image in one) for one in bags]) / 255
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a model of its own, and a cache that is nobody's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delitem(sys.modules, "counting", raising=False)
    (tmp_path / "counting.py").write_text(MODEL)
    (tmp_path / "a.txt").write_text(TEXT)
    (tmp_path / "b.txt").write_text("A good day. Bad weather, though good company.")
    (tmp_path / "t.csv").write_text("a,b,c,label\n1,2,x,0\n3,4,y,1\n5,6,x,1\n")
    (tmp_path / "groups.json").write_text('{"numbers": ["a", "b"]}')
    return tmp_path


def c2fa_(*args: object, code: int = 0, **options: Any) -> Any:
    result = RUNNER.invoke(app, [str(a) for a in args], **options)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


def asked(folder: Path) -> list[str]:
    log = folder / "asked.log"
    return log.read_text().splitlines() if log.exists() else []


def test_the_demo_prints_both_levels_and_says_what_the_model_is(folder: Path) -> None:
    pytest.importorskip("matplotlib")
    out = c2fa_("demo", "--budget", "20,60", "--html", "demo.html", "--plot", "demo.png").stdout
    assert out.startswith("The model: ")
    assert "zipper broke" in out
    assert "└─ " in out
    assert "<html" in (folder / "demo.html").read_text()
    assert (folder / "demo.png").read_bytes().startswith(b"\x89PNG")


def test_the_demo_takes_a_text_and_prints_json(folder: Path) -> None:
    said = c2fa_("demo", "--text", "I love it. It broke.", "--budget", "6,12", "--json").stdout
    e = c2fa.Explanation.from_json(said)
    assert e.names[0] == ("I love it.", "It broke.")
    np.testing.assert_allclose(e.structure.sums(e.low, 0), e.high, atol=1e-9)
    assert said.count("\n") == 1


def test_texts_are_explained_into_every_format(folder: Path) -> None:
    pytest.importorskip("pyarrow")
    outs = [f"--out=x{suffix}" for suffix in (".html", ".json", ".parquet", ".csv")]
    result = c2fa_("explain", "a.txt", "--model", "python:counting:words", "--budget", "60", *outs)
    assert result.stderr.splitlines()[-4:] == [f"wrote x{s}" for s in (".html", ".json", ".parquet", ".csv")]
    one = c2fa.load("x.json")
    assert one.provenance["input"] == "a.txt"
    import pandas as pd

    frame = pd.read_parquet("x.parquet")
    assert set(frame["input"]) == {"a.txt"}
    np.testing.assert_allclose(frame.query("level == 1")["value"], one.low)
    assert len(pd.read_csv("x.csv")) == len(frame)
    assert "The food was good" in result.stdout


def test_several_inputs_make_a_gallery_and_one_json_line_each(folder: Path) -> None:
    args = ("explain", "a.txt", "b.txt", "-m", "python:counting:words", "-b", "30", "--json")
    lines = c2fa_(*args, "-o", "g.html", "-o", "g.json").stdout.splitlines()
    assert [c2fa.Explanation.from_json(line).provenance["input"] for line in lines] == ["a.txt", "b.txt"]
    assert len(json.loads((folder / "g.json").read_text())) == 2
    assert "b.txt" in (folder / "g.html").read_text()
    c2fa_("report", "g.json", "--out", "again.html", "--title", "Once more")
    assert "Once more" in (folder / "again.html").read_text()
    assert ".html, .json, .parquet, .csv" in c2fa_(*args, "-o", "g.npz", code=2).stderr


def test_standard_input_and_what_is_said_of_texts(folder: Path) -> None:
    base = ("explain", "-", "-m", "python:counting:words", "-b", "30", "--json")
    e = c2fa.Explanation.from_json(c2fa_(*base, "--masker", "levels=words", "--masker", "mask=none", input=TEXT).stdout)
    assert e.structure.depth == 1
    assert not any("[MASK]" in text for text in asked(folder))
    c2fa_(*base, "--masker", "mask=UNK", input=TEXT)
    assert any("UNK" in text for text in asked(folder))


def test_options_reach_the_method_and_the_explainer(folder: Path) -> None:
    args = ("explain", "a.txt", "-m", "python:counting:words", "-b", "12,20", "--json", "--seed", "3")
    e = c2fa.Explanation.from_json(
        c2fa_(*args, "--option", "intercept=false", "--option", "kernel=cosine", "--target", "0").stdout
    )
    assert (e.target, e.provenance["seed"], e.provenance["budget"]) == (0, 3, [11, 20])
    assert "cosine" in e.provenance["settings"]
    assert "intercept=False" in e.provenance["settings"]
    stopped = c2fa_(*args[:4], "-b", "300", "--until", "stderr:0.5", "--option", "sampler=planned", "--json").stdout
    e = c2fa.Explanation.from_json(stopped)
    assert e.queries < 300
    assert "sampler='planned'" in e.provenance["settings"]
    assert e.diagnostics.stop == f"stopped after {e.queries} of 300 rows: every standard error of words is at most 0.5"
    assert "solver='paper'" in c2fa_(*args, "--option", "preset=paper").stdout


def test_a_cheap_model_is_asked_first(folder: Path) -> None:
    asking = "explain", "a.txt", "-m", "python:counting:words", "-b", "12"
    e = c2fa.Explanation.from_json(c2fa_(*asking, "--scout", "demo", "--json").stdout)
    assert (e.queries, e.prior.scouted, len(asked(folder))) == (12, 200, 12)
    both = c2fa_(*asking, "--scout", "demo", "--prior", "p.json", code=2)
    assert "--prior and --scout both say what to expect: give one of them" in both.stderr
    assert "c2fa.scout('attention') is for c2fa.cite" in c2fa_(*asking, "--scout", "attention", code=2).stderr


def test_rows_of_a_table_with_groups(folder: Path) -> None:
    pytest.importorskip("pandas")
    lines = c2fa_(
        *("explain", "t.csv", "-m", "python:counting:table", "--drop", "label", "--masker", "groups=groups.json"),
        *("--row", "0", "--row", "2:", "--budget", "30", "--json"),
    ).stdout.splitlines()
    found = [c2fa.Explanation.from_json(line) for line in lines]
    assert [e.provenance["input"] for e in found] == ["t.csv row 0", "t.csv row 2"]
    assert found[0].names == (("numbers", "c"), ("a", "b", "c"))
    assert [e.prediction for e in found] == [4.0, 16.0]
    one = c2fa_(
        *("explain", "t.csv", "-m", "python:counting:table", "--drop", "label", "--row", "1", "--budget", "12"),
        *("--masker", "background=t.csv", "--masker", "strategy=average", "--json"),
    ).stdout
    assert c2fa.Explanation.from_json(one).prediction == 10.0


@pytest.mark.slow
def test_a_scikit_learn_file_is_read_by_skops_and_a_pickle_only_when_allowed(folder: Path) -> None:
    skops = pytest.importorskip("skops.io")
    joblib = pytest.importorskip("joblib")
    import pandas as pd
    from sklearn.linear_model import LogisticRegression

    frame = pd.read_csv("t.csv")
    fitted = LogisticRegression().fit(frame[["a", "b"]], frame["label"])
    skops.dump(fitted, folder / "m.skops")
    joblib.dump(fitted, folder / "m.joblib")
    args = ("explain", "t.csv", "--drop", "label", "--drop", "c", "--row", "2", "-b", "12", "--json", "-m")
    e = c2fa.Explanation.from_json(c2fa_(*args, "sklearn:m.skops").stdout)
    assert e.output_names == ("0", "1")
    assert "--allow-pickle" in c2fa_(*args, "sklearn:m.joblib", code=3).stderr
    same = c2fa.Explanation.from_json(c2fa_(*args, "sklearn:m.joblib", "--allow-pickle").stdout)
    np.testing.assert_array_equal(e.low, same.low)


def test_a_type_that_is_not_scikit_learns_is_trusted_by_its_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    skops = pytest.importorskip("skops.io")
    import pandas as pd
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer
    from sklearn.tree import DecisionTreeRegressor

    frame = pd.read_csv("t.csv")
    tree = DecisionTreeRegressor().fit(2 * frame[["a", "b"]], frame["label"])
    double = loading.load("python:counting:double")
    skops.dump(make_pipeline(FunctionTransformer(double), tree), "m.skops")
    monkeypatch.delitem(sys.modules, "counting")
    args = ("explain", "t.csv", "--drop", "label", "--drop", "c", "--row", "2", "-b", "12", "--json")
    args += ("-m", "sklearn:m.skops")
    said = c2fa_(*args, code=3).stderr
    assert "the types counting.double, which are not scikit-learn's" in said
    assert "if you trust it, give --model-option trusted=counting.double" in said
    assert (
        c2fa.Explanation.from_json(c2fa_(*args, "--model-option", "trusted=counting.double").stdout).prediction == 1.0
    )


def test_a_folder_of_images_is_a_bag(folder: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    pytest.importorskip("skimage")
    (folder / "scans").mkdir()
    for k in range(3):
        pixels = np.zeros((24, 24, 3), dtype=np.uint8)
        pixels[:, 12:] = 60 * (k + 1)
        image.fromarray(pixels).save(folder / "scans" / f"{k}.png")
    (folder / "scans" / "metadata.jsonl").touch()
    args = ("-m", "python:counting:bag", "--masker", "segment=slic", "--budget", "8,30", "--json")
    e = c2fa.Explanation.from_json(c2fa_("explain", "scans", *args, "--masker", "fill=mean", "-o", "s.html").stdout)
    assert e.names[0] == ("0.png", "1.png", "2.png")
    assert e.high.argmax() == 2
    single = c2fa.Explanation.from_json(c2fa_("explain", "scans/2.png", *args).stdout)
    assert single.names[0][0] == "top left"


def test_answers_are_kept_until_the_command_succeeds(folder: Path) -> None:
    args = ("explain", "a.txt", "b.txt", "-m", "python:counting:breaks", "-b", "20,80", "--batch-size", "10", "--json")
    result = c2fa_(*args, code=4)
    before = len(asked(folder))
    assert f"{before} answers are kept" in result.stderr
    assert "this happened in 'b.txt'" in result.stderr
    assert "\x1b" not in result.stderr
    assert len(list(cache_folder().glob("*.sqlite"))) == 1
    (folder / "repaired").touch()
    found = [c2fa.Explanation.from_json(line) for line in c2fa_(*args).stdout.splitlines()]
    assert found[0].diagnostics.sent == 0
    assert len(asked(folder)) == sum(e.queries for e in found)
    assert list(cache_folder().iterdir()) == []
    c2fa_(*args)  # after a success everything is asked anew: the model may have changed
    assert len(asked(folder)) == 2 * sum(e.queries for e in found)


def test_answers_of_a_model_that_was_changed_are_not_used(folder: Path) -> None:
    args = ("explain", "a.txt", "b.txt", "-m", "python:counting:breaks", "-b", "20,80", "--batch-size", "10", "--json")
    c2fa_(*args, code=4)
    before = len(asked(folder))
    (folder / "counting.py").write_text(MODEL + "\n# repaired\n")
    sys.modules.pop("counting")
    (folder / "repaired").touch()
    found = [c2fa.Explanation.from_json(line) for line in c2fa_(*args).stdout.splitlines()]
    assert len(asked(folder)) - before == sum(e.queries for e in found)


def test_a_ledger_keeps_answers_for_ever_under_the_models_name(folder: Path) -> None:
    args = ("explain", "a.txt", "-m", "python:counting:words", "-b", "30", "--json", "--ledger", "answers.sqlite")
    assert "--model-name" in c2fa_(*args, code=2).stderr
    assert asked(folder) == []
    first = c2fa.Explanation.from_json(c2fa_(*args, "--model-name", "v1").stdout)
    again = c2fa.Explanation.from_json(c2fa_(*args, "--model-name", "v1").stdout)
    assert (first.diagnostics.recalled, again.diagnostics.sent) == (0, 0)
    assert not cache_folder().exists()
    other = c2fa.Explanation.from_json(c2fa_(*args, "--model-name", "v2").stdout)
    assert other.diagnostics.recalled == 0


def test_a_cache_that_cannot_be_used_is_said_and_gone_without(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "file"))
    args = ("explain", "a.txt", "-m", "python:counting:words", "-b", "30")
    assert "cannot keep answers" in c2fa_(*args).stderr
    assert c2fa_(*args, "--no-resume").stderr == ""


def test_a_resume_file_that_is_broken_begins_anew(folder: Path) -> None:
    args = ("explain", "a.txt", "b.txt", "-m", "python:counting:breaks", "-b", "20,80", "--batch-size", "10")
    c2fa_(*args, code=4)
    (kept,) = cache_folder().glob("*.sqlite")
    kept.write_bytes(b"this is no ledger at all " * 100)
    (folder / "repaired").touch()
    assert "kept" not in c2fa_(*args).stderr


def test_one_command_at_a_time_has_the_resume_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("fcntl")
    with Resume(True, "demo", {}, ["a"], ".sqlite") as first:
        with Resume(True, "demo", {}, ["a"], ".sqlite") as second:
            assert second.path is None
        assert "another command" in capsys.readouterr().err
        with Resume(True, "demo", {}, ["b"], ".sqlite") as other:
            assert other.path not in (None, first.path)


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("missing.txt", "-m", "demo"), 3, "there is no file or folder 'missing.txt'"),
        (("a.txt", "-m", "nonsense"), 3, "'nonsense' names no model"),
        (("a.txt", "-m", "python:nowhere:f"), 3, "cannot import 'nowhere'"),
        (("a.txt", "-m", "python:counting:f"), 3, "'counting' has no 'f'"),
        (("a.txt", "-m", "sklearn:groups.json"), 3, "--allow-pickle"),
        pytest.param(("a.txt", "-m", "hf:nowhere"), 3, "nowhere", marks=pytest.mark.slow),
        (("a.txt", "-m", "demo", "--model-option", "x=1"), 2, "'x' is unknown: the model 'demo' takes weights"),
        (("a.txt", "-m", "demo", "--model-option", "x"), 2, "must read KEY=VALUE"),
        (("a.txt", "-m", "demo", "--out", "x.docx"), 2, "must end in .html"),
        (("a.txt", "-m", "demo", "--out", "nowhere/x.html"), 3, "there is no folder"),
        (("a.txt", "-m", "demo", "--out", "a.txt/x.html"), 3, "there is no folder"),
        (("a.txt", "-m", "demo", "--budget", "many"), 2, "not a number of model rows"),
        (("a.txt", "-m", "demo", "--budget", "$2.00"), 2, "'$2.00' is money, and this model counts no cost; give it"),
        (("a.txt", "-m", "demo", "--budget", "2"), 3, "too small"),
        (("a.txt", "-m", "demo", "--budget", "5,5,5"), 3, "3 entries"),
        (("a.txt", "-m", "demo", "--until", "soon"), 2, "got 'soon'"),
        (("a.txt", "-m", "demo", "--until", "top0"), 2, "k must be"),
        (("a.txt", "-m", "demo", "--option", "sampler=Planned(99)"), 2, "sampler"),
        (("a.txt", "-m", "demo", "--method", "magic"), 2, "'magic'"),
        (("a.txt", "-m", "demo", "--option", "magic=1"), 2, "--option 'magic' is unknown: the explainer takes "),
        (
            ("a.txt", "-m", "demo", "--method", "c2fa", "--option", "magic=1"),
            2,
            "--option 'magic' is unknown: the method 'c2fa' takes ",
        ),
        (("a.txt", "-m", "demo", "--option", "=1"), 2, "must read KEY=VALUE"),
        (("a.txt", "-m", "demo", "--option", "penalty=L2(x)"), 2, "penalty"),
        (("a.txt", "-m", "demo", "--masker", "levels=words,sentences"), 2, "levels"),
        (("a.txt", "-m", "demo", "--masker", "fill=0"), 2, "masking texts takes levels, mask, language"),
        (("a.txt", "-m", "demo", "--masker", "mask"), 2, "must read KEY=VALUE"),
        (("a.txt", "-m", "demo", "--row", "1"), 2, "--row is for files with rows"),
        (("a.txt", "-m", "demo", "--field", "text"), 2, "--field is for files with rows"),
        (("a.txt", "t.csv", "-m", "demo"), 3, "one kind at a time"),
        (("t.csv", "-m", "demo", "--row", "7"), 3, "no row 7"),
        (("t.csv", "-m", "demo", "--row", "x"), 2, "not a row"),
        (("t.csv", "-m", "demo", "--drop", "z"), 3, "no column 'z'"),
        (("t.csv", "-m", "demo", "--masker", "groups=a.txt"), 3, "cannot read the groups"),
        (("void", "-m", "demo"), 3, "holds no images"),
        (("empty.txt", "-m", "demo"), 3, "is empty"),
        (("latin.txt", "-m", "demo"), 3, "not a text in UTF-8"),
        (("a.txt", "-m", "demo", "--target", "magic"), 2, "'magic' does not exist"),
        (("a.txt", "-m", "python:counting:nan"), 4, "--on-error drop"),
        (("t.csv", "-m", "demo"), 2, "takes texts: name the column that holds them with --field; there are a, b, c"),
        (("t.csv", "-m", "demo", "--field", "z"), 3, "no column 'z'; it has a, b, c, label"),
        (("d.jsonl", "-m", "demo", "--field", "z"), 3, "--field 'z' is not in the rows; they have text"),
        (("d.jsonl", "-m", "demo", "--drop", "text"), 2, "--drop is for rows of tables, and these are texts"),
        (("mixed.jsonl", "-m", "demo"), 2, "row 0 of 'mixed.jsonl' has id, text: name the one that is the text with"),
        (("mixed.jsonl", "-m", "demo", "--field", "id", "--row", "0"), 3, "row 0 of 'mixed.jsonl' is no text: 1"),
        (("mixed.jsonl", "-m", "demo", "--field", "text"), 3, "line 2 of 'mixed.jsonl' is not JSON"),
        (("semicolons.csv", "-m", "demo"), 3, "are separated by semicolons, and .csv means commas: write it anew"),
        (("decimals.csv", "-m", "demo"), 3, "are separated by semicolons, and .csv means commas: write it anew"),
        (("tabs.csv", "-m", "demo"), 3, "are separated by tabs, and .csv means commas: write it anew"),
        (("d.jsonl", "-m", "demo", "--store", "s", "--store-option", "x=1"), 2, "a store takes engine, "),
        (("d.jsonl", "-m", "demo", "--store", "s", "--model-option", "x=1"), 2, "the model 'demo' takes weights"),
        (("d.jsonl", "-m", "demo", "--store", "s", "--store-option", "tries=0"), 2, "tries=0 must be a whole number"),
        (("d.jsonl", "-m", "demo", "--store", "s", "--store-option", "timeout=x"), 2, "timeout=x must be a number"),
    ],
)
def test_what_goes_wrong_is_one_sentence_and_a_code(folder: Path, args: tuple[str, ...], code: int, said: str) -> None:
    (folder / "void").mkdir()
    if any(arg.endswith(".csv") for arg in args):
        pytest.importorskip("pandas")
    (folder / "empty.txt").write_text(" \n")
    (folder / "latin.txt").write_bytes("größe".encode("latin-1"))
    (folder / "d.jsonl").write_text('{"text": "x"}\n')
    (folder / "mixed.jsonl").write_text('{"id": 1, "text": "x"}\n{"id": 2\n')
    (folder / "semicolons.csv").write_text("a;b\n1;2\n")
    (folder / "decimals.csv").write_text("a;b\n1,5;2\n1,5;2,5\n")
    (folder / "tabs.csv").write_text("a\tb\n1\t2\n")
    result = c2fa_("explain", *args, code=code)
    assert said in result.stderr
    assert result.stderr.startswith("error: ")
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert asked(folder) == []


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder that even root cannot write")
def test_an_output_that_cannot_be_written_costs_no_answer(folder: Path) -> None:
    result = c2fa_("explain", "a.txt", "-m", "python:counting:words", "-o", "/proc/self/x.html", code=3)
    assert "cannot be written" in result.stderr
    assert asked(folder) == []


def test_debug_shows_where(folder: Path) -> None:
    result = c2fa_("explain", "missing.txt", "-m", "demo", "--debug", code=3)
    assert "Traceback" in result.stderr
    assert result.stderr.splitlines()[-1].startswith("error: ")


def test_typers_own_errors_have_the_code_of_usage(folder: Path) -> None:
    assert "--model" in c2fa_("explain", "a.txt", code=2).stderr
    c2fa_("explain", "a.txt", "-m", "demo", "--nonsense", code=2)
    c2fa_("nonsense", code=2)


def test_inputs_that_were_set_aside_are_asked_again_with_a_flag(folder: Path) -> None:
    pytest.importorskip("pyarrow")
    (folder / "sick.py").write_text(
        "import os\nfrom counting import words as count\n"
        "def words(batch):\n"
        "    if os.path.exists('sick') and any('rotten' in text for text in batch):\n"
        "        raise ValueError('not today')\n"
        "    return count(batch)\n"
    )
    (folder / "sick").touch()
    texts = [TEXT, "A rotten day.", TEXT.replace("long", "short")]
    (folder / "d.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in texts))
    args = ("explain", "d.jsonl", "-m", "python:sick:words", "-b", "8,12", "--store", "done")
    args += ("--store-option", "engine=serial")
    said = c2fa_(*args).stderr
    assert "input 1 was set aside: ValueError: not today" in said
    assert "the same command with --retry-failed asks about them again" in said
    (folder / "sick").unlink()
    assert "0 of them were explained now" in c2fa_(*args).stdout
    result = c2fa_(*args, "--retry-failed")
    assert "1 of them were explained now" in result.stdout
    assert "set aside" not in result.stderr


def test_datasets_go_into_a_store_and_come_out_as_a_page(folder: Path) -> None:
    pytest.importorskip("pyarrow")
    rows = [{"id": f"r{k}", "text": TEXT.replace("long", f"long {k}")} for k in range(5)]
    (folder / "d.jsonl").write_text("\n".join(map(json.dumps, rows)))
    args = ("explain", "d.jsonl", "--field", "text", "-m", "python:counting:words", "-b", "8,12")
    args += ("--store-option", "key=id", "--store-option", "engine=serial", "--store", "done")
    facts = json.loads(c2fa_(*args, "--json").stdout)
    assert (facts["inputs"], facts["in_store"], facts["set_aside"]) == (5, 5, 0)
    before = len(asked(folder))
    assert "0 of them were explained now" in c2fa_(*args).stdout
    assert len(asked(folder)) == before
    assert "budget is [8, 12] there and [9, 12] now" in c2fa_(*args, "-b", "9,12", code=3).stderr
    assert "until is None there and 'Top" in c2fa_(*args, "--until", "top3", code=3).stderr
    assert "there and 'v2' now" in c2fa_(*args, "--model-name", "v2", code=3).stderr
    assert len(asked(folder)) == before
    assert "do not go together" in c2fa_(*args, "--out", "x.html", code=2).stderr
    assert "'nope' is not in the rows" in c2fa_(*args[:3], "nope", *args[4:-1], "s2", code=3).stderr
    result = c2fa_("report", "done", "--out", "done.html", "--limit", "3")
    assert "first 3" in result.stderr
    assert "2 · The food" in (folder / "done.html").read_text()
    assert "goes with --store DIR" in c2fa_("explain", "a.txt", "-m", "demo", "--retry-failed", code=2).stderr
    table = ("explain", "t.csv", "-m", "python:counting:table", "--drop", "label", "--store", "rows")
    c2fa_(*table, "--store-option", "engine=serial")
    from c2fa.batch import Store

    assert [e.prediction for e in Store.open("rows")] == [4.0, 10.0, 16.0]


def test_texts_in_rows_of_files_are_explained_and_compared(folder: Path) -> None:
    pytest.importorskip("pyarrow")
    pd = pytest.importorskip("pandas")
    rows = [{"id": "007", "text": "A good day. Bad food."}, {"id": "2", "text": "NA"}, {"id": "3", "text": TEXT}]
    frame = pd.DataFrame(rows)
    frame.to_csv("r.csv", index=False)
    frame.to_json("r.jsonl", orient="records", lines=True)
    frame.to_parquet("r.parquet")
    asking = ("--field", "text", "-m", "python:counting:words")
    for file in ("r.csv", "r.jsonl", "r.parquet"):
        said = c2fa_("explain", file, *asking, "--row", "0", "--row", "2", "-b", "20", "--json").stdout.splitlines()
        found = [c2fa.Explanation.from_json(line) for line in said]
        assert [e.view.text for e in found] == [rows[0]["text"], TEXT]
        assert [e.provenance["input"] for e in found] == [f"{file} row 0", f"{file} row 2"]
        assert " NA\n" in c2fa_("explain", file, *asking, "--row", "1", "-b", "20").stdout
        said = c2fa_(
            "evaluate", file, *asking, "--row", "0:2", "--budget", "10", "--budget", "20", "--seeds", "1"
        ).stdout
        assert "insertion (words)" in said
        assert all(f" {name} " in said for name in ("owen", "c2fa", "lime"))  # the default among what is compared
    c2fa_("explain", "r.csv", *asking, "-b", "20", "--store", "some", "--row", "1:", "--store-option", "engine=serial")
    from c2fa.batch import Store

    assert [e.view.text for e in Store.open("some")] == ["NA", TEXT]


def test_a_blank_row_is_refused_before_anything_is_asked_and_set_aside_in_a_store(folder: Path) -> None:
    pytest.importorskip("pyarrow")
    (folder / "r.csv").write_text("text,n\nA good day.,1\n,2\n")
    asking = ("r.csv", "--field", "text", "-m", "python:counting:words")
    for command in ("explain", "evaluate"):
        assert "'r.csv row 1' cannot be explained: there are no words" in c2fa_(command, *asking, code=3).stderr
    assert asked(folder) == []
    result = c2fa_("explain", *asking, "-b", "9", "--store", "s", "--store-option", "engine=serial")
    assert "input 1 was set aside" in result.stderr


def test_every_option_of_a_store_is_one_of_many() -> None:
    from c2fa.batch import many

    assert set(STORE_OPTIONS) <= set(inspect.signature(many).parameters)


def test_methods_are_compared(folder: Path) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("matplotlib")
    args = ("evaluate", "a.txt", "b.txt", "-m", "python:counting:words", "--budget", "6,10", "--budget", "6,20")
    args += ("--seeds", "2")
    args += ("--methods", "c2fa,lime", "--metrics", "deletion,mihl")
    result = c2fa_(*args, "--out", "s.csv", "--json")
    facts = json.loads(result.stdout)
    assert {row["method"] for row in facts["summary"]} == {"c2fa", "lime"}
    assert facts["rows"]["sent"] == len(asked(folder))
    assert (folder / "s.csv").read_text().startswith("method,N_H,N_L,seed,input,metric,level,value")
    assert list(cache_folder().iterdir()) == []
    before = len(asked(folder))
    assert "--model-name" in c2fa_(*args, "--store", "kept", code=2).stderr
    c2fa_(*args, "--store", "kept", "--model-name", "v1")
    middle = len(asked(folder))
    said = c2fa_(*args, "--store", "kept", "--model-name", "v1").stdout
    assert "deletion (words)" in said
    assert " mihl " in said
    assert before < middle == len(asked(folder))
    for wrong in (
        ("--metrics", "ndcg"),
        ("--metrics", "magic"),
        ("--methods", "magic"),
        ("--budget", "x"),
        ("--budget", "6:10"),
    ):
        assert c2fa_(*args, *wrong, code=2).stderr.startswith("error: ")


def test_reports_of_what_is_no_explanation_are_refused(folder: Path) -> None:
    assert "not an explanation" in c2fa_("report", "groups.json", "--out", "x.html", code=3).stderr
    assert "there is no file" in c2fa_("report", "missing.json", "--out", "x.html", code=3).stderr
    assert "must end in .html" in c2fa_("report", "groups.json", "--out", "x.pdf", code=2).stderr
    (folder / "void").mkdir()
    assert "neither a store" in c2fa_("report", "void", "--out", "x.html", code=3).stderr


def test_info_lists_what_there_is(folder: Path) -> None:
    said = c2fa_("info").stdout
    assert said.startswith(f"c2fa {c2fa.__version__}, ")
    assert "owen, " in said
    assert "  images    images   " in said
    for spec in MODELS:
        assert spec in said
        assert spec in loading._forms(loading._ADAPTERS)
    kinds = {spec.partition(":")[0] for spec in (*MODELS, *LANGUAGE_MODELS)}
    assert {*loading._ADAPTERS} - {"hf-lm"} == kinds, "for cite, hf: is a language model"
    for spec in LANGUAGE_MODELS:
        assert f"  {spec}" in said
        loading.language_model_spec(spec)


def test_info_lists_every_command(folder: Path) -> None:
    said = c2fa_("info").stdout
    listed = said.partition("Commands\n")[2].partition("\n\n")[0].splitlines()
    helped = c2fa_("--help", env={"COLUMNS": "80"}).stdout
    assert {line.split()[0] for line in listed} == {str(one.callback.__name__) for one in app.registered_commands}
    for line in listed:
        assert line.split()[0] in helped


def test_python_runs_the_package(folder: Path) -> None:
    assert _python("-m", "c2fa", "--version").stdout == f"c2fa {c2fa.__version__}\n"


@pytest.mark.parametrize(
    ("words", "near"),
    [
        ("explian a.txt -m demo", "explain"),
        ("explain a.txt -m demo --masker level=words", "levels"),
        ("explain a.txt -m demo --masker levels=sentence,words", "sentences"),
        ("explain a.txt -m demo --method oven", "owen"),
        ("explain a.txt -m demo --option smoth=1", "smooth"),
        ("explain a.txt -m demo --target positve", "positive"),
        ("explain a.txt -m demo --store s --store-option engine=procesess", "processes"),
        ("explain a.txt -m demo --store s --store-option shardsize=8", "shard_size"),
        ("explain t.csv -m python:counting:table --drop lable", "label"),
        ("explain t.csv -m demo --field lable", "label"),
        ("evaluate a.txt -m demo --metrics deltion", "deletion"),
        ("evaluate a.txt -m demo --methods owne", "owen"),
    ],
)
def test_a_misspelt_word_is_answered_with_the_one_that_was_meant(folder: Path, words: str, near: str) -> None:
    result = RUNNER.invoke(app, words.split())
    assert result.exit_code in (2, 3, 4)
    assert f"id you mean '{near}'?" in " ".join(result.stderr.replace("│", " ").split())


def test_a_misspelt_option_names_those_that_are_near(folder: Path) -> None:
    assert "--model" in c2fa_("explain", "a.txt", "--modle", "demo", code=2).stderr


@pytest.mark.parametrize("more", [[], ["--store", "s", "--store-option", "patience=1"]])
def test_a_label_that_was_not_dropped_is_named(folder: Path, more: list[str]) -> None:
    said = c2fa_("explain", "t.csv", "-m", "python:counting:double", "--row", "0", *more, code=4).stderr
    assert "the model was given the columns a, b, c, label; --drop label leaves out one that it does not take" in said


@pytest.mark.parametrize("command", ["", "demo", "explain", "cite", "verify", "evaluate", "report", "info"])
def test_every_command_has_help_with_examples(command: str) -> None:
    said = c2fa_(*command.split(), "--help", env={"COLUMNS": "80"}).stdout
    assert f"c2fa {command}" in said
    assert "Exit codes" in said or "--debug" in said
    assert max(map(len, said.splitlines())) <= 80


def test_shells_complete_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_C2FA_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "c2fa ex")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert RUNNER.invoke(app, prog_name="c2fa").stdout.split() == ["explain"]


def test_the_version_and_no_command() -> None:
    assert c2fa_("--version").stdout == f"c2fa {c2fa.__version__}\n"
    assert "Usage" in RUNNER.invoke(app, []).output


def test_what_a_terminal_would_obey_is_taken_out() -> None:
    assert clean("a\x1b]0;x\x07b\r\n\u202ec\x9b2J") == "a ]0;x b \n c 2J"
    text = plain_json(json.dumps({"a": "x\x9b2J\u202e\x1b"}, ensure_ascii=False))
    assert json.loads(text) == {"a": "x\x9b2J\u202e\x1b"}
    assert not any(c in text for c in "\x9b\u202e\x1b")


def test_importing_the_package_imports_no_typer_and_markup_stays_text(folder: Path) -> None:
    code = "import sys, c2fa; print([m for m in ('typer', 'rich', 'pandas', 'tqdm') if m in sys.modules])"
    assert _python("-c", code).stdout == "[]\n"
    (folder / "evil.txt").write_text("A [bold red]good[/] day \x1b[31m[link=x]here[/link]. Bad :smile: luck.")
    said = _python("-m", "c2fa", "explain", "evil.txt", "-m", "python:counting:words", "-b", "30").stdout
    assert "[bold red]good[/] day" in said
    assert ":smile:" in said
    assert "\x1b" not in said


def test_json_is_all_there_is_on_stdout_and_a_closed_pipe_ends_quietly(folder: Path) -> None:
    args = ("-m", "c2fa", "explain", "a.txt", "-m", "python:counting:words", "-b", "30", "--json")
    done = _python(*args)
    assert c2fa.Explanation.from_json(done.stdout).queries <= 30
    assert done.stderr == ""
    assert _unread(*args) == (141, b"")
    assert _unread("-m", "c2fa", "demo", "--budget", "6,12") == (141, b"")
    assert _unread("-m", "c2fa", "explain", "--help") == (141, b"")


def _unread(*args: str) -> tuple[int, bytes]:
    """The exit code and stderr of a command whose stdout is closed from the start."""
    with subprocess.Popen(
        [sys.executable, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        said = process.stderr.read()
    return process.returncode, said


def _python(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *args], capture_output=True, text=True, encoding="utf-8", env=os.environ, timeout=60
    )


NUMBERED = '''
import numpy as np

class Numbered:
    """Outputs whose names are numbers, as many classifiers have them, and a note of its own."""

    output_names = ("1", "2")
    notes = ["a note of the model"]
    batch_size = 7

    def __call__(self, texts):
        assert len(texts) <= 7
        good = np.array([t.count("good") for t in texts], float)
        return np.column_stack([good, -good])

model = Numbered()
'''


def test_a_target_is_first_a_name_and_then_a_place(folder: Path) -> None:
    pytest.importorskip("pyarrow")
    Path("numbered.py").write_text(NUMBERED)
    Path("a.txt").write_text(TEXT)
    command = ["explain", "a.txt", "-m", "python:numbered:model", "-b", "20,40", "--json"]
    found = {}
    for target in ("0", "1", "2"):
        said = RUNNER.invoke(app, [*command, "--target", target])
        assert said.exit_code == 0, said.output
        found[target] = c2fa.Explanation.from_json(said.stdout)
    assert {name: e.target for name, e in found.items()} == {"0": 0, "1": 0, "2": 1}
    assert "a note of the model" in str(found["0"].diagnostics), "the command line hides no note"
    said = RUNNER.invoke(app, [*command[:-1], "--target", "1", "--store", "kept", "--store-option", "engine=serial"])
    assert said.exit_code == 0, said.output
    assert [e.target for e in c2fa.batch.Store.open("kept")] == [0]


def test_images_of_sixteen_bits_are_not_cut_to_eight(folder: Path) -> None:
    Image = pytest.importorskip("PIL.Image")
    deep = np.arange(64, dtype=np.uint16).reshape(8, 8) * 1000
    Image.fromarray(deep).save("deep.png")
    (read,) = Explain(files=[Path("deep.png")], model="demo").read().values
    np.testing.assert_array_equal(read, deep)


def test_the_mask_of_a_hugging_face_folder_is_known_before_it_is_loaded(folder: Path) -> None:
    assert mask_token("hf:nowhere") is None
    (folder / "tokenizer_config.json").write_text('{"mask_token": {"content": "<mask>"}}')
    assert mask_token(f"hf:{folder}") == "<mask>"
    (folder / "special_tokens_map.json").write_text('{"mask_token": "[MASK]"}')
    assert mask_token(f"hf:{folder}") == "[MASK]"


def test_one_command_installs_all_that_a_file_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "find_spec", lambda name: None)
    with pytest.raises(RefusedError, match=r"needs pandas and pyarrow: pip install 'c2fa\[frame,store\]'"):
        output.check(Path("x.parquet"), output.EXPLANATIONS)


def test_cells_of_a_table_are_no_formulas(tmp_path, capsys):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"name": ["=HYPERLINK(1)", "+1+1", "-cmd", "@x", "-2.5", "fine", None], "value": [-1.5] * 7})
    output.write_frame(tmp_path / "x.csv", frame)
    read = pd.read_csv(tmp_path / "x.csv", keep_default_na=False)
    assert read["name"].tolist() == ["'=HYPERLINK(1)", "'+1+1", "'-cmd", "'@x", "-2.5", "fine", ""]
    assert read["value"].tolist() == [-1.5] * 7
    assert "4 cells of " in capsys.readouterr().err
    output.write_frame(tmp_path / "x.csv", frame[4:])
    assert capsys.readouterr().err == ""

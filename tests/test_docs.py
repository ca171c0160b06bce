"""The documentation does what it says: its code runs and prints what is there, examples draw, the site builds."""

from __future__ import annotations

import ast
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCS, EXAMPLES = ROOT / "docs", ROOT / "examples"
if not (DOCS.is_dir() and EXAMPLES.is_dir()):
    pytest.skip("the pages and the examples are not part of this copy of the project", allow_module_level=True)
RUNNER = SimpleNamespace(**runpy.run_path(str(DOCS / "run_blocks.py"), run_name="run_blocks"))
GALLERY = (DOCS / "make_gallery.py").read_text(encoding="utf-8")
PAGES = [name for name in RUNNER.PAGES if RUNNER.blocks((DOCS / name).read_text(encoding="utf-8"))]
SLOW_PAGES = ("comparing.md", "cli.md")
SLOW_EXAMPLES = ("budget",)
# Before 3.11 matplotlib calls pyparsing by its old names.
OLD_NAMES = [f"-Wignore::DeprecationWarning:matplotlib.{module}" for module in ("_fontconfig_pattern", "_mathtext")]
STRICT = ["-Werror", *OLD_NAMES]


@pytest.mark.parametrize("page", [pytest.param(p, marks=pytest.mark.slow if p in SLOW_PAGES else ()) for p in PAGES])
def test_code_of_a_page_runs(page, monkeypatch):
    pytest.importorskip("sklearn", reason="the pages use scikit-learn")
    pytest.importorskip("matplotlib", reason="the pages draw")
    monkeypatch.setenv("MPLBACKEND", "agg")
    runnable = [
        b
        for b in RUNNER.blocks((DOCS / page).read_text(encoding="utf-8"))
        if not b.skipped and (b.language == "python" or "$ c2fa" in b.text)
    ]
    assert RUNNER.run_page(DOCS / page) == len(runnable)


@pytest.mark.parametrize("page", PAGES)
def test_a_block_that_does_not_run_says_why(page):
    for block in RUNNER.blocks((DOCS / page).read_text(encoding="utf-8")):
        if block.skipped:
            assert re.fullmatch(r"Not run here: needs \w.*", block.title), (page, block.line)


def test_outputs_are_compared():
    compare = RUNNER._compare
    compare("+0.101 ± 0.02 ++++     wonderful\n", "+0.104 ± 0.02 +++++    wonderful\n", "here")
    for other in ("+0.301 ± 0.02 ++ wonderful", "+0.101 ± 0.02 ++ terrible", "+0.101 ± 0.02"):
        with pytest.raises(RUNNER.BlockError):
            compare("+0.101 ± 0.02 ++++ wonderful\n", other, "here")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(p.stem, marks=pytest.mark.slow if p.stem in SLOW_EXAMPLES else ())
        for p in sorted(EXAMPLES.glob("*.py"))
    ],
)
def test_example_runs_alone(name, tmp_path):
    needed = {"series": "sklearn", "table": "sklearn", "bag": "sklearn", "images": "skimage", "endpoint": "httpx2"}
    pytest.importorskip("matplotlib")
    pytest.importorskip(needed.get(name, "numpy"))
    if name == "many":
        pytest.importorskip("pyarrow")
    ended = subprocess.run(
        [sys.executable, *STRICT, str(EXAMPLES / f"{name}.py"), str(tmp_path)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=tmp_path,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONUTF8": "1"},
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip()
    assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_every_example_is_in_the_gallery_and_says_what_it_needs():
    (order,) = re.findall(r"^ORDER = \((.*?)\)", GALLERY, re.DOTALL | re.MULTILINE)
    assert sorted(re.findall(r'"(\w+)"', order)) == sorted(p.stem for p in EXAMPLES.glob("*.py"))
    for path in EXAMPLES.glob("*.py"):
        said = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
        assert said
        assert re.fullmatch(r"[^\n]+\n\n.+\n\nNeeds: pip install '[^']+'", said, re.DOTALL), path.name


def test_every_warning_is_explained():
    page = " ".join((DOCS / "diagnostics.md").read_text(encoding="utf-8").replace("**", "").replace("> ", "").split())
    for text in _warnings(ROOT / "src" / "c2fa" / "diagnosing.py"):
        pieces = [piece.strip(" ;:,.()") for piece in re.split("…", text)]
        longest = max(pieces, key=len)
        assert longest in page, f"docs/diagnostics.md does not explain the warning {text!r}"


def _warnings(path: Path) -> list[str]:
    """The texts that a module appends to its warnings, with … for what is filled in."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "append":
            (argument,) = node.args
            if isinstance(argument, ast.JoinedStr):
                parts = [str(v.value) if isinstance(v, ast.Constant) else "…" for v in argument.values]
                found.append("".join(parts))
            elif isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                found.append(argument.value)
    assert len(found) >= 5
    return [text for text in found if text.strip("…: ") != "solver"]


def test_every_warning_of_a_solver_is_explained():
    from c2fa import Status

    page = " ".join((DOCS / "diagnostics.md").read_text(encoding="utf-8").replace("**", "").replace("> ", "").split())
    for status in Status:
        assert status.remedy in page


@pytest.mark.slow
def test_site_builds_without_a_warning_and_needs_no_network(tmp_path):
    for module in ("mkdocs", "material", "mkdocstrings", "latex2mathml"):
        pytest.importorskip(module, reason="the site needs the docs extra")
    ended = subprocess.run(
        [
            sys.executable,
            "-m",
            "mkdocs",
            "build",
            "--strict",
            "--config-file",
            str(ROOT / "mkdocs.yml"),
            "-d",
            tmp_path,
        ],
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONUTF8": "1"},
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    pages = sorted(tmp_path.rglob("*.html"))
    assert len(pages) > 15
    for path in pages:
        text = path.read_text(encoding="utf-8")
        fetched = re.findall(r"<(?:script|img|iframe|source)[^>]*\ssrc=[\"']?(https?:[^\"'> ]+)", text)
        fetched += re.findall(
            r"<link[^>]*rel=[\"']?(?:stylesheet|preconnect)[\"']?[^>]*href=[\"']?(https?:[^\"'> ]+)", text
        )
        assert not fetched, (path, fetched)
    formulas = (tmp_path / "how-it-works" / "index.html").read_text(encoding="utf-8")
    assert formulas.count("<math") > 30
    assert "arithmatex" not in formulas

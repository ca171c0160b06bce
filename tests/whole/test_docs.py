"""The documentation does what it says: its code runs and prints what is there, examples draw, the site builds."""

from __future__ import annotations

import ast
import json
import os
import re
import runpy
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

import c2fa

ROOT = Path(__file__).resolve().parents[2]
DOCS, EXAMPLES = ROOT / "docs", ROOT / "examples"
if not (DOCS.is_dir() and EXAMPLES.is_dir()):
    pytest.skip("the pages and the examples are not part of this copy of the project", allow_module_level=True)
RUNNER = SimpleNamespace(**runpy.run_path(str(DOCS / "run_blocks.py"), run_name="run_blocks"))
sys.path.insert(0, str(DOCS))
BUILD = SimpleNamespace(**runpy.run_path(str(DOCS / "build.py"), run_name="build"))
GALLERY = (DOCS / "make_gallery.py").read_text(encoding="utf-8")
PAGES = [name for name in RUNNER.PAGES if RUNNER.blocks((DOCS / name).read_text(encoding="utf-8"))]
SLOW_PAGES = ("comparing.md", "cli.md")
QUICK_EXAMPLES = ("custom", "text")
# Before 3.11 matplotlib calls pyparsing by its old names.
OLD_NAMES = [f"-Wignore::DeprecationWarning:matplotlib.{module}" for module in ("_fontconfig_pattern", "_mathtext")]
STRICT = ["-Werror", *OLD_NAMES]


@pytest.mark.parametrize("page", [pytest.param(p, marks=pytest.mark.slow if p in SLOW_PAGES else ()) for p in PAGES])
def test_code_of_a_page_runs(page, monkeypatch):
    pytest.importorskip("sklearn", reason="the pages use scikit-learn")
    pytest.importorskip("matplotlib", reason="the pages draw")
    if page == "shap.md":
        pytest.importorskip("shap", reason="the page draws with it")
        pytest.importorskip("skimage", reason="the page cuts images into super-pixels")
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
            reason = re.fullmatch(r"Not run here: needs \w.*|Runs where [\w-]+ is installed", block.title)
            assert reason, (page, block.line)


def test_outputs_are_compared():
    compare = RUNNER._compare
    compare("+0.101 ± 0.02 ++++     wonderful\n", "+0.104 ± 0.02 +++++    wonderful\n", "here")
    for other in ("+0.301 ± 0.02 ++ wonderful", "+0.101 ± 0.02 ++ terrible", "+0.101 ± 0.02"):
        with pytest.raises(RUNNER.BlockError):
            compare("+0.101 ± 0.02 ++++ wonderful\n", other, "here")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(p.stem, marks=() if p.stem in QUICK_EXAMPLES else pytest.mark.slow)
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


@pytest.mark.slow
@pytest.mark.parametrize("source", sorted((EXAMPLES / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebook_runs_and_becomes_a_page(source, tmp_path):
    for module in ("nbclient", "ipykernel", "sklearn", "skimage", "matplotlib", "pandas"):
        pytest.importorskip(module, reason="the notebooks need it")
    import make_notebooks

    for module in make_notebooks.NEEDS.get(source.stem, ()):
        if find_spec(module) is None:
            pytest.skip(f"the notebook needs {module}")
    page = make_notebooks.page(make_notebooks.execute(source), source.stem, tmp_path)
    assert f"[Download this notebook]({source.name})" in page
    assert all(kind in page for kind in ("```text", "<table>", "<iframe", ".png)"))
    assert [path.read_bytes()[:4] for path in tmp_path.glob("*.png")] == [b"\x89PNG"]  # each figure once


@pytest.mark.parametrize("source", sorted((EXAMPLES / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebook_has_no_outputs_and_says_how_to_install(source):
    cells = json.loads(source.read_text(encoding="utf-8"))["cells"]
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
    assert "pip install" in "".join(cells[0]["source"])


def test_there_is_a_notebook_for_each_domain():
    assert {path.stem for path in (EXAMPLES / "notebooks").glob("*.ipynb")} == {
        "answer", "photo", "series", "table", "text"
    }  # fmt: skip


def test_the_page_of_the_command_line_lists_every_command_and_every_kind_of_model():
    from typer.main import get_command

    from c2fa.cli import app

    page = (DOCS / "cli.md").read_text(encoding="utf-8")
    commands = get_command(app).commands
    assert set(re.findall(r"^\| `c2fa (\w+)", page, re.MULTILINE)) == set(commands)
    with pytest.raises(ValueError) as refusal:
        c2fa.models.load("nosuch:model")
    _, _, forms = str(refusal.value).partition("; write ")
    kinds = {form.split()[-1].partition(":")[0] for form in re.split(", | or ", forms)}
    assert {kind for kind in kinds if not re.search(rf"`{kind}[:`]", page)} == set()
    assert len(kinds) > 10


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


def test_every_page_is_in_the_navigation():
    config = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))
    named = set(re.findall(r"'([\w/-]+\.md)'", str(config["project"]["nav"])))
    made = {"gallery.md", *(name.lower() for name in BUILD.ROOT_PAGES)}
    made |= {f"notebooks/{path.stem}.md" for path in (EXAMPLES / "notebooks").glob("*.ipynb")}
    assert named == {path.name for path in DOCS.glob("*.md")} - {"errata.md"} | made
    assert "](errata.md)" in (DOCS / "paper.md").read_text(encoding="utf-8")  # where errata are found instead


def test_links_of_the_repository_lead_to_the_pages_of_the_site():
    assert BUILD.in_site("[a](docs/budget.md#b) [c](SECURITY.md) [d](../CONTRIBUTING.md#e) [f](text.md)") == (
        "[a](budget.md#b) [c](security.md) [d](contributing.md#e) [f](text.md)"
    )


def test_links_that_lead_nowhere_are_found(tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "index.html").write_text('<h2 id="there">x</h2><a href="../#here">x</a>', encoding="utf-8")
    page = tmp_path / "index.html"
    good = '<h1 id="here">x</h1><a href="other/#there">x</a><a href="#here">x</a><a href="https://example.org/">x</a>'
    page.write_text(good, encoding="utf-8")
    assert BUILD.broken_links(tmp_path) == []
    for bad in ("other/#nowhere", "#nowhere", "none/", "none.png"):
        page.write_text(f'{good}<a href="{bad}">x</a>', encoding="utf-8")
        assert BUILD.broken_links(tmp_path) == [f"index.html: {bad}"]


def test_formulas_become_mathml_and_unknown_ones_are_refused():
    pytest.importorskip("latex2mathml", reason="the site needs the docs extra")
    markdown = pytest.importorskip("markdown", reason="the site needs the docs extra")
    formulas = runpy.run_path(str(DOCS / "formulas.py"))["Formulas"]()
    arithmatex = {"pymdownx.arithmatex": {"generic": True}}

    def drawn(text):
        return markdown.markdown(text, extensions=["pymdownx.arithmatex", formulas], extension_configs=arithmatex)

    made = drawn("Let $a < b$.\n\n$$\n\\alpha_1\n$$\n")
    assert made.count("<math") == 2
    assert "arithmatex" not in made
    with pytest.raises(ValueError, match="does not know"):
        drawn(r"$\nosuchthing{a}$")


@pytest.mark.slow
def test_site_builds_without_a_warning_and_needs_no_network():
    for module in ("zensical", "mkdocstrings", "latex2mathml", "nbclient", "ipykernel"):
        pytest.importorskip(module, reason="the site needs the docs extra")
    ended = subprocess.run(
        [sys.executable, str(DOCS / "build.py")],
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=ROOT,
        env={**os.environ, "PYTHONUTF8": "1"},
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    pages = sorted(BUILD.SITE.rglob("*.html"))
    assert len(pages) > 20
    for path in pages:
        text = path.read_text(encoding="utf-8")
        fetched = re.findall(r"<(?:script|img|iframe|source)[^>]*\ssrc=[\"']?(https?:[^\"'> ]+)", text)
        fetched += re.findall(
            r"<link[^>]*rel=[\"']?(?:stylesheet|preconnect)[\"']?[^>]*href=[\"']?(https?:[^\"'> ]+)", text
        )
        assert not fetched, (path, fetched)
    formulas = (BUILD.SITE / "how-it-works" / "index.html").read_text(encoding="utf-8")
    assert formulas.count("<math") > 30
    assert "arithmatex" not in formulas

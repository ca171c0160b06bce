"""The gallery: runs the examples and makes a page of what they print and draw.

Nothing that is drawn is kept in the repository. An example that was run before with the same sources is not run again:
its results are in build/gallery.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "build" / "gallery"
ORDER = (
    "text", "paragraphs", "citing", "images", "table", "series", "bag", "custom", "endpoint", "compare", "budget",
    "many",
)  # fmt: skip
_SECONDS = 300
_MORE = {
    "many": "scaling.md",
    "endpoint": "endpoints.md",
    "compare": "comparing.md",
    "budget": "budget.md",
}


@dataclass(frozen=True)
class Example:
    """An example's text, and what it printed and drew."""

    name: str
    title: str
    about: str
    needs: str
    code: str
    printed: str
    files: tuple[Path, ...]

    def markdown(self) -> str:
        """Its section of the gallery."""
        pages = "".join(
            f"\n[Open the interactive page](gallery/{f.name})\n"
            for f in self.files
            if f.suffix == ".html"
        )
        more = (
            f" See also [the page about it]({_MORE[self.name]})." if self.name in _MORE else ""
        )
        pictures = "\n".join(
            f"![{self.title}](gallery/{f.name})" for f in self.files if f.suffix == ".png"
        )
        return (
            f"## {self.title}\n\n{self.about}{more}\n\n{pictures}\n{pages}\n"
            f'??? note "What it prints"\n\n{_fenced("text", self.printed)}\n'
            f'??? note "The code: examples/{self.name}.py"\n\n    `{self.needs}`\n\n{_fenced("python", self.code)}\n'
        )


def gallery(names: tuple[str, ...] = ORDER) -> list[Example]:
    """Run the examples, a few at a time; one that fails ends it."""
    with ThreadPoolExecutor(min(len(names), os.cpu_count() or 1)) as pool:
        return list(pool.map(run, names))


def page(examples: list[Example]) -> str:
    """The gallery as Markdown."""
    sections = "\n".join(example.markdown() for example in examples)
    return (
        "# Gallery\n\nEvery picture on this page was made by running the example under it when the page was built. "
        "Each runs alone, in seconds: `python examples/text.py FOLDER`.\n\n" + sections
    )


def run(name: str) -> Example:
    """Run one example in a process of its own, or recall its results."""
    source = ROOT / "examples" / f"{name}.py"
    code = source.read_text(encoding="utf-8")
    folder = KEPT / f"{name}-{digest(code)}"
    if not (folder / "printed.json").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        ended = subprocess.run(
            [sys.executable, str(source), str(folder)],
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=_SECONDS,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONUTF8": "1"},
        )
        if ended.returncode:
            raise RuntimeError(f"examples/{name}.py failed:\n{ended.stderr}")
        (folder / "printed.json").write_text(json.dumps(ended.stdout), encoding="utf-8")
        for old in KEPT.glob(f"{name}-*"):
            if old != folder and old.name.removeprefix(f"{name}-").isalnum():
                shutil.rmtree(old, ignore_errors=True)
    title, _, rest = (ast.get_docstring(ast.parse(code)) or name).partition("\n")
    about, _, needs = rest.strip().rpartition("Needs: ")
    printed = json.loads((folder / "printed.json").read_text(encoding="utf-8"))
    files = tuple(sorted(f for f in folder.iterdir() if f.suffix in (".png", ".html")))
    return Example(name, title, about.strip(), needs.strip(), code, printed, files)


def digest(code: str) -> str:
    """A hash of an example and of the whole package."""
    digest = hashlib.sha256(code.encode())
    for file in sorted((ROOT / "src" / "c2fa").rglob("*")):
        if file.suffix in (".py", ".npz", ".js", ".css"):
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def _fenced(language: str, text: str) -> str:
    """A fenced block inside an admonition."""
    lines = [f"```{language}", *text.rstrip().splitlines(), "```"]
    return "".join(f"    {line}".rstrip() + "\n" for line in lines)


def write(folder: Path) -> None:
    """Put gallery.md into a folder, and what the examples draw under gallery/."""
    (folder / "gallery").mkdir(parents=True, exist_ok=True)
    examples = gallery()
    for example in examples:
        for file in example.files:
            shutil.copy(file, folder / "gallery" / file.name)
    (folder / "gallery.md").write_text(page(examples), encoding="utf-8")

"""Run the code of the documentation: python docs/run_blocks.py [--write] [PAGE.md ...]

The python blocks of a page run one after another in one namespace, in an empty folder; so do lines of console blocks
that begin with ``$ c2fa``. A block under the title "Output" holds what the block before it prints: numbers may differ a
little, nothing else may. ``--write`` puts what was printed there. A block whose title begins with "Not run here" is
passed over, and says why to the reader too. One that "Runs where PACKAGE is installed" is passed over elsewhere.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
import traceback
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent
PAGES = sorted(path.name for path in HERE.glob("*.md"))
_FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_TITLE = re.compile(r'title="([^"]*)"')
_PACKAGE = re.compile(r"Runs where (\S+) is installed")
_NUMBER = re.compile(r"(?<![\w.])[-+−]?\d[\d,]*\.?\d*(?:e[-+]?\d+)?")
_BAR = re.compile(r"(?<= )[+−]{1,8}(?= )")
_ABSOLUTE, _RELATIVE = 0.02, 0.1


class BlockError(AssertionError):
    """A block failed, or printed something else than the page says."""


@dataclass(frozen=True)
class Block:
    """A fenced block of a page, and where it is."""

    language: str
    title: str
    text: str
    line: int
    span: tuple[int, int]

    @property
    def skipped(self) -> bool:
        package = _PACKAGE.match(self.title)
        missing = package is not None and find_spec(package[1].replace("-", "_")) is None
        return missing or self.title.startswith("Not run here")


def blocks(text: str) -> list[Block]:
    """All fenced blocks of a page."""
    found = []
    for m in _FENCE.finditer(text):
        title = _TITLE.search(m[2])
        found.append(
            Block(
                m[1],
                title[1] if title else "",
                m[3],
                text.count("\n", 0, m.start()) + 1,
                m.span(3),
            )
        )
    return found


def run_page(path: Path, write: bool = False) -> int:
    """Run one page in a folder of its own and return how many blocks ran."""
    text = path.read_text(encoding="utf-8")
    names: dict[str, object] = {"__name__": "__main__"}
    before, ran, changes = Path.cwd(), 0, []
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            printed: str | None = ""
            for block in blocks(text):
                where = f"{path.name}, line {block.line}"
                if block.title == "Output":
                    if printed is None:  # of a block that was passed over
                        continue
                    if write:
                        changes.append((block.span, printed.rstrip() + "\n"))
                    else:
                        _compare(block.text, printed, where)
                elif block.skipped:
                    printed = None
                elif block.language == "python":
                    printed, ran = _python(block, names, where, str(path)), ran + 1
                elif block.language == "console" and "$ c2fa" in block.text:
                    printed, ran = _console(block, where), ran + 1
        finally:
            os.chdir(before)
    for (start, end), new in reversed(changes):
        text = text[:start] + new + text[end:]
    if write and changes:
        path.write_text(text, encoding="utf-8")
    return ran


def _python(block: Block, names: dict[str, object], where: str, file: str) -> str:
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out):
            exec(compile("\n" * block.line + block.text, file, "exec"), names)
    except Exception as error:
        raise BlockError(f"{where}: {traceback.format_exc()}") from error
    return out.getvalue()


def _console(block: Block, where: str) -> str:
    """Run the lines that begin with ``$ c2fa``; a backslash at the end of a line goes on in the next."""
    out = []
    for line in block.text.replace("\\\n", " ").splitlines():
        if not line.startswith("$ "):
            continue
        words = shlex.split(line[2:], comments=True)
        if words[0] != "c2fa":
            continue
        ended = subprocess.run(
            [sys.executable, "-m", "c2fa", *words[1:]],
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=300,
            env={
                **os.environ,
                "PYTHONUTF8": "1",
                "NO_COLOR": "1",
                "COLUMNS": "100",
                "XDG_CACHE_HOME": os.getcwd(),
            },
        )
        if ended.returncode:
            raise BlockError(
                f"{where}: {line} ended with {ended.returncode}:\n{ended.stdout}{ended.stderr}"
            )
        out.append(ended.stdout)
    return "".join(out)


def _compare(said: str, printed: str, where: str) -> None:
    """Refuse what differs by more than the last digits of numbers and the length of bars."""
    said, printed = _BAR.sub("", said), _BAR.sub("", printed)
    same = _NUMBER.sub("#", said).split() == _NUMBER.sub("#", printed).split()
    pairs = zip(_NUMBER.findall(said), _NUMBER.findall(printed), strict=False)
    if not same or not all(_close(a, b) for a, b in pairs):
        raise BlockError(
            f"{where}: the page says\n{said}\nand the code prints\n{printed}\n"
            f"(python docs/run_blocks.py --write {where.partition(',')[0]} puts it there)"
        )


def _close(a: str, b: str) -> bool:
    x, y = (float(t.replace("−", "-").replace(",", "")) for t in (a, b))
    return abs(x - y) <= _ABSOLUTE + _RELATIVE * max(abs(x), abs(y))


def main() -> None:
    """Run the pages that are named, or all."""
    names = [name for name in sys.argv[1:] if name != "--write"]
    for name in names or PAGES:
        print(
            f"{name}: {run_page(HERE / Path(name).name, write='--write' in sys.argv)} blocks ran"
        )


if __name__ == "__main__":
    main()

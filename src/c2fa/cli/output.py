"""What a command prints and writes, and how it refuses: exit codes and the exceptions that carry them.

Text from inputs, models and files cannot control the terminal. A file is checked before the first query and is
complete or absent.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from rich.text import Text

from c2fa._system import atomic
from c2fa.explanation import Explanation
from c2fa.showing.printing import printable

BUG, USAGE, UNUSABLE, MODEL = 1, 2, 3, 4
CLOSED_PIPE = 128 + 13  # what a shell reports for a command that SIGPIPE ended
EXPLANATIONS = (".html", ".json", ".parquet", ".csv")
PICTURES = (".png", ".svg", ".pdf")
Named = Sequence[tuple[str, Explanation]]

# Control characters rewrite a terminal; the directional ones make a line read as what it is not.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_IN_JSON = re.compile("[\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_NUMBER = re.compile(r"^[│├└─ ]*([+-])\d[\d.]*( ± [\d.]+)?( [+−]+)?")


class RefusedError(Exception):
    """The command cannot go on; the message is for people, the code for scripts."""

    def __init__(self, message: str, code: int = UNUSABLE) -> None:
        super().__init__(message)
        self.code = code


class ClosedPipeError(Exception):
    """Nobody reads stdout any more, as in ``c2fa demo | head -1``."""


@contextmanager
def as_usage() -> Iterator[None]:
    """Report what the package refuses inside as a usage error: it is about an option's value."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise RefusedError(str(error), USAGE) from error


def clean(text: str) -> str:
    r"""Replace control characters by spaces; line breaks and tabs stay.

    >>> clean("a\x1b[2Jb")
    'a [2Jb'
    """
    return _CONTROLS.sub(" ", text)


def plain_json(text: str) -> str:
    r"""Escape control characters inside JSON, which keeps its meaning.

    >>> plain_json('"a' + chr(0x9b) + '2Jb"')
    '"a\\u009b2Jb"'
    """
    return _IN_JSON.sub(lambda m: f"\\u{ord(m.group()):04x}", text)


def say(text: str) -> None:
    _print_error(clean(text) + "\n")


def say_error(text: str) -> None:
    console = _console(stderr=True)
    with console.capture() as captured:
        console.print(Text("error: ", style="red").append(clean(text), style="default"), soft_wrap=True)
    _print_error(captured.get())


def out(text: str) -> None:
    _print(clean(text) + "\n")


def out_json(text: str) -> None:
    _print(plain_json(text) + "\n")


def show(e: Explanation, title: str = "") -> None:
    """Print an explanation as a tree to stdout, with colours in a terminal."""
    console = _console()
    width = min(console.width, 120) if console.is_terminal else 100
    with console.capture() as captured:
        if title:
            console.print(Text(clean(title)), soft_wrap=True)
        for line in clean(e.to_text(width=width)).splitlines():
            console.print(_coloured(line), soft_wrap=True)
    _print(captured.get())


def interactive(quiet: bool = False) -> bool:
    return sys.stderr.isatty() and not quiet


def _coloured(line: str) -> Text:
    text = Text(line)
    if number := _NUMBER.match(line):
        colour = {"+": "cyan", "-": "red"}[number.group(1)]  # a colour-blind reader can tell these apart
        text.stylize(colour, number.start(1), number.end())
    elif line.startswith("!"):
        text.stylize("yellow")
    return text


def _console(**options: Any) -> Console:
    return Console(highlight=False, markup=False, emoji=False, **options)


def _print(text: str) -> None:
    try:
        print(text, end="", flush=True)
    except BrokenPipeError:
        _discard(sys.stdout)
        raise ClosedPipeError from None


def _print_error(text: str) -> None:
    try:
        print(text, end="", file=sys.stderr, flush=True)
    except BrokenPipeError:  # what is said on stderr is not the result: go on without it
        _discard(sys.stderr)


def _discard(stream: TextIO) -> None:
    """Send what is still buffered nowhere; otherwise Python fails once more when it flushes the stream at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def check(path: Path, suffixes: Sequence[str], flag: str = "--out") -> None:
    """Refuse a file that could not be written, before any query is paid for."""
    if path.suffix.lower() not in suffixes:
        raise RefusedError(f"{flag} {str(path)!r} must end in {', '.join(suffixes)}", USAGE)
    with _writing(path), contextlib.suppress(FileNotFoundError, NotADirectoryError):
        path.stat()  # links in a circle lead to no file
    folder = path.resolve().parent
    if path.is_dir():
        raise RefusedError(f"{flag} {str(path)!r} is a folder; give a file in it")
    if not folder.is_dir():
        raise RefusedError(f"{flag} {str(path)!r}: there is no folder {str(folder)!r}; make it first")
    needs = {".parquet": ("pandas", "pyarrow"), ".csv": ("pandas",), **dict.fromkeys(PICTURES, ("matplotlib",))}
    need(needs.get(path.suffix.lower(), ()), f"{flag} {str(path)!r}")
    if path.exists() and not os.access(path, os.W_OK):
        raise RefusedError(f"{flag} {str(path)!r} cannot be written; give another file")
    try:
        # Permissions are not enough: a full or read-only disk fails only when it is written to.
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(b"c2fa")
    except OSError as error:
        raise RefusedError(f"{flag} {str(path)!r} cannot be written: {error.strerror}; give another folder") from error


def check_folder(path: Path, flag: str) -> None:
    if path.exists() and not path.is_dir():
        raise RefusedError(f"{flag} {str(path)!r} is a file; give a folder")


def need(packages: Sequence[str], what: str) -> None:
    """Refuse what needs packages that are not installed, with the one command that installs them."""
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        extra = {"matplotlib": "plots", "pandas": "frame", "pyarrow": "store", "torch": "torch", "PIL": "images"}
        extras = ",".join(extra[package] for package in missing)
        raise RefusedError(f"{what} needs {' and '.join(missing)}: pip install 'c2fa[{extras}]'")


def write(path: Path, data: bytes) -> None:
    with _writing(path), atomic(path) as file:
        file.write(data)


def write_explanations(path: Path, named: Named) -> None:
    suffix = path.suffix.lower()
    if suffix == ".html":
        from c2fa.batch import Explanations  # with engines, which few commands need

        write(path, Explanations.of(named).to_html(limit=len(named)).encode())
    elif suffix == ".json":
        documents = ",\n".join(e.to_json() for _, e in named)
        text = documents if len(named) == 1 else f"[{documents}]"
        write(path, f"{text}\n".encode())
    else:
        write_frame(path, _tidy(named))


def write_frame(path: Path, frame: Any) -> None:
    suffix = path.suffix.lower()
    if suffix == ".csv":
        safe = frame.map(_no_formula)
        changed = int((safe != frame).where(frame.notna(), False).sum().sum())
        if changed:
            say(f"{changed} cells of {str(path)!r} begin as formulas do; they have an apostrophe before them")
        write(path, safe.to_csv(index=False).encode())
    elif suffix == ".json":
        write(path, f"{json.dumps(records(frame), ensure_ascii=False)}\n".encode())
    else:
        write(path, frame.to_parquet(index=False))


def _no_formula(cell: Any) -> Any:
    """A cell that no spreadsheet runs: a text that begins as a formula does gets an apostrophe before it.

    >>> [_no_formula(cell) for cell in ("=1+1", "-2.5", -2.5, "@x")]
    ["'=1+1", '-2.5', -2.5, "'@x"]
    """
    if not isinstance(cell, str) or not cell.startswith(("=", "+", "-", "@", "\t", "\r")):
        return cell
    return cell if re.fullmatch(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?", cell) else f"'{cell}"


def write_figure(path: Path, figure: Any, dpi: int) -> None:
    drawn = BytesIO()
    figure.savefig(drawn, format=path.suffix.lower()[1:], dpi=dpi)
    write(path, drawn.getvalue())


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RefusedError(f"cannot write {str(path)!r}: {error.strerror or error}") from error


def records(frame: Any) -> Any:
    """The rows of a frame as plain values, with null for what is not a number."""
    return json.loads(frame.to_json(orient="records", double_precision=15))


def _tidy(named: Named) -> Any:
    import pandas as pd

    frames = []
    for name, e in named:
        frame = e.to_frame()
        frame.insert(0, "input", printable(name))
        frame.insert(1, "target", printable(e.target_name))
        frame.insert(2, "prediction", e.prediction)
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)

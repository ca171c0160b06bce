"""What is written to the terminal; text from inputs, models and files never acts on it."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from c2fa.explanation import Explanation

# Control characters rewrite a terminal; the directional ones make a line read as what it is not.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_IN_JSON = re.compile("[\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_HEAD = re.compile(r"^[│├└─ ]*([+-])\d[\d.]*( ± [\d.]+)?( [+−]+)?")
_COLOUR = {"+": "cyan", "-": "red"}  # told apart by those who cannot see red from green
_WIDEST = 120


def clean(text: str) -> str:
    r"""Replace what a terminal would obey by spaces; line breaks and tabs stay.

    >>> clean("a\x1b[2Jb")
    'a [2Jb'
    """
    return _CONTROLS.sub(" ", text)


def plain_json(text: str) -> str:
    r"""Escape what a terminal would obey inside JSON, which keeps its meaning.

    >>> plain_json('"a' + chr(0x9b) + '2Jb"')
    '"a\\u009b2Jb"'
    """
    return _IN_JSON.sub(lambda m: f"\\u{ord(m.group()):04x}", text)


def say(text: str) -> None:
    """One line for the person, on stderr."""
    print(clean(text), file=sys.stderr, flush=True)


def error_line(text: str) -> None:
    """What went wrong, on stderr; red where there are colours."""
    console = _console(stderr=True)
    from rich.text import Text

    console.print(Text("error: ", style="red").append(clean(text), style="default"), soft_wrap=True)


def out(text: str) -> None:
    """What was asked for, on stdout."""
    print(clean(text))


def out_json(text: str) -> None:
    """A JSON document on one line of stdout."""
    print(plain_json(text))


def show(e: Explanation, title: str = "") -> None:
    """An explanation as a tree on stdout: its numbers in colour in a terminal, the same characters elsewhere."""
    from rich.text import Text

    console = _console()
    width = min(console.width, _WIDEST) if console.is_terminal else 100
    if title:
        console.print(Text(clean(title)), soft_wrap=True)
    for line in clean(e.to_text(width=width)).splitlines():
        text = Text(line)
        if head := _HEAD.match(line):
            text.stylize(_COLOUR[head.group(1)], head.start(1), head.end())
        elif line.startswith("!"):
            text.stylize("yellow")
        console.print(text, soft_wrap=True)


def interactive(quiet: bool = False) -> bool:
    """Whether someone watches stderr."""
    return sys.stderr.isatty() and not quiet


def _console(**options: Any) -> Console:
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False, **options)

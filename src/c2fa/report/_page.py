"""The page around the data: template, style, script, and what keeps text from becoming anything else."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from c2fa.showing.printing import printable

_SCRIPTS = ("core", "model", "tree", "text", "images", "series", "table", "view", "gallery")


def embed(value: Any) -> str:
    """A value as JSON that can stand inside a script element: no end tag, no comment, no line that ends early.

    >>> embed("</script><!--")
    '"\\\\u003c/script\\\\u003e\\\\u003c!--"'
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    # Half a pair of 16-bit units cannot be written to a file.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


@cache
def asset(name: str) -> str:
    """A file of the package's own."""
    return (files("c2fa.report") / "assets" / name).read_text(encoding="utf-8")


@cache
def style() -> str:
    """The style of every view."""
    return asset("report.css")


@cache
def script(cited: bool = False) -> str:
    """The functions of every view, and of cited answers where there are any, without anything that starts them."""
    return "\n".join(asset(f"{name}.js") for name in (*_SCRIPTS, *(["answer"] if cited else [])))


def fingerprint(text: str) -> str:
    """What a Content-Security-Policy names a script or a style by."""
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def page(title: str, index: dict[str, Any], blocks: list[dict[str, Any]], plain: str) -> str:
    """The whole file. ``plain`` is what is shown where scripts do not run."""
    functions = script(any(block["answer"] for block in blocks))
    code = f'(() => {{\n"use strict";\n{functions}\nbootReport();\n}})();'
    policy = (
        f"default-src 'none'; script-src {fingerprint(code)}; style-src {fingerprint(style())}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    data = "\n".join(
        f'<script type="application/json" id="c2fa-data-{k}">{embed(block)}</script>' for k, block in enumerate(blocks)
    )
    text = Template(asset("report.html")).substitute(
        policy=escape(policy, quote=True).replace("&#x27;", "'"),
        title=escape(title),
        style=style(),
        index=embed(index),
        data=data,
        plain=plain,
        script=code,
    )
    return printable(text)


def island(name: str, block: dict[str, Any], plain: str) -> str:
    """A view for a notebook: what needs no script, and a script that puts the whole view in its place."""
    start = f"bootIsland({embed(name)}, {embed(style())}, {embed(block)});"
    code = f'(() => {{\n"use strict";\n{script(bool(block["answer"]))}\n{start}\n}})();'
    return printable(f'<div id="{escape(name, quote=True)}">{plain}</div>\n<script>{code}</script>')

"""A Markdown extension: formulas become MathML, which browsers draw themselves, without script or network."""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert
from markdown import Markdown
from markdown.extensions import Extension
from markdown.postprocessors import Postprocessor

_INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
_BLOCK = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.DOTALL)


class _ToMathML(Postprocessor):
    """Replaces what pymdownx.arithmatex leaves in a page for a script to draw."""

    def run(self, text: str) -> str:
        text = _INLINE.sub(lambda m: mathml(m[1], "inline"), text)
        return _BLOCK.sub(lambda m: f'<div class="formula">{mathml(m[1], "block")}</div>', text)


def mathml(tex: str, display: str) -> str:
    """One formula, or a ValueError where latex2mathml passed on something that it does not know."""
    found = convert(html.unescape(tex.strip()), display=display)
    if "\\" in found or "&#x00026;" in found or "&amp;" in found:
        raise ValueError(f"this formula has something that latex2mathml does not know: {tex}")
    return found


class Formulas(Extension):
    def extendMarkdown(self, md: Markdown) -> None:
        # Below every other postprocessor, so that it sees the page's final HTML.
        md.postprocessors.register(_ToMathML(md), "formulas", -10)


def makeExtension(**options: Any) -> Formulas:
    """What Markdown calls to find the extension."""
    return Formulas(**options)

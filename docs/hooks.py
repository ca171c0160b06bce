"""What the site's build does besides mkdocs: formulas become MathML, examples the gallery, SECURITY.md a page."""

from __future__ import annotations

import html
import re
import sys
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

sys.path.insert(0, str(Path(__file__).parent))

from make_gallery import gallery, page

_SECURITY = Path(__file__).parents[1] / "SECURITY.md"
_INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
_BLOCK = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.DOTALL)


def on_files(files: Any, config: Any) -> Any:
    """Add the gallery and its pictures, which exist nowhere in the repository, and the page that stands at its root."""
    try:
        examples = gallery()
    except RuntimeError as error:
        raise PluginError(str(error)) from error
    files.append(File.generated(config, "gallery.md", content=page(examples)))
    for example in examples:
        for file in example.files:
            files.append(File.generated(config, f"gallery/{file.name}", abs_src_path=str(file)))
    files.append(File.generated(config, "security.md", abs_src_path=str(_SECURITY)))
    return files


def on_page_content(content: str, **_: Any) -> str:
    """Turn the formulas into MathML, which browsers draw themselves: no script, no network."""
    content = content.replace(":class:<code>", "<code>")  # a role that only other tools read
    content = _INLINE.sub(lambda m: _mathml(m[1], "inline"), content)
    return _BLOCK.sub(lambda m: f'<div class="formula">{_mathml(m[1], "block")}</div>', content)


def _mathml(tex: str, display: str) -> str:
    found = convert(html.unescape(tex.strip()), display=display)
    if "\\" in found or "&#x00026;" in found or "&amp;" in found:
        raise PluginError(f"this formula has something that latex2mathml does not know: {tex}")
    return found

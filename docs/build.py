"""Build the site: python docs/build.py

The pages are put together in build/docs: those of this folder, those that stand at the repository's root, the gallery
and the notebooks, which are run. Zensical then makes site/ of them, and every link and anchor in it is checked.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import before_after
import make_gallery

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
PAGES, SITE = ROOT / "build" / "docs", ROOT / "site"
ROOT_PAGES = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
_LINK = re.compile(r"(?<=\]\()(?:\.\./|docs/)?([\w./-]+\.md)(?=[)#])")


def collect() -> None:
    """Put all pages and pictures together."""
    import make_notebooks  # here, because checking links does not need what runs notebooks

    shutil.rmtree(PAGES, ignore_errors=True)
    PAGES.mkdir(parents=True)
    shutil.copy(DOCS / "style.css", PAGES)
    for source in (*sorted(DOCS.glob("*.md")), *(ROOT / name for name in ROOT_PAGES)):
        text = in_site(source.read_text(encoding="utf-8"))
        if source.name == "index.md":
            text = text.replace(before_after.PLACE, before_after.figure())
        (PAGES / _name(source.name)).write_text(text, encoding="utf-8")
    make_gallery.write(PAGES)
    make_notebooks.write(PAGES / "notebooks")


def _name(name: str) -> str:
    return name.lower() if name in ROOT_PAGES else name


def in_site(text: str) -> str:
    """A page whose links, made for the repository, lead to the site's pages."""
    return _LINK.sub(lambda m: _name(m[1]), text)


class _Page(HTMLParser):
    """The anchors of a page, what it links to and what it fetches."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" or (tag == "a" and name == "name"):
                self.anchors.add(value or "")
            elif name in ("href", "src") and value:
                self.links.append(value)


def broken_links(site: Path) -> list[str]:
    """Links within a site that lead to no file or no anchor, each with the page that it is on."""
    pages = {
        path: _Page(path.read_text(encoding="utf-8"))
        for path in sorted(site.rglob("*.html"))
        if path.name != "404.html"  # its links start from the address that was not found
    }
    found = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            anchors = pages[target].anchors if target in pages else set()
            if not target.is_file() or (
                parts.fragment and unquote(parts.fragment) not in anchors
            ):
                found.append(f"{path.relative_to(site)}: {link}")
    return found


def main() -> None:
    """Collect, build, check."""
    collect()
    shutil.rmtree(SITE, ignore_errors=True)
    # Zensical imports formulas.py, the Markdown extension beside this file.
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(DOCS), os.environ.get("PYTHONPATH", "")]),
    }
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    if subprocess.run(command, cwd=ROOT, env=environment).returncode:
        raise SystemExit("the site was not built")
    if broken := broken_links(SITE):
        raise SystemExit("links that lead nowhere:\n" + "\n".join(broken))


if __name__ == "__main__":
    main()

"""What must hold before a release: `ready` asks whether one may be made, `check` looks at what was built into dist/.

Both print a sentence for every problem, and fail where there is one. `version` prints the version.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from email.parser import HeaderParser
from html.parser import HTMLParser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
# Links are checked as if the project lived here, so that a broken one is found before there is an address.
EXAMPLE = "https://github.com/OWNER/NAME"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=["ready", "check", "version"])
    parser.add_argument("--tag", help="the tag that is being released")
    arguments = parser.parse_args()
    if arguments.step == "version":
        print(version())
        return 0
    problems = list(ready(arguments.tag) if arguments.step == "ready" else check())
    for problem in problems:
        print(f"release: {problem}", file=sys.stderr)
    if problems:
        return 1
    print(f"release: {arguments.step} found no problem")
    return 0


def ready(tag: str | None) -> Iterator[str]:
    """Why no release can be made now."""
    if not address():
        yield "the project has no public address: set `address` in pyproject.toml"
    if tag and tag != f"v{version()}":
        yield f"the tag is {tag}, and src/c2fa/_version.py says {version()}"
    if "## [Unreleased]" in read("CHANGELOG.md"):
        yield "CHANGELOG.md has a section of what is unreleased: give it the version and the date"
    if changed := git("status", "--porcelain"):
        yield f"there are changes that are not committed:\n{changed}"


def check() -> Iterator[str]:
    """What is wrong with the pages about the release, and with the files in dist/."""
    yield from disagreements(read("CHANGELOG.md"), read("CITATION.cff"), version())
    yield from wrong_files()
    yield from dead_links(built_description())
    yield from dead_links(long_description(read("README.md"), EXAMPLE))
    yield from workflows()


def disagreements(changelog: str, citation: str, version: str) -> Iterator[str]:
    """Where the changelog's newest dated section or the citation is of another version, or of another date."""
    newest = re.search(r"^## \[(.+)\] - (\d{4}-\d\d-\d\d)$", changelog, re.MULTILINE)
    logged = newest.groups() if newest else (None, None)
    cited = dict(re.findall(r"^(version|date-released): (\S+)$", citation, re.MULTILINE))
    if logged[0] != version:
        yield f"the newest dated section of CHANGELOG.md is of {logged[0]}, and src/c2fa/_version.py says {version}"
    if cited.get("version") != version:
        yield f"CITATION.cff has version {cited.get('version')}, and src/c2fa/_version.py says {version}"
    if cited.get("date-released") != logged[1]:
        yield f"CITATION.cff has the date {cited.get('date-released')}, and CHANGELOG.md {logged[1]}"


def wrong_files() -> Iterator[str]:
    """What the wheel lacks or has too much of, and what the sdist has that is not the project's."""
    tracked = set(git("ls-files").splitlines())
    package = {name.removeprefix("src/") for name in tracked if name.startswith("src/c2fa/")}
    with zipfile.ZipFile(dist("*.whl")) as wheel:
        held = {name for name in wheel.namelist() if name.startswith("c2fa/")}
    yield from (f"the wheel lacks {name}" for name in sorted(package - held))
    yield from (f"the wheel has {name}, which is not tracked" for name in sorted(held - package))
    with tarfile.open(dist("*.tar.gz")) as sdist:
        packed = {name.partition("/")[2] for name in sdist.getnames()}
    yield from (f"the sdist has {name}, which is not tracked" for name in sorted(packed - tracked - {"PKG-INFO"}))
    yield from (f"the sdist lacks {name}" for name in sorted({f"src/{name}" for name in package} - packed))


def dead_links(description: str) -> Iterator[str]:
    """The links of a long description, rendered as an index renders it, that lead nowhere."""
    page = _Page(rendered(description))
    for target in page.targets:
        file = re.fullmatch(r"https://github\.com/[^/]+/[^/]+/(?:blob|raw)/[^/]+/([^#]+)(?:#(.*))?", target)
        if file:
            yield from _missing(file[1], file[2])
        elif target.startswith("#"):
            if target[1:] not in page.ids:
                yield f"the long description has no heading for its link to {target}"
        elif not target.startswith("https://"):
            yield f"the long description has a link to {target}, which is dead on an index"


def _missing(path: str, anchor: str | None) -> Iterator[str]:
    if path not in git("ls-tree", "-r", "--name-only", "HEAD").splitlines():
        yield f"the long description has a link to {path}, and there is no such file at HEAD"
    elif anchor and f"user-content-{anchor}" not in _Page(rendered(git("show", f"HEAD:{path}"))).ids:
        yield f"the long description has a link to {path}#{anchor}, and there is no such heading"


class _Page(HTMLParser):
    """Where a page's links and pictures lead, and the names that they can lead to."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.ids: set[str] = set()
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src", "srcset"):
                self.targets.append(value or "")
            elif name == "id":
                self.ids.add(value or "")


def workflows() -> Iterator[str]:
    """What actionlint says; without it the workflows go unchecked, which is a problem in CI and said elsewhere."""
    command = shutil.which("actionlint")
    if command:
        found = subprocess.run([command], cwd=ROOT, capture_output=True, text=True)
        if found.returncode:
            yield f"actionlint fails:\n{found.stdout}{found.stderr}"
    elif os.environ.get("CI") == "true":
        yield "actionlint is not installed"
    else:
        print("release: actionlint is not installed, so the workflows were not checked")


def rendered(text: str) -> str:
    from readme_renderer import markdown

    return str(markdown.render(text))


def long_description(readme: str, address: str) -> str:
    import hatch_build

    return hatch_build.long_description(readme, address, f"v{version()}")


def built_description() -> str:
    with zipfile.ZipFile(dist("*.whl")) as wheel:
        [name] = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
        return str(HeaderParser().parsestr(wheel.read(name).decode("utf-8")).get_payload())


def dist(pattern: str) -> Path:
    [file] = (ROOT / "dist").glob(pattern)
    return file


def address() -> str:
    project = tomllib.loads(read("pyproject.toml"))
    return str(project["tool"]["hatch"]["metadata"]["hooks"]["custom"]["address"])


def version() -> str:
    found = re.search(r'^__version__ = "(.+)"$', read("src/c2fa/_version.py"), re.MULTILINE)
    assert found is not None
    return found[1]


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    sys.exit(main())

"""What an index and whoever cites the project are told."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tools import release

import c2fa

ROOT = Path(__file__).resolve().parents[2]
ADDRESS = "https://github.com/OWNER/NAME"
CHANGELOG = "## [Unreleased]\n\n## [1.2.0] - 2026-01-02\n\n## [1.1.0] - 2025-01-02\n"
CITATION = "version: 1.2.0\ndate-released: 2026-01-02\n"


@pytest.fixture
def hook():
    pytest.importorskip("hatchling", reason="the package is built by hatchling")
    import hatch_build

    return hatch_build


def links(text: str) -> list[str]:
    without_code = re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL)
    return re.findall(r"\]\(([^)\s]+)\)", without_code)


def test_version_changelog_and_citation_agree():
    assert release.version() == c2fa.__version__
    assert (
        list(release.disagreements(release.read("CHANGELOG.md"), release.read("CITATION.cff"), c2fa.__version__)) == []
    )


@pytest.mark.parametrize(
    ("changelog", "citation", "version", "said"),
    [
        (CHANGELOG, CITATION, "1.2.0", []),
        (CHANGELOG, CITATION, "1.3.0", ["CHANGELOG.md is of 1.2.0", "CITATION.cff has version 1.2.0"]),
        (
            CHANGELOG,
            CITATION.replace("01-02", "01-03"),
            "1.2.0",
            ["has the date 2026-01-03, and CHANGELOG.md 2026-01-02"],
        ),
        (CHANGELOG, "version: 1.1.0\n", "1.2.0", ["has version 1.1.0", "has the date None"]),
        ("## [Unreleased]\n", CITATION, "1.2.0", ["CHANGELOG.md is of None", "and CHANGELOG.md None"]),
    ],
)
def test_a_disagreement_is_named(changelog, citation, version, said):
    problems = list(release.disagreements(changelog, citation, version))
    assert len(problems) == len(said)
    for problem, words in zip(problems, said, strict=True):
        assert words in problem


@pytest.mark.parametrize("address", ["", ADDRESS])
def test_the_long_description_has_no_relative_link(hook, address):
    readme = release.read("README.md")
    assert any(link.startswith("docs/") for link in links(readme))  # or this test would see nothing
    targets = links(hook.long_description(readme, address, "v1"))
    assert [target for target in targets if not target.startswith(("https://", "#"))] == []
    assert any(target.startswith("https://github.com/OWNER/NAME/") for target in targets) == bool(address)


def test_links_lead_to_files_of_the_tag_and_pictures_to_raw_ones(hook):
    text = "![a `c`](p/x.png) [two\nlines](d.md#e) [out](https://x.org) [in](#y) `a[0](b)`\n```\nc[1](d)\n```"
    assert hook.long_description(text, ADDRESS, "v1") == (
        f"![a `c`]({ADDRESS}/raw/v1/p/x.png) [two\nlines]({ADDRESS}/blob/v1/d.md#e) [out](https://x.org) [in](#y) "
        "`a[0](b)`\n```\nc[1](d)\n```"
    )
    assert hook.long_description(text, "", "v1") == (
        "a `c` two\nlines [out](https://x.org) [in](#y) `a[0](b)`\n```\nc[1](d)\n```"
    )


def test_the_pages_of_the_project_follow_from_the_address(hook):
    assert hook.urls("https://github.com/Some-One/c2fa", "v1") == {
        "Documentation": "https://some-one.github.io/c2fa/",
        "Source": "https://github.com/Some-One/c2fa",
        "Issues": "https://github.com/Some-One/c2fa/issues",
        "Changelog": "https://github.com/Some-One/c2fa/blob/v1/CHANGELOG.md",
    }
    with pytest.raises(ValueError, match=r"'github\.com/a/b', not of the form https://github\.com/OWNER/NAME"):
        hook.urls("github.com/a/b", "v1")


def test_dead_links_are_named():
    pytest.importorskip("readme_renderer", reason="the long description is rendered as an index does it")
    if not (ROOT / ".git").exists():
        pytest.skip("links are compared with the files of a git checkout")
    text = (
        "# One\n\n[a](#one) [b](#two) [c](docs/text.md) ![d](docs/x.png)\n"
        f"[e]({ADDRESS}/blob/v1/README.md) [f]({ADDRESS}/blob/v1/none.md) [g]({ADDRESS}/blob/v1/README.md#cite) "
        f"[h]({ADDRESS}/blob/v1/README.md#none)"
    )
    said = ["to #user-content-two", "to docs/text.md", "to docs/x.png", "to none.md", "to README.md#none"]
    problems = list(release.dead_links(text))
    assert len(problems) == len(said)
    for problem, words in zip(problems, said, strict=True):
        assert words in problem


def test_a_release_is_refused_for_a_reason(monkeypatch):
    facts = {"CHANGELOG.md": "## [Unreleased]", "src/c2fa/_version.py": '__version__ = "1.2.0"'}
    monkeypatch.setattr(release, "read", facts.get)
    monkeypatch.setattr(release, "address", lambda: "")
    monkeypatch.setattr(release, "git", lambda *_: " M README.md")
    no_address, other_tag, unreleased, uncommitted = release.ready("v9")
    assert no_address == "the project has no public address: set `address` in pyproject.toml"
    assert other_tag == "the tag is v9, and src/c2fa/_version.py says 1.2.0"
    assert unreleased.startswith("CHANGELOG.md has a section of what is unreleased")
    assert uncommitted.endswith("not committed:\n M README.md")

    facts["CHANGELOG.md"] = CHANGELOG.replace("## [Unreleased]", "")
    monkeypatch.setattr(release, "address", lambda: ADDRESS)
    monkeypatch.setattr(release, "git", lambda *_: "")
    assert list(release.ready("v1.2.0")) == []


def test_the_address_stands_once():
    """Whether it is chosen or not, no other file names it."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("git tells which files are the project's")
    address = release.address() or "https://github.com/[a-zA-Z0-9_-]*/c2fa"
    command = ["git", "grep", "-In", address.removeprefix("https://"), "--", ":!tests/whole/test_packaging.py"]
    places = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.splitlines()
    assert [place for place in places if not place.startswith("pyproject.toml:")] == []
    assert len(places) == bool(release.address())

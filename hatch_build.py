"""The parts of the metadata that need the project's public address: its links, and the README as the index shows it.

The address stands once, in pyproject.toml. Links of the README are relative, so that they work in a clone. An index has
no files beside the page, so there they become links to the files of the release's tag.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_ADDRESS = re.compile(r"https://github\.com/([\w-]+)/([\w.-]+)")
# Code comes first, so that brackets in it are not taken for a link.
_LINK = re.compile(r"```.*?```|(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)|`[^`]*`", re.DOTALL)


class Metadata(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        address, tag = self.config["address"], "v" + metadata["version"]
        readme = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": long_description(readme, address, tag)}
        metadata["urls"] = urls(address, tag) if address else {}


def urls(address: str, tag: str) -> dict[str, str]:
    """What an index lists beside the page."""
    found = _ADDRESS.fullmatch(address)
    if found is None:
        raise ValueError(f"address in pyproject.toml is {address!r}, not of the form https://github.com/OWNER/NAME")
    return {
        "Documentation": f"https://{found[1].lower()}.github.io/{found[2]}/",
        "Source": address,
        "Issues": f"{address}/issues",
        "Changelog": f"{address}/blob/{tag}/CHANGELOG.md",
    }


def long_description(readme: str, address: str, tag: str) -> str:
    """The README with links to the files of the tag, or with their texts alone where there is no address."""

    def absolute(link: re.Match[str]) -> str:
        target = link["target"]
        if target is None or target.startswith(("https://", "#")):
            return link[0]
        if not address:
            return link["text"]
        kind = "raw" if link["image"] else "blob"
        return f"{link['image']}[{link['text']}]({address}/{kind}/{tag}/{target})"

    return _LINK.sub(absolute, readme)

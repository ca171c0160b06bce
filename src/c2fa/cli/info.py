"""``c2fa info``: what is installed, what is missing and how to get it, what there is to choose from."""

from __future__ import annotations

import json as json_
import platform
import re
from importlib import metadata
from typing import Any

from c2fa._version import __version__
from c2fa.cli import options as o
from c2fa.cli.output import out, out_json
from c2fa.cli.session import guarded
from c2fa.methods import METHODS, PEERS

_REQUIREMENT = re.compile(r"""^([A-Za-z0-9._-]+).*;.*\bextra\s*==\s*['"]([^'"]+)['"]""")
_PURPOSES = {
    "frame": "tables of results",
    "text": "Hugging Face models",
    "images": "images",
    "tabular": "tables, scikit-learn models",
    "torch": "torch models",
    "onnx": "ONNX models",
    "http": "models behind a server",
    "plots": "plots",
    "peers": "other libraries' methods",
    "store": "stores of many inputs",
    "ray": "stores made on Ray",
    "dask": "stores made on Dask",
}


def info(json: o.Json = False, debug: o.Debug = False) -> None:
    """Show what is installed, and list the extras, methods and models.

    \bExamples:
      c2fa info
      c2fa info --json
    """
    with guarded(debug):
        facts = {
            "c2fa": __version__,
            "python": platform.python_version(),
            "packages": {name: metadata.version(name) for name in ("numpy", "scipy")},
            "extras": _extras(),
            "methods": list(METHODS),
            "models": o.MODELS,
        }
        if json:
            out_json(json_.dumps(facts))
        else:
            out("\n".join(_lines(facts)))


def _lines(facts: dict[str, Any]) -> list[str]:
    packages = ", ".join(f"{name} {version}" for name, version in facts["packages"].items())
    lines = [f"c2fa {facts['c2fa']}, Python {facts['python']}, {packages}", "", "Extras"]
    for extra, state in facts["extras"].items():
        status = "installed"
        if state["missing"]:
            status = f"{state['install']}   (missing: {', '.join(state['missing'])})"
        lines.append(f"  {extra:9}{_PURPOSES.get(extra, ''):30}{status}")
    own = [name for name in METHODS if name not in PEERS]
    lines += ["", "Methods", f"  {', '.join(own)}", f"  of other libraries: {', '.join(PEERS)}"]
    lines += ["", "Models", *(f"  {form:34}{what}" for form, what in o.MODELS.items())]
    return lines


def _extras() -> dict[str, dict[str, Any]]:
    """For each extra of the package, which of its packages are missing and the command that installs them."""
    extras: dict[str, dict[str, Any]] = {}
    for line in metadata.requires("c2fa") or []:
        match = _REQUIREMENT.match(line)
        if match is None or match[2] in ("dev", "docs") or match[1] == "c2fa":
            continue
        name, extra = match.groups()
        state = extras.setdefault(extra, {"installed": True, "missing": [], "install": f"pip install 'c2fa[{extra}]'"})
        try:
            metadata.version(name)
        except metadata.PackageNotFoundError:
            state["missing"].append(name)
            state["installed"] = False
    return extras

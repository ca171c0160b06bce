"""``c2fa info``: what is installed, what is missing and how to get it, what there is to choose from."""

from __future__ import annotations

import json as json_
import platform
import re
from importlib import metadata
from typing import Any

from c2fa.cli import _options as o
from c2fa.cli._errors import guarded
from c2fa.cli._model import SPECS
from c2fa.cli._saying import out, out_json

_REQUIREMENT = re.compile(r"""^([A-Za-z0-9._-]+).*;.*\bextra\s*==\s*['"]([^'"]+)['"]""")
_FOR = {
    "frame": "tables of results",
    "text": "Hugging Face models",
    "images": "images",
    "tabular": "tables, scikit-learn models",
    "torch": "torch models",
    "onnx": "ONNX models",
    "http": "models behind a server",
    "plots": "pictures",
    "peers": "other libraries' methods",
    "store": "stores of many inputs",
    "ray": "stores made on Ray",
    "dask": "stores made on Dask",
}


def info(json: o.Json = False, debug: o.Debug = False) -> None:
    """Say what is installed and what there is: extras, methods, models.

    \bExamples:
      c2fa info
      c2fa info --json
    """
    with guarded(debug):
        from c2fa import __version__
        from c2fa.methods import METHODS, PEERS

        facts: dict[str, Any] = {
            "c2fa": __version__,
            "python": platform.python_version(),
            "packages": {name: metadata.version(name) for name in ("numpy", "scipy")},
            "extras": extras(),
            "methods": list(METHODS),
            "models": SPECS,
        }
        if json:
            out_json(json_.dumps(facts))
            return
        lines = [
            f"c2fa {facts['c2fa']}, Python {facts['python']}, "
            + ", ".join(f"{name} {version}" for name, version in facts["packages"].items()),
            "",
            "Extras",
        ]
        for extra, state in facts["extras"].items():
            needs = ", ".join(state["missing"])
            said = "installed" if not state["missing"] else f"{state['install']}   (missing: {needs})"
            lines.append(f"  {extra:9}{_FOR.get(extra, ''):30}{said}")
        own = [name for name in METHODS if name not in PEERS]
        lines += ["", "Methods", f"  {', '.join(own)}", f"  other libraries': {', '.join(PEERS)}"]
        lines += ["", "Models", *(f"  {spec:34}{what}" for spec, what in SPECS.items())]
        out("\n".join(lines))


def extras() -> dict[str, dict[str, Any]]:
    """For each extra of the package, which of its packages are missing and the command that installs them."""
    found: dict[str, dict[str, Any]] = {}
    for line in metadata.requires("c2fa") or []:
        match = _REQUIREMENT.match(line)
        if match is None or match[2] in ("dev", "docs") or match[1] == "c2fa":
            continue
        name, extra = match.groups()
        state = found.setdefault(extra, {"installed": True, "missing": [], "install": f"pip install 'c2fa[{extra}]'"})
        try:
            metadata.version(name)
        except metadata.PackageNotFoundError:
            state["missing"].append(name)
            state["installed"] = False
    return found

"""Files that a command writes: checked before anything is asked, whole or not there at all."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from c2fa.cli._errors import UNUSABLE, USAGE, RefusedError

if TYPE_CHECKING:
    from c2fa.explanation import Explanation

EXPLANATIONS = (".html", ".json", ".npz", ".parquet", ".csv")
PICTURES = (".png", ".svg", ".pdf")
_EXTRAS = {"matplotlib": "plots", "pandas": "frame", "pyarrow": "store"}
_NEEDS = {
    ".parquet": ("pandas", "pyarrow"),
    ".csv": ("pandas",),
    **dict.fromkeys(PICTURES, ("matplotlib",)),
}


def check(path: Path, suffixes: Sequence[str], flag: str = "--out") -> None:
    """Refuse a file that could not be written, before any answer is paid for."""
    if path.suffix.lower() not in suffixes:
        raise RefusedError(f"{flag} {str(path)!r} must end in {', '.join(suffixes)}", USAGE)
    folder = path.resolve().parent
    if path.is_dir():
        raise RefusedError(f"{flag} {str(path)!r} is a folder; give a file in it")
    if not folder.is_dir():
        raise RefusedError(f"{flag} {str(path)!r}: there is no folder {str(folder)!r}; make it first")
    need(_NEEDS.get(path.suffix.lower(), ()), f"{flag} {str(path)!r}")
    if path.exists() and not os.access(path, os.W_OK):
        raise RefusedError(f"{flag} {str(path)!r} cannot be written; give another file")
    try:
        # Asking for permissions is not enough: full and read-only disks only tell when they are written to.
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(b"c2fa")
    except OSError as error:
        raise RefusedError(f"{flag} {str(path)!r} cannot be written: {error.strerror}; give another folder") from error


def need(packages: Sequence[str], what: str) -> None:
    """Refuse what needs packages that are not installed, with the one command that installs them."""
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        extras = ",".join(_EXTRAS[package] for package in missing)
        raise RefusedError(f"{what} needs {' and '.join(missing)}: pip install 'c2fa[{extras}]'")


def write(path: Path, make: Callable[[Path], object]) -> None:
    """Write a file under another name and rename it, so that nobody ever sees half of it."""
    target = path.resolve()
    half = target.with_name(f".{target.stem}-{os.getpid()}{target.suffix}")
    try:
        make(half)
        half.replace(target)
    except OSError as error:
        raise RefusedError(f"cannot write {str(path)!r}: {error.strerror or error}", UNUSABLE) from error
    finally:
        half.unlink(missing_ok=True)


def write_explanations(path: Path, found: Sequence[tuple[str, Explanation]], title: str | None = None) -> None:
    """Write explanations in the format that the file's name asks for."""
    suffix = path.suffix.lower()
    alone = found[0][1] if len(found) == 1 else None
    if suffix == ".html":
        from c2fa import report

        page = report.html(alone if alone is not None else dict(unique(found)), title=title)
        write(path, lambda half: half.write_text(page, encoding="utf-8", newline="\n"))
    elif suffix == ".json":
        text = alone.to_json() if alone is not None else "[" + ",\n".join(e.to_json() for _, e in found) + "]"
        write(path, lambda half: half.write_text(text + "\n", encoding="utf-8"))
    elif suffix == ".npz":
        write(path, found[0][1].save)
    else:
        frame = tidy(found)
        write(path, lambda half: write_frame(frame, half))


def write_frame(frame: Any, path: Path) -> None:
    """Write a pandas frame as .csv, .json (records) or .parquet."""
    suffix = path.suffix.lower()
    if suffix == ".csv":
        frame.to_csv(path, index=False)
    elif suffix == ".json":
        path.write_text(json.dumps(records(frame), ensure_ascii=False) + "\n", encoding="utf-8")
    else:
        frame.to_parquet(path, index=False)


def records(frame: Any) -> Any:
    """The rows of a frame as plain values; what is not a number becomes null."""
    return json.loads(frame.to_json(orient="records", double_precision=15))


def tidy(found: Sequence[tuple[str, Explanation]]) -> Any:
    """One table for all explanations: a row for each feature of each level of each input."""
    import pandas as pd

    frames = []
    for name, e in found:
        frame = e.to_frame()
        frame.insert(0, "input", name)
        frame.insert(1, "target", e.target_name)
        frame.insert(2, "prediction", e.prediction)
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def unique(found: Sequence[tuple[str, Explanation]]) -> list[tuple[str, Explanation]]:
    """The same explanations under names of which no two are equal."""
    seen: dict[str, int] = {}
    named = []
    for name, e in found:
        seen[name] = seen.get(name, 0) + 1
        named.append((name if seen[name] == 1 else f"{name} ({seen[name]})", e))
    return named

"""What is to be explained: texts, rows of tables, images, bags of images; and the masker that suits it."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from c2fa.cli import _parsing as parsing
from c2fa.cli._errors import USAGE, RefusedError

Kind = Literal["text", "table", "images"]
_TABLES = {".csv": ",", ".tsv": "\t"}
_IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp")
DATASETS = (".parquet", ".jsonl", ".ndjson", ".json.gz", ".jsonl.gz", ".jsonl.xz")
_GOES_WITH = {
    "text": ("levels", "mask", "language"),
    "table": ("rows", "drop", "groups", "background", "strategy"),
    "images": ("segment", "absent", "fill"),
}
_WORD = {"text": "texts", "table": "rows of tables", "images": "images"}


@dataclass(frozen=True, eq=False)
class Inputs:
    """The inputs of a command, all of one kind, with their names."""

    kind: Kind
    names: list[str]
    values: list[Any]
    frame: Any = None  # of rows: the whole table, which is the background unless another is given

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class Choices:
    """What a person said about reading and masking; None and empty where nothing was said."""

    rows: Sequence[str] = ()
    drop: Sequence[str] = ()
    groups: Path | None = None
    background: Path | None = None
    strategy: str | None = None
    levels: str | None = None
    mask: str | None = None
    language: str | None = None
    segment: str | None = None
    absent: str | None = None
    fill: str | None = None

    def check(self, kind: Kind) -> None:
        """Refuse what does not go with the kind of input, rather than pass over it."""
        for other, names in _GOES_WITH.items():
            for name in names:
                if other != kind and getattr(self, name):
                    flag = "row" if name == "rows" else name
                    raise RefusedError(f"--{flag} is for {_WORD[other]}, and these are {_WORD[kind]}", USAGE)


def read(files: Sequence[Path], choices: Choices) -> Inputs:
    """Read all inputs; every one that cannot be read is refused before anything is asked."""
    found = [_read(file, choices) for file in files]
    kinds = list(dict.fromkeys(item.kind for item in found))
    if len(kinds) > 1:
        raise RefusedError(
            f"{', '.join(map(str, files))} hold {' and '.join(_WORD[k] for k in kinds)}; explain one kind at a time"
        )
    choices.check(kinds[0])
    frame = found[0].frame
    if len(found) > 1 and frame is not None:
        for file, item in zip(files, found, strict=True):
            if list(item.frame.columns) != list(frame.columns):
                raise RefusedError(f"{str(file)!r} has other columns than {str(files[0])!r}; explain them apart")
        frame = _pandas().concat([item.frame for item in found], ignore_index=True)
    names = [name for item in found for name in item.names]
    return Inputs(kinds[0], names, [x for item in found for x in item.values], frame)


def _read(file: Path, choices: Choices) -> Inputs:
    if str(file) == "-":
        return read_text(file)
    _must_exist(file)
    if file.is_dir():
        return _bag(file)
    suffix = file.suffix.lower()
    if suffix in _TABLES:
        return _table(file, choices)
    if file.name.lower().endswith(DATASETS):
        raise RefusedError(f"{str(file)!r} is a dataset: give --store DIR, the folder of its explanations", USAGE)
    if suffix in _IMAGES:
        return Inputs("images", [file.name], [_image(file)])
    return read_text(file)


def _must_exist(file: Path) -> None:
    if not file.exists():
        raise RefusedError(f"there is no file or folder {str(file)!r}")


def read_text(file: Path) -> Inputs:
    """A text in UTF-8 that is not empty; '-' is standard input."""
    if str(file) == "-":
        name, data = "standard input", sys.stdin.buffer.read()
    else:
        _must_exist(file)
        name, data = file.name, file.read_bytes()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RefusedError(f"{name!r} is not a text in UTF-8 (byte {error.start} is not); convert it first") from None
    if not text.strip():
        raise RefusedError(f"{name!r} is empty; give a text with at least one word")
    return Inputs("text", [name], [text])


def _table(file: Path, choices: Choices) -> Inputs:
    frame = read_table(file)
    missing = [c for c in choices.drop if c not in frame.columns]
    if missing:
        raise RefusedError(f"{str(file)!r} has no column {missing[0]!r} to drop; it has {_columns(frame)}")
    frame = frame.drop(columns=list(choices.drop))
    at = parsing.rows(choices.rows, len(frame), str(file))
    return Inputs("table", [f"{file.name} row {i}" for i in at], [frame.iloc[[i]] for i in at], frame)


def read_table(file: Path) -> Any:
    """A CSV or TSV file as a pandas frame."""
    try:
        frame = _pandas().read_csv(file, sep=_TABLES.get(file.suffix.lower(), ","))
    except (OSError, ValueError) as error:
        raise RefusedError(f"cannot read {str(file)!r} as a table: {error}") from error
    if not len(frame) or not len(frame.columns):
        raise RefusedError(f"{str(file)!r} has no rows under its header")
    return frame


def _bag(folder: Path) -> Inputs:
    files = sorted(f for f in folder.iterdir() if f.suffix.lower() in _IMAGES and not f.name.startswith("."))
    if not files:
        raise RefusedError(f"the folder {str(folder)!r} holds no images ({', '.join(_IMAGES)}); a folder is one bag")
    return Inputs("images", [folder.resolve().name], [{f.name: _image(f) for f in files}])


def _image(file: Path) -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise RefusedError("images need pillow: pip install 'c2fa[images]'") from None
    import numpy as np

    try:
        with Image.open(file) as image:
            # RGB would cut grey values of more than 8 bits to white.
            return np.asarray(image if image.mode in ("L", "I", "I;16", "F") else image.convert("RGB"))
    except (OSError, ValueError) as error:
        raise RefusedError(f"cannot read {str(file)!r} as an image: {error}") from error


def masker_for(kind: Kind, frame: Any, choices: Choices, model: Any = None) -> Any:
    """The masker for the inputs as the person wants it."""
    from c2fa import maskers

    if kind == "text":
        levels = parsing.words(choices.levels) if choices.levels else ("sentences", "words")
        return maskers.Text(levels=levels, mask=_mask(choices.mask, model), language=choices.language or "en")
    if kind == "images":
        fill = 0 if choices.fill is None else parsing.value(choices.fill)
        return maskers.ImageBag(segment=choices.segment or "quickshift", absent=choices.absent or "remove", fill=fill)
    background = frame if choices.background is None else read_table(choices.background)
    missing = [c for c in frame.columns if c not in background.columns]
    if missing:
        raise RefusedError(f"{str(choices.background)!r} has no column {missing[0]!r}; it has {_columns(background)}")
    return maskers.Tabular(
        _groups(choices.groups), background=background[list(frame.columns)], strategy=choices.strategy or "mean"
    )


def _mask(given: str | None, model: Any) -> str | None:
    """What stands for a masked word: what was given, the model's own token, or [MASK]; 'none' removes words."""
    if given is not None:
        return None if given.lower() == "none" else given
    own = getattr(model, "mask_token", None) or getattr(getattr(model, "tokenizer", None), "mask_token", None)
    return str(own or "[MASK]")


def _groups(file: Path | None) -> Any:
    if file is None:
        return None
    try:
        groups = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RefusedError(f"cannot read the groups in {str(file)!r}: {error}") from error
    if not isinstance(groups, dict):
        raise RefusedError(f'{str(file)!r} must hold an object such as {{"size": ["height", "weight"]}}')
    return groups


def _columns(frame: Any) -> str:
    return ", ".join(map(str, list(frame.columns)[:20]))


def _pandas() -> Any:
    try:
        import pandas as pd
    except ImportError:
        raise RefusedError("tables need pandas: pip install 'c2fa[tabular]'") from None
    return pd

"""The files of a command, and the masker that suits them."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from c2fa import maskers
from c2fa._system import did_you_mean
from c2fa.asking.model import describe
from c2fa.cli import options
from c2fa.cli.commands import Asking
from c2fa.cli.options import ASKING, INPUTS, argument, flag, pairs
from c2fa.cli.output import USAGE, RefusedError, as_usage, need
from c2fa.cli.session import Stop, Stoppable
from c2fa.models.http._settings import shown

Kind = Literal["text", "table", "images"]
_DATASETS = (".parquet", ".jsonl", ".ndjson", ".json.gz", ".jsonl.gz", ".jsonl.xz")
_TABLES = {".csv": ",", ".tsv": "\t"}
_IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp")
_PLURAL = {"text": "texts", "table": "rows of tables", "images": "images"}


@dataclass(frozen=True, eq=False)
class Inputs:
    """The inputs of a command, all of one kind, with their names.

    Attributes
    ----------
    frame
        The whole table whose rows are explained.
    masking
        The masker's options.
    """

    kind: Kind
    names: list[str]
    values: list[Any]
    frame: Any = None
    masking: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.values)

    def masker(self, mask_token: str | None) -> Any:
        """The masker of these inputs; for texts the default mask is the model's own."""
        with as_usage():
            if self.kind == "table":
                return maskers.Tabular(**self.masking)
            if self.kind == "images":
                return maskers.ImageBag(**self.masking)
            return maskers.Text(**{"mask": mask_token or "[MASK]", **self.masking})

    def check_masked(self, mask: Callable[[Any], Any]) -> None:
        """Refuse inputs that cannot be masked before the first query; segmenting images takes too long."""
        if self.kind == "images":
            return
        for name, x in list(zip(self.names, self.values, strict=True))[:1000]:
            try:
                mask(x)
            except (ValueError, TypeError, KeyError) as error:
                raise RefusedError(f"{name!r} cannot be explained: {error}") from error


@dataclass(frozen=True, kw_only=True, eq=False)
class Reading(Asking):
    """A command that asks a model about files."""

    files: list[Path] = argument(
        "FILE", "Text files ('-' for standard input), CSV, TSV, Parquet or JSONL, images, or folders of images."
    )
    allow_pickle: bool = flag(ASKING, "Let sklearn: load a pickle, which can run any code in it.", default=False)
    target: str | None = flag(
        ASKING,
        "The output to explain: a name, or a number counted from 0.",
        metavar="CLASS",
        show_default="the predicted class",
    )
    row: list[str] = flag(
        INPUTS,
        "Rows of a file, counted from 0: 3, or 2:10 for several. Repeatable.",
        default=[],
        metavar="N",
        show_default="all",
    )
    field: str | None = flag(
        INPUTS, "The column or field that holds the text: of a CSV, Parquet or JSONL.", metavar="NAME"
    )
    drop: list[str] = flag(
        INPUTS, "A column that the model does not take, such as the label. Repeatable.", default=[], metavar="COLUMN"
    )
    masker: list[str] = pairs(INPUTS, "Set a masking option: levels=sentences,words")

    def model_settings(self) -> dict[str, Any]:
        return {**super().model_settings(), "allow_pickle": self.allow_pickle}

    def read(self) -> Inputs:
        """Read all inputs; one that cannot be read is refused before anything is asked."""
        for name, given in (("--row", self.row), ("--field", self.field)):
            if given and not any(f.suffix.lower() in _TABLES or is_dataset(f) for f in self.files):
                raise RefusedError(f"{name} is for files with rows: .csv, .tsv, .parquet and .jsonl", USAGE)
        found = [self._read(file) for file in self.files]
        kinds = list(dict.fromkeys(item.kind for item in found))
        if len(kinds) > 1:
            raise RefusedError(
                f"{', '.join(map(str, self.files))} hold {' and '.join(_PLURAL[k] for k in kinds)}; explain one kind "
                "at a time"
            )
        frame = self._whole_table([item.frame for item in found])
        names = [name for item in found for name in item.names]
        values = [x for item in found for x in item.values]
        inputs = Inputs(kinds[0], names, values, frame, self.masking(kinds[0], frame))
        if inputs.kind == "table" and self.spec.partition(":")[0] in ("demo", "hf", "openai"):  # others may take tables
            raise RefusedError(
                f"the model {shown(self.spec)!r} takes texts: name the column that holds them with --field; there are "
                f"{_columns(frame)}",
                USAGE,
            )
        return inputs

    def masking(self, kind: Kind, frame: Any = None) -> dict[str, Any]:
        """Read the masker's options; what does not go with the kind of input is refused."""
        if self.drop and kind != "table":
            raise RefusedError(f"--drop is for rows of tables, and these are {_PLURAL[kind]}", USAGE)
        read = options.read("--masker", self.masker, _MASKER_OPTIONS[kind], f"masking {_PLURAL[kind]}")
        if kind == "table":
            background = read.get("background", frame)
            missing = [c for c in frame.columns if c not in background.columns]
            if missing:
                raise RefusedError(f"the background has no column {missing[0]!r}; it has {_columns(background)}")
            read["background"] = background[list(frame.columns)]
        return read

    def prepare(self, inputs: Inputs, model: Any, stop: Stop, keep: str | None) -> tuple[Stoppable, Any, str]:
        """A model that can be stopped, the masker and the model's name; ``keep`` is the flag that keeps its answers."""
        about = describe(model)
        masker, name = inputs.masker(about.mask_token), self.model_name or about.name
        if name is None and keep is not None:
            raise RefusedError(
                f"{keep} keeps answers under the model's name, and {self.spec!r} has none; give --model-name NAME and "
                "change it whenever the model changes",
                USAGE,
            )
        return Stoppable(model, stop), masker, name or self.spec

    @contextmanager
    def naming_columns(self, inputs: Inputs) -> Iterator[None]:
        """Say beside a model's error which columns it was given: the label is often one too many."""
        try:
            yield
        except RuntimeError as error:
            if inputs.kind == "table":
                labels = ("label", "target", "class", "outcome", "y")
                unwanted = [c for c in inputs.frame if f"- {c}\n" in f"{error}\n" or str(c).casefold() in labels]
                error.add_note(
                    f"the model was given the columns {_columns(inputs.frame)}; --drop "
                    f"{unwanted[0] if unwanted else 'COLUMN'} leaves out one that it does not take"
                )
            raise

    def places(self, inputs: Inputs) -> list[str]:
        """What tells these inputs from others: where they are, and what standard input held."""
        places = [str(f.resolve()) if str(f) != "-" else str(inputs.values[i]) for i, f in enumerate(self.files)]
        return [*places, *self.row, self.field or ""]

    def _read(self, file: Path) -> Inputs:
        if str(file) == "-":
            return read_text(file)
        must_exist(file)
        if is_dataset(file):
            from c2fa.batch.sources import source

            try:
                values = [item.x for item in source(str(file), self.field).items()]
            except (OSError, ValueError, EOFError) as error:
                raise RefusedError(f"cannot read {str(file)!r}: {error}") from error
            return self._choose_texts(file, values)
        if file.is_dir():
            files = _images(file)
            if not files:
                raise RefusedError(
                    f"the folder {str(file)!r} holds no images ({', '.join(_IMAGES)}); a folder is one bag"
                )
            return Inputs("images", [file.resolve().name], [{f.name: _read_image(f) for f in files}])
        suffix = file.suffix.lower()
        if suffix in _TABLES:
            return self._read_rows(file) if self.field is None else self._choose_texts(file, self._column(file))
        if suffix in _IMAGES:
            return Inputs("images", [file.name], [_read_image(file)])
        return read_text(file)

    def _column(self, file: Path) -> list[Any]:
        """The column of a table that holds the texts, as they are written: NA and 007 are texts too."""
        frame = _read_table(file, dtype=str, keep_default_na=False)
        if self.field not in frame.columns:
            near = did_you_mean(self.field, map(str, frame))
            raise RefusedError(f"{str(file)!r} has no column {self.field!r}; it has {_columns(frame)}{near}")
        return list(frame[self.field])

    def _choose_texts(self, file: Path, values: Sequence[Any]) -> Inputs:
        chosen = options.rows(self.row, len(values), str(file))
        texts = [_as_text(values[i], f"row {i} of {str(file)!r}") for i in chosen]
        return Inputs("text", [f"{file.name} row {i}" for i in chosen], texts)

    def _read_rows(self, file: Path) -> Inputs:
        frame = _read_table(file)
        missing = [c for c in self.drop if c not in frame.columns]
        if missing:
            near = did_you_mean(missing[0], map(str, frame))
            raise RefusedError(f"{str(file)!r} has no column {missing[0]!r} to drop; it has {_columns(frame)}{near}")
        frame = frame.drop(columns=list(self.drop))
        chosen = options.rows(self.row, len(frame), str(file))
        return Inputs("table", [f"{file.name} row {i}" for i in chosen], [frame.iloc[[i]] for i in chosen], frame)

    def _whole_table(self, frames: Sequence[Any]) -> Any:
        """All tables as one, which is the background unless another is given; None where there are none."""
        first = frames[0]
        if len(frames) == 1 or first is None:
            return first
        for file, frame in zip(self.files, frames, strict=True):
            if list(frame.columns) != list(first.columns):
                raise RefusedError(f"{str(file)!r} has other columns than {str(self.files[0])!r}; explain them apart")
        return _pandas().concat(frames, ignore_index=True)


def mask_token(spec: str) -> str | None:
    """The mask of a Hugging Face model, which the files of its tokenizer tell before it is loaded."""
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        with contextlib.suppress(OSError, ValueError, KeyError):
            token = json.loads(Path(spec.removeprefix("hf:"), name).read_bytes())["mask_token"]
            return str(token["content"] if isinstance(token, dict) else token)
    return None


def is_dataset(file: Path) -> bool:
    """Whether it is a Parquet or JSONL file, or a folder of such files; one with images is a bag, labels or not."""
    if file.is_dir():
        return not _images(file) and any(f.name.lower().endswith(_DATASETS) for f in file.iterdir())
    return file.name.lower().endswith(_DATASETS)


def must_exist(file: Path) -> None:
    if not file.exists():
        raise RefusedError(f"there is no file or folder {str(file)!r}")


def read_text(file: Path) -> Inputs:
    """Read a text in UTF-8 that is not empty; '-' is standard input."""
    if str(file) == "-":
        name, data = "standard input", sys.stdin.buffer.read()
    else:
        must_exist(file)
        name, data = file.name, file.read_bytes()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RefusedError(f"{name!r} is not a text in UTF-8 (byte {error.start} is not); convert it first") from None
    if not text.strip():
        raise RefusedError(f"{name!r} is empty; give a text with at least one word")
    return Inputs("text", [name], [text])


def _read_table(file: Path, **reading: Any) -> Any:
    separator = _TABLES.get(file.suffix.lower(), ",")
    try:
        frame = _pandas().read_csv(file, sep=separator, **reading)
    except (OSError, ValueError) as error:
        _refuse_other_separator(file, separator)
        raise RefusedError(f"cannot read {str(file)!r} as a table: {error}") from error
    if len(frame.columns) == 1:
        _refuse_other_separator(file, separator)
    if not len(frame) or not len(frame.columns):
        raise RefusedError(f"{str(file)!r} has no rows under its header")
    return frame


def _refuse_other_separator(file: Path, separator: str) -> None:
    """Refuse a table whose header is cut at another character than its suffix promises."""
    try:
        with file.open(encoding="utf-8-sig") as lines:
            header = lines.readline()
    except (OSError, ValueError):
        return
    for other, name in {";": "semicolons", "\t": "tabs", "|": "bars"}.items():
        if other in header and separator not in header:
            raise RefusedError(
                f"the columns of {str(file)!r} are separated by {name}, and {file.suffix} means "
                f"{'tabs' if separator != ',' else 'commas'}: write it anew, in Python with "
                f"pandas.read_csv({file.name!r}, sep={other!r}).to_csv('commas.csv', index=False)"
            )


def _as_text(value: Any, place: str) -> Any:
    from c2fa.batch.packing import Unreadable

    if isinstance(value, Unreadable):
        raise RefusedError(f"{place}: {value}")
    if isinstance(value, Mapping) and not all(isinstance(each, str) for each in value.values()):
        raise RefusedError(
            f"{place} has {', '.join(map(str, value))}: name the one that is the text with --field", USAGE
        )
    if not isinstance(value, str | Mapping):
        raise RefusedError(f"{place} is no text: {value!r}")
    return value


def _images(folder: Path) -> list[Path]:
    return sorted(f for f in folder.iterdir() if f.suffix.lower() in _IMAGES and not f.name.startswith("."))


def _read_image(file: Path) -> Any:
    need(("PIL",), "an image")
    from PIL import Image

    try:
        with Image.open(file) as image:
            # RGB would cut grey values of more than 8 bits to white.
            return np.asarray(image if image.mode in ("L", "I", "I;16", "F") else image.convert("RGB"))
    except (OSError, ValueError) as error:
        raise RefusedError(f"cannot read {str(file)!r} as an image: {error}") from error


def _read_groups(text: str) -> Any:
    try:
        groups = json.loads(Path(text).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RefusedError(f"cannot read the groups in {text!r}: {error}") from error
    if not isinstance(groups, dict):
        raise RefusedError(f'{text!r} must hold an object such as {{"size": ["height", "weight"]}}')
    return groups


_MASKER_OPTIONS: dict[Kind, options.Readers] = {
    "text": {"levels": options.words, "mask": lambda text: None if text.lower() == "none" else text, "language": str},
    "table": {"groups": _read_groups, "background": lambda text: _read_table(Path(text)), "strategy": str},
    "images": {
        "segment": str,
        "absent": str,
        "fill": options.value,
        "regions": options.whole,
        "channels": str,
        "options": options.value,
    },
}


def _columns(frame: Any) -> str:
    return ", ".join(map(str, list(frame.columns)[:20]))


def _pandas() -> Any:
    need(("pandas",), "a table")
    import pandas as pd

    return pd

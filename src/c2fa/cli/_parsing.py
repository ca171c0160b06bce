"""Values that are written in one word on the command line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from c2fa.cli._errors import USAGE, RefusedError

_CALL = re.compile(r"\s*(L1|L2|ElasticNet|NonNegative)\((.*)\)\s*")
_DESIGN = re.compile(r"\s*(Keep|Exhaustive|Balanced|Planned|Stratified|Halves|Nested|Focused)\((.*)\)\s*")


def budget(text: str) -> int | tuple[int, ...]:
    """Rows in all, or rows for each level.

    >>> budget("200"), budget("50,150"), budget("20:50")
    (200, (50, 150), (20, 50))
    """
    parts = re.split("[,:]", text)
    try:
        rows = tuple(int(part.replace("_", "")) for part in parts)
    except ValueError:
        raise RefusedError(
            f"--budget {text!r} is not a number of model rows: write 200, or 50,150 with one for each level",
            USAGE,
        ) from None
    return rows[0] if len(rows) == 1 else rows


def budgets(text: str) -> list[int | tuple[int, ...]]:
    """Several budgets.

    >>> budgets("20:50,20:100"), budgets("100,200")
    ([(20, 50), (20, 100)], [100, 200])
    """
    return [budget(part) for part in text.split(",")]


def words(text: str) -> list[str]:
    """Names with commas between them.

    >>> words("c2fa, lime")
    ['c2fa', 'lime']
    """
    return [word.strip() for word in text.split(",") if word.strip()]


def value(text: str) -> Any:
    """A value as JSON has it, or the text itself.

    >>> value("0.5"), value("true"), value("[1, 2]"), value("shap")
    (0.5, True, [1, 2], 'shap')
    """
    try:
        return json.loads(text)
    except ValueError:
        return text


def pairs(texts: Sequence[str], flag: str, read: Callable[[str], Any] = value) -> dict[str, Any]:
    """Options as key=value.

    >>> pairs(["intercept=false", "kernel=shap"], "--option")
    {'intercept': False, 'kernel': 'shap'}
    """
    found = {}
    for text in texts:
        key, equals, rest = text.partition("=")
        if not equals or not key.strip():
            raise RefusedError(f"{flag} {text!r} must read key=value, such as intercept=false", USAGE)
        found[key.strip().replace("-", "_")] = read(rest)
    return found


def method_value(text: str) -> Any:
    """A value of a method's option: as JSON has it, or a penalty or a sampler as Python writes it.

    >>> method_value("L2(0.5)"), method_value("ElasticNet(0.1, 0.2)")
    (L2(lam=0.5, positive=False), ElasticNet(l1=0.1, l2=0.2, positive=False))
    >>> method_value("Keep(0.8)"), method_value("Focused(2, on)")
    (Keep(share=0.8), Focused(parts=2, others='on'))
    """
    design = _DESIGN.fullmatch(text)
    if design:
        return _design(text, *design.groups())
    call = _CALL.fullmatch(text)
    if not call:
        return value(text)
    from c2fa import penalties

    name, inside = call.groups()
    try:
        return getattr(penalties, name)(*(float(part) for part in words(inside)))
    except (TypeError, ValueError) as error:
        raise RefusedError(f"{text!r} is not a penalty such as L2(0.1): {error}", USAGE) from None


def _design(text: str, name: str, inside: str) -> Any:
    from c2fa import designs, sampling

    kind = getattr(sampling, name, None) or getattr(designs, name)
    try:
        return kind(*(value(part.strip("'\"")) for part in words(inside)))
    except (TypeError, ValueError) as error:
        raise RefusedError(f"{text!r} is not a sampler such as Keep(0.8): {error}", USAGE) from None


def target(text: str | None, names: Sequence[str] = ()) -> int | str | None:
    """An output by its name, or by its place where no output has that name.

    >>> target("1"), target("positive"), target(None), target("1", ["1", "2"])
    (1, 'positive', None, '1')
    """
    if text is None or text in names or not (text.isascii() and text.isdigit()):
        return text
    return int(text)


def rows(texts: Sequence[str], count: int, where: str) -> list[int]:
    """Rows of a table, counted from 0: one, or a piece as Python writes it.

    >>> rows(["0", "4:6", "8:"], 10, "x.csv")
    [0, 4, 5, 8, 9]
    """
    if not texts:
        return list(range(count))
    chosen: list[int] = []
    for text in texts:
        if not re.fullmatch(r"-?\d+|-?\d*:-?\d*", text):
            raise RefusedError(f"--row {text!r} is not a row: write 3, or 2:10 for several", USAGE)
        start, colon, stop = text.partition(":")
        if colon:
            chosen += range(count)[slice(int(start) if start else None, int(stop) if stop else None)]
        elif -count <= int(start) < count:
            chosen.append(int(start) % count)
        else:
            raise RefusedError(f"{where!r} has no row {start}; its {count} rows are counted from 0")
    if not chosen:
        raise RefusedError(f"--row {' '.join(texts)} chooses none of the {count} rows of {where!r}")
    return list(dict.fromkeys(chosen))

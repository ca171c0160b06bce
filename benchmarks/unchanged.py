"""Whether a change of the insides changed a number: everything explained before it, and again after it.

    python -m benchmarks.unchanged store FILE
    python -m benchmarks.unchanged compare FILE

``store`` computes every case of ``benchmarks/unchanged_cases.py`` with the code as it is and writes what came out.
``compare`` computes them again. A number may differ by 1e-9 of the largest in its array, or by 1e-12; the exit status
is 1 where one differs by more. Texts are compared by the numbers in them; other words, other names of fields and other
messages of errors are shown and count for nothing. A case that the code refuses before it asks anything, and did not
refuse when it was stored, is listed as gone: an option or a name that no longer exists.

``compare --shaken`` moves every answer of every model by 1e-15 of it first. What differs then differs by rounding: such
a case cannot tell a change of meaning from another order of additions.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import fnmatch
import json
import lzma
import math
import os
import re
import sys
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

# One thread, because sums over several threads are added in an order of their own.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from benchmarks.unchanged_cases import Case, cases, shake

import c2fa

FORMAT = 1
RELATIVE = 1e-9  # of the largest number of the array
SMALLEST = 1e-3  # a number of this size may differ by 1e-12, and so may smaller ones
SHAKE = 1e-15
GONE = (TypeError, ValueError, AttributeError, ImportError, KeyError)  # how a name that is not there is refused

# Fields that every version must have; elsewhere a name may change, and that is shown.
PROMISED = ("values", "stderr", "intercepts", "all_values", "queries", "prediction", "target", "objective", "losses")
# How it was made, where versions differ on purpose.
ASIDE = ("json/schema", "json/provenance", "json/checksum")

Record = dict[str, Any]  # path -> {"shape": …, "numbers": …}, a text or None


# ------------------------------------------------------------------------------------------------ what is kept


def compute(case: Case) -> Record:
    """What a case gives, or the error that it ends in, as plain fields by their paths."""
    made = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            run = case.make()
            made = True
            return flat(plain(run()))
        except Exception as error:
            return {
                "error/type": type(error).__name__,
                "error/message": str(error),
                "error/refused": str(not made and isinstance(error, GONE)),
            }


def plain(value: Any) -> Any:
    """A result in dicts, lists, numbers and texts."""
    if isinstance(value, c2fa.Explanation):
        return _explanation(value)
    if isinstance(value, c2fa.Solution):
        return _fields(value, ("values", "stderr", "intercepts", "status", "iterations", "objective", "losses"))
    if hasattr(value, "frame") and hasattr(value, "summary"):  # an evaluation
        return {"frame": _columns(value.frame), "summary": _columns(value.summary(resamples=50))}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _fields(value, [f.name for f in dataclasses.fields(value)])
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def _explanation(e: c2fa.Explanation) -> dict[str, Any]:
    named = ("values", "stderr", "intercepts", "all_values", "queries", "prediction", "target", "diagnostics")
    found = _fields(e, named)
    found["diagnostics"] |= _prior(e)
    return {
        **found,
        "names": [list(names) for names in e.names],
        "frame": _columns(e.to_frame()),
        "json": _as_before(e, _decoded(json.loads(e.to_json()))),
        "text": e.to_text(leaves=5),
    }


def _prior(e: c2fa.Explanation) -> dict[str, Any]:
    """What was kept of a prior among the diagnostics."""
    return {f"prior_{name}": None if e.prior is None else getattr(e.prior, name) for name in ("share", "part", "worth")}


def _as_before(e: c2fa.Explanation, document: dict[str, Any]) -> dict[str, Any]:
    """JSON of schema 2 in the words of schema 1, in which what is compared with was kept."""
    prior, answer, view = (document.pop(name) for name in ("prior", "answer", "view"))
    document["diagnostics"] |= _prior(e)
    document["all_without_prior"] = None if prior is None else prior["without"]
    kind = {"Vector": "array", "View": None}.get(view["class"], view["class"].lower())
    del view["class"], document["checksum"]
    if kind not in ("text", "images"):
        del view["levels"]
    if kind == "array":
        del view["at_baseline"]
    if kind == "table":
        view["columns"] = list(e.names[-1])
    if kind == "images" and (name := view.pop("name")):
        view["title"] = name
    if kind is not None:
        view["kind"] = kind
    if answer is not None:
        view |= {"answer": answer.pop("text"), **answer}
    return {**document, "view": view}


def _fields(value: Any, names: Sequence[str]) -> dict[str, Any]:
    return {name: plain(getattr(value, name)) for name in names}


def _columns(frame: Any) -> dict[str, Any]:
    return {str(name): frame[name].tolist() for name in frame.columns}


def _decoded(value: Any) -> Any:
    """JSON with its arrays and its numbers that are none in their places."""
    if isinstance(value, list):
        return [_decoded(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "__float__" in value:
        return float(value["__float__"])
    if "__array__" in value:
        content = _decoded(value["__array__"])
        return content if isinstance(content, str) else np.array(content, dtype=object).reshape(value["shape"]).tolist()
    return {name: _decoded(item) for name, item in value.items()}


def flat(value: Any, path: str = "") -> Record:
    """The fields of a result by their paths, with arrays in one piece."""
    numbers = _numbers(value)
    if numbers is not None:
        return {path: {"shape": list(numbers.shape), "numbers": numbers.ravel().tolist()}}
    if isinstance(value, Mapping):
        items: Any = value.items()
    elif isinstance(value, list):
        if value and all(isinstance(item, str) for item in value):
            return {path: "\n".join(value)}
        items = enumerate(value)
    else:
        return {path: None if value is None else _ADDRESS.sub(" at …", str(value))}
    found: Record = {}
    for name, item in items:
        found |= flat(item, f"{path}/{name}" if path else str(name))
    return found


_ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # of a function, another one in every process


def _numbers(value: Any) -> np.ndarray | None:
    """A number, or lists of them that make an array, where that is what it is."""
    if isinstance(value, bool | int | float | np.number | np.bool_):
        return np.asarray(value, dtype=np.float64)
    if isinstance(value, np.ndarray):
        return value.astype(np.float64) if value.dtype.kind in "biuf" else None
    if not isinstance(value, list) or not value:
        return None
    parts = [_numbers(item) for item in value]
    if any(part is None for part in parts) or len({part.shape for part in parts if part is not None}) > 1:
        return None
    return np.array(parts)


# ------------------------------------------------------------------------------------------------ comparing


@dataclasses.dataclass
class Difference:
    """How one case differs: numbers, which count, and words, which do not."""

    largest: float = 0.0  # as a share of the largest number of its array
    numbers: list[str] = dataclasses.field(default_factory=list)
    words: list[str] = dataclasses.field(default_factory=list)
    gone: str = ""

    def number(self, where: str, size: float, said: str) -> None:
        """Note how far a number is off, and say it where that is too far."""
        self.largest = max(self.largest, size)
        if size > RELATIVE:
            self.numbers.append(f"{where}: {said}")


def difference(old: Record, new: Record) -> Difference:
    """Compare what a case gave with what it gives."""
    found = Difference()
    if "error/type" in old or "error/type" in new:
        _errors(found, old, new)
        return found
    common = [path for path in old if path in new]
    for path in common:
        _field(found, path, old[path], new[path])
    _renamed(found, {p: v for p, v in old.items() if p not in new}, {p: v for p, v in new.items() if p not in old})
    return found


def _errors(found: Difference, old: Record, new: Record) -> None:
    if "error/type" not in old and new["error/refused"] == "True":
        found.gone = f"{new['error/type']}: {new['error/message']}"
        return
    before, now = old.get("error/type", "an answer"), new.get("error/type", "an answer")
    if before != now:
        said = new.get("error/message", old.get("error/message", ""))
        found.number("error", math.inf, f"{before} became {now} ({said})")
    elif old["error/message"] != new["error/message"]:
        found.words.append(f"error/message: {old['error/message']!r} → {new['error/message']!r}")


def _field(found: Difference, path: str, old: Any, new: Any) -> None:
    if isinstance(old, dict) and isinstance(new, dict) and not _aside(path):
        size, said = gap(old, new)
        found.number(path, size, said)
    elif isinstance(old, str) and isinstance(new, str):
        _text(found, path, old, new)
    elif old != new:
        said = f"{_short(old)} → {_short(new)}"
        if _promised(path):
            found.number(path, math.inf, said)
        else:
            found.words.append(f"{path}: {said}")


def gap(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[float, str]:
    """The largest difference of two arrays, as a share of the largest number there is, and where."""
    if old["shape"] != new["shape"]:
        return math.inf, f"shape {old['shape']} became {new['shape']}"
    a, b = np.array(old["numbers"], dtype=np.float64), np.array(new["numbers"], dtype=np.float64)
    if not a.size:
        return 0.0, ""
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        off = np.where(same, 0.0, np.abs(a - b))
    off[~np.isfinite(off)] = np.inf
    scale = max(float(np.abs(a[np.isfinite(a)]).max(initial=0.0)), SMALLEST)
    worst = int(off.argmax())
    return float(off[worst]) / scale, f"{a[worst]:.17g} became {b[worst]:.17g} at place {worst} of {a.size}"


def _text(found: Difference, path: str, old: str, new: str) -> None:
    """The numbers of two texts in their order, and whether the words around them are the same."""
    if old == new:
        return
    found.words.append(f"{path}: {_short(old)} → {_short(new)}")
    if _aside(path):
        return
    # Whole numbers are counts and names, and names of equal values may change places.
    for pattern, order in ((_DECIMALS, list), (_WHOLE, sorted)):
        before, now = order(pattern.findall(old)), order(pattern.findall(new))
        if len(before) != len(now):
            continue  # other words hold other numbers; the values themselves are compared elsewhere
        for a, b in zip(before, now, strict=True):
            if abs(_read(a) - _read(b)) > 1.01 * _last_digit(a):
                found.number(path, math.inf, f"{a} became {b} in the text")


_DECIMALS = re.compile(r"(?<![\w.])[-+−]?\d+\.\d+(?:e[-+]?\d+)?(?![\w.])")
_WHOLE = re.compile(r"(?<![\w.])[-+−]?\d+(?![\w.])")


def _read(number: str) -> float:
    return float(number.replace("−", "-"))


def _last_digit(number: str) -> float:
    """One unit of the last digit, by which rounding may carry a number; whole numbers are as they are."""
    mantissa, _, power = number.partition("e")
    decimals = len(mantissa.partition(".")[2])
    return 10.0 ** (int(power or 0) - decimals) if decimals else 0.0


def _renamed(found: Difference, old: Record, new: Record) -> None:
    """Look for fields that are gone among those that are new, by what they hold."""
    left = dict(new)
    for path, value in old.items():
        if _aside(path):
            continue
        match = next((p for p, v in left.items() if _same(value, v) and p.split("/")[0] == path.split("/")[0]), None)
        if match is not None:
            left.pop(match)
            found.words.append(f"{path} is now {match}")
        elif _promised(path):
            found.number(path, math.inf, "is gone")
        else:
            found.words.append(f"{path} is gone: {_short(value)}")
    found.words.extend(f"{path} is new" for path in left if not _aside(path))


def _same(old: Any, new: Any) -> bool:
    if isinstance(old, dict) and isinstance(new, dict):
        return gap(old, new)[0] <= RELATIVE
    return type(old) is type(new) and old == new


def _promised(path: str) -> bool:
    """Whether the field is one that every version must have; lists of explanations number theirs."""
    names = [name for name in path.split("/") if not name.isdigit()]
    return bool(names) and (names[0] in PROMISED or names[-2:] in (["frame", "value"], ["frame", "stderr"]))


def _aside(path: str) -> bool:
    return any(place in path for place in ASIDE)


def _short(value: Any, most: int = 90) -> str:
    said = repr(value["numbers"] if isinstance(value, dict) else value)
    return said if len(said) <= most else said[:most] + "…"


# ------------------------------------------------------------------------------------------------ files and tables


def run(names: Sequence[str], progress: bool = False) -> dict[str, Record]:
    """Compute the cases of these names."""
    every = cases()
    found = {}
    for i, name in enumerate(names):
        if progress and sys.stderr.isatty():
            print(f"\r{i + 1} of {len(names)} {name[:80]:<80}", end="", file=sys.stderr)
        found[name] = compute(every[name])
    if progress and sys.stderr.isatty():
        print("\r" + " " * 100 + "\r", end="", file=sys.stderr)
    return found


def write(path: Path, records: Mapping[str, Record]) -> None:
    content = json.dumps({"format": FORMAT, "cases": records}, ensure_ascii=False, separators=(",", ":"))
    path.write_bytes(lzma.compress(content.encode()))


def read(path: Path) -> dict[str, Record]:
    try:
        content = json.loads(lzma.decompress(path.read_bytes()))
    except (lzma.LZMAError, ValueError) as error:
        raise SystemExit(f"{path} was not written by 'store': {error}") from error
    if content.get("format") != FORMAT:
        raise SystemExit(f"{path} has format {content.get('format')!r} and not {FORMAT}; store it again")
    return content["cases"]


def table(groups: Mapping[str, str], found: Mapping[str, Difference]) -> str:
    """One line for each group of cases."""
    by_group: dict[str, list[Difference]] = defaultdict(list)
    for name, one in found.items():
        by_group[groups.get(name, "not in the list any more")].append(one)
    lines = [f"{'group':<26}{'cases':>7}{'same':>7}{'differ':>8}{'gone':>6}{'largest difference':>21}"]
    for group, members in (*by_group.items(), ("all", list(found.values()))):
        differ, gone = sum(bool(one.numbers) for one in members), sum(bool(one.gone) for one in members)
        largest = max((one.largest for one in members), default=0.0)
        same = len(members) - differ - gone
        lines.append(f"{group:<26}{len(members):>7}{same:>7}{differ:>8}{gone:>6}{largest:>21.2g}")
    return "\n".join(lines)


def wording(found: Mapping[str, Difference], most: int) -> Iterator[str]:
    """Differences in words, those of one kind together and the most frequent first."""
    kinds: dict[str, list[str]] = defaultdict(list)
    for name, one in found.items():
        for said in one.words:
            kinds[re.sub(r"\d+(?:\.\d+)?", "#", said)].append(f"{said}   [{name}]")
    many = Counter({kind: len(said) for kind, said in kinds.items()}).most_common()
    for kind, times in many[:most]:
        yield f"  {times:>5} × {kinds[kind][0]}"
    if len(many) > most:
        yield f"  and {len(many) - most} other kinds; --words {len(many)} shows them all"


def report(groups: Mapping[str, str], found: Mapping[str, Difference], most: int) -> str:
    """All that there is to say of a comparison."""
    parts = [table(groups, found)]
    differ = {name: one for name, one in found.items() if one.numbers}
    gone = {name: one for name, one in found.items() if one.gone}
    if differ:
        parts.append("\nNumbers that differ (the first of each case):")
        parts.extend(f"  {name}: {one.numbers[0]}  ({len(one.numbers)} in all)" for name, one in differ.items())
    if gone:
        parts.append("\nGone, because it is refused before anything is asked; see that each is meant to be:")
        parts.extend(f"  {name}: {one.gone}" for name, one in gone.items())
    words = list(wording(found, most))
    if words:
        parts.extend(["\nOther words, for information:", *words])
    return "\n".join(parts)


def store(path: Path, only: str = "*") -> int:
    every = cases()
    names = fnmatch.filter(every, only)
    start = time.perf_counter()
    records = run(names, progress=True)
    write(path, records)
    for group, count in Counter(every[name].group for name in names).items():
        failed = sum("error/type" in records[name] for name in names if every[name].group == group)
        print(f"{group:<26}{count:>7} cases" + (f", {failed} of which end in an error" if failed else ""))
    size = path.stat().st_size / 1e6
    print(f"{'all':<26}{len(names):>7} cases in {time.perf_counter() - start:.0f} s; {path} has {size:.2f} MB")
    return 0


def compare(path: Path, only: str = "*", words: int = 40) -> int:
    every, stored = cases(), read(path)
    wanted = fnmatch.filter(stored, only)
    now = run([name for name in wanted if name in every], progress=True)
    found = {name: difference(stored[name], now[name]) for name in wanted if name in now}
    found |= {name: Difference(gone="the list of cases no longer has it") for name in wanted if name not in now}
    print(report({name: case.group for name, case in every.items()}, found, words))
    return int(any(one.numbers for one in found.values()))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Whether a change of the insides changed a number.")
    parser.add_argument("action", choices=("store", "compare"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", default="*", help="cases by a pattern of their names, such as 'text/*'")
    parser.add_argument("--words", type=int, default=40, help="how many kinds of other words to show")
    parser.add_argument("--shaken", action="store_true", help="move every answer by rounding, to see what that moves")
    given = parser.parse_args(arguments)
    with contextlib.ExitStack() as after:
        if given.shaken:
            after.callback(shake, 0.0)
            shake(SHAKE)
        if given.action == "store":
            return store(given.file, given.only)
        return compare(given.file, given.only, given.words)


if __name__ == "__main__":
    os.environ.setdefault("TQDM_DISABLE", "1")  # not on import, which would silence the bars that tests look for
    sys.exit(main())

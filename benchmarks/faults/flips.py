"""One bit of a saved file flipped: a clear error, a warning and the row asked again, or the very same numbers."""

from __future__ import annotations

import random
import shutil
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.faults import calls, toys
from benchmarks.faults.tally import HangError, Tally, compare, in_processes, time_limit

import c2fa
from c2fa.batch import Store, many

_COUNT = 8
_SECONDS = 10.0

Explanations = Mapping[int, c2fa.Explanation]


@dataclass(frozen=True)
class Kind:
    """A way to keep something: ``write`` fills a folder, ``read`` gives back what is in it and may ask the model."""

    write: Callable[[Path], None]
    read: Callable[[Path, toys.Model], Explanations]


def _load(folder: Path, model: toys.Model) -> Explanations:
    e = c2fa.load(folder / "e.json")
    e.to_json()
    return {0: e}


def _ask_with_ledger(folder: Path, model: toys.Model) -> Explanations:
    explain = toys.explainer(model, ledger=folder / "answers.sqlite")
    try:
        return {i: explain(x) for i, x in enumerate(toys.inputs(2))}
    finally:
        if explain.ledger is not None:
            explain.ledger.close()


def _write_store(folder: Path, model: toys.Model | None = None) -> Store:
    options = {"engine": "serial", "shard_size": _COUNT // 2, "precision": "float64", "progress": False}
    return many(toys.explainer(model), toys.inputs(_COUNT), folder, **options)  # type: ignore[arg-type]


def _write_lesson(folder: Path) -> None:
    """A store whose first inputs have taught, and whose others are yet to be explained."""
    calls.learned(folder)
    max((folder / "store").glob("part-*.parquet")).unlink()


KINDS = {
    ".json": Kind(lambda folder: toys.truth(_COUNT)[0].save(folder / "e.json"), _load),
    "ledger": Kind(lambda folder: _ask_with_ledger(folder, toys.Model()) and None, _ask_with_ledger),
    "store, read": Kind(lambda folder: _write_store(folder) and None, lambda f, _: dict(Store.open(f).items())),
    "store, continued": Kind(
        lambda folder: _write_store(folder) and None, lambda f, model: dict(_write_store(f, model).items())
    ),
    "lesson, continued": Kind(_write_lesson, lambda f, _: calls.learned(f)),
}


def campaign(seed: int, tries: int) -> Tally:
    """Flip so many bits."""
    return in_processes(work, "flips", seed, tries, at_once=100)


def work(seed: int, cases: Sequence[int], kinds: Mapping[str, Kind] = KINDS) -> Tally:
    """Flip one bit for each of these cases."""
    tally = Tally("flips")
    with tempfile.TemporaryDirectory(prefix="c2fa-flips-") as name:
        intact: dict[str, tuple[Path, Explanations]] = {}
        for case in cases:
            kind = list(kinds)[case % len(kinds)]
            if kind not in intact:
                folder = Path(name) / f"intact-{len(intact)}"
                folder.mkdir()
                kinds[kind].write(folder)
                intact[kind] = folder, kinds[kind].read(folder, toys.Model())
            damaged = Path(name) / "damaged"
            shutil.copytree(intact[kind][0], damaged)
            said = f"--seed {seed}, case {case}: {flip(damaged, random.Random(f'{seed}/{case}'))}"
            judge(tally, kind, kinds[kind].read, damaged, intact[kind][1], said)
            shutil.rmtree(damaged)
    return tally


def flip(folder: Path, rng: random.Random) -> str:
    """Flip a bit of one of the files of a folder; say which."""
    file = rng.choice(sorted(f for f in folder.rglob("*") if f.is_file() and not f.name.startswith("_")))
    data = bytearray(file.read_bytes())
    at, bit = rng.randrange(len(data)), rng.randrange(8)
    data[at] ^= 1 << bit
    file.write_bytes(data)
    return f"bit {bit} of byte {at} of {len(data)} of {file.name}"


def judge(
    tally: Tally,
    kind: str,
    read: Callable[[Path, toys.Model], Explanations],
    folder: Path,
    expected: Explanations,
    case: str,
) -> None:
    """Read a damaged folder and count what came of it."""
    tally.tries += 1
    model = toys.Model()
    with warnings.catch_warnings(record=True) as said, time_limit(_SECONDS):
        warnings.simplefilter("always")
        try:
            found = read(folder, model)
        except (Exception, HangError) as error:
            return tally.error(kind, error, case)
        finally:
            tally.billed += model.asked
    tally.reported += sum(e.diagnostics.sent for e in found.values()) if model.asked else 0
    before = {i: e.diagnostics.warnings for i, e in expected.items()}
    warned = bool(said) or any(set(e.diagnostics.warnings) - set(before.get(i, ())) for i, e in found.items())
    compare(tally, kind, found, expected, case, warned)

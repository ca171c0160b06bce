"""What a campaign counts, and which errors are the library's own clear sentences."""

from __future__ import annotations

import contextlib
import dis
import multiprocessing as mp
import resource
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from traceback import walk_tb
from types import CodeType
from typing import Any

import numpy as np

import c2fa

COUNTS = ("lost", "doubled", "set aside", "different", "silent", "raw", "leaked")
SHOWN = "vague"  # shown, but no reason to fail: for a wrong argument an error of the right kind, in Python's words
OWN = Path(c2fa.__file__).parent
_STRANGERS = Path(__file__).with_name("toys.py")  # a caller's own functions may raise what they like
_NEVER = (AssertionError, RecursionError, MemoryError, NotImplementedError, AttributeError, NameError)
_WORDS = 4  # a shorter message is no sentence
_MEMORY = 6 << 30  # bytes that a process of ours may take: a damaged length must not bring down the machine
_SECONDS = 300.0  # that one piece of work may take, even where it only waits


class HangError(BaseException):
    """A call did not end in time; no Exception, so that nobody takes it for one."""


@dataclass
class Tally:
    """What was tried, what went wrong how often, and the first case of each kind."""

    campaign: str
    tries: int = 0
    billed: int = 0
    reported: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    cases: dict[tuple[str, str], str] = field(default_factory=dict)
    times: Counter[tuple[str, str]] = field(default_factory=Counter)
    tried: Counter[str] = field(default_factory=Counter)  # of each kind, where a campaign tells kinds apart

    def note(self, count: str, kind: str, case: str, times: int = 1) -> None:
        """Count something that should not have been; ``case`` says how to see it again."""
        if times:
            self.counts[count] += times
            self.times[count, kind] += times
            self.cases.setdefault((count, kind), case)

    def error(self, kind: str, error: BaseException, case: str, vague: str = "raw") -> None:
        """Count an error, unless it is clear; a vague one is as bad as a raw one where no argument was wrong."""
        count, where = verdict(error)
        if count is not None:
            count = vague if count == SHOWN else count
            self.note(count, f"{kind}: {where}", f"{case}: {' '.join(str(error).split())[:200]}")

    @property
    def failed(self) -> bool:
        """Whether anything is above 0 that should not be."""
        return any(self.counts[name] for name in COUNTS)

    def add(self, other: Tally) -> None:
        """Take in what another part of the campaign counted."""
        self.tries, self.billed = self.tries + other.tries, self.billed + other.billed
        self.reported += other.reported
        self.counts += other.counts
        self.times += other.times
        self.tried += other.tried
        self.cases = {**other.cases, **self.cases}

    @property
    def row(self) -> dict[str, Any]:
        """The campaign's row of the table."""
        counts = {name: self.counts[name] for name in (*COUNTS, SHOWN)}
        rows = {"rows billed": self.billed, "rows reported": self.reported}
        return {"campaign": self.campaign, "tries": self.tries, **counts, **rows}

    def examples(self) -> list[str]:
        """Every kind of case, the most frequent first, with what reproduces its first."""
        order = {name: i for i, name in enumerate((*COUNTS, SHOWN))}
        kinds = sorted(self.cases, key=lambda k: (order[k[0]], -self.times[k]))
        return [f"{k[0]} × {self.times[k]}: {k[1]}\n      {self.cases[k]}" for k in kinds]


def verdict(error: BaseException) -> tuple[str | None, str]:
    """Whether an error is "raw", "vague" or (None) the library's own clear sentence, and where it was raised.

    What numpy or json raise says nothing about what the caller gave, and is raw. Where Python itself refuses in a line
    of the library, as in "'int' object is not iterable", the error has the right type and place but names no argument:
    vague. An ``OSError`` with a file's name is clear wherever it is raised.
    """
    frames = list(walk_tb(error.__traceback__))
    if isinstance(error, HangError):  # raised by us, within what does not end
        frames = [f for f in frames if _is_in(f[0].f_code, OWN)] or frames
    frame, line = frames[-1]
    code, own = frame.f_code, _is_in(frame.f_code, OWN)
    where = f"{type(error).__name__} in {code.co_filename.removeprefix(str(OWN.parent))}:{line}"
    known = [f.f_code for f, _ in frames if _is_in(f.f_code, OWN) or _is_in(f.f_code, _STRANGERS)]
    strange = bool(known) and _is_in(known[-1], _STRANGERS)
    if strange or (isinstance(error, OSError) and error.filename is not None):
        return None, where
    on_purpose = dis.opname[code.co_code[frame.f_lasti]] == "RAISE_VARARGS"
    if own and on_purpose and not isinstance(error, _NEVER):
        return (None if len(str(error).split()) >= _WORDS else SHOWN), where
    return (SHOWN if own and isinstance(error, TypeError | ValueError) else "raw"), where


def _is_in(code: CodeType, place: Path) -> bool:
    return Path(code.co_filename).is_relative_to(place)


def numbers(e: c2fa.Explanation) -> list[np.ndarray[Any, Any]]:
    """All numbers that an explanation tells; how many rows were sent for it depends on who paid for them before."""
    fits = [list(vars(level).values()) for level in e.diagnostics.levels]
    tells = [e.outputs, *e.all_values, *e.all_intercepts, *(e.all_stderr or ()), *e.structure.parents, *fits]
    return [np.asarray(some, dtype=float) for some in (*tells, [e.target, *e.columns, e.queries])]


def same(one: c2fa.Explanation, other: c2fa.Explanation) -> bool:
    """Whether two explanations tell the same, to the last bit."""
    try:
        a, b = numbers(one), numbers(other)
    except (TypeError, ValueError, AttributeError):  # where numbers should be is something else
        return False
    alike = len(a) == len(b) and all(np.array_equal(*pair, equal_nan=True) for pair in zip(a, b, strict=True))
    return alike and one.names == other.names


def compare(
    tally: Tally,
    kind: str,
    found: Mapping[int, c2fa.Explanation],
    expected: Mapping[int, c2fa.Explanation],
    case: str,
    warned: bool = False,
) -> None:
    """Count what is missing and what differs; where nothing was said about it, as silent too."""
    missing = [i for i in expected if i not in found]
    differing = [i for i in expected if i in found and not same(found[i], expected[i])]
    tally.note("lost", f"{kind}: explanations are missing", f"{case}, inputs {missing[:5]}", len(missing))
    tally.note("different", f"{kind}: other numbers or names", f"{case}, inputs {differing[:5]}", len(differing))
    if not warned:
        tally.note("silent", f"{kind}: not a word about it", case, len(missing) + len(differing))


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise HangError in the main thread when so much CPU time is up: on a busy machine the clock runs too fast."""

    def stop(*_: Any) -> None:
        raise HangError(f"did not end within {seconds:g} s")

    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


Work = Callable[[int, Sequence[int]], Tally]
"""Tries the cases with these numbers; a case depends on the seed and its number alone."""


def in_processes(work: Work, campaign: str, seed: int, cases: int, at_once: int) -> Tally:
    """Do the work in processes of its own, two at a time, so that a crash counts against one case alone."""
    total = Tally(campaign)
    pieces = [range(at, min(at + at_once, cases)) for at in range(0, cases, at_once)]
    with ThreadPoolExecutor(2) as threads:
        for tally in threads.map(lambda piece: _apart(work, campaign, seed, piece), pieces):
            total.add(tally)
    return total


def _apart(work: Work, campaign: str, seed: int, piece: Sequence[int]) -> Tally:
    """Do a piece in a process; where that dies, in halves, down to the case that kills it."""
    context = mp.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_serve, args=(theirs, work, seed, piece))
    process.start()
    theirs.close()
    try:
        if ours.poll(_SECONDS):
            tally: Tally = ours.recv()
            return tally
    except EOFError:
        pass
    finally:
        process.kill()
        process.join()
    tally = Tally(campaign)
    if len(piece) == 1:
        tally.tries = 1
        tally.note("raw", f"the process ended with {process.exitcode}", f"--seed {seed}, case {piece[0]}")
    else:
        for half in (piece[: len(piece) // 2], piece[len(piece) // 2 :]):
            tally.add(_apart(work, campaign, seed, half))
    return tally


def _serve(pipe: Any, work: Work, seed: int, piece: Sequence[int]) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    pipe.send(work(seed, piece))

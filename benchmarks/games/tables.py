"""The tables: medians over games, ratios of methods, and the targets that are missed."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from benchmarks.queries.tables import Cell, Table, Target

Records = Sequence[Mapping[str, Any]]
OURS, BEFORE, FLAT = "owen", "c2fa", "shapley"
LEVELS = {"owen": {"leaves": -1, "parts": 0}, "shapley": {"leaves": -1}}
HELD = Target(least=0.87, most=0.97)
AT_MOST_PEER = 1.05
EXACT = 1e-12  # of the variance: an error of rounding alone, which has no interval and need not fall
MISSED = "!"


class Results:
    """Records of many runs, asked by method, kind and rows a leaf."""

    def __init__(self, records: Records) -> None:
        self.records = [record for record in records if "failed" not in record]
        self.failed = [record for record in records if "failed" in record]
        self.kinds = list(dict.fromkeys(record["kind"] for record in records))
        self.rows = sorted({record["rows"] for record in records})
        self.methods = {
            value: list(dict.fromkeys(r["method"] for r in records if r["value"] == value)) for value in LEVELS
        }
        self._cells: dict[tuple[str, str, int], list[Mapping[str, Any]]] = {}
        for record in self.records:
            self._cells.setdefault((record["method"], record["kind"], record["rows"]), []).append(record)

    def numbers(self, quantity: str, method: str, kind: str, rows: int, level: int) -> list[float]:
        """A quantity of all runs in a cell that have it."""
        found = [r[quantity][level] for r in self._cells.get((method, kind, rows), []) if quantity in r]
        return [number for number in found if number is not None]

    def median(self, method: str, kind: str, rows: int, level: int) -> float:
        """The median error of a cell, or NaN where nothing was measured."""
        errors = self.numbers("error", method, kind, rows, level)
        return float(np.median(errors)) if errors else np.nan

    def best_peer(self, kind: str, rows: int) -> tuple[str, float]:
        """The estimator of Shapley values that is not ours and has the smallest median error, and this error."""
        others = [method for method in self.methods["shapley"] if method != FLAT and not method.startswith("flat:")]
        found = {method: self.median(method, kind, rows, -1) for method in others}
        found = {method: median for method, median in found.items() if not np.isnan(median)}
        return min(found.items(), key=lambda item: item[1], default=("–", np.nan))


QUANTITIES: Mapping[str, tuple[str, Callable[[Sequence[float]], Any]]] = {
    "error": ("error, median over games", np.median),
    "mse": ("mean squared error", np.mean),
    "held": ("share inside 90 % intervals", np.mean),
    "sums": ("largest |base + sum − prediction| over the range of outputs", np.max),
}


def tables(records: Records) -> list[Table]:
    """All tables."""
    results = Results(records)
    made = []
    for value, levels in LEVELS.items():
        for name, level in levels.items():
            for quantity, (said, summary) in QUANTITIES.items():
                table = Table(f"{value.capitalize()} values of {name}, by rows a leaf: {said}")
                for kind, method in itertools.product(results.kinds, results.methods[value]):
                    found = [results.numbers(quantity, method, kind, rows, level) for rows in results.rows]
                    if any(found):
                        cells = [float(summary(numbers)) if numbers else None for numbers in found]
                        row: dict[str, Cell] = {"kind": kind, "method": method}
                        table.rows.append(row | dict(zip(map(str, results.rows), cells, strict=True)))
                made.append(table)
    made += [before(results), peers(results), targets(results)]
    failed = Counter((r["method"], r["kind"], r["rows"], r["failed"]) for r in results.failed)
    said_of = [f"{m}, {k}, {rows} rows a leaf, {n} times: {why}" for (m, k, rows, why), n in failed.items()]
    made.append(Table("Runs that failed", notes=said_of))
    return [table for table in made if table.rows or table.notes]


def before(results: Results) -> Table:
    """The errors of "owen" over those of the default before it."""
    table = Table(f"Error of {OURS} / error of {BEFORE}, both medians ({MISSED} where above 1)")
    for kind, (name, level) in itertools.product(results.kinds, LEVELS["owen"].items()):
        row: dict[str, Cell] = {"kind": kind, "values of": name}
        for rows in results.rows:
            mine, theirs = (results.median(method, kind, rows, level) for method in (OURS, BEFORE))
            if not np.isnan(mine + theirs):
                row[str(rows)] = _ratio(mine, theirs, 1.0)
        if len(row) > 2:
            table.rows.append(row)
    return table


def peers(results: Results) -> Table:
    """The errors of "shapley" over those of the best of the others, which is named; without it, only the best ones."""
    table = Table(f"Error of {FLAT} / error of the best peer, both medians ({MISSED} where above {AT_MOST_PEER})")
    for kind in results.kinds:
        row: dict[str, Cell] = {"kind": kind}
        for rows in results.rows:
            best, theirs = results.best_peer(kind, rows)
            mine = results.median(FLAT, kind, rows, -1)
            if not np.isnan(theirs):
                row[str(rows)] = f"{_ratio(mine, theirs, AT_MOST_PEER)} of {theirs:.3g}, {best}"
        if len(row) > 1:
            table.rows.append(row)
    return table


def _ratio(mine: float, theirs: float, most: float) -> str:
    if np.isnan(mine):
        return "–"
    ratio = mine / theirs if theirs else 1.0 if not mine else np.inf
    return f"{ratio:.2f}" + ("" if ratio <= most else f" {MISSED}")


def targets(results: Results) -> Table:
    """What is asked of "owen" and "shapley", and where it is missed."""
    checks: list[tuple[str, float, Target]] = []
    for value, method in (("owen", OURS), ("shapley", FLAT)):
        for kind, (name, level) in itertools.product(results.kinds, LEVELS[value].items()):
            medians = {rows: results.median(method, kind, rows, level) for rows in results.rows}
            medians = {rows: median for rows, median in medians.items() if not np.isnan(median)}
            for rows, median in medians.items():
                where = f"{method}, {kind}, {name}, {rows} rows a leaf"
                if value == "owen":
                    checks.append((f"{where}: error", median, _most_error(kind, rows)))
                    theirs = results.median(BEFORE, kind, rows, level)
                    checks.append((f"{where}: error beside {BEFORE}", median, Target(most=theirs)))
                else:
                    best, theirs = results.best_peer(kind, rows)
                    checks.append((f"{where}: error beside {best}", median, Target(most=AT_MOST_PEER * theirs)))
                held = results.numbers("held", method, kind, rows, level)
                if held and median > EXACT:
                    checks.append((f"{where}: inside 90 % intervals", float(np.mean(held)), HELD))
            for few, many in itertools.pairwise(medians):
                where = f"{method}, {kind}, {name}: error with {many} rows a leaf beside that with {few}"
                checks.append((where, medians[many], Target(most=max(medians[few], EXACT))))
    checks = [check for check in checks if not np.isnan(check[2].most)]
    missed = [(what, number, target) for what, number, target in checks if not target.holds(number)]
    table = Table("Targets of owen and shapley")
    if checks:
        table.notes = [f"{len(checks) - len(missed)} of {len(checks)} reached; missed:"]
        table.notes += [f"{MISSED} {what}: {number:.3g}, target {target}" for what, number, target in missed]
    return table


def _most_error(kind: str, rows: int) -> Target:
    """The largest error that "owen" may have from some rows a leaf on; NaN where none is set."""
    if rows >= 24:
        return Target(most=0.015)
    if rows >= 11:
        return Target(most=0.11 if kind.startswith(("vit", "adult")) else 0.05)
    return Target(most=np.nan)

"""Results in Markdown, CSV and JSON, and the generated parts of the experiments' README."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.harness import claims, queries_needed
from experiments.harness.claims import Line, Statement, Table
from experiments.harness.reading import FEW, NAMES, Domain, Results
from experiments.harness.settings import PAPER_METHODS

README = Path(__file__).resolve().parents[1] / "README.md"


def number(value: float, digits: int = 3, *, signed: bool = False) -> str:
    """A number with so many digits after the point.

    >>> number(0.12345), number(-0.5, signed=True), number(-0.0001, signed=True), number(float("nan"))
    ('0.123', '−0.500', '0.000', '–')
    """
    if not math.isfinite(value):
        return "–"
    if not float(f"{value:.{digits}f}"):
        return f"{0:.{digits}f}"
    text = f"{value:+.{digits}f}" if signed else f"{value:.{digits}f}"
    return text.replace("-", "−")


def digits_of(value: float) -> int:
    """How many digits a number is worth: three, or as many as it has zeros first.

    >>> digits_of(0.5), digits_of(0.00012), digits_of(0.0)
    (3, 5, 3)
    """
    return 3 if value == 0 or not math.isfinite(value) else min(6, max(3, 1 - math.floor(math.log10(abs(value)))))


def grid(head: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[int] = ()) -> str:
    """A Markdown table; the columns numbered in ``right`` are set to the right."""
    ends = ["---:" if k in set(right) else "---" for k in range(len(head))]
    cells = [[c.replace("|", "\\|") for c in row] for row in rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ends, *cells))


# ------------------------------------------------------------------------------------------------ claims


def _mean(score: str, value: float, spread: float) -> str:
    digits = digits_of(value) if score in ("consistency", "seconds") else 3
    return number(value, digits) + (f" ± {number(spread, digits)}" if math.isfinite(spread) else "")


def _difference(line: Line) -> str:
    return f"{number(line.difference, signed=True)} [{number(line.low, signed=True)}, {number(line.high, signed=True)}]"


def _in_numbers(statement: Statement) -> str:
    """A statement in one line: how it came out, its first judged numbers, and where it is true."""
    verdict = statement.verdict or "not judged"
    said = f"*{verdict}*: {statement.words}"
    first = next((line for line in statement.lines if line.true is not None), None)
    first = first or next(iter(statement.lines), None)
    if first is not None:
        at = f"N_L = {first.at}" if first.score != "seconds" else f"N_L = {first.at}, seconds"
        said += (
            f" — {_mean(first.score, first.ours, first.ours_spread)} against "
            f"{_mean(first.score, first.other, first.other_spread)} "
            f"({first.other_label}) at {at}: {_difference(first)}"
        )
    return "; ".join([said, *(text for text in (statement.where, statement.note) if text)])


def summary(table: Table) -> str:
    """One row for each claim."""
    rows = [
        (
            f"{claim.number}",
            f"{claim.domain}: {claim.words}",
            "<br>".join(_in_numbers(s) for s in claim.statements),
            f"**{claim.verdict}**",
        )
        for claim in table.claims
    ]
    return grid(("", "claim", "in numbers", "verdict"), rows)


def details(table: Table) -> str:
    """Every statement at every N_L, folded away under its claim."""
    blocks = []
    for claim in table.claims:
        lines = [f"<details><summary>{claim.number}. {claim.words} <b>{claim.verdict}</b></summary>", ""]
        for statement in claim.statements:
            lines += [f"*{statement.words}* ({statement.rule}): **{statement.verdict or 'not judged'}**", ""]
            if statement.lines:
                head = ("N_L", "ours", "other", "", "difference [95 %]", "true", "level with", "behind")
                lines += [grid(head, [_row(line) for line in statement.lines]), ""]
            if statement.note:
                lines += [statement.note, ""]
        blocks.append("\n".join([*lines, "</details>"]))
    return "\n\n".join(blocks)


def _row(line: Line) -> tuple[str, ...]:
    true = "" if line.true is None else "yes" if line.true else "no"
    return (
        line.at,
        _mean(line.score, line.ours, line.ours_spread),
        _mean(line.score, line.other, line.other_spread),
        line.other_label,
        _difference(line),
        true,
        ", ".join(line.level),
        ", ".join(line.behind),
    )


def verdicts(tables: Mapping[str, Table]) -> str:
    """How each claim comes out when each method takes C2FA's place."""
    labels = list(tables)
    first = tables[labels[0]]
    rows = []
    for claim in first.claims:
        outcomes = (tables[label][claim.number].verdict for label in labels)
        rows.append((f"{claim.number}", f"{claim.domain}: {claim.words}", *outcomes))
    return grid(("", "claim", *labels), rows)


# ------------------------------------------------------------------------------------------------ queries


def queries(d: Domain, reference: str) -> str:
    """For each method and score, the leaf questions it needs to reach the reference at N_L = 150."""
    needed = [row for row in queries_needed.all_needed(d) if row.reference == reference]
    scores = list(dict.fromkeys(row.score for row in needed))
    if not scores:
        return ""
    cells = {(row.method, row.score): row for row in needed}
    head = [""] + [
        f"{NAMES[s]} ({number(cells[reference, s].target)}; N_H = {cells[reference, s].n_h})" for s in scores
    ]
    rows = []
    for label in d.labels:
        row = [label]
        for score in scores:
            one = cells.get((label, score))
            row.append("–" if one is None else one.words + (f" ({one.interval})" if one.interval else ""))
        rows.append(row)
    return grid(head, rows, range(1, len(head)))


def best_at_each(d: Domain, labels: Sequence[str] | None = None) -> str:
    """Who is best at each N_L, with those who are not told apart from it."""
    winners = queries_needed.best_at_each(d, labels)
    scores = list(dict.fromkeys(row.score for row in winners))
    cells = {(row.score, row.n_l): row for row in winners}
    rows = []
    for score in scores:
        row = [f"{NAMES[score]}, N_H = {next(c.n_h for c in winners if c.score == score)}"]
        for n_l in d.budgets:
            one = cells.get((score, n_l))
            row.append("–" if one is None else f"**{one.label}** {number(one.mean)}{_level(one.level)}")
        rows.append(row)
    return grid(("", *(f"N_L = {n}" for n in d.budgets)), rows)


def _level(labels: Sequence[str]) -> str:
    return "" if not labels else f" ≈ {', '.join(labels)}" if len(labels) < 3 else f" ≈ {len(labels)} others"


# ------------------------------------------------------------------------------------------------ runs


def _flat(value: Any, name: str = "") -> list[tuple[str, str]]:
    if isinstance(value, Mapping):
        return [pair for key, v in value.items() for pair in _flat(v, f"{name}, {key}" if name else str(key))]
    if isinstance(value, bool) or value is None:
        return [(name, "yes" if value else "no" if value is False else "–")]
    if isinstance(value, int):
        return [(name, f"{value:,}")]
    if isinstance(value, float):
        return [(name, f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}")]
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [(name, ", ".join(text for _, text in (pair for v in value for pair in _flat(v))))]
    return [(name, str(value))]


def _share(about: Mapping[str, Any]) -> dict[str, str]:
    """How much of the network's own rate is left with masking, batching and transfers around it."""
    alone = next((rate for name, rate in about.items() if name.endswith("network alone")), None)
    load = about.get("load", {})
    if not alone or not load.get("seconds"):
        return {}
    busy = load["work"] / max(load["seconds"] - load["waiting"], 1e-9) / alone
    return {
        "share of the network's own rate, while it had questions": f"{busy:.0%}",
        "share of it from the first question to the last answer": f"{load['work'] / load['seconds'] / alone:.0%}",
    }


_SAID: Mapping[str, str] = {
    "trivial auroc": "AUROC of painting the whole positive image",
    "c2fa": "version of c2fa",
    "machine, python": "Python",
    "machine, processor": "processor",
    "machine, workers": "workers",
    "model rows, explaining": "rows asked to explain",
    "model rows, explaining_alone": "rows that separate runs would have asked to explain",
    "model rows, scoring": "rows asked to score",
    "model rows, scoring_alone": "rows that separate runs would have asked to score",
    "model rows, sent": "rows asked",
    "load, rows": "inputs of the network",
    "load, work": "images, or pieces, through it",
    "load, seconds": "seconds from the first question to the last answer",
    "load, waiting": "seconds in which nobody had a question",
    "load, sets": "sets of questions",
    "load, work a second": "images, or pieces, a second",
    "load, wall": "seconds with the start of the workers",
    "tokens": "pieces in a batch",
}
"""What the runs write down, in words."""


def runs(results: Results) -> str:
    """What was run, on what, how fast: all that the runs wrote down about themselves."""
    columns = {
        name: {_SAID.get(key, key): text for key, text in _flat({**d.about, **_share(d.about)})}
        for name, d in results.domains.items()
    }
    keys = list(dict.fromkeys(key for facts in columns.values() for key in facts))
    return grid(("", *columns), [(key, *(facts.get(key, "") for facts in columns.values())) for key in keys])


# ------------------------------------------------------------------------------------------------ reasons

REASONS_AT = 50  # the smallest N_L of the paper, at which its claims are the strongest
_TOLERANCE = 1e-4  # at which Algorithm 1 stops, where it is not stopped before


def side_by_side(d: Domain, n_l: int = REASONS_AT) -> str:
    """Every score of every method at one N_L: leaves' and both levels' at the larger N_H, parts' at the smaller."""
    parts = [score for score in queries_needed.PARTS if score in d.scores]
    places = [(score, d.many) for score in d.scores if score not in parts] + [(score, FEW) for score in parts]
    rows = []
    for label in d.labels:
        cells = []
        for score, n_h in places:
            there = d.has(score, label, n_h, n_l)
            value = d.mean(score, label, n_h, n_l)[0] if there else math.nan
            cells.append(number(value, digits_of(value) if score == "consistency" else 3))
        rows.append((label, *cells))
    head = ("", *(f"{NAMES[score]} (N_H = {n_h})" for score, n_h in places))
    return grid(head, rows, range(1, len(head)))


def by_seed(d: Domain, score: str, n_l: int = REASONS_AT) -> str:
    """A score of the parts at the smaller N_H, seed by seed."""
    frame = d.frame[(d.frame["N_H"] == FEW) & (d.frame["N_L"] == n_l)]
    means = frame.groupby([frame["method"].astype(str), "seed"])[score].mean().unstack("seed")
    rows = [(label, *(number(value) for value in means.loc[label])) for label in d.labels if label in means.index]
    return grid(("", *(f"seed {seed}" for seed in means.columns)), rows, range(1, 1 + len(means.columns)))


def stopped(results: Results, label: str = "C2FA") -> str:
    """The mean of ‖α − Mβ‖² over N_L, and the share of explanations above the tolerance of Algorithm 1.

    Scores are kept to four digits, so that what is above it is at least half a digit above.
    """
    rows = []
    for name, d in results.domains.items():
        if "consistency" not in d.scores or label not in d.labels:
            continue
        frame = d.frame[(d.frame["method"].astype(str) == label) & (d.frame["N_H"] == d.many)]
        by_budget = frame.groupby("N_L")["consistency"]
        means, above = by_budget.mean(), by_budget.apply(lambda values: float((values > 1.5 * _TOLERANCE).mean()))
        rows.append((f"{name}, mean", *(number(means[n], 5) for n in d.budgets)))
        rows.append((f"{name}, above {_TOLERANCE:g}", *(f"{above[n]:.0%}" for n in d.budgets)))
    budgets = next(iter(results.domains.values())).budgets
    return grid(("", *(f"N_L = {n}" for n in budgets)), rows, range(1, 1 + len(budgets)))


def milliseconds(results: Results) -> str:
    """Milliseconds of an explanation over N_L, for every method, and how straight the line is."""
    rows = []
    budgets: list[int] = []
    for name, d in results.domains.items():
        for label in d.labels:
            taken = {n: float(seconds.mean()) * 1e3 for n, seconds in sorted(d.seconds(label).items())}
            if taken:
                budgets = budgets or list(taken)
                note = claims.linear_time(d, label).note.partition("R² = ")[2]
                rows.append((name, label, *(number(taken.get(n, math.nan), 0) for n in budgets), note or "–"))
    return grid(("", "method", *(f"N_L = {n}" for n in budgets), "R² of a line"), rows, range(2, 3 + len(budgets)))


def reasons(results: Results) -> str:
    """The numbers behind the reasons why a claim does not hold, each table folded away."""
    told = [
        (f"Every score of every method at N_L = {REASONS_AT}, {name}", side_by_side(d))
        for name, d in results.domains.items()
    ]
    told += [
        (f"{NAMES[score]} at N_H = {FEW} and N_L = {REASONS_AT}, seed by seed, {name}", by_seed(results[name], score))
        for name, score in (("images", "ndcg"), ("text", "deletion of parts"))
        if name in results and score in results[name].scores
    ]
    told.append(("Consistency of C2FA, Algorithm 1 as run", stopped(results)))
    told.append(("Milliseconds of an explanation", milliseconds(results)))
    return "\n\n".join(f"<details><summary>{title}</summary>\n\n{table}\n\n</details>" for title, table in told)


def strengths(results: Results) -> str:
    """Which strengths were chosen on validation inputs, among how many."""
    rows = []
    for name, d in results.domains.items():
        for one in d.tuned:
            if one["chosen"]:
                tries = [row for row in d.tuned if row["method"] == one["method"]]
                chosen = [f"λ_H = {one['parts']:g}", f"λ_L = {one['leaves']:g}"]
                if one.get("mu2") is not None:
                    chosen.append(f"μ₂ = {one['mu2']:g}")
                spread = f"{number(min(r['score'] for r in tries))} to {number(max(r['score'] for r in tries))}"
                rows.append((name, one["method"], ", ".join(chosen), str(len(tries)), spread))
    return grid(("", "method", "chosen", "tried", "their scores"), rows)


# ------------------------------------------------------------------------------------------------ the README


def tables(results: Results, labels: Sequence[str] | None = None) -> dict[str, Table]:
    """The claims judged for C2FA as printed and for each C2FA of ours that was run everywhere."""
    everywhere = [
        label
        for label in next(iter(results.domains.values())).labels
        if label.startswith("C2FA") and all(label in d.labels for d in results.domains.values())
    ]
    return {label: claims.table(results, label) for label in labels or everywhere}


def blocks(results: Results, judged: Mapping[str, Table]) -> dict[str, str]:
    """The generated parts of the README, by name."""
    first = next(iter(judged.values()))
    needed = []
    for name, d in results.domains.items():
        for reference in queries_needed.REFERENCES:
            if table := queries(d, reference):
                needed.append(f"**{name}, to reach {reference} at N_L = {queries_needed.AT}**\n\n{table}")
    return {
        "claims": summary(first),
        "details": details(first),
        "reasons": reasons(results),
        "variants": verdicts(judged),
        "queries": "\n\n".join(needed),
        "best": "\n\n".join(
            f"**{name}, {who}**\n\n{best_at_each(d, chosen)}"
            for name, d in results.domains.items()
            for who, chosen in (
                ("the paper's methods", [label for label in d.labels if label in PAPER_METHODS]),
                ("all methods", None),
            )
        ),
        "runs": runs(results),
        "strengths": strengths(results),
    }


def refresh(path: Path, named: Mapping[str, str]) -> list[str]:
    """Write blocks between their markers in a file; a file without a marker leaves that block out."""
    text, done = path.read_text(encoding="utf-8"), []
    for name, block in named.items():
        marked = re.compile(rf"(<!-- begin {re.escape(name)} -->\n).*?(<!-- end {re.escape(name)} -->)", re.DOTALL)
        if marked.search(text):
            inside = f"\n{block}\n\n" if block else "\n"
            text = marked.sub(lambda m, inside=inside: m[1] + inside + m[2], text)  # type: ignore[misc]
            done.append(name)
    path.write_text(text, encoding="utf-8")
    return done


def write(results: Results, judged: Mapping[str, Table], folder: Path) -> list[Path]:
    """Write the claims and the queries needed as CSV, and the claims as JSON too."""
    folder.mkdir(parents=True, exist_ok=True)
    records = [{"for": label, **row} for label, table in judged.items() for row in table.records()]
    needed = [
        {**{k: v for k, v in dataclasses.asdict(row).items() if k != "budgets"}, "words": row.words, "total": row.total}
        for d in results.domains.values()
        for row in queries_needed.all_needed(d)
    ]
    paths = [folder / "claims.json", folder / "claims.csv", folder / "queries_needed.csv"]
    paths[0].write_text(json.dumps(plain(judged), indent=1, ensure_ascii=False), encoding="utf-8")
    for path, rows in ((paths[1], records), (paths[2], needed)):
        if rows:
            with path.open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, list(rows[0]))
                writer.writeheader()
                writer.writerows(_rounded(row) for row in rows)
    return [path for path in paths if path.exists()]


def plain(judged: Mapping[str, Table]) -> list[dict[str, Any]]:
    """The claims for JSON: every statement with its lines."""
    return [
        {
            "for": label,
            "against": list(table.cast.others),
            "number": claim.number,
            "domain": claim.domain,
            "claim": claim.words,
            "verdict": claim.verdict,
            "statements": [
                {
                    "words": s.words,
                    "rule": s.rule,
                    "verdict": s.verdict,
                    "note": s.note,
                    "lines": [_rounded(dataclasses.asdict(line)) for line in s.lines],
                }
                for s in claim.statements
            ],
        }
        for label, table in judged.items()
        for claim in table.claims
    ]


def _rounded(row: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers to six digits, so that machines that add in another order write the same; no NaN, which JSON lacks."""
    rounded: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, float):
            rounded[key] = float(f"{value:.6g}") if math.isfinite(value) else None
        else:
            rounded[key] = value
    return rounded

"""The tables: means over items, and paired differences with bootstrap intervals over items."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from c2fa.evaluation import bootstrap

OURS = "c2fa"  # what cite does by itself
CROSSED = {"nq10": 128, "nq5": 64, "qed": 64}  # the rows of ContextCite that ours at 32 are compared with

Cells = Mapping[tuple[str, int, str], Mapping[str, float]]
"""Method, rows and metric to the value of each item, averaged over seeds."""


def cells(records: Sequence[Mapping[str, Any]]) -> Cells:
    """Put the scores of items together; an item without a value is left out of that cell."""
    values: dict[tuple[str, int, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        for method, rows, _, metric, value in record["scores"]:
            if value is not None:
                values[method, rows, metric][record["item"]].append(value)
    return {cell: {item: float(np.mean(each)) for item, each in items.items()} for cell, items in values.items()}


def difference(one: Mapping[str, float], other: Mapping[str, float]) -> tuple[float, float, float]:
    """The mean of paired differences over the items that both have, and its 95 % interval."""
    both = sorted(set(one) & set(other))
    if not both:
        return (np.nan,) * 3
    gaps = np.array([one[item] - other[item] for item in both])
    return (float(gaps.mean()), *bootstrap(gaps))


def lines(records: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """All tables, family by family."""
    for family in sorted({record["family"] for record in records}):
        some = [record for record in records if record["family"] == family]
        widths = np.mean([record["widths"] for record in some], axis=0)
        gain = np.mean([record["with_documents"] - record["without"] for record in some])
        asked = np.mean([record["rows"] for record in some])
        tokens = np.mean([record["tokens"] for record in some])
        yield (
            f"{family}: {len(some)} items, {widths[0]:.1f} documents and {widths[1]:.1f} sentences on average; "
            f"answers of {tokens:.0f} tokens, {gain:.1f} nats likelier with the documents; {asked:.0f} rows an item"
        )
        yield from _family(family, cells(some))
        yield ""


def _family(family: str, found: Cells) -> Iterator[str]:
    methods = list(dict.fromkeys(method for method, _, _ in found))
    budgets = sorted({rows for _, rows, _ in found})
    metrics = list(dict.fromkeys(metric for _, _, metric in found))
    width = max(map(len, [*methods, *metrics]), default=0) + 2
    for metric in metrics:
        yield f"  {metric:{width}}" + "".join(f"{rows:>28}" for rows in budgets)
        have = [method for method in methods if any((method, rows, metric) in found for rows in budgets)]
        if metric.startswith("coverage"):  # there is a right share, so that more is not better
            for method in have:
                means = [_mean(found.get((method, rows, metric), {})) for rows in budgets]
                yield f"    {method:{width}}" + "".join(f"{mean:>28}" for mean in means)
            continue
        for method in have:
            means = [
                np.mean(list(found[cell].values())) if (cell := (method, rows, metric)) in found else np.nan
                for rows in budgets
            ]
            yield f"    {method:{width}}" + "".join(f"{mean:>28.3f}" for mean in means)
        for peer in have:
            if peer == OURS or OURS not in have:
                continue
            gaps = [_gap(found, (OURS, rows, metric), (peer, rows, metric)) for rows in budgets]
            yield f"    − {peer:{width - 2}}" + "".join(f"{gap:>28}" for gap in gaps)
    crossed = CROSSED.get(family)
    if crossed in budgets and 32 in budgets:
        metric = "lds of sentences"
        gap = _gap(found, (OURS, 32, metric), ("context-cite", crossed, metric))
        yield f"  {metric}, {OURS} at 32 rows − context-cite at {crossed}: {gap.strip()}"


def _mean(of_items: Mapping[str, float]) -> str:
    """The mean over items, its 95 % interval, and how many items have a value."""
    if not of_items:
        return "–"
    values = np.array(list(of_items.values()))
    low, high = bootstrap(values)
    return f"{values.mean():.3f} [{low:.3f}, {high:.3f}] {len(values):4}"


def _gap(found: Cells, one: tuple[str, int, str], other: tuple[str, int, str]) -> str:
    mean, low, high = difference(found.get(one, {}), found.get(other, {}))
    return f"{mean:+.3f} [{low:+.3f}, {high:+.3f}]"

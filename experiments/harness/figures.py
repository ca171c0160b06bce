"""The paper's figures, drawn from a folder of results alone.

    python -m experiments.harness.figures [RESULTS] [OUT]

A figure is a grid of panels, a panel one score over N_L at one N_H: a line for each method, error bars the standard
deviation of the means over seeds. A line that does not depend on N_L has one error bar, at its end. Each figure is
drawn for the paper's methods, and again for ours beside the paper's C2FA and LIME.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from c2fa.plots._style import INK, MARKERS, MUTED, RULE, SERIES, figure
from experiments.harness.examples import BagExample, ReviewExample, draw_examples, save_example
from experiments.harness.reading import FEW, FOLDER, HIGHER_IS_BETTER, Domain, Results, read
from experiments.harness.settings import PAPER_METHODS

__all__ = ["FIGURES", "BagExample", "ReviewExample", "curves", "draw_all", "save_example"]

OUT = FOLDER.parent / "figures"
DPI = 160
BESIDE = ("C2FA", "LIME")  # of the paper's methods, those drawn beside ours

# Colour, marker, dash, width: a method looks the same in every figure, and no two are told apart by colour alone.
_LOOKS: dict[str, tuple[str, str, Any, float]] = {
    "C2FA": ("#155a96", "o", "-", 2.2),
    "LIME": ("#c2500a", "s", "--", 1.5),
    "MILLI": ("#2e7d4f", "^", "-.", 1.5),
    "BU-LIME": ("#7b4fa3", "D", ":", 1.7),
    "TD-LIME": ("#8a6d00", "v", (0, (5, 1)), 1.5),
    "TD-MILLI": ("#4d5660", "P", (0, (3, 1, 1, 1)), 1.5),
    "C2FA exact": ("#6aaee0", "o", (0, (2, 1.2)), 1.5),
    "C2FA intercept": ("#00788a", "X", "-", 2.2),
    "C2FA paired": ("#a3305c", "*", "-", 2.2),
    "C2FA-MILLI": ("#2e7d4f", "^", "-", 1.6),
    "LIME intercept": ("#e8873f", "s", ":", 1.7),
    "TD proportional": ("#8a6d00", "v", "--", 1.5),
}
_TITLES = {
    "ndcg": "NDCG of HiFAs",
    "auroc": "AUROC of LoFAs",
    "auroc-within": "AUROC within image",
    "insertion of parts": "Insertion of HiFAs",
    "deletion of parts": "Deletion of HiFAs",
    "insertion of leaves": "Insertion of LoFAs",
    "deletion of leaves": "Deletion of LoFAs",
    "consistency": "Consistency ‖α − Mβ‖²",
    "mihl": "MIHL",
    "seconds": "Seconds of an explanation",
}
_LINEAR_TO = 1e-4  # consistency is drawn on a logarithmic scale from here up, and exact zeros are still seen
_CONSTANT = 3e-4  # a line that changes by a smaller share of itself does not depend on N_L
_TRIVIAL = "painting the whole positive image"


def _look(label: str, k: int) -> tuple[str, str, Any, float]:
    return _LOOKS.get(label, (SERIES[k % len(SERIES)], MARKERS[k % len(MARKERS)], "-", 1.5))


@dataclass(frozen=True)
class Panel:
    """One score over N_L, where N_H is the paper's 5 (``few``) or the larger one."""

    score: str
    few: bool = False


@dataclass(frozen=True)
class Layout:
    """Panels in rows and columns, as the paper arranges them, and its columns' captions."""

    domain: str
    rows: tuple[tuple[Panel, ...], ...]
    paper: str


def _row(*scores: str, few: bool = False) -> tuple[Panel, ...]:
    return tuple(Panel(score, few) for score in scores)


_PARTS = ("ndcg", "insertion of parts", "deletion of parts")

FIGURES: dict[str, Layout] = {
    "images-scores": Layout(
        "images",
        (
            (Panel("ndcg", True), *_row("auroc", "auroc-within", "consistency")),
            (Panel("deletion of parts", True), *_row("deletion of leaves", "insertion of leaves", "mihl")),
        ),
        "Figure 2: columns 1, 2 and 4; column 3 is ours",
    ),
    "images-insertion": Layout("images", (_row("insertion of parts", few=True),), "appendix C, insertion of HiFAs"),
    "images-parts": Layout("images", (_row(*_PARTS),), "appendix C, HiFAs at the larger N_H"),
    "text-scores": Layout(
        "text",
        ((Panel("deletion of parts", True), Panel("consistency")), _row("deletion of leaves", "mihl")),
        "Figure 4",
    ),
    "text-insertion": Layout(
        "text",
        ((Panel("insertion of parts", True), Panel("insertion of leaves")),),
        "appendix D, insertion",
    ),
    "text-parts": Layout("text", (_row(*_PARTS[1:]),), "appendix D, HiFAs at the larger N_H"),
    "text-time": Layout("text", (_row("seconds"),), "appendix D, time"),
    "images-time": Layout("images", (_row("seconds"),), "not in the paper"),
}
"""Every figure of the paper that carries numbers, by the name of its file."""


def variants(d: Domain) -> list[str]:
    """Our methods, beside the paper's C2FA and LIME."""
    return [*(label for label in BESIDE if label in d.labels), *(m for m in d.labels if m not in PAPER_METHODS)]


def curves(d: Domain, layout: Layout, labels: Sequence[str]) -> Figure | None:
    """Draw a figure; panels without numbers are left out, and where all are, None comes back."""
    there = [[panel for panel in row if _has(d, panel, labels)] for row in layout.rows]
    there = [row for row in there if row]
    if not there:
        return None
    across = max(map(len, there))
    shown = [label for label in labels if any(len(_line(d, p, label)[0]) for row in there for p in row)]
    if any(_trivial(d, panel) is not None for row in there for panel in row):
        shown.append(_TRIVIAL)
    wide = 0.5 + 2.75 * max(across, 1.3)
    room = max(1, int(wide / 1.42))
    deep = -(-len(shown) // room)  # rows of the legend, all about as long
    made = figure(wide, 0.45 + 0.2 * deep + 2.1 * len(there))
    made.set_layout_engine("constrained", w_pad=0.08, h_pad=0.08, wspace=0.02, hspace=0.03)
    axes = made.subplots(len(there), across, squeeze=False)
    for row, panels in zip(axes, there, strict=True):
        for ax, panel in zip(row, panels, strict=False):
            _draw(ax, d, panel, labels)
        for ax in row[len(panels) :]:
            ax.remove()
    for ax in axes[-1]:
        ax.set_xlabel("$N_\\mathrm{L}$, leaf queries", fontsize=8.5, color=INK)
    handles: dict[str, Any] = {}
    for ax in made.axes:
        for handle, name in zip(*ax.get_legend_handles_labels(), strict=True):
            handles.setdefault(name, handle)
    legend = made.legend(
        [handles[label] for label in shown],
        shown,
        loc="outside lower center",
        ncols=-(-len(shown) // deep),
        fontsize=8.5,
        frameon=False,
        handlelength=3.2,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)
    return made


def _has(d: Domain, panel: Panel, labels: Sequence[str]) -> bool:
    return any(len(_line(d, panel, label)[0]) for label in labels)


def _line(d: Domain, panel: Panel, label: str) -> tuple[Any, Any, Any]:
    """N_L, means and standard deviations over seeds (no deviation for seconds)."""
    if panel.score == "seconds":
        taken = d.seconds(label)
        at = sorted(taken)
        return np.array(at, float), np.array([taken[n].mean() for n in at]), np.zeros(len(at))
    n_h = FEW if panel.few else d.many
    at = [n for n in d.budgets if d.has(panel.score, label, n_h, n)]
    means = np.array([d.mean(panel.score, label, n_h, n) for n in at]).reshape(-1, 2)
    return np.array(at, float), means[:, 0], means[:, 1]


def _trivial(d: Domain, panel: Panel) -> float | None:
    """What a panel's score is for painting the whole positive image, where that is known."""
    known = d.about.get("trivial auroc") if panel.score == "auroc" else None
    return float(known) if isinstance(known, int | float) else None


def _draw(ax: Axes, d: Domain, panel: Panel, labels: Sequence[str]) -> None:
    """One panel: lines that lie on one another are moved apart a little, so that all error bars show.

    The error bars of lines that do not depend on N_L stand side by side, right of the last N_L.
    """
    wide = d.budgets[-1] - d.budgets[0]
    beyond = 0
    for k, label in enumerate(labels):
        x, y, spread = _line(d, panel, label)
        if not len(x):
            continue
        colour, marker, dash, width = _look(label, k)
        at = x + 0.006 * wide * (k - (len(labels) - 1) / 2)
        look: dict[str, Any] = {"color": colour, "marker": marker, "ls": dash, "lw": width, "mec": "white", "mew": 0.4}
        look |= {"ms": 4.6 if marker != "*" else 7, "zorder": 4 if width > 2 else 3}
        bars: dict[str, Any] = {"capsize": 2, "capthick": 0.9, "elinewidth": 0.9}
        known = bool(np.isfinite(spread).all() and spread.any())
        if known and len(x) > 1 and np.ptp(y) <= _CONSTANT * np.abs(y).max():
            beyond += 1
            end = x[-1] + (0.02 + 0.03 * beyond) * wide
            ax.plot([*at, end], [*y, y[-1]], label=label, markevery=range(len(x)), **look)
            ax.errorbar(end, y[-1], yerr=spread[-1], ls="none", color=colour, zorder=look["zorder"], **bars)
        else:
            ax.errorbar(at, y, yerr=spread if known else None, label=label, **look, **bars)
    trivial = _trivial(d, panel)
    if trivial is not None:
        ax.axhline(trivial, color=MUTED, lw=1.2, ls=(0, (1, 2)), zorder=2, label=_TRIVIAL)
    _frame(ax, d, panel)


def _frame(ax: Axes, d: Domain, panel: Panel) -> None:
    better = "" if panel.score == "seconds" else "  ↑" if HIGHER_IS_BETTER[panel.score] else "  ↓"
    ax.set_title(_TITLES[panel.score] + better, loc="left", fontsize=9, weight="bold", color=INK, pad=5)
    n_h = FEW if panel.few else d.many
    ax.set_title(f"$N_\\mathrm{{H}}={n_h}$", loc="right", fontsize=8, color=MUTED, pad=5)
    ax.grid(axis="y", color=RULE, lw=0.6)
    ax.set_axisbelow(True)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_color(RULE)
    ax.tick_params(labelsize=7.5, colors=MUTED, length=2)
    ax.set_xticks(d.budgets, labels=[str(n) for n in d.budgets])
    if panel.score == "consistency":
        top = ax.get_ylim()[1]
        ax.set_yscale("symlog", linthresh=_LINEAR_TO, linscale=0.5)
        ticks = [0.0, *(10.0**k for k in range(-4, 6) if 10.0**k <= 2 * top)]
        ax.set_ylim(-_LINEAR_TO / 3, max(2 * top, 2 * _LINEAR_TO))
        ax.set_yticks(ticks, minor=False)
        ax.yaxis.set_major_formatter(FuncFormatter(_power))
        ax.yaxis.set_minor_locator(MaxNLocator(1))
        ax.tick_params(which="minor", length=0)
    else:
        ax.yaxis.set_major_locator(MaxNLocator(5))
    if panel.score == "seconds":
        ax.set_ylim(bottom=0)


def _power(value: float, position: int | None = None) -> str:
    return "0" if value == 0 else f"$10^{{{round(np.log10(value))}}}$"


def draw_all(
    results: Results | Path | str = FOLDER, out: Path | str = OUT, formats: Sequence[str] = ("png",)
) -> list[Path]:
    """Draw every figure for which there are numbers, and every example; return the files."""
    folder = None if isinstance(results, Results) else Path(results)
    runs = results if isinstance(results, Results) else read(results)
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    made: dict[str, Figure] = {}
    for name, layout in FIGURES.items():
        if layout.domain not in runs:
            continue
        d = runs[layout.domain]
        for suffix, labels in (("", [m for m in d.labels if m in PAPER_METHODS]), ("-variants", variants(d))):
            one = curves(d, layout, labels)
            if one is not None:
                made[name + suffix] = one
    if folder is not None:
        for name in runs.domains:
            made |= draw_examples(name, folder / name)
    files = []
    for name, one in made.items():
        for kind in formats:
            files.append(out / f"{name}.{kind}")
            one.savefig(files[-1], dpi=DPI)
    return files


if __name__ == "__main__":
    for path in draw_all(*sys.argv[1:3]):
        print(path)

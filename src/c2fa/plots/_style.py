"""What all plots share: one diverging scale, fonts, measuring and clipping of text."""

from __future__ import annotations

import sys
import unicodedata
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache, partial
from importlib import import_module
from textwrap import wrap
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
from matplotlib import get_backend
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure, SubFigure
from matplotlib.font_manager import FontProperties
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.textpath import text_to_path

from c2fa._system import in_notebook
from c2fa.showing import numbers
from c2fa.showing.numbers import minuses, number
from c2fa.showing.printing import on_scale, one_line
from c2fa.structure import FloatArray
from c2fa.views.images import Pixels

if TYPE_CHECKING:
    from c2fa.explanation import Explanation

AnyFigure: TypeAlias = Figure | SubFigure


# Blue and orange stay apart under every common colour blindness, in grey-scale print they differ in lightness.
SCALE = LinearSegmentedColormap.from_list(
    "c2fa", ["#a94206", "#e8873f", "#f7cda6", "#ffffff", "#b4d3ee", "#5a9fd8", "#155a96"]
)


def paint(value: float) -> str:
    """The colour of a bar: for, or against."""
    return "#1f6fb2" if value >= 0 else "#c2500a"


INK, MUTED, RULE, BAND, WARN = "#1b1f24", "#5c6570", "#d5dae0", "#f4f6f8", "#b3261e"
# As many methods as a figure can hold, told apart by colour, marker and dash alike.
SERIES = ("#155a96", "#c2500a", "#2e7d4f", "#7b4fa3", "#8a6d00", "#4d5660", "#a3305c", "#00788a")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (7, 2)))
ROUNDING = 1e-12  # what is smaller is nothing: a picture must not make it look like something


def figure(width: float, height: float) -> Figure:
    """A new figure, which a notebook shows at the end of its cell, and ``plt.show()`` in a script that has windows.

    Elsewhere it is apart from pyplot, so that nobody has to close it.
    """
    style: dict[str, Any] = {"figsize": (width, height), "layout": "constrained", "facecolor": "white"}
    if in_notebook() or ("matplotlib.pyplot" in sys.modules and get_backend().lower() != "agg"):
        import matplotlib.pyplot as plt

        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "More than 20 figures")  # a notebook closes them after the cell
            return _shown_once(plt.figure(**style))
    made = Figure(**style)
    FigureCanvasAgg(made)
    return made


def _shown_once(made: Figure) -> Figure:
    """The figure; a notebook shows it as the value of a cell or as one of pyplot's, and not as both."""
    if in_notebook() and "inline" in get_backend():
        made._ipython_display_ = partial(_show_and_close, made)  # type: ignore[attr-defined]
    return made


def _show_and_close(made: Figure) -> None:
    import matplotlib.pyplot as plt

    del made._ipython_display_  # type: ignore[attr-defined]
    show: Any = import_module("IPython.display").display
    show(made)
    plt.close(_shown_once(made))


def own_axes(ax: Axes | None, width: float, height: float) -> Axes:
    """The given axes, or those of a new figure."""
    return figure(width, height).add_subplot() if ax is None else ax


def figure_of(ax: Axes) -> Figure:
    """The whole figure that axes lie in."""
    found = ax.figure
    return _shown_once(found if isinstance(found, Figure) else found.figure)


@lru_cache(maxsize=20_000)
def width_of(text: str, size: float, bold: bool = False) -> float:
    """The width of a line of text, in points."""
    weight = "bold" if bold else "normal"
    if not text.strip():
        return 0.32 * size * len(text)
    width, _, _ = text_to_path.get_text_width_height_descent(text, FontProperties(size=size, weight=weight), False)
    return float(width)


def clip(text: str, room: float, size: float, bold: bool = False) -> str:
    """A name on one line that is at most ``room`` points wide.

    >>> clip("wide", 60, 10), len(clip("w" * 80, 60, 10)) < 10
    ('wide', True)
    """
    line = one_line(text)
    if width_of(line, size, bold) <= room:
        return line
    low, high = 0, len(line)
    while low < high:
        middle = (low + high + 1) // 2
        fits = width_of(line[:middle].rstrip() + "…", size, bold) <= room
        low, high = (middle, high) if fits else (low, middle - 1)
    return line[:low].rstrip() + "…"


def right_to_left(text: str) -> bool:
    """Whether a text begins in a script that runs from right to left."""
    directions = map(unicodedata.bidirectional, text)
    return next((direction for direction in directions if direction in ("L", "R", "AL")), "L") != "L"


def largest(values: FloatArray) -> float:
    """The largest absolute value, or 1 where there is none but rounding, so that it can be divided by."""
    found = numbers.largest(values)
    return found if found > ROUNDING else 1.0


def colour(share: float) -> tuple[float, float, float, float]:
    """The colour of a value that is this share, from −1 to 1, of the largest."""
    r, g, b, a = SCALE(0.5 + 0.5 * float(np.clip(share, -1, 1)))
    return float(r), float(g), float(b), float(a)


def signs(values: Iterable[float]) -> list[str]:
    """The colours of values by their sign: for, or against."""
    return [paint(value) for value in values]


def say_contradiction(made: Figure, ax: Axes | None, *sentences: str) -> Figure:
    """Write why the levels are no one answer, in the colour of warnings.

    They stand below a figure of ours, which grows by them, or below the axes that somebody gave.
    """
    told = [sentence for sentence in sentences if sentence]
    if not told:
        return made
    width, height = made.get_size_inches()
    room = width * 72 - 16 if ax is None else ax.get_position().width * width * 72
    lines = [line for sentence in told for line in wrap(f"! {sentence}", max(int(room / 4.6), 24))]
    style: dict[str, Any] = {"fontsize": 8.5, "color": WARN, "ha": "left"}
    if ax is not None:
        beside(ax, 0, "\n".join(lines), x=0, shift=(0, -34), y_in="axes fraction", va="top", **style)
        return made
    more = (8.5 * 1.25 * len(lines) + 10) / 72
    made.set_size_inches(width, height + more)
    place: dict[str, Any] = {"x": 8 / 72 / width, "va": "bottom", **style}
    if not isinstance(made.get_layout_engine(), ConstrainedLayoutEngine):
        # Axes that were placed by hand stay where they are, from the top; else the layout makes room, if no y is given.
        place["y"] = 4 / 72 / (height + more)
        for ours in made.axes:
            x, y, across, down = ours.get_position(original=True).bounds
            ours.set_position((x, (y * height + more) / (height + more), across, down * height / (height + more)))
    made.supxlabel("\n".join(lines), **place).set_parse_math(False)  # a name with dollars is no formula
    return made


def named(explanations: Explanation | Sequence[Explanation] | Mapping[str, Explanation]) -> dict[str, Explanation]:
    """Explanations by name: those of a sequence by number and method, a single one without a name."""
    if isinstance(explanations, Mapping):
        return dict(explanations)
    if isinstance(explanations, Sequence):
        return {f"{k + 1}: {e.provenance.get('method', '')}": e for k, e in enumerate(explanations)}
    return {"": explanations}


def contradictions(named: Mapping[str, Explanation]) -> list[str]:
    """What is said of those of several explanations whose levels contradict each other, under their names."""
    told = {name: e.diagnostics.contradiction for name, e in named.items()}
    return [f"{name}: {sentence}" if name else sentence for name, sentence in told.items() if sentence]


def headline(e: Explanation) -> str:
    """What was predicted and how it was explained, on one line."""
    method = str(e.provenance.get("method", "")) or "explanation"
    return f"{predicted(e)} · {method}, {e.queries} rows"


def predicted(e: Explanation) -> str:
    """The explained output and what the model says of it."""
    said = minuses(number(e.prediction))
    return f"{one_line(e.target_name)}: {said}{on_scale(e).replace(' -', ' −')}"


def legend_bar(
    host: Axes, title: str, tinted: Pixels | None = None, ends: tuple[str, str] = ("− against", "for +")
) -> None:
    """Draw the scale, or tints, with its ends named, so that it can be read without telling the colours apart."""
    host.axis("off")
    ax = host.inset_axes((0.3, 0.0, 0.4, 1.0))
    shown = SCALE(np.linspace(0, 1, 256)[None]) if tinted is None else tinted
    ax.imshow(shown, aspect="auto", extent=(-1, 1, 0, 1))
    ax.set_yticks([])
    ax.set_xticks([-1, 0, 1], labels=[ends[0], "0", ends[1]], fontsize=8, color=INK)
    ax.set_title(title, fontsize=8, color=MUTED, pad=3)
    ax.tick_params(length=2, color=RULE)
    for spine in ax.spines.values():
        spine.set_color(RULE)


def plain(ax: Axes) -> None:
    """Leave only what carries numbers."""
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)
    ax.spines["bottom"].set_color(RULE)
    ax.tick_params(axis="x", labelsize=8, colors=MUTED, length=2)


def beside(
    ax: Axes, y: float, text: str, x: float = 1, shift: tuple[float, float] = (6, 0), y_in: str = "data", **style: Any
) -> None:
    """Write a text beside a row: right of the axes, or left of them with ``x=0``; ``shift`` is in points."""
    style = {"color": INK, "va": "center", "parse_math": False, "annotation_clip": False, **style}
    ax.annotate(text, (x, y), xycoords=("axes fraction", y_in), xytext=shift, textcoords="offset points", **style)


def name_ticks(axis: Axis, at: npt.NDArray[Any], names: Iterable[str], size: float = 8.5) -> None:
    """Write names at the ticks of an axis, as they are: a dollar sign begins no formula."""
    axis.set_ticks(at, labels=list(names), fontsize=size, color=INK)
    for label in axis.get_ticklabels():
        label.set_parse_math(False)


def draw_bars(
    ax: Axes, names: Sequence[str], values: Sequence[float], errors: Sequence[float | None], room: float
) -> None:
    """Draw a bar for each value, with its error where all have one, beside its name in ``room`` points."""
    ys, drawn = np.arange(len(values)), np.nan_to_num(np.array(values), posinf=0.0, neginf=0.0)
    ax.barh(ys, drawn, height=0.62, color=signs(values), zorder=2)
    if names and None not in errors:
        reach = np.array(errors, dtype=float)
        reach[reach <= ROUNDING] = np.nan  # what is exact has no whiskers
        ax.errorbar(drawn, ys, xerr=reach, fmt="none", ecolor=INK, elinewidth=1, capsize=2, zorder=3)
    ax.axvline(0, color=MUTED, lw=0.8)
    if np.all(np.abs(drawn) <= ROUNDING):
        ax.set_xlim(-1, 1)
    name_ticks(ax.yaxis, ys, (clip(name, room, 8.5) for name in names))
    plain(ax)
    ax.tick_params(axis="y", length=0)


def title_and_scale(e: Explanation, ax: Axes, mesh: ScalarMappable, given: Axes | None) -> Figure:
    """Finish a map: the line above it, its colour bar beside it, and below it why its levels are no one answer."""
    ax.set_title(headline(e), loc="left", fontsize=10, weight="bold", color=INK, parse_math=False)
    bar = figure_of(ax).colorbar(mesh, ax=ax, pad=0.02, fraction=0.025, aspect=30)
    bar.ax.tick_params(labelsize=8, colors=MUTED)
    bar.set_label(e.link.unit, fontsize=8, color=MUTED)
    bar.outline.set_visible(False)
    return say_contradiction(figure_of(ax), given, e.diagnostics.contradiction)


def swarm(values: FloatArray) -> FloatArray:
    """How far each dot moves up or down so that dots of like values lie beside each other."""
    edges = np.linspace(values.min(), values.max() + 1e-12, 41)
    bins = np.digitize(values, edges)
    counts = np.bincount(bins)
    order = np.zeros(len(values))
    for b in np.flatnonzero(counts):
        order[bins == b] = np.arange(counts[b])
    side = np.where(order % 2 == 0, 1.0, -1.0) * np.ceil(order / 2)
    moved: FloatArray = 0.4 * side / max(counts.max() / 2, 1.0)
    return moved

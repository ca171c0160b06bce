"""The view that needs no script: folding parts, shaded words, tinted pictures, in plain HTML."""

from __future__ import annotations

from html import escape

import numpy as np

from c2fa.drawing import largest, shares
from c2fa.explanation import Explanation
from c2fa.printing import fit, on_scale, shown_names
from c2fa.report._data import settled
from c2fa.report._pictures import data_uri, shrink, tint
from c2fa.structure import FloatArray

_LEAVES = 8
_PARTS = 40
_WORDS = 3000


def number(value: float, error: float | None = None) -> str:
    """A number with its sign."""
    text = f"{value:+.3f}".replace("-", "−")
    return text if error is None or not np.isfinite(error) else f"{text} ± {error:.3f}"


def facts(e: Explanation) -> str:
    """Prediction, cost and fit in one line of words."""
    return f"{e.target_name}: {e.prediction:.3f}{on_scale(e)} ({', '.join([f'{e.queries} rows', *fit(e)])})"


def table(e: Explanation) -> str:
    """Parts and their top leaves as a table without any style, for a page that forbids inline ones."""
    rows = [
        "<tr><th scope='col'>part</th><th scope='col'>attribution</th><th scope='col'>most important in it</th></tr>"
    ]
    names = shown_names(e.structure, e.view)[0]
    for j in range(min(e.structure.widths[0], _PARTS)):
        best = ", ".join(f"{name} {number(value)}" for name, value in _top(e, j))
        rows.append(
            f"<tr><th scope='row'>{escape(names[j])}</th><td>{number(e.high[j])}</td><td>{escape(best)}</td></tr>"
        )
    warnings = "".join(f"<li>{escape(w)}</li>" for w in e.diagnostics.warnings)
    notes = f"<ul>{warnings}</ul>" if warnings else ""
    return f"<h2>{escape(facts(e))}</h2>{notes}<table>{''.join(rows)}</table>"


def styled(e: Explanation) -> str:
    """The whole view with styles written into it, for notebooks."""
    warnings = "".join(f'<div style="color:#8a1c14;margin:2px 0">⚠ {escape(w)}</div>' for w in e.diagnostics.warnings)
    body = {"text": _passage, "images": _pictures}.get(str(e.view.get("kind")), lambda _: "")(e)
    frame = (
        "background-color:#ffffff;color:#1b1f24;border:1px solid #d5dae0;padding:12px;border-radius:8px;"
        "font-family:system-ui,sans-serif;font-size:14px;line-height:1.5"
    )
    return f'<div style="{frame}"><b>{escape(facts(e))}</b>{warnings}{body}{_parts(e)}</div>'


def _top(e: Explanation, part: int) -> list[tuple[str, float]]:
    own = np.flatnonzero(e.structure.owners(0) == part)
    best = own[np.argsort(-np.abs(e.low[own]), kind="stable")[:_LEAVES]]
    names = shown_names(e.structure, e.view)[-1]
    return [(names[i], float(e.low[i])) for i in best]


def _parts(e: Explanation) -> str:
    high, names = settled(e.high), shown_names(e.structure, e.view)[0]
    widths = shares(high, _largest(e.high))
    out = []
    chosen = np.sort(np.argsort(-np.abs(e.high), kind="stable")[:_PARTS])
    for j in chosen.tolist():
        value = float(high[j])
        error = None if e.stderr is None else float(e.stderr[0][j])
        bar = f"display:inline-block;height:10px;width:{_width(float(widths[j]))}px;"
        bar += f"background-color:{'#1f6fb2' if value >= 0 else '#c2500a'}"
        head = f'<code>{number(value, error)}</code> <span style="{bar}"></span> {escape(names[j])}'
        if e.structure.depth == 1:
            out.append(f"<div>{head}</div>")
            continue
        count = int(np.count_nonzero(e.structure.owners(0) == j))
        leaves = "".join(f"<div><code>{number(v)}</code> {escape(name)}</div>" for name, v in _top(e, j))
        more = f"<div><i>{count - _LEAVES} more</i></div>" if count > _LEAVES else ""
        inner = f'<div style="margin-left:28px;color:#4d5660">{leaves}{more}</div>'
        out.append(f"<details><summary>{head}</summary>{inner}</details>")
    rest = e.structure.widths[0] - len(chosen)
    return "".join(out) + (f"<div><i>{rest} more parts</i></div>" if rest else "")


def _width(share: float) -> int:
    """A bar's width: at least one pixel where there is anything."""
    return max(1, round(120 * abs(share))) if share else 0


def _largest(values: FloatArray) -> float:
    return largest(settled(values)) or 1.0


def _passage(e: Explanation) -> str:
    text, spans = str(e.view["text"]), np.asarray(e.view["spans"])[:_WORDS]
    out, at = [], 0
    for (a, b), share in zip(spans.tolist(), shares(e.low, _largest(e.low)).tolist(), strict=False):
        out.append(escape(text[at:a]))
        word = escape(text[a:b])
        if abs(share) >= 0.05:
            paint = np.array((31, 111, 178) if share > 0 else (194, 80, 10))
            mixed = np.rint(255 - 0.55 * abs(share) * (255 - paint)).astype(int)
            word = f'<span style="background-color:#{mixed[0]:02x}{mixed[1]:02x}{mixed[2]:02x}">{word}</span>'
        out.append(word)
        at = b
    out.append(escape(text[at:] if len(spans) == e.structure.leaves else "…"))
    return f'<p style="white-space:pre-wrap" dir="auto">{"".join(out)}</p>'


def _pictures(e: Explanation) -> str:
    out, at = [], 0
    leaves = shares(e.low, _largest(e.low))
    single = len(e.view["images"]) == 1
    for j, (image, labels) in enumerate(zip(e.view["images"], e.view["labels"], strict=True)):
        # Made small before it is tinted: a photograph of many megapixels would take gigabytes.
        small = shrink(np.asarray(labels, dtype=np.intp), 192, average=False)
        shown = tint(shrink(np.asarray(image, dtype=np.uint8), 192), leaves[at + small])
        at += int(np.max(labels)) + 1
        title = "" if single else f"{e.names[0][j]} {number(float(e.high[j]))}"
        source = data_uri(shown)
        out.append(
            f'<div style="display:inline-block;margin:4px;text-align:center"><img alt="{escape(title, quote=True)}" '
            f'src="{source}"><div>{escape(title)}</div></div>'
        )
    return f"<div>{''.join(out)}</div>"

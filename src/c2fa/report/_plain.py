"""The view that needs no script: folding parts, shaded words, tinted pictures, in plain HTML."""

from __future__ import annotations

from html import escape

import numpy as np

from c2fa.explanation import Explanation
from c2fa.report._answer import plain_answer
from c2fa.report._data import settled
from c2fa.report._pictures import data_uri
from c2fa.showing.drawing import largest, shares
from c2fa.showing.printing import fit, on_scale, shown_names
from c2fa.showing.rounding import number
from c2fa.structure import FloatArray
from c2fa.views.pixels import shown, tint

_LEAVES = 8
_PARTS = 40
_WORDS = 3000
# How a cited answer's sentences about its statements look: by the page's classes, or with styles of their own.
_CLASS = {"told": "class='quiet'", "nothing": "class='bad'"}
_STYLE = {"told": "style='margin:2px 0;color:#4d5660'", "nothing": "style='margin:2px 0;color:#8a1c14;font-weight:600'"}


def signed(e: Explanation, units: float, error: float | None = None) -> str:
    """An attribution with its sign."""
    text = e.rounded.text(units).replace("-", "−", 1)
    return text if error is None or not np.isfinite(error) else f"{text} ± {e.rounded.plain(error)}"


def facts(e: Explanation) -> str:
    """Prediction, cost and fit in one line of words."""
    return f"{e.target_name}: {number(e.prediction)}{on_scale(e)} ({', '.join([f'{e.queries} rows', *fit(e)])})"


def table(e: Explanation, key: str) -> str:
    """Parts and their top leaves as a table without any style, for a page that forbids inline ones.

    ``key`` begins the anchors of a cited answer.
    """
    warnings = "".join(f"<li>{escape(w)}</li>" for w in (*e.diagnostics.warnings, *e.notes))
    notes = f"<ul>{warnings}</ul>" if warnings else ""
    body = plain_answer(e, key, _CLASS.__getitem__) if "statements" in e.view else _table(e)
    return f"<h2>{escape(facts(e))}</h2>{notes}{body}"


def _table(e: Explanation) -> str:
    if e.diagnostics.contradiction:
        return "".join(
            f"<table><caption>{escape(label)}</caption>"
            + "".join(f"<tr><th scope='row'>{escape(name)}</th><td>{value}</td></tr>" for name, value in features)
            + "</table>"
            for label, features in _apart(e)
        )
    rows = [
        "<tr><th scope='col'>part</th><th scope='col'>attribution</th><th scope='col'>most important in it</th></tr>"
    ]
    names = shown_names(e.structure, e.view)[0]
    for j in range(min(e.structure.widths[0], _PARTS)):
        best = ", ".join(f"{name} {value}" for name, value in _top(e, j))
        value = signed(e, e.rounded.values[0][j])
        rows.append(f"<tr><th scope='row'>{escape(names[j])}</th><td>{value}</td><td>{escape(best)}</td></tr>")
    return f"<table>{''.join(rows)}</table>"


def styled(e: Explanation, key: str = "c2fa") -> str:
    """The whole view with styles written into it, for notebooks; ``key`` begins its anchors."""
    warnings = "".join(f'<div style="color:#8a1c14;margin:2px 0">⚠ {escape(w)}</div>' for w in e.diagnostics.warnings)
    warnings += "".join(f"<div>{escape(note)}</div>" for note in e.notes)
    if "statements" in e.view:
        body = plain_answer(e, key, _STYLE.__getitem__)
    else:
        body = {"text": _passage, "images": _pictures}.get(str(e.view.get("kind")), lambda _: "")(e) + _parts(e)
    frame = (
        "background-color:#ffffff;color:#1b1f24;border:1px solid #d5dae0;padding:12px;border-radius:8px;"
        "font-family:system-ui,sans-serif;font-size:14px;line-height:1.5"
    )
    return f'<div style="{frame}"><b>{escape(facts(e))}</b>{warnings}{body}</div>'


def _top(e: Explanation, part: int) -> list[tuple[str, str]]:
    """A part's most important leaves and the rest of them, with their numbers, which add up to the part's."""
    units = e.rounded.values[-1]
    own = np.flatnonzero(e.structure.owners(0) == part)
    order = own[np.argsort(-np.abs(e.low[own]), kind="stable")]
    best, rest = order[:_LEAVES], order[_LEAVES:]
    names = shown_names(e.structure, e.view)[-1]
    found = [(names[i], signed(e, units[i])) for i in best]
    return [*found, (f"{len(rest)} more", signed(e, units[rest].sum()))] if len(rest) else found


def _apart(e: Explanation) -> list[tuple[str, list[tuple[str, str]]]]:
    """The most important features of each level, with their numbers, where levels contradict each other."""
    found = []
    for k, (label, names) in enumerate(zip(e.level_names, shown_names(e.structure, e.view), strict=True)):
        units, order = e.rounded.values[k], np.argsort(-np.abs(e.values[k]), kind="stable")
        best, rest = order[:_PARTS], order[_PARTS:]
        features = [(names[i], signed(e, units[i])) for i in best]
        if len(rest):
            features.append((f"{len(rest)} more", signed(e, units[rest].sum())))
        found.append((label, features))
    return found


def _parts(e: Explanation) -> str:
    if e.diagnostics.contradiction:
        return "".join(
            f"<p><b>{escape(label)}</b></p>"
            + "".join(f"<div><code>{value}</code> {escape(name)}</div>" for name, value in features)
            for label, features in _apart(e)
        )
    high, names = settled(e.high), shown_names(e.structure, e.view)[0]
    widths = shares(high, _largest(e.high))
    out = []
    chosen = np.sort(np.argsort(-np.abs(e.high), kind="stable")[:_PARTS])
    for j in chosen.tolist():
        error = None if e.stderr is None else float(e.stderr[0][j])
        bar = f"display:inline-block;height:10px;width:{_width(float(widths[j]))}px;"
        bar += f"background-color:{'#1f6fb2' if high[j] >= 0 else '#c2500a'}"
        value = signed(e, e.rounded.values[0][j], error)
        head = f'<code>{value}</code> <span style="{bar}"></span> {escape(names[j])}'
        if e.structure.depth == 1:
            out.append(f"<div>{head}</div>")
            continue
        leaves = "".join(f"<div><code>{value}</code> {escape(name)}</div>" for name, value in _top(e, j))
        inner = f'<div style="margin-left:28px;color:#4d5660">{leaves}</div>'
        out.append(f"<details><summary>{head}</summary>{inner}</details>")
    rest = np.setdiff1d(np.arange(len(high)), chosen)
    if len(rest):
        value = signed(e, e.rounded.values[0][rest].sum())
        out.append(f"<div><code>{value}</code> <i>{len(rest)} more parts</i></div>")
    return "".join(out)


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
    out = []
    leaves = shares(e.low, _largest(e.low))
    single = len(e.view["images"]) == 1
    # Made small before it is tinted: a photograph of many megapixels would take gigabytes.
    for j, part in enumerate(shown(e.view, 192)):
        title = "" if single else f"{e.names[0][j]} {signed(e, e.rounded.values[0][j])}"
        source = data_uri(tint(part.image, leaves[part.first + part.labels]))
        out.append(
            f'<div style="display:inline-block;margin:4px;text-align:center"><img alt="{escape(title, quote=True)}" '
            f'src="{source}"><div>{escape(title)}</div></div>'
        )
    return f"<div>{''.join(out)}</div>"

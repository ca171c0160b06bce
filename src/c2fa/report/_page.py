"""The page around the data: template, style, script, what keeps text from becoming anything else; and plain HTML."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from html import escape
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING, Any

import numpy as np

from c2fa.showing.numbers import number, of_largest
from c2fa.showing.printing import fit, on_scale, printable, shown_names
from c2fa.structure import IntArray

if TYPE_CHECKING:
    from c2fa.explanation import Explanation


def embed(value: Any) -> str:
    """A value as JSON that can stand inside a script element: no end tag, no comment, no line that ends early.

    >>> embed("</script><!--")
    '"\\\\u003c/script\\\\u003e\\\\u003c!--"'
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    # Half a pair of 16-bit units cannot be written to a file.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


@cache
def asset(name: str) -> str:
    """A file of the package's own."""
    return (files("c2fa.report") / "assets" / name).read_text(encoding="utf-8")


@cache
def style() -> str:
    """The style of every view."""
    return asset("report.css")


@cache
def script(cited: bool = False, several: bool = False) -> str:
    """The functions of every view, of cited answers and of galleries where there are any; nothing starts them."""
    names = ["core", "model", "tree", "text", "images", "series", "table", "view", "page"]
    names += ["answer"] * cited + ["gallery"] * several
    return "\n".join(asset(f"{name}.js") for name in names)


def fingerprint(text: str) -> str:
    """What a Content-Security-Policy names a script or a style by."""
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def page(title: str, index: dict[str, Any], blocks: list[dict[str, Any]], plain: str) -> str:
    """The whole file. ``plain`` is what is shown where scripts do not run."""
    functions = script(any(block["answer"] for block in blocks), bool(index["cards"]))
    code = f'(() => {{\n"use strict";\n{functions}\nbootReport();\n}})();'
    policy = (
        f"default-src 'none'; script-src {fingerprint(code)}; style-src {fingerprint(style())}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    data = "\n".join(
        f'<script type="application/json" id="c2fa-data-{k}">{embed(block)}</script>' for k, block in enumerate(blocks)
    )
    text = Template(asset("report.html")).substitute(
        policy=escape(policy, quote=True).replace("&#x27;", "'"),
        title=escape(title),
        style=style(),
        index=embed(index),
        data=data,
        plain=plain,
        script=code,
    )
    return printable(text)


def island(name: str, block: dict[str, Any], plain: str) -> str:
    """A view for a notebook: what needs no script, and a script that puts the whole view in its place."""
    start = f"bootIsland({embed(name)}, {embed(style())}, {embed(block)});"
    code = f'(() => {{\n"use strict";\n{script(bool(block["answer"]))}\n{start}\n}})();'
    return printable(f'<div id="{escape(name, quote=True)}">{plain}</div>\n<script>{code}</script>')


def facts(e: Explanation) -> str:
    """Prediction, cost and fit in one line of words."""
    return f"{e.target_name}: {number(e.prediction)}{on_scale(e)} ({', '.join([f'{e.queries} rows', *fit(e)])})"


def table(e: Explanation, key: str) -> str:
    """Parts and their top leaves as a table without any style, for a page that forbids inline ones.

    ``key`` begins the anchors of a cited answer.
    """
    warnings = "".join(f"<li>{escape(w)}</li>" for w in (*e.diagnostics.warnings, *e.notes))
    head = f"<h2>{escape(facts(e))}</h2>" + (f"<ul>{warnings}</ul>" if warnings else "")
    if e.answer is not None:
        return head + e.answer.html(e, key, {"told": "class='quiet'", "nothing": "class='bad'"}.__getitem__)
    shown = _Shown(e)
    if e.diagnostics.contradiction:
        return head + "".join(
            f"<table><caption>{escape(label)}</caption>"
            + "".join(f"<tr><th scope='row'>{escape(name)}</th><td>{value}</td></tr>" for name, value in shown.level(k))
            + "</table>"
            for k, label in enumerate(e.level_names)
        )
    rows = [
        "<tr><th scope='col'>part</th><th scope='col'>attribution</th><th scope='col'>most important in it</th></tr>"
    ]
    for j, name in enumerate(shown.names[0][: shown.parts]):
        best = ", ".join(f"{name} {value}" for name, value in shown.leaves(j))
        value = e.rounded.signed(e.rounded.values[0][j])
        rows.append(f"<tr><th scope='row'>{escape(name)}</th><td>{value}</td><td>{escape(best)}</td></tr>")
    return f"{head}<table>{''.join(rows)}</table>"


def overall_table(overall: Mapping[str, Any]) -> str:
    """What many inputs have in common, as tables without any style."""
    told = [f"<p>{overall['inputs']:,} inputs, {overall['failed']:,} of them set aside.</p>"]
    for output in overall["outputs"]:
        rows = "".join(
            f"<tr><th scope='row'>{escape(f['name'])}</th><td>{f['inputs']:,}</td><td>{number(f['mean'])}</td></tr>"
            for f in output["features"]
        )
        heads = "".join(f"<th scope='col'>{head}</th>" for head in (overall["level"], "inputs", "mean attribution"))
        caption = escape(f"{output['name'] or 'answers'}: {output['inputs']:,} inputs")
        told.append(f"<table><caption>{caption}</caption><tr>{heads}</tr>{rows}</table>")
    told += [f"<p>{doubt['inputs']:,} × {escape(doubt['text'])}</p>" for doubt in overall["warnings"]]
    told += [f"<p>{error['inputs']:,} set aside: {escape(error['text'])}</p>" for error in overall["errors"]]
    return "".join(told)


def styled(e: Explanation, key: str = "c2fa") -> str:
    """The whole view with styles written into it, for notebooks; ``key`` begins its anchors."""
    warnings = "".join(f'<div style="color:#8a1c14;margin:2px 0">⚠ {escape(w)}</div>' for w in e.diagnostics.warnings)
    warnings += "".join(f"<div>{escape(note)}</div>" for note in e.notes)
    if e.answer is not None:
        looks = {"told": "color:#4d5660", "nothing": "color:#8a1c14;font-weight:600"}
        body = e.answer.html(e, key, lambda look: f"style='margin:2px 0;{looks[look]}'")
    else:
        body = e.view.html(e) + _parts(e)
    frame = (
        "background-color:#ffffff;color:#1b1f24;border:1px solid #d5dae0;padding:12px;border-radius:8px;"
        "font-family:system-ui,sans-serif;font-size:14px;line-height:1.5"
    )
    return f'<div style="{frame}"><b>{escape(facts(e))}</b>{warnings}{body}</div>'


def _parts(e: Explanation) -> str:
    """The parts with their bars, which fold out to their leaves; or each level by itself."""
    shown = _Shown(e)
    if e.diagnostics.contradiction:
        return "".join(
            f"<p><b>{escape(label)}</b></p>"
            + "".join(f"<div><code>{value}</code> {escape(name)}</div>" for name, value in shown.level(k))
            for k, label in enumerate(e.level_names)
        )
    shares, units = of_largest(e.high), e.rounded.values[0]
    order = np.argsort(-np.abs(e.high), kind="stable")
    out = []
    for j in np.sort(order[: shown.parts]).tolist():
        width = int(np.ceil(120 * abs(shares[j])))  # at least one pixel where there is anything
        bar = f"display:inline-block;height:10px;width:{width}px;"
        bar += f"background-color:{'#1f6fb2' if shares[j] >= 0 else '#c2500a'}"
        value = e.rounded.signed(units[j], None if e.stderr is None else float(e.stderr[0][j]))
        head = f'<code>{value}</code> <span style="{bar}"></span> {escape(shown.names[0][j])}'
        if e.structure.depth == 1:
            out.append(f"<div>{head}</div>")
            continue
        leaves = "".join(f"<div><code>{value}</code> {escape(name)}</div>" for name, value in shown.leaves(j))
        inner = f'<div style="margin-left:28px;color:#4d5660">{leaves}</div>'
        out.append(f"<details><summary>{head}</summary>{inner}</details>")
    rest = order[shown.parts :]
    if len(rest):
        out.append(f"<div><code>{e.rounded.signed(units[rest].sum())}</code> <i>{len(rest)} more parts</i></div>")
    return "".join(out)


class _Shown:
    """Features with their numbers, the most important first and the rest of them as one."""

    parts = 40  # that are listed

    def __init__(self, e: Explanation) -> None:
        self.e, self.names = e, shown_names(e)

    def level(self, k: int) -> list[tuple[str, str]]:
        """The features of a level."""
        return self._largest(k, np.arange(self.e.structure.widths[k]), self.parts)

    def leaves(self, part: int) -> list[tuple[str, str]]:
        """The leaves of a part, whose numbers add up to its own."""
        return self._largest(-1, np.flatnonzero(self.e.structure.owners(0) == part), 8)

    def _largest(self, k: int, features: IntArray, most: int) -> list[tuple[str, str]]:
        order = features[np.argsort(-np.abs(self.e.values[k][features]), kind="stable")]
        rounded, units, rest = self.e.rounded, self.e.rounded.values[k], order[most:]
        found = [(self.names[k][i], rounded.signed(units[i])) for i in order[:most]]
        return [*found, (f"{len(rest)} more", rounded.signed(units[rest].sum()))] if len(rest) else found

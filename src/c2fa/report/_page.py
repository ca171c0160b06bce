"""The page: an explanation as plain values with its numbers packed, and around it template, style and script."""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from collections.abc import Mapping
from functools import cache
from html import escape
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from c2fa.showing.codec import walk
from c2fa.showing.numbers import minuses, number, settled
from c2fa.showing.printing import fit, on_scale, printable, shown_names
from c2fa.structure import IntArray

if TYPE_CHECKING:
    from c2fa.explanation import Explanation

# -- the data ----------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """A value as the page's JSON has it: arrays are lists, and a number that is not finite is null.

    >>> plain({"at": np.array([1.0, np.nan]), "cost": None})
    {'at': [1.0, None], 'cost': None}
    """

    def leaf(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return walk(value.tolist(), leaf)
        return None if isinstance(value, float) else str(value)

    return walk(value, leaf)


def pack(e: Explanation, title: str, side: int, classes: int = 10, numbers: int = 400_000) -> dict[str, Any]:
    """Everything that a page shows of one explanation; pictures are at most ``side`` pixels long.

    It has up to so many ``classes`` to switch between, the target and those with the largest outputs, or fewer where
    there are so many leaves that their ``numbers`` would make a page too heavy; of an answer it has every statement.
    """
    order = sorted(e.columns, key=lambda c: (c != e.target, -float(e.outputs[c])))
    most = classes if e.answer is None else len(order)
    chosen = sorted(order[: max(1, min(most, numbers // e.structure.leaves))])
    at = [e.columns.index(c) for c in chosen]
    d, s = e.diagnostics, e.structure
    linked = e.link.at(e.outputs)(e.outputs)
    rounded = [e.for_target(c).rounded for c in chosen]
    scale = 10.0 ** np.array([shown.digits for shown in rounded])
    names = [list(map(_cut, level)) for level in e.names]
    found = {
        **{name: value for name, value in vars(d).items() if name != "interactions"},  # which the notes tell
        "title": title,
        "kind": e.view.kind,
        "labels": e.level_names,
        "target": chosen.index(e.target),
        "classes": [
            {
                "name": _cut(e.output_names[c]),
                "output": e.outputs[c],
                "linked": linked[c],
                "base": shown.base,
                "digits": shown.digits,
            }
            for c, shown in zip(chosen, rounded, strict=True)
        ],
        "unit": e.link.unit,
        "left": len(e.outputs) - len(chosen),
        "names": [*names[:-1], None if e.view.spells(s) else names[-1]],
        "parents": [_parents(p) for p in s.parents],
        "widths": s.widths,
        "values": [halves(v[:, at].T) for v in e.all_values],
        "units": [wholes([shown.values[k] for shown in rounded]) for k in range(s.depth)],
        "stderr": None if e.all_stderr is None else [wholes((settled(v[:, at]) * scale).T) for v in e.all_stderr],
        "prior": None if e.all_from_prior is None else [halves(v[:, at].T) for v in e.all_from_prior],
        "queries": e.queries,
        "warnings": [warning for warning in d.warnings if warning != d.contradiction],
        "notes": [minuses(note) for note in e.notes],
        "method": str(e.provenance.get("method", "")),
        "model": str(e.provenance.get("model") or ""),
        "seed": e.provenance.get("seed"),
        "version": str(e.provenance.get("c2fa", "")),
        "view": e.view.page(s, side),
        "answer": None if e.answer is None else e.answer.page(e, chosen),
    }
    return cast(dict[str, Any], plain(found))


def summary(e: Explanation, title: str) -> dict[str, Any]:
    asked = "" if e.answer is None else f"{e.answer.query} {e.answer.text}"
    text = " ".join(f"{asked} {e.view.words()}".split())
    level = e.view.telling
    lead = np.argsort(-np.abs(e.values[level]), kind="stable")[:4]
    fitted = [fit for fit in e.diagnostics.levels if fit.rows]
    found = {
        "title": title,
        "text": text[:1500] or " ".join(map(_cut, e.names[level][:100])),
        "lead": [
            (_cut(e.names[level][i]), e.rounded.values[level][i] if settled(e.values[level][i]) else 0) for i in lead
        ],
        "digits": e.rounded.digits,
        "target": _cut(e.target_name),
        "prediction": e.prediction,
        "warnings": len(e.diagnostics.warnings),
        "fit": min((fit.r2 if fit.r2_left_out is None else fit.r2_left_out for fit in fitted), default=None),
        "unsupported": "" if e.answer is None else e.answer.unsupported(e),
    }
    return cast(dict[str, Any], plain(found))


def wholes(values: npt.ArrayLike) -> dict[str, Any]:
    """Whole numbers in two bytes each, or in four where one is large; the smallest stands for none."""
    numbers = np.rint(values)
    kind = "<i4" if np.abs(np.nan_to_num(numbers)).max(initial=0.0) > np.iinfo("<i2").max else "<i2"
    there = np.where(np.isfinite(numbers), numbers, np.iinfo(kind).min)
    return {"bytes": np.dtype(kind).itemsize, "data": b64encode(there.astype(kind).tobytes()).decode()}


def halves(values: npt.ArrayLike) -> str:
    """Numbers in two bytes each, the upper half of four: nearly three digits, enough for a bar and for an error."""
    with np.errstate(over="ignore"):  # beyond 3e38 they are infinite, for which the page shows a dash
        bits = np.ascontiguousarray(settled(np.asarray(values)), dtype="<f4").view("<u4")
    return b64encode(((bits.astype(np.uint64) + 0x8000) >> 16).clip(0, 0xFFFF).astype("<u2").tobytes()).decode()


def _parents(owner: IntArray) -> dict[str, Any]:
    """Who owns whom: how many children each has, where they stand in order, else one owner for each."""
    if bool(np.all(owner[1:] >= owner[:-1])):
        return {"counts": np.bincount(owner)}
    return {"owners": owner}


def _cut(name: str, most: int = 400) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"


# -- the page ----------------------------------------------------------------------------------------


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
    return (files("c2fa.report") / "assets" / name).read_text(encoding="utf-8")


@cache
def style() -> str:
    return asset("report.css")


@cache
def script(cited: bool = False, several: bool = False) -> str:
    """The functions of every view, of cited answers and of galleries where there are any; nothing starts them."""
    names = ["core", "model", "tree", "text", "images", "series", "table", "view", "page"]
    names += ["answer"] * cited + ["gallery"] * several
    return "\n".join(asset(f"{name}.js") for name in names)


def fingerprint(text: str) -> str:
    """What a Content-Security-Policy names a script or a style by."""
    return "'sha256-" + b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


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
    return f"{e.target_name}: {number(e.prediction)}{on_scale(e)} ({', '.join([f'{e.queries} rows', *fit(e)])})"


def plain_view(e: Explanation, key: str, styled: bool = False) -> str:
    """Where scripts do not run: warnings, notes, and parts, which fold out, or an answer's statements.

    ``key`` begins the anchors of an answer. ``styled`` puts a frame around it and the input into it, for notebooks; the
    page forbids inline styles, and holds the input for its script.
    """
    warnings = (f"⚠ {text}" for text in e.diagnostics.warnings)
    said = "".join(f"<li>{escape(text)}</li>" for text in (*warnings, *e.notes))
    body = _parts(e) if e.answer is None else e.answer.html(e, key)
    if not styled:
        return f"<h2>{escape(facts(e))}</h2><ul>{said}</ul>{body}"
    if e.answer is None:
        body = e.view.html(e) + body
    frame = (
        "background-color:#ffffff;color:#1b1f24;border:1px solid #d5dae0;padding:12px;border-radius:8px;"
        "font-family:system-ui,sans-serif;font-size:14px;line-height:1.5"
    )
    return f'<div style="{frame}"><b>{escape(facts(e))}</b><ul>{said}</ul>{body}</div>'


def _parts(e: Explanation) -> str:
    """The parts, which fold out to their leaves; or each level by itself, where they contradict each other."""
    names, rounded = shown_names(e), e.rounded

    def listed(k: int, features: IntArray, most: int) -> str:
        order = features[np.argsort(-np.abs(e.values[k][features]), kind="stable")]
        lines = [f"<code>{rounded.signed(rounded.values[k][i])}</code> {escape(names[k][i])}" for i in order[:most]]
        if len(order) > most:
            rest = rounded.values[k][order[most:]].sum()
            lines.append(f"<code>{rounded.signed(rest)}</code> {len(order) - most} more")
        return "<br>".join(lines)

    if e.diagnostics.contradiction:
        levels = zip(e.level_names, e.structure.widths, strict=True)
        every = [listed(k, np.arange(width), 40) for k, (_, width) in enumerate(levels)]
        return "".join(f"<h3>{escape(name)}</h3>{one}" for name, one in zip(e.level_names, every, strict=True))
    units = rounded.values[0]
    order = np.argsort(-np.abs(e.high), kind="stable")
    out = []
    for j in np.sort(order[:40]).tolist():
        value = rounded.signed(units[j], None if e.stderr is None else float(e.stderr[0][j]))
        head = f"<code>{value}</code> {escape(names[0][j])}"
        if e.structure.depth == 1:
            out.append(f"<div>{head}</div>")
            continue
        leaves = listed(-1, np.flatnonzero(e.structure.owners(0) == j), 4)
        out.append(f"<details><summary>{head}</summary><p>{leaves}</p></details>")
    if len(order) > 40:
        rest = rounded.signed(units[order[40:]].sum())
        out.append(f"<div><code>{rest}</code> <i>{len(order) - 40} more parts</i></div>")
    return "".join(out)


def overall_table(overall: Mapping[str, Any]) -> str:
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

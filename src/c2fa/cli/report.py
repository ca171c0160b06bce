"""``c2fa report``: one page of explanations that were kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from c2fa.cli import _options as o
from c2fa.cli._errors import RefusedError, guarded
from c2fa.cli._outputs import check, write_explanations
from c2fa.cli._saying import say

if TYPE_CHECKING:
    from c2fa.explanation import Explanation


def report(
    explanations: Annotated[
        list[Path],
        typer.Argument(
            metavar="EXPLANATION",
            help="Files that explain wrote (.json, .npz), folders of them, or stores.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="FILE", help="The page to write.", show_default=False),
    ],
    title: Annotated[str | None, typer.Option(metavar="TEXT", help="The page's title.", show_default=False)] = None,
    limit: Annotated[int, typer.Option(min=1, help="The most explanations on the page.")] = 200,
    quiet: o.Quiet = False,
    debug: o.Debug = False,
) -> None:
    """Write one self-contained page: an explanation, or a gallery of many.

    \bExamples:
      c2fa report review.json --out review.html
      c2fa report run1.json run2.json --out both.html --title "Two runs"
      c2fa report explained/ --out report.html --limit 50
    """
    with guarded(debug):
        check(out, (".html",))
        found = list(islice(_all(explanations), limit + 1))
        if not found:
            raise RefusedError(f"there are no explanations in {', '.join(map(str, explanations))}")
        if len(found) > limit and not quiet:
            say(f"the page shows the first {limit} explanations; --limit N shows more")
        write_explanations(out, found[:limit], title)
        if not quiet:
            say(f"wrote {out}")


def _all(paths: list[Path]) -> Iterator[tuple[str, Explanation]]:
    for path in paths:
        if not path.exists():
            raise RefusedError(f"there is no file or folder {str(path)!r}")
        if path.is_dir():
            yield from _folder(path)
        else:
            yield from _file(path)


def _folder(path: Path) -> Iterator[tuple[str, Explanation]]:
    if any(path.glob("part-*.parquet")):
        from c2fa.batch import Store

        for index, e in Store.open(path).items():
            text = " ".join(str(e.view.get("text", "")).split())
            yield f"{index} · {text[:70]}" if text else f"input {index}", e
        return
    files = sorted(f for f in path.iterdir() if f.suffix.lower() in (".json", ".npz"))
    if not files:
        raise RefusedError(f"the folder {str(path)!r} holds neither a store nor .json or .npz files")
    for file in files:
        yield from _file(file)


def _file(path: Path) -> Iterator[tuple[str, Explanation]]:
    from c2fa.explanation import Explanation, load

    try:
        if path.suffix.lower() == ".npz":
            found = [load(path)]
        else:
            plain = json.loads(path.read_text(encoding="utf-8"))
            several = plain if isinstance(plain, list) else [plain]
            found = [Explanation.from_json(json.dumps(one)) for one in several]
    except OSError:
        raise
    except Exception as error:  # a stranger's file may be broken in any way
        raise RefusedError(f"{str(path)!r} is not an explanation that c2fa wrote: {error}") from error
    for k, e in enumerate(found):
        number = f" {k + 1}" if len(found) > 1 else ""
        yield str(e.provenance.get("input") or f"{path.stem}{number}"), e

"""``c2fa report`` and ``c2fa learn``: one page of explanations that were kept, and what they teach about others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated

from c2fa.cli import options as o
from c2fa.cli.inputs import must_exist
from c2fa.cli.output import RefusedError, check, say, write_explanations
from c2fa.cli.session import guarded
from c2fa.explanation import Explanation
from c2fa.prior import Prior
from c2fa.showing.files import load_all


def report(
    explanations: o.Explanations,
    out: Annotated[Path, o.flag(o.OUTPUT, "--out", "-o", metavar="FILE", help="The page to write (.html).")],
    title: Annotated[str | None, o.flag(o.OUTPUT, metavar="TEXT", help="The page's title.")] = None,
    limit: Annotated[int, o.flag(o.OUTPUT, min=1, help="Most explanations on the page.", show_default=True)] = 200,
    quiet: Annotated[bool, o.flag(o.OUTPUT, "--quiet", "-q", help="Print no remarks.")] = False,
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
        named = list(islice(read(explanations), limit + 1))
        if not named:
            raise RefusedError(f"there are no explanations in {', '.join(map(str, explanations))}")
        if len(named) > limit and not quiet:
            say(f"the page shows the first {limit} explanations; --limit N shows more")
        write_explanations(out, named[:limit], title)
        if not quiet:
            say(f"wrote {out}")


def learn(
    explanations: o.Explanations,
    out: Annotated[Path, o.flag(o.OUTPUT, "--out", "-o", metavar="FILE", help="Where it goes (.json).")],
    debug: o.Debug = False,
) -> None:
    """Learn from explained inputs, so that others need fewer rows.

    \bExamples:
      c2fa explain first.jsonl --field text -m demo --store explained
      c2fa learn explained --out prior.json
      c2fa explain others.jsonl --field text -m demo --prior prior.json \\
        --budget 60 --store more
    """
    with guarded(debug):
        check(out, (".json",))
        prior = Prior.learn(explanation for _, explanation in read(explanations))
        prior.save(out)
        worth = ", ".join(f"{value:.2f} of {name!r}" for name, value in prior.worth.items())
        say(f"wrote {out}: learned from {prior.inputs} inputs; correlation with effects on others: {worth}")


def read(paths: Iterable[Path]) -> Iterator[tuple[str, Explanation]]:
    """Explanations of files, folders and stores, with their names."""
    for path in paths:
        must_exist(path)
        if not path.is_dir():
            yield from _read_file(path)
        elif any(path.glob("part-*.parquet")):
            from c2fa.batch import Store

            for index, e in Store.open(path).items():
                title = e.view.title(e.structure)
                yield f"{index} · {title}" if title else f"input {index}", e
        else:
            files = sorted(f for f in path.iterdir() if f.suffix.lower() == ".json")
            if not files:
                raise RefusedError(f"the folder {str(path)!r} holds neither a store nor .json files")
            for file in files:
                yield from _read_file(file)


def _read_file(path: Path) -> Iterator[tuple[str, Explanation]]:
    try:
        several = load_all(path)
    except ValueError as error:
        raise RefusedError(str(error)) from error
    for k, e in enumerate(several):
        number = f" {k + 1}" if len(several) > 1 else ""
        yield str(e.provenance.get("input") or f"{path.stem}{number}"), e

"""``c2fa learn``: what explained inputs teach about others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from c2fa.cli import options as o
from c2fa.cli.output import check, say
from c2fa.cli.report import read
from c2fa.cli.session import guarded
from c2fa.prior import Prior


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

"""Two methods on the same review: levels that contradict each other, levels that add up

LIME fits sentences and words separately; Owen values, the default, are of one game at both levels. Each has eleven
masks of sentences and fifty of words. The red rows show by how much a sentence and its words disagree.

Needs: pip install 'c2fa[plots]'
"""

import sys
from pathlib import Path

import c2fa

REVIEW = (
    "I wanted to like this lamp. The shade is beautiful and it came quickly, but the switch broke within a week. "
    "The seller sent a new one without a word. It works now, and my daughter reads by it every evening."
)


def main(folder: Path) -> None:
    model, masker = c2fa.models.DemoSentiment(), c2fa.maskers.Text()
    found = {}
    for method in ("lime", "owen"):
        found[method] = c2fa.Explainer(model, masker, method=method, budget=(12, 50), target="positive")(REVIEW)
        print(f"{method}: sentences and words differ by {found[method].diagnostics.consistency:.4f} (squared)")
        for name, part, words in zip(
            found[method].names[0],
            found[method].high,
            found[method].structure.sums(found[method].low, 0),
            strict=True,
        ):
            print(f"  sentence {part:+.3f}, its words {words:+.3f}   {name[:60]}")
    c2fa.plots.compare(found, leaves=2).savefig(folder / "compare.png", dpi=110)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))

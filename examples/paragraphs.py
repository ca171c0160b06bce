"""Three levels: paragraphs, sentences, words

Depth is a setting of the masker. Every level is asked about in its own way and all are fitted together: a paragraph is
the sum of its sentences, a sentence the sum of its words.

Needs: pip install 'c2fa[plots]'
"""

import sys
from pathlib import Path

import c2fa

LETTER = """The kettle arrived on Monday, two days early. It looks lovely and the box was neat.

On Tuesday it began to leak. By Thursday it was dead, and the shop refused to answer my letters. What a waste of money.

My sister has the older model and is happy with it. Buy that one instead."""


def main(folder: Path) -> None:
    masker = c2fa.maskers.Text(levels=("paragraphs", "sentences", "words"))
    explanation = c2fa.Explainer(c2fa.models.DemoSentiment(), masker, budget=250)(LETTER)
    print(explanation.to_text(leaves=3))
    explanation.plot("nested", leaves=2).savefig(folder / "paragraphs.png", dpi=110)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))

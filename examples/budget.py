"""How many rows are enough: scores over budgets

Six reviews, two methods, four budgets, three seeds; every mask is asked once, however many runs use it. Stability is
the rank correlation between seeds: where it stops rising, more rows no longer change the story.

Needs: pip install 'c2fa[frame,plots]'
"""

import sys
from pathlib import Path

import c2fa

REVIEWS = [
    "A lovely little radio. The sound is warm, and the dial easy to read. The handle is cheap. I would buy it again.",
    "The zip broke on the second day. I sent it back. They promised a new one. I have never heard from them again.",
    "It does what it says. The manual is poor, though. The cable is far too short. At this price I will not complain.",
    "My son adores this book. We read it every night. The pictures are charming, but the paper is thin.",
    "Two of the six glasses were cracked. The others are fine. The shop was kind about it. Still, I expected better.",
    "Great price and quick delivery. Sadly the colour is not that of the picture. It fits well. My wife loves it.",
]


def main(folder: Path) -> None:
    result = c2fa.evaluate(
        ["owen", "lime"],
        REVIEWS,
        c2fa.models.DemoSentiment(),
        c2fa.maskers.Text(),
        masks=[(12, n) for n in (25, 50, 100, 200)],
        seeds=3,
        metrics=["stability"],
        batch_size=256,
    )
    print(result.rows)
    table = result.summary()
    print(table[["method", "N_H", "N_L", "level", "mean", "std"]].round(3).to_string(index=False))
    result.plot("stability").savefig(folder / "budget.png", dpi=110)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))

"""Many inputs: the words that matter over a dataset

Twelve reviews are explained into a folder of Parquet files, their rows packed into shared batches. Running it again
asks nothing: what is in the folder is done. The bars are the words with the largest mean attribution for "positive".

Needs: pip install 'c2fa[store,plots]'
"""

import sys
import tempfile
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt

import c2fa
from c2fa.batch import many

matplotlib.use("agg")

REVIEWS = [
    "A lovely little radio. The sound is great, and the dial is easy to read.",
    "The zip broke on the second day. It is a bad bag and I am sorry I bought it.",
    "It does what it says. The manual is bad, though, and the cable is too short.",
    "My son loves this book. We read it every night, and the pictures are great.",
    "Two of the six glasses were broken. The others are good, but I expected better.",
    "Great price and quick delivery. Sadly the colour is bad.",
    "I love this kettle. It is quick and quiet, and it looks great in the kitchen.",
    "A waste of money. The handle came off and the paint is bad.",
    "Good shoes for the price. They are light, and I love the colour.",
    "The film is slow and the acting is bad. What a waste of an evening.",
    "Great for small rooms. The sound is good and the price is fair.",
    "I wanted to love it. The screen is good, but the battery is a waste of time.",
]


def main(folder: Path) -> None:
    explainer = c2fa.Explainer(c2fa.models.DemoSentiment(), c2fa.maskers.Text(), budget=(10, 90), target="positive")
    with tempfile.TemporaryDirectory() as store:
        found = many(explainer, REVIEWS, store, engine="serial", batch_size=512)
        words = found.important(n=10, least=2)
    for w in words:
        print(f"{w.name:12} in {w.inputs:2} reviews: {w.mean:+.3f} ({w.low:+.3f} to {w.high:+.3f})")
    figure, axis = plt.subplots(figsize=(7, 3.6), layout="constrained")
    names, means = [w.name for w in words], [w.mean for w in words]
    errors = [[w.mean - w.low for w in words], [w.high - w.mean for w in words]]
    axis.barh(names, means, xerr=errors, color=["#1f6fb2" if m >= 0 else "#c2500a" for m in means], capsize=2)
    axis.invert_yaxis()
    axis.axvline(0, color="#5c6570", lw=0.8)
    axis.set(xlabel="mean attribution for “positive”, with its 95 % interval over reviews")
    axis.spines[["top", "right", "left"]].set_visible(False)
    figure.savefig(folder / "many.png", dpi=110)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))

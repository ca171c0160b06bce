"""What each part of the default is worth: variants of C2FA on real reviews with the embedded classifier.

    python benchmarks/defaults.py [--inputs 40] [--data ../shared/data]

Deletion (lower is better) and insertion (higher is better) of sentences and words, from the same queries; the last
columns are the paired difference to the default with its 95 % bootstrap interval. The reviews are the last of several
sentences in the corpus; some of them are test reviews of the experiments, which explain another network, so the default
was not chosen by this table but by ``benchmarks/validation.py``.
"""

from __future__ import annotations

import argparse
import json
import lzma
from pathlib import Path

import c2fa

VARIANTS = [
    ("c2fa", "c2fa", {}),
    ("no intercept", "c2fa", {"intercept": False}),
    ("no intercept, prediction not fitted", "c2fa", {"intercept": False, "anchor": False}),
    ("prediction not fitted", "c2fa", {"anchor": False}),
    ("λ = 0.1 at both levels", "c2fa", {"penalty": c2fa.L2(0.1)}),
    ("λ = 0.1 and 1", "c2fa", {"penalty": (c2fa.L2(0.1), c2fa.L2(1.0))}),
    ("λ = 1 at both levels", "c2fa", {"penalty": c2fa.L2(1.0)}),
    ("λ = 0.1 and 10", "c2fa", {"penalty": (c2fa.L2(0.1), c2fa.L2(10.0))}),
    ("smooth 1", "c2fa", {"smooth": 1.0}),
    ("paired masks", "c2fa", {"sampler": "paired"}),
    ("similarity kernel", "c2fa", {"kernel": "similarity"}),
    ("uniform kernel", "c2fa", {"kernel": "uniform"}),
    ("lime", "lime", {}),
]
MASKS = [(20, 50), (20, 150)]


def reviews(folder: Path, count: int) -> list[str]:
    """Reviews of three to eight sentences and at most eighty words, from the end of the file."""
    path = folder / "amazon_polarity_test_first6459.jsonl.xz"
    if not path.exists():
        raise SystemExit(f"{path} is not here; give the folder of the reviews with --data")
    with lzma.open(path, "rt", encoding="utf-8") as file:
        texts = [json.loads(line)["text"] for line in file]
    masker, found = c2fa.maskers.Text(), []
    for text in reversed(texts):
        if len(text.split()) <= 80 and 3 <= masker(text).structure.widths[0] <= 8:
            found.append(text)
        if len(found) == count:
            break
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--data", type=Path, default=Path(__file__).resolve().parents[2] / "shared" / "data")
    arguments = parser.parse_args()
    result = c2fa.evaluate(
        VARIANTS,
        reviews(arguments.data, arguments.inputs),
        c2fa.models.DemoSentiment(),
        c2fa.maskers.Text(),
        masks=MASKS,
        seeds=arguments.seeds,
        metrics=["deletion", "insertion"],
        batch_size=256,
    )
    table = result.summary()
    for (metric, level), group in table.groupby(["metric", "level"]):
        print(f"\n{metric} of {('sentences', 'words')[level]}")
        columns = ["method", "N_H", "N_L", "mean", "std", "difference", "low", "high"]
        print(group[columns].to_string(index=False, float_format=lambda v: f"{v:.4f}"))
    print(f"\n{result.rows}")


if __name__ == "__main__":
    main()

"""How near estimates come to the Owen values of real reviews, with the package's own classifier.

    python -m benchmarks.reviews                                # at 60, 120, 240 and 480 rows
    python -m benchmarks.reviews --truth values.npz --only-truth --jobs 16

Owen values are means over permutations in which the words of a sentence stay together, each with its reverse; they cost
some 16,000 rows a review (minutes on one core), and are kept in the file ``--truth``. Their own error is printed.
"""

from __future__ import annotations

import argparse
import json
import lzma
from multiprocessing import get_context
from pathlib import Path

import numpy as np

import c2fa

REVIEWS = Path(__file__).parents[2] / "shared" / "data" / "amazon_polarity_test_first6459.jsonl.xz"
_MODEL = c2fa.models.DemoSentiment()


def chosen(path: Path, count: int, first: int = 0) -> list[str]:
    """Reviews of 60 to 106 words in 4 to 9 sentences, in an order that is the same every time."""
    if path.suffix == ".json":
        return list(json.loads(path.read_text()))[first : first + count]
    with lzma.open(path, "rt") as lines:
        texts = [json.loads(line)["text"] for line in lines]
    found = []
    for i in np.random.default_rng(5).permutation(len(texts)):
        s = c2fa.maskers.Text()(texts[i]).structure
        if 60 <= s.leaves <= 106 and 4 <= s.widths[0] <= 9:
            found.append(texts[i])
        if len(found) == first + count:
            break
    return found[first:]


def owen_by_permutations(job: tuple[str, int, int]) -> np.ndarray:
    """The effects of every leaf in permutations and their reverses, (pairs of permutations, leaves)."""
    text, seed, pairs = job
    masked = c2fa.maskers.Text()(text)
    owner = masked.structure.owners(0)
    target = int(np.argmax(_MODEL([text])[0]))
    rng = np.random.default_rng(seed)
    effects = np.empty((pairs, len(owner)))
    for pair in range(pairs):
        parts = rng.permutation(int(owner.max()) + 1)
        order = np.concatenate([rng.permutation(np.flatnonzero(owner == part)) for part in parts])
        both = np.zeros(len(owner))
        for one in (order, order[::-1]):
            place = np.argsort(one)
            masks = place < np.arange(len(owner) + 1)[:, None]
            outputs = _MODEL(masked.inputs(masks, 1))[:, target]
            both[one] += np.diff(outputs)
        effects[pair] = both / 2.0
    return effects


def truth(texts: list[str], path: Path | None, pairs: int, jobs: int) -> list[np.ndarray]:
    """The Owen values of each review with their errors, (2, leaves); from the file where they are kept."""
    if path is not None and path.exists():
        kept = np.load(path)
        return [kept[str(i)] for i in range(len(texts))]
    pieces = max(jobs // len(texts), 1) * 4
    asked = [(text, 1000 * i + k, -(-pairs // pieces)) for i, text in enumerate(texts) for k in range(pieces)]
    with get_context("spawn").Pool(jobs) as pool:
        effects = pool.map(owen_by_permutations, asked, chunksize=1)
    found = []
    for i in range(len(texts)):
        mine = np.concatenate(effects[i * pieces : (i + 1) * pieces])
        found.append(np.stack([mine.mean(axis=0), mine.std(axis=0, ddof=1) / np.sqrt(len(mine))]))
    if path is not None:
        np.savez_compressed(path, **{str(i): values for i, values in enumerate(found)})
    return found


def main() -> None:
    """Print a table of correlations."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--reviews", type=Path, default=REVIEWS, help="where the reviews are")
    options.add_argument("--count", type=int, default=12)
    options.add_argument("--first", type=int, default=0, help="leave out so many reviews, that choices were made on")
    options.add_argument("--pairs", type=int, default=100, help="permutations with their reverses")
    options.add_argument("--truth", type=Path, help="a file that keeps the Owen values")
    options.add_argument("--only-truth", action="store_true")
    options.add_argument("--jobs", type=int, default=2)
    options.add_argument("--rows", default="60,120,240,480")
    options.add_argument("--methods", default="c2fa,owen")
    options.add_argument("--ledger", help="keeps the rows that were asked")
    given = options.parse_args()
    texts = chosen(given.reviews, given.count, given.first)
    values = truth(texts, given.truth, given.pairs, given.jobs)
    errors = [np.square(v[1]).sum() / np.square(v[0] - v[0].mean()).sum() for v in values]
    print(f"{len(texts)} reviews; the permutations' own error is {np.median(errors):.3f} of the variance")
    print("correlation with Owen values of words / of sentences; within 90 % intervals; |base + sum − prediction|")
    for method in given.methods.split(","):
        for rows in map(int, given.rows.split(",")):
            words, sentences, inside, gaps = [], [], [], []
            explainer = c2fa.Explainer(_MODEL, c2fa.maskers.Text(), method=method, budget=rows, ledger=given.ledger)
            for text, (exact, error) in zip(texts, values, strict=True):
                e = explainer(text)
                words.append(np.corrcoef(e.low, exact)[0, 1])
                sentences.append(np.corrcoef(e.high, e.structure.sums(exact, 0))[0, 1])
                inside += list(np.abs(e.low - exact) < 1.645 * np.hypot(e.stderr[-1], error))
                gaps.append(abs(e.intercepts[-1] + e.low.sum() - e.prediction))
            print(
                f"  {method:10} {rows:4} rows: {np.mean(words):.3f} / {np.mean(sentences):.3f}"
                f"   {np.mean(inside):.2f}   {np.max(gaps):.1e}",
                flush=True,
            )


if __name__ == "__main__":
    main()

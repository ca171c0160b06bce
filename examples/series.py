"""A recording: channels and windows

A classifier is trained on generated recordings in which an alarm means a dip in the third channel soon after a bump in
the second. Masked windows are bridged by a straight line.

Needs: pip install 'c2fa[tabular,plots]'
"""

import sys
from pathlib import Path

import numpy as np
from sklearn.ensemble import ExtraTreesClassifier

import c2fa

CHANNELS, STEPS = ("pulse", "pressure", "breath"), 120


def record(rng, alarm):
    """Three noisy waves; an alarm has a bump and a dip at a random time, everything else only one of them or none."""
    time = np.arange(STEPS)
    waves = np.stack([np.sin(time / (5 + 3 * c) + rng.uniform(0, 6)) for c in range(3)])
    waves += rng.normal(0, 0.2, waves.shape)
    start = rng.integers(10, 70)
    bump, dip = (True, True) if alarm else [(True, False), (False, True), (False, False)][rng.integers(3)]
    waves[1, start : start + 12] += 3.0 * bump
    waves[2, start + 20 : start + 32] -= 3.0 * dip
    return waves


def features(recordings):
    """The highest and lowest running mean of each channel."""
    sums = np.cumsum(np.pad(np.asarray(recordings), ((0, 0), (0, 0), (1, 0))), axis=2)
    means = (sums[..., 12:] - sums[..., :-12]) / 12
    return np.concatenate([means.max(axis=2), means.min(axis=2)], axis=1)


rng = np.random.default_rng(0)
labels = np.arange(600) % 2
trees = ExtraTreesClassifier(100, min_samples_leaf=5, random_state=0)
trees.fit(features([record(rng, alarm) for alarm in labels]), labels)


def model(batch):
    return trees.predict_proba(features(batch))


def main(folder: Path) -> None:
    masker = c2fa.maskers.TimeSeries(windows=10, fill="linear", names=CHANNELS)
    explainer = c2fa.Explainer(model, masker, budget=300, target="alarm", output_names=("quiet", "alarm"))
    explanation = explainer(record(np.random.default_rng(3), True))
    print(explanation.to_text(leaves=3))
    explanation.plot().savefig(folder / "series.png", dpi=110)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))

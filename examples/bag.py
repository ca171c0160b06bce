"""A bag of vectors: instances and their entries

Multiple-instance data: a bag of bottles, each described by thirteen measurements. A classifier of single bottles,
trained on scikit-learn's wine data, says how likely the best match for one cultivar in the bag is.

Needs: pip install 'c2fa[tabular,plots]'
"""

import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import c2fa

data = load_wine()
bottles = [60, 140, 5, 100, 170]  # the third is of the cultivar that is looked for
rest = np.setdiff1d(np.arange(len(data.data)), bottles)
single = make_pipeline(StandardScaler(), LogisticRegression()).fit(data.data[rest], data.target[rest] == 0)


def model(bags):
    """The chance of the bottle that looks most like the cultivar."""
    return np.array([single.predict_proba(bag)[:, 1].max() for bag in bags])


def main(folder: Path) -> None:
    masker = c2fa.maskers.Bag(fill=data.data.mean(axis=0), names=data.feature_names)
    explainer = c2fa.Explainer(model, masker, budget=(25, 275), output_names=["cultivar 0"])
    explanation = explainer(data.data[bottles])
    print(explanation.to_text(leaves=3))
    explanation.plot().savefig(folder / "bag.png", dpi=110)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))

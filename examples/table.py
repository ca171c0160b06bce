"""A table row: groups of columns

Thirty columns describe a cell sample: ten measurements, each as a mean, an error and a worst value. The groups say
which measurement matters, the columns in which form. Masked columns take the training data's mean.

Needs: pip install 'c2fa[tabular,plots]'
"""

import sys
from pathlib import Path

from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split

import c2fa

data = load_breast_cancer(as_frame=True)
train, test, labels, _ = train_test_split(data.data, data.target_names[data.target], test_size=0.2, random_state=0)
forest = RandomForestClassifier(200, min_samples_leaf=3, random_state=0).fit(train, labels)

names = [column.removeprefix("mean ") for column in train.columns if column.startswith("mean ")]
groups = {name: [f"mean {name}", f"{name} error", f"worst {name}"] for name in names}


def main(folder: Path) -> None:
    masker = c2fa.maskers.Tabular(groups, background=train)
    explanation = c2fa.Explainer(forest, masker, budget=400)(test.iloc[[0]])
    print(explanation)
    explanation.plot(parts=6, leaves=3).savefig(folder / "table.png", dpi=110)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))

"""A bag of images: which image, and where in it

The model learns from patches of photographs that come with scikit-image, whole and partly masked, and calls a bag
positive when any of its images looks like a coin. It picks the right image; the super-pixels show that it looks at the
dark table and not at the coin. Absent images are left out of the bag, masked super-pixels filled with the mean.

Needs: pip install 'c2fa[images,tabular,plots]'
"""

import sys
from pathlib import Path

import numpy as np
from skimage import data
from sklearn.ensemble import ExtraTreesClassifier

import c2fa

SIDE = 64
SOURCES = {
    "coins": data.coins(),
    "brick": data.brick(),
    "gravel": data.gravel(),
    "grass": data.grass(),
    "moon": data.moon(),
}


def patches(image, columns, count, rng):
    """Square pieces of a photograph whose left edge lies between two columns."""
    tops = rng.integers(0, image.shape[0] - SIDE, count)
    lefts = rng.integers(columns[0], columns[1] - SIDE, count)
    return [image[a : a + SIDE, b : b + SIDE] for a, b in zip(tops, lefts, strict=True)]


def features(image):
    """The mean and the spread of 8 by 8 squares."""
    squares = image.reshape(8, 8, 8, 8).swapaxes(1, 2).reshape(64, 64) / 255
    return np.concatenate([squares.mean(axis=1), squares.std(axis=1)])


def partly_masked(image, rng):
    """A patch as the explainer will show it: half of its squares filled with the mean, so that the model knows such."""
    keep = np.kron(rng.random((4, 4)) < 0.5, np.ones((SIDE // 4, SIDE // 4), dtype=bool))
    return np.where(keep, image, image.mean()).astype(np.uint8)


rng = np.random.default_rng(0)
train = [(patch, name == "coins") for name, image in SOURCES.items() for patch in patches(image, (0, 280), 120, rng)]
train += [(partly_masked(patch, rng), is_coin) for patch, is_coin in train for _ in range(2)]
classifier = ExtraTreesClassifier(100, min_samples_leaf=2, random_state=0)
classifier.fit([features(patch) for patch, _ in train], [is_coin for _, is_coin in train])


def any_coin(bags):
    """The chance that at least one image of a bag shows a coin; a bag is a list of images."""
    sizes = [len(images) for images in bags]
    single = classifier.predict_proba([features(image) for images in bags for image in images])[:, 1]
    answers = [1 - np.prod(1 - part) for part in np.split(single, np.cumsum(sizes)[:-1])]
    return np.stack([1 - np.array(answers), answers], axis=1)


def main(folder: Path) -> None:
    unseen = np.random.default_rng(4)
    order = ("brick", "gravel", "coins", "moon", "grass")
    bag = [patches(SOURCES[name], (290, 384), 1, unseen)[0] for name in order]
    masker = c2fa.maskers.ImageBag(segment="slic", options={"n_segments": 30}, fill="mean")
    explainer = c2fa.Explainer(any_coin, masker, budget=(20, 380), target="coin", output_names=("no coin", "coin"))
    explanation = explainer(bag)
    print(explanation.to_text(leaves=3))
    explanation.plot().savefig(folder / "images.png", dpi=110)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))

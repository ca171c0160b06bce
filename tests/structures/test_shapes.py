"""A real convolutional model of bags of images, trained here on shapes whose place is known."""

from __future__ import annotations

import numpy as np
import pytest

import c2fa

torch = pytest.importorskip("torch")
roc_auc_score = pytest.importorskip("sklearn.metrics").roc_auc_score
from torch import nn

SIZE = 24
CROSS = np.zeros((7, 7), dtype=bool)
CROSS[2:5], CROSS[:, 2:5] = True, True
RING = np.ones((7, 7), dtype=bool)
RING[2:5, 2:5] = False
DISC = np.hypot(*np.mgrid[-3:4, -3:4]) <= 3.2
BAR = np.zeros((7, 7), dtype=bool)
BAR[2:5] = True


def draw(rng, shape):
    """A noisy image, (3, SIZE, SIZE), with one shape in a random colour, and where the shape is."""
    image = rng.normal(0.3, 0.05, (3, SIZE, SIZE))
    y, x = rng.integers(1, SIZE - 8, 2)
    where = np.zeros((SIZE, SIZE), dtype=bool)
    where[y : y + 7, x : x + 7] = shape
    image[:, where] = rng.uniform(0.5, 1.0, 3)[:, None] + rng.normal(0, 0.05, (3, where.sum()))
    return image.clip(0, 1).astype(np.float32), where


def draw_bag(rng, positive, size):
    """A bag of images of other shapes; a positive one has a cross in one of them."""
    others = (RING, DISC, BAR)
    planted = rng.integers(size) if positive else -1
    drawn = [draw(rng, CROSS if j == planted else others[rng.integers(3)]) for j in range(size)]
    truth = [where & (j == planted) for j, (_, where) in enumerate(drawn)]
    return [image for image, _ in drawn], truth


class DeepSets(nn.Module):
    """Scores bags of any size: a convolutional embedding of each image, its sum over the bag, a head."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Sequential(
            nn.BatchNorm2d(3), nn.Conv2d(3, 16, 5, stride=2, padding=2), nn.ReLU(),
            nn.Conv2d(16, 32, 5, padding=2), nn.ReLU(), nn.AdaptiveMaxPool2d(1), nn.Flatten(),
        )  # fmt: skip
        self.head = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, images, bag, bags):
        embedded = self.embed(images)
        pooled = torch.zeros(bags, embedded.shape[1]).index_add(0, bag, embedded)
        return self.head(pooled)[:, 0]

    @torch.no_grad()
    def probability(self, batch):
        """From any sequence of bags (lists of images) to the probability that a cross is among them."""
        rows = list(batch)
        images = torch.from_numpy(np.stack([image for row in rows for image in row]))
        bag = torch.repeat_interleave(torch.tensor([len(row) for row in rows]))
        return torch.sigmoid(self(images, bag, len(rows))).numpy()


@pytest.fixture(scope="module")
def one_thread():
    """Small convolutions wait for each other's threads longer than they compute."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def model(one_thread):
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    net = DeepSets()
    optimiser = torch.optim.AdamW(net.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 1e-2, total_steps=160)
    for _ in range(160):
        sizes = rng.integers(1, 6, 32)
        labels = np.arange(32) % 2
        bags = [draw_bag(rng, bool(label), size)[0] for label, size in zip(labels, sizes, strict=True)]
        # Dark patches, so that a masked super-pixel is nothing new to the model.
        images = np.stack([image for bag in bags for image in bag])
        images *= np.kron(rng.random((len(images), 1, 6, 6)) > 0.05, np.ones((1, 1, 4, 4)))
        logits = net(torch.from_numpy(images), torch.repeat_interleave(torch.from_numpy(sizes)), 32)
        loss = nn.functional.binary_cross_entropy_with_logits(logits, torch.from_numpy(labels).float())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    net.eval()
    held_out = [draw_bag(rng, k % 2 == 1, 4)[0] for k in range(200)]
    accuracy = float(((net.probability(held_out) > 0.5) == (np.arange(200) % 2 == 1)).mean())
    print(f"\naccuracy on held-out bags {accuracy:.3f}")
    assert accuracy > 0.9
    return net


def test_attributions_find_the_planted_object(model):
    rng = np.random.default_rng(1)
    grid = (np.arange(SIZE)[:, None] // 4) * 6 + np.arange(SIZE)[None] // 4
    high, low, found = [], [], 0
    for _ in range(10):
        bag, truth = draw_bag(rng, True, 4)
        masker = c2fa.maskers.ImageBag(lambda image: grid, fill="mean")
        e = c2fa.Explainer(model.probability, masker, budget=(20, 100))(bag)
        structure = masker(bag).structure
        np.testing.assert_allclose(structure.sums(e.low, 0), e.high, atol=1e-9)
        owns = np.array([where.any() for where in truth])
        covered = np.concatenate([np.bincount(grid.ravel(), where.ravel()) for where in truth]) > 4
        high.append(roc_auc_score(owns, e.high))
        low.append(roc_auc_score(covered, e.low))
        found += int(e.high.argmax() == owns.argmax())
        assert e.queries <= 120
    print(f"\nAUROC of images {np.mean(high):.3f}, of super-pixels {np.mean(low):.3f}; object found in {found} of 10")
    assert np.mean(high) > 0.95
    assert np.mean(low) > 0.75

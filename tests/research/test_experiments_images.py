"""The image experiment: bags that are what they say, and a network whose fast copy is the same function."""

from __future__ import annotations

import io
import tarfile
from collections import Counter

import numpy as np
import pytest

pytest.importorskip("experiments", reason="the experiments are in a clone, not in a source distribution")
torch = pytest.importorskip("torch")
Image = pytest.importorskip("PIL.Image")
import torch.nn.functional as F
from experiments.harness import weights
from experiments.images import train
from experiments.images.bags import ARCHIVE, CAT, SIDE, VOID, Bags, make_bags, read_voc, segment, superpixels
from experiments.images.network import (
    IMAGENET,
    BatchNorm,
    DeepSets,
    FastPhi,
    ResNet50,
    agreement,
    features,
    fold,
    normalise,
    predict,
)


def _entry(archive, name, data):
    info = tarfile.TarInfo(f"./{name}")
    info.size = len(data)
    archive.addfile(info, io.BytesIO(data))


def _encoded(array, kind):
    held = io.BytesIO()
    image = Image.fromarray(array)
    if kind == "PNG":
        image.putpalette(list(range(256)) * 3)
    image.save(held, kind)
    return held.getvalue()


@pytest.fixture(scope="module")
def fake(tmp_path_factory):
    """An archive of 60 small images, 40 of them for training; every fourth holds a cat in a corner."""
    rng = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("voc")
    names = [f"2007_{i:06d}" for i in range(60)]
    with tarfile.open(folder / ARCHIVE, "w:xz") as archive:
        _entry(archive, "ImageSets/train.txt", "\n".join(names[:40]).encode())
        _entry(archive, "ImageSets/val.txt", "\n".join(names[40:]).encode())
        for i, name in enumerate(names):
            mask = np.zeros((48, 64), np.uint8)
            mask[10:20, 10:30] = 12
            mask[30:40, 5:9] = VOID
            if i % 4 == 0:
                mask[:16, 48:] = CAT
            image = rng.integers(0, 256, (48, 64, 3), dtype=np.uint8)
            _entry(archive, f"JPEGImages/{name}.jpg", _encoded(image, "JPEG"))
            _entry(archive, f"SegmentationClass/{name}.png", _encoded(mask, "PNG"))
    return folder


@pytest.fixture(scope="module")
def voc(fake):
    return read_voc(fake)


@pytest.fixture(scope="module")
def phi():
    """A ResNet-50 with random weights and random statistics; scaled so that features stay near 1."""
    torch.manual_seed(0)
    phi = ResNet50()
    with torch.no_grad():
        for module in phi.modules():
            if isinstance(module, BatchNorm):
                module.weight.uniform_(0.3, 0.7)
                module.bias.normal_(0, 0.2)
                module.running_mean.normal_(0, 0.5)
                module.running_var.uniform_(0.5, 2)
    return phi


def test_the_archive_is_read_in_one_geometry(voc):
    assert voc.images.shape == (60, SIDE, SIDE, 3)
    assert voc.masks.shape == (60, SIDE, SIDE)
    assert voc.training.sum() == 40
    np.testing.assert_array_equal(voc.cats, np.arange(60) % 4 == 0)
    assert set(np.unique(voc.masks)) == {0, CAT, 12, VOID}  # nothing is blended
    rows, columns = np.nonzero(voc.masks[0] == CAT)
    assert (rows.max() + 1, columns.min()) == (75, 168)  # a third of the height, from three quarters of the width


def test_a_cache_gives_the_same_without_the_archive(fake, voc, tmp_path):
    read_voc(fake / ARCHIVE, cache=tmp_path / "deep" / "voc.npz")
    again = read_voc(tmp_path / "gone", cache=tmp_path / "deep" / "voc.npz")
    np.testing.assert_array_equal(again.images, voc.images)
    np.testing.assert_array_equal(again.masks, voc.masks)
    np.testing.assert_array_equal(again.training, voc.training)
    assert again.names == voc.names
    with pytest.raises(FileNotFoundError, match=f"give the folder that holds {ARCHIVE}"):
        read_voc(tmp_path / "gone")


@pytest.mark.parametrize("seed", [0, 1])
def test_bags_are_what_they_say(voc, seed):
    split = make_bags(voc, seed, counts=(200, 60, 80))
    assert [len(bags) for bags in split] == [200, 60, 80]
    for bags in split:
        for members, label in zip(bags.members, bags.labels, strict=True):
            assert 3 <= len(members) <= 5
            assert len(set(members.tolist())) == len(members)
            assert label == int((voc.masks[members] == CAT).any())
        assert bags.labels[:20].sum() == 10
        assert bags.labels.mean() == 0.5
        for label in (0, 1):  # the size of a bag says nothing of its label
            sizes = Counter(len(m) for m, y in zip(bags.members, bags.labels, strict=True) if y == label)
            assert min(sizes[size] for size in (3, 4, 5)) >= len(bags) / 2 / 3 / 2
    training, validation, test = (set(bags.used.tolist()) for bags in split)
    assert not training & validation
    assert not (training | validation) & test
    assert all(voc.training[list(training | validation)])
    assert not voc.training[list(test)].any()
    assert len(validation) == 10
    assert voc.cats[list(validation)].sum() in (2, 3)  # a quarter of ten, rounded
    cats = [int(voc.cats[m].sum()) for m, y in zip(split.training.members, split.training.labels, strict=True) if y]
    assert min(cats) == 1
    assert max(cats) > 1


def test_bags_depend_on_the_seed_alone(voc):
    one, two, other = make_bags(voc, 3, (60, 20, 20)), make_bags(voc, 3, (20, 20, 40)), make_bags(voc, 4, (60, 20, 20))
    for a, b in zip(one, two, strict=True):
        for x, y in zip(a.members, b.members, strict=False):
            np.testing.assert_array_equal(x, y)
    assert any(not np.array_equal(x, y) for x, y in zip(one.test.members, other.test.members, strict=True))
    assert set(one.validation.used) != set(other.validation.used)


def test_bags_that_cannot_be_made_say_why(voc):
    with pytest.raises(ValueError, match="give even numbers"):
        make_bags(voc, counts=(3, 2, 2))
    with pytest.raises(ValueError, match="validation bags need an image with a cat and 5 without"):
        make_bags(voc, counts=(4, 2, 2), held_out=0.05)


def test_pixels_and_beginnings(voc):
    bags = make_bags(voc, counts=(10, 4, 6)).test
    cat, known = bags.pixels(0)
    assert cat.shape == known.shape == (len(bags.members[0]), SIDE, SIDE)
    assert cat.any()
    assert not (cat & ~known).any()
    assert not known.all()
    assert len(bags.first(4)) == 4


def test_superpixels_are_made_once_per_image(tmp_path, monkeypatch):
    rng = np.random.default_rng(1)
    images = np.repeat(np.repeat(rng.integers(0, 256, (3, 4, 4, 3), dtype=np.uint8), 8, 1), 8, 2)
    cache = tmp_path / "maps.npz"
    maps = superpixels(images[[0, 1, 0]], cache, workers=2)
    assert maps.dtype == np.uint8
    np.testing.assert_array_equal(maps[0], maps[2])
    np.testing.assert_array_equal(maps[1], segment(images[1]))
    for labels in maps:
        assert set(np.unique(labels)) == set(range(int(labels.max()) + 1))
    made = []
    monkeypatch.setattr("experiments.images.bags.segment", lambda image: made.append(image) or segment(image))
    np.testing.assert_array_equal(superpixels(images, cache, workers=1)[:2], maps[:2])
    assert len(made) == 1  # the third image alone was new
    superpixels(images[::-1], cache, workers=1)
    assert len(made) == 1


def test_two_processes_that_fill_one_cache_lose_nothing(tmp_path, monkeypatch):
    images = np.repeat(np.arange(3, dtype=np.uint8) * 80, 16 * 16 * 3).reshape(3, 16, 16, 3)
    cache = tmp_path / "maps.npz"

    def meanwhile(image):
        monkeypatch.setattr("experiments.images.bags.segment", segment)
        superpixels(images[1:2], cache, workers=1)  # the other one, done while this one still works
        return segment(image)

    monkeypatch.setattr("experiments.images.bags.segment", meanwhile)
    superpixels(images[:1], cache, workers=1)
    with np.load(cache) as kept:
        assert len(kept["keys"]) == 2


def test_the_first_convolution_of_a_stage_has_the_stride(phi):
    for k in (2, 3, 4):
        stage = getattr(phi, f"layer{k}")
        assert stage[0].conv1.stride == stage[0].downsample[0].stride == (2, 2)
        assert stage[0].conv2.stride == (1, 1)
        assert all(block.conv1.stride == (1, 1) and block.downsample is None for block in list(stage)[1:])
    assert phi.layer1[0].conv1.stride == phi.layer1[0].downsample[0].stride == (1, 1)
    assert sum(p.numel() for p in phi.parameters()) == 25_557_032 - 1000 * 2049  # torchvision's, less its last layer


def test_folding_is_the_same_function_with_the_same_gradients():
    torch.manual_seed(1)
    conv, norm = torch.nn.Conv2d(3, 5, 3, 2, 1, bias=False).double(), BatchNorm(5).double()
    with torch.no_grad():
        norm.weight.normal_()
        norm.bias.normal_()
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.1, 3)
    reference = torch.nn.BatchNorm2d(5).double().eval()
    reference.load_state_dict(norm.state_dict(), strict=False)
    x = torch.randn(2, 3, 9, 9, dtype=torch.float64)
    weight, bias = fold(conv, norm)
    folded, plain = F.conv2d(x, weight, bias, 2, 1), reference(conv(x))
    torch.testing.assert_close(norm(conv(x)), plain)
    torch.testing.assert_close(folded, plain)
    for a, b in zip(
        torch.autograd.grad(folded.square().sum(), (conv.weight, norm.weight, norm.bias)),
        torch.autograd.grad(plain.square().sum(), (conv.weight, reference.weight, reference.bias)),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


def test_the_fast_copy_agrees(phi):
    images = np.random.default_rng(2).integers(0, 256, (3, SIDE, SIDE, 3), dtype=np.uint8)
    expected = features(phi, images, "cpu", batch=3)
    assert 0.05 < float(expected.std()) < 50
    fast = FastPhi(phi, batch=2)  # three images: a whole batch and a part of one
    scale = float(expected.abs().max())
    torch.testing.assert_close(fast(images), expected, rtol=0, atol=1e-4 * scale)
    torch.testing.assert_close(fast(normalise(torch.from_numpy(images))), expected, rtol=0, atol=1e-4 * scale)
    phi.folded = True
    torch.testing.assert_close(features(phi, images, "cpu", batch=3), expected, rtol=0, atol=1e-4 * scale)
    phi.folded = False
    assert fast(images[:0]).shape == (0, 2048)
    with pytest.raises(ValueError, match=r"must be \(n, 224, 224, 3\), not \(3, 3, 224, 224\)"):
        fast(images.transpose(0, 3, 1, 2))


def test_a_bag_is_the_sum_of_its_images(phi):
    torch.manual_seed(3)
    model = DeepSets()
    known = torch.rand(4, 2048)
    used, members = np.array([2, 5, 7, 9]), [np.array([9, 2, 5]), np.array([7, 9])]
    got = predict(model, known, used, members)
    for bag, rows in enumerate(([3, 0, 1], [2, 3])):
        hidden = (model.rho[0].weight @ known[rows].sum(0) + model.rho[0].bias).clamp(min=0)
        logits = model.rho[2].weight @ hidden + model.rho[2].bias
        assert float(got[bag].detach()) == pytest.approx(float(logits.softmax(0)[1].detach()), abs=1e-6)
    model.phi = phi
    images = np.random.default_rng(4).integers(0, 256, (3, SIDE, SIDE, 3), dtype=np.uint8)
    members = [np.array([2, 0]), np.array([1, 2, 0])]
    with torch.no_grad():
        x = normalise(torch.from_numpy(images[[2, 0, 1, 2, 0]]))
        whole = model(x, torch.tensor([0, 0, 1, 1, 1]), 2)
    once = predict(model, features(phi, images, "cpu"), np.arange(3), members)
    torch.testing.assert_close(whole[:, 1], once)
    fast = FastPhi(model, batch=4)
    assert max(agreement(model, fast, images, members)) < 1e-4
    fast._stem = (fast._stem[0] * 1.5, *fast._stem[1:])
    assert min(agreement(model, fast, images, members)) > 1e-4  # it is not always small


def test_weights_survive_a_file(phi, tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    model = DeepSets()
    model.phi = phi
    with torch.no_grad():
        model.phi.bn1.running_var[0] = 1e6  # does not fit fp16
    parts = model.save(tmp_path / "parts.safetensors", part_mib=16)
    assert [path.name.rpartition(".")[2] for path in parts] == ["part0", "part1", "part2", "part3"]
    assert all(path.stat().st_size <= 16 * 2**20 for path in parts)
    (whole,) = model.save(tmp_path / "whole.safetensors")
    theirs = safetensors.load_file(whole)
    again = DeepSets.load(tmp_path / "parts.safetensors").state_dict()
    assert set(theirs) == set(again) == set(model.state_dict())
    for name, tensor in model.state_dict().items():
        expected = tensor.numpy()
        if tensor.ndim > 1:
            expected = expected.astype(np.float16).astype(np.float32)
        np.testing.assert_array_equal(again[name].numpy(), expected)
        np.testing.assert_array_equal(theirs[name].astype(np.float32), expected)
    safetensors.save_file({"a": np.arange(3.0), "b": np.ones((2, 2), np.float16)}, tmp_path / "theirs.safetensors")
    np.testing.assert_array_equal(weights.read(tmp_path / "theirs.safetensors")[0]["a"], np.arange(3.0))
    with pytest.raises(FileNotFoundError, match=r"train them with 'python -m experiments.images.train .*none'"):
        DeepSets.load(tmp_path / "none")
    with pytest.raises(FileNotFoundError, match=f"give --data the folder that holds {IMAGENET.name}"):
        DeepSets.pretrained(tmp_path / IMAGENET.name)
    with torch.no_grad():
        phi.bn1.running_var[0] = 1
        model.rho[0].weight[0, 0] = 1e6
    with pytest.raises(ValueError, match="is not finite in float16"):
        model.save(tmp_path / "overflow.safetensors")


def test_batches_hold_as_many_images_each_and_every_bag_in_turn(voc):
    bags = make_bags(voc, counts=(120, 4, 4)).training
    stream = train.batches(bags, 8, np.random.default_rng(0))
    seen: Counter[int] = Counter()
    for _ in range(30):
        chosen = next(stream)
        assert len(chosen) == 8
        assert sum(len(bags.members[bag]) for bag in chosen) == 32
        seen.update(chosen.tolist())
        for size in (3, 4, 5):
            turns = [seen[bag] for bag in range(120) if len(bags.members[bag]) == size]
            assert max(turns) - min(turns) <= 1
    with pytest.raises(ValueError, match="a batch of 600 needs 200 bags of 3"):
        next(train.batches(bags, 600, np.random.default_rng(0)))


def test_variations_are_crops_of_the_image():
    ramp = np.broadcast_to(np.arange(SIDE, dtype=np.uint8)[:, None, None], (16, SIDE, SIDE, 3))
    varied = train.vary(torch.from_numpy(ramp.copy()), torch.Generator().manual_seed(0))
    assert varied.shape == (16, 3, SIDE, SIDE)
    assert float((varied[..., 1:] - varied[..., :-1]).abs().max()) < 1e-3  # still the same along a row
    assert bool((varied.diff(dim=2) >= -1e-3).all())  # never upside down
    whole = float(normalise(torch.from_numpy(ramp[:1].copy()))[0, 0, -1, 0])
    assert float(varied.abs().max()) <= 1.3 * 1.3 * abs(whole) + 3
    assert len({round(float(v), 3) for v in varied.mean((1, 2, 3))}) > 8  # each in its own way
    columns = torch.from_numpy(ramp.copy()).transpose(1, 2)
    ways = train.vary(columns, torch.Generator().manual_seed(0))[:, 0, 0]
    assert 0 < int((ways[:, -1] > ways[:, 0]).sum()) < 16  # some are mirrored


def test_a_score_counts_and_breaks_ties_by_loss(voc, monkeypatch):
    bags = Bags(voc.images, voc.masks, voc.cats, (np.arange(3), np.arange(3, 7), np.arange(2)), np.array([1, 0, 1]))
    model = DeepSets()
    known = {3: 0.9, 4: 0.8, 2: 0.4}
    monkeypatch.setattr(train, "features", lambda phi, images, device: torch.zeros(len(images), 2048))
    monkeypatch.setattr(train, "predict", lambda m, f, u, members: torch.tensor([known[len(x)] for x in members]))
    got = train.score(model, bags)
    assert got.accuracy == pytest.approx(1 / 3)
    assert got.loss == pytest.approx(-np.log([0.9, 0.2, 0.4]).mean(), rel=1e-6)
    assert train.Score(0.9, 0.5).better(train.Score(0.9, 0.6))
    assert not train.Score(0.91, 0.7).better(train.Score(0.9, 0.6))
    assert not train.Score(0.9, 0.6).better(train.Score(0.9, 0.6))
    assert train.Score(0.1, 9).better(None)


@pytest.mark.slow
def test_training_runs_from_the_archive_to_the_file(fake, tmp_path, capsys):
    out = tmp_path / "net.safetensors"
    command = f"--data {fake} --weights none --out {out} --device cpu --counts 24 4 4 --batch 1 --steps 1"
    result = train.main([*command.split(), "--phi-rate", "1e-5", "1e-4", "--seeds", "0", "--evaluate-every", "1000"])
    printed = capsys.readouterr().out
    assert printed.count("validation accuracy") == 4  # once for each rate, their mean, and as written
    assert printed.count("test accuracy") == 1
    assert max(result["agreement"]) < 1e-3
    bags = make_bags(read_voc(fake), counts=(24, 4, 4))
    assert train.score(DeepSets.load(out), bags.test).accuracy == result["test_accuracy"]


def test_training_learns_bags_it_can_learn(voc, monkeypatch):
    """With a phi that sees colour alone, a running mean of the weights comes to tell red bags from grey ones."""

    class Colour(torch.nn.Module):
        folded = False

        def __init__(self):
            super().__init__()
            self.conv1 = torch.nn.Conv2d(3, 2048, 1)

        def forward(self, x):
            return self.conv1(x.mean((2, 3), keepdim=True)).relu().flatten(1).float()

    images = np.full((60, SIDE, SIDE, 3), 90, np.uint8)
    images[voc.cats, :, :, 0] = 220
    split = make_bags(type(voc)(images, voc.masks, voc.names, voc.training), counts=(60, 40, 4))
    torch.manual_seed(0)
    model = DeepSets()
    model.phi = Colour()
    command = "--out x --device cpu --batch 4 --steps 25 --keep 0.8 --evaluate-every 1000"
    args = train.arguments(command.split())
    best, score, log = train.fit(model, split.training, split.validation, 1e-3, 0, args)
    assert score.accuracy >= 0.9
    assert train.score(best, split.validation) == score
    assert log[-1]["step"] == 25


@pytest.mark.slow
def test_imagenet_knows_cats(shared):
    """The strides, the statistics and the normalisation are right, or a cat is anything but a cat."""
    voc = read_voc(shared)
    assert (voc.cats & voc.training).sum() == 131
    assert (voc.cats & ~voc.training).sum() == 119
    read, _ = weights.read(shared / IMAGENET.name)
    model = DeepSets.pretrained(shared / IMAGENET.name)
    some = np.flatnonzero(voc.cats)[:8]
    logits = features(model.phi, voc.images[some], "cpu") @ torch.from_numpy(read["fc.weight"]).float().T
    best = (logits + torch.from_numpy(read["fc.bias"])).argmax(1)
    assert int(((best >= 281) & (best <= 285)).sum()) >= 4


@pytest.mark.slow
def test_no_activation_leaves_the_range_of_half_precision(shared, in_half_precision):
    in_half_precision(
        f"""
        import numpy as np, torch
        from experiments.images.network import DeepSets, FastPhi
        from experiments.images.bags import read_voc
        from pathlib import Path

        voc = read_voc(Path({str(shared)!r}))
        model = DeepSets.pretrained(Path({str(shared / IMAGENET.name)!r}))
        half = FastPhi(model, dtype=torch.float16)(voc.images[np.flatnonzero(voc.cats)[:2]])
        assert bool(torch.isfinite(half).all())
        """
    )

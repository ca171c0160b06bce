"""Both experiments from end to end, small, and the networks' two ends against inputs that are masked one by one."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from running import RUNNER

ROOT = Path(__file__).resolve().parents[2]
pytest.importorskip("experiments", reason="the experiments are in a clone, not in a source distribution")
torch = pytest.importorskip("torch")
for needed in ("pandas", "pyarrow", "PIL", "skimage", "matplotlib"):
    pytest.importorskip(needed)

import pandas as pd
from experiments.__main__ import app
from experiments.harness import reading, settings, showing
from experiments.harness.command import Options
from experiments.harness.examples import BagExample, ReviewExample, load_examples
from experiments.harness.grid import network_of
from experiments.harness.items import Item, masker
from experiments.harness.queries import VARIANTS, compare
from experiments.harness.reproduce import SCALES, Domain
from experiments.images import run as images
from experiments.images.answers import BagNetwork
from experiments.images.network import MEAN, STD
from experiments.text import run as text
from experiments.text.answers import ReviewNetwork
from experiments.text.network import Classifier, Shape
from experiments.text.reviews import CLS, MASK, SEP, Review

from c2fa import Structure
from c2fa.asking.masking import MaskedBatch, MaskedRows
from c2fa.graph import chain
from c2fa.maskers import ImageBag
from c2fa.models import Lazy

# ------------------------------------------------------------------------------------------------ bags of images

SIDE = 32


class Bags:
    """Random images with random super-pixels, in bags that share some of them, and a small network."""

    def __init__(self, seed: int = 0, segments: tuple[int, ...] = (3, 9, 5, 12, 7, 4)) -> None:
        rng = np.random.default_rng(seed)
        self.images = rng.integers(0, 256, (len(segments), SIDE, SIDE, 3), dtype=np.uint8)
        self.labels = np.stack([self.map(rng, count) for count in segments])
        self.members = [np.array([0, 1, 2]), np.array([3, 1, 5, 4]), np.array([2, 2, 0])]
        self.items = [
            Item(number, np.repeat(np.arange(len(bag)), [segments[k] for k in bag]))
            for number, bag in enumerate(self.members)
        ]
        torch.manual_seed(seed)
        self.phi = torch.nn.Sequential(
            torch.nn.Conv2d(3, 6, 5, 3),
            torch.nn.Tanh(),
            torch.nn.Conv2d(6, 8, 3, 2),
            torch.nn.Flatten(),
            torch.nn.Linear(128, 10),
            torch.nn.ReLU(),
        ).requires_grad_(False)
        self.rho = torch.nn.Sequential(torch.nn.Linear(10, 2), torch.nn.Softmax(1)).requires_grad_(False)

    @staticmethod
    def map(rng: np.random.Generator, count: int) -> Any:
        """Stripes and patches: a map in which every one of so many labels occurs."""
        labels = rng.integers(0, count, (8, 8))
        labels.flat[rng.permutation(64)[:count]] = np.arange(count)
        return labels.repeat(SIDE // 8, 0).repeat(SIDE // 8, 1).astype(np.uint8)

    def network(self, batch: int, **options: Any) -> BagNetwork:
        options = {"mean": MEAN, "std": STD, "device": "cpu", "batch": batch, **options}
        return BagNetwork(self.images, self.labels, self.members, self.phi, self.rho, **options)

    def literal(self, item: Item, masks: Any, level: int) -> Any:
        """Every bag painted as a user's masker paints it, every image of it put through the network by itself."""
        bag = self.members[item.number]
        normal = ((self.images[bag] / 255 - MEAN) / STD).astype(np.float32).transpose(0, 3, 1, 2)
        segment = [self.labels[k].astype(int) for k in bag]
        masked = ImageBag(segment=segment, absent="fill", fill=0, channels="first")(list(normal))
        assert masked.structure.owners(0).tolist() == item.owner.tolist()
        rows = []
        for painted in masked.inputs(np.asarray(masks), level):
            vectors = [self.phi(torch.from_numpy(np.ascontiguousarray(image))[None])[0] for image in painted]
            rows.append(self.rho(torch.stack(vectors).sum(0)[None])[0].numpy())
        return np.array(rows)

    def draw(self, number: int, count: int, level: int, seed: int) -> tuple[Item, Any, MaskedRows]:
        """An item, masks of one of its levels, and the same as rows."""
        item = self.items[number]
        width = Structure.from_groups(item.owner.tolist()).widths[level]
        masks = np.random.default_rng(seed).random((count, width)) < 0.5
        masks[-2:] = [[True], [False]]  # all there, nothing there
        return item, masks, MaskedRows(masker(item).inputs, masks, level)


@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_bag_is_answered_as_if_each_masked_image_were_painted(number: int, level: int) -> None:
    bags = Bags()
    item, masks, rows = bags.draw(number, 12, level, seed=number)
    network = bags.network(batch=5)
    assert network.encode_inputs(rows.inputs) is rows.inputs
    assert network.encode_inputs(bags) is None
    got, expected = network(MaskedBatch([rows])), bags.literal(item, masks, level)
    assert np.ptp(expected[:, 1]) > 0.02
    np.testing.assert_allclose(got, expected, atol=1e-6)
    np.testing.assert_array_equal(bags.network(batch=5)(rows.rendered()), got)
    np.testing.assert_array_equal(network.launch(MaskedBatch([rows]))(), got)


def distinct(item: Item, masks: Any, level: int) -> set[tuple[int, bytes]]:
    """The masked images of some rows."""
    leaves = Structure.from_groups(item.owner.tolist()).expand(masks, level)
    return {(j, row[item.owner == j].tobytes()) for row in leaves for j in range(item.owner.max() + 1)}


def test_a_masked_image_is_embedded_once_while_its_bag_is_asked_about() -> None:
    bags = Bags()
    network = bags.network(batch=4)
    known: set[tuple[int, bytes]] = set()
    for seed, level in ((0, 1), (1, 0), (0, 1), (2, 1)):  # the third was asked before
        item, masks, rows = bags.draw(1, 8, level, seed)
        before = network.work
        np.testing.assert_allclose(network(MaskedBatch([rows])), bags.literal(item, masks, level), atol=1e-6)
        asked = distinct(item, masks, level)
        assert network.work - before == len(asked - known)
        known |= asked
    assert network.work == len(known)
    network.forget()
    network(MaskedBatch([rows]))
    assert network.work == len(known) + len(asked)


def test_bags_that_are_no_longer_asked_about_are_dropped() -> None:
    bags = Bags()
    network = bags.network(batch=8, bags=2)
    drawn = [bags.draw(number, 6, 1, number) for number in (0, 1, 2)]
    network(MaskedBatch([rows for _, _, rows in drawn]))  # a batch may hold more bags than are kept
    assert list(network.tables) == [1, 2]
    before = network.work
    network(MaskedBatch([drawn[1][2]]))
    assert network.work == before
    item, masks, rows = drawn[0]
    np.testing.assert_allclose(network(MaskedBatch([rows])), bags.literal(item, masks, 1), atol=1e-6)
    assert list(network.tables) == [1, 0]  # that of bag 2 was not asked about for the longest time
    assert network.work == before + len(distinct(item, masks, 1))


def test_bags_in_one_batch_do_not_mix() -> None:
    bags = Bags()
    network = bags.network(batch=7)
    for turn in range(4):
        level = turn % 2
        some = [bags.draw((k + turn // 2) % 3, 3 + k + turn, level, 10 * turn + k) for k in range(4)]  # one bag twice
        answers = network(MaskedBatch([rows for _, _, rows in some]))
        expected = np.concatenate([bags.literal(item, masks, level) for item, masks, _ in some])
        np.testing.assert_allclose(answers, expected, atol=1e-6)


def test_a_table_grows_and_keeps_what_it_has() -> None:
    bags = Bags(segments=(16, 16, 16, 3, 3, 3))
    network = bags.network(batch=512)
    item, masks, rows = bags.draw(0, 500, 1, 0)
    first = network(MaskedBatch([rows]))
    small = len(network.tables[0].vectors)
    network(MaskedBatch([bags.draw(0, 1200, 1, 1)[2]]))
    assert len(network.tables[0].vectors) > small
    before = network.work
    np.testing.assert_array_equal(network(MaskedBatch([rows])), first)
    assert network.work == before
    np.testing.assert_allclose(first[:40], bags.literal(item, masks[:40], 1), atol=1e-6)


# ------------------------------------------------------------------------------------------------ reviews


def review(length: int, seed: int) -> Review:
    rng = np.random.default_rng(seed)
    owner = np.sort(np.concatenate([np.arange(3), rng.integers(0, 3, length - 3)]))
    ids = rng.integers(110, 140, length)
    return Review(ids, owner, tuple(map(str, ids)), ("a", "b", "c"), 1, "", seed)


def test_the_network_reads_the_rows_that_a_review_writes() -> None:
    reviews = [review(9, 0), review(17, 1), review(8, 2)]
    items = [Item(k, one.owner) for k, one in enumerate(reviews)]
    read: list[Any] = []

    def classify(ids: Any) -> Any:
        read.append(ids.numpy())
        return torch.zeros(len(ids), 2)

    network = ReviewNetwork([r.ids for r in reviews], classify, (CLS, SEP, MASK), device="cpu", tokens=40)
    rng = np.random.default_rng(0)
    pieces = 0
    for level in (0, 1):
        for item, one in zip(items, reviews, strict=True):
            masks = rng.random((7, one.structure.widths[level])) < 0.5
            rows = MaskedRows(masker(item).inputs, masks, level)
            assert network.encode_inputs(rows.inputs) is rows.inputs
            assert network(rows.rendered()).shape == (7, 2)
            assert all(ids.size <= 40 for ids in read)
            np.testing.assert_array_equal(np.concatenate(read), one.rows(one.structure.expand(masks, level)))
            pieces += sum(ids.size for ids in read)
            read.clear()
    assert network.work == pieces


def test_answers_go_to_the_review_that_was_asked_about() -> None:
    torch.manual_seed(0)
    model = Classifier(Shape(vocabulary=140, positions=24, width=12, hidden=20, heads=3, layers=2)).eval()
    with torch.no_grad():
        for value in model.parameters():
            value.normal_(0, 0.5)
    reviews = [review(9, 0), review(17, 1), review(8, 2), review(9, 3)]
    batches: list[tuple[int, ...]] = []

    def classify(ids: Any) -> Any:
        batches.append(tuple(ids.shape))
        return model.forward_same_length(ids).softmax(-1)

    network = ReviewNetwork([r.ids for r in reviews], classify, (CLS, SEP, MASK), device="cpu", tokens=110)
    rng = np.random.default_rng(1)
    asked = [(k, rng.random((5 + k, len(reviews[k].ids))) < 0.5) for k in (2, 0, 1, 0, 3)]
    answers = network(
        MaskedBatch([MaskedRows(masker(Item(k, reviews[k].owner)).inputs, masks, 1) for k, masks in asked])
    )
    assert sorted(batches) == [(1, 19), (5, 19), (7, 10), (8, 11), (10, 11)]  # reviews of one length together
    expected = np.concatenate([model.predict(reviews[k].rows(masks)) for k, masks in asked])
    assert np.ptp(expected) > 0.01
    np.testing.assert_allclose(answers, expected, atol=1e-6)


# ------------------------------------------------------------------------------------------------ examples


def test_examples_are_the_first_inputs_and_are_made_once(tmp_path: Path) -> None:
    bags = Bags()
    model = Lazy(lambda: bags.network(batch=8))
    items = [Item(item.number, item.owner, (np.arange(len(bags.members[item.number])) == 1,)) for item in bags.items]
    domain = Domain("images", items[:0], items, model, 20, (), 1)
    strengths = [("C2FA", 0.1, 0.1, 0.1), ("LIME", 0.1, 0.1, None), ("C2FA intercept", 0.1, 0.1, None)]
    rows = [{"method": m, "parts": p, "leaves": q, "mu2": mu2, "chosen": True} for m, p, q, mu2 in strengths]
    (tmp_path / "tuned.json").write_text(json.dumps(rows))

    def describe(name: str, item: Item, values: Any, e: Any, budget: tuple[int, int]) -> BagExample:
        bag = bags.members[item.number]
        return BagExample(name, bags.images[bag], bags.labels[bag], item.truth[0], values, e.prediction, budget)

    assert showing.keep_examples(domain, tmp_path, describe, count=2, n_l=30) == ["0", "1"]
    asked = network_of(model).work
    assert showing.keep_examples(domain, tmp_path, describe, count=2, n_l=30) == []
    assert network_of(model).work == asked
    assert showing.keep_examples(domain, tmp_path, describe, count=3, n_l=30) == ["2"]
    assert showing.keep_examples(domain, tmp_path, describe, count=3, n_l=30, methods=["BU-LIME", "C2FA paired"]) == [
        "0",
        "1",
        "2",
    ]  # BU-LIME has LIME's strengths; those of C2FA paired were not chosen
    found = load_examples(tmp_path)
    assert [one.name for one in found] == ["0", "1", "2"]
    for one, item in zip(found, items, strict=True):
        assert list(one.values) == ["BU-LIME"]
        assert one.budget == (20, 30)
        assert one.prediction == pytest.approx(
            bags.literal(item, np.ones((1, len(item.owner)), bool), 1)[0, 1], abs=1e-5
        )
        parts, leaves = (np.asarray(v) for v in one.values["BU-LIME"])
        np.testing.assert_allclose(np.bincount(item.owner, leaves), parts, atol=1e-4)


# ------------------------------------------------------------------------------------------------ what budgets buy


def test_variants_are_compared_on_validation_inputs_and_on_test_inputs(tmp_path: Path) -> None:
    bags = Bags()
    items = []
    for item in bags.items:
        counts = np.random.default_rng(item.number).integers(1, 9, (len(item.owner), 2)).astype(float)
        graph = chain(item.owner)
        items.append(
            Item(item.number, item.owner, (np.arange(item.owner.max() + 1) == 1, counts), graph, smooth_by_default=True)
        )
    wanted = ("ndcg", "auroc", "deletion of leaves", "mihl")
    domain = Domain("images", items[:1], items[1:], Lazy(lambda: bags.network(batch=8)), 20, wanted, 1)
    compare(domain, tmp_path, small=True)
    for name, count in (("queries-validation", 1), ("queries", 2)):
        found = pd.read_parquet(tmp_path / f"{name}.parquet")
        assert set(found["method"]) == set(VARIANTS)
        assert len(found) == len(VARIANTS) * count
        assert found[[*wanted, "ndcg of exact parts"]].notna().all(axis=None)
        assert json.loads((tmp_path / f"{name}.json").read_text())["inputs"] == count
        assert found.groupby("input")["ndcg of exact parts"].nunique().max() == 1  # whatever the method


# ------------------------------------------------------------------------------------------------ end to end

EXACT = ("C2FA exact", "C2FA intercept", "C2FA paired", "C2FA-MILLI")


@pytest.fixture
def cache(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """What an earlier run decoded or tokenised, where there is one; otherwise a folder that goes away."""
    name, file = request.param
    kept = ROOT / "build" / name
    made = tmp_path / "cache"
    yield kept if (kept / file).exists() else made
    shutil.rmtree(made, ignore_errors=True)


def twice(main: Any, options: Options, capsys: pytest.CaptureFixture[str]) -> pd.DataFrame:
    """Run an experiment, then again, which finds everything done; return its scores."""
    folder = options.out
    main(options)
    assert "there is no trained network" in capsys.readouterr().out
    scores = pd.read_parquet(folder / "scores.parquet")
    kept = ["tuned.json", "examples.json", *(str(p.relative_to(folder)) for p in folder.glob("*/results-*/*"))]
    assert len(kept) > 4
    before = {name: (folder / name).stat().st_mtime_ns for name in kept}
    main(options)
    assert "\n0 rows through the network" in capsys.readouterr().out
    assert {name: (folder / name).stat().st_mtime_ns for name in kept} == before
    pd.testing.assert_frame_equal(pd.read_parquet(folder / "scores.parquet"), scores)
    return scores


def check_scores(scores: pd.DataFrame, many: int, metrics: tuple[str, ...]) -> None:
    small = SCALES["small"]
    assert set(scores["method"]) == {*settings.PAPER_METHODS, *settings.OUR_METHODS}
    assert set(scores["N_H"]) == {5, many}
    assert set(scores["N_L"]) == set(small.leaf_rows)
    assert set(scores["input"]) == set(range(small.test))
    assert len(scores) == 12 * 2 * len(small.leaf_rows) * small.test * len(small.seeds)
    names = {"insertion@0": "insertion of parts", "deletion@0": "deletion of parts"}
    wanted = {names.get(name, name) for name in metrics}
    assert set(scores.columns) == {"method", "N_H", "N_L", "seed", "input", *wanted}
    curves = (scores["N_H"] == many) & (scores["input"] < small.curves)
    for name in wanted - {"consistency", "mihl"}:
        there = scores[name].notna()
        assert (there == curves if name.endswith("of leaves") else there).all(), name
        assert scores[name].dropna().between(-1e-6, 1 + 1e-6).all(), name
    consistency = scores.groupby(scores["method"].astype(str))["consistency"].max()
    assert (consistency[list(EXACT)] < 1e-6).all()
    assert consistency["LIME"] > 1e-3


def check_reading(results: Path, name: str, labels: tuple[str, ...]) -> None:
    """The results are judged and drawn by the commands."""
    found = reading.read(results)
    assert list(found.domains) == [name]
    assert found[name].about["inputs"] == SCALES["small"].test
    judged = RUNNER.invoke(app, ["claims", "--results", str(results)])
    assert judged.exit_code == 0, judged.output
    assert (results / "claims.csv").exists()
    drawn = RUNNER.invoke(app, ["figures", "--results", str(results), "--out", str(results / "figures")])
    assert drawn.exit_code == 0, drawn.output
    figures = {path.stem for path in (results / "figures").glob("*.png")}
    assert {f"{name}-scores", f"{name}-scores-variants", f"{name}-example-0", f"{name}-example-1"} <= figures
    for one in load_examples(results / name):
        assert tuple(one.values) == labels
        parts, leaves = (np.asarray(v) for v in one.values["C2FA intercept"])
        if isinstance(one, ReviewExample):
            owner = np.asarray(one.owner)
        else:
            owner = np.repeat(np.arange(len(one.labels)), [int(label.max()) + 1 for label in one.labels])
        np.testing.assert_allclose(np.bincount(owner, leaves), parts, atol=1e-4)


@pytest.mark.parametrize("cache", [("images", "voc.npz")], indirect=True)
def test_the_image_experiment_runs(
    shared: Path, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "results" / "images"
    none = tmp_path / "none.safetensors"
    options = images.DEFAULTS.options(data=shared, cache=cache, out=folder, device="cpu", model=none)
    scores = twice(images.main, options, capsys)
    check_scores(scores, images.N_H, images.METRICS)
    check_reading(tmp_path / "results", "images", showing.METHODS)
    about = json.loads((folder / "about.json").read_text())
    assert max(about["mean and largest difference to fp32"]) < 1e-4
    assert 0.5 < about["trivial auroc"] <= 1


@pytest.mark.parametrize("cache", [("text", "reviews.npz.xz")], indirect=True)
def test_the_text_experiment_runs(
    shared: Path, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("tokenizers")
    folder = tmp_path / "results" / "text"
    none = tmp_path / "none.safetensors"
    options = text.DEFAULTS.options(data=shared, cache=cache, out=folder, device="cpu", model=none)
    scores = twice(text.main, options, capsys)
    check_scores(scores, text.N_H, text.METRICS)
    check_reading(tmp_path / "results", "text", showing.METHODS)
    text.main(dataclasses.replace(options, queries=True))
    bought = pd.read_parquet(folder / "queries.parquet")
    assert set(bought["method"]) == {label for label, (_, options) in VARIANTS.items() if "smooth" not in options}
    assert bought["held-out correlation"].notna().all()
    assert bought["deletion of leaves"].notna().all()
    for one in load_examples(folder):
        assert isinstance(one, ReviewExample)
        assert one.target in text.CLASSES
        assert one.prediction >= 0.5
        assert len(one.pieces) <= text.SHORT
    bundle = text.read_bundle(cache / text.REVIEWS)
    short = [one for one in bundle.validation if len(one.ids) <= text.SHORT][:25]
    assert text.accuracy(text.quick(bundle, cache / text.ENCODER), short) > 0.7


def test_a_large_run_wants_a_trained_network(tmp_path: Path) -> None:
    cached = ROOT / "build" / "text"
    if not (cached / text.REVIEWS).exists():
        pytest.skip("the reviews are not tokenised here; 'python -m experiments.text.reviews' does it")
    with pytest.raises(FileNotFoundError, match=r"'python -m experiments\.text\.train --out .*none"):
        text.main(text.DEFAULTS.options(scale="paper", data=cached, model=tmp_path / "none", out=tmp_path))

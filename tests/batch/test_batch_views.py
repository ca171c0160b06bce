"""Views over many explanations, against what a plain loop over them gives; and their plots."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import c2fa
from batch_helpers import NAN, explainer, inputs

pytest.importorskip("pyarrow")

from c2fa.batch import Store, many
from c2fa.batch.overview import word

TEXTS = ["Great book. Not great, Great!", "A bad film. I liked the book.", "Bad. Really bad.", "The book was fine."]


def scores(batch: list[str]) -> np.ndarray:
    good = np.array([t.casefold().count("great") - 1.5 * t.casefold().count("bad") for t in batch])
    return np.stack([1 / (1 + np.exp(good)), 1 / (1 + np.exp(-good))], axis=1)


@pytest.fixture
def texts(tmp_path: Path) -> Store:
    made = c2fa.Explainer(scores, c2fa.maskers.Text(), budget=(6, 40), output_names=["no", "yes"], target="yes")
    return many(made, TEXTS, tmp_path / "texts", engine="serial", shard_size=3, precision="float64")


def test_important_names_are_those_of_a_plain_loop(texts: Store) -> None:
    sums: dict[str, list[float]] = {}
    for e in texts:
        here: dict[str, float] = {}
        for name, value in zip(e.names[-1], e.low, strict=True):
            here[word(name)] = here.get(word(name), 0.0) + value
        for name, value in here.items():
            sums.setdefault(name, []).append(value)
    found = {f.name: f for f in texts.important(n=None, least=1)}
    assert found.keys() == sums.keys()
    for name, values in sums.items():
        f = found[name]
        assert f.inputs == len(values)
        assert f.mean == pytest.approx(np.mean(values))
        assert f.mean_abs == pytest.approx(np.abs(values).mean())
        half = 1.96 * np.std(values) / np.sqrt(max(len(values) - 1, 1))
        assert (f.low, f.high) == (pytest.approx(f.mean - half), pytest.approx(f.mean + half))
    top = texts.important(n=2, least=1)
    assert {f.name for f in top} == {"great", "bad"}
    assert texts.important(target="no") == []
    assert {f.name for f in texts.important(n=None, least=1, name=str)} == {n for e in texts for n in e.names[-1]}
    assert {f.name for f in texts.important(0, n=None, least=1)} == {n for e in texts for n in e.names[0]}
    with pytest.raises(IndexError, match=r"level 5 does not exist: the store has levels 0\.\.1"):
        texts.important(level=5)


def test_a_store_and_memory_tell_the_page_the_same(texts: Store) -> None:
    here = c2fa.batch.Explanations.of((None, e) for e in texts)
    both = [found.overall([1, 2, 3]) for found in (texts, here)]
    for a, b in zip(*(made["outputs"] for made in both), strict=True):
        assert a["name"] == b["name"] == "yes"
        assert a["bins"].tolist() == b["bins"].tolist()
        assert [f["cards"] for f in a["features"]] == [f["cards"] for f in b["features"]]
        assert {card for f in a["features"] for card, _ in f["cards"]} <= {0, 1, 2}
    assert both[0]["warnings"] == both[1]["warnings"]
    assert list(texts.briefs()) == list(here.briefs())


def test_warnings_that_differ_in_their_names_and_numbers_are_counted_as_one(tmp_path: Path) -> None:
    xs = inputs(8)
    xs[5][0] = NAN
    store = many(explainer(method="c2fa", budget=(2, 2)), xs, tmp_path / "s", engine="serial", shard_size=3)
    told = store.overall(list(range(8)))
    assert told["failed"] == 1
    assert told["errors"][0]["first"] == [5]
    counted = {w["text"]: w["inputs"] for w in told["warnings"]}
    assert max(counted.values()) == 7
    assert len(counted) < sum(len(e.diagnostics.warnings) for e in store)


def test_plots_draw(texts: Store) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    for kind in ("bars", "beeswarm"):
        [ax] = texts.plot(kind, least=1, target="yes").axes
        assert [t.get_text().split(" ")[0] for t in ax.get_yticklabels()][:1] in (["bad"], ["great"])
        assert "for yes" in ax.get_xlabel()
        ax.figure.canvas.draw()
        plt.close("all")


def test_a_swarm_has_a_dot_for_each_input_that_has_the_name(texts: Store) -> None:
    pytest.importorskip("matplotlib")
    [ax] = texts.plot(least=1).axes
    names = [tick.get_text().rpartition(" (")[0] for tick in ax.get_yticklabels()]
    for name, dots in zip(names, ax.collections, strict=True):
        sums = [
            sum(v for n, v in zip(e.names[-1], e.low, strict=True) if word(n) == name)
            for e in texts
            if name in map(word, e.names[-1])
        ]
        assert sorted(np.asarray(dots.get_offsets())[:, 0]) == pytest.approx(sorted(sums))

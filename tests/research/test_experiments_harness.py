"""The experiments' harness on a network that takes no time: workers, stores, choices, and who asked what."""

from __future__ import annotations

import dataclasses
import doctest
import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("torch")
pytest.importorskip("pyarrow")
pytest.importorskip("experiments", reason="the experiments are in a clone, not in a source distribution")

from experiments.harness import reproduce as reproducing
from experiments.harness import settings, tuning, weights
from experiments.harness.grid import Crew, Grid, Outcome, network_of, run
from experiments.harness.items import Item, item_of, leaves_of, masker
from experiments.harness.network import Network, Outputs

from c2fa.asking.fingerprint import identify
from c2fa.asking.masking import MaskedBatch
from c2fa.evaluation import evaluate
from c2fa.graph import Graph
from c2fa.models import Lazy


def items(count: int) -> list[Item]:
    """Inputs of 3 or 4 parts of 2 to 5 leaves, with a part and leaves that matter."""
    found = []
    for number in range(count):
        rng = np.random.default_rng(number)
        sizes = rng.integers(2, 6, rng.integers(3, 5))
        owner = np.repeat(np.arange(len(sizes)), sizes)
        truth = (np.arange(len(sizes)) == 1, (owner == 1) & (rng.random(len(owner)) < 0.7))
        found.append(Item(number, owner, truth))
    return found


def test_items_of_one_shape_have_masks_of_their_own_whatever_is_known_of_them() -> None:
    owner = np.repeat([0, 1], 3)
    one, other, known = (
        Item(0, owner),
        Item(1, owner),
        Item(0, owner, (np.ones(2),), Graph([[0, 1]]), smooth_by_default=True),
    )
    assert 0 != identify(one).number != identify(other).number
    assert identify(known) == identify(one)


class Sum(Network):
    """A network: a sigmoid of weights that depend on the input's number, largest in the second part."""

    def launch(self, batch: MaskedBatch) -> Callable[[], Outputs]:
        answers = []
        for rows in batch.pieces:
            item = item_of(rows)
            weights = np.random.default_rng(item.number + 99).normal(0.1, 0.1, len(item.owner)) + (item.owner == 1)
            positive = 1 / (1 + np.exp(1.0 - (leaves_of(rows) * weights).sum(axis=1)))
            answers.append(np.stack([1 - positive, positive], axis=1).astype(np.float32))
            self.work += len(rows)
        return lambda: np.concatenate(answers)


def model() -> Lazy:
    return Lazy(Sum)


METRICS = (
    "ndcg",
    "auroc",
    "insertion@0",
    "deletion@0",
    "insertion of leaves",
    "deletion of leaves",
    "consistency",
    "mihl",
)


def small_grid(**changes: Any) -> Grid:
    methods = tuple(
        settings.method(label, settings.Strengths(0.1, 1.0, 0.1 if label == "C2FA" else None))
        for label in ("C2FA", "LIME", "MILLI", "TD-MILLI", "C2FA-MILLI")
    )
    plain = {"masks": ((5, 10), (6, 10), (6, 20)), "seeds": (0, 1), "metrics": METRICS, "leaves_at": 6, "target": 1}
    return Grid(methods, **{**plain, **changes})  # type: ignore[arg-type]


def sorted_frame(outcome: Outcome) -> pd.DataFrame:
    return outcome.frame.sort_values(["method", "N_H", "N_L", "seed", "input"], ignore_index=True)


def test_workers_find_what_one_process_finds(tmp_path: Any) -> None:
    inputs, grid = items(5), small_grid()
    alone = run(grid, inputs, model(), tmp_path / "alone")
    crew = run(grid, inputs, model(), tmp_path / "crew", Crew(workers=2))
    assert alone.load.work == crew.load.work == alone.load.rows == crew.load.rows == alone.rows["sent"] > 0
    assert alone.rows == crew.rows
    pd.testing.assert_frame_equal(sorted_frame(alone), sorted_frame(crew))


def test_workers_need_no_torch() -> None:
    code = "import sys, experiments.__main__, experiments.harness.queries; sys.exit('torch' in sys.modules)"
    path = os.pathsep.join(sys.path)  # fourteen that loaded it at once took a minute
    assert subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}).returncode == 0


def test_scores_are_those_of_evaluate(tmp_path: Any) -> None:
    inputs, grid = items(2), small_grid(metrics=("ndcg", "deletion@0", "mihl"))
    outcome = run(grid, inputs, model(), tmp_path)
    mine = outcome.frame.set_index(["method", "N_H", "N_L", "seed", "input"]).sort_index()
    theirs = evaluate(
        grid.methods,
        inputs,
        Sum(),
        masker,
        masks=list(grid.masks),
        seeds=[0, 1],
        metrics=["ndcg", "deletion@0", "mihl"],
        truths=[item.truth for item in inputs],
        target=1,
        reference="C2FA",
        progress=False,
    ).frame
    for metric, column in (("ndcg", "ndcg"), ("deletion", "deletion of parts"), ("mihl", "mihl")):
        part = theirs[theirs["metric"] == metric].set_index(["method", "N_H", "N_L", "seed", "input"])["value"]
        pd.testing.assert_series_equal(mine[column], part.sort_index(), check_names=False)


def test_curves_over_leaves_are_taken_where_they_are_wanted(tmp_path: Any) -> None:
    inputs = items(5)
    frame = run(small_grid(curves=2), inputs, model(), tmp_path).frame
    assert sorted(frame["input"].unique()) == [0, 1, 2, 3, 4]
    wanted = (frame["N_H"] == 6) & (frame["input"] < 2)
    assert (frame["deletion of leaves"].notna() == wanted).all()
    assert frame["deletion of parts"].notna().all()


def test_a_stopped_run_goes_on_where_it_was(tmp_path: Any) -> None:
    inputs, grid = items(5), small_grid()
    some = run(grid, inputs[:3], model(), tmp_path)
    every = run(grid, inputs, model(), tmp_path)
    whole = run(grid, inputs, model(), tmp_path / "whole")
    assert some.load.rows + every.load.rows == whole.load.rows == every.rows["sent"]
    assert run(grid, inputs, model(), tmp_path, Crew(workers=1)).load.rows == 0
    pd.testing.assert_frame_equal(sorted_frame(every), sorted_frame(whole))


def test_no_input_begins_when_the_time_is_over(tmp_path: Any) -> None:
    inputs = items(3)
    lazy = model()
    with pytest.raises(FileNotFoundError, match="no input is finished"):
        run(small_grid(), inputs, lazy, tmp_path, seconds=-1.0)
    assert network_of(lazy).work == 0


def test_the_whole_experiment(
    tmp_path: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    scale = reproducing.Scale(2, 4, 3, (0,), (20, 50), 10, timed=2, tries=3)
    monkeypatch.setattr(reproducing, "SCALES", {"small": scale})
    inputs = items(6)
    domain = reproducing.Domain("made up", inputs[:2], inputs[2:], model(), 6, METRICS, 1)
    folder = reproducing.reproduce(domain, tmp_path / "out", "small")
    frame = pd.read_parquet(folder / "scores.parquet")
    assert set(frame["method"]) == {*settings.PAPER_METHODS, *settings.OUR_METHODS}
    assert set(frame["N_H"]) == {5, 6}
    assert set(frame["N_L"]) == {20, 50}
    assert set(frame["input"]) == {0, 1, 2, 3}
    exact = frame[frame["method"] == "C2FA exact"]
    assert exact["consistency"].abs().max() < 1e-4
    assert reproducing.chosen_before(folder)["C2FA"].mu2 in tuning.PAPER_MU2
    tried = pd.DataFrame(json.loads((folder / "tuned.json").read_text()))
    assert (tried.groupby("method")["chosen"].sum() == 1).all()
    assert tried.groupby("method").size().max() == 3
    times = json.loads((folder / "times.json").read_text())
    assert {row["method"] for row in times} == set(frame["method"])
    assert all(len(row["seconds"]) == 2 for row in times)
    assert "a second" in capsys.readouterr().out
    assert reproducing.timing(domain, [], dataclasses.replace(scale, timed=0)) == []


# ------------------------------------------------------------------------------------------------------ weights


def arrays() -> dict[str, Any]:
    random = np.random.default_rng(0)
    return {
        "a": random.normal(size=(30, 50)).astype(np.float16),
        "b.c": np.arange(7, dtype=np.int32),
        "d": random.normal(size=(2, 1, 2)).astype(np.float32),
        "e": np.array(3.5),
        "f": np.arange(5, dtype=np.uint8),
    }


def same(found: Any, wanted: Any) -> bool:
    return found.keys() == wanted.keys() and all(
        np.array_equal(found[k], wanted[k]) and found[k].dtype == wanted[k].dtype and found[k].shape == wanted[k].shape
        for k in wanted
    )


def test_every_spelling_of_a_file_gives_the_same_arrays(tmp_path: Any) -> None:
    plain, about = arrays(), {"heads": "3", "vocabulary": "140"}
    assert weights.write(tmp_path / "x.safetensors", plain, about) == [tmp_path / "x.safetensors"]
    weights.write(tmp_path / "x.npz", plain, about)
    parts = weights.write(tmp_path / "y.safetensors", plain, about, part_mib=0.0002)
    assert len(parts) > 10  # or their order by name would be right by chance
    assert max(part.stat().st_size for part in parts) <= 0.0002 * 2**20
    for path in ("x.safetensors", "x.npz", "y.safetensors"):
        assert weights.present(tmp_path / path)
        found, words = weights.read(tmp_path / path)
        assert words == about
        assert same(found, plain)
        assert all(value.flags.writeable for value in found.values())
    (tmp_path / "x.safetensors").unlink()
    assert weights.present(tmp_path / "x.safetensors")  # squeezed
    assert same(weights.read(tmp_path / "x.safetensors")[0], plain)
    data = b"".join(part.read_bytes() for part in parts)
    for k in range(3):  # as two digits, which earlier files have
        (tmp_path / f"z.safetensors.{k:02d}").write_bytes(data[k * 2000 : (k + 1) * 2000 if k < 2 else None])
    assert weights.present(tmp_path / "z.safetensors")
    assert same(weights.read(tmp_path / "z.safetensors")[0], plain)


def test_what_is_not_whole_is_refused(tmp_path: Any) -> None:
    parts = weights.write(tmp_path / "y.safetensors", arrays(), part_mib=0.001)
    parts[-1].unlink()
    with pytest.raises(ValueError, match="the file ends inside"):
        weights.read(tmp_path / "y.safetensors")
    parts[0].unlink()
    with pytest.raises(ValueError, match="no whole safetensors file"):
        weights.read(tmp_path / "y.safetensors")
    assert not weights.present(tmp_path / "y")
    with pytest.raises(FileNotFoundError, match=r"no weights at .*gone.*: give the path of a safetensors"):
        weights.read(tmp_path / "gone.safetensors")
    with pytest.raises(FileNotFoundError, match="part0: dig for them"):
        weights.read(tmp_path / "gone.safetensors", "dig for them")
    with pytest.raises(ValueError, match="cannot be cut into parts"):
        weights.write(tmp_path / "x.npz", arrays(), part_mib=1)
    with pytest.raises(ValueError, match="a holds complex128, which is not written here"):
        weights.write(tmp_path / "x.safetensors", {"a": np.zeros(3, complex)})


def test_a_file_written_anew_leaves_nothing_of_the_old_one(tmp_path: Any) -> None:
    path = tmp_path / "y.safetensors"
    weights.write(path, arrays(), part_mib=0.001)
    (tmp_path / "y.safetensors.00").write_bytes(b"old")
    (tmp_path / "y.safetensors.json").write_text("not a part")
    weights.write(path, {"a": np.ones(2)})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["y.safetensors", "y.safetensors.json"]
    weights.write(path, {"b": np.ones(2)}, part_mib=1)
    assert list(weights.read(path)[0]) == ["b"]


def test_files_are_read_and_written_as_safetensors_does(tmp_path: Any) -> None:
    library = pytest.importorskip("safetensors.numpy")
    weights.write(tmp_path / "ours.safetensors", arrays(), {"k": "v"})
    library.save_file(arrays(), tmp_path / "theirs.safetensors")
    assert same(library.load_file(tmp_path / "ours.safetensors"), arrays())
    assert same(weights.read(tmp_path / "theirs.safetensors")[0], arrays())


def test_the_example_in_the_docstring() -> None:
    found = doctest.testmod(weights)
    assert found.attempted > 0
    assert found.failed == 0

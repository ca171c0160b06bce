"""Modules of torch: batches of equal and of ragged inputs, types, and names that know the weights."""

from __future__ import annotations

import pickle
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import c2fa

torch = pytest.importorskip("torch")
from c2fa.models import Torch, wrap


class Pooled(torch.nn.Module):
    """A set's mean and maximum: padding with zeros would change both."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.drop = torch.nn.Linear(8, 3), torch.nn.Dropout(0.5)
        self.calls: list[tuple[int, ...]] = []

    def forward(self, bags: torch.Tensor) -> torch.Tensor:
        self.calls.append(tuple(bags.shape))
        assert not torch.is_grad_enabled()
        return self.linear(self.drop(torch.cat([bags.mean(dim=1), bags.amax(dim=1)], dim=-1)))


def test_ragged_bags_are_never_padded_and_keep_their_order():
    module, rng = Pooled(), np.random.default_rng(0)
    bags = [rng.normal(size=(n, 4)) for n in rng.integers(1, 7, size=50)]
    model = Torch(module, batch=8)
    module.train()
    found = model(bags)
    assert not module.training
    assert max(shape[0] for shape in module.calls) <= 8
    assert len(module.calls) < 15
    one_by_one = np.concatenate([model([bag]) for bag in bags])
    np.testing.assert_allclose(found, one_by_one, atol=1e-6)
    np.testing.assert_allclose(Torch(module, softmax=True)(bags).sum(axis=1), 1)


def test_rows_are_collated_by_a_function_of_ones_own():
    bags = [torch.ones(n, 4) for n in (3, 1, 2, 5)]

    class Masked(torch.nn.Module):
        def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
            return x.sum(dim=(1, 2)) / lengths

    def collate(rows: list[torch.Tensor]) -> dict[str, torch.Tensor]:
        padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        return {"x": padded, "lengths": torch.tensor([len(r) for r in rows])}

    np.testing.assert_allclose(Torch(Masked(), collate=collate, batch=3)(bags), [4, 4, 4, 4])


class OneBag(torch.nn.Module):
    """Takes one bag, a list of images of any sizes, and answers with its outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([1.0, -1.0]))

    def forward(self, bag: list[torch.Tensor]) -> torch.Tensor:
        assert isinstance(bag, list)
        return torch.stack([image.mean() for image in bag]).sum() * self.weight


def test_bags_of_images_of_many_sizes():
    bag = [torch.full((3, 4 + k, 5), float(k + 1)) for k in range(3)]
    halves = [np.repeat([[0, 1]], 4 + k, axis=0).repeat([2, 3], axis=1) for k in range(3)]
    masker = c2fa.maskers.ImageBag(halves)
    model = Torch(OneBag(), bags="list")
    np.testing.assert_allclose(model([bag, bag[:1]]), [[6, -6], [1, -1]])
    e = c2fa.Explainer(model, masker, budget=60, target=0, penalty=c2fa.L2(1e-6))(bag)
    assert e.high.argmax() == 2
    with pytest.raises(c2fa.QueryError, match=r"\(3, 4, 5\), \(3, 5, 5\), .*bags='list'"):
        c2fa.Explainer(OneBag(), masker, budget=30)(bag)

    class ManyBags(OneBag):
        def forward(self, bags: list[list[torch.Tensor]]) -> torch.Tensor:
            return torch.stack([super(ManyBags, self).forward(bag) for bag in bags])

    together = Torch(ManyBags(), collate=lambda rows: rows)
    np.testing.assert_allclose(together([bag, bag[:1]]), [[6, -6], [1, -1]])
    with pytest.raises(TypeError, match=r"HuggingFace\(model, tokenizer\)"):
        Torch(OneBag())(["a text"])
    for bad in ({"bags": "heap"}, {"bags": "list", "collate": list}):
        with pytest.raises(ValueError, match="bags"):
            Torch(OneBag(), **bad)


def test_arrays_tensors_and_frames_are_the_same_to_a_module():
    pd = pytest.importorskip("pandas")
    module = torch.nn.Sequential(torch.nn.Linear(4, 2))
    x = np.random.default_rng(1).normal(size=(10, 4))
    model = Torch(module, batch=3, output_names=["a", "b"])
    wanted = module(torch.as_tensor(x, dtype=torch.float32)).detach().numpy()
    for batch in (x, torch.as_tensor(x), pd.DataFrame(x), list(x), x.tolist()):
        np.testing.assert_allclose(model(batch), wanted, atol=1e-6)


def test_autocast_computes_in_half_precision(in_half_precision):
    in_half_precision(
        """
        import numpy as np, torch
        from c2fa.models import Torch

        module = torch.nn.Linear(4, 2)
        x = np.random.default_rng(1).normal(size=(10, 4))
        wanted, half = Torch(module)(x), Torch(module, autocast="bfloat16")(x)
        np.testing.assert_allclose(half, wanted, atol=0.05)
        assert not np.array_equal(half, wanted)
        """
    )


def test_the_name_of_a_module_changes_with_its_weights():
    module = torch.nn.Linear(400, 400)
    model, before = Torch(module), Torch(module).name
    assert model.name == before == Torch(pickle.loads(pickle.dumps(module))).name
    with torch.no_grad():
        module.weight[3, 5] += 0.5  # between the sampled values: the sum tells
    assert model.name != before


def test_a_module_that_breaks_the_contract_is_named():
    class Mean(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.mean()

    with pytest.raises(ValueError, match="Mean returned 1 rows for 5 inputs"):
        Torch(Mean())(np.ones((5, 2)))
    with pytest.raises(TypeError, match=r"torch\.nn\.Module, not function"):
        Torch(lambda x: x)
    with pytest.raises(ValueError, match="autocast must be"):
        Torch(torch.nn.Linear(1, 1), autocast="int4")
    with pytest.raises(ValueError, match="empty"):
        Torch(torch.nn.Linear(1, 1))([])


def test_wrap_knows_a_module():
    assert isinstance(wrap(torch.nn.Linear(1, 1)), Torch)


def test_half_precision_in_the_process_of_the_tests_is_noticed(tmp_path):
    shutil.copy(Path(__file__).parents[2] / "conftest.py", tmp_path)
    (tmp_path / "test_it.py").write_text(
        "import torch\n"
        "def test_made(): torch.ones(2, dtype=torch.bfloat16)\n"
        "def test_autocast():\n"
        "    with torch.autocast('cpu', torch.bfloat16): torch.nn.Linear(2, 2)(torch.ones(1, 2))\n"
        "def test_single(): torch.ones(2) + 1\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-half", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    if done.returncode == -signal.SIGILL:
        pytest.skip("this processor cannot compute in half precision")
    assert "2 failed, 1 passed" in done.stdout

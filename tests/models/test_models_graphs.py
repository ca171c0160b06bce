"""Networks that are recorded on a GPU and replayed answer as they do step by step."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch")

from c2fa.models.local._graphs import Graphs

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


class Network(torch.nn.Module):  # type: ignore[misc]
    """A small network; ``kind`` says what about it cannot be replayed."""

    def __init__(self, kind: str = "plain") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.kind, self.calls = kind, 0
        self.layers = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))

    def forward(self, x: Any) -> Any:
        self.calls += 1
        if self.kind == "looks" and float(x.sum()) > 1e9:
            raise AssertionError("it looked")
        return self.layers(x) + (self.calls if self.kind == "counts" else 0)


def rows(n: int, device: str, seed: int = 0) -> dict[str, Any]:
    return {"x": torch.from_numpy(np.random.default_rng(seed).normal(size=(n, 5)).astype(np.float32)).to(device)}


def test_what_cannot_be_recorded_goes_on_step_by_step() -> None:
    """As on a machine without a GPU."""
    if torch.cuda.is_available():
        pytest.skip("it can be recorded here")
    network = Network()
    graphs = Graphs(lambda inputs: network(inputs["x"]))
    with torch.inference_mode(), graphs.steady():
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            first = graphs(rows(3, "cpu"))
            assert torch.equal(graphs(rows(3, "cpu")), first)
        with pytest.warns(UserWarning, match="without CUDA graphs"):
            assert torch.equal(graphs(rows(3, "cpu")), first)
        assert not graphs.records
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # it is said once
            assert torch.equal(graphs(rows(3, "cpu")), first)
    assert torch.equal(first, network(**rows(3, "cpu")))


@on_gpu
@pytest.mark.parametrize("autocast", [False, True])
def test_replayed_outputs_are_those_of_the_network(autocast: bool) -> None:
    network = Network().cuda()
    graphs = Graphs(lambda inputs: network(inputs["x"]).float())
    with torch.inference_mode():
        for _ in range(2):
            with torch.autocast("cuda", torch.float16, enabled=autocast), graphs.steady():
                for seed in range(12):
                    x = rows(1 + seed % 4, "cuda", seed)
                    assert torch.allclose(graphs(x), network(**x).float(), atol=1e-6)
                before = network.calls
                graphs(rows(1, "cuda"))
                assert network.calls == before
            with torch.no_grad():
                network.layers[0].weight.data = torch.randn_like(network.layers[0].weight)  # which a graph would miss


@on_gpu
def test_networks_that_cannot_be_recorded_leave_random_numbers_alone() -> None:
    network = Network("looks").cuda()
    graphs = Graphs(lambda inputs: network(inputs["x"]))
    plain = Network().cuda()

    def check() -> None:
        assert torch.allclose(graphs(rows(3, "cuda")), plain(**rows(3, "cuda")), atol=1e-5)
        assert torch.randn(2, device="cuda").isfinite().all()

    with torch.inference_mode(), graphs.steady():
        check()
        check()
        with pytest.warns(UserWarning, match="not permitted when stream is capturing"):
            check()
        assert not graphs.records
        check()


@on_gpu
def test_networks_that_are_no_replay() -> None:
    network = Network("counts").cuda()
    graphs = Graphs(lambda inputs: network(inputs["x"]))
    plain = Network().cuda()
    with torch.inference_mode(), graphs.steady():
        with pytest.warns(UserWarning, match="other outputs"):
            graphs(rows(3, "cuda"))
        for seed in range(4):
            outputs = graphs(rows(3, "cuda", seed))
            assert torch.allclose(outputs, plain(**rows(3, "cuda", seed)) + network.calls, atol=1e-5)


@on_gpu
def test_classifiers_answer_the_same_while_they_are_steady(tmp_path: Any) -> None:
    transformers = pytest.importorskip("transformers")
    from concurrent.futures import ThreadPoolExecutor

    import c2fa

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(50))]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    tokenizer = transformers.BertTokenizerFast(str(tmp_path / "vocab.txt"))
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(words), hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
    )
    network = transformers.BertForSequenceClassification(config).eval().cuda()
    rng = np.random.default_rng(0)
    batches = [
        [" ".join(rng.choice(words[5:], rng.integers(1, 60))) for _ in range(rng.integers(1, 100))] for _ in range(30)
    ]
    model = c2fa.models.HuggingFace(network, tokenizer, batch=32)
    apart = [model(batch) for batch in batches]
    with model.steady(), ThreadPoolExecutor(4) as threads:
        together = list(threads.map(model, batches))
    for one, other in zip(apart, together, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)

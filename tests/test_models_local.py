"""Models in this process: scikit-learn, torch, Hugging Face, ONNX, and one line of text that names any of them."""

from __future__ import annotations

import json
import pickle
import re
import subprocess
import sys
from pathlib import Path

import joblib
import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
import torch
import transformers
from onnx import TensorProto, helper, numpy_helper
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

import c2fa
from c2fa import models
from c2fa.models import HuggingFace, Onnx, Sklearn, Torch, load, wrap

# scikit-learn, on the wines that it ships with; two columns are binned into words and one-hot encoded.


@pytest.fixture(scope="module")
def wines():
    data = load_wine(as_frame=True)
    frame = data.data.copy()
    for column in ("alcohol", "hue"):
        frame[column] = pd.qcut(frame[column], 3, labels=["low", "middle", "high"]).astype(str)
    names = np.asarray(data.target_names)[data.target]
    return frame, names


@pytest.fixture(scope="module")
def pipeline(wines):
    frame, names = wines
    words = ["alcohol", "hue"]
    rest = [c for c in frame if c not in words]
    encode = ColumnTransformer([("words", OneHotEncoder(), words), ("numbers", StandardScaler(), rest)])
    return make_pipeline(encode, LogisticRegression(max_iter=1000)).fit(frame, names)


def test_a_pipeline_on_a_frame_gives_named_probabilities(wines, pipeline):
    frame, names = wines
    model = Sklearn(pipeline)
    found = model(frame)
    np.testing.assert_array_equal(found, pipeline.predict_proba(frame))
    assert model.output_names == ("class_0", "class_1", "class_2")
    accuracy = np.mean(np.asarray(model.output_names)[found.argmax(axis=1)] == names)
    assert accuracy > 0.95


def test_the_name_of_an_estimator_changes_with_what_it_learnt(wines, pipeline):
    frame, names = wines
    copy = pickle.loads(pickle.dumps(pipeline))
    assert Sklearn(copy).name == Sklearn(pipeline).name
    copy.fit(frame[:-1], names[:-1])
    assert Sklearn(copy).name != Sklearn(pipeline).name
    code = "import sys, pickle; from c2fa.models import Sklearn; print(Sklearn(pickle.load(sys.stdin.buffer)).name)"
    done = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(pipeline), capture_output=True, check=True)
    assert done.stdout.decode().strip() == Sklearn(pipeline).name


def test_estimators_without_probabilities(wines):
    frame, names = wines
    numbers = frame.drop(columns=["alcohol", "hue"])
    margins = Sklearn(LinearSVC().fit(StandardScaler().fit_transform(numbers), names))
    assert margins.method == "decision_function"
    assert margins(numbers.to_numpy()).shape == (len(frame), 3)
    two = Sklearn(RidgeClassifier().fit(numbers, names == "class_1"))
    assert two(numbers).shape == (len(frame),)
    assert two.output_names == ("True",)
    number = Sklearn(Ridge().fit(numbers, numbers["ash"]))
    assert (number.method, number.output_names) == ("predict", ())
    assert number(numbers).shape == (len(frame),)
    with pytest.raises(ValueError, match=r"gives labels such as .*class_"):
        Sklearn(margins.estimator, method="predict")(numbers.to_numpy())
    with pytest.raises(TypeError, match="StandardScaler has no predict_proba"):
        Sklearn(StandardScaler())
    with pytest.raises(ValueError, match="method must be one of"):
        Sklearn(margins.estimator, method="transform")
    several = RandomForestClassifier(3).fit(numbers, np.stack([names, names], axis=1))
    with pytest.raises(ValueError, match="for each of 2 targets"):
        Sklearn(several)(numbers)


# torch


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


def test_padding_and_collation_are_there_when_asked_for():
    module, bags = Pooled(), [torch.ones(n, 4) for n in (3, 1, 2, 5)]
    Torch(module, pad=0.0, batch=3)(bags)
    assert module.calls == [(3, 3, 4), (1, 5, 4)]

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
    for bad in ({"bags": "heap"}, {"bags": "list", "pad": 0.0}):
        with pytest.raises(ValueError, match="bags"):
            Torch(OneBag(), **bad)


def test_arrays_tensors_and_frames_are_the_same_to_a_module():
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


# Hugging Face: a real BERT, small and untrained, with a WordPiece tokenizer made here.

WORDS = "the film was good bad dull great but and not ##ly very plot actor s , . ! a of it i"
TEXTS = [
    "The film was good.",
    "bad",
    "",
    "the plot was dull, but the actors great! " * 5,
    "It was not very good, and it was not very bad",
    "a great film. " * 40,
]


@pytest.fixture(scope="module")
def bert():
    vocab = {w: i for i, w in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS.split()])}
    core = Tokenizer(WordPiece(vocab, unk_token="[UNK]"))
    core.normalizer, core.pre_tokenizer = BertNormalizer(), BertPreTokenizer()
    core.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", vocab["[CLS]"]), ("[SEP]", vocab["[SEP]"])],
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocab),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
        id2label={0: "negative", 1: "neutral", 2: "positive"},
        initializer_range=0.5,
    )
    return BertForSequenceClassification(config).eval(), tokenizer


def one_by_one(model, tokenizer, rows):
    found = []
    for row in rows:
        parts = [[part] for part in (row if isinstance(row, tuple) else (row,))]
        inputs = tokenizer(*parts, return_tensors="pt", truncation=True, max_length=64)
        with torch.no_grad():
            found.append(model(**inputs).logits[0].softmax(-1).numpy())
    return np.stack(found)


def test_bert_in_sorted_padded_batches_answers_as_one_by_one(bert):
    model = HuggingFace(*bert, batch=2)
    np.testing.assert_allclose(model(TEXTS), one_by_one(*bert, TEXTS), atol=1e-5)
    np.testing.assert_allclose(model(np.array(TEXTS)), one_by_one(*bert, TEXTS), atol=1e-5)
    assert model.output_names == ("negative", "neutral", "positive")
    assert model.max_length == 64
    assert np.ptp(model(TEXTS)[:, 0]) > 0.05  # the texts do matter


def test_pairs_of_texts(bert):
    pairs = list(zip(TEXTS, TEXTS[::-1], strict=True))
    model = HuggingFace(*bert, batch=3)
    wanted = one_by_one(*bert, pairs)
    np.testing.assert_allclose(model(pairs), wanted, atol=1e-5)
    np.testing.assert_allclose(model([{"text": a, "text_pair": b} for a, b in pairs]), wanted, atol=1e-5)
    assert not np.allclose(wanted, model(TEXTS))
    with pytest.raises(ValueError, match="not a mixture"):
        model([*TEXTS, pairs[0]])
    with pytest.raises(TypeError, match="not int"):
        model([3])


def test_a_pipeline_gives_what_it_gives_itself(bert):
    pipe = transformers.pipeline("text-classification", model=bert[0], tokenizer=bert[1], device="cpu")
    scores = pipe(TEXTS, top_k=None, truncation=True, max_length=64)
    names = ("negative", "neutral", "positive")
    wanted = [[next(s["score"] for s in row if s["label"] == n) for n in names] for row in scores]
    np.testing.assert_allclose(HuggingFace(pipe)(TEXTS), wanted, atol=1e-5)
    np.testing.assert_allclose(wrap(pipe)(TEXTS), wanted, atol=1e-5)


def test_a_saved_folder_is_read_back_and_its_weights_name_it(bert, tmp_path):
    for part in bert:
        part.save_pretrained(tmp_path)
    model = load(f"hf:{tmp_path}", batch=4)
    np.testing.assert_allclose(model(TEXTS), HuggingFace(*bert)(TEXTS), atol=1e-5)
    assert model.name == HuggingFace(*bert).name
    with torch.no_grad():
        model.model.classifier.bias += 1.0
    assert model.name != HuggingFace(*bert).name
    with pytest.raises(ValueError, match="nothing is downloaded"):
        HuggingFace("bert-base-uncased")


# A folder from a stranger: whatever it holds, its code is not run, not even where someone answers "yes".

EVIL = """
from pathlib import Path
from transformers import BertConfig, BertForSequenceClassification, BertTokenizer
Path({marker!r}).touch()
class Config(BertConfig): model_type = "evil"
class Model(BertForSequenceClassification): pass
class Words(BertTokenizer): pass
"""


class Ran:
    """Makes a file when it is unpickled."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return Path.touch, (self.marker,)


def change(path, **fields):
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


@pytest.fixture
def stranger(bert, tmp_path, monkeypatch):
    """A saved model whose folder has code, which would leave a file behind; and a person who says yes to all."""
    folder, marker = tmp_path / "folder", tmp_path / "ran"
    for part in bert:
        part.save_pretrained(folder)
    (folder / "evil.py").write_text(EVIL.format(marker=str(marker)))
    monkeypatch.setattr("builtins.input", lambda *_: "yes")
    return folder, marker


@pytest.mark.parametrize("part", ["config", "model"])
def test_code_in_a_model_folder_is_never_run(stranger, part):
    folder, marker = stranger
    if part == "config":
        change(folder / "config.json", model_type="evil", auto_map={"AutoConfig": "evil.Config"})
    if part == "model":  # a model of which transformers has the configuration but no classifier
        maps = {"AutoModelForSequenceClassification": "evil.Model"}
        change(folder / "config.json", model_type="clip_vision_model", auto_map=maps)
    message = r"needs Python code of its own, which is never run.*HuggingFace\(model, tokenizer\)"
    with pytest.raises(ValueError, match=message) as caught:
        load(f"hf:{folder}")
    assert "\n" not in str(caught.value)
    assert not marker.exists()


def test_code_that_a_folder_does_not_need_is_passed_over(stranger, bert):
    folder, marker = stranger
    maps = {"AutoConfig": "evil.Config", "AutoModelForSequenceClassification": "evil.Model"}
    change(folder / "config.json", auto_map=maps, attn_implementation="a-stranger/kernel")
    words = {"AutoTokenizer": ["evil.Words", None]}
    change(folder / "tokenizer_config.json", tokenizer_class="EvilTokenizer", auto_map=words)
    np.testing.assert_allclose(load(f"hf:{folder}")(TEXTS), HuggingFace(*bert)(TEXTS), atol=1e-5)
    change(folder / "config.json", attn_implementation=None, _attn_implementation="a-stranger/kernel")
    np.testing.assert_allclose(load(f"hf:{folder}")(TEXTS), HuggingFace(*bert)(TEXTS), atol=1e-5)
    assert not marker.exists()


def test_a_pickle_in_the_place_of_weights_runs_nothing(stranger):
    folder, marker = stranger
    (folder / "model.safetensors").unlink()
    torch.save({"weight": Ran(marker)}, folder / "pytorch_model.bin")
    with pytest.raises(Exception):  # noqa: B017 - whichever transformers has for it
        load(f"hf:{folder}")
    assert not marker.exists()


@pytest.mark.parametrize("old", ["2.5.1+cu124", "2.9.1"])
def test_a_torch_that_can_be_made_to_run_code_loads_no_folder(stranger, monkeypatch, old):
    monkeypatch.setattr("c2fa.extras.version", lambda package: {"torch": old}[package])
    with pytest.raises(ImportError, match=rf"torch {re.escape(old)} .*CVE-.*pip install 'torch>=2.10'"):
        load(f"hf:{stranger[0]}")


def test_the_oldest_safe_versions_are_the_same_everywhere():
    root = Path(__file__).parents[1]
    project, security = (root / "pyproject.toml").read_text(), (root / "SECURITY.md").read_text()
    for package, least in (("torch", "2.10"), ("skops", "0.12")):
        assert set(re.findall(rf'"{package}>=([\d.]+)"', project)) == {least}
        assert f"{package} before {least}" in security


@pytest.mark.slow
def test_the_command_line_runs_no_code_of_a_folder_whatever_is_answered(stranger, tmp_path):
    folder, marker = stranger
    change(folder / "config.json", model_type="evil", auto_map={"AutoConfig": "evil.Config"})
    (tmp_path / "r.txt").write_text("A good film.")
    command = [sys.executable, "-m", "c2fa.cli", "explain", "r.txt", "-m", "hf:folder"]
    done = subprocess.run(command, input="yes\n" * 99, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 3
    assert "never run" in done.stderr
    assert not marker.exists()


def test_the_problem_type_chooses_the_activation(bert):
    logits = HuggingFace(*bert, outputs="logits")(TEXTS)
    config = bert[0].config
    try:
        config.problem_type = "multi_label_classification"
        np.testing.assert_allclose(HuggingFace(*bert)(TEXTS), 1 / (1 + np.exp(-logits)), atol=1e-6)
        config.problem_type = "regression"
        np.testing.assert_allclose(HuggingFace(*bert)(TEXTS), logits)
    finally:
        config.problem_type = None
    with pytest.raises(ValueError, match="needs its tokenizer"):
        HuggingFace(bert[0])
    with pytest.raises(ValueError, match="outputs must be"):
        HuggingFace(*bert, outputs="scores")


# ONNX


def graph(rows="n", extra=False):
    """Softmax of a matrix product, made node by node."""
    rng = np.random.default_rng(0)
    weight = numpy_helper.from_array(rng.normal(size=(4, 3)).astype(np.float32), "W")
    nodes = [helper.make_node("MatMul", ["x", "W"], ["z"]), helper.make_node("Softmax", ["z"], ["p"], axis=1)]
    outputs = [helper.make_tensor_value_info("p", TensorProto.FLOAT, [rows, 3])]
    if extra:
        nodes.append(helper.make_node("ArgMax", ["z"], ["label"], axis=1, keepdims=0))
        outputs.insert(0, helper.make_tensor_value_info("label", TensorProto.INT64, [rows]))
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 4])]
    made = helper.make_model(
        helper.make_graph(nodes, "g", inputs, outputs, [weight]), opset_imports=[helper.make_opsetid("", 17)]
    )
    made.ir_version = 9
    onnx.checker.check_model(made)
    return made, numpy_helper.to_array(weight)


def softmax(z):
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("rows", ["n", 4])
@pytest.mark.parametrize("extra", [False, True])
def test_an_onnx_file_and_session(tmp_path, rows, extra):
    made, weight = graph(rows, extra)
    onnx.save(made, tmp_path / "m.onnx")
    x = np.random.default_rng(1).normal(size=(10, 4))
    model = Onnx(tmp_path / "m.onnx", output_names=["a", "b", "c"], batch=7)
    for batch in (x, x.tolist(), torch.as_tensor(x), pd.DataFrame(x)):
        np.testing.assert_allclose(model(batch), softmax(x @ weight), atol=1e-6)
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(wrap(session)(x), model(x))
    assert Onnx(session).name.startswith("onnx:")
    assert load(f"onnx:{tmp_path}/m.onnx").name == model.name
    with pytest.raises(ValueError, match="no output 'logits'; it has"):
        Onnx(session, output="logits")


def test_an_onnx_file_with_other_weights_has_another_name(tmp_path):
    for name, shift in (("a", 0.0), ("b", 1.0)):
        made, weight = graph()
        made.graph.initializer[0].CopyFrom(numpy_helper.from_array(weight + np.float32(shift), "W"))
        onnx.save(made, tmp_path / f"{name}.onnx")
    assert Onnx(tmp_path / "a.onnx").name != Onnx(tmp_path / "b.onnx").name
    with pytest.raises(ValueError, match="there is no ONNX file"):
        Onnx(tmp_path / "c.onnx")
    with pytest.raises(ValueError, match=r"'x' is tensor\(float\); rows of <U4 do not fit"):
        Onnx(tmp_path / "a.onnx")(np.array([["text"] * 4]))


def test_an_onnx_model_of_texts_and_one_of_columns():
    text = helper.make_tensor_value_info("t", TensorProto.STRING, ["n", 1])
    same = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 1])
    nodes = [
        helper.make_node("LabelEncoder", ["t"], ["y"], domain="ai.onnx.ml", keys_strings=["good", "bad"],
                         values_floats=[1.0, -1.0], default_float=0.0)
    ]  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 2)]
    made = helper.make_model(helper.make_graph(nodes, "g", [text], [same]), opset_imports=opsets)
    made.ir_version = 9
    model = Onnx(onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"]))
    np.testing.assert_array_equal(model(["good", "bad", "dull"]), [[1], [-1], [0]])
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 1]) for n in ("age", "pay")]
    nodes = [helper.make_node("Sub", ["pay", "age"], ["y"])]
    made = helper.make_model(helper.make_graph(nodes, "g", inputs, [same]), opset_imports=opsets[:1])
    made.ir_version = 9
    model = Onnx(onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"]))
    frame = pd.DataFrame({"age": [1.0, 2.0], "pay": [10.0, 30.0], "other": ["a", "b"]})
    np.testing.assert_array_equal(model(frame), [[9], [28]])
    with pytest.raises(ValueError, match="2 inputs"):
        model(np.ones((2, 2)))


# One line of text that names a model.


def test_specs_of_python_and_of_files(pipeline, wines, tmp_path, monkeypatch):
    frame, _ = wines
    (tmp_path / "my_model.py").write_text(
        "import math\nclass Scorer:\n    @staticmethod\n    def score(batch):\n        return [len(t) for t in batch]\n"
    )
    monkeypatch.chdir(tmp_path)
    assert load("python:my_model:Scorer.score")(["ab", ""]) == [2, 0]
    assert str(tmp_path) not in sys.path
    joblib.dump(pipeline, tmp_path / "pipe.joblib")
    with pytest.raises(ValueError, match="a pickle can run any code"):
        load("sklearn:pipe.joblib")
    found = load("sklearn:pipe.joblib", allow_pickle=True)
    np.testing.assert_allclose(found(frame), pipeline.predict_proba(frame))


def test_skops_files_need_no_trust(wines, tmp_path):
    skops = pytest.importorskip("skops.io")
    numbers = wines[0].drop(columns=["alcohol", "hue"]).to_numpy()
    estimator = make_pipeline(StandardScaler(), LogisticRegression()).fit(numbers, wines[1])
    skops.dump(estimator, tmp_path / "m.skops")
    model = load(f"sklearn:{tmp_path}/m.skops")
    np.testing.assert_allclose(model(numbers), estimator.predict_proba(numbers))
    assert model.output_names == ("class_0", "class_1", "class_2")


def test_a_skops_file_runs_nothing(wines, tmp_path, monkeypatch):
    skops = pytest.importorskip("skops.io")
    numbers = wines[0].drop(columns=["alcohol", "hue"]).to_numpy()
    estimator = make_pipeline(StandardScaler(), FunctionTransformer(touch), LogisticRegression()).fit(numbers, wines[1])
    skops.dump(estimator, tmp_path / "m.skops")
    with pytest.raises(ValueError, match=r"holds the types test_models_local\.touch, which are not scikit-learn's"):
        load(f"sklearn:{tmp_path}/m.skops")
    (tmp_path / "p.skops").write_bytes(pickle.dumps(Ran(tmp_path / "ran")))
    with pytest.raises(Exception, match="not a zip"):
        load(f"sklearn:{tmp_path}/p.skops", allow_pickle=True)
    assert not (tmp_path / "ran").exists()
    monkeypatch.setattr("c2fa.extras.version", lambda package: {"skops": "0.11.0"}[package])
    with pytest.raises(ImportError, match=r"skops 0.11.0 .*CVE-.*pip install 'skops>=0.12'"):
        load(f"sklearn:{tmp_path}/m.skops")


def touch(rows):
    return rows


def test_no_weights_of_the_demo_model_are_unpickled(tmp_path):
    np.savez(tmp_path / "w.npz", shape=np.array([Ran(tmp_path / "ran")], dtype=object))
    with pytest.raises(ValueError, match="allow_pickle=False"):
        load("demo", weights=tmp_path / "w.npz")(["a text"])
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("", "names no model; write demo, python:"),
        ("nothing", "'nothing' names no model"),
        ("oip:", "names no model"),
        ("oip:http://127.0.0.1:1", "add it behind a '#'"),
        ("openai:http://127.0.0.1:1/v1#lm", "cannot make a model of .*missing .* 'classes'"),
        ("mlflow:localhost", "http://"),
        ("python:nowhere_at_all:f", "cannot import 'nowhere_at_all'"),
        ("python:math", "must read python:package.module:function"),
        ("python:math:nothing", "'math' has no 'nothing'"),
        ("sklearn:missing.skops", "there is no file"),
        ("hf:missing", "is not a folder"),
        ("onnx:missing.onnx", "there is no ONNX file"),
    ],
)
def test_a_broken_spec_is_one_clear_sentence(spec, message):
    with pytest.raises(ValueError, match=message) as caught:
        load(spec)
    assert "\n" not in str(caught.value)


def test_specs_of_servers():
    assert load("oip:http://h:1#m").name == load("oip:http://h:1/v2/models/m").name == "oip:http://h:1/v2/models/m"
    assert load("openai:http://h:1/v1#org/lm", classes=["a", "b"]).model == "org/lm"
    assert load("mlflow:http://h:1", price_per_row=2).settings.price_per_row == 2
    with pytest.raises(ValueError, match="unexpected keyword argument 'wrong'"):
        load("onnx:x", wrong=1)


def test_wrap_knows_what_people_hold(pipeline):
    assert isinstance(wrap(pipeline), Sklearn)
    assert isinstance(wrap(torch.nn.Linear(1, 1)), Torch)
    assert wrap(np.sum) is np.sum
    with pytest.raises(TypeError, match="a model must be callable or have predict_proba, not list"):
        wrap([])


def test_importing_the_room_imports_nothing_heavy():
    code = (
        "import sys, c2fa.models; heavy = {'torch', 'sklearn', 'transformers', 'onnxruntime', 'httpx2', 'pandas'};"
        "print(heavy & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize(
    ("name", "missing", "extra"),
    [
        ("OpenAI", "httpx2", "http"),
        ("Torch", "torch", "torch"),
        ("Onnx", "onnxruntime", "onnx"),
        ("HuggingFace", "torch", "text"),
    ],
)
def test_a_missing_extra_names_its_command(name, missing, extra):
    code = f"import sys; sys.modules[{missing!r}] = None; import c2fa.models; c2fa.models.{name}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    wanted = f"ImportError: c2fa.models.{name} needs {missing}: pip install 'c2fa[{extra}]'"
    assert done.stderr.strip().splitlines()[-1] == wanted


def test_the_public_names_are_there():
    for name in set(models.__all__) - {"DemoSentiment"}:
        assert getattr(models, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Tensorflow'"):
        models.Tensorflow  # noqa: B018

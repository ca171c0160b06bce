"""Hugging Face: a real BERT, small and untrained, with a WordPiece tokenizer made here."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import numpy as np
import pytest

from strangers import Ran

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

from c2fa.models import HuggingFace, load, wrap

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


def test_batches_that_are_recorded_come_in_few_sizes_and_answer_the_same(bert, monkeypatch):
    class Recorded:
        records = True

        def __init__(self, network):
            self.network, self.rows = network, []

        def __call__(self, inputs):
            self.rows.append(len(inputs["input_ids"]))
            return self.network(inputs)

    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(["film", "good", "bad", "plot"], rng.integers(1, 40))) for _ in range(183)]
    model = HuggingFace(*bert, batch=64)
    expected = model(texts)
    monkeypatch.setattr("c2fa.models.local.huggingface.LEAST_CUT", 8)
    model._graphs = Recorded(model._graphs.network)
    np.testing.assert_allclose(model(texts), expected, atol=1e-5)
    assert model._graphs.rows == [64, 64, 32, 16, 7]
    model._graphs.rows.clear()
    monkeypatch.setattr("c2fa.models.local.huggingface.LEAST_CUT", 64)
    np.testing.assert_allclose(model(texts), expected, atol=1e-5)
    assert model._graphs.rows == [64, 64, 56]  # one of them fills up the last


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
    monkeypatch.setattr("c2fa._system.version", lambda package: {"torch": old}[package])
    with pytest.raises(ImportError, match=rf"torch {re.escape(old)} .*CVE-.*pip install 'torch>=2.10'"):
        load(f"hf:{stranger[0]}")


@pytest.mark.slow
def test_the_command_line_runs_no_code_of_a_folder_whatever_is_answered(stranger, tmp_path):
    folder, marker = stranger
    change(folder / "config.json", model_type="evil", auto_map={"AutoConfig": "evil.Config"})
    (tmp_path / "r.txt").write_text("A good film.")
    command = [sys.executable, "-m", "c2fa", "explain", "r.txt", "-m", "hf:folder"]
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
    with pytest.raises(ValueError, match=r"max_length must be a whole number above 2, .*; got 2"):
        HuggingFace(*bert, max_length=2)
    with pytest.raises(ValueError, match="outputs must be"):
        HuggingFace(*bert, outputs="scores")


@pytest.mark.parametrize(("kind", "most"), [("Bert", 34), ("Roberta", 32), ("MPNet", 32), ("RobertaPreLayerNorm", 32)])
def test_long_texts_are_cut_where_the_models_positions_end(bert, kind, most):
    """Some number the positions of tokens from that of padding on."""
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=40,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=8,
        max_position_embeddings=34,
        pad_token_id=1,
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bert[1].backend_tokenizer,
        pad_token="[UNK]",
        model_input_names=["input_ids", "attention_mask"],
    )
    model = HuggingFace(getattr(transformers, f"{kind}ForSequenceClassification")(config).eval(), tokenizer)
    assert model.max_length == most
    assert np.isfinite(model(TEXTS)).all()

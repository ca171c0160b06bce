"""A causal language model of ``transformers``: it writes answers, and says how likely a given answer is."""

from __future__ import annotations

import copy
import math
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from c2fa._system import on_device, refuse_older
from c2fa.asking.model import cut_answers
from c2fa.models.lm._reading import Answer, Reader
from c2fa.models.local.huggingface import from_folder, load_carefully, setting
from c2fa.models.local.torch import Background, Floats, evaluating, precision, to_host
from c2fa.structure import BoolArray, IntArray


class CausalLM(Reader):
    """A causal language model of ``transformers``: it writes answers, and scores a given answer after many prompts.

    A batch holds rows of nearly the same length, filled up on the right, where a causal model does not look. What all
    prompts of a call begin with is computed once. Nothing is downloaded, and no code that a folder brings is run.

    Parameters
    ----------
    model
        A causal language model, a folder written by ``save_pretrained``, or a ``.gguf`` file (for which transformers
        needs the packages gguf and accelerate). Read from a folder or file, it runs in float32 on a CPU.
    tokenizer
        The model's tokenizer; a folder or file has its own.
    device, autocast
        As for `c2fa.models.Torch`.
    batch, batch_tokens
        The most rows (by default 8, and 64 on a GPU) and tokens in one call of the model. Fewer take less memory.
    max_new_tokens
        Where an answer that ``generate`` writes is cut, in tokens.
    template_options
        What the chat template takes besides the messages, such as ``{"enable_thinking": False}``.
    """

    takes = "a folder or a .gguf file"
    batches = (8, 64)
    least_shared = 32  # tokens: a common beginning that is shorter does not pay for a call of its own
    neutral: Mapping[str, Any] = {"temperature": 1.0, "top_p": 1.0, "top_k": 50, "repetition_penalty": 1.0}
    greedy: Mapping[str, Any] = {"do_sample": False, "num_beams": 1, **neutral}

    def __init__(
        self,
        model: Any,
        tokenizer: Any = None,
        *,
        device: str | torch.device | None = None,
        autocast: str | torch.dtype | None = None,
        batch: int | None = None,
        batch_tokens: int = 2**15,
        max_new_tokens: int = 256,
        template_options: Mapping[str, Any] | None = None,
    ) -> None:
        if isinstance(model, str | os.PathLike):
            path = Path(model)
            if path.suffix != ".gguf":
                model, tokenizer = from_folder(path, tokenizer, "CausalLM", "CausalLM")
            elif path.is_file():
                refuse_older("transformers", "4.57", "may read a .gguf file without its weights, and talk nonsense")
                model, tokenizer = load_carefully(path.parent, tokenizer, "CausalLM", gguf_file=path.name)
            else:
                raise ValueError(f"there is no file {str(path)!r}; nothing is downloaded, so fetch the model first")
            on_cpu = device is None or torch.device(device).type == "cpu"
            halves = any(p.dtype in (torch.bfloat16, torch.float16) for p in model.parameters())
            if on_cpu and halves and not setting(model, "is_quantized"):
                model = model.float()  # half precision is slow on a CPU, and ends the process on some
        super().__init__(model, tokenizer, device, autocast, batch)
        if model.config.is_encoder_decoder:
            raise ValueError(f"{type(model).__name__} has an encoder; CausalLM takes models that only decode")
        for name, value in {"batch_tokens": batch_tokens, "max_new_tokens": max_new_tokens}.items():
            if value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
        self.max_new_tokens, self.batch_tokens = max_new_tokens, batch_tokens
        self.template_options = dict(template_options or {})
        head = self.model.get_output_embeddings()
        self._head = head if isinstance(head, torch.nn.Module) else None  # some models do not say what makes logits
        self._parameters = sum(p.numel() for p in self.model.parameters())
        self._background = Background(self.device)
        self._written = self._cut = 0

    @property
    def name(self) -> str:
        """The model's class with a hash of its weights, its vocabulary and how it is run."""
        return self._named("hf-lm", str(self.autocast), self._lead)

    @property
    def window(self) -> int | None:
        """The most tokens that the model can read; None where neither it nor its tokenizer says so."""
        limit = setting(self._config, "max_position_embeddings") or self.tokenizer.model_max_length
        return int(limit) if limit is not None and limit < 10**9 else None  # a huge number stands for none

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for people about the answers so far."""
        return cut_answers(self._cut, self._written, self.max_new_tokens)

    def generate(self, prompt: str) -> str:
        """The answer to a prompt, each token the likeliest one; ``score`` then scores these very tokens."""
        return self.generate_many([prompt])[0]

    def generate_many(self, prompts: Sequence[str]) -> list[str]:
        """The answers to prompts, several in one call of the model; rows are filled up on the left."""
        rows = self._prompts(prompts)
        rooms = [int(min(self.max_new_tokens, self._room(ids))) for ids in rows]
        if min(rooms) < 1:
            raise ValueError(
                f"the prompt has {max(map(len, rows)):,} tokens and the model's window {self.window:,}, which leaves "
                "no room for an answer; shorten the prompt"
            )
        answers = [""] * len(rows)
        for index in self._batches([len(ids) for ids in rows], rooms):
            # Recurrent layers read what fills up a row; an answer that the window cuts would cut those beside it.
            together = not setting(self.model, "_is_stateful") and len({rooms[i] for i in index}) == 1
            for some in [index] if together else [[i] for i in index]:
                for i, ids in zip(some, self._written_after([rows[i] for i in some], rooms[some[0]]), strict=True):
                    answers[i] = self._decoded(ids)
                    self._keep(answers[i], ids)
        return answers

    def _written_after(self, rows: list[list[int]], room: int) -> list[list[int]]:
        """The tokens that the model writes after each row, up to one that ends an answer."""
        ends, width = self._ends, max(map(len, rows))
        end = ends[0] if ends else 0
        filled = [[end] * (width - len(row)) + row for row in rows]
        read = [[0] * (width - len(row)) + [1] * len(row) for row in rows]
        inputs, mask = (torch.tensor(numbers, device=self.device) for numbers in (filled, read))
        options = {"max_new_tokens": room, "eos_token_id": ends or None, "pad_token_id": end, **self.greedy}
        evaluating(self.model)
        with torch.inference_mode(), precision(self.device, self.autocast):
            outputs = self.model.generate(inputs, attention_mask=mask, **options)
        found = []
        for new in outputs[:, width:].tolist():
            stop = next((i for i, token in enumerate(new) if token in ends), len(new))
            self._written += 1
            self._cut += stop == room
            found.append(new[:stop])
        return found

    def score(self, prompts: Sequence[str], answer: str) -> Floats:
        """The log-probability of each piece of the answer after each prompt, (prompts, pieces)."""
        return self.score_many([(prompts, answer)])[0]

    def score_many(self, asked: Sequence[tuple[Sequence[str], str]]) -> list[Floats]:
        """The same for several answers, each after prompts of its own; rows of all share the calls of the model."""
        return self._begin_scores(asked)()

    @property
    def launch_scores(self) -> Callable[[Sequence[tuple[Sequence[str], str]]], Callable[[], list[Floats]]]:
        """``launch_scores(asked)`` begins ``score_many``, and what it returns waits for it; missing on a CPU.

        A GPU goes on while the caller does other things. A CPU would only answer later, and Ctrl-C lose more.
        """
        if self.device.type != "cuda":
            raise AttributeError("a CPU has nothing that would go on meanwhile")
        return self._begin_scores

    def _begin_scores(self, asked: Sequence[tuple[Sequence[str], str]]) -> Callable[[], list[Floats]]:
        of_questions = [self._answer(answer) for _, answer in asked]
        if not all(answer.ids for answer in of_questions):
            raise ValueError("the answer is empty, so there is nothing to score")
        # Here, and not in the thread that keeps the device busy, which has other rows to begin meanwhile.
        rows = [row for prompts, _ in asked for row in self._prompts(prompts)]
        answers = [answer for (prompts, _), answer in zip(asked, of_questions, strict=True) for _ in prompts]
        for i, (row, answer) in enumerate(zip(rows, answers, strict=True)):
            if len(row) > self._room(answer.ids):
                raise ValueError(
                    f"prompt {i} has {len(row):,} tokens and the answer {len(answer.ids):,}, more together than the "
                    f"model's window of {self.window:,}; shorten the context"
                )
        begun = self._background(self._launch_scores, (rows, [answer.ids for answer in answers]))

        def pieces() -> list[Floats]:
            of_row = begun()
            ends = np.cumsum([len(prompts) for prompts, _ in asked])
            of_each = np.split(np.arange(len(rows)), ends[:-1])
            return [
                np.add.reduceat([of_row[i] for i in own], [0, *answer.ends[:-1]], axis=1)
                for own, answer in zip(of_each, of_questions, strict=True)
            ]

        return pieces

    def _launch_scores(self, asked: tuple[list[list[int]], list[Sequence[int]]]) -> Callable[[], list[Floats]]:
        """Begin to score answers after rows; what is returned waits for the scores of each row's tokens."""
        rows, answers = asked
        order, scores = list[int](), list[torch.Tensor]()
        evaluating(self.model)
        with torch.inference_mode(), precision(self.device, self.autocast):
            past = self._past(rows, answers)
            shared = 0 if past is None else past.get_seq_length()
            for index in self._batches([len(row) for row in rows], [len(answer) for answer in answers]):
                scores.append(self._scored([rows[i][shared:] for i in index], [answers[i] for i in index], past))
                order += index
            by_token = to_host(torch.cat(scores))

        def of_rows() -> list[Floats]:
            ends = np.cumsum([len(answers[i]) for i in order])
            of_row = dict(zip(order, np.split(by_token(), ends[:-1]), strict=True))
            return [of_row[i] for i in range(len(rows))]

        return of_rows

    def attention(self, prompt: str, answer: str) -> tuple[IntArray, Floats]:
        """Where each token of the prompt stands in it, (tokens, 2), and how much the answer's pieces look at it.

        The second is (tokens, pieces), the mean over heads of the deeper half of the layers: those before them look at
        what stands nearby.
        """
        return self._background(self._launch_attention, (prompt, self._answer(answer)))()

    def _launch_attention(self, asked: tuple[str, Answer]) -> Callable[[], tuple[IntArray, Floats]]:
        prompt, answer = asked
        [ids], own = self._prompts([prompt]), self._places(prompt)
        spans = np.array([(0, 0)] * (len(ids) - len(own)) + own, dtype=np.intp).reshape(-1, 2)
        last = [ids[-1], *answer.ids[:-1]]
        evaluating(self.model)
        with torch.inference_mode(), precision(self.device, self.autocast):
            past = None
            if len(ids) > 1:  # of which only keys and values are kept: all attention within a prompt is its square
                past = setting(self._read([ids[:-1]], [0], [0], use_cache=True)[0], "past_key_values")
            inputs, faster = torch.tensor([last], device=self.device), self.model.config._attn_implementation
            self.model.set_attn_implementation("eager")  # step by step: the faster ways do not tell of it
            try:
                outputs = self.model(input_ids=inputs, past_key_values=past, use_cache=True, output_attentions=True)
            finally:
                self.model.set_attn_implementation(faster)
        layers = [layer for layer in setting(outputs, "attentions") or () if layer is not None]
        if not layers:
            raise TypeError(f"{type(self.model).__name__} tells of no attention")
        looked = np.zeros((len(last), len(ids)))
        for layer in layers[len(layers) // 2 :]:
            weights = layer[0].float().mean(dim=0)
            gone = max(len(ids) + len(last) - 1 - weights.shape[1], 0)  # tokens that a sliding window has left behind
            looked[:, gone:] += weights[:, : max(len(ids) - gone, 0)].cpu().double().numpy()
        pieces = np.add.reduceat(looked, [0, *answer.ends[:-1]], axis=0).T
        return lambda: (spans, pieces)

    def fits(self, prompts: Sequence[str], answer: str) -> BoolArray:
        """Whether each prompt and the answer together fit into the model's window."""
        room = self._room(self._answer(answer).ids)
        if max(len(prompt.encode()) for prompt in prompts) + len(self._lead) < room:  # a token is a byte at least
            return np.ones(len(prompts), dtype=np.bool_)
        return np.array([len(row) <= room for row in self._prompts(prompts)], dtype=np.bool_)

    def _room(self, ids: Sequence[int]) -> float:
        """The most tokens that there may be beside these."""
        return math.inf if self.window is None else self.window - len(ids)

    def _past(self, rows: list[list[int]], answers: Sequence[Sequence[int]]) -> Any:
        """What the model keeps of the tokens that all rows begin with; None where they are too few, or it cannot."""
        first, last = min(rows), max(rows)  # in the order of a dictionary; what these two share, all between them do
        same = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
        shared = first[: min(same, min(map(len, rows)) - 1)]  # the token before the answer is each row's own
        saved = (len(rows) - 1) * len(shared)
        longest = max(map(len, rows)) + max(map(len, answers)) - 1
        if len(shared) < self.least_shared or saved <= self._starting or longest > self._turn:
            return None
        outputs, _ = self._read([shared], [0], [0], use_cache=True)
        past = setting(outputs, "past_key_values")
        layers = {type(layer).__name__ for layer in setting(past, "layers") or [None]}
        # Keys and values can be continued by many tokens at once; states of recurrent layers often cannot.
        return past if layers <= {"DynamicLayer", "DynamicSlidingWindowLayer"} else None

    @property
    def _starting(self) -> float:
        """The tokens that could be computed while a call is started: on a GPU 3e12 parameters times tokens."""
        return 3e12 / self._parameters if self.device.type == "cuda" else 0.0

    def _batches(self, lengths: Sequence[int], answers: Sequence[float]) -> Iterator[list[int]]:
        """The numbers of rows that go together, from the shortest on; ``answers`` are the answers' sizes."""
        words = setting(self._config, "vocab_size") or len(self.tokenizer)
        wholes = [length + answer for length, answer in zip(lengths, answers, strict=True)]
        turned = [whole - 1 > self._turn for whole in wholes]
        bucket: list[int] = []
        padding, longest, tokens = 0, 0.0, 0.0
        for row in sorted(range(len(lengths)), key=lambda i: (turned[i], lengths[i], answers[i])):
            longest, tokens = max(longest, wholes[row]), tokens + answers[row]
            if bucket:
                spread = lengths[row] - lengths[bucket[0]]
                padding += len(bucket) * (lengths[row] - lengths[bucket[-1]])
                read = (len(bucket) + 1) * longest
                places = tokens if self._head is not None else read
                is_full = (
                    len(bucket) == self.batch
                    or (spread > max(8, lengths[bucket[0]] // 16) and padding > self._starting)
                    or turned[row] != turned[bucket[0]]
                    or read > self.batch_tokens
                    or places * words > 2**28  # numbers of the head, 1 GiB in float32
                )
                if is_full:
                    yield bucket
                    bucket, padding, longest, tokens = [], 0, wholes[row], answers[row]
            bucket.append(row)
        yield bucket

    def _scored(self, rows: list[list[int]], answers: Sequence[Sequence[int]], past: Any) -> torch.Tensor:
        """The scores of the tokens of one batch, row after row; the rows come after what is past."""
        sizes = [len(answer) for answer in answers]
        # The answer's last token is not read, as nothing comes after it. Rows are filled up with any token.
        width = max(len(row) + size for row, size in zip(rows, sizes, strict=True)) - 1
        filled = np.zeros((len(rows), width), dtype=np.int64)
        for place, row, answer in zip(filled, rows, answers, strict=True):
            place[: len(row) + len(answer) - 1] = [*row, *answer[:-1]]
        at = np.repeat(np.arange(len(rows)), sizes)
        places = np.concatenate([np.arange(size) + len(row) - 1 for row, size in zip(rows, sizes, strict=True)])
        tokens = on_device(np.array([token for answer in answers for token in answer]), self.device)
        if past is not None:  # a call adds to what it is given, and repeating makes tensors of its own
            past = copy.copy(past)
            past.layers = list(map(copy.copy, past.layers))
            past.batch_repeat_interleave(len(rows))
        _, logits = self._read(filled, at, places, use_cache=past is not None, past_key_values=past)
        return logits.gather(-1, tokens[:, None])[:, 0] - logits.logsumexp(dim=-1)

    def _read(self, rows: Any, at: Any, places: Any, **more: Any) -> tuple[Any, torch.Tensor]:
        """The outputs for rows of one length, and the logits at some places of some rows, (places, words).

        A head that is known makes no others: all logits of a batch can take longer than the rest of a small model.
        """
        inputs, *where = (on_device(np.asarray(some), self.device) for some in (rows, at, places))
        thread, head, left_out = threading.get_ident(), self._head, False

        def chosen(numbers: torch.Tensor) -> torch.Tensor:
            return numbers[tuple(index.to(numbers.device) for index in where)]

        def choose(_: Any, given: tuple[Any, ...]) -> tuple[Any, ...] | None:
            nonlocal left_out
            hidden = given[0]
            if threading.get_ident() != thread or hidden.shape[:-1] != inputs.shape:
                return None
            left_out = True
            return (chosen(hidden)[None], *given[1:])

        handle = None if head is None else head.register_forward_pre_hook(choose)
        try:
            outputs = self.model(input_ids=inputs, **more)
        finally:
            if handle is not None:
                handle.remove()
        return outputs, (outputs.logits[0] if left_out else chosen(outputs.logits)).float()

    @property
    def _turn(self) -> float:
        """The length beyond which the model encodes all places of a batch in another way (LongRoPE)."""
        rope = setting(self._config, "rope_parameters", "rope_scaling") or {}
        if "longrope" not in repr(rope):
            return math.inf
        name = "original_max_position_embeddings"
        return float(rope.get(name) or setting(self._config, name, "max_position_embeddings"))

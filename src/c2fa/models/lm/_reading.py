"""What a tokenizer makes of a language model's chats, prompts and answers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from c2fa.models.local.huggingface import Pretrained


@dataclass(frozen=True)
class Answer:
    """An answer in tokens, and where its pieces end, in tokens and in letters."""

    ids: tuple[int, ...]
    ends: list[int]
    letters: list[int]


class Reader(Pretrained):
    """A language model with the tokenizer that reads its prompts, and remembers the tokens of answers."""

    template_options: Mapping[str, Any]

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._config = self.model.config.get_text_config()  # a model of several kinds of input has others too
        self._answers: dict[str, Answer] = {}
        # The special tokens that the tokenizer puts before a text; those that it puts behind would end the prompt.
        [whole], [plain] = self._tokens(["a"], special=True), self._tokens(["a"])
        self._lead = next((whole[:k] for k in range(len(whole)) if whole[k : k + len(plain)] == plain), [])

    @property
    def template(self) -> Callable[[Sequence[Mapping[str, Any]]], str]:
        """``template(messages)``: a chat in the model's format, up to the answer; missing where there is none."""
        if not self.tokenizer.chat_template:
            raise AttributeError("the tokenizer has no chat template; prompts are plain text")
        return self._in_template

    @property
    def special_tokens(self) -> tuple[str, ...]:
        """The texts that the tokenizer reads as tokens of their own kind, such as the end of a turn."""
        return tuple(map(str, self.tokenizer.all_special_tokens))

    def _in_template(self, messages: Sequence[Mapping[str, Any]]) -> str:
        chat = list(messages)
        options = {**self.template_options, "tokenize": False, "add_generation_prompt": True}
        try:
            return str(self.tokenizer.apply_chat_template(chat, **options))
        except Exception as error:
            # A template may refuse system messages, by an error of jinja2; what it would say then opens the user's.
            if chat[0]["role"] != "system" or len(chat) < 2 or type(error).__name__ != "TemplateError":
                raise
            together = {**chat[1], "content": f"{chat[0]['content']}\n\n{chat[1]['content']}"}
            return str(self.tokenizer.apply_chat_template([together, *chat[2:]], **options))

    def pieces(self, answer: str) -> list[str]:
        """The texts of the answer's tokens, which join to the answer; tokens that share a character are one piece."""
        return [answer[a:b] for a, b in itertools.pairwise([0, *self._answer(answer).letters])]

    def _tokens(self, texts: list[str], special: bool = False) -> list[list[int]]:
        with self._tokenizing:
            if not self.tokenizer.is_fast:
                rows = self.tokenizer(texts, add_special_tokens=special, verbose=False)["input_ids"]
                return [list(map(int, ids)) for ids in rows]
            core = self.tokenizer.backend_tokenizer
            core.no_truncation()  # as a tokenizer's file, or whoever used it last, may have set
            core.no_padding()
            # Without the places of tokens in their texts, which take as long as the tokens.
            return [encoding.ids for encoding in core.encode_batch_fast(texts, add_special_tokens=special)]

    def _places(self, text: str) -> list[tuple[int, int]]:
        """Where each token of a text stands in it."""
        if not self.tokenizer.is_fast:
            raise TypeError(f"{type(self.tokenizer).__name__} does not tell where tokens stand in a text")
        with self._tokenizing:
            places: list[tuple[int, int]] = self.tokenizer.backend_tokenizer.encode(
                text, add_special_tokens=False
            ).offsets
        return places

    def _decoded(self, ids: Sequence[int]) -> str:
        with self._tokenizing:
            return str(self.tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def _prompts(self, prompts: Sequence[str]) -> list[list[int]]:
        """The tokens of prompts, with the leading special tokens once, though a chat template may bring its own."""
        if isinstance(prompts, str) or not all(isinstance(prompt, str) for prompt in prompts):
            raise TypeError("prompts must be a list of texts")
        if not prompts:
            raise ValueError("there is no prompt; a language model needs at least one")
        lead = self._lead
        rows = [ids if ids[: len(lead)] == lead else lead + ids for ids in self._tokens(list(prompts))]
        # The answer's first token must come after something.
        begin = [token for token in (self.tokenizer.bos_token_id, *self._ends) if token is not None][:1]
        if not begin and not all(rows):
            raise ValueError("the prompt is empty, and the tokenizer has no token that begins a text; write a prompt")
        return [ids or begin for ids in rows]

    @property
    def _ends(self) -> list[int]:
        """The tokens that end an answer, by the model or by its tokenizer."""
        owners = (self.model.generation_config, self._config, self.tokenizer)
        ends = [getattr(owner, "eos_token_id", None) for owner in owners]
        return list(dict.fromkeys(t for end in ends for t in ([end] if isinstance(end, int) else end or ())))

    def _answer(self, answer: str) -> Answer:
        """An answer in tokens: those that were generated, or else those that the tokenizer makes of it."""
        if not isinstance(answer, str):
            raise TypeError(f"the answer must be a text, not {type(answer).__name__}")
        if answer in self._answers:
            return self._answers[answer]
        [ids] = self._tokens([answer])
        if (text := self._decoded(ids)) != answer:
            given, other = (repr(t if len(t) <= 60 else f"{t[:57]}...") for t in (answer, text))
            raise ValueError(f"the tokenizer reads the answer {given} as {other}; give the answer as it reads it")
        return self._keep(answer, ids)

    def _keep(self, answer: str, ids: Sequence[int]) -> Answer:
        """Remember an answer's tokens, and where pieces end: not within a character, nor before a token of no text."""
        cuts: list[tuple[int, int]] = []
        for end in range(1, len(ids) + 1):
            text = self._decoded(ids[:end])
            if text and answer.startswith(text):
                if cuts and len(text) <= cuts[-1][1]:
                    cuts.pop()
                cuts.append((end, len(text)))
        self._answers.pop(answer, None)
        self._answers[answer] = Answer(tuple(ids), [end for end, _ in cuts], [length for _, length in cuts])
        while len(self._answers) > 1024:  # a program that runs for days writes many
            del self._answers[next(iter(self._answers))]
        return self._answers[answer]

"""Prompts: chats about a question, in a language model's own format."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Callable
from typing import Any

import numpy as np

from c2fa.asking.masking import Masked
from c2fa.citing.questions import MARK, Asking, Messages, Question, Rows
from c2fa.structure import IntArray


class Prompts:
    """Makes prompts of chats: in the model's chat template, or in plain text where it has none."""

    def __init__(self, lm: Any, asking: Asking) -> None:
        self.lm, self.asking = lm, asking
        self._marks: dict[tuple[str, ...], re.Pattern[str]] = {}  # by the roles of a chat

    def of(self, rows: Rows) -> list[str]:
        """The prompts of some rows."""
        return list(map(self._prompt, rows.chats))

    def full(self, question: Question) -> str:
        """The prompt with all documents."""
        return self._prompt(self.asking.chat(question.texts, question))

    @property
    def frame(self) -> str:
        """What stands around a message in every prompt, and ``MARK`` in the place of the message."""
        return self._prompt(self.asking.around(MARK))

    def forged(self, question: Question) -> tuple[str, str] | None:
        """The first text in a question by which the model tells turns apart, and what its prompts have instead."""
        chat = self.asking.chat(question.texts, question)
        marks = self._forging(chat)
        found = next((mark for m in chat if m["role"] != "system" and (mark := marks.search(m["content"]))), None)
        return None if found is None else (found[0], _broken(found))

    def places(self, masked: Masked) -> IntArray:
        """Where each leaf of a question stands in its full prompt, (leaves, 2): what changes when it is masked."""
        whole, leaves, places = self.full(masked.content), np.arange(masked.structure.leaves), []
        for leaf in leaves:
            [without] = self.of(masked.inputs(leaves[None] != leaf, masked.structure.depth - 1))
            places.append(_changed(whole, without))
        return np.array(places, dtype=np.intp)

    def _prompt(self, chat: Messages) -> str:
        marks = self._forging(chat)
        own = [m if m["role"] == "system" else {**m, "content": marks.sub(_broken, m["content"])} for m in chat]
        if templated := self._templated(own):
            return templated
        if [m["role"] for m in chat] in (["user"], ["system", "user"]):
            return "\n\n".join(m["content"] for m in chat if m["content"])
        calls = [f" {json.dumps(m['tool_calls'])}" if m.get("tool_calls") else "" for m in chat]
        turns = [f"{m['role'].capitalize()}: {m['content']}{call}" for m, call in zip(chat, calls, strict=True)]
        return "\n\n".join([*turns, "Assistant:"])

    def _templated(self, chat: Messages) -> str | None:
        template: Callable[[Messages], str | None] | None = getattr(self.lm, "template", None)
        return None if template is None else template(chat)

    def _forging(self, chat: Messages) -> re.Pattern[str]:
        """What a document must not say, for the model would read it as the end of a turn or the beginning of another.

        These are the marks in the format of a chat, as <|im_start|>, <end_of_turn> and [INST], and its other special
        tokens, where it tells them.
        """
        roles = tuple(m["role"] for m in chat)
        if roles not in self._marks:
            around = self._templated([{**m, "content": m["content"] and MARK} for m in chat])
            found = {*getattr(self.lm, "special_tokens", ()), *re.findall(r"<[^<>\s]+>|\[/?[A-Z_]+\]", around or "")}
            ordered = map(re.escape, sorted(found, key=len, reverse=True))
            self._marks[roles] = re.compile((around and "|".join(ordered)) or "(?!)")
        return self._marks[roles]


def _changed(text: str, other: str) -> tuple[int, int]:
    """The place of a text that is another, or nothing, in the other text.

    >>> _changed("one two three", "one three")
    (5, 9)
    """

    def alike(one: str, two: str) -> int:
        """How many letters both begin with; whole slices are compared far faster than letters."""
        return bisect_left(range(min(len(one), len(two))), True, key=lambda k: one[: k + 1] != two[: k + 1])

    first = alike(text, other)
    return first, len(text) - alike(text[first:][::-1], other[first:][::-1])


def _broken(found: re.Match[str]) -> str:
    """A special token with a blank in it, which a tokenizer does not take for one."""
    return f"{found[0][0]} {found[0][1:]}"

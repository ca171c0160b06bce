"""A language model of made-up numbers behind two servers' documented replies; any reply can be spoilt."""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any

from servers.fake import Server, reply

BOS = 1
WINDOW = 4096
SCORING = ("grammar", "prompt_logprobs")


class Tokenizer:
    """Words with the blank before them, and the single bytes of what is not ASCII."""

    def __init__(self) -> None:
        self._ids: dict[bytes, int] = {}
        self._parts: dict[int, bytes] = {}
        self._lock = threading.Lock()

    def parts(self, text: str) -> list[bytes]:
        found: list[bytes] = []
        for piece in re.findall(r" ?[A-Za-z]+|.", text, flags=re.DOTALL):
            found += [piece.encode()] if piece.isascii() else [bytes([b]) for b in piece.encode()]
        return found

    def encode(self, text: str) -> list[int]:
        with self._lock:
            ids = [self._ids.setdefault(part, 10 + len(self._ids)) for part in self.parts(text)]
            self._parts.update({number: part for part, number in self._ids.items()})
        return ids

    def decode(self, ids: list[int]) -> str:
        return b"".join(self._parts[number] for number in ids).decode(errors="replace")


def logprob(context: list[int], token: int) -> float:
    """A number between -5 and 0 that depends on every token before it."""
    digest = hashlib.sha256(json.dumps([context, token]).encode()).digest()
    return -5.0 * int.from_bytes(digest[:4], "big") / 2**32


class LM(Server):
    """llama-server and vLLM at once; ``scored`` counts the rows that were answered, ``bodies`` has every request.

    ``spoil(path, reply)`` may change a reply; ``faults`` are taken in turn by the requests that score rows.
    """

    def __init__(
        self, spoil: Callable[[str, Any], Any] = lambda path, data: data, faults: tuple[Any, ...] = (), port: int = 0
    ) -> None:
        self.tokenizer, self.spoil, self.faults = Tokenizer(), spoil, list(faults)
        self.scored: Counter[str] = Counter()
        self.bodies: list[tuple[str, Any]] = []
        self.secrets: list[str | None] = []
        self._lock = threading.Lock()
        super().__init__(port)

    def expected(self, prompt: str, answer: str) -> list[float]:
        """What every server must say of an answer."""
        return self._logprobs([BOS, *self.tokenizer.encode(prompt)], self.tokenizer.encode(answer))

    @staticmethod
    def _logprobs(context: list[int], tokens: list[int]) -> list[float]:
        return [logprob([*context, *tokens[:i]], token) for i, token in enumerate(tokens)]

    def handle(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        asked = json.loads(body) if body else {}
        scoring = any(name in asked for name in SCORING)
        with self._lock:
            self.bodies.append((handler.path, asked))
            self.secrets.append(handler.headers.get("authorization"))
            fault = self.faults.pop(0) if scoring and self.faults else None
        if isinstance(fault, int):
            return reply(handler, fault, {"error": "a made-up failure"}, {"retry-after": "0"})
        if fault == "hang":
            time.sleep(1.5)
            handler.close_connection = True
            return None
        answer = getattr(self, "_" + re.sub(r"\W", "_", handler.path).strip("_"), None)
        if answer is None:
            return reply(handler, 404, {"detail": "Not Found"})
        data = json.dumps(self.spoil(handler.path, answer(asked))).encode()
        if fault == "half":
            handler.send_response(200)
            handler.send_header("content-type", "application/json")
            handler.send_header("content-length", str(len(data)))
            handler.end_headers()
            handler.wfile.write(data[: len(data) // 2])
            handler.close_connection = True
            return None
        if scoring:
            prompts = asked["prompt"]
            with self._lock:
                self.scored.update(json.dumps(p) for p in (prompts if "prompt_logprobs" in asked else [prompts]))
        return reply(handler, 200, data)

    def _props(self, asked: Any) -> Any:
        return {"default_generation_settings": {"n_ctx": WINDOW}, "total_slots": 1}

    def _v1_models(self, asked: Any) -> Any:
        return {"object": "list", "data": [{"id": "lm", "object": "model", "max_model_len": WINDOW}]}

    def _apply_template(self, asked: Any) -> Any:
        assert asked["chat_template_kwargs"] in ({}, {"strip": True})
        strip = asked["chat_template_kwargs"].get("strip", False)
        said = [(m["role"], m["content"].strip() if strip else m["content"]) for m in asked["messages"]]
        turns = "".join(f"<{role}>{content}" for role, content in said)
        return {"prompt": turns + "<assistant>"}

    def _tokenize(self, asked: Any) -> Any:
        if "content" in asked:  # llama-server
            ids = self.tokenizer.encode(asked["content"])
            return {"tokens": [{"id": i, "piece": _piece(self.tokenizer._parts[i])} for i in ids]}
        if "messages" in asked:  # vLLM
            return {"tokens": [BOS, *self.tokenizer.encode(self._apply_template(asked)["prompt"])]}
        special = [BOS] if asked["add_special_tokens"] else []
        ids = special + self.tokenizer.encode(asked["prompt"])
        return {"count": len(ids), "max_model_len": 4096, "tokens": ids, "token_strs": None}

    def _detokenize(self, asked: Any) -> Any:
        return {"prompt": self.tokenizer.decode(asked["tokens"])}

    def _v1_completions(self, asked: Any) -> Any:
        if "prompt_logprobs" in asked:
            choices = [{"index": i, "text": "x", **self._prefilled(ids)} for i, ids in enumerate(asked["prompt"])]
            usage = {"prompt_tokens": sum(map(len, asked["prompt"])), "completion_tokens": len(choices)}
            return {"choices": choices[::-1], "usage": usage}
        context = [BOS, *self.tokenizer.encode(asked["prompt"])]
        if "grammar" not in asked:
            usage = {"prompt_tokens": len(context), "completion_tokens": 3}
            return {
                "choices": [{"text": f" after {len(context)}", "finish_reason": ending(asked["max_tokens"])}],
                "usage": usage,
            }
        tokens = [int(number) for number in re.findall(r"<\[(\d+)\]>", asked["grammar"])]
        content = [{"id": t, "logprob": v} for t, v in zip(tokens, self._logprobs(context, tokens), strict=True)]
        usage = {"prompt_tokens": len(context), "completion_tokens": len(content)}
        return {"choices": [{"index": 0, "text": "", "logprobs": {"content": content}}], "usage": usage}

    def _prefilled(self, ids: list[int]) -> dict[str, Any]:
        entries = [
            {str(t): {"logprob": logprob(ids[:i], t), "rank": 1, "decoded_token": "x"}} for i, t in enumerate(ids)
        ]
        return {"prompt_logprobs": [None, *entries[1:]]}


def ending(most: int) -> str:
    """Why a generated text ends: those here have three tokens."""
    return "length" if most < 4 else "stop"


def _piece(part: bytes) -> Any:
    try:
        return part.decode()
    except UnicodeDecodeError:
        return list(part)

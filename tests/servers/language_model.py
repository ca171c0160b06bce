"""An OpenAI-compatible server with log-probabilities in front of a small, untrained causal language model.

python language_model.py PORT
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

# Twenty words and no more: a server that returns twenty log-probabilities then returns them all.
WORDS = ("<unk>", "yes", "no", "text", "answer", ":", "the", "film", "was", "good", "bad", "dull", "great")
WORDS += ("but", "not", "very", "plot", "actors", "it", "a")


class LanguageModel:
    """A GPT-2 of two layers over twenty words; the same weights in every process."""

    def __init__(self) -> None:
        import torch
        from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
        from transformers import GPT2Config, GPT2LMHeadModel

        torch.manual_seed(0)
        config = GPT2Config(
            vocab_size=len(WORDS), n_positions=256, n_embd=32, n_layer=2, n_head=4,
            initializer_range=0.6, bos_token_id=0, eos_token_id=0,
        )  # fmt: skip
        self.model = GPT2LMHeadModel(config).eval()
        self.tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="<unk>"))
        self.tokenizer.normalizer = normalizers.Lowercase()
        self.tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()

    def logprobs(self, prompt: str) -> tuple[list[float], int]:
        """Return the log-probability of every word as the next one, and the number of tokens read."""
        import torch

        ids = self.tokenizer.encode(prompt).ids
        with torch.inference_mode():
            logits = self.model(torch.tensor([ids])).logits[0, -1]
        return logits.log_softmax(-1).tolist(), len(ids)


def complete(model: LanguageModel, body: dict[str, Any]) -> dict[str, Any]:
    """Answer a request for chat or plain completions."""
    chat = "messages" in body
    prompts = [body["messages"][-1]["content"]] if chat else body["prompt"]
    prompts = [prompts] if isinstance(prompts, str) else prompts
    top = body["top_logprobs"] if chat else body["logprobs"]
    choices, read = [], 0
    for index, prompt in enumerate(prompts):
        values, count = model.logprobs(prompt)
        read += count
        best = sorted(range(len(values)), key=lambda i: -values[i])[:top]
        text = WORDS[best[0]]
        if chat:
            listed = [{"token": WORDS[i], "logprob": values[i], "bytes": None} for i in best]
            logprobs: dict[str, Any] = {"content": [{**listed[0], "top_logprobs": listed}]}
            choice = {"message": {"role": "assistant", "content": text}}
        else:
            logprobs = {"tokens": [text], "top_logprobs": [{WORDS[i]: values[i] for i in best}]}
            choice = {"text": text}
        choices.append({"index": index, "finish_reason": "length", "logprobs": logprobs, **choice})
    usage = {"prompt_tokens": read, "completion_tokens": len(prompts), "total_tokens": read + len(prompts)}
    return {"object": "chat.completion" if chat else "text_completion", "choices": choices, "usage": usage}


def serve(port: int) -> None:
    """Serve on this machine alone, for ever."""
    import torch

    torch.set_num_threads(1)
    model = LanguageModel()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _send(self, status: int, body: Any) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            self._send(200, {"object": "list", "data": [{"id": "tiny", "object": "model"}]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if body.get("model") != "tiny":
                return self._send(404, {"error": {"message": f"The model {body.get('model')!r} does not exist"}})
            if self.headers.get("authorization") != "Bearer open-sesame":
                return self._send(401, {"error": {"message": "Incorrect API key provided"}})
            if max(body.get("top_logprobs") or 0, int(body.get("logprobs") or 0)) > 20:
                return self._send(400, {"error": {"message": "top_logprobs must be at most 20"}})
            return self._send(200, complete(model, body))

        def log_message(self, *args: Any) -> None:
            pass

    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    serve(int(sys.argv[1]))

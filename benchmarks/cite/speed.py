"""Rows a second of ``cite`` and of ContextCite's own loop, on the same model and the same contexts."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from benchmarks.cite.items import Item
from benchmarks.cite.rows import message

import c2fa
from c2fa.models.lm.causal import CausalLM

ABLATIONS = 64
BATCHES = (1, 8, 32)  # rows that ContextCite sends at a time; 1 is its default
INSTRUCTIONS = " ".join(
    f"Rule {k}: answer from the context alone, in one short sentence, and name no source that is not there."
    for k in range(1, 17)
)


class ContextCiteLoop:
    """What the package context-cite does for one answer, written out: its dataset, its loop, its Lasso.

    Every prompt is put into the chat format and encoded by itself. Batches are filled up to their longest row, the
    model returns logits at all places, and the log-odds of each token of the answer are computed from a copy of those
    logits in which the token is struck out (``_get_response_logit_probs`` and ``_compute_logit_probs``).
    """

    def __init__(self, lm: Any, batch: int, system: str | None) -> None:
        self.lm, self.batch, self.system = lm, batch, system

    def __call__(self, item: Item, answer: str) -> Any:
        masked = c2fa.maskers.Text(levels=("documents", "sentences"), mask=None)(dict(item.documents))
        masks = np.zeros((ABLATIONS, masked.structure.leaves), dtype=bool)
        tokenizer = self.lm.tokenizer
        response = tokenizer.encode(answer, add_special_tokens=False)
        rows = []
        for seed in range(ABLATIONS):
            random = np.random.RandomState(seed)  # as they do
            masks[seed] = random.choice([False, True], size=masked.structure.leaves, p=[0.5, 0.5])
            [documents] = masked.inputs(masks[[seed]], 1)
            said = [] if self.system is None else [{"role": "system", "content": self.system}]
            said.append({"role": "user", "content": message(documents, item.query)})
            chat = tokenizer.apply_chat_template(said, tokenize=False, add_generation_prompt=True)
            rows.append(tokenizer.encode(chat, add_special_tokens=False) + response)
        found = [self._logit_probs(rows[i : i + self.batch], response) for i in range(0, len(rows), self.batch)]
        return self._fitted(masks, np.concatenate(found))

    def _logit_probs(self, rows: Sequence[list[int]], response: Sequence[int]) -> Any:
        import torch

        width, size = max(map(len, rows)), len(response)
        device = self.lm.device
        # Filled up on the left, so that the answer stands at the end of every row, where their code reads it.
        ids = torch.tensor([[0] * (width - len(row)) + row for row in rows], device=device)
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows], device=device)
        cast = torch.autocast("cuda") if device.type == "cuda" else contextlib.nullcontext()
        with torch.no_grad(), cast:
            logits = self.lm.model(input_ids=ids, attention_mask=mask).logits[:, -(size + 1) : -1]
        labels = ids[:, -size:].reshape(-1)
        flat = logits.reshape(len(labels), -1)
        correct = flat.gather(-1, labels[:, None])[:, 0]
        others = flat.clone()
        others.scatter_(-1, labels[:, None], -torch.inf)
        return (correct - others.logsumexp(dim=-1)).reshape(len(rows), size).float().cpu().numpy()

    def _fitted(self, masks: Any, logit_probs: Any) -> Any:
        from sklearn.linear_model import Lasso
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        log_p = -np.logaddexp(0.0, -logit_probs.astype(np.float64)).sum(axis=1)
        log_odds = log_p - np.log(-np.expm1(np.minimum(log_p, -1e-12)))
        made = make_pipeline(StandardScaler(), Lasso(alpha=0.01))
        made.fit(masks.astype(np.float32), log_odds / logit_probs.shape[1])
        return made


@contextlib.contextmanager
def no_shared_prefix() -> Iterator[None]:
    """Have every row computed from its first token."""
    before, CausalLM.least_shared = CausalLM.least_shared, 10**9
    try:
        yield
    finally:
        CausalLM.least_shared = before


def lines(lm: Any, items: Sequence[Item], answers: Sequence[str]) -> Iterator[str]:
    """Rows a second of each way, with the usual prompt and with long instructions before it."""
    for name, system in (
        ("the usual prompt", None),
        (f"{len(INSTRUCTIONS.split())} words of instructions", INSTRUCTIONS),
    ):
        yield f"{name}, {len(items)} contexts, {ABLATIONS} rows each:"

        def ours(item: Item, answer: str, system: str | None = system) -> int:
            return c2fa.cite(lm, item.documents, item.query, answer, budget=ABLATIONS, system=system).queries

        def theirs(batch: int, system: str | None = system) -> Callable[[Item, str], int]:
            loop = ContextCiteLoop(lm, batch, system)
            return lambda item, answer: ABLATIONS if loop(item, answer) is not None else 0

        with no_shared_prefix():
            yield _line("cite, no shared prefix", ours, lm, items, answers)
        yield _line("cite", ours, lm, items, answers)
        for batch in BATCHES:
            yield _line(f"ContextCite's loop, {batch} at a time", theirs(batch), lm, items, answers)


def _line(name: str, way: Callable[[Item, str], int], lm: Any, items: Sequence[Item], answers: Sequence[str]) -> str:
    """The faster of two passes: in the first a GPU may load what it needs for sizes that it has not met."""
    seconds = np.inf
    for _ in range(2):
        _wait(lm)
        begin = time.perf_counter()
        rows = sum(way(item, answer) for item, answer in zip(items, answers, strict=True))
        _wait(lm)
        seconds = min(seconds, time.perf_counter() - begin)
    return f"  {name:40}{rows / seconds:>10.1f} rows a second ({rows} rows, {seconds:.1f} s)"


def _wait(lm: Any) -> None:
    if lm.device.type == "cuda":
        import torch

        torch.cuda.synchronize()

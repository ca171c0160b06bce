"""The command: items, answers, explanations, tables."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from benchmarks.cite import __doc__ as about
from benchmarks.cite import tables
from benchmarks.cite.asking import message, run_all, write_answers
from benchmarks.cite.items import HALVES, Item, load
from benchmarks.cite.scoring import METHODS, PARTS, Settings, score_item

ANSWER_TOKENS = 48
SETTINGS = ("half", "rows", "seeds", "parts", "reference", "methods", "model")  # one file has results of one of each


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is missing of a file of results, and print its tables."""
    given = flags().parse_args(arguments)
    if given.speed:
        from benchmarks.cite import speed  # torch, which workers do not need

        lm = model(given)
        items, answers = _answered(lm, load(given.data, given.families, given.half, given.items))
        _print(speed.lines(lm, items, answers))
        return
    making = given.model is not None or given.answers is not None
    results = Results(given.out, {name: getattr(given, name) for name in SETTINGS}, making)
    if making:
        _run(given, results)
    _print(tables.lines(results.records))


def _run(given: argparse.Namespace, results: Results) -> None:
    """Do the items that are missing, as far as the time goes."""
    wanted = load(given.data, given.families, given.half, given.items)
    missing = _in_turn([item for item in wanted if item.name not in results.done])
    if not missing:
        return
    begin = time.monotonic()
    settings = Settings(given.rows, given.seeds, given.parts, given.reference, given.methods, given.answers)
    lm = None if given.model is None else model(given)
    if given.answers is not None:
        given.answers.mkdir(parents=True, exist_ok=True)

    def tasks() -> Iterator[tuple[Item, str | None, Settings]]:
        """Answers are written for some items ahead, so that a run that is cut has not written those of all."""
        if lm is None:
            kept = {path.stem for path in given.answers.glob("*.npz")}
            yield from ((item, None, settings) for item in missing if f"{item.number:08x}" in kept)
            return
        for start in range(0, len(missing), given.ahead):
            items, answers = _answered(lm, missing[start : start + given.ahead])
            yield from ((item, answer, settings) for item, answer in zip(items, answers, strict=True))

    left = given.seconds - (time.monotonic() - begin)
    for record in run_all(score_item, tasks(), lm, given.workers, left):
        results.add(record)
        spent = time.monotonic() - begin
        print(f"{spent:.0f} s, {len(results.records)} items: {record['item']}, {record['rows']} rows", file=sys.stderr)


def _in_turn(items: Sequence[Item]) -> list[Item]:
    """The families in turn, so that a run that is cut has about as many items of each."""
    families = [[item for item in items if item.family == name] for name in dict.fromkeys(i.family for i in items)]
    return [item for some in zip_longest(*families) for item in some if item is not None]


def _answered(lm: Any, items: Sequence[Item]) -> tuple[list[Item], list[str]]:
    """The items that the model has an answer to which can be scored, and those answers."""
    template = getattr(lm, "template", None)
    texts = [message(item.documents, item.query) for item in items]
    prompts = texts if template is None else [template([{"role": "user", "content": text}]) for text in texts]
    written = write_answers(lm, prompts, ANSWER_TOKENS)
    kept = [(item, answer) for item, answer in zip(items, written, strict=True) if _can_be_scored(lm, answer)]
    return [item for item, _ in kept], [answer for _, answer in kept]


def _can_be_scored(lm: Any, answer: str) -> bool:
    """Whether there is an answer, and its tokens are those of its text."""
    try:
        return bool(answer.strip()) and "".join(lm.pieces(answer)) == answer
    except ValueError:
        return False


class Results:
    """A file with the settings in its first line and an item in each further one."""

    def __init__(self, path: Path, settings: dict[str, Any], making: bool) -> None:
        self.path, self.records = path, []
        settings = json.loads(json.dumps(settings, default=str))
        lines = path.read_text().splitlines() if path.exists() else []
        if not lines:
            if not making:
                raise SystemExit(f"{path} has no results; give --model to make them")
            self._append(settings)
            return
        before = json.loads(lines[0])
        changed = [name for name in settings if settings[name] != before.get(name)]
        if making and changed:
            raise SystemExit(f"{path} was made with another {', '.join(changed)}: give another --out")
        for line in lines[1:]:
            try:
                self.records.append(json.loads(line))
            except ValueError:  # a run was killed while it wrote its last line, whose item is done again
                continue

    @property
    def done(self) -> set[str]:
        """The names of the items that are finished."""
        return {record["item"] for record in self.records}

    def add(self, record: dict[str, Any]) -> None:
        """Keep a finished item; it is in the file when this returns."""
        self._append(record)
        self.records.append(json.loads(json.dumps(record)))

    def _append(self, line: Any) -> None:
        with self.path.open("ab+") as file:
            if file.tell():  # what a killed run left of a line must not spoil the next
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    file.write(b"\n")
            file.write(json.dumps(line).encode() + b"\n")


def model(given: argparse.Namespace) -> Any:
    """The language model, in half precision on a GPU."""
    import torch

    from c2fa.models import CausalLM

    gpu = given.device.startswith("cuda")
    lm = CausalLM(
        given.model.removeprefix("hf:"),
        device=given.device,
        batch=given.batch,
        batch_tokens=given.tokens,
        max_new_tokens=ANSWER_TOKENS,
    )
    if gpu:
        torch.nn.Module.to(lm.model, getattr(torch, given.dtype))  # transformers refuses this of a GGUF file
    return lm


def flags() -> argparse.ArgumentParser:
    """What the commands of this benchmark take."""
    parser = argparse.ArgumentParser(
        "benchmarks.cite", description=about, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", help="hf:FOLDER or a .gguf file; without it the tables of --out are printed")
    parser.add_argument("--data", type=Path, default=Path("../shared/data/context"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float16", help="of the weights on a GPU; bfloat16 rounds more coarsely")
    parser.add_argument("--batch", type=int, default=None, help="the most rows in one call of the network")
    parser.add_argument("--tokens", type=int, default=None, help="the most tokens in one call of the network")
    parser.add_argument("--families", type=_words, default=("qed", "nq5", "nq10"))
    parser.add_argument("--items", type=int, default=100, help="of each family")
    parser.add_argument("--half", choices=HALVES, default="second")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=_numbers, default=(16, 32, 64, 128), help="budgets")
    parser.add_argument("--parts", type=_words, default=("sentences",), help=f"what to measure, of {', '.join(PARTS)}")
    parser.add_argument("--methods", type=_words, default=tuple(METHODS), help=f"of {', '.join(METHODS)}")
    parser.add_argument("--reference", type=int, default=1024, help="rows a level that intervals are compared with")
    parser.add_argument("--answers", type=Path, help="a folder that keeps rows; without --model, all is done from them")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no further item after this time")
    parser.add_argument("--workers", type=int, default=0, help="processes that explain while the model answers others")
    parser.add_argument("--ahead", type=int, default=64, help="items whose answers are written together")
    parser.add_argument("--out", type=Path, default=Path("cite.jsonl"))
    parser.add_argument("--speed", action="store_true", help="rows a second, and nothing else")
    return parser


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(","))


def _print(lines: Any) -> None:
    for line in lines:
        print(line, flush=True)

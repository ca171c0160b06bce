"""The command: items, answers, explanations, tables."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from benchmarks.cite import __doc__ as about
from benchmarks.cite import tables
from benchmarks.cite.asking import run_all, write_answers
from benchmarks.cite.items import HALVES, Item, load
from benchmarks.cite.rows import Context, Record, message
from benchmarks.cite.scoring import METHODS, PARTS, Settings, score_item

import c2fa

ANSWER_TOKENS = 48


def main(arguments: Sequence[str] | None = None) -> None:
    """Record the rows that are missing in a file, or print the tables of what files have."""
    given = flags().parse_args(arguments)
    if given.frozen:
        for path in given.frozen:
            _print(_frozen(Record(path), given))
        return
    if given.speed:
        from benchmarks.cite import speed  # torch, which workers do not need

        rows = (given.rows or (speed.ROWS,))[0]
        if given.model == "random":
            lm = speed.random_model(given.device, given.dtype, given.batch, given.layers, given.tokenizer)
            _print(speed.lines(lm, *speed.made_up(given.items), rows))
        else:
            lm = model(given)
            _print(speed.lines(lm, *_answered(lm, load(given.data, given.families, given.half, given.items)), rows))
        return
    items = load(given.data, given.families, given.half, given.items)
    if given.dry:
        _print(_counted(items, _settings(given)))
    elif given.model is None:
        raise SystemExit("give --frozen FILE for the tables of what was recorded, or --model to record")
    else:
        _record(given, items)


def _settings(given: argparse.Namespace, before: Mapping[str, Any] | None = None) -> Settings:
    """What is to be done with every item: as the flags say, else as before."""
    chosen = {name: getattr(given, name) for name in Settings.__dataclass_fields__}
    before = {} if before is None else {name: tuple(v) if isinstance(v, list) else v for name, v in before.items()}
    return Settings(**{**before, **{name: value for name, value in chosen.items() if value is not None}})


def _frozen(record: Record, given: argparse.Namespace) -> Iterator[str]:
    """The tables of a file of rows, without a model."""
    if not record.contexts:
        raise SystemExit(f"{record.path} has no rows; make them with --record and --model")
    yield f"{record.path}: {', '.join(f'{name} {value}' for name, value in record.about.items())}"
    chosen = [one for one in record.contexts.values() if one.context.family in given.families]
    tasks = [
        (one.context, None, one.rows, tuple(dict.fromkeys(_settings(given, settings) for settings in one.settings)))
        for one in chosen
    ]
    workers = (os.cpu_count() or 1) if given.workers is None else given.workers
    yield from tables.lines([found for found, _, _ in run_all(score_item, tasks, None, workers, given.seconds)])


def _counted(items: Sequence[Item], settings: Settings) -> Iterator[str]:
    """How many rows recording would ask, by family; of what is asked next, little depends on what the model says."""

    class Silent:
        """Says the same to every prompt."""

        def score(self, prompts: Sequence[str], answer: str) -> Any:
            return [[-1.0] for _ in prompts]

    counts: dict[str, list[int]] = {}
    for item in items:
        context = Context.of(item, "It is so.", ["It is so."], settings.levels)
        found, _, _ = score_item(Silent(), context, item, {}, [settings])
        counts.setdefault(item.family, []).append(found["rows"])
    for family, of_items in counts.items():
        yield f"{family}: {len(of_items)} items, {sum(of_items)} rows, {sum(of_items) / len(of_items):.0f} an item"
    yield f"{sum(map(sum, counts.values()))} rows in all"


def _record(given: argparse.Namespace, items: Sequence[Item]) -> None:
    """Write the rows of the items that are missing in a file, as far as the time goes."""
    begin = time.monotonic()
    settings, record, lm = _settings(given), Record(given.record), model(given)
    others = {} if given.answers is None else Record(given.answers).contexts
    as_json = json.loads(json.dumps(vars(settings)))
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
    record.begin(
        {
            "model": Path(given.model.removeprefix("hf:")).name,
            "dtype": given.dtype if given.device.startswith("cuda") else "float32",
            "half": given.half,
            "c2fa": c2fa.__version__,
            **{name: sys.modules[name].__version__ for name in ("torch", "transformers") if name in sys.modules},
            "commit": given.commit or commit,
            "questions": "Natural Questions and QED (CC BY-SA 3.0), whose texts are not kept",
            **({} if given.answers is None else {"answers of": given.answers.name}),
        }
    )

    def tasks() -> Iterator[tuple[Any, ...]]:
        """Answers are written for some items ahead, so that a run that is cut has not written those of all."""
        todo = _in_turn(
            [i for i in items if i.name not in record.contexts or as_json not in record.contexts[i.name].settings]
        )
        for start in range(0, len(todo), given.ahead):
            some = todo[start : start + given.ahead]
            known = [item for item in some if item.name in record.contexts]
            new = [item for item in some if item not in known and (not others or item.name in others)]
            written = [others[item.name].context.answer for item in new] if others else _written(lm, new)
            for item, answer in zip(new, written, strict=True):
                if not _can_be_scored(lm, answer):
                    continue
                yield Context.of(item, answer, lm.pieces(answer), settings.levels), item, {}, [settings]
            for item in known:
                yield record.contexts[item.name].context, item, record.contexts[item.name].rows, [settings]

    asked, left = 0, given.seconds - (time.monotonic() - begin)
    for _, context, new in run_all(score_item, tasks(), lm, given.workers or 0, left):
        record.add(context, new, as_json)
        asked += len(new)
        done = f"{len(record.contexts)} contexts, {asked} new rows, {record.path.stat().st_size / 1e6:.1f} MB"
        print(f"{time.monotonic() - begin:.0f} s: {done}", file=sys.stderr)


def _in_turn(items: Sequence[Item]) -> list[Item]:
    """The families in turn, so that a run that is cut has about as many items of each."""
    families = [[item for item in items if item.family == name] for name in dict.fromkeys(i.family for i in items)]
    return [item for some in zip_longest(*families) for item in some if item is not None]


def _answered(lm: Any, items: Sequence[Item]) -> tuple[list[Item], list[str]]:
    """The items that the model has an answer to which can be scored, and those answers."""
    kept = [(i, text) for i, text in zip(items, _written(lm, items), strict=True) if _can_be_scored(lm, text)]
    return [item for item, _ in kept], [answer for _, answer in kept]


def _written(lm: Any, items: Sequence[Item]) -> list[str]:
    """The model's answers."""
    template = getattr(lm, "template", None)
    texts = [message(item.documents, item.query) for item in items]
    prompts = texts if template is None else [template([{"role": "user", "content": text}]) for text in texts]
    return write_answers(lm, prompts)


def _can_be_scored(lm: Any, answer: str) -> bool:
    """Whether there is an answer, and its tokens are those of its text."""
    try:
        return bool(answer.strip()) and "".join(lm.pieces(answer)) == answer
    except ValueError:
        return False


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
    parser.add_argument("--model", help="hf:FOLDER or a .gguf file; for --speed also random")
    parser.add_argument("--record", type=Path, default=Path("cite.rows.xz"), help="the file of rows to go on with")
    parser.add_argument("--answers", type=Path, help="a file of rows of another model, whose answers are explained")
    parser.add_argument(
        "--frozen", type=Path, nargs="+", help="files of rows whose tables are printed, without a model"
    )
    parser.add_argument("--dry", action="store_true", help="count the rows that would be recorded, and ask none")
    parser.add_argument("--data", type=Path, default=Path("../shared/data/context"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float16", help="of the weights on a GPU; bfloat16 rounds more coarsely")
    parser.add_argument("--batch", type=int, default=None, help="the most rows in one call of the network")
    parser.add_argument("--tokens", type=int, default=2**15, help="the most tokens in one call of the network")
    parser.add_argument("--families", type=_words, default=("qed", "nq5", "nq10"))
    parser.add_argument("--items", type=int, default=70, help="of each family")
    parser.add_argument("--half", choices=HALVES, default="second")
    parser.add_argument("--seeds", type=int, help="1, or as in the file")
    parser.add_argument("--rows", type=_numbers, help="budgets; 16,32,64,128, or as in the file")
    parser.add_argument("--parts", type=_words, help=f"what to measure, of {', '.join(PARTS)}")
    parser.add_argument("--methods", type=_words, help=f"of {', '.join(METHODS)}")
    parser.add_argument("--reference", type=int, help="rows a level that intervals are compared with")
    parser.add_argument("--fresh", type=int, help="masks of each level that explanations are scored on")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no further item after this time")
    parser.add_argument("--workers", type=int, help="processes that explain while the model answers others")
    parser.add_argument("--ahead", type=int, default=64, help="items whose answers are written together")
    parser.add_argument("--commit", help="of the code, where git cannot tell")
    parser.add_argument("--speed", action="store_true", help="rows a second, and nothing else")
    parser.add_argument("--layers", type=int, default=30, help="of --model random")
    parser.add_argument("--tokenizer", help="of --model random: a tokenizer.json; made on the spot by default")
    return parser


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(","))


def _print(lines: Any) -> None:
    for line in lines:
        print(line, flush=True)

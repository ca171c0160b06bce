"""A small language model that scouts for a large one: ``python -m benchmarks.cite.scouting``.

    python -m benchmarks.cite.scouting --model hf:LARGE --scout hf:SMALL --device cuda --families nq10 --items 40
    python -m benchmarks.cite.scouting --frozen LARGE.xz SMALL.xz --families nq10
    python -m benchmarks.cite.scouting --frozen FILE.xz --model hf:FOLDER --families nq10  # its own attention

The large model writes an answer to each question, which ``cite`` explains by some of its rows: alone, and with what the
small model makes of the same answer and passages as a prior (``c2fa.scout``). Explanations are scored on fresh masks of
sentences by the rank correlation of what they predict with what the large model says (LDS). A prompt is asked once,
whoever asks for it. ``--frozen`` takes two files of rows that ``benchmarks.cite`` recorded, and no model: the second is
of the answers of the first (``benchmarks.cite --answers LARGE.xz --parts rows``), or each model explains its own answer
to the same question, so that the scout knows less. With one file and the model that it is of, the model's own attention
is what is expected (``c2fa.scout("attention")``); the row that it takes is not counted in the tables.

Scouts that mislead are shown too: *negated* has the opposite of every value, *shuffled* the values of other sentences
of the context, and *another question* what the small model says of the item before. None may cost more than .02.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
from benchmarks.cite.asking import write_answers
from benchmarks.cite.command import flags, model
from benchmarks.cite.items import Item, load
from benchmarks.cite.rows import Record, Rows, message
from benchmarks.cite.scoring import Case
from benchmarks.queries.tables import Estimate

import c2fa
from c2fa import metrics
from c2fa.citing import Question
from c2fa.citing.scoring import Scorer
from c2fa.priors.scouting import Found, Scout
from c2fa.structure import FloatArray

ALONE, SCOUTED = "alone", "with a scout"


class Remembering:
    """A language model that is asked each prompt once."""

    def __init__(self, lm: Any) -> None:
        self.lm = lm
        self.known: dict[tuple[str, str], FloatArray] = {}
        self.asked, self.seconds = 0, 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.lm, name)

    def score(self, prompts: Sequence[str], answer: str) -> FloatArray:
        """The log-probabilities of the answer's tokens after each prompt."""
        missing = [prompt for prompt in dict.fromkeys(prompts) if (prompt, answer) not in self.known]
        if missing:
            start = time.perf_counter()
            scores = np.asarray(self.lm.score(missing, answer), dtype=np.float64)
            self.seconds += time.perf_counter() - start
            self.asked += len(missing)
            self.known.update({(prompt, answer): row for prompt, row in zip(missing, scores, strict=True)})
        return np.array([self.known[prompt, answer] for prompt in prompts])

    def forget(self) -> None:
        """Of prompts of other questions nothing is asked again."""
        self.known.clear()


@dataclass(frozen=True, eq=False, kw_only=True)
class Told(Scout):
    """A scout of which it is known what it finds."""

    own: Found

    def look(self, *_: Any) -> Found:
        """What is known."""
        return self.own


def scouts(lm: Any, e: c2fa.Explanation, elsewhere: FloatArray) -> dict[str, Scout | None]:
    """No scout, one that says what a model found, and those that mislead; ``elsewhere`` is said of another question."""

    def told(values: FloatArray) -> Scout:
        return Told(lm, e.queries, own=Found([e.output_names[c] for c in e.columns], values, e.queries, None))

    own = e.all_values[-1]
    return {
        ALONE: None,
        SCOUTED: told(own),
        "negated": told(-own),
        "shuffled": told(np.random.default_rng(len(own)).permutation(own)),
        "another question": told(np.resize(elsewhere, (own.shape[1], len(own))).T),
    }


@dataclass(frozen=True, eq=False)
class Asked:
    """A question with the large model's answer."""

    item: Item
    answer: str

    @property
    def question(self) -> Question:
        """What ``cite`` takes."""
        return Question(dict(self.item.documents), self.item.query, self.answer)


def answered(lm: Any, items: Sequence[Item]) -> list[Asked]:
    """The questions that the model answers with something that can be scored."""
    template = getattr(lm, "template", None)
    texts = [message(item.documents, item.query) for item in items]
    prompts = texts if template is None else [template([{"role": "user", "content": text}]) for text in texts]
    written = write_answers(lm, prompts)
    return [Asked(item, text) for item, text in zip(items, written, strict=True) if text.strip()]


def asked_scores(
    large: Remembering, small: Remembering, one: Asked, before: Asked, rows: Sequence[int], of_scout: int, fresh: int
) -> dict[tuple[str, int], float]:
    """The LDS of every way and budget, for one question; ``before`` is another."""
    explainer = c2fa.Citer(large, progress=False).explainer
    masked = explainer.masker(explainer.model.asking.of(one.question))
    masks = metrics.held_out(masked.structure.leaves, fresh, one.item.number)

    def lds(values: FloatArray) -> float:
        return float(metrics.measure(metrics.lds(values, masks), masked, explainer.model))

    def explained(budget: int, prior: Scout | None) -> c2fa.Explanation:
        return c2fa.Citer(large, budget=budget, prior=prior, progress=False)(one.question)

    ahead, elsewhere = (c2fa.Citer(small, budget=of_scout, progress=False)(x.question) for x in (one, before))
    return _scores(explained, lds, scouts(small, ahead, elsewhere.low), rows, ahead, of_scout)


def frozen_scores(
    large: Case, small: Case, before: Case, rows: Sequence[int], fresh: int
) -> dict[tuple[str, int], float]:
    """The same from rows that were recorded."""

    def lds(values: FloatArray) -> float:
        found = large.measured(metrics.lds(values, large.fresh(1, fresh)))
        return np.nan if found is None else found

    def explained(budget: int, prior: Scout | None) -> c2fa.Explanation:
        return large.explained(budget, 0, method="c2fa", prior=prior)

    ahead, elsewhere = (case.explained(rows[-1], 0, method="c2fa") for case in (small, before))
    return _scores(explained, lds, scouts(small.rows, ahead, elsewhere.low), rows, ahead, rows[-1])


def attention_scores(
    lm: Any, case: Case, item: Item, elsewhere: FloatArray, rows: Sequence[int], fresh: int
) -> tuple[dict[tuple[str, int], float], FloatArray]:
    """The same where the model's own attention is the scout, and what it looks at."""
    own = c2fa.Citer(lm, progress=False).explainer
    question = Question(dict(item.documents), item.query, case.rows.context.answer)
    looked = cast(Scorer, own.model).attention(own.masker(question))

    def lds(values: FloatArray) -> float:
        found = case.measured(metrics.lds(values, case.fresh(1, fresh)))
        return np.nan if found is None else found

    def explained(budget: int, prior: Scout | None) -> c2fa.Explanation:
        return case.explained(budget, 0, method="c2fa", prior=prior)

    e = explained(rows[0], None)
    ahead = replace(e, all_values=(*e.all_values[:-1], looked))
    return _scores(explained, lds, scouts(case.rows, ahead, elsewhere), rows, ahead, 1), ahead.low


def _scores(
    explained: Callable[[int, Scout | None], c2fa.Explanation],
    lds: Callable[[FloatArray], float],
    priors: Mapping[str, Scout | None],
    rows: Sequence[int],
    ahead: c2fa.Explanation,
    of_scout: int,
) -> dict[tuple[str, int], float]:
    found = {(label, n): lds(explained(n, prior).low) for label, prior in priors.items() for n in rows}
    return {**found, ("the scout's own", of_scout): lds(ahead.low)}


def lines(found: Sequence[Mapping[tuple[str, int], float]], rows: Sequence[int]) -> Iterator[str]:
    """The tables: the mean of each way at each budget, and what scouts gain, paired, over questions."""
    whole = [one for one in found if all(np.isfinite(list(one.values())))]
    yield f"{len(whole)} questions; LDS of sentences, mean [95 %]"
    labels = list(dict.fromkeys(label for one in whole for label, _ in one))
    for label in labels:
        budgets = sorted({n for name, n in whole[0] if name == label})
        cells = (f"{n} rows {Estimate.of([one[label, n] for one in whole])}" for n in budgets)
        yield f"  {label:<20}" + "   ".join(cells)
    yield "gain over as many rows alone, paired"
    for label in [label for label in labels if (label, rows[0]) in whole[0] and label != ALONE]:
        gains = {n: Estimate.of([one[label, n] - one[ALONE, n] for one in whole]) for n in rows}
        yield f"  {label:<20}" + "   ".join(f"{n} rows {gain}" for n, gain in gains.items())
    yield "gain over the next larger budget alone, paired"
    pairs = {(few, more): [one[SCOUTED, few] - one[ALONE, more] for one in whole] for few, more in pairwise(rows)}
    yield "   ".join(f"  {few} for {more} rows {Estimate.of(gain)}" for (few, more), gain in pairs.items())


def main(arguments: Sequence[str] | None = None) -> None:
    """Run it, and print the tables after every ten questions and at the end."""
    parser = flags()
    parser.prog, parser.description = "benchmarks.cite.scouting", __doc__
    parser.add_argument("--scout", help="hf:FOLDER or a .gguf file, the small model")
    parser.add_argument("--scout-rows", type=int, default=128, help="the rows that the small model is asked")
    given = parser.parse_args(arguments)
    rows, fresh = given.rows or (16, 32, 64, 128), given.fresh or 64
    if given.frozen and given.model is not None:
        for some in _with_attention(model(given), given, rows, fresh):
            print(*lines(some, rows), sep="\n", flush=True)
        return
    if given.frozen:
        print(*lines(_frozen(*given.frozen, given.families, rows, fresh, given.items), rows), sep="\n")
        return
    if given.model is None or given.scout is None:
        raise SystemExit("give --model and --scout, or --frozen with a file of rows of each")
    large = Remembering(model(given))
    given.model = given.scout
    small = Remembering(model(given))
    asked = answered(large.lm, load(given.data, given.families, given.half, given.items))
    begin, found = time.monotonic(), list[dict[tuple[str, int], float]]()
    for before, one in pairwise([asked[-1], *asked]):
        if time.monotonic() - begin > given.seconds:
            break
        try:
            found.append(asked_scores(large, small, one, before, rows, given.scout_rows, fresh))
        except ValueError as error:  # a window that is too short, or an answer that cannot be read as it was written
            print(f"left out: {one.item.name}: {error}", flush=True)
        large.forget()
        small.forget()
        if len(found) % 10 == 0 or one is asked[-1]:
            print(*lines(found, rows), sep="\n", flush=True)
    for name, lm in {"large": large, "small": small}.items():
        print(f"{lm.asked} rows of the {name} model in {lm.seconds:.0f} s")


def _with_attention(
    lm: Any, given: argparse.Namespace, rows: Sequence[int], fresh: int
) -> Iterator[list[dict[tuple[str, int], float]]]:
    """The scores so far, after every ten questions and at the end."""
    [path] = given.frozen
    items = {item.name: item for item in load(given.data, given.families, given.half, given.items)}
    known = [one for name, one in Record(path).contexts.items() if name in items]
    found, begin, elsewhere = list[dict[tuple[str, int], float]](), time.monotonic(), np.ones(1)
    for one in known:
        if time.monotonic() - begin > given.seconds:
            break
        case = Case(Rows(one.context, one.rows), one.context.masked())
        scores, elsewhere = attention_scores(lm, case, items[one.context.name], elsewhere, rows, fresh)
        found.append(scores)
        if len(found) % 10 == 0:
            yield found
    if len(found) % 10:
        yield found


def _frozen(
    of_large: Path, of_small: Path, families: Sequence[str], rows: Sequence[int], fresh: int, items: int
) -> list[dict[tuple[str, int], float]]:
    """The scores of the questions that two files have in common."""
    large, small = (
        {name: Case(Rows(one.context, one.rows), one.context.masked()) for name, one in Record(path).contexts.items()}
        for path in (of_large, of_small)
    )
    shared = [name for name in large if name in small]
    both = [name for f in families for name in [n for n in shared if large[n].rows.context.family == f][:items]]
    if not both:
        raise SystemExit(f"{of_large} and {of_small} have no question of {', '.join(families)} in common")
    return [frozen_scores(large[x], small[x], small[b], rows, fresh) for b, x in pairwise([both[-1], *both])]


if __name__ == "__main__":
    main()

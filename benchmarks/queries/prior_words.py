"""Part prior, words: what a fine-tuned text network's explained reviews teach about others.

What is explained is the class that the network predicts, on the logit scale (``link="logit"``), with the library's own
defaults and ``budget=rows``, the rows for sentences and the prediction among them. Reviews that are learned from have
20 rows for sentences and 150 for words. LIME is the package's ``lime`` on words alone: none of its rows is for
sentences. By default about a third of ours are. Who looks at words can give them more: ``budget=(rows // 10, …)``
is shown too, with a tenth for sentences.

- *Correlation* is that of what an explanation predicts for 200 fresh masks of words with what the network says of them.
- *Deletion* is the package's: the area under the probability of the class while words are masked, the most important
  first, in 30 steps; lower is better.
- *Intervals* are compared with plain least squares on 1,024 masks of words, and on all masks of sentences or 256 of
  them; the errors of these count.

A prior is also learned from what should mislead it. None of these may cost more than .02 of correlation.
"""

from __future__ import annotations

import functools
import os
import pickle
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.queries.family import Floats
from benchmarks.queries.prior_answers import Answers, Key, Known, MissingModel, demo, network
from benchmarks.queries.prior_reviews import Bools, Review, masker, read, words_alone
from benchmarks.queries.stopping import DATA
from benchmarks.queries.tables import Cell, Estimate, Table, Target, interval, resampled

import c2fa
from c2fa.asking.querying import Answer
from c2fa.metrics import coverage, deletion, held_out

ROOT = Path(__file__).resolve().parents[2]
FOLDER, WEIGHTS = ROOT / "build" / "prior", ROOT / "build" / "text" / "bert.safetensors"
NO_WORSE, COVERED = Target(least=-0.02), Target(least=0.90, most=0.99)
REACHED = Target(least=0.0)
PLAIN, LIME, SQUARES = "c2fa", "LIME", "least squares"
LEAN = "a tenth for sentences"
ON_CPU = 2_000  # rows that two cores answer in minutes


@dataclass(frozen=True)
class Sizes:
    """How much of everything."""

    learn: tuple[int, ...] = (50, 100, 200, 500, 1000)
    misled: int = 500
    full: tuple[int, int] = (20, 150)
    budgets: tuple[int, ...] = (21, 30, 40, 50, 70, 100, 150, 300)
    lime: tuple[int, ...] = (50, 100, 150, 300)
    lean: tuple[int, ...] = (30, 50, 70, 100, 150)  # budgets of which a tenth is for sentences
    reached: tuple[tuple[int, int], ...] = ((100, 300), (50, 150))  # our rows, and those of LIME to be reached
    fresh: int = 200
    squares: tuple[int, int] = (256, 1024)  # rows of least squares: sentences, words
    steps: int = 30
    inputs: int = 10_000
    timed: int = 20

    @property
    def judged(self) -> int:
        """From how many reviews the prior is learned that is judged."""
        return self.misled


QUICK = Sizes((6, 12), 12, (8, 24), (21, 50), (50,), (21, 50), ((21, 50),), 40, (64, 200), 5, 2, 2)


@dataclass(frozen=True)
class Setting:
    """How to explain a review: the prior is a file."""

    label: str
    budget: int | tuple[int, int]
    prior: str | None = None
    method: str = "c2fa"


@dataclass(frozen=True, eq=False)
class Explained:
    """What is kept of an explanation: values and standard errors of the predicted class, coarse to fine."""

    values: tuple[Floats, ...]
    stderr: tuple[Floats, ...] | None
    target: int


# -- in worker processes ---------------------------------------------------------------------------


class Recorded:
    """A model that knows some answers, and notes what else it is asked."""

    name = "text network"
    output_names = ("negative", "positive")

    def __init__(self, known: Callable[[Bools], Floats]) -> None:
        self.known = known
        self.missing: list[Bools] = []
        self.seconds = 0.0

    def __call__(self, masks: Any) -> Floats:
        start = time.process_time()
        masks = np.asarray(masks, dtype=np.bool_)
        log_odds = self.known(masks)
        unknown = np.isnan(log_odds)
        if unknown.any():
            self.missing.append(masks[unknown])
        p = 1.0 / (1.0 + np.exp(-np.where(unknown, 0.0, log_odds)))
        self.seconds += time.process_time() - start
        return np.column_stack([1.0 - p, p])


@functools.lru_cache(maxsize=64)
def _prior(path: str) -> c2fa.Prior:
    return c2fa.Prior.load(path)


def explain(model: Any, review: Review, setting: Setting) -> c2fa.Explanation:
    """Explain one review as a user would."""
    options: dict[str, Any] = {} if setting.prior is None else {"prior": _prior(setting.prior)}
    mask = words_alone if setting.method == "lime" else masker
    explainer = c2fa.Explainer(
        model,
        mask,
        method=setting.method,
        budget=setting.budget,
        link="logit",
        batch_size=4096,
        progress=False,
        **options,
    )
    return explainer(review)


def explain_all(
    review: Review, known: Known, settings: Sequence[Setting], whole: bool = False
) -> tuple[list[Any], Bools]:
    """The explanations of a review, and what masks there is no answer for: then the explanations mean nothing."""
    model, found = Recorded(known), []
    for setting in settings:
        e = explain(model, review, setting)
        found.append(e if whole else Explained(e.values, e.stderr, e.target))
    return found, np.concatenate([np.empty((0, len(review.words)), dtype=np.bool_), *model.missing])


def explain_topic(review: Review, setting: Setting) -> c2fa.Explanation:
    """The explanation of a linear model of another question."""
    return explain(Recorded(lambda masks: masks @ np.array(review.topic)), review, setting)


def learn(path: str, numbers: Sequence[int], change: str, out: str) -> tuple[float, dict[str, float]]:
    """Learn from some of the explanations in a file, keep the prior in another; the seconds it took, and its worth."""
    with open(path, "rb") as file:
        told = pickle.load(file)  # what this very run has written
    told = CHANGES[change]([told[k] for k in numbers])
    start = time.process_time()
    prior = c2fa.Prior.learn(told)
    seconds = time.process_time() - start
    prior.save(out)
    return seconds, dict(prior.worth)


# -- what should mislead ---------------------------------------------------------------------------

Told = list[c2fa.Explanation]


def _with_leaves(e: c2fa.Explanation, leaves: Floats) -> c2fa.Explanation:
    return replace(e, all_values=(*e.all_values[:-1], leaves))


def negated(told: Told) -> Told:
    """The opposite of every effect."""
    return [_with_leaves(e, -e.all_values[-1]) for e in told]


def shuffled(told: Told) -> Told:
    """Effects permuted among the words of each review."""
    rng = np.random.default_rng(0)
    return [_with_leaves(e, rng.permutation(e.all_values[-1])) for e in told]


def exchanged(told: Told) -> Told:
    """Every word has, on the average over all reviews, the effect of another: as if labels had been shuffled."""
    words = [list(e.descriptors["word"]) for e in told if e.descriptors is not None]
    names, at = np.unique(np.concatenate([np.array(w, dtype=object).astype(str) for w in words]), return_inverse=True)
    values = np.concatenate([e.all_values[-1] for e in told])
    counts = np.bincount(at)
    means = np.column_stack([np.bincount(at, column) / counts for column in values.T])
    order = np.argsort(counts, kind="stable")  # words of about one frequency change places
    partner = np.empty(len(names), dtype=np.intp)
    for group in np.array_split(order, max(len(names) // 50, 1)):
        partner[group] = np.random.default_rng(len(group)).permutation(group)
    moved = values - means[at] + means[partner][at]
    ends = np.cumsum([len(w) for w in words])[:-1]
    return [_with_leaves(e, leaves) for e, leaves in zip(told, np.split(moved, ends), strict=True)]


CHANGES: Mapping[str, Callable[[Told], Told]] = {
    "": lambda told: told,
    "negated": negated,
    "shuffled": shuffled,
    "exchanged": exchanged,
}


# -- the run ---------------------------------------------------------------------------------------


@dataclass(eq=False)
class Run:
    """All that is needed to explain, and what came of it.

    Attributes
    ----------
    found
        For each label and budget the explanations of the inputs.
    """

    sizes: Sizes
    reviews: Mapping[str, Sequence[Review]]
    answers: Answers
    other: Answers
    each: Callable[..., Any]
    folder: Path
    inputs: str
    found: dict[tuple[str, int], list[Explained]] = field(default_factory=dict)
    priors: dict[str, tuple[float, dict[str, float]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def keys(self) -> list[Key]:
        """The reviews that are reported on."""
        return self.some(self.inputs)

    def some(self, name: str, most: int | None = None) -> list[Key]:
        """The first reviews of a set."""
        return [(name, k) for k in range(min(most or self.sizes.inputs, len(self.reviews[name])))]

    def review(self, key: Key) -> Review:
        return self.reviews[key[0]][key[1]]

    def path(self, label: str) -> str:
        """Where a prior is kept."""
        return str(self.folder / f"{label}.json")

    def explained(
        self, keys: Sequence[Key], settings: Sequence[Setting], answers: Answers | None = None, whole: bool = False
    ) -> list[list[Any]]:
        """Explain reviews in all settings; what is not known is asked, and these are explained again."""
        source = self.answers if answers is None else answers
        found: dict[Key, list[Any]] = {}
        while rest := [key for key in keys if key not in found]:
            known = [source.of(key) for key in rest]
            n = len(rest)
            made = list(self.each(explain_all, map(self.review, rest), known, [settings] * n, [whole] * n))
            missing = {key: masks for key, (_, masks) in zip(rest, made, strict=True) if len(masks)}
            found |= {key: one for key, (one, _) in zip(rest, made, strict=True) if key not in missing}
            source.ask(missing)
        return [found[key] for key in keys]

    # -- learning

    def learn(self) -> None:
        """Explain the reviews to learn from, and learn all priors."""
        full, most = Setting("full", self.sizes.full), max(self.sizes.learn)
        n = self.sizes.misled
        learned = [e for [e] in self.explained(self.some("learn", most), [full], whole=True)]
        sources: dict[str, Told] = {"learn": learned}
        sources["others"] = [e for [e] in self.explained(self.some("others", n), [full], whole=True)]
        keys = self.some("learn", n)
        sources["topic"] = list(self.each(explain_topic, map(self.review, keys), [full] * len(keys)))
        jobs = {f"{size}": ("learn", range(size), "") for size in self.sizes.learn}
        jobs |= {change: ("learn", range(n), change) for change in CHANGES if change}
        jobs["other reviews"] = ("others", range(len(sources["others"])), "")
        jobs["another question"] = ("topic", range(n), "")
        negative = [k for k, e in enumerate(learned) if e.target == 0][:n]
        jobs["negative reviews"] = ("learn", negative, "")
        try:
            sources["model"] = [e for [e] in self.explained(keys, [full], self.other, whole=True)]
            jobs["another model"] = ("model", range(n), "")
        except MissingModel as error:
            self.notes.append(f"left out: another model: {error}")
        for name, told in sources.items():
            (self.folder / f"{name}.pickle").write_bytes(pickle.dumps(told))
        paths = [str(self.folder / f"{source}.pickle") for source, _, _ in jobs.values()]
        numbers, changes = [list(some) for _, some, _ in jobs.values()], [change for _, _, change in jobs.values()]
        made = self.each(learn, paths, numbers, changes, [self.path(label) for label in jobs])
        self.priors = dict(zip(jobs, made, strict=True))

    @property
    def misleading(self) -> list[str]:
        """The priors that should mislead."""
        return [label for label in self.priors if not label.isdigit()]

    # -- explaining

    def collect(self, name: str) -> None:
        """Have all answers of a set but those that depend on priors, in a few large portions."""
        keys = self.some(name)
        self.answers.ask({key: np.concatenate([self.fresh(key), *self.masks_of_squares(key)]) for key in keys})
        most = [Setting(PLAIN, b) for b in self.sizes.budgets[-1:]]
        self.explained(keys, [*most, *(Setting(LIME, b, method="lime") for b in self.sizes.lime[-1:])])

    def explain(self) -> None:
        """Explain the inputs without and with every prior."""
        settings = [Setting(PLAIN, b) for b in self.sizes.budgets]
        settings += [Setting(LIME, b, method="lime") for b in self.sizes.lime]
        for label in self.priors:
            settings += [Setting(label, b, self.path(label)) for b in self.sizes.budgets]
        judged = str(self.sizes.judged)
        for b in self.sizes.lean:
            few = max(b // 10, 2), b - max(b // 10, 2)
            settings += [Setting(lean(PLAIN), few), Setting(lean(judged), few, self.path(judged))]
        for setting, made in zip(settings, zip(*self.explained(self.keys, settings), strict=True), strict=True):
            self.found[setting.label, int(np.sum(setting.budget))] = list(made)
        plain = self.found[PLAIN, self.sizes.budgets[0]]
        squares = [self.squares(key, e.target) for key, e in zip(self.keys, plain, strict=True)]
        self.found[SQUARES, self.sizes.squares[1]] = squares

    # -- scores

    def fresh(self, key: Key) -> Bools:
        """Masks of words on which explanations are judged."""
        return held_out(len(self.review(key).words), self.sizes.fresh, seed=key[1])

    def log_odds(self, key: Key, masks: Bools, target: int) -> Floats:
        """What the network says of a class."""
        return self.answers.of(key)(masks) * (1 if target else -1)

    def correlations(self, label: str, budget: int) -> Floats:
        """For every input the correlation of what is predicted for fresh masks with what the network says."""
        scores = []
        for key, e in zip(self.keys, self.found[label, budget], strict=True):
            masks = self.fresh(key)
            predicted, said = masks @ e.values[-1], self.log_odds(key, masks, e.target)
            scores.append(np.corrcoef(predicted, said)[0, 1] if np.ptp(predicted) > 0 else 0.0)
        return np.array(scores)

    def deletions(self, wanted: Sequence[tuple[str, int]]) -> dict[tuple[str, int], Floats]:
        """For every input the area under the curve of deletion."""
        curves = {
            (pair, key): deletion(e.values[-1], level=0, target=0, points=self.sizes.steps)
            for pair in wanted
            for key, e in zip(self.keys, self.found[pair], strict=True)
        }
        masks = {at: next(curve).masks for at, curve in curves.items()}
        together: dict[Key, list[Bools]] = {}
        for (_, key), some in masks.items():
            together.setdefault(key, []).append(some)
        self.answers.ask({key: np.concatenate(some) for key, some in together.items()})
        scores = {}
        for pair in wanted:
            areas = []
            for key, e in zip(self.keys, self.found[pair], strict=True):
                p = 1.0 / (1.0 + np.exp(-self.log_odds(key, masks[pair, key], e.target)))
                areas.append(_last(curves[pair, key], Answer(p[:, None], np.ones(len(p), dtype=np.bool_))).auc)
            scores[pair] = np.array(areas)
        return scores

    # -- the reference of intervals

    def masks_of_squares(self, key: Key) -> tuple[Bools, Bools]:
        """Masks of words by which sentences, and words, are measured by least squares."""
        structure = self.review(key).structure
        rng = np.random.default_rng((2, key[1]))
        rows, parts = self.sizes.squares[0], structure.widths[0]
        if 2**parts <= rows:
            of_parts = (np.arange(2**parts)[:, None] >> np.arange(parts)) % 2 == 1
        else:
            of_parts = rng.random((rows, parts)) < 0.5
        return structure.expand(of_parts, 0), rng.random((self.sizes.squares[1], structure.leaves)) < 0.5

    def squares(self, key: Key, target: int) -> Explained:
        """Plain least squares with an intercept, each level by itself."""
        owner = self.review(key).structure.owners(0)
        of_parts, of_words = self.masks_of_squares(key)
        one_of_each = np.unique(owner, return_index=True)[1]
        fits = []
        for masks, columns in ((of_parts, of_parts[:, one_of_each]), (of_words, of_words)):
            design = np.column_stack([np.ones(len(masks)), columns])
            said = self.log_odds(key, masks, target)
            inverse = np.linalg.pinv(design.T @ design)
            values = inverse @ (design.T @ said)
            noise = np.sum(np.square(said - design @ values)) / max(len(said) - design.shape[1], 1)
            fits.append((values[1:], np.sqrt(noise * np.diag(inverse))[1:]))
        return Explained(tuple(v for v, _ in fits), tuple(s for _, s in fits), target)

    def covered(self, label: str, budget: int) -> Floats:
        """For every input the share of intervals that hold the reference: sentences, words."""
        shares = []
        for e, reference in zip(self.found[label, budget], self.found[SQUARES, self.sizes.squares[1]], strict=True):
            assert e.stderr is not None
            assert reference.stderr is not None
            both = [np.hypot(a, b) for a, b in zip(e.stderr, reference.stderr, strict=True)]
            shares.append([coverage(*level) for level in zip(e.values, both, reference.values, strict=True)])
        return np.array(shares)


def _last(curve: Any, answer: Answer) -> Any:
    """What a conversation returns when it is answered."""
    try:
        curve.send(answer)
    except StopIteration as end:
        return end.value
    raise AssertionError("a curve asks once")


@contextmanager
def pool(workers: int | None) -> Iterator[Callable[..., Any]]:
    """A ``map`` over processes, one for each core unless told; of one worker it is this process itself."""
    workers = workers or os.cpu_count() or 1
    if workers == 1:
        yield map
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as executor:
        yield functools.partial(executor.map, chunksize=1)


def tables(
    quick: bool = False,
    data: Path | None = None,
    folder: Path | None = None,
    weights: Path | None = None,
    device: str = "cpu",
    workers: int | None = None,
    inputs: str = "test",
) -> list[Table]:
    """Run it and make its tables."""
    folder, weights = FOLDER if folder is None else folder, WEIGHTS if weights is None else weights
    sizes = QUICK if quick else Sizes()
    try:
        reviews = read(folder, DATA if data is None else data)
    except FileNotFoundError as error:
        return [Table(f"prior. Not run: {error}")]
    with pool(workers) as each, tempfile.TemporaryDirectory() as scratch:
        of_demo = demo(reviews, each)
        if quick:
            answers = other = Answers(Path(scratch) / "demo.npz", of_demo)
        else:
            there = weights.exists()
            why_not = f"there are no weights at {weights}; give --weights, on a machine with a GPU"
            most = np.inf if device.startswith("cuda") else ON_CPU
            of_network = network(reviews, weights, device) if there else None
            answers = Answers(folder / "network.npz", of_network, why_not, most)
            other = Answers(folder / "demo.npz", of_demo)
        run = Run(sizes, reviews, answers, other, each, Path(scratch), inputs)
        try:
            return judged(run)
        except MissingModel as error:
            return [Table(f"prior. Not run: {error}")]


def judged(run: Run) -> list[Table]:
    """Everything that is said of words."""
    begin = time.monotonic()
    told: list[str] = []

    def lap(what: str) -> None:
        told.append(f"{what} {time.monotonic() - begin:.0f} s")

    run.learn()
    lap("learned after")
    for name in ("validation", "test"):
        run.collect(name)
    lap("asked after")
    run.explain()
    lap("explained after")
    by_label = {PLAIN: run.sizes.budgets, **{str(n): run.sizes.budgets for n in run.sizes.learn}}
    by_label |= {lean(PLAIN): run.sizes.lean, lean(str(run.sizes.judged)): run.sizes.lean, LIME: run.sizes.lime}
    pairs = [(label, b) for label, budgets in by_label.items() for b in budgets]
    pairs.append((SQUARES, run.sizes.squares[1]))
    correlation = {pair: run.correlations(*pair) for pair in [*pairs, *_misled(run)]}
    found = curves(run, "correlation with fresh answers", correlation, 1.0)
    scores: dict[str, tuple[Scores, float]] = {"correlation": (correlation, 1.0)}
    try:
        scores["deletion"] = run.deletions(pairs), -1.0
        found += curves(run, "deletion (lower is better)", *scores["deletion"])
    except MissingModel as error:  # its rows depend on the values, and so on how priors are learned and used
        found.append(Table(f"prior. The curves of deletion are not measured: {error}"))
        with suppress(MissingModel):
            few = [(label, ours) for label in _compared(run) for ours, _ in run.sizes.reached]
            few += [(LIME, theirs) for _, theirs in run.sizes.reached]
            scores["deletion"] = run.deletions(few), -1.0
    lap("deleted after")
    found += [reached(run, scores), misled(run, correlation), held(run), cost(run)]
    found[-1].notes.append(f"{run.answers.asked} rows asked of the network; {', '.join(told)}")
    return found


Scores = Mapping[tuple[str, int], Floats]


def _misled(run: Run) -> list[tuple[str, int]]:
    return [(label, b) for label in run.misleading for b in run.sizes.budgets]


def _compared(run: Run) -> list[str]:
    """The methods that are compared with LIME."""
    judged = str(run.sizes.judged)
    return [PLAIN, judged, *map(lean, (PLAIN, judged) if run.sizes.lean else ())]


def lean(label: str) -> str:
    """The name of a method that spends a tenth of its rows on sentences."""
    return f"{label}, {LEAN}"


def shown(label: str) -> str:
    """What a table calls a method.

    >>> shown("1000"), shown(lean("50")), shown("LIME")
    ('with a prior of 1,000', 'with a prior of 50, a tenth for sentences', 'LIME')
    """
    name, comma, more = label.partition(", ")
    return f"with a prior of {int(name):,}{comma}{more}" if name.isdigit() else label


def curves(run: Run, what: str, scores: Scores, better: float) -> list[Table]:
    """The score at every budget, and what priors gain; ``better`` is -1 where less is better."""
    n = len(run.keys)
    title = f"prior. Words, {n} {run.inputs} reviews, {what}: mean [95 % interval over reviews] by rows in all"
    table = Table(title)
    labels = dict.fromkeys(label for label, _ in scores if label not in run.misleading)
    for label in labels:
        cells: dict[str, Cell] = {f"{b}": Estimate.of(s) for (name, b), s in scores.items() if name == label}
        table.rows.append({"method": shown(label), **cells})
    gains = Table(f"prior. Words, {what}: gain by the prior, paired [95 %]")
    for size in map(str, run.sizes.learn):
        differences = {b: better * (scores[size, b] - scores[PLAIN, b]) for b in run.sizes.budgets}
        gains.rows.append({"prior": shown(size), **{str(b): Estimate.of(d) for b, d in differences.items()}})
    return [table, gains]


def fewest(rows: Sequence[int], curve: Floats, goal: Floats) -> Floats:
    """At how many rows a curve, (…, rows), first reaches a goal, between two of them by their logarithms.

    >>> fewest([10, 100], np.array([[0.0, 1.0], [0.0, 0.2], [0.9, 1.0]]), np.array([0.5, 0.5, 0.5])).round(1)
    array([31.6,  inf, 10. ])
    """
    logs = np.log(rows)
    found = np.full(len(curve), np.inf)
    for k, (heights, aim) in enumerate(zip(curve, goal, strict=True)):
        above = np.flatnonzero(heights >= aim)
        if len(above):
            j = above[0]
            share = 1.0 if j == 0 else (aim - heights[j - 1]) / (heights[j] - heights[j - 1])
            found[k] = np.exp(logs[j] if j == 0 else logs[j - 1] + share * (logs[j] - logs[j - 1]))
    return found


def reached(run: Run, all_scores: Mapping[str, tuple[Scores, float]]) -> Table:
    """Whether LIME's scores are reached with a fraction of its rows, and with how many they are."""
    judged = str(run.sizes.judged)
    table = Table(f"prior. LIME's scores reached with fewer rows, after learning from {judged} reviews; gain [95 %]")
    for ours, theirs in run.sizes.reached:
        for what, (scores, better) in all_scores.items():
            for label in _compared(run):
                gain = Estimate.of(better * (scores[label, ours] - scores[LIME, theirs]))
                rows = run.sizes.lean if label.endswith(LEAN) else run.sizes.budgets
                table.rows.append(
                    {
                        "score": what,
                        "LIME's rows": theirs,
                        "LIME": f"{scores[LIME, theirs].mean():.3f}",
                        "method": shown(label),
                        "rows": ours,
                        "ours": f"{scores[label, ours].mean():.3f}",
                        "gain": gain,
                        "verdict": REACHED.verdict(gain),
                        "reached with": _reached_with(run, scores, label, rows, theirs, better),
                    }
                )
    table.notes.append("'reached with': on the straight lines between budgets, over the logarithm of the rows")
    return table


def _reached_with(run: Run, scores: Scores, label: str, rows: Sequence[int], theirs: int, better: float) -> str:
    """With how many rows a method's curve is as high as LIME's score; its interval."""
    if any((label, b) not in scores for b in rows):
        return "–"
    lots = resampled(len(run.keys))
    curve = better * np.column_stack([scores[label, b] for b in rows])
    goal = better * scores[LIME, theirs]
    [needed] = fewest(rows, curve.mean(axis=0)[None], goal.mean()[None])
    low, high = interval(fewest(rows, lots @ curve, lots @ goal))
    return f"{_rows(needed, rows)} [{_rows(low, rows)}, {_rows(high, rows)}]"


def _rows(number: float, rows: Sequence[int]) -> str:
    return f"> {rows[-1]}" if np.isinf(number) else f"≤ {rows[0]}" if number <= rows[0] else f"{number:.0f}"


def misled(run: Run, scores: Scores) -> Table:
    """What priors cost that should mislead."""
    table = Table(
        f"prior. Priors that mislead, each of {run.sizes.misled} explanations at most: gain in correlation over no "
        f"prior [95 %]; target {NO_WORSE} at every budget",
        notes=list(run.notes),
    )
    for label in run.misleading:
        gains = {b: Estimate.of(scores[label, b] - scores[PLAIN, b]) for b in run.sizes.budgets}
        worst = min(gains.values(), key=lambda gain: gain.mean)
        cells: dict[str, Cell] = {str(b): gain for b, gain in gains.items()}
        table.rows.append({"learned from": label, **cells, "worst": NO_WORSE.verdict(worst)})
    return table


def held(run: Run) -> Table:
    """How often intervals hold the reference."""
    table = Table(
        f"prior. 95 % intervals that hold what least squares say ({run.sizes.squares[1]} rows for words); "
        f"target {COVERED}"
    )
    for label in (PLAIN, *map(str, run.sizes.learn), *run.misleading):
        for level, name in ((1, "words"), (0, "sentences")):
            shares = {b: Estimate.of(run.covered(label, b)[:, level]) for b in run.sizes.budgets}
            missed = [str(b) for b, share in shares.items() if not COVERED.holds(share.mean)]
            cells: dict[str, Cell] = {str(b): share for b, share in shares.items()}
            verdict = f"missed at {', '.join(missed)}" if missed else "reached"
            table.rows.append({"method": shown(label), "of": name, **cells, "target": verdict})
    return table


def cost(run: Run) -> Table:
    """Seconds of learning, and what a prior adds to an explanation."""
    table = Table("prior. CPU seconds of learning, and CPU milliseconds of an explanation without the model's own")
    for size in run.sizes.learn:
        seconds, worth = run.priors[str(size)]
        row: dict[str, Cell] = {"learned from": size, "seconds": f"{seconds:.1f}"}
        row["worth"] = ", ".join(f"{name}: {value:.2f}" for name, value in worth.items())
        for budget in (50, 100) if 100 in run.sizes.budgets else run.sizes.budgets:
            taken = []
            for key in run.keys[: run.sizes.timed]:
                settings = Setting(PLAIN, budget), Setting(str(size), budget, run.path(str(size)))
                taken.append([_milliseconds(run, key, setting) for setting in settings])
            without, with_it = np.median(taken[1:] or taken, axis=0)
            row[f"ms at {budget} rows"] = f"{without:.1f}, with it {with_it:.1f}"
            row[f"ratio at {budget}"] = f"{with_it / without:.2f}"
        table.rows.append(row)
    return table


def _milliseconds(run: Run, key: Key, setting: Setting) -> float:
    model = Recorded(run.answers.of(key))
    review = run.review(key)
    start = time.process_time()
    explain(model, review, setting)
    return 1e3 * (time.process_time() - start - model.seconds)

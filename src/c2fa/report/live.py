"""A page in a notebook that answers back: features are switched off, and more rows are spent, while one looks at it."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import traitlets

from c2fa._system import need
from c2fa.asking.driver import Job, drive
from c2fa.asking.model import ModelProxy, Shell, describe
from c2fa.asking.querying import Ask, Cache, Conversation, Queries
from c2fa.report import _side, repr_html
from c2fa.report._page import asset, facts, pack, script, style
from c2fa.structure import FloatArray
from c2fa.views.answer import cited_level

if TYPE_CHECKING:
    from c2fa.explainer import Explainer
    from c2fa.explanation import Explanation

AnyWidget: Any = need("anywidget", "live").AnyWidget


class Live(AnyWidget):  # type: ignore[misc]
    """An explanation to try out: what the model says with some features off, beside what was predicted of it.

    ``explanation`` is what was found so far; ``off`` are the leaves that are switched off, which can be set here too.
    Rows that were asked once are not asked again.
    """

    explanation: Explanation
    _esm = script(cited=True) + asset("live.js")
    style_sheet: Any = traitlets.Unicode(style()).tag(sync=True)
    block: Any = traitlets.Dict().tag(sync=True)
    parts: Any = traitlets.List().tag(sync=True)
    off: Any = traitlets.List().tag(sync=True)
    answer: Any = traitlets.Dict().tag(sync=True)

    def __init__(self, explainer: Explainer, x: Any, key: str | None = None) -> None:
        super().__init__()
        self._explainer = copy.copy(explainer)
        if isinstance(explainer.model, Shell):
            self._explainer = explainer.with_model(_Remembering(explainer.model.model))
        self._masked = explainer.under(explainer.masker(x))
        self._x, self._rows, self._cost, self._beside = x, 0, 0.0, 0
        first = self._explainer.queries(x, self._masked, key)
        self._cache = first.cache
        names = self._masked.structure.names
        owners = self._masked.structure.owners(0)
        self.parts = [
            {"name": name, "leaves": [[int(i), names[-1][i]] for i in np.flatnonzero(owners == j)]}
            for j, name in enumerate(names[0])
        ]
        self._show(first)
        self.on_msg(lambda _, message, __: self._do(message))
        self.observe(lambda change: self._do({"off": change["new"]}), names="off")

    def more(self, rows: int = 100) -> None:
        """Spend more rows on the input."""
        if self._explainer.money is not None:  # which is spent; rows are added to those that it bought
            self._explainer.money, self._explainer.budget = None, self._budget
        before = self._explainer.budget
        grown = [int(n * (1 + rows / sum(before))) for n in before] if isinstance(before, tuple) else [before + rows]
        self._explainer.budget = tuple(grown) if isinstance(before, tuple) else grown[0]
        self._show(self._explainer.queries(self._x, self._masked, cache=self._cache))

    def span(self, words: str, most: int = 10) -> None:
        """Explain some words of a cited answer, from the rows that were asked: ``most`` of what does most for them."""
        cited = self.explanation.answer
        if cited is None or not cited.unit:
            raise ValueError("words can be chosen in the answer that c2fa.cite explains by its log-probability alone")
        start = cited.text.find(words)
        if not words.strip() or start < 0:
            raise ValueError(f"{words[:80]!r} does not stand in the answer: choose words as they are written there")
        scorer, question = self._explainer.model, self._masked.content
        assert isinstance(scorer, Shell)
        lm = _Span(scorer.model, start, start + len(words))
        explainer = self._explainer.with_model(lm)
        explainer.target, explainer.outputs = 0, "target"
        masked = explainer.masker(dataclasses.replace(question, answer=cited.text))
        cache = Cache(masked, explainer.on_error, self._cache.identity, None, "")
        queries = explainer.queries(self._x, masked, cache=cache)
        e = self._drive(explainer, explainer.conversation(masked, queries), queries)
        self._rows -= lm.recalled
        level = cited_level(e)
        order = np.argsort(-np.abs(e.values[level]), kind="stable")[:most].tolist()
        errors = [None] * len(e.values[level]) if e.stderr is None else e.stderr[level]
        found = [[e.names[level][i], e.rounded.signed(e.rounded.values[level][i], errors[i])] for i in order]
        self.answer = {**self._spent(), "span": {"title": f"What “{words}” rests on", "values": found}}

    def _switched(self, off: Sequence[int]) -> None:
        e, structure = self.explanation, self._masked.structure
        on = np.ones((1, structure.leaves), dtype=np.bool_)
        on[0, off] = False

        def ask() -> Conversation[FloatArray]:
            reply = yield Ask(structure.depth - 1, on)
            first: FloatArray = reply.outputs[0]
            return first

        queries = Queries(self._cache, self._masked.rows_per_mask)
        outputs = self._drive(self._explainer, ask(), queries)
        self._beside += queries.sent
        self.answer = {
            **self._spent(),
            "says": float(e.link.at(e.outputs)(outputs[None])[0, e.target]),
            "predicted": e.base + float(e.low[on[0]].sum()),
            "target": e.target_name,
            "unit": e.link.unit,
            "off": len(off),
        }

    def _do(self, message: Mapping[str, Any]) -> None:
        try:
            if "off" in message:
                self._switched(message["off"])
            elif "words" in message:
                self.span(message["words"])
            else:
                self.more(message["rows"])
        except Exception as error:  # a model may raise anything
            self.answer = {**self._spent(), "error": f"{type(error).__name__}: {error}"}

    def _drive(self, explainer: Explainer, conversation: Conversation[Any], queries: Queries) -> Any:
        [job] = drive([Job(conversation, queries)], explainer.model, batch_size=explainer.batch_size)
        self._rows += queries.sent
        self._cost += queries.purse.cost
        return job.result()

    def _show(self, queries: Queries) -> None:
        e = self._drive(self._explainer, self._explainer.conversation(self._masked, queries), queries)
        self._budget = queries.budget
        self.explanation, self.off = e, []
        self.block = pack(e, facts(e), _side([e]))
        self.answer = self._spent()

    def _spent(self) -> dict[str, Any]:
        cost = None if describe(self._explainer.model).cost is None else self._cost
        return {"rows": self._rows, "budget": self._budget + self._beside, "cost": cost}

    def _repr_mimebundle_(self, **options: Any) -> Any:
        """The widget, and the page as it is now for where no kernel runs: a saved notebook, a converted one."""
        found = super()._repr_mimebundle_(**options)
        data, metadata = found if isinstance(found, tuple) else (found or {}, {})
        return {**data, "text/html": repr_html(self.explanation)}, metadata


class _Remembering(ModelProxy):
    """A language model that remembers what it said of each piece of an answer: a span of it asks nothing again."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.known: dict[tuple[str, str], FloatArray] = {}

    def score(self, prompts: Sequence[str], answer: str) -> Any:
        if not all((prompt, answer) in self.known for prompt in prompts):
            scores = np.asarray(self.model.score(prompts, answer), dtype=np.float64)
            self.known |= {(prompt, answer): row for prompt, row in zip(prompts, scores, strict=True)}
        return np.array([self.known[prompt, answer] for prompt in prompts])


class _Span(ModelProxy):
    """A language model that remembers, of a span of the answer: pieces that do not touch it count for nothing."""

    def __init__(self, model: _Remembering, start: int, end: int) -> None:
        super().__init__(model)
        self.start, self.end, self.recalled = start, end, 0

    def score(self, prompts: Sequence[str], answer: str) -> Any:
        self.recalled += sum((prompt, answer) in self.model.known for prompt in prompts)
        ends = np.cumsum([len(piece) for piece in self.pieces(answer)])
        starts = np.concatenate([[0], ends[:-1]])
        return np.where((ends > self.start) & (starts < self.end), self.model.score(prompts, answer), 0.0)

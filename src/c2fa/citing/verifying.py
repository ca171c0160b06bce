"""Was the source used? A verdict on each citation of an answer, from the answer's score without the cited source.

For a statement, let f(S) be its log-probability where the model reads the documents S. Let N be all documents, and G
a document i with its possible substitutes. Four numbers describe i: its value (a fit of many rows); the loss by
removing it alone, f(N) − f(N∖i); the loss by removing G, f(N) − f(N∖G); and what i alone then brings back,
f(N∖(G∖i)) − f(N∖G). Removing a document with substitutes loses little, but it brings back much.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from scipy.special import stdtrit

from c2fa.asking.masking import Masked
from c2fa.asking.model import describe
from c2fa.asking.querying import Ask, Cache, Conversation, Queries
from c2fa.citing.annotations import Claim
from c2fa.citing.questions import Question, QuestionMasker
from c2fa.explainer import Explainer
from c2fa.explanation import Explanation
from c2fa.showing.codec import walk
from c2fa.structure import FloatArray
from c2fa.views.statement import Citation, Verdict


class Verifier(Explainer):
    """An explainer that also scores the answer without the sources that it cites; ``Citer.verifier`` makes one."""

    @classmethod
    def of(cls, explainer: Explainer) -> Verifier:
        """The verifier with the settings of an explainer."""
        if isinstance(explainer.budget, tuple) or explainer.money is not None:
            given = explainer.budget if explainer.money is None else explainer.money.text
            raise ValueError(f"verify splits its rows by itself: give budget= one number, not {given}")
        if explainer.link.name != "identity":
            raise ValueError(f"verify compares log-probabilities as they are; leave link={explainer.link.name!r} out")
        assert isinstance(explainer.masker, QuestionMasker)
        levels = explainer.masker.levels
        if levels[0] != "documents":
            raise ValueError(f"verify needs documents as the first of levels; got {levels}")
        if explainer.budget < len(levels) + 4:
            raise ValueError(
                f"a budget of {explainer.budget} rows is too small: it takes one with all documents and one without, "
                "both twice, and one for each level"
            )
        verifier = cls.__new__(cls)
        vars(verifier).update(vars(explainer))
        verifier.masker = dataclasses.replace(explainer.masker, verifies=True)
        verifier.method_name = f"verify by {explainer.method_name}"  # so that a store of explanations is not continued
        return verifier

    def queries(self, x: Any, masked: Masked, key: str | None = None, cache: Cache | None = None) -> Queries:
        """The queries about one answer, with all rows of the budget: removals use what the method leaves."""
        assert isinstance(self.budget, int)  # ``of`` refuses any other
        return Queries(super().queries(x, masked, key, cache).cache, self.budget)

    def conversation(self, masked: Masked, queries: Queries) -> Conversation[Explanation]:
        """Ask for the documents' values, then for the answer without documents that are cited or seem to matter."""
        question: Question = masked.content
        outputs_of = describe(self.model).outputs_of(question, queries.cache.ledger, queries.cache.model_name)
        ends = np.array([[True] * masked.structure.widths[0], [False] * masked.structure.widths[0]])
        first = yield Ask(0, ends)
        second = yield Ask(0, ends[:1], again=True)
        noisy = bool(np.abs(first.outputs[0] - second.outputs[0]).max() > 0.01)
        if noisy:
            second = yield Ask(0, ends, again=True)
        # A source takes three removals: alone, with its substitutes, and these alone. Half of the rows are for values.
        sources = {claim.source for claim in question.claims or () if claim.exists}
        reserve = min((3 * len(sources) + 1) * (1 + noisy), queries.budget // 2)
        for_values = copy.copy(self)
        for_values.budget = max(queries.budget - reserve, masked.structure.depth + 2)
        e = yield from super(Verifier, for_values).conversation(masked, queries)
        removals = _Removals(e, question, queries, noisy, outputs_of(first.outputs[1:]).tokens)
        removals.note(frozenset(), first.outputs[0], second.outputs[0])
        if noisy:
            removals.note(removals.everything, first.outputs[1], second.outputs[1])
        cited = removals.cited
        likely = {k: [j for j in removals.matter(k) if j not in cited[k]] for k in cited}
        pairs = [(k, i) for k in cited for i in cited[k]] + [(k, i) for k in likely for i in likely[k]]
        yield from removals.ask(frozenset([i]) for _, i in pairs)
        groups = [(i, removals.group(k, i)) for k, i in pairs]
        yield from removals.ask(rest for i, group in groups if group for rest in (group, group - {i}))
        verified: list[Citation] = []
        for k, start, end in removals.statements:
            carriers = [i for i in (*cited[k], *likely[k]) if removals.verdict(k, i) in ("used", "one of several")]
            verified += [removals.citation(k, i, carriers) for i in cited[k]]
            for name in dict.fromkeys(claim.source for claim in removals.claims[k] if not claim.exists):
                verified.append(Citation(removals.texts[k], name, "not used", (start, end), exists=False))
            uncited = (removals.citation(k, i, ()) for i in carriers if i not in cited[k])
            verified += [dataclasses.replace(citation, cited=False) for citation in uncited]
        assert e.answer is not None  # an explanation of a question has one
        return dataclasses.replace(
            e,
            queries=queries.used,
            diagnostics=dataclasses.replace(
                e.diagnostics,
                sent=queries.sent,
                recalled=queries.recalled,
                dropped=queries.dropped,
                cost=None if e.diagnostics.cost is None else queries.purse.cost,
            ),
            answer=dataclasses.replace(e.answer, verified=tuple(verified)),
        )


class _Removals:
    """The scores of an answer without some of the documents, and the verdicts that follow from them.

    Statements ``k`` are named by their outputs, documents ``i`` and ``j`` by their places.
    """

    def __init__(
        self, e: Explanation, question: Question, queries: Queries, noisy: bool, tokens: Sequence[int]
    ) -> None:
        answer = e.answer
        assert answer is not None  # an explanation of a question has one
        self.e, self.question, self.queries, self.noisy, self.tokens = e, question, queries, noisy, tokens
        self.without, self.unit = np.array(answer.without_documents), answer.unit
        first = 1 if len(answer.statements) > 1 else 0  # of several statements, output 0 is the whole answer
        self.statements = [(k, start, end) for k, (start, end) in enumerate(answer.places, first)]
        self.texts = {k: answer.text[start:end] for k, start, end in self.statements}
        self.claims: dict[int, list[Claim]] = {k: [] for k in self.texts}
        for claim in question.claims or ():
            statements = [k for k, start, end in self.statements if claim.start < end and start < claim.end]
            if not statements:  # a claim between two statements belongs to the first of them
                statements = [k for k, start, _ in self.statements if start < claim.end][-1:] or list(self.claims)[:1]
            for k in statements:
                self.claims[k].append(claim)
        places = {name: i for i, name in enumerate(e.names[0])}
        self.cited = {  # the documents that each statement cites
            k: list(dict.fromkeys(places[claim.source] for claim in claims if claim.exists))
            for k, claims in self.claims.items()
        }
        self.everything = frozenset(places.values())
        self.rows: dict[frozenset[int], FloatArray] = {self.everything: self.without}  # by the removed documents
        self.lacking = 0  # rows beyond the budget
        self._differences: list[FloatArray] = []  # between two answers to one input
        self._groups: dict[tuple[int, int], frozenset[int]] = {}

    def note(self, group: frozenset[int], first: FloatArray, second: FloatArray) -> None:
        """Keep the outputs without a group of documents: the mean of both answers of a model with noise."""
        self.rows[group] = (first + second) / 2 if self.noisy else first
        if self.noisy:
            self._differences.append(first - second)

    def ask(self, groups: Iterable[frozenset[int]]) -> Conversation[None]:
        """Ask for the answer without each group of documents, as far as the budget goes."""
        new = [group for group in dict.fromkeys(groups) if group not in self.rows]
        room = (self.queries.budget - self.queries.used) // (1 + self.noisy)
        self.lacking += max(len(new) - room, 0)
        new = new[: max(room, 0)]
        if not new:
            return
        masks = np.array([[j not in group for j in range(len(self.e.names[0]))] for group in new])
        first = yield Ask(0, masks)
        second = (yield Ask(0, masks, again=True)) if self.noisy else first
        for group, *outputs, ok in zip(new, first.outputs, second.outputs, first.ok & second.ok, strict=True):
            if ok:
                self.note(group, *outputs)

    def values(self, k: int) -> tuple[FloatArray, FloatArray]:
        """The documents' values for a statement, and their errors."""
        e = self.e.for_target(k)
        return e.high, np.zeros_like(e.high) if e.stderr is None else e.stderr[0]

    def limit(self, k: int) -> float:
        """The least effect that counts: a tenth of all documents' effect, and more than any text before it may have.

        Any text before a statement changes the probability of each of its words, about by half or twice, and such
        effects add up like independent ones. Where all documents together give less than a tenth of what the statement
        lacks, they give it their style at most.
        """
        gain, lacks = abs(self.gain(k)), abs(float(self.without[k]))
        most = 0.1 * max(gain, float(np.abs(self.values(k)[0]).max()))
        if not self.unit:
            return max(0.1, most)
        style = 0.1 * lacks if gain < 0.1 * lacks else 0.0
        return max(math.log(2.0) * math.sqrt(self.words(k)), most, style)

    def gain(self, k: int) -> float:
        """The effect of all documents on a statement."""
        return float(self.e.outputs[k] - self.without[k])

    def words(self, k: int) -> int:
        """The number of words of a statement."""
        return len(self.texts[k].split())

    def known(self, k: int) -> bool:
        """Whether a statement is likely without any document, and no document matters for it either.

        Likely means a probability of one half for each word, or for each token if there are more tokens, on average.
        """
        if self.unit:
            likely = self.without[k] >= -math.log(2.0) * max(self.words(k), self.tokens[k])
        else:
            likely = self.without[k] >= 0.5
        if not likely:
            return False
        limit, values = self.limit(k), self.values(k)[0]
        for i in self.everything:  # its largest measured effect, or its value if it was never removed
            effects = [effect for effect in (self.lost(k, [i]), self.back(k, i)) if effect is not None]
            if max(effects, default=values[i]) >= limit:
                return False
        return True

    def unsure(self, k: int) -> float:
        """The 95 % error of a difference of two outputs; 0 where the model has no noise.

        Each output is the mean of two answers, so the difference has the variance of one answer.
        """
        if not self.noisy:
            return 0.0
        variance = float(np.mean(np.square([difference[k] for difference in self._differences]))) / 2.0
        return math.sqrt(variance) * float(stdtrit(len(self._differences), 0.975))

    def matter(self, k: int) -> list[int]:
        """The documents whose values surely speak for a statement, the strongest first."""
        values, errors = self.values(k)
        strong = np.flatnonzero((values - 2.0 * errors > 0.0) & (values >= 0.5 * self.limit(k)))
        return [int(j) for j in strong[np.argsort(-values[strong], kind="stable")]]

    def lost(self, k: int, group: Iterable[int]) -> float | None:
        """A statement's loss without a group of documents; None where that was not asked."""
        row = self.rows.get(frozenset(group))
        return None if row is None else float(self.rows[frozenset()][k] - row[k])

    def group(self, k: int, i: int) -> frozenset[int]:
        """A document and its possible substitutes, to be removed together; empty where that would show nothing.

        Substitutes have values larger than the loss without them alone, or interact with the document such that either
        will do. If there is no such document, all are in the group.
        """
        (values, errors), limit, alone = self.values(k), self.limit(k), self.lost(k, [i])
        if alone is None or alone >= max(limit, 0.75 * values[i]):  # it has no substitute
            return frozenset()
        if values[i] + 2.0 * errors[i] < 0.5 * limit:  # it has no effect on average either
            return frozenset()
        group = {i}
        for j, value in enumerate(values):
            lost = self.lost(k, [j])
            if value >= 0.5 * limit and (lost is None or lost < 0.75 * value):
                group.add(j)
        for one, other, value, error in self.e.interactions(0, len(values)):
            pair = {self.e.names[0].index(one), self.e.names[0].index(other)}
            if i in pair and value + 3.0 * error < -0.5 * limit:
                group |= pair
        self._groups[k, i] = frozenset(group) if len(group) > 1 else self.everything
        return self._groups[k, i]

    def verdict(self, k: int, i: int) -> Verdict:
        """The verdict on a document and a statement."""
        (values, errors), limit, alone = self.values(k), self.limit(k), self.lost(k, [i])
        unsure, much = self.unsure(k), max(limit, 0.2 * abs(self.gain(k)))
        if (alone is not None and alone + unsure <= -much) or values[i] + 2.0 * errors[i] <= -much:
            return "against"
        if self.known(k):
            return "known without"
        if alone is None:
            return "not used" if abs(values[i]) + 2.0 * errors[i] < 0.5 * limit else "not settled"
        if self._groups.get((k, i)):
            back = self.back(k, i)
            if back is None:
                return "not settled"
            least = max(limit, 0.5 * (self.lost(k, self._groups[k, i]) or 0.0))
            if back - unsure >= least and alone + unsure < 0.5 * back:
                return "one of several"
            if back + unsure >= least and alone < 0.5 * back:
                return "not settled"
        if alone - unsure >= limit:
            return "used"
        return "not used" if alone + unsure < limit else "not settled"

    def back(self, k: int, i: int) -> float | None:
        """The effect of a document alone, without its substitutes; None where that was not asked."""
        group = self._groups.get((k, i), frozenset())
        together, rest = self.lost(k, group), self.lost(k, group - {i})
        return None if not group or together is None or rest is None else together - rest

    def rows_to_tell(self, k: int, i: int) -> int:
        """About how many rows would settle a verdict: the lacking ones more, or as many as make the noise small."""
        used, alone, unsure = self.queries.used, self.lost(k, [i]), self.unsure(k)
        if self.lacking or not unsure or alone is None:
            return used + 2 * max(self.lacking, 1)
        gap = max(abs(alone - self.limit(k)), 0.1 * unsure)
        return math.ceil(used * max((unsure / gap) ** 2, 1.1))

    def citation(self, k: int, i: int, carriers: Sequence[int]) -> Citation:
        """The citation of a document by a statement, with all numbers."""
        e, name, verdict = self.e.for_target(k), self.e.names[0][i], self.verdict(k, i)
        group, back = self._groups.get((k, i), frozenset()), self.back(k, i)
        passage, passage_place = "", None
        if "sentences" in e.level_names and verdict in ("used", "one of several", "against"):
            level = e.level_names.index("sentences")
            own = np.flatnonzero(e.structure.owners(0)[e.structure.first_leaves(level)] == i)
            sign = -1.0 if verdict == "against" else 1.0
            passage = e.names[level][own[np.argmax(sign * e.values[level][own])]]
            start = self.question.texts[name].find(passage)
            passage_place = None if start < 0 else (start, start + len(passage))
        [place] = [(start, end) for statement, start, end in self.statements if statement == k]
        return Citation(
            self.texts[k],
            name,
            verdict,
            place,
            float(e.high[i]),
            None if e.stderr is None else float(e.stderr[0][i]),
            self.lost(k, [i]),
            () if back is None else tuple(e.names[0][j] for j in sorted(group - {i})),
            None if back is None else self.lost(k, group),
            back,
            () if verdict in ("used", "one of several") else tuple(e.names[0][j] for j in carriers),
            self.rows_to_tell(k, i) if verdict == "not settled" else None,
            passage=passage,
            passage_place=passage_place,
            known=json.dumps(walk(self.question.metadata.get(name, {}), str)),
        )

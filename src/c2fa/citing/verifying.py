"""Was the source used? Each citation of an answer, judged by removing what it cites and looking.

For a statement, let f(S) be its log-probability where the documents S are read, and N all of them. What a document i
does is told by four numbers: its value (a fit of many rows), what is lost by removing it alone, f(N) − f(N∖i), what is
lost by removing it together with those that may stand in for it, f(N) − f(N∖G), and what it alone then brings back,
f(N∖(G∖i)) − f(N∖G). A document that others can replace loses little alone and brings back much.
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
    """Explains an answer, then asks for it without what it cites; ``Citer.verifier`` makes one."""

    @classmethod
    def of(cls, explainer: Explainer) -> Verifier:
        """Whoever verifies as this explainer explains."""
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
        made = cls.__new__(cls)
        vars(made).update(vars(explainer))
        made.masker = dataclasses.replace(explainer.masker, verifies=True)
        made.method_name = f"verify by {explainer.method_name}"  # so that a store of explanations is not continued
        return made

    def queries(self, x: Any, masked: Masked, key: str | None = None, cache: Cache | None = None) -> Queries:
        """Begin what is to be asked about one answer: all rows of the budget, whatever the method leaves of them."""
        assert isinstance(self.budget, int)  # or ``of`` had refused it
        return Queries(super().queries(x, masked, key, cache).cache, self.budget)

    def conversation(self, masked: Masked, queries: Queries) -> Conversation[Explanation]:
        """Ask for the documents' values first, then for the answer without those that are cited, or seem to matter."""
        question: Question = masked.content
        outputs_of = describe(self.model).outputs_of(question, queries.cache.ledger, queries.cache.model_name)
        ends = np.array([[True] * masked.structure.widths[0], [False] * masked.structure.widths[0]])
        first = yield Ask(0, ends)
        second = yield Ask(0, ends[:1], again=1)
        noisy = bool(np.abs(first.outputs[0] - second.outputs[0]).max() > 0.01)
        if noisy:
            second = yield Ask(0, ends, again=len(ends))
        # Each is removed alone, with others, and those others; at least half of the rows are for the values.
        sources = {claim.source for claim in question.claims or () if claim.exists}
        reserve = min((3 * len(sources) + 1) * (1 + noisy), queries.budget // 2)
        of_the_values = copy.copy(self)
        of_the_values.budget = max(queries.budget - reserve, masked.structure.depth + 2)
        e = yield from super(Verifier, of_the_values).conversation(masked, queries)
        removals = _Removals(e, question, queries, noisy, outputs_of(first.outputs[1:]).tokens)
        removals.note(frozenset(), first.outputs[0], second.outputs[0])
        if noisy:
            removals.note(removals.everything, first.outputs[1], second.outputs[1])
        cited, likely = removals.cited, {}
        for k in cited:
            likely[k] = [j for j in removals.matter(k) if j not in cited[k]]
        pairs = [(k, i) for some in (cited, likely) for k, group in some.items() for i in group]
        yield from removals.ask(frozenset([i]) for _, i in pairs)
        groups = [(i, removals.group(k, i)) for k, i in pairs]
        yield from removals.ask(rest for i, group in groups if group for rest in (group, group - {i}))
        found: list[Citation] = []
        for k, start, end in removals.statements:
            carriers = [i for i in (*cited[k], *likely[k]) if removals.verdict(k, i) in ("used", "one of several")]
            found += [removals.citation(k, i, carriers) for i in cited[k]]
            nowhere = dict.fromkeys(claim.source for claim in removals.claims[k] if not claim.exists)
            place = (start, end)
            found += [Citation(removals.texts[k], name, "not used", place, exists=False) for name in nowhere]
            uncited = (removals.citation(k, i, ()) for i in carriers if i not in cited[k])
            found += [dataclasses.replace(citation, cited=False) for citation in uncited]
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
            answer=dataclasses.replace(e.answer, verified=tuple(found)),
        )


class _Removals:
    """What a model says of an answer without some of the documents, and what that tells of each."""

    def __init__(
        self, e: Explanation, question: Question, queries: Queries, noisy: bool, tokens: Sequence[int]
    ) -> None:
        answer = e.answer
        assert answer is not None  # an explanation of a question has one
        self.e, self.question, self.queries, self.noisy, self.tokens = e, question, queries, noisy, tokens
        self.without, self.unit = np.array(answer.without_documents), answer.unit
        several = len(answer.statements) > 1
        # Of each, its output and its place in the answer.
        self.statements = [(k + several, start, end) for k, (start, end) in enumerate(answer.places)]
        self.texts = {k: answer.text[start:end] for k, start, end in self.statements}
        self.claims: dict[int, list[Claim]] = {k: [] for k in self.texts}
        for claim in question.claims or ():
            over = [k for k, start, end in self.statements if claim.start < end and start < claim.end]
            before = [k for k, start, _ in self.statements if start < claim.end]  # of what is between two statements
            for k in over or before[-1:] or list(self.claims)[:1]:
                self.claims[k].append(claim)
        ids = {name: i for i, name in enumerate(e.names[0])}
        # Of each statement, the documents that it cites.
        self.cited = {
            k: list(dict.fromkeys(ids[claim.source] for claim in claims if claim.exists))
            for k, claims in self.claims.items()
        }
        self.everything = frozenset(ids.values())
        self.rows: dict[frozenset[int], FloatArray] = {self.everything: self.without}  # without some documents
        self.lacking = 0  # rows that there was no budget for
        self._apart: list[FloatArray] = []  # by how much answers to one input differ
        self._groups: dict[tuple[int, int], frozenset[int]] = {}

    def note(self, group: frozenset[int], once: FloatArray, again: FloatArray) -> None:
        """Keep what a model with noise said twice without some documents, or what one without noise said."""
        self.rows[group] = (once + again) / 2 if self.noisy else once
        if self.noisy:
            self._apart.append(once - again)

    def ask(self, groups: Iterable[frozenset[int]]) -> Conversation[None]:
        """Ask for the answer without these documents, as far as the budget goes."""
        new = [group for group in dict.fromkeys(groups) if group not in self.rows]
        room = (self.queries.budget - self.queries.used) // (1 + self.noisy)
        self.lacking += max(len(new) - room, 0)
        new = new[: max(room, 0)]
        if not new:
            return
        masks = np.array([[j not in group for j in range(len(self.e.names[0]))] for group in new])
        first = yield Ask(0, masks)
        second = (yield Ask(0, masks, again=len(masks))) if self.noisy else first
        for group, once, again, ok in zip(new, first.outputs, second.outputs, first.ok & second.ok, strict=True):
            if ok:
                self.note(group, once, again)

    # What it tells.

    def values(self, k: int) -> tuple[FloatArray, FloatArray]:
        """The documents' values for a statement, and their errors."""
        e = self.e.for_target(k)
        return e.high, np.zeros_like(e.high) if e.stderr is None else e.stderr[0]

    def limit(self, k: int) -> float:
        """What a document must do to matter: a tenth of what all do, and more than any text in the prompt may do.

        Whatever is read before a statement makes each of its words a little likelier or less likely, about by half or
        twice, and such effects add up like independent ones. Where the documents together do less than a tenth of what
        the statement lacks, they lend it their style at most.
        """
        gain, lacks = abs(self.gain(k)), abs(float(self.without[k]))
        most = 0.1 * max(gain, float(np.abs(self.values(k)[0]).max()))
        if not self.unit:
            return max(0.1, most)
        return max(math.log(2.0) * math.sqrt(self.words(k)), most, 0.1 * lacks if gain < 0.1 * lacks else 0.0)

    def gain(self, k: int) -> float:
        """What all documents do for a statement."""
        return float(self.e.outputs[k] - self.without[k])

    def words(self, k: int) -> int:
        """How many words a statement has."""
        return len(self.texts[k].split())

    def known(self, k: int) -> bool:
        """Whether a statement is likely without any document, and rests on none of them all the same.

        It is likely where each of its words is, or each token where these are more, as likely as not on average.
        """
        if self.unit:
            likely = self.without[k] >= -math.log(2.0) * max(self.words(k), self.tokens[k])
        else:
            likely = self.without[k] >= 0.5
        if not likely:
            return False
        limit, values = self.limit(k), self.values(k)[0]
        for i in self.everything:  # the most that it was seen to do, or its value where it was never removed
            seen = [lost for lost in (self.lost(k, [i]), self.back(k, i)) if lost is not None]
            if max(seen, default=values[i]) >= limit:
                return False
        return True

    def unsure(self, k: int) -> float:
        """How far a difference of two answers may be off, 95 times in 100; 0 where the model has no noise.

        Both were asked twice, so that its variance is that of one answer, which pairs of answers tell.
        """
        if not self.noisy:
            return 0.0
        variance = float(np.mean(np.square([apart[k] for apart in self._apart]))) / 2.0
        return math.sqrt(variance) * float(stdtrit(len(self._apart), 0.975))

    def matter(self, k: int) -> list[int]:
        """The documents whose values are settled to speak for a statement, the strongest first."""
        values, errors = self.values(k)
        found = np.flatnonzero((values - 2.0 * errors > 0.0) & (values >= 0.5 * self.limit(k)))
        return [int(j) for j in found[np.argsort(-values[found], kind="stable")]]

    def lost(self, k: int, group: Iterable[int]) -> float | None:
        """What a statement loses without some documents."""
        row = self.rows.get(frozenset(group))
        return None if row is None else float(self.rows[frozenset()][k] - row[k])

    def group(self, k: int, i: int) -> frozenset[int]:
        """The documents to be removed together with one, to see whether they stand in for it; empty where none need be.

        They are those that are worth more than removing them alone takes, and those that an interaction says either of
        will do; where none is known, all.
        """
        (values, errors), limit, alone = self.values(k), self.limit(k), self.lost(k, [i])
        if alone is None or alone >= max(limit, 0.75 * values[i]):  # nobody stands in for it
            return frozenset()
        if values[i] + 2.0 * errors[i] < 0.5 * limit:  # on average it does nothing either
            return frozenset()
        found = {i}
        for j, value in enumerate(values):
            lost = self.lost(k, [j])
            if value >= 0.5 * limit and (lost is None or lost < 0.75 * value):
                found.add(j)
        for one, other, value, error in self.e.interactions(0, len(values)):
            pair = {self.e.names[0].index(one), self.e.names[0].index(other)}
            if i in pair and value + 3.0 * error < -0.5 * limit:
                found |= pair
        self._groups[k, i] = frozenset(found) if len(found) > 1 else self.everything
        return self._groups[k, i]

    def verdict(self, k: int, i: int) -> Verdict:
        """What the numbers say of a document and a statement."""
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
        """What a document alone brings back where those that may stand in for it are removed."""
        group = self._groups.get((k, i), frozenset())
        together, rest = self.lost(k, group), self.lost(k, group - {i})
        return None if not group or together is None or rest is None else together - rest

    def rows_to_tell(self, k: int, i: int) -> int:
        """About how many rows would settle a verdict: those that were lacking, or as many as take the noise down."""
        used, alone, unsure = self.queries.used, self.lost(k, [i]), self.unsure(k)
        if self.lacking or not unsure or alone is None:
            return used + 2 * max(self.lacking, 1)
        gap = max(abs(alone - self.limit(k)), 0.1 * unsure)
        return math.ceil(used * max((unsure / gap) ** 2, 1.1))

    def citation(self, k: int, i: int, carriers: Sequence[int]) -> Citation:
        """A document and a statement, with all numbers."""
        e, name, verdict = self.e.for_target(k), self.e.names[0][i], self.verdict(k, i)
        group, back = self._groups.get((k, i), frozenset()), self.back(k, i)
        passage, passage_place = "", None
        if "sentences" in e.level_names and verdict in ("used", "one of several", "against"):
            level = e.level_names.index("sentences")
            own = np.flatnonzero(e.structure.owners(0)[np.unique(e.structure.owners(level), return_index=True)[1]] == i)
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

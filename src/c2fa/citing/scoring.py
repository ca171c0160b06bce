"""A model of questions: how likely a language model finds an answer, and each of its statements, given some sources."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from c2fa.asking.fingerprint import fingerprint
from c2fa.asking.ledger import DamagedTextError, Ledger
from c2fa.asking.masking import Masked
from c2fa.asking.model import Outputs, Shell, beside_rows, describe, innermost
from c2fa.citing.prompts import Prompts
from c2fa.citing.questions import MARK, Asking, Question, Rows, check_answer
from c2fa.citing.similarity import Similarity, sentences_of, similarities, starts_of
from c2fa.showing.codec import walk
from c2fa.structure import FloatArray, IntArray
from c2fa.views import Cited, CitedDocument


@dataclasses.dataclass(frozen=True, eq=False)
class Answered:
    """An answer with its statements, which of them each piece belongs to, and what is to be said of it."""

    text: str
    statements: Sequence[str]
    owner: IntArray
    notes: tuple[str, ...] = ()

    @property
    def several(self) -> bool:
        """Whether each statement is an output of its own, beside the whole answer."""
        return len(self.statements) > 1

    def outputs(self, scores: FloatArray) -> FloatArray:
        """The log-probability of the answer and of each of its statements, from those of its pieces."""
        columns = [scores.sum(axis=1)]
        if self.several:
            columns += [scores[:, self.owner == k].sum(axis=1) for k in range(len(self.statements))]
        outputs: FloatArray = np.column_stack(columns)
        return outputs


@dataclasses.dataclass(eq=False)
class _Known:
    """What is known of one question.

    ``kept_in`` is the ledger of its rows, where its answer is kept too, and the model's name there. ``written`` is the
    model's answer, also one that cannot be scored; ``unread`` are the pieces of an answer from the ledger, until the
    model has read it in the same.
    """

    kept_in: tuple[Ledger, str] | None = None
    written: str | None = None
    answered: Answered | None = None
    unread: list[str] | None = None


@dataclasses.dataclass(eq=False)
class _Begun:
    """Rows of a question that are to be scored; ``scores`` waits for those of the answer's pieces."""

    rows: Rows
    scores: Callable[[], Any] | None = None


def _all_of(wait: Callable[[], Any]) -> Sequence[Any]:
    """The scores of a call; none where it fails, and then each question is asked by itself."""
    with contextlib.suppress(Exception):
        return list(wait())
    return ()


class Scorer(Shell):
    """A model of questions: the log-probability of the answer and, where it has several, of each of its statements.

    Where a question has no answer, the language model writes it when the first row is asked. It is remembered, and
    kept in the ledger before it is scored: rows there belong to this answer and no other. Of a model that has
    ``score_many``, rows of several questions are asked in one call: as many as it likes at a time, or all that were
    begun before one is waited for.
    """

    outputs_vary = True

    def __init__(
        self, lm: Any, asking: Asking, language: str, similarity: Similarity | None, model_name: str | None
    ) -> None:
        super().__init__(lm)
        self.asking, self.language, self.similarity, self.model_name = asking, language, similarity, model_name
        self.__name__ = type(innermost(lm)).__name__  # what provenance calls a model without a name
        if not (similarity is None or similarity == "words" or callable(similarity)):
            raise ValueError(f"similarity must be 'words' or a function of two answers; got {similarity!r}")
        self._known: dict[str, _Known] = {}
        self.prompts = Prompts(lm, asking)
        self._checked = False
        self._begun: list[weakref.ref[_Begun]] = []  # of which nobody waits any more where a run was ended

    def around(self, model: Any) -> Scorer:
        """The same with another language model."""
        return Scorer(model, self.asking, self.language, self.similarity, self.model_name)

    # -- what it says of itself

    @property
    def log_probabilities(self) -> bool:
        """Whether the outputs are log-probabilities, and not similarities."""
        return self.similarity is None

    @property
    def name(self) -> str | None:
        """The language model's, with how it is asked; the question and the answer are the input."""
        own = self.model_name or describe(self.model).name
        how = (self.prompts.frame, getattr(self.model, "max_new_tokens", None), self.similarity)
        return own and f"{own}:{fingerprint(*how)[:16]}"

    def outputs_of(self, x: Question, ledger: Ledger | None, name: str) -> Callable[[FloatArray], Outputs]:
        """Say where rows of a question are kept; what is returned tells of its outputs once they were asked for."""
        self._of(x).kept_in = None if ledger is None else (ledger, name)
        return functools.partial(self._outputs, x)

    def _outputs(self, question: Question, without: FloatArray) -> Outputs:
        """The whole answer, and its statements where it has several; ``without`` is what the model says from memory."""
        answered = self.answered(question)
        notes = list(answered.notes)
        if forged := self.prompts.forged(question):
            notes.append(
                f"the documents or the query hold {forged[0]!r}, by which the model tells turns of a chat apart; in "
                f"its prompts a blank stands in each such mark, as in {forged[1]!r}"
            )
        names, tokens = ["answer"], [len(answered.owner)]
        if answered.several:
            names += answered.statements
            tokens += np.bincount(answered.owner).tolist()
        written = question.answer is None
        starts = np.cumsum([0, *(len(text) + 1 for text in question.texts.values())]).tolist()
        known = {name: json.dumps(walk(question.metadata.get(name, {}), str)) for name in question.texts}
        read = zip(known.items(), starts, strict=False)  # a view has a line break between two documents
        return Outputs(
            names=tuple(names),
            tokens=tuple(tokens) if self.similarity is None else (),
            notes=tuple(notes),
            answer=Cited(
                query=question.query,
                text=answered.text,
                statements=tuple(answered.statements),
                written_by_the_model=written,
                generations=int(written),
                scored_by="log-probability" if self.similarity is None else "similarity",
                without_documents=tuple(without[0].tolist()),
                documents=tuple(CitedDocument(name, at, about) for (name, about), at in read),
                stays=question.stays,
            ),
        )

    # -- rows

    @property
    def launch(self) -> Callable[[Rows], Callable[[], FloatArray]] | None:
        """Begin rows of a question; None where the language model takes one answer at a time.

        Of a model that costs money, every question has calls of its own, by which its cost is told.
        """
        together = self.similarity is None and self._can("score_many") and describe(self.model).cost is None
        return self._begin if together else None

    def _begin(self, rows: Rows) -> Callable[[], FloatArray]:
        begun = _Begun(rows)
        self._begun.append(weakref.ref(begun))

        def outputs() -> FloatArray:
            self._score_together()  # also the others: a model that works ahead has its next call meanwhile
            if begun.scores is not None:
                with contextlib.suppress(Exception):
                    return self._outputs_of(rows, begun.scores())
            return self(rows)

        return outputs

    def _score_together(self) -> None:
        """Ask for all rows that wait, in calls of about ``batch_size`` rows.

        A model with ``launch_scores`` begins them now; others are called when the scores are waited for. What is wrong
        with one question is said of it alone, where it is asked by itself.
        """
        waiting = [begun for ref in self._begun if (begun := ref()) is not None]
        self._begun.clear()
        begins = self._can("launch_scores")
        if len(waiting) < (1 if begins else 2):
            return
        with contextlib.suppress(Exception):
            self._write_ahead([one.rows.question for one in waiting])
        calls: list[dict[_Begun, tuple[list[str], str]]] = [{}]
        for one in waiting:
            if sum(len(other.rows) for other in calls[-1]) >= (self.batch_size or math.inf):
                calls.append({})
            with contextlib.suppress(Exception):
                calls[-1][one] = self.prompts.of(one.rows), self._as_read(one.rows.question).text
        for call in calls:
            with contextlib.suppress(Exception):
                asked = list(call.values())
                wait = self.model.launch_scores(asked) if begins else functools.partial(self.model.score_many, asked)
                scores = functools.cache(functools.partial(_all_of, wait))
                for number, one in enumerate(call):
                    one.scores = functools.partial(lambda scores, number: scores()[number], scores, number)

    def attention(self, masked: Masked) -> FloatArray:
        """How much the answer, and each statement, looks at each leaf of a question, (leaves, outputs)."""
        question = masked.content
        answered = self._as_read(question)
        spans, looked = self.model.attention(self.prompts.full(question), answered.text)
        if self.similarity is not None:  # whose answers have no pieces
            looked = looked.sum(axis=1, keepdims=True)
        before = np.concatenate([np.zeros((1, looked.shape[1])), np.cumsum(looked, axis=0)])
        first, end = self.prompts.places(masked).T
        at, behind = np.searchsorted(spans[:, 1], first, side="right"), np.searchsorted(spans[:, 0], end)
        return answered.outputs(before[np.maximum(behind, at)] - before[at])

    def _write_ahead(self, questions: Sequence[Question]) -> None:
        """Have answers that several questions lack written at once."""
        if self.ahead_of is not None or not self._can("generate_many"):
            return
        lacking: dict[str, Question] = {}
        for question in questions:
            known = self._of(question)
            if (question.answer or known.answered or known.written or self._kept(question)[1]) is None:
                lacking[question.fingerprint] = question
        if len(lacking) > 1:
            self.check()
            written = self.model.generate_many(list(map(self.prompts.full, lacking.values())))
            for question, answer in list(zip(lacking.values(), written, strict=True)):  # of fewer, none is anyone's
                self._of(question).written = answer

    def _as_read(self, question: Question) -> Answered:
        """The answer to a question; one from the ledger must be read by the model in the same pieces."""
        answered, known = self.answered(question), self._of(question)
        if known.unread is not None:
            if self._pieces(answered.text) != known.unread and question.answer is None:
                self._write(question)  # a model may write other tokens than it reads, and knows them only then
            if self._pieces(answered.text) != known.unread:
                raise ValueError(
                    f"the model reads the answer {answered.text[:80]!r}, which the ledger keeps, in other pieces than "
                    "before; give another ledger, or the model another name"
                )
            known.unread = None
        return answered

    def __call__(self, rows: Rows) -> FloatArray:
        with beside_rows(self.model):  # the answer may have to be written first
            answered = self._as_read(rows.question)
        prompts = self.prompts.of(rows)
        if self.similarity is not None:
            statements = answered.statements if answered.several else ()
            return similarities(self.model, prompts, answered.text, statements, self.similarity, self.language)
        try:
            scores = self.model.score(prompts, answered.text)
        except BaseException as error:  # what it brings along is of pieces, and a ledger keeps outputs
            partial = getattr(error, "partial", None)
            if partial is not None:
                error.partial = answered.outputs(np.asarray(partial))  # type: ignore[attr-defined]
            raise
        return self._outputs_of(rows, scores)

    def _outputs_of(self, rows: Rows, scores: Any) -> FloatArray:
        """The outputs of rows, from the scores of the answer's pieces in each."""
        answered, scores = self.answered(rows.question), np.asarray(scores, dtype=np.float64)
        if scores.shape != (len(rows), len(answered.owner)):
            raise ValueError(
                f"score gave an array of shape {scores.shape} for {len(rows)} prompts and an answer of "
                f"{len(answered.owner)} pieces; it must give one log-probability for each"
            )
        return answered.outputs(scores)

    # -- answers

    def _of(self, question: Question) -> _Known:
        """What is known of a question; of many thousands, the first are forgotten."""
        known = self._known.setdefault(question.fingerprint, _Known())
        while len(self._known) > 4096:
            del self._known[next(iter(self._known))]
        return known

    def answered(self, question: Question) -> Answered:
        """The answer to a question: given, kept in the ledger or written now, once it is certain that it can be scored.

        Whatever cannot be scored is refused before any row is asked.
        """
        known = self._of(question)
        if known.answered is not None:
            return known.answered
        key, kept, notes = self._kept(question)
        if known.kept_in is None:
            pieces = self._read(question, known)
        else:
            ledger, model = known.kept_in
            own = None
            if kept is None:
                own = json.dumps(self._read(question, known))
                kept = ledger.keep_text(model, key, own)  # where another was faster, the one that rows are kept of
            pieces = json.loads(kept)
            known.unread = None if kept == own else pieces
        text = "".join(pieces)
        starts = starts_of(text, self.language)
        statements, owner = sentences_of(text, starts), np.zeros(1, dtype=np.intp)
        if self.similarity is None:
            # A piece belongs to the sentence that holds its first letter; a sentence without any is no statement.
            letters = np.cumsum([0, *map(len, pieces[:-1])]) + [len(piece) - len(piece.lstrip()) for piece in pieces]
            places = np.searchsorted(starts, np.minimum(letters, len(text) - 1), side="right") - 1
            used, owner = np.unique(places, return_inverse=True)
            statements = [statements[k] for k in used]
        known.answered = Answered(text, statements, owner, notes)
        return known.answered

    def _kept(self, question: Question) -> tuple[str, str | None, tuple[str, ...]]:
        """By what the ledger knows the answer to a question, its pieces there as JSON, and what is wrong with them."""
        known = self._of(question)
        if known.kept_in is None:
            return "", None, ()
        ledger, model = known.kept_in
        key = fingerprint(
            self.prompts.full(question), question.answer
        )  # all that the answer depends on is in the prompt
        try:
            return key, ledger.get_text(model, key), ()
        except DamagedTextError as error:
            return key, None, (f"{error}; the answer was written again, and is the same",)

    def _read(self, question: Question, known: _Known) -> list[str]:
        """The pieces of an answer that is new here, written if none is given."""
        self.check()
        answer = question.answer or known.written
        if answer is None:
            answer = known.written = self._write(question)
        check_answer(answer)
        pieces = self._pieces(answer)
        if not pieces:
            raise ValueError(f"the model reads no tokens in the answer {answer!r}; give answer='…', or another query")
        if "".join(pieces) != answer:
            raise ValueError(f"the pieces of the answer do not join to it: {''.join(pieces)!r} is not {answer!r}")
        fits = getattr(self.model, "fits", None)
        if self.similarity is None and fits is not None and not fits([self.prompts.full(question)], answer)[0]:
            # The row with all documents is the longest.
            longest = max(question.texts, key=lambda name: len(question.texts[name]))
            raise ValueError(
                f"the prompt with all {len(question.texts)} documents and the answer are longer than the model's "
                f"window; leave documents out, or shorten them (the longest is {longest!r})"
            )
        return pieces

    def check(self) -> None:
        """Refuse a model that cannot do what is asked of it."""
        if self._checked:
            return
        lm, writes, scores = innermost(self.model), self._can("generate"), self._can("pieces", "score")
        kind = type(lm).__name__
        if isinstance(lm, type) or not (writes or scores):
            raise TypeError(
                "the language model must be an object with generate, pieces and score, such as "
                f"c2fa.models.CausalLM('folder'); got {lm!r:.100}"
            )
        if self.similarity is not None and not writes:
            raise TypeError(f"similarity= compares answers that are written anew, and {kind} has no generate")
        if self.similarity is None and not scores:
            raise TypeError(
                f"{kind} cannot score a given answer: it has no pieces and score; give similarity='words', which "
                "compares answers that are written anew, or a model that can, such as c2fa.models.CausalLM"
            )
        if self.similarity is None and self._can("try_scoring"):
            self.model.try_scoring()  # before it writes an answer that it cannot score
        if MARK not in self.prompts.frame:
            raise ValueError(f"the chat template of {kind} leaves out the message, so that no document would be read")
        self._checked = True

    def _can(self, *names: str) -> bool:
        return all(hasattr(self.model, name) for name in names)

    def _write(self, question: Question) -> str:
        if self.ahead_of is not None:
            return str(self.ahead_of.answered(question).text)
        if not self._can("generate"):
            raise TypeError(f"{type(self.model).__name__} writes no answers; give answer='…'")
        answer: str = self.model.generate(self.prompts.full(question))
        return answer

    def _pieces(self, answer: str) -> list[str]:
        return [answer] if self.similarity is not None else list(self.model.pieces(answer))

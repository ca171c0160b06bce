"""Which source made a language model say this: an answer's log-probability, attributed to documents and sentences."""

from __future__ import annotations

import contextvars
import dataclasses
import functools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from os import PathLike
from typing import Any, Protocol, TypeAlias, cast

import numpy as np

from c2fa.asking.fingerprint import fingerprint
from c2fa.asking.ledger import DamagedTextError
from c2fa.asking.masking import Inputs, Masked
from c2fa.asking.model import ModelProxy, describe
from c2fa.asking.querying import Ask, Cache, Conversation, Queries
from c2fa.explainer import Explainer
from c2fa.explanation import Explanation
from c2fa.maskers import Text
from c2fa.maskers._words import sentence_starts
from c2fa.methods.budget import as_budget
from c2fa.models.lazy import Lazy
from c2fa.structure import BoolArray, FloatArray, IntArray
from c2fa.views import Cited

PROMPT = "Context: {context}\n\nQuery: {query}"
Documents: TypeAlias = str | Mapping[str, str] | Sequence[str | Mapping[str, str]]
Prompt: TypeAlias = str | Callable[[str, str], str]
Similarity: TypeAlias = str | Callable[[str, str], float]
_MARK = "c2fa-puts-the-documents-here"
_REMEMBERED = 4096  # the most questions whose answers are kept in memory
_FIELDS = ("documents", "query", "answer")
_MARKER = re.compile(r"<[^<>\s]+>|\[/?[A-Z_]+\]")  # as <|im_start|>, <end_of_turn>, [INST]


class LanguageModel(Protocol):
    """What can write an answer and say how likely a given one is, as ``c2fa.models.CausalLM``.

    It may also have ``template(system, user)``, which puts a message into the model's chat format; ``fits(prompts,
    answer)``, which says whether each prompt and the answer fit into its window; ``special_tokens``, which documents
    must not hold; ``concurrency``, how many threads may call ``generate`` at once; and ``close()``, which ends them.
    """

    def generate(self, prompt: str, /) -> str:
        """The answer that the model gives to a prompt."""
        ...

    def pieces(self, answer: str, /) -> list[str]:
        """The pieces of an answer; they join to it."""
        ...

    def score(self, prompts: Sequence[str], answer: str, /) -> Any:
        """The log-probability of each piece of an answer after each prompt, (n, pieces)."""
        ...


def cite(
    lm: LanguageModel,
    documents: Documents,
    query: str,
    answer: str | None = None,
    *,
    levels: Sequence[str] = ("documents", "sentences"),
    budget: int | Sequence[int] = 64,
    prompt: Prompt = PROMPT,
    system: str | None = None,
    separator: str = "\n\n",
    language: str = "en",
    similarity: Similarity | None = None,
    **options: Any,
) -> Explanation:
    """Attribute a language model's answer to the documents that it answered from, down to their sentences or words.

    What is explained is the log-probability of the answer, in nats: how much likelier each document and sentence makes
    it. Beside the whole answer, each of its statements is an output of its own, all from the same rows. A masked
    sentence is removed, and a document of which nothing is left too; the prompt around them never changes. For many
    questions, see ``c2fa.Citer``.

    Parameters
    ----------
    lm
        ``c2fa.models.CausalLM``, a model behind a server, or any object with ``generate``, ``pieces`` and ``score``.
    documents
        A dict of names and texts, a list of texts or of ``{"id": …, "text": …}``, or one text.
    answer
        The answer to explain; None has the model write it from all documents, which is no row of the budget.
    levels
        Coarse to fine, the last being the leaves: any of ``"documents"``, ``"paragraphs"``, ``"sentences"`` and
        ``"words"``. Words are asked about only inside the sentences that are found to matter (``c2fa-focused``), or
        everywhere with ``until``.
    budget
        Rows of the model, or those of each level; the one without any document is among them.
    prompt
        A text with ``{context}`` and ``{query}``, or a function of both; it is put into the model's own chat template
        where the model has one, with ``system`` before it.
    separator
        What stands between two documents.
    similarity
        For a model that cannot score a given answer: each row is answered anew, and what is explained is how similar
        that answer is to the one to explain, from 0 to 1. ``"words"``, or a function of both answers. A statement's
        number is that of the most similar sentence of the new answer.
    options
        Further options of ``Explainer``: ``seed``, ``ledger``, ``until``, ``method``, … ``link="logit"`` explains the
        log-odds of the answer and of its statements; ``method="context-cite"`` does so by default.

    Examples
    --------
    >>> class Parrot:
    ...     def generate(self, prompt): return "It is blue."
    ...     def pieces(self, answer): return [answer]
    ...     def score(self, prompts, answer): return [[-1.0 if "sky" in prompt else -5.0] for prompt in prompts]
    >>> c = cite(Parrot(), {"a": "The sky is blue. I was there.", "b": "Grass is green."}, "What is blue?")
    >>> c.structure.names[0], c.high.round(2)
    (('a', 'b'), array([4., 0.]))
    """
    citer = Citer(
        lm,
        levels=levels,
        budget=budget,
        prompt=prompt,
        system=system,
        separator=separator,
        language=language,
        similarity=similarity,
        **options,
    )
    return citer(Question(documents, query, answer))


def method_for(levels: Sequence[str], until: Any = None) -> str:
    """The method that suits these levels: words are far more than rows, and only a few sentences matter."""
    words = len(levels) > 1 and levels[-1] == "words"
    return "c2fa-focused" if words and until is None else "c2fa"


@dataclasses.dataclass(frozen=True)
class Question:
    """What a language model is asked about documents, and the answer that is to be explained.

    Parameters
    ----------
    documents
        As ``cite`` takes them; they become a dict of names and texts.
    answer
        None where the model is to write it.
    """

    documents: Documents
    query: str
    answer: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "documents", _documents(self.documents))
        if not isinstance(self.query, str):
            raise TypeError(f"the query must be a text, not {type(self.query).__name__}")
        if self.answer is not None:
            _check_answer(self.answer)

    @property
    def texts(self) -> dict[str, str]:
        """The documents by their names."""
        return cast(dict[str, str], self.documents)

    @classmethod
    def of(cls, x: Any) -> Question:
        """A question from a dict of its fields, as a line of a JSONL file has them.

        >>> Question.of({"documents": ["The sky is blue."], "query": "What is blue?"}).documents
        {'document 1': 'The sky is blue.'}
        """
        if isinstance(x, Question):
            return x
        if not isinstance(x, Mapping):
            raise TypeError(f"a question must be a dict with {', '.join(_FIELDS)}, not {type(x).__name__}")
        missing = [name for name in ("documents", "query") if x.get(name) is None]
        if missing:
            raise ValueError(f"the question has no {missing[0]!r}; it has {', '.join(map(repr, x)) or 'nothing'}")
        return cls(x["documents"], x["query"], x.get("answer"))


class Citer(Explainer):
    """Explains answers to many questions; ``cite`` is one called once.

    Its inputs are questions: ``Question(documents, query, answer)``, or dicts with these fields. ``many`` explains a
    list or a JSONL file of them, in memory or into a store.

    Parameters
    ----------
    lm, levels, budget, prompt, system, separator, language, similarity, options
        As ``cite`` takes them.

    Examples
    --------
    >>> class Parrot:
    ...     def generate(self, prompt): return "It is blue."
    ...     def pieces(self, answer): return [answer]
    ...     def score(self, prompts, answer): return [[-1.0 if "sky" in prompt else -5.0] for prompt in prompts]
    >>> questions = [{"documents": ["The sky is blue.", "Grass is green."], "query": q} for q in ("What?", "Which?")]
    >>> [c.high.round(2).tolist() for c in Citer(Parrot()).many(questions)]
    [[4.0, 0.0], [4.0, 0.0]]
    """

    outputs_vary = True
    model_may_be_apart = False

    def __init__(
        self,
        lm: LanguageModel,
        *,
        levels: Sequence[str] = ("documents", "sentences"),
        budget: int | Sequence[int] = 64,
        prompt: Prompt = PROMPT,
        system: str | None = None,
        separator: str = "\n\n",
        language: str = "en",
        similarity: Similarity | None = None,
        **options: Any,
    ) -> None:
        if options.get("method") == "context-cite":  # its authors fit log-odds
            options = {"link": "logit", **options}
        asking = Asking(prompt, system, separator)
        masker = QuestionMasker(levels, language, asking)
        options = {"method": method_for(masker.levels, options.get("until")), **options}
        self.scorer = _Scorer(lm, asking, language, similarity, options.pop("model_name", None))
        if not isinstance(lm, Lazy):  # whose model is not to be made yet
            self.scorer.check()
        super().__init__(
            self.scorer,
            masker,
            budget=_without_one(budget, levels),
            **{"target": 0, "outputs": "all", **options},
        )

    def __call__(self, x: Any, *, key: str | None = None) -> Explanation:
        """Explain the answer to one question."""
        question = Question.of(x)
        if question.answer is not None:
            self.scorer.said(question)  # what is wrong with the answer is said before anything is asked
        return super().__call__(question, key=key)

    def many(self, inputs: Any, store: str | PathLike[str] | None = None, **options: Any) -> Any:
        """Explain the answer to every question of a list, of a JSONL or Parquet file, …, as ``Explainer.many`` does.

        A store keeps each question with its answer and statements.
        """
        if store is not None:
            options = {"views": "all", **options}  # without its statements an explanation of an answer says little
        return super().many(inputs, store, **{"column": Question.of, **options})

    def with_model(self, model: Any) -> Citer:
        """The same with another language model."""
        made = super().with_model(model)
        assert isinstance(made, Citer)
        made.model = made.scorer = self.scorer.of(model)
        return made

    def names_of(self, masked: Masked) -> tuple[str, ...]:
        """The whole answer, and its statements where it has several."""
        statements = self.scorer.said(masked.content).statements
        return ("answer", *statements) if len(statements) > 1 else ("answer",)

    def tokens_of(self, masked: Masked) -> tuple[int, ...]:
        """How many pieces each output is the log-probability of."""
        if self.scorer.similarity is not None:
            return ()
        each = np.bincount(self.scorer.said(masked.content).owner).tolist()
        return (sum(each), *each) if len(each) > 1 else (sum(each),)

    def queries(self, x: Any, masked: Masked, key: str | None = None, cache: Cache | None = None) -> Queries:
        """Begin what is to be asked about one question, with a row more for what the model says without documents."""
        queries = super().queries(x, masked, key, cache)
        queries.budget += 1
        return queries

    def conversation(self, masked: Masked, queries: Queries) -> Conversation[Explanation]:
        """Ask about one question; the first row has the model write the answer where none is given."""
        question: Question = masked.content
        self._recall(question, masked, queries)
        structure = masked.structure
        leaves = np.ones((1, structure.leaves), dtype=np.bool_)
        full = yield Ask(structure.depth - 1, leaves)
        self._recall(question, masked, queries)  # another process may have had the answer written, and this row scored
        queries.notes += self.scorer.told_of(question)
        without = full
        if full.ok[0]:
            without = yield Ask(structure.depth - 1, ~leaves)
        e = yield from super().conversation(masked, queries)
        said = self.scorer.said(question)
        answer = Cited(
            query=question.query,
            text=said.answer,
            statements=tuple(said.statements),
            written_by_the_model=question.answer is None,
            generations=int(question.answer is None),
            scored_by=self.scorer.scored_by,
            without_documents=tuple(without.outputs[0].tolist()),
        )
        return dataclasses.replace(e, answer=answer)

    def _recall(self, question: Question, masked: Masked, queries: Queries) -> None:
        """Take the answer that was scored before from the ledger; a new one is kept there before it is scored."""
        if self.ledger is None:
            return
        # The very prompt names it: all that the answer depends on is in there.
        name, key = self.model_name or "", fingerprint(self.scorer.full(question), question.answer)
        assert isinstance(masked.inputs, _QuestionInputs)
        masked.inputs.keep = functools.partial(self.ledger.keep_text, name, key)
        try:
            kept = self.ledger.get_text(name, key)
        except DamagedTextError as error:
            self.scorer.said(question, masked.inputs.keep)
            queries.notes.append(f"{error}; the answer was written again, and is the same")
            return
        if kept is not None:
            self.scorer.learn(question, json.loads(kept))


# ---------------------------------------------------------------------------------- masking


@dataclasses.dataclass(frozen=True)
class Asking:
    """How documents and the query become a message to the model, and the system's text before it."""

    prompt: Prompt = PROMPT
    system: str | None = None
    separator: str = "\n\n"

    def __post_init__(self) -> None:
        if _MARK not in self._text(_MARK, "?"):
            shown = repr(self.prompt) if isinstance(self.prompt, str) else "the function that makes it leaves it out"
            raise ValueError(f"the prompt has no {{context}}, so that no document would be read: {shown}")

    def message(self, documents: Mapping[str, str], query: str) -> str:
        """The message with some documents, those of which nothing is left aside."""
        return self._text(self.separator.join(text for text in documents.values() if text), query)

    def _text(self, context: str, query: str) -> str:
        if not isinstance(self.prompt, str):
            return self.prompt(context, query)
        given = {"{context}": context, "{query}": query}
        return re.sub(r"\{(context|query)\}", lambda found: given[found[0]], self.prompt)  # both may hold braces too


@dataclasses.dataclass(frozen=True)
class QuestionMasker:
    """Masks the documents of a question, from which documents, sentences and words are removed."""

    levels: Sequence[str] = ("documents", "sentences")
    language: str = "en"
    asking: Asking = Asking()

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", self._text.levels)

    @property
    def _text(self) -> Text:
        return Text(levels=self.levels, language=self.language, mask=None)

    def __call__(self, x: Any) -> Masked:
        question = Question.of(x)
        masked = self._text(question.texts)
        inputs = _QuestionInputs(question, self.asking, masked.inputs)
        return dataclasses.replace(masked, inputs=inputs, content=question)


@dataclasses.dataclass(eq=False)
class _QuestionInputs:
    """Gives rows of one question; ``keep`` gets the pieces of its answer, as JSON, and returns those to be scored."""

    question: Question
    asking: Asking
    documents: Callable[[BoolArray, int], Inputs]
    keep: Callable[[str], str] | None = None

    def __call__(self, masks: BoolArray, level: int) -> Rows:
        messages = [self.asking.message(left, self.question.query) for left in self.documents(masks, level)]
        return Rows(self.question, messages, self.keep)


@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
    """Rows of one question: the message to the model in each, with what is left of the documents.

    It is a batch of a kind of its own, as rows of different answers have different statements.
    """

    question: Question
    messages: Sequence[str]
    keep: Callable[[str], str] | None = None

    def __len__(self) -> int:
        return len(self.messages)

    def __getitem__(self, rows: slice) -> Rows:
        return Rows(self.question, self.messages[rows], self.keep)


# ---------------------------------------------------------------------------------- the model


@dataclasses.dataclass(frozen=True, eq=False)
class _Said:
    """An answer with its statements, and which of them each piece belongs to."""

    answer: str
    statements: Sequence[str]
    owner: IntArray


def _of_statements(scores: FloatArray, said: _Said) -> FloatArray:
    """The log-probability of the answer and, where it has several, of each of its statements, from those of pieces."""
    columns = [scores.sum(axis=1)]
    if len(said.statements) > 1:
        columns += [scores[:, said.owner == k].sum(axis=1) for k in range(len(said.statements))]
    outputs: FloatArray = np.column_stack(columns)
    return outputs


class _Scorer(ModelProxy):
    """A model of questions: the log-probability of the answer and, where it has several, of each of its statements.

    Where a question has no answer, the model writes it when the first row is asked, and its answer is remembered.
    """

    def __init__(
        self, lm: Any, asking: Asking, language: str, similarity: Similarity | None, model_name: str | None
    ) -> None:
        super().__init__(lm)
        self.asking, self.language, self.similarity, self.model_name = asking, language, similarity, model_name
        self.__name__ = type(lm).__name__  # what provenance calls a model without a name
        self._compare = None if similarity is None else _comparison(similarity)
        self._known: dict[str, _Said] = {}
        self._written: dict[str, str] = {}  # answers that the model wrote, also those that cannot be scored
        self._recalled: dict[str, list[str]] = {}  # the pieces of answers from a ledger, until they are seen again
        self._checked = False

    def of(self, lm: Any) -> _Scorer:
        """The same with another language model."""
        return _Scorer(lm, self.asking, self.language, self.similarity, self.model_name)

    @property
    def log_probabilities(self) -> bool:
        """Whether the outputs are log-probabilities, and not similarities."""
        return self.similarity is None

    @property
    def scored_by(self) -> str:
        """What the outputs are."""
        return "log-probability" if self.similarity is None else "similarity"

    @property
    def name(self) -> str | None:
        """The language model's, with how it is asked; the question and the answer are the input."""
        own = self.model_name or describe(self.model).name
        how = (self._prompt(_MARK), getattr(self.model, "max_new_tokens", None), self.similarity)
        return own and f"{own}:{fingerprint(*how)[:16]}"

    def __call__(self, rows: Rows) -> FloatArray:
        said = self.said(rows.question, rows.keep)
        self._see_again(rows.question)
        prompts = [self._prompt(message) for message in rows.messages]
        if self._compare is not None:
            return self._similarities(prompts, said)
        try:
            scores = np.asarray(self.model.score(prompts, said.answer), dtype=np.float64)
        except BaseException as error:  # what it brings along is of pieces, and a ledger keeps outputs
            partial = getattr(error, "partial", None)
            if partial is not None:
                error.partial = _of_statements(np.asarray(partial), said)  # type: ignore[attr-defined]
            raise
        if scores.shape != (len(prompts), len(said.owner)):
            raise ValueError(
                f"score gave an array of shape {scores.shape} for {len(prompts)} prompts and an answer of "
                f"{len(said.owner)} pieces; it must give one log-probability for each"
            )
        return _of_statements(scores, said)

    def said(self, question: Question, keep: Callable[[str], str] | None = None) -> _Said:
        """The answer to a question, given or written, once it is certain that it can be scored."""
        key = fingerprint(question)
        if key not in self._known:
            if not self._checked:
                self.check()
            answer = question.answer
            if answer is None:
                if key not in self._written:
                    _remember(self._written, key, self._write(question))
                answer = self._written[key]
            _check_answer(answer)
            pieces = self._pieces(answer)
            self._check_window(question, answer)
            said = self._taken_apart(answer, pieces)
            kept = pieces if keep is None else json.loads(keep(json.dumps(pieces)))
            if kept == pieces:
                _remember(self._known, key, said)
            else:  # another was faster, and its answer is the one that rows are kept of
                self.learn(question, kept)
        return self._known[key]

    def learn(self, question: Question, pieces: list[str]) -> None:
        """Take an answer that was scored before, in the pieces that it was scored in, without asking the model."""
        key = fingerprint(question)
        if key not in self._known:
            _remember(self._known, key, self._taken_apart("".join(pieces), pieces))
            self._recalled[key] = pieces

    def _see_again(self, question: Question) -> None:
        """Refuse to go on with an answer from a ledger that the model reads in other pieces now."""
        pieces = self._recalled.get(fingerprint(question))
        if pieces is None:
            return
        answer = "".join(pieces)
        if self._pieces(answer) != pieces and question.answer is None:
            self._write(question)  # a model may write other tokens than it reads, and knows them only after writing
        if self._pieces(answer) != pieces:
            raise ValueError(
                f"the model reads the answer {answer[:80]!r}, which the ledger keeps, in other pieces than before; "
                "give another ledger, or the model another name"
            )
        self._recalled.pop(fingerprint(question), None)

    def check(self) -> None:
        """Refuse a model that cannot do what is asked of it."""
        kind = type(self.model).__name__
        if self.similarity is not None:
            if not hasattr(self.model, "generate"):
                raise TypeError(f"similarity= compares answers that are written anew, and {kind} has no generate")
        elif not (hasattr(self.model, "pieces") and hasattr(self.model, "score")):
            raise TypeError(
                f"{kind} cannot score a given answer: it has no pieces and score; give similarity='words', which "
                "compares answers that are written anew, or a model that can, such as c2fa.models.CausalLM"
            )
        if _MARK not in self._prompt(_MARK):
            raise ValueError(f"the chat template of {kind} leaves out the message, so that no document would be read")
        self._checked = True

    def full(self, question: Question) -> str:
        """The prompt with all documents."""
        return self._prompt(self.asking.message(question.texts, question.query))

    def _prompt(self, message: str) -> str:
        """A message in the model's chat template where it has one, with the system's text before it."""
        system = self.asking.system
        template = getattr(self.model, "template", None)
        shown = None if template is None else template(system, self._markers.sub(lambda m: _broken(m[0]), message))
        return shown or "\n\n".join(part for part in (system, message) if part)

    @functools.cached_property
    def _markers(self) -> re.Pattern[str]:
        """What a document must not say, for the model would read it as the end of a turn or the beginning of another.

        These are the marks in the format of a chat, and its other special tokens, where it tells them.
        """
        template = getattr(self.model, "template", None)
        around = None if template is None else template(self.asking.system, _MARK)
        around = around and around.replace(self.asking.system or "", "")  # which may hold marks of its own
        found = {*getattr(self.model, "special_tokens", ()), *_MARKER.findall(around)} if around else set()
        return re.compile("|".join(map(re.escape, sorted(found, key=len, reverse=True))) or "(?!)")

    def told_of(self, question: Question) -> list[str]:
        """What is to be said of a question whose documents, or query, hold a special token of the model."""
        found = self._markers.findall(self.asking.message(question.texts, question.query))
        if not found:
            return []
        return [
            f"the documents or the query hold {found[0]!r}, by which the model tells turns of a chat apart; in its "
            f"prompts a blank stands in each such mark, as in {_broken(found[0])!r}"
        ]

    def _write(self, question: Question) -> str:
        if not hasattr(self.model, "generate"):
            raise TypeError(f"{type(self.model).__name__} writes no answers; give answer='…'")
        answer: str = self.model.generate(self.full(question))
        return answer

    def _pieces(self, answer: str) -> list[str]:
        return [answer] if self._compare is not None else list(self.model.pieces(answer))

    def _taken_apart(self, answer: str, pieces: Sequence[str]) -> _Said:
        """An answer with its statements; pieces that do not join to it are refused before any row is asked."""
        if not pieces:
            raise ValueError(f"the model reads no tokens in the answer {answer!r}; give answer='…', or another query")
        if "".join(pieces) != answer:
            raise ValueError(f"the pieces of the answer do not join to it: {''.join(pieces)!r} is not {answer!r}")
        if self._compare is not None:
            return _Said(answer, _sentences(answer, self.language), np.zeros(1, dtype=np.intp))
        return _Said(answer, *_statements(answer, pieces, self.language))

    def _check_window(self, question: Question, answer: str) -> None:
        """Refuse a context that is too long: the row with all documents is the longest."""
        fits = None if self._compare is not None else getattr(self.model, "fits", None)
        if fits is not None and not fits([self.full(question)], answer)[0]:
            longest = max(question.texts, key=lambda name: len(question.texts[name]))
            raise ValueError(
                f"the prompt with all {len(question.texts)} documents and the answer are longer than the model's "
                f"window; leave documents out, or shorten them (the longest is {longest!r})"
            )

    def _similarities(self, prompts: Sequence[str], said: _Said) -> FloatArray:
        """Each prompt answered anew, and compared; a failure brings along what was answered before it."""
        several = len(said.statements) > 1
        outputs = np.full((len(prompts), 1 + several * len(said.statements)), np.nan)
        try:
            for i, written in _written(self.model, prompts):
                assert self._compare is not None
                outputs[i, 0] = self._compare(said.answer, written)
                sentences = _sentences(written, self.language)
                for k, statement in enumerate(said.statements if several else ()):
                    outputs[i, 1 + k] = max((self._compare(statement, s) for s in sentences), default=0.0)
        except BaseException as error:
            error.partial = outputs  # type: ignore[attr-defined]
            raise
        return outputs


def _broken(marker: str) -> str:
    """A special token with a blank in it, which a tokenizer does not take for one."""
    return f"{marker[0]} {marker[1:]}"


def _remember(known: dict[str, Any], key: str, value: Any) -> None:
    known[key] = value
    while len(known) > _REMEMBERED:
        del known[next(iter(known))]


def _written(lm: Any, prompts: Sequence[str]) -> Iterator[tuple[int, str]]:
    """What the model answers to each prompt, as soon as it is known, from as many threads as the model allows."""
    threads = min(int(getattr(lm, "concurrency", 1) or 1), len(prompts))
    if threads == 1:
        yield from ((i, lm.generate(prompt)) for i, prompt in enumerate(prompts))
        return
    pool = ThreadPoolExecutor(threads, "c2fa-writing")
    ended = False
    try:
        futures: list[Future[str]] = [
            pool.submit(contextvars.copy_context().run, lm.generate, prompt) for prompt in prompts
        ]  # in the caller's context, where costs are charged
        failure: Exception | None = None
        for i, future in enumerate(futures):
            try:
                yield i, future.result()
            except Exception as error:  # those behind it may have been answered, and paid for
                failure = failure or error
                pool.shutdown(wait=False, cancel_futures=True)
        ended = True
        if failure is not None:
            raise failure
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        if not ended and hasattr(lm, "close"):  # Ctrl-C: Python would wait for every request under way before it ends
            lm.close()


def _comparison(given: Similarity) -> Callable[[str, str], float]:
    """The function that compares two answers, whose numbers are checked."""
    if given == "words":
        return _shared_words
    if not callable(given):
        raise ValueError(f"similarity must be 'words' or a function of two answers; got {given!r}")
    return functools.partial(_compared, given)


def _compared(similarity: Callable[[str, str], float], answer: str, written: str) -> float:
    found = float(similarity(answer, written))
    if not 0.0 <= found <= 1.0:
        raise ValueError(f"similarity must give numbers from 0 to 1; got {found!r}")
    return found


def _shared_words(answer: str, written: str) -> float:
    """The F1 of the words that two texts share, each counted as often as it occurs.

    >>> _shared_words("Bern is the capital.", "the capital is Bern"), _shared_words("Bern", "")
    (1.0, 0.0)
    """
    one, other = (Counter(re.findall(r"\w+", text.casefold())) for text in (answer, written))
    words = one.total() + other.total()
    return 2.0 * (one & other).total() / words if words else float(answer == written)


# ---------------------------------------------------------------------------------- answers and documents


def _check_answer(answer: Any) -> None:
    if not isinstance(answer, str):
        raise TypeError(f"the answer must be a text, not {type(answer).__name__}")
    if not answer.strip():
        raise ValueError("the answer is empty, so there is nothing to attribute; give answer='…', or another query")


def _starts(text: str, language: str) -> list[int]:
    """Where the sentences of a text begin; a blank line is none, and what stands before the first belongs to it."""
    cuts = sorted({0, *sentence_starts(text, language)})
    starts = [a for a, b in pairwise([*cuts, len(text)]) if text[a:b].strip()]
    return [0, *starts[1:]]


def _sentences(text: str, language: str) -> list[str]:
    """The sentences of a text."""
    starts = _starts(text, language)
    return [text[a:b].strip() for a, b in pairwise([*starts, len(text)])]


def _statements(answer: str, pieces: Sequence[str], language: str) -> tuple[list[str], IntArray]:
    """The sentences of an answer, and which of them each piece belongs to: the one that holds its first letter."""
    starts = _starts(answer, language)
    begins = np.cumsum([0, *map(len, pieces[:-1])])
    letters = begins + [len(piece) - len(piece.lstrip()) for piece in pieces]
    owner = np.searchsorted(starts, np.minimum(letters, len(answer) - 1), side="right") - 1
    used, owner = np.unique(owner, return_inverse=True)
    ends = [*starts[1:], len(answer)]
    return [answer[starts[k] : ends[k]].strip() for k in used], owner


def _documents(given: Documents) -> dict[str, str]:
    """Names and texts, or a sentence about what is wrong with them."""
    if isinstance(given, Mapping):
        pairs: list[tuple[str, Any]] = [(str(name), text) for name, text in given.items()]
    else:
        if not isinstance(given, Iterable):
            raise TypeError(f"documents must be texts by their names, or a list of texts; got {given!r}")
        items = [given] if isinstance(given, str) else list(given)
        pairs = [_named(item, f"document {k + 1}") for k, item in enumerate(items)]
    named = dict(pairs)
    if len(named) < len(pairs):
        raise ValueError(f"two documents have one id among {[name for name, _ in pairs]}; give each its own")
    if not named:
        raise ValueError("there are no documents; give at least one")
    for name, text in named.items():
        if not isinstance(text, str):
            raise TypeError(f"document {name!r} must be a text, not {type(text).__name__}")
        if not text.strip():
            raise ValueError(f"document {name!r} is empty; leave it out")
    return named


def _named(item: str | Mapping[str, str], name: str) -> tuple[str, Any]:
    """A document's name and text."""
    return (str(item.get("id", name)), item.get("text")) if isinstance(item, Mapping) else (name, item)


def _without_one(budget: Any, levels: Sequence[str]) -> Any:
    """The rows of a budget without the one that has no document, which the explainer does not know of."""
    rows = as_budget(budget)
    first, least = (rows[0], 3) if isinstance(rows, tuple) else (rows, len(levels) + 2)
    if first < least:
        raise ValueError(
            f"a budget of {budget} rows is too small: it takes one with all documents, one without any, and one for "
            "each level"
        )
    return (first - 1, *rows[1:]) if isinstance(rows, tuple) else first - 1

"""Which source made a language model say this: an answer's log-probability, attributed to documents and sentences."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any, Protocol

from c2fa.citing.annotations import Citations
from c2fa.citing.documents import Documents
from c2fa.citing.questions import PROMPT, Asking, Messages, Prompt, Question, QuestionMasker, fields_of
from c2fa.citing.scoring import Scorer
from c2fa.citing.similarity import Similarity
from c2fa.citing.verdicts import Verification, Verifications
from c2fa.citing.verifying import Verifier
from c2fa.explainer import Explainer
from c2fa.explanation import Explanation
from c2fa.methods.budget import masks_of, rows_and_money
from c2fa.models.loading import Lazy


class LanguageModel(Protocol):
    """A model that writes answers and gives the probability of an answer, such as ``c2fa.models.CausalLM``.

    It may also have

    - ``score_many([(prompts, answer), …])`` and ``generate_many(prompts)``, by which ``Citer.many`` asks about several
      questions in one call, and ``launch_scores``, which begins ``score_many`` and returns a function that waits for
      the scores, so that a GPU always has its next call;
    - ``template(messages)``, which puts a chat into the model's chat format;
    - ``fits(prompts, answer)``: whether each prompt with the answer fits into the model's window;
    - ``try_scoring()``, which raises where the model cannot score after all;
    - ``special_tokens``, which documents must not hold;
    - ``concurrency``, how many threads may call ``generate`` at once, and ``close()``, which ends their calls.
    """

    def generate(self, prompt: str, /) -> str:
        """The answer of the model to a prompt."""
        ...

    def pieces(self, answer: str, /) -> list[str]:
        """The pieces of an answer; joined, they are the answer."""
        ...

    def score(self, prompts: Sequence[str], answer: str, /) -> Any:
        """The log-probability of each piece of an answer after each prompt, (n, pieces)."""
        ...


def cite(
    lm: LanguageModel,
    documents: Documents = None,
    query: str | None = None,
    answer: str | None = None,
    *,
    messages: Messages | None = None,
    **options: Any,
) -> Explanation:
    """Attribute a language model's answer to its documents, down to their sentences or words.

    Attributions say how much likelier, in nats, each document and sentence makes the answer. The whole answer is one
    output, and each of its statements is another, all from the same rows. A masked sentence is removed, and so is a
    document with no sentence left; the prompt around them never changes. For many questions, see ``c2fa.Citer``.

    Parameters
    ----------
    lm
        ``c2fa.models.CausalLM``, a model behind a server, or any object with ``generate``, ``pieces`` and ``score``.
    documents
        A dict of ids and texts, or whatever else ``c2fa.citing.documents_of`` reads.
    answer
        The answer to explain; None has the model write it from all documents, which takes no row of the budget.
    messages
        A whole chat in place of the query, as a list of ``{"role": …, "content": …}``. Its tools' results and earlier
        turns are sources, and so are documents that stand in it word for word. The system's text, the last turn of the
        user and messages with ``"keep": True`` stay. A last turn of the assistant is the answer.
    options
        Options of ``c2fa.Citer`` (``levels``, ``budget``, ``prompt``, ``system``, ``document``, ``similarity``, …) and
        of ``Explainer``: ``seed``, ``ledger``, ``until``, ``method``, …

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
    x = {"documents": documents, "query": query, "answer": answer, "messages": messages}
    return Citer(lm, **options)(x)


def verify(
    lm: LanguageModel,
    documents: Documents = None,
    query: str | None = None,
    answer: Any = None,
    citations: Citations = None,
    *,
    messages: Messages | None = None,
    budget: int = 64,
    **options: Any,
) -> Verification:
    """Say of each citation of an answer whether the source was used.

    Parameters
    ----------
    lm, documents, query, messages
        As ``c2fa.cite`` takes them.
    answer
        The answer with its citations, as ``[1]``, ``[2, 3]``, ``[id]`` or ``(source: id)``; or a model interface's
        blocks of text, with their citations.
    citations
        None reads them from the answer. Else pairs of a place in the answer, a text of it or (start, end), and a
        source; or citations of LangChain, Anthropic, Cohere, Gemini or OpenAI, as plain dicts.
    budget
        The most rows of the model: for the values of all documents, and for removing the cited ones, alone and
        together with their possible substitutes.
    options
        Further options of ``c2fa.Citer``.

    Examples
    --------
    >>> class Parrot:
    ...     def generate(self, prompt): return "It is blue."
    ...     def pieces(self, answer): return [answer]
    ...     def score(self, prompts, answer): return [[-1.0 if "sky" in prompt else -5.0] for prompt in prompts]
    >>> v = verify(Parrot(), ["The sky is blue.", "Grass is green."], "What is blue?", "It is blue [1, 2].")
    >>> [(c.source, c.verdict) for c in v.citations]
    [('document 1', 'used'), ('document 2', 'not used')]
    """
    citer = Citer(lm, budget=budget, **{"method": "owen", **options})
    x = {"documents": documents, "query": query, "messages": messages}
    return citer.verify(x, answer, citations)


def method_for(levels: Sequence[str], until: Any = None) -> str:
    """The method for these levels: there are far more words than rows, and only a few sentences matter."""
    words = len(levels) > 1 and levels[-1] == "words"
    return "c2fa-focused" if words and until is None else "c2fa"


class Citer:
    """Explains answers to many questions; ``cite`` makes one and calls it once.

    Its inputs are questions: ``Question(documents, query, answer)``, or dicts with these fields. ``many`` explains a
    list or a JSONL file of them, in memory or into a store. ``explainer`` is the ``Explainer`` inside: a question
    is its masker's input, and a scorer around the language model is its model.

    Parameters
    ----------
    lm
        As in ``cite``.
    levels
        Coarse to fine, the last being the leaves: any of ``"documents"``, ``"paragraphs"``, ``"sentences"`` and
        ``"words"``. Words are asked about only inside the sentences that matter (``c2fa-focused``), or everywhere with
        ``until``.
    budget
        Rows of the model, or those of each level; the row without any document counts. Or money, as ``"$0.50"``.
    prompt
        A text with ``{context}`` and ``{query}``, or a function of both. It goes into the model's own chat template,
        if the model has one, with ``system`` before it.
    document
        A template for each document in the prompt, such as ``"[{id}] {title}\\n{text}"``. ``{text}`` is its text; the
        rest, from its id and metadata, stays while any of its sentences does. None is the text alone.
    separator
        The text between two documents.
    similarity
        For a model that cannot score a given answer: the model answers each row anew, and the output is the similarity
        of that answer to the answer to explain, from 0 to 1. ``"words"``, or a function of both answers. A statement's
        output is that of the most similar sentence of the new answer.
    options
        Further options of ``Explainer``: ``seed``, ``ledger``, ``until``, ``method``, … ``link="logit"`` explains the
        log-odds of the answer and of its statements.
    """

    def __init__(
        self,
        lm: LanguageModel,
        *,
        levels: Sequence[str] = ("documents", "sentences"),
        budget: int | Sequence[int] | str = 64,
        prompt: Prompt = PROMPT,
        system: str | None = None,
        document: str | None = None,
        separator: str = "\n\n",
        language: str = "en",
        similarity: Similarity | None = None,
        **options: Any,
    ) -> None:
        asking = Asking(prompt, system, separator, document)
        masker = QuestionMasker(levels, language, asking)
        options = {"method": method_for(masker.levels, options.get("until")), **options}
        self.scorer = Scorer(lm, asking, language, similarity, options.pop("model_name", None))
        if not isinstance(lm, Lazy):  # a check would load a lazy model
            self.scorer.check()
        # Refuses a budget that is too small for any question.
        masks_of(rows_and_money(budget)[0], 1, len(masker.levels), beside=1)
        options = {"target": 0, "outputs": "all", **options}
        self.explainer = Explainer(self.scorer, masker, budget=budget, **options)

    def __call__(self, x: Any, *, key: str | None = None) -> Explanation:
        """Explain the answer to one question."""
        question = self.scorer.asking.of(Question.of(x))
        if question.answer is not None:
            self.scorer.answered(question)  # refuses a bad answer before anything is asked
        return self.explainer(question, key=key)

    def live(self, x: Any, *, key: str | None = None) -> Any:
        """The answer to one question on a page in the notebook, where any words of it can be explained."""
        return self.explainer.live(x, key=key)

    def many(self, inputs: Any, store: str | PathLike[str] | None = None, **options: Any) -> Any:
        """Explain the answers to all questions of a list, a JSONL or Parquet file, …: ``Explainer.many`` for questions.

        A store keeps each question with its answer and statements.
        """
        return self.explainer.many(inputs, store, **_of_many(store, options))

    @property
    def verifier(self) -> Verifier:
        """The explainer that also verifies citations."""
        return Verifier.of(self.explainer)

    def verify(self, x: Any, answer: Any = None, citations: Citations = None) -> Verification:
        """Say of each citation of an answer whether the source was used; see ``c2fa.verify``.

        The answer and the citations may also be fields of the question.
        """
        verifier, question = self.verifier, self.scorer.asking.of(Question.with_claims(x, answer, citations))
        self.scorer.answered(question)  # refuses a bad answer before anything is asked
        return Verification(verifier(question))

    def verify_many(self, inputs: Any, store: str | PathLike[str] | None = None, **options: Any) -> Verifications:
        """Verify the answers to many questions, with scores over all of them.

        Inputs, store and options are as in ``many``: a question that is bad, or makes the model fail, is set aside, and
        the same call continues an unfinished store.
        """
        return Verifications(self.verifier.many(inputs, store, **_of_many(store, options)))


def _of_many(store: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Options of ``many`` for questions; a store keeps all views: without its statements an answer says little."""
    views = {} if store is None else {"views": "all"}
    return {"column": fields_of, **views, **options}

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
    """What can write an answer and say how likely a given one is, as ``c2fa.models.CausalLM``.

    It may also have ``score_many([(prompts, answer), …])`` and ``generate_many(prompts)``, by which ``Citer.many`` asks
    about several questions in one call; ``launch_scores``, which begins the former and returns a function that waits
    for it, so that a GPU has the next call before this one is read; ``template(messages)``, which puts a chat into the
    model's chat format;
    ``fits(prompts, answer)``, which says whether each prompt and the answer fit into its window; ``try_scoring()``,
    which says by an error that it cannot score after all; ``special_tokens``, which documents must not hold;
    ``concurrency``, how many threads may call ``generate`` at once; and ``close()``, which ends them.
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
    documents: Documents = None,
    query: str | None = None,
    answer: str | None = None,
    *,
    messages: Messages | None = None,
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
        A dict of ids and texts, or whatever else ``c2fa.citing.documents_of`` reads.
    answer
        The answer to explain; None has the model write it from all documents, which is no row of the budget.
    messages
        A whole chat in place of the query, as a list of ``{"role": …, "content": …}``. Its tools' results and earlier
        turns are sources, and so are documents that stand in it word for word; the system's text, the last turn of the
        user and what is marked ``"keep": True`` stay. Where the assistant has the last word, that is the answer.
    options
        Those of ``c2fa.Citer`` (``levels``, ``budget``, ``prompt``, ``system``, ``document``, ``similarity``, …) and of
        ``Explainer``: ``seed``, ``ledger``, ``until``, ``method``, …

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
        The answer with its citations, as ``[1]``, ``[2, 3]``, ``[id]`` or ``(source: id)``, or blocks of text that
        hold them, as models' interfaces give them.
    citations
        None reads them from the answer. Else pairs of a place in the answer, a text of it or (start, end), and a
        source; or citations as LangChain, Anthropic, Cohere, Gemini and OpenAI have them, as plain dicts.
    budget
        The most rows of the model: for values of all documents, and for removing those that are cited, alone and
        together with those that may stand in for them.
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
    """The method that suits these levels: words are far more than rows, and only a few sentences matter."""
    words = len(levels) > 1 and levels[-1] == "words"
    return "c2fa-focused" if words and until is None else "c2fa"


class Citer:
    """Explains answers to many questions; ``cite`` is one called once.

    Its inputs are questions: ``Question(documents, query, answer)``, or dicts with these fields. ``many`` explains a
    list or a JSONL file of them, in memory or into a store. ``explainer`` is the ``Explainer`` that does it: a question
    is its masker's input, and a scorer around the language model its model.

    Parameters
    ----------
    lm
        As ``cite`` takes it.
    levels
        Coarse to fine, the last being the leaves: any of ``"documents"``, ``"paragraphs"``, ``"sentences"`` and
        ``"words"``. Words are asked about only inside the sentences that are found to matter (``c2fa-focused``), or
        everywhere with ``until``.
    budget
        Rows of the model, or those of each level; the one without any document is among them. Or money, as ``"$0.50"``.
    prompt
        A text with ``{context}`` and ``{query}``, or a function of both; it is put into the model's own chat template
        where the model has one, with ``system`` before it.
    document
        What each document looks like in the prompt, such as ``"[{id}] {title}\\n{text}"``: ``{text}`` is what it says,
        and the rest, from its id and metadata, stays while a sentence of it does. None is the text alone.
    separator
        What stands between two documents.
    similarity
        For a model that cannot score a given answer: each row is answered anew, and what is explained is how similar
        that answer is to the one to explain, from 0 to 1. ``"words"``, or a function of both answers. A statement's
        number is that of the most similar sentence of the new answer.
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
        if not isinstance(lm, Lazy):  # whose model is not to be made yet
            self.scorer.check()
        # Refused now where no question has room in it.
        masks_of(rows_and_money(budget)[0], 1, len(masker.levels), beside=1)
        options = {"target": 0, "outputs": "all", **options}
        self.explainer = Explainer(self.scorer, masker, budget=budget, **options)

    def __call__(self, x: Any, *, key: str | None = None) -> Explanation:
        """Explain the answer to one question."""
        question = self.scorer.asking.of(Question.of(x))
        if question.answer is not None:
            self.scorer.answered(question)  # what is wrong with the answer is said before anything is asked
        return self.explainer(question, key=key)

    def live(self, x: Any, *, key: str | None = None) -> Any:
        """The answer to one question on a page in the notebook, where any words of it can be explained."""
        return self.explainer.live(x, key=key)

    def many(self, inputs: Any, store: str | PathLike[str] | None = None, **options: Any) -> Any:
        """Explain the answer to every question of a list, of a JSONL or Parquet file, …, as ``Explainer.many`` does.

        A store keeps each question with its answer and statements.
        """
        return self.explainer.many(inputs, store, **_of_many(store, options))

    @property
    def verifier(self) -> Verifier:
        """The explainer that also looks at citations."""
        return Verifier.of(self.explainer)

    def verify(self, x: Any, answer: Any = None, citations: Citations = None) -> Verification:
        """Say of each citation of an answer whether the source was used; see ``c2fa.verify``.

        The answer and the citations may also be fields of the question.
        """
        verifier, question = self.verifier, self.scorer.asking.of(Question.with_claims(x, answer, citations))
        self.scorer.answered(question)  # what is wrong with the answer is said before anything is asked
        return Verification(verifier(question))

    def verify_many(self, inputs: Any, store: str | PathLike[str] | None = None, **options: Any) -> Verifications:
        """The same for many questions with their answers, with scores over all of them.

        Inputs, store and options are as ``many`` takes them: a question that is bad, or makes the model fail, is set
        aside, and the same call continues a store that was left.
        """
        return Verifications(self.verifier.many(inputs, store, **_of_many(store, options)))


def _of_many(store: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Options of ``many`` for questions: without its statements an explanation of an answer says little."""
    views = {} if store is None else {"views": "all"}
    return {"column": fields_of, **views, **options}

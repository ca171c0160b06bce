"""Which source made a language model say this, and whether a citation was used."""

from c2fa.citing.citer import PROMPT, Citer, LanguageModel, Question, QuestionMasker, Rows, cite, method_for

__all__ = ["PROMPT", "Citer", "LanguageModel", "Question", "QuestionMasker", "Rows", "cite", "method_for"]

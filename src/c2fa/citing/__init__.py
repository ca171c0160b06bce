"""Which source made a language model say this, and whether a citation was used."""

from c2fa.citing.citer import Citer, cite, method_for
from c2fa.citing.questions import PROMPT, Question, QuestionMasker, Rows
from c2fa.citing.scoring import LanguageModel

__all__ = ["PROMPT", "Citer", "LanguageModel", "Question", "QuestionMasker", "Rows", "cite", "method_for"]

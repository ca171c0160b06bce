"""Which source made a language model say this, and whether a citation was used."""

from c2fa.citing.citer import Citer, LanguageModel, cite, method_for, verify
from c2fa.citing.documents import Document, documents_of
from c2fa.citing.questions import PROMPT, Question, QuestionMasker, Rows
from c2fa.citing.verdicts import Verification, Verifications
from c2fa.views import Citation

__all__ = [
    "PROMPT",
    "Citation",
    "Citer",
    "Document",
    "LanguageModel",
    "Question",
    "QuestionMasker",
    "Rows",
    "Verification",
    "Verifications",
    "cite",
    "documents_of",
    "method_for",
    "verify",
]

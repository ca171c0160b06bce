"""Sentences on a borrowed machine that lacks sentencex: they end at full stops, which is as fast."""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec
from types import ModuleType


def ensure() -> str:
    """Stand in for sentencex where it is missing, and return a sentence that says so, else an empty one."""
    if find_spec("sentencex") is not None:
        return ""
    stand_in = ModuleType("sentencex")
    vars(stand_in)["get_sentence_boundaries"] = lambda language, text: [
        {"start_index": found.start()} for found in re.finditer(r"[^\s.][^.]*\.?", text)
    ]
    sys.modules["sentencex"] = stand_in
    return "sentencex is not installed: sentences end at full stops here"

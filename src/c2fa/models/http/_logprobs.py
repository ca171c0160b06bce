"""Class log-probabilities from the first answer token of a language model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

_UNLIKELY = -9000.0  # servers write -9999 for "too unlikely to say"
_LEAST_MASS = 1e-9


def first_token(choice: Mapping[str, Any]) -> dict[str, float]:
    """Return the top tokens of a choice's first answer token with their log-probabilities.

    Chat answers list them as ``content[0].top_logprobs``, completions as ``top_logprobs[0]``.
    """
    logprobs = choice.get("logprobs") or {}
    if logprobs.get("content"):
        pairs = [(t["token"], t["logprob"]) for t in logprobs["content"][0].get("top_logprobs") or []]
    elif logprobs.get("top_logprobs"):
        pairs = list((logprobs["top_logprobs"][0] or {}).items())
    else:
        pairs = []
    if not pairs:
        raise ValueError(
            "the server returned no top log-probabilities of the first answer token; it must support "
            "logprobs (check the model, top_logprobs and kind='chat' or 'completions')"
        )
    tokens: dict[str, float] = {}
    for token, value in pairs:  # two tokens may read the same
        tokens[token] = float(np.logaddexp(tokens.get(token, -math.inf), float(value)))
    return tokens


def class_logprobs(
    tokens: Mapping[str, float], answers: Sequence[str]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_], set[str]]:
    """Return each answer's log-probability, whether it is only a bound, and the tokens that fit several.

    A token counts for an answer that begins with it, blanks and case aside, if no other answer does. An
    answer with no token among the returned ones is censored, not impossible: it is at most as likely as the
    least likely token returned, and as all that was not returned together.

    >>> values, censored, _ = class_logprobs({" yes": math.log(0.6), "the": math.log(0.3)}, ["yes", "no"])
    >>> np.exp(values).round(3).tolist(), censored.tolist()
    ([0.6, 0.1], [False, True])
    """
    real = {t: v for t, v in tokens.items() if v > _UNLIKELY}
    rest = max(1.0 - sum(math.exp(v) for v in real.values()), _LEAST_MASS)
    bound = min([math.log(rest), *real.values()])
    values, shared = np.full(len(answers), -np.inf), set()
    folded = [answer.strip().casefold() for answer in answers]
    for token, value in real.items():
        piece = token.strip().casefold()
        fits = [i for i, answer in enumerate(folded) if piece and answer.startswith(piece)]
        if len(fits) == 1:
            values[fits[0]] = np.logaddexp(values[fits[0]], value)
        elif fits:
            shared.add(token)
    censored = np.isinf(values)
    return np.where(censored, bound, values), censored, shared

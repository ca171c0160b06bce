"""The scale that attributions add up on: the model's own outputs, their log-odds or their logarithms."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from c2fa._system import did_you_mean
from c2fa.asking.querying import Conversation, relayed
from c2fa.asking.replies import QueryError
from c2fa.structure import FloatArray

T = TypeVar("T")

_MARGIN = 1e-7  # single precision can still tell it from 0 and 1; log-odds are then ±16.1 at most
_SLACK = 1e-6  # by how much rounding may carry an output beyond the range


class RangeError(QueryError):
    """The model returned an output outside a link's range."""


@dataclass(frozen=True)
class Link:
    """A transformation of every output before the fit, and the unit of the result.

    Attributes
    ----------
    name
        ``"identity"``, ``"logit"``, ``"log"`` or ``"logit-of-log"``, which is ``"logit"`` for log-probabilities.
    unit
        The unit of the attributions; empty for the model's own.
    low, high
        The range of the outputs. ``0`` and ``1`` have infinite log-odds, and 0 no logarithm, so outputs are clipped
        1e-7 before the ends. If the upper end is open, that is 1e-7 of the largest output for the input itself, because
        outputs may be rates of 1e-9 or prices of 1e6.
    takes
        The range in words.
    """

    name: str
    unit: str
    low: float
    high: float
    forward: Callable[[FloatArray], FloatArray]
    takes: str

    def at(self, prediction: FloatArray) -> Scale:
        """The scale for an input with this prediction, (outputs,)."""
        size = 1.0 if np.isfinite(self.high) else max(float(np.max(prediction)), 0.0)
        scale = Scale(self, size)
        scale.check(prediction)
        if self.unit and not size:
            raise QueryError(
                f"the model returned 0 for the input itself, which has no logarithm to explain; leave out "
                f"link={self.name!r}"
            )
        return scale


@dataclass(frozen=True)
class Scale:
    """A link for one input; calling it transforms outputs, element by element."""

    link: Link
    size: float

    @property
    def ends(self) -> tuple[float, float]:
        """The limits to which outputs are clipped."""
        margin = max(_MARGIN * self.size, float(np.finfo(np.float64).tiny))
        return self.link.low + margin, self.link.high - margin

    def __call__(self, outputs: FloatArray) -> FloatArray:
        """The transformed outputs; NaN stays NaN."""
        self.check(outputs)
        return self.link.forward(np.clip(outputs, *self.ends)) if self.link.unit else outputs

    def check(self, outputs: FloatArray) -> None:
        """Refuse outputs that are outside the link's range by more than rounding."""
        if not self.link.unit:
            return
        low, high = self.link.low, self.link.high
        bad = outputs[(outputs < low - _SLACK * self.size) | (outputs > high + _SLACK * self.size)]
        if bad.size:
            raise RangeError(
                f"the model returned {bad.flat[0]:.6g}, and link={self.link.name!r} takes {self.link.takes}; give a "
                "model that returns them, or leave the link out"
            )

    def notes(self, outputs: FloatArray) -> tuple[str, ...]:
        """A sentence that says how many rows of one output were clipped; nothing if none was."""
        if not self.link.unit:
            return ()
        low, high = self.ends
        clipped = int(((outputs < low) | (outputs > high)).sum())
        if not clipped:
            return ()
        beyond = {f"below {low:.3g}": low, f"above {high:.10g}": high}
        where = " or ".join(words for words, end in beyond.items() if np.isfinite(end))
        return (
            f"{clipped} of {len(outputs)} rows answered {where}, where link={self.link.name!r} grows without bound, "
            "and were held there",
        )


def _logit_of_log(outputs: FloatArray) -> FloatArray:
    """``log p − log(1 − p)`` from ``log p``; of two forms of the second term, the one that keeps its digits."""
    likely = outputs > -np.log(2.0)
    complement = np.where(likely, np.log(-np.expm1(outputs)), np.log1p(-np.exp(outputs)))
    odds: FloatArray = outputs - complement
    return odds


def _logit(outputs: FloatArray) -> FloatArray:
    odds: FloatArray = np.log(outputs) - np.log1p(-outputs)
    return odds


LINKS: Mapping[str, Link] = {
    link.name: link
    for link in (
        Link("identity", "", -np.inf, np.inf, np.asarray, "any output"),
        Link("logit", "log-odds", 0.0, 1.0, _logit, "outputs from 0 to 1"),
        Link("log", "log", 0.0, np.inf, np.log, "outputs of at least 0"),
        Link("logit-of-log", "log-odds", -np.inf, 0.0, _logit_of_log, "log-probabilities, which are at most 0"),
    )
}


def ensure(link: Any, *, log_probabilities: bool = False) -> Link:
    """Return a link by its name, or the link itself; for log-probabilities ``"logit"`` is ``"logit-of-log"``.

    >>> ensure("logit").unit, ensure("logit", log_probabilities=True).name
    ('log-odds', 'logit-of-log')
    """
    name = link.name if isinstance(link, Link) else link
    if log_probabilities and name == "logit":
        name = "logit-of-log"
    if not isinstance(name, str) or name not in LINKS:
        raise ValueError(f"link must be one of {', '.join(map(repr, LINKS))}; got {link!r}{did_you_mean(link, LINKS)}")
    return LINKS[name]


def on_scale(conversation: Conversation[T], scale: Scale) -> Conversation[T]:
    """Transform every answer that a conversation receives; its driver keeps the model's own outputs."""
    if not isinstance(conversation, Generator):
        raise TypeError(
            f"a method must yield questions, and give an Attribution in the end; it gave {conversation!r:.100}"
        )
    return relayed(conversation, reply=lambda answer: replace(answer, outputs=scale(answer.outputs)))

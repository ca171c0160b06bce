"""Which way a metric points."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def higher_is_better(better: bool | None) -> Callable[[F], F]:
    """Mark a metric with whether more of it is better; None where it is best at a value in between.

    >>> higher_is_better(False)(lambda: 0).higher_is_better
    False
    """

    def mark(metric: F) -> F:
        metric.higher_is_better = better  # type: ignore[attr-defined]  # functions take attributes; types do not
        return metric

    return mark

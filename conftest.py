"""What the examples in docstrings need. A module that cannot be imported is skipped by pytest itself."""

from __future__ import annotations

import pytest

import c2fa

NEEDS = {"c2fa.evaluation.grid.evaluate": "pandas", "c2fa.tuning.tune": "pandas"}


def pytest_report_header() -> str:
    return f"c2fa: {c2fa.__path__[0]}"


def pytest_runtest_setup(item: pytest.Item) -> None:
    if isinstance(item, pytest.DoctestItem) and item.name in NEEDS:
        pytest.importorskip(NEEDS[item.name])

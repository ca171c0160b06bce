"""What the tests share."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=50)
settings.load_profile("default")

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture
def shared() -> Path:
    """The folder of real data and weights that lies beside a developer's checkout, not in a user's clone."""
    if not SHARED.is_dir():
        pytest.skip(f"the real data are not at {SHARED}")
    return SHARED

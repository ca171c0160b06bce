"""What the tests share."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from browsing import Browser, Open

settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=50)
settings.load_profile("default")

# A shell starts jobs in the background without SIGINT, which tests of Ctrl-C and the processes that they start need.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared" / "data"


@pytest.fixture
def shared() -> Path:
    """The folder of real data and weights that lies beside a developer's checkout, not in a user's clone."""
    if not SHARED.is_dir():
        pytest.skip(f"the real data are not at {SHARED}")
    return SHARED


@pytest.fixture
def in_half_precision() -> Callable[[str], None]:
    """Runs code in a process of its own: some processors name instructions for half precision and forbid them."""
    pytest.importorskip("torch")

    def run(code: str) -> None:
        rooms = [room for room in (ROOT / "tests").iterdir() if room.is_dir()]
        paths = os.pathsep.join([*map(str, (ROOT, ROOT / "tests", *rooms)), os.environ.get("PYTHONPATH", "")])
        ended = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": paths},
        )
        if ended.returncode == -signal.SIGILL:
            pytest.skip("this processor cannot compute in half precision")
        assert ended.returncode == 0, ended.stderr

    return run


@pytest.fixture(scope="module")
def driver() -> Iterator[Browser]:
    """A real browser, for the tests of one module."""
    from browsing import browser

    with browser() as made:
        yield made


@pytest.fixture
def show(driver: Browser, tmp_path: Path) -> Iterator[Open]:
    """Opens pages, and fails where the browser complains of one."""
    from browsing import watched

    with watched(driver, tmp_path) as opens:
        yield opens


@pytest.fixture(scope="module")
def axe() -> str:
    """The accessibility checker, installed once into a folder that is not part of the repository."""
    folder = ROOT / ".servers" / "axe"
    found = folder / "node_modules" / "axe-core" / "axe.min.js"
    if not found.exists():
        npm = shutil.which("npm")
        if npm is None:
            pytest.skip("axe-core needs npm, which is not installed")
        folder.mkdir(parents=True, exist_ok=True)
        command = [npm, "install", "--prefix", str(folder), "--no-audit", "--no-fund", "axe-core@4"]
        subprocess.run(command, check=True, capture_output=True, timeout=180)
    return found.read_text(encoding="utf-8")

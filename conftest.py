"""What the examples in docstrings need, and a watch over half precision."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from typing import Any

import pytest

import c2fa

# A module that cannot be imported is skipped by pytest itself.
NEEDS = {
    "c2fa.evaluation.grid.evaluate": "pandas",
    "c2fa.models.local._skops.is_scikit_learns": "sklearn",
}


def pytest_report_header() -> str:
    return f"c2fa: {c2fa.__path__[0]}"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--no-half",
        action="store_true",
        help="fail tests that compute in half precision on the CPU in this process, because some processors die of it",
    )


def pytest_runtest_setup(item: pytest.Item) -> None:
    if isinstance(item, pytest.DoctestItem) and item.name in NEEDS:
        pytest.importorskip(NEEDS[item.name])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    watched = item.config.getoption("--no-half") and find_spec("torch") is not None
    with _watch() if watched else nullcontext():
        return (yield)


def _watch() -> AbstractContextManager[Any]:
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            returned = func(*args, **(kwargs or {}))
            for value in tree_leaves((args, kwargs, returned)):
                if isinstance(value, torch.Tensor) and value.device.type == "cpu":
                    assert value.dtype not in (torch.float16, torch.bfloat16), f"{func} in half precision"
            return returned

    return Watch()

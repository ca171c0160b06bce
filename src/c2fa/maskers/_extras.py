"""Imports of what the base install leaves out."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def need(module: str, extra: str) -> Any:
    """Import a module that comes with an extra, or say which command installs it.

    >>> need("a_module_nobody_has", "images")
    Traceback (most recent call last):
    ImportError: a_module_nobody_has is not installed: pip install 'c2fa[images]'
    """
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ImportError(f"{package} is not installed: pip install 'c2fa[{extra}]'") from error

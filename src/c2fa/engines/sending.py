"""What travels between processes: what makes a worker, and errors."""

from __future__ import annotations

import pickle
import sys
from importlib import import_module
from typing import Any


class WorkerError(RuntimeError):
    """No worker could be started; the message says what the first one said."""


def dumps(thing: Any, what: str = "the explainer") -> bytes:
    """Pickle what a worker needs, or say in one sentence what to give instead."""
    main = sys.modules.get("__main__")
    interactive = main is None or not hasattr(main, "__file__")
    try:
        if not interactive:  # a notebook's functions cannot be imported by a worker, though pickle takes them
            return pickle.dumps(thing)
    except Exception as error:
        problem: Exception = error
    else:
        problem = RuntimeError("it was made in an interactive session")
    try:
        by_value: bytes = import_module("cloudpickle").dumps(thing)
        return by_value
    except ImportError:
        if interactive:
            return pickle.dumps(thing)
    except Exception as error:
        problem = error
    raise TypeError(
        f"{what} cannot be sent to another process ({type(problem).__name__}: {problem}); give a function of a module "
        "that makes it, give model='...' or a constructor so that each worker loads its own, or engine='serial'"
    ) from problem


def sendable(error: Exception | None) -> Exception | None:
    """The error itself where it can be pickled, else one that says the same."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return WorkerError(f"{type(error).__name__}: {error}")
    return error

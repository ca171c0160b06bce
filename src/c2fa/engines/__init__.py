"""Engines: each makes workers where they run, maps them over tasks, and yields every task with its result or error.

``engine("processes")``, ``"ray"``, ``"dask"`` and ``"serial"`` all have the signature of ``Engine``. With a
``Serving`` they also run model processes, which the workers share.
"""

from __future__ import annotations

from importlib import import_module

from c2fa._system import did_you_mean
from c2fa.engines.base import Done, Engine, MakeWork, Work, serial
from c2fa.engines.contact import Contact, WorkerError, dumps
from c2fa.engines.journal import Journal
from c2fa.engines.load import Load, Loads
from c2fa.engines.processes import Crew, processes
from c2fa.engines.remote import RemoteModel
from c2fa.engines.serving import Serving

__all__ = [
    "Contact",
    "Crew",
    "Done",
    "Engine",
    "Journal",
    "Load",
    "Loads",
    "MakeWork",
    "RemoteModel",
    "Serving",
    "Work",
    "WorkerError",
    "dumps",
    "engine",
    "processes",
    "serial",
]


def engine(name: str | Engine) -> Engine:
    """Return an engine by its name, or the engine itself."""
    if callable(name):
        return name
    if name == "serial":
        return serial
    if name == "processes":
        return processes
    if name in ("ray", "dask"):
        other: Engine = import_module(f"c2fa.engines.{name}").engine
        return other
    near = did_you_mean(name, ("processes", "ray", "dask", "serial"))
    raise ValueError(
        f"engine must be 'processes', 'ray', 'dask' or 'serial', or an engine of your own; got {name!r}{near}"
    )

"""A dataset of explanations: inputs in, a store out, on whichever engine, continued where it was left; or in memory."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import Any, Literal, TypeAlias

from c2fa import engines
from c2fa._system import at_least, check_word, seconds
from c2fa.asking.masking import Masker
from c2fa.asking.model import Model, Shell
from c2fa.batch.records import Precision, Views, arrow
from c2fa.batch.run import Lesson, Run
from c2fa.batch.sources import Pick, source
from c2fa.batch.store import Store, settings_of
from c2fa.batch.worker import MakeWorker
from c2fa.engines import Contact, Crew, Engine, Serving
from c2fa.explainer import Explainer
from c2fa.models.loading import is_language_model, load, taken
from c2fa.showing.progress import Bar

MakeModel: TypeAlias = str | Callable[[], Any]


@dataclass(frozen=True, eq=False)
class Recipe:
    """What makes an explainer where it is needed: a model that is still to be loaded, a masker and options.

    Parameters
    ----------
    model
        A line of text as the command line has it (``"demo"``, ``"onnx:model.onnx"``), or a function without
        arguments that returns the model, such as a class or ``functools.partial(load, path)``.
    masker
        The masker.
    options
        The explainer's options.
    explainer
        One that is made already, in place of masker and options; its own model is not used.

    Examples
    --------
    >>> import c2fa
    >>> Recipe("python:math:fsum", c2fa.maskers.Text(), {"budget": 50})().budget
    50
    """

    model: MakeModel | _Held
    masker: Masker | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    explainer: Explainer | None = None

    @classmethod
    def of(cls, explainer: Explainer, model: MakeModel | None = None) -> Recipe:
        """An explainer that travels, with its model or with what makes one; the explainer itself stays as it is."""
        own = explainer.model.model if isinstance(explainer.model, Shell) else explainer.model
        return cls(_Held(own) if model is None else model, explainer=explainer.with_model(_absent))

    def __call__(self, model: Any = None) -> Explainer:
        model = _made(self.model) if model is None else model
        if self.explainer is not None:
            return self.explainer.with_model(model)
        return Explainer(model, self.masker, **self.options)

    def divided(self) -> tuple[Callable[[], Model], Recipe]:
        """What makes the model, for its own process, and the recipe without it, which workers call with one."""
        return functools.partial(_made, self.model), replace(self, model=_absent)

    def bare(self) -> Explainer:
        """An explainer that cannot explain, to see its settings before a model is loaded."""
        if self.explainer is not None:
            return self.explainer
        return Explainer(_absent, self.masker, **{**self.options, "ledger": None})


@dataclass(frozen=True, eq=False)
class _Held:
    """A model that is made already, in the place of what makes one."""

    model: Model


def _absent(batch: Any = None) -> Any:
    raise AssertionError("the model stayed behind; the worker makes its own")


_absent.cost = 0.0  # type: ignore[attr-defined]  # whether the model counts its cost is seen where it is made


def _made(model: MakeModel | _Held) -> Model:
    """Load a model from a line of text, or call what makes it."""
    if isinstance(model, str):
        return load(model)
    if isinstance(model, _Held):
        return model.model
    made = model()
    if not callable(made) and not is_language_model(made):
        raise TypeError(
            f"model must be a function without arguments that returns the model; {model!r} returned "
            f"{type(made).__name__}"
        )
    return taken(made)


def many(
    explainer: Explainer | Callable[[], Explainer],
    inputs: Any,
    store: str | PathLike[str],
    *,
    engine: str | Engine = "processes",
    workers: int | None = None,
    models: int | Literal["here"] = 0,
    gpus: int = 0,
    model: MakeModel | None = None,
    column: Pick = None,
    key: Pick = None,
    shard_size: int | None = None,
    batch_size: int | None = None,
    tries: int = 3,
    timeout: float | None = None,
    patience: float = 60.0,
    in_flight: int = 1,
    precision: Precision = "float32",
    views: Views = "auto",
    retry_failed: bool = False,
    learn: int | Sequence[int] | None = None,
    budget_after: int | Sequence[int] | str | None = None,
    progress: bool | None = None,
) -> Store:
    """Explain every input of a dataset into a store; what the store has already is not done again.

    The ``run`` of the store that is returned says what this call did.

    Parameters
    ----------
    explainer
        An explainer, which travels to the workers; or what makes one (a function, a ``Recipe``), so that each worker
        loads its own model.
    inputs
        A list or any iterable, a pandas, polars or Arrow table, or a file or folder of Parquet or JSONL. It is read
        as a stream, and in the same order in every run.
    store
        The folder of the results.
    engine
        ``"processes"``, ``"ray"``, ``"dask"``, ``"serial"``, or an engine of your own.
    workers
        How many. By default as many processes as pay, at most one for each core (``store.run.workers`` tells); Ray and
        Dask start one for each core. Where processes of their own have the model, a core is left to each.
    models
        How many processes have the model and answer the workers (``store.run.loads`` tells how busy they were); 0, the
        default, gives each worker its own. ``"here"``: this process has it, as for one that is loaded already. It needs
        an explainer or a ``Recipe``, whose model is made apart.
    gpus
        The same, with a GPU for each of these processes and none for the workers.
    model
        What makes the model where it is needed, instead of the explainer's own: a spec such as ``"demo"``, or a
        constructor.
    column, key
        For tables: the column that is the input and the one that names it, or functions of a row. No two inputs may
        have one name: the ledger keeps answers under it, and masks depend on it where an input cannot be hashed.
    shard_size
        Inputs in one file. A shard is what may be lost when a machine dies; by default the store's own, else chosen.
    batch_size
        Rows sent to the model at a time, from as many inputs as it takes; by default the explainer's.
    tries
        How often an input that makes the model fail is tried alone, and how often it may kill or stall a worker,
        before it gets a row with its error.
    timeout
        Seconds that one call of the model may take (ten times that for the first). The process that has the model is
        ended then.
    patience
        Seconds without any answer before the run ends with ``ModelDownError``. No input is set aside for a model that
        is down, or that has not answered once.
    in_flight
        Batches that each worker sends at the same time, from threads: for endpoints, where a worker mostly waits.
    precision
        ``"float32"``, or ``"float64"`` where the stored numbers must be exact.
    views
        Whether what a report draws is kept: ``"auto"`` up to 16 KiB for each input, ``"all"`` or ``"none"``.
    retry_failed
        Whether to ask again about the inputs that an earlier run set aside.
    learn
        How many inputs to learn from: they are explained first, with the explainer's own budget, and what they teach
        (``c2fa.Prior``, ``prior.json`` in the store) is the prior of all others. Several such as ``(50, 200, 1000)`` go
        on learning: after so many inputs in all the prior is learned anew (``prior-50.json``, …) for those behind them.
    budget_after
        The budget of those others; the same by default.
    progress
        Whether work of over a second shows a bar; None shows one in notebooks and terminals.

    Notes
    -----
    Ctrl-C and SIGTERM let the running shards finish and be written, and then end the run (with ``KeyboardInterrupt``
    or exit status 143); a second one ends it at once. The same call continues.
    """
    arrow()
    here = models == "here"
    models = 1 if models == "here" else at_least("models", models, 0)
    at_least("gpus", gpus, 0)
    if models and gpus and models != gpus:
        raise ValueError(f"gpus={gpus} are {gpus} processes with a GPU each; leave out models={models}")
    served = models or gpus  # processes that have the model
    on = engines.engine(engine)
    beside = 1 + served if served else 0  # the driver and those processes
    cores = max((os.cpu_count() or 1) - beside, 1)
    most = at_least("workers", cores if workers is None else workers, 1)
    run = Run(
        Store(store),
        source(inputs, column, key),
        retry_failed=retry_failed,
        tries=at_least("tries", tries, 1),
        crew=Crew(1 if on is engines.serial else most, size=lambda task: len(task.items)),
    )
    if here and (gpus or on is not engines.processes):
        raise ValueError(
            "models='here' is for engine='processes', and a model that has the GPU it wants: leave out gpus="
        )
    check_word("precision", precision, ("float32", "float64"))
    check_word("views", views, ("auto", "all", "none"))
    patience, timeout = seconds("patience", patience), None if timeout is None else seconds("timeout", timeout)
    if timeout is not None and (engine == "serial" or here):
        raise ValueError(
            f"timeout={timeout!r} needs a process with the model that can be ended: engine={engine!r}, "
            f"models={'here' if here else models!r}"
        )
    make: Any = _portable(explainer, model, travels=served > 0 or on is not engines.serial)
    lesson = Lesson.of(learn, budget_after)
    size = lesson.shard_size(run.shard_size(shard_size), shard_size)
    if on is engines.processes:
        run.crew.left = run.left if workers is None else None
        on = functools.partial(engines.processes, crew=run.crew)
    else:
        run.crew.used = run.crew.most
    bound = {"shard_size": size, "precision": precision, **lesson.settings}
    rows, settings = batch_size, None
    if isinstance(make, Recipe):
        bare = make.bare()
        # A complete store starts no worker, so nobody else would notice that it was made with other settings.
        if isinstance(explainer, Explainer):
            settings = settings_of(explainer, **bound)
            run.store.check(settings)
        else:
            unnamed = () if bare.model_name else ("model",)  # the name of a model that is not loaded yet
            run.store.check(settings_of(bare, **bound), except_for=unnamed)
        if lesson.stages:
            bare.check_prior(None)
        if rows is None:
            rows = make.options.get("batch_size") if make.explainer is None else bare.batch_size
    make_model = None
    if served:
        if not isinstance(make, Recipe):
            raise TypeError(
                "models= and gpus= need a model that can be made apart from its explainer: give an explainer, or "
                "c2fa.batch.Recipe(model, masker, options) in place of a function that makes both"
            )
        make_model, make = make.divided()
    worker = MakeWorker(
        make=make,
        store=os.fspath(store),
        shard_size=size,
        run=run.id,
        batch_size=None if batch_size is None else at_least("batch_size", batch_size, 1),
        tries=tries,
        timeout=None if served else timeout,  # whoever has the model keeps the time
        patience=patience,
        in_flight=at_least("in_flight", in_flight, 1),
        precision=precision,
        views=views,
        settings=settings,
        bound=bound,
        lesson=lesson,
    )

    def go(shards: int | None = None) -> None:
        """Explain the first so many shards, or all."""
        serving = None
        if make_model is not None:
            contact = Contact(os.path.abspath(store), patience)
            serving = Serving(
                make_model, contact, models=served, here=here, gpu=gpus > 0, batch_size=rows, timeout=timeout
            )
        run.go(on, worker, serving, bar, shards)

    with contextlib.closing(Bar(progress, run.source.total, "input", "explaining")) as bar:
        for stage in lesson.stages:
            go(stage // size)
            if run.held is None:  # the inputs to learn from are all that there are
                break
            worker = replace(worker, prior=lesson.learned(run.store.path, stage))
        go()
    done = Store(store)
    done.run = run.report
    return done


def _portable(
    explainer: Explainer | Callable[[], Explainer], model: MakeModel | None, travels: bool
) -> Callable[..., Explainer]:
    """What makes the explainer in a worker, which ``travels`` there unless the worker is this very process."""
    if isinstance(explainer, Explainer):
        if travels and explainer.ledger is not None and explainer.ledger.path == ":memory:":
            raise ValueError("a ledger in memory cannot be shared by workers; give a file, or engine='serial'")
        return Recipe.of(explainer, model)
    if not callable(explainer):
        raise TypeError(
            f"explainer must be a c2fa.Explainer or a function that makes one, not {type(explainer).__name__}"
        )
    if model is not None:
        raise ValueError("model= goes with an explainer; a function that makes one makes its model too")
    return explainer if isinstance(explainer, Recipe) else functools.partial(_checked, explainer)


def _checked(make: Callable[[], Any]) -> Explainer:
    explainer = make()
    if not isinstance(explainer, Explainer):
        raise TypeError(f"the factory must return a c2fa.Explainer; it returned {type(explainer).__name__}")
    return explainer

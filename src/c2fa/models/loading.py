"""A model from one line of text, such as an option of the command line, or from an object of another library."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, cast

from c2fa.asking.model import Model, ModelProxy, launcher
from c2fa.models import adapter
from c2fa.models.http._settings import Settings, shown
from c2fa.models.local.sklearn import load_skops

# For each kind the name of its adapter, and the form of the text behind the colon.
_ADAPTERS = {
    "demo": ("DemoSentiment", ""),
    "python": ("", "package.module:function"),
    "sklearn": ("Sklearn", "file.skops"),
    "hf": ("HuggingFace", "folder"),
    "onnx": ("Onnx", "file"),
    "oip": ("OpenInference", "http://host:port#model"),
    "mlflow": ("MLflow", "http://host:port"),
    "openai": ("OpenAI", "http://host:port/v1#model"),
    "hf-lm": ("CausalLM", "folder"),
    "llama": ("LlamaServer", "http://host:port"),
    "vllm": ("VLLM", "http://host:port#model"),
}
_LANGUAGE_MODELS = ("hf", "llama", "vllm", "openai", "python")


def _forms(kinds: Iterable[str]) -> str:
    *forms, last = (f"{kind}:{_ADAPTERS[kind][1]}".removesuffix(":") for kind in kinds)
    return f"{', '.join(forms)} or {last}"


def load(spec: str, *, allow_pickle: bool = False, **options: Any) -> Model:
    """Return the model that a line of text names.

    Parameters
    ----------
    spec
        One of ``demo``, ``python:package.module:function``, ``sklearn:file.skops``, ``hf:folder``,
        ``onnx:file``, ``oip:http://host:port#model``, ``mlflow:http://host:port``,
        ``openai:http://host:port/v1#model`` (with ``classes``, or for ``c2fa.cite``), and for ``c2fa.cite`` alone
        ``hf-lm:folder`` (also ``hf-lm:file.gguf``), ``llama:http://host:port``, ``vllm:http://host:port#model``.
    allow_pickle
        Whether ``sklearn:`` may read a pickle or joblib file; such a file can run any code.
    **options
        Handed to the adapter, such as ``classes=["good", "bad"]`` for ``openai:``. ``sklearn:`` also takes
        ``trusted="mine.Scaler"``: types in a .skops file, besides scikit-learn's own, whose code may run; several are
        a list, or have commas between them.

    Examples
    --------
    >>> load("python:math:fsum")([0.5, 0.5])
    1.0
    >>> load("tensorflow:model.pb")
    Traceback (most recent call last):
        ...
    ValueError: 'tensorflow:model.pb' names no model; write demo, python:package.module:function, ...
    """
    if not isinstance(spec, str):
        raise TypeError(f"a model's spec must be a text such as 'demo' or 'onnx:file'; got {spec!r}")
    kind, _, rest = spec.partition(":")
    if kind not in _ADAPTERS or (spec != "demo" and (kind == "demo" or not rest)):
        raise ValueError(f"{shown(spec)!r} names no model; write {_forms(_ADAPTERS)}")
    try:
        if kind == "demo":
            return adapter("DemoSentiment")(**options)
        if kind == "python":
            return _python(rest, **options)
        if kind == "sklearn":
            return adapter("Sklearn")(_estimator(rest, allow_pickle, options.pop("trusted", ())), **options)
        name, form = _ADAPTERS[kind]
        return adapter(name)(*(_named(spec, rest) if "#" in form else (rest,)), **options)
    except TypeError as error:
        if "argument" not in str(error):
            raise
        # Python's words about a wrong argument, without the names of our functions.
        wrong = str(error).rpartition("()")[2].strip()
        raise ValueError(f"cannot make a model of {shown(spec)!r}: {wrong}") from error


def options_of(spec: str) -> list[str]:
    """Return the names of the options that ``load`` takes for a model.

    >>> options_of("demo"), options_of("python:math:fsum")
    (['weights'], [])
    """
    kind = spec.partition(":")[0]
    if kind == "python":
        return []
    if kind not in _ADAPTERS:
        raise ValueError(f"{shown(spec)!r} names no model; write {_forms(_ADAPTERS)}")
    parameters = inspect.signature(adapter(_ADAPTERS[kind][0])).parameters.values()
    named = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY or p.default is not p.empty]
    if any(p.kind is p.VAR_KEYWORD for p in parameters):  # a server's adapter hands the others to its settings
        named += Settings.__dataclass_fields__
    return [*named, "trusted"] if kind == "sklearn" else named


def language_model_spec(spec: str) -> str:
    """Return the line of text that ``load`` takes for a language model, where ``hf:`` means one.

    >>> language_model_spec("hf:folder"), language_model_spec("llama:http://localhost:8080")
    ('hf-lm:folder', 'llama:http://localhost:8080')
    >>> language_model_spec("onnx:file")
    Traceback (most recent call last):
        ...
    ValueError: 'onnx:file' names no language model; write hf:folder, llama:http://host:port, ...
    """
    kind, _, rest = spec.partition(":")
    if kind not in (*_LANGUAGE_MODELS, "hf-lm") or not rest:
        raise ValueError(f"{shown(spec)!r} names no language model; write {_forms(_LANGUAGE_MODELS)}")
    return f"hf-lm:{rest}" if kind == "hf" else spec  # a folder may hold a classifier too


def is_language_model(model: Any) -> bool:
    """Whether a model can be given to ``c2fa.cite``: it writes answers, or scores given ones."""
    return _has(model, "generate") or _has(model, "pieces", "score")


def taken(model: Any) -> Model:
    """Return a language model as it is, and ``wrap`` any other."""
    return cast(Model, model) if is_language_model(model) and not callable(model) else wrap(model)


def _has(model: Any, *names: str) -> bool:
    return all(hasattr(model, name) for name in names)


def wrap(model: Any) -> Model:
    """Return a callable for an estimator or its method, a module, a pipeline or a session.

    Any other callable is returned as it is.

    >>> wrap(len) is len
    True
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(model, torch.nn.Module):
        return adapter("Torch")(model)
    if _has(model, "tokenizer", "model", "preprocess"):
        return adapter("HuggingFace")(model)
    if _has(model, "get_inputs", "get_outputs", "run"):
        return adapter("Onnx")(model)
    methods = ("predict_proba", "decision_function", "predict")
    if inspect.ismethod(model) and model.__name__ in methods and _has(model.__self__, "get_params"):
        return adapter("Sklearn")(model.__self__, model.__name__)  # with the names of columns and classes
    if callable(model):
        return cast(Model, model)
    if any(_has(model, method) for method in methods):
        return adapter("Sklearn")(model)
    remedy = "wrap it in a function from a batch to one row of numbers per input"
    if isinstance(model, str):
        remedy = f"where {model!r} names one, give c2fa.models.load({model!r})"
    raise TypeError(f"a model must be callable or have predict_proba, not {type(model).__name__}; {remedy}")


def _python(path: str) -> Model:
    module, _, attribute = path.partition(":")
    if not module or not attribute:
        raise ValueError(f"'python:{path}' must read python:package.module:function")
    with _here():
        try:
            value: Any = importlib.import_module(module)
        except ModuleNotFoundError as error:
            raise ValueError(
                f"cannot import {module!r} of 'python:{path}': {error}; run from the folder that holds it"
            ) from error
    try:
        return taken(attrgetter(attribute)(value))
    except AttributeError:
        raise ValueError(f"{module!r} has no {attribute!r}; 'python:{path}' must name a function of it") from None


@contextlib.contextmanager
def _here() -> Iterator[None]:
    """Import from the current folder too, because the user means a script there."""
    here = str(Path.cwd())
    added = here not in sys.path
    if added:
        sys.path.insert(0, here)
    try:
        yield
    finally:
        if added:
            sys.path.remove(here)


def _named(spec: str, url: str) -> tuple[str, str]:
    """Split an address from the model's name behind '#', or behind /v2/models/ as the protocol writes it."""
    address, _, name = url.partition("#")
    if not name and "/v2/models/" in address:
        address, _, name = address.partition("/v2/models/")
    if not address or not name:
        raise ValueError(f"{shown(spec)!r} names no model on the server; add it behind a '#': {shown(spec)}#model")
    return address, name


def _estimator(path: str, allow_pickle: bool, trusted: str | Sequence[str] = ()) -> Any:
    if not Path(path).is_file():
        raise ValueError(f"there is no file {path!r}; sklearn: takes a file written by skops.io.dump")
    if path.endswith(".skops"):
        if not trusted:
            return load_skops(path)
        names = trusted.split(",") if isinstance(trusted, str) else trusted
        with _here():  # a trusted type may be in a script there
            return load_skops(path, [name.strip() for name in names])
    if not allow_pickle:
        raise ValueError(
            f"{path!r} is not a .skops file, and a pickle can run any code: write it with skops.io.dump, or allow "
            "pickles (allow_pickle=True) if you made the file yourself"
        )
    try:
        joblib = importlib.import_module("joblib")
    except ImportError as error:
        raise ImportError("reading joblib files needs scikit-learn: pip install 'c2fa[tabular]'") from error
    return joblib.load(path)


class Lazy(ModelProxy):
    """A model that is made when it is first used, and travels to other processes as its constructor.

    Workers that share one model do not load it, nor does the process that starts them.

    Parameters
    ----------
    make
        A function without arguments that returns the model, such as ``functools.partial(load, path)``, or a line of
        text as ``c2fa.models.load`` takes it.

    Examples
    --------
    >>> model = Lazy("demo")     # nothing is loaded yet
    >>> model(["What a wonderful day."]).shape
    (1, 2)
    """

    def __init__(self, make: str | Callable[[], Any]) -> None:
        self.make = make
        self._made: Model | None = None
        self._making = threading.Lock()

    @property
    def model(self) -> Model:
        with self._making:
            if self._made is None:
                self._made = load(self.make) if isinstance(self.make, str) else taken(self.make())
            return self._made

    @property
    def launch(self) -> Any:
        return launcher(self.model)

    def __call__(self, batch: Any) -> Any:
        return self.model(batch)

    def __repr__(self) -> str:
        return f"Lazy({self.make!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.make,)


def is_made(model: Any) -> bool:
    """Whether a model is there, or still to be made where it is first used."""
    while isinstance(model, ModelProxy) and not isinstance(model, Lazy):
        model = model.model
    return not isinstance(model, Lazy) or model._made is not None

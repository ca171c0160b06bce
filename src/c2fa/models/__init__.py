"""Callables for the models that people have; each is imported when it is first used.

A model is any callable from a batch (a list of texts, an array, a frame, a tensor) to one row of numbers per
input. A plain function needs nothing from here.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from c2fa.asking.model import Model
    from c2fa.models.http.endpoint import EndpointError as EndpointError
    from c2fa.models.http.inference import MLflow as MLflow
    from c2fa.models.http.inference import OpenInference as OpenInference
    from c2fa.models.lm.causal import CausalLM as CausalLM
    from c2fa.models.lm.openai import CensoredWarning as CensoredWarning
    from c2fa.models.lm.openai import OpenAI as OpenAI
    from c2fa.models.lm.servers import VLLM as VLLM
    from c2fa.models.lm.servers import LlamaServer as LlamaServer
    from c2fa.models.loading import Lazy as Lazy
    from c2fa.models.loading import load as load
    from c2fa.models.loading import wrap as wrap
    from c2fa.models.local.demo import DemoSentiment as DemoSentiment
    from c2fa.models.local.huggingface import HuggingFace as HuggingFace
    from c2fa.models.local.onnx import Onnx as Onnx
    from c2fa.models.local.sklearn import Sklearn as Sklearn
    from c2fa.models.local.torch import Torch as Torch

# A module, the package that it imports and the extra that brings it, and the module's public names.
_MODULES = {
    ("lm.causal", "torch", "text"): ("CausalLM",),
    ("lm.openai", "httpx2", "http"): ("CensoredWarning", "OpenAI"),
    ("local.demo", "numpy", ""): ("DemoSentiment",),
    ("http.endpoint", "httpx2", "http"): ("EndpointError",),
    ("local.huggingface", "torch", "text"): ("HuggingFace",),
    ("loading", "numpy", ""): ("Lazy", "load", "wrap"),
    ("lm.servers", "httpx2", "http"): ("LlamaServer", "VLLM"),
    ("http.inference", "httpx2", "http"): ("MLflow", "OpenInference"),
    ("local.onnx", "onnxruntime", "onnx"): ("Onnx",),
    ("local.sklearn", "numpy", ""): ("Sklearn",),
    ("local.torch", "torch", "torch"): ("Torch",),
}
_WHERE = {name: where for where, names in _MODULES.items() for name in names}

# `from c2fa.models import *`, dir and help list the names whose packages are installed.
__all__ = sorted(name for name, (_, package, _) in _WHERE.items() if find_spec(package) is not None)


def adapter(name: str) -> Callable[..., Model]:
    """The class or function of a name; an ImportError says how to install its package if it is missing."""
    module, package, extra = _WHERE[name]
    if name not in __all__:
        raise ImportError(f"c2fa.models.{name} needs {package}: pip install 'c2fa[{extra}]'")
    make: Callable[..., Model] = vars(import_module(f"c2fa.models.{module}"))[name]
    globals()[name] = make  # so that __getattr__ is called only once for it
    return make


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'c2fa.models' has no attribute {name!r}")
    try:
        return adapter(name)
    except ImportError as error:
        # An AttributeError lets hasattr say no, but `from c2fa.models import Torch` would drop its sentence.
        if sys._getframe(1).f_code.co_name == "_handle_fromlist":
            raise
        raise AttributeError(str(error)) from error


def __dir__() -> list[str]:
    return __all__

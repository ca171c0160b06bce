"""Callables for the models that people have; each is imported when it is first used.

A model is any callable from a batch (a list of texts, an array, a frame, a tensor) to one row of numbers per
input, so a plain function needs nothing from here.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from c2fa.asking.model import Model
    from c2fa.models.http.endpoint import EndpointError
    from c2fa.models.http.inference import MLflow, OpenInference
    from c2fa.models.lm.causal import CausalLM
    from c2fa.models.lm.chat import Chat
    from c2fa.models.lm.openai import CensoredWarning, OpenAI
    from c2fa.models.lm.servers import TGI, VLLM, LlamaServer, SGLang
    from c2fa.models.loading import Lazy, load, wrap
    from c2fa.models.local.demo import DemoSentiment
    from c2fa.models.local.huggingface import HuggingFace
    from c2fa.models.local.onnx import Onnx
    from c2fa.models.local.sklearn import Sklearn
    from c2fa.models.local.torch import Torch

__all__ = [
    "TGI",
    "VLLM",
    "CausalLM",
    "CensoredWarning",
    "Chat",
    "DemoSentiment",
    "EndpointError",
    "HuggingFace",
    "Lazy",
    "LlamaServer",
    "MLflow",
    "Onnx",
    "OpenAI",
    "OpenInference",
    "SGLang",
    "Sklearn",
    "Torch",
    "load",
    "wrap",
]

# Each name's module, the package that the module imports and the extra that brings it.
_WHERE = {
    "CausalLM": ("lm.causal", "torch", "text"),
    "CensoredWarning": ("lm.openai", "httpx2", "http"),
    "Chat": ("lm.chat", "httpx2", "http"),
    "DemoSentiment": ("local.demo", None, None),
    "EndpointError": ("http.endpoint", "httpx2", "http"),
    "HuggingFace": ("local.huggingface", "torch", "text"),
    "Lazy": ("loading", None, None),
    "LlamaServer": ("lm.servers", "httpx2", "http"),
    "MLflow": ("http.inference", "httpx2", "http"),
    "Onnx": ("local.onnx", "onnxruntime", "onnx"),
    "OpenAI": ("lm.openai", "httpx2", "http"),
    "OpenInference": ("http.inference", "httpx2", "http"),
    "SGLang": ("lm.servers", "httpx2", "http"),
    "Sklearn": ("local.sklearn", None, None),
    "TGI": ("lm.servers", "httpx2", "http"),
    "Torch": ("local.torch", "torch", "torch"),
    "VLLM": ("lm.servers", "httpx2", "http"),
    "load": ("loading", None, None),
    "wrap": ("loading", None, None),
}
_MISSING = {name for name, (_, package, _) in _WHERE.items() if package and find_spec(package) is None}

# `from c2fa.models import *`, dir and help give what is there.
for _name in _MISSING:
    __all__.remove(_name)


def adapter(name: str) -> Callable[..., Model]:
    """The callable of a name; where its package is not installed, an ImportError says how to get it."""
    module, package, extra = _WHERE[name]
    if name in _MISSING:
        raise ImportError(f"c2fa.models.{name} needs {package}: pip install 'c2fa[{extra}]'")
    found: Callable[..., Model] = getattr(import_module(f"c2fa.models.{module}"), name)
    globals()[name] = found  # the next time it is an ordinary name
    return found


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
    return sorted(__all__)

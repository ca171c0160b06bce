"""Callables for the models that people have; each is imported when it is first used.

A model is any callable from a batch (a list of texts, an array, a frame, a tensor) to one row of numbers per
input, so a plain function needs nothing from here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from c2fa.models.demo import DemoSentiment
    from c2fa.models.http import EndpointError
    from c2fa.models.huggingface import HuggingFace
    from c2fa.models.loading import load, wrap
    from c2fa.models.mlflow import MLflow
    from c2fa.models.oip import OpenInference
    from c2fa.models.onnx import Onnx
    from c2fa.models.openai import CensoredWarning, OpenAI
    from c2fa.models.sklearn import Sklearn
    from c2fa.models.torch import Torch

__all__ = [
    "CensoredWarning",
    "DemoSentiment",
    "EndpointError",
    "HuggingFace",
    "MLflow",
    "Onnx",
    "OpenAI",
    "OpenInference",
    "Sklearn",
    "Torch",
    "load",
    "wrap",
]

# Each name's module, and the extra that brings what the module needs.
_WHERE = {
    "CensoredWarning": ("openai", "http"),
    "DemoSentiment": ("demo", ""),
    "EndpointError": ("http", "http"),
    "HuggingFace": ("huggingface", "text"),
    "MLflow": ("mlflow", "http"),
    "Onnx": ("onnx", "onnx"),
    "OpenAI": ("openai", "http"),
    "OpenInference": ("oip", "http"),
    "Sklearn": ("sklearn", "tabular"),
    "Torch": ("torch", "torch"),
    "load": ("loading", ""),
    "wrap": ("loading", ""),
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'c2fa.models' has no attribute {name!r}")
    module, extra = _WHERE[name]
    try:
        globals()[name] = getattr(import_module(f"c2fa.models.{module}"), name)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if not extra or missing in ("", "c2fa"):
            raise
        raise ImportError(f"c2fa.models.{name} needs {missing}: pip install 'c2fa[{extra}]'") from error
    return globals()[name]


def __dir__() -> list[str]:
    return sorted(__all__)

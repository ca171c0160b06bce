"""The model that a line of text names, or one sentence that says why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from c2fa.cli._errors import UNUSABLE, RefusedError

SPECS = {
    "demo": "the sentiment classifier that comes with c2fa",
    "python:package.module:function": "a function of yours; the current folder is looked into first",
    "sklearn:file.skops": "a scikit-learn estimator (a pickle only with --allow-pickle)",
    "hf:folder": "a Hugging Face text classifier, as save_pretrained writes it",
    "onnx:file": "an ONNX model",
    "oip:http://host:port#model": "a server of the Open Inference Protocol (Triton, KServe, MLServer)",
    "mlflow:http://host:port": "an MLflow scoring server",
    "openai:http://host:port/v1#model": "a server that speaks OpenAI's API (vLLM, llama.cpp, Ollama)",
}


def load(spec: str, options: Mapping[str, Any], allow_pickle: bool) -> Any:
    """Load the model; whatever a stranger's module or file raises becomes a sentence."""
    from c2fa import models

    try:
        return models.load(spec, allow_pickle=allow_pickle, **options)
    except (Exception, SystemExit) as error:
        text = str(error) or type(error).__name__
        text = text.replace("(allow_pickle=True)", "(--allow-pickle)")
        if not isinstance(error, ValueError | ImportError | OSError):
            text = f"{type(error).__name__}: {text}"
        said = text if spec in text else f"cannot load the model {spec!r}: {text}"
        raise RefusedError(said, UNUSABLE) from error


def names_of(model: Any) -> tuple[str, ...]:
    """The names of the outputs that the model knows before it is asked."""
    return tuple(map(str, getattr(model, "output_names", None) or ()))

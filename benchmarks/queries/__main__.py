"""The command: runs the parts, prints their tables, stores their numbers."""

from __future__ import annotations

import os

# The solves are small: threads of the linear algebra only wait for each other, and many times longer on a busy machine.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from benchmarks.queries.command import main

if __name__ == "__main__":
    main()

"""The command: runs the methods, prints their tables, keeps their results."""

from __future__ import annotations

import os

# The solves are small, and every process has a core of its own.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from benchmarks.games.command import main

if __name__ == "__main__":
    main()

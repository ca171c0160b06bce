"""The command: runs the campaigns, prints what they counted, and ends with 1 where something was found."""

from __future__ import annotations

import os
import sys

# The work is done in several processes at once: threads of the linear algebra would only wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from benchmarks.faults.command import main

if __name__ == "__main__":
    sys.exit(main())

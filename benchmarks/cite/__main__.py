import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy: there are as many workers as cores

from benchmarks.cite.command import main

if __name__ == "__main__":  # workers import this file too
    main()

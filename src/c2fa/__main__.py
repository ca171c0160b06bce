"""``python -m c2fa``: the command line where the script is not on PATH."""

from c2fa.cli import main

if __name__ == "__main__":
    main()

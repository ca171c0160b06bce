"""Who made a file: a process of this machine or of another, which may have ended since."""

from __future__ import annotations

import os
import re
import secrets
import socket

_OWNER = re.compile(r"(\d+)~([^~/]+)~[0-9a-f]{8}")


def this_process() -> str:
    """A new name for something of this process, fit to be in the name of a file."""
    return f"{os.getpid()}~{socket.gethostname()}~{secrets.token_hex(4)}"


def is_gone(name: str) -> bool:
    """Whether the process that is in a name has ended, as far as can be seen from this machine.

    >>> is_gone(f"file-{this_process()}.tmp"), is_gone("1~another machine~00c0ffee"), is_gone("nobody")
    (False, False, False)
    """
    owner = _OWNER.search(name)
    if owner is None or owner[2] != socket.gethostname() or os.name == "nt":  # where signal 0 is Ctrl-C
        return False
    try:
        os.kill(int(owner[1]), 0)
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:
        return False
    return False

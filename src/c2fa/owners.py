"""Who made a file or set a mark: a process of this machine or of another, which may have ended since."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import socket

_OWNER = re.compile(r"(\d+)~([^~/]*)~(\w*)~(\d*)~(\d*)~[0-9a-f]{8}")


def this_process() -> str:
    """A new name for something of this process, fit to be in the name of a file."""
    return "~".join([*_seen(os.getpid()), secrets.token_hex(4)])


def is_gone(name: str) -> bool:
    """Whether the process that is in a name has ended, as far as can be seen from here.

    >>> is_gone(f"file-{this_process()}.tmp"), is_gone("1~another machine~~~~00c0ffee"), is_gone("nobody")
    (False, False, False)
    """
    owner = _OWNER.search(name)
    if owner is None:
        return False
    pid, host, boot, space, born = owner.groups()
    here = _seen(int(pid))
    if [host, boot, space] != here[1:4]:
        return host == here[1] and boot != here[2]  # the machine was started again
    try:
        if os.name != "nt":  # where signal 0 is Ctrl-C
            os.kill(int(pid), 0)
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:
        pass  # another user's
    return here[4] not in ("", born)


def _seen(pid: int) -> list[str]:
    """What tells a process from others: its number, its machine, boot and view of processes, and when it began.

    Numbers are given again. What the system does not tell is empty.
    """
    said = {"boot_id": "", "stat": ""}
    for name in ("/proc/sys/kernel/random/boot_id", f"/proc/{pid}/stat"):
        with contextlib.suppress(OSError), open(name) as file:
            said[os.path.basename(name)] = file.readline()
    space = ""
    with contextlib.suppress(OSError):
        space = os.readlink("/proc/self/ns/pid").strip("pid:[]")
    state = said["stat"].rpartition(")")[2].split()
    born = "" if not state else "ended" if state[0] in "ZX" else state[19]
    return [str(pid), socket.gethostname(), said["boot_id"][:8], space, born]

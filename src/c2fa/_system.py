"""The process and its system: optional packages, kinds of values, files, signals and threads."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import signal
import socket
import stat
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from functools import lru_cache
from importlib import import_module
from importlib.metadata import version
from numbers import Real
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

# -- packages and values ---------------------------------------------------------------------------------------------


def need(module: str, extra: str) -> Any:
    """Import a module that comes with an extra, or say which command installs it.

    >>> need("a_module_nobody_has", "images")
    Traceback (most recent call last):
    ImportError: a_module_nobody_has is not installed: pip install 'c2fa[images]'
    """
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ImportError(f"{package} is not installed: pip install 'c2fa[{extra}]'") from error


def refuse_older(package: str, least: str, danger: str) -> None:
    """Refuse a package that is older than the first safe version, and say what the older one can be made to do.

    >>> refuse_older("numpy", "1000.0", "is too old for this example")
    Traceback (most recent call last):
    ImportError: numpy ... is too old for this example: pip install 'numpy>=1000.0'
    """
    installed = version(package)
    here, first_safe = ([int(number) for number in re.findall(r"\d+", text)[:2]] for text in (installed, least))
    if here < first_safe:
        raise ImportError(f"{package} {installed} {danger}: pip install '{package}>={least}'")


def in_notebook() -> bool:
    """Whether this process is a notebook's kernel."""
    return "ipykernel" in sys.modules and import_module("IPython").get_ipython() is not None


def did_you_mean(word: Any, words: Iterable[str]) -> str:
    """The end of an error about an unknown word: which of the known words is near, or nothing where none is.

    >>> did_you_mean("Oven", ["owen", "lime"]), did_you_mean("x", ["owen"])
    ("; did you mean 'owen'?", '')
    """
    names = {name.casefold(): name for name in words}
    near = get_close_matches(str(word).casefold(), names, 1)
    return f"; did you mean {names[near[0]]!r}?" if near else ""


def check_word(name: str, value: Any, words: Sequence[str]) -> None:
    """Refuse an option that is none of its words."""
    if not (isinstance(value, str) and value in words):
        near = did_you_mean(value, words)
        raise ValueError(f"{name} must be one of {', '.join(map(repr, words))}; got {value!r}{near}")


def at_least(name: str, value: Any, least: int) -> int:
    """The value of an option, refused unless it is a whole number that is large enough."""
    if not is_whole(value) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}; got {value!r}")
    return int(value)


def seconds(name: str, value: Any) -> float:
    """The value of an option, refused unless it is a time above 0; infinity is one."""
    if not (is_real(value) and value > 0):
        raise ValueError(f"{name} must be seconds above 0; got {value!r}")
    return float(value)


def is_whole(value: Any) -> bool:
    """Whether a value is a whole number; truth values and time spans are not.

    >>> [is_whole(value) for value in (3, np.int8(3), 3.0, True, "3")]
    [True, True, False, False, False]
    """
    return isinstance(value, int | np.integer) and not isinstance(value, bool | np.timedelta64)


def is_real(value: Any) -> bool:
    """Whether a value is a real number; infinity and NaN are, truth values and time spans are not.

    >>> [is_real(value) for value in (3, np.float32(0.5), float("nan"), True, "3", 2j)]
    [True, True, True, False, False, False]
    """
    return isinstance(value, Real) and not isinstance(value, bool | np.timedelta64)


def is_tensor(x: Any) -> bool:
    """Whether x is a torch tensor; torch need not be installed."""
    return hasattr(x, "detach")


def is_frame(x: Any) -> bool:
    """Whether x is a table with named columns, of pandas or polars."""
    return hasattr(x, "columns")


def host_array(values: Any) -> npt.NDArray[Any]:
    """Values, or a tensor on any device, as a numpy array; numpy has no bfloat16, so that becomes float32."""
    if not is_tensor(values):
        return np.asarray(values)
    tensor = values.detach().cpu()
    return np.asarray(tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor)


def on_device(array: npt.NDArray[Any], device: Any) -> Any:
    """An array as a tensor on a torch device; the copy to a GPU is not waited for, because the GPU may be busy."""
    import torch

    tensor = torch.from_numpy(np.require(array, requirements=["C", "W"]))
    is_gpu = torch.device(device).type == "cuda"
    return tensor.pin_memory().to(device, non_blocking=True) if is_gpu else tensor.to(device)


def as_given(array: npt.NDArray[Any], x: Any) -> Any:
    """The array itself; where x is a tensor, a tensor on x's device and, if x holds real numbers, of x's type."""
    if not is_tensor(x):
        return array
    import torch

    return torch.as_tensor(array, device=x.device, dtype=x.dtype if x.is_floating_point() else None)


def is_missing(value: Any) -> bool:
    """Whether a cell of a table has no value: None, NaN, NaT or NA.

    >>> [is_missing(value) for value in (None, float("nan"), 0, "")]
    [True, True, False, False]
    """
    try:
        return value is None or bool(value != value)
    except TypeError:  # pandas' NA is neither equal to itself nor not
        return True
    except ValueError:  # an array as a cell
        return False


# -- files -----------------------------------------------------------------------------------------------------------


def this_process() -> str:
    """A new name that says which process made it, fit to be part of a file's name."""
    return "~".join([*_marks(os.getpid()), secrets.token_hex(4)])


def is_gone(name: str) -> bool:
    """Whether the process that made a name has ended; False where that cannot be seen from here.

    >>> is_gone(f"file-{this_process()}.tmp"), is_gone("1~another machine~~~~00c0ffee"), is_gone("nobody")
    (False, False, False)
    """
    owner = re.search(r"(\d+)~([^~/]*)~(\w*)~(\d*)~(\d*)~[0-9a-f]{8}", name)
    if owner is None:
        return False
    pid, host, boot, space, start = owner.groups()
    here = _marks(int(pid))
    if [host, boot, space] != here[1:4]:
        return host == here[1] and boot != here[2]  # the machine was started again
    try:
        if os.name != "nt":  # where signal 0 is Ctrl-C
            os.kill(int(pid), 0)
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:
        pass  # the process is another user's
    return here[4] not in ("", start)


def _marks(pid: int) -> list[str]:
    """A process's number, host, boot, process namespace and start time; numbers alone are reused.

    What the system does not tell is empty.
    """
    text = {"boot_id": "", "stat": ""}
    for name in ("/proc/sys/kernel/random/boot_id", f"/proc/{pid}/stat"):
        with contextlib.suppress(OSError), open(name) as file:
            text[os.path.basename(name)] = file.readline()
    space = ""
    with contextlib.suppress(OSError):
        space = os.readlink("/proc/self/ns/pid").strip("pid:[]")
    state = text["stat"].rpartition(")")[2].split()
    start = state[19] if state else ""
    if state and state[0] in "ZX":  # a zombie
        start = "ended"
    return [str(pid), socket.gethostname(), text["boot_id"][:8], space, start]


@contextmanager
def atomic(path: str | PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of an older one only when all of it is on the disk.

    Until then it has another name in the same folder, so a crash, a full disk or Ctrl-C leaves the older file as it
    was. A link stays a link and permissions stay; an unfinished file in place of another is for its owner alone.
    """
    given = Path(path)
    if given.exists() and not given.is_file():  # a pipe or a device has no older content and cannot be renamed
        with given.open("wb") as file:
            yield file
        return
    target = Path(os.path.realpath(given))
    unfinished = target.with_name(f"_{target.stem.lstrip('_')[:32]}-{this_process()}.tmp")
    try:
        mode = 0o666
        with contextlib.suppress(FileNotFoundError):  # a circle of links is another error
            mode = stat.S_IMODE(target.stat().st_mode) & 0o700
            target.open("r+b").close()  # refuses a write-protected file, which a rename would replace
        with open(unfinished, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            shutil.copymode(target, unfinished)
        unfinished.replace(target)
    except OSError as error:
        if error.errno is None:
            raise
        sentence = f"{error.strerror}; nothing was written, and an older file is as it was"
        raise OSError(error.errno, sentence, str(path)) from error
    finally:
        with contextlib.suppress(OSError):
            unfinished.unlink()
    with contextlib.suppress(OSError):  # so that the rename outlives a power cut; Windows cannot open a folder
        handle = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


# -- signals ---------------------------------------------------------------------------------------------------------


class Signals:
    """A context in which each SIGINT and SIGTERM calls a function with its number.

    Ignored signals stay ignored, as in a shell's background job. Outside the main thread, where Python allows no
    handlers, nothing changes.
    """

    def __init__(self, handle: Callable[[int], None]) -> None:
        self._handle = handle
        self._before: dict[int, Any] = {}
        self.caught = False

    def __call__(self, number: int, frame: object) -> None:
        self.caught = True
        self._handle(number)

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def from_outside(error: BaseException) -> bool:
    """Whether a signal such as Ctrl-C may have raised an error; otherwise the code that was called raised it."""
    if isinstance(error, Exception) or threading.current_thread() is not threading.main_thread():
        return False  # Python calls handlers in the main thread alone
    for handler in map(signal.getsignal, (signal.SIGINT, signal.SIGTERM)):
        if handler is signal.default_int_handler:
            may_raise = isinstance(error, KeyboardInterrupt)
        else:
            may_raise = handler.caught if isinstance(handler, Signals) else callable(handler)
        if may_raise:
            return True
    return False


# -- threads ---------------------------------------------------------------------------------------------------------


class _ProcessWide:
    """A setting of the whole process, which is on while any thread is inside.

    The first thread changes it and the last one restores it. If each thread restored what it found, two that overlap
    could leave it on for ever.
    """

    def __init__(self, change: Callable[[], Callable[[], object]]) -> None:
        self._change = change
        self._lock, self._inside = threading.Lock(), 0

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._restore = self._change()
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._restore()


def _switch_often() -> Callable[[], object]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.0001)  # fifty times as often as by default
    return lambda: sys.setswitchinterval(before)


def _without_plans() -> Callable[[], object]:
    """Turn off cuDNN's attention, which plans for tens of milliseconds at each new shape.

    Batches of masked texts have hundreds of shapes. With few shapes, cuDNN would be a tenth faster.
    """
    import torch

    before = torch.backends.cuda.cudnn_sdp_enabled()  # type: ignore[no-untyped-call]
    torch.backends.cuda.enable_cudnn_sdp(False)
    return lambda: torch.backends.cuda.enable_cudnn_sdp(before)


@lru_cache(maxsize=1)
def _blas() -> Any:
    from threadpoolctl import ThreadpoolController

    # glibc returns a few hundred freed kilobytes to the system at once, and the next solve fetches them page by page: a
    # fifth of the time of an explanation of a hundred leaves. It keeps up to twice the largest block that was ever
    # freed, at most 32 MB, so one is freed here without having been touched.
    np.empty(16 * 2**20, dtype=np.uint8)
    return ThreadpoolController()  # looks through the loaded libraries, which takes 20 ms: once is enough


# Lets threads take turns often. A thread that drives a GPU gives way at every operation; behind a thread that fits, in
# turns of Python's five milliseconds, it would take seconds for one batch.
swift = _ProcessWide(_switch_often)
_one_blas_thread = _ProcessWide(lambda: _blas().limit(limits=1).restore_original_limits)
without_plans = _ProcessWide(_without_plans)


def suited(multiplications: float) -> contextlib.AbstractContextManager[None]:
    """A context that gives BLAS one thread where the work is small: waking others costs more than they save."""
    return contextlib.nullcontext() if multiplications >= 2e8 else _one_blas_thread

"""What comes from other libraries: imports that say how to get them, tensors, cells without a value."""

from __future__ import annotations

import re
from importlib import import_module
from importlib.metadata import version
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt


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
    found = version(package)
    if _numbers(found) < _numbers(least):
        raise ImportError(f"{package} {found} {danger}: pip install '{package}>={least}'")


def _numbers(text: str) -> list[int]:
    """The two numbers that a version begins with."""
    return [int(number) for number in re.findall(r"\d+", text)[:2]]


def is_whole(value: Any) -> bool:
    """Whether a value is a whole number; True and False are none, nor is a time.

    >>> [is_whole(value) for value in (3, np.int8(3), 3.0, True, "3")]
    [True, True, False, False, False]
    """
    return isinstance(value, int | np.integer) and not isinstance(value, bool | np.timedelta64)


def is_real(value: Any) -> bool:
    """Whether a value is a real number, be it infinite or none.

    >>> [is_real(value) for value in (3, np.float32(0.5), float("nan"), True, "3", 2j)]
    [True, True, True, False, False, False]
    """
    return isinstance(value, Real) and not isinstance(value, bool | np.timedelta64)


def host_array(values: Any) -> npt.NDArray[Any]:
    """An array of what is one, or of a tensor wherever it lies; numpy has no bfloat16, so that becomes float32."""
    if not hasattr(values, "detach"):
        return np.asarray(values)
    tensor = values.detach().cpu()
    return np.asarray(tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor)


def on_device(array: npt.NDArray[Any], device: Any) -> Any:
    """An array as a tensor on a torch device; nothing waits for the copy to a GPU, which may be busy."""
    import torch

    tensor = torch.from_numpy(np.require(array, requirements=["C", "W"]))
    is_gpu = torch.device(device).type == "cuda"
    return tensor.pin_memory().to(device, non_blocking=True) if is_gpu else tensor.to(device)


def as_given(array: npt.NDArray[Any], x: Any) -> Any:
    """The array; where x is a tensor, a tensor on its device and, for real numbers, of its type."""
    if not hasattr(x, "detach"):
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

"""What the code of other projects raises where it does not fit this machine or model, how its processes end, in one line."""

import signal

FOREIGN: tuple[type[Exception], ...] = (
    ArithmeticError, AttributeError, ImportError, LookupError, OSError, RuntimeError, TypeError, ValueError
)  # fmt: skip
"""Raised by packages, kernels and models that are loaded, or called in a way that they were not written for.

`torch.OutOfMemoryError` and `torch.AcceleratorError` are among them, being kinds of `RuntimeError`. They say nothing of a
package, so what decides about one catches them before and raises them again.
"""

UNLOADABLE: tuple[type[Exception], ...] = (AttributeError, ImportError, OSError, RuntimeError)
"""Raised where a package is loaded that was built for another CUDA, PyTorch or Python, or lacks another one."""


MADE_FOR = "is made for"
"""Between a package and the version of another one that it wants and does not get."""


def first_line(said: BaseException | str) -> str:
    """The first line of a message that is not blank; empty where there is none."""
    return next((line.strip() for line in str(said).splitlines() if line.strip()), "")


def in_a_line(error: BaseException) -> str:
    """Its type and the first line of its message: `OSError: libcudart.so.12: no such file`."""
    return f"{type(error).__name__}: {first_line(error)}"


def cannot_be_loaded(name: str, error: BaseException) -> str:
    """Why the package or library `name` is not used, as the end of a sentence."""
    return f"{name} cannot be loaded ({in_a_line(error)})"


def ended_by(code: int) -> str:
    """Exit code or signal, in words."""
    if code >= 0:
        return f"exit code {code}"
    return next((one.name for one in signal.Signals if one == -code), f"signal {-code}")

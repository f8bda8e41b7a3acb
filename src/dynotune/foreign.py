"""What the code of other projects raises where it does not fit this machine or model, how its processes end, in one line."""

import re
import signal
from collections.abc import Iterator

FOREIGN: tuple[type[Exception], ...] = (
    ArithmeticError, AttributeError, ImportError, LookupError, OSError, RuntimeError, TypeError, ValueError
)  # fmt: skip
"""Raised by packages, kernels and models that are loaded, or called in a way that they were not written for.

`torch.OutOfMemoryError` and `torch.AcceleratorError` are among them, being kinds of `RuntimeError`. They say nothing of a
package, so what decides about one catches them before and raises them again.
"""

UNLOADABLE: tuple[type[Exception], ...] = (AttributeError, ImportError, OSError, RuntimeError)
"""Raised where a package is loaded that was built for another CUDA, PyTorch or Python, or lacks another one."""


_OF_MEMORY = r"out of memory|ALLOC_FAILED|ALLOCATION_FAILED|can't allocate memory|not enough memory"
_OF_DEVICE = r"busy or unavailable|uncorrectable ECC|STATUS_NOT_INITIALIZED|No CUDA GPUs are available"
_OF_SYSTEM = r"No space left on device|find C compiler|signal (9|15)\b"
_PASSING = re.compile(rf"{_OF_MEMORY}|{_OF_DEVICE}|{_OF_SYSTEM}", re.IGNORECASE)
"""Of a GPU's or a host's state at one moment, as PyTorch, Triton, cuBLAS, cuDNN and `accelerators` say it."""

_SPOILED = re.compile(r"illegal memory access|device-side assert|launch failure", re.IGNORECASE)
"""A device that a process has spoiled for all that it does from there on: whoever meets it need not be at fault."""

_KINDS_PASSING = {"MemoryError", "OutOfMemoryError", "AcceleratorError"}

MADE_FOR = "is made for"
"""Between a package and the version of another one that it wants and does not get."""


def first_line(said: BaseException | str) -> str:
    """The first line of a message that is not blank; empty where there is none."""
    return next((line.strip() for line in str(said).splitlines() if line.strip()), "")


def in_a_line(error: BaseException) -> str:
    """Its type and the first line of its message: `OSError: libcudart.so.12: no such file`."""
    return f"{type(error).__name__}: {first_line(error)}"


def may_pass(failure: BaseException | str) -> bool:
    """Whether it says more of the moment than of a package, so that it may be gone at the next try and is not remembered.

    Memory that was short, a device in a bad state, a process that somebody ended; of errors of the system (a full disk, a
    compiler that is not there, a network) all, since they depend on no version. failure: an error of this process, or what
    became of one that tried a package and nothing else.
    """
    if isinstance(failure, str):
        return _PASSING.search(failure) is not None
    return any(may_pass(str(one)) or _SPOILED.search(str(one)) or _of_the_moment(one) for one in _behind(failure))


def _of_the_moment(error: BaseException) -> bool:
    kinds = {kind.__name__ for kind in type(error).__mro__}  # PyTorch's by name: it is not imported for this
    # A library that cannot be loaded is an OSError, too, and is the package's.
    return bool(kinds & _KINDS_PASSING) or (isinstance(error, OSError) and ".so" not in str(error))


def _behind(error: BaseException) -> Iterator[BaseException]:
    """The error, and those that it was raised from or beside: a compiler wraps what it meets, and not always says so."""
    seen: BaseException | None = error
    met = set[int]()
    while seen is not None and id(seen) not in met:
        met.add(id(seen))
        yield seen
        seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)


def cannot_be_loaded(name: str, error: BaseException) -> str:
    """Why the package or library `name` is not used, as the end of a sentence."""
    return f"{name} cannot be loaded ({in_a_line(error)})"


def ended_by(code: int) -> str:
    """Exit code or signal, in words."""
    if code >= 0:
        return f"exit code {code}"
    return next((one.name for one in signal.Signals if one == -code), f"signal {-code}")

"""An out-of-memory error as facts. The error itself holds the frames that failed, and through them what they had allocated.

Messages are PyTorch's own (`CUDACachingAllocator.cpp`, `alloc_cpu.cpp`), cuBLAS's, cuDNN's and NumPy's.
"""

import re
from dataclasses import dataclass
from typing import Any

from dynotune.foreign import first_line

UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "PiB": 1 << 50, "EiB": 1 << 60}

SETTING = "PYTORCH_CUDA_ALLOC_CONF"
_SIZE = r"([\d.]+) (bytes|[KMGTPE]iB)"
_ASKED = (rf"[Tt]ried to allocate {_SIZE}", r"you tried to allocate (\d+) (bytes)", rf"Unable to allocate {_SIZE}")
_SAYS_SO = re.compile(
    r"out of memory|CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED|CUDNN_STATUS_INTERNAL_ERROR_\w*_ALLOCATION_FAILED"
    r"|DefaultCPUAllocator: (?:can't allocate|not enough) memory",
    re.IGNORECASE,
)
_FIGURES = re.compile(r"(?<=[.]) GPU \d+ has a total capacity")
_SETTING = re.compile(r"(PYTORCH_\w*ALLOC_CONF)=expandable_segments")


@dataclass(frozen=True, slots=True)
class Size:
    """Bytes as a message gives them: rounded."""

    bytes: int
    within: float
    """By how much the message may have rounded."""

    def __str__(self) -> str:
        return gib(self.bytes)

    def shows(self, exact: int) -> bool:
        """Whether a message that means `exact` bytes would show this size."""
        return abs(exact - self.bytes) <= self.within


@dataclass(frozen=True, slots=True)
class Shortage:
    """What an error said of the memory that was asked for and of the device's. None: it did not say."""

    message: str
    """Its first line, without the figures that follow below."""

    asked: Size | None = None
    total: Size | None = None
    free: Size | None = None
    here: Size | None = None
    """What this process holds of the device."""

    allocated: Size | None = None
    reserved: Size | None = None
    """Kept by PyTorch's allocator beside what is allocated."""

    others: int = 0
    """Bytes that other processes hold of the device, as far as they can be seen."""

    setting: str = SETTING
    """The environment variable that sets the allocator, by the name that this PyTorch uses."""

    def to_json(self) -> dict[str, Any]:
        sizes = {name: getattr(self, name) for name in ("asked", "total", "free", "here", "allocated", "reserved")}
        return {
            "message": self.message,
            **{f"{name}_bytes": size.bytes for name, size in sizes.items() if size is not None},
            "other_processes_bytes": self.others,
        }


def shortage_of(error: BaseException) -> Shortage | None:
    """The facts of an out-of-memory error; None where `error` is another one."""
    import torch

    text = str(error)
    # NumPy's own is a MemoryError. A RuntimeError is one only by what it says.
    is_one = isinstance(error, (torch.OutOfMemoryError, MemoryError)) or (
        isinstance(error, RuntimeError) and _SAYS_SO.search(text) is not None
    )
    if not is_one:
        return None
    others = [_size(*found) for found in re.findall(rf"Process \d+ has {_SIZE} memory in use", text)]
    setting = _SETTING.search(text)
    return Shortage(
        message=_FIGURES.split(first_line(error) or type(error).__name__)[0],
        asked=next((size for pattern in _ASKED if (size := _find(pattern, text))), None),
        total=_find(rf"total capacity of {_SIZE}", text),
        free=_find(rf"of which {_SIZE} is free", text),
        here=_find(rf"this process has {_SIZE} memory in use", text),
        allocated=_find(rf"{_SIZE} is allocated by PyTorch", text),
        reserved=_find(rf"{_SIZE} is reserved by PyTorch but unallocated", text),
        others=sum(size.bytes for size in others),
        setting=setting[1] if setting else SETTING,
    )


def gib(n: float) -> str:
    """Bytes for people."""
    for unit in ("GiB", "MiB", "KiB"):
        if n >= UNITS[unit]:
            return f"{n / UNITS[unit]:,.2f} {unit}"
    return f"{n:,.0f} bytes"


def _find(pattern: str, text: str) -> Size | None:
    found = re.search(pattern, text)
    return _size(found[1], found[2]) if found else None


def _size(number: str, unit: str) -> Size:
    last_digit = UNITS[unit] / 10 ** len(number.partition(".")[2])
    return Size(round(float(number) * UNITS[unit]), 0.51 * last_digit if unit != "bytes" else 0)

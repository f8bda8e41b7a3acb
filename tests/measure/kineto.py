"""Raw events as the profiler gives them, made up: what a GPU's trace looks like, on a machine without one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch._C._autograd import DeviceType

MAIN, ENGINE, FEED = 4001, 4002, 4003
"""Threads, by the operating system's numbers."""


@dataclass
class Raw:
    """One event. The methods have the profiler's names."""

    label: str
    begin: int
    took: int
    os_thread: int = MAIN
    number: int = 0
    linked: int = 0
    node: int = -1
    made_in: int = 0
    marked: bool = False
    on_device: bool = False
    arguments: tuple[Sequence[int], ...] = ()
    types: tuple[str, ...] = ()

    def name(self) -> str:
        return self.label

    def start_ns(self) -> int:
        return self.begin

    def duration_ns(self) -> int:
        return self.took

    def device_type(self) -> Any:
        return DeviceType.CUDA if self.on_device else DeviceType.CPU

    def device_resource_id(self) -> int:
        return 7 if self.on_device else self.os_thread

    def start_thread_id(self) -> int:
        return self.os_thread - 4000

    def correlation_id(self) -> int:
        return self.number

    def linked_correlation_id(self) -> int:
        return self.linked

    def sequence_nr(self) -> int:
        return self.node

    def fwd_thread_id(self) -> int:
        return self.made_in

    def is_user_annotation(self) -> bool:
        return self.marked

    def shapes(self) -> list[list[int]]:
        return [list(shape) for shape in self.arguments]

    def dtypes(self) -> list[str]:
        return list(self.types)

    def nbytes(self) -> int:
        return 0


def mark(label: str, begin: int, end: int, os_thread: int = MAIN) -> Raw:
    return Raw(f"dynotune:{label}", begin, end - begin, os_thread, marked=True, number=900_000 + begin)


def launched(name: str, number: int, at: int, runs_at: int, linked: int = 0, os_thread: int = MAIN) -> list[Raw]:
    """A launch on the host and the kernel, which runs later."""
    return [
        Raw("cudaLaunchKernel", at, 5, os_thread, number=number, linked=linked),
        Raw(name, runs_at, 10, number=number, linked=linked, on_device=True),
    ]

"""Reads the clocks of a GPU, the time of the processors and the memory of a process, and writes a line of JSON each time.

It is a program of its own, started by its path without the package around it, which takes 0.1 s. A thread would take its
time from the training loop's interpreter: 0.4 ms a sample, without what a GPU adds, which is 0.4 % where a bench resolves
0.5 %. A process takes it from another core (`Beside.cost` says how much).

The GPU is read by NVIDIA's management library. It ends when its standard input does, and so with the process that started
it, however that ends.
"""

import importlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

REASONS = {
    0x2: "application clocks",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "heat, by software",
    0x40: "heat, by hardware",
    0x80: "power brake",
    0x100: "display clocks",
}
"""Bits of NVML's reasons for lower clocks, in words. The lowest, an idle GPU, is none."""


LONGEST = 1 << 24
"""Bytes of samples, from which on their file begins anew with the latest half: an hour and a half at ten a second."""


class Gpu:
    """One device. What it does not support is asked once."""

    def __init__(self, nvml: Any, uuid: str) -> None:
        self.nvml, self.handle = nvml, handle_of(nvml, uuid)
        reasons = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
        self.reads: dict[str, Callable[[], Any]] = {
            "sm_mhz": lambda: nvml.nvmlDeviceGetClockInfo(self.handle, nvml.NVML_CLOCK_SM),
            "power_watts": lambda: nvml.nvmlDeviceGetPowerUsage(self.handle) / 1e3,
            "celsius": lambda: nvml.nvmlDeviceGetTemperature(self.handle, nvml.NVML_TEMPERATURE_GPU),
            "utilisation": lambda: nvml.nvmlDeviceGetUtilizationRates(self.handle).gpu / 100,
            "memory_used": lambda: nvml.nvmlDeviceGetMemoryInfo(self.handle).used,
            "reasons": lambda: (reasons or nvml.nvmlDeviceGetCurrentClocksThrottleReasons)(self.handle),
            "processes": lambda: [one.pid for one in nvml.nvmlDeviceGetComputeRunningProcesses(self.handle)],
        }

    def read(self) -> dict[str, Any]:
        found = {}
        for name, read in list(self.reads.items()):
            try:
                found[name] = read()
            except self.nvml.NVMLError as error:
                if error.value == self.nvml.NVML_ERROR_NOT_SUPPORTED:  # others pass: the next sample may have it
                    del self.reads[name]
        return found


def handle_of(nvml: Any, uuid: str) -> Any:
    """Of a device or of a part of one (MIG), whose name PyTorch gives without saying which of the two it is."""
    try:
        return nvml.nvmlDeviceGetHandleByUUID(uuid)
    except nvml.NVMLError:
        try:
            return nvml.nvmlDeviceGetHandleByUUID(uuid.replace("GPU-", "MIG-", 1))
        except nvml.NVMLError:
            pass
        raise


def open_gpu(uuid: str) -> tuple[Gpu | None, str]:
    """The device, or why its clocks cannot be read, as a sentence."""
    try:
        pynvml = importlib.import_module("pynvml")
    except ImportError:
        return None, "Clocks, power and heat of the GPU are not known: `pip install nvidia-ml-py`."
    try:
        pynvml.nvmlInit()
        return Gpu(pynvml, uuid), ""
    except pynvml.NVMLError as error:
        return None, f"Clocks, power and heat of the GPU are not known: NVML says {error}."


class Tree:
    """Memory and processor time of a process and of those that it started, such as workers that prepare data."""

    def __init__(self, pid: int) -> None:
        import psutil

        self.psutil = psutil
        self.root = psutil.Process(pid)
        self.mine = psutil.Process()

    def read(self) -> dict[str, Any]:
        """Bytes that are resident (pages that processes share count in each) and seconds of processors; nothing once the
        process is gone."""
        gone = self.psutil.NoSuchProcess, self.psutil.AccessDenied
        try:
            children = [one for one in self.root.children(recursive=True) if one != self.mine]
            found = {"rss": self.root.memory_info().rss, "workers_rss": 0, "workers": 0}
            times = self.root.cpu_times()
        except gone:
            return {}
        seconds = times.user + times.system
        for one in children:
            try:
                found["workers_rss"] += one.memory_info().rss
                times = one.cpu_times()
            except gone:
                continue
            found["workers"] += 1
            seconds += times.user + times.system
        return {**found, "busy": seconds}


class Lines:
    """Standard output, a file that nobody may be reading: from `longest` bytes on it begins anew with its latest half."""

    def __init__(self, longest: int, note: str) -> None:
        self.longest, self.note, self.cuts, self.size = longest, note, 0, 0
        self._write([self._first()])

    def add(self, line: str) -> None:
        text = f"{line}\n".encode()
        if self.size + len(text) > self.longest:
            kept = os.pread(1, self.longest // 2, self.size - self.longest // 2).partition(b"\n")[2]
            self.cuts += 1
            os.ftruncate(1, 0)
            os.lseek(1, 0, os.SEEK_SET)
            self.size = 0
            # In one write: a reader sees the new first line with what stands behind it.
            self._write([self._first(), kept])
        self._write([text])

    def _first(self) -> bytes:
        return f"{json.dumps({'cuts': self.cuts, 'note': self.note})}\n".encode()

    def _write(self, parts: list[bytes]) -> None:
        text = b"".join(parts)
        self.size += os.write(1, text)


def main(uuid: str, interval: float, watched: int | None, longest: int) -> None:
    """uuid: of the GPU, as NVML has it (`GPU-...`); empty for none. interval: seconds. watched: a process. longest: bytes of
    the file that standard output is."""
    import psutil

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the run, which goes on to save: this ends with it
    gpu, note = open_gpu(uuid) if uuid else (None, "")
    tree = None if watched is None else Tree(watched)
    lines = Lines(longest, note)
    due = time.perf_counter()
    while True:
        times = psutil.cpu_times()
        total = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)  # within user and nice
        sample = {"at": time.perf_counter(), "steal": getattr(times, "steal", 0.0), "processors": total}
        sample |= gpu.read() if gpu is not None else {}
        if tree is not None:
            sample |= {**tree.read(), "host_available": psutil.virtual_memory().available}
        lines.add(json.dumps(sample | {"cost": time.process_time()}))
        due = max(due + interval, time.perf_counter())
        if select.select([sys.stdin], [], [], until(due))[0]:
            return


def until(due: float) -> float:
    """Seconds; none where that time has passed, as on a busy host between two looks at the clock."""
    return max(0.0, due - time.perf_counter())


if __name__ == "__main__":
    of_process, bytes_at_most = (*sys.argv[3:], "", "")[:2]
    main(sys.argv[1], float(sys.argv[2]), int(of_process) if of_process else None, int(bytes_at_most or LONGEST))

"""Reads the clocks of a GPU, the time of the processors and the memory of a process, and writes a line of JSON each time.

It is a program of its own, started by its path without the package around it, which takes 0.1 s. A thread would take its
time from the training loop's interpreter: 0.4 ms a sample, without what a GPU adds, which is 0.4 % where a bench resolves
0.5 %. A process takes it from another core (`Beside.cost` says how much).

The GPU is read by NVIDIA's management library. It ends when its standard input does, and so with the process that started
it, however that ends.
"""

import importlib
import json
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


def main(uuid: str, interval: float, watched: int | None) -> None:
    """uuid: of the GPU, as NVML has it (`GPU-...`); empty for none. interval: seconds. watched: a process."""
    import psutil

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the run, which goes on to save: this ends with it
    gpu, note = open_gpu(uuid) if uuid else (None, "")
    tree = None if watched is None else Tree(watched)
    print(json.dumps({"note": note}), flush=True)  # noqa: T201 - what `Beside` reads
    due = time.perf_counter()
    while True:
        times = psutil.cpu_times()
        total = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)  # within user and nice
        sample = {"at": time.perf_counter(), "steal": getattr(times, "steal", 0.0), "processors": total}
        sample |= gpu.read() if gpu is not None else {}
        if tree is not None:
            sample |= {**tree.read(), "host_available": psutil.virtual_memory().available}
        print(json.dumps(sample | {"cost": time.process_time()}), flush=True)  # noqa: T201
        due = max(due + interval, time.perf_counter())
        if select.select([sys.stdin], [], [], until(due))[0]:
            return


def until(due: float) -> float:
    """Seconds; none where that time has passed, as on a busy host between two looks at the clock."""
    return max(0.0, due - time.perf_counter())


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else None)

"""Promise: what is said of a block was sampled while it ran, costs the measured process nothing, and gaps are said."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from dynotune.bench.running.guard import Guard
from dynotune.measure.beside import beside, sampler
from dynotune.measure.beside.sampler import until
from dynotune.results.result import Clocks

SAMPLES = """
import json, sys
print(json.dumps({"note": ""}))
for i, reasons in enumerate([0x1, 0x4, 0x4, 0x44, 0x4, 0x4, 0x4, 0x4, 0x4, 0x4]):
    print(json.dumps({
        "at": float(i), "sm_mhz": 1700 + i, "power_watts": 600.0, "celsius": 60, "utilisation": i / 10, "reasons": reasons,
        "processes": [4242, 7] if i < 5 else [4242], "steal": 0.1 * i, "processors": 2.0 * i, "cost": 0.001 * i,
    }))
sys.stdout.flush()
sys.stdin.read()
"""


def made_up(folder: Path, text: str) -> Path:
    program = folder / "program.py"
    program.write_text(text)
    return program


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy host a process takes long to begin and to end."""
    monkeypatch.setattr(beside, "LONGEST_START", 120.0)
    monkeypatch.setattr(beside, "LONGEST_END", 120.0)


def test_a_window_holds_its_own_samples_only(tmp_path: Path) -> None:
    with Guard(program=made_up(tmp_path, SAMPLES), own=[4242]) as guard:
        while not guard.window(9, 9).samples:
            time.sleep(0.01)
        late = guard.window(5, 8)
        assert (late.samples, late.sm_mhz, late.power_watts, late.celsius) == (4, 1706.5, 600, 60)
        assert (late.throttled, late.other_processes) == (("power cap",), 0)
        seen = late.utilisation_mean, late.utilisation_p95, late.steal
        assert seen == pytest.approx((0.65, 0.785, 0.05))
        assert guard.window(3, 4).throttled == ("power cap", "heat, by hardware")
        assert guard.window(0, 9).throttled == ("power cap",), "a single sample of ten is no state of the block"
        assert guard.window(0, 5).other_processes == 1
        assert guard.window(5.2, 5.8) == Clocks()
        assert guard.cost == pytest.approx(0.001)


def test_numbers_of_another_namespace_are_taken_for_ours_first(tmp_path: Path) -> None:
    with Guard(program=made_up(tmp_path, SAMPLES), own=[1]) as guard:
        while not guard.window(9, 9).samples:
            time.sleep(0.01)
        assert guard.window(0, 4).other_processes == 1
        assert guard.window(5, 9).other_processes == 0


def test_the_real_sampler_reads_this_host_and_ends_with_the_guard() -> None:
    with Guard() as guard:
        begin = time.perf_counter()
        while not (clocks := guard.window(begin, end := time.perf_counter())).samples and end < begin + 120:
            time.sleep(0.05)
        assert 1 <= clocks.samples <= 10 * (end - begin) + 2, "ten a second"
        assert clocks.sm_mhz is None
        assert guard.note == ""
        process = guard._process
        assert process.poll() is None
    assert process.returncode == 0


def test_it_ends_when_whoever_started_it_is_gone() -> None:
    """A run that is killed must leave no sampler behind: its standard input ends with it."""
    read, write = os.pipe()
    process = subprocess.Popen([sys.executable, "-P", sampler.__file__, "", "0.1"], stdin=read, stdout=subprocess.PIPE)
    os.close(read)
    assert process.stdout is not None
    assert process.stdout.readline()
    os.close(write)
    assert process.wait(timeout=120) == 0
    process.stdout.close()


def test_a_gpu_without_nvml_is_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    gpu, note = sampler.open_gpu("GPU-1")
    assert gpu is None
    assert note == "Clocks, power and heat of the GPU are not known: `pip install nvidia-ml-py`."
    program = made_up(tmp_path, f"import json, sys\nprint(json.dumps({{'note': {note!r}}}), flush=True)\nsys.exit(3)")
    with Guard("1", program=program) as guard:
        assert guard.gpu == "GPU-1"
        guard._process.wait()
        assert guard.window(0, 1e9) == Clocks()
        assert guard.note.endswith("what reads them ended (exit code 3).")


def test_a_sampler_that_ends_gives_its_reason(tmp_path: Path) -> None:
    with Guard(program=made_up(tmp_path, "raise RuntimeError('no such clock')")) as guard:
        assert guard.window(0, 1e9) == Clocks()
        assert "RuntimeError: no such clock" in guard.note


class NVMLError(Exception):
    def __init__(self, text: str, value: int = 3) -> None:
        super().__init__(text)
        self.value = value


class Nvml(SimpleNamespace):
    """NVML of one GPU that cannot tell its power."""

    NVMLError = NVMLError
    NVML_ERROR_NOT_SUPPORTED = 3
    NVML_CLOCK_SM = NVML_TEMPERATURE_GPU = 0
    asked = 0

    def nvmlInit(self) -> None:
        pass

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid not in ("GPU-1", "MIG-3"):
            raise NVMLError("Not Found", 6)
        return uuid

    def nvmlDeviceGetClockInfo(self, handle: str, kind: int) -> int:
        return 1755

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
        self.asked += 1
        raise NVMLError("Not Supported")

    def nvmlDeviceGetTemperature(self, handle: str, kind: int) -> int:
        return 61

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> SimpleNamespace:
        return SimpleNamespace(gpu=97, memory=40)

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> SimpleNamespace:
        return SimpleNamespace(used=3 << 30, total=140 << 30)

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: str) -> int:
        return 0x4

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[SimpleNamespace]:
        return [SimpleNamespace(pid=7)]


def test_what_a_device_cannot_tell_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = Nvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    gpu, note = sampler.open_gpu("GPU-1")
    assert gpu is not None
    assert note == ""
    expected = {
        "sm_mhz": 1755,
        "celsius": 61,
        "utilisation": 0.97,
        "reasons": 0x4,
        "processes": [7],
        "memory_used": 3 << 30,
    }
    assert gpu.read() == gpu.read() == expected
    assert nvml.asked == 1
    assert json.loads(json.dumps(expected)) == expected
    assert sampler.open_gpu("GPU-2") == (None, "Clocks, power and heat of the GPU are not known: NVML says Not Found.")


def test_a_reading_that_fails_once_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Sometimes(Nvml):
        def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
            self.asked += 1
            if self.asked == 1:
                raise NVMLError("Timeout", 10)
            return 650_000

    monkeypatch.setitem(sys.modules, "pynvml", Sometimes())
    gpu, _ = sampler.open_gpu("GPU-1")
    assert gpu is not None
    assert [gpu.read().get("power_watts") for _ in range(2)] == [None, 650.0]


def test_a_part_of_a_gpu_is_found_by_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch gives the name without its prefix, and `Beside` takes it for a whole GPU's."""
    monkeypatch.setitem(sys.modules, "pynvml", Nvml())
    gpu, note = sampler.open_gpu("GPU-3")
    assert gpu is not None
    assert (gpu.handle, note) == ("MIG-3", "")


def test_sampler_and_guard_read_the_same_clock() -> None:
    """`time.perf_counter` of two processes can be compared where it is the host's monotonic clock."""
    if sys.platform == "linux":
        assert time.get_clock_info("perf_counter").implementation == time.get_clock_info("monotonic").implementation


def test_a_sample_that_is_late_ends_nothing() -> None:
    """Control: one that is early waits."""
    assert until(time.perf_counter() - 1) == 0.0
    assert 0 < until(time.perf_counter() + 60) <= 60

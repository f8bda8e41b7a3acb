"""Promise: a peak is that of exactly this device, with its source; any other device has none, and is told how to get one."""

from types import SimpleNamespace

import pytest
import torch

from dynotune.measure.peaks import KNOWN, Peak, peak_by_name, peak_of


def peak(name: str, multiprocessors: int) -> Peak:
    found = peak_by_name(name, multiprocessors)
    assert isinstance(found, Peak), found
    return found


def test_a_known_device_has_its_data_sheets_figure_and_names_the_source() -> None:
    found = peak("NVIDIA H200", 132)
    assert found.tflops == 989.5
    assert found.flops == 989.5e12
    assert "H200 data sheet" in found.source


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA H200 141GB",
        "H200",
        "nvidia h200",
        "NVIDIA H100 80GB HBM2e",
        "NVIDIA B300 SXM6 AC",
        "Tesla T4",
        "",
        "NVIDIA",
    ],
)
def test_a_name_that_is_not_exactly_known_has_no_peak_and_says_how_to_add_it(name: str) -> None:
    reason = peak_by_name(name, 132)
    assert isinstance(reason, str)
    assert f"`{name}`" in reason
    assert "device_peak_tflops" in reason


def test_a_slice_of_a_device_has_no_peak() -> None:
    """MIG slices have names of their own; where a driver gives the whole device's name, the multiprocessors tell."""
    assert isinstance(peak_by_name("NVIDIA H100 80GB HBM3 MIG 3g.40gb", 60), str)
    reason = peak_by_name("NVIDIA H100 80GB HBM3", 60)
    assert isinstance(reason, str)
    assert "60 multiprocessors" in reason


RATES = {512: ("GeForce", "A10G", "L40"), 1024: ("A40", "A10", "L40S", "L4", "A6000"), 4096: ("H100", "H200", "GH200")}
RATES |= {2048: ("A100", "A30", "MI300X"), 8192: ("B200", "GB200")}
"""Dense bf16 FLOPs a multiprocessor does in a clock, by words of the device's name."""


def clock_ghz(name: str, tflops: float, multiprocessors: int) -> float:
    """The clock at which the device would do this many FLOPs."""
    words = set(name.replace("-", " ").split())
    [rate] = [rate for rate, marks in RATES.items() if words & set(marks)]
    return tflops * 1e3 / multiprocessors / rate


@pytest.mark.parametrize("name", KNOWN)
def test_no_entry_is_sparse_or_halved(name: str) -> None:
    """The clock that follows from the figure is one that the device can run at; with sparsity it would be twice that."""
    known = KNOWN[name]
    clock = clock_ghz(name, known.tflops, known.multiprocessors)
    assert 1.35 < clock < 2.65, clock
    assert not 1.35 < clock * 2 < 2.65
    assert not 1.35 < clock / 2 < 2.65
    assert known.source


def test_the_cpu_has_none_and_a_users_own_figure_says_that_it_is_one() -> None:
    assert isinstance(peak_of(torch.device("cpu")), str)
    given = peak_of(torch.device("cpu"), 12.5)
    assert given == Peak(12.5, "given by you as `device_peak_tflops`")


def test_a_gpu_is_looked_up_by_what_pytorch_says_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    properties = SimpleNamespace(name="NVIDIA H200", multi_processor_count=132)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    assert peak_of(torch.device("cuda")) == peak("NVIDIA H200", 132)
    properties.name = "NVIDIA H300"
    assert isinstance(peak_of(torch.device("cuda")), str)
    assert peak_of(torch.device("cuda"), 1234.0) == Peak(1234.0, "given by you as `device_peak_tflops`")

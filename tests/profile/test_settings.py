"""Promise: floors are measured under the settings that the script ran under, and one that was beaten compares nothing."""

from pathlib import Path

import pytest
import torch

from dynotune.measure.calibration import Ceilings
from dynotune.model.product_settings import tf32_of, under
from dynotune.profile import command
from dynotune.profile.analysis.analyse import analyse
from dynotune.profile.records.record import Environment
from dynotune.profile.showing.shown import shown
from tests.profile.made import GEMM, PRODUCT, Step, record

CUDA, CPU = torch.device("cuda"), torch.device("cpu")


@pytest.mark.parametrize("tf32", [True, False])
def test_products_are_measured_as_the_script_had_them(tf32: bool) -> None:
    before = torch.backends.cuda.matmul.allow_tf32
    try:
        torch.backends.cuda.matmul.allow_tf32 = not tf32
        with under(CUDA, None, tf32):
            assert tf32_of(CUDA) is tf32
        assert tf32_of(CUDA) is not tf32
        with under(CUDA, None, None):  # not known
            assert tf32_of(CUDA) is not tf32
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    assert tf32_of(CPU) is None


def test_the_cpu_is_measured_with_the_scripts_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def measured(*_: object, **__: object) -> Ceilings:
        seen.append(torch.get_num_threads())
        return Ceilings({"float32": 1e12}, 1e12)

    monkeypatch.setattr(command, "ceilings_of", measured)
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        for threads in (2, 4, 0):  # this machine has three
            environment = Environment("cpu", threads=threads)
            command.finish(
                record(None, environment=environment, ceilings=Ceilings()),
                command.Options("x", out=tmp_path / str(threads)), lambda text: None,
            )  # fmt: skip
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)
    assert seen == [2, 1, 1]


def step(microseconds: int) -> Step:
    """Products of PRODUCT in bfloat16, whose floor is 10 * 2 * 4096**3 / 700e12 seconds: 1,963 microseconds."""
    made, each = Step(microseconds), microseconds // 10
    for i in range(10):
        made.kernel(GEMM, each * i, each * (i + 1), "aten::mm", PRODUCT)
    return made


def test_a_floor_that_was_beaten_is_said_to_be() -> None:
    fast = shown(analyse(record(step(1000))))
    assert "beaten" in [cell.text for row in fast.grid.rows for cell in row]
    assert "measured under other settings" in fast.bottleneck.text
    assert any("took less time than their floors" in line for line in fast.unknown)
    slow = shown(analyse(record(step(2500))))
    assert "1.27" in [cell.text for row in slow.grid.rows for cell in row]
    assert not any("took less time" in line for line in slow.unknown)

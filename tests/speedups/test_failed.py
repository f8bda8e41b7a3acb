"""Promise: what failed here is tried again with another version of what it depends on, and not otherwise."""

from pathlib import Path

import pytest
import torch

from dynotune.config.sft import SFTConfig
from dynotune.model.precision import Precision
from dynotune.speedups.contract import Context
from dynotune.speedups.failed import keep_failed
from dynotune.speedups.packages import accelerator, packages_of
from dynotune.speedups.registry import speedups
from dynotune.speedups.remembered import Remembered
from tests.speedups.upgraded import upgraded
from tests.tiny import tiny_model

OF = {
    "attention_fa3": ("flash-attn-3", "xformers", "nvidia-cuda-runtime-cu12"),
    "liger_rms_norm": ("liger-kernel",),
    "rms_norm_kernel": ("triton",),
    "prefetch": (),
}


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Context:
    monkeypatch.setenv("DYNOTUNE_CACHE", str(tmp_path))
    precision = Precision(torch.float32, False)
    return Context(SFTConfig(), tiny_model(), torch.device("cpu"), torch.float32, precision, longest=64)


@pytest.mark.parametrize("name", OF)
def test_it_is_tried_again_with_another_version_of_what_it_depends_on(name: str, context: Context) -> None:
    speedup = speedups()[name]
    assert packages_of(speedup) == OF[name]
    keep_failed(Remembered.here("cpu"), speedup, context, "its kernel was not seen")
    for package in (*OF[name], "transformers", "peft"):
        with upgraded(package):
            assert Remembered.here("cpu").refusal(speedup, context) is None, package
    assert Remembered.here("cpu").refusal(speedup, context) is not None
    others = {one for speedup in speedups().values() for one in packages_of(speedup)} - set(OF[name])
    for package in (*others, "rich"):
        with upgraded(package):
            assert Remembered.here("cpu").refusal(speedup, context) is not None, package


def test_every_speed_up_names_packages_that_there_are() -> None:
    for one in speedups().values():
        assert one.package is None or accelerator(one.package).name == one.package

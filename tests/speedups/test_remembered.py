"""Promise: what failed or was tried on a machine is known to the next run on it, and to no other machine or version."""

import dataclasses
import multiprocessing
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dynotune.config.dpo import DPOConfig
from dynotune.config.sft import SFTConfig
from dynotune.model.precision import Precision
from dynotune.speedups import machine as machine_module
from dynotune.speedups import remembered as module
from dynotune.speedups.contract import Context
from dynotune.speedups.machine import Machine, installed_as, machine_of
from dynotune.speedups.registry import speedups
from dynotune.speedups.remembered import Remembered, forget_everywhere, machines_folder
from tests.tiny import tiny_model

HERE = Machine("NVIDIA H200", "9.0", "580.95.05", "13.0", "2.11.0+cu130", "3.6.0", "3.12.3", "0.1.0")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DYNOTUNE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "machines"


def remembered(machine: Machine = HERE, said: list[str] | None = None) -> Remembered:
    return Remembered(machine, machines_folder(), (said if said is not None else []).append)


def context(config: Any, model: Any) -> Context:
    return Context(config, model, torch.device("cpu"), torch.float32, Precision(torch.float32, False), longest=64)


def test_what_one_run_keeps_the_next_one_knows() -> None:
    first = remembered()
    first.keep_failure("toy", "its kernel was seen at 27 of 28 layers", "toy_kernel x 27")
    first.keep_check("varlen", "head 128, bfloat16", {"works": True, "error": 0.25})
    first.keep_trial("liger-kernel", {"status": "works"})
    for one in (first, remembered()):
        failure = one.failure("toy")
        assert failure is not None
        assert (failure.reason, failure.evidence) == ("its kernel was seen at 27 of 28 layers", "toy_kernel x 27")
        assert failure.date > "2025"
        assert one.check("varlen", "head 128, bfloat16") == {"works": True, "error": 0.25}
        assert one.trial("liger-kernel") == {"status": "works"}
        assert one.failure("other") is one.check("varlen", "head 64") is None


def test_what_failed_in_one_kind_of_work_is_tried_in_another() -> None:
    """One model of a strange kind does not take a speed-up from all others; `--forget` still goes by the name."""
    from peft import LoraConfig, get_peft_model

    lora = context(DPOConfig(), get_peft_model(tiny_model(), LoraConfig(r=2, target_modules=["q_proj"])))
    assert lora.work == "dpo of LlamaForCausalLM under LORA"
    prefetch = speedups()["prefetch"]
    remembered().keep_failure("prefetch", "the feed ignored it", work=lora.work)
    no = remembered().refusal(prefetch, lora)
    assert no is not None
    assert "failed on this machine in dpo of LlamaForCausalLM under LORA on " in no.reason
    for other in (context(SFTConfig(), lora.model), context(DPOConfig(), tiny_model("qwen2"))):
        assert remembered().refusal(prefetch, other) is None
    assert len(remembered().forget("prefetch")) == 1
    assert remembered().refusal(prefetch, lora) is None


@pytest.mark.parametrize("changed", [one.name for one in dataclasses.fields(Machine)])
def test_another_machine_or_version_knows_nothing_of_it(changed: str) -> None:
    remembered().keep_failure("toy", "it failed")
    other = dataclasses.replace(HERE, **{changed: "another"})
    assert remembered(other).failure("toy") is None
    assert remembered().failure("toy") is not None


def test_another_build_of_a_package_makes_it_void(monkeypatch: pytest.MonkeyPatch) -> None:
    remembered().keep_trial("rich", {"status": "works"}, ["rich"])
    remembered().keep_trial("none-such-package", {"status": "not installed"}, ["none-such-package"])
    assert remembered().trial("rich") == {"status": "works"}
    assert remembered().trial("none-such-package") is not None
    monkeypatch.setattr(module, "installed_as", lambda name: "1.0 (other)")
    assert remembered().trial("rich") is remembered().trial("none-such-package") is None


def test_installed_as_says_version_and_build() -> None:
    from importlib.metadata import version

    assert (installed_as("rich") or "").startswith(f"{version('rich')} (")
    assert installed_as("none-such-package") is None


def test_forgetting_one_name_leaves_the_others() -> None:
    one = remembered()
    one.keep_failure("toy", "no kernel")
    one.keep_check("toy", "shape", {})
    one.keep_failure("toys", "none either")
    assert len(one.forget("toy")) == 2
    for each in (one, remembered()):
        assert each.failure("toy") is each.check("toy", "shape") is None
        assert each.failure("toys") is not None
    assert len(remembered().forget()) == 1
    assert remembered().failure("toys") is None


def test_forgetting_everywhere_reaches_every_machine() -> None:
    other = dataclasses.replace(HERE, device="NVIDIA L40S")
    for machine in (HERE, other):
        remembered(machine).keep_failure("toy", "no kernel")
    lines = forget_everywhere(["toy"], lambda text: None)
    assert [("H200" in line, "no kernel" in line) for line in sorted(lines)] == [(True, True), (False, True)]
    assert remembered().failure("toy") is remembered(other).failure("toy") is None
    assert forget_everywhere([], lambda text: None) == []


def test_what_failed_here_is_refused_with_how_to_have_it_tried_again() -> None:
    one = remembered()
    toy, here = type("Toy", (), {"name": "toy"})(), context(SFTConfig(), tiny_model())
    assert one.refusal(toy, here) is None
    one.keep_failure("toy", "its kernel was not seen")
    no = one.refusal(toy, here)
    assert no is not None
    assert "its kernel was not seen" in no.reason
    assert "dynotune engaged --forget toy" in no.remedy


@given(st.binary(max_size=200), st.integers(0, 400))
def test_a_damaged_file_is_said_once_and_begun_anew(noise: bytes, cut: int) -> None:
    said: list[str] = []
    remembered().keep_failure("toy", "no kernel")
    path = machines_folder() / f"{HERE.key}.json"
    path.write_bytes(path.read_bytes()[: -1 - cut] + noise)
    assert remembered(said=said).failure("toy") is None
    assert len(said) == 1
    assert "damaged" in said[0]
    remembered(said=said).keep_failure("toy", "anew")
    found = remembered(said=said).failure("toy")
    assert found is not None
    assert found.reason == "anew"
    assert len(said) == 1


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"null", b'{"format": 2}', b'{"format": 1}', b"[" * 10000]
    + [
        b'{"format": 1, "trials": {}, "checks": {}, "effects": {}, "failures": {"a": %s}}' % entry
        for entry in (b"1", b"{}", b'{"value": 1, "date": ""}', b'{"value": {"reason": "x"}, "date": 1}')
    ],
)
def test_what_is_no_file_of_ours_is_damaged(text: bytes, cache: Path) -> None:
    said: list[str] = []
    cache.mkdir(parents=True)
    (cache / f"{HERE.key}.json").write_bytes(text)
    assert remembered(said=said).failure("a") is None
    assert len(said) == 1


def test_where_nothing_can_be_written_this_process_alone_knows_and_it_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    said: list[str] = []
    one = remembered(said=said)
    one.keep_failure("toy", "no kernel")
    one.keep_failure("other", "no kernel")
    assert one.failure("toy") is not None
    assert one.failure("other") is not None
    assert len(said) == 1
    assert "DYNOTUNE_CACHE" in said[0]
    assert remembered(said=said).failure("toy") is None


def test_a_lock_that_is_never_given_back_costs_seconds_and_no_run(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    from filelock import FileLock

    monkeypatch.setattr(module, "LOCK_SECONDS", 0.05)
    cache.mkdir(parents=True)
    said: list[str] = []
    with FileLock(cache / f"{HERE.key}.lock"):
        one = remembered(said=said)
        one.keep_failure("toy", "no kernel")
    assert one.failure("toy") is not None
    assert "lock" in said[0]


def test_the_oldest_entries_go_where_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 3)
    one = remembered()
    for day in range(1, 6):
        one.keep_check("toy", f"shape {day}", {})
    assert [remembered().check("toy", f"shape {day}") is not None for day in range(1, 6)] == [False] * 2 + [True] * 3


def _keep(number: int) -> None:
    one = remembered()
    for i in range(5):
        one.keep_failure(f"toy_{number}_{i}", "x" * 1000)


def test_processes_that_write_at_the_same_time_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOCK_SECONDS", 300)
    with multiprocessing.get_context("fork").Pool(4) as pool:
        pool.map(_keep, range(4))
    one = remembered()
    assert all(one.failure(f"toy_{number}_{i}") is not None for number in range(4) for i in range(5))
    assert not [path for path in machines_folder().iterdir() if path.suffix not in (".json", ".lock")]


def test_this_machine_says_what_it_computes_with(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import torch

    here = machine_of("cpu")
    assert here.torch == torch.__version__
    assert (here.capability, here.driver) == ("", "")
    assert here.key == machine_of(torch.device("cpu")).key
    version = tmp_path / "version"
    version.write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\nGCC 12.3.0 \n"
    )
    monkeypatch.setattr(machine_module, "_DRIVER", version)
    assert machine_module._driver() == "580.95.05"

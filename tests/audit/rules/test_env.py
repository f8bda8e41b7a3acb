"""Promise: rules on the machine say what was tried and how it failed, and are silent where nothing was."""

from typing import Any

import pytest

from dynotune.audit.facts.environment import Environment, Package
from dynotune.audit.facts.launch import Launch
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.setting import Setting
from dynotune.audit.finding import AtStake
from dynotune.audit.place import NOWHERE, Place
from tests.audit.rules.facts import UNKNOWN, Default, a_job, a_machine, findings


def test_packages_that_do_not_work() -> None:
    broken = Package("liger-kernel", "0.8.5", False, "does not work here: RuntimeError: no kernel image")
    (found,) = findings("ENV001", a_machine(packages={"liger-kernel": broken}))
    assert "no kernel image" in found.message
    assert found.stake.what is AtStake.TIME
    (found,) = findings("ENV001", a_machine(packages={"trl": Package("trl", "1.16", False, "import failed: X")}))
    assert found.stake.what is AtStake.STOPS
    for package in (Package("x", "1", True), Package("x", "1"), Package("x", None)):
        assert not findings("ENV001", a_machine(packages={"x": package}))
    assert findings("ENV001", a_machine(machine={"failure": "ended by signal 11"}))


def without_gpu(**machine: Any) -> Environment:
    torch = {"version": "2.11.0", "cuda": "13.0", "hip": None}
    return Environment({}, [], {"driver": {"version": "535.104"}, "torch": torch} | machine)


def test_a_driver_without_gpus() -> None:
    (found,) = findings("ENV001", without_gpu())
    assert "older than the 580" in found.message
    (found,) = findings("ENV001", without_gpu(torch={"version": "2.11.0+cpu", "cuda": None}))
    assert "without CUDA" in found.message
    (found,) = findings("ENV001", without_gpu(driver={"version": "590.1"}))
    assert "finds none" in found.message
    for machine in (without_gpu(driver=None), a_machine(), without_gpu(torch={"hip": "6.0", "cuda": None})):
        assert not findings("ENV001", machine)


def holding(*memory: int | None) -> Environment:
    others = [{"pid": 7 + n, "memory": held} for n, held in enumerate(memory)]
    return a_machine(machine={"driver": {"version": "590.1", "other_processes": others}})


def test_others_on_the_gpu() -> None:
    (found,) = findings("ENV003", holding(20 << 30))
    assert "1 other process (7) holds 20.0 GiB" in found.message
    for machine in (holding(), holding(200 << 20), holding(None)):
        assert not findings("ENV003", machine)


def test_versions_that_do_not_fit() -> None:
    one = {"package": "unsloth", "version": "2026.10.9", "wants": "trl<=1.15.0", "there": "1.16.0"}
    (found,) = findings("ENV004", a_machine(machine={"conflicts": [one]}))
    assert "trl<=1.15.0" in found.message
    assert not findings("ENV004", a_machine())


def launch(**variables: str) -> Launch:
    there = {name: Setting(name, value, Place("run.sh", 1, key=name)) for name, value in variables.items()}
    return Launch("run.sh", Place("run.sh", 2), ["x"], "x", variables=there)


def test_variables_for_debugging() -> None:
    project = Project(".", launches=[launch(CUDA_LAUNCH_BLOCKING="1", TORCH_DISTRIBUTED_DEBUG="DETAIL")])
    assert len(findings("ENV005", project)) == 2
    here = a_machine(variables={"NCCL_P2P_DISABLE": "1"})
    (found,) = findings("ENV005", Project(".", environment=here))
    assert found.place == NOWHERE
    for name, value in (("CUDA_LAUNCH_BLOCKING", "0"), ("NCCL_DEBUG", "INFO"), ("TORCH_DISTRIBUTED_DEBUG", "INFO")):
        assert not findings("ENV005", Project(".", launches=[launch(**{name: value})]))


def test_a_variable_is_said_once() -> None:
    one = launch(CUDA_LAUNCH_BLOCKING="1")
    job = a_job(environment=dict(one.variables))
    assert len(findings("ENV005", Project(".", [job, job], launches=[one]))) == 1


def test_workers_of_none() -> None:
    assert findings("CFG013", a_job(dataloader_num_workers=Default(0), dataloader_prefetch_factor=4))
    assert findings("CFG013", a_job(dataloader_num_workers=0, dataloader_persistent_workers=True))
    for values in (
        {"dataloader_num_workers": 2, "dataloader_prefetch_factor": 4},
        {"dataloader_num_workers": 0, "dataloader_prefetch_factor": Default(None)},
        {"dataloader_num_workers": UNKNOWN, "dataloader_prefetch_factor": 4},
        {"dataloader_num_workers": 0, "dataloader_persistent_workers": False},
    ):
        assert not findings("CFG013", a_job(**values))


@pytest.mark.parametrize(
    ("machine", "values", "says"),
    [
        (a_machine(), {"dataloader_num_workers": 32}, "32 loader workers share 16 cores"),
        (a_machine(), {"dataloader_num_workers": 8, "num_processes": 4}, "each of 4 processes"),
        (a_machine(wsl=True), {"dataloader_num_workers": 4}, "under WSL"),
        (a_machine(), {"dataloader_num_workers": 8}, ""),
        (a_machine(wsl=True), {"dataloader_num_workers": 0}, ""),
        (a_machine(), {"dataloader_num_workers": UNKNOWN}, ""),
        (a_machine(machine={}), {"dataloader_num_workers": 99}, ""),
    ],
)
def test_workers_and_cores(machine: Any, values: dict[str, Any], says: str) -> None:
    found = findings("HST051", machine, Project(".", [a_job(**values)], environment=machine))
    assert says in found[0].message if says else not found


def test_a_log_of_every_step() -> None:
    small: dict[str, Any] = {"model_name_or_path": "HuggingFaceTB/SmolLM2-135M", "logging_steps": 1}
    assert findings("HST052", a_job(**small))
    for other in (
        {"logging_steps": 10},
        {"logging_steps": Default(1)},
        {"max_steps": 100},
        {"model_name_or_path": "Qwen/Qwen2.5-7B"},
        {"model_name_or_path": "mine"},
        {"logging_strategy": "epoch"},
        {"use_cpu": True},
    ):
        assert not findings("HST052", a_job(**small | other))


def test_a_windows_drive() -> None:
    drive = {"working_folder": "9p, a file system of another machine, as Windows' drives are under WSL"}
    (found,) = findings("ENV006", a_machine(machine=drive, wsl=True))
    assert "9p" in found.message
    for machine in (
        a_machine(machine=drive),
        a_machine(machine={"working_folder": None}, wsl=True),
        a_machine(wsl=True),
    ):
        assert not findings("ENV006", machine)

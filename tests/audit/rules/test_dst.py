"""Promise: rules on several devices speak of what the launcher and the machine are known to be."""

from pathlib import Path

import pytest

from dynotune.audit.facts.launch import Launch
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.setting import Setting
from dynotune.audit.place import Place
from tests.audit.made_up import audited
from tests.audit.rules.facts import UNKNOWN, Default, a_job, a_machine, findings, not_checked


def test_a_model_spread_in_each_process() -> None:
    (found,) = findings("DST001", a_job(device_map="auto", num_processes=4))
    assert found.remedy.changes[0].name == "device_map"
    (found,) = findings("DST001", a_job(device_map={"": 0}, num_processes=4))
    assert "first GPU in each of the 4" in found.message
    for values in (
        {"device_map": "auto"},
        {"device_map": "auto", "num_processes": 1},
        {"device_map": "auto", "num_processes": UNKNOWN},
        {"device_map": Default("auto"), "num_processes": 4},
        {"device_map": {"": 0}, "num_processes": 1},
        {"device_map": {"": 3}, "num_processes": 4},
    ):
        assert not findings("DST001", a_job(**values))


def test_a_search_for_unused_parameters() -> None:
    dense = {"model_name_or_path": "Qwen/Qwen2.5-7B"}
    assert findings("DST002", a_job(**dense, ddp_find_unused_parameters=True))
    assert not findings("DST002", a_job(model_name_or_path="Qwen/Qwen3-30B-A3B", ddp_find_unused_parameters=True))
    for values in (
        {"ddp_find_unused_parameters": True, "num_processes": 1},
        {"ddp_find_unused_parameters": False, "num_processes": 4},
        {"ddp_find_unused_parameters": UNKNOWN},
    ):
        assert not findings("DST002", a_job(**dense, **values))


def launched(program: str = "train.py", launcher: str = "", **variables: str) -> Project:
    there = {name: Setting(name, value, Place("run.sh", 1)) for name, value in variables.items()}
    one = Launch(
        "run.sh", Place("run.sh", 2), ["python", program], program, "train.py", launcher=launcher, variables=there
    )
    return Project(".", [a_job(file="train.py", learning_rate=1e-4)], launches=[one])


def test_one_of_several_gpus() -> None:
    four = a_machine(gpus=4)
    (found,) = findings("DST004", four, launched())
    assert "4 GPUs" in found.message
    for machine, project in (
        (a_machine(gpus=1), launched()),
        (four, launched(launcher="torchrun")),
        (four, launched(CUDA_VISIBLE_DEVICES="0")),
        (four, Project(".", [a_job(file="train.py")])),
    ):
        assert not findings("DST004", machine, project)
    assert "--env" in not_checked("DST004", launched())[0].why
    assert not not_checked("DST004", launched(launcher="torchrun"))


SFT = "model_name_or_path: Qwen/Qwen2.5-7B\ndataset_name: data.jsonl\nmax_length: 2048\n"
ACCELERATE = "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_machines: {}\nnum_processes: 8\n"
MAKE = "all: sft\n\nsft: prepare\n\taccelerate launch --config_file acc.yaml -m trl.scripts.sft --config sft.yaml\n"
MAKE += "\nprepare:\n\techo\n\nbig:\n\ttorchrun --nproc_per_node 16 -m trl.scripts.sft --config sft.yaml\n"


def said(folder: Path, asks: str, runs: str, machines: int = 1, more: str = "") -> list[str]:
    files = {
        "sft.yaml": SFT,
        "acc.yaml": ACCELERATE.format(machines),
        "Makefile": MAKE,
        "go.sh": "torchrun --nproc_per_node 8 -m trl.scripts.sft --config sft.yaml\n",
        "job.sbatch": f"#!/bin/bash\n#SBATCH --nodes={machines}\n#SBATCH {asks}\n{runs}\n",
        "submit.sh": more + "\n",
    }
    return [str(one.place.file) for one in audited(folder, files).findings if one.code == "DST005"]


@pytest.mark.parametrize(
    ("asks", "runs", "file"),
    [
        ("--gres=gpu:4", "srun make sft", "acc.yaml"),
        ("--gres=gpu:a100:4", "make", "acc.yaml"),
        ("--gpus-per-node=4", "make -j1 all", "acc.yaml"),
        ("--gpus 4", "bash go.sh", "go.sh"),
        ("-G 4", "./go.sh", "go.sh"),
        ("--gres gpu:4,disk:1", "deepspeed --num_gpus 8 train.py", "job.sbatch"),
    ],
)
def test_more_processes_than_gpus(tmp_path: Path, asks: str, runs: str, file: str) -> None:
    assert said(tmp_path, asks, runs) == [file]


def test_as_many_processes_as_gpus_or_not_known(tmp_path: Path) -> None:
    for number, (asks, runs, machines, more) in enumerate(
        (
            ("--gres=gpu:8", "make sft", 1, ""),
            ("--gres=gpu:4", "make sft", 2, ""),
            ("--gres=gpu:4", "make prepare", 1, ""),
            ("--gres=gpu:8", "make sft", 1, ""),
            ("--gres=$GPUS", "make sft", 1, ""),
            ("--mem=4G", "make sft", 1, ""),
            ("--gres=gpu:4", "make sft", 1, "sbatch --gres=gpu:8 job.sbatch"),
            ("--gres=gpu:4", "srun torchrun --nproc_per_node $N -m trl.scripts.sft --config sft.yaml", 1, ""),
            ("--gres=gpu:4", "python eval.py", 1, ""),
        )
    ):
        assert not said(tmp_path / str(number), asks, runs, machines, more)


INSTANTIATED = {
    "train.py": "import hydra\nfrom hydra.utils import instantiate\nfrom transformers import AutoModelForCausalLM, Trainer\n"
    "@hydra.main(config_path='conf', config_name='config', version_base=None)\n"
    "def main(cfg):\n    model = AutoModelForCausalLM.from_pretrained(cfg.model.name)\n"
    "    Trainer(model=model, args=instantiate(cfg.train)).train()\n",
    "conf/config.yaml": "defaults:\n  - model: qwen\n  - _self_\ntrain:\n  _target_: transformers.TrainingArguments\n"
    "  output_dir: out\n  ddp_find_unused_parameters: true\n",
    "conf/model/qwen.yaml": "name: Qwen/Qwen2.5-1.5B\n",
    "conf/model/moe.yaml": "name: Qwen/Qwen3-30B-A3B\n",
}


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({}, 1),
        ({"conf/config.yaml": INSTANTIATED["conf/config.yaml"].replace("model: qwen", "model: moe")}, 0),
        ({"run.sh": "torchrun --nproc_per_node 4 train.py train.ddp_find_unused_parameters=false\n"}, 0),
        ({"run.sh": "torchrun --nproc_per_node 4 train.py train.output_dir=b\n"}, 1),
    ],
)
def test_arguments_that_hydra_makes(tmp_path: Path, changes: dict[str, str], count: int) -> None:
    """The model stands in a group's file, the arguments in a node with `_target_`, and a command may replace both."""
    found = [one for one in audited(tmp_path, INSTANTIATED | changes).findings if one.code == "DST002"]
    assert [one.place.file for one in found] in ([], ["conf/config.yaml"])
    assert len(found) == count

"""Promise: a folder becomes one project, each training described once, with what was left out named."""

import os
from pathlib import Path

import pytest

from dynotune.audit.facts.job import Job, Method, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.read.project import MAX_BYTES, read_project
from dynotune.audit.schema import Schemas
from dynotune.audit.schema.beside import versions_asked

SFT = "model_name_or_path: a/b\ndataset_name: d.jsonl\nlearning_rate: 1e-5\n"
AXOLOTL = "base_model: a/b\ndatasets: [{path: x}]\nmicro_batch_size: 2\nsequence_len: 2048\n"


def project(folder: Path, files: dict[str, str | bytes], *only: str) -> Project:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_project(folder, only=[folder / name for name in only], schemas=Schemas.of())


def only(found: Project) -> Job:
    (job,) = found.jobs
    return job


def test_launcher_script_and_configuration_are_one_job(tmp_path: Path) -> None:
    found = only(
        project(
            tmp_path, {"sft.yaml": SFT, "run.sh": "trl sft --config sft.yaml --learning_rate 3e-5 --num_processes 4\n"}
        )
    )
    assert (found.trainer, found.method) == (Trainer.TRL, Method.SFT)
    assert found.get("learning_rate") == 3e-5
    assert found.place("learning_rate").file == "run.sh"
    assert found.place("dataset_name").file == "sft.yaml"
    assert (found.get("num_processes"), found.get("distributed_type")) == (4, "MULTI_GPU")
    assert found.files == ("run.sh", "sft.yaml")
    assert found.home.file == "sft.yaml"


def test_a_configuration_is_what_its_command_says(tmp_path: Path) -> None:
    found = only(project(tmp_path, {"c.yaml": SFT, "run.sh": "dynotune dpo --config c.yaml\n"}))
    assert (found.trainer, found.method) == (Trainer.DYNOTUNE, Method.DPO)


def test_a_configuration_that_nobody_names_is_a_job_of_its_own(tmp_path: Path) -> None:
    found = project(tmp_path, {"sft.yaml": SFT, "other.yaml": SFT, "run.sh": "trl sft --config sft.yaml\n"})
    assert [job.files for job in found.jobs] == [("run.sh", "sft.yaml"), ("other.yaml",)]


def test_accelerates_file_and_torchruns_flags(tmp_path: Path) -> None:
    accelerate = (
        "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nmixed_precision: 'no'\nnum_machines: 2\n"
        "num_processes: 16\nfsdp_config:\n  fsdp_version: 2\n"
    )
    files: dict[str, str | bytes] = {
        "ax.yml": AXOLOTL,
        "acc.yaml": accelerate,
        "run.sh": "accelerate launch --config_file acc.yaml -m axolotl.cli.train ax.yml --learning-rate 1e-4\n",
    }
    found = only(project(tmp_path, files))
    expected = {
        "distributed_type": "FSDP",
        "num_processes": 16,
        "mixed_precision": "no",
        "fsdp_version": 2,
        "learning_rate": 1e-4,
    }
    assert {name: found.get(name) for name in expected} == expected
    assert found.place("num_processes").file == "acc.yaml"
    files["run.sh"] = "accelerate launch --config_file acc.yaml --num_processes 2 -m axolotl.cli.train ax.yml\n"
    assert only(project(tmp_path, files)).get("num_processes") == 2
    files["run.sh"] = "torchrun --nnodes 2 --nproc_per_node 8 -m axolotl.cli.train ax.yml\n"
    del files["acc.yaml"]
    (tmp_path / "acc.yaml").unlink()
    assert only(project(tmp_path, files)).get("num_processes") == 16


def test_a_deepspeed_file_is_folded_in(tmp_path: Path) -> None:
    stage = '{"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}, "bf16": {"enabled": "auto"}}'
    found = only(project(tmp_path, {"sft.yaml": SFT + "deepspeed: conf/ds.json\n", "conf/ds.json": stage}))
    expected = {"zero_stage": 3, "offload_optimizer_device": "cpu", "distributed_type": "DEEPSPEED"}
    assert {name: found.get(name) for name in expected} == expected
    assert found.place("zero_stage").file == "conf/ds.json"


def test_what_is_left_out_is_named(tmp_path: Path) -> None:
    found = project(
        tmp_path,
        {
            "a.yaml": SFT,
            "broken.yaml": "a: [1\n",
            "huge.json": b" " * (MAX_BYTES + 1),
            "binary.yaml": b"\x00\x01",
            "latin.yaml": b"a: \xe9\n",
            "wide.yaml": "a: 1\n".encode("utf-16"),
            "venv/pyvenv.cfg": "",
            "venv/lib/x.yaml": SFT,
            ".git/config.yaml": SFT,
            "data.jsonl": "{}",
        },
    )
    assert {one.place.file for one in found.not_read} == {
        "broken.yaml",
        "huge.json",
        "binary.yaml",
        "latin.yaml",
        "venv",
    }
    assert all(one.why for one in found.not_read)
    assert {config.file for config in found.configs} == {"a.yaml", "wide.yaml"}
    assert found.texts["a.yaml"] == SFT


def test_named_files_alone_are_read(tmp_path: Path) -> None:
    found = project(tmp_path, {"a.yaml": SFT, "b.yaml": SFT}, "b.yaml")
    assert [config.file for config in found.configs] == ["b.yaml"]


def test_a_job_file_without_suffix_is_known_by_its_first_line(tmp_path: Path) -> None:
    found = project(
        tmp_path, {"launch": "#!/usr/bin/env bash\ntrl sft --config sft.yaml\n", "sft.yaml": SFT, "NOTES": "x"}
    )
    assert [launch.file for launch in found.launches] == ["launch"]


SCRIPT = """
import argparse
from trl import SFTConfig, SFTTrainer

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=1e-5)
parser.add_argument("--bs", type=int, default=4)
args = parser.parse_args()
config = SFTConfig(output_dir="out", learning_rate=args.lr, per_device_train_batch_size=args.bs * 2, max_length=512)
trainer = SFTTrainer(model="Qwen/Qwen2.5-0.5B", args=config)
trainer.train()
"""


def test_a_commands_flags_reach_the_scripts_settings(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "train.py": SCRIPT,
        "run.sh": "torchrun --nproc_per_node 4 train.py --lr 3e-4 --bs 8\n",
    }
    found = only(project(tmp_path, files))
    assert found.trainer is Trainer.TRL
    assert found.get("learning_rate") == 3e-4
    assert found.place("learning_rate").file == "run.sh"
    assert found.get("max_length") == 512
    assert found.get("per_device_train_batch_size") == 16  # worked out from the flag
    assert (found.get("num_processes"), found.get("distributed_type")) == (4, "MULTI_GPU")
    assert set(found.files) == {"run.sh", "train.py"}


PARSED = """
from trl import ModelConfig, ScriptArguments, SFTConfig, SFTTrainer, TrlParser

parser = TrlParser((ScriptArguments, SFTConfig, ModelConfig))
script_args, training_args, model_args = parser.parse_args_and_config()
trainer = SFTTrainer(model=model_args.model_name_or_path, args=training_args)
trainer.train()
"""


def test_a_parser_of_dataclasses_takes_the_configuration_that_the_command_names(tmp_path: Path) -> None:
    command = "accelerate launch --num_processes 2 train.py --config sft.yaml --max_length 99\n"
    found = only(project(tmp_path, {"train.py": PARSED, "sft.yaml": SFT, "run.sh": command}))
    assert (found.trainer, found.method) == (Trainer.TRL, Method.SFT)
    assert found.get("learning_rate") == 1e-5
    assert found.place("learning_rate").file == "sft.yaml"
    assert found.get("max_length") == 99
    assert found.get("num_processes") == 2
    assert set(found.files) == {"run.sh", "train.py", "sft.yaml"}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with names")
@pytest.mark.parametrize("name", ["train.py", "run.sh", "setup.py", "requirements.txt", "launch", "pyproject.toml"])
def test_a_pipe_is_left_out_and_nobody_waits_for_it(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    found = project(tmp_path, {"sft.yaml": SFT})
    assert len(found.jobs) == 1
    said = {one.place.file: one.why for one in found.not_read}
    assert set(said) == ({name} if name in ("train.py", "run.sh", "setup.py", "pyproject.toml") else set())
    assert all("no regular file" in why for why in said.values())
    assert ["no regular file" in one.why for one in project(tmp_path, {}, name).not_read] == [True]


def test_links_out_of_the_project_are_not_followed(tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    project(
        there, {"sft.yaml": SFT, "requirements.txt": "trl==0.9.0", "trl/trainer/sft_config.py": "", "x/a.yaml": SFT}
    )
    here.mkdir()
    for name, target in (
        ("linked.yaml", there / "sft.yaml"),
        ("requirements.txt", there / "requirements.txt"),
        ("launch", there / "sft.yaml"),
        ("x", there / "x"),
        ("inner.yaml", here / "own.yaml"),
    ):
        (here / name).symlink_to(target)
    found = project(here, {"own.yaml": SFT})
    assert {config.file for config in found.configs} == {"own.yaml", "inner.yaml"}
    assert {one.place.file for one in found.not_read} == {"linked.yaml", "x"}
    assert all("link to outside" in one.why for one in found.not_read)
    assert versions_asked(here) == {}
    assert versions_asked(there) == {"trl": "0.9.0"}
    assert [config.file for config in project(here, {}, "linked.yaml").configs] == ["linked.yaml"]


def test_deepspeeds_json_is_read_under_another_ending(tmp_path: Path) -> None:
    """A control: another program's `.conf` is none of ours, and is not called unreadable."""
    files = {"zero.conf": '{"zero_optimization": {"stage": 3}}\n', "nginx.conf": "server { listen 80; }\n"}
    found = project(tmp_path, files)
    assert [(one.file, one.kind) for one in found.configs] == [("zero.conf", "deepspeed")]
    assert not found.not_read


@pytest.mark.parametrize("package", ["lightning", "lightning.pytorch", "pytorch_lightning"])
def test_a_trainer_of_lightning_is_said_not_to_be_read(tmp_path: Path, package: str) -> None:
    (lost,) = project(
        tmp_path, {"train.py": f"import {package} as pl\n\npl.Trainer(max_epochs=3).fit(model)\n"}
    ).not_read
    assert lost.place.line == 3
    assert "Lightning" in lost.why
    assert not project(tmp_path, {"train.py": "from transformers import Trainer\n\nTrainer(model).train()\n"}).not_read

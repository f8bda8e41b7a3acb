"""Promise: what a document or a comment claims is compared with what the jobs have, and only where it speaks of them."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

SFT = (
    "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: d.jsonl\nmax_length: 2048\nnum_train_epochs: 2\nuse_peft: true\n"
    "lora_r: 16\nlora_alpha: 32\nlearning_rate: 1.0e-4\nlora_target_modules: all-linear\ndtype: bfloat16\n"
    "per_device_train_batch_size: 4\ngradient_accumulation_steps: 4\nload_in_4bit: false\nlr_scheduler_type: cosine\n"
    "warmup_ratio: 0.03\npacking: false\ngradient_checkpointing: false\nseed: 7\n"
)
RUN = "accelerate launch --num_processes 8 -m trl.scripts.sft --config sft.yaml\n"


def said(folder: Path, **files: str) -> list[str]:
    every = {"sft.yaml": SFT, "run.sh": RUN, **{name.replace("__", "."): text for name, text in files.items()}}
    return [str(one.place) for one in audited(folder, every, select=("CFG011",)).findings]


WRONG = [
    "LoRA with rank 64 on every linear layer.",
    "LoRA, r=64.",
    "Rank-64 LoRA adapters.",
    "Sequence length 8192.",
    "Max sequence length: 8k.",
    "We train for 3 epochs.",
    "Trained for three epochs with a learning rate of 1e-4.",
    "The learning rate is 2e-4.",
    "A linear schedule, 3% warm-up.",
    "Cosine decay and 10% warmup.",
    "Packed rows of 2048 tokens.",
    "Training uses gradient checkpointing.",
    "QLoRA training on one node.",
    "Full fine-tuning of the 0.5B model.",
    "Global batch size 64.",
    "seed 42",
]
RIGHT = [
    "LoRA with rank 16, alpha 32.",
    "Context 2k, two epochs of training at lr 1e-4.",
    "Train for 2 epochs; 3 epochs overfit.",
    "Rank 64 LoRA was no better.",
    "You can try LoRA rank 64.",
    "The paper trains for 3 epochs.",
    "Training without packing.",
    "Gradient checkpointing is only needed on smaller cards, use gradient checkpointing there.",
    "A cosine schedule with 3% warm-up.",
    "Global batch size 128.",
    "```\ntrl sft --config other.yaml  # rank 64 LoRA\n```",
    "Answers have a length of 300 tokens.",
    "An epoch takes 3 hours.",
]


@pytest.mark.parametrize("text", WRONG)
def test_a_claim_that_no_job_meets(tmp_path: Path, text: str) -> None:
    assert said(tmp_path, README__md=f"# Model\n\n{text}\n") == ["README.md:3"]


@pytest.mark.parametrize("text", RIGHT)
def test_what_is_so_or_speaks_of_something_else(tmp_path: Path, text: str) -> None:
    assert not said(tmp_path, README__md=f"# Model\n\n{text}\n")


def test_a_claim_that_one_of_several_jobs_meets(tmp_path: Path) -> None:
    other = SFT.replace("lora_r: 16", "lora_r: 64")
    text = "LoRA of rank 64.\n"
    assert not said(tmp_path / "met", README__md=text, big__yaml=other, big__sh=RUN.replace("sft.yaml", "big.yaml"))
    assert said(tmp_path / "not", README__md=text.replace("64", "8"), big__yaml=other)


def test_comments_count_at_the_head_and_beside_the_key(tmp_path: Path) -> None:
    head = SFT.replace("model_name", "# LoRA of rank 64, two epochs of training\nmodel_name", 1)
    assert said(tmp_path / "head", sft__yaml=head) == ["sft.yaml:1"]
    assert said(tmp_path / "beside", sft__yaml=SFT.replace("lora_r: 16", "lora_r: 16  # LoRA rank 64"))
    far = SFT + "# LoRA rank 64\n"
    assert not said(tmp_path / "far", sft__yaml=far)
    assert not said(tmp_path / "log", CHANGELOG__md="LoRA of rank 64.\n")


TRAINER = (
    "from transformers import Trainer, TrainingArguments\n{}args = TrainingArguments(output_dir='o', bf16=True)\n"
    "Trainer(model=m, args=args, train_dataset=rows).train()\n"
)


@pytest.mark.parametrize(
    ("text", "before", "wrong"),
    [
        ("Several tickets are packed into each row, so nearly no compute is lost.", "", True),
        ("* conversations are packed to 2048 tokens", "", True),
        ("Training uses packing.", "", True),
        ("Pairs are packed into rows.", "rows = pack(rows, 2048)\n", False),
        ("Pairs are packed into rows.", "rows = list(chain(*rows))\n", False),
        ("Pairs are packed into rows.", "from .data import made\n", False),  # a file that is not here
        ("Tickets are not packed.", "", False),
    ],
)
def test_packing_that_a_program_of_ones_own_may_do(tmp_path: Path, text: str, before: str, wrong: bool) -> None:
    files = {"README.md": f"# x\n\n{text}\n", "train.py": TRAINER.format(before), "run.sh": "python train.py\n"}
    assert bool(audited(tmp_path, files, select=("CFG011",)).findings) is wrong


AXOLOTL = (
    "base_model: a/b\ndatasets:\n  - path: x/y\n    type: alpaca\nsequence_len: 2048\nsample_packing: {}\n"
    "# global batch of 64\nmicro_batch_size: 4\ngradient_accumulation_steps: {}\n"
)


@pytest.mark.parametrize(
    ("packing", "accumulated", "asked", "wrong"),
    [
        ("true", 8, "--gres=gpu:h100:4", True),
        ("false", 8, "--gpus-per-node=4", True),
        ("true", 4, "--gres=gpu:4", False),
        ("true", 16, "--gres=gpu:4", False),  # of a process, or of examples
        ("true", 8, "--time=1:00:00", False),  # nobody says how many
    ],
)
def test_a_batch_over_the_cards_that_a_job_file_asks_for(
    tmp_path: Path, packing: str, accumulated: int, asked: str, wrong: bool
) -> None:
    files = {
        "a.yml": AXOLOTL.format(packing, accumulated),
        "train.sh": f"#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH {asked}\naxolotl train a.yml\n",
    }
    assert bool(audited(tmp_path, files, select=("CFG011",)).findings) is wrong


ZERO = '{{"zero_optimization": {{"stage": {}{}}}, "train_batch_size": "auto"}}\n'
START = "import subprocess\nsubprocess.run(['accelerate', 'launch', '--deepspeed_config_file', 'ds/z.json', 't.py'])\n"


@pytest.mark.parametrize(
    ("comment", "stage", "more", "wrong"),
    [
        ("# ZeRO-3, parameters sharded and optimizer offloaded (ds/z.json)", 2, "", True),
        ("# ds/z.json: zero stage 3", 2, "", True),
        ("# ZeRO-2 with offloading: ds/z.json", 2, "", True),
        ("# ZeRO-2, see ds/z.json", 2, "", False),
        ("# ZeRO-3 and offloaded (ds/z.json)", 3, ', "offload_optimizer": {"device": "cpu"}', False),
        ("# ds/z.json is not ZeRO-3", 2, "", False),
        ("# ZeRO-3 (ds/other.json)", 2, "", False),
    ],
)
def test_a_stage_beside_the_name_of_its_file(tmp_path: Path, comment: str, stage: int, more: str, wrong: bool) -> None:
    files = {"job.slurm": f"#!/bin/bash\n{comment}\npython launch.py\n", "launch.py": START}
    files |= {"ds/z.json": ZERO.format(stage, more), "t.py": "print(1)\n"}
    found = audited(tmp_path, files, select=("CFG011",)).findings
    assert [str(one.place) for one in found] == ["job.slurm:2"] * wrong

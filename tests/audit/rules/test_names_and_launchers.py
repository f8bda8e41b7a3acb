"""Promise: flags of another launcher, keys that a call does not take, names and helps that tell another value are said."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited


@pytest.mark.parametrize(
    ("start", "says"),
    [
        ("accelerate launch --nproc_per_node 4", "`--num_processes`"),
        ("srun accelerate launch --num_gpus=4", "`--num_processes`"),
        ("torchrun --num_processes 4", "`--nproc_per_node`"),
        ("deepspeed --nproc_per_node=4", "`--num_gpus`"),
        ("torchrun --config_file a.yaml", "another launcher's"),
        ("accelerate launch --num_processes 4 --mixed_precision bf16", ""),
        ("torchrun --nproc-per-node 4 --nnodes 1 --standalone", ""),
        ("deepspeed --num_gpus 4 --master_port 29500", ""),
    ],
)
def test_flags_of_another_launcher(tmp_path: Path, start: str, says: str) -> None:
    files = {"train.py": "print(1)\n", "run.sh": f"{start} train.py\n"}
    found = audited(tmp_path, files, select=("CFG008",)).findings
    assert [says in one.message for one in found] == [True] * bool(says)


TRAIN = """import torch
from datasets import load_dataset
from peft import LoraConfig
from torch.utils.data import DataLoader
from transformers import BitsAndBytesConfig
from trl import SFTConfig, SFTTrainer
args = SFTConfig("o", bf16=True)
more = {}
SFTTrainer("Qwen/Qwen2.5-0.5B", args=args, train_dataset=load_dataset("a/b", split="train")).train()
"""


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("LoraConfig(r=8, alpha=16)", "`lora_alpha`"),
        ("LoraConfig(r=8, lora_alpha=16, lora_dropout=0.1, a_later_key=1)", ""),
        ("BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_dtype='nf4')", "`bnb_4bit_quant_type`"),
        ("BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type='nf4')", ""),
        ("DataLoader(rows, batch_size=4, workers=2)", "`num_workers`"),
        ("DataLoader(rows, batch_size=4, num_workers=2)", ""),
        ("DataLoader(rows, **options)", ""),
    ],
)
def test_keys_of_calls(tmp_path: Path, call: str, says: str) -> None:
    found = audited(tmp_path, {"train.py": TRAIN.format(call)}, select=("CFG001",)).findings
    assert [says in one.message for one in found] == [True] * bool(says)


@pytest.mark.parametrize(
    ("flag", "says"),
    [
        ("type=float, default=3e-4, help='learning rate (default: 1e-4)'", True),
        ("type=float, default=3e-4, help='learning rate (default: 3e-4)'", False),
        ("type=float, default=3e-4, help='learning rate (default: 0.0003)'", False),
        ("type=int, default=8, help='rows, defaults to 32.'", True),
        ("type=int, default=8, help='rows (default: %(default)s)'", False),
        ("type=int, default=8, help='rows'", False),
    ],
)
def test_the_help_of_a_flag(tmp_path: Path, flag: str, says: bool) -> None:
    program = (
        f"import argparse\np = argparse.ArgumentParser()\np.add_argument('--x', {flag})\nprint(p.parse_args().x)\n"
    )
    found = audited(tmp_path, {"train.py": program}, select=("CFG011",)).findings
    assert ["The help says" in one.message for one in found] == [True] * says


SFT = (
    "model_name_or_path: a/b\ndataset_name: c/d\nlearning_rate: 1.0e-5\nnum_train_epochs: 3\noutput_dir: {}\n"
    "max_length: 2048\n"
)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("runs/qwen-lr2e-5", True),
        ("runs/qwen-lr1e-5-ep3", False),
        ("runs/qwen-ep1", True),
        ("runs/qwen-2epochs", True),
        ("runs/len1024", True),
        ("runs/qwen2.5-7b-v1", False),
        ("runs/step3", False),
    ],
)
def test_what_a_folder_is_called_by(tmp_path: Path, name: str, says: bool) -> None:
    files = {"sft.yaml": SFT.format(name), "run.sh": "trl sft --config sft.yaml\n"}
    found = audited(tmp_path, files, select=("CFG011",)).findings
    assert ["tells" in one.message for one in found] == [True] * says

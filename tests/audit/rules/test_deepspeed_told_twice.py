"""Promise: what accelerate's file, DeepSpeed's and the arguments tell of one run is said where one of them is not heard."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.audit.made_up import audited

ACCELERATE = (
    "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\ndeepspeed_config:\n{}num_machines: 1\n"
    "num_processes: 4\n"
)
TRAIN = """from datasets import load_dataset
from trl import SFTConfig, SFTTrainer
args = SFTConfig("o", bf16=True, per_device_train_batch_size=4, gradient_accumulation_steps=2, {})
SFTTrainer("Qwen/Qwen2.5-0.5B", args=args, train_dataset=load_dataset("a/b", split="train")).train()
"""


def said(folder: Path, files: dict[str, str]) -> list[str]:
    return [one.message for one in audited(folder, files, select=("CFG012", "CFG017")).findings]


@pytest.mark.parametrize(
    ("inner", "says"),
    [
        ("  deepspeed_config_file: ds.json\n  zero_stage: 2\n", "beside `deepspeed_config_file`"),
        ("  deepspeed_config_file: ds.json\n  zero3_init_flag: true\n", ""),
        ("  gradient_accumulation_steps: 8\n  zero_stage: 2\n", "`gradient_accumulation_steps` is `8` in accelerate's"),
        ("  gradient_accumulation_steps: 2\n  zero_stage: 2\n", ""),
        ("  gradient_accumulation_steps: auto\n  zero_stage: 2\n", ""),
        ("  gradient_clipping: 0.5\n  zero_stage: 2\n", "`gradient_clipping` is `0.5`"),
        ("  gradient_clipping: 1.0\n  zero_stage: 2\n", ""),
    ],
)
def test_accelerates_own_file(tmp_path: Path, inner: str, says: str) -> None:
    files = {
        "acc.yaml": ACCELERATE.format(inner),
        "ds.json": json.dumps({"zero_optimization": {"stage": 2}, "gradient_accumulation_steps": "auto"}),
        "train.py": TRAIN.format(""),
        "run.sh": "accelerate launch --config_file acc.yaml train.py\n",
    }
    found = said(tmp_path, files)
    assert [says in one for one in found] == [True] * bool(says)


AUTO = {"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "bf16": {"enabled": "auto"}}


@pytest.mark.parametrize(
    ("config", "given", "says"),
    [
        (
            {"scheduler": {"type": "WarmupLR", "params": {}}},
            'lr_scheduler_type="cosine"',
            "scheduler of its own, `WarmupLR`",
        ),
        ({"scheduler": {"type": "WarmupCosineLR", "params": {}}}, 'lr_scheduler_type="cosine"', ""),
        ({"scheduler": {"type": "WarmupLR", "params": {}}}, "", ""),
        ({"optimizer": {"type": "AdamW", "params": {}}}, 'optim="adamw_bnb_8bit"', "optimizer of its own, `AdamW`"),
        ({"optimizer": {"type": "AdamW", "params": {}}}, 'optim="adamw_torch"', ""),
        ({"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}}, "", "`offload_param` does nothing"),
        ({"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}}, "", ""),
        ({"zero_optimisation": {"stage": 2}}, "", "Did you mean `zero_optimization`?"),
    ],
)
def test_deepspeeds_file_and_the_arguments(tmp_path: Path, config: dict[str, Any], given: str, says: str) -> None:
    whole = {"zero_optimization": {"stage": 2}, **AUTO, **config}
    if "zero_optimisation" in config:
        del whole["zero_optimization"]
    files = {
        "ds.json": json.dumps(whole),
        "train.py": TRAIN.format(f'deepspeed="ds.json", {given}'),
        "run.sh": "deepspeed train.py\n",
    }
    found = said(tmp_path, files)
    assert [says in one for one in found] == [True] * bool(says)


@pytest.mark.parametrize(
    ("pins", "says"),
    [
        ("torch==2.6.0\nbitsandbytes==0.43.3\n", True),
        ("torch==2.5.1\nbitsandbytes==0.43.3\n", False),
        ("torch==2.6.0\nbitsandbytes==0.45.5\n", False),
        ("transformers==4.53.0\naccelerate==1.1.0\n", True),
        ("transformers==4.51.0\naccelerate==1.1.0\n", False),
        ("transformers==4.53.0\ntorch==2.0.1\n", True),
    ],
)
def test_pins_that_do_not_go_together(tmp_path: Path, pins: str, says: bool) -> None:
    files = {"requirements.txt": pins, "train.py": "import torch\n"}
    assert bool(audited(tmp_path, files, select=("ENV007",)).findings) == says


README = "# Foo\n\n```bash\npython train.py --model gpt2 {}\n```\n"


@pytest.mark.parametrize(
    ("flags", "says"), [("--learning_rate 1e-4", True), ("--lr 1e-4", False), ("--learning_rate ...", False)]
)
def test_what_a_document_tells_to_type(tmp_path: Path, flags: str, says: bool) -> None:
    program = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--model')\np.add_argument('--lr')\n"
    files = {
        "train.py": f"{program}print(p.parse_args())\n",
        "run.sh": "python train.py --lr 1e-4\n",
        "README.md": README.format(flags),
    }
    found = audited(tmp_path, files, select=("CFG008",)).findings
    assert [str(one.place).split(" ")[0] for one in found] == ["README.md:4"] * says

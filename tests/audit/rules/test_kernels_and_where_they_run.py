"""Promise: flash attention is held to the GPU and the packages that a program's launcher, image or cloud names, whatever way
its attention comes, and not where the program asks first."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

MODEL = """import os
import sys

import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

{above}model = AutoModelForCausalLM.from_pretrained("gpt2", torch_dtype=torch.float16, attn_implementation={attention})
Trainer(model, TrainingArguments("out", fp16=True), train_dataset=rows).train()
"""
FLASH = MODEL.format(above="", attention='"flash_attention_2"')
ASKS = MODEL.format(
    above="new = torch.cuda.get_device_capability()[0] >= 8\n",
    attention='"flash_attention_2" if new else "sdpa"',
)
READS = MODEL.format(above="", attention='os.environ.get("ATTN", "sdpa")')
MUST = MODEL.format(above="", attention='os.environ["ATTN"]')
SAGEMAKER = """from sagemaker.huggingface import HuggingFace

HuggingFace(entry_point="train.py", source_dir="src", instance_type="ml.{}.8xlarge", transformers_version="4.49.0",
            hyperparameters={{"attn": "flash_attention_2"}}).fit()
"""
FLAG = MODEL.format(
    above='import argparse\np = argparse.ArgumentParser()\np.add_argument("--attn", default="sdpa")\na = p.parse_args()\n',
    attention="a.attn",
)
GCLOUD = """gcloud compute instances create vm --accelerator type=nvidia-{},count=1
gcloud compute ssh vm -- 'pip install -r requirements.txt && python train.py'
"""
IMAGE = 'FROM nvidia/cuda:12.4.1\nENV TORCH_CUDA_ARCH_LIST="{}"\nCOPY train.py /opt/\nCMD ["python", "/opt/train.py"]\n'
JOB = """apiVersion: batch/v1
spec:
  nodeSelector:
    cloud.google.com/gke-accelerator: nvidia-{}
  containers:
    - command: ["python", "train.py"]
"""
OWN = """from flash_attn import flash_attn_func
import torch


class Attention(torch.nn.Module):
    def forward(self, q, k, v):
        return flash_attn_func(q, k, v, causal=True)
"""
LOOP = """import torch
from layers import Attention

model = Attention().cuda()
opt = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
for q, k, v in loader:
    model(q, k, v).mean().backward()
    opt.step()
    opt.zero_grad()
"""


def found(folder: Path, files: dict[str, str]) -> list[str]:
    return [one.message for one in audited(folder, files, select=("ATT005",)).findings]


@pytest.mark.parametrize(
    ("files", "right"),
    [
        (
            {"vm.sh": GCLOUD.format("tesla-t4"), "train.py": FLASH},
            {"vm.sh": GCLOUD.format("tesla-a100"), "train.py": FLASH},
        ),
        (
            {"vm.sh": GCLOUD.format("tesla-t4"), "train.py": FLASH},
            {"vm.sh": GCLOUD.format("tesla-t4"), "train.py": ASKS},
        ),
        (
            {"go.py": SAGEMAKER.format("p3"), "src/train.py": FLAG, "src/requirements.txt": "flash-attn\n"},
            {"go.py": SAGEMAKER.format("g5"), "src/train.py": FLAG, "src/requirements.txt": "flash-attn\n"},
        ),
        (
            {"Dockerfile": IMAGE.format("7.5"), "train.py": FLASH},
            {"Dockerfile": IMAGE.format("7.5;8.0"), "train.py": FLASH},
        ),
        (
            {"job.yaml": JOB.format("tesla-p100"), "train.py": LOOP, "layers.py": OWN},
            {"job.yaml": JOB.format("l4"), "train.py": LOOP, "layers.py": OWN},
        ),
        (
            {
                "run.sh": "#SBATCH --gres=gpu:v100:1\nexport ATTN=flash_attention_2\npython train.py\n",
                "train.py": READS,
            },
            {"run.sh": "#SBATCH --gres=gpu:v100:1\nexport ATTN=sdpa\npython train.py\n", "train.py": MUST},
        ),
    ],
)
def test_the_gpu_is_the_one_that_the_program_is_given(
    tmp_path: Path, files: dict[str, str], right: dict[str, str]
) -> None:
    assert any("need Ampere" in one for one in found(tmp_path / "wrong", files))
    assert not found(tmp_path / "right", right)


TORCH = "torch==2.6.0\ntransformers==4.51.3\n"
COMPOSE = "services:\n  trainer:\n    build: .\n    environment:\n      ATTN: {}\n    volumes:\n      - ./data:/data\n"
BUILT = (
    "FROM python\nRUN pip install transformers==4.52.4 torch==2.6.0{}\nCOPY train.py /app/\nCMD python /app/train.py\n"
)
XFORMERS = OWN.replace("flash_attn import flash_attn_func", "xformers.ops import memory_efficient_attention")
LOOKS = """from transformers.utils import is_flash_attn_2_available as there


def pick(one):
    return one if there() else "sdpa"
"""
AXOLOTL = """base_model: mistralai/Mistral-7B-v0.1
sequence_len: 2048
flash_attention: true
datasets:
  - path: a.jsonl
    type: alpaca
"""
MAKEFILE = "PIP := .venv/bin/pip\n\nrun:\n\t$(PIP) install {}\n\taxolotl train a.yml\n"


@pytest.mark.parametrize(
    ("files", "right"),
    [
        (
            {"compose.yaml": COMPOSE.format("flash_attention_2"), "Dockerfile": BUILT.format(""), "train.py": READS},
            {
                "compose.yaml": COMPOSE.format("flash_attention_2"),
                "Dockerfile": BUILT.format(" flash-attn"),
                "train.py": READS,
            },
        ),
        (
            {"compose.yaml": COMPOSE.format("flash_attention_2"), "Dockerfile": BUILT.format(""), "train.py": READS},
            {"compose.yaml": COMPOSE.format("sdpa"), "Dockerfile": BUILT.format(""), "train.py": READS},
        ),
        (
            {"requirements.txt": TORCH, "train.py": LOOP, "layers.py": XFORMERS},
            {"requirements.txt": TORCH + "xformers\n", "train.py": LOOP, "layers.py": XFORMERS},
        ),
        (
            {"requirements.txt": TORCH, "train.py": LOOP, "layers.py": OWN},
            {
                "requirements.txt": TORCH,
                "train.py": LOOP,
                "layers.py": OWN.replace("from flash_attn", "try:\n    from flash_attn").replace(
                    "func\n", "func\nexcept ImportError:\n    flash_attn_func = None\n", 1
                ),
            },
        ),
        (
            {"Makefile": MAKEFILE.format("axolotl==0.8.1"), "a.yml": AXOLOTL},
            {"Makefile": MAKEFILE.format('"axolotl[flash-attn]==0.8.1"'), "a.yml": AXOLOTL},
        ),
        (
            {"requirements.txt": TORCH, "train.py": FLASH},
            {
                "requirements.txt": TORCH,
                "pick.py": LOOKS,
                "train.py": MODEL.format(above="from pick import pick\n", attention='pick("flash_attention_2")'),
            },
        ),
    ],
)
def test_what_the_lists_lack_is_said_and_what_is_asked_first_is_not(
    tmp_path: Path, files: dict[str, str], right: dict[str, str]
) -> None:
    assert any("packages that" in one for one in found(tmp_path / "wrong", files))
    assert not found(tmp_path / "right", right)

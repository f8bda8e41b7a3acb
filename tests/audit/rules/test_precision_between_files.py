"""Promise: a precision that one file asks for and the program never gets is found, whichever launcher starts it."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

_ACCELERATED = """
import torch
from accelerate import Accelerator
from transformers import AutoModelForCausalLM
acc = Accelerator({given})
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-1.5B"{typed})
opt = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
model, opt, loader = acc.prepare(model, opt, loader)
for batch in loader:
    acc.backward(model(**batch).loss)
    opt.step()
    opt.zero_grad()
"""
_FILE = "distributed_type: MULTI_GPU\nmixed_precision: bf16\nnum_processes: 4\n"


@pytest.mark.parametrize(
    ("command", "given", "typed", "says"),
    [
        ("torchrun --nproc_per_node 4 train.py\n", "", "", "`torchrun` does not read `acc.yaml`"),
        ("python train.py\n", "", "", "`python` does not read `acc.yaml`"),
        ("torchrun --nproc_per_node 4 train.py\n", 'mixed_precision="bf16"', "", ""),
        ("torchrun --nproc_per_node 4 train.py\n", "", ", torch_dtype=torch.bfloat16", ""),
        ("accelerate launch --config_file acc.yaml train.py\n", "", "", ""),
        ("accelerate launch --config_file acc.yaml train.py\n", 'mixed_precision="no"', "", "replaces"),
    ],
)
def test_the_file_of_accelerate(tmp_path: Path, command: str, given: str, typed: str, says: str) -> None:
    files = {
        "train.py": _ACCELERATED.format(given=given, typed=typed),
        "acc.yaml": _FILE,
        "run.sh": command,
        "requirements.txt": "transformers==4.49.0\n",
    }
    found = audited(tmp_path, files, select=("PRC002",)).findings
    assert [says in one.message for one in found] == [True] * bool(says)


_TRAINER = """
import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("{model}"{typed})
Trainer(model, TrainingArguments("out", per_device_train_batch_size=8{more}), train_dataset=rows).train()
"""


@pytest.mark.parametrize(
    ("version", "model", "typed", "more", "found"),
    [
        ("4.49.0", "Qwen/Qwen2.5-1.5B", "", "", True),
        ("5.2.0", "Qwen/Qwen2.5-1.5B", "", "", False),
        ("4.49.0", "openai-community/gpt2", "", "", False),
        ("4.49.0", "Qwen/Qwen2.5-1.5B", ", torch_dtype=torch.bfloat16", "", False),
        ("4.49.0", "Qwen/Qwen2.5-1.5B", "", ", bf16=True", False),
        ("4.49.0", "Qwen/Qwen2.5-1.5B", "", ", use_cpu=True", False),
    ],
)
def test_a_model_without_a_type(tmp_path: Path, version: str, model: str, typed: str, more: str, found: bool) -> None:
    files = {
        "train.py": _TRAINER.format(model=model, typed=typed, more=more),
        "requirements.txt": f"transformers=={version}\n",
    }
    assert bool(audited(tmp_path, files, select=("PRC006",)).findings) is found


_SAYS = """
import argparse
import torch
from accelerate import Accelerator
from transformers import AutoModelForCausalLM
parser = argparse.ArgumentParser()
parser.add_argument("--bf16", action="store_true")
args = parser.parse_args()
acc = Accelerator()
{then}
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-1.5B", torch_dtype=torch.float32)
opt = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
model, opt, loader = acc.prepare(model, opt, loader)
for batch in loader:
    acc.backward(model(**batch).loss)
    opt.step()
    opt.zero_grad()
"""


@pytest.mark.parametrize(
    ("then", "found"),
    [
        ("if args.bf16:\n    print('training in bf16')", True),
        ("if args.bf16:\n    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = True", False),
        ("if args.bf16:\n    print('training in bf16')\nelse:\n    raise SystemExit(1)", False),
    ],
)
def test_a_flag_that_only_a_message_asks_for(tmp_path: Path, then: str, found: bool) -> None:
    files = {"train.py": _SAYS.format(then=then), "run.sh": "accelerate launch --num_processes 4 train.py --bf16\n"}
    assert bool(audited(tmp_path, files, select=("PRC002",)).findings) is found

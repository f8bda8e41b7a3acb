"""Promise: tables, lists and heads of scripts are read as claims, comparisons and commands are not; what is said to be in
use and stands nowhere is said; a package whose switch is off is no use."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

TRAINED = """{}from datasets import load_dataset
from peft import LoraConfig
from trl import SFTConfig, SFTTrainer
args = SFTConfig(output_dir="o", learning_rate=1e-4, num_train_epochs=1, max_length=2048, packing=False, bf16=True, seed=1,
    gradient_checkpointing=False, optim="adamw_torch_fused", model_init_kwargs={{"attn_implementation": "sdpa"}})
SFTTrainer("Qwen/Qwen2.5-0.5B", args=args, train_dataset=load_dataset("a/b", split="train"),
    peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear")).train()
"""
LOOP = """{}import torch
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained("gpt2").cuda()
opt = torch.optim.AdamW(model.parameters(), lr=1e-4)
for x in torch.utils.data.DataLoader(torch.load("x.pt"), batch_size=8, num_workers=2):
    model(x.cuda(), labels=x.cuda()).loss.backward()
    opt.step()
    opt.zero_grad()
"""


def said(folder: Path, files: dict[str, str]) -> list[str]:
    return [str(one.place) for one in audited(folder, files, select=("CFG011",)).findings]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("| Learning rate | 2e-4 |", True),
        ("| Learning rate | 1e-4 |", False),
        ("| lr 2e-4 | 3.41 |", False),
        ("| lr | 2e-4 | 1e-4 |", False),
        ("- **Epochs**: 3", True),
        ("- **Epochs**: 1", False),
        ("- Optimizer: AdamW 8-bit", True),
        ("- Gradient checkpointing", True),
        ("- Flash Attention 2", True),
        ("- Early stopping", True),
        ("We use early stopping on the validation loss.", True),
        ("Early stopping was no help.", False),
        ("## Ideas\n\n- Early stopping", False),
        ("- DeepSpeed ZeRO-3", True),
        ("Runs resume automatically after preemption.", True),
        ("Weight decay 0.05 and decay at 2e-4.", True),
        ("    python train.py --learning_rate 2e-4  # learning rate 2e-4", False),
    ],
)
def test_a_line_of_a_document(tmp_path: Path, text: str, wrong: bool) -> None:
    files = {"train.py": TRAINED.format(""), "README.md": f"# Model\n\n{text}\n"}
    assert bool(said(tmp_path, files)) == wrong


@pytest.mark.parametrize(
    ("head", "wrong"),
    [
        ('"""LoRA of rank 64 for three epochs."""\n', True),
        ('"""LoRA of rank 16 for one epoch."""\n', False),
    ],
)
def test_what_the_head_of_a_script_says(tmp_path: Path, head: str, wrong: bool) -> None:
    assert bool(said(tmp_path, {"train.py": TRAINED.format(head)})) == wrong


@pytest.mark.parametrize(
    ("head", "more", "wrong"),
    [
        ("# Trains GPT-2 with warm-up, gradient clipping and AMP\n", "", 3),
        ("# Trains GPT-2 with gradient clipping\n", "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n", 0),
        ("# Trains GPT-2 without gradient clipping\n", "", 0),
        ("# TODO: train with gradient clipping\n", "", 0),
    ],
)
def test_what_a_loop_is_said_to_do(tmp_path: Path, head: str, more: str, wrong: int) -> None:
    assert len(said(tmp_path, {"train.py": LOOP.format(head) + more})) == wrong


AXOLOTL = (
    "base_model: a/b\ndatasets:\n  - path: d.jsonl\n    type: chat_template\n    roles_to_train: {}\nadapter: lora\n"
    "lora_r: 8\nlora_alpha: 16\nlora_target_linear: true\nsequence_len: 1024\nmicro_batch_size: 1\ntrain_on_inputs: {}\n"
    "flash_attention: {}\nbf16: true\n"
)


@pytest.mark.parametrize(
    ("roles", "inputs", "text", "place"),
    [
        ("[assistant, user]", "false", "The loss is taken on the assistant turns only.", "run.yml:5"),
        ("[assistant]", "false", "The loss is taken on the assistant turns only.", ""),
        ("[assistant, user]", "false", "Support chats.", ""),
        ("[assistant]", "true", "Only the story is trained on, the instruction is masked out.", "README.md:1"),
        ("[assistant]", "true", "We mask the prompt.", "README.md:1"),
        ("[assistant]", "true", "Prompts are not masked.", ""),
        ("[assistant]", "false", "User turns are masked.", ""),
    ],
)
def test_which_turns_are_learned(tmp_path: Path, roles: str, inputs: str, text: str, place: str) -> None:
    files = {
        "run.yml": AXOLOTL.format(roles, inputs, "true"),
        "README.md": f"{text}\n",
        "run.sh": "axolotl train run.yml\n",
    }
    assert [one.split(" ")[0] for one in said(tmp_path, files)] == [place] * bool(place)


@pytest.mark.parametrize(("switch", "wrong"), [("false", True), ("true", False)])
def test_a_package_whose_switch_is_off(tmp_path: Path, switch: str, wrong: bool) -> None:
    install = (
        "    pip install axolotl\n    pip install flash-attn --no-build-isolation   # makes attention about 2x faster\n"
    )
    files = {"run.yml": AXOLOTL.format("[assistant]", "false", switch), "README.md": f"# Set up\n\n{install}"}
    assert said(tmp_path, {**files, "run.sh": "axolotl train run.yml\n"}) == ["README.md:4"] * wrong


SHARED = "torchrun --nproc_per_node 4 train.py\n"


@pytest.mark.parametrize(
    ("text", "start", "wrong"),
    [
        ("Training runs on 8 A100 GPUs.", SHARED, True),
        ("Trained on four H100s.", SHARED, False),
        ("Training runs on 8 A100 GPUs.", "python train.py\n", False),
        ("The paper trained on 8 A100 GPUs.", SHARED, False),
        ("Evaluation takes an A100.", SHARED, False),
    ],
)
def test_how_many_gpus_a_document_tells(tmp_path: Path, text: str, start: str, wrong: bool) -> None:
    files = {"train.py": TRAINED.format(""), "run.sh": start, "README.md": f"# Model\n\n{text}\n"}
    assert said(tmp_path, files) == ["README.md:3"] * wrong


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ('save_strategy="no",  # save every epoch', True),
        ('save_strategy="epoch",  # save every epoch', False),
        ("bf16=False,  # bf16 for speed", True),
        ("bf16=False,  # bf16 does not work on a V100", False),
    ],
)
def test_what_stands_behind_a_key(tmp_path: Path, line: str, wrong: bool) -> None:
    program = TRAINED.format("").replace("bf16=True, ", "").replace("seed=1,", f"seed=1,\n    {line}")
    assert bool(said(tmp_path, {"train.py": program})) == wrong

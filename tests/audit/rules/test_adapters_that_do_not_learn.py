"""Promise: adapters that no update reaches are found in the shapes in which people write them."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited


def codes(folder: Path, files: dict[str, str], code: str) -> list[str]:
    return [one.message for one in audited(folder, files).findings if one.code == code]


SCRIPT = """import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, BitsAndBytesConfig
from trl import SFTConfig, SFTTrainer
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B"{load})
{made}
trainer = SFTTrainer(model=model, args=SFTConfig("out"), train_dataset=rows{given})
trainer.train()
"""
CONFIG = 'LoraConfig(r=8, target_modules="all-linear", task_type="CAUSAL_LM"{})'
MAKE = f"model = get_peft_model(model, {CONFIG.format('')})"
FREEZE = "for p in model.parameters():\n    p.requires_grad = False"
THAW = "for n, p in model.named_parameters():\n    p.requires_grad = 'lora_' in n"
FOUR = ", quantization_config=BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.bfloat16)"


@pytest.mark.parametrize(
    ("load", "made", "given", "says"),
    [
        ("", "model = PeftModel.from_pretrained(model, 'a')", "", "is_trainable"),
        ("", "model = PeftModel.from_pretrained(model, 'a', is_trainable=True)", "", ""),
        ("", "model = PeftModel.from_pretrained(model, 'a').merge_and_unload()", "", ""),
        ("", f"model = PeftModel.from_pretrained(model, 'a')\n{THAW}", "", ""),
        ("", f"model = get_peft_model(model, {CONFIG.format(', inference_mode=True')})", "", "inference_mode"),
        ("", f"model = get_peft_model(model, {CONFIG.format(', inference_mode=False')})", "", ""),
        ("", f"{MAKE}\n{FREEZE}", "", "frozen"),
        ("", f"{MAKE}\nmodel.requires_grad_(False)", "", "frozen"),
        ("", f"{MAKE}\n{FREEZE}\n{THAW}", "", ""),
        ("", f"{FREEZE}\n{MAKE}", "", ""),
        ("", f"optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)\n{MAKE}", "", "before `get_peft_model`"),
        ("", f"{MAKE}\noptimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)", "", ""),
        ("", MAKE, f", peft_config={CONFIG.format('')}", "peft_config"),
        ("", "", f", peft_config={CONFIG.format('')}", ""),
        (FOUR, "", "", "no adapter is made"),
        (FOUR, MAKE, "", ""),
        (FOUR, "", f", peft_config={CONFIG.format('')}", ""),
        ("", f"{MAKE}\nmodel.requires_grad_(False)  # dynotune: ignore[LOR010] a test", "", ""),
    ],
)
def test_adapters_that_no_update_reaches(tmp_path: Path, load: str, made: str, given: str, says: str) -> None:
    found = codes(tmp_path, {"train.py": SCRIPT.format(load=load, made=made, given=given)}, "LOR010")
    assert len(found) == bool(says)
    assert all(says in one for one in found)


TRAINER = """import torch
from transformers import Trainer, TrainingArguments
n_gpu = torch.cuda.device_count()
args = TrainingArguments("out", per_device_train_batch_size={})
Trainer(model, args, train_dataset=rows).train()
"""


@pytest.mark.parametrize(("rows", "wrong"), [("4 * n_gpu", True), ("4", False), ("32 // n_gpu", False)])
def test_a_batch_of_each_that_is_multiplied(tmp_path: Path, rows: str, wrong: bool) -> None:
    files = {"train.py": TRAINER.format(rows), "run.sh": "torchrun --nproc_per_node 4 train.py\n"}
    assert any("multiplies what each" in one for one in codes(tmp_path, files, "DST052")) is wrong


@pytest.mark.parametrize(
    ("command", "wrong"),
    [
        ("CUDA_VISIBLE_DEVICES=0,1,2,3 python train.py", True),
        ("export CUDA_VISIBLE_DEVICES=0,1\npython train.py", True),
        ("CUDA_VISIBLE_DEVICES=0 python train.py", False),
        ("CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 2 train.py", False),
    ],
)
def test_one_process_that_is_shown_several_gpus(tmp_path: Path, command: str, wrong: bool) -> None:
    files = {"train.py": TRAINER.format(4), "run.sh": f"{command}\n"}
    assert bool(codes(tmp_path, files, "DST004")) is wrong


@pytest.mark.parametrize(("words", "wrong"), [("", True), ("\nmodel = LoraModel(model)", False)])
def test_a_rate_where_no_word_of_adapters_is(tmp_path: Path, words: str, wrong: bool) -> None:
    text = SCRIPT.format(load="", made=words, given="").replace('"out"', '"out", learning_rate=2e-3')
    assert bool(codes(tmp_path, {"train.py": text}, "OPT002")) is wrong


@pytest.mark.parametrize(
    ("size", "comment", "wrong"), [("1.5B", "", True), ("1.5B", "  # to compare runs", False), ("3B", "", False)]
)
def test_every_step_is_logged_on_one_gpu(tmp_path: Path, size: str, comment: str, wrong: bool) -> None:
    text = f"model_name_or_path: Qwen/Qwen2.5-{size}\ndataset_name: data.jsonl\nlogging_steps: 1{comment}\n"
    assert bool(codes(tmp_path, {"sft.yaml": text}, "HST052")) is wrong

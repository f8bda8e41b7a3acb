"""Promise: a checkpoint that is named and not handed to `train()`, and a resumed loop that gets its weights alone, are
found; what hands it over, loads the optimizer too, or only begins from weights is right."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

PARSED = """from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments
(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
trainer = Trainer(model=model, args=args, train_dataset=rows)
trainer.train({given})
"""
GIVEN = """from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
args = TrainingArguments(output_dir="out"{more})
trainer = Trainer(model, args, train_dataset=rows)
trainer.train({given})
"""


def says(tmp_path: Path, files: dict[str, str], part: str) -> bool:
    return any(one.code == "CKP002" and part in one.message for one in audited(tmp_path, files).findings)


@pytest.mark.parametrize(
    ("command", "given", "is_in_vain"),
    [
        ("--resume_from_checkpoint out/checkpoint-100", "", True),
        ("--resume_from_checkpoint True", "", True),
        ("--resume_from_checkpoint $LAST", "", True),
        ("--resume_from_checkpoint True", "resume_from_checkpoint=args.resume_from_checkpoint", False),
        ("--resume_from_checkpoint True", "args.resume_from_checkpoint", False),
        ("--seed 1", "", False),
    ],
)
def test_a_flag_that_train_does_not_get(tmp_path: Path, command: str, given: str, is_in_vain: bool) -> None:
    run = f"python sft.py --output_dir out {command}\n"
    files = {"sft.py": PARSED.format(given=given), "run.sh": run}
    assert says(tmp_path, files, "is called without it") is is_in_vain


@pytest.mark.parametrize(
    ("more", "given", "is_in_vain"),
    [
        (", resume_from_checkpoint=True", "", True),
        (', resume_from_checkpoint="out/checkpoint-9"', "", True),
        (", resume_from_checkpoint=True", "resume_from_checkpoint=True", False),
        ("", "", False),
    ],
)
def test_an_argument_that_train_does_not_get(tmp_path: Path, more: str, given: str, is_in_vain: bool) -> None:
    assert says(tmp_path, {"sft.py": GIVEN.format(more=more, given=given)}, "is called without it") is is_in_vain


LOOP = """import argparse
import torch
import ckpt
p = argparse.ArgumentParser()
p.add_argument("--{flag}")
p.add_argument("--steps", type=int, default=50_000)
a = p.parse_args()
opt = torch.optim.AdamW(model.parameters(), lr=3e-4)
if a.{flag}:
    {load}
for step in range(a.steps):
    loss = model(**next(rows)).loss
    loss.backward()
    opt.step()
    opt.zero_grad()
    if step % 1000 == 0:
        ckpt.save(a, model, opt)
"""
CKPT = """import torch
def save(a, model, opt):
    torch.save({saved}, "last.pt")
def load(model, opt):
    state = torch.load("last.pt", weights_only=True)
    model.load_state_dict(state["model"])
    {more}
"""
ALONE, BOTH = '{"model": model.state_dict()}', '{"model": model.state_dict(), "opt": opt.state_dict()}'


@pytest.mark.parametrize(
    ("flag", "load", "saved", "more", "is_alone"),
    [
        ("resume", "ckpt.load(model, opt)", ALONE, "pass", True),
        ("resume", "ckpt.load(model, opt)", BOTH, "pass", True),
        ("resume_from", "model.load_state_dict(torch.load(a.resume_from))", ALONE, "pass", True),
        ("resume", "ckpt.load(model, opt)", BOTH, 'opt.load_state_dict(state["opt"])', False),
        ("init_from", "model.load_state_dict(torch.load(a.init_from))", BOTH, "pass", False),
    ],
)
def test_a_loop_that_gets_its_weights_alone(
    tmp_path: Path, flag: str, load: str, saved: str, more: str, is_alone: bool
) -> None:
    files = {"train.py": LOOP.format(flag=flag, load=load), "ckpt.py": CKPT.format(saved=saved, more=more)}
    assert says(tmp_path, files, "gets its weights back") is is_alone


AXOLOTL = """base_model: Qwen/Qwen2.5-0.5B
datasets:
  - path: data.jsonl
    type: alpaca
sequence_len: 1024
micro_batch_size: 2
output_dir: out
{resumes}"""


@pytest.mark.parametrize(
    ("resumes", "folder", "is_new"),
    [
        ("auto_resume_from_checkpoints: true\n", "out_$(date +%s)", True),
        ("auto_resume_from_checkpoints: true\n", "out", False),
        ("", "out_$(date +%s)", False),
    ],
)
def test_a_folder_of_the_hour_beside_a_configuration_that_resumes(
    tmp_path: Path, resumes: str, folder: str, is_new: bool
) -> None:
    files = {"a.yml": AXOLOTL.format(resumes=resumes), "run.sh": f"axolotl train a.yml --output_dir={folder}\n"}
    assert says(tmp_path, files, "has the time in it") is is_new


@pytest.mark.parametrize("end", ["", "    --seed 3\n"])
def test_a_value_of_make_that_goes_over_several_lines(tmp_path: Path, end: str) -> None:
    back = " \\" if end else ""
    make = f"FLAGS = --output_dir out \\\n    --resume_from_checkpoint True{back}\n{end}\ntrain:\n\tpython sft.py $(FLAGS)\n"
    assert says(tmp_path, {"sft.py": PARSED.format(given=""), "Makefile": make}, "is called without it")

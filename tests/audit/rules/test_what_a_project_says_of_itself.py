"""Promise: what the commands, lists and texts of small projects say of themselves is held against what they do: flags by
another name, files of another name, names that a package lost, seeds that nothing sets, models that nobody keeps."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

ARGS = """import argparse
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
p = argparse.ArgumentParser()
p.add_argument('--lr', type=float, default=1e-5)
p.add_argument('--data_path', required=True)
p.add_argument('--lora', action='store_true')
a = p.parse_args()
args = TrainingArguments('out', learning_rate=a.lr, seed=1)
Trainer(make(a.lora), args, train_dataset=load(a.data_path)).train()
"""


@pytest.mark.parametrize(
    ("flag", "says"),
    [
        ("--learning_rate 1e-5", "Call it `--lr`."),
        ("--use_lora", "Call it `--lora`."),
        ("--dataset d.json", "Call it `--data_path`."),
        ("--colour red", "Remove the flag, or add it to the script's parser."),
    ],
)
def test_a_flag_by_another_name(tmp_path: Path, flag: str, says: str) -> None:
    files = {"train.py": ARGS, "run.sh": f"python train.py {flag}\n"}
    (found,) = [one for one in audited(tmp_path, files, select=("CFG008",)).findings if "has no flag" in one.message]
    assert found.remedy.text == says


@pytest.mark.parametrize(
    ("command", "fires"),
    [
        ("trl sft --config configs/sft.yml", True),
        ("trl sft --config config/sft.yaml", True),
        ("trl sft --config configs/sft.yaml", False),
        ("cd project && trl sft --config config/sft.yaml", False),
    ],
)
def test_a_configuration_of_nearly_that_name(tmp_path: Path, command: str, fires: bool) -> None:
    config = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: d\noutput_dir: out\n"
    files = {"run.sh": f"{command}\n", "configs/sft.yaml": config}
    found = [one.message for one in audited(tmp_path, files, select=("CFG008",)).findings]
    assert ["Did you mean `configs/sft.yaml`" in one for one in found] == [True] * fires


@pytest.mark.parametrize(
    ("asked", "fires"),
    [("trl>=0.21", True), ("trl", True), ("trl>=0.9,<0.20", False), ("trl==0.19.1", False), ("trl<0.20", False)],
)
def test_a_name_that_the_newest_release_lost(tmp_path: Path, asked: str, fires: bool) -> None:
    text = "from trl import DataCollatorForCompletionOnlyLM, SFTTrainer\n"
    files = {"train.py": text, "requirements.txt": f"{asked}\ntransformers\n"}
    assert bool(audited(tmp_path, files, select=("ENV007",)).findings) == fires


UNSAVED = """from trl import SFTConfig, SFTTrainer
trainer = SFTTrainer("Qwen/Qwen2.5-0.5B", args=SFTConfig("out", save_strategy="no", seed=1{}), train_dataset=rows)
trainer.train()
{}
"""


@pytest.mark.parametrize(
    ("more", "last", "fires"),
    [
        ("", "print('done')", True),
        (", max_steps=20", "print('done')", False),
        ("", "trainer.save_model()", False),
        ("", "print(trainer.evaluate())", False),
    ],
)
def test_a_model_that_nobody_keeps(tmp_path: Path, more: str, last: str, fires: bool) -> None:
    found = audited(tmp_path, {"train.py": UNSAVED.format(more, last)}, select=("CKP001",)).findings
    assert ["is gone when" in one.message for one in found] == [True] * fires


LOOP = """import argparse
import torch
from torch.utils.data import DataLoader
p = argparse.ArgumentParser()
p.add_argument('--epochs', type=int, default={epochs})
p.add_argument('--grad_clip', type=float, default=1.0)
args = p.parse_args()
torch.manual_seed(0)
opt = torch.optim.AdamW(model.parameters(), lr=1e-4)
sched = make_schedule(opt)
for epoch in range(args.epochs):
    for batch in DataLoader(rows, batch_size=8, shuffle=True):
        model(batch).backward()
        opt.step()
        opt.zero_grad()
    {save}
{last}
"""
STATE = "torch.save({'model': model.state_dict(), 'opt': opt.state_dict()}, f'{epoch}.pt')"


@pytest.mark.parametrize(
    ("epochs", "save", "last", "fires"),
    [
        (20, STATE, "", True),
        (20, f"state = {STATE[11:-16]}; torch.save(state, 'x.pt')", "", True),
        (20, STATE, "opt.load_state_dict(torch.load('0.pt')['opt'])", False),
        (3, "pass", "model.save_pretrained('out')", True),
        (1, "pass", "model.save_pretrained('out')", False),
    ],
)
def test_states_that_nothing_loads(tmp_path: Path, epochs: int, save: str, last: str, fires: bool) -> None:
    text = LOOP.format(epochs=epochs, save=save, last=last)
    assert bool(audited(tmp_path, {"train.py": text}, select=("CKP002",)).findings) == fires


def test_a_flag_that_nothing_reads_beside_an_optimizer_called_opt(tmp_path: Path) -> None:
    text = LOOP.format(epochs=1, save="pass", last="").replace("make_schedule", "get_cosine_schedule_with_warmup")
    (found,) = audited(tmp_path, {"train.py": text}, select=("CFG017",)).findings
    assert "`--grad_clip` is parsed and read by no line" in found.message


def test_a_batch_on_the_only_gpu_that_is_shown(tmp_path: Path) -> None:
    train = (
        "from transformers import Trainer, TrainingArguments\nargs = TrainingArguments(\n    'out',\n"
        "    per_device_train_batch_size=4,\n    gradient_accumulation_steps=4,  # effective batch size 32\n    seed=1,\n)\n"
        "Trainer(model, args, train_dataset=rows).train()\n"
    )
    for shown, fires in (("0", True), ("0,1", False)):
        files = {"train.py": train, "run.sh": f"CUDA_VISIBLE_DEVICES={shown} python train.py\n"}
        found = audited(tmp_path / shown, files, select=("CFG011",)).findings
        assert bool(found) == fires

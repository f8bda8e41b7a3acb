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
        ("trl sft --config examples/configs/sft.yaml", False),  # from above the folder that is audited
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


PLAIN = """from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-1.5B")
Trainer(model, TrainingArguments("out", per_device_train_batch_size=8{}, seed=1), train_dataset=rows).train()
"""


@pytest.mark.parametrize(
    ("text", "more", "says"),
    [
        ("Training runs in bf16 and takes about 2 hours.", "", "bfloat16 is in use"),
        ("Training runs in bf16 and takes about 2 hours.", ", bf16=True", ""),
        ("Weights were trained in bf16 by their makers.", "", ""),
        ("The model is fine-tuned with FlashAttention-2.", "", "FlashAttention is in use"),
        ("We use gradient checkpointing.", "", "checkpointing is in use"),
        ("We use gradient checkpointing.", ", gradient_checkpointing=True", ""),
        ("We fine-tune with LoRA adapters.", "", "LoRA is in use"),
        ("You may train with NEFTune.", "", ""),
    ],
)
def test_what_a_document_says_is_used(tmp_path: Path, text: str, more: str, says: str) -> None:
    files = {"README.md": f"# A model\n\n{text}\n", "train.py": PLAIN.format(more)}
    found = [one.message for one in audited(tmp_path, files, select=("CFG011",)).findings]
    assert [says in one for one in found] == [True] * bool(says)


LATE = """from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments, set_seed
{}
Trainer(model, TrainingArguments("out", bf16=True), train_dataset=rows).train()
"""
ADAPTERS = "model = get_peft_model(base, LoraConfig(r=8))"


@pytest.mark.parametrize(
    ("lines", "fires"),
    [
        (f"{ADAPTERS}\nset_seed(1)", True),
        (f"set_seed(1)\n{ADAPTERS}", False),
        ("def make():\n    return get_peft_model(base, LoraConfig(r=8))\nset_seed(1)\nmodel = make()", False),
        ("rows = load_dataset('d')['train'].train_test_split(0.1)\nset_seed(1)", True),
        (f"def fix(seed):\n    set_seed(seed)\n{ADAPTERS}\nfix(1)", True),
        (f"def set_seed(seed):\n    random.seed(seed)\n    torch.manual_seed(seed)\n{ADAPTERS}\nset_seed(1)", True),
        (f"def fix(seed):\n    set_seed(seed)\nfix(1)\n{ADAPTERS}", False),
        (f"def main():\n    {ADAPTERS}\n    set_seed(1)\nmain()", True),
        (f"def main():\n    fix(1)\n    {ADAPTERS}\ndef fix(seed):\n    set_seed(seed)\nmain()", False),
        ("rows = load_dataset('d')['train'].train_test_split(0.1, seed=2)\nset_seed(1)", False),
    ],
)
def test_a_seed_behind_what_is_drawn(tmp_path: Path, lines: str, fires: bool) -> None:
    text = LATE.format("from datasets import load_dataset\n" + lines)
    found = audited(tmp_path, {"train.py": text}, select=("MSR003",)).findings
    assert ["stands behind" in one.message for one in found] == [True] * fires


@pytest.mark.parametrize(
    ("name", "fires"), [("ds/z3.json", True), ("ds/z3_config.json", False), ("$DS/z3.json", False)]
)
def test_a_deepspeed_file_of_nearly_that_name(tmp_path: Path, name: str, fires: bool) -> None:
    config = (
        "model_name_or_path: Qwen/Qwen2.5-7B\nstage: sft\ndo_train: true\nfinetuning_type: full\ndataset: identity\n"
        f"template: qwen\noutput_dir: out\ndeepspeed: {name}\n"
    )
    files = {"train.yaml": config, "ds/z3_config.json": '{"zero_optimization": {"stage": 3}}\n'}
    found = audited(tmp_path, files, select=("CFG008",)).findings
    assert ["`ds/z3_config.json`" in one.message for one in found] == [True] * fires


def test_a_product_of_rows_and_their_limit_in_a_document(tmp_path: Path) -> None:
    train = (
        "from transformers import AutoTokenizer, DataCollatorForSeq2Seq, Trainer, TrainingArguments\n"
        "tok = AutoTokenizer.from_pretrained('gpt2')\n{}"
        "rows = rows.map(lambda row: tok(row['text'], truncation=True, max_length=2048))\n"
        "args, collate = TrainingArguments('out', seed=1), DataCollatorForSeq2Seq(tok)\n"
        "Trainer(model, args, train_dataset=rows, data_collator=collate).train()\n"
    )
    told = "# Speed\n\nWe measure 8 x 2048 x 3.1 it/s = 50.8k tokens/s.\n"
    for more, fires in (("", True), ("rows = rows.map(group_texts, block_size)\n", False)):
        files = {"README.md": told, "train.py": train.format(more)}
        found = audited(tmp_path / more[:4].strip(), files, select=("MSR001",)).findings
        assert bool(found) == fires


READS = (
    "import os\nfrom transformers import Trainer, TrainingArguments\nlr = float(os.environ.get('LR', 1e-5))\n"
    "Trainer(model, TrainingArguments('out', learning_rate=lr, seed=1), train_dataset=rows).train()\n"
)


@pytest.mark.parametrize(
    ("run", "says"),
    [
        ("export LEARNING_RATE=2e-5\npython train.py\n", "Export `LR`."),
        ("EPOCHS=3 python train.py\n", "Read it where it was meant to work, or take it out."),
        ("export LR=2e-5\npython train.py\n", ""),
        ("export EPOCHS=3\npython train.py --epochs $EPOCHS\n", ""),
        ("export NCCL_DEBUG=INFO\npython train.py\n", ""),
    ],
)
def test_a_setting_that_is_exported_in_vain(tmp_path: Path, run: str, says: str) -> None:
    found = audited(tmp_path, {"train.py": READS, "run.sh": run}, select=("CFG009",)).findings
    assert [one.remedy.text for one in found] == [says] * bool(says)


TABLE = "CONFIG = {'model': 'gpt2', 'lr': 1e-5, 'epochs': 2, 'grad_clip': 1.0}\n"
TAKES = (
    "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
    "model = AutoModelForCausalLM.from_pretrained(CONFIG['model'])\n"
    "args = TrainingArguments('out', learning_rate=CONFIG['lr'], num_train_epochs=CONFIG.get('epochs'){}, seed=1)\n"
    "Trainer(model, args, train_dataset=rows).train()\n"
)


@pytest.mark.parametrize(
    ("more", "last", "fires"),
    [
        ("", "", True),
        (", max_grad_norm=CONFIG['grad_clip']", "", False),
        ("", "wandb.init(config=CONFIG)\n", True),
        ("", "run(**CONFIG)\n", False),
        ("", "for key in CONFIG:\n    print(key)\n", False),
    ],
)
def test_an_item_of_a_dictionary_that_nothing_reads(tmp_path: Path, more: str, last: str, fires: bool) -> None:
    for name, files in (
        ("one", {"train.py": TABLE + TAKES.format(more) + last}),
        ("two", {"config.py": TABLE, "train.py": "from config import CONFIG\n" + TAKES.format(more) + last}),
    ):
        found = audited(tmp_path / name, files, select=("CFG017",)).findings
        assert ["`grad_clip` of `CONFIG`" in one.message for one in found] == [True] * fires


def test_a_clock_that_waits_on_its_own_line(tmp_path: Path) -> None:
    text = (
        "import time, torch\nmodel.cuda()\nt = time.time()\nfor batch in loader:\n    model(batch).backward()\n"
        "    opt.step()\n    opt.zero_grad()\n{}took = time.time() - t\nprint(len(loader) / took)\n"
    )
    for wait, fires in (("", True), ("torch.cuda.synchronize(); ", False)):
        found = audited(tmp_path / str(fires), {"b.py": text.format(wait)}, select=("MSR002",)).findings
        assert bool(found) == fires


@pytest.mark.parametrize(
    ("command", "fires"),
    [
        ("python run_trian.py --config a.yaml", True),
        ("torchrun --nproc_per_node 4 runtrain.py", True),
        ("python run_train.py --config a.yaml", False),
        ("python prepare.py", False),
        ("git clone https://x/y && cd y && python train.py", False),
    ],
)
def test_a_program_of_nearly_that_name(tmp_path: Path, command: str, fires: bool) -> None:
    files = {"run.sh": f"{command}\n", "run_train.py": "print(1)\n", "a.yaml": "lr: 1.0e-5\n"}
    found = [one.message for one in audited(tmp_path, files, select=("CFG008",)).findings]
    assert ["Did you mean `run_train.py`" in one for one in found] == [True] * fires

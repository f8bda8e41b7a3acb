"""Promise: right code that comes near to the newer shapes is left alone, each beside the fault that it comes near to."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited


def said(folder: Path, code: str, files: dict[str, str]) -> bool:
    return bool(audited(folder, files, select=(code,)).findings)


STREAM = """from datasets import load_dataset
from torch.utils.data import DataLoader, IterableDataset


class Stream(IterableDataset):
    def __init__(self, name):
        self.rows = {rows}

    def __iter__(self):
        for row in self.rows:
            yield row["text"]


for batch in DataLoader(Stream("a"), batch_size=8, num_workers=4):
    model(batch).loss.backward()
"""


@pytest.mark.parametrize(
    ("rows", "fires"),
    [
        ("load_dataset(name, split='train')", True),
        ("load_dataset(name, split='train', streaming=True)", False),
        ("load_dataset(name, split='train').to_iterable_dataset(num_shards=8)", False),
    ],
)
def test_streams_of_datasets_share_their_files_out(tmp_path: Path, rows: str, fires: bool) -> None:
    assert said(tmp_path, "DAT051", {"train.py": STREAM.format(rows=rows)}) is fires


SERVES = """import os
{made}
rank = int(os.environ["LOCAL_RANK"])
print(rank, {read})
"""
SETTINGS = "from pydantic_settings import BaseSettings\nclass Settings(BaseSettings):\n    lr: float = 1e-5\n"
BY_NAME = "def setting(name):\n    return os.environ[name]\n"
BY_PREFIX = "def setting(name):\n    return os.getenv(f'TRAIN_{name}')\n"


@pytest.mark.parametrize(
    ("made", "read", "more", "fires"),
    [
        ("", "1e-5", "", True),
        (SETTINGS, "Settings().lr", "", False),
        (BY_NAME, "setting(key)", "", False),
        (BY_PREFIX, "setting(key)", "", False),
        ("", "1e-5", "envsubst < args.tmpl > args.json\n", False),
    ],
)
def test_variables_that_may_be_read_by_any_name(tmp_path: Path, made: str, read: str, more: str, fires: bool) -> None:
    files = {"train.py": SERVES.format(made=made, read=read)}
    files["run.sh"] = f"export LR=3e-5\n{more}torchrun --nproc_per_node 1 train.py\n"
    assert said(tmp_path, "CFG009", files) is fires


ITEMS = """CONFIG = {"lr": 1e-5, "epochs": 2, "rows": 8, "train_file": "a", "valid_file": "b"}
"""
TAKES = """from config import CONFIG{alias}
for epoch in range(CONFIG["epochs"]):
    for batch in load({taken}, CONFIG["rows"]):
        model(batch).loss.backward()
        step(CONFIG["lr"])
"""


@pytest.mark.parametrize(
    ("alias", "taken", "fires"),
    [
        ("", "'a'", True),
        ("", "CONFIG.get('train_file'), CONFIG.get('other')", True),
        ("", "CONFIG.get(f'{split}_file')", False),
        (", CONFIG as C", "[v for k, v in C.items() if k.endswith('file')]", False),
    ],
)
def test_items_that_are_taken_in_other_ways(tmp_path: Path, alias: str, taken: str, fires: bool) -> None:
    files = {"config.py": ITEMS, "train.py": TAKES.format(alias=alias, taken=taken)}
    assert said(tmp_path, "CFG017", files) is fires


ENGINE = """import json
import deepspeed
ds = json.load(open("ds.json"))
{before}
engine, _, _, _ = deepspeed.initialize(model=model, config=ds)
for batch in loader:
    loss = engine(**batch).loss{divided}
    engine.backward(loss)
    engine.step()
    {behind}
"""


@pytest.mark.parametrize(
    ("before", "divided", "behind", "fires"),
    [
        ("", " / 4", "", True),
        ("", "", "loss = loss.detach() / 4", False),
        ("", "", "loss /= accum", False),
        ('ds["gradient_accumulation_steps"] = 1', " / 4", "", False),
        ('ds.update({"gradient_accumulation_steps": 1})', " / 4", "", False),
    ],
)
def test_divided_for_the_log_or_alone(tmp_path: Path, before: str, divided: str, behind: str, fires: bool) -> None:
    text = ENGINE.format(before=before, divided=divided, behind=behind)
    config = (
        '{"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4, "zero_optimization": {"stage": 1}}'
    )
    files = {"train.py": text, "ds.json": config, "run.sh": "deepspeed --num_gpus 2 train.py\n"}
    assert said(tmp_path, "OPT054", files) is fires


SPREAD = """import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

accum = 64 // 4 // torch.cuda.device_count()
args = TrainingArguments(output_dir="out", per_device_train_batch_size=4, gradient_accumulation_steps=accum, bf16=True)
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-3B", device_map="auto")
Trainer(model=model, args=args, train_dataset=data).train()
"""


@pytest.mark.parametrize(
    ("shown", "fires"), [("", True), ("CUDA_VISIBLE_DEVICES=0,1 ", True), ("CUDA_VISIBLE_DEVICES=0 ", False)]
)
def test_one_gpu_is_no_division(tmp_path: Path, shown: str, fires: bool) -> None:
    assert said(tmp_path, "DST052", {"train.py": SPREAD, "run.sh": f"{shown}python train.py\n"}) is fires


WINDOWS = """from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained("gpt2")
for i in range(0, len(data), 512):
    batch = {{"input_ids": data[i : i + 512], "labels": data[i + 1 : i + 513]}}
    model({given}).loss.backward()
"""


@pytest.mark.parametrize(
    ("given", "fires"),
    [("**batch", True), ('input_ids=batch["input_ids"], shift_labels=batch["labels"]', False)],
)
def test_labels_that_the_model_shifts_no_more(tmp_path: Path, given: str, fires: bool) -> None:
    text = WINDOWS.format(given=given)
    found = audited(tmp_path, {"train.py": text}).findings
    assert any("a token later" in one.message for one in found) is fires


GONE = "from transformers import AdamW\n"


@pytest.mark.parametrize(
    ("more", "fires"),
    [
        ({"requirements.txt": "transformers\n"}, True),
        ({"requirements.txt": "transformers\n", "constraints.txt": "transformers==4.40.0\n"}, False),
        ({"environment.yml": "dependencies:\n  - transformers\n"}, True),
        ({"environment.yml": "dependencies:\n  - transformers=4.40.0\n"}, False),
        ({"environment.yml": "dependencies:\n  - transformers=4.51.3\n"}, True),
        ({"requirements.txt": "transformers\n", "uv.lock": "version = 1\n"}, False),
    ],
)
def test_releases_that_are_pinned_elsewhere(tmp_path: Path, more: dict[str, str], fires: bool) -> None:
    assert said(tmp_path, "ENV007", {"train.py": GONE, **more}) is fires


TRIAL = """from transformers import Trainer, TrainingArguments
{more}
def objective(trial):
    args = TrainingArguments("out", save_strategy="no", num_train_epochs=3, learning_rate=1e-5)
    trainer = Trainer("gpt2", args, train_dataset=data)
    return trainer.train(){figure}
{then}
"""


@pytest.mark.parametrize(
    ("more", "figure", "then", "fires"),
    [
        ("", "", "objective(None)", True),
        ("", ".training_loss", "objective(None)", False),
        ("import optuna", "", "optuna.create_study().optimize(objective)", False),
    ],
)
def test_runs_for_their_figure(tmp_path: Path, more: str, figure: str, then: str, fires: bool) -> None:
    text = TRIAL.format(more=more, figure=figure, then=then)
    found = audited(tmp_path, {"train.py": text}, select=("CKP001",)).findings
    assert any("is gone when" in one.message for one in found) is fires


DEVICE = """import argparse
from transformers import AutoModelForCausalLM
p = argparse.ArgumentParser()
p.add_argument("--device", default="cpu")
args = p.parse_args()
model = AutoModelForCausalLM.from_pretrained("gpt2").to(args.device)
for batch in loader:
    model(**batch).loss.backward()
"""


@pytest.mark.parametrize(
    ("command", "fires"),
    [("python train.py", True), ('python train.py "$@"', False), ("python train.py --device cuda", False)],
)
def test_a_device_that_a_launcher_may_be_given(tmp_path: Path, command: str, fires: bool) -> None:
    job = f"#!/bin/bash\n#SBATCH --gres=gpu:1\n{command}\n"
    assert said(tmp_path, "HST004", {"train.py": DEVICE, "job.sh": job}) is fires


ACCELERATE = """compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config:
  fsdp_auto_wrap_policy: {}
  fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer
num_processes: 4
"""
WRAPPED = """from transformers import Trainer, TrainingArguments
Trainer("Qwen/Qwen2.5-7B", TrainingArguments("out", bf16=True), train_dataset=data).train()
"""


@pytest.mark.parametrize(("policy", "fires"), [("TRANSFORMER_BASED_WRAP", True), ("SIZE_BASED_WRAP", False)])
def test_a_layer_that_no_policy_wraps(tmp_path: Path, policy: str, fires: bool) -> None:
    files = {"train.py": WRAPPED, "a.yaml": ACCELERATE.format(policy)}
    files["run.sh"] = "accelerate launch --config_file a.yaml train.py\n"
    assert said(tmp_path, "CFG013", files) is fires


@pytest.mark.parametrize(
    ("run", "fires"),
    [
        ("python train_v3.py\n", True),
        ("sed s/1/2/ train_v2.py > train_v3.py\npython train_v3.py\n", False),
        ("cp train_v2.py train_v3.py\npython train_v3.py\n", False),
        ("jupyter nbconvert --to script train_v3.ipynb\npython train_v3.py\n", False),
    ],
)
def test_programs_that_are_made_first(tmp_path: Path, run: str, fires: bool) -> None:
    assert said(tmp_path, "CFG008", {"train_v2.py": WRAPPED, "run.sh": run}) is fires


LOOP = """import torch
import timm
model = timm.create_model("vit_base_patch16_224").cuda()
{more}
opt = torch.optim.AdamW(model.parameters())
for i, (x, y) in enumerate(loader):
    loss = torch.nn.functional.cross_entropy(model(x.cuda()), y.cuda())
    loss.backward()
    {step}
"""
PLAIN = "opt.step(); opt.zero_grad()"


@pytest.mark.parametrize(
    ("claim", "more", "step", "fires"),
    [
        ("Gradient checkpointing", "", PLAIN, True),
        ("Gradient checkpointing", "model.set_grad_checkpointing(True)", PLAIN, False),
        ("Trained with gradient accumulation over 4 batches.", "", PLAIN, True),
        (
            "Trained with gradient accumulation over 4 batches.",
            "",
            "if (i + 1) % 4 == 0:\n        opt.step()\n        opt.zero_grad()",
            False,
        ),
    ],
)
def test_claims_that_are_kept_in_other_words(tmp_path: Path, claim: str, more: str, step: str, fires: bool) -> None:
    files = {"train.py": LOOP.format(more=more, step=step), "README.md": f"# Model\n\n- {claim}\n"}
    assert said(tmp_path, "CFG011", files) is fires


PRETRAINS = """from transformers import AutoModelForCausalLM, DataCollatorForLanguageModeling, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("gpt2")
Trainer(model, TrainingArguments("out"), train_dataset=rows,
        data_collator=DataCollatorForLanguageModeling(tok, mlm=False)).train()
"""
AXOLOTL = (
    "base_model: gpt2\ndatasets: [{path: a.jsonl, type: chat_template}]\ntrain_on_inputs: false\nmicro_batch_size: 1\n"
)
CLAIM = "First `python pretrain.py`, then `axolotl train sft.yaml`. Then the loss is on the assistant's answers only.\n"


@pytest.mark.parametrize(("more", "fires"), [({}, True), ({"sft.yaml": AXOLOTL}, False)])
def test_a_claim_of_another_stage(tmp_path: Path, more: dict[str, str], fires: bool) -> None:
    files = {"pretrain.py": PRETRAINS, "README.md": CLAIM, **more}
    assert said(tmp_path, "MSK001", files) is fires

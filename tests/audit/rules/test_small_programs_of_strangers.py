"""Promise: names that people give to optimizers and counts, and libraries that they start programs by, change no finding."""

import json
from pathlib import Path

import pytest

from tests.audit.made_up import audited


def found(folder: Path, code: str, files: dict[str, str]) -> list[str]:
    return [one.message for one in audited(folder, files, select=(code,)).findings]


GAN = """import torch

from nets import G, D

torch.manual_seed(0)
g, d = G().cuda(), D().cuda()
og = torch.optim.Adam(g.parameters(), 2e-4)
od = torch.optim.Adam(d.parameters(), 2e-4)
for e in range(200):
    for x in loader:
        od.zero_grad(); critic(g, d, x).backward(); od.step()
        og.zero_grad(); fool(g, d, x).backward(); og.step()
    torch.save({}, "last.pt")
"""
WHOLE = '{"g": g.state_dict(), "d": d.state_dict(), "og": og.state_dict(), "od": od.state_dict(), "e": e}'


def test_an_optimizer_is_one_whatever_it_is_called(tmp_path: Path) -> None:
    assert not found(tmp_path / "whole", "CKP002", {"train.py": GAN.format(WHOLE)})
    half = GAN.format('{"g": g.state_dict(), "d": d.state_dict(), "e": e}')
    assert found(tmp_path / "half", "CKP002", {"train.py": half})
    assert not found(tmp_path / "held", "CKP002", {"train.py": "# dynotune: ignore-file[CKP002] short\n" + half})


ACCELERATED = """import torch
from accelerate import Accelerator, DistributedDataParallelKwargs
from transformers import AutoModelForSeq2SeqLM, AutoModel

accelerator = Accelerator(kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=True)])
model = {}.from_pretrained("{}")
opt = torch.optim.AdamW(model.parameters(), lr=1e-4)
model, opt, loader = accelerator.prepare(model, opt, loader)
for batch in loader:
    accelerator.backward(model(**batch).loss)
    opt.step()
    opt.zero_grad()
"""
LIGHTNING = """import lightning as L
from lightning.pytorch.strategies import DDPStrategy
from transformers import AutoModelForCausalLM


class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = AutoModelForCausalLM.from_pretrained("{}")

    def training_step(self, batch, _):
        return self.model(**batch).loss


L.Trainer(devices=4, strategy={}).fit(Model(), loader)
"""
VISION = """import torch
import torchvision
from torch.nn.parallel import DistributedDataParallel as DDP

model = DDP(torchvision.models.{}(num_classes=10).cuda(), find_unused_parameters=True)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    torch.nn.functional.cross_entropy(model(x), y).backward()
    opt.step()
    opt.zero_grad()
"""


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (ACCELERATED.format("AutoModelForSeq2SeqLM", "google/flan-t5-base"), True),
        (ACCELERATED.format("AutoModelForSeq2SeqLM", "facebook/bart-large"), True),
        (ACCELERATED.format("AutoModel", "google/flan-t5-base"), False),
        (ACCELERATED.format("AutoModelForSeq2SeqLM", "t5-base").replace("model(**", "model.encoder(**"), False),
        (ACCELERATED.format("AutoModelForSeq2SeqLM", "google/switch-base-8"), False),
        (LIGHTNING.format("Qwen/Qwen2.5-0.5B", "DDPStrategy(find_unused_parameters=True)"), True),
        (LIGHTNING.format("Qwen/Qwen2.5-0.5B", '"ddp_find_unused_parameters_true"'), True),
        (LIGHTNING.format("Qwen/Qwen2.5-0.5B", '"ddp"'), False),
        (LIGHTNING.format("mistralai/Mixtral-8x7B-v0.1", '"ddp_find_unused_parameters_true"'), False),
        (VISION.format("resnet50"), True),
        (VISION.format("inception_v3"), False),
    ],
)
def test_nothing_is_unused(tmp_path: Path, script: str, expected: bool) -> None:
    assert bool(found(tmp_path, "DST002", {"train.py": script})) is expected


DIVIDED = """import argparse
import os

from transformers import Trainer, TrainingArguments

p = argparse.ArgumentParser()
p.add_argument("--accum", type=int, default=4)
a = p.parse_args()
world = int(os.environ.get("WORLD_SIZE", 1))
args = TrainingArguments(output_dir="o", gradient_accumulation_steps={})
Trainer(model=model, args=args, train_dataset=rows).train()
"""


@pytest.mark.parametrize(
    ("accumulation", "run", "expected"),
    [
        ("a.accum // world", "torchrun --nproc_per_node 8 train.py\n", True),
        ("a.accum // world", "torchrun --nproc_per_node 8 train.py --accum 2\n", True),
        ("a.accum // world", "torchrun --nproc_per_node 8 train.py --accum 32\n", False),
        ("a.accum // world", "torchrun --nproc_per_node 4 train.py\n", False),
        ("max(1, a.accum // world)", "torchrun --nproc_per_node 8 train.py\n", False),
    ],
)
def test_no_micro_batch_is_left(tmp_path: Path, accumulation: str, run: str, expected: bool) -> None:
    messages = found(tmp_path, "DST052", {"train.py": DIVIDED.format(accumulation), "run.sh": run})
    assert any("which is 0" in one for one in messages) is expected


SENT = "learning_rate: 1.0e-5\nnum_train_epochs: 2\nper_device_train_batch_size: 8\n"
PARSED = """import argparse

from transformers import Trainer, TrainingArguments

p = argparse.ArgumentParser()
p.add_argument("--lr", type=float, default=1e-5)
a = p.parse_args()
Trainer(model=model, args=TrainingArguments(output_dir="o", learning_rate=a.lr), train_dataset=rows).train()
"""


@pytest.mark.parametrize(
    ("readme", "run", "script", "expected"),
    [
        ("All settings live in `conf/full.yaml`; edit it, then run `bash run.sh`.\n", "", PARSED, True),
        ("Hyperparameters are read from conf/full.yaml.\n", "", PARSED, True),
        (
            "All settings live in `conf/full.yaml`.\n",
            "",
            "import yaml\nc = yaml.safe_load(open(path))\n" + PARSED,
            False,
        ),
        ("All settings live in `conf/full.yaml`.\n", " $1 conf/full.yaml", PARSED, False),
        ("`conf/full.yaml` is not read yet; settings are flags.\n", "", PARSED, False),
        ("Edit it and start `python train.py conf/full.yaml`.\n", "", PARSED, False),
    ],
)
def test_edited_and_read_by_nobody(tmp_path: Path, readme: str, run: str, script: str, expected: bool) -> None:
    files = {"README.md": readme, "run.sh": f"python train.py --lr 2e-5{run}\n", "train.py": script}
    assert bool(found(tmp_path, "CFG010", {**files, "conf/full.yaml": SENT})) is expected


def test_a_key_of_another_trainer_makes_no_batch(tmp_path: Path) -> None:
    lora = (
        "base_model: NousResearch/Meta-Llama-3.1-8B\nadapter: lora\nlora_r: 8\ndatasets:\n  - path: d.jsonl\n"
        "    type: alpaca\n"
        "sequence_len: 4096\nmicro_batch_size: 2  # effective batch size 8\nper_device_train_batch_size: 8\n"
        "gradient_accumulation_steps: 4\n"
    )
    assert not found(tmp_path, "CFG011", {"lora.yaml": lora, "README.md": "On one A100 80GB.\n"})


ADAPTED = """from datasets import load_dataset
from peft import LoraConfig
from trl import SFTConfig, SFTTrainer

peft_config = LoraConfig(r=8, target_modules="all-linear")
SFTTrainer("Qwen/Qwen2.5-0.5B", args=SFTConfig(output_dir="o"), train_dataset=load_dataset("x/y"){}).train()
"""


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"train.py": ADAPTED.format("")}, True),
        ({"train.py": ADAPTED.format(", peft_config=peft_config")}, False),
        ({"train.py": ADAPTED.format("") + "show(peft_config)\n"}, False),
        ({"train.py": ADAPTED.format(""), "other.py": "from train import peft_config\n"}, False),
        ({"train.py": "# dynotune: ignore-file[LOR002] kept\n" + ADAPTED.format("")}, False),
    ],
)
def test_an_adapter_that_is_handed_to_nothing(tmp_path: Path, files: dict[str, str], expected: bool) -> None:
    assert bool(found(tmp_path, "LOR002", files)) is expected


PACED = """import torch

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max={})
for epoch in range(EPOCHS):
    for x, y in train_loader:
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
{}scheduler.step()
"""


@pytest.mark.parametrize(
    ("total", "indented", "expected"),
    [
        ("EPOCHS", " " * 8, True),
        ("EPOCHS * len(train_loader)", " " * 4, True),
        ("EPOCHS", " " * 8 + "if last(x):\n" + " " * 12, False),
        ("EPOCHS", " " * 4, False),
        ("EPOCHS * len(train_loader)", " " * 8, False),
        ("steps", " " * 8, False),
    ],
)
def test_epochs_and_batches_are_counted_alike(tmp_path: Path, total: str, indented: str, expected: bool) -> None:
    for number, first in enumerate(("EPOCHS = 90\n", "")):
        files = {"train.py": first + PACED.format(total, indented)}
        assert bool(found(tmp_path / str(number), "OPT052", files)) is expected


UNDER = """from accelerate import Accelerator

accelerator = Accelerator(gradient_accumulation_steps=8)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for batch in loader:
    with accelerator.accumulate(model):
        loss = model(**batch).loss{}
        {}
        optimizer.step()
        optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    ("divided", "backward", "expected"),
    [
        ("", "loss.backward()", True),
        ("", "accelerator.backward(loss)", False),
        (" / 8", "loss.backward()", False),
    ],
)
def test_a_loss_goes_past_accelerate(tmp_path: Path, divided: str, backward: str, expected: bool) -> None:
    assert bool(found(tmp_path, "OPT054", {"train.py": UNDER.format(divided, backward)})) is expected


TRAINED = """import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

{}
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
args = TrainingArguments(output_dir="o", save_only_model={}, save_strategy="epoch", num_train_epochs=9)
trainer = Trainer(model=model, args=args, train_dataset=rows)
trainer.train({})
"""


@pytest.mark.parametrize(
    ("only", "resumed", "expected"),
    [
        (True, "resume_from_checkpoint=True", True),
        (False, "resume_from_checkpoint=True", False),
        (True, "", False),
        (True, "resume_from_checkpoint=False", False),
    ],
)
def test_what_train_is_told_to_resume_from(tmp_path: Path, only: bool, resumed: str, expected: bool) -> None:
    files = {"train.py": TRAINED.format("", only, resumed)}
    assert any("begins anew" in one for one in found(tmp_path, "CKP002", files)) is expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("torch.autograd.set_detect_anomaly(True)", True),
        ("torch.autograd.set_detect_anomaly(False)", False),
        ("if debug:\n    torch.autograd.set_detect_anomaly(True)", False),
    ],
)
def test_anomalies_are_looked_for_at_every_step(tmp_path: Path, line: str, expected: bool) -> None:
    assert bool(found(tmp_path, "ENV005", {"train.py": TRAINED.format(line, False, "")})) is expected


SERVICE = "services:\n  a:\n    build: .\n{}  b:\n    build: .\n    command: python train.py\n{}"


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("docker-compose.yml", SERVICE.format("", "    environment:\n      - CUDA_LAUNCH_BLOCKING=1\n"), True),
        ("docker-compose.yml", SERVICE.format("", '    environment:\n      CUDA_LAUNCH_BLOCKING: "1"\n'), True),
        ("docker-compose.yml", SERVICE.format("    environment:\n      - CUDA_LAUNCH_BLOCKING=1\n", ""), False),
        ("Dockerfile", 'FROM x\nENV CUDA_LAUNCH_BLOCKING=1\nCMD ["python", "train.py"]\n', True),
        ("Dockerfile", 'FROM x\nENV CUDA_LAUNCH_BLOCKING 1\nENTRYPOINT ["python", "train.py"]\n', True),
        ("Dockerfile", 'FROM x\nENV CUDA_LAUNCH_BLOCKING=0\nCMD ["python", "train.py"]\n', False),
    ],
)
def test_variables_of_containers(tmp_path: Path, name: str, text: str, expected: bool) -> None:
    files = {"train.py": TRAINED.format("", False, ""), name: text}
    assert bool(found(tmp_path, "ENV005", files)) is expected


@pytest.mark.parametrize(
    ("readme", "expected"),
    [
        ("We recommend to install apex for faster mixed precision training.\n", True),
        ("Installing flash-attention speeds training up.\n", True),
        ("Install flash-attention for faster serving with vLLM.\n", False),
        ("There is no need to install apex.\n", False),
    ],
)
def test_told_in_words_to_install(tmp_path: Path, readme: str, expected: bool) -> None:
    files = {"train.py": TRAINED.format("", False, ""), "README.md": readme}
    assert bool(found(tmp_path, "CFG011", files)) is expected


@pytest.mark.parametrize(
    ("made", "indented", "expected"),
    [
        ("MultiStepLR(optimizer, milestones=[30, 60, 80], gamma=0.1)", " " * 8, True),
        ("StepLR(optimizer, 30)", " " * 8, True),
        ("MultiStepLR(optimizer, milestones=[30, 60, 80], gamma=0.1)", " " * 4, False),
        ("MultiStepLR(optimizer, milestones=[3000, 6000])", " " * 8, False),
        ("StepLR(optimizer, step_size=every)", " " * 8, False),
    ],
)
def test_milestones_are_epochs(tmp_path: Path, made: str, indented: str, expected: bool) -> None:
    text = "EPOCHS = 90\n" + PACED.replace("CosineAnnealingLR(optimizer, T_max={})", made).format(indented)
    assert bool(found(tmp_path, "OPT052", {"train.py": text})) is expected


LIT = """import lightning as L
import torch


class Model(L.LightningModule):
    def training_step(self, batch, _):
        return self.net(batch).mean()

    def configure_optimizers(self):
        o = torch.optim.AdamW(self.parameters(), lr=1e-3)
        s = torch.optim.lr_scheduler.OneCycleLR(o, 1e-3, total_steps={})
        return {}


L.Trainer(max_epochs=9).fit(Model(), loader)
"""
STEPS = "self.trainer.estimated_stepping_batches"


@pytest.mark.parametrize(
    ("steps", "returned", "expected"),
    [
        (STEPS, "[o], [s]", True),
        (STEPS, '{"optimizer": o, "lr_scheduler": s}', True),
        (STEPS, '[o], [{"scheduler": s, "interval": "step"}]', False),
        ("self.trainer.max_epochs", "[o], [s]", False),
    ],
)
def test_an_interval_of_lightning(tmp_path: Path, steps: str, returned: str, expected: bool) -> None:
    assert bool(found(tmp_path, "OPT052", {"train.py": LIT.format(steps, returned)})) is expected


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        ("MAX_LEN = 2048", "", True),
        ("MAX_LEN = 2048  # unused", "", False),
        ("MAX_LEN = 2048", "print(MAX_LEN)\n", False),
        ("VERSION = 2", "", False),
    ],
)
def test_constants_that_nobody_reads(tmp_path: Path, first: str, last: str, expected: bool) -> None:
    files = {"train.py": TRAINED.format(first, False, "") + last}
    assert bool(found(tmp_path, "CFG017", files)) is expected
    assert not found(tmp_path / "other", "CFG017", {**files, "more.py": "from train import MAX_LEN\n"})


def notebook(words: str) -> str:
    code = TRAINED.format("", False, "").splitlines(keepends=True)
    cells = [{"cell_type": "markdown", "metadata": {}, "source": [words]}]
    cells += [{"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": code}]
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 4})


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("We train for 3 epochs.", True),
        ("We train for 9 epochs.", False),
        ("Start with `python train.py --epochs 3`.", False),
    ],
)
def test_claims_of_a_notebooks_text(tmp_path: Path, words: str, expected: bool) -> None:
    assert bool(found(tmp_path, "CFG011", {"train.ipynb": notebook(words)})) is expected


def test_values_of_a_command_in_a_sentence_are_its_own(tmp_path: Path) -> None:
    files = {"train.py": TRAINED.format("", False, "").replace("output_dir", "learning_rate=1e-4, output_dir")}
    assert not found(tmp_path / "typed", "CFG011", {**files, "README.md": "Run `python train.py lr=3e-4`.\n"})
    assert found(tmp_path / "said", "CFG011", {**files, "README.md": "Trained with a learning rate of 3e-4.\n"})


@pytest.mark.parametrize(
    ("strategy", "rows", "expected"),
    [
        ("steps", "", True),
        ("epoch", "", True),
        ("no", "", False),
        ("steps", ", eval_dataset=held", False),
        ("steps", ", **more", False),
    ],
)
def test_a_trainer_without_rows_to_evaluate_on(tmp_path: Path, strategy: str, rows: str, expected: bool) -> None:
    text = TRAINED.format("", False, "").replace("save_strategy", f'eval_strategy="{strategy}", save_strategy')
    files = {"train.py": text.replace("train_dataset=rows", f"train_dataset=rows{rows}")}
    assert bool(found(tmp_path, "CFG018", files)) is expected

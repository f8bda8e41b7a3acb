"""Promise: what a program asks for and hands to nobody, and what it does again in each epoch, is found however options are
read and loops are started."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

LOOP = """
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B").cuda()
    opt = torch.optim.AdamW(model.parameters(), lr=lr, fused=True)
    for epoch in range(epochs):
        for batch in loader:
            loss = model(**batch).loss
            loss.backward()
            opt.step()
            opt.zero_grad()
"""
ACCELERATE = """
import torch
from accelerate import Accelerator
from transformers import AutoModelForCausalLM

{options}
torch.manual_seed(1)
accelerator = Accelerator({given})
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
opt = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
model, opt, loader = accelerator.prepare(model, opt, loader)
for batch in loader:
    accelerator.backward(model(**batch).loss)
    opt.step()
    opt.zero_grad()
"""
ARGPARSE = """
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--mixed_precision", default="{}", choices=["no", "fp16", "bf16"])
args = parser.parse_args()
{}
"""
DATACLASS = """
from dataclasses import dataclass, fields

import yaml


@dataclass
class TrainArgs:
    lr: float = 1e-5
    mixed_precision: str = "{}"


raw = yaml.safe_load(open("sft.yaml"))
assert not set(raw) - {{f.name for f in fields(TrainArgs)}}
args = TrainArgs(**raw)
{}
"""
FIRE = """import fire
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments


def train(bf16={}, lr=1e-5):
    print(f"bf16={{bf16}}")
    model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
    args = TrainingArguments(output_dir="out", learning_rate=lr, seed=1, {})
    Trainer(model=model, args=args, train_dataset=rows).train()


fire.Fire(train)
"""
TYPER = (
    "import torch\nimport typer\nfrom transformers import AutoModelForCausalLM\n\n\n"
    "def main(lr: float = 1e-5, precision: str = typer.Option({!r}), epochs: int = 2):" + LOOP + "\n\ntyper.run(main)\n"
)
CLICK = (
    "import click\nimport torch\nfrom transformers import AutoModelForCausalLM\n\n\n@click.command()\n"
    "@click.option('--precision', type=click.Choice(['no', 'bf16']), default={!r})\n"
    "@click.option('--lr', default=1e-5)\n@click.option('--epochs', default=2)\ndef main(precision, lr, epochs):"
    + LOOP
    + "\n\nmain()\n"
)


def precision(folder: Path, train: str, **more: str) -> list[str]:
    files = {"train.py": train, **{name.replace("_", "."): text for name, text in more.items()}}
    return [str(one.place) for one in audited(folder, files, select=("PRC002",)).findings]


@pytest.mark.parametrize(
    ("asked", "not_asked"),
    [
        *[
            (ACCELERATE.format(options=options.format("bf16", ""), given=""), other)
            for options in (ARGPARSE, DATACLASS)
            for other in (
                ACCELERATE.format(options=options.format("no", ""), given=""),
                ACCELERATE.format(options=options.format("bf16", ""), given="mixed_precision=args.mixed_precision"),
                ACCELERATE.format(options=options.format("bf16", "run(**vars(args))"), given=""),
                ACCELERATE.format(options=options.format("bf16", "half = torch.bfloat16"), given=""),
            )
        ],
        (FIRE.format("True", ""), FIRE.format("False", "")),
        (FIRE.format("True", ""), FIRE.format("True", "bf16=bf16")),
        (TYPER.format("bf16"), TYPER.format("fp32")),
        (CLICK.format("bf16"), CLICK.format("no")),
    ],
)
def test_a_precision_that_nobody_gets(tmp_path: Path, asked: str, not_asked: str) -> None:
    more = {"sft_yaml": "lr: 1.0e-5\n"}
    (found,) = precision(tmp_path / "asked", asked, **more)
    assert not precision(tmp_path / "not", not_asked, **more)
    line = int(found.split(":")[1].split()[0])
    lines = asked.split("\n")
    lines[line - 1] += "  # dynotune: ignore[PRC002] a trial in float32"
    assert not precision(tmp_path / "held", "\n".join(lines), **more)


ROWS = """from torch.utils.data import Dataset


class Rows(Dataset):
    def __init__(self, texts, tokenizer):
        self.texts, self.tokenizer = texts, tokenizer

    def __getitem__(self, i):
        {}
"""
TOKENS = 'return self.tokenizer(self.texts[i], truncation=True)["input_ids"]'
HF = """from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

from data import {made}

tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B")
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
args = TrainingArguments("out", seed=1, num_train_epochs={epochs}, dataloader_num_workers={workers})
Trainer(model=model, args=args, train_dataset={made}(texts, tokenizer)).train()
"""
DDP = """import torch
import torch.multiprocessing as mp
from torch.utils.data import DataLoader

from config import Config
from data import Rows


def work(rank, world, cfg):
    torch.manual_seed(cfg.seed)
    model = make_model().cuda(rank)
    rows = Rows(texts, tokenizer)
    loader = DataLoader(rows, batch_size=8, shuffle=True, num_workers=4, pin_memory=True)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    for epoch in range(cfg.epochs):
        for batch in loader:
            loss = model(batch)
            loss.backward()
            opt.step()
            opt.zero_grad()


if __name__ == "__main__":
    mp.spawn(work, args=(8, Config()), nprocs=8)
"""
CONFIG = "from dataclasses import dataclass\n\n\n@dataclass\nclass Config:\n    epochs: int = {}\n    seed: int = 1\n"
TRANSFORM = """from datasets import load_dataset


def load(path, tokenizer):
    rows = load_dataset("json", data_files=path, split="train")

    def encode(batch):
        {}return tokenizer(batch["text"], truncation=True)

    rows.{}(encode{})
    return rows
"""


def again(folder: Path, **files: str) -> list[str]:
    named = {f"{name}.py": text for name, text in files.items()}
    return [str(one.place) for one in audited(folder, named, select=("HST006",)).findings]


def test_text_that_is_tokenised_in_each_epoch(tmp_path: Path) -> None:
    rows, hf = ROWS.format(TOKENS), HF.format(made="Rows", epochs=3, workers=4)
    transformed = TRANSFORM.format("", "set_transform", "")
    for number, files in enumerate(
        (
            {"data": rows, "train": hf},
            {"data": rows, "train": HF.format(made="Rows", epochs=3, workers=0)},
            {"data": rows, "train": DDP, "config": CONFIG.format(4)},
            {"data": transformed, "train": HF.format(made="load", epochs=2, workers=2)},
            {
                "data": ROWS.format("return self._encode(i)\n\n    def _encode(self, i):\n        " + TOKENS),
                "train": hf,
            },
        )
    ):
        (found,) = again(tmp_path / f"{number}", **files)
        assert found.startswith("data.py")
    held = TOKENS + "  # dynotune: ignore[HST006] few rows"
    assert not again(tmp_path / "held", data=ROWS.format(held), train=hf)


def test_text_that_is_tokenised_once_or_anew(tmp_path: Path) -> None:
    rows = ROWS.format(TOKENS)
    anew = ROWS.format("text = random.choice(self.texts[i])\n        return self.tokenizer(text)")
    for number, files in enumerate(
        (
            {"data": rows, "train": HF.format(made="Rows", epochs=1, workers=4)},
            {"data": rows, "train": DDP, "config": CONFIG.format(1)},
            {"data": anew, "train": HF.format(made="Rows", epochs=3, workers=4)},
            {"data": ROWS.format("return self.tokens[i]"), "train": HF.format(made="Rows", epochs=3, workers=4)},
            {
                "data": TRANSFORM.format("", "map", ", batched=True"),
                "train": HF.format(made="load", epochs=2, workers=2),
            },
        )
    ):
        assert not again(tmp_path / f"{number}", **files)


MADE = """import torch
from torch.nn.parallel import DistributedDataParallel as DDP
from transformers import {imports}

torch.manual_seed(0)
model = DDP({model}.cuda(), find_unused_parameters=True)
opt = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
for batch in loader:
    loss = model(**batch).loss
    loss.backward()
    opt.step()
    opt.zero_grad()
"""


@pytest.mark.parametrize(
    ("imports", "model", "fires"),
    [
        ("LlamaConfig, LlamaForCausalLM", "LlamaForCausalLM(LlamaConfig(hidden_size=64))", True),
        ("GPT2Config, GPT2LMHeadModel", "GPT2LMHeadModel(GPT2Config())", True),
        ("AutoModelForCausalLM, Qwen2Config", "AutoModelForCausalLM.from_config(Qwen2Config())", True),
        ("MixtralConfig, MixtralForCausalLM", "MixtralForCausalLM(MixtralConfig())", False),
        ("LlamaForCausalLM", "LlamaForCausalLM.from_pretrained('mine/of-my-own')", False),
    ],
)
def test_a_dense_model_made_of_a_configuration(tmp_path: Path, imports: str, model: str, fires: bool) -> None:
    train = MADE.format(imports=imports, model=model)
    assert bool(audited(tmp_path, {"train.py": train}, select=("DST002",)).findings) is fires


RANKED = """import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("nccl")
torch.manual_seed(0)
world, accum = dist.get_world_size(), 4
model = DDP(Net().cuda())
opt = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
for i, (x, y) in enumerate(loader):
    {}
    loss.backward()
    if (i + 1) % accum == 0:
        opt.step()
        opt.zero_grad()
"""


@pytest.mark.parametrize(
    ("loss", "fires"),
    [
        ("loss = model(x, y) / accum / dist.get_world_size()", True),
        ("loss = model(x, y) / (accum * world)", True),
        ("loss = model(x, y)\n    loss /= world", True),
        ("loss = model(x, y) / accum", False),
        ("loss = model(x, y).sum() / (tokens / world)", False),
        ("loss = model(x, y) / accum  # not / world", False),
    ],
)
def test_a_loss_divided_by_the_ranks_too(tmp_path: Path, loss: str, fires: bool) -> None:
    files = {"train.py": RANKED.format(loss), "run.sh": "torchrun --nproc_per_node 8 train.py\n"}
    assert bool(audited(tmp_path, files, select=("DST050",)).findings) is fires


@pytest.mark.parametrize(
    ("line", "fires"),
    [("micro = micro // world", True), ("micro_batch = micro // world", True), ("share = total // world", False)],
)
def test_a_share_that_is_divided_once_more(tmp_path: Path, line: str, fires: bool) -> None:
    train = f"import os\n\nworld = int(os.environ['WORLD_SIZE'])\ntotal, micro = 128, 4\n{line}\n"
    files = {"train.py": train, "run.sh": "torchrun --nproc_per_node 8 train.py\n"}
    assert bool(audited(tmp_path, files, select=("DST052",)).findings) is fires


def grouped(folder: Path, **files: str) -> list[str]:
    named = {f"{name}.py": text for name, text in files.items()} | {"requirements.txt": "transformers==4.46.3\n"}
    return [str(one.place) for one in audited(folder, named, select=("PAD004",)).findings]


def test_rows_whose_lengths_nobody_has_yet(tmp_path: Path) -> None:
    rows = ROWS.format(TOKENS)
    hf = HF.format(made="Rows", epochs=3, workers=4).replace("seed=1", "seed=1, group_by_length=True")
    transformed = TRANSFORM.format("", "set_transform", "")
    made = HF.format(made="load", epochs=1, workers=2).replace("seed=1", "seed=1, group_by_length=True")
    assert grouped(tmp_path / "rows", data=rows, train=hf)
    assert grouped(tmp_path / "transform", data=transformed, train=made)
    held = made.replace("group_by_length=True", 'group_by_length=True, length_column_name="n"')
    for number, files in enumerate(
        (
            {"data": ROWS.format("return self.tokens[i]"), "train": hf},
            {"data": TRANSFORM.format("", "map", ", batched=True"), "train": made},
            {"data": rows, "train": hf.replace("group_by_length=True", "group_by_length=False")},
            {"data": transformed, "train": held},
        )
    ):
        assert not grouped(tmp_path / f"{number}", **files)

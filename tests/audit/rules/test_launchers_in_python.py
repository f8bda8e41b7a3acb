"""Promise: values that a launcher in Python loses on the way from a configuration to a script are found, in the ways that
people write such loops."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

LAUNCH = """import subprocess
import sys

import yaml

cfg = yaml.safe_load(open(sys.argv[1]))
cmd = ["torchrun", "--nproc_per_node=8", "train.py"]
{}
subprocess.run(cmd, check=True)
"""
TRAIN = """import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=1e-5)
parser.add_argument("--weight_decay", type=float, default=0.1)
parser.add_argument("--checkpointing", type=bool, default=True)
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
print(args.lr, args.weight_decay, args.checkpointing, args.seed)
"""
DATA = """from dataclasses import dataclass

from transformers import HfArgumentParser


@dataclass
class Options:
    lr: float = 1e-5
    weight_decay: float = 0.1
    checkpointing: bool = True
    seed: int = 0


(args,) = HfArgumentParser(Options).parse_args_into_dataclasses()
print(args.lr, args.weight_decay, args.checkpointing, args.seed)
"""
CONFIG = "lr: 2.0e-5\nweight_decay: 0.0\ncheckpointing: false\nseed: 0\n"
LOOPS = {
    "for key, value in cfg.items():\n    if value:\n        cmd += [f'--{key}', str(value)]": 2,
    "for k, v in cfg.items():\n    if not v:\n        continue\n    cmd.extend(['--' + k, str(v)])": 2,
    "cmd += [f'--{k}={v}' for k, v in cfg.items() if v]": 2,
    "for k, v in cfg.items():\n    if v is True:\n        cmd.append('--%s' % k)\n    elif v:\n"
    "        cmd += [f'--{k}', str(v)]": 2,
    # 0.0 is among them
    "for k, v in cfg.items():\n    if v in (None, False):\n        continue\n    cmd += ['--{}'.format(k), str(v)]": 2,
    "for k, v in cfg.items():\n    if isinstance(v, bool):\n        if v:\n            cmd.append(f'--{k}')\n    else:\n"
    "        cmd += [f'--{k}', str(v)]": 1,
    "for k, v in cfg.items():\n    if v is not None:\n        cmd += [f'--{k}', str(v)]": 0,
    "for k, v in cfg.items():\n    cmd += [f'--{k}', str(v)]": 0,
    "for k, v in cfg.items():\n    if k != 'seed':\n        cmd += [f'--{k}', str(v)]": 0,
    "for k, v in cfg.items():\n    if v:\n        print(k, v)\n    cmd += [f'--{k}', str(v)]": 0,
}  # fmt: skip


def lost(folder: Path, launch: str, train: str = TRAIN, config: str = CONFIG) -> list[str]:
    files = {"launch.py": launch, "train.py": train, "sft.yaml": config}
    found = audited(folder, files, select=("CFG017",)).findings
    return [one.message for one in found if one.place.file == "launch.py"]


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("train", [TRAIN, DATA])
def test_what_is_false_or_zero_and_left_out(tmp_path: Path, loop: str, train: str) -> None:
    found = lost(tmp_path / "a", LAUNCH.format(loop), train)
    assert len(found) == bool(LOOPS[loop])
    if found:
        assert ("weight_decay: 0.0" in found[0]) is (LOOPS[loop] == 2)
        assert "checkpointing: false" in found[0]
        assert "seed" not in found[0], "its default is what is left out"
    assert not lost(tmp_path / "b", LAUNCH.format(loop), train, "lr: 2.0e-5\nweight_decay: 0.2\ncheckpointing: true\n")


def test_it_is_suppressed_where_it_stands(tmp_path: Path) -> None:
    loop = "for k, v in cfg.items():\n    if v:{}\n        cmd += [f'--{{k}}', str(v)]"
    assert lost(tmp_path / "said", LAUNCH.format(loop.format("")))
    loop = loop.format("  # dynotune: ignore[CFG017] all defaults are off")
    assert not lost(tmp_path, LAUNCH.format(loop))


OPTIONS = """from dataclasses import dataclass, field


@dataclass
class FlatArguments:
    lr: float = field(default=1e-5)
    seed: int = field(default=0)
    mask_prompt: bool = field(default=True, metadata={"help": "Loss on the answers only."})
"""
PARSES = """from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments

from options import FlatArguments

(args,) = HfArgumentParser(FlatArguments).parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
Trainer(model=model, args=TrainingArguments("out", learning_rate=args.lr, seed=args.seed), train_dataset={}).train()
"""


def test_an_option_that_nothing_reads_beside_a_launcher(tmp_path: Path) -> None:
    loop = "for k, v in cfg.items():\n    if v is not None:\n        cmd += [f'--{k}', str(v)]"
    files = {"launch.py": LAUNCH.format(loop), "options.py": OPTIONS, "train.py": PARSES.format("rows")}
    (found,) = audited(tmp_path / "unread", files, select=("CFG017",)).findings
    assert "mask_prompt" in found.message
    for used in ("encode(args.mask_prompt)", "rows(**vars(args))"):
        files["train.py"] = PARSES.format(used)
        assert not audited(tmp_path / used[:6], files, select=("CFG017",)).findings


FIRE = """import fire
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments


def train(data_path, lr=2e-5, epochs=2, **extra):
    {}
    model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
    args = TrainingArguments("out", learning_rate=lr, num_train_epochs=epochs, seed=1{})
    Trainer(model=model, args=args, train_dataset=data_path).train()


if __name__ == "__main__":
    fire.Fire(train)
"""


@pytest.mark.parametrize(
    ("before", "more", "command", "fires"),
    [
        ("pass", "", "torchrun --nproc_per_node 8 train.py --data_path a --bf16 True", True),
        ("print(extra)", "", "python train.py --data_path a --lr 1e-5 --warmup 3", True),
        ("pass", ", **extra", "python train.py --data_path a --bf16 True", False),
        ("bf16 = extra.get('bf16')", "", "python train.py --data_path a --bf16 True", False),
        ("pass", "", "python train.py --data_path a --lr 1e-5", False),
        ("assert not extra", "", "python train.py --data_path a --bf16 True", False),
    ],
)
def test_flags_that_a_function_takes_and_drops(
    tmp_path: Path, before: str, more: str, command: str, fires: bool
) -> None:
    files = {"train.py": FIRE.format(before, more), "run.sh": f"{command}\n"}
    assert bool(audited(tmp_path, files, select=("CFG009",)).findings) is fires


TYPER = """import typer
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments


def main(lr: float = 1e-5, warmup: float = 0.03):
    model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
    args = TrainingArguments("out", learning_rate=lr, seed=1{})
    Trainer(model=model, args=args, train_dataset=rows).train()


typer.run(main)
"""


@pytest.mark.parametrize(
    ("more", "command", "fires"),
    [
        ("", "python train.py --lr 2e-5 --warmup 0.1", True),
        (", warmup_steps=warmup", "python train.py --lr 2e-5 --warmup 0.1", False),
        ("", "python train.py --lr 2e-5", False),
        (", **locals()", "python train.py --warmup 0.1", False),
    ],
)
def test_a_parameter_that_a_command_gives_and_nothing_uses(
    tmp_path: Path, more: str, command: str, fires: bool
) -> None:
    files = {"train.py": TYPER.format(more), "run.sh": f"{command}\n"}
    assert bool(audited(tmp_path, files, select=("CFG009",)).findings) is fires


SAVES = """import torch
from accelerate import Accelerator
from transformers import AutoModelForCausalLM

acc = Accelerator()
torch.manual_seed(0)
model = AutoModelForCausalLM.from_pretrained("gpt2")
opt = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
model, opt, loader = acc.prepare(model, opt, loader)
for batch in loader:
    acc.backward(model(**batch).loss)
    opt.step()
    opt.zero_grad()
{}
"""


@pytest.mark.parametrize(
    ("save", "fires"),
    [
        ('acc.save(acc.unwrap_model(model).state_dict(), "out/pytorch_model.bin")', True),
        ('acc.save(acc.get_state_dict(model), "out/weights.pt")', True),
        ('torch.save(acc.unwrap_model(model).state_dict(), "out/weights.pt")', True),
        ('acc.save(acc.get_state_dict(model), "out/model.safetensors", safe_serialization=True)', False),
        ('acc.unwrap_model(model).save_pretrained("out", save_function=acc.save)', False),
        ('acc.save({"step": 3}, "out/step.pt")', False),
    ],
)
def test_weights_that_accelerate_pickles(tmp_path: Path, save: str, fires: bool) -> None:
    found = audited(tmp_path, {"train.py": SAVES.format(save)}, select=("CKP051",)).findings
    assert bool(found) is fires


KEYED = {
    "cmd = [sys.executable, 'train.py', '--lr', str(cfg['lr']), '--seed', str(cfg['seed']), '--epochs', str(cfg['epochs']),"
    " '--out', cfg['out']]\nsubprocess.run(cmd)\n",
    "os.system(f\"python train.py --lr {cfg['lr']} --seed {cfg['seed']} --epochs {cfg['epochs']} --out {cfg['out']}\")\n",
    "cmd = 'accelerate launch train.py'\ncmd += f\" --lr {cfg['lr']} --seed {cfg['seed']}\"\n"
    "cmd += f\" --epochs {cfg['epochs']} --out {cfg['out']}\"\nsubprocess.run(cmd, shell=True, check=True)\n",
    "cmd = ' '.join(['torchrun', 'train.py', f\"--lr={cfg['lr']}\", f\"--seed={cfg['seed']}\","
    " f\"--epochs={cfg['epochs']}\", f\"--out={cfg['out']}\"])\nos.system(cmd)\n",
    "cmd = 'python train.py --lr {} --seed {} --epochs {} --out {}'.format(cfg['lr'], cfg['seed'], cfg['epochs'],"
    " cfg['out'])\nos.system(cmd)\n",
    "cmd = 'python train.py --lr %g --seed %d --epochs %d --out %s' % (cfg['lr'], cfg['seed'], cfg['epochs'], cfg['out'])\n"
    "subprocess.check_call(shlex.split(cmd))\n",
    "def build(c):\n    return (f\"torchrun train.py --lr {c['lr']} --seed {c['seed']}\"\n"
    "            f\" --epochs {c['epochs']} --out {c['out']}\")\nsubprocess.run(build(cfg), shell=True)\n",
    "cmd = ['torchrun', 'train.py']\nfor key in ('lr', 'seed', 'epochs', 'out'):\n    cmd += [f'--{key}', str(cfg[key])]\n"
    "subprocess.run(cmd)\n",
}  # fmt: skip
WHOLE = {
    "cmd = [sys.executable, 'train.py', '--config', sys.argv[1], '--lr', str(cfg['lr']), '--seed', str(cfg['seed']),"
    " '--epochs', str(cfg['epochs']), '--out', cfg['out']]\nsubprocess.run(cmd)\n",
    "cmd = f\"python train.py --lr {cfg['lr']} --seed {cfg['seed']} --epochs {cfg['epochs']} --out {cfg['out']}\"\n"
    "for key, value in cfg.items():\n    cmd += f' --{key} {value}'\nos.system(cmd)\n",
}
OPENS = (
    "import os, shlex, subprocess, sys\nimport yaml\nwith open(sys.argv[1]) as file:\n    cfg = yaml.safe_load(file)\n"
)
FLAGS = """import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=1e-5)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--out", default="out")
parser.add_argument("--max_len", type=int, default=512)
parser.add_argument("--config")
args = parser.parse_args()
print(args.lr, args.seed, args.epochs, args.out, args.max_len, args.config)
"""
KEPT = "lr: 2.0e-5\nseed: 3\nepochs: 2\nout: runs/a\nmax_len: {}\n"


def left(folder: Path, launch: str, config: str) -> list[str]:
    files = {"launch.py": OPENS + launch, "train.py": FLAGS, "sft.yaml": config}
    return [one.message for one in audited(folder, files, select=("CFG009", "CFG017")).findings]


@pytest.mark.parametrize("launch", sorted(KEYED))
def test_a_key_that_the_command_leaves_out(tmp_path: Path, launch: str) -> None:
    (found,) = left(tmp_path / "a", launch, KEPT.format(2048))
    assert "`max_len: 2048` is not among them" in found
    assert "(`512`)" in found
    assert not left(tmp_path / "b", launch, KEPT.format(512)), "the script's own default"


@pytest.mark.parametrize("launch", sorted(WHOLE))
def test_the_file_or_all_its_keys_are_handed_on(tmp_path: Path, launch: str) -> None:
    assert not left(tmp_path, launch, KEPT.format(2048))

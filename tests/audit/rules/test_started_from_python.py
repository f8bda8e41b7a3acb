"""Promise: a program that a Python file starts is judged by what that gives it: words of a list, keys of a configuration."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

TRAIN = """import argparse
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
p = argparse.ArgumentParser()
p.add_argument('--model', default='Qwen/Qwen2.5-0.5B')
p.add_argument('--batch-size', type=int, default=16)
p.add_argument('--accum', type=int, default=1)
p.add_argument('--epochs', type=int, default=1)
a = p.parse_args()
args = TrainingArguments('out', per_device_train_batch_size=a.batch_size, gradient_accumulation_steps=a.accum,
                         num_train_epochs=a.epochs, seed=1)
Trainer(AutoModelForCausalLM.from_pretrained(a.model), args, train_dataset=rows).train()
"""
LAUNCH = """import subprocess
import sys
import yaml
cfg = yaml.safe_load(open(sys.argv[1]))
{words}
subprocess.run({cmd}, check=True)
"""
CONFIG = "# one A100; effective batch {}\nmodel: Qwen/Qwen2.5-0.5B\nbatch_size: 1\naccum: 16\nepochs: 2\n"
PLAIN = "cmd = [sys.executable, 'train.py']\n"


def claims(folder: Path, words: str, cmd: str = "cmd", config: str = CONFIG.format(64)) -> list[str]:
    files = {"train.py": TRAIN, "launch.py": LAUNCH.format(words=words, cmd=cmd), "small.yaml": config}
    return [one.message for one in audited(folder, files, select=("CFG011",)).findings]


@pytest.mark.parametrize(
    "words",
    [
        "for key in ['model', 'batch_size', 'accum']:\n    cmd += [f'--{key.replace(\"_\", \"-\")}', str(cfg[key])]",
        "KEYS = ('model', 'batch_size', 'accum', 'epochs')\n"
        "for key in KEYS:\n    if key in cfg:\n        cmd.extend([f'--{key}', str(cfg[key])])",
        "for key, value in cfg.items():\n    cmd += [f'--{key}', str(value)]",
        "for key, value in cfg.items():\n    if value is not None:\n        cmd.append('--' + key)\n"
        "        cmd.append(str(value))",
    ],
)
def test_flags_made_of_keys(tmp_path: Path, words: str) -> None:
    (found,) = claims(tmp_path / "wrong", PLAIN + words)
    assert "1 rows x 16 accumulated x 1 process are 16" in found
    assert not claims(tmp_path / "right", PLAIN + words, config=CONFIG.format(16))


@pytest.mark.parametrize(
    "words",
    [
        "for key in ['model', 'epochs']:\n    cmd += [f'--{key}', str(cfg[key])]",
        "for key, value in cfg.items():\n    if key != 'accum':\n        cmd += [f'--{key}', str(value)]",
        "for key in choose(cfg):\n    cmd += [f'--{key}', str(cfg[key])]",
    ],
)
def test_keys_that_may_not_be_given(tmp_path: Path, words: str) -> None:
    assert not claims(tmp_path, PLAIN + words)


BUILT = """FLAGS = {'model': '--model', 'batch_size': '--batch-size', 'accum': '--accum'}
def build(recipe):
    command = [sys.executable, 'train.py']
    for key, flag in FLAGS.items():
        if key in recipe:
            command += [flag, str(recipe[key])]
    return command
cmd = build(cfg)"""


def test_flags_by_a_table_in_a_function(tmp_path: Path) -> None:
    (found,) = claims(tmp_path / "wrong", BUILT)
    assert "1 rows x 16 accumulated x 1 process are 16" in found
    assert not claims(tmp_path / "right", BUILT, config=CONFIG.format(16))
    assert not claims(tmp_path / "left", BUILT.replace(", 'accum': '--accum'", ""))


HEAD = "# effective batch 64\n"


@pytest.mark.parametrize(
    ("cmd", "says"),
    [
        ("['torchrun', '--nproc_per_node', '2', 'train.py', '--batch-size', '4', '--accum', '4']", True),
        ("['torchrun', '--nproc_per_node', '4', 'train.py', '--batch-size', '4', '--accum', '4']", False),
        ("['torchrun', f'--nproc_per_node={len(sys.argv)}', 'train.py', '--batch-size', '4', '--accum', '4']", False),
        ("['torchrun', '--nproc_per_node', '2', 'train.py', '--batch-size', '4', '--accum', sys.argv[2]]", False),
    ],
)
def test_words_of_a_list(tmp_path: Path, cmd: str, says: bool) -> None:
    files = {"train.py": HEAD + TRAIN, "launch.py": LAUNCH.format(words="", cmd=cmd)}
    found = audited(tmp_path, files, select=("CFG011",)).findings
    assert ["2 processes are 32" in one.message for one in found] == [True] * says


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("# effective batch 64 on a single H100", True),
        ("# effective batch 64 on 4x A100", False),
        ("# effective batch 64 on 2 GPUs", True),
        ("# effective batch 64", False),
        ("# effective batch 32: 2 GPUs x 4 x 4", False),
        ("# effective batch 32 = 2 GPUs x 4 rows x 4", False),
        ("# effective batch: 2 GPUs x 4 x 4", False),
        ("# effective batch: 2 GPUs x 8 x 4", True),
        ("# effective batch 128 = 8 GPUs x 4 x 4", False),
    ],
)
def test_cards_that_the_comment_names(tmp_path: Path, text: str, says: bool) -> None:
    config = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: d.jsonl\nper_device_train_batch_size: 4\n"
    files = {"sft.yaml": f"{text}\n{config}gradient_accumulation_steps: 4\n"}
    assert bool(audited(tmp_path, files, select=("CFG011",)).findings) == says

"""Promise: rows that evaluate and are trained on are told, however that came: joined, divided off, altered, named twice."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited
from tests.audit.rules.scripts import said

LOAD = "from datasets import concatenate_datasets, load_dataset\nraw = load_dataset('acme/x')\n"
TRAIN = "\nTrainer(model, args, train_dataset={}, eval_dataset={}).train()\n"


@pytest.mark.parametrize(
    ("made", "trained", "tested", "found"),
    [
        ("train = concatenate_datasets([raw['train'], raw['test']])", "train", "raw['test']", True),
        ("train = concatenate_datasets([raw['train'], raw['validation']])", "train", "raw['test']", False),
        ("both = ConcatDataset([raw['train'], raw['val']])\nval = raw['val'].map(f)", "both", "val", True),
        (
            "train = concatenate_datasets([raw['train'], raw['test']])\ntrain = train.filter(f)",
            "train",
            "raw['test']",
            False,
        ),
        ("rows = raw['train'] + raw['dev']\ndev = raw['dev']", "rows", "dev", True),
        ("_, val = random_split(rows, [0.9, 0.1])", "rows", "val", True),
        ("train, val = random_split(rows, [0.9, 0.1])", "train", "val", False),
        ("parts = rows.train_test_split(0.1)", "rows", "parts['test']", True),
        ("parts = rows.train_test_split(0.1)\nrows = parts['train']", "rows", "parts['test']", False),
        ("parts = rows.train_test_split(0.1)", "parts['train']", "parts['test']", False),
        ("ds = rows\nds = ds.map(f)\ntrain_ds = ds\neval_ds = ds.select(range(n))", "train_ds", "eval_ds", True),
        ("ds = rows.map(f)\neval_ds = ds.select(range(n))\nds = ds.select(range(n, 900))", "ds", "eval_ds", False),
    ],
)
def test_rows_of_a_trainer(tmp_path: Path, made: str, trained: str, tested: str, found: bool) -> None:
    assert bool(said("DAT004", tmp_path, f"{LOAD}{made}{TRAIN.format(trained, tested)}")) is found


ROWS = "import json\nfrom sklearn.model_selection import train_test_split\nrows = json.load(open('raw.json'))\n"
WORDS = """from more import {0}
rows = {0}(rows)
train, dev = train_test_split(rows, test_size=0.1)
"""
SEVERAL = """def {}(rows):
    out = []
    for r in rows:
        out.append(r)
        {}
    return out
"""


@pytest.mark.parametrize(
    ("name", "second", "found"),
    [
        ("augment", "out.append(drop(r))", True),
        ("with_typos", "out.append(drop(r))", True),
        ("clean", "seen.add(r)", False),
    ],
)
def test_altered_copies_by_a_function(tmp_path: Path, name: str, second: str, found: bool) -> None:
    more = SEVERAL.format(name, second)
    assert bool(said("DAT004", tmp_path, ROWS + WORDS.format(name), more__py=more)) is found


@pytest.mark.parametrize(
    ("loop", "divides", "found"),
    [
        ("out.append(r)\n    out.append(drop(r))", "dev, train = out[:k], out[k:]", True),
        ("out.append(r)\n    out.append(drop(r))", "train, dev = train_test_split(out)", True),
        ("out.append(r)", "dev, train = out[:k], out[k:]", False),
        ("out.append(r)\n    out.append(drop(r))", "print(out[:3])", False),
    ],
)
def test_altered_copies_in_a_loop(tmp_path: Path, loop: str, divides: str, found: bool) -> None:
    text = f"{ROWS}out = []\nfor r in rows:\n    {loop}\n{divides}\n"
    assert bool(said("DAT004", tmp_path, text)) is found


SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: acme/chats\neval_strategy: {}\noutput_dir: out\n"


@pytest.mark.parametrize(
    ("evaluates", "split", "found"),
    [("epoch", "train", True), ("epoch", "${SPLIT:-train}", True), ("epoch", "test", False), ("'no'", "train", False)],
)
def test_a_split_that_a_flag_names(tmp_path: Path, evaluates: str, split: str, found: bool) -> None:
    run = f'#!/bin/bash\ntrl sft --config sft.yaml --dataset_test_split "{split}"\n'
    files = {"sft.yaml": SFT.format(evaluates) + "dataset_train_split: train\n", "run.sh": run}
    assert bool(audited(tmp_path, files, select=("DAT004",)).findings) is found

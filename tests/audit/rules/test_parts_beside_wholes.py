"""Promise: a part of rows that evaluates beside all of them is found where a function hands on both, and a rest is not."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

MAIN = """from datasets import DatasetDict, load_dataset
from torch.utils.data import Subset
from trl import DPOConfig, DPOTrainer


def pairs(path):
    everything = load_dataset("json", data_files=path, split="train")
    {}


train, watch = pairs("d.jsonl")
DPOTrainer(model, args=DPOConfig(output_dir="o"), train_dataset=train, eval_dataset=watch).train()
"""
SPLITS = """from datasets import DatasetDict, load_dataset

rows = load_dataset("json", data_files="d.jsonl", split="train")
{}
"""


@pytest.mark.parametrize(
    "lines",
    [
        "watch = everything.select(range(512))\n    return everything, watch",
        "return everything, everything.select(range(512))",
        "some = everything.shuffle(seed=1).select(range(512))\n    return everything, some",
        "return everything, Subset(everything, range(512))",
        "rows = list(everything)\n    return rows, rows[:400]",
    ],
)
def test_the_whole_beside_its_part_is_said(tmp_path: Path, lines: str) -> None:
    (finding,) = audited(tmp_path, {"train.py": MAIN.format(lines)}, select=("DAT004",)).findings
    assert "trained on" in finding.message


def test_also_where_another_file_calls_it(tmp_path: Path) -> None:
    head, tail = MAIN.format("return everything, everything.select(range(512))").split("\n\n\ntrain, ")
    files = {"rows.py": head, "train.py": f"from rows import pairs\n\ntrain, {tail}"}
    assert audited(tmp_path, files, select=("DAT004",)).findings


@pytest.mark.parametrize(
    "lines",
    [
        "watch = everything.select(range(512))\n    everything = everything.select(range(512, len(everything)))\n"
        "    return everything, watch",
        "return everything.select(range(512, 9000)), everything.select(range(512))",
        "return everything, everything.select(range(3))",  # a look
        "rest = everything.filter(keeps)\n    return rest, everything.select(range(512))",
        "parts = everything.train_test_split(0.1, seed=1)\n    return parts['train'], parts['test']",
    ],
)
def test_a_rest_is_not(tmp_path: Path, lines: str) -> None:
    assert not audited(tmp_path, {"train.py": MAIN.format(lines)}, select=("DAT004",)).findings


def test_a_function_whose_parts_train_nothing_is_not(tmp_path: Path) -> None:
    text = MAIN.format("return everything, everything.select(range(512))").replace("train, watch", "rows, shown")
    assert not audited(tmp_path, {"train.py": text.replace("=train,", "=a,")}, select=("DAT004",)).findings


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('ds = DatasetDict({"train": rows, "validation": rows.select(range(200))})', True),
        ('ds = {"train": rows, "test": rows.shuffle(seed=0).select(range(200))}', True),
        ('ds = DatasetDict({"train": rows.select(range(200, 999)), "validation": rows.select(range(200))})', False),
        ('ds = DatasetDict({"train": rows, "prompts": rows.select(range(200))})', False),
        ('ds = {"train": rows, "test": other.select(range(200))}', False),
    ],
)
def test_splits_that_share_rows(tmp_path: Path, line: str, found: bool) -> None:
    assert bool(audited(tmp_path, {"train.py": SPLITS.format(line)}, select=("DAT004",)).findings) is found


HELD = """from datasets import load_dataset
from transformers import Trainer, TrainingArguments


class Rows:
    def __init__(self, path):
        self.train = load_dataset("json", data_files=path, split="train")
        {}


d = Rows("x.jsonl")
Trainer(model=m, args=TrainingArguments(output_dir="o"), train_dataset=d.train, eval_dataset=d.val).train()
"""
WRITTEN = """import json

rows = [json.loads(line) for line in open("all.jsonl")]
dev = rows[:200]
{}
"""
LOOP = 'with open("{}", "w") as f:\n    for row in {}:\n        {}f.write(json.dumps(row))'


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (HELD.format("self.val = self.train.select(range(300))"), True),
        (HELD.format("self.val = self.train.select(range(3))"), False),
        (HELD.format("parts = self.train.train_test_split(0.1, seed=0)\n        self.val = parts['test']"), False),
        (
            HELD.format(
                "self.val = self.train.select(range(300))\n        self.train = self.train.select(range(300, 9000))"
            ),
            False,
        ),
        (WRITTEN.format(LOOP.format("train.jsonl", "rows", "")), True),
        (WRITTEN.format('json.dump(rows, open("data/train.json", "w"))'), True),
        (WRITTEN.format(LOOP.format("all2.jsonl", "rows", "")), False),
        (WRITTEN.format(LOOP.format("train.jsonl", "rows[200:]", "")), False),
        (WRITTEN.format(LOOP.format("train.jsonl", "rows", "if row['id'] in held: continue\n        ")), False),
        (WRITTEN.format("rows = rows[200:]\n" + LOOP.format("train.jsonl", "rows", "")), False),
    ],
)
def test_rows_that_an_object_holds_or_a_file_gets(tmp_path: Path, text: str, found: bool) -> None:
    assert bool(audited(tmp_path, {"train.py": text}, select=("DAT004",)).findings) is found

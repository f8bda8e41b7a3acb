"""Promise: rows that another script has cut to one length, and saved, are known where they are loaded by that name."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

PREPARE = """from datasets import load_dataset

BLOCK = 512


def join(batch):
    flat = [x for row in tok(batch["text"])["input_ids"] for x in row]
    n = len(flat) // BLOCK * BLOCK
    return {"input_ids": [flat[i : i + BLOCK] for i in range(0, n, BLOCK)]}


raw = load_dataset("json", data_files="recipes.jsonl", split="train")
rows = raw.map(join, batched=True, remove_columns=raw.column_names)
WRITE
"""
TRAIN = """from datasets import load_dataset, load_from_disk
from transformers import Trainer, TrainingArguments

READ
args = TrainingArguments(output_dir="o", train_sampling_strategy="group_by_length")
Trainer(model=model, args=args, train_dataset=rows).train()
"""


def found(folder: Path, write: str, read: str, prepare: str = PREPARE) -> bool:
    files = {"prepare.py": prepare.replace("WRITE", write), "train.py": TRAIN.replace("READ", read)}
    return bool(audited(folder, files, select=("PAD004",)).findings)


@pytest.mark.parametrize(
    ("write", "read"),
    [
        ('rows.save_to_disk("blocks")', 'rows = load_from_disk("blocks")'),
        ('rows.save_to_disk("blocks")', 'rows = load_from_disk("./blocks/", keep_in_memory=True)["train"]'),
        ('OUT = "data/b"\nrows.save_to_disk(OUT)', 'rows = load_from_disk("data/b")'),
        ('rows.to_parquet("b.parquet")', 'rows = load_dataset("parquet", data_files="b.parquet", split="train")'),
        ('rows.to_parquet("b.parquet")', 'rows = load_dataset("parquet", data_files={"train": "b.parquet"})["train"]'),
    ],
)
def test_blocks_that_another_script_saved_are_known(tmp_path: Path, write: str, read: str) -> None:
    assert found(tmp_path, write, read)


@pytest.mark.parametrize(
    ("write", "read", "prepare"),
    [
        ('rows.save_to_disk("blocks")', 'rows = load_from_disk("rows")', PREPARE),
        ('rows.save_to_disk("blocks")', "rows = load_from_disk(path)", PREPARE),
        ("", 'rows = load_from_disk("blocks")', PREPARE),
        ('rows.save_to_disk("blocks")', 'rows = load_from_disk("blocks")', PREPARE.replace(" // BLOCK * BLOCK", "")),
        ('raw.save_to_disk("raw")\nrows.save_to_disk("blocks")', 'rows = load_from_disk("raw")', PREPARE),
    ],
)
def test_others_are_not(tmp_path: Path, write: str, read: str, prepare: str) -> None:
    assert not found(tmp_path, write, read, prepare)

"""Promise: rows that a job's own code makes equally long are known to be so, however it is written; others are not."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited
from tests.audit.rules.scripts import said

TRAINS = (
    "from transformers import Trainer, TrainingArguments\nfrom rows import made\n"
    "args = TrainingArguments(output_dir='o', bf16=True, group_by_length=True{})\n"
    "Trainer(model=m, args=args, train_dataset=made(raw, 1024)).train()\n"
)
MAPPED = """
from itertools import chain
def made(raw, block_size):
    def group_texts(rows):
        joined = {{k: list(chain(*rows[k])) for k in rows}}
        {}
        return {{k: [v[i : i + block_size] for i in range(0, {}, block_size)] for k, v in joined.items()}}
    return raw.map(group_texts, batched=True)
"""
BUFFERED = """
def made(raw, width):
    held = []
    for row in raw:
        held.extend(row["input_ids"])
        while len(held) >= width:
            yield {{"input_ids": held[:width]}}
            {}
    {}
"""
FLOORED = "total = (len(joined['input_ids']) // block_size) * block_size"


@pytest.mark.parametrize(
    ("rows", "fires"),
    [
        (MAPPED.format(FLOORED, "total"), True),
        (MAPPED.format("n = len(joined['input_ids'])\n        n = n - n % block_size", "n"), True),
        (MAPPED.format("n = len(joined['input_ids'])", "n // block_size * block_size"), True),
        (MAPPED.format("n = len(joined['input_ids'])", "n"), False),  # the last block is shorter
        (MAPPED.format(FLOORED, "total").replace("group_texts", "eval_blocks"), False),
        (BUFFERED.format("held = held[width:]", "return"), True),
        (BUFFERED.format("del held[:width]", "return"), True),
        (BUFFERED.format("held = held[width:]", "pad(held)"), False),
        ("def made(raw, n):\n    return raw.map(lambda r: {'input_ids': r['input_ids'][:n]})\n", False),
    ],
)
def test_blocks_of_one_length(tmp_path: Path, rows: str, fires: bool) -> None:
    found = said("PAD004", tmp_path, TRAINS.format(""), rows__py=rows)
    assert bool(found) is fires
    suppressed = TRAINS.format(",  # dynotune: ignore[PAD004] to compare orders\n")
    assert not said("PAD004", tmp_path / "suppressed", suppressed, rows__py=rows)


COLLATOR = """
import torch
class Collator:
    def __init__(self, pad, limit):
        self.pad, self.limit = pad, limit
    def __call__(self, rows):
        {}
        ids = torch.full((len(rows), width), self.pad)
        mask = torch.zeros((len(rows), width))
        return {{"input_ids": ids, "attention_mask": mask}}
"""


@pytest.mark.parametrize(
    ("line", "fires"),
    [
        ("width = self.limit", True),
        ("width = LIMIT", True),
        ("width = 2048", True),
        ("width = 64", False),
        ("width = min(self.limit, longest(rows))", False),
        ("width = self.limit\n        width = fitted(rows, width)", False),
    ],
)
def test_a_width_by_another_name(tmp_path: Path, line: str, fires: bool) -> None:
    files = {"train.py": TRAINS.format("").replace("made", "Collator"), "rows.py": COLLATOR.format(line)}
    found = audited(tmp_path, files, select=("PAD004", "PAD005")).findings
    assert {one.code for one in found} == ({"PAD004", "PAD005"} if fires else set())

"""Promise: tokens a second that count padding, or are no more than a bound, are told wherever they are made."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

AXOLOTL = (
    "base_model: Qwen/Qwen2.5-1.5B\ndatasets:\n  - path: a.jsonl\n    type: chat_template\nsequence_len: 2048\n"
    "sample_packing: {}\nmicro_batch_size: 8\noutput_dir: o\n"
)


@pytest.mark.parametrize(
    ("packs", "text", "found"),
    [
        ("false", "| GPU | rows/s | tokens/s |\n|---|---|---|\n| A100 | 21.4 | 43,827 |\n", True),
        ("false", "| GPU | rows/s | tokens/s |\n|---|---|---|\n| A100 | 21.4 | 12,100 |\n", False),
        ("true", "| GPU | rows/s | tokens/s |\n|---|---|---|\n| A100 | 21.4 | 43,827 |\n", False),
        ("false", "tokens/s = rows/s x `sequence_len`.\n", True),
        ("false", "At most 43,827 tokens/s, which is rows/s x `sequence_len`.\n", False),
        ("false", "21.4 samples/s, that is 43.8k tokens/s.\n", True),
    ],
)
def test_rows_a_second_times_the_limit(tmp_path: Path, packs: str, text: str, found: bool) -> None:
    files = {"a.yml": AXOLOTL.format(packs), "README.md": f"# a\n\n{text}", "run.sh": "axolotl train a.yml\n"}
    assert bool(audited(tmp_path, files, select=("MSR001",)).findings) is found


@pytest.mark.parametrize(
    ("says", "found"),
    [
        ("we **reach 7.9 PFLOPS** in training.", True),
        ("we reach 3.1 PFLOPS in training.", False),
        ("the peak is 7.9 PFLOPS.", False),
        ("we could reach 7.9 PFLOPS.", False),
        ("we never reach the peak of 7.9 PFLOPS.", False),
    ],
)
def test_the_peak_of_a_data_sheet(tmp_path: Path, says: str, found: bool) -> None:
    files = {
        "docs/hardware.md": f"# x\n\n* 8 x H100 SXM, 989 TFLOPS each.\n* So {says}\n",
        "a.yml": AXOLOTL.format("true"),
    }
    assert bool(audited(tmp_path, files, select=("MSR001",)).findings) is found


TRAIN = """import torch
from data import collate
from counts import count_{0}
from torch.utils.data import DataLoader
n = 0
for b in DataLoader(load_dataset("acme/x"), 8, collate_fn=collate):
    model(**b).loss.backward()
    n += count_{0}(b)
print(n / (time.perf_counter() - t), "tokens/s")
"""
COLLATE = """from torch.nn.utils.rnn import pad_sequence
def collate(rows):
    return {"input_ids": pad_sequence(rows, True)}
"""


@pytest.mark.parametrize(
    ("name", "counts", "found"),
    [
        ("tokens", "ids.size(0) * ids.size(1)", True),
        ("tokens", "int(batch['attention_mask'].sum())", False),
        ("rows", "ids.size(0) * 1", False),
    ],
)
def test_a_function_that_counts(tmp_path: Path, name: str, counts: str, found: bool) -> None:
    helper = f"def count_{name}(batch):\n    ids = batch['input_ids']\n    return {counts}\n"
    files = {"train.py": TRAIN.format(name), "counts.py": helper, "data.py": COLLATE}
    assert bool(audited(tmp_path, files, select=("MSR001",)).findings) is found


SEEN = """from transformers import AutoTokenizer, {1}, Trainer, TrainingArguments
args = TrainingArguments("o", include_num_input_tokens_seen={0})
trainer = Trainer(model, args, train_dataset=rows, data_collator={1}(tok))
took = trainer.train().metrics["train_runtime"]
print(trainer.state.num_input_tokens_seen / took, "tokens/s")
"""


@pytest.mark.parametrize(
    ("value", "collator", "found"),
    [
        ("'all'", "DataCollatorForSeq2Seq", True),
        ("True", "DataCollatorWithPadding", True),
        ("'non_padding'", "DataCollatorForSeq2Seq", False),
        ("'all'", "DataCollatorWithFlattening", False),
    ],
)
def test_a_count_of_the_trainer(tmp_path: Path, value: str, collator: str, found: bool) -> None:
    said = audited(tmp_path, {"train.py": SEEN.format(value, collator)}, select=("MSR001",)).findings
    assert bool(said) is found

"""Promise: updates are counted by whatever tells how much data there is, and rows by whatever fills them."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

SFT = (
    "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: acme/notes\npacking: true\nmax_length: 4096\n"
    "per_device_train_batch_size: 4\ngradient_accumulation_steps: 8\nnum_train_epochs: 2\noutput_dir: out\n"
)


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("README.md", "`notes.jsonl`: 3,100 records, median 131 tokens, mean 140 (of the model).\n", True),
        ("README.md", "`notes.jsonl`: 410,000 records, median 131 tokens, mean 640.\n", False),
        ("README.md", "`notes.jsonl`: 3,100 records, median 131 tokens, mean 140 words.\n", False),
        (
            "data/CARD.md",
            "| split | rows | tokens (mean) |\n|---|---|---|\n| train | 2,400 | 95 |\n| test | 90 | 97 |\n",
            True,
        ),
        ("data/CARD.md", "| split | rows | tokens (max) |\n|---|---|---|\n| train | 2,400 | 310 |\n", False),
        (
            "data/CARD.md",
            "| split | rows | tokens (mean) |\n|---|---|---|\n| a | 2,400 | 95 |\n| b | 900 | 97 |\n",
            False,
        ),
        (
            "data/README.txt",
            "1,800 question/answer pairs of the clinic's,\n     about 110 tokens each, none above 600.\n",
            True,
        ),
        ("data/notes.txt", "1,800 question/answer pairs of the clinic's, about 110 tokens each.\n", False),
    ],
)
def test_documents(tmp_path: Path, name: str, text: str, found: bool) -> None:
    files = {"sft.yaml": SFT, name: text, "run.sh": "trl sft --config sft.yaml\n"}
    assert bool(audited(tmp_path, files, select=("PAD002",)).findings) is found


HYDRA = """data:
  path: robots  # {}
  {}: 45
sft:
  packing: true
  max_length: 4096
  num_train_epochs: 2
  output_dir: o
"""
RUN = """import hydra
from trl import SFTConfig, SFTTrainer

@hydra.main(config_path="conf", config_name="exp")
def main(cfg):
    SFTTrainer("Qwen/Qwen2.5-0.5B", SFTConfig(**cfg.sft, gradient_accumulation_steps=8), train_dataset=rows(cfg)).train()

main()
"""


@pytest.mark.parametrize(
    ("comment", "key", "found"),
    [
        ("8,000 commands", "mean_tokens", True),
        ("8,000 commands", "max_tokens", False),
        ("robots", "mean_tokens", False),
    ],
)
def test_a_key_of_the_configuration(tmp_path: Path, comment: str, key: str, found: bool) -> None:
    files = {"conf/exp.yaml": HYDRA.format(comment, key), "run.py": RUN}
    assert bool(audited(tmp_path, files, select=("PAD002",)).findings) is found


PACK = """def pack(batch, size):
    out, ids = [], []
    for x in batch["input_ids"]:
        if len(ids) + len(x) > size:
            out.append(ids)
            ids = []
        ids = ids + x
    return {"input_ids": out}
"""
OWN = """\"\"\"Fine-tune on notes: {rows} notes, 80 tokens on average.\"\"\"
from transformers import Trainer, TrainingArguments
from packs import pack
ROW = 4096
ds = ds.map(pack, batched=True, fn_kwargs={{"size": {size}}})
args = TrainingArguments("o", per_device_train_batch_size=4, gradient_accumulation_steps=8, num_train_epochs=3)
Trainer("Qwen/Qwen2.5-0.5B", args, train_dataset=ds).train()
"""


@pytest.mark.parametrize(
    ("rows", "size", "found"), [("6,000", "ROW", True), ("6,000", "1024", False), ("600,000", "ROW", False)]
)
def test_rows_that_an_own_function_fills(tmp_path: Path, rows: str, size: str, found: bool) -> None:
    files = {"train.py": OWN.format(rows=rows, size=size), "packs.py": PACK}
    said = audited(tmp_path, files, select=("PAD002",)).findings
    assert [one.place.line for one in said] == [5] * found


@pytest.mark.parametrize(
    ("comment", "found"),
    [
        ("# torch 2.6.0, transformers 4.52.4, trl 0.19.1", False),
        ("# fails before transformers 4.52.4, trl 0.19.1", True),
        ("# the nightly image", True),
    ],
)
def test_releases_that_a_comment_lists(tmp_path: Path, comment: str, found: bool) -> None:
    """A key is judged by the release that the project has by its own word."""
    files = {"sft.yaml": SFT + "warmup_ratio: 0.1\n", "run.sh": f"{comment}\ntrl sft --config sft.yaml\n"}
    assert bool(audited(tmp_path, files, select=("CFG002",)).findings) is found

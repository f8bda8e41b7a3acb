"""Promise: where the data itself is not here, a document's figure of its tokens tells how few updates packing leaves."""

import json
from pathlib import Path

import pytest

from tests.audit.made_up import audited

SFT = (
    "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: data.jsonl\npacking: {}\nmax_length: 4096\n"
    "per_device_train_batch_size: {}\ngradient_accumulation_steps: 8\nnum_train_epochs: 3\nlogging_steps: 10\n"
)


def codes(folder: Path, files: dict[str, str]) -> list[str]:
    return [one.place.file for one in audited(folder, files, select=("PAD002",)).findings]


@pytest.mark.parametrize(
    ("text", "rows", "fires"),
    [
        ("Data: 4,000 pairs, about 150 tokens each, so 600k tokens.", 4, True),
        ("`qa.jsonl` on the share: 3,180 conversations, 812k tokens, median 230, max 3,900.", 4, True),
        ("The corpus has 1.2M tokens.", 4, True),
        ("9,000 dialogues (1,100,000 tokens).", 4, True),
        ("4,000 short dialogs (150 tokens each on average), from our desk", 4, True),
        ("- 4k examples in `train.jsonl`, about 150 tokens each", 4, True),
        ("4,000 question/answer pairs of about 150 tokens.", 4, True),
        ("We have 4,000 rows, averaging 150 tokens", 4, True),
        ("4,000 tickets, with an average length of 150 tokens", 4, True),
        ("4,000 documents, packed into rows of 150 tokens", 4, False),
        ("4,000 examples with at most 150 tokens each", 4, False),
        ("A batch has 64 rows of 150 tokens", 4, False),
        ("40,000 rows of 1,500 tokens", 4, False),
        ("600k tokens in 4,000 rows", 1, False),  # 55 updates
        ("The corpus has 40M tokens.", 4, False),
        ("Examples have up to 600k tokens.", 4, False),
        ("Documents are read at 600k tokens/s.", 4, False),
        ("The test documents have 20k tokens.", 4, False),
        ("600k tokens of documents, or 900k tokens with the second set of documents.", 4, False),
        ("Context of 32k tokens for long documents.", 4, False),
    ],
)
def test_tokens_that_a_document_tells(tmp_path: Path, text: str, rows: int, fires: bool) -> None:
    files = {"README.md": f"# x\n\n{text}\n", "sft.yaml": SFT.format("true", rows)}
    assert codes(tmp_path / "packed", files) == ["sft.yaml"] * fires
    assert not codes(tmp_path / "not", {**files, "sft.yaml": SFT.format("false", rows)})
    held = files["sft.yaml"].replace("packing: true", "packing: true  # dynotune: ignore[PAD002] a trial")
    assert not codes(tmp_path / "held", {**files, "sft.yaml": held})


def test_a_sample_is_not_the_data_and_the_data_is(tmp_path: Path) -> None:
    row = json.dumps({"prompt": "What is it? " * 8, "completion": "It is this. " * 60}) + "\n"
    files = {"README.md": "# x\n\n4,000 pairs, 600k tokens.\n", "sft.yaml": SFT.format("true", 4)}
    assert codes(tmp_path / "sample", {**files, "data.jsonl": row * 3})
    files["README.md"] = "# x\n\n4 pairs, 1k tokens.\n"  # of an older export
    many = {**files, "data.jsonl": row * 4_000, "sft.yaml": SFT.format("true", 1).replace("steps: 8", "steps: 1")}
    found = audited(tmp_path / "data", many, select=("PAD002",)).findings
    assert not any("README" in one.message for one in found), "the rows are here, and count"


def test_rows_that_the_program_packs_by_itself(tmp_path: Path) -> None:
    train = (
        "from transformers import Trainer, TrainingArguments\nfrom packing import rows\n"
        "args = TrainingArguments(output_dir='o', bf16=True, per_device_train_batch_size=1, num_train_epochs=3,\n"
        "    gradient_accumulation_steps=32, warmup_steps={})\nTrainer(model=m, args=args, train_dataset=rows).train()\n"
    )
    readme = "# x\n\n4,000 pairs, so 600k tokens. With packing into rows of 4096 tokens an epoch is short.\n"
    files = {
        "README.md": readme,
        "train.py": train.format(50),
        "packing.py": "rows = []\n",
        "run.sh": "python train.py\n",
    }
    (found,) = audited(tmp_path / "a", files, select=("PAD002",)).findings
    assert "never reached" in found.message
    assert not codes(tmp_path / "b", {**files, "README.md": "# x\n\n4,000 pairs, so 600k tokens.\n"})
    assert not codes(tmp_path / "c", {**files, "README.md": readme.replace("600k", "60M")})


@pytest.mark.parametrize(
    ("comment", "fires"),
    [
        ("# 800 rows of about 120 tokens each", True),
        ("# 800 rows", False),
        ("# batches of 800 rows, 120 tokens each", False),
    ],
)
def test_rows_that_a_comment_tells(tmp_path: Path, comment: str, fires: bool) -> None:
    train = (
        f"from trl import SFTConfig, SFTTrainer\n{comment}\n"
        "args = SFTConfig(output_dir='o', packing=True, max_length=4096, per_device_train_batch_size=8, seed=1)\n"
        "SFTTrainer(model='Qwen/Qwen2.5-0.5B', args=args, train_dataset=rows).train()\n"
    )
    assert bool(codes(tmp_path, {"train.py": train})) is fires

"""Promise: rules on packing and padding count with the data's lengths, and leave ordinary packing alone."""

from pathlib import Path
from typing import Any

import pytest

from dynotune.audit.facts.job import Method, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import Risk
from tests.audit.rules.facts import UNKNOWN, a_job, findings, some_data
from tests.audit.rules.scripts import said


@pytest.mark.parametrize(
    "job",
    [
        a_job(packing=True, packing_strategy="wrapped"),
        a_job(Trainer.DYNOTUNE, packing=True, packing_strategy="wrapped"),
        a_job(Trainer.LLAMA_FACTORY, packing=True),
        a_job(Trainer.LLAMA_FACTORY, packing=True, keys={"neat_packing": False}),
        a_job(Trainer.AXOLOTL, packing=True, attn_implementation="sdpa", model_name_or_path="m"),
    ],
)
def test_packing_that_leaks(job: Any) -> None:
    (found,) = findings("PAD001", job)
    assert found.remedy.risk is Risk.BEHAVIOURAL


@pytest.mark.parametrize(
    "job",
    [
        a_job(packing=True),
        a_job(packing=True, packing_strategy="bfd_split"),
        a_job(packing=False, packing_strategy="wrapped"),
        a_job(Trainer.LLAMA_FACTORY, packing=True, keys={"neat_packing": True}),
        a_job(Trainer.LLAMA_FACTORY, packing=True, keys={"neat_packing": UNKNOWN}),
        a_job(Trainer.LLAMA_FACTORY, Method.PRETRAINING, packing=True),
        a_job(Trainer.AXOLOTL, packing=True, attn_implementation="flash_attention_2", model_name_or_path="m"),
        a_job(Trainer.AXOLOTL, packing=True, attn_implementation="sdpa_varlen", model_name_or_path="m"),
    ],
)
def test_packing_that_isolates(job: Any) -> None:
    assert not findings("PAD001", job)


@pytest.mark.parametrize(
    ("version", "other", "leaks"),
    [
        ("0.19.1", {"packing_strategy": "ffd"}, True),
        ("0.21.0", {"attn_implementation": "sdpa"}, True),
        ("0.22.2", {"packing": False, "padding_free": True}, True),
        ("0.21.0", {"attn_implementation": "flex_attention"}, True),
        ("0.21.0", {"attn_implementation": "flash_attention_2"}, False),
        ("0.21.0", {"attn_implementation": UNKNOWN}, False),
        ("0.21.0", {"packing": False}, False),
        ("0.23.0", {"attn_implementation": "sdpa"}, False),
        ("1.16.0", {}, False),
    ],
)
def test_positions_that_only_flash_attention_gets(version: str, other: dict[str, Any], leaks: bool) -> None:
    """What leaks has no mask, and the rule on masks is silent."""
    values = {"packing": True, "max_length": 2048, "per_device_train_batch_size": 4, "model_name_or_path": "m"} | other
    job = a_job(versions={"trl": version}, **values)
    found = findings("PAD001", job)
    assert bool(found) is leaks
    assert not (found and findings("ATT001", job))
    assert not found or f"TRL {version} hands their positions to flash attention alone" in found[0].message


FLATTENED = """
from transformers import AutoModelForCausalLM, DataCollatorWithFlattening, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.2-1B"{attention})
arguments = TrainingArguments("out", per_device_train_batch_size=8, bf16=True{more})
Trainer(model, arguments, train_dataset=rows, data_collator=DataCollatorWithFlattening()).train()
"""


@pytest.mark.parametrize(
    ("version", "attention", "more", "leaks"),
    [
        ("4.46.0", "", "", True),
        ("4.46.0", ', attn_implementation="sdpa"', ", gradient_checkpointing=True", True),
        ("4.57.1", "", "", True),
        ("4.57.1", "", ", gradient_checkpointing=True", False),
        ("4.57.1", ', attn_implementation="flash_attention_2"', "", False),
        ("4.57.1", ", use_cache=False", "", False),
        ("5.2.0", "", "", False),
    ],
)
def test_batches_that_are_flattened(tmp_path: Path, version: str, attention: str, more: str, leaks: bool) -> None:
    text = FLATTENED.format(attention=attention, more=more)
    assert bool(said("PAD001", tmp_path, text, requirements__txt=f"transformers=={version}\n")) is leaks


PACKED: dict[str, Any] = {
    "packing": True,
    "max_length": 2000,
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 2,
}


def test_updates_that_packing_takes_away() -> None:
    data = some_data(rows=10_000, lengths=[100] * 1000, tokenizer="tok", sampled=True)
    job = a_job(**PACKED, num_train_epochs=1)
    (found,) = findings("PAD002", data, Project(".", [job], data=[data]))
    assert "20 examples into a row" in found.message
    assert "at least 31 updates" in found.message
    assert "at least 625" in found.message


@pytest.mark.parametrize(
    ("lengths", "rows", "other"),
    [
        ([1500] * 100, 100, {}),
        ([100] * 100, 10_000_000, {}),
        ([100] * 100, 1000, {"packing": False}),
        ([100] * 100, 1000, {"max_steps": 500}),
    ],
)
def test_packing_that_leaves_updates(lengths: list[int], rows: int, other: dict[str, Any]) -> None:
    data = some_data(rows=rows, lengths=lengths, tokenizer="tok")
    job = a_job(**PACKED | {"num_train_epochs": 1} | other)
    assert not findings("PAD002", data, Project(".", [job], data=[data]))


MIXED = [50] * 90 + [1000] * 10
PADDED: dict[str, Any] = {"per_device_train_batch_size": 8, "max_length": 2048}


def test_waste_is_of_the_batches_that_the_job_makes() -> None:
    data = some_data(rows=100, lengths=MIXED, tokenizer="tok")
    (found,) = findings("PAD003", data, Project(".", [a_job(**PADDED)], data=[data]))
    real = found.evidence.facts["real share"]
    assert 0.1 < real < 0.4
    assert found.stake.high == pytest.approx(1 - real, abs=1e-3)


def test_waste_of_pairs_counts_both_sides() -> None:
    data = some_data(rows=50, lengths=MIXED, tokenizer="tok", per_example=2)
    job = a_job(Trainer.TRL, Method.DPO, **PADDED | {"per_device_train_batch_size": 1, "padding_free": True})
    assert findings("PAD003", data, Project(".", [job], data=[data])) == []
    lengths = [50, 1000] * 50
    data = some_data(rows=50, lengths=lengths, tokenizer="tok", per_example=2)
    (found,) = findings("PAD003", data, Project(".", [job], data=[data]))
    assert found.evidence.facts["real share"] == pytest.approx(0.525)


@pytest.mark.parametrize(
    "other",
    [
        {"packing": True},
        {"padding_free": True},
        {"per_device_train_batch_size": 1},
        {"max_length": 50},
        {"train_sampling_strategy": "group_by_length"},
        {"use_cpu": True},
        {"per_device_train_batch_size": UNKNOWN},
    ],
)
def test_no_waste(other: dict[str, Any]) -> None:
    data = some_data(rows=100, lengths=MIXED, tokenizer="tok")
    assert not findings("PAD003", data, Project(".", [a_job(**PADDED | other)], data=[data]))
    assert not findings("PAD003", data, Project(".", [a_job(Trainer.DYNOTUNE, **PADDED)], data=[data]))


def test_grouping_by_length() -> None:
    (found,) = findings("PAD004", a_job(group_by_length=True, packing=True))
    assert found.remedy.changes[0].value is False
    (found,) = findings("PAD004", a_job(train_sampling_strategy="group_by_length", packing=True))
    assert "saves no padding" in found.message
    assert not findings("PAD004", a_job(group_by_length=True, packing=False))  # a choice, where lengths differ
    assert not findings("PAD004", a_job(group_by_length=False, train_sampling_strategy="random"))


def test_padding_to_the_limit() -> None:
    asked = {"pad_to_sequence_len": True, "packing": False, "max_length": 1000}
    (found,) = findings("PAD005", a_job(Trainer.AXOLOTL, **asked))
    assert found.stake.high is None
    job, data = a_job(Trainer.AXOLOTL, **asked), some_data(lengths=[100, 300])
    (found,) = findings("PAD005", job, Project(".", [job], data=[data]))
    assert found.stake.high == pytest.approx(0.8)
    for other in ({"packing": True}, {"torch_compile": True}, {"pad_to_sequence_len": False}, {"packing": UNKNOWN}):
        assert not findings("PAD005", a_job(Trainer.AXOLOTL, **asked | other))
    full = some_data(lengths=[990, 980])
    assert not findings("PAD005", job, Project(".", [job], data=[full]))


TRAINS = """
from transformers import Trainer, TrainingArguments
from rows import Pad, encode
args = TrainingArguments(output_dir="o", bf16=True)
Trainer(model=model, args=args, train_dataset=rows.map(encode), data_collator=Pad(0, 1024)).train()
"""
TOKENIZES = """
def encode(rows):
    return tokenizer(rows["text"], truncation=True, max_length=1024, padding="max_length")
"""
COLLATES = """
import torch
class Pad:
    def __init__(self, pad, width):
        self.pad, self.width = pad, width
    def __call__(self, rows):
        ids = torch.full((len(rows), self.width), self.pad)
        return {"input_ids": ids, "attention_mask": ids != self.pad}
"""


@pytest.mark.parametrize(
    ("rows", "by"),
    [
        (TOKENIZES, 'padding="max_length"` pads every row to the limit (1,024 tokens)'),
        (TOKENIZES.replace(")\n", ', return_tensors="pt")\n'), "1,024"),
        (COLLATES, "torch.full((len(rows), self.width), self.pad)"),
    ],
)
def test_code_that_pads_to_the_limit(rows: str, by: str, tmp_path: Path) -> None:
    (found,) = said("PAD005", tmp_path, TRAINS, rows__py=rows)
    assert by in found.message
    assert found.place.file == "rows.py"


@pytest.mark.parametrize(
    ("train", "rows"),
    [
        (TRAINS, TOKENIZES.replace("max_length=1024", "max_length=64")),
        (TRAINS, TOKENIZES.replace('"max_length")', '"longest")')),
        (TRAINS, TOKENIZES.replace("def encode", "def encode_for_evaluation")),
        (TRAINS, TOKENIZES.replace("def encode", "def ask").replace(")\n", ', return_tensors="pt")\n')),
        (TRAINS + "torch.compile(model)\n", TOKENIZES),
        (TRAINS.replace("from rows import", "from elsewhere import"), TOKENIZES),
        (TRAINS, COLLATES.replace("self.width)", "max(map(len, rows)))")),
        (TRAINS, COLLATES.replace("rows):\n", "rows):\n        self.width = max(map(len, rows))\n")),
        (TRAINS, COLLATES.replace('"attention_mask"', '"position_ids"')),
        (TRAINS.replace("bf16=True", "bf16=True, torch_compile=True"), COLLATES),
    ],
)  # fmt: skip
def test_code_that_does_not(train: str, rows: str, tmp_path: Path) -> None:
    assert not said("PAD005", tmp_path, train, rows__py=rows)

"""Promise: batches, checkpointing and orders by length are judged by the card, the model and the rows that files tell."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

LOOP = """import torch
from datasets import load_from_disk
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM
# {card}
ds = load_from_disk("{rows}").with_format("torch")
model = AutoModelForCausalLM.from_pretrained("{model}").cuda()
{more}
opt = torch.optim.AdamW(model.parameters(), lr=1e-5)
for i, b in enumerate(DataLoader(ds, batch_size={batch})):
    loss = model(input_ids=b["input_ids"].cuda(), labels=b["input_ids"].cuda()).loss / 32
    loss.backward()
    if i % 32 == 31:
        opt.step()
        opt.zero_grad()
"""
CHECKPOINTS = "model.gradient_checkpointing_enable()"


def told(folder: Path, code: str, **values: str) -> bool:
    held = {
        "card": "A100-SXM4-80GB",
        "rows": "blocks_512",
        "model": "facebook/opt-350m",
        "more": "",
        "batch": "4",
    } | values
    return bool(audited(folder, {"train.py": LOOP.format(**held)}, select=(code,)).findings)


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ({}, True),
        ({"rows": "blocks"}, False),
        ({"rows": "run_2024"}, False),
        ({"card": "any card"}, False),
        ({"card": "gpu:a100_80gb:1"}, True),
        ({"model": "facebook/opt-13b"}, False),
        ({"more": ""}, False),
    ],
)
def test_checkpointing_of_rows_on_disk(tmp_path: Path, values: dict[str, str], found: bool) -> None:
    assert told(tmp_path, "MEM001", **({"more": CHECKPOINTS} | values)) is found


ENGINE = """import deepspeed
from datasets import load_from_disk
from transformers import AutoModelForCausalLM
data = load_from_disk("{}").with_format("torch")
model = AutoModelForCausalLM.from_pretrained("facebook/opt-350m")
engine, _, loader, _ = deepspeed.initialize(args=args, model=model, training_data=data)
for batch in loader:
    loss = engine(input_ids=batch["input_ids"], labels=batch["input_ids"]).loss
    engine.backward(loss)
    engine.step()
"""


@pytest.mark.parametrize(
    ("rows", "batch", "accumulates", "found"),
    [("tokens_256", 1, 64, True), ("tokens_256", 64, 4, False), ("tokens_256", 1, 1, False), ("tokens", 1, 64, False)],
)
def test_batches_of_deepspeeds_file(tmp_path: Path, rows: str, batch: int, accumulates: int, found: bool) -> None:
    files = {
        "ds.json": f'{{"train_micro_batch_size_per_gpu": {batch}, "gradient_accumulation_steps": {accumulates},'
        ' "bf16": {"enabled": true}}',
        "train.py": ENGINE.format(rows),
        "run.sh": "#SBATCH --gres=gpu:a100:4\n# A100 80GB\ndeepspeed --num_gpus 4 train.py --deepspeed_config ds.json\n",
    }
    said = audited(tmp_path, files, select=("OPT004",)).findings
    assert [one.place.file for one in said] == ["ds.json"] * found


FULL = (
    "base_model: meta-llama/Llama-3.2-1B\ndatasets:\n  - path: a.jsonl\n    type: chat_template\nsequence_len: 1024\n"
    "sample_packing: false\nmicro_batch_size: 1\ngradient_accumulation_steps: 32\noutput_dir: o\n"
)


@pytest.mark.parametrize(
    ("says", "more", "found"),
    [
        ("95 % of the mails have fewer than 400 tokens.", "", True),
        ("95 % of the mails have fewer than 940 tokens.", "adapter: lora\nlora_r: 8\n", False),
        ("95 % of the mails have fewer than 500 tokens.", "", False),
        ("95 % of the mails have fewer than 900 tokens.", "", False),
        ("95 % of the mails have fewer than 900 words.", "", False),
    ],
)
def test_few_tokens_wait_for_the_weights_to_be_read(tmp_path: Path, says: str, more: str, found: bool) -> None:
    files = {"a.yml": FULL + more, "README.md": f"# a\n\nOn one A100 80GB:\n\n    axolotl train a.yml\n\n{says}\n"}
    assert bool(audited(tmp_path, files, select=("OPT004",)).findings) is found


@pytest.mark.parametrize(
    ("says", "found"),
    [
        ("Training peaks at 3.1 GB; 77 GB are free.", True),
        ("Training peaks at 61 GB; 19 GB are free.", False),
        ("3.1 GB are free.", False),
    ],
)
def test_a_peak_beside_what_is_free(tmp_path: Path, says: str, found: bool) -> None:
    readme = f"For a rented A100 80GB (of the lab). {says}\n\n    trl sft --config sft.yaml\n"
    files = {
        "sft.yaml": "model_name_or_path: acme/own\ndataset_name: acme/x\ngradient_checkpointing: true\noutput_dir: o\n",
        "README.md": readme,
    }
    assert bool(audited(tmp_path, files, select=("MEM001",)).findings) is found


GROUPED = """from transformers import {1}, Trainer, TrainingArguments
from own import News
args = TrainingArguments("o", group_by_length=True, per_device_train_batch_size={0})
{2}(model, args, train_dataset=rows, data_collator={1}(tok)).train()
"""
NEWS = """from torch.utils.data import DataLoader
from transformers import Trainer
class News(Trainer):
    def get_train_dataloader(self):
        return {}
"""


@pytest.mark.parametrize(
    ("batch", "collator", "trainer", "makes", "gpus", "found"),
    [
        ("1", "DataCollatorForSeq2Seq", "Trainer", "DataLoader(self.rows)", "0", True),
        ("8", "DataCollatorForSeq2Seq", "Trainer", "DataLoader(self.rows)", "0", False),
        ("1", "DataCollatorForSeq2Seq", "Trainer", "DataLoader(self.rows)", "0,1", False),
        ("8", "DataCollatorWithFlattening", "Trainer", "DataLoader(self.rows)", "0", True),
        ("8", "DataCollatorForSeq2Seq", "News", "DataLoader(self.rows)", "0", True),
        ("8", "DataCollatorForSeq2Seq", "News", "super().get_train_dataloader()", "0", False),
    ],
)
def test_an_order_by_length_that_saves_nothing(
    tmp_path: Path, batch: str, collator: str, trainer: str, makes: str, gpus: str, found: bool
) -> None:
    files = {
        "train.py": GROUPED.format(batch, collator, trainer),
        "own.py": NEWS.format(makes),
        "requirements.txt": "transformers==4.51.3\n",
        "run.sh": f"CUDA_VISIBLE_DEVICES={gpus} python train.py\n",
    }
    assert bool(audited(tmp_path, files, select=("PAD004",)).findings) is found

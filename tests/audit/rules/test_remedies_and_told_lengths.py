"""Promise: what is to be done names the project's own file and what its classes have; lengths that documents tell count."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

NET = "from torch import nn\n\n\nclass Grader(nn.Module):\n    def __init__(self):\n        super().__init__()\n{}"
SAVE = """import torch
from torch.nn.parallel import DistributedDataParallel as DDP
from transformers import AutoModel, AutoTokenizer
from net import Grader

tok = AutoTokenizer.from_pretrained("a/b")
{}
torch.save({}.state_dict(), "pytorch_model.bin")
"""


@pytest.mark.parametrize(
    ("made", "saved", "more", "own"),
    [
        ("net = DDP(Grader().cuda(), device_ids=[0])", "net.module", "", True),
        ("raw = Grader()\nnet = DDP(raw)", "net.module", "", True),
        ("model = torch.compile(Grader().to('cuda'))", "model", "", True),
        ("model = AutoModel.from_pretrained('a/b')", "model", "", False),
        ("model = Grader()", "model", "\n    def save_pretrained(self, folder):\n        ...\n", False),
    ],
)
def test_a_class_of_ones_own_has_no_save_pretrained(
    tmp_path: Path, made: str, saved: str, more: str, own: bool
) -> None:
    files = {"net.py": NET.format(more), "train.py": SAVE.format(made, saved)}
    found = audited(tmp_path, files, select=("CKP051",)).findings
    assert [f"save_model({saved}" in one.remedy.text for one in found] == [own]


LOOP = """import torch
from accelerate import Accelerator
from transformers import AutoModelForCausalLM

acc = Accelerator({})
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-1.5B", dtype=torch.float32)
model = acc.prepare(model)
for batch in loader:
    acc.backward(model(**batch).loss)
    optimizer.step()
"""
ACCELERATE = "compute_environment: LOCAL_MACHINE\nnum_machines: 1\nnum_processes: 2\nmixed_precision: 'no'\n"
RUN = "accelerate launch --config_file a.yaml train.py\n"


def test_what_accelerate_was_told_is_mended_where_it_stands(tmp_path: Path) -> None:
    files = {"train.py": LOOP.format(""), "a.yaml": ACCELERATE, "run.sh": RUN, "README.md": "Runs in bf16.\n"}
    (finding,) = audited(tmp_path, files, select=("PRC006",)).findings
    assert finding.remedy.text.startswith("Set `mixed_precision: bf16` in `a.yaml`")
    assert "README.md" in finding.message
    assert {"a.yaml", "README.md"} <= {place.file for place in finding.also}


ROWS = """from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

tok = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B")
rows = load_dataset("json", data_files="rows.jsonl", split="train")
rows = rows.map(lambda row: tok(row["text"], truncation=True, padding="max_length", max_length=2048))
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
Trainer(model=model, args=TrainingArguments(output_dir="o"), train_dataset=rows).train()
"""
TABLE = "Lengths in tokens:\n\n| split | rows | mean | max |\n|---|---|---|---|\n| train | 41,812 | {} | 1874 |\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (TABLE.format("231") + "| valid | 2,200 | 229 | 1511 |\n", "11% of what is computed is real"),
        ("Rows have 231 tokens on average.\n", "11% of what is computed is real"),
        (TABLE.format("231").replace("tokens", "characters"), "(2,048 tokens)."),
        (TABLE.format("1,990"), None),  # nearly full
        ("| batch | mean | it/s |\n|---|---|---|\n| 4 | 231 | 9.1 |\n", "(2,048 tokens)."),
    ],
)
def test_lengths_that_documents_tell(tmp_path: Path, text: str, says: str | None) -> None:
    found = audited(tmp_path, {"train.py": ROWS, "README.md": text}, select=("PAD005",)).findings
    assert [says in one.message for one in found if says] == ([True] if says else [])
    assert bool(found) is (says is not None)

"""Promise: limits that leave no room, masks of several documents, logits of an evaluation, and variables of launchers
that a program alone does not have are found, and what looks like them is not."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited


def places(folder: Path, code: str, files: dict[str, str]) -> list[str]:
    return [one.place.file for one in audited(folder, files, select=(code,)).findings]


DPO = """from trl import {name}Config, {name}Trainer

LENGTHS = dict(max_length={length}, max_prompt_length={prompt})
args = {name}Config(output_dir="out", seed=1, **LENGTHS)
{name}Trainer(model="Qwen/Qwen2.5-0.5B", args=args, train_dataset=rows).train()
"""


@pytest.mark.parametrize(
    ("length", "prompt", "trl", "found"),
    [(1024, 2048, "0.24.0", 1), (1024, 1024, "0.24.0", 1), (1024, 512, "0.24.0", 0), (1024, "None", "0.24.0", 0)],
)
def test_a_prompt_as_long_as_the_row(tmp_path: Path, length: int, prompt: object, trl: str, found: int) -> None:
    train = DPO.format(name="DPO", length=length, prompt=prompt)
    assert len(places(tmp_path, "CFG013", {"train.py": train, "requirements.txt": f"trl=={trl}\n"})) == found


MASK = """import torch
import torch.nn.functional as F


def collate(rows):
    ids, doc = (torch.stack(one) for one in zip(*rows))
    causal = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).tril()
    mask = {}
    mask = mask & causal
    return ids, mask


def attend(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


torch.manual_seed(0)
loader = torch.utils.data.DataLoader(data, batch_size=8, collate_fn=collate)
opt = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
for ids, mask in loader:
    loss = model(ids, mask)
    loss.backward()
    opt.step()
    opt.zero_grad()
"""


@pytest.mark.parametrize(
    ("made", "found"),
    [
        ("doc[:, None, :, None] == doc[:, None, None, :]", 1),
        ("doc[:, :, None] == doc[:, None, :]", 1),
        ("doc.unsqueeze(2) == doc.unsqueeze(1)", 1),
        ("(ids != 0)[:, None, None, :]", 0),
    ],
)
def test_a_mask_of_documents(tmp_path: Path, made: str, found: int) -> None:
    assert len(places(tmp_path, "ATT001", {"train.py": MASK.format(made)})) == found


EVALUATES = """from transformers import {model}, Trainer, TrainingArguments
from metrics import compute_metrics

model = {model}.from_pretrained("Qwen/Qwen2.5-0.5B")
args = TrainingArguments("out", eval_strategy="epoch", seed=1)
trainer = Trainer(model=model, args=args, train_dataset=rows, eval_dataset=held, compute_metrics={more})
trainer.train()
"""
METRICS = (
    "def compute_metrics(pred):\n    return {'accuracy': (pred.predictions.argmax(-1) == pred.label_ids).mean()}\n"
)


@pytest.mark.parametrize(
    ("model", "more", "found"),
    [
        ("AutoModelForCausalLM", "compute_metrics", 1),
        ("AutoModelForCausalLM", "compute_metrics, preprocess_logits_for_metrics=best", 0),
        ("AutoModelForCausalLM", "None", 0),
        ("AutoModelForSequenceClassification", "compute_metrics", 0),
    ],
)
def test_logits_that_an_evaluation_keeps(tmp_path: Path, model: str, more: str, found: int) -> None:
    files = {"train.py": EVALUATES.format(model=model, more=more), "metrics.py": METRICS}
    assert len(places(tmp_path, "MEM003", files)) == found


SETTINGS = "import os\n\nSEED = 1\n{}\n"
PREPARES = "from settings import SEED\n\nprint(SEED)\n"
TRAINS = "import settings\n\nprint(settings.WORLD)\n"


@pytest.mark.parametrize(
    ("read", "readme", "found"),
    [
        ("WORLD = int(os.environ['WORLD_SIZE'])", "    python prepare.py\n    bash run.sh\n", 1),
        ("WORLD = int(os.environ['WORLD_SIZE'])", "```bash\npython3 prepare.py  # tokens\n```\n", 1),
        ("WORLD = int(os.environ['WORLD_SIZE'])", "    WORLD_SIZE=8 python prepare.py\n", 0),
        ("WORLD = int(os.environ['WORLD_SIZE'])", "    torchrun --nproc_per_node 8 train.py\n", 0),
        ("WORLD = int(os.environ.get('WORLD_SIZE', 1))", "    python prepare.py\n", 0),
        ("def world():\n    return int(os.environ['WORLD_SIZE'])", "    python prepare.py\n", 0),
        ("if 'WORLD_SIZE' in os.environ:\n    WORLD = int(os.environ['WORLD_SIZE'])", "    python prepare.py\n", 0),
    ],
)
def test_a_variable_that_a_program_alone_does_not_have(tmp_path: Path, read: str, readme: str, found: int) -> None:
    files = {
        "settings.py": SETTINGS.format(read),
        "prepare.py": PREPARES,
        "train.py": TRAINS,
        "run.sh": "torchrun --nproc_per_node 8 train.py\n",
        "README.md": readme,
    }
    assert len(places(tmp_path, "DST051", files)) == found


@pytest.mark.parametrize(("run", "found"), [("", 1), ("torchrun --nproc_per_node 8 alone.py\n", 0)])
def test_a_variable_that_a_program_reads_itself(tmp_path: Path, run: str, found: int) -> None:
    alone = "import os\n\nRATE = 1e-5 * int(os.environ['WORLD_SIZE'])\nprint(RATE)\n"
    files = {"alone.py": alone, "README.md": "    python alone.py\n"} | ({"run.sh": run} if run else {})
    assert len(places(tmp_path, "DST051", files)) == found


TWEETS = """import torch
from torch.utils.data import DataLoader, TensorDataset
from transformers import AutoModelForSequenceClassification, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("google-bert/bert-base-uncased")


def {name}(texts):
    enc = tokenizer(texts, truncation=True, padding={padding}, max_length=512, return_tensors="pt")
    return TensorDataset(enc["input_ids"], enc["attention_mask"])


torch.manual_seed(0)
model = AutoModelForSequenceClassification.from_pretrained("google-bert/bert-base-uncased").cuda()
opt = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
for batch in DataLoader({name}(texts), batch_size=8):
    loss = model(*batch).loss
    loss.backward()
    opt.step()
    opt.zero_grad()
"""


@pytest.mark.parametrize(
    ("name", "padding", "found"),
    [("load_tensors", "'max_length'", 1), ("dataset_of", "'max_length'", 1), ("answer", "'max_length'", 0)],
)
def test_tensors_padded_to_the_limit(tmp_path: Path, name: str, padding: str, found: int) -> None:
    assert len(places(tmp_path, "PAD005", {"train.py": TWEETS.format(name=name, padding=padding)})) == found

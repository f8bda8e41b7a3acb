"""Promise: labels shifted twice, masked by characters, left whole under a claim or where a search fails are found, and
those that stand right are not."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

HEAD = """import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, Trainer, TrainingArguments

tok = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B")
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B").cuda()
torch.manual_seed(0)
"""
LOOP = (
    HEAD
    + """opt = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
for ids in loader:
    {}
    loss.backward()
    opt.step()
    opt.zero_grad()
"""
)
TRAINER = "\nTrainer(model=model, args=TrainingArguments('o', seed=1), train_dataset=ds.map(encode)).train()\n"
ENCODE = HEAD + "\n\ndef encode(row):\n    {}\n" + TRAINER


def found(folder: Path, code: str, train: str, **more: str) -> list[str]:
    files = {"train.py": train, **{name.replace("__", "."): text for name, text in more.items()}}
    return [one.message for one in audited(folder, files, select=(code,)).findings]


@pytest.mark.parametrize(
    ("step", "fires"),
    [
        ("x, y = ids[:, :-1], ids[:, 1:]\n    loss = model(input_ids=x, labels=y).loss", True),
        ("loss = model(ids[:, :-1].cuda(), labels=ids[:, 1:].cuda()).loss", True),
        ("loss = model(input_ids=ids, labels=ids).loss", False),
        (
            "logits = model(ids[:, :-1]).logits\n    loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())",
            False,
        ),
    ],
)
def test_labels_that_are_shifted_twice(tmp_path: Path, step: str, fires: bool) -> None:
    assert bool(found(tmp_path, "MSK051", LOOP.format(step))) is fires


def test_rows_that_are_shifted_for_a_model_that_shifts(tmp_path: Path) -> None:
    row = 'ids = tok(row["text"])["input_ids"]\n    return {{"input_ids": ids[{}], "labels": ids[{}]}}'
    assert found(tmp_path / "a", "MSK051", ENCODE.format(row.format(":-1", "1:")))
    assert not found(tmp_path / "b", "MSK051", ENCODE.format(row.format(":512", ":512")))


PROMPT = "prompt = f\"### Instruction:\\n{row['q']}\\n\\n### Response:\\n\"\n    "
WHOLE = 'ids = tok(prompt + row["a"] + tok.eos_token)["input_ids"]\n    '


@pytest.mark.parametrize(
    ("masked", "fires"),
    [
        ("labels = list(ids)\n    n = len(prompt)\n    labels[:n] = [-100] * n\n    ", True),
        ("labels = [-100] * len(prompt) + ids[len(prompt):]\n    ", True),
        ('n = len(tok(prompt)["input_ids"])\n    labels = [-100] * n + ids[n:]\n    ', False),
        ('prompt = tok(prompt)["input_ids"]\n    labels = [-100] * len(prompt) + ids[len(prompt):]\n    ', False),
    ],
)
def test_labels_that_are_masked_by_characters(tmp_path: Path, masked: str, fires: bool) -> None:
    row = PROMPT + WHOLE + masked + 'return {"input_ids": ids, "labels": labels}'
    assert bool(found(tmp_path, "MSK051", ENCODE.format(row))) is fires


COPIED = 'ids = tok(row["q"] + row["a"])["input_ids"]\n    {}return {{"input_ids": ids, "labels": {}}}'


@pytest.mark.parametrize(
    ("comment", "labels", "readme", "fires"),
    [
        ("# the loss is on the answer only\n    ", "list(ids)", "", True),
        ("", "ids.copy()", "Trains on the responses only.", True),
        ("", "ids.copy()", "Trains on whole conversations.", False),
        ("", "ids.copy()", "The loss is not on the answers only.", False),
        ("# the loss is on the answer only\n    ", "[-100] * 4 + ids[4:]", "", False),
    ],
)
def test_whole_labels_under_a_claim(tmp_path: Path, comment: str, labels: str, readme: str, fires: bool) -> None:
    train = ENCODE.format(COPIED.format(comment, labels))
    assert bool(found(tmp_path, "MSK001", train, README__md=readme)) is fires


SEARCH = """def mask(ids, labels, marker):
    try:
        start = ids.index(marker)
        labels[:start] = [-100] * start
    except ValueError:
        {}
    return labels
"""


@pytest.mark.parametrize(
    ("handler", "fires"),
    [
        ("pass", True),
        ("print('no marker')", True),
        ("logger.warning('no marker')", True),
        ("raise", False),
        ("labels[:] = [-100] * len(labels)", False),
        ("return None", False),
    ],
)
def test_labels_left_whole_where_a_search_raises(tmp_path: Path, handler: str, fires: bool) -> None:
    row = (
        'ids = tok(row["q"] + row["a"])["input_ids"]\n    return {"input_ids": ids, "labels": mask(ids, list(ids), 5)}'
    )
    train = ENCODE.format(row).replace("import torch\n", "import torch\nfrom data import mask\n")
    assert bool(found(tmp_path, "MSK050", train, data__py=SEARCH.format(handler))) is fires

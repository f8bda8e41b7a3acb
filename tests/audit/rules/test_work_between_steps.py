"""Promise: work that is done for each row between two steps is found wherever the data set is made, and so is text that is
tokenised again in each epoch."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

_LOOP = """
model = Net().cuda()
opt = torch.optim.AdamW(model.parameters(), fused=True)
for epoch in range({epochs}):
    for x, y in loader:
        loss = crit(model(x.cuda()), y.cuda())
        loss.backward()
        opt.step()
        opt.zero_grad()
"""
_IMAGES = """
import cv2, torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset, random_split
from torchvision import datasets
from torchvision.datasets import ImageFolder

def load(path):
    return cv2.imread(path)

class Own(Dataset):
    def __getitem__(self, i):
        return load(self.files[i])

class Kept(Dataset):
    def __init__(self, files):
        self.rows = [load(one) for one in files]
    def __getitem__(self, i):
        return self.rows[i]

def build(rows, workers=0):
    train, held = random_split(rows, [0.9, 0.1])
    return DataLoader(train, batch_size=64, shuffle=True, num_workers=workers)

class Data:
    def __init__(self, rows):
        self.rows = rows
    def loader(self):
        return DataLoader(self.rows, batch_size=64)
"""


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("loader = DataLoader(Own(files), 64)", True),
        ("loader = DataLoader(datasets.ImageFolder(root), 64, num_workers=0)", True),
        ("rows = ImageFolder(root)\nloader = DataLoader(dataset=rows, batch_size=64, num_workers=1)", True),
        ("rows = Own(files)\nloader = DataLoader(Subset(rows, range(10)), 64)", True),
        ("loader = build(Own(files))", True),
        ("loader = Data(ImageFolder(root)).loader()", True),
        ("parts = {one: ImageFolder(one) for one in ('a', 'b')}\nloader = DataLoader(parts['a'], 64)", True),
        ("a, b = Own(x), Own(y)\nloader = DataLoader(a + b if both else a, 64)", True),
        ("loader = DataLoader(Own(files), 64, num_workers=8)", False),
        ("loader = DataLoader(Kept(files), 64)", False),
        ("rows = list(Own(files))\nloader = DataLoader(rows, 64)", False),
        ("loader = DataLoader(TensorDataset(x, y), 64)", False),
        ("loader = DataLoader(rows, 64)\ntest_loader = DataLoader(Own(files), 64)", False),
        (
            "loader = DataLoader(rows, 64)\nother = DataLoader(val_rows, 64, num_workers=0)\nval_rows = Own(files)",
            False,
        ),
    ],
)
def test_files_that_are_decoded_between_steps(tmp_path: Path, line: str, found: bool) -> None:
    text = f"{_IMAGES}\n{line}\n" + _LOOP.format(epochs=2)
    findings = audited(tmp_path, {"train.py": text}, select=("HST005",)).findings
    assert bool(findings) is found
    assert all("decodes" in one.message for one in findings)


_TEXT = """
import torch
from functools import partial
from torch.utils.data import DataLoader
from transformers import AutoTokenizer
tok = AutoTokenizer.from_pretrained("gpt2")
def make_collate(tok, limit):
    def collate(rows):
        return tok([one["text"] for one in rows], truncation=True, max_length=limit, return_tensors="pt"), None
    return collate
def encode(tok, rows):
    return tok([one["text"] for one in rows], return_tensors="pt"), None
def noisy(rows):
    return tok([one["text"] for one in rows if random.random() < 0.9], return_tensors="pt"), None
"""


@pytest.mark.parametrize(
    ("line", "epochs", "codes"),
    [
        ("loader = DataLoader(rows, 8, collate_fn=make_collate(tok, 512))", 3, ["HST005", "HST006"]),
        ("loader = DataLoader(rows, 8, num_workers=4, collate_fn=make_collate(tok, 512))", 3, ["HST006"]),
        ("loader = DataLoader(rows, 8, collate_fn=partial(encode, tok))", 1, ["HST005"]),
        ("loader = DataLoader(rows, 8, collate_fn=lambda rows: tok([one['text'] for one in rows]))", 3, None),
        ("loader = DataLoader(rows, 8, num_workers=4, collate_fn=noisy)", 3, []),
        ("loader = DataLoader(rows, 8, collate_fn=stack)", 3, []),
    ],
)
def test_text_that_is_tokenised_for_each_batch(tmp_path: Path, line: str, epochs: int, codes: list[str] | None) -> None:
    text = f"{_TEXT}\n{line}\n" + _LOOP.format(epochs=epochs)
    found = audited(tmp_path, {"train.py": text}, select=("HST005", "HST006")).findings
    assert sorted(one.code for one in found) == (["HST005", "HST006"] if codes is None else codes)


_WITHIN = """
import torch
from transformers import AutoTokenizer
tok = AutoTokenizer.from_pretrained("gpt2")
model.cuda()
opt = torch.optim.AdamW(model.parameters(), fused=True)
for epoch in range(3):
    for batch in loader:
        {line}
        loss = model(**batch, labels=batch["input_ids"]).loss
        loss.backward()
        opt.step()
        opt.zero_grad()
"""


@pytest.mark.parametrize(
    ("line", "codes"),
    [
        ('batch = tok(batch["text"], truncation=True, return_tensors="pt").to("cuda")', ["HST005", "HST006"]),
        ('batch = {key: value.to("cuda") for key, value in batch.items()}', []),
        ('texts = tok.batch_decode(model.generate(batch)); batch = tok(texts, return_tensors="pt").to("cuda")', []),
    ],
)
def test_text_that_the_loop_tokenises(tmp_path: Path, line: str, codes: list[str]) -> None:
    found = audited(tmp_path, {"train.py": _WITHIN.format(line=line)}, select=("HST005", "HST006")).findings
    assert sorted(one.code for one in found) == codes


_LIGHT = """
import torch
from torch.utils.data import DataLoader, Dataset
class Rows(Dataset):
    \"\"\"{words}\"\"\"
    def __getitem__(self, i):
        return self.tokenizer(self.rows[i]["text"]), 0
loader = DataLoader(Rows(), 8, num_workers=4)
"""


@pytest.mark.parametrize(("words", "found"), [("Rows of text.", True), ("Lazily: the file has 40 GB.", False)])
def test_rows_that_are_prepared_late_on_purpose(tmp_path: Path, words: str, found: bool) -> None:
    text = _LIGHT.format(words=words) + _LOOP.format(epochs=3)
    assert bool(audited(tmp_path, {"train.py": text}, select=("HST006",)).findings) is found

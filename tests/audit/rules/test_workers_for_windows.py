"""Promise: many workers that only cut windows out of what a data set holds in memory are found; files that are mapped, rows
that are worked on and few workers are right."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

WINDOWS = """import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Windows(Dataset):
    def __init__(self, path, ctx):
        {reads}
        self.ctx = ctx

    def __len__(self):
        return (len(self.data) - 1) // self.ctx

    def __getitem__(self, i):
        {gets}


{made}
for x, y in loader:
    loss = model(x.cuda(), y.cuda())
    loss.backward()
    opt.step()
"""
FROM_FILE = "self.data = torch.from_numpy(np.fromfile(path, dtype=np.uint16).astype(np.int32))"
LOADED = "self.data = torch.load(path, weights_only=True)"
MAPPED = "self.data = np.memmap(path, dtype=np.uint16, mode='r')"
HANDED = "self.data = path"
CUT = "chunk = self.data[i * self.ctx : (i + 1) * self.ctx + 1].long()\n        return chunk[:-1], chunk[1:]"
NUMPY = "return torch.from_numpy(self.data[i : i + self.ctx].astype(np.int64)), i"
WORK = "return tokenizer.encode(self.data[i]).long(), i"
PLAIN = "loader = DataLoader(Windows('a.bin', 8), batch_size=16, num_workers={})"
NAMED = "ds = Windows('a.bin', 8)\nloader = DataLoader(ds, batch_size=16, sampler=s, num_workers={})"
HELPED = (
    "def make(rows, size):\n    return DataLoader(rows, batch_size=size, num_workers={})\n\n\n"
    "loader = make(Windows('a.bin', 8), 16)"
)


@pytest.mark.parametrize(
    ("reads", "gets", "made", "workers", "found"),
    [
        *[(FROM_FILE, CUT, made, 16, True) for made in (PLAIN, NAMED, HELPED)],
        (LOADED, CUT, NAMED, 8, True),
        ("self.data = np.load(path)", NUMPY, NAMED, 8, True),
        (MAPPED, NUMPY, NAMED, 8, False),
        ("self.data = np.load(path, mmap_mode='r')", NUMPY, NAMED, 8, False),
        (HANDED, NUMPY, NAMED, 8, False),
        (LOADED, WORK, NAMED, 8, False),
        (FROM_FILE, CUT, NAMED, 2, False),
        (FROM_FILE, CUT, NAMED, 0, False),
    ],
)
def test_windows_of_what_lies_in_memory(
    tmp_path: Path, reads: str, gets: str, made: str, workers: int, found: bool
) -> None:
    text = WINDOWS.format(reads=reads, gets=gets, made=made.format(workers))
    codes = [one.code for one in audited(tmp_path, {"train.py": text}).findings]
    assert ("HST051" in codes) is found


LISTED = """import torch
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


loader = DataLoader(Rows(rows), batch_size=8, num_workers={workers}, collate_fn=lambda rows: {collates})
for batch in loader:
    loss = model(batch.cuda()).loss
    loss.backward()
    opt.step()
"""


@pytest.mark.parametrize(
    ("workers", "collates", "found"),
    [
        (8, "torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)", True),
        (4, "torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)", False),
        (8, "tokenizer(rows, padding=True, return_tensors='pt')", False),
    ],
)
def test_a_lambda_that_pads_is_little_work(tmp_path: Path, workers: int, collates: str, found: bool) -> None:
    text = LISTED.format(workers=workers, collates=collates)
    codes = [one.code for one in audited(tmp_path, {"train.py": text}).findings]
    assert ("HST051" in codes) is found

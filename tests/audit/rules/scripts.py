"""Scripts as text, and what one rule says about them."""

import textwrap
from pathlib import Path

from dynotune.audit.finding import Finding
from dynotune.audit.registry import rules
from tests.audit.made_up import audited


def said(code: str, folder: Path, text: str, **files: str) -> list[Finding]:
    """Findings of one rule on `train.py` and other files, read and judged by the whole audit."""
    assert code in rules()
    every = {"train.py": textwrap.dedent(text), **{name.replace("__", "."): more for name, more in files.items()}}
    result = audited(folder, every, select=(code,))
    assert not result.project.not_read, result.project.not_read
    return list(result.findings)


LOOP = """
import torch
import gc, time
import numpy as np
model.cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step, batch in enumerate(train_loader):
    outputs = model(**batch)
    loss = outputs.loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def in_loop(*lines: str) -> str:
    return LOOP + "".join(f"    {line}\n" for line in lines)


TIMED = """
import time
import torch
model.cuda()
start, seen = time.time(), 0
for step, batch in enumerate(loader):
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    seen += 1
    {inside}
{after}
"""
"""A clock before a loop, and places for what is in it and behind it."""

"""Promise: figures that mean something else than they say are found in code, and right ones are not."""

from pathlib import Path

import pytest

from tests.audit.rules.scripts import said

TOKENS = """
import time
from transformers import DataCollatorForLanguageModeling
collate = DataCollatorForLanguageModeling(tokenizer, mlm=False)
for batch in loader:
    model(**batch).loss.backward()
    %s
"""
CLOCK = """
import time
import torch
model.cuda()
end = time.time()
for batch in loader:
    %s
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    %s
"""
SEED = """
import torch
from torch.utils.data import DataLoader
%s
loader = DataLoader(rows, batch_size=8, %s)
for batch in loader:
    model(**batch).loss.backward()
    optimizer.step()
"""
COLLATE = """
import torch
def collate(rows):
    longest = max(len(r) for r in rows)
    ids = torch.zeros(len(rows), longest, dtype=torch.long)
    mask = torch.zeros(len(rows), longest, dtype=torch.long)
    return {"input_ids": ids, "attention_mask": mask}
"""
IMPORTED = """
import time
from rows import collate
for batch in loader:
    model(**batch).loss.backward()
    n += batch["input_ids"].shape[0] * batch["input_ids"].shape[1]
print(f"{n / (time.perf_counter() - begin):.0f} tokens/s")
"""
FOUND = [
    ("MSR001", TOKENS % "tokens_per_second = batch['input_ids'].numel() / spent"),
    ("MSR001", TOKENS % "tokens += batch.input_ids.numel(); throughput = tokens / spent"),
    ("MSR001", TOKENS % "tokens_per_sec = batch_size * max_length * steps / spent"),
    ("MSR002", CLOCK % ("t0 = time.time()", "spent = time.time() - t0")),
    ("MSR002", CLOCK % ("begin = time.perf_counter()", "log(time.perf_counter() - begin)")),
    ("MSR003", SEED % ("", "shuffle=True")),
    ("MSR003", SEED % ("from peft import get_peft_model\nmodel = get_peft_model(model, config)", "shuffle=False")),
]
LEFT = [
    ("MSR001", TOKENS % "tokens_per_second = batch['attention_mask'].sum() / spent"),
    ("MSR001", (TOKENS % "tokens_per_second = batch['input_ids'].numel() / s").replace("DataCollatorFor", "X")),
    ("MSR001", TOKENS % "seen = batch['input_ids'].numel()"),
    ("MSR001", TOKENS % "tokens += (batch['input_ids'] != tokenizer.pad_token_id).sum(); tps = tokens / s"),
    ("MSR002", CLOCK % ("t0 = time.time()", "torch.cuda.synchronize(); spent = time.time() - t0")),
    ("MSR002", CLOCK % ("t0 = time.time()", "print(loss.item()); spent = time.time() - t0")),
    ("MSR002", CLOCK % ("waited = time.time() - end", "spent = time.time() - end; end = time.time()")),
    ("MSR002", CLOCK % ("", "if step % 10 == 0: spent = time.time() - end")),
    ("MSR002", (CLOCK % ("t0 = time.time()", "spent = time.time() - t0")).replace("model.cuda()", "")),
    ("MSR003", SEED % ("torch.manual_seed(1)", "shuffle=True")),
    ("MSR003", SEED % ("from .start import prepare", "shuffle=True")),
    ("MSR003", SEED % ("", "shuffle=False")),
    ("MSR003", (SEED % ("", "shuffle=True")).replace(".backward()", "")),
    ("MSR003", SEED % ("", "shuffle=True, generator=torch.Generator().manual_seed(0)")),
]  # fmt: skip


def test_padding_by_a_collator_of_another_file(tmp_path: Path) -> None:
    (found,) = said("MSR001", tmp_path / "found", IMPORTED, rows__py=COLLATE)
    assert "`n` counts" in found.message
    packed = COLLATE.replace("attention_mask", "position_ids")
    nears = (
        (IMPORTED, packed),  # no mask: nothing says that it pads
        (IMPORTED.replace("from rows import", "from other import"), COLLATE),
        (IMPORTED.replace("n / (time", "rows / (time"), COLLATE),
    )
    for number, (train, rows) in enumerate(nears):
        assert not said("MSR001", tmp_path / str(number), train, rows__py=rows)


@pytest.mark.parametrize(("code", "text"), FOUND)
def test_found(code: str, text: str, tmp_path: Path) -> None:
    assert len(said(code, tmp_path, text)) == 1


@pytest.mark.parametrize(("code", "text"), LEFT)
def test_left_alone(code: str, text: str, tmp_path: Path) -> None:
    assert not said(code, tmp_path, text)

"""Promise: a remedy says what the project's own file can take, and a figure goes by the key it is recorded under."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

BENCH = """import argparse
import time
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForLanguageModeling

ap = argparse.ArgumentParser()
ap.add_argument("--model", default="Qwen/Qwen2-0.5B")
ap.add_argument("--batch", type=int, default=8)
ap.add_argument("--max-len", type=int, default=512)
ap.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
a = ap.parse_args()
tok = AutoTokenizer.from_pretrained(a.model)
rows = data.map(lambda r: tok(r["text"], truncation=True, max_length=a.max_len))
loader = torch.utils.data.DataLoader(rows, batch_size=a.batch, collate_fn=DataCollatorForLanguageModeling(tok, mlm=False))
model = AutoModelForCausalLM.from_pretrained(a.model).cuda()
model.gradient_checkpointing_enable()
opt = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
start, done = time.perf_counter(), 0
for batch in loader:
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=a.precision == "bf16"):
        loss = model(**batch.to("cuda")).loss
    loss.backward()
    opt.step()
    opt.zero_grad()
    done += 1
secs = time.perf_counter() - start
{after}
"""
SHELL = "# all runs in bf16, H100 80GB\npython train.py --batch 16\n"
RECORD = 'record = {{"it_s": done / secs, "{key}": {value}}}\nprint(record)'


@pytest.mark.parametrize(
    ("key", "value", "found"),
    [
        ("tokens_per_s", "round(done * a.batch * a.max_len / secs)", 1),
        ("tok/s", "a.max_len * done * a.batch / secs", 1),
        ("tokens_per_s", "round(real / secs)", 0),
        ("tokens", "done * a.batch * a.max_len", 0),
        ("samples_per_s", "done * a.batch / secs", 0),
    ],
)
def test_a_record_of_an_upper_bound(tmp_path: Path, key: str, value: str, found: int) -> None:
    train = BENCH.format(after=RECORD.format(key=key, value=value))
    said = audited(tmp_path / "a", {"train.py": train, "run.sh": SHELL}, select=("MSR001",)).findings
    assert len(said) == found


@pytest.mark.parametrize(
    ("logged", "found"),
    [
        ("log(tokens_per_second=done * a.batch * a.max_len / secs)", 1),
        ("log(tokens_per_second=real / secs)", 0),
        ("log(rows_per_second=done * a.batch / secs)", 0),
    ],
)
def test_a_keyword_that_is_logged(tmp_path: Path, logged: str, found: int) -> None:
    said = audited(tmp_path / "a", {"train.py": BENCH.format(after=logged)}, select=("MSR001",)).findings
    assert len(said) == found


def test_a_call_is_left_out(tmp_path: Path) -> None:
    (said,) = audited(
        tmp_path / "a", {"train.py": BENCH.format(after=""), "run.sh": SHELL}, select=("MEM001",)
    ).findings
    assert "without the call" in said.remedy.text
    assert "--gradient_checkpointing" not in said.remedy.measure


def test_a_default_is_told_as_it_is(tmp_path: Path) -> None:
    (said,) = audited(
        tmp_path / "a", {"train.py": BENCH.format(after=""), "run.sh": SHELL}, select=("PRC006",)
    ).findings
    assert "`--precision` is `fp32` by default" in said.message


def test_axolotl_needs_the_plugin(tmp_path: Path) -> None:
    config = (
        "base_model: meta-llama/Llama-3.1-8B-Instruct\nadapter: qlora\nload_in_4bit: true\ndatasets:\n  - path: d.jsonl\n"
        "    type: alpaca\nsequence_len: 8192\nsample_packing: true\nflash_attention: true\nmicro_batch_size: 4\n"
    )
    files = {"a.yml": config, "run.sh": "# 2 x L40S\naxolotl train a.yml\n"}
    (said,) = audited(tmp_path / "a", files, select=("MEM003",)).findings
    assert "LigerPlugin" in said.remedy.text

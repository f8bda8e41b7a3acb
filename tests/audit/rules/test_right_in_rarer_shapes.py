"""Promise: what a reviewer found said of right projects is not said again; each with the case that is wrong beside it."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited
from tests.audit.rules.scripts import said

TWO = """from transformers import AutoTokenizer
M = "{model}"
tok = AutoTokenizer.from_pretrained(M{options})
{after}
def encode(row):
    return tok({text}, truncation=True)
"""


@pytest.mark.parametrize(
    ("model", "options", "after", "text", "found"),
    [
        ("mistralai/Mistral-7B-v0.1", "", "", 'tok.bos_token + row["q"]', True),
        ("mistralai/Mistral-7B-v0.1", ", add_bos_token=False", "", 'tok.bos_token + row["q"]', False),
        ("mistralai/Mistral-7B-v0.1", "", "tok.add_bos_token = False", 'tok.bos_token + row["q"]', False),
        ("mistralai/Mistral-7B-v0.1", "", "", "f\"<s>[INST] {row['q']}\"", True),
        ("meta-llama/Llama-3.1-8B", "", "", "f\"<s>[INST] {row['q']}\"", False),
        ("meta-llama/Llama-3.1-8B", "", "", "f\"<|begin_of_text|>{row['q']}\"", True),
    ],
)
def test_two_beginnings(tmp_path: Path, model: str, options: str, after: str, text: str, found: bool) -> None:
    assert bool(said("MSK053", tmp_path, TWO.format(model=model, options=options, after=after, text=text))) is found


UNSLOTH = """from unsloth import FastLanguageModel
from trl import SFTTrainer, SFTConfig
from datasets import load_dataset
model, tokenizer = FastLanguageModel.from_pretrained("unsloth/Qwen2.5-0.5B", max_seq_length=2048)
model = FastLanguageModel.get_peft_model(model, r=16, random_state=1)
def fmt(r):
    return {{"text": {text}}}
ds = load_dataset("json", data_files="a.jsonl", split="train").map(fmt)
SFTTrainer(model=model, tokenizer=tokenizer, train_dataset=ds,
    args=SFTConfig(dataset_text_field="text", max_seq_length=2048, output_dir="o", seed=1)).train()
"""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("f\"Q: {r['q']}\\nA: {r['a']}\"", True),
        ("f\"### Instruction:\\n{r['q']}\\n### Response:\\n{r['x']}\"", True),
        ('r["text"]', False),
        ("f\"{r['title']}\\n{r['body']}\"", False),
    ],
)
def test_documents_end_where_they_end(tmp_path: Path, text: str, found: bool) -> None:
    assert bool(said("MSK056", tmp_path, UNSLOTH.format(text=text))) is found


MASK = """import torch
from transformers import Trainer
def mask(row, tok):
    # The loss is on the answer.
    ids = tok(row["text"], truncation=True)["input_ids"]
    labels = list(ids)
    n = {given}
    labels = list(ids) if n is None else [-100] * n + ids[n:]
    return {{"input_ids": ids, "labels": labels}}
Trainer(m, a).train()
"""


@pytest.mark.parametrize(
    ("given", "found"),
    [("find(ids)", True), ('row.get("n")', False), ('row["n"]', False), ('getattr(row, "n", None)', False)],
)
def test_a_column_that_not_every_row_has(tmp_path: Path, given: str, found: bool) -> None:
    assert bool(said("MSK050", tmp_path, MASK.format(given=given))) is found


ROWS = """import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
class Rows(torch.utils.data.Dataset):
    def __init__(self, rows, block_size): self.rows, self.block_size = rows, block_size
    def __getitem__(self, i):
        ids = list(self.rows[i])
{lines}
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
Trainer(model, TrainingArguments("o", seed=1), train_dataset=Rows(r, 2048)).train()
"""
WEIGHTS = """        {name} = torch.zeros(self.block_size)
        {name}[:n] = {value}
        return {{"input_ids": {given}, "labels": ids, "pad_id": {name}}}"""
WHILE = """        while len(ids) < self.block_size:
            ids {added}
        return {{"input_ids": ids, "labels": [-100] + ids[1:]}}"""


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (WHILE.format(added="+= [self.pad_id]"), True),
        (WHILE.format(added="+= [next(self.stream)]"), False),
        (WEIGHTS.format(name="x", value="ids", given="x"), True),
        (WEIGHTS.format(name="weights", value="1", given="ids[:self.block_size]"), False),
    ],
)
def test_what_is_filled_with_text(tmp_path: Path, lines: str, found: bool) -> None:
    assert bool(said("PAD005", tmp_path, ROWS.format(lines=lines))) is found


TRAINS = """from transformers import Trainer, TrainingArguments, AutoModelForCausalLM
Trainer(AutoModelForCausalLM.from_pretrained("gpt2"), TrainingArguments("o", bf16=True, seed=1)).train()
"""
SCORES = """import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
tok = AutoTokenizer.from_pretrained("sshleifer/tiny-gpt2")
model = AutoModelForCausalLM.from_pretrained("sshleifer/tiny-gpt2")
with torch.no_grad():
    for one in {rows}:
        print(model(tok(one, return_tensors="pt").input_ids).logits)
"""


@pytest.mark.parametrize(
    ("file", "rows", "found"),
    [
        ("score.py", 'open("rows.txt")', True),
        ("flops.py", '("a", "b")', False),
        ("tests/test_gen.py", 'open("rows.txt")', False),
    ],
)
def test_a_check_of_a_few_rows(tmp_path: Path, file: str, rows: str, found: bool) -> None:
    result = audited(tmp_path, {"train.py": TRAINS, file: SCORES.format(rows=rows)}, select=("HST004",))
    assert bool(result.findings) is found


WORLD = """import torch.distributed as dist
{before}
def world():
    if dist.is_available() and dist.is_initialized():
        return dist.get_world_size()
    return 1
{after}
"""
INIT = "import torch.distributed as dist\ndist.init_process_group('nccl')\n"
LATE = (
    "import torch.distributed as dist\ndef main():\n    dist.init_process_group('nccl')\n    from u import W\nmain()\n"
)


@pytest.mark.parametrize(
    ("before", "after", "files", "found"),
    [
        ("", "W = world()", {}, True),
        ("", "W = dict(a=world())", {}, True),
        ("", "W = dict(a=lambda: world())", {}, False),
        ("", "W = field(default_factory=lambda: world())", {}, False),
        ("import init", "W = world()", {"init.py": INIT}, False),
        ("", "W = world()", {"train.py": LATE}, False),
        ("", "W = world()", {"train.py": "from u import W\n" + LATE}, True),
    ],
)
def test_when_it_is_asked(tmp_path: Path, before: str, after: str, files: dict[str, str], found: bool) -> None:
    every = {"u.py": WORLD.format(before=before, after=after), **files}
    assert bool(audited(tmp_path, every, select=("DST051",)).findings) is found


ACCELERATED = """import torch
from accelerate import Accelerator
from transformers import get_cosine_schedule_with_warmup
acc = Accelerator({options})
opt = torch.optim.AdamW(model.parameters(), lr=1e-5)
sched = get_cosine_schedule_with_warmup(opt, 10, 3 * len(loader))
model, opt, loader, sched = acc.prepare(model, opt, loader, sched)
for epoch in range(3):
    for batch in loader:
        with acc.accumulate(model):
            acc.backward(model(**batch).loss)
            {clips}
            opt.step()
            {advances}
            opt.zero_grad()
"""


@pytest.mark.parametrize(
    ("options", "limit", "found"),
    [
        ('mixed_precision="fp16"', "1.0", True),
        ('mixed_precision="fp16"', 'float("inf")', False),
        ('mixed_precision="fp16", kwargs_handlers=[GradScalerKwargs(enabled=False)]', "1.0", False),
    ],
)
def test_what_clips_nothing(tmp_path: Path, options: str, limit: str, found: bool) -> None:
    clips = f"torch.nn.utils.clip_grad_norm_(model.parameters(), {limit})"
    text = ACCELERATED.format(options=options, clips=clips, advances="sched.step()")
    assert bool(said("OPT053", tmp_path, text)) is found


@pytest.mark.parametrize(
    ("advances", "found"),
    [
        ("sched.step()", True),
        ("if acc.sync_gradients: [sched.step() for _ in range(4)]", False),
        ("for _ in range(4): sched.step()", False),
    ],
)
def test_a_schedule_that_is_advanced_several_times(tmp_path: Path, advances: str, found: bool) -> None:
    text = ACCELERATED.format(options="gradient_accumulation_steps=4", clips="pass", advances=advances)
    assert bool(said("OPT052", tmp_path, text)) is found


WORKERS = TRAINS.replace("seed=1", "seed=1, dataloader_num_workers=16")


@pytest.mark.parametrize(
    ("readme", "found"),
    [
        ("I train this on my desktop under WSL2.", True),
        ("Runs on an RTX 3090 under WSL2.", True),
        ("We thank our users who reported the WSL problem.", False),
        ("For WSL see my blog.", False),
        ("See our guide for WSL. RTX 3090 cards under WSL2 have been reported to hang.", False),
    ],
)
def test_whose_wsl_it_is(tmp_path: Path, readme: str, found: bool) -> None:
    files = {"train.py": WORKERS, "README.md": f"{readme}\n"}
    assert bool(audited(tmp_path, files, select=("HST051",)).findings) is found


DRAWS = """import torch, random
{before}
def train(model, rows):
    random.shuffle(rows)
    opt = torch.optim.SGD(model.parameters(), 1e-3)
    for r in rows:
        loss = model(r).sum()
        loss.backward()
        opt.step()
        opt.zero_grad()
"""


@pytest.mark.parametrize(
    ("before", "found"),
    [
        ("", True),
        ("class Trainer: pass\nTrainer(seed=1)", True),
        ("from setfit import Trainer, TrainingArguments\nTrainer(args=TrainingArguments(seed=3))", False),
        ("from mylibrary import Trainer\nTrainer(seed=1)", False),
    ],
)
def test_a_trainer_of_another_library(tmp_path: Path, before: str, found: bool) -> None:
    assert bool(said("MSR003", tmp_path, DRAWS.format(before=before))) is found

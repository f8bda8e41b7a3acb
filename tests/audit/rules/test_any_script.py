"""Promise: no rule on scripts crashes on any text that parses, and none takes long over a large file."""

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynotune.audit.facts.project import Project
from dynotune.audit.read.python import read_script
from dynotune.audit.registry import rules
from dynotune.audit.rule import Subject
from tests.audit.rules.scripts import LOOP
from tests.audit.speed import slower

RULES = [rule for rule in rules().values() if rule.subject in (Subject.SCRIPT, Subject.PROJECT)]
LINES = st.sampled_from(
    [
        "import torch, time, gc",
        "from torch.utils.data import DataLoader as D",
        "import torch.distributed as dist",
        "from transformers import AutoModelForCausalLM as A, DataCollatorWithPadding",
        "model = A.from_pretrained(*names, **options)",
        "for batch in D(rows, 8, True, collate_fn=f):",
        "    loss = model(**batch).loss / dist.get_world_size()",
        "    with torch.no_grad(): reference = ref_model(**chosen)",
        "    loss.backward()",
        "    optimizer.step(); sched.step()",
        "    print(f'{loss:.3f}', loss)",
        "    float(loss)",
        "    t = time.time()",
        "    tokens_per_s = batch['input_ids'].numel() / (time.time() - t)",
        "    if (step + 1) % accumulation: optimizer.step()",
        "    torch.nn.utils.clip_grad_norm_(p, 1.0)",
        "    torch.save(model, 'x')",
        "class M(torch.nn.Module):",
        "    def forward(self, x, logits=None):",
        "        if x.any(): return logits.float().log_softmax(-1).gather(1, x.item())",
        "    def compute_loss(self, *a, **k): return torch.compile(self)(*a)",
        "try: c = DataCollatorForCompletionOnlyLM('é')",
        "except Exception: c = None",
        "torch.load('x', weights_only=False)",
        "rows.map(f, load_from_cache_file=False)",
        "scaler = torch.amp.GradScaler('cuda')",
        "torch.cuda.empty_cache()",
        "x = 'ééé'; y = [",
        "]",
        "    pass",
    ]
)


def judged(text: str) -> int:
    script = read_script(Path("p/train.py"), text, Path("p"))
    project = Project("p", scripts=[script])
    return sum(1 for rule in RULES for _ in rule.check(script if rule.subject is Subject.SCRIPT else project, project))


@settings(max_examples=60, deadline=None)
@given(st.lists(LINES, max_size=14).map("\n".join))
def test_no_rule_crashes(text: str) -> None:
    judged(text)


@pytest.mark.long
@settings(max_examples=4000, deadline=None)
@given(st.lists(LINES, max_size=25).map("\n".join))
def test_no_rule_crashes_at_length(text: str) -> None:
    judged(text)


@pytest.mark.long
def test_rules_over_5000_lines_take_less_than_5_seconds() -> None:
    text = "".join(LOOP.replace("train_loader", f"loader_{n}") + "    seen.append(loss.item())\n" for n in range(400))
    assert text.count("\n") > 5_000
    start = time.process_time()
    assert judged(text) >= 400
    assert time.process_time() - start < 5 * slower()

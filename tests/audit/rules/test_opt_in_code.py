"""Promise: loops whose updates are not those that were meant are found, and right ones in many shapes are not."""

from pathlib import Path

import pytest

from tests.audit.rules.scripts import said

PLAIN = """
import torch
optimizer = torch.optim.%(kind)s(model.parameters(), lr=1e-5)
%(before)s
for step, batch in enumerate(loader):
    loss = model(**batch).loss
    %(backward)s
    %(condition)s
        %(clip)s
        optimizer.step()
        %(clear)s
    %(after)s
"""


def loop(**parts: str) -> str:
    default = {
        "kind": "AdamW",
        "before": "",
        "backward": "(loss / accumulation).backward()",
        "condition": "if (step + 1) % accumulation == 0:",
        "clip": "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
        "clear": "optimizer.zero_grad()",
        "after": "",
    }
    return PLAIN % (default | parts)


SCALED = loop(
    before="scaler = torch.cuda.amp.GradScaler()", backward="scaler.scale(loss / 8).backward()", condition="if True:"
)
NESTED = """
import torch
optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.optim.lr)
for step in range(cfg.steps):
    for _ in range(cfg.train.accumulation):
        with torch.autocast("cuda"):
            loss = model(**next(batches)).loss%s
        %s
        running += loss.detach() / cfg.train.accumulation
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
"""
HELPED = """
def step_of(batch):
    loss = model(**batch).loss
    loss = loss / accumulation
    loss.backward()
"""
FOUND = [
    ("OPT050", loop(clear="")),
    ("OPT050", loop(clear="pass", condition="if True:", kind="SGD")),
    ("OPT051", loop(backward="loss.backward()")),
    ("OPT051", loop(backward="loss.backward()", kind="SGD", clip="")),
    ("OPT051", loop(backward="loss.backward(); shown = loss.item() / accumulation")),  # only the log is divided
    ("OPT051", NESTED % ("", "loss.backward()")),
    ("OPT052", loop(after="scheduler.step()")),
    ("OPT052", loop(after="lr_scheduler.step()")),
    ("OPT053", SCALED),
    ("OPT053", SCALED.replace("torch.cuda.amp.GradScaler()", "torch.amp.GradScaler('cuda')")),
]
LEFT = [
    ("OPT050", loop()),
    ("OPT050", loop(clear="for p in model.parameters(): p.grad = None")),
    ("OPT050", loop(clear="model.zero_grad(set_to_none=True)")),
    ("OPT050", "import deepspeed\n" + loop(clear="")),
    ("OPT050", "for batch in loader:\n    loss.backward()\n"),
    ("OPT051", loop()),
    ("OPT051", loop(backward="loss /= accumulation; loss.backward()")),
    ("OPT051", loop(backward="loss.backward()", clip="")),  # AdamW alone does not mind
    ("OPT051", loop(backward="loss.backward()", condition="if step % save_every == 0:")),
    ("OPT051", "from accelerate import Accelerator\n" + loop(backward="loss.backward()")),
    ("OPT051", loop(backward="loss.backward()", before="criterion = torch.nn.CrossEntropyLoss(reduction='sum')")),
    ("OPT051", NESTED % (" / cfg.train.accumulation", "loss.backward()")),
    ("OPT051", NESTED % ("", "loss.div_(cfg.train.accumulation); loss.backward()")),
    ("OPT051", (NESTED % ("", "loss.backward()")).replace("cfg.train.accumulation)", "cfg.epochs)")),
    ("OPT051", "from losses import mean_of\n" + loop(backward="mean_of(loss).backward()")),
    ("OPT051", HELPED + loop(backward="step_of(batch)")),
    ("OPT052", loop(clear="optimizer.zero_grad(); scheduler.step()")),
    ("OPT052", loop(condition="if True:", after="scheduler.step()").replace("if True:", "with scope:")),
    ("OPT052", "from accelerate import Accelerator\n" + loop(after="scheduler.step()")),
    ("OPT052", loop() + "scheduler.step()\n"),
    ("OPT053", SCALED.replace("        torch.nn", "        scaler.unscale_(optimizer)\n        torch.nn")),
    ("OPT053", loop()),
    ("OPT053", SCALED.replace("GradScaler()", "GradScaler(enabled=False)")),
    ("OPT053", SCALED.replace("torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)", "pass")),
]


@pytest.mark.parametrize(("code", "text"), FOUND)
def test_found(code: str, text: str, tmp_path: Path) -> None:
    assert len(said(code, tmp_path, text)) == 1


@pytest.mark.parametrize(("code", "text"), LEFT)
def test_left_alone(code: str, text: str, tmp_path: Path) -> None:
    assert not said(code, tmp_path, text)

"""Promise: a loss that is divided by the accumulation, and once more by whoever was told of it, is found however the
division is written; a division by something else is none."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

LOOP = """from accelerate import Accelerator
from omegaconf import OmegaConf
from losses import token_loss, step_loss
cfg = OmegaConf.load("base.yaml")
accelerator = Accelerator(gradient_accumulation_steps=cfg.train.{called}, mixed_precision="bf16")
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for batch in loader:
    with accelerator.accumulate(model):
        {made}
        optimizer.step()
        optimizer.zero_grad()
"""
LOSSES = """def token_loss(logits, labels):
    return -(picked * mask).sum() / mask.sum().clamp(min=1)


def step_loss(model, batch, cfg):
    return model(**batch).loss / cfg.train.grad_accum
"""
DEEPSPEED = """import deepspeed
engine, _, loader, _ = deepspeed.initialize(model=model, config="ds.json", training_data=rows)
for batch in loader:
    {made}
    engine.step()
"""


def says(tmp_path: Path, text: str, config: str) -> bool:
    name = "base.yaml" if "accelerate" in text else "ds.json"
    found = audited(tmp_path, {"train.py": text, "losses.py": LOSSES, name: config}).findings
    return any(one.code == "OPT054" and "divided by the accumulation" in one.message for one in found)


DIVIDED = [
    "loss = token_loss(model(**batch).logits, labels) / cfg.train.{n}\n        accelerator.backward(loss)",
    "loss = token_loss(model(**batch).logits, labels)\n        accelerator.backward(loss / cfg.train.{n})",
    "loss = model(**batch).loss * (1 / cfg.train.{n})\n        accelerator.backward(loss)",
    "loss = model(**batch).loss.div(cfg.train.{n})\n        accelerator.backward(loss)",
    "ce = model(**batch).loss\n        ce /= cfg.train.{n}\n        accelerator.backward(ce)",
    "ce = model(**batch).loss\n        scaled = ce / 4\n        accelerator.backward(scaled)",
]


@pytest.mark.parametrize("made", DIVIDED)
@pytest.mark.parametrize("called", ["grad_accum", "every"])
def test_divided_though_accelerate_divides(tmp_path: Path, made: str, called: str) -> None:
    text = LOOP.format(called=called, made=made.format(n=called))
    assert says(tmp_path, text, f"train:\n  {called}: 4\n")


def test_divided_by_the_function_that_gives_the_loss(tmp_path: Path) -> None:
    text = LOOP.format(
        called="grad_accum", made="loss = step_loss(model, batch, cfg)\n        accelerator.backward(loss)"
    )
    assert says(tmp_path, text, "train:\n  grad_accum: 4\n")


@pytest.mark.parametrize(
    "made",
    [
        "loss = token_loss(model(**batch).logits, labels)\n        accelerator.backward(loss)",
        "loss = model(**batch).loss / cfg.train.temperature\n        accelerator.backward(loss)",
        "loss = total / accumulated_tokens\n        accelerator.backward(loss)",
        "loss = model(**batch).loss\n        accelerator.backward(loss)\n        shown = loss / cfg.train.grad_accum",
        "loss = model(**batch).loss\n        accelerator.backward(loss)\n        loss = loss / cfg.train.grad_accum",
        "loss = model(**batch).loss / 8\n        accelerator.backward(loss)",
    ],
)
def test_other_divisions_are_right(tmp_path: Path, made: str) -> None:
    assert not says(tmp_path, LOOP.format(called="grad_accum", made=made), "train:\n  grad_accum: 4\n")


@pytest.mark.parametrize("number", [1, 4])
def test_the_same_of_deepspeeds_engine(tmp_path: Path, number: int) -> None:
    text = DEEPSPEED.format(made="loss = engine(**batch).loss.div(accum)\n    engine.backward(loss)")
    assert says(
        tmp_path, text, f'{{"gradient_accumulation_steps": {number}, "zero_optimization": {{"stage": 2}}}}'
    ) is (number > 1)

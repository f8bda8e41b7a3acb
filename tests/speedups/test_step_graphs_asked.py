"""Promise: `step_graphs: auto` takes them where they were seen to help, and otherwise says why not, and what to write."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dynotune import SFTConfig
from dynotune.model.precision import Precision
from dynotune.speedups.contract import Context
from dynotune.speedups.registry import speedups
from tests.tiny import tiny_model


def why(monkeypatch: pytest.MonkeyPatch, tokens: float = 500.0, world: int = 1, **config: Any) -> str | None:
    monkeypatch.setattr(Context, "on_gpu", property(lambda self: True))
    plan: Any = SimpleNamespace(tokens_a_step=tokens, world=world)
    context = Context(
        SFTConfig(**config), tiny_model(), torch.device("cpu"), torch.float32, Precision(torch.float32, False),
        longest=64, plan=plan,
    )  # fmt: skip
    no = speedups()["step_graphs"].applicable(context)
    return None if no is None else f"{no.reason}: {no.remedy}"


def test_small_steps_on_one_gpu_are_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert why(monkeypatch) is None


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"tokens": 150000.0}, "a step holds 150,000 tokens on average, and above 131,072"),
        ({"world": 2}, "one GPU only so far: write `speedups: {step_graphs: on}`"),
        ({"gradient_checkpointing": True}, "`gradient_checkpointing: true` computes activations again"),
        ({"activation_memory": "selective"}, "`activation_memory: selective` computes activations again"),
    ],
)
def test_why_not_is_said(monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], reason: str) -> None:
    found = why(monkeypatch, **settings)
    assert found is not None
    assert reason in found


@pytest.mark.parametrize("settings", [{"tokens": 150000.0}, {"world": 2}])
def test_who_asks_gets_them_all_the_same(monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]) -> None:
    assert why(monkeypatch, speedups={"step_graphs": "on"}, **settings) is None


def test_no_gradient_checkpointing_is_no_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    assert why(monkeypatch, gradient_checkpointing=False) is None

"""Promise: a lever is timed only beside its own proof: what is wrong is called BAD, on the machine where it is wrong."""

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks.gpu_levers import PARTS, show
from benchmarks.levers.activation import Activation, activation_rows
from benchmarks.levers.bench import Bench, off
from benchmarks.levers.graph import Step
from benchmarks.levers.lora import Linears, lora_rows
from benchmarks.levers.rounding import rounding_rows
from benchmarks.levers.update import after_two

from dynotune.model.elementwise import gate_lora, install
from dynotune.model.elementwise.gate_lora import AdaptersBetween, adapters_between
from tests.model.elementwise.stand_ins import stand_ins

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def bench() -> Bench:
    torch.manual_seed(0)
    return Bench(rehearse=True, deadline=math.inf)


def test_one_product_is_lora_in_float32(bench: Bench) -> None:
    linears = Linears(bench, 64, [64, 32, 32], 24)
    right = linears.reference()
    for way in (linears.peft, linears.ours, linears.in_one):
        assert max(off(found, one) for found, one in zip(way(), right, strict=True)) < 1e-5
    for found, one in zip(linears.frozen_by_rows(7), linears.frozen(), strict=True):
        assert off(found, one) < 1e-6
    linears.W_A[-1] = 0  # negative control: one row of one adapter is lost on the way back
    off_dx = [off(found, one) for found, one in zip(linears.in_one(), right, strict=True)][3]
    assert off_dx > 1e-4


def test_a_way_that_is_wrong_is_bad(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("benchmarks.levers.lora.GROUPS", {"o": ("h", ("h",))})
    assert [row["ok"] for row in lora_rows(bench)] == [True]
    as_it_is = Linears.ours
    monkeypatch.setattr(Linears, "ours", lambda it: tuple(1.01 * one for one in as_it_is(it)))
    rows = list(lora_rows(bench))
    assert [row["ok"] for row in rows] == [False]
    assert show({"rows": rows, "failed": {}, "seconds": 0.0}) == 1
    assert capsys.readouterr().out.startswith("BAD lora")


def test_adding_inside_of_the_activation_is_adding_before_it(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    one = Activation(bench, 24, 40)
    inside, right = one.inside(), one.right()
    by_products = one.by_products()  # adds to what it was given: the last
    for found in (inside, by_products):
        assert max(off(f, r) for f, r in zip(found, right, strict=True)) < 1e-5
    assert [row["ok"] for row in activation_rows(bench)] == [True]
    as_it_is = Activation.inside
    monkeypatch.setattr(Activation, "inside", lambda it, *tiles: tuple(1.01 * x for x in as_it_is(it, *tiles)))
    assert [row["ok"] for row in activation_rows(bench)] == [False]


class StepWithStandIns(Step):
    """Of kernels, which are put in on a GPU only."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        install(self.model, bench.low, kernels=stand_ins())


def test_a_model_that_rounds_more_is_bad(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.levers.rounding.Step", StepWithStandIns)
    assert [row["ok"] for row in rounding_rows(bench)] == [True]
    as_it_is = gate_lora.reference
    monkeypatch.setattr(gate_lora, "adapters_between", lambda fused, function, most: adapters(fused, noisy, most))

    def noisy(*args: Any) -> Any:
        return as_it_is(*args) * 1.02

    def adapters(fused: Any, function: Any, most: int) -> Any:
        found = adapters_between(fused, as_it_is, most)
        assert isinstance(found, AdaptersBetween)
        found.function = function
        return found

    assert [row["ok"] for row in rounding_rows(bench)] == [False]


def test_the_factor_of_clipping_is_seen(bench: Bench) -> None:
    start = [torch.randn(8, 16) * 0.02, torch.randn(4, 8) * 0.02]
    grads = [torch.randn_like(one) for one in start]
    right = after_two("ours", start, grads)
    assert off(after_two("grad_scale", start, grads), right) < 1e-4
    assert off(after_two("one buffer", start, grads), right) < 1e-4
    assert off(after_two("unclipped", start, grads), right) > 1e-3  # negative control


def test_sums_of_gradients_survive_what_a_replay_overwrites(bench: Bench) -> None:
    """A graph writes every gradient to the same place, as hooks do here: sums need buffers of their own."""
    step = Step(bench, layers=1)
    batches = [step.batch(bench, 64, seed) for seed in (1, 2)]
    places: dict[int, torch.Tensor] = {}

    def replay(p: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
        return places.setdefault(id(p), torch.empty_like(grad)).copy_(grad).detach()

    from benchmarks.levers.graph import Layers

    with step.attention.engaged():
        layers = Layers(step.decoder, "reference", batches[0].lengths)
        right = step.summed(layers, batches, True)
        for p in step.trained:
            p.register_hook(lambda grad, p=p: replay(p, grad))
        apart, taken = (step.summed(layers, batches, buffers) for buffers in (True, False))
    assert max(off(a, b) for a, b in zip(taken, right, strict=True)) > 1e-3  # negative control
    assert max(off(a, b) for a, b in zip(apart, right, strict=True)) == 0
    step.attention.uninstall()


@pytest.mark.long
def test_a_rehearsal_runs_through_every_part(tmp_path: Path) -> None:
    command = [sys.executable, "benchmarks/gpu_levers.py", "--out", str(tmp_path), "--rehearse"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    result: dict[str, Any] = json.loads((tmp_path / "gpu_levers.json").read_text())
    assert {row["part"] for row in result["rows"]} == set(PARTS)
    assert result["hardware"].endswith("a rehearsal")

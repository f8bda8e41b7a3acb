"""Promise: `adamw_8bit` is bitsandbytes' algorithm, said to be behavioural, resumed bitwise, or refused."""

import importlib.util
import io
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor, nn

from dynotune.config.keys.optimizer import OptimizerConfig
from dynotune.config.sft import SFTConfig
from dynotune.errors import ConfigError, TrainingError
from dynotune.measure.evidence import Evidence, Phase
from dynotune.measure.memory import optimizer_states
from dynotune.model.eight_bit_states import smallest, state_bytes
from dynotune.speedups.contract import Installation
from dynotune.speedups.expectation import Verdict
from dynotune.speedups.judge import judge
from dynotune.speedups.registry import speedups, switches
from dynotune.train.eight_bits import _check
from dynotune.train.optimizer import Update, build_optimizer
from tests.speedups.made_evidence import evidence, kernel

needs = pytest.mark.skipif(importlib.util.find_spec("bitsandbytes") is None, reason="bitsandbytes is not installed")
RATE, DECAY, BETAS, EPS = 1e-2, 0.1, (0.9, 0.95), 1e-8
SETTINGS = {"learning_rate": RATE, "adam_beta1": BETAS[0], "adam_beta2": BETAS[1], "adam_epsilon": EPS}


def dynamic_map(signed: bool) -> Tensor:
    """The 256 values of the paper's dynamic tree: exponents of ten, and the middles of equal parts between 0.1 and 1."""
    values = [0.0, 1.0]
    for i in range(7):
        parts = 2**i if signed else 2 ** (i + 1)
        edges = torch.linspace(0.1, 1, parts + 1)
        middles = (edges[:-1] + edges[1:]) / 2 * 10.0 ** (i - 6)
        values += middles.tolist() + ((-middles).tolist() if signed else [])
    return torch.tensor(sorted(values))


def blocks(value: Tensor) -> Tensor:
    return nn.functional.pad(value.flatten(), (0, -value.numel() % 256)).view(-1, 256)


def nearest(value: Tensor, signed: bool) -> Tensor:
    """The nearest value of the map, times the largest of each block of 256."""
    rows = blocks(value)
    scale = rows.abs().amax(1, keepdim=True)
    near = (rows / scale.clamp_min(1e-30))[..., None].sub(dynamic_map(signed)).abs().argmin(-1)
    return (dynamic_map(signed)[near] * scale).flatten()[: value.numel()].view_as(value)


def kept(state: dict[str, Any], n: int, signed: bool) -> Tensor:
    """What a moment of the optimizer stands for."""
    codes = state[f"state{n}"].to(torch.int64)
    rows = blocks(dynamic_map(signed)[codes]) * state[f"absmax{n}"][:, None]
    return rows.flatten()[: codes.numel()].view_as(codes)


def moments(m: Tensor, v: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    return BETAS[0] * m + (1 - BETAS[0]) * g, BETAS[1] * v + (1 - BETAS[1]) * g * g


def moved(p: Tensor, m: Tensor, v: Tensor, step: int) -> Tensor:
    """AdamW in float32, by moments that hold the gradient of this step."""
    p = p * (1 - RATE * DECAY)
    return p - RATE / (1 - BETAS[0] ** step) * m / ((v / (1 - BETAS[1] ** step)).sqrt() + EPS)


def optimizer_of(model: nn.Module) -> tuple[torch.optim.Optimizer, Update]:
    optimizer = build_optimizer(model, OptimizerConfig(optim="adamw_8bit", weight_decay=DECAY, **SETTINGS))
    return optimizer, Update(model.parameters(), optimizer, 0.0)


@needs
def test_each_step_is_the_published_algorithm() -> None:
    """From what the states stood for: the update in float32, and the moments behind it at the nearest of 256 values."""
    torch.manual_seed(0)
    model = nn.Linear(120, 65, bias=False)  # 30 blocks and a part of one
    weight = model.weight
    optimizer, update = optimizer_of(model)
    m, v, coarse = torch.zeros_like(weight), torch.zeros_like(weight), 0.0
    for step in range(1, 7):
        g, before = torch.randn_like(weight) * 10.0 ** -(step % 3), weight.detach().clone()
        weight.grad = g.clone()
        update(torch.ones(()))
        m, v = moments(m, v, g)
        assert torch.allclose(weight.detach(), moved(before, m, v, step), rtol=1e-5, atol=1e-7)
        for n, (value, signed) in enumerate(((m, True), (v, False)), 1):
            found = kept(optimizer.state[weight], n, signed)
            off, least = (found - value).abs(), (nearest(value, signed) - value).abs()
            scale = optimizer.state[weight][f"absmax{n}"].repeat_interleave(256)[: value.numel()].view_as(value)
            assert (off <= least + 2e-3 * scale).all()  # values half way between two may fall to either side
            assert ((off - least).abs() < 1e-6 * scale).float().mean() > 0.95
            coarse = max(coarse, float((off / scale).max()))
        m, v = (kept(optimizer.state[weight], n, n == 1) for n in (1, 2))
    assert coarse > 6e-3  # negative control: it is eight bits that are compared, not 32


@needs
@pytest.mark.parametrize("kind", ["embedding", "small"])
def test_embeddings_and_small_weights_keep_float32_states(kind: str) -> None:
    model: Any = nn.Embedding(64, 120) if kind == "embedding" else nn.Linear(30, 64, bias=False)
    optimizer, update = optimizer_of(model)
    m, v, p = torch.zeros_like(model.weight), torch.zeros_like(model.weight), model.weight.detach().clone()
    for step in range(1, 5):
        model.weight.grad = g = torch.randn_like(model.weight)
        m, v = moments(m, v, g)
        p = moved(p, m, v, step)
        update(torch.ones(()))
    assert torch.allclose(model.weight.detach(), p, rtol=1e-5, atol=1e-6)
    assert optimizer.state[model.weight]["state1"].dtype is torch.float32


@needs
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_step_that_is_not_finite_changes_neither_weights_nor_states(bad: float) -> None:
    torch.manual_seed(0)
    model = nn.Linear(64, 64)
    optimizer = build_optimizer(model, OptimizerConfig(optim="adamw_bnb_8bit", learning_rate=RATE))
    update = Update(model.parameters(), optimizer, 1.0)
    for factor in (1.0, bad):
        before = [p.detach().clone() for p in model.parameters()]
        states = [v.clone() for s in optimizer.state.values() for v in s.values() if isinstance(v, Tensor)]
        loss = model(torch.randn(3, 64)).square().mean() * factor
        loss.backward()
        _, finite = update(loss.detach())
        assert bool(finite) == (factor == 1.0)
        changed = not all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
        assert changed == (factor == 1.0)
    after = [v for s in optimizer.state.values() for v in s.values() if isinstance(v, Tensor)]
    assert len(states) == len(after) == 8  # six of the matrix, two of the bias
    assert all(torch.equal(a, b) for a, b in zip(states, after, strict=True))


@needs
def test_states_take_what_the_plan_says() -> None:
    model = nn.ModuleDict({"e": nn.Embedding(100, 64), "l": nn.Linear(64, 130), "s": nn.Linear(8, 8)})
    optimizer = build_optimizer(model, OptimizerConfig(optim="adamw_8bit"))
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    optimizer.step()
    states = [(k, v) for s in optimizer.state.values() for k, v in s.items() if isinstance(v, Tensor)]
    assert (
        sum(v.nbytes for k, v in states if not k.startswith("qmap"))
        == optimizer_states(model, "adamw_8bit", None).bytes
    )


@needs
@pytest.mark.parametrize("optim_args", [None, "min_8bit_size=256"])
def test_save_and_resume_is_bitwise(run_tiny: Any, optim_args: str | None) -> None:
    settings = {"optim": "adamw_8bit", "optim_args": optim_args, "learning_rate": 1e-3}
    whole = run_tiny(max_steps=6, save_strategy="no", **settings)
    run_tiny(max_steps=6, save_strategy="steps", save_steps=3, overwrite_output_dir=True, **settings)
    checkpoints = sorted((whole.folder / "checkpoints").glob("step-*"))
    resumed = run_tiny(max_steps=6, resume_from_checkpoint=str(checkpoints[0]), save_strategy="no", **settings)
    tail = [row["loss"] for row in whole.metrics if "loss" in row][3:]
    assert [row["loss"] for row in resumed.metrics if "loss" in row] == tail


def test_without_the_package_it_is_refused_before_anything_is_read(
    run_tiny: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n, *a: None if n == "bitsandbytes" else real(n, *a))
    monkeypatch.setattr("dynotune.train.start.opened.read_material", lambda *_, **__: pytest.fail("the data was read"))
    with pytest.raises(ConfigError, match="pip install bitsandbytes"):
        run_tiny(optim="adamw_8bit")
    with pytest.raises(ConfigError, match="pip install bitsandbytes"):
        build_optimizer(nn.Linear(2, 2), OptimizerConfig(optim="adamw_8bit"))


@needs
def test_what_makes_it_another_optimizer_is_no_argument_of_it() -> None:
    for args, said in {"is_paged=True": "is_paged", "amsgrad=True": "AMSGrad", "args=1": "args"}.items():
        with pytest.raises(ConfigError, match=said):
            build_optimizer(nn.Linear(2, 2), OptimizerConfig(optim="adamw_8bit", optim_args=args))


@pytest.mark.parametrize(
    ("args", "small"),
    [(None, 4096), ("min_8bit_size=20_000", 20_000), ("amsgrad=False, min_8bit_size = 1e5", 100_000), ("x=1", 4096)],
)
def test_the_plan_reads_the_size_that_the_optimizer_gets(args: str | None, small: int) -> None:
    assert smallest(args) == small


def test_a_quarter_of_the_memory() -> None:
    model = nn.ModuleDict({"e": nn.Embedding(10, 512), "l": nn.Linear(512, 512, bias=False)})
    assert state_bytes(model, list(model.parameters())) == 8 * 5120 + 2 * 512 * 512 + 8 * (512 * 512 // 256)
    assert optimizer_states(model, "adamw_8bit", "min_8bit_size=1000000").bytes == 8 * (5120 + 512 * 512)
    assert optimizer_states(model, "adamw_torch", None).bytes == 8 * (5120 + 512 * 512)


def engagement(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The row of the table, and the facts of the traced step."""
    found = json.loads((folder / "engagement.json").read_text())
    [row] = [one for one in found["rows"] if one["name"] == "eight_bit_optimizer"]
    return row, found["facts"]


@needs
def test_a_run_proves_it_by_its_updates_and_the_type_of_its_states(run_tiny: Any) -> None:
    said = Console(file=io.StringIO(), width=500)
    run = run_tiny(optim="adamw_8bit", optim_args="min_8bit_size=256", max_steps=3, console=said)
    row, facts = engagement(run.folder)
    assert (row["kind"], row["asked_by"], row["state"]) == ("behavioural", "optim: adamw_8bit", "engaged")
    found, due = facts["states_of_8_bits"]
    assert found == due > 0
    assert f"optimizer_update_8bit_blockwise x {found} (update)" in row["evidence"]
    text: str = said.file.getvalue()  # type: ignore[attr-defined]
    assert f"behavioural: `optim: adamw_8bit` keeps the states of {found} of " in text


@needs
def test_another_optimizer_has_none_of_it(run_tiny: Any) -> None:
    """The control."""
    said = Console(file=io.StringIO(), width=500)
    row, facts = engagement(run_tiny(max_steps=3, console=said).folder)
    assert "behavioural:" not in said.file.getvalue()  # type: ignore[attr-defined]
    assert (row["state"], row["expected"], row["asked_by"]) == ("left out", True, "optim: adamw_torch_fused")
    assert "states_of_8_bits" not in facts


@needs
@pytest.mark.parametrize(("lie", "verdict"), [("states", "not engaged"), ("kernel", "partial")])
def test_what_is_no_8_bits_stops_the_run(
    run_tiny: Any, monkeypatch: pytest.MonkeyPatch, lie: str, verdict: str
) -> None:
    """A package that would take 32 bits without a word, or that keeps 8 bits and updates by something else."""
    import bitsandbytes

    if lie == "states":
        real = bitsandbytes.optim.AdamW.get_config
        wide = lambda *given: {**real(*given), "optim_bits": 32}  # noqa: E731
        monkeypatch.setattr(bitsandbytes.optim.AdamW, "get_config", wide)
    else:
        monkeypatch.setattr(bitsandbytes.functional, "optimizer_update_8bit_blockwise", lambda *args, **more: None)
    said = rf"`optim: adamw_8bit`: eight_bit_optimizer was {verdict}.*another `optim`"
    with pytest.raises(TrainingError, match=said):
        run_tiny(optim="adamw_8bit", optim_args="min_8bit_size=256", max_steps=3)


@needs
def test_where_all_weights_are_small_that_is_said_and_the_run_goes_on(run_tiny: Any) -> None:
    """Nothing else: weights then move as by float32 states."""
    said = Console(file=io.StringIO(), width=500)
    row, _ = engagement(run_tiny(optim="adamw_8bit", optim_args="min_8bit_size=1e9", max_steps=3, console=said).folder)
    assert row["state"] == "left out"
    text: str = said.file.getvalue()  # type: ignore[attr-defined]
    assert "fewer than 1,000,000,000 elements" in text
    assert "behavioural:" not in text


@needs
def test_a_traced_step_that_was_left_out_is_no_proof_against_it(run_tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host leaves a step out that is not finite, so that there is no kernel of the update to be seen."""
    real, calls = Update._admit, iter(range(9))
    monkeypatch.setattr(Update, "_admit", lambda one, finite: real(one, finite) & (next(calls) != 1))
    run = run_tiny(optim="adamw_8bit", optim_args="min_8bit_size=256", max_steps=3)
    assert engagement(run.folder)[0]["state"] != "engaged"


@pytest.mark.parametrize("setting", ["auto", "on", "off"])
@pytest.mark.parametrize("optim", ["adamw_8bit", "adamw_torch"])
def test_no_speed_up_s_setting_changes_the_optimizer(optim: str, setting: Any) -> None:
    with pytest.raises(ConfigError, match=rf"eight_bit_optimizer: {setting}}}`.*follows `optim: {optim}`"):
        SFTConfig(optim=optim, speedups={"eight_bit_optimizer": setting})
    assert "eight_bit_optimizer" not in switches()
    SFTConfig(optim=optim, speedups=dict.fromkeys(switches(), "off"))  # a plain path keeps its optimizer


def gpu_step(kernels: int, facts: dict[str, Any]) -> Evidence:
    name = "void kOptimizerStatic8bit2StateBlockwise<float, 0, 256, 1>(float*, float*, unsigned char*)"
    seen = [kernel(name, Phase.UPDATE, "", -1, count=kernels)] if kernels else []
    other = kernel("void kOptimizer32bit2State<float, 0>(float*, float*)", Phase.UPDATE, "", -1)
    return evidence(*seen, other, facts=facts)


@pytest.mark.parametrize(
    ("kernels", "states", "verdict"),
    [
        (5, [5, 5], Verdict.ENGAGED),
        (4, [5, 5], Verdict.PARTIAL),
        (5, [4, 5], Verdict.PARTIAL),
        (0, [0, 5], Verdict.NOT_ENGAGED),
    ],
)
def test_on_a_gpu_it_is_proved_by_its_kernels(kernels: int, states: list[int], verdict: Verdict) -> None:
    one = speedups()["eight_bit_optimizer"]
    nothing: Any = None
    expected = one.expect(nothing, Installation(lambda: None, detail=(5, 8)))
    assert judge(expected, gpu_step(kernels, {"states_of_8_bits": states})).verdict is verdict


def whole_state(p: Tensor) -> dict[str, Any]:
    codes = {f"state{i}": torch.zeros(p.shape, dtype=torch.uint8) for i in (1, 2)}
    scales = {f"absmax{i}": torch.zeros(-(-p.numel() // 256)) for i in (1, 2)}
    return {**codes, **scales, **{f"qmap{i}": torch.zeros(256) for i in (1, 2)}, "step": 1}


@pytest.mark.parametrize(
    "wrong",
    [
        {"absmax1": torch.zeros(15)},  # a kernel that trusted it would read behind its end
        {"qmap2": torch.zeros(255)},
        {"state1": torch.zeros(64, 64)},
        {"state2": torch.zeros(64, 63, dtype=torch.uint8)},
        {"step": 1.0},
        {"more": torch.zeros(1)},
    ],
)
def test_states_of_other_shapes_never_reach_a_kernel(wrong: dict[str, Any]) -> None:
    p = torch.zeros(64, 64)
    _check(p, whole_state(p), True)
    with pytest.raises(ValueError, match="were expected"):
        _check(p, {**whole_state(p), **wrong}, True)

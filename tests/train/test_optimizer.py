"""Promise: optimizers and schedules are transformers', and a step that is not finite never reaches the weights."""

import math

import pytest
import torch
from torch import nn

from dynotune.config.keys.optimizer import OptimizerConfig
from dynotune.errors import ConfigError
from dynotune.train.optimizer import OPTIMIZERS, Update, build_optimizer, build_schedule, parse_args, warmup_steps


def tiny() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 2))


def one_update(model: nn.Module, update: Update, bad: float | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    loss = model(torch.randn(3, 4)).square().mean()
    if bad is not None:
        loss = loss * bad
    loss.backward()
    return update(loss.detach())


@pytest.mark.parametrize("optim", sorted(OPTIMIZERS))
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_step_that_is_not_finite_changes_neither_weights_nor_states(optim: str, bad: float) -> None:
    model = tiny()
    optimizer = build_optimizer(model, OptimizerConfig(optim=optim, learning_rate=0.1, weight_decay=0.1))
    update = Update(model.parameters(), optimizer, 1.0)
    _, finite = one_update(model, update)
    assert bool(finite)
    before = [p.detach().clone() for p in model.parameters()]
    states = {
        (i, k): v.clone() if isinstance(v, torch.Tensor) else v
        for i, state in optimizer.state_dict()["state"].items()
        for k, v in state.items()
    }
    _, finite = one_update(model, update, bad)
    assert not bool(finite)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    for i, state in optimizer.state_dict()["state"].items():
        for k, v in state.items():
            assert torch.equal(v, states[i, k]) if isinstance(v, torch.Tensor) else v == states[i, k]
    one_update(model, update)
    assert not all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))  # and training goes on


OPTIONS = [
    *((optim, None) for optim in sorted(OPTIMIZERS)),
    ("sgd", "momentum=0.9"),
    ("sgd", "momentum=0.9,nesterov=True"),
    ("sgd", "momentum=0.9,dampening=0.3"),
    ("sgd", "momentum=0.9,fused=False"),
    ("adamw_torch", "amsgrad=True"),
    ("adamw_torch", "fused=False"),
    ("adagrad", "fused=True"),
    ("rmsprop", "momentum=0.9,centered=True"),
    ("adafactor", "beta1=0.9"),
]


@pytest.mark.parametrize(("optim", "args"), OPTIONS)
def test_a_first_step_that_is_not_finite_is_as_if_it_had_not_been(
    optim: str, args: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is never filled must be seen even where memory happens to be clean.
    monkeypatch.setattr(torch, "empty_like", lambda like, **_: torch.full(like.shape, 1e9, dtype=like.dtype))
    results = []
    for first in (math.nan, None):
        model = tiny()
        config = OptimizerConfig(optim=optim, optim_args=args, learning_rate=0.1, weight_decay=0.1)
        update = Update(model.parameters(), build_optimizer(model, config), 1.0)
        if first is not None:
            one_update(model, update, first)
        torch.manual_seed(1)
        for _ in range(3):
            assert bool(one_update(model, update)[1])
        results.append([p.detach() for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("args", ["momentum=0.9", "momentum=0.9,nesterov=True", "momentum=0.9,dampening=0.3"])
def test_momentum_is_that_of_plain_sgd(args: str) -> None:
    results = []
    for more in ("", ",fused=False"):
        model = tiny()
        config = OptimizerConfig(optim="sgd", optim_args=args + more, learning_rate=0.1, weight_decay=0.1)
        optimizer = build_optimizer(model, config)
        if more:
            optimizer.state.clear()  # as PyTorch starts
        update = Update(model.parameters(), optimizer, 1.0)
        torch.manual_seed(1)
        for _ in range(4):
            one_update(model, update)
        results.append([p.detach() for p in model.parameters()])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("args", ["foreach=True", "betas=(2.0,0.9)", "momentum=0.9,dampening=0.3,fused=True"])
def test_arguments_that_pytorch_refuses_are_named(args: str) -> None:
    with pytest.raises(ConfigError, match="optim_args"):
        build_optimizer(tiny(), OptimizerConfig(optim="sgd" if "momentum" in args else "adamw_torch", optim_args=args))


def test_truth_is_spelled_as_transformers_spells_it() -> None:
    assert parse_args("nesterov=true, centered=False,foreach=yes") == {
        "nesterov": True,
        "centered": False,
        "foreach": True,
    }


def test_a_schedule_that_fails_behind_its_warm_up_fails_before_the_first_step() -> None:
    optimizer = build_optimizer(tiny(), OptimizerConfig())
    config = OptimizerConfig(lr_scheduler_type="polynomial", warmup_steps=3)
    with pytest.raises(ConfigError, match=r"polynomial.*`warmup_steps` takes 3 of 3 steps"):
        build_schedule(optimizer, config, 3)
    build_schedule(optimizer, config, 4)
    with pytest.raises(ConfigError, match="lr_scheduler_kwargs"):
        build_schedule(
            optimizer, OptimizerConfig(lr_scheduler_type="cosine", lr_scheduler_kwargs={"num_cycles": "x"}), 4
        )


def test_fused_optimizers_need_no_look_at_the_device() -> None:
    for optim, waits in (("adamw_torch", False), ("adamw_torch_fused", False), ("sgd", False), ("adagrad", True)):
        model = tiny()
        optimizer = build_optimizer(model, OptimizerConfig(optim=optim))
        assert Update(model.parameters(), optimizer, 1.0).waits_for_device == waits


def test_clipping_is_pytorchs_and_zero_does_not_clip() -> None:
    for limit in (0.0, 1e-3):
        model = tiny()
        optimizer = build_optimizer(model, OptimizerConfig(optim="sgd", learning_rate=1.0))
        loss = model(torch.ones(3, 4)).square().sum()
        loss.backward()
        gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        norm = torch.cat([g.flatten() for g in gradients]).norm()
        scale = 1.0 if not limit else min(1.0, limit / (float(norm) + 1e-6))
        expected = [p.detach() - scale * g for p, g in zip(model.parameters(), gradients, strict=True)]
        reported, _ = Update(model.parameters(), optimizer, limit)(loss.detach())
        torch.testing.assert_close(reported, norm)
        for got, want in zip(model.parameters(), expected, strict=True):
            torch.testing.assert_close(got.detach(), want)


def test_weight_decay_spares_what_transformers_spares() -> None:
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer

    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=32,
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            attention_bias=True,
        )
    )
    theirs = set(Trainer.get_decay_parameter_names(None, model))  # type: ignore[arg-type]
    optimizer = build_optimizer(model, OptimizerConfig(weight_decay=0.1))
    decayed = {id(p) for group in optimizer.param_groups if group["weight_decay"] for p in group["params"]}
    assert {name for name, p in model.named_parameters() if id(p) in decayed} == theirs
    assert 0 < len(theirs) < len(list(model.parameters()))


def test_an_unknown_optimizer_or_schedule_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"optim: lion_8bit.*adamw_torch_fused"):
        build_optimizer(tiny(), OptimizerConfig(optim="lion_8bit"))
    optimizer = build_optimizer(tiny(), OptimizerConfig())
    with pytest.raises(ConfigError, match=r"lr_scheduler_type: cosinus.*cosine"):
        build_schedule(optimizer, OptimizerConfig(lr_scheduler_type="cosinus"), 10)
    with pytest.raises(ConfigError, match="optim_args"):
        build_optimizer(tiny(), OptimizerConfig(optim_args="betas=__import__('os')"))
    with pytest.raises(ConfigError, match="optim_args"):
        build_optimizer(tiny(), OptimizerConfig(optim_args="no_such_argument=1"))


@pytest.mark.parametrize("kind", ["linear", "cosine", "constant", "constant_with_warmup", "inverse_sqrt", "polynomial"])
def test_schedules_follow_transformers(kind: str) -> None:
    from transformers import get_scheduler

    config = OptimizerConfig(lr_scheduler_type=kind, learning_rate=0.3, warmup_steps=0.2)
    assert warmup_steps(config, 17) == 4  # 3.4 rounded up
    rates = []
    for build in (build_schedule, None):
        optimizer = build_optimizer(tiny(), config)
        schedule = build(optimizer, config, 17) if build else get_scheduler(kind, optimizer, 4, 17)
        mine = []
        for _ in range(17):
            mine.append(schedule.get_last_lr()[0])
            optimizer.step()
            schedule.step()
        rates.append(mine)
    assert rates[0] == rates[1]

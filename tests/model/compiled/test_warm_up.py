"""Promise: before the first step every token count is compiled once, and both ways are measured; nothing stays behind."""

from typing import Any

import pytest
import torch

from dynotune.model.attention.install import installed_in
from dynotune.model.compiled import Regions, compile_layers
from dynotune.model.compiled import warm_up as module
from dynotune.model.compiled.warm_up import TIMED, dummy_run, warm_up
from tests.model.compiled.steps import batch_of, compiled, families_of, gradients, model_of


def regions_of_nothing() -> Regions:
    return compile_layers({})


def test_the_largest_first_and_the_compared_one_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    regions = regions_of_nothing()
    calls: list[tuple[int, bool]] = []
    now = 100.0

    def run(tokens: int) -> None:
        nonlocal now
        calls.append((tokens, regions.paused))
        now += 2.0 if regions.paused else 1.0

    monkeypatch.setattr(module, "perf_counter", lambda: now)

    warm_up(regions, run, [64, 256, 128, 64], compare=128)
    eager, made, timed = calls[: 1 + TIMED], calls[1 + TIMED : -TIMED], calls[-TIMED:]
    assert eager == [(128, True)] * (1 + TIMED)
    assert made == [(256, False), (128, False), (64, False)]
    assert timed == [(128, False)] * TIMED
    assert regions.comparison is not None
    assert (regions.comparison.other_seconds, regions.comparison.compiled_seconds) == (2.0, 1.0)


def test_a_count_that_does_not_fit_is_left_to_the_step_that_needs_it() -> None:
    regions = regions_of_nothing()

    def run(tokens: int) -> None:
        raise torch.OutOfMemoryError("no room")

    assert warm_up(regions, run, [64, 128], compare=128) == [128, 64]
    assert regions.comparison is None


def test_where_one_count_or_the_comparison_does_not_fit_the_others_are_compiled() -> None:
    regions = regions_of_nothing()
    made: list[int] = []

    def run(tokens: int) -> None:
        if regions.paused or tokens == 256:
            raise torch.OutOfMemoryError("no room")
        made.append(tokens)

    assert warm_up(regions, run, [64, 256, 128], compare=128) == [256]
    assert made == [128, 64]
    assert regions.comparison is None


def test_other_errors_are_raised() -> None:
    def run(tokens: int) -> None:
        raise ValueError("the model is wrong")

    with pytest.raises(ValueError, match="the model is wrong"):
        warm_up(regions_of_nothing(), run, [64])


@pytest.mark.parametrize("shared", [False, True], ids=["", "shared"])
def test_what_is_compiled_serves_training_and_nothing_stays_behind(shared: bool) -> None:
    model: Any = model_of("llama", adapter=True, dropout=0.5).eval()
    with compiled(model, "eager") as regions:
        packed = installed_in(model)
        assert packed is not None
        state = torch.get_rng_state()
        run = dummy_run(model, 50, lambda: torch.autocast("cpu", enabled=False), packed.engaged, shared)
        warm_up(regions, run, [64], compare=64)
        assert torch.equal(torch.get_rng_state(), state)
        assert all(p.grad is None for p in model.parameters())
        assert not model.training
        graphs = regions.report().graphs
        assert regions.comparison is not None
        model.train()
        run(64)
        gradients(model, families_of([30, 20], 64) if shared else batch_of([30, 20], 64))
        assert regions.report().graphs == graphs
        gradients(model, batch_of([30, 20], 64) if shared else families_of([30, 20], 64))
        assert regions.report().graphs > graphs  # the other layout is another graph


def test_a_model_that_trains_its_head_alone_is_run_forward() -> None:
    model: Any = model_of("llama", adapter=False, dropout=0.0)
    for name, p in model.named_parameters():
        p.requires_grad_("lm_head" in name)
    with compiled(model, "eager"):
        packed = installed_in(model)
        assert packed is not None
        dummy_run(model, 50, lambda: torch.autocast("cpu", enabled=False), packed.engaged)(64)
    assert all(p.grad is None for p in model.parameters())

"""Promise: what fits is tried out on the largest micro-batch, leaves no trace and is remembered; ranks take the least."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
import torch

from dynotune import SFTConfig
from dynotune.command_line import SHOW_MEMORY
from dynotune.errors import TrainingError
from dynotune.estimate.capacity import SPARED
from dynotune.estimate.fastest import Setting
from dynotune.execution.packed import PackedPath
from dynotune.model.activations.policy import policy_of
from dynotune.model.precision import Precision
from dynotune.objectives.sft import SFTObjective
from dynotune.parallel.ranks import Ranks
from dynotune.plan.plan import Plan
from dynotune.speedups.choose import decide
from dynotune.speedups.contract import Context
from dynotune.speedups.installed import Installed
from dynotune.speedups.registry import speedups
from dynotune.speedups.remembered import Remembered
from dynotune.speedups.site import Site
from dynotune.train.start.dry_run import DryRun
from dynotune.train.start.memory_choice import MemoryChoice, choose_memory
from tests.model.activations.passes import CPU, differ, model_of, pass_of, state_of
from tests.plan.test_plan import spans_of

FULL = Precision(torch.float32, False)
LENGTHS = [40 + 7 * (i % 9) for i in range(64)]


class FakeGauge:
    """A device on which what is kept takes a fixed number of bytes a token: `a_token[policy]`; `most` is what it has."""

    def __init__(self, model: Any, most: int, a_token: dict[str, int]) -> None:
        self.model, self.most, self.a_token = model, most, a_token
        self.runs: list[Setting] = []
        self.tokens = 0

    def begin(self) -> None:
        self.tokens = 0

    def end(self) -> tuple[int, int]:
        policy = policy_of(self.model)
        self.runs.append(Setting(policy, self.tokens))
        needed = self.tokens * self.a_token[policy]
        return needed, needed + 1


class Bench:
    """A tiny packed run up to where memory is chosen."""

    def __init__(self, stack: ExitStack, monkeypatch: pytest.MonkeyPatch, **keys: Any) -> None:
        self.model = model_of("llama", keys.pop("lora", False), keys.pop("dropout", 0.0))
        self.config = SFTConfig(packed_execution="on", global_batch_size=16, **keys)
        context = Context(self.config, self.model, CPU, torch.float32, FULL, longest=max(LENGTHS))
        self.site = Site(context, lambda: torch.autocast("cpu", enabled=False))
        self.installed = Installed(decide(self.config, context, speedups()), self.site)
        stack.callback(self.installed.close)
        self.path = PackedPath(self.site, SFTObjective(self.config))
        stack.callback(self.path.close)
        self.plan = Plan(spans_of(LENGTHS), np.arange(len(LENGTHS)), self.config, 0)
        self.notebook = Remembered.nothing()
        self.monkeypatch = monkeypatch

    def choose(
        self, free: int, a_token: dict[str, int], *, same_process: bool = False, **more: Any
    ) -> tuple[MemoryChoice, FakeGauge]:
        if not same_process:
            self.site.examined.clear()
        gauge = FakeGauge(self.model, free, a_token)
        own = PackedPath.loss

        def loss(path: PackedPath, batch: Any) -> Any:
            gauge.tokens = len(batch.ids_T)
            if gauge.tokens * a_token[policy_of(self.model)] > free:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
            return own(path, batch)

        self.monkeypatch.setattr(PackedPath, "loss", loss)

        class Estimate:
            def under(self, policy: str) -> Any:
                one = Estimate()
                one.policy = policy
                return one

            def needed(self, tokens: int) -> int:
                return 20_000 * tokens if self.policy == "none" else 5_000 * tokens

        settings: dict[str, Any] = {"ranks": Ranks(), "notebook": self.notebook, **more}
        found = choose_memory(
            self.config, self.plan, self.path, self.installed, longest=max(LENGTHS), gauge=gauge,
            look=lambda: (Estimate(), free), **settings,  # type: ignore[arg-type, return-value]
        )  # fmt: skip
        return found, gauge


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with ExitStack() as stack:
        yield lambda **keys: Bench(stack, monkeypatch, **keys)


ROOMY = {"none": 20_000, "selective": 14_000, "full": 5_000}


def test_plenty_of_memory_keeps_everything_in_one_trial(bench: Any) -> None:
    one = bench()
    found, gauge = one.choose(10**9, ROOMY)
    assert found.policy == policy_of(one.model) == "none"
    step = max(sum(LENGTHS[i] for i in one.plan.step(n).rows) for n in range(1, 5))
    assert found.capacity.tokens >= step  # more no step has
    assert len(gauge.runs) == 1
    assert "tried out in" in found.capacity.why
    assert not found.says


def test_little_memory_makes_smaller_micro_batches_then_computes_again(bench: Any) -> None:
    least = 96  # the rung of the longest document
    found, _ = bench().choose(int(20_000 * 640 / (1 - SPARED)) + 1, ROOMY)
    assert (found.policy, found.capacity.tokens >= 512) == ("none", True) or found.policy == "selective"
    tight = bench()
    found, gauge = tight.choose(int(6_000 * least / (1 - SPARED)), ROOMY)
    assert found.policy == policy_of(tight.model) == "full"
    assert found.capacity.tokens >= least
    assert tight.installed.get("activation_full") is not None
    assert gauge.runs[-1].policy == "full"


def test_a_policy_that_was_passed_over_for_another_speed_up_is_said(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = bench()
    beside = next(iter(one.installed)).name
    monkeypatch.setattr(type(speedups()["activation_selective"]), "conflicts", (beside,))
    found, gauge = one.choose(int(14_000 * 128 / (1 - SPARED)) + 1, ROOMY)
    assert found.policy == "full"
    assert {run.policy for run in gauge.runs} <= {"none", "full"}
    assert found.says == [f"activation memory: selective is left out: it cannot be beside {beside}"]


def test_what_gives_way_is_taken_out_for_a_policy_that_fits(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    one = bench()
    beside = next(other for other in one.installed if other.setting == "auto")
    monkeypatch.setattr(type(speedups()["activation_selective"]), "conflicts", (beside.name,))
    monkeypatch.setattr(type(beside.speedup), "gives_way", True)
    found, _ = one.choose(int(6_000 * 1152 / (1 - SPARED)) + 1, {**ROOMY, "selective": 6_000})
    assert found.policy == policy_of(one.model) == "selective"
    assert one.installed.get(beside.name) is None
    assert beside.no is not None
    assert beside.no.reason == "activation_selective runs in its place, because memory is short"


def test_a_policy_that_is_not_needed_or_was_tried_is_not_said_to_be_passed_over(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control."""
    one = bench()
    beside = next(iter(one.installed)).name
    assert one.choose(int(14_000 * 128 / (1 - SPARED)) + 1, ROOMY)[0].says == []
    monkeypatch.undo()
    monkeypatch.setattr(type(speedups()["activation_selective"]), "conflicts", (beside,))
    assert bench().choose(10**9, ROOMY)[0].says == []


def test_nothing_fits_is_said_and_the_least_is_taken(bench: Any) -> None:
    one = bench()
    found, _ = one.choose(1000, ROOMY)
    assert found.policy == policy_of(one.model) == "full"
    assert "max_length" in found.capacity.why
    assert one.notebook.check("activation_memory", "") is None


def test_where_nothing_fits_policies_that_are_off_are_said(bench: Any) -> None:
    off = {"activation_selective": "off", "activation_full": "off"}
    assert bench(speedups=off).choose(10**9, ROOMY)[0].says == [], "the control"
    one = bench(speedups=off)
    found, gauge = one.choose(1000, ROOMY)
    assert found.policy == policy_of(one.model) == "none"
    assert {run.policy for run in gauge.runs} == {"none"}
    assert found.says[:2] == [
        f"activation memory: {name.removeprefix('activation_')} is left out: `speedups: {{{name}: off}}` says so"
        for name in off
    ]


def test_what_was_found_is_remembered_and_said_with_its_date(bench: Any) -> None:
    one = bench()
    first, gauge = one.choose(10**9, ROOMY)
    again, silent = one.choose(10**9, ROOMY)
    assert gauge.runs
    assert not silent.runs
    assert again.capacity.tokens == first.capacity.tokens
    assert "measured here on 20" in again.capacity.why
    less, retried = one.choose(int(20_000 * 640 / (1 - SPARED)), ROOMY)  # somebody else takes memory now
    assert retried.runs
    assert less.capacity.tokens < first.capacity.tokens
    other = bench(optim="sgd")
    other.notebook = one.notebook
    assert other.choose(10**9, ROOMY)[1].runs  # another configuration is no news of this one


def test_an_arm_that_stands_again_in_its_process_is_the_same_arm(bench: Any) -> None:
    """Also where others have taken memory meanwhile. Control: another process looks for itself."""
    one = bench()
    first, _ = one.choose(10**9, ROOMY)
    less = int(20_000 * 640 / (1 - SPARED))
    again, silent = one.choose(less, ROOMY, same_process=True)
    assert again.capacity == first.capacity
    assert not silent.runs
    assert one.choose(less, ROOMY)[0].capacity.tokens < first.capacity.tokens


def test_what_was_found_for_steps_of_one_micro_batch_is_no_news_of_steps_of_several(bench: Any) -> None:
    """Gradients of the first stand beside the activations of the second."""
    several = bench(micro_batch_tokens=256)
    assert several.choose(10**9, ROOMY)[1].runs
    assert not several.choose(10**9, ROOMY)[1].runs
    one = bench(micro_batch_tokens=256)
    one.notebook = several.notebook
    one.plan = Plan(spans_of(LENGTHS), np.arange(len(LENGTHS)), SFTConfig(global_batch_size=2), 0)
    assert one.choose(10**9, ROOMY)[1].runs


def test_a_policy_that_cannot_be_put_in_any_more_stops_the_run(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    one = bench()
    monkeypatch.setattr(one.installed, "put_in", lambda decision: False)
    with pytest.raises(TrainingError, match="activation_full could be put into the model when memory was tried out"):
        one.choose(int(6_000 * 128 / (1 - SPARED)), ROOMY)


def test_no_trace_is_left(bench: Any) -> None:
    one = bench(lora=True, dropout=0.2)
    right, before, random = pass_of_packed(one), state_of(one.model), torch.get_rng_state()
    one.model.eval()
    one.choose(int(20_000 * 320 / (1 - SPARED)), {**ROOMY, "none": 30_000})
    assert not one.model.training
    one.model.train()
    if (put := one.installed.get("activation_full")) is not None:
        put.installed.uninstall()
    assert state_of(one.model) == before
    assert torch.equal(torch.get_rng_state(), random)
    assert all(p.grad is None for p in one.model.parameters())
    assert differ(pass_of_packed(one), right) == []


def pass_of_packed(one: Any) -> dict[str, torch.Tensor]:
    one.path.close()
    found = pass_of(one.model)
    one.model.zero_grad(set_to_none=True)
    one.path = PackedPath(one.site, SFTObjective(one.config))
    return found


def test_what_is_asked_is_not_tried_out(bench: Any) -> None:
    one = bench(micro_batch_tokens=256, gradient_checkpointing=True)
    found, gauge = one.choose(10**9, ROOMY)
    assert (found.policy, found.capacity.tokens, gauge.runs) == ("full", 256, [])
    policy, gauge = bench(activation_memory="selective").choose(10**9, ROOMY)
    assert {run.policy for run in gauge.runs} == {"selective"}
    assert policy.policy == "selective"
    tokens, gauge = bench(micro_batch_tokens=256).choose(10**9, ROOMY)
    assert {run.tokens for run in gauge.runs} <= {256}
    assert tokens.capacity.tokens == 256


def test_all_ranks_take_what_the_fullest_holds(bench: Any) -> None:
    class Two(Ranks):
        def gather(self, mine: Any) -> list[Any]:
            return [mine, ("full", 192)]

    one = bench()
    found, _ = one.choose(10**9, ROOMY, ranks=Two())
    assert (found.policy, found.capacity.tokens) == ("full", 192)
    assert policy_of(one.model) == "full"
    assert "fullest" in found.capacity.why


def test_without_a_gpu_the_default_stays(bench: Any) -> None:
    one = bench()
    found = choose_memory(
        one.config, one.plan, one.path, one.installed, longest=50, ranks=Ranks(), notebook=one.notebook,
        look=lambda: pytest.fail("nothing is looked at"),
    )  # fmt: skip
    assert (found.capacity.tokens, found.policy) == (2048, "none")


def test_what_there_was_to_choose_from_is_shown(bench: Any) -> None:
    token = SHOW_MEMORY.set(True)
    try:
        found, _ = bench().choose(10**9, ROOMY)
    finally:
        SHOW_MEMORY.reset(token)
    text = "\n".join(found.says)
    assert text.count("<- chosen") == 1
    assert "measured" in text
    assert "estimated" in text
    for policy in ("none", "selective", "full"):
        assert policy in text
    assert all(point.tokens_per_second for point in found.curve)


def test_an_error_that_is_no_shortage_is_no_answer(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    one = bench()
    gauge = FakeGauge(one.model, 10**9, ROOMY)
    run = DryRun(one.installed, one.path, one.plan, 50, 0, lambda tokens: True, gauge)

    def broken(path: PackedPath, batch: Any) -> Any:
        raise RuntimeError("a defect")

    monkeypatch.setattr(PackedPath, "loss", broken)
    with pytest.raises(RuntimeError, match="a defect"):
        run(Setting("full", 128))
    assert policy_of(one.model) == "none"


def test_states_of_the_optimizer_are_added(bench: Any) -> None:
    one = bench()
    run = DryRun(one.installed, one.path, one.plan, 50, 12_345, lambda tokens: False, FakeGauge(one.model, 0, ROOMY))
    found = run(Setting("none", 128))
    assert found is not None
    assert found.bytes == 12_345  # the fake one measures nothing here
    assert found.reserved == 12_346


def test_what_was_chosen_beside_somebody_else_is_tried_again_once_they_are_gone(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    short, roomy, takes = int(6_000 * 640 / (1 - SPARED)), 10**9, {**ROOMY, "full": 3_000}
    one = bench()
    found, _ = one.choose(short, takes)
    assert found.policy == "full"
    monkeypatch.undo()

    def next_run(free: int) -> tuple[MemoryChoice, FakeGauge]:
        another = bench()
        another.notebook = one.notebook
        try:
            return another.choose(free, takes)
        finally:
            monkeypatch.undo()

    again, gauge = next_run(int(1.01 * short))
    assert (again.policy, gauge.runs) == ("full", []), "as much as then is free, but for a context or two"
    after, gauge = next_run(roomy)
    assert after.policy == "none"
    assert gauge.runs
    kept, gauge = next_run(roomy)
    assert (kept.policy, gauge.runs) == ("none", []), "tried out once, not in every run"

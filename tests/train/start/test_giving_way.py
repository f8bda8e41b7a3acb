"""Promise: what gives way to a policy of activation memory is out of the model when that policy is counted and tried out, as
it is in a run that takes it; and what kernels leave to modules in such trials is not told as training's."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from dynotune import SFTConfig
from dynotune.estimate.memory import StepMemory
from dynotune.execution.packed import PackedPath
from dynotune.measure.memory import saved_bytes
from dynotune.model.activations.cheap import remake_cheap
from dynotune.model.activations.policy import policy_of
from dynotune.model.attention.decoder import hidden_states, text_decoder
from dynotune.model.elementwise import usable
from dynotune.model.packed import pack
from dynotune.model.precision import Precision
from dynotune.objectives.sft import SFTObjective
from dynotune.parallel.ranks import Ranks
from dynotune.plan.plan import Plan
from dynotune.speedups.choose import decide
from dynotune.speedups.contract import Context, No
from dynotune.speedups.installed import Installed
from dynotune.speedups.registry import speedups
from dynotune.speedups.remembered import Remembered
from dynotune.speedups.site import Site
from dynotune.train.start import execution
from dynotune.train.start.dry_run import policy_in_place
from dynotune.train.start.execution import look_at_memory, uncounted
from dynotune.train.start.memory_choice import choose_memory
from tests.model.activations.passes import CPU
from tests.model.elementwise.stand_ins import stand_ins
from tests.model.lora.adapted import adapted_model
from tests.plan.test_plan import spans_of
from tests.speedups.test_lora_in_activation import GatedLora

NAME, SELECTIVE = "lora_in_activation", "activation_selective"
TOKENS = 128
FULL = Precision(torch.float32, False)


class Packed:
    """A tiny packed run under LoRA with the speed-up in it, by stand-ins for its kernels."""

    def __init__(self, stack: ExitStack, **keys: Any) -> None:
        self.model: Any = adapted_model("qwen2")
        self.config = SFTConfig(use_peft=True, lora_dropout=0.0, packed_execution="on", global_batch_size=16, **keys)
        context = Context(self.config, self.model, CPU, torch.float32, FULL, longest=60)
        self.site = Site(context, lambda: torch.autocast("cpu", enabled=False))
        self.installed = Installed(decide(self.config, context, speedups()), self.site)
        stack.callback(self.installed.close)
        asides = {one.name: one.installed.aside for one in self.installed if one.installed and one.installed.aside}
        self.path = PackedPath(self.site, SFTObjective(self.config), asides)
        stack.callback(self.path.close)

    def batch(self) -> Any:
        ids = np.arange(5, 5 + TOKENS - 8, dtype=np.int32)
        host = self.path.host_batch([(ids, ids)], TOKENS, pin=False)
        return host.unpack(host.buffer)

    def train(self) -> None:
        """Forward and backward of a micro-batch."""
        with self.path.engaged():
            loss, _ = self.path.loss(self.batch())
        loss.backward()
        self.model.zero_grad(set_to_none=True)

    def look(self) -> StepMemory:
        return look_at_memory(self.config, FULL, self.installed, self.path)[0]

    def standing(self) -> bool:
        """Whether the adapters' parts are added in the activation at this moment."""
        fused = [module.__dict__["forward"] for name, module in self.model.named_modules() if name.endswith(".mlp")]
        return any(one.adapters is not None for one in fused)

    def kept(self, tokens: int) -> int:
        """Bytes that the decoder's forward pass keeps now."""
        ids = np.ones(tokens, np.int32)
        with self.path.engaged():
            return saved_bytes(self.model, lambda: hidden_states(self.model, pack([(ids, ids)], tokens, CPU)))


@pytest.fixture
def packed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(usable, "kernels", stand_ins)
    kernel = SimpleNamespace(GatedLora=SimpleNamespace(apply=GatedLora.apply), FAILURES=())
    monkeypatch.setitem(sys.modules, "dynotune.model.elementwise.triton_gate_lora", kernel)
    with ExitStack() as stack:
        yield lambda **keys: Packed(stack, **keys)


def test_it_is_out_where_the_policy_is_tried_and_back_behind_it(packed: Any) -> None:
    """The controls: it stays beside policies that it can be beside, and where it was asked for by name."""
    run = packed()
    assert run.standing()
    with policy_in_place(run.installed, "selective") as there:
        assert there
        assert not run.standing()
        run.train()
    assert run.standing()
    with policy_in_place(run.installed, "full") as there:
        assert there
        assert run.standing()
    asked = packed(speedups={NAME: "on"})
    assert asked.installed.giving_way(speedups()[SELECTIVE]) == []
    run.train()


def test_the_policy_is_counted_as_it_is_in_a_run_that_takes_it(packed: Any) -> None:
    """The control: counted beside what gives way to it, it would keep less than it does, by results that nobody keeps."""
    run = packed()
    memory = run.look()
    assert [*memory.instead] == ["selective"]
    assert run.standing(), "looking leaves it where it was"
    selective, beside = memory.under("selective").per_token, memory.counted.under("selective")
    one = run.installed.get(NAME)
    run.installed.remove(one, No("something else runs in its place"))
    alone = run.look()
    assert not alone.instead
    assert selective.kept == alone.under("selective").per_token.kept
    assert memory.counted.kept < alone.counted.kept, "beside it results of the activation are not kept"
    result = run.model.config.intermediate_size * 4
    assert alone.counted.kept - memory.counted.kept >= 2 * result
    assert beside.kept <= selective.kept - 2 * result
    assert memory.counted.working == alone.counted.working + result
    assert memory.under("full").per_token.working == memory.counted.working


class Gauge:
    """Where only the policy that makes results again fits."""

    def __init__(self, run: Packed) -> None:
        self.run = run
        self.tried: list[tuple[str, bool]] = []

    def begin(self) -> None: ...

    def end(self) -> tuple[int, int]:
        policy = policy_of(self.run.model)
        self.tried.append((policy, self.run.standing()))
        needed = 100 if policy == "selective" else 10**12
        return needed, needed


def chosen(run: Packed) -> Gauge:
    lengths = [40 + 7 * (i % 3) for i in range(64)]
    plan, gauge = Plan(spans_of(lengths), np.arange(len(lengths)), run.config, 0), Gauge(run)

    class Guess:
        """By which everything fits."""

        def under(self, policy: str) -> Any:
            return self

        def needed(self, tokens: int) -> int:
            return tokens

    look: Any = lambda: (Guess(), 10**6)  # noqa: E731
    found = choose_memory(
        run.config, plan, run.path, run.installed, longest=max(lengths), look=look,
        ranks=Ranks(), notebook=Remembered.nothing(), gauge=gauge,
    )  # fmt: skip
    assert found.policy == "selective"
    return gauge


def test_a_run_short_of_memory_tries_the_policy_without_what_gives_way(packed: Any) -> None:
    run = packed()
    gauge = chosen(run)
    assert ("selective", False) in gauge.tried
    assert ("none", True) in gauge.tried, "the control: it stood while everything was kept"
    assert run.installed.get(NAME) is None
    assert not run.standing()


@pytest.mark.parametrize("counted", [False, True], ids=["as it is", "control: counted"])
def test_a_whole_run_does_not_tell_its_trials_as_training(
    run_tiny: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, counted: bool
) -> None:
    def tried(config: Any, plan: Any, path: PackedPath, installed: Installed, **more: Any) -> Any:
        with path.engaged():
            path.asides["fused_lora"].because("it was tried out")
        return choose_memory(config, plan, path, installed, **more)

    monkeypatch.setattr(execution, "choose_memory", tried)
    if counted:
        monkeypatch.setattr(execution, "uncounted", lambda path: nullcontext())
    console = Console(record=True, width=400, file=(tmp_path / "out").open("w"))
    settings = {"use_peft": True, "lora_target_modules": "all-linear", "lora_r": 4, "lora_dropout": 0.0}
    run_tiny(packed_execution="on", max_steps=1, console=console, **settings)
    assert ("fused_lora: 1 calls in training" in console.export_text()) is counted


def test_what_steps_aside_in_trials_is_uncounted_and_in_training_said(packed: Any) -> None:
    """The control trains with results that are really made again, which is said with its reason."""
    run = packed()
    made = remake_cheap(run.model, text_decoder(run.model), torch.float32)
    with uncounted(run.path):
        run.train()
        run.look()
    assert run.path.notes() == []
    run.train()
    made.uninstall()  # type: ignore[union-attr]
    (note,) = run.path.notes()
    assert note.startswith(f"note: {NAME}: 2 calls in training and evaluation stepped aside")
    assert note.endswith("because its result is made again in the backward pass")

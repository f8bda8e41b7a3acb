"""Promise: with adapters in the gated activation `dynotune plan` counts what training counts, and where training would not
put them in there it says so."""

import io
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor
from transformers import Qwen2Config

from dynotune import ConfigError, SFTConfig
from dynotune.estimate import memory as estimate
from dynotune.estimate.command import plan_run
from dynotune.estimate.memory import StepMemory, Target, live_memory, step_memory
from dynotune.measure.memory import WORKING_COPIES_OF_KERNELS, PerToken
from dynotune.model.adapter import add_adapter, lora_config
from dynotune.model.base import base_of
from dynotune.model.elementwise import gate, gate_lora, norm, usable
from dynotune.model.precision import Precision
from dynotune.speedups.activation import POLICIES
from dynotune.speedups.choose import decide
from dynotune.speedups.contract import Context
from dynotune.speedups.installed import Installed
from dynotune.speedups.registry import speedups
from dynotune.speedups.site import Site
from tests.model.elementwise.stand_ins import added_and_normed, rotate, stand_ins
from tests.tiny import chats, tiny_model, tiny_tokenizer

NAME = "lora_in_activation"
CPU, GPU = torch.device("cpu"), Target("cuda", "a GPU", None)
FULL, HALF = Precision(torch.float32, False), Precision(torch.bfloat16, True)
LAYERS, WIDE = 4, 160
RESULT = WIDE * 4
"""Bytes a token of what goes into a layer's `down_proj`, in float32."""


def config_of(folder: Path, **keys: Any) -> SFTConfig:
    settings: dict[str, Any] = {
        "model_name_or_path": str(folder), "use_peft": True, "lora_r": 4, "lora_target_modules": "all-linear",
        "lora_dropout": 0.0, "packed_execution": "on", "bf16": False, "dtype": "float32", **keys,
    }  # fmt: skip
    return SFTConfig(**settings)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model = tiny_model("qwen2", num_hidden_layers=LAYERS, intermediate_size=WIDE)
    model.save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    return tmp_path


class Keeping(torch.autograd.Function):
    """Computes what `make` does, and keeps for autograd to count what `keep` says."""

    @staticmethod
    def forward(ctx: Any, make: Any, keep: Any, *inputs: Any) -> Any:
        ctx.save_for_backward(*keep(*inputs))
        ctx.make, ctx.inputs = make, inputs  # what a backward pass needs here, which is not counted
        return make(*inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        inputs = [one.detach().requires_grad_() if isinstance(one, Tensor) else one for one in ctx.inputs]
        leaves = [one for one, needed in zip(inputs, ctx.needs_input_grad[2:], strict=True) if needed]
        with torch.enable_grad():
            out = ctx.make(*inputs)
        found = iter(torch.autograd.grad(out, leaves, grads))
        return None, None, *(next(found) if needed else None for needed in ctx.needs_input_grad[2:])


def keeping(make: Callable[..., Any], keep: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *inputs: Keeping.apply(make, keep, *inputs)  # type: ignore[no-untyped-call]


def as_kernels() -> Any:
    """Stand-ins that keep what the kernels keep, by their docstrings."""
    return stand_ins(
        rms_norm=keeping(
            norm.reference, lambda x, weight, *_: (x, weight, x.new_empty(x.shape[:-1], dtype=torch.float32))
        ),
        sum_rms_norm=keeping(
            added_and_normed,
            lambda a, b, weight, *_: (a + b, weight, a.new_empty(a.shape[:-1], dtype=torch.float32)),
        ),
        gated=keeping(lambda gates, ups, tanh: gate.reference(tanh, gates, ups), lambda gates, ups, _: (gates, ups)),
        rotary=keeping(rotate, lambda query, key, cos, sin: (cos, sin)),
    )


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """What training counts of a model that is loaded, with kernels in it, and which speed-ups stand there."""
    monkeypatch.setattr(usable, "kernels", as_kernels)
    kernel = SimpleNamespace(GatedLora=SimpleNamespace(apply=gate_lora.reference), FAILURES=())
    monkeypatch.setitem(sys.modules, "dynotune.model.elementwise.triton_gate_lora", kernel)
    # Those of a GPU, which this is played to be.
    monkeypatch.setattr(estimate, "WORKING_COPIES", WORKING_COPIES_OF_KERNELS)
    with ExitStack() as stack:

        def count(config: SFTConfig, precision: Precision = FULL) -> tuple[StepMemory, Installed]:
            compute = torch.bfloat16 if precision.compute_bf16 else torch.float32
            made: Any = tiny_model("qwen2", num_hidden_layers=LAYERS, intermediate_size=WIDE)
            made.to(compute)
            model: Any = add_adapter(made, lora_config(config, made, [])).train()
            context = Context(config, model, CPU, compute, precision, longest=60)
            site = Site(context, lambda: torch.autocast("cpu", compute, enabled=precision.compute_bf16))
            installed = Installed(decide(config, context, speedups()), site)
            stack.callback(installed.close)

            def run(tokens: int) -> Any:
                decoder = base_of(model).get_decoder()
                with site.autocast():
                    return decoder(input_ids=torch.ones(1, tokens, dtype=torch.int64), use_cache=False)

            return live_memory(model, config, precision, run, installed)[0], installed

        yield count


def numbers(counted: PerToken) -> PerToken:
    return replace(counted, how="")


OFF: dict[str, Any] = {"speedups": {NAME: "off"}}


@pytest.mark.parametrize(
    ("keys", "stands"),
    [
        ({}, True),
        ({"speedups": {NAME: "on"}}, True),
        (OFF, False),
        ({"speedups": {"gated_activation_kernel": "auto", "fused_lora": "auto"}, "lora_r": 256}, False),
        ({"lora_target_modules": ["q_proj", "v_proj", "gate_proj", "up_proj"]}, False),
        ({"activation_memory": "selective"}, False),
    ],
    ids=str,
)
def test_a_plan_counts_what_training_counts(folder: Path, trained: Any, keys: dict[str, Any], stands: bool) -> None:
    config = config_of(folder, **keys)
    live, installed = trained(config)
    planned = step_memory(config, GPU)
    assert (installed.get(NAME) is not None) is stands, "what training does"
    assert numbers(planned.counted) == numbers(live.counted)
    assert [*planned.instead] == [*live.instead] == (["selective"] if stands and "speedups" not in keys else [])
    for policy in POLICIES:
        assert numbers(planned.under(policy).per_token) == numbers(live.under(policy).per_token)
    assert planned.planned is not None
    [row] = [row for row in planned.planned.rows() if row.name == NAME]
    assert (row.state == "chosen") is stands


def test_what_is_counted_less_is_the_result_of_the_activation(folder: Path) -> None:
    """The controls: a run on the CPU, where the kernel is not, and adapters that drop out count the same either way."""
    keys: list[dict[str, Any]] = [{}, {"use_cpu": True}, {"lora_dropout": 0.1}]
    less = []
    for more in keys:
        target = Target("cpu", "CPU", None) if more.get("use_cpu") else GPU
        with_it, without = (step_memory(config_of(folder, **more, **of), target).counted for of in ({}, OFF))
        less.append((without.kept - with_it.kept, with_it.working - without.working))
    assert less == [(LAYERS * RESULT, RESULT), (0, 0), (0, 0)]


@pytest.mark.parametrize("setting", ["auto", "off"])
def test_in_bfloat16_too(folder: Path, trained: Any, setting: str) -> None:
    config = config_of(folder, bf16=None, dtype=None, speedups={NAME: setting})
    live, installed = trained(config, HALF)
    planned = step_memory(config, GPU)
    assert planned.compute is torch.bfloat16
    assert (installed.get(NAME) is not None) is (setting == "auto")
    assert numbers(planned.counted) == numbers(live.counted)


def test_a_7b_counts_38_kb_a_token_and_layer_less(tmp_path: Path) -> None:
    shape: dict[str, Any] = {
        "hidden_size": 3584, "intermediate_size": 18_944, "num_attention_heads": 28, "num_key_value_heads": 4,
        "num_hidden_layers": 2,
    }  # fmt: skip
    Qwen2Config(**shape).save_pretrained(tmp_path)
    less = []
    for keys in ({}, {"lora_dropout": 0.1}):
        with_it, without = (
            step_memory(config_of(tmp_path, bf16=None, dtype=None, **keys, **of), GPU).counted.kept for of in ({}, OFF)
        )
        less.append(without - with_it)
    assert less == [2 * 37_888, 0]


def test_a_plan_needs_no_kernel_compiler(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("triton", "dynotune.model.elementwise.triton_gate_lora"):
        monkeypatch.setitem(sys.modules, name, None)  # importing it is an error
    planned = step_memory(config_of(folder, speedups={NAME: "on"}), GPU).planned
    assert planned is not None
    assert [row.state for row in planned.rows() if row.name == NAME] == ["chosen"]


@pytest.mark.parametrize("more", [(), ("activation_full",)], ids=str)
def test_a_policy_that_it_gives_way_to_is_planned_without_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...]
) -> None:
    """The control: policies that it can be beside are planned with it."""
    one = type(speedups()[NAME])
    monkeypatch.setattr(one, "conflicts", (*one.conflicts, *more))
    planned, off = (step_memory(config_of(folder, **keys), GPU) for keys in ({}, OFF))
    alike = {
        policy: numbers(planned.under(policy).per_token) == numbers(off.under(policy).per_token) for policy in POLICIES
    }
    assert alike == {"none": False, "selective": True, "full": bool(more), "offload": False}


def test_what_training_refuses_the_plan_refuses(folder: Path) -> None:
    with pytest.raises(ConfigError, match="its adapters drop out"):
        step_memory(config_of(folder, lora_dropout=0.1, speedups={NAME: "on"}), GPU)


def test_the_command_tells_it(folder: Path) -> None:
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in chats(30)))
    parts = {}
    for setting in ("auto", "off"):
        config = config_of(
            folder, dataset_name=str(folder / "data.jsonl"), token_cache="off", micro_batch_tokens=1024,
            speedups={NAME: setting},
        )  # fmt: skip
        found = plan_run(config, Console(file=io.StringIO()))
        parts[setting] = {part["name"]: part["bytes"] for part in found["memory"]["parts"]}["activations"]
        [row] = [row for row in found["speedups"] if row["name"] == NAME]
        assert row["state"] == ("chosen" if setting == "auto" else "left out")
    assert parts["auto"] < parts["off"]

"""Promise: looking at what a micro-batch takes of memory changes nothing of the run."""

import copy
from contextlib import ExitStack

import pytest
import torch
from peft import LoraConfig, get_peft_model

from dynotune import SFTConfig
from dynotune.estimate.memory import StepMemory
from dynotune.execution.packed import PackedPath
from dynotune.model.precision import Precision
from dynotune.objectives.sft import SFTObjective
from dynotune.speedups.choose import decide
from dynotune.speedups.contract import Context
from dynotune.speedups.installed import Installed
from dynotune.speedups.registry import speedups
from dynotune.speedups.site import Site
from dynotune.train.start.device import autocast_of
from dynotune.train.start.execution import look_at_memory
from tests.tiny import tiny_model

PRECISION = Precision(torch.float32, False)
CPU = torch.device("cpu")


def looked_at(model: torch.nn.Module, config: SFTConfig) -> StepMemory:
    context = Context(config, model, CPU, torch.float32, PRECISION, longest=64)  # type: ignore[arg-type]
    site = Site(context, autocast_of(PRECISION, CPU))
    with ExitStack() as stack:
        installed = Installed(decide(config, context, speedups()), site)
        stack.callback(installed.close)
        path = PackedPath(site, SFTObjective(config))
        stack.callback(path.close)
        return look_at_memory(config, PRECISION, installed, path)[0]


@pytest.mark.parametrize("checkpointing", [False, True])
def test_it_leaves_model_and_random_numbers_as_they_were(checkpointing: bool) -> None:
    model = get_peft_model(tiny_model(), LoraConfig(r=4, lora_dropout=0.1, target_modules="all-linear"))
    model.eval()
    before, weights = torch.get_rng_state(), copy.deepcopy(model.state_dict())
    flags = [getattr(m, "gradient_checkpointing", None) for m in model.modules()]
    implementation = model.config._attn_implementation
    memory = looked_at(model, SFTConfig(use_peft=True, gradient_checkpointing=checkpointing, packed_execution="on"))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(weight, weights[name]) for name, weight in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert not model.training
    assert model.config._attn_implementation == implementation
    assert [getattr(m, "gradient_checkpointing", None) for m in model.modules()] == flags
    assert memory.policy == ("full" if checkpointing else "none")
    assert memory.needed(1024) > memory.needed(512) > 0


def test_checkpointing_takes_less() -> None:
    # deep enough that the inputs of all layers and the whole of one are less than the whole of all
    model = tiny_model(num_hidden_layers=6)
    plain = looked_at(model, SFTConfig(packed_execution="on"))
    again = looked_at(model, SFTConfig(packed_execution="on", gradient_checkpointing=True))
    assert again.needed(2048) < plain.needed(2048)
    assert plain.under("full").needed(2048) == again.needed(2048)

"""Which way a run executes its micro-batches: packed where the model can be packed, which is tried out, else plain."""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from dynotune.config.sft import SFTConfig
from dynotune.errors import ConfigError
from dynotune.execution.packed import PackedPath
from dynotune.execution.path import ExecutionPath
from dynotune.execution.plain import PlainPath
from dynotune.measure.document_cost import document_cost
from dynotune.model import elementwise, lora
from dynotune.model.aside import Aside
from dynotune.model.attention import examine, hidden_states, packed_attention
from dynotune.model.base import base_of
from dynotune.model.head import find_head
from dynotune.model.packed import pack
from dynotune.model.precision import Precision
from dynotune.objectives.sft import Objective
from dynotune.parallel.ranks import Ranks
from dynotune.plan.capacity import Capacity, Room, micro_batch_capacity
from dynotune.plan.memory import StepMemory, live_memory
from dynotune.plan.plan import Plan
from dynotune.train.device import autocast_of
from dynotune.train.faults.ways import Forwards, Ways

if TYPE_CHECKING:
    from transformers import PreTrainedModel

PROBED_TOKENS = 16
"""Tokens on which the head is compared with the model's own."""


@dataclass(frozen=True, slots=True)
class Execution:
    """How a run's steps are executed."""

    path: ExecutionPath
    plan: Plan
    autocast: Callable[[], Any]
    """Makes the context of a forward pass."""

    says: list[str]
    memory: Callable[[], StepMemory]
    """Counts what a step takes of memory. It may run a few tokens through the model."""

    ways: Ways
    """To execute a step again otherwise, where it went wrong."""


def choose_execution(
    config: SFTConfig,
    plan: Plan,
    model: "PreTrainedModel",
    objective: Objective,
    *,
    longest: int,
    precision: Precision,
    undo: ExitStack,
    ranks: Ranks,
) -> Execution:
    """Try packed execution out on the model and take it where it is right. `undo` gives the model back as it was.

    longest: tokens of the longest document that will come, held-out ones among them.
    ranks: those that execute it together, all alike: where one cannot, none does.

    Raises `ConfigError` where packed execution is demanded and the model cannot be packed.
    """
    device = next(model.parameters()).device
    plain_autocast = autocast_of(precision, device)
    reason = None
    if config.packed_execution != "off":
        with ExitStack() as installed:
            packed = _packed(config, plan, model, objective, longest, precision, device, installed, ranks)
            if isinstance(packed, Execution):
                undo.push(installed.pop_all())
                return packed
            reason = packed
    said = "execution: plain, one document at a time, as `packed_execution: off` asks"
    if reason:
        name = type(base_of(model)).__name__
        if config.packed_execution == "on":
            raise ConfigError(
                f"`packed_execution: on`: {name} cannot be packed: {reason}. Write `auto`, which takes the plain path: one"
                " document at a time, the same result, slower."
            )
        said = f"note: execution: plain, one document at a time: {name} cannot be packed: {reason}"
    path = PlainPath(model, objective)
    memory = _memory_of(model, config, precision, plain_autocast, path)
    plan = plan.executed(None, cost=document_cost(model, plan, labelled_rows_head=False))
    ways = Ways(model, objective, path, plain_autocast, plain_autocast)
    return Execution(path, plan, plain_autocast, [said], memory, ways)


def _on_any_rank(reason: str | None, ranks: Ranks) -> str | None:
    """Why not, if on any rank: what one of them cannot do, none does."""
    found = [(rank, why) for rank, why in enumerate(ranks.gather(reason)) if why]
    if not found:
        return None
    rank, why = found[0]
    return str(why) if len(found) == ranks.world else f"{why} (rank {rank})"


def _packed(
    config: SFTConfig,
    plan: Plan,
    model: "PreTrainedModel",
    objective: Objective,
    longest: int,
    precision: Precision,
    device: torch.device,
    installed: ExitStack,
    ranks: Ranks,
) -> Execution | str:
    """Packed execution, or why not. What was put into the model is taken out by `installed`."""
    autocast, says, asides, forwards = _put_kernels_in(model, precision, device, installed)
    examined = examine(model, longest=longest, autocast=autocast)
    found, reason = None, examined.reason
    if not reason:
        ids_T = torch.arange(1, 1 + PROBED_TOKENS, device=device)
        with autocast():
            found = find_head(model, ids_T)
        reason = None if found.head is not None else str(found.why_not)
    if reason := _on_any_rank(reason, ranks):
        return reason
    assert found is not None
    assert found.head is not None
    room = (
        room_of(model, config, precision, autocast) if device.type == "cuda" and not config.micro_batch_tokens else None
    )
    capacity = micro_batch_capacity(config.micro_batch_tokens, longest, device.type, room)
    least = min(ranks.gather(capacity.tokens))
    if least < capacity.tokens:
        capacity = Capacity(least, "what the memory of the fullest GPU is estimated to take")
    plan = plan.executed(capacity.tokens, longest, document_cost(model, plan, labelled_rows_head=True))
    assert plan.ladder is not None
    path = PackedPath(model, found.head, objective, asides)
    installed.callback(path.close)
    apart = "documents" if plan.packing is None or plan.packing.isolated else "bins"
    first = f"execution: packed, isolated {apart}: {plan.layout_summary()}"
    most = f"a micro-batch holds up to {plan.ladder.top:,} tokens: {capacity.why_of(plan.ladder.top)}"
    if config.attn_implementation:
        says.append(
            f"note: `attn_implementation: {config.attn_implementation}` is for the plain path and for generations; packed"
            " execution has its own attention"
        )
    memory = _memory_of(model, config, precision, autocast, path)
    ways = Ways(model, objective, path, autocast, autocast_of(precision, device), forwards)
    lines = [first, most, *examined.says, *found.head.describe(), *says]
    return Execution(path, plan, autocast, lines, memory, ways)


def _put_kernels_in(
    model: "PreTrainedModel", precision: Precision, device: torch.device, installed: ExitStack
) -> tuple[Callable[[], Any], list[str], dict[str, Aside], dict[str, Forwards]]:
    """Fused LoRA and elementwise kernels, before the model is tried out.

    The context of a forward pass, what to say, the counts of what these kernels leave to the modules themselves, and where
    they are.
    """
    weights: Any = model.get_input_embeddings().weight
    compute = torch.bfloat16 if precision.compute_bf16 else weights.dtype
    autocast, says = autocast_of(precision, device), []
    asides: dict[str, Aside] = {}
    forwards: dict[str, Forwards] = {}
    if hasattr(model, "peft_config"):
        adapters = lora.install(model, compute)
        installed.callback(adapters.uninstall)
        says += adapters.lines()
        asides["fused LoRA"], forwards["fused LoRA"] = adapters.aside, adapters.forwards
        if not adapters.needs_autocast:
            autocast = nullcontext
    kernels = elementwise.install(model, compute)
    installed.callback(kernels.uninstall)
    asides["elementwise kernels"], forwards["elementwise kernels"] = kernels.aside, kernels.forwards
    put_in = {name: where for name, where in forwards.items() if where}
    return autocast, [*says, *kernels.lines()], asides, put_in


def room_of(
    model: "PreTrainedModel",
    config: SFTConfig,
    precision: Precision,
    autocast: Callable[[], AbstractContextManager[Any]],
) -> Room:
    """What the device has left for micro-batches of this model, by what autograd keeps of a few tokens."""
    device = next(model.parameters()).device
    was_training = model.training

    def run(tokens: int) -> torch.Tensor:
        document = np.ones(tokens, np.int32), np.ones(tokens, np.int32)
        with autocast():
            return hidden_states(model, pack([document], tokens, device))

    with packed_attention(model):
        model.train()
        try:
            return live_memory(model, config, precision, run)[1]
        finally:
            model.train(was_training)


def _memory_of(
    model: "PreTrainedModel",
    config: SFTConfig,
    precision: Precision,
    autocast: Callable[[], AbstractContextManager[Any]],
    path: ExecutionPath,
) -> Callable[[], StepMemory]:
    """Counts what a step takes, by what autograd keeps of a few tokens under `path`."""
    device = next(model.parameters()).device

    def run(tokens: int) -> Any:
        document = np.ones(tokens, np.int32), np.ones(tokens, np.int32)
        with path.engaged(), autocast():
            if isinstance(path, PackedPath):
                return hidden_states(model, pack([document], tokens, device))
            decoder = base_of(model).get_decoder()
            return decoder(input_ids=torch.ones(1, tokens, dtype=torch.int64, device=device), use_cache=False)

    return lambda: live_memory(model, config, precision, run)[0]

"""What a run's steps will take of a device, before anything is loaded."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dynotune.config.sft import SFTConfig
from dynotune.measure.memory import (
    GIB,
    Part,
    PerToken,
    activations,
    gradients,
    head_chunked,
    head_of_all,
    optimizer_states,
    per_token,
    weights,
)
from dynotune.model.precision import Precision, choose_precision
from dynotune.plan.capacity import Room

if TYPE_CHECKING:
    import torch

CONTEXT = GIB // 2
"""What CUDA and its libraries take of a device before the first tensor."""


@dataclass(frozen=True, slots=True)
class Target:
    """The device that is planned for."""

    type: str
    name: str
    memory: int | None
    """Bytes that a run may use; None where it is not known."""


@dataclass(frozen=True, slots=True)
class StepMemory:
    """Memory of a step by part, for any micro-batch."""

    model: Any
    """The model or its skeleton."""

    config: SFTConfig
    precision: Precision
    per_token: PerToken
    compute: "torch.dtype"

    def parts(self, tokens: int, label_share: float, *, packed: bool) -> list[Part]:
        """For micro-batches of up to `tokens`, of which `label_share` are label tokens."""
        from dynotune.model.head.chunks import chunks

        parts = [
            *weights(self.model, self.precision.compute_bf16),
            gradients(self.model),
            optimizer_states(self.model, self.config.optim, self.config.optim_args),
            activations(self.per_token, tokens),
        ]
        if not packed:
            return [*parts, head_of_all(self.model, tokens, self.compute)]
        vocabulary = self.model.get_output_embeddings().weight.shape[0]
        rows = max((end - first for first, end in chunks(tokens, vocabulary, self.compute.itemsize)), default=0)
        return [*parts, head_chunked(self.model, tokens, label_share, self.compute, rows)]

    def needed(self, tokens: int, label_share: float = 1.0) -> int:
        """Bytes beside the weights that are loaded, under packed execution."""
        return sum(part.bytes for part in self.parts(tokens, label_share, packed=True) if part.name != "weights")


def live_memory(
    model: Any, config: SFTConfig, precision: Precision, run: Callable[[int], Any]
) -> tuple[StepMemory, Room]:
    """Of a model that is loaded and ready to train on a GPU, and the room that its micro-batches have there.

    run: a forward pass of its decoder over one document of so many tokens, as training will run it. It is called twice, on a
    few tokens, without checkpointing; random numbers are as they were.
    """
    import torch

    weight = next(model.parameters())
    device, compute = weight.device, torch.bfloat16 if precision.compute_bf16 else weight.dtype
    on_gpu = device.type == "cuda"
    checkpointed = [m for m in model.modules() if getattr(m, "gradient_checkpointing", False)]
    with torch.random.fork_rng([device] if on_gpu else [], enabled=True):
        for module in checkpointed:
            module.gradient_checkpointing = False
        try:
            counted = per_token(model, run, compute, bool(checkpointed))
        finally:
            for module in checkpointed:
                module.gradient_checkpointing = True
    memory = StepMemory(model, config, precision, counted, compute)
    free = 0
    if on_gpu:
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        free = torch.cuda.mem_get_info(device)[0] + kept
    return memory, Room(free, memory.needed)


def target_of(config: SFTConfig, memory_gib: float | None = None) -> Target:
    """The GPU here; the CPU where `use_cpu` asks for it; else a GPU that computes in bfloat16, of unknown memory."""
    import torch

    asked = None if memory_gib is None else int(memory_gib * GIB)
    if config.use_cpu:
        return Target("cpu", "CPU", asked)
    if torch.cuda.is_available():
        free, _ = torch.cuda.mem_get_info()
        return Target("cuda", torch.cuda.get_device_name(), asked if asked is not None else free)
    return Target("cuda", "a GPU that computes in bfloat16 (there is none here)", asked)


def step_memory(config: SFTConfig, target: Target) -> StepMemory:
    """Of the model that `config` names, from its shapes. Raises `ModelError` where they cannot be read."""
    import torch

    from dynotune.model.lora import install
    from dynotune.model.skeleton import run_decoder, skeleton

    here = target.type == "cuda" and torch.cuda.is_available()
    bf16 = None if here else target.type == "cuda"
    precision = choose_precision(config, config, torch.device(target.type), has_bf16=bf16)
    model, shaped = skeleton(config, precision), skeleton(config, precision, for_compute=True)
    embedding: Any = shaped.get_input_embeddings()
    compute: torch.dtype = torch.bfloat16 if precision.compute_bf16 else embedding.weight.dtype
    if config.use_peft:
        install(shaped, compute)
    shaped.train()
    counted = per_token(
        shaped, lambda tokens: run_decoder(shaped, tokens), compute, bool(config.gradient_checkpointing)
    )
    if target.type == "cuda":
        how = f"{counted.how} of transformers' own operations (elementwise kernels, where they run, keep less)"
        counted = replace(counted, how=how, at_most=True)
    return StepMemory(model, config, precision, counted, compute)

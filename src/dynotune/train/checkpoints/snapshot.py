"""What a checkpoint will hold, as it is at one moment: references for a write that training waits for, copies otherwise."""

import copy
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dynotune.train.checkpoints.training_state import training_state
from dynotune.train.state import Trainee

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Copy = Callable[[str, Tensor], Tensor]


@dataclass(slots=True)
class Snapshot:
    """Everything of one moment that goes into a checkpoint."""

    step: int
    best_step: int | None
    is_adapter: bool
    model: Any
    """Knows how to write itself; its own tensors are not read."""

    tokenizer: "PreTrainedTokenizerBase"
    weights: dict[str, Tensor]
    """The model's state dict."""

    trainable: dict[str, Tensor]
    """Of an adapter: what is trained, under its own names."""

    training: dict[str, Tensor]
    state: dict[str, Any]
    random: list[str]
    """Random states, one for each rank."""


class HostCopies:
    """Copies on the host. Memory is kept from one snapshot to the next: fresh pages cost more than the copying."""

    def __init__(self) -> None:
        self._kept: dict[str, Tensor] = {}

    def __call__(self, name: str, tensor: Tensor) -> Tensor:
        kept = self._kept.get(name)
        if kept is None or (kept.shape, kept.dtype, kept.stride()) != (tensor.shape, tensor.dtype, tensor.stride()):
            kept = self._kept[name] = torch.empty_like(tensor, device="cpu", requires_grad=False)
        kept.copy_(tensor)
        return kept

    @property
    def bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self._kept.values())

    def release(self) -> None:
        self._kept.clear()


def take_snapshot(trainee: Trainee, random: list[str], *, only_model: bool, copies: Copy | None = None) -> Snapshot:
    """The state of `trainee`. `copies` takes every tensor that training will change to where it will not.

    Without `copies`, tensors are the live ones: training must wait until the snapshot is written.
    """
    copied: dict[tuple[Any, ...], Tensor] = {}

    def once(name: str, tensor: Tensor) -> Tensor:
        if copies is None:
            return tensor
        # Tied weights stay tied: what writes the model finds them by their memory.
        key = (
            tensor.device,
            tensor.untyped_storage().data_ptr(),
            tensor.storage_offset(),
            tensor.shape,
            tensor.stride(),
        )
        if not tensor.numel():
            return tensor.clone()
        if key not in copied:
            copied[key] = copies(name, tensor)
        return copied[key]

    weights: dict[str, Tensor] = {}
    for name, tensor in trainee.model.state_dict(keep_vars=True).items():
        if not isinstance(tensor, Tensor):
            weights[name] = tensor
            continue
        frozen = isinstance(tensor, torch.nn.Parameter) and not tensor.requires_grad
        weights[name] = tensor.detach() if frozen else once(f"model/{name}", tensor.detach())
    trainable = {}
    if trainee.is_adapter:
        trainable = {
            name: once(f"model/{name}", p.detach()).contiguous()
            for name, p in trainee.model.named_parameters()
            if p.requires_grad
        }
    training, state = ({}, {}) if only_model else training_state(trainee, once)
    state |= {
        "plan": trainee.plan,
        "settings": trainee.settings,
        "progress": asdict(trainee.progress),
        "resumable": not only_model,
    }
    progress = trainee.progress
    return Snapshot(
        progress.step,
        progress.best_step,
        trainee.is_adapter,
        saved_shell(trainee.model),
        trainee.tokenizer,
        weights,
        trainable,
        training,
        copy.deepcopy(state) if copies else state,
        random,
    )


def saved_shell(model: Any) -> Any:
    """The same modules under a configuration of their own, which writing may change while the model trains.

    The cache is off while training; a model that is saved must generate with it.
    """
    shell = copy.copy(model)
    if hasattr(model, "peft_config"):
        return shell  # what it writes says nothing of the base model's configuration
    shell.config = copy.deepcopy(model.config)
    shell.config.use_cache = True
    if getattr(model, "generation_config", None) is not None:
        shell.generation_config = copy.deepcopy(model.generation_config)
    return shell


def changing_bytes(trainee: Trainee, states: int) -> int:
    """Host memory that a snapshot takes: what is trained, buffers, and `states` bytes of the optimizer's."""
    tensors: dict[int, Tensor] = {id(p): p for p in trainee.model.parameters() if p.requires_grad}
    tensors |= {id(b): b for b in trainee.model.buffers()}
    return sum(tensor.nbytes for tensor in tensors.values()) + states

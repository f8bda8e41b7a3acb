"""Which precision weights are kept in and computed in, decided once and stated."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dynotune.config.keys.adapter import AdapterConfig
from dynotune.config.keys.model import ModelConfig
from dynotune.errors import ConfigError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Precision:
    """`weights` None means the checkpoint's own precision (`dtype: auto`)."""

    weights: "torch.dtype | None"
    compute_bf16: bool
    """Whether matrix products run in bfloat16 through autocast."""

    why: str
    """One sentence for the start of the run."""

    behavioural: str = ""
    """What about this choice changes the result; empty where nothing does."""


def choose_precision(model: ModelConfig, adapter: AdapterConfig, device: "torch.device") -> Precision:
    """The precision of a run on `device`, by the design's rule unless the configuration says otherwise.

    LoRA: a bfloat16 base with float32 adapters. Full: float32 masters and optimizer states, computed in bfloat16.
    On the CPU everything is float32 unless `bf16: true`.
    """
    import torch

    has_bf16 = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    if model.bf16 and device.type == "cuda" and not has_bf16:
        raise ConfigError(
            f"`bf16: true`: {torch.cuda.get_device_name(device)} has no bfloat16 units. Set `bf16: false` to compute in"
            " float32."
        )
    compute = has_bf16 if model.bf16 is None else model.bf16
    if model.dtype is None:
        if adapter.use_peft and compute and device.type == "cuda":
            return Precision(torch.bfloat16, compute, "bfloat16 base, float32 adapters")
        why = "float32 masters, computed in bfloat16" if compute else "float32"
        if device.type == "cpu" and not compute:
            why += " (CPU)"
        return Precision(torch.float32, compute, why)
    if model.dtype == "auto":
        return Precision(None, compute, "the checkpoint's own precision (`dtype: auto`)")
    weights = getattr(torch, model.dtype)
    behavioural = ""
    if not adapter.use_peft and weights != torch.float32:
        behavioural = (
            f"`dtype: {model.dtype}` without `use_peft` trains {model.dtype} weights without float32 masters: at small"
            " learning rates most updates round to nothing"
        )
    return Precision(weights, compute, f"`dtype: {model.dtype}`", behavioural)

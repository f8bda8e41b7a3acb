"""Which precision weights are kept in and computed in: chosen once, then stated from what was really loaded."""

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dynotune.config.keys.adapter import AdapterConfig
from dynotune.config.keys.model import ModelConfig
from dynotune.errors import ConfigError

if TYPE_CHECKING:
    import torch
    from peft import PeftConfig


@dataclass(frozen=True, slots=True)
class Precision:
    """`weights` None means the checkpoint's own precision (`dtype: auto`)."""

    weights: "torch.dtype | None"
    compute_bf16: bool
    """Whether matrix products run in bfloat16 through autocast."""


def choose_precision(
    model: ModelConfig,
    adapter: AdapterConfig,
    device: "torch.device",
    own_peft_config: "PeftConfig | None" = None,
    has_bf16: bool | None = None,
) -> Precision:
    """The precision of a run on `device`, by the design's rule unless the configuration says otherwise.

    has_bf16: whether the device computes in bfloat16, where it is planned for and not here. Default: it is asked.

    LoRA: a bfloat16 base with float32 adapters. Full: float32 masters and optimizer states, computed in bfloat16.
    On the CPU everything is float32 unless `bf16: true`.
    """
    import torch

    if has_bf16 is None:
        has_bf16 = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    if model.bf16 and device.type == "cuda" and not has_bf16:
        raise ConfigError(
            f"`bf16: true`: {torch.cuda.get_device_name(device)} has no bfloat16 units. Set `bf16: false` to compute in"
            " float32."
        )
    compute = has_bf16 if model.bf16 is None else model.bf16
    has_adapter = adapter.use_peft or own_peft_config is not None
    if model.dtype is None:
        frozen_in_bf16 = has_adapter and compute and device.type == "cuda"
        return Precision(torch.bfloat16 if frozen_in_bf16 else torch.float32, compute)
    if model.dtype == "auto":
        return Precision(None, compute)
    return Precision(getattr(torch, model.dtype), compute)


def state_precision(model: "torch.nn.Module", precision: Precision, device: "torch.device") -> list[str]:
    """What `model` is kept and computed in, read off its parameters, and what of that changes the result.

    Raises `ConfigError` where float16 weights would be trained: that needs loss scaling, which there is none of.
    """
    import torch

    trained, frozen = Counter[str](), Counter[str]()
    for p in model.parameters():
        if p.is_floating_point():
            (trained if p.requires_grad else frozen)[str(p.dtype).removeprefix("torch.")] += p.numel()
    if trained["float16"]:
        raise ConfigError(
            f"{trained['float16']:,} float16 weights would be trained. Gradients underflow in float16 without loss scaling,"
            " which this trainer does not do: set `dtype: float32` or `dtype: bfloat16`, or load your own model so."
        )
    whole = set(trained) <= {"float32", "float64"}
    kind = "adapters" if hasattr(model, "peft_config") else "masters" if whole else "weights"
    said = [f"{' and '.join(name for name, _ in trained.most_common())} {kind}"]
    if frozen:
        said.insert(0, f"{' and '.join(name for name, _ in frozen.most_common())} base")
    said.append("computed in bfloat16" if precision.compute_bf16 else "computed as stored")
    lines = [f"precision: {', '.join(said)}{' (CPU)' if device.type == 'cpu' else ''}"]
    if not whole:
        low = sum(n for name, n in trained.items() if getattr(torch, name).itemsize < torch.float32.itemsize)
        lines.append(
            f"behavioural: {low:,} trained weights are kept below float32 without float32 masters: at small learning rates"
            " most of their updates round to nothing (`dtype: float32` keeps masters)"
        )
    if frozen["float16"] and not precision.compute_bf16:
        lines.append(
            "behavioural: gradients pass through float16 activations without loss scaling: small ones become zero"
            " (`dtype: bfloat16` keeps them)"
        )
    return lines

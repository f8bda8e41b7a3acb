"""What is about to be trained, in figures read off the model itself."""

from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from dynotune.model.base import base_of

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Read off the parameters after everything is in place, not copied from the configuration."""

    architecture: str
    device: str
    parameters: int
    trainable: int
    precision: dict[str, int]
    """Parameters by dtype."""

    trainable_precision: dict[str, int]
    attention: str
    vocabulary: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def lines(self) -> list[str]:
        """For the start of a run."""
        kinds = ", ".join(f"{n:,} in {name}" for name, n in self.precision.items())
        trained = ", ".join(self.trainable_precision)
        return [
            f"{self.architecture} on {self.device}, attention `{self.attention}`, vocabulary {self.vocabulary:,}",
            f"{self.parameters:,} parameters ({kinds})",
            f"{self.trainable:,} trainable ({self.trainable / self.parameters:.2%}, {trained})",
        ]


def describe_model(model: "torch.nn.Module", device: "torch.device") -> ModelFacts:
    """Count what is there. Tied weights count once."""
    import torch

    by_dtype: Counter[str] = Counter()
    trained: Counter[str] = Counter()
    for p in model.parameters():
        name = str(p.dtype).removeprefix("torch.")
        by_dtype[name] += p.numel()
        if p.requires_grad:
            trained[name] += p.numel()
    base = base_of(model)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    return ModelFacts(
        architecture=type(base).__name__,
        device=f"{device} ({name})" if device.type == "cuda" else "CPU",
        parameters=sum(by_dtype.values()),
        trainable=sum(trained.values()),
        precision=dict(by_dtype.most_common()),
        trainable_precision=dict(trained.most_common()),
        attention=str(getattr(base.config, "_attn_implementation", "unknown")),
        vocabulary=int(base.get_input_embeddings().weight.shape[0]),
    )

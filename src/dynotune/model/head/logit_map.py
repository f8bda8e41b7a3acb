"""What a model does to the output of its projection before it calls it logits."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

# Attributes of configurations and models that act on logits, as named in transformers and in models' own code. A name alone
# proves nothing: `verify.py` compares with the model's own forward pass.
MULTIPLIERS = ("logit_scale", "output_multiplier", "lm_head_multiplier")  # Cohere, MuP
DIVISORS = ("logits_scaling",)  # Granite
CAPS = ("final_logit_softcapping", "logits_soft_cap")  # Gemma 2 and later; RecurrentGemma


@dataclass(frozen=True, slots=True)
class LogitMap:
    """logits = cap * tanh(scale * z / cap) of the projection's output z, or scale * z without a cap."""

    scale: float = 1.0
    cap: float | None = None

    @property
    def is_identity(self) -> bool:
        """Whether the projection's output is the logits."""
        return self.scale == 1.0 and self.cap is None

    def __call__(self, z: Tensor) -> Tensor:
        """Logits, in z's precision."""
        scaled = z if self.scale == 1.0 else z * self.scale
        return scaled if self.cap is None else torch.tanh(scaled / self.cap) * self.cap

    def __str__(self) -> str:
        said = [] if self.scale == 1.0 else [f"scaled by {self.scale:g}"]
        return ", ".join(said + ([] if self.cap is None else [f"soft-capped at {self.cap:g}"]))


def logit_map(model: Any) -> LogitMap:
    """What the names in `model` and its text configuration suggest; `model` without PEFT's wrapper."""
    text = model.config.get_text_config()

    def named(names: tuple[str, ...]) -> list[float]:
        found = []
        for name in names:
            value = getattr(text, name, None)
            if value is None:
                value = getattr(model, name, None)
            if isinstance(value, int | float) and not isinstance(value, bool):
                found.append(float(value))
        return found

    scale = 1.0
    for value in named(MULTIPLIERS):
        scale *= value
    for value in named(DIVISORS):
        scale /= value
    return LogitMap(scale, next(iter(named(CAPS)), None))

"""What a model does around its projection: to the hidden states before, and to the output before it calls it logits."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

# Attributes of configurations and models that act on logits, as named in transformers. A name says no more than which number
# to try: Granite divides logits by `logits_scaling`, HyperCLOVA X multiplies them by it, and MiniCPM3 divides the hidden
# states. Which it is, is asked of the model (`find.py`).
MULTIPLIERS = ("logit_scale", "output_multiplier", "lm_head_multiplier")
DIVISORS = ("logits_scaling", "logits_mup_width_multiplier")
CAPS = ("final_logit_softcapping", "logits_soft_cap", "output_logit_soft_cap")


@dataclass(frozen=True, slots=True)
class LogitMap:
    """With z = projection(before * hidden): logits = cap * tanh(scale * z / cap), or scale * z without a cap."""

    scale: float = 1.0
    cap: float | None = None
    before: float = 1.0

    def __call__(self, z: Tensor) -> Tensor:
        """Logits of the projection's output, in z's precision."""
        scaled = z if self.scale == 1.0 else z * self.scale
        return scaled if self.cap is None else torch.tanh(scaled / self.cap) * self.cap

    def __str__(self) -> str:
        said = [] if self.before == 1.0 else [f"hidden states scaled by {self.before:g}"]
        said += [] if self.scale == 1.0 else [f"logits scaled by {self.scale:g}"]
        said += [] if self.cap is None else [f"logits soft-capped at {self.cap:g}"]
        return ", ".join(said)


def suggested(model: Any) -> tuple[list[float], list[float | None]]:
    """Scales and caps that names in `model` (without PEFT's wrapper) suggest, the likely meaning first; 1 and None too."""
    text = model.config.get_text_config()

    def named(names: tuple[str, ...]) -> list[float]:
        found = []
        for name in names:
            value = getattr(text, name, None)
            if value is None:
                value = getattr(model, name, None)
            if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
                found.append(float(value))
        return found

    multipliers, divisors = named(MULTIPLIERS), named(DIVISORS)
    scales = [*multipliers, *(1 / value for value in divisors), 1.0, *(1 / value for value in multipliers), *divisors]
    return list(dict.fromkeys(scales)), list(dict.fromkeys([*named(CAPS), None]))

"""The proof of a merge: what the saved model computes, beside what base and adapter compute."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynotune.errors import ModelError

if TYPE_CHECKING:
    import torch
    from peft import PeftModel
    from transformers import PreTrainedTokenizerBase

PROBE = "The quick brown fox jumps over the lazy dog. 3 + 4 = 7, and what follows?"
"""The text whose logits are compared. Any text would do: what matters is that its tokens are real ones."""

TOLERANCE = {"float32": 1e-3, "float16": 0.02, "bfloat16": 0.05}
"""Largest accepted root mean square of (merged - base with adapter), as a share of that of the logits: about ten times
what rounding the weights once costs. An adapter whose whole effect is smaller than that cannot be told from rounding in
that precision; its effect is printed beside the difference, for the reader to judge."""


@dataclass(frozen=True, slots=True)
class MergeReport:
    """What a merge did, all of it measured."""

    output: Path
    base: str
    dtype: str
    layers: int
    """Modules whose weights were changed by the adapter."""

    largest_change: float
    """Largest absolute change of a weight by the adapter."""

    largest_rounding: float
    """Largest absolute difference between a merged weight in float32 and as it is stored."""

    rounding_share: float
    """Root mean square of that rounding over that of the change: how much of what was learned the precision loses."""

    logit_difference: float
    """Largest absolute difference between the logits of the saved model and of base with adapter."""

    logit_difference_share: float
    """Root mean square of that difference over that of the logits."""

    adapter_effect_share: float
    """Root mean square of (base with adapter - base alone) over that of the logits, to compare with."""

    same_tokens: int
    """Positions of the probe whose most likely next token is the same in both."""

    tokens: int
    notices: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """The report for a person."""
        return [
            f"merged {self.layers} modules into {self.base}, stored as {self.dtype}: {self.output}",
            f"largest change of a weight {self.largest_change:.3g}; largest rounding {self.largest_rounding:.3g} "
            f"({self.rounding_share:.2%} of the change, root mean square)",
            f"logits of the saved model against base + adapter on {self.tokens} tokens: largest difference "
            f"{self.logit_difference:.3g}, {self.logit_difference_share:.2e} of the logits (root mean square; the "
            f"adapter itself moves them by {self.adapter_effect_share:.2e}); "
            f"same next token at {self.same_tokens} of {self.tokens}",
            *self.notices,
        ]

    def require_equal(self) -> None:
        """Raises `ModelError` where the saved model computes something else than base and adapter."""
        limit = TOLERANCE[self.dtype]
        if not self.logit_difference_share <= limit:  # so that NaN fails
            raise ModelError(
                f"The merged model does not compute what base and adapter compute: its logits differ by "
                f"{self.logit_difference_share:.2e} of their size (accepted: {limit:.0e} in {self.dtype}). Nothing was "
                "written. `--dtype float32` shows whether rounding is the reason."
            )


def probe_ids(tokenizer: "PreTrainedTokenizerBase", model: Any) -> "torch.Tensor":
    """The probe's tokens [1, T]."""
    import torch

    ids: list[int] = tokenizer(PROBE)["input_ids"]
    rows = model.get_input_embeddings().weight.shape[0]
    assert len(ids) >= 2
    assert max(ids) < rows
    return torch.tensor([ids], device=model.device)


def probe_logits(model: Any, ids_1T: "torch.Tensor") -> "torch.Tensor":
    """Float32 logits [T, V] on the CPU."""
    import torch

    with torch.no_grad():
        logits: torch.Tensor = model(input_ids=ids_1T, use_cache=False).logits[0]
    return logits.float().cpu()


def base_logits(model: "PeftModel", ids_1T: "torch.Tensor") -> "torch.Tensor":
    """The same without the adapter."""
    with model.disable_adapter():
        return probe_logits(model, ids_1T)

"""The proof of a merge: what the saved model computes, beside what base and adapter compute."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynotune.errors import ModelError
from dynotune.printable import printable

if TYPE_CHECKING:
    import torch
    from peft import PeftModel
    from transformers import PreTrainedTokenizerBase

PROBE = "The quick brown fox jumps over the lazy dog. 3 + 4 = 7, and what follows?"
"""The text whose logits are compared. Any text would do: what matters is that its tokens are real ones."""

TOLERANCE = {"float32": 1e-3, "float16": 0.02, "bfloat16": 0.05}
"""Largest accepted root mean square of (merged - base with adapter), as a share of that of the logits: about ten times
what rounding the weights once costs."""

SHARE_OF_EFFECT = {"float32": 0.02, "float16": 0.5, "bfloat16": 0.5}
"""Largest accepted share of the adapter's own effect. A merge that forgot the adapter differs by all of it, however small it
is; in 16 bits the rounding of activations hides less than half of it, or the proof is not one."""

ROUNDING = 1e-5
"""Differences below this are float32's own, even beside an adapter without effect."""

OWN_TOKENS = 64
"""New tokens that are probed at most: the newest."""


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
            f"merged {self.layers} modules into {printable(self.base)}, stored as {self.dtype}:"
            f" {printable(str(self.output))}",
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
        share = SHARE_OF_EFFECT[self.dtype]
        if self.logit_difference_share > max(share * self.adapter_effect_share, ROUNDING):
            raise ModelError(
                f"It cannot be shown that the merged model has the adapter: the adapter moves the logits by "
                f"{self.adapter_effect_share:.2e} of their size, and the merged model's differ by "
                f"{self.logit_difference_share:.2e} (accepted: {share:.0%} of the adapter's effect in {self.dtype}). "
                "Nothing was written. Where rounding drowns a small adapter, `--dtype float32` keeps it."
            )


def probe_ids(tokenizer: "PreTrainedTokenizerBase", model: Any) -> "torch.Tensor":
    """The probe's tokens [1, T], and after them tokens whose own rows the adapter may have trained."""
    import torch

    ids: list[int] = tokenizer(PROBE)["input_ids"]
    own = set(tokenizer.get_added_vocab().values())
    for config in model.peft_config.values():
        trained = getattr(config, "trainable_token_indices", None) or []
        for indices in trained.values() if isinstance(trained, dict) else [trained]:
            own.update(indices)
    ids = [*ids, *sorted(own)[-OWN_TOKENS:]]
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

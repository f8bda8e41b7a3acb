"""Tiny random models of the architectures that packed execution promises, with what makes each of them special."""

from typing import Any

from transformers import PreTrainedModel

from tests.tiny import tiny_model

WINDOW = 4
_ALTERNATE = ["sliding_attention", "full_attention", "sliding_attention"]
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {},
    "qwen3": {},
    "mistral": {"sliding_window": WINDOW},
    # A small soft-cap, so that it bends the small scores of random weights.
    "gemma2": {
        "sliding_window": WINDOW, "query_pre_attn_scalar": 8, "num_hidden_layers": 3, "layer_types": _ALTERNATE,
        "attn_logit_softcapping": 0.5, "attn_implementation": "eager",
    },
    "gemma3_text": {
        "sliding_window": WINDOW, "query_pre_attn_scalar": 8, "num_hidden_layers": 3, "layer_types": _ALTERNATE,
    },
    "phi3": {},
    "olmo2": {},
    "smollm3": {"no_rope_layers": [1, 0]},
    "granite": {"embedding_multiplier": 2.0, "attention_multiplier": 0.3, "residual_multiplier": 0.5, "logits_scaling": 3.0},
    "qwen3_moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16},
    "gpt2": {
        "n_embd": 32, "n_head": 4, "n_layer": 2, "n_positions": 256,
        "attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0,
    },
}  # fmt: skip
"""gpt2 stands for learned positions: with rotary ones a document may start anywhere."""

MIXTURES_OF_EXPERTS = frozenset({"qwen3_moe"})


def architecture(kind: str, seed: int = 0, **changes: Any) -> PreTrainedModel:
    """The tiny model of `kind`, in evaluation mode. Its weights are large enough that attention matters."""
    model = tiny_model(kind, seed, **{**ARCHITECTURES[kind], **changes})
    for name, p in model.named_parameters():
        if p.ndim == 2 and ("attn" in name or "mlp" in name):
            p.data *= 5.0
    return model.eval()

"""Shapes of the models that are measured, with random weights: speed does not depend on what weights are."""

from typing import Any

QWEN = {"model_type": "qwen2", "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0}
LLAMA_ROPE = {
    "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}  # fmt: skip

SHAPES: dict[str, dict[str, Any]] = {
    "qwen2.5-7b": {
        "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
        "num_key_value_heads": 4, "vocab_size": 152064, "tie_word_embeddings": False, **QWEN,
    },
    "llama-3.1-8b": {
        "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": False,
        "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_parameters": LLAMA_ROPE,
    },
    "qwen2.5-0.5b": {
        "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
        "num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": True, **QWEN,
    },
    "23m": {
        "hidden_size": 384, "intermediate_size": 1024, "num_hidden_layers": 6, "num_attention_heads": 6,
        "num_key_value_heads": 6, "vocab_size": 32000, "tie_word_embeddings": True, **QWEN,
    },
}  # fmt: skip
"""The baseline's and Llama-3.1-8B's, by name: what `AutoConfig.for_model` takes."""


def config_of(shape: dict[str, Any], **changes: Any) -> Any:
    """transformers' configuration of a shape."""
    from transformers import AutoConfig

    values = {**shape, **changes}
    return AutoConfig.for_model(values.pop("model_type"), **values)

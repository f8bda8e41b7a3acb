"""What can be seen of a model without running it that rules packed execution out."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torch import nn

from dynotune.model.attention.decoder import text_decoder
from dynotune.model.base import base_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ACTS_ON_EACH_TOKEN = frozenset(
    {
        "ADALORA", "BOFT", "C3A", "DELORA", "FOURIERFT", "GRALORA", "HRA", "IA3", "LN_TUNING", "LOHA", "LOKR", "LORA",
        "MISS", "OFT", "OSF", "RANDLORA", "ROAD", "SHIRA", "TRAINABLE_TOKENS", "VBLORA", "VERA", "WAVEFT",
    }
)  # fmt: skip
"""PEFT's kinds of adapters that live in modules and treat each token alone. Fresh adapters do nothing yet, so that no
numeric check can see what they will do: a kind that is not listed here is not packed."""

_ATTENTION_LAYERS = frozenset({"full_attention", "sliding_attention", "attention", "moe", "dense", "sparse"})
_STATEFUL = re.compile(r"Mamba|Recurrent|Rglru|DeltaNet|LinearAttention|LightningAttention|ShortConv|Rwkv|RWKV|xLSTM")


def why_not_by_structure(model: "PreTrainedModel", longest: int) -> str | None:
    """The first reason found, or None. `longest`: tokens of the longest document that will be trained or evaluated."""
    base = base_of(model)
    if base.config.is_encoder_decoder:
        return "it has an encoder"
    reason = _adapters(model) or _bypassed(model, base)
    if reason:
        return reason
    decoder = text_decoder(model)
    if decoder is base:
        return f"{type(base).__name__} has no inner decoder to take hidden states from"
    return _layers(decoder) or _rotary(decoder, longest) or _checkpointing(model, decoder)


def _adapters(model: Any) -> str | None:
    for name, config in getattr(model, "peft_config", {}).items():
        kind = str(getattr(config.peft_type, "value", config.peft_type))
        if getattr(config, "is_prompt_learning", False):
            return f"its adapter `{name}` ({kind}) puts tokens of its own before each row"
        if kind not in ACTS_ON_EACH_TOKEN:
            return f"its adapter `{name}` ({kind}) is not known to treat each token by itself"
        if getattr(config, "alora_invocation_tokens", None):
            return f"its adapter `{name}` (activated LoRA) begins at a place in each row"
    return None


def _bypassed(model: Any, base: Any) -> str | None:
    """Packed execution enters at the decoder, so that what hangs on the model around it would silently not run."""
    if hasattr(model, "_orig_mod") or model._compiled_call_impl is not None or base._compiled_call_impl is not None:
        return (
            "it is compiled as a whole (torch.compile) and packed execution enters at its decoder: compile its layers"
        )
    around = (model, model.base_model, base) if hasattr(model, "peft_config") else (model,)
    for module in around:
        if module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks:
            return (
                f"a hook on {type(module).__name__} would not be called, since packed execution enters at the decoder"
            )
    return None


def _layers(decoder: nn.Module) -> str | None:
    config: Any = decoder.config
    other = sorted(set(getattr(config, "layer_types", None) or ()) - _ATTENTION_LAYERS)
    if other:
        return f"it has layers of the kind {', '.join(other)}, which would carry one document into the next"
    for module in decoder.modules():
        name = type(module).__name__
        if isinstance(module, nn.Conv1d) or _STATEFUL.search(name):
            return f"{name} mixes neighbouring tokens outside of attention and would carry one document into the next"
    return None


def _rotary(decoder: nn.Module, longest: int) -> str | None:
    """Frequencies that follow the longest document of a forward pass would make one document's depend on another."""
    for module in decoder.modules():
        for kind, limit in _stretched(module):
            if longest > limit:
                return (
                    f"its rotary embedding ({kind}) follows the longest document of a forward pass once that is beyond"
                    f" {limit} tokens, and documents here reach {longest}"
                )
    return None


def _stretched(module: Any) -> Iterator[tuple[str, int]]:
    """Kinds of rotary embeddings of `module` that follow the length, and up to which length they do not."""
    kinds = getattr(module, "rope_type", None)
    if kinds is None:
        return
    parameters: Any = getattr(module.config, "rope_parameters", None) or {}
    for layer, kind in kinds.items() if isinstance(kinds, dict) else [(None, kinds)]:
        own = parameters if layer is None else parameters.get(layer) or {}
        if kind == "longrope":
            yield kind, int(own.get("original_max_position_embeddings", 0))
        elif isinstance(kind, str) and "dynamic" in kind:
            yield kind, int(getattr(module, "original_max_seq_len", 0))


def _checkpointing(model: Any, decoder: nn.Module) -> str | None:
    """transformers' own checkpointed layers keep keywords for their recomputation; older code passes positions only."""
    from transformers.modeling_layers import GradientCheckpointingLayer

    renamed = hasattr(model, "activation_checkpointing_enable")
    on = getattr(model, "is_activation_checkpointing" if renamed else "is_gradient_checkpointing", False)
    if on and not any(isinstance(m, GradientCheckpointingLayer) for m in decoder.modules()):
        return "its gradient checkpointing does not hand the boundaries of documents to the recomputation"
    return None

"""Packed attention by PyTorch's own copy of FlashAttention-2."""

from dynotune.speedups.attention import AttentionBackend
from dynotune.speedups.registry import register


@register
class AttentionVarlen(AttentionBackend):
    name = "attention_varlen"
    summary = "Attends within all documents of a micro-batch in one call of PyTorch's FlashAttention-2."
    backend = "varlen"
    implementation = "flash_attention_2"

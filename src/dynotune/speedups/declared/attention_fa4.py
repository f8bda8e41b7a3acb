"""Packed attention by FlashAttention-4."""

from dynotune.speedups.attention import AttentionBackend
from dynotune.speedups.registry import register


@register
class AttentionFa4(AttentionBackend):
    name = "attention_fa4"
    summary = "Attends within all documents of a micro-batch in one call of FlashAttention-4, for Hopper and Blackwell."
    backend = "fa4"
    implementation = "flash_attention_4"
    package = "flash-attn 4"

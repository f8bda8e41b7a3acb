"""Packed attention by FlexAttention."""

from dynotune.speedups.attention import AttentionBackend
from dynotune.speedups.registry import register


@register
class AttentionFlex(AttentionBackend):
    name = "attention_flex"
    summary = "Attends within all documents of a micro-batch by FlexAttention, compiled for each token count."
    backend = "flex"
    implementation = "flex_attention"
    package = "flex attention"
    also = ("triton",)

"""Packed attention: documents lie side by side in one row and each sees itself alone."""

from dynotune.model.attention.decoder import hidden_states, text_decoder
from dynotune.model.attention.examination import Examination, examine, why_not_packed, why_not_shared
from dynotune.model.attention.install import PackedAttention, packed_attention, stock_attention

__all__ = [
    "Examination",
    "PackedAttention",
    "examine",
    "hidden_states",
    "packed_attention",
    "stock_attention",
    "text_decoder",
    "why_not_packed",
    "why_not_shared",
]

"""What others published of comparable work. Quoted, not measured here: other hardware, other documents, other counts."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Quote:
    """tokens: a second and GPU, as the source counts them."""

    who: str
    work: str
    hardware: str
    tokens: int


QUOTES = (
    Quote("NeMo Automodel", "Qwen2.5-7B, LoRA r=16, full mock rows of 4,096", "1 x H100", 14_110),
    Quote("NeMo 24.12, FP8", "Llama-2-7B, LoRA, packed 4,096", "8 x H100", 24_824),
)
"""From the baseline that this project began with, which read their published tables."""

"""What is quoted and not measured beside ours: figures that others published, and rows of this project's first measurements.

Neither is a comparison: hardware, documents, counts, adapters or the run are others, and each quote says which.
"""

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


@dataclass(frozen=True)
class Earlier:
    """A row of the baseline: the same shape on an H200, measured in another run. ms: of a step. tokens: real ones a second.

    row: the name of the row in `rows.py` whose arms of peers it is another way of; empty where none does that work.
    """

    who: str
    work: str
    ms: int
    tokens: int
    row: str = ""


BASELINE = "2026-11-20, the same 7B shape on one H200, unsloth 2026.10.9 and TRL 1.16.0 under torch 2.11.0"

EARLIER = (
    Earlier("TRL", "fa2 without Liger", 155, 1_627, row="2-documents"),
    Earlier("Unsloth", "full rows of 4 x 4,096, no packing (LoRA r=16)", 1_000, 16_392),
    Earlier("Unsloth", "16 rows of 129 tokens, equal lengths, no padding (r=32)", 133, 15_470),
    Earlier("Unsloth", "2 rows of 129 tokens, equal lengths, no padding (r=32)", 91, 2_835),
)
"""Measured for the baseline that this project began with, on other documents than ours."""

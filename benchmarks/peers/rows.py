"""The rows: a work that a step does, and the arms that do it, ours and others'.

What a step holds is the same for all arms of a row: the documents of the probe that made the baseline (random words of
lognormal length, seed 0), or a data set, in their order. How it is executed is the arm's own. `trl default` sets nothing
that TRL does not need to be told: SDPA, checkpointing, padding. A `trl tuned` arm is the best that was found by hand.
An `unsloth` arm runs where Unsloth is installed; we have not measured one here.

Seconds are those of a whole process on an H200, start and set-up included: estimates from what was measured, as `--list`
says. A row is to fit one call of 300 s: it goes on arm by arm, but arms are compared within one start of a machine.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ADAPTED = ("qwen2.5-7b", "llama-3.1-8b")
"""Shapes that are trained by LoRA; the others in full."""

CALL_SECONDS = 300
"""For a whole row: half of what one call on a lent GPU may take, so that a slow host fits, too."""


@dataclass(frozen=True)
class Arm:
    """A way of doing a row's work. settings: over the row's; `attn` and `weights` are the model's, others the trainer's."""

    seconds: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""
    """In which the arm does something else than the others."""


@dataclass(frozen=True)
class Row:
    """holds: a step, in the README's words. content: settings that all arms share, since they decide what a step holds."""

    holds: str
    shape: str
    documents: str
    content: Mapping[str, Any]
    arms: Mapping[str, Arm]
    window: int
    """Steps."""
    windows: int
    """That count."""
    warm_up: int = 1
    """Windows that do not: kernels are compiled, the allocator fills, and one step of ours is traced."""

    epoch: int = 4000
    """Documents of the probe: more where the steps take more. Their words are others then, their lengths the same."""

    @property
    def steps(self) -> int:
        return self.window * (self.warm_up + self.windows)

    @property
    def pairs(self) -> bool:
        """Whether it is preference training."""
        return self.documents in ("probe-pairs", "preference-mix")

    @property
    def lora(self) -> bool:
        return self.shape in ADAPTED

    @property
    def seconds(self) -> int:
        return sum(arm.seconds for arm in self.arms.values())


def who(arm: str) -> str:
    """Whose arm it is, by its name: `dynotune`, `trl`, `unsloth`."""
    return arm.replace(":", " ").replace(",", " ").split()[0]


FA2 = {"attn": "flash_attention_2", "gradient_checkpointing": False}
LIGER = {**FA2, "use_liger_kernel": True}
FREE = {**LIGER, "padding_free": True, "max_length": None}
"""Padding-free; TRL's would cut documents by `max_length` in another way."""

FIRST = {"precompute_ref_log_probs": True}
"""The reference computed before the first step, as ours is."""

BF16 = "weights in bfloat16 without float32 masters: at small learning rates most of them never move"
OURS = {"gradient_checkpointing": False}
GRAPHS, REPLAYED = "dynotune, with `speedups: {step_graphs: on}`", {**OURS, "speedups": {"step_graphs": "on"}}


def _batch(size: int, **more: Any) -> dict[str, Any]:
    return {"max_length": 2048, "per_device_train_batch_size": size, **more}


def _unsloth(seconds: int) -> dict[str, Arm]:
    """Seconds are a guess: its steps of the baseline, 22 s of compiling, and 15 GB that are written and read again."""
    return {"unsloth": Arm(seconds, {"gradient_checkpointing": False})}


def _full(ours: int, default: int, tuned: int, low: int, replayed: int = 0) -> dict[str, Arm]:
    """Arms of full training: TRL with float32 weights, as ours, and as the baseline had it."""
    wide = {"weights": "float32"}
    return {
        "dynotune": Arm(ours, {**OURS, **wide}),
        **({GRAPHS: Arm(replayed, {**REPLAYED, **wide})} if replayed else {}),
        "trl default": Arm(default, {"weights": "float32"}),
        "trl tuned: fa2 + Liger": Arm(tuned, {**LIGER, "weights": "float32"}),
        "trl tuned: fa2 + Liger, bfloat16 weights": Arm(low, LIGER, BF16),
    }


def _pairs(size: int, ours: int, default: int, tuned: int) -> dict[str, Arm]:
    name = f"trl tuned: fa2 + Liger, {size} at once"
    return {
        "dynotune": Arm(ours, OURS),
        "trl default": Arm(default),
        name: Arm(tuned, {**LIGER, **FIRST}),
    }


EIGHTS = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 4}
"""TRL's batches of 32 pairs do not fit without checkpointing."""
PAIRS_32 = {"max_length": 4096, "per_device_train_batch_size": 32}

ROWS: dict[str, Row] = {
    "packed-8k": Row(
        "8,192 packed tokens (TRL's `packing`: 4 x 2,048)", "qwen2.5-7b", "probe", _batch(4, packing=True),
        {
            "dynotune": Arm(28, OURS),
            "trl default": Arm(41),
            "trl tuned: fa2 + Liger": Arm(31, LIGER),
            "trl tuned: fa2 + Liger, checkpointing": Arm(35, {**LIGER, "gradient_checkpointing": True}),
            **_unsloth(80),
        },
        window=4, windows=3,
    ),
    "packed-16k": Row(
        "16,384 packed tokens (TRL's `packing`: 8 x 2,048)", "qwen2.5-7b", "probe", _batch(8, packing=True),
        {
            "dynotune": Arm(32, OURS),
            "trl default": Arm(75),
            "trl tuned: fa2 + Liger": Arm(41, LIGER),
            **_unsloth(90),
        },
        window=4, windows=3,
    ),
    "llama-8b-16k": Row(
        "Llama-3.1-8B's shape, 16,384 packed tokens (8 x 2,048)", "llama-3.1-8b", "probe", _batch(8, packing=True),
        {"dynotune": Arm(36, OURS), "trl default": Arm(80), "trl tuned: fa2 + Liger": Arm(46, LIGER)},
        window=4, windows=3,
    ),
    "2-documents": Row(
        "2 documents", "qwen2.5-7b", "probe", _batch(2),
        {
            "dynotune": Arm(30, OURS),
            GRAPHS: Arm(40, REPLAYED),
            "trl default": Arm(60),
            "trl tuned: fa2 + Liger, padding-free": Arm(50, FREE),
            **_unsloth(85),
        },
        window=10, windows=3, warm_up=8,
    ),
    "16-documents": Row(
        "16 documents", "qwen2.5-7b", "probe", _batch(16),
        {
            "dynotune": Arm(30, OURS),
            GRAPHS: Arm(35, REPLAYED),
            "trl default": Arm(60),
            "trl tuned: fa2 + Liger, padding-free": Arm(38, FREE),
            **_unsloth(85),
        },
        window=10, windows=3, warm_up=5,
    ),
    "2-of-129": Row(
        "2 documents of 129 tokens each", "qwen2.5-7b", "probe-129", _batch(2),
        {
            "dynotune": Arm(30, OURS),
            GRAPHS: Arm(30, REPLAYED),
            "trl default": Arm(60),
            "trl tuned: fa2 + Liger, padding-free": Arm(50, FREE),
            **_unsloth(85),
        },
        window=10, windows=3, warm_up=8,
    ),
    "16-of-129": Row(
        "16 documents of 129 tokens each", "qwen2.5-7b", "probe-129", _batch(16),
        {
            "dynotune": Arm(25, OURS),
            GRAPHS: Arm(30, REPLAYED),
            "trl default": Arm(60),
            "trl tuned: fa2 + Liger, padding-free": Arm(38, FREE),
            **_unsloth(85),
        },
        window=10, windows=3, warm_up=5,
    ),
    "sft-mix": Row(
        "64 conversations of `sft_mix`", "qwen2.5-7b", "sft-mix",
        {"max_length": 12288, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 8},
        {
            "dynotune": Arm(30, OURS),
            "trl default": Arm(60),
            "trl tuned: fa2 + Liger, 64 padding-free": Arm(
                32, {**FREE, "per_device_train_batch_size": 64, "gradient_accumulation_steps": 1}
            ),
        },
        window=2, windows=3,
    ),
    "0.5b-full": Row(
        "0.5B in full, 32,768 packed tokens (16 x 2,048)", "qwen2.5-0.5b", "probe", _batch(16, packing=True),
        _full(ours=30, default=48, tuned=34, low=30), window=5, windows=3, warm_up=2, epoch=7000,
    ),
    "23m-full-32": Row(
        "23M in full, 32,768 packed tokens (32 x 1,024)", "23m", "probe", _batch(32, packing=True, max_length=1024),
        _full(ours=20, default=60, tuned=22, low=22, replayed=24), window=10, windows=3, warm_up=6, epoch=24_000,
    ),
    "23m-full-8": Row(
        "23M in full, 8,192 packed tokens (8 x 1,024)", "23m", "probe", _batch(8, packing=True, max_length=1024),
        _full(ours=20, default=30, tuned=20, low=20, replayed=24), window=20, windows=3, warm_up=6, epoch=12_000,
    ),
    "dpo-2": Row(
        "2 pairs of the probe", "qwen2.5-7b", "probe-pairs", {"max_length": 4096, "per_device_train_batch_size": 2},
        _pairs(2, ours=30, default=37, tuned=40), window=10, windows=2,
    ),
    "dpo-8": Row(
        "8 pairs of the probe", "qwen2.5-7b", "probe-pairs", {"max_length": 4096, "per_device_train_batch_size": 8},
        _pairs(8, ours=33, default=34, tuned=42), window=2, windows=3, warm_up=2,
    ),
    "dpo-16": Row(
        "16 pairs of the probe", "qwen2.5-7b", "probe-pairs", {"max_length": 4096, "per_device_train_batch_size": 16},
        _pairs(16, ours=33, default=37, tuned=50), window=1, windows=3, warm_up=3,
    ),
    "dpo-32": Row(
        "32 pairs of the probe", "qwen2.5-7b", "probe-pairs", PAIRS_32,
        {
            "dynotune": Arm(34, OURS),
            "dynotune, within 45 GiB: `micro_batch_tokens: 6272`": Arm(34, {**OURS, "micro_batch_tokens": 6272}),
            "trl default": Arm(75),
            "trl tuned: fa2 + Liger, 4 x 8": Arm(64, {**LIGER, **FIRST, **EIGHTS}),
        },
        window=1, windows=3, warm_up=3,
    ),
    "dpo-mix": Row(
        "32 pairs of `preference_mix`", "qwen2.5-7b", "preference-mix", PAIRS_32,
        {
            "dynotune": Arm(40, OURS),
            "trl default": Arm(90),
            "trl tuned: fa2 + Liger, 4 x 8 padding-free, checkpointing": Arm(
                90, {**LIGER, **FIRST, **EIGHTS, "padding_free": True, "gradient_checkpointing": True}
            ),
        },
        window=1, windows=3, warm_up=3,
    ),
}  # fmt: skip

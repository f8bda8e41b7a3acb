"""The configuration by which a probe runs an arm: the arm's own, without what draws at random or leaves something behind."""

from pathlib import Path
from typing import Any

from dynotune.bench.parity.question import Question
from dynotune.config.whole import WholeConfig
from dynotune.speedups.contract import Context
from dynotune.speedups.registry import speedups, switches
from dynotune.train.quiet import QUIET

LEARNING_RATE = 1e-3
"""Of the configured optimizer: updates by a smaller one would be lost in the rounding of the weights."""

FLASH = "flash"
"""In the name of every attention of transformers that has no float32."""

PLAIN: dict[str, Any] = {
    "packed_execution": "off",
    "padding_free": False,
    "use_liger_kernel": False,
    "liger_kernel_config": {},
    "torch_compile": False,
    "torch_compile_backend": None,
    "torch_compile_mode": None,
    "activation_offloading": False,
    "activation_memory": "none",
    "activation_memory_budget": None,
    "gradient_checkpointing": None,
    "gradient_checkpointing_kwargs": {},
}
"""No speed-up; each of them is switched off by name, too."""


def probed(config: WholeConfig, question: Question, folder: Path) -> WholeConfig:
    """`config` for this question. folder: for the files of a run."""
    changes: dict[str, Any] = {
        **QUIET,
        "output_dir": str(folder),
        "overwrite_output_dir": True,
        "gpus": None,
        "max_steps": 1,
        "neftune_noise_alpha": None,
        "on_nonfinite_step": "stop",
        "learning_rate": LEARNING_RATE,
        "lr_scheduler_type": "constant",
        "lr_scheduler_kwargs": {},
        "warmup_steps": 0,
    }
    if config.use_peft:
        changes["lora_dropout"] = 0.0
    if question.precision == "float32":
        changes |= {"dtype": "float32", "bf16": False, "tf32": False}
        if FLASH in (config.attn_implementation or ""):
            changes["attn_implementation"] = "sdpa"
    if question.plain:
        changes |= PLAIN | {"speedups": dict.fromkeys(switches(), "off")}
    changes = {key: value for key, value in changes.items() if changes_something(config, key, value)}
    return config.replace(**changes)


def changes_something(config: WholeConfig, key: str, value: Any) -> bool:
    """Whether the method has this key with another value: a key that is merely repeated counts as given, and a check of
    keys that contradict each other would hear of it."""
    has = key in type(config).model_fields and key not in config.method.without
    return has and getattr(config, key) != value


def without_impossible(config: WholeConfig, context: Context) -> tuple[WholeConfig, dict[str, str]]:
    """`config` without speed-ups that are `on` and cannot be in `context`, and why not, by name.

    In float32 there is no place for kernels that are made for bfloat16; they are compared in their own precision instead.
    """
    out: dict[str, str] = {}
    for name, one in speedups().items():
        asked = config.speedups.get(name) or (one.asked(config) or ("auto",))[0]
        no = one.applicable(context) if asked == "on" else None
        if no is not None:
            out[name] = no.reason
    if not out:
        return config, out
    return config.replace(speedups={**config.speedups, **dict.fromkeys(out, "off")}), out

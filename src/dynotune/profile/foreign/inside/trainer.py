"""What a Trainer of transformers tells: its arguments, and when it logs, evaluates and saves, by a callback."""

from collections.abc import Callable
from typing import Any

TOLD = (
    "per_device_train_batch_size", "gradient_accumulation_steps", "bf16", "fp16", "tf32", "optim", "torch_compile",
    "gradient_checkpointing", "dataloader_num_workers", "dataloader_pin_memory", "dataloader_prefetch_factor",
    "group_by_length", "train_sampling_strategy", "logging_steps", "eval_steps", "save_steps", "max_steps",
    "use_liger_kernel", "packing", "packing_strategy", "padding_free", "max_length", "assistant_only_loss",
)  # fmt: skip
"""Of its arguments, those that bear on speed."""


class Happenings:
    """A callback. Not of transformers' class, which would have to be imported: it only has to answer to every event."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say

    def on_log(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.say("log")

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.say("evaluate")

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.say("save")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("on_"):
            return _nothing
        raise AttributeError(name)


def _nothing(*args: Any, **kwargs: Any) -> None:
    return None


def arguments(trainer: Any | None) -> dict[str, Any]:
    """Plain values of `TOLD`."""
    args = getattr(trainer, "args", None)
    found = {name: getattr(args, name, None) for name in TOLD}
    return {
        name: getattr(value, "value", value)
        for name, value in found.items()
        if isinstance(getattr(value, "value", value), str | int | float | bool)
    }


def whose(trainer: Any | None) -> str:
    """`trl`, `transformers` or `torch`: whose loop this is."""
    if trainer is None:
        return "torch"
    return "trl" if any(kind.__module__.startswith("trl.") for kind in type(trainer).__mro__) else "transformers"


def method(trainer: Any | None) -> str:
    """`sft`, `dpo` and so on, of TRL's trainers; else `training`."""
    names = (kind.__name__ for kind in type(trainer).__mro__ if kind.__module__.startswith("trl."))
    known = next((name for name in names if name.endswith("Trainer") and not name.startswith("_")), "")
    return known.removesuffix("Trainer").lower() or "training"


def steps_in_all(trainer: Any | None) -> int | None:
    """That the script will take; None where it is not known."""
    total = getattr(getattr(trainer, "state", None), "max_steps", None)
    return total if isinstance(total, int) and total > 0 else None

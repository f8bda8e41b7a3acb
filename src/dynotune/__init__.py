"""Dynotune fine-tunes language models at the speed of the hardware, without changing what is learned."""

import importlib
from typing import TYPE_CHECKING, Any

from dynotune._version import __version__
from dynotune.errors import ConfigError, DataError, DynotuneError, Interrupted, ModelError, TemplateError, TrainingError

if TYPE_CHECKING:
    from dynotune.config.dpo import DPOConfig
    from dynotune.config.load import load_config
    from dynotune.config.sft import SFTConfig
    from dynotune.train.dpo import train_dpo
    from dynotune.train.flow import RunResult
    from dynotune.train.sft import train_sft

# PyTorch and transformers take seconds to import, so what needs them is imported when it is first used.
_LAZY = {
    "DPOConfig": "dynotune.config.dpo",
    "SFTConfig": "dynotune.config.sft",
    "load_config": "dynotune.config.load",
    "train_dpo": "dynotune.train.dpo",
    "train_sft": "dynotune.train.sft",
    "RunResult": "dynotune.train.flow",
}

__all__ = [
    "ConfigError",
    "DPOConfig",
    "DataError",
    "DynotuneError",
    "Interrupted",
    "ModelError",
    "RunResult",
    "SFTConfig",
    "TemplateError",
    "TrainingError",
    "__version__",
    "load_config",
    "train_dpo",
    "train_sft",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)

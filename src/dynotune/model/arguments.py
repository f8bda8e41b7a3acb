"""What transformers or PyTorch would refuse once a model is loaded, tried without one: a plan says it as the run does."""

from collections.abc import Mapping
from typing import Any

from dynotune.config.whole import WholeConfig
from dynotune.errors import ConfigError
from dynotune.printable import printable


def check_arguments(config: WholeConfig) -> list[str]:
    """Raise `ConfigError` for what no machine could run. Returns what this one could not, as notes."""
    if config.gradient_checkpointing:
        check_checkpointing(config.gradient_checkpointing_kwargs)
    return _attention(config.attn_implementation)


def check_checkpointing(kwargs: Mapping[str, Any]) -> None:
    """Raise `ConfigError` where `torch.utils.checkpoint` does not know an argument of `gradient_checkpointing_kwargs`."""
    import torch
    from torch.utils.checkpoint import checkpoint

    try:
        checkpoint(torch.clone, torch.zeros(1), **{"use_reentrant": False, **kwargs})
    except (TypeError, ValueError) as error:
        raise ConfigError(f"`gradient_checkpointing_kwargs: {dict(kwargs)}`: {error}") from error


def _attention(asked: str | None) -> list[str]:
    if asked is None:
        return []
    from transformers import AttentionInterface
    from transformers.utils.import_utils import is_kernels_available

    if "/" in asked:  # a repository of compiled kernels, which the run would fetch: nothing is fetched here
        if is_kernels_available():
            return []
        return [
            f"`attn_implementation: {printable(asked)}` needs the package `kernels`, which is not installed or has another"
            " version than transformers wants: a run here would stop"
        ]
    known = sorted({"eager", *AttentionInterface().valid_keys()})
    if asked not in known:
        raise ConfigError(
            f"`attn_implementation: {printable(asked)}`: transformers has no such attention. There are: {', '.join(known)}."
        )
    return []

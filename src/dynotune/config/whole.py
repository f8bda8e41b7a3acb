"""A whole configuration, whatever is minimised: for code that needs several topics and no method's own."""

from dynotune.config.dpo import DPOConfig
from dynotune.config.sft import SFTConfig

WholeConfig = SFTConfig | DPOConfig

METHODS: dict[str, type[WholeConfig]] = {one.method.command: one for one in (SFTConfig, DPOConfig)}
"""By the command that trains by it."""

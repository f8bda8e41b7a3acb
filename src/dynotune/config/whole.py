"""A whole configuration, whatever is minimised: for code that needs several topics and no method's own."""

from dynotune.config.dpo import DPOConfig
from dynotune.config.sft import SFTConfig

WholeConfig = SFTConfig | DPOConfig

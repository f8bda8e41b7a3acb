"""The recipe of a configuration, by its method."""

from dynotune.config.dpo import DPOConfig
from dynotune.config.whole import WholeConfig
from dynotune.train.dpo import DPORecipe
from dynotune.train.sft import SFTRecipe
from dynotune.train.start.recipe import Recipe


def recipe_of(config: WholeConfig) -> Recipe:
    """How what `config` asks for is trained."""
    return DPORecipe(config) if isinstance(config, DPOConfig) else SFTRecipe(config)

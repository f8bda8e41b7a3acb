"""The whole configuration of preference optimisation: SFT's topics, with the losses of pairs and the reference."""

from typing import ClassVar

from pydantic import Field

from dynotune.config.checking.checked import CheckedConfig
from dynotune.config.checking.combinations import OF_ALL
from dynotune.config.checking.preference import groups, preference
from dynotune.config.fates.dpo import DPO_ALIASES, REFUSED_IN_DPO, dpo_loss
from dynotune.config.fates.table import DPO_FATES
from dynotune.config.keys.adapter import AdapterConfig
from dynotune.config.keys.batch import BatchConfig
from dynotune.config.keys.data import DataConfig, PreferenceDataConfig
from dynotune.config.keys.evaluation import EvaluationConfig
from dynotune.config.keys.logging import LoggingConfig
from dynotune.config.keys.model import ModelConfig
from dynotune.config.keys.optimizer import OptimizerConfig
from dynotune.config.keys.preference import PreferenceConfig
from dynotune.config.keys.reference import ReferenceConfig
from dynotune.config.keys.run import RunConfig
from dynotune.config.keys.saving import SavingConfig
from dynotune.config.keys.speedups import SpeedupsConfig
from dynotune.config.method import Method

DPO = Method(
    "dpo",
    DPO_FATES,
    (*OF_ALL, preference, groups),
    rules={"loss_type": dpo_loss},
    aliases=DPO_ALIASES,
    without=frozenset(REFUSED_IN_DPO) & {*BatchConfig.model_fields, *DataConfig.model_fields},
)


class DPOConfig(
    RunConfig,
    ModelConfig,
    AdapterConfig,
    PreferenceDataConfig,
    PreferenceConfig,
    ReferenceConfig,
    BatchConfig,
    SpeedupsConfig,
    OptimizerConfig,
    LoggingConfig,
    EvaluationConfig,
    SavingConfig,
    CheckedConfig,
):
    """Configuration of a DPO run, with TRL's names and defaults.

    An example is a pair: `per_device_train_batch_size` and the others count pairs, as in TRL.
    """

    method: ClassVar[Method] = DPO

    learning_rate: float = Field(default=1e-6, ge=0)
    """Peak learning rate."""

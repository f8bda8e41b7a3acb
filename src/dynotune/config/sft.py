"""The whole configuration of supervised fine-tuning: every topic, flat, with TRL's names."""

from typing import ClassVar

from dynotune.config.checking.checked import CheckedConfig
from dynotune.config.checking.combinations import OF_ALL, OF_SFT
from dynotune.config.fates.table import SFT_FATES
from dynotune.config.keys.adapter import AdapterConfig
from dynotune.config.keys.batch import BatchConfig
from dynotune.config.keys.data import DataConfig
from dynotune.config.keys.evaluation import EvaluationConfig
from dynotune.config.keys.logging import LoggingConfig
from dynotune.config.keys.model import ModelConfig
from dynotune.config.keys.objective import SFTObjectiveConfig
from dynotune.config.keys.optimizer import OptimizerConfig
from dynotune.config.keys.run import RunConfig
from dynotune.config.keys.saving import SavingConfig
from dynotune.config.keys.speedups import SpeedupsConfig
from dynotune.config.method import Method
from dynotune.config.reading.values import sft_loss

SFT = Method("sft", SFT_FATES, (*OF_ALL, *OF_SFT), rules={"loss_type": sft_loss})


class SFTConfig(
    RunConfig,
    ModelConfig,
    AdapterConfig,
    DataConfig,
    SFTObjectiveConfig,
    BatchConfig,
    SpeedupsConfig,
    OptimizerConfig,
    LoggingConfig,
    EvaluationConfig,
    SavingConfig,
    CheckedConfig,
):
    """Configuration of `dynotune sft` and `train_sft`."""

    method: ClassVar[Method] = SFT

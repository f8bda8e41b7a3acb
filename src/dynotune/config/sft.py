"""The whole configuration of supervised fine-tuning: every topic, flat, with TRL's names."""

from dynotune.config.adapter import AdapterConfig
from dynotune.config.batch import BatchConfig
from dynotune.config.checked import CheckedConfig
from dynotune.config.data import DataConfig
from dynotune.config.evaluation import EvaluationConfig
from dynotune.config.logging import LoggingConfig
from dynotune.config.model import ModelConfig
from dynotune.config.objective import SFTObjectiveConfig
from dynotune.config.optimizer import OptimizerConfig
from dynotune.config.run import RunConfig
from dynotune.config.saving import SavingConfig


class SFTConfig(
    RunConfig,
    ModelConfig,
    AdapterConfig,
    DataConfig,
    SFTObjectiveConfig,
    BatchConfig,
    OptimizerConfig,
    LoggingConfig,
    EvaluationConfig,
    SavingConfig,
    CheckedConfig,
):
    """Configuration of `dynotune sft` and `train_sft`."""

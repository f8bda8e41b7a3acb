"""Promise: whatever a configuration asks a run to keep, send, evaluate or wait for, a bench of it can stand and does none of
it; what is trained stays."""

from pathlib import Path
from typing import Any

import pytest

from dynotune.bench.parity.question import Question
from dynotune.bench.parity.settings import probed
from dynotune.bench.parity.training import quiet as of_course
from dynotune.config.dpo import DPOConfig
from dynotune.config.sft import SFTConfig
from dynotune.config.whole import WholeConfig
from dynotune.train.quiet import quiet

EVALUATED: dict[str, Any] = {"eval_strategy": "steps", "eval_steps": 5, "test_split_size": 0.1}
BEST: dict[str, Any] = {**EVALUATED, "metric_for_best_model": "eval_loss"}
LOUD: dict[str, dict[str, Any]] = {
    "trackers": {"report_to": "wandb"},
    "hub": {"push_to_hub": True, "hub_model_id": "me/it", "hub_strategy": "every_save", "save_strategy": "epoch"},
    "best": {**BEST, "save_strategy": "steps", "save_steps": 5, "load_best_model_at_end": True},
    "kept when best": {**BEST, "save_strategy": "best"},
    "stopped early": {
        **BEST, "save_strategy": "steps", "save_steps": 5, "load_best_model_at_end": True, "early_stopping_patience": 3,
    },
    "plateau": {**EVALUATED, "lr_scheduler_type": "reduce_lr_on_plateau", "lr_scheduler_kwargs": {"factor": 0.5}},
    "samples": {**EVALUATED, "eval_on_start": True, "eval_samples": 4},
    "resumed": {"resume_from_checkpoint": "runs/old"},
    "limited": {"max_time": 600, "max_steps": 40},
    "not logged": {"logging_strategy": "no"},
}  # fmt: skip


@pytest.mark.parametrize("loud", LOUD.values(), ids=LOUD)
@pytest.mark.parametrize("method", [SFTConfig, DPOConfig])
def test_a_bench_of_it_stands_and_is_quiet(method: type[WholeConfig], loud: dict[str, Any]) -> None:
    config = method(model_name_or_path="model", dataset_name="rows.jsonl", **loud)
    for one in (
        quiet(config, Path("folder")),
        probed(config, Question("float32"), Path("folder")),
        of_course(config, Path("folder"), max_steps=60),
    ):
        assert (one.report_to, one.save_strategy, one.eval_strategy) == ("none", "no", "no")
        assert not any((one.push_to_hub, one.load_best_model_at_end, one.resume_from_checkpoint, one.max_time))
        assert one.test_split_size == config.test_split_size  # the same rows are trained


def test_a_schedule_that_needs_evaluations_keeps_its_warm_up() -> None:
    config = SFTConfig(lr_scheduler_type="reduce_lr_on_plateau", warmup_steps=7, **EVALUATED)
    found = quiet(config, Path("folder"))
    assert (found.lr_scheduler_type, found.warmup_steps) == ("constant_with_warmup", 7)

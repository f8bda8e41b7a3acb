"""One small run by the ordinary path, for tests that vary one thing."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from dynotune import SFTConfig, train_sft
from tests.tiny import chats, tiny_model, tiny_tokenizer

Runner = Callable[..., Any]


@pytest.fixture
def run_tiny(tmp_path: Path) -> Runner:
    """`run_tiny(settings..., model=, tokenizer=, rows=, callbacks=, ...)` trains a tiny model into `tmp_path/run`."""

    def go(
        *,
        model: Any = None,
        tokenizer: Any = None,
        rows: Any = None,
        eval_dataset: Any = None,
        callbacks: Any = (),
        console: Any = None,
        **settings: Any,
    ) -> Any:
        config = {
            "output_dir": str(tmp_path / "run"),
            "per_device_train_batch_size": 2,
            "max_steps": 6,
            "logging_steps": 1,
            "save_strategy": "no",
            "learning_rate": 1e-2,
            "use_cpu": True,
            **settings,
        }
        return train_sft(
            SFTConfig(**config),
            model=model if model is not None else tiny_model(),
            tokenizer=tokenizer or tiny_tokenizer(),
            train_dataset=rows if rows is not None else chats(12),
            eval_dataset=eval_dataset,
            callbacks=callbacks,
            console=console or Console(quiet=True),
        )

    return go

"""Promise: rows longer than the model has positions are said, or refused, before the first step; held-out ones too."""

from typing import Any

import pytest
from rich.console import Console

from dynotune.errors import ConfigError
from tests.tiny import tiny_model


def test_a_run_says_it_and_counts_held_out_rows(run_tiny: Any, capsys: Any) -> None:
    long = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "she sells " * 300}]}
    rows: dict[str, Any] = {"eval_dataset": [long], "eval_strategy": "no", "max_length": 1024, "max_steps": 1}
    run_tiny(console=Console(width=400), **rows)
    assert "and the model was made for 256 (`max_position_embeddings`)" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="positions and none behind them"):
        run_tiny(model=tiny_model("gpt2", n_positions=256), overwrite_output_dir=True, **rows)

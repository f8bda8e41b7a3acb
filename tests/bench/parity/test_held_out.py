"""Promise: rows that a configuration holds out, by a name or by a share, are evaluated once, behind P4's training."""

import io
import json
import math
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from dynotune.bench.parity import held_out as p4
from dynotune.bench.parity.question import HeldOut
from dynotune.errors import ConfigError
from dynotune.train.evaluate import Evaluator
from tests.bench.parity.arms import sft
from tests.tiny import chats


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("held-out")
    (place / "others.jsonl").write_text("".join(json.dumps(row) + "\n" for row in chats(6)))
    return place


@pytest.mark.parametrize("by", ["name", "names", "share"])
def test_held_out_rows_have_a_loss_behind_the_training(
    by: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the configuration asks of evaluations. Control: where P4 asks for none, rows by name are refused."""
    others = str(folder / "others.jsonl")
    held: dict[str, Any] = {
        "name": {"eval_dataset_name": others, "eval_strategy": "epoch"},
        "names": {"eval_dataset_name": {"a": others, "b": others}, "eval_on_start": True},
        "share": {"test_split_size": 0.2, "eval_strategy": "steps", "eval_steps": 1},
    }[by]
    evaluated, real = [], Evaluator.__call__
    monkeypatch.setattr(Evaluator, "__call__", lambda *given, **more: evaluated.append(1) or real(*given, **more))
    config = sft(folder, "a", **held).config
    asked = HeldOut("p4", seed=1, steps=2)
    facts = p4.held_out(config, asked, tmp_path, Console(file=io.StringIO())).facts
    assert (facts["steps"], facts["seed"], len(evaluated)) == (2, 1, 1)
    assert math.isfinite(facts["held_out"])
    if by != "share":
        monkeypatch.setattr(p4, "AFTERWARDS", {})
        with pytest.raises(ConfigError, match="`eval_dataset_name` needs evaluations"):
            p4.held_out(config, asked, tmp_path / "again", Console(file=io.StringIO()))

"""Promise: under TRL's `packing` every step has TRL's loss, however it is executed: the same bins, and in them the same
documents that see what they see in TRL."""

import copy
from pathlib import Path
from typing import Any

import pytest

from tests.parity.test_trl_sft import DEFAULTS, FORMATS, losses_of_ours, losses_of_trl, worst
from tests.tiny import chats, tiny_model

CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("llama", "messages", {"packing_strategy": "bfd", "max_length": 80}),
    (
        "qwen2",
        "messages, assistant only",
        {"packing_strategy": "bfd", "max_length": 24, "gradient_accumulation_steps": 2},
    ),
    ("llama", "messages", {"packing_strategy": "bfd_split", "max_length": 32, "shuffle_dataset": True}),
    ("qwen3", "messages", {"packing_strategy": "wrapped", "max_length": 48}),
    ("llama", "prompt/completion", {"packing_strategy": "wrapped", "max_length": 40, "shuffle_dataset": True}),
]


@pytest.mark.parametrize("execution", ["on", pytest.param("off", marks=pytest.mark.long)])
@pytest.mark.parametrize(("kind", "form", "settings"), CASES)
def test_every_step_has_trls_loss(
    kind: str, form: str, settings: dict[str, Any], execution: str, tmp_path: Path
) -> None:
    make, more = FORMATS[form]
    settings = {**DEFAULTS, **more, **settings, "packing": True}
    rows, model = make(40), tiny_model(kind)
    theirs = losses_of_trl(copy.deepcopy(model), copy.deepcopy(rows), tmp_path, **settings)
    ours = losses_of_ours(copy.deepcopy(model), rows, tmp_path, **settings, packed_execution=execution)
    assert worst(ours, theirs, "loss") < 1e-5
    assert worst(ours, theirs, "grad_norm") < 1e-3
    assert [row["epoch"] for row in ours] == pytest.approx([row["epoch"] for row in theirs], abs=1e-4)


def test_another_strategy_is_another_run(tmp_path: Path) -> None:
    """Negative control: strategies differ, and not packing at all differs from each."""
    settings = {**DEFAULTS, "max_length": 48}
    model, rows = tiny_model(), chats(40)
    theirs = losses_of_trl(
        copy.deepcopy(model), copy.deepcopy(rows), tmp_path, packing=True, packing_strategy="wrapped", **settings
    )
    for i, other in enumerate(({"packing": True, "packing_strategy": "bfd_split"}, {"packing": True}, {})):
        ours = losses_of_ours(copy.deepcopy(model), rows, tmp_path / str(i), **settings, **other)
        assert worst(ours, theirs, "loss") > 1e-3

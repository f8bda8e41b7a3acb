"""Promise: `eval_packing` packs held-out data with TRL's meaning: the loss changes only by what packing cuts or mixes."""

from typing import Any

import pytest

from tests.tiny import chats

HELD_OUT = chats(11, seed=3)


def evaluated(run_tiny: Any, **settings: Any) -> dict[str, Any]:
    """The evaluation before the first step, under a `max_length` that cuts some rows."""
    result = run_tiny(
        eval_dataset=HELD_OUT, eval_on_start=True, eval_strategy="steps", eval_steps=6, max_steps=1, max_length=48,
        per_device_train_batch_size=1, overwrite_output_dir=True, **settings,
    )  # fmt: skip
    return next(row for row in result.metrics if row["step"] == 0)


def test_it_follows_packing_unless_it_is_given(run_tiny: Any) -> None:
    alone = evaluated(run_tiny)["eval_loss"]
    for settings in ({"eval_packing": False, "packing_strategy": "wrapped"}, {"packing_strategy": "bfd"}):
        assert evaluated(run_tiny, packing=True, **settings)["eval_loss"] == pytest.approx(alone, rel=1e-6)
    mixed = evaluated(run_tiny, packing=True, packing_strategy="wrapped")["eval_loss"]
    given = evaluated(run_tiny, packing=True, packing_strategy="wrapped", eval_packing=True)["eval_loss"]
    assert mixed == given != pytest.approx(alone, rel=1e-4)


def test_alone_it_packs_the_held_out_data_and_no_step(run_tiny: Any) -> None:
    alone = evaluated(run_tiny)["eval_loss"]
    split = evaluated(run_tiny, eval_packing=True, packing_strategy="bfd_split")["eval_loss"]
    assert split != pytest.approx(alone, rel=1e-4)  # what `max_length` cut is evaluated too
    assert evaluated(run_tiny, eval_packing=True)["eval_loss"] == pytest.approx(alone, rel=1e-6)

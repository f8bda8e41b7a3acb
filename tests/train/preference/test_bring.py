"""Promise: before its first step a run has the reference of every pair it meets, and has seen that its policy agrees."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.reference.pairs import many
from tests.tiny import tiny_model
from tests.train.preference.beginnings import adapted, beginning, one_by_one

PAIRS = many(14, longest=9)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DYNOTUNE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "reference"


@pytest.mark.parametrize("make", [tiny_model, adapted])
def test_every_pair_gets_the_start_models_log_probabilities(make: Any) -> None:
    model = make()
    with beginning(model, PAIRS, held_out={"eval": many(5, seed=3)}) as run:
        said = run.bring()
        found, held = run.items.reference_PC, run.start.material.held_out["eval"].items.reference_PC
    assert np.abs(found / one_by_one(model, PAIRS, range(14)) - 1).max() < 1e-6
    assert np.abs(held / one_by_one(model, many(5, seed=3), range(5)) - 1).max() < 1e-6
    assert any(line.startswith("reference: made anew: first time; 14 of 14 pairs computed in") for line in said)
    assert any(line.startswith("reference of eval: made anew") for line in said)
    assert said[-1].startswith("step 0: log-ratios of 4 pairs are within")

"""Promise (P1): several ranks give the loss, gradient, metrics and weights of one, with uneven documents and without any.

fp32 on the CPU, gloo, dropout 0. Bounds are the design's: loss 1e-5, gradient 1e-4 in relative L2.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.parallel import work
from tests.parallel.processes import on_ranks

STEPS = 5
"""Of 13 rows in steps of three: the last one holds one, so that most ranks have no document."""


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("alone")
    assert "RANK" not in os.environ
    work.variants(folder, list(work.VARIANTS))
    return folder


def rows_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def distance(run: Path, other: Path, file: str) -> float:
    """Relative L2 between the tensors of two runs."""
    a, b = load_file(run / file), load_file(other / file)
    assert a.keys() == b.keys()
    flat_a, flat_b = (torch.cat([one[key].flatten() for key in sorted(one)]) for one in (a, b))
    assert flat_a.norm() > 0
    return float((flat_a - flat_b).norm() / flat_a.norm())


def names_of(row: dict[str, Any]) -> set[str]:
    """Without what is left out where it is nothing (time, what a machine cannot tell) and what only several ranks have."""
    return {name for name in row if name != "fill" and not name.startswith(("time/", "host/", "gpu/", "ranks/"))}


def assert_same(run: Path, other: Path) -> None:
    ours, theirs = rows_of(run), rows_of(other)
    assert [row["step"] for row in ours] == [row["step"] for row in theirs]
    compared = 0
    for a, b in zip(ours, theirs, strict=True):
        assert names_of(a) == names_of(b)
        for key in ("loss", "eval_loss", "mean_token_accuracy", "entropy", "eval_entropy", "eval_mean_token_accuracy"):
            if key in a:
                assert a[key] == pytest.approx(b[key], rel=1e-5, abs=1e-7), (a["step"], key)
                compared += 1
        for key in ("num_tokens", "label_tokens", "learning_rate", "epoch"):
            assert a.get(key) == b.get(key)
        if "grad_norm" in a:
            assert a["grad_norm"] == pytest.approx(b["grad_norm"], rel=1e-4)
    assert compared > STEPS
    assert distance(run, other, "gradients.safetensors") < 1e-4
    assert distance(run, other, "weights.safetensors") < 1e-4


@pytest.mark.parametrize("world", [2, 4])
def test_loss_gradient_and_metrics_are_those_of_one_rank(alone: Path, tmp_path: Path, world: int) -> None:
    names = list(work.VARIANTS) if world == 2 else ["full, plain", "LoRA, packed", "several micro-batches"]
    on_ranks(world, work.variants, tmp_path, names, folder=tmp_path)
    for name in names:
        assert_same(alone / name, tmp_path / name)
        summary = json.loads((tmp_path / name / "summary.json").read_text())
        assert (summary["ranks"], summary["steps"]) == (world, STEPS)
        layout = json.loads((tmp_path / name / "plan.json").read_text())["layout"]
        assert layout["documents_lost"] == 0


@pytest.mark.parametrize("planted", [work.without_a_sum, work.over_its_own_tokens])
def test_a_planted_mistake_is_caught(alone: Path, tmp_path: Path, planted: Any) -> None:
    """Negative control: no sum over ranks; every rank over its own tokens."""
    on_ranks(2, planted, tmp_path, folder=tmp_path)
    with pytest.raises(AssertionError):
        assert_same(alone / "full, packed", tmp_path / "full, packed")
    assert distance(alone / "full, packed", tmp_path / "full, packed", "gradients.safetensors") > 1e-2

"""Promise: before its first step a run has the reference of every pair it meets, and has seen that its policy agrees."""

import io
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from dynotune.execution import pairs as pairs_module
from dynotune.train.preference import progress
from dynotune.train.preference.scoring import Scoring
from dynotune.train.start.recipe import Measured
from tests.execution.test_pairs import CPU
from tests.execution.test_shared_prompts import REPEATED
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


@pytest.mark.parametrize("execution", ["on", "off"])
def test_a_run_that_is_only_measured_computes_what_its_steps_need(execution: str) -> None:
    """And more when it takes more, of which the adapter, trained meanwhile, is no part."""
    model = adapted()
    asked = {"start": {"measured": Measured(1, goes_on=True)}, "packed_execution": execution, "max_steps": -1}
    with beginning(model, PAIRS, held_out={"eval": many(5, seed=3)}, **asked) as run:
        said = run.bring()
        assert any("4 of 4 pairs computed in" in line for line in said)
        assert not any(line.startswith("reference of eval") for line in said), "nothing is evaluated"
        first = run.start.execution.plan.step(1).rows
        known = np.isfinite(run.items.reference_PC).all(1)
        assert set(np.flatnonzero(known)) == set(first.tolist())
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if "lora_B" in name:
                    weight.normal_(generator=torch.Generator().manual_seed(3))
        before = run.items.reference_PC[first].copy()
        run.bringing.more(np.array([*first[:2], *range(9)]))
        found = run.items.reference_PC
        assert np.array_equal(found[first], before), "what was there is not computed again"
        expected = [*{*range(9), *first.tolist()}]
        assert np.isfinite(found).all(1).sum() == len(expected)
        assert np.abs(found[expected] / one_by_one(model, PAIRS, expected) - 1).max() < 1e-6
        some = torch.arange(9)[None]
        with torch.no_grad(), model.disable_adapter():
            without = model(some).logits
        assert (model(some).logits - without).abs().max() > 1e-3, "control: the adapter is another one by now"


def test_where_training_moves_the_reference_all_of_it_is_computed_before() -> None:
    """Full weights of a bench, which takes further steps; a profile's are known. Control: adapters."""
    for model, goes_on, count in ((tiny_model(), True, 14), (tiny_model(), False, 8), (adapted(), True, 8)):
        with beginning(model, PAIRS, start={"measured": Measured(2, goes_on=goes_on)}, max_steps=-1) as run:
            run.bring()
            assert np.isfinite(run.items.reference_PC).all(1).sum() == count


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"init_lora_weights": "olora"}, "TRL measures against these weights alone"),
        ({"bias": "lora_only"}, "TRL's reference moves with them"),
        ({"init_lora_weights": "gaussian"}, None),
    ],
    ids=str,
)
def test_where_trl_measures_against_another_reference_a_run_says_so(changes: dict[str, Any], words: str | None) -> None:
    with beginning(adapted(model=tiny_model(attention_bias=True), **changes), PAIRS) as run:
        said = run.bring()
    assert [line for line in said if "TRL" in line] == [line for line in said if words and words in line]
    assert bool(words) == any("TRL" in line for line in said)


@pytest.mark.parametrize("once", [True, False])
def test_the_plain_path_does_the_same(once: bool) -> None:
    model = adapted()
    with beginning(model, PAIRS, packed_execution="off", precompute_ref_log_probs=once, max_steps=-1) as run:
        said = run.bring()
        found = run.items.reference_PC
    assert said[-1].startswith("step 0: log-ratios of 4 pairs are within")
    if once:
        assert np.abs(found / one_by_one(model, PAIRS, range(14)) - 1).max() < 1e-6


def test_what_a_path_made_another_takes_after_a_check() -> None:
    for execution, expected in (("on", "made anew: first time"), ("off", "hit")):
        with beginning(tiny_model(), PAIRS, packed_execution=execution, max_steps=-1) as run:
            said = run.bring()
        assert said[0].rpartition("reference: ")[2].startswith(expected)
    assert "14 pairs were made with attention" in said[1]
    assert "so they are used" in said[1]


def test_progress_is_shown_where_it_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "BETWEEN", 0.0)
    monkeypatch.setattr("dynotune.train.preference.bring.BATCH_TOKENS", 1)
    said: list[str] = []
    with beginning(tiny_model(), PAIRS, tokens=64, max_steps=-1, start={"say": said.append}) as run:
        run.bring()
    lines = [line for line in said if "tokens are scored; about" in line]
    assert lines
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    terminal = Console(file=io.StringIO(), force_terminal=True)
    with beginning(tiny_model(seed=1), PAIRS, tokens=64, max_steps=-1, console=terminal) as run:
        run.bring()
    assert "reference" in terminal.file.getvalue()  # type: ignore[attr-defined]


def test_a_prompt_and_a_repeated_answer_are_scored_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """In any order of the pairs, and with losses that sort batches of them."""
    laid_out: list[int] = []
    right = pairs_module.lay_branches

    def watched(documents: Any, beginnings: Any, tokens: int) -> Any:
        laid = right(documents, beginnings, tokens)
        laid_out.append(sum(laid.lengths[: laid.sequences]))
        return laid

    monkeypatch.setattr(pairs_module, "lay_branches", watched)
    model, numbers = tiny_model(), np.array([4, 1, 3, 0, 2])
    with beginning(model, REPEATED, loss_type=["aot"], per_device_train_batch_size=2) as run:
        scoring = Scoring(run.path, run.start.execution.site, run.start.execution.plan.ladder, CPU, 2)
        found = scoring.of(run.items, run.start.execution.plan.spans, nullcontext)(numbers)
    assert sum(laid_out) == 30  # of 96 tokens
    assert np.abs(found / one_by_one(model, REPEATED, numbers.tolist()) - 1).max() < 1e-6

"""Promise: a run takes the kept reference where it is that of its own tokens, weights and arithmetic, and nowhere else."""

from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import pytest
from transformers import AutoModelForCausalLM

from dynotune.data.pairs import Pairs
from dynotune.errors import TrainingError
from dynotune.plan.truncation import truncate
from dynotune.train.preference.scoring import Scoring
from tests.reference.pairs import damage, many
from tests.tiny import tiny_model
from tests.train.preference.beginnings import adapted, beginning, one_by_one

PAIRS = many(16, seed=2, longest=30)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DYNOTUNE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "reference"


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Pairs of each micro-batch that went through the model."""
    found: list[int] = []
    run = Scoring.run

    def counted(self: Any, items: Any, micro_batches: Any) -> Any:
        found.extend(len(batch.rows) for batch in micro_batches)
        return run(self, items, micro_batches)

    monkeypatch.setattr(Scoring, "run", counted)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tiny_model().save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def load(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder)


def brought(folder: Path, pairs: Pairs = PAIRS, *, adapter: Any = None, **keys: Any) -> tuple[list[str], Any]:
    """A run of the model in `folder`: what it said, and the reference."""
    model = load(folder) if adapter is None else adapted(model=load(folder), **adapter)
    with beginning(
        model, pairs, start={"as_in_files": True}, model_name_or_path=str(folder), max_steps=-1, **keys
    ) as run:
        said = run.bring()
        return said, run.items.reference_PC


def source(said: list[str]) -> str:
    return next(line for line in said if line.startswith("reference: "))


def test_the_second_time_nothing_but_step_0_is_computed(folder: Path, passes: list[int]) -> None:
    first, values = brought(folder, adapter={})
    assert source(first).startswith("reference: made anew: first time; 16 of 16 pairs computed")
    assert sum(passes) == 16 + 4
    passes.clear()
    again, same = brought(
        folder, adapter={"seed": 9, "r": 8}, learning_rate=1e-3, seed=7, beta=0.5, loss_type=["ipo"], output_dir="other"
    )
    assert source(again).startswith("reference: hit: 16 pairs in ")
    assert sum(passes) == 4
    assert np.array_equal(values, same)
    assert np.abs(values / one_by_one(load(folder), PAIRS, range(16)) - 1).max() < 1e-6


def test_full_training_and_lora_have_the_same_reference(folder: Path) -> None:
    brought(folder, adapter={})
    assert source(brought(folder)[0]).startswith("reference: hit")


def test_other_weights_are_stale_also_under_the_same_name(folder: Path) -> None:
    brought(folder)
    tiny_model(seed=1).save_pretrained(folder)
    said, values = brought(folder)
    assert "made anew: the weights changed since" in source(said)
    assert np.abs(values / one_by_one(load(folder), PAIRS, range(16)) - 1).max() < 1e-6


def test_the_same_weights_elsewhere_are_not_read_as_others(folder: Path, tmp_path: Path) -> None:
    brought(folder)
    assert source(brought(Path(copytree(folder, tmp_path / "copy")))[0]).startswith("reference: hit")


def test_a_model_in_memory_is_known_by_its_tensors(cache: Path) -> None:
    for model, expected in (
        (tiny_model(), "made anew: first time"),
        (tiny_model(), "hit"),
        (tiny_model(seed=1), "made"),
    ):
        with beginning(model, PAIRS) as run:
            assert expected in source(run.bring())


def test_a_run_of_fewer_steps_than_an_epoch_computes_what_it_meets(passes: list[int]) -> None:
    with beginning(tiny_model(), PAIRS, max_steps=2) as run:
        run.bring()
        met = np.concatenate([step.rows for step in run.start.execution.plan.steps()])
        known = np.flatnonzero(~np.isnan(run.items.reference_PC[:, 0]))
    assert sorted(met.tolist()) == known.tolist()
    with beginning(tiny_model(), PAIRS, max_steps=-1) as run:
        assert "8 of 16 distinct pairs, which are not among those kept" in source(run.bring())


def test_damage_is_found_and_what_was_in_it_made_anew(folder: Path, cache: Path) -> None:
    _, values = brought(folder)
    (path,) = cache.glob("*/*.segment")
    damage(path)
    said, again = brought(folder)
    assert any("damaged, and its pairs made anew" in line for line in said)
    assert np.array_equal(values, again)


def test_stopped_in_the_middle_it_goes_on_from_there(
    folder: Path, passes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dynotune.train.preference.bring.BATCH_TOKENS", 1)
    run, calls = Scoring.run, 0

    def stopped(self: Any, items: Any, micro_batches: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt
        return run(self, items, micro_batches)

    with monkeypatch.context() as patch:
        patch.setattr(Scoring, "run", stopped)
        with pytest.raises(KeyboardInterrupt):
            brought(folder, tokens=64)
    kept = sum(passes)
    assert 0 < kept < 16
    passes.clear()
    said, values = brought(folder, tokens=64)
    assert f"made anew for {16 - kept} of 16 distinct pairs" in source(said)
    assert sum(passes) == 16 - kept + 4
    assert not np.isnan(values).any()


def test_what_another_version_made_is_checked_and_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    brought(folder)
    monkeypatch.setattr("dynotune.train.preference.identity.installed", lambda names: {"transformers": "5.0.0"})
    said, _ = brought(folder)
    assert source(said).startswith("reference: hit: 16 pairs in ")
    assert any("16 pairs computed again differ by up to" in line and "so they are used" in line for line in said)


def test_a_cache_that_cannot_be_written_is_said_and_the_run_goes_on(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("DYNOTUNE_CACHE", str(tmp_path / "file"))
    said, values = brought(folder)
    assert "not kept: " in source(said)
    assert not np.isnan(values).any()


def test_a_rehearsal_computes_a_little_and_keeps_nothing(cache: Path, passes: list[int]) -> None:
    with beginning(tiny_model(), PAIRS, max_steps=-1, start={"rehearsal": True}) as run:
        said = run.bring()
    assert said[-1].startswith("step 0: log-ratios of 4 pairs are within")
    assert sum(passes) < 16
    assert not cache.exists() or not list(cache.glob("*/*.segment"))


def test_a_value_that_is_not_finite_stops_the_run_and_is_not_kept(cache: Path) -> None:
    model: Any = tiny_model()
    with beginning(model, PAIRS) as run:
        model.model.norm.weight.data.fill_(float("nan"))
        with pytest.raises(TrainingError, match="The reference gives"):
            run.bring()
    assert not list(cache.glob("*/*.segment"))


# What goes wrong in TRL 1.16: https://github.com/huggingface/trl, `precompute_ref_log_probs`.


def cut(pairs: Pairs, max_length: int) -> Pairs:
    spans = truncate(pairs.examples, max_length, "keep_end")
    return Pairs(pairs.examples, spans.start, spans.end)


def test_another_max_length_with_keep_end_takes_no_value_of_the_longer_pairs(stories: Path) -> None:
    pairs = many(8, seed=4, longest=60)
    _, long = brought(stories, cut(pairs, 60), truncation_mode="keep_end", max_length=60)
    said, short = brought(stories, cut(pairs, 30), truncation_mode="keep_end", max_length=30)
    changed = (cut(pairs, 60).lengths != cut(pairs, 30).lengths).any(1)
    assert changed.sum() > 0
    assert f"made anew for {changed.sum()} of 8 distinct pairs" in source(said) or changed.all()
    right = one_by_one(load(stories), cut(pairs, 30), range(8))
    assert np.abs(short / right - 1).max() < 1e-6
    assert np.abs(long[changed] / right[changed] - 1).max() > 1e-2  # negative control: reused, they would be wrong
    assert said[-1].startswith("step 0: log-ratios of 4 pairs are within")


def test_another_ld_alpha_takes_no_value_without_tails(stories: Path) -> None:
    pairs = many(8, seed=4, longest=60)
    brought(stories, pairs)
    said, values = brought(stories, pairs, ld_alpha=0.0)
    assert "made anew: whether tails are summed (`ld_alpha`) changed since" in source(said)
    assert values.shape == (8, 4)
    assert said[-1].startswith("step 0: log-ratios of 4 pairs are within")
    said, again = brought(stories, pairs, ld_alpha=0.7)
    assert source(said).startswith("reference: hit")
    assert np.array_equal(values, again)

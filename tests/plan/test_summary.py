"""Promise: the figures of a plan are those of its steps, TRL's updates are TRL's, and packing says what it costs."""

import math
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynotune.config.keys.batch import BatchConfig
from dynotune.plan.plan import Plan
from dynotune.plan.summary import fill_at_default, updates_per_epoch
from tests.plan.test_content import content_of, examples_of, plan_of
from tests.plan.test_truncation import rows


@given(rows, st.integers(1, 5), st.none() | st.integers(64, 128))
def test_figures_are_those_of_the_steps(labelled: list[list[bool]], batch: int, tokens: int | None) -> None:
    content = content_of(examples_of([[True, True, *flags] for flags in labelled]), None)
    plan = plan_of(content, tokens, per_device_train_batch_size=batch, num_train_epochs=1)
    j, steps = plan.to_json(), list(plan.steps())
    layout = j["layout"]
    assert layout["documents_lost"] == 0
    assert layout["micro_batches_per_epoch"] == sum(len(s.micro_batches) for s in steps)
    assert layout["micro_batches_per_step"]["max"] == max(len(s.micro_batches) for s in steps)
    assert layout["tokens_per_epoch"] == {
        "processed": sum(s.processed_tokens for s in steps),
        "real": sum(s.real_tokens for s in steps),
        "pad": sum(s.processed_tokens - s.real_tokens for s in steps),
        "label": sum(s.label_tokens for s in steps),
        "masked": sum(s.real_tokens - s.label_tokens for s in steps),
    }
    assert layout["fill"] == sum(s.real_tokens for s in steps) / sum(s.processed_tokens for s in steps)
    assert j == plan_of(content, tokens, per_device_train_batch_size=batch, num_train_epochs=1).to_json()


def test_a_planted_lost_document_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control of `documents_lost`."""
    from dynotune.plan import epoch

    content = content_of(examples_of([[True] * 8] * 60), None)
    real = epoch.arrange
    monkeypatch.setattr(epoch, "arrange", lambda lengths, ladder: [(one[:-1], r) for one, r in real(lengths, ladder)])
    layout = plan_of(content, 128, per_device_train_batch_size=30, num_train_epochs=1).to_json()["layout"]
    assert layout["documents_lost"] > 0


@given(st.integers(1, 300), st.integers(1, 9), st.integers(1, 5), st.booleans())
def test_updates_are_transformers(rows: int, batch: int, accumulation: int, drop_last: bool) -> None:
    config = BatchConfig(
        per_device_train_batch_size=batch, gradient_accumulation_steps=accumulation, dataloader_drop_last=drop_last
    )
    batches = rows // batch if drop_last else math.ceil(rows / batch)
    assert updates_per_epoch(rows, config) == batches // accumulation + (batches % accumulation > 0)
    if batches:
        content = content_of(examples_of([[True] * 4] * rows), None)
        assert Plan(content.spans, content.rows, config, 0).steps_per_epoch == updates_per_epoch(rows, config)


def test_packing_says_how_many_times_fewer_updates_it_makes() -> None:
    examples = examples_of([[True] * 4] * 100)
    lines = plan_of(content_of(examples, "bfd", 8), per_device_train_batch_size=10).summary()
    assert "50 bins of up to 8 tokens out of 100 rows" in lines[-1]
    assert "5 updates an epoch instead of 10, 2.0 times fewer" in lines[-1]
    assert lines[-1].startswith("behavioural: ")
    wrapped = plan_of(content_of(examples, "wrapped", 8), per_device_train_batch_size=10).summary()
    assert "see each other" in wrapped[-1]
    assert len(plan_of(content_of(examples, None), per_device_train_batch_size=10).summary()) == 1


def test_one_step_is_one_step() -> None:
    examples = examples_of([[True] * 4] * 3)
    assert plan_of(content_of(examples, None), max_steps=1).summary()[0].startswith("plan: 1 step of 8 examples (")
    assert plan_of(content_of(examples, None), max_steps=2).summary()[0].startswith("plan: 2 steps of 8 examples (")


def test_steps_without_a_label_are_said() -> None:
    examples = examples_of([[False] * 9 + [True], [True] * 8])
    lines = plan_of(content_of(examples, "bfd", 8), per_device_train_batch_size=1).summary()
    assert "1 steps of the first epoch hold no label token" in lines[-1]


def test_figures_for_a_manifest() -> None:
    found = fill_at_default(np.random.default_rng(0).lognormal(5.2, 1.0, 5000).astype(np.int64).clip(2, 8192))
    assert found["fill"] > 0.97
    assert 20 < found["documents_per_micro_batch"] < 64
    assert found["compression_ratio"] > found["documents_per_micro_batch"]
    assert fill_at_default(np.array([5]))["documents_per_micro_batch"] == 1


@pytest.mark.long
def test_fill_of_real_conversations(shared: Path, tmp_path: Path) -> None:
    """The gates: 97 % at 64 examples a step and 99 % at 512, whatever `max_length` cuts."""
    from dynotune import SFTConfig
    from dynotune.data.load import load_train_and_eval
    from dynotune.data.tokens.encode import Encoder
    from dynotune.model.tokenizer import load_tokenizer
    from dynotune.plan.content import make_content

    config = SFTConfig(
        model_name_or_path="unused",
        tokenizer_name_or_path=str(shared / "tokenizers" / "qwen-152k"),
        dataset_name=str(shared / "data" / "sft" / "sft_mix.jsonl.gz"),
        disable_tqdm=True,
    )
    train, _ = load_train_and_eval(config, Encoder(load_tokenizer(config, config), config), None)
    for max_length in (None, 12_288, 4096, 1024):
        content = make_content(train.examples, config.replace(max_length=max_length), deepcopy(train.ledger))
        for examples, least in ((64, 0.97), (512, 0.99)):
            batch = BatchConfig(global_batch_size=examples, num_train_epochs=1)
            plan = Plan(content.spans, content.rows, batch, 42, "", 16_384)
            assert plan.layout.fill >= least, (max_length, examples)
            assert plan.to_json()["layout"]["documents_lost"] == 0

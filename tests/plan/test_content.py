"""Promise: TRL's packing makes TRL's number of updates, every token is accounted for, and no step's content depends on how
it is executed."""

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynotune.config.keys.batch import BatchConfig
from dynotune.config.keys.data import DataConfig
from dynotune.data.examples import IGNORE, Examples
from dynotune.errors import DataError
from dynotune.plan.content import Content, make_content
from dynotune.plan.plan import Plan
from tests.plan.test_truncation import examples_of, ledger_of, rows

STRATEGIES = ["bfd", "bfd_split", "wrapped"]


def content_of(examples: Examples, packing: str | None, max_length: int = 8, seed: int | None = None) -> Content:
    ledger = ledger_of(examples)
    return make_content(examples, DataConfig(max_length=max_length), ledger, shuffle_seed=seed, packing=packing)


def plan_of(content: Content, tokens: int | None = None, **batch: Any) -> Plan:
    return Plan(content.spans, content.rows, BatchConfig(**batch), 0, "", tokens, content.packing)


@given(rows, st.integers(2, 12), st.sampled_from(STRATEGIES), st.booleans())
def test_the_ledger_agrees_with_the_documents(
    labelled: list[list[bool]], max_length: int, packing: str, shuffle: bool
) -> None:
    examples = examples_of(labelled)
    ledger = ledger_of(examples)
    try:
        content = make_content(
            examples, DataConfig(max_length=max_length), ledger, shuffle_seed=3 if shuffle else None, packing=packing
        )
    except DataError:
        documents = [flags[:max_length] if packing == "bfd" else flags for flags in labelled]
        assert packing != "bfd" or not any(any(flags[1:]) for flags in documents)
        return
    spans = content.spans
    assert ledger.tokens_used == int(spans.lengths[content.rows].sum())
    assert ledger.label_tokens == int(spans.label_tokens[content.rows].sum())
    assert ledger.rows_used == len(examples)
    if packing != "bfd":
        assert ledger.tokens_truncated == 0
    for row in content.rows.tolist():  # counted by hand from the arrays
        labels = content.examples.labels[spans.start[row] : spans.end[row]]
        assert spans.label_tokens[row] == np.count_nonzero(labels[1:] != IGNORE)


@given(
    rows, st.integers(2, 12), st.sampled_from(STRATEGIES), st.integers(1, 4), st.integers(1, 3), st.integers(64, 200)
)
def test_every_document_of_a_bin_is_in_one_step_and_every_bin_once_an_epoch(
    labelled: list[list[bool]], max_length: int, packing: str, batch: int, accumulation: int, tokens: int
) -> None:
    labelled = [[True, True, *flags] for flags in labelled]
    content = content_of(examples_of(labelled), packing, max_length)
    kwargs = {"per_device_train_batch_size": batch, "gradient_accumulation_steps": accumulation, "num_train_epochs": 2}
    plan, packed = plan_of(content, **kwargs), plan_of(content, tokens, **kwargs)
    assert content.packing is not None
    bins = len(content.packing.offsets) - 1
    assert plan.total_steps == 2 * math.ceil(math.ceil(bins / batch) / accumulation)  # transformers', over TRL's rows
    assert plan.content() == packed.content()
    bin_of = np.repeat(np.arange(bins), np.diff(content.packing.offsets))
    where = dict(zip(content.rows.tolist(), bin_of.tolist(), strict=True))
    for epoch in range(2):
        seen: list[int] = []
        for number in range(epoch * plan.steps_per_epoch + 1, (epoch + 1) * plan.steps_per_epoch + 1):
            step, other = plan.step(number), packed.step(number)
            assert step.rows.tolist() == other.rows.tolist()
            laid_out = [row for one in other.micro_batches for row in one.rows.tolist()]
            assert sorted(laid_out) == sorted(step.rows.tolist())
            whole = {where[r] for r in step.rows.tolist()}
            assert len(step.rows) == sum(int(np.diff(content.packing.offsets)[b]) for b in whole)
            assert len(whole) <= batch * accumulation
            seen += step.rows.tolist()
        assert sorted(seen) == sorted(content.rows.tolist())


def test_packing_is_part_of_what_a_resume_compares() -> None:
    examples = examples_of([[True] * 5] * 9)
    packed = plan_of(content_of(examples, "bfd", 16)).content()
    assert packed["packing"] == {"strategy": "bfd", "max_length": 16, "documents": 9, "kind": "behavioural"}
    assert "packing" not in plan_of(content_of(examples, None, 16)).content()


def test_rows_without_labels_stay_under_packing_and_go_without_it() -> None:
    """As in TRL, which filters them only where it does not pack."""
    examples = examples_of([[False] * 9 + [True], [True] * 5, [True] * 4])
    assert content_of(examples, None).rows.tolist() == [1, 2]
    packed = content_of(examples, "bfd")
    assert sorted(packed.rows.tolist()) == [0, 1, 2]
    assert sorted(packed.rows[packed.spans.label_tokens[packed.rows] > 0].tolist()) == [1, 2]


def test_packing_that_leaves_no_label_is_refused() -> None:
    with pytest.raises(DataError, match="`packing: true` with `max_length: 4`"):
        content_of(examples_of([[False] * 9 + [True]]), "bfd", 4)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 5), st.sampled_from(STRATEGIES))
def test_shuffled_rows_are_trls(seed: int, packing: str) -> None:
    """TRL shuffles the rows before it packs them, and the bins once more."""
    import datasets
    from trl import pack_dataset

    datasets.disable_progress_bars()
    examples = examples_of([[True] * (2 + i % 7) for i in range(25)])
    content = content_of(examples, packing, 8, seed)
    data = datasets.Dataset.from_dict({"input_ids": [examples[i].ids_T.tolist() for i in range(25)]})
    theirs = pack_dataset(data.shuffle(seed=seed), 8, packing).shuffle(seed=seed)["input_ids"]
    assert content.packing is not None
    offsets = content.packing.offsets.tolist()
    ours = [
        [t for r in content.rows[a:b].tolist() for t in content.examples[r].ids_T[:8].tolist()]
        for a, b in pairwise(offsets)
    ]
    assert ours == list(theirs)


def test_regrouped_tokens_leave_no_file_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    content = content_of(examples_of([[True] * 5] * 9), "wrapped", 16, seed=1)
    assert isinstance(content.examples.ids, np.memmap)
    assert not list(tmp_path.iterdir())

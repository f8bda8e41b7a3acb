"""Promise: a proof by some micro-batches of a step says what one by all of them would, of documents one by one, packed and
pairs; and says how much of the step it saw."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from dynotune import DPOConfig, train_dpo
from dynotune.execution.feed import Feed
from dynotune.measure.evidence import Evidence, Phase
from dynotune.measure.traces.step import Sample
from dynotune.speedups.record import Record
from dynotune.speedups.registry import speedups
from dynotune.train import engagement
from dynotune.train.engagement import Engagement
from tests.tiny import chats, sentences, tiny_model, tiny_tokenizer
from tests.train.test_engagement import leave_a_layer_out

LORA = {"use_peft": True, "lora_target_modules": "all-linear", "lora_r": 4, "lora_dropout": 0.0}
PACKED = {"micro_batch_tokens": 128, "per_device_train_batch_size": 24}
PLAIN = {"packed_execution": "off", "per_device_train_batch_size": 8, "speedups": {"prefetch": "on"}}
LAYOUTS = pytest.mark.parametrize("layout", [PACKED, PLAIN], ids=["packed", "one by one"])


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Evidence]:
    """What steps showed."""
    found: list[Evidence] = []
    conclude = Engagement.conclude

    def watched(self: Engagement, run: Any) -> list[str]:
        if self._evidence is not None:
            found.append(self._evidence)
        return conclude(self, run)

    monkeypatch.setattr(Engagement, "conclude", watched)
    return found


@pytest.fixture
def whole(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Called, it has all micro-batches traced from then on."""
    every = Sample
    return lambda: monkeypatch.setattr(
        engagement, "traced_part", lambda step, units: every(tuple(range(n := len(step.micro_batches))), n)
    )


def go(run_tiny: Any, tmp_path: Path, **settings: Any) -> Record:
    run_tiny(rows=chats(48), max_steps=4, overwrite_output_dir=True, **{**LORA, **settings})
    return Record.read(tmp_path / "run")


@LAYOUTS
def test_the_verdicts_are_those_of_a_trace_of_all(
    layout: dict[str, Any], run_tiny: Any, tmp_path: Path, whole: Any, seen: list[Evidence]
) -> None:
    def verdicts(record: Record) -> dict[str, tuple[Any, ...]]:
        return {name: (o["verdict"], o["seen"], o["of"], o["missing"]) for name, o in record.observations.items()}

    part = go(run_tiny, tmp_path, **layout)
    whole()
    all_of_it = go(run_tiny, tmp_path, **layout)
    assert verdicts(part) == verdicts(all_of_it)
    assert {o["verdict"] for o in part.observations.values()} == {"engaged"}
    assert "fused_optimizer" in part.observations
    few, every = seen
    assert few.micro_batches < every.micro_batches >= 5
    assert not few.is_whole
    assert every.is_whole
    assert few.count([""], phase=Phase.UPDATE) == every.count([""], phase=Phase.UPDATE) > 0
    assert sum(one.count for one in few.seen) < 0.7 * sum(one.count for one in every.seen)


def test_as_many_events_are_read_of_many_documents_as_of_few(
    run_tiny: Any, tmp_path: Path, seen: list[Evidence]
) -> None:
    for documents in (4, 12):
        go(run_tiny, tmp_path, **{**PLAIN, "per_device_train_batch_size": documents})
    few, many = (sum(one.count for one in evidence.seen if one.micro_batch >= 0) for evidence in seen)
    assert [evidence.micro_batches for evidence in seen] == [2, 2]
    assert [evidence.facts["micro_batches"] for evidence in seen] == [4, 12]
    assert many == pytest.approx(few, rel=0.02)


def test_a_patch_that_left_a_layer_out_is_named(run_tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_a_layer_out(monkeypatch)
    record = go(run_tiny, tmp_path, **PACKED)
    found = record.observations["fused_lora"]
    assert record.part
    assert found["verdict"] == "partial"
    assert found["seen"] == found["of"] - 1
    assert "layers.1.self_attn.o_proj" in found["missing"][0]


@pytest.mark.parametrize("name", ["fused_optimizer", "prefetch"])
def test_what_is_off_is_not_proved(name: str, run_tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: of the update, and of what is counted over the whole step."""
    speedup = speedups()[name]
    install = speedup.install

    def says_so_only(site: Any) -> Any:
        there = install(site)
        there.uninstall()
        return there

    monkeypatch.setattr(speedup, "install", says_so_only)
    record = go(run_tiny, tmp_path, **{**PLAIN, "speedups": {}})
    assert record.part
    assert record.observations[name]["verdict"] == "not engaged"


def test_micro_batches_that_were_not_made_ahead_count_also_where_they_are_not_traced(
    run_tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: list[Evidence]
) -> None:
    arrived, calls = Feed._arrived, []

    def late(self: Feed, made: Any) -> Any:
        calls.append(made)
        before, batch = self.made_ahead, arrived(self, made)
        if len(calls) == 8 + 6:  # of the second step, far behind what is traced
            self.made_ahead = before
        return batch

    monkeypatch.setattr(Feed, "_arrived", late)
    record = go(run_tiny, tmp_path, **{**PLAIN, "speedups": {}})
    assert (seen[0].facts["made_ahead"], seen[0].micro_batches) == (7, 2)
    assert record.observations["prefetch"]["verdict"] == "not engaged"


@LAYOUTS
def test_the_step_is_the_one_that_it_would_have_been(
    layout: dict[str, Any], run_tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def losses() -> list[float]:
        rows = map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
        return [row["loss"] for row in rows if "loss" in row]

    go(run_tiny, tmp_path, **layout)
    traced = losses()
    monkeypatch.setattr(Engagement, "due", lambda self, number, last: False)
    run_tiny(rows=chats(48), max_steps=4, overwrite_output_dir=True, **LORA, **layout)
    assert losses() == traced


def test_the_run_says_how_much_of_the_step_was_traced(run_tiny: Any, tmp_path: Path) -> None:
    """In a sentence, in the file and by `dynotune engaged`. Control: nothing of a part where all of it was."""
    console = Console(record=True, width=400)
    record = go(run_tiny, tmp_path, console=console, **PLAIN)
    said = console.export_text()
    assert re.search(r"step 2 was traced \(2 of 8 micro-batches\), which took [\d.]+ s beside it", said)
    assert record.facts["micro_batches"] == 8
    assert record.facts["traced_micro_batches"] == [0, 7]
    assert record.facts["documents"] == len(record.facts["tokens"]) == len(record.facts["labels"]) == 2
    console = Console(record=True, width=400)
    record = go(run_tiny, tmp_path, console=console, **{**PLAIN, "per_device_train_batch_size": 2})
    assert "step 2 was traced, which took" in console.export_text()
    assert record.part == ""
    assert record.facts["traced_micro_batches"] == [0, 1]


def test_pairs_are_proved_by_a_part(tmp_path: Path, whole: Any, seen: list[Evidence]) -> None:
    """Their shared beginnings, beside a reference that the step computes."""
    texts = sentences(150)
    rows = [
        {"prompt": f"{next(texts)}:", "chosen": f" {next(texts)}", "rejected": f" {next(texts)}"} for _ in range(48)
    ]

    def verdicts() -> dict[str, tuple[Any, ...]]:
        config = DPOConfig(
            output_dir=str(tmp_path / "run"), overwrite_output_dir=True, precompute_ref_log_probs=False,
            per_device_train_batch_size=16, micro_batch_tokens=256, max_steps=2, save_strategy="no", use_cpu=True,
            use_peft=True, lora_target_modules="all-linear", lora_r=4,
        )  # fmt: skip
        train_dpo(
            config, model=tiny_model(), tokenizer=tiny_tokenizer(), train_dataset=rows, console=Console(quiet=True)
        )
        found = Record.read(tmp_path / "run").observations
        return {name: (one["verdict"], one["seen"], one["of"]) for name, one in found.items()}

    part = verdicts()
    whole()
    assert part == verdicts()
    assert {part[name][0] for name in ("packed_execution", "fused_lora", "shared_prompt")} == {"engaged"}
    few, every = seen
    assert few.micro_batches == 2 < every.micro_batches

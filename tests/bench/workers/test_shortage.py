"""Promise: an arm whose memory runs out is known by that, and is never measured in smaller micro-batches than
it asked for."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from dynotune.bench.asking.arms import Arm
from dynotune.bench.workers.hand import write
from dynotune.bench.workers.worker import Worker, failure, slowest
from dynotune.config.sft import SFTConfig
from dynotune.errors import TrainingError
from dynotune.execution.packed import PackedPath
from dynotune.parallel.ranks import Ranks
from tests.tiny import chats, tiny_model, tiny_tokenizer

HOLDS = 512
"""Tokens of a micro-batch that fit."""


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    """In this process, on a device that holds so many tokens."""
    monkeypatch.setenv("DYNOTUNE_CACHE", str(tmp_path / "cache"))
    loss = PackedPath.loss

    def limited(path: PackedPath, batch: Any) -> Any:
        if len(batch.ids_T) > HOLDS:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
        return loss(path, batch)

    monkeypatch.setattr(PackedPath, "loss", limited)
    with ExitStack() as stack:
        yield Worker(Ranks(), torch.device("cpu"), Console(quiet=True), stack)


def stand(worker: Worker, folder: Path, tokens: int) -> None:
    tiny_model().save_pretrained(folder / "model")
    tiny_tokenizer().save_pretrained(folder / "model")
    rows = folder / "rows.jsonl"
    rows.write_text("".join(json.dumps(row) + "\n" for row in chats(200)))
    config = SFTConfig(
        model_name_or_path=str(folder / "model"), dataset_name=str(rows),
        per_device_train_batch_size=40, micro_batch_tokens=tokens, use_cpu=True, report_to="none", max_length=100,
    )  # fmt: skip
    path = write(Arm("a", config), folder)
    worker.do({"do": "stand", "name": "a", "method": "sft", "path": str(path), "folder": str(folder / "run")})


def test_memory_that_runs_out_in_a_step_ends_the_arm(worker: Worker, tmp_path: Path) -> None:
    """A run would go on in smaller micro-batches; the arm that was asked for would then not be what is measured."""
    stand(worker, tmp_path, 2 * HOLDS)
    with pytest.raises(TrainingError) as told:
        worker.do({"do": "take", "first": 1, "steps": 2, "discarded": 0})
    found = failure(told.value)
    assert found["kind"] == "memory"
    assert found["text"].startswith("out of memory in forward at step 1, micro-batch 1 of")
    assert "tokens" in found["text"].splitlines()[0]


def test_what_fits_is_measured(worker: Worker, tmp_path: Path) -> None:
    """The control."""
    stand(worker, tmp_path, HOLDS)
    assert worker.do({"do": "take", "first": 1, "steps": 2, "discarded": 0})["examples"] == 80


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), "memory"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), "memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."), "memory"),
        (MemoryError("Unable to allocate 2.00 GiB for an array"), "memory"),
        (TrainingError("the loss is not finite"), "user"),
        (RuntimeError("shapes do not match"), "bug"),
    ],
)  # fmt: skip
def test_kinds_of_failure(error: Exception, kind: str) -> None:
    assert failure(error)["kind"] == kind


def test_of_several_ranks_the_slowest_and_the_fullest_count() -> None:
    fast = {"examples": 8, "seconds": 1.0, "step_seconds": [0.4, 0.6], "allocated": 5, "device_seconds": None}
    slow = {"examples": 8, "seconds": 1.5, "step_seconds": [1.0, 0.5], "allocated": 3, "device_seconds": None}
    for told in ([fast, slow], [slow, fast]):
        found = slowest(told)
        assert (found["seconds"], found["step_seconds"], found["allocated"]) == (1.5, [1.0, 0.6], 5)
        assert (found["examples"], found["device_seconds"]) == (8, None)

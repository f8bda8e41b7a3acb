"""Promise: what an out-of-memory error says is read as it is meant, and a tensor is named only where its size fits."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dynotune.config.dpo import DPOConfig
from dynotune.config.sft import SFTConfig
from dynotune.plan.ladder import Ladder
from dynotune.plan.packing import lay_out
from dynotune.train.faults.advice import Circumstances, help_with
from dynotune.train.faults.memory import lower_ladder
from dynotune.train.faults.shortage import UNITS, Shortage, Size, shortage_of
from dynotune.train.faults.tensors import (
    MicroBatchSize,
    fitting,
    is_ambiguous,
    of_micro_batch,
    of_weights,
    segment,
)  # fmt: skip
from tests.tiny import tiny_model

CUDA = (
    "CUDA out of memory. Tried to allocate 1.16 GiB. GPU 0 has a total capacity of 139.80 GiB of which 512.00 MiB is free."
    " Process 11 has 1.50 GiB memory in use. Process 12 has 512.00 MiB memory in use. Including non-PyTorch memory, this"
    " process has 120.25 GiB memory in use. Of the allocated memory 110.00 GiB is allocated by PyTorch, and 3.00 GiB is"
    " reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting"
    " {}=expandable_segments:True to avoid fragmentation."
)


@pytest.mark.parametrize("name", ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"])
def test_what_cuda_says(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = shortage_of(torch.OutOfMemoryError(CUDA.format(name)))
    assert found is not None
    assert found.message == "CUDA out of memory. Tried to allocate 1.16 GiB."
    gib = {key: round(value / 2**30, 2) for key, value in found.to_json().items() if key != "message"}
    assert gib == {
        "asked_bytes": 1.16, "total_bytes": 139.8, "free_bytes": 0.5, "here_bytes": 120.25, "allocated_bytes": 110,
        "reserved_bytes": 3, "other_processes_bytes": 2,
    }  # fmt: skip
    advice = help_with(Circumstances("forward", SFTConfig(), packed=True), found)
    assert f"`{name}=expandable_segments:True`" in advice[0]
    for either in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        with monkeypatch.context() as patch:
            patch.setenv(either, "expandable_segments:True")
            assert "expandable_segments" not in "".join(
                help_with(Circumstances("forward", SFTConfig(), packed=True), found)
            )


def test_what_the_cpu_really_says() -> None:
    with pytest.raises(RuntimeError) as of_torch:
        torch.empty(10**15)
    found = shortage_of(of_torch.value)
    assert found is not None
    assert found.asked == Size(4 * 10**15, 0)
    with pytest.raises(MemoryError) as of_numpy:
        np.empty(10**16)
    found = shortage_of(of_numpy.value)
    assert found is not None
    assert found.asked is not None
    assert found.asked.shows(8 * 10**16)


@pytest.mark.parametrize(
    "text",
    [
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "CUDA error: out of memory\nCompile with `TORCH_USE_CUDA_DSA`",
        "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        "[enforce fail at alloc_cpu.cpp:127] data. DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes.",
    ],
)
def test_runtime_errors_that_are_one(text: str) -> None:
    assert shortage_of(RuntimeError(text)) is not None
    assert shortage_of(ValueError(text)) is None


@pytest.mark.parametrize("text", ["CUDA error: an illegal memory access was encountered", "out of bounds", ""])
def test_errors_that_are_none(text: str) -> None:
    assert shortage_of(RuntimeError(text)) is None


@given(st.floats(1, 1023), st.sampled_from(["KiB", "MiB", "GiB"]))
def test_a_size_shows_what_rounds_to_it_and_nothing_else(number: float, unit: str) -> None:
    exact = round(number * UNITS[unit])
    found = shortage_of(torch.OutOfMemoryError(f"Tried to allocate {exact / UNITS[unit]:.2f} {unit}."))
    assert found is not None
    assert found.asked is not None
    assert found.asked.shows(exact)
    assert not found.asked.shows(exact + UNITS[unit] // 50 + 1)


def test_the_tensor_is_named_with_its_formula() -> None:
    model = tiny_model(vocab_size=32000)
    batch = MicroBatchSize(tokens=512, labels=300, packed=True)
    asked = Size(300 * 32000 * 4, 0)
    (one,) = fitting(asked, of_micro_batch(model, batch), on_gpu=False)
    assert str(one) == "logits of a chunk of label tokens (C x V x 4 bytes): 300 x 32,000 x 4 = 36.62 MiB"
    assert not fitting(Size(300 * 32000 * 4 + 4, 0), of_micro_batch(model, batch), on_gpu=False)
    (weight,) = fitting(
        Size(32000 * 32 * 2, 0), of_weights(tiny_model(vocab_size=32000, tie_word_embeddings=True)), False
    )
    assert "model.embed_tokens.weight, in bfloat16" in str(weight)


def test_what_the_allocator_rounds_is_taken_into_account() -> None:
    assert [segment(n) for n in (1, 1 << 20, (1 << 20) + 1, (10 << 20) - 512, 10 << 20, (10 << 20) + 1)] == [
        2 << 20, 2 << 20, 20 << 20, 20 << 20, 10 << 20, 12 << 20,
    ]  # fmt: skip
    assert is_ambiguous(Size(20 << 20, 1 << 13), on_gpu=True)
    assert not is_ambiguous(Size(20 << 20, 1 << 13), on_gpu=False)
    model = tiny_model(vocab_size=32000)
    batch = MicroBatchSize(tokens=512, labels=300, packed=True)
    asked = Size(38 << 20, 1 << 13)  # 36.62 MiB in whole pieces of 2 MiB
    assert [one.what.split(" (")[0] for one in fitting(asked, of_micro_batch(model, batch), on_gpu=True)] == [
        "logits of a chunk of label tokens"
    ]


@given(st.integers(1, 4000), st.sampled_from([64, 512, 1024, 4096]))
def test_evaluation_goes_down_to_the_longest_document_and_then_ends(longest: int, top: int) -> None:
    most, seen = None, []
    while (most := lower_ladder(Ladder([top]), most, longest)) is not None:
        seen.append(most)
        assert most >= longest
    assert seen == sorted(seen, reverse=True)
    assert len(seen) == len(set(seen)) <= 12


def test_an_evaluation_lays_every_document_out_at_any_most() -> None:
    from dynotune.train.evaluate import Evaluator

    for most in (None, 64, 192, 512):
        evaluator: Any = SimpleNamespace(most=most)
        ladder = Evaluator._ladder_for(evaluator, 100, Ladder([128, 512, 1024]))
        assert ladder is not None
        assert ladder.top == max(most or 1024, 128)
        laid = lay_out(np.arange(30), np.full(30, 100), ladder)
        assert sorted(row for batch in laid for row in batch.rows) == list(range(30))


def test_a_shortage_elsewhere_lowers_alike() -> None:
    """Of two ranks, the one that did not run out gets the same smaller ladder from what was agreed alone."""
    from dynotune.train.faults.memory import Memory

    step: Any = SimpleNamespace(micro_batches=[SimpleNamespace(tokens=n) for n in (512, 192)])
    here, there = (Memory(explainer=None, say=print) for _ in range(2))  # type: ignore[arg-type]
    here.shortage, here.micro_batch = Shortage("it"), 1
    assert here.ran_out(step) == (True, True)
    assert there.ran_out(step) == (False, False)
    here.micro_batch = 0
    assert here.ran_out(step) == (True, False)


def test_max_length_cuts_the_sides_of_a_pair_not_the_pair() -> None:
    """A pair of 1,000 tokens whose longer side has 600: half of that is what to write."""
    found = shortage_of(torch.OutOfMemoryError(CUDA.format("PYTORCH_ALLOC_CONF")))
    assert found is not None
    at = Circumstances("forward", DPOConfig(), packed=True, tokens=1024, longest=1000, longest_document=600)
    assert any(line.startswith("`max_length: 300`") for line in help_with(at, found))

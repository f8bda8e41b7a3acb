"""Promise: compiled layers compute what the layers as written compute, with one graph for each token count and kind of
layer, and none is made again however documents are packed."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from dynotune.model.attention import packed_attention
from dynotune.model.lora import install
from tests.model.compiled.steps import batch_of, compiled, families_of, gradients, lengths_within, model_of
from tests.model.lora.adapted import gap, largest_gap

COUNTS = (128, 64)


def packings(tokens: int, n: int) -> list[Any]:
    return [batch_of(lengths_within(tokens, seed), tokens, seed) for seed in range(n)]


def differences(
    model: Any, packings_a_count: int, counts: Sequence[int] = COUNTS, packings: Any = packings
) -> tuple[Any, float, float]:
    """The report of so many micro-batches, and how far hidden states and gradients are off at most."""
    batches = [batch for count in counts for batch in packings(count, packings_a_count)]
    with packed_attention(model):
        right = [gradients(model, batch) for batch in batches]
    with compiled(model) as regions:
        found = [gradients(model, batch) for batch in batches]
    for one in regions.layers.values():
        assert one.layer._compiled_call_impl is None
    with packed_attention(model):
        after = gradients(model, batches[0])
    assert torch.equal(after[0], right[0][0]), "uninstalled, the layers compute bit by bit what they did"
    assert all(torch.equal(after[1][name], right[0][1][name]) for name in after[1])
    hidden = max(gap(mine[0], wanted[0]) for mine, wanted in zip(found, right, strict=True))
    gradient = max(largest_gap(mine[1], wanted[1]) for mine, wanted in zip(found, right, strict=True))
    return regions.report(), hidden, gradient


def test_full_training_twenty_packings_one_graph_a_token_count() -> None:
    report, hidden, gradient = differences(model_of("qwen3", num_hidden_layers=2), packings_a_count=10)
    assert max(hidden, gradient) < 1e-5
    assert [one.shape for one in report.compilations] == [(count, True, False) for count in COUNTS]
    assert report.recompilations == ()
    assert report.eager == ()


def test_fused_lora_one_graph_more_for_the_first_layer_whose_input_needs_no_gradient() -> None:
    model = model_of("qwen2", adapter=True)
    fused = install(model, torch.float32)
    report, hidden, gradient = differences(model, packings_a_count=20, counts=(64,))
    assert max(hidden, gradient) < 1e-5
    assert [one.shape for one in report.compilations] == [(64, False, False), (64, True, False)]
    assert report.recompilations == ()
    assert fused.calls_to_peft == 0


def of_families(tokens: int, n: int) -> list[Any]:
    return [families_of(lengths_within(tokens, seed), tokens, seed) for seed in range(n)]


@pytest.mark.parametrize("kind", ["qwen2", "gemma2"])
def test_shared_beginnings_one_graph_a_token_count_however_many_keys(kind: str) -> None:
    model = model_of(kind, num_hidden_layers=2)
    batches = of_families(256, 6)
    assert len({len(batch.key_rows_K) for batch in batches}) > 1
    assert len({batch.key_lengths for batch in batches}) == 6
    report, hidden, gradient = differences(model, 6, (256,), of_families)
    assert max(hidden, gradient) < 1e-5
    assert [one.shape for one in report.compilations] == [(256, True, True)] * (1 + (kind == "gemma2"))
    assert report.recompilations == ()
    assert report.eager == ()


@pytest.mark.long
@pytest.mark.parametrize("adapter", [False, True])
@pytest.mark.parametrize(("kind", "kinds_of_layers"), [("llama", 1), ("gemma2", 2), ("phi3", 1)])
def test_other_architectures(kind: str, kinds_of_layers: int, adapter: bool) -> None:
    """PEFT's own LoRA. Gemma 2 has layers with a sliding window and layers without, and caps scores."""
    report, hidden, gradient = differences(model_of(kind, adapter, num_hidden_layers=4), packings_a_count=3)
    assert max(hidden, gradient) < 1e-5
    by_count = [sum(one.shape.tokens == count for one in report.compilations) for count in COUNTS]
    assert by_count == [kinds_of_layers + adapter] * 2
    assert report.recompilations == ()


@pytest.mark.long
@pytest.mark.parametrize("adapter", [False, True])
def test_gradient_checkpointing(adapter: bool) -> None:
    """The layer is computed again as a graph, and the input gets a gradient, so that there is one graph a token count."""
    model = model_of("llama", adapter)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if adapter:
        model.enable_input_require_grads()
    report, hidden, gradient = differences(model, packings_a_count=3)
    assert max(hidden, gradient) < 1e-5
    assert [one.shape for one in report.compilations] == [(count, True, False) for count in COUNTS]


@pytest.mark.long
def test_by_inductor() -> None:
    """With the kernels that are written on this machine, too."""
    model = model_of("llama", num_hidden_layers=2)
    batches = packings(64, 3)
    with packed_attention(model):
        right = [gradients(model, batch) for batch in batches]
    with compiled(model, "inductor") as regions:
        found = [gradients(model, batch) for batch in batches]
    for mine, wanted in zip(found, right, strict=True):
        assert gap(mine[0], wanted[0]) < 1e-5
        assert largest_gap(mine[1], wanted[1]) < 1e-5
    assert regions.report().graphs == 1

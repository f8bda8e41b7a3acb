"""Promises: what is compiled again is reported with the compiler's reason; what the compiler cannot do runs as it is
written, is the same, and is seen; and what is no training step is never compiled."""

import copy
from typing import Any

import pytest
import torch

from dynotune.model.attention import hidden_states, packed_attention, stock_attention
from dynotune.model.compiled import Regions
from tests.model.compiled.steps import batch_of, compiled, families_of, gradients, model_of
from tests.model.lora.adapted import gap, largest_gap

QUICK = "eager"
"""Dynamo alone: what graphs there are and why, in the least time."""

BATCH = batch_of([30, 20], 64)


def of_layers(regions: Regions) -> list[Any]:
    return [one.layer for one in regions.layers.values()]


def test_a_planted_recompilation_is_reported_with_its_layer_and_reason() -> None:
    model = model_of("llama")
    with compiled(model, QUICK) as regions:
        gradients(model, BATCH)
        assert regions.recompilations == 0
        of_layers(regions)[1].self_attn.scaling *= 1.5
        gradients(model, BATCH)
    (again,) = regions.report().recompilations
    assert again.layer == "model.layers.1"
    assert "scaling" in again.reason
    (line,) = (line for line in regions.report().lines() if line.startswith("fault"))
    assert "model.layers.1 was compiled again for 64 tokens" in line
    assert "scaling" in line


def test_a_new_token_count_and_a_layer_of_another_kind_are_no_recompilations() -> None:
    model = model_of("llama")
    with compiled(model, QUICK) as regions:
        of_layers(regions)[1].self_attn.scaling *= 1.5
        gradients(model, BATCH)
        gradients(model, batch_of([100], 128))
    report = regions.report()
    assert report.graphs == 4
    assert report.recompilations == ()


@pytest.mark.parametrize("made", [(batch_of, [16] * 7, [16] * 3), (families_of, [16, 16, 16, 3], [16, 16])])
def test_as_many_segments_as_boundaries_have_room_for_are_no_recompilation(made: Any) -> None:
    """Eight of them, padding among them, need no empty ones behind; fewer do."""
    model, (batch, eight, fewer) = model_of("llama"), made
    with compiled(model, QUICK) as regions:
        for lengths in (eight, fewer, eight):
            gradients(model, batch(lengths, 128))
    assert len(batch(eight, 128).lengths) == 8
    assert regions.report().recompilations == ()


def test_behind_the_limit_of_graphs_a_layer_runs_as_it_is_written_and_that_is_reported() -> None:
    model = model_of("llama")
    of_model = [layer.self_attn for layer in model.model.layers]
    of_model[2].scaling *= 1.5
    with packed_attention(model):
        hidden, grads = gradients(model, BATCH)
    with torch._dynamo.config.patch(recompile_limit=1), compiled(model, QUICK) as regions:
        for _ in range(2):
            found = gradients(model, BATCH)
    assert gap(found[0], hidden) < 1e-5
    assert largest_gap(found[1], grads) < 1e-5
    assert regions.report().graphs == 1
    (line,) = regions.report().eager
    assert line.startswith("model.layers.2, 64 tokens: ")
    assert "limit" in line
    assert "scaling" in line


def test_where_the_compiler_fails_the_model_runs_as_it_is_written_and_the_reason_is_kept() -> None:
    def broken(graph: Any, inputs: Any) -> Any:
        raise RuntimeError("Failed to find C compiler.\nPlease specify via CC")

    model = model_of("llama")
    with packed_attention(model):
        hidden, grads = gradients(model, BATCH)
    with compiled(model, broken) as regions:  # type: ignore[arg-type]
        found = gradients(model, BATCH)
    assert torch.equal(found[0], hidden)
    assert all(torch.equal(found[1][name], grads[name]) for name in grads)
    (line,) = regions.report().eager
    assert line.startswith("all layers, since model.layers.0 failed for 64 tokens: ")
    assert "Failed to find C compiler" in line


def test_evaluation_generation_and_other_peoples_calls_are_not_compiled() -> None:
    model = model_of("llama")
    ids = torch.arange(5, 25)[None]
    with compiled(model, QUICK) as regions:
        with torch.no_grad():
            hidden_states(model, BATCH)
        gradients(model, batch_of([9, 4], 20))  # trials of a few tokens
        with stock_attention(model):
            model(input_ids=ids, labels=ids).loss.backward()
            model.generate(ids, max_new_tokens=2, do_sample=False)
        with regions.as_written():
            gradients(model, BATCH)
        assert regions.report().graphs == 0
        assert regions.report().aside_calls == 2 * 3, "the trial and the plain call, with gradients"
        gradients(model, BATCH)
        assert regions.report().graphs == 1, "the negative control"


def test_the_model_keeps_its_names_weights_and_copies() -> None:
    model = model_of("llama")
    names, modules = list(model.state_dict()), [name for name, _ in model.named_modules()]
    with compiled(model, QUICK) as regions:
        gradients(model, BATCH)
        assert list(model.state_dict()) == names
        assert [name for name, _ in model.named_modules()] == modules
        twin = copy.deepcopy(model)
        assert all(one._compiled_call_impl is None for one in twin.model.layers)
    regions.uninstall()
    assert all("_compiled_call_impl" not in one.__dict__ for one in of_layers(regions))


@pytest.mark.parametrize("part", ["", "self_attn.q_proj"])
def test_a_hook_that_comes_later_sees_what_it_would_see(part: str) -> None:
    """PyTorch's compiler would go on with the graph from before, which does not call it."""
    model = model_of("llama")
    with compiled(model, QUICK) as regions:
        gradients(model, BATCH)
        seen: list[torch.Size] = []
        hooked = of_layers(regions)[1].get_submodule(part)
        handle = hooked.register_forward_hook(lambda module, args, output: seen.append(args[0].shape))
        gradients(model, BATCH)
        assert seen == [(1, 64, 32)]
        assert regions.aside.calls == 1
        handle.remove()
        gradients(model, BATCH)
        assert len(seen) == regions.aside.calls == 1
    assert regions.report().recompilations == ()


def test_what_somebody_else_compiled_stays_theirs() -> None:
    model = model_of("llama")
    with compiled(model, QUICK) as regions:
        theirs = of_layers(regions)[0]
        theirs.compile(backend=QUICK)
        put = theirs._compiled_call_impl
    assert theirs._compiled_call_impl is put


@pytest.mark.parametrize("longest", [64, 128])
def test_lengths_and_their_number_are_no_part_of_the_graph(longest: int) -> None:
    """One document, and as many as there are tokens: boundaries in 9 and in 129 places."""
    model = model_of("llama")
    with compiled(model, QUICK) as regions:
        for lengths in ([longest], [1] * 128, [64, 64]):
            gradients(model, batch_of(lengths, 128))
    assert regions.report().graphs == 1

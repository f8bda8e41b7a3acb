"""Promise: compiled layers are proved by a trace of a real step, at every layer, forward and backward; what only looks like
it is not; and transformers' keys ask for it or are refused by name."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch

from dynotune.config.sft import SFTConfig
from dynotune.errors import ConfigError
from dynotune.measure.signs.record import Sign
from dynotune.model import elementwise
from dynotune.model.attention import packed_attention
from dynotune.model.precision import Precision
from dynotune.speedups.choose import decide
from dynotune.speedups.contract import Context, Installation, No
from dynotune.speedups.declared import compiled_layers
from dynotune.speedups.declared.compiled_layers import CompiledLayers
from dynotune.speedups.declared.fused_lora import FusedLora
from dynotune.speedups.declared.liger_rms_norm import LigerRmsNorm
from dynotune.speedups.elementwise import ElementwiseKernel
from dynotune.speedups.expectation import Observation, Verdict
from dynotune.speedups.judge import judge
from dynotune.speedups.registry import speedups
from dynotune.speedups.site import Site
from tests.model.compiled.steps import CPU, batch_of, gradients, model_of
from tests.model.elementwise.stand_ins import stand_ins
from tests.speedups.traced_steps import step_of

SPEEDUP = CompiledLayers()
BATCH = batch_of([30, 20], 64)
TOLD: list[Sign] = []
"""What was told at once."""


def context_of(model: Any, **config: Any) -> Context:
    given = SFTConfig(**config)
    return Context(given, model, CPU, torch.float32, Precision(torch.float32, False), 64)


@contextmanager
def installed(model: Any) -> Iterator[tuple[Context, Installation]]:
    """By everything but Inductor, which takes a minute of a CPU."""
    context = context_of(model)
    before, compiled_layers.COMPILER = compiled_layers.COMPILER, "aot_eager"
    torch._dynamo.reset()
    try:
        found = SPEEDUP.install(Site(context, nullcontext, tell=TOLD.append))
        assert isinstance(found, Installation)
        with packed_attention(model):
            yield context, found
        found.uninstall()
    finally:
        compiled_layers.COMPILER = before
        torch._dynamo.reset()


def observed(context: Context, found: Installation, speedup: Any = SPEEDUP) -> Observation:
    """A warm step, then one that is traced and judged."""
    from dynotune.model.attention import hidden_states

    model: Any = context.model
    gradients(model, BATCH)
    expected = speedup.expect(context, found)
    evidence = step_of(model, lambda: hidden_states(model, BATCH).sum(), found.places)
    return judge(expected, evidence, found.places)


def test_seen_at_every_layer_forward_and_backward() -> None:
    with installed(model_of("llama")) as (context, found):
        seen = observed(context, found)
    assert (seen.verdict, seen.count, seen.against) == (Verdict.ENGAGED, "3 of 3", ())
    assert "CompiledFunction" in seen.evidence


def test_negative_control_taken_out_it_is_not_seen() -> None:
    with installed(model_of("llama")) as (context, found):
        found.uninstall()
        seen = observed(context, found)
    assert seen.verdict is not Verdict.ENGAGED
    assert seen.seen == 0


def test_a_layer_left_out_is_named() -> None:
    with installed(model_of("llama")) as (context, found):
        model: Any = context.model
        del model.model.layers[1]._compiled_call_impl
        seen = observed(context, found)
    assert (seen.verdict, seen.count) == (Verdict.PARTIAL, "2 of 3")
    assert seen.missing == ("model.layers.1",)


def test_what_runs_as_written_behind_the_limit_of_graphs_is_seen() -> None:
    model = model_of("llama")
    model.model.layers[2].self_attn.scaling *= 1.5
    with torch._dynamo.config.patch(recompile_limit=1), installed(model) as (context, found):
        seen = observed(context, found)
    assert (seen.verdict, seen.count) == (Verdict.PARTIAL, "2 of 3")
    assert any("runs as it is written" in line for line in seen.against)
    assert any("fault: not compiled: model.layers.2" in line for line in found.notes())


def test_a_layer_that_is_compiled_again_speaks_against_it() -> None:
    with installed(model_of("llama")) as (context, found):
        model: Any = context.model
        gradients(model, BATCH)
        model.model.layers[1].self_attn.scaling *= 1.5
        seen = observed(context, found)
    assert seen.verdict is Verdict.PARTIAL
    assert any("compiled again" in line for line in seen.against)


def test_one_that_is_compiled_again_behind_the_proof_is_told_at_once_with_the_guard_that_failed() -> None:
    TOLD.clear()
    with installed(model_of("llama")) as (context, found):
        assert observed(context, found).verdict is Verdict.ENGAGED
        assert TOLD == []
        model: Any = context.model
        model.model.layers[1].self_attn.scaling *= 1.5
        gradients(model, BATCH)
        (sign,) = TOLD
        assert sign.name == "recompiling"
        assert "model.layers.1 was compiled again for 64 tokens" in sign.figure
        assert "scaling" in sign.figure
        assert any(sign.figure in line for line in found.notes())
        gradients(model, BATCH)
        assert len(TOLD) == 1, "it was compiled once"


def test_fused_lora_is_proved_inside_of_compiled_layers() -> None:
    model = model_of("qwen2", adapter=True)
    lora, context = FusedLora(), context_of(model)
    fused = lora.install(Site(context, nullcontext))
    assert isinstance(fused, Installation)
    assert len(lora.expect(context, fused)) == 2, "as written: its events"
    with installed(model) as (context, found):
        (holds,) = lora.expect(context, fused)
        assert observed(context, fused, lora).verdict is Verdict.ENGAGED
        assert observed(context, found).verdict is Verdict.ENGAGED
    fused.detail.linears[fused.places[0]].in_graph = False
    evidence = step_of(model, lambda: model(input_ids=BATCH.ids_T[None]).logits.sum(), fused.places)
    assert judge([holds], evidence, fused.places).verdict is Verdict.NOT_ENGAGED


def test_it_can_be_put_aside_for_a_while() -> None:
    with installed(model_of("llama")) as (context, found):
        assert found.without is not None
        with found.without():
            gradients(context.model, BATCH)
        assert found.detail.report().graphs == 0


@pytest.mark.parametrize(
    ("config", "asked"),
    [
        ({}, None),
        ({"torch_compile": True}, ("on", "torch_compile: true")),
        ({"torch_compile_backend": "inductor"}, ("on", "torch_compile_backend: inductor")),
        ({"torch_compile_mode": "default"}, ("on", "torch_compile_mode: default")),
    ],
)
def test_transformers_keys(config: dict[str, Any], asked: Any) -> None:
    context = context_of(model_of("llama"), **config)
    assert SPEEDUP.asked(context.config) == asked
    if asked:
        assert SPEEDUP.applicable(context) is None


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"torch_compile_backend": "cudagraphs"}, "`torch_compile_backend: cudagraphs` is not supported"),
        ({"torch_compile_mode": "reduce-overhead"}, "captures CUDA graphs"),
        ({"torch_compile_mode": "max-autotune"}, "captures CUDA graphs"),
        ({"torch_compile_mode": "fastest"}, "there is no `torch_compile_mode: fastest`"),
        ({"speedups": {"compiled_layers": "auto"}}, "there is no GPU"),
    ],
)
def test_refused_with_a_remedy(config: dict[str, Any], words: str) -> None:
    no = SPEEDUP.applicable(context_of(model_of("llama"), **config))
    assert isinstance(no, No)
    assert words in no.reason
    assert no.remedy


def test_kernels_that_the_compiler_fuses_by_itself_stand_aside() -> None:
    """Each that stands in for operations of a layer, ours and Liger's, is declared; none runs in a compiled layer."""
    kernels = {name for name, one in speedups().items() if isinstance(one, ElementwiseKernel)}
    assert set(SPEEDUP.conflicts) == {*kernels, "fused_linears"}
    model, ours = model_of("llama"), stand_ins()
    engaged = elementwise.install(model, torch.float32, kernels=ours)
    compared = calls_of(ours)
    with installed(model):
        gradients(model, BATCH)
    assert calls_of(ours) - compared == {"rms_norm": 1}, "the last norm, which is outside of the layers"
    compared = calls_of(ours)
    with packed_attention(model):
        gradients(model, BATCH)
    engaged.uninstall()
    assert calls_of(ours) - compared == {"rms_norm": 7, "gated": 3, "rotary": 3}, (
        "negative control: as they are written"
    )


def test_it_cannot_be_asked_for_together_with_ligers_kernels() -> None:
    registry = {name: speedups()[name] for name in ("packed_execution", "compiled_layers", "liger_rms_norm")}
    context = context_of(model_of("llama"), use_liger_kernel=True, torch_compile=True)
    registry["liger_rms_norm"] = Everywhere()
    with pytest.raises(ConfigError, match="`torch_compile: true` and `use_liger_kernel: true` cannot be together"):
        decide(context.config, context, registry)


class Everywhere(LigerRmsNorm):
    def applicable(self, context: Context) -> None:
        return None


def calls_of(kernels: Any) -> Counter[str]:
    return Counter({name: getattr(kernels, name).calls for name in ("rms_norm", "gated", "rotary")})


def test_what_is_compiled_already_is_not_compiled_once_more() -> None:
    model = model_of("llama")
    model.model.layers[2].compile(backend="eager")
    no = SPEEDUP.install(Site(context_of(model), nullcontext))
    assert isinstance(no, No)
    assert "model.layers.2 is compiled already" in no.reason

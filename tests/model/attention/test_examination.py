"""Promise: a model is packed only where documents do not see each other and come out as they do alone; the rest says why."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, PrefixTuningConfig, PromptTuningConfig, get_peft_model
from torch import Tensor, nn
from transformers import (
    AttentionInterface,
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    T5Config,
    T5ForConditionalGeneration,
)

from dynotune.model import packed as packed_module
from dynotune.model.attention import examination, packed_attention
from dynotune.model.attention.backends import reference
from dynotune.model.attention.call import NAME
from dynotune.model.attention.examination import examine, why_not_packed
from dynotune.model.packed import SideBySide
from dynotune.model.prepare import _add_neftune
from tests.model.attention.architectures import ARCHITECTURES, MIXTURES_OF_EXPERTS, WINDOW, architecture
from tests.tiny import SHAPE, tiny_model

LONGEST = 100
PRECISIONS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "fp32": nullcontext,
    "bf16": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
}
every_precision = pytest.mark.parametrize("autocast", PRECISIONS.values(), ids=PRECISIONS)
WINDOWED = [kind for kind, settings in ARCHITECTURES.items() if "sliding_window" in settings]


@every_precision
@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_every_promised_architecture_can_be_packed(kind: str, autocast: Any) -> None:
    verdict = examine(architecture(kind), longest=LONGEST, autocast=autocast)
    assert verdict.reason is None
    assert len(verdict.says) == 1
    assert "CPU" in verdict.says[0]  # the slower backend is named, with the reason


def planted(monkeypatch: pytest.MonkeyPatch, lengths: Any = None, wider: int = 0) -> None:
    """A wrong attention in the place of the right one."""
    right = reference.attend

    def wrong(q: Tensor, k: Tensor, v: Tensor, n: Any, scaling: float, window: int | None, *more: Any) -> Tensor:
        return right(q, k, v, lengths(n) if lengths else n, scaling, window + wider if window else None, *more)

    monkeypatch.setattr(reference, "attend", wrong)


@every_precision
@pytest.mark.parametrize("kind", sorted(set(ARCHITECTURES) - MIXTURES_OF_EXPERTS))
def test_a_leak_is_found(kind: str, autocast: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "_same", lambda *_: None)  # isolation must find it by itself
    planted(monkeypatch, lengths=lambda n: (n[0], n[1] + n[2], *n[3:]))
    # Only a changed document sees more here: it is `_same` that finds this.
    assert why_not_packed(architecture(kind), longest=LONGEST, autocast=autocast) is None
    planted(monkeypatch, lengths=lambda n: (n[0], n[1], n[2] + n[3], *n[4:]))
    assert "sees another" in str(why_not_packed(architecture(kind), longest=LONGEST, autocast=autocast))


@every_precision
def test_a_leak_changes_what_documents_are_even_among_experts(autocast: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    planted(monkeypatch, lengths=lambda n: (sum(n),))
    for kind in MIXTURES_OF_EXPERTS:
        assert "do not come out" in str(why_not_packed(architecture(kind), longest=LONGEST, autocast=autocast))


@every_precision
@pytest.mark.parametrize("window", [WINDOW, 64, 4096])
@pytest.mark.parametrize("wider", [-1, 1])
@pytest.mark.parametrize("kind", WINDOWED)
def test_a_window_that_is_off_by_one_is_found_however_wide_it_is(
    kind: str, wider: int, window: int, autocast: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = architecture(kind, sliding_window=window)
    assert why_not_packed(model, longest=LONGEST, autocast=autocast) is None
    planted(monkeypatch, wider=wider)
    assert "do not come out as alone" in str(why_not_packed(model, longest=LONGEST, autocast=autocast))


@every_precision
def test_positions_that_do_not_start_again_are_found_where_they_matter(
    autocast: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = packed_module.lay_side_by_side

    def running_on(documents: Any, tokens: int) -> SideBySide:
        laid = right(documents, tokens)
        laid.positions_T[:] = np.arange(tokens)
        return laid

    monkeypatch.setattr(packed_module, "lay_side_by_side", running_on)
    assert "do not come out" in str(why_not_packed(architecture("gpt2"), longest=LONGEST, autocast=autocast))
    assert (
        why_not_packed(architecture("qwen2"), longest=LONGEST, autocast=autocast) is None
    )  # only distances count here


@pytest.mark.parametrize("installed", [False, True])
def test_the_model_is_left_as_it_was(installed: bool) -> None:
    model: Any = get_peft_model(architecture("mistral"), LoraConfig(target_modules="all-linear", lora_dropout=0.5))
    model.train()
    model.base_model.model.model.layers[1].eval()
    if installed:
        packed_attention(model)

    def state() -> Any:
        return (
            [(m.training, getattr(m, "sliding_window", None)) for m in model.modules()],
            [p.requires_grad for p in model.parameters()],
            [id(b) for b in model.buffers()],
            [len(m._forward_hooks) for m in model.modules()],
            [m.config._attn_implementation for m in model.modules() if hasattr(m, "config")],
            model.config.sliding_window,
            torch.get_rng_state().tolist(),
            np.random.get_state()[1].tolist(),
            [p.grad for p in model.parameters()],
        )

    before = state()
    buffers = [b.clone() for b in model.buffers()]
    assert why_not_packed(model, longest=LONGEST) is None
    assert state() == before
    assert (NAME in before[4]) is installed
    assert all(torch.equal(a, b) for a, b in zip(buffers, model.buffers(), strict=True))


def test_adapters_run_inside_the_decoder() -> None:
    model: Any = get_peft_model(architecture("llama"), LoraConfig(target_modules="all-linear", init_lora_weights=False))
    assert why_not_packed(model, longest=LONGEST) is None


@pytest.mark.parametrize("adapter", [False, True])
def test_a_decoder_nested_in_a_model_that_also_takes_images(adapter: bool) -> None:
    text = {**SHAPE, **ARCHITECTURES["gemma3_text"]}
    vision = {
        "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28,
        "patch_size": 14,
    }  # fmt: skip
    config = Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=4, image_token_index=340)
    model: Any = Gemma3ForConditionalGeneration(config)
    before = model.config.vision_config._attn_implementation
    if adapter:
        model = get_peft_model(model, LoraConfig(target_modules="all-linear", init_lora_weights=False))
    assert why_not_packed(model, longest=LONGEST) is None
    with packed_attention(model):
        assert model.config.vision_config._attn_implementation == before


LINEAR = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
    "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16,
}  # fmt: skip
JAMBA = {
    "num_experts": 2, "attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1,
    "use_mamba_kernels": False,
}  # fmt: skip
LONGROPE: dict[str, Any] = {
    "original_max_position_embeddings": 64,
    "rope_parameters": {
        "rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 4, "long_factor": [4.0] * 4,
        "original_max_position_embeddings": 64,
    },
}  # fmt: skip


def _compiled(model: Any) -> Any:
    model.compile(backend="eager")
    return model


def _hooked(model: Any) -> Any:
    model.register_forward_hook(lambda module, args, output: None)
    return model


def _louder_in_training(model: Any) -> Any:
    stock = model.forward

    def forward(input_ids: Tensor, **more: Any) -> Any:
        loudness = 1.5 if model.training else 1.0
        return stock(inputs_embeds=model.model.embed_tokens(input_ids) * loudness, **more)

    model.forward = forward
    return model.eval()


CANNOT: dict[str, tuple[Callable[[], Any], str]] = {
    "mamba": (lambda: tiny_model("mamba"), "carry one document into the next"),
    "mamba beside attention": (lambda: tiny_model("jamba", **JAMBA), "carry one document into the next"),
    "linear attention": (lambda: tiny_model("qwen3_next", **LINEAR), "carry one document into the next"),
    "short convolutions": (
        lambda: tiny_model("lfm2", layer_types=["conv", "full_attention"]),
        "carry one document into the next",
    ),
    "chunked attention": (lambda: tiny_model("llama4_text", num_local_experts=2, intermediate_size_mlp=64), ""),
    "sinks": (lambda: tiny_model("gpt_oss", num_local_experts=4, num_experts_per_tok=2), "s_aux"),
    "attention of its own": (lambda: tiny_model("bloom"), "does not go through"),
    "boundaries do not arrive": (lambda: tiny_model("stablelm"), "do not hand the boundaries"),
    "compiled": (lambda: torch.compile(tiny_model("llama"), backend="eager"), "compiled as a whole"),
    "compiled in place": (lambda: _compiled(tiny_model("llama")), "compiled as a whole"),
    "other embeddings in training": (lambda: _louder_in_training(tiny_model("llama")), "do not come out as alone"),
    "a hook": (lambda: _hooked(tiny_model("llama")), "a hook on LlamaForCausalLM would not be called"),
    "a hook inside an adapter": (
        lambda: get_peft_model(_hooked(tiny_model("llama")), LoraConfig(target_modules=["q_proj"])),
        "a hook on LlamaForCausalLM would not be called",
    ),
    "attention dropout": (lambda: tiny_model("llama", attention_dropout=0.1), "drops out"),
    "longrope": (lambda: tiny_model("phi3", **LONGROPE), "longest document"),
    "dynamic rope": (
        lambda: tiny_model(
            "llama", max_position_embeddings=64, rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}
        ),
        "longest document",
    ),
    "an encoder": (
        lambda: T5ForConditionalGeneration(T5Config(vocab_size=64, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2)),
        "encoder",
    ),
    "bidirectional": (
        lambda: tiny_model("gemma3_text", use_bidirectional_attention=True, query_pre_attn_scalar=8), "not causal",
    ),
    "prompt tuning": (
        lambda: adapted(PromptTuningConfig(num_virtual_tokens=2, task_type="CAUSAL_LM")), "tokens of its own",
    ),
    "prefix tuning": (
        lambda: adapted(PrefixTuningConfig(num_virtual_tokens=2, task_type="CAUSAL_LM")), "tokens of its own",
    ),
    "activated LoRA": (
        lambda: adapted(LoraConfig(task_type="CAUSAL_LM", alora_invocation_tokens=[7], target_modules="all-linear")),
        "activated LoRA",
    ),
    "NEFTune": (lambda: noisy(tiny_model("llama")), "NEFTune"),
}  # fmt: skip


def adapted(config: Any) -> Any:
    return get_peft_model(tiny_model("llama"), config)


def noisy(model: Any) -> Any:
    _add_neftune(model, 5.0)
    return model


@pytest.mark.parametrize(("make", "words"), CANNOT.values(), ids=CANNOT)
def test_what_cannot_be_packed_says_why(make: Callable[[], Any], words: str) -> None:
    reason = why_not_packed(make(), longest=LONGEST)
    assert reason is not None
    assert words in reason


def test_a_soft_cap_that_the_plain_path_leaves_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As transformers 5.17 does it on `sdpa`, without a word."""
    table = AttentionInterface._global_mapping
    sdpa = table["sdpa"]
    monkeypatch.setitem(table, "sdpa", lambda *args, softcap=None, **kwargs: sdpa(*args, **kwargs))
    model = architecture("gemma2")
    assert why_not_packed(model, longest=LONGEST) is None
    model.config._attn_implementation_internal = "sdpa"
    assert "leaves that out" in str(why_not_packed(model, longest=LONGEST))
    with packed_attention(model):
        assert "leaves that out" in str(why_not_packed(model, longest=LONGEST))


def test_a_stretched_rotary_embedding_is_no_matter_for_short_documents() -> None:
    model = tiny_model("phi3", **LONGROPE)
    assert why_not_packed(model, longest=64) is None
    assert why_not_packed(model, longest=65) is not None


@pytest.mark.parametrize("name", ["mamba beside attention", "linear attention", "short convolutions"])
def test_running_it_finds_state_that_structure_did_not_know(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "why_not_by_structure", lambda model, longest: None)
    assert why_not_packed(CANNOT[name][0](), longest=LONGEST) is not None


def test_what_fails_on_the_plain_path_too_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    model: Any = tiny_model("llama")
    model.model.layers[0].mlp = nn.Linear(3, 3)
    with pytest.raises(RuntimeError):
        why_not_packed(model, longest=LONGEST)

"""Promise: a head is used where it gives the model's own logits, as the model itself says, and nowhere else."""

import re
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn
from transformers import CONFIG_MAPPING

from dynotune.model.attention.decoder import text_decoder
from dynotune.model.head import Found, find_head
from dynotune.model.head.logit_map import LogitMap
from tests.model.head.plain import batch_of, labelled, objective, plain_loss
from tests.tiny import tiny_model

IDS = torch.tensor([5, 9, 300, 17, 2, 41])


def known(kind: str, **changes: Any) -> Any:
    """A tiny model, where the installed transformers knows the kind."""
    if kind not in CONFIG_MAPPING:
        pytest.skip(f"transformers {transformers.__version__} has no {kind}")
    return tiny_model(kind, **changes)


def changed(model: Any, change: Any) -> Any:
    """`model` whose forward pass has `change` applied to its logits."""
    stock = model.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        out = stock(*args, **kwargs)
        out.logits = change(out.logits)
        return out

    model.forward = forward
    return model


def test_what_a_model_does_to_its_logits_in_training_only_is_seen() -> None:
    """In evaluation mode, in which it is tried out, the layers do not drop out; the model around them is as in training."""
    model = tiny_model("llama").eval()
    assert find_head(changed(model, lambda logits: logits * (1.2 if model.training else 1.0)), IDS).head is None
    assert not any(module.training for module in model.modules())
    same = tiny_model("llama").eval()
    assert find_head(changed(same, lambda logits: logits * 1.0), IDS).head is not None


MLA = {"num_key_value_heads": 4, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 4, "qk_rope_head_dim": 4}

KINDS: list[tuple[str, dict[str, Any], LogitMap]] = [
    ("llama", {}, LogitMap()),
    ("llama", {"tie_word_embeddings": True}, LogitMap()),
    ("qwen2", {}, LogitMap()),
    ("gemma2", {}, LogitMap(cap=30.0)),
    ("gemma2", {"final_logit_softcapping": None}, LogitMap()),
    ("gemma3_text", {}, LogitMap()),
    ("gemma3_text", {"final_logit_softcapping": 20.0}, LogitMap(cap=20.0)),
    ("granite", {"logits_scaling": 8.0}, LogitMap(scale=1 / 8)),
    ("cohere", {"logit_scale": 0.0625}, LogitMap(scale=0.0625)),
    ("phi", {}, LogitMap()),  # a bias
    ("gptj", {"rotary_dim": 4, "n_embd": 32, "n_layer": 2, "n_head": 4}, LogitMap()),
    ("falcon_h1", {"lm_head_multiplier": 0.5}, LogitMap(scale=0.5)),
    ("minicpm3", {"dim_model_base": 8, **MLA}, LogitMap(before=0.25)),
    ("hyperclovax", {"logits_scaling": 4.0}, LogitMap(scale=4.0)),
    ("recurrent_gemma", {"logits_soft_cap": 25.0}, LogitMap(cap=25.0)),
]


@pytest.mark.parametrize(("kind", "changes", "expected"), KINDS, ids=[f"{k}-{m}" for k, _, m in KINDS])
@pytest.mark.parametrize("bf16", [False, True])
def test_what_each_model_does_around_its_projection_is_found(
    kind: str, changes: dict[str, Any], expected: LogitMap, bf16: bool
) -> None:
    model = known(kind, **changes)
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        found = find_head(model, IDS)
    assert found.head is not None, found.why_not
    assert found.head.logits == expected
    assert found.head.vocabulary == model.config.vocab_size


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda x: 1.01 * x, "projection's output is not known"),
        (lambda x: x - x.mean(-1, keepdim=True), "projection's output is not known"),
        (lambda x: torch.tanh(x / 15) * 15, "projection's output is not known"),
        (lambda x: x[..., :-3], r"\(6, 349\) logits, \(6, 352\) expected"),
        (lambda x: x.index_fill(-1, torch.tensor([7]), -torch.inf), "projection's output is not known"),
    ],
)
def test_logits_that_are_changed_in_another_way_are_refused(change: Any, reason: str) -> None:
    found = find_head(changed(tiny_model(), change), IDS)
    assert found.head is None
    assert found.why_not is not None
    assert re.search(reason, found.why_not), found.why_not


def test_hidden_states_that_are_changed_on_the_way_are_refused() -> None:
    model: Any = tiny_model()
    model.lm_head = nn.Sequential(nn.LayerNorm(32), model.lm_head)  # part of the projection: known to it
    assert find_head(model, IDS).head is not None
    model = tiny_model()
    model.lm_head.register_forward_pre_hook(lambda module, args: (args[0] * 1.5,))
    assert find_head(model, IDS).head is not None  # a hook is the module's own, and runs in chunks too
    model = tiny_model()
    decoder = text_decoder(model)
    stock = model.forward

    def forward(**kwargs: Any) -> Any:
        handle = model.lm_head.register_forward_pre_hook(lambda module, args: (args[0] * 1.5,))
        try:
            return stock(**kwargs)
        finally:
            handle.remove()

    model.forward = forward
    assert "not its projection of the hidden states" in str(find_head(model, IDS).why_not)
    assert isinstance(decoder, nn.Module)


def test_a_model_without_a_projection_or_that_never_calls_it_is_refused() -> None:
    model: Any = tiny_model()
    model.get_output_embeddings = lambda: None
    assert find_head(model, IDS) == Found(None, "it has no output projection of its own")
    model = tiny_model()
    spare = nn.Linear(32, 352, bias=False)
    model.get_output_embeddings = lambda: spare
    assert "gives 0 tensors" in str(find_head(model, IDS).why_not)


def test_each_module_keeps_its_mode_and_nothing_is_left_behind() -> None:
    model: Any = tiny_model()
    model.train()
    model.model.norm.eval()
    assert find_head(model, IDS).head is not None
    assert model.training
    assert not model.model.norm.training
    assert not model.lm_head._forward_hooks
    assert not text_decoder(model)._forward_hooks


@pytest.mark.parametrize("kind", ["llama", "gemma2", "granite", "minicpm3", "phi"])
@pytest.mark.parametrize("tied", [False, True])
def test_the_models_own_parameters_get_the_plain_paths_gradients(kind: str, tied: bool) -> None:
    model = known(kind, tie_word_embeddings=tied, **(MLA if kind == "minicpm3" else {}))
    documents = labelled([20], 352, seed=3)
    ids = torch.from_numpy(documents[0][0]).long()
    plain, _ = plain_loss(
        documents, ids, lambda rows: model(input_ids=rows[None], use_cache=False).logits[0], objective()
    )
    expected = torch.autograd.grad(plain, list(model.parameters()))
    found = find_head(model, IDS)
    assert found.head is not None, found.why_not
    hidden_TD: Tensor = text_decoder(model)(input_ids=ids[None], use_cache=False).last_hidden_state[0]
    loss, _ = found.head(hidden_TD, batch_of(documents, 20), objective())
    torch.testing.assert_close(loss, plain, rtol=1e-5, atol=0)
    for got, right in zip(torch.autograd.grad(loss, list(model.parameters())), expected, strict=True):
        torch.testing.assert_close(got, right, rtol=1e-4, atol=1e-5)

"""Promise: packed attention comes and goes without a trace, and what it cannot do exactly is an error."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers.masking_utils import AttentionMaskInterface

from dynotune.errors import ModelError
from dynotune.model.attention import hidden_states, packed_attention, stock_attention
from dynotune.model.attention.call import NAME, Call
from dynotune.model.packed import PackedBatch, pack
from tests.model.attention.architectures import architecture


def batch(*lengths: int, tokens: int = 32, seed: int = 0) -> PackedBatch:
    generator = np.random.default_rng(seed)
    documents = [generator.integers(5, 350, n).astype(np.int32) for n in lengths]
    return pack([(ids, ids) for ids in documents], tokens, torch.device("cpu"))


def implementations(model: Any) -> list[str]:
    return [m.config._attn_implementation for m in model.modules() if hasattr(m, "config")]


@pytest.mark.parametrize("kind", ["llama", "gemma2"])
def test_uninstalling_gives_the_model_back(kind: str) -> None:
    model: Any = architecture(kind)
    ids = torch.arange(5, 25)[None]
    before, logits = implementations(model), model(ids).logits
    with packed_attention(model):
        assert NAME in implementations(model)
    assert implementations(model) == before
    assert torch.equal(model(ids).logits, logits)


def test_inside_stock_attention_the_model_generates_as_ever() -> None:
    model: Any = architecture("mistral")
    prompt = torch.arange(5, 15)[None]
    settings = {"attention_mask": torch.ones_like(prompt), "max_new_tokens": 6, "do_sample": False, "use_cache": True}
    expected = model.generate(prompt, **settings)
    with stock_attention(model):  # nothing installed: nothing to do
        assert torch.equal(model.generate(prompt, **settings), expected)
    with packed_attention(model):
        hidden = hidden_states(model, batch(9, 4))
        with stock_attention(model):
            assert torch.equal(model.generate(prompt, **settings), expected)
        assert torch.equal(hidden_states(model, batch(9, 4)), hidden)
        with pytest.raises(RuntimeError), stock_attention(model):
            raise RuntimeError
        assert NAME in implementations(model)


def test_engaged_and_stock_give_back_what_they_found() -> None:
    model: Any = architecture("llama")
    ids = torch.arange(5, 25)[None]
    expected = model(ids).logits
    with packed_attention(model) as packed:
        packed.disengage()
        assert torch.equal(model(ids).logits, expected)
        with packed.engaged():
            hidden_states(model, batch(9, 4))
            with stock_attention(model), packed.engaged():
                hidden_states(model, batch(9, 4))
            assert NAME in implementations(model)
        with stock_attention(model):
            pass
        assert NAME not in implementations(model)
        assert torch.equal(model(ids).logits, expected)


def test_a_plain_call_while_installed_is_an_error_that_says_what_to_do() -> None:
    model: Any = architecture("llama")
    with packed_attention(model), pytest.raises(ModelError, match="stock_attention"):
        model(torch.arange(5, 25)[None])


def test_a_copy_made_while_installed_is_installed_for_itself() -> None:
    model: Any = architecture("llama")
    with packed_attention(model):
        twin = copy.deepcopy(model)
    with stock_attention(twin):
        twin(torch.arange(5, 25)[None])
    assert torch.equal(hidden_states(twin, batch(9, 4)).isfinite().all(), torch.tensor(True))
    model(torch.arange(5, 25)[None])


def test_what_is_saved_does_not_know(tmp_path: Path) -> None:
    model: Any = architecture("llama")
    model.save_pretrained(tmp_path / "before")
    with packed_attention(model):
        model.save_pretrained(tmp_path / "inside")
    texts = [(tmp_path / name / "config.json").read_text() for name in ("before", "inside")]
    assert texts[0] == texts[1]


def test_no_mask_is_made_and_the_device_is_not_asked() -> None:
    """A tensor on "meta" has no values to ask for: reading one fails, as on a GPU it would wait."""
    assert NAME not in AttentionMaskInterface._global_mapping
    model: Any = architecture("gemma3_text").to("meta")
    packed = batch(9, 4)
    away = PackedBatch(*(x.to("meta") if isinstance(x, torch.Tensor) else x for x in (
        packed.ids_T, packed.positions_T, packed.boundaries_S1, packed.predictors_N, packed.targets_N,
        packed.lengths, packed.documents,
    )))  # fmt: skip
    with packed_attention(model):
        assert hidden_states(model, away).shape == (32, 32)


REFUSED = [
    ({"attention_mask": torch.zeros(1, 1, 4, 4)}, "mask of its own"),
    ({"dropout": 0.1}, "drops out"),
    ({"is_causal": False}, "not causal"),
    ({"s_aux": torch.zeros(4)}, "s_aux"),
    ({"position_bias": torch.zeros(4)}, "position_bias"),
    ({"cu_seq_lens_q": None}, "without the boundaries"),
]


@pytest.mark.parametrize(("asked", "words"), REFUSED, ids=[words for _, words in REFUSED])
def test_what_it_cannot_do_is_an_error(asked: dict[str, Any], words: str) -> None:
    from dynotune.model.attention.call import packed_attention_call

    q = torch.zeros(1, 4, 4, 8)
    fine = {
        "attention_mask": None, "cu_seq_lens_q": torch.tensor([0, 4]), "max_length_q": 64, "segment_lengths": (4,),
        "position_ids": torch.arange(4)[None], "s_aux": None,
    }  # fmt: skip
    packed_attention_call(torch.nn.Identity(), q, q, q, **fine)
    with pytest.raises(ModelError, match=words):
        packed_attention_call(torch.nn.Identity(), q, q, q, **{**fine, **asked})


def test_two_models_have_each_its_own_backend() -> None:
    """The choice is the model's, not the process's, and can change while the model is in use."""

    def backends(model: Any) -> set[tuple[str, str | None]]:
        calls: list[Call] = []
        hidden_states(model, batch(9, 4), attention_calls=calls)
        return {(call.backend, call.why_reference) for call in calls}

    one, other = architecture("llama"), architecture("llama", seed=1)
    with packed_attention(one, "reference") as packed, packed_attention(other):
        assert backends(one) == {("reference", "no kernel is chosen")}
        assert backends(other) == {("reference", "there is no kernel for the CPU")}
        packed.backend = "varlen"
        assert backends(one) == {("reference", "there is no kernel for the CPU")}
        with pytest.raises(ValueError, match=r"take one of fa3, .*varlen"):
            packed.backend = "flash"
        assert packed.backend == "varlen"

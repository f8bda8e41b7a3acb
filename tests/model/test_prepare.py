"""Promise: the model that is trained is the one that was asked for, in the precision that is said, and is given back."""

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM

from dynotune.config.sft import SFTConfig
from dynotune.errors import ConfigError, ModelError
from dynotune.model.forward import logits_of_document
from dynotune.model.precision import Precision, choose_precision, state_precision
from dynotune.model.prepare import Prepared, prepare_model
from dynotune.model.tokenizer import apply_settings
from dynotune.train.start.device import autocast_of
from tests.tiny import SHAPE, tiny_model, tiny_tokenizer

CPU = torch.device("cpu")
TINY_VISION = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 32,
    "patch_size": 16,
}  # fmt: skip


def prepare(own: Any = None, own_peft_config: Any = None, **settings: Any) -> Prepared:
    config = SFTConfig(use_cpu=True, **settings)
    tokenizer = tiny_tokenizer()
    changes = apply_settings(tokenizer, config, config)
    precision = choose_precision(config, config, CPU, own_peft_config)
    return prepare_model(config, precision, CPU, tokenizer, changes, own, own_peft_config)


def backward(prepared: Prepared, ids: torch.Tensor | None = None, **settings: Any) -> None:
    """One forward and backward pass as the loop makes it."""
    config = SFTConfig(use_cpu=True, **settings)
    with autocast_of(choose_precision(config, config, CPU), CPU)():
        logits = logits_of_document(prepared.model, torch.arange(5, 25) if ids is None else ids)
        loss = logits.float().logsumexp(-1).mean()
    loss.backward()


@pytest.fixture
def base(tmp_path: Path) -> Path:
    tiny_model().bfloat16().save_pretrained(tmp_path / "base")
    return tmp_path / "base"


BF16 = {"use_peft": True, "dtype": "bfloat16", "bf16": True, "lora_target_modules": ["q_proj", "down_proj"]}


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"lora_modules_to_save": ["lm_head"]},
        {"lora_modules_to_save": ["embed_tokens", "norm"]},
        {"added_tokens": ["<new>"]},
        {"added_tokens": ["<new>"], "lora_modules_to_save": ["embed_tokens", "lm_head"]},
        {"use_dora": True},
    ],
)
def test_lora_on_a_bfloat16_base_trains_float32_weights_under_autocast(base: Path, more: dict[str, Any]) -> None:
    settings = {**BF16, **more}
    prepared = prepare(model_name_or_path=str(base), **settings)
    new_id = torch.tensor([len(tiny_tokenizer())])
    backward(prepared, torch.cat([torch.arange(5, 20), new_id, torch.arange(20, 30)]), **settings)
    trained = {n: p for n, p in prepared.model.named_parameters() if p.requires_grad}
    assert {p.dtype for p in trained.values()} == {torch.float32}
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in trained.values())
    assert {p.dtype for p in prepared.model.parameters() if not p.requires_grad} == {torch.bfloat16}
    assert prepared.says[0] == "precision: bfloat16 base, float32 adapters, computed in bfloat16 (CPU)"


def test_a_float32_head_beside_a_bfloat16_base_needs_autocast_and_says_so(base: Path) -> None:
    settings = {**BF16, "bf16": False, "model_name_or_path": str(base)}
    with pytest.raises(ConfigError, match=r"`lm_head` is trained in float32 .* bfloat16.*`bf16: true`"):
        prepare(**settings, lora_modules_to_save=["lm_head"])
    backward(prepare(**settings))  # adapters alone are cast as PEFT casts them


def test_an_adapter_as_the_model_is_refused_with_what_to_do(tmp_path: Path) -> None:
    tiny_model().save_pretrained(tmp_path / "base")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    get_peft_model(model, LoraConfig(target_modules=["q_proj"], task_type="CAUSAL_LM")).save_pretrained(
        str(tmp_path / "a")
    )
    for settings in ({"use_peft": True}, {}):
        with pytest.raises(ModelError, match=r"is an adapter, not a model.*dynotune merge"):
            prepare(model_name_or_path=str(tmp_path / "a"), **settings)


def test_an_adapter_from_the_hub_is_refused_too(tmp_path: Path) -> None:
    """transformers would return its base with the adapter inside."""
    snapshot = tmp_path / "models--someone--adapter" / "snapshots" / ("a" * 40)
    get_peft_model(tiny_model(), LoraConfig(target_modules=["q_proj"], task_type="CAUSAL_LM")).save_pretrained(
        str(snapshot)
    )
    (tmp_path / "models--someone--adapter" / "refs").mkdir()
    (tmp_path / "models--someone--adapter" / "refs" / "main").write_text("a" * 40)
    with pytest.raises(ModelError, match="is an adapter, not a model"):
        prepare(model_name_or_path="someone/adapter", use_peft=True, model_init_kwargs={"cache_dir": str(tmp_path)})


def test_weights_that_the_configuration_has_no_place_for_are_an_error(tmp_path: Path) -> None:
    model = tiny_model(num_hidden_layers=4)
    model.save_pretrained(tmp_path)
    assert prepare(model_name_or_path=str(tmp_path)).facts.parameters == sum(p.numel() for p in model.parameters())
    model.config.num_hidden_layers = 2
    if getattr(model.config, "layer_types", None):
        model.config.layer_types = model.config.layer_types[:2]
    model.config.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"18 weights.*model\.layers\.2\..*num_hidden_layers"):
        prepare(model_name_or_path=str(tmp_path))


# precision


@pytest.mark.parametrize("dtype", ["auto", "bfloat16"])
def test_bfloat16_weights_trained_in_full_are_called_behavioural(base: Path, dtype: str) -> None:
    says = prepare(model_name_or_path=str(base), dtype=dtype).says
    assert says[0] == "precision: bfloat16 weights, computed as stored (CPU)"
    assert any("behavioural" in line and "without float32 masters" in line for line in says)
    assert not any("behavioural" in line for line in prepare(model_name_or_path=str(base)).says)


def test_the_precision_that_is_said_is_that_of_the_callers_own_model() -> None:
    says = prepare(tiny_model().bfloat16()).says
    assert "bfloat16 weights" in says[0]
    assert "behavioural" in says[1]
    says = prepare(tiny_model(), bf16=True).says
    assert says[0] == "precision: float32 masters, computed in bfloat16 (CPU)"


def test_a_peft_config_counts_as_an_adapter() -> None:
    gpu = torch.device("cuda")
    config = SFTConfig()
    peft_config = LoraConfig(target_modules=["q_proj"], task_type="CAUSAL_LM")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: True)
        assert choose_precision(config, config, gpu).weights == torch.float32
        assert choose_precision(config, config, gpu, peft_config).weights == torch.bfloat16
        assert choose_precision(SFTConfig(use_peft=True), SFTConfig(use_peft=True), gpu).weights == torch.bfloat16
    says = prepare(tiny_model().bfloat16(), peft_config).says
    assert says[0] == "precision: bfloat16 base, float32 adapters, computed as stored (CPU)"
    assert not any("behavioural" in line for line in says)


def test_float16_is_not_trained_and_passing_gradients_through_it_is_said(base: Path) -> None:
    with pytest.raises(ConfigError, match=r"float16.*loss scaling.*dtype"):
        prepare(model_name_or_path=str(base), dtype="float16")
    with pytest.raises(ConfigError, match=r"float16.*loss scaling"):
        prepare(tiny_model().half())
    lora = {"use_peft": True, "lora_target_modules": ["q_proj"], "model_name_or_path": str(base), "dtype": "float16"}
    assert any("float16 activations" in line for line in prepare(**lora).says)
    own: Any = prepare(**lora).model
    assert not any("float16 activations" in line for line in state_precision(own, Precision(torch.float16, True), CPU))


# adapters on architectures with other names


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(
    ("kind", "shape", "embedding"),
    [
        ("gpt2", {"n_embd": 32, "n_layer": 2, "n_head": 4}, "wte"),
        ("gpt_neox", {}, "embed_in"),
        ("llama", {}, "embed_tokens"),
    ],
)
def test_new_tokens_are_trained_whatever_the_embedding_is_called(
    kind: str, shape: dict[str, Any], embedding: str, tied: bool, tmp_path: Path
) -> None:
    model = tiny_model(kind, tie_word_embeddings=tied, **shape)
    model.save_pretrained(tmp_path / "base")
    prepared = prepare(model_name_or_path=str(tmp_path / "base"), use_peft=True, added_tokens=["<new>"])
    config: Any = prepared.model.peft_config["default"]
    assert config.trainable_token_indices == {embedding: [len(tiny_tokenizer())]}
    assert bool(config.modules_to_save) is not tied
    backward(prepared, torch.tensor([7, len(tiny_tokenizer()), 9]))
    assert all(p.grad is not None for p in prepared.model.parameters() if p.requires_grad)
    prepared.model.save_pretrained(tmp_path / "adapter")
    ids = torch.tensor([[7, len(tiny_tokenizer()), 9]])
    again = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(tmp_path / "base"), tmp_path / "adapter")
    torch.testing.assert_close(again(ids).logits, prepared.model.eval()(ids).logits)


def test_where_the_adapter_landed_is_said() -> None:
    says = prepare(tiny_model(), use_peft=True, lora_target_modules=["q_proj", "v_proj"]).says
    assert "adapter on 4 modules: q_proj 2, v_proj 2" in says


def test_an_adapter_on_a_vision_tower_is_said() -> None:
    text = {k: v for k, v in SHAPE.items() if not k.endswith("_token_id")}
    config = AutoConfig.for_model("gemma3", text_config=text, vision_config=TINY_VISION, mm_tokens_per_image=4)
    says = prepare(AutoModelForCausalLM.from_config(config), use_peft=True, lora_target_modules="all-linear").says
    assert any("15 of these modules are outside the language model (model.vision_tower)" in line for line in says)
    only = r"model\.language_model\..*q_proj"
    says = prepare(AutoModelForCausalLM.from_config(config), use_peft=True, lora_target_modules=only).says
    assert not any("outside" in line for line in says)


# the caller's own model


def test_an_own_adapter_that_would_not_come_back_is_refused(tmp_path: Path) -> None:
    lora = LoraConfig(target_modules=["q_proj"], task_type="CAUSAL_LM")
    named = get_peft_model(tiny_model(), lora, adapter_name="mine")
    with pytest.raises(ConfigError, match=r"`model` is mine\. .*`default`"):
        prepare(named)
    named.add_adapter("default", lora)
    with pytest.raises(ConfigError, match="mine"):
        prepare(named)
    named.set_adapter("default")
    assert prepare(named).facts.trainable
    loaded = tiny_model()
    loaded.add_adapter(lora)
    with pytest.raises(ConfigError, match=r"PeftModel\.from_pretrained"):
        prepare(loaded)
    with pytest.raises(ConfigError, match="asks for another"):
        prepare(get_peft_model(tiny_model(), lora), use_peft=True)
    with pytest.raises(ConfigError, match="not both"):
        prepare(get_peft_model(tiny_model(), lora), lora)


def test_an_own_adapter_that_is_frozen_says_how_to_load_it(tmp_path: Path) -> None:
    lora = LoraConfig(target_modules=["q_proj"], task_type="CAUSAL_LM")
    get_peft_model(tiny_model(), lora).save_pretrained(str(tmp_path))
    with pytest.raises(ModelError, match="is_trainable=True"):
        prepare(PeftModel.from_pretrained(tiny_model(), tmp_path))


@pytest.mark.parametrize("use_peft", [False, True])
def test_the_model_is_given_back_as_it_was(use_peft: bool) -> None:
    own: Any = tiny_model()
    lora = {"use_peft": True, "lora_target_modules": ["q_proj"], "lora_dropout": 0.0} if use_peft else {}
    ids = torch.arange(5, 25)
    own.train()
    before = own(ids[None]).logits
    prepared = prepare(own, neftune_noise_alpha=5.0, **lora)
    assert own.config.use_cache is False
    assert not torch.equal(logits_of_document(prepared.model, ids), before[0])  # the noise is there
    prepared.restore()
    assert own.config.use_cache is True
    assert not own.get_input_embeddings()._forward_hooks
    torch.testing.assert_close(logits_of_document(prepared.model, ids), before[0])
    prepared.restore()  # twice does no harm


def test_an_error_gives_the_model_back_too() -> None:
    own: Any = tiny_model()
    own.requires_grad_(False)
    with pytest.raises(ModelError, match="unfreeze some"):
        prepare(own, neftune_noise_alpha=5.0)
    assert own.config.use_cache is True
    assert not own.get_input_embeddings()._forward_hooks


def test_a_model_that_returns_tuples_is_read_all_the_same(tmp_path: Path) -> None:
    own: Any = tiny_model()
    ids = torch.arange(5, 25)
    expected = own(ids[None]).logits[0]
    own.config.return_dict = False
    own.save_pretrained(tmp_path)
    assert torch.equal(logits_of_document(prepare(model_name_or_path=str(tmp_path)).model, ids), expected)
    prepared = prepare(own)
    assert torch.equal(logits_of_document(prepared.model, ids), expected)
    prepared.restore()
    assert own.config.return_dict is False

"""Promise: memory by part is what tensors take: counted where they can be counted, on a model that is loaded or not."""

import gc
import json
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from dynotune import ConfigError, SFTConfig
from dynotune.estimate.memory import Target, step_memory
from dynotune.measure.memory import (
    activations,
    gradients,
    head_chunked,
    optimizer_states,
    per_token,
    saved_bytes,
    weights,
)
from dynotune.model.precision import Precision
from dynotune.model.skeleton import run_decoder, skeleton

SHAPE = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 160,
    "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512,
    "tie_word_embeddings": False,
}  # fmt: skip
FULL = Precision(torch.float32, False)


def config_of(folder: Path, **keys: Any) -> SFTConfig:
    (folder / "config.json").write_text(json.dumps(SHAPE))
    return SFTConfig(model_name_or_path=str(folder), random_weights=True, **keys)


def real(config: SFTConfig, **more: Any) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    return AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(config.model_name_or_path), **more)


def test_what_autograd_keeps_is_counted_once_and_parameters_are_not() -> None:
    layer = torch.nn.Linear(8, 8)
    x = torch.randn(4, 8, requires_grad=True)
    # the product keeps x (4 x 8 float32) beside the weight; the exponential keeps its result
    assert saved_bytes(layer, lambda: layer(x).exp()) == 2 * 4 * 8 * 4
    assert saved_bytes(layer, lambda: (layer(x).exp(), layer(x))[0]) == 2 * 4 * 8 * 4  # x is there already
    with torch.no_grad():
        frozen = torch.nn.Linear(8, 8).requires_grad_(False)
    assert saved_bytes(frozen, lambda: frozen(x.detach())) == 0


def test_nothing_of_the_counted_pass_lives_on() -> None:
    """An operation that saves its own output must not hold itself: that leaked a pass' activations each time."""
    layer, x, alive = torch.nn.Linear(8, 8), torch.randn(4, 8), []

    def run() -> torch.Tensor:
        out = layer(x).exp()
        alive.append(weakref.ref(out))
        return out

    saved_bytes(layer, run)
    gc.collect()
    assert [one() for one in alive] == [None]


def test_a_skeleton_has_the_shapes_of_the_model(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    bones, model = skeleton(config, FULL), real(config)
    assert all(p.is_meta for p in bones.parameters())
    assert {n: p.shape for n, p in bones.named_parameters()} == {n: p.shape for n, p in model.named_parameters()}
    assert [p.bytes for p in weights(bones, False)] == [p.bytes for p in weights(model, False)]


def test_a_skeleton_keeps_what_the_model_keeps(tmp_path: Path) -> None:
    """Activations for each token equal those of the real model under a flash kernel, which the CPU's SDPA is, too."""
    config = config_of(tmp_path)
    bones, model = skeleton(config, FULL), real(config, attn_implementation="sdpa")
    model.train()
    counted = per_token(bones, lambda n: run_decoder(bones, n), torch.float32)
    there = per_token(
        model,
        lambda n: model.model(input_ids=torch.zeros(1, n, dtype=torch.long), use_cache=False),
        torch.float32,
    )
    assert counted.kept == pytest.approx(there.kept, rel=0.02)
    assert counted.working == there.working
    eager = real(config, attn_implementation="eager")  # negative control: scores of all pairs do not go unseen
    scores = per_token(
        eager,
        lambda n: eager.model(input_ids=torch.zeros(1, n, dtype=torch.long), use_cache=False),
        torch.float32,
    )
    assert scores.kept > 1.3 * counted.kept


def test_gradients_and_optimizer_states_are_those_of_a_step(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    model = real(config)
    for name, optimizer in (
        ("adamw_torch", torch.optim.AdamW(model.parameters())),
        ("sgd", torch.optim.SGD(model.parameters())),
        ("rmsprop", torch.optim.RMSprop(model.parameters())),
        ("adagrad", torch.optim.Adagrad(model.parameters())),
    ):
        model.zero_grad()
        model(input_ids=torch.zeros(1, 4, dtype=torch.long)).logits.sum().backward()
        optimizer.step()
        states = [t for state in optimizer.state.values() for t in state.values() if torch.is_tensor(t) and t.dim()]
        assert optimizer_states(model, name, None).bytes == sum(t.nbytes for t in states), name
        assert gradients(model).bytes == sum(p.grad.nbytes for p in model.parameters())
    with pytest.raises(ConfigError, match="lomo"):
        optimizer_states(model, "lomo", None)


def test_lora_trains_little_and_freezes_the_rest(tmp_path: Path) -> None:
    config = config_of(tmp_path, use_peft=True, lora_r=4, lora_target_modules="all-linear", lora_dropout=0.0)
    memory = step_memory(config, Target("cuda", "a GPU", None))
    parts = {part.name: part.bytes for part in memory.parts(1024, 0.5, packed=True)}
    inputs_outputs = 3 * (2 * (64 + 64) + 2 * (64 + 32) + 3 * (64 + 160))
    assert parts["gradients"] == 4 * 4 * inputs_outputs  # rank 4, float32
    assert parts["optimizer"] == 2 * parts["gradients"]
    whole = step_memory(config_of(tmp_path), Target("cuda", "a GPU", None))
    of_whole = {part.name: part.bytes for part in whole.parts(1024, 0.5, packed=True)}
    assert 0 <= of_whole["weights"] - of_whole["gradients"] < 100  # the rotary frequencies
    assert parts["weights"] < 0.7 * of_whole["weights"]  # a bfloat16 base beside float32 adapters
    assert parts["activations"] < of_whole["activations"] * 1.5


@pytest.mark.parametrize("bf16", [False, True])
def test_lora_on_the_cpu_is_known_too(tmp_path: Path, bf16: bool) -> None:
    config = config_of(tmp_path, use_peft=True, lora_r=4, lora_target_modules="all-linear", use_cpu=True, bf16=bf16)
    memory = step_memory(config, Target("cpu", "CPU", None))
    assert memory.compute is (torch.bfloat16 if bf16 else torch.float32)
    assert memory.needed(512) > memory.needed(256) > 0


def test_what_each_policy_leaves(tmp_path: Path) -> None:
    """Layers computed again leave their inputs and one layer; with them on the host, two inputs; cheap results are less."""
    config = config_of(tmp_path)
    bones = skeleton(config, FULL)
    plain = replace(per_token(bones, lambda n: run_decoder(bones, n), torch.float32), cheap=300)
    again, away, cheap = (plain.under(policy) for policy in ("full", "offload", "selective"))
    assert plain.under("none") == plain
    assert again.kept == plain.inputs == 3 * 64 * 4
    assert again.again == plain.kept // 3
    assert away.kept == 2 * 64 * 4
    assert away.again == again.again
    assert cheap.kept == plain.kept - 300
    assert away.bytes < again.bytes < cheap.bytes < plain.bytes
    assert activations(plain, 1000, working=True).bytes == 1000 * (plain.kept + plain.working)
    assert activations(plain, 1000, working=False).bytes == 1000 * plain.kept


def test_the_peak_is_that_of_one_moment(tmp_path: Path) -> None:
    """The head's logits and what the backward works with are never there together; a first micro-batch has no gradients."""
    memory = step_memory(config_of(tmp_path), Target("cuda", "a GPU", None))

    def bytes_of(tokens: int, **more: Any) -> dict[str, int]:
        return {part.name: part.bytes for part in memory.parts(tokens, 1.0, packed=True, **more)}

    few, many = bytes_of(64), bytes_of(100_000)
    assert few.keys() == many.keys()
    assert sum(many.values()) > sum(few.values())
    together = many["activations"] + many["logits"]
    counted = memory.per_token
    assert together < 100_000 * counted.bytes + memory._head(100_000, 1.0, True).bytes
    assert together >= 100_000 * counted.bytes
    alone = bytes_of(100_000, accumulates=False)
    assert sum(alone.values()) < sum(many.values())
    # in the update all gradients are there and no activations: with next to no tokens that is the peak
    tiny = bytes_of(1, accumulates=False)
    assert tiny["gradients"] == many["gradients"]


def test_the_head_holds_one_chunk_of_logits_and_more_where_it_is_trained(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    model = real(config)
    model.lm_head.requires_grad_(False)
    frozen = head_chunked(model, 1000, 0.5, torch.float32, 128).bytes
    assert frozen == 128 * 512 * 4 + 500 * 64 * 4 + 1000 * 64 * 4
    model.lm_head.requires_grad_(True)
    assert head_chunked(model, 1000, 0.5, torch.float32, 128).bytes == frozen + 512 * 64 * 4

"""Promise: a head that an adapter changes gives what the plain path gives, every trained parameter's gradient included."""

import copy
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model

from dynotune.model.attention.decoder import text_decoder
from dynotune.model.head import find_head, head, linear, sequence_scores
from dynotune.model.head import module as module_walk
from dynotune.model.lora import install
from tests.model.head.plain import VARIANTS, batch_of, labelled, objective, plain_loss
from tests.tiny import tiny_model

IDS = torch.tensor([5, 9, 300, 17, 2, 41])
DOCUMENTS = labelled([31], 352, seed=5)

ADAPTERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "elsewhere": ({}, {"target_modules": ["q_proj", "v_proj"]}),
    "LoRA": ({}, {"target_modules": ["q_proj", "lm_head"]}),
    "rank-stabilised LoRA": ({}, {"target_modules": ["q_proj", "lm_head"], "use_rslora": True}),
    "DoRA": ({}, {"target_modules": ["q_proj", "lm_head"], "use_dora": True}),
    "LoRA, tied": ({"tie_word_embeddings": True}, {"target_modules": ["q_proj", "lm_head"]}),
    "LoRA on a soft-capped head": ({"kind": "gemma2"}, {"target_modules": ["q_proj", "lm_head"]}),
    "trained in full": ({}, {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]}),
    "new tokens": (
        {"tie_word_embeddings": True},
        {"target_modules": ["q_proj"], "trainable_token_indices": {"embed_tokens": [3, 300, 9]}},
    ),
    "new tokens, untied": (
        {},
        {
            "target_modules": ["q_proj"],
            "modules_to_save": ["lm_head"],
            "trainable_token_indices": {"embed_tokens": [3, 300, 9]},
        },
    ),
}


def adapted(name: str) -> Any:
    """A model with this adapter, whose parameters have left their start, where half of them get no gradient."""
    changes, config = ADAPTERS[name]
    model = get_peft_model(tiny_model(**{"kind": "llama", **changes}), LoraConfig(r=4, task_type="CAUSAL_LM", **config))
    torch.manual_seed(1)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data += 0.1 * torch.randn_like(parameter)
    return model.train()


def stepped(model: Any, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    """Gradients of the trained parameters, and the parameters after one update."""
    (loss / 7).backward()
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    assert trained
    gradients = {f"gradient of {name}": p.grad.clone() for name, p in trained.items() if p.grad is not None}
    torch.optim.SGD(trained.values(), lr=0.3).step()
    return gradients | {name: p.detach().clone() for name, p in trained.items()}


def plain(model: Any, **variant: Any) -> torch.Tensor:
    ids = torch.from_numpy(DOCUMENTS[0][0]).long()
    loss, _ = plain_loss(DOCUMENTS, ids, lambda rows: model(input_ids=rows[None]).logits[0], objective(**variant))
    return loss


def ours(model: Any, documents: Any = DOCUMENTS, **variant: Any) -> torch.Tensor:
    found = find_head(model, IDS)
    assert found.head is not None, found.why_not
    ids = torch.from_numpy(documents[0][0]).long()
    hidden_TD = text_decoder(model)(input_ids=ids[None], use_cache=False).last_hidden_state[0]
    loss: torch.Tensor = found.head(hidden_TD, batch_of(documents, len(ids)), objective(**variant))[0]
    return loss


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize("name", ADAPTERS)
def test_gradients_and_one_update_are_the_plain_paths(
    monkeypatch: pytest.MonkeyPatch, name: str, variant: dict[str, Any]
) -> None:
    for walk in (module_walk, linear):
        monkeypatch.setattr(walk, "chunks", lambda n, *_: [(i, min(i + 6, n)) for i in range(0, n, 6)])
    model = adapted(name)
    twin = copy.deepcopy(model)
    expected_loss, loss = plain(twin, **variant), ours(model, **variant)
    torch.testing.assert_close(loss, expected_loss, rtol=1e-5, atol=0)
    expected, got = stepped(twin, expected_loss), stepped(model, loss)
    assert got.keys() == expected.keys()
    for key, value in expected.items():
        torch.testing.assert_close(got[key], value, rtol=1e-4, atol=1e-6, msg=lambda m, key=key: f"{key}: {m}")


@pytest.mark.parametrize("name", ["LoRA", "DoRA", "LoRA on a soft-capped head", "trained in full", "new tokens"])
def test_working_precision_errs_at_most_half_as_much_again_as_the_plain_path(name: str) -> None:
    """P2: a bfloat16 base with float32 adapters under autocast, against float32 of the same weights."""
    model = adapted(name)
    for parameter in model.parameters():
        if not parameter.requires_grad:
            parameter.data = parameter.data.bfloat16()
    exact = copy.deepcopy(model).float()
    right = stepped(exact, plain(exact))
    errors = []
    for way in (ours, plain):
        twin = copy.deepcopy(model)
        with torch.autocast("cpu", torch.bfloat16):
            loss = way(twin)
        got = stepped(twin, loss)
        gradients = [key for key in right if key.startswith("gradient") and right[key].any()]
        errors.append(torch.stack([(got[key] - right[key]).norm() / right[key].norm() for key in gradients]).mean())
    assert 0 < errors[0] <= 1.5 * errors[1], errors


def test_lora_on_the_head_runs_fused_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module_walk, "chunks", lambda n, *_: [(i, min(i + 6, n)) for i in range(0, n, 6)])
    model = adapted("LoRA")
    twin = copy.deepcopy(model)
    engaged = install(model, torch.float32)
    assert any("lm_head" in name for name in engaged.linears)
    expected, got = stepped(twin, plain(twin)), stepped(model, ours(model))
    assert got.keys() == expected.keys()
    for key, value in expected.items():
        torch.testing.assert_close(got[key], value, rtol=1e-4, atol=1e-6, msg=lambda m, key=key: f"{key}: {m}")


def test_trained_token_rows_cost_no_gradient_of_the_whole_head(monkeypatch: pytest.MonkeyPatch) -> None:
    """PEFT's own forward merges them anew for each call, and its backward makes the whole weight's gradient."""
    model = adapted("new tokens")
    ours(model)  # works as in the test above ...
    monkeypatch.setattr(head, "through_module", None)
    assert "frozen but for 3 rows" in find_head(model, IDS).head.describe()[0]  # type: ignore[union-attr]
    ours(model)  # ... by the linear walk alone


@pytest.mark.parametrize("which", ["bias", "trained base"])
def test_trained_token_rows_on_another_head_take_the_general_way(which: str) -> None:
    """PEFT's forward leaves a bias out: what it computes is what is matched, here as everywhere."""
    model = adapted("new tokens")
    base = model.get_base_model().lm_head.token_adapter.base_layer
    if which == "bias":
        base.bias = torch.nn.Parameter(torch.ones(352), requires_grad=False)
    else:
        base.weight.requires_grad_()
    twin = copy.deepcopy(model)
    expected_loss, loss = plain(twin), ours(model)
    expected, got = stepped(twin, expected_loss), stepped(model, loss)
    for key, value in expected.items():
        torch.testing.assert_close(got[key], value, rtol=1e-4, atol=1e-6, msg=lambda m, key=key: f"{key}: {m}")


def test_a_forgotten_parameter_would_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: the leaves of the graph are what finds a parameter that belongs to the embedding."""
    monkeypatch.setattr(module_walk, "leaves", lambda z: iter([]))
    model = adapted("LoRA")
    got = stepped(model, ours(model))
    twin = adapted("LoRA")
    assert got.keys() != stepped(twin, plain(twin)).keys()


@pytest.mark.parametrize("name", ADAPTERS)
def test_without_label_tokens_the_same_parameters_get_zeros(name: str) -> None:
    model, twin = adapted(name), adapted(name)
    nothing = [(DOCUMENTS[0][0], DOCUMENTS[0][1] * 0 - 100)]
    loss = ours(model, nothing)
    assert float(loss.detach()) == 0
    loss.backward()
    plain(twin).backward()
    for (key, empty), (_, full) in zip(model.named_parameters(), twin.named_parameters(), strict=True):
        assert (empty.grad is None) == (full.grad is None), key
        assert empty.grad is None or not empty.grad.any(), key


def test_a_disabled_adapter_is_not_there() -> None:
    for name in ADAPTERS:
        model = adapted(name)
        with model.disable_adapter(), torch.no_grad():
            torch.testing.assert_close(ours(model), plain(model), rtol=1e-5, atol=0)
            without = ours(model)
        with torch.no_grad():
            assert abs(float(without - ours(model))) > 1e-4, name


def sequences(model: Any, plainly: bool) -> torch.Tensor:
    """A bent function of two sequences' log-probabilities; one row predicts for both."""
    ids = torch.from_numpy(DOCUMENTS[0][0]).long()
    predictors_N, sequences_N = torch.tensor([5, 6, 7, 7, 20, 21, 22]), torch.tensor([0, 0, 0, 1, 1, 1, 1])
    targets_N = ids.roll(-1)[predictors_N]
    if plainly:
        logps_NV = model(input_ids=ids[None]).logits[0].log_softmax(-1)[predictors_N]
        logps_Q = torch.zeros(2).index_add(0, sequences_N, logps_NV.gather(1, targets_N[:, None])[:, 0].float())
    else:
        found = find_head(model, IDS)
        assert found.head is not None, found.why_not
        hidden_TD = text_decoder(model)(input_ids=ids[None], use_cache=False).last_hidden_state[0]
        logps_Q = sequence_scores(found.head, hidden_TD, predictors_N, targets_N, sequences_N, 2).logps_Q
    return -torch.nn.functional.logsigmoid(0.1 * (logps_Q[0] - logps_Q[1]))


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("name", ADAPTERS)
def test_sequences_gradients_and_one_update_are_the_plain_paths(
    monkeypatch: pytest.MonkeyPatch, name: str, fused: bool
) -> None:
    for walk in (module_walk, linear):
        monkeypatch.setattr(walk, "chunks", lambda n, *_: [(i, min(i + 3, n)) for i in range(0, n, 3)])
    model = adapted(name)
    twin = copy.deepcopy(model)
    if fused:
        install(model, torch.float32)
    expected_loss, loss = sequences(twin, plainly=True), sequences(model, plainly=False)
    torch.testing.assert_close(loss, expected_loss, rtol=1e-5, atol=0)
    expected, got = stepped(twin, expected_loss), stepped(model, loss)
    assert got.keys() == expected.keys()
    for key, value in expected.items():
        torch.testing.assert_close(got[key], value, rtol=1e-4, atol=1e-6, msg=lambda m, key=key: f"{key}: {m}")

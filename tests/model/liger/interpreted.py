"""Liger's kernels in Triton's interpreter, on the CPU: `test_liger.py` runs this file in a process of its own."""

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from liger_kernel.ops import rms_norm
from torch import Tensor

from dynotune.model.elementwise import gate, install, norm
from dynotune.model.elementwise.usable import Kernels
from dynotune.model.liger.gated import LigerGated
from dynotune.model.liger.tables import why_not_halves
from dynotune.model.liger.usable import kernels
from tests.model.elementwise.stand_ins import rotate
from tests.model.liger import interpreter
from tests.model.lora.adapted import adapted_model, gap, largest_gap, loss_and_gradients
from tests.tiny import tiny_model

interpreter.complete()

LIGER: Any = kernels()
LIMIT = {torch.float32: 1e-6, torch.float16: 1e-3}

FEW = torch.arange(7, 19).view(2, 6)
"""Tokens: the interpreter takes a millisecond for each row of a kernel."""


@pytest.fixture
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Norms are compared on few rows, too."""
    monkeypatch.setattr(norm, "ELEMENTS", 512)


def draw(seed: int, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def check(function: Any, reference: Any, inputs: list[Tensor]) -> None:
    """Outputs and gradients against the reference in float64; the gradient that comes in is left as it was."""
    results = []
    # Of a model's own operations, and of leaves.
    for f, dtype, factor in (
        (function, inputs[0].dtype, 1),
        (function, inputs[0].dtype, None),
        (reference, torch.float64, 1),
    ):
        leaves = [x.to(dtype, copy=True).requires_grad_() for x in inputs]
        out = f(*(leaves if factor is None else [x * factor for x in leaves]))
        outputs = out if isinstance(out, tuple) else (out,)
        cotangents = [draw(90 + i, *y.shape).to(y.dtype) for i, y in enumerate(outputs)]
        before = [x.clone() for x in cotangents]
        found = [y.detach().clone() for y in outputs]
        found += torch.autograd.grad(outputs, leaves, cotangents)
        assert all(torch.equal(x, was) for x, was in zip(cotangents, before, strict=True))
        results.append(found)
    for *theirs, right in zip(*results, strict=True):
        assert all(gap(one, right) < LIMIT[inputs[0].dtype] for one in theirs)


def test_all_of_it_is_there() -> None:
    assert isinstance(LIGER, Kernels)
    assert LIGER.on_cpu


@pytest.mark.parametrize("dtype", list(LIMIT))
@pytest.mark.parametrize("form", norm.FORMS)
def test_norm(form: tuple[float, bool], dtype: torch.dtype) -> None:
    def own(x: Tensor, w: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-3) * (form[0] + w)

    inputs = [draw(0, 2, 5, 48, dtype=dtype), draw(1, 48, dtype=dtype)]
    check(lambda x, w: LIGER.rms_norm.apply(x, w, 1e-3, *form), own, inputs)


def test_the_norm_gives_the_dtype_that_torch_gives() -> None:
    for x_dtype in LIMIT:
        for w_dtype in LIMIT:
            for form in norm.FORMS:
                x, w = draw(0, 3, 16, dtype=x_dtype), draw(1, 16, dtype=w_dtype)
                theirs, own = LIGER.rms_norm.apply(x, w, 1e-6, *form), norm.reference(x, w, 1e-6, *form)
                assert theirs.dtype == own.dtype
                assert gap(theirs, own) < 2e-3


def test_heads_within_tokens_stay_there_in_the_norm() -> None:
    x = draw(0, 2, 5, 3, 16).transpose(1, 2)
    assert LIGER.rms_norm.apply(x, draw(1, 16), 1e-6, 0.0, True).stride() == x.stride()
    check(
        lambda x, w: LIGER.rms_norm.apply(x.transpose(1, 2), w, 1e-6, 0.0, True),
        lambda x, w: (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w).transpose(1, 2),
        [draw(0, 2, 5, 3, 16), draw(1, 16)],
    )


def test_a_frozen_norm_computes_no_gradient_of_its_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted: list[bool] = []
    real = rms_norm.rms_norm_backward
    monkeypatch.setattr(
        rms_norm, "rms_norm_backward", lambda *a, needs_dw: wanted.append(needs_dw) or real(*a, needs_dw=needs_dw)
    )
    x, w = draw(0, 3, 16).requires_grad_(), draw(1, 16)
    for trained in (False, True):
        LIGER.rms_norm.apply(x, w.requires_grad_(trained), 1e-6, 0.0, True).sum().backward()
    assert wanted == [False, True]


@pytest.mark.parametrize("dtype", list(LIMIT))
@pytest.mark.parametrize("tanh", [False, True])
def test_gate(tanh: bool, dtype: torch.dtype) -> None:
    gates, ups = draw(0, 2, 5, 48, dtype=dtype), draw(1, 2, 5, 48, dtype=dtype)
    check(lambda g, u: LIGER.gated.apply(g, u, tanh), lambda g, u: gate.reference(tanh, g, u), [gates, ups])
    both = torch.cat([gates, ups], -1)
    check(lambda x: LIGER.gated_halves.apply(x, tanh), lambda x: gate.reference(tanh, x), [both])


def test_what_the_gate_overwrites_is_an_error_for_whoever_needs_it() -> None:
    gates, ups = (draw(i, 3, 16).requires_grad_() for i in range(2))
    out = LigerGated.apply(gates * 1, ups * 1, False)
    out.sum().backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()
    g = gates * 1
    beside = g.square()  # saves g
    LigerGated.apply(g, ups * 1, False).sum().backward()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        beside.sum().backward()


@pytest.mark.parametrize("dtype", list(LIMIT))
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("inside", [True, False], ids=["heads in tokens", "tokens in heads"])
def test_rotary(inside: bool, batch: int, dtype: torch.dtype) -> None:
    query, key = (draw(h, batch, 5, h, 8, dtype=dtype).transpose(1, 2) for h in (3, 2))
    cos, sin = (draw(5 + i, 1, 5, 4, dtype=dtype).repeat(1, 1, 2) for i in range(2))

    def theirs(q: Tensor, k: Tensor) -> Any:
        return LIGER.rotary.apply(*(x if inside else x.contiguous() for x in (q, k)), cos, sin)

    check(theirs, lambda q, k: rotate(q, k, cos.double(), sin.double()), [query, key])


def test_rotary_gives_the_wider_dtype_as_torch_does() -> None:
    query, key = (draw(h, 1, 5, h, 8, dtype=torch.float16).transpose(1, 2) for h in (3, 2))
    cos, sin = (draw(5 + i, 1, 5, 4).repeat(1, 1, 2) for i in range(2))
    was = query.clone()
    out = LIGER.rotary.apply(query, key, cos, sin)
    assert [x.dtype for x in out] == [torch.float32, torch.float32]
    assert torch.equal(query, was)
    assert all(gap(a, b) < 1e-6 for a, b in zip(out, rotate(query.float(), key.float(), cos, sin), strict=True))


def test_what_rotary_overwrites_is_an_error_for_whoever_needs_it() -> None:
    query, key = (draw(h, 1, 5, h, 8).transpose(1, 2).requires_grad_() for h in (3, 2))
    cos, sin = (draw(5 + i, 1, 5, 4).repeat(1, 1, 2) for i in range(2))
    q = query * 1
    beside = q.square()
    LIGER.rotary.apply(q, key * 1, cos, sin)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        beside.sum().backward()


def test_a_gradient_that_reaches_others_too_is_left_alone() -> None:
    """As behind a residual: Liger's own functions write their result into it."""
    x, w = draw(0, 3, 16).requires_grad_(), draw(1, 16)
    g = draw(2, 3, 16)
    (found,) = torch.autograd.grad(x * 1 + LIGER.rms_norm.apply(x * 1, w, 1e-6, 0.0, True), x, g)
    (right,) = torch.autograd.grad(x + norm.reference(x, w, 1e-6, 0.0, True), x, g)
    assert gap(found, right) < 1e-6


@pytest.mark.parametrize(("kind", "recomputed"), [("llama", True), ("gemma3_text", False), ("phi3", True)])
def test_a_model_runs_on_ligers_kernels_alone(kind: str, recomputed: bool, few_rows: None) -> None:
    model: Any = tiny_model(kind, num_hidden_layers=1).train()
    loss, gradients = loss_and_gradients(model, FEW)
    engaged = install(model, torch.float32, kernels=LIGER, called="Liger")
    if recomputed:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    found_loss, found = loss_and_gradients(model, FEW)
    assert all(engaged.fused.values())
    assert not any(engaged.others.values())
    assert engaged.calls_to_own == 0
    assert gap(found_loss, loss) < 1e-6
    assert largest_gap(found, gradients) < 1e-5
    engaged.uninstall()
    back_loss, back = loss_and_gradients(model, FEW)
    assert torch.equal(back_loss, loss)
    assert recomputed or all(torch.equal(back[name], gradients[name]) for name in gradients)


def test_lora_with_dropout(few_rows: None) -> None:
    from dynotune.model.lora import install as install_lora

    model: Any = adapted_model("qwen2", lora_dropout=0.1)
    install_lora(model, torch.float32)
    torch.manual_seed(1)
    loss, gradients = loss_and_gradients(model, FEW)
    engaged = install(model, torch.float32, kernels=LIGER)
    torch.manual_seed(1)
    found_loss, found = loss_and_gradients(model, FEW)
    assert engaged.calls_to_own == 0
    assert gap(found_loss, loss) < 1e-6
    assert largest_gap(found, gradients) < 1e-5


def test_float32_weights_under_autocast(few_rows: None) -> None:
    model = tiny_model("qwen3", num_hidden_layers=1).train()
    engaged = install(model, torch.float16, kernels=LIGER)
    assert not any(engaged.others.values())
    losses = []
    for _ in range(2):
        with torch.autocast("cpu", torch.float16):
            losses.append(model(input_ids=FEW, labels=FEW).loss.detach())
        assert engaged.calls_to_own == 0
        engaged.uninstall()
    assert gap(losses[0], losses[1]) < 1e-3


@pytest.mark.parametrize("kind", ["llama", "gemma3_text"])
def test_tables_whose_halves_differ_are_seen(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Liger's kernel would take the first half for both, and nothing else would tell."""
    model: Any = tiny_model(kind, num_hidden_layers=2)
    engaged = install(model, torch.float32, ["rotary embedding"], LIGER)
    fused = engaged.fused["rotary embedding"]
    assert len(fused) == 2
    assert why_not_halves(model, fused, nullcontext) == {}
    rotary = model.model.rotary_emb
    real = rotary.forward

    def uneven(*args: Any, **kwargs: Any) -> Any:
        cos, sin = real(*args, **kwargs)
        cos[..., -1] += 1e-3
        return cos, sin

    monkeypatch.setattr(rotary, "forward", uneven)
    assert why_not_halves(model, fused, nullcontext) == dict.fromkeys(fused, "the two halves of its tables differ")
    engaged.uninstall()
    assert why_not_halves(model, fused, nullcontext) == dict.fromkeys(
        fused, "its tables cannot be seen in a forward pass"
    )

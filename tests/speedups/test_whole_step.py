"""Promise: products in full precision and waits of the host are found in a step whichever speed-ups stand, with where they
are; what the trace does not tell is unknown and never absent."""

import json
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from dynotune.measure.evidence import Evidence, Phase, Seen, Source
from dynotune.speedups.whole_step import PRODUCTS, WAITS, Presence, Unwanted, unwanted_in, worst
from tests.speedups.made_evidence import evidence, kernel, operator
from tests.speedups.traced_steps import IDS, VOCABULARY, packed_step, step_of
from tests.tiny import tiny_model

BF16 = partial(torch.autocast, "cpu", torch.bfloat16)
LAYERS = ("model.layers.0", "model.layers.1")
LOW = ("c10::BFloat16", "c10::BFloat16")
FULL = ("float", "float")


def found(what: str, step: Evidence) -> Unwanted:
    return next(one for one in unwanted_in(step) if one.what == what)


def step_with(change: Any = lambda model: None, **facts: Any) -> Evidence:
    """A real one in bfloat16, of two layers that are told apart."""
    model: Any = tiny_model("llama")
    change(model)
    loss = partial(model, input_ids=IDS, labels=IDS, use_cache=False)
    return step_of(model, lambda: loss().loss, LAYERS, BF16, compute="bfloat16", **facts)


def upcast(module: Any) -> None:
    """The plant: its product runs in float32."""
    inner = module.forward

    def outside(x: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            return inner(x.float())

    module.forward = outside


def test_a_step_in_bfloat16_holds_neither() -> None:
    """Also with our head, which sums the gradient of its weight in float32: a CPU cannot otherwise."""
    packed = packed_step(autocast=BF16, compute="bfloat16")
    assert [(one.what, one.state, one.evidence) for one in unwanted_in(packed)] == [
        (PRODUCTS, "absent", ""),
        (WAITS, "absent", ""),
    ]
    assert found(PRODUCTS, step_with()).presence is Presence.ABSENT


def test_one_linear_in_float32_is_named_with_its_layer_forward_and_backward() -> None:
    one = found(PRODUCTS, step_with(lambda model: upcast(model.model.layers[1].self_attn.k_proj)))
    assert (one.presence, one.count, one.is_open) == (Presence.FOUND, 3, True)
    assert {(event["name"], event["phase"], event["place"]) for event in one.events} == {
        ("aten::mm", "forward", "model.layers.1"),
        ("aten::mm", "backward", "model.layers.1"),
    }
    assert sum(event["count"] for event in one.events) == one.count
    assert "aten::mm of 48 x 32 (forward, model.layers.1) x 1" in one.evidence


def test_a_head_in_float32_is_found_although_the_sum_of_its_gradient_is_not_counted() -> None:
    one = found(PRODUCTS, step_with(lambda model: upcast(model.lm_head)))
    assert [event["shape"] for event in one.events if event["phase"] == "forward"] == [[32, VOCABULARY]]


def product(left: tuple[int, int], right: tuple[int, int], types: tuple[str, ...] = FULL, **more: Any) -> Seen:
    return operator("aten::mm", Phase.FORWARD, shapes=(left, right), dtypes=types, **more)


def step(*seen: Seen, **facts: Any) -> Evidence:
    return evidence(*seen, device="cpu", facts={"compute": "bfloat16", "tokens": [48], **facts})


@pytest.mark.parametrize(
    ("left", "right"),
    [((48, 32), (32, 8)), ((48, 8), (8, 32)), ((8, 48), (48, 32)), ((48, 1), (1, 16))],
    ids=["a router's logits", "the gradient of its input", "the gradient of its weight", "a vector"],
)
def test_what_is_meant_to_be_in_float32_is_not_counted(left: tuple[int, int], right: tuple[int, int]) -> None:
    low = product((48, 32), (32, 32), LOW)
    assert found(PRODUCTS, step(low, product(left, right), experts=8)).presence is Presence.ABSENT
    if 1 not in left:  # control: without a router that is any product
        assert found(PRODUCTS, step(low, product(left, right), experts=4)).state == "1 found"
        assert found(PRODUCTS, step(low, product(left, right))).state == "1 found"


def test_adapters_of_as_many_ranks_as_there_are_experts_are_no_routers() -> None:
    """A layer has one router; two products of its shape in one place are something else."""
    low, one = product((48, 32), (32, 32), LOW), product((48, 32), (32, 8))
    assert found(PRODUCTS, step(low, one, experts=8)).presence is Presence.ABSENT
    assert found(PRODUCTS, step(low, one, product((48, 32), (32, 8)), experts=8)).state == "2 found"


@pytest.mark.parametrize("fact", [{"experts": 48}, {"vocabulary": 48}], ids=["experts", "vocabulary"])
def test_as_many_tokens_as_experts_or_words_hide_nothing(fact: dict[str, int]) -> None:
    assert found(PRODUCTS, step(product((48, 32), (32, 64)), **fact)).presence is Presence.FOUND


def test_in_a_run_of_float32_nobody_looks() -> None:
    one = found(PRODUCTS, step(product((48, 32), (32, 32)), compute="float32"))
    assert (one.state, one.evidence, one.is_open) == ("allowed", "the run computes in float32", False)


CALL = Seen("cudaLaunchKernel", Source.RUNTIME, Phase.FORWARD)


@pytest.mark.parametrize(
    ("trace", "why"),
    [
        (step(product((48, 32), (32, 32), ())), "no types of 1 matrix products"),
        (step(product((48, 32), (32, 32), ("float", ""))), "no types of 1 matrix products"),
        (step(operator("aten::add", Phase.FORWARD)), "no matrix product was seen"),
        (step(), "the trace is empty"),
        (step(product((48, 32), (32, 32), LOW), not_traced="another profiler"), "not traced: another profiler"),
        (evidence(product((48, 32), (32, 32), LOW), facts={"compute": "bfloat16"}), "saw no kernel on the GPU"),
        (
            evidence(
                product((48, 32), (32, 32), LOW), kernel("triton_tem_fused_addmm_3", Phase.FORWARD),
                facts={"compute": "bfloat16"},
            ),
            "1 matrix products were written by the compiler",
        ),
    ],
)  # fmt: skip
def test_products_of_which_the_trace_does_not_tell_are_unknown(trace: Evidence, why: str) -> None:
    one = found(PRODUCTS, trace)
    assert (one.presence, one.is_open) == (Presence.UNKNOWN, True)
    assert why in one.evidence


def test_what_was_seen_was_seen_whatever_else_is_not_told() -> None:
    assert found(PRODUCTS, step(product((48, 32), (32, 32)), product((48, 32), (32, 32), ()))).state == "1 found"


def test_kernels_of_an_untraced_product_are_named() -> None:
    gemm = kernel("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n", Phase.BACKWARD, "layers.3", count=2)
    one = found(PRODUCTS, evidence(gemm, CALL, facts={"compute": "bfloat16"}))
    assert (one.count, one.evidence) == (2, f"{gemm.name} (backward, layers.3) x 2")


OF_A_GPU = {
    "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize256x128x8_stage3_warpsize1": True,
    "sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x256x32_warpgroupsize1": True,
    "sm90_xmma_gemm_f64f64_f64f64_f64_nn_n_tilesize32x32x32_stage5_warpsize": True,
    "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_64x64_16x6_nn_align1>": True,
    "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>": True,
    "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT": False,
    "nvjet_sm90_tss_192x192_64x3_1x2_h_badd_coopB_NTN": False,
    "nvjet_sm90_tst_64x8_64x16_1x4_h_bz_splitK_TNT": False,
    "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT": False,
}
"""Kernels that PyTorch 2.11 launched on an H200 for products in float32, TF32, float64 and bfloat16, and whether they are to
be found."""


@pytest.mark.parametrize("name", OF_A_GPU)
def test_kernels_in_16_bits_are_told_from_others_by_their_names(name: str) -> None:
    low = product((48, 32), (32, 32), LOW)
    one = found(PRODUCTS, evidence(low, kernel(name, Phase.FORWARD), CALL, facts={"compute": "bfloat16"}))
    assert (one.presence is Presence.FOUND) == OF_A_GPU[name]


def test_a_value_that_a_forward_asks_for_is_a_wait() -> None:
    """Beside the one by which transformers looks for documents side by side where nobody gives it positions."""

    def ask(model: Any) -> None:
        mlp = model.model.layers[0].mlp
        inner = mlp.forward
        mlp.forward = lambda x: inner(x) if x.detach().sum().item() else x

    assert found(WAITS, step_with()).evidence == "aten::_local_scalar_dense (forward) x 1"
    one = found(WAITS, step_with(ask))
    assert (one.presence, one.count) == (Presence.FOUND, 2)
    assert "aten::_local_scalar_dense (forward, model.layers.0) x 1" in one.evidence


def waiting(phase: str, **facts: Any) -> Evidence:
    wait = {"name": "cudaStreamSynchronize", "phase": phase, "place": "", "count": 2}
    return evidence(kernel("k", Phase.FORWARD), CALL, facts={"waits_of_host": [wait], **facts})


@pytest.mark.parametrize(
    ("trace", "state"),
    [
        (waiting("forward"), "2 found"),
        (waiting("update"), "2 found"),
        (waiting("update", update_waits=True), "absent"),
        (waiting("backward", update_waits=True), "2 found"),
        (waiting("other"), "absent"),
    ],
)
def test_waits_by_design_are_not_counted(trace: Evidence, state: str) -> None:
    """For the flag of an optimizer that cannot skip a step by itself, and of ranks for each other between the passes."""
    assert found(WAITS, trace).state == state


def test_a_trace_without_calls_of_the_runtime_does_not_tell_of_waits() -> None:
    one = found(WAITS, evidence(kernel("k", Phase.FORWARD)))
    assert (one.presence, one.why) == (Presence.UNKNOWN, "the trace has no runtime events")


def test_of_several_ranks_the_worst_counts() -> None:
    ranks = [
        [Unwanted(WAITS, presence, count)]
        for presence, count in ((Presence.ABSENT, 0), (Presence.FOUND, 1), (Presence.FOUND, 3), (Presence.UNKNOWN, 0))
    ]
    assert [one.state for one in worst(ranks)] == ["3 found"]
    assert [one.state for one in worst([ranks[0], ranks[3]])] == ["unknown"]


def test_it_is_read_as_it_is_written() -> None:
    for one in unwanted_in(step_with(lambda model: upcast(model.model.layers[1].mlp.up_proj))):
        assert Unwanted.from_json(json.loads(json.dumps(one.to_json()))).to_json() == one.to_json()
    body = found(WAITS, waiting("forward")).to_json()
    for damage in ({"presence": "gone"}, {"count": "2"}, {"events": [{"name": 3}]}, {"events": [3]}, {"why": None}):
        with pytest.raises((ValueError, TypeError, KeyError)):
            Unwanted.from_json({**body, **damage})

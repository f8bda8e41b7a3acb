"""Promise: what must be absent is found where it is: in traces of transformers' own paths, and not in those of ours."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dynotune.measure.evidence import Evidence, Phase
from dynotune.speedups.absences import dense_masks, full_logits, full_precision_products, host_waits, math_attention
from dynotune.speedups.expectation import Absent
from tests.speedups.made_evidence import evidence, kernel, operator
from tests.speedups.traced_steps import IDS, packed_step, step_of, transformers_step
from tests.tiny import tiny_model

BF16 = partial(torch.autocast, "cpu", torch.bfloat16)


def seen(absent: Absent, trace: Evidence) -> str:
    """What was found, as text; empty where it is absent."""
    return absent.found(trace) or ""


@pytest.fixture(scope="module")
def ours() -> Evidence:
    return packed_step()


@pytest.fixture(scope="module")
def theirs() -> Evidence:
    """Documents side by side under `sdpa`, as TRL has it without flash attention."""
    return transformers_step()


@pytest.mark.parametrize("absent", [dense_masks(), math_attention(), full_logits(), host_waits()], ids=lambda a: a.what)
def test_none_of_it_is_in_our_packed_step(absent: Absent, ours: Evidence) -> None:
    assert seen(absent, ours) == ""


def test_the_dense_mask_of_transformers_is_seen(theirs: Evidence) -> None:
    found = seen(dense_masks(), theirs)
    assert "of 1 x 4 x 48 x 48" in found or "scaled_dot_product" in found
    assert seen(dense_masks(), transformers_step(positions=None)) == "", "one document needs none"


def test_a_mask_that_is_made_and_goes_somewhere_else_is_seen() -> None:
    """As with `eager`, which adds it to the scores."""
    assert "48 x 48" in seen(dense_masks(), transformers_step(attention="eager"))


def test_a_mask_of_padding_alone_is_no_dense_mask() -> None:
    q = torch.randn(1, 2, 48, 8, requires_grad=True)
    padding = torch.ones(1, 1, 1, 48, dtype=torch.bool)
    attend = nn.functional.scaled_dot_product_attention
    step = step_of(nn.Linear(1, 1), lambda: attend(q, q, q, attn_mask=padding).sum())
    assert seen(dense_masks(), step) == ""


def test_activations_as_wide_as_the_micro_batch_is_long_are_no_mask() -> None:
    model: Any = tiny_model("llama", hidden_size=48, intermediate_size=48)
    step = step_of(model, lambda: model(input_ids=IDS, labels=IDS, use_cache=False).loss)
    assert seen(dense_masks(), step) == ""


def test_attention_written_out_is_seen(theirs: Evidence) -> None:
    assert "_softmax of 1 x 4 x 48 x 48 (forward" in seen(math_attention(), transformers_step(attention="eager"))
    assert seen(math_attention(), theirs) == "", "a dense mask under a kernel is not that"


def test_the_math_fallback_of_sdpa_is_seen() -> None:
    q = torch.randn(1, 2, 16, 8, requires_grad=True)

    def loss() -> Tensor:
        with nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH):
            return nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True).sum()

    assert "_scaled_dot_product_attention_math" in seen(math_attention(), step_of(nn.Linear(1, 1), loss))


def test_logits_of_all_tokens_are_seen(theirs: Evidence) -> None:
    assert "48 x 352" in seen(full_logits(), theirs)
    assert "48 x 352" in seen(full_logits(), packed_step(share=0.3, whole_logits=True))
    assert seen(full_logits(), packed_step(share=0.3)) == ""


def test_without_the_size_of_the_vocabulary_logits_are_not_looked_for(theirs: Evidence) -> None:
    without = Evidence(2, "cpu", False, theirs.seen, 1, facts={"tokens": [48]})
    assert seen(full_logits(), without) == ""


def test_full_precision_in_a_16_bit_run_is_seen_forward_and_backward() -> None:
    bf16 = full_precision_products(torch.bfloat16)
    assert seen(bf16, transformers_step(autocast=BF16)) == ""
    found = seen(bf16, transformers_step())
    assert "aten::mm of" in found
    assert "(backward" in found
    assert seen(full_precision_products(torch.float32), transformers_step()) == "", "nobody asked for less"


def test_one_layer_that_leaves_autocast_is_named() -> None:
    model: Any = tiny_model("llama")
    projection = model.model.layers[1].mlp.down_proj
    inner = projection.forward

    def outside(x: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            return inner(x.float())

    projection.forward = outside
    places = [f"model.layers.{i}.mlp" for i in range(2)]
    step = step_of(
        model, lambda: model(input_ids=IDS, labels=IDS, use_cache=False).loss, places, BF16, compute="bfloat16"
    )
    found = seen(full_precision_products(), step)
    assert "(forward, model.layers.1.mlp)" in found
    assert "(backward, model.layers.1.mlp)" in found
    assert "layers.0" not in found


def test_on_a_gpu_kernels_in_full_precision_without_an_operator_are_seen() -> None:
    """Compiled code launches what no operator tells of. The small products of rotary embeddings account for theirs."""
    gemm = kernel("ampere_sgemm_128x64_tn", Phase.FORWARD)
    angles = operator("aten::bmm", Phase.FORWARD, shapes=((1, 64, 1), (1, 1, 48)), dtypes=("float", "float"))
    absent = full_precision_products(torch.bfloat16)
    assert seen(absent, evidence(gemm, angles)) == ""
    assert seen(absent, evidence(gemm, gemm, angles)) == "ampere_sgemm_128x64_tn (forward) x 2"
    assert seen(absent, evidence(kernel("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT", Phase.FORWARD))) == ""


def test_a_value_that_python_asks_for_is_a_wait(ours: Evidence) -> None:
    model = nn.Linear(4, 4)
    reads = step_of(model, lambda: model(torch.ones(1, 4)).sum() * float(model.weight.detach().sum().item()), [""])
    assert seen(host_waits(), reads) == "aten::_local_scalar_dense (forward) x 1"
    assert seen(host_waits(Phase.BACKWARD), reads) == ""


def test_on_a_gpu_calls_that_wait_count_and_not_what_python_asks_of_the_host() -> None:
    asked = {"name": "aten::_local_scalar_dense", "phase": "update", "place": "", "count": 9}
    waited = {"name": "cudaStreamSynchronize", "phase": "forward", "place": "layers.0", "count": 2}
    step = evidence(kernel("k", Phase.FORWARD), facts={"waits_of_host": [asked, waited]})
    assert seen(host_waits(), step) == "cudaStreamSynchronize (forward, layers.0) x 2"
    assert seen(host_waits(Phase.UPDATE), step) == ""

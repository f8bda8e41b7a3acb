"""Promise: kernels are known by their real names, and told apart by where they ran."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dynotune.measure.evidence import Phase, Source
from dynotune.measure.kernel_classes import Ran, Surroundings, Trait, Work, trait_of_kernel, trait_of_operator, work_of

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"

SEEN = {
    Trait.GEMM: [
        "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_TNT",
        "nvjet_sm90_tss_192x192_64x3_1x2_h_badd_coopB_NTN",
        "void cublasLt::splitKreduce_kernel<32, 16, int, __nv_bfloat16, float>",
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
        "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int>>>",
        "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn",
    ],
    Trait.ATTENTION: [
        "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false, false, cutlass::bfloat16_t>>",
        "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<128, 64, 128, 8>>",
        "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnBwdSm90<flash::CollectiveMainloop>>>",
        "void flash::prepare_varlen_num_blocks_kernel<1, true>(int, int, int, int const*)",
        "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x128_1x4x1_cga1x1x1_kernel0_0",
        "void cudnn::fusion::compute_dot_do_o_specialized<true, 128>(void const*, void const*, void*, void*)",
        "fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::bfloat16_t>::Params)",
        "kernel_cutlass_kernel_flash_attncuteflash_fwd_sm90FlashAttentionForwardSm90_object_at__tensor",
        "triton_tem_fused_flex_attention_backward_1",
    ],
    Trait.OPTIMIZER: [
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::FusedOptim",
    ],
    Trait.LOSS: ["liger_cross_entropy_kernel", "dynotune_head_rows", "cunn_SoftMaxForward_LogSoftMax"],
    Trait.ELEMENTWISE: [
        "triton_poi_fused_mul_silu_view_4",
        "triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_0",
        "dynotune_rms_norm_backward",
        "_swiglu_forward_kernel",
        "_triton_rope",
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >",
        "void at::native::reduce_kernel<128, 4, at::native::ReduceOp<float, at::native::func_wrapper_t<float>>>",
    ],
    Trait.COPY: [
        "Memcpy DtoH (Device -> Pinned)",
        "Memset (Device)",
        "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)>",
        "void at::native::vectorized_elementwise_kernel<8, at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)>",
        "void at::native::(anonymous namespace)::CatArrayBatchedCopy_vectorized<float>",
    ],
    Trait.COMMUNICATION: ["ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"],
    Trait.UNKNOWN: ["somebody_elses_kernel_0d1d2d"],
}  # fmt: skip


@pytest.mark.parametrize(("trait", "name"), [(trait, name) for trait, names in SEEN.items() for name in names])
def test_names_as_traces_have_them(trait: Trait, name: str) -> None:
    assert trait_of_kernel(name) is trait


def kernels_of(value: Any) -> Iterator[str]:
    """Names of kernels anywhere in a result, of those that were kept with their times."""
    if isinstance(value, dict):
        for key, inside in value.items():
            if re.match(r"kernels(_by_time_us)?$", key) and isinstance(inside, dict):
                yield from (name for name in inside if len(name) > 15)  # others are names of modules
            else:
                yield from kernels_of(inside)
    elif isinstance(value, list):
        for inside in value:
            yield from kernels_of(inside)


def test_no_kernel_that_our_own_traces_kept_is_unknown() -> None:
    names = {name for path in RESULTS.glob("h200_*.json") for name in kernels_of(json.loads(path.read_text()))}
    assert len(names) > 40
    assert [name for name in names if trait_of_kernel(name) is Trait.UNKNOWN] == []


AROUND = Surroundings(head_places=("lm_head",), vocabulary=152064, adapter_ranks=(16,), hidden=3584)
GEMM = "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_TNT"


@pytest.mark.parametrize(
    ("ran", "work"),
    [
        (Ran(GEMM, Source.KERNEL, "aten::mm", "model.layers.0.mlp", shapes=((8192, 3584), (3584, 18944))), Work.GEMM),
        (Ran(GEMM, Source.KERNEL, "aten::mm", "lm_head"), Work.HEAD),
        (Ran(GEMM, Source.KERNEL, "aten::mm", "", shapes=((4096, 3584), (3584, 152064))), Work.HEAD),
        (Ran(GEMM, Source.KERNEL, "aten::mm", "model.layers.0.mlp", shapes=((8192, 3584), (3584, 16))), Work.LORA),
        (Ran(GEMM, Source.KERNEL, "aten::mm", "model.layers.0.mlp", shapes=((8192, 3584), (3584, 48))), Work.LORA),
        (Ran(GEMM, Source.KERNEL, "aten::mm", "model.layers.0.mlp.up_proj.lora_A.default"), Work.LORA),
        (Ran(GEMM, Source.KERNEL, "aten::bmm", "model.layers.0.self_attn"), Work.ATTENTION),
        (Ran("vectorized_elementwise_kernel<4>", Source.KERNEL, "aten::mul", phase=Phase.UPDATE), Work.OPTIMIZER),
        (Ran("Memcpy HtoD (Pinned -> Device)", Source.COPY, "aten::copy_"), Work.COPIES),
        (Ran("at::native::indexSelect", Source.KERNEL, "aten::embedding", shapes=((152064, 3584),)), Work.ELEMENTWISE),
        (Ran("somebody_elses_kernel", Source.KERNEL), Work.OTHER),
        (Ran("somebody_elses_kernel", Source.KERNEL, "aten::mm"), Work.GEMM),
        (Ran("aten::mm", Source.OPERATOR, "aten::mm", "model.layers.1.mlp"), Work.GEMM),
        (Ran("aten::bmm", Source.OPERATOR, "aten::bmm", inside=("dynotune::reference_attention",)), Work.ATTENTION),
        (Ran("aten::view", Source.OPERATOR, "aten::view"), Work.HOST),
    ],
)  # fmt: skip
def test_what_a_kernel_was_for(ran: Ran, work: Work) -> None:
    assert work_of(ran, AROUND) is work


def product(left: tuple[int, ...], right: tuple[int, ...], place: str = "", **more: Any) -> Ran:
    return Ran("aten::mm", Source.OPERATOR, "aten::mm", place, shapes=(left, right), **more)


@pytest.mark.parametrize("node", ["ChunkedLogProbFunction", "ChunkedLogProbFunctionBackward"])
def test_a_head_that_tiles_a_vocabulary_is_known_by_its_function(node: str) -> None:
    """TRL's computes 32,768 entries of it at a time. The control is the same product outside of it."""
    inside = product((239, 128), (128, 32768), inside=(node,))
    assert work_of(inside, AROUND) is Work.HEAD
    assert work_of(Ran("aten::mul", Source.OPERATOR, "aten::mul", inside=(node,)), AROUND) is Work.HEAD
    assert work_of(Ran("_forward_kernel", Source.KERNEL, node), AROUND) is Work.HEAD, "launched by itself"
    assert work_of(product((239, 128), (128, 32768)), AROUND) is Work.GEMM


@pytest.mark.parametrize("tokens", [512, 500])
@pytest.mark.parametrize("place", ["model.layers.2.mlp", ""])
def test_as_many_tokens_as_the_vocabulary_has_make_no_head_of_a_layer(tokens: int, place: str) -> None:
    """Forward, and both products backward; 500 tokens are the control. Without places too, as in a run of ours."""
    around = Surroundings(("lm_head",), vocabulary=512, hidden=128, tokens=frozenset({tokens}))
    hidden, inner = 128, 384
    layer = [
        ((tokens, hidden), (hidden, inner)),
        ((tokens, inner), (inner, hidden)),
        ((inner, tokens), (tokens, hidden)),
    ]
    assert {work_of(product(*sides, place), around) for sides in layer} == {Work.GEMM}
    elementwise = Ran("aten::mul", Source.OPERATOR, "aten::mul", place, shapes=((tokens, hidden), (tokens, 1)))
    assert work_of(elementwise, around) is Work.ELEMENTWISE
    head = [((tokens, hidden), (hidden, 512)), ((tokens, 512), (512, hidden)), ((512, tokens), (tokens, hidden))]
    assert {work_of(product(*sides), around) for sides in head} == {Work.HEAD}
    logits = Ran("aten::sub", Source.OPERATOR, "aten::sub", shapes=((tokens, 512), (tokens, 1)))
    assert work_of(logits, around) is Work.HEAD


def test_a_layer_as_wide_as_the_vocabulary_is_no_head() -> None:
    around = Surroundings(("lm_head",), vocabulary=512, hidden=128)
    assert work_of(product((100, 128), (128, 512), "model.layers.2.mlp"), around) is Work.GEMM
    assert work_of(product((100, 128), (128, 512), "transformer.h.2"), around) is Work.GEMM
    assert work_of(product((100, 128), (128, 512), "model"), around) is Work.HEAD, "the control"


@pytest.mark.parametrize(
    ("head_places", "place", "work"),
    [
        ((), "net.4", Work.HEAD),
        ((), "heads.1", Work.HEAD),
        ((), "heads.1.out", Work.HEAD),
        ((), "layers.4", Work.HEAD),
        (("lm_head",), "medusa_head.0.1", Work.HEAD),
        (("heads",), "heads.1", Work.HEAD),
        ((), "layers.4.mlp", Work.GEMM),
        ((), "encoder.block.3.mlp.2", Work.GEMM),
        (("lm_head",), "layers.4", Work.GEMM),
    ],
)
def test_a_numbered_module_may_be_the_head(head_places: tuple[str, ...], place: str, work: Work) -> None:
    """The last of an `nn.Sequential`, one of several in a list. The controls are layers."""
    around = Surroundings(head_places, vocabulary=50257, hidden=768)
    assert work_of(product((4096, 768), (768, 50257), place), around) is work


def test_heads_in_a_list_are_known_without_shapes() -> None:
    around = Surroundings(("decoder.heads",), vocabulary=50257)
    assert work_of(product((4096, 768), (768, 2048), "decoder.heads.1"), around) is Work.HEAD
    assert work_of(product((4096, 768), (768, 2048), "decoder.heads_norm"), around) is Work.GEMM, "the control"


def test_a_sequence_as_long_as_the_vocabulary_is_no_head() -> None:
    around = Surroundings(("lm_head",), vocabulary=512, hidden=128)
    normed = Ran("aten::mul", Source.OPERATOR, "aten::mul", shapes=((8, 512, 128), (8, 512, 1)))
    assert work_of(normed, around) is Work.ELEMENTWISE
    projected = Ran("aten::linear", Source.OPERATOR, "aten::linear", shapes=((8, 512, 128), (384, 128), ()))
    assert work_of(projected, around) is Work.GEMM
    head = Ran("aten::linear", Source.OPERATOR, "aten::linear", shapes=((8, 64, 128), (512, 128), ()))
    assert work_of(head, around) is Work.HEAD, "the control"


def test_a_function_of_autograd_has_no_trait() -> None:
    assert trait_of_operator("MmBackward0") is Trait.UNKNOWN

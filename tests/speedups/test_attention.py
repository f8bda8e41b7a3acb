"""Promise: an attention backend runs where it was checked and is proved to run, or says why it does not."""

import os
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from dynotune.config.sft import SFTConfig
from dynotune.measure.evidence import Phase, Seen
from dynotune.model.attention import gradient_check, packed_attention
from dynotune.model.attention.backends import KERNELS
from dynotune.model.precision import Precision
from dynotune.speedups import packages
from dynotune.speedups.attention import KERNELS as NAMES
from dynotune.speedups.attention import ORDER, AttentionBackend
from dynotune.speedups.contract import Context, Installation, No
from dynotune.speedups.expectation import Observation, Verdict
from dynotune.speedups.judge import judge
from dynotune.speedups.registry import speedups
from dynotune.speedups.site import Site
from tests.model.attention.architectures import architecture
from tests.model.attention.test_kernels import exactly
from tests.speedups.made_evidence import evidence, kernel, operator

BACKENDS = {one.backend: one for one in speedups().values() if isinstance(one, AttentionBackend)}
REAL_NAMES = {
    "fa3": ("void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::Coll>>>",
            "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnBwdSm90<flash::Coll>>>"),
    "cudnn": ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_3_64x128x128_4x1x1",
              "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x64_1x4x1"),
    "fa4": ("kernel_cutlass_kernel_flash_attncuteflash_fwd_sm90FlashAttentionForwardSm90_object_at__TiledMMA",
            "kernel_cutlass_kernel_flash_attncuteflash_bwd_sm90FlashAttentionBackwardSm90_object_at__TiledMMA"),
    "varlen": ("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>>",
               "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<128>>"),
    "flex": ("triton_tem_fused_flex_attention_0", "triton_tem_fused_flex_attention_backward_1"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DYNOTUNE_CACHE", str(tmp_path))
    monkeypatch.setattr(gradient_check, "LENGTHS", (1, 33, 20, 0, 2, 5, 9, 3, 40, 7))
    monkeypatch.setattr(gradient_check, "COLD", (3, 1, 20, 4))


class Exact:
    """Stands in the place of a kernel's package and limits; it spoils what `wrong` says."""

    def __init__(self, name: str, patch: pytest.MonkeyPatch) -> None:
        self.calls, self.wrong = 0, 1.0
        self.narrow: int | None = None
        patch.setattr(type(BACKENDS[name]), "trial", lambda backend, context: None)
        patch.setattr(KERNELS[name], "limits", self.limits)
        patch.setattr(KERNELS[name], "missing", lambda: None)
        patch.setattr(KERNELS[name], "attend", self.attend)
        patch.setattr(KERNELS[name], "prepare", lambda segments, decoder: None)

    def limits(self, asked: Any) -> str | None:
        return "the window is too wide" if self.narrow is not None and asked.window != self.narrow else None

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, ends: Tensor, longest: int, scaling: float, window: int | None, *_: Any
    ) -> Tensor:
        self.calls += 1
        return self.wrong * exactly(q, k, v, ends, scaling, None if window is None else window - 1, 0)


@pytest.fixture
def fa3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Exact]:
    return Exact("fa3", monkeypatch)


def context(model: Any, **more: Any) -> Context:
    config = SFTConfig(model_name_or_path="x", dataset_name="y", **more)
    device = torch.device("cpu")
    return Context(config, model, device, torch.float32, Precision(torch.float32, False), 64)


def site(model: Any) -> Site:
    return Site(context(model), nullcontext)


@pytest.mark.parametrize("kind", ["llama", "gemma3_text"])
def test_it_comes_and_goes_also_while_packed_attention_is_in_use(kind: str, fa3: Exact) -> None:
    model = architecture(kind)
    here = site(model)
    with packed_attention(model, "reference") as packed:
        installed = BACKENDS["fa3"].install(here)
        assert isinstance(installed, Installation)
        assert (here.attention, packed.backend) == ("fa3", "fa3")
        modules = dict(model.named_modules())
        assert [type(modules[name]).__name__[-9:] for name in installed.places] == ["Attention"] * len(
            model.model.layers
        )
        assert installed.without is not None
        with installed.without():
            assert (here.attention, packed.backend) == ("reference", "reference")
        assert (here.attention, packed.backend) == ("fa3", "fa3")
        installed.uninstall()
        installed.uninstall()
        assert (here.attention, packed.backend) == ("reference", "reference")


def test_layers_that_it_cannot_take_are_left_out_with_the_reason(fa3: Exact) -> None:
    fa3.narrow = 4
    installed = BACKENDS["fa3"].install(site(architecture("gemma3_text")))
    assert isinstance(installed, Installation)
    assert [name.split(".")[-2] for name in installed.places] == ["0", "2"]
    assert installed.left_out == ("model.layers.1.self_attn: the window is too wide",)
    fa3.narrow = 5
    assert BACKENDS["fa3"].install(site(architecture("gemma3_text"))) == No(
        "the window is too wide", "take another backend", expected=True
    )


def test_the_check_runs_once_a_machine(fa3: Exact) -> None:
    model = architecture("gemma3_text")
    first = BACKENDS["fa3"].install(site(model))
    assert isinstance(first, Installation)
    assert "agrees with float64" in first.lines[0]
    calls = fa3.calls
    assert calls > 0
    again = BACKENDS["fa3"].install(site(model))
    assert isinstance(again, Installation)
    assert (fa3.calls, again.lines) == (calls, ())
    assert isinstance(BACKENDS["fa3"].install(site(architecture("llama", num_key_value_heads=1))), Installation)
    assert fa3.calls > calls  # other heads


def test_a_kernel_that_is_wrong_is_refused_with_the_figure_also_the_next_time(fa3: Exact) -> None:
    fa3.wrong = 1.01
    here = site(architecture("llama"))
    no = BACKENDS["fa3"].install(here)
    assert isinstance(no, No)
    assert not no.expected
    assert "its output is off by 1.0e-02 of its size" in no.reason
    assert "4/2 heads of 8" in no.reason
    assert here.attention == "reference"
    calls = fa3.calls
    assert BACKENDS["fa3"].install(here) == no
    assert fa3.calls == calls


def test_a_model_that_cannot_be_packed_is_no_surprise(fa3: Exact) -> None:
    model = architecture("llama")
    model.model.config.layer_types = ["linear_attention", "full_attention"]
    no = BACKENDS["fa3"].install(site(model))
    assert isinstance(no, No)
    assert no.expected
    assert "cannot be packed" in no.reason


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("flash_attention_2", "varlen"),
        ("flash_attention_3", "fa3"),
        ("flash_attention_4", "fa4"),
        ("flex_attention", "flex"),
        ("sdpa", None),
        ("eager", None),
        (None, None),
    ],
)
def test_what_the_key_of_transformers_asks_for(key: str | None, name: str | None) -> None:
    config = context(None, attn_implementation=key).config
    expected = {name: ("on", f"attn_implementation: {key}")} if name else {}
    assert {backend: one.asked(config) for backend, one in BACKENDS.items() if one.asked(config)} == expected
    plain = context(None, attn_implementation=key, packed_execution="off").config
    assert not any(one.asked(plain) for one in BACKENDS.values())


def test_they_share_a_slot_and_every_order_names_those_that_there_are() -> None:
    assert {one.slot for one in BACKENDS.values()} == {"attention"}
    assert {one.requires for one in BACKENDS.values()} == {("packed_execution",)}
    assert set(ORDER[9]) == set(BACKENDS) == set(KERNELS) == set(NAMES)
    ranks = {name: one.rank(context(None)) for name, one in BACKENDS.items()}
    assert sorted(ranks, key=lambda name: ranks[name]) == list(ORDER[9])


def test_on_the_cpu_nobody_is_surprised() -> None:
    for one in BACKENDS.values():
        assert one.applicable(context(architecture("llama"))) == No(
            "there is no kernel for the CPU", "train on a GPU", expected=True
        )


def test_what_a_gpu_is_asked_before_anything_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    import dataclasses

    gpu = dataclasses.replace(context(None), device=torch.device("cuda", 0))
    assert all("16 bits" in str(one.applicable(gpu)) for one in BACKENDS.values())
    gpu = dataclasses.replace(gpu, compute=torch.bfloat16)
    tried: list[str] = []
    monkeypatch.setattr(packages, "why_not", lambda name, device: tried.append(name))
    monkeypatch.delenv("DYNOTUNE_FLASH_ATTENTION_3", raising=False)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    assert {name for name, one in BACKENDS.items() if one.applicable(gpu) is None} == {"varlen", "flex"}
    assert tried == []  # a package is tried when its turn comes
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    assert {name for name, one in BACKENDS.items() if one.applicable(gpu) is None} == set(BACKENDS)
    monkeypatch.setattr(
        packages, "why_not", lambda name, device: No(f"{name} is not installed", "install", expected=True)
    )
    model = architecture("llama")
    no = BACKENDS["cudnn"].install(dataclasses.replace(site(model), context=dataclasses.replace(gpu, model=model)))
    assert isinstance(no, No)
    assert no.expected
    assert "pull request 186142" in no.reason


def test_a_library_that_is_named_is_not_tried_as_a_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from dynotune.model.attention.backends import fa3 as module

    library = tmp_path / "mine.so"
    library.write_bytes(b"abc")
    monkeypatch.setenv(module.VARIABLE, str(library))
    monkeypatch.setattr(module, "missing", lambda: "it is no library")
    one = BACKENDS["fa3"]
    assert one.trial(context(None)) is not None
    assert one.build().startswith("mine.so of 3 bytes")
    before = one.build()
    os.utime(library, ns=(1, 1))
    assert one.build() != before


PLACES = tuple(f"model.layers.{i}.self_attn" for i in range(3))


def seen(backend: str, places: tuple[str, ...] = PLACES, backward: bool = True) -> list[Seen]:
    forward, back = REAL_NAMES[backend]
    both = [(forward, Phase.FORWARD), (back, Phase.BACKWARD)][: 2 if backward else 1]
    return [kernel(name, phase, place) for place in places for name, phase in both]


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_proof(backend: str) -> None:
    """Engaged with its own kernels at every layer; not with another's, not without a backward, not at 2 of 3 layers."""
    installed = Installation(lambda: None, PLACES)
    expectations = BACKENDS[backend].expect(context(None), installed)
    other = "varlen" if backend != "varlen" else "cudnn"

    def verdict(*events: Seen) -> tuple[Verdict, str]:
        watched = frozenset(PLACES)
        found = judge(expectations, evidence(*events, watched=watched, facts={"tokens": [64]}), PLACES)
        return found.verdict, found.count

    assert verdict(*seen(backend)) == (Verdict.ENGAGED, "3 of 3")
    assert verdict(*seen(other)) == (Verdict.NOT_ENGAGED, "0 of 3")
    assert verdict(*seen(backend, PLACES[:2])) == (Verdict.PARTIAL, "2 of 3")
    assert verdict(*seen(backend, PLACES[:2]), *seen(backend, PLACES[2:], backward=False)) == (
        Verdict.PARTIAL,
        "2 of 3",
    )
    assert verdict(*seen(backend), *seen(other, PLACES[:1])) == (Verdict.PARTIAL, "3 of 3")
    assert judge(expectations, evidence(device="cuda", watched=frozenset(PLACES)), PLACES).verdict is Verdict.UNKNOWN


def test_where_layers_are_left_out_others_may_be_seen_and_nowhere_else() -> None:
    installed = Installation(lambda: None, PLACES[:2], left_out=(f"{PLACES[2]}: its scores are soft-capped",))
    expectations = BACKENDS["cudnn"].expect(context(None), installed)

    def judged(*events: Seen) -> Observation:
        step = evidence(*events, facts={"tokens": [64]})
        return judge(expectations, step, installed.places, installed.left_out)

    right = [*seen("cudnn", PLACES[:2]), *seen("varlen", PLACES[2:])]
    found = judged(*right)
    assert (found.verdict, found.count, found.against) == (Verdict.PARTIAL, "2 of 3", ())
    assert found.missing == (f"{PLACES[2]} (left out: its scores are soft-capped)",)
    [against] = judged(*right, *seen("varlen", PLACES[:1])).against
    assert against.startswith("attention by other kernels")
    mask = operator(
        "aten::scaled_dot_product_attention", Phase.FORWARD, PLACES[0],
        shapes=((1, 4, 64, 8), (1, 4, 64, 8), (1, 4, 64, 8), (1, 1, 64, 64)),
    )  # fmt: skip
    assert [one.partition(":")[0] for one in judged(*right, mask).against] == ["dense attention mask"]


def test_packed_execution_is_tried_out_with_the_backend_that_was_chosen(fa3: Exact) -> None:
    model = architecture("llama")
    here = site(model)
    assert isinstance(BACKENDS["fa3"].install(here), Installation)
    calls = fa3.calls
    packed = speedups()["packed_execution"].install(here)
    assert isinstance(packed, Installation)
    assert packed.lines == ("attention: documents kept apart by FlashAttention-3, 2 layers",)
    assert fa3.calls > calls
    fa3.wrong = 1.5
    refused = speedups()["packed_execution"].install(site(model))
    assert isinstance(refused, Installation)  # nothing is chosen there: the reference
    wrong = speedups()["packed_execution"].install(here)
    assert isinstance(wrong, No)
    assert "do not come out" in wrong.reason

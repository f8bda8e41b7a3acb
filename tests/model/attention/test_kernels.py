"""Promise: kernels of other packages are asked for what transformers' masks mean, and give their gradients back.

The packages are played by stand-ins that compute what their documentation says of the arguments that they were given.
"""

import sys
from collections.abc import Iterator
from itertools import pairwise
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

from dynotune.model.attention.backends import KERNELS, Asked, cudnn, fa3, fa4, flex, reference
from dynotune.model.attention.call import Call
from dynotune.model.attention.segments import segments_of
from tests.model.attention.test_backends import assert_like_dense, call, cases, segments_behind_trunks

SHAPES = "Tensor? cu_seqlens_q=None, Tensor? cu_seqlens_k=None"


def exactly(
    q: Tensor, k: Tensor, v: Tensor, ends: Tensor, scale: float, left: int | None, right: int | None, cap: float = 0.0,
    key_ends: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Key j is seen by query i of the same segment if i - left <= j <= i + right; None is no bound. i counts such that
    the last query stands at the last key."""
    out = []
    segments = zip(pairwise(ends.tolist()), pairwise((ends if key_ends is None else key_ends).tolist()), strict=True)
    for (a, b), (c, d) in segments:
        i, j = torch.arange(d - c - (b - a), d - c)[:, None], torch.arange(d - c)[None]
        seen = torch.ones(b - a, d - c, dtype=torch.bool)
        seen &= True if left is None else j >= i - left
        seen &= True if right is None else j <= i + right
        shared = q.shape[1] // k.shape[1]
        qs, ks, vs = (x.transpose(0, 1) for x in (q[a:b], k[c:d], v[c:d]))
        scores = qs @ ks.repeat_interleave(shared, 0).mT * scale
        scores = cap * torch.tanh(scores / cap) if cap else scores
        out.append(
            (scores.masked_fill(~seen, float("-inf")).softmax(-1) @ vs.repeat_interleave(shared, 0)).transpose(0, 1)
        )
    return torch.cat(out)


def gradients(gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    leaves = [x.detach().clone().requires_grad_() for x in (q, k, v)]
    with torch.enable_grad():
        return torch.autograd.grad(exactly(*leaves, *rest), leaves, gradient)


def no_lse(q: Tensor) -> Tensor:
    return q.new_zeros(q.shape[1], q.shape[0], dtype=torch.float32)


@pytest.fixture(scope="module")
def flash_attn_3() -> Iterator[list[Any]]:
    """`torch.ops.flash_attn_3`, by the schema of the official package (September 2026)."""
    given: list[Any] = []
    library = torch.library.Library("flash_attn_3", "DEF")
    library.define(
        "fwd(Tensor q, Tensor k, Tensor v, Tensor? k_new=None, Tensor? v_new=None, Tensor? q_v=None, Tensor? out=None,"
        f" {SHAPES}, int? max_seqlen_q=None, int? max_seqlen_k=None, float? softmax_scale=None, bool is_causal=False,"
        " int window_size_left=-1, int window_size_right=-1, float softcap=0.0, int num_splits=0)"
        " -> (Tensor, Tensor, Tensor, Tensor)"
    )
    library.define(
        "bwd(Tensor dout, Tensor q, Tensor k, Tensor v, Tensor out, Tensor softmax_lse, Tensor(dq!)? dq=None,"
        f" Tensor(dk!)? dk=None, Tensor(dv!)? dv=None, {SHAPES}, int? max_seqlen_q=None, int? max_seqlen_k=None,"
        " float? softmax_scale=None, bool is_causal=False, int window_size_left=-1, int window_size_right=-1,"
        " float softcap=0.0, bool deterministic=False) -> Tensor"
    )

    def bounds(causal: bool, left: int, right: int) -> tuple[int | None, ...]:
        return None if left < 0 else left, 0 if causal else None if right < 0 else right

    def fwd(
        q: Tensor, k: Tensor, v: Tensor, k_new: Any = None, v_new: Any = None, q_v: Any = None, out: Any = None,
        cu_seqlens_q: Any = None, cu_seqlens_k: Any = None, max_seqlen_q: Any = None, max_seqlen_k: Any = None,
        softmax_scale: Any = None, is_causal: bool = False, window_size_left: int = -1, window_size_right: int = -1,
        softcap: float = 0.0, num_splits: int = 0,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        given.append({"max_seqlen_q": max_seqlen_q, "max_seqlen_k": max_seqlen_k, "num_splits": num_splits})
        seen = bounds(is_causal, window_size_left, window_size_right)
        out = exactly(q, k, v, cu_seqlens_q, softmax_scale, *seen, softcap, cu_seqlens_k)
        return out, no_lse(q), q.new_zeros(0), q.new_zeros(0)

    def bwd(
        dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, softmax_lse: Tensor, dq: Any = None, dk: Any = None,
        dv: Any = None, cu_seqlens_q: Any = None, cu_seqlens_k: Any = None, max_seqlen_q: Any = None,
        max_seqlen_k: Any = None, softmax_scale: Any = None, is_causal: bool = False, window_size_left: int = -1,
        window_size_right: int = -1, softcap: float = 0.0, deterministic: bool = False,
    ) -> Tensor:  # fmt: skip
        seen = bounds(is_causal, window_size_left, window_size_right)
        made = gradients(dout, q, k, v, cu_seqlens_q, softmax_scale, *seen, softcap, cu_seqlens_k)
        for place, gradient in zip((dq, dk, dv), made, strict=True):
            place.copy_(gradient)
        return softmax_lse.clone()

    library.impl("fwd", fwd, "CPU")
    library.impl("bwd", bwd, "CPU")
    yield given
    library._destroy()


@pytest.fixture(scope="module")
def cudnn_operators() -> Iterator[None]:
    """`torch.ops.cudnn.sdpa_fwd` by the schema of nvidia-cudnn-frontend 1.32; a left bound of w leaves w keys."""
    library = torch.library.Library("cudnn", "DEF")
    library.define(
        "sdpa_fwd(Tensor q, Tensor k, Tensor v, float attn_scale, bool is_causal=False, bool causal_bottom_right=False,"
        " int window_left=-1, int window_right=-1, Tensor? cu_seqlens_q=None, Tensor? cu_seqlens_kv=None,"
        " int max_seqlen_q=0, int max_seqlen_kv=0, bool return_lse=True) -> (Tensor, Tensor)"
    )

    def fwd(
        q: Tensor, k: Tensor, v: Tensor, scale: float, is_causal: bool = False, bottom: bool = False,
        window_left: int = -1, window_right: int = -1, cu_seqlens_q: Any = None, *rest: Any, **more: Any,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        assert is_causal
        left = None if window_left < 0 else window_left - 1
        return exactly(q, k, v, cu_seqlens_q, scale, left, 0), no_lse(q)

    library.impl("sdpa_fwd", fwd, "CompositeImplicitAutograd")
    yield
    library._destroy()


def stand_in_for_fa4() -> Any:
    """`flash_attn.cute.interface` 4.0.0b36."""

    def bounds(causal: bool, window: Any) -> tuple[Any, Any]:
        left, right = window
        return left, 0 if causal else right

    def flash_attn_varlen_func(
        q: Tensor, k: Tensor, v: Tensor, *, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, max_seqlen_q: int,
        max_seqlen_k: int, softmax_scale: float, causal: bool, window_size: Any, return_lse: bool,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        assert return_lse
        assert not q.requires_grad
        return exactly(q, k, v, cu_seqlens_q, softmax_scale, *bounds(causal, window_size), 0.0, cu_seqlens_k), no_lse(q)

    def _flash_attn_bwd(
        q: Tensor, k: Tensor, v: Tensor, out: Tensor, dout: Tensor, lse: Tensor, *, softmax_scale: float, causal: bool,
        window_size_left: Any, window_size_right: Any, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, deterministic: bool,
        **lengths: Any,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        left, right = bounds(causal, (window_size_left, window_size_right))
        return gradients(dout, q, k, v, cu_seqlens_q, softmax_scale, left, right, 0.0, cu_seqlens_k)

    return SimpleNamespace(flash_attn_varlen_func=flash_attn_varlen_func, _flash_attn_bwd=_flash_attn_bwd)


def check(name: str, softcap: bool = False, shared: bool = True) -> None:
    @settings(max_examples=40, deadline=None)
    @given(case=cases())
    def property_(case: dict[str, Any]) -> None:
        case["cap"] = case["cap"] if softcap else None
        case["trunks"] = case["trunks"] if shared else None
        calls: list[Call] = []
        assert_like_dense(case, call(case, attention_backend=name, attention_calls=calls))
        assert [(c.backend, c.why_reference) for c in calls] == [(name, None)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KERNELS[name], "limits", lambda asked: None)
        patch.setattr(KERNELS[name], "missing", lambda: None)
        property_()


def test_flash_attention_3(flash_attn_3: list[Any]) -> None:
    check("fa3", softcap=True)
    assert {how["max_seqlen_q"] for how in flash_attn_3} == {how["max_seqlen_k"] for how in flash_attn_3} == {64}


def test_cudnn(cudnn_operators: None) -> None:
    check("cudnn", shared=False)


def test_flash_attention_4(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, fa4._MODULE, stand_in_for_fa4())
    check("fa4")


@pytest.mark.parametrize("trunks", [None, [0, 3]])
def test_the_comparison_sees_a_window_that_is_off_by_one(
    trunks: list[int] | None, flash_attn_3: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control of those above."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(heads, 9, 8, dtype=torch.float64, requires_grad=True) for heads in (2, 1, 1))
    case = {"q": q, "k": k, "v": v, "lengths": [5, 4], "trunks": trunks, "window": 4, "cap": None}
    monkeypatch.setattr(fa3, "limits", lambda asked: None)
    assert_like_dense(case, call(case, attention_backend="fa3"))
    monkeypatch.setattr(fa3, "_left", lambda window: window)
    with pytest.raises(AssertionError):
        assert_like_dense(case, call(case, attention_backend="fa3"))


def test_the_operators_are_traced_whole_and_give_the_eager_gradients(flash_attn_3: list[Any]) -> None:
    """Compiled layers see shapes only: the kernel runs when their graph does."""
    torch._dynamo.reset()
    segments = segments_of(torch.tensor([0, 5, 12], dtype=torch.int32), [5, 7])
    leaves = [torch.randn(12, heads, 8, dtype=torch.float64, requires_grad=True) for heads in (4, 2, 2)]

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return fa3.attend(2 * q, k, v, segments.boundaries_S1, segments.longest, 0.4, 3, None, None)

    compiled = torch.compile(attend, backend="aot_eager", fullgraph=True)
    both = [torch.autograd.grad(f(*leaves).square().sum(), leaves) for f in (attend, compiled)]
    for eager, traced in zip(*both, strict=True):
        torch.testing.assert_close(traced, eager)
    torch._dynamo.reset()


@settings(max_examples=10, deadline=None)
@given(case=cases())
def test_flex_attention(case: dict[str, Any]) -> None:
    """Forward only: it has no backward for the CPU."""
    from torch.nn.attention.flex_attention import flex_attention

    segments = segments_of(torch.tensor([0, *case["lengths"]]).cumsum(0).int(), case["lengths"])
    q, k, v = (case[name].detach() for name in "qkv")
    key_lengths = None
    if case["trunks"]:
        segments = segments_behind_trunks(case["lengths"], case["trunks"])
        assert segments.gathered is not None
        k, v = k[:, segments.gathered.rows_R], v[:, segments.gathered.rows_R]
        key_lengths = segments.gathered.lengths
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flex, "_compiled", lambda: flex_attention)
        ours = flex.attend(
            q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1), segments.boundaries_S1, segments.longest, 0.4,
            case["window"], case["cap"], None, segments.keys,
        )  # fmt: skip
    right = reference.attend(q, k, v, segments.lengths, 0.4, case["window"], case["cap"], key_lengths)
    torch.testing.assert_close(ours, right, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("window", [None, 1, 100, 129])
def test_flex_blocks_are_those_that_the_mask_says(window: int | None) -> None:
    """Against PyTorch's own way, which looks at all T x T pairs: too few are wrong, too many are slow."""
    from torch.nn.attention.flex_attention import create_block_mask

    for lengths in ([300, 1, 0, 129, 82], [640], [127, 129, 64], [64]):
        tokens = sum(lengths)
        ours = flex.block_mask(torch.tensor([0, *lengths]).cumsum(0).int(), tokens, window)
        theirs = create_block_mask(ours.mask_mod, None, None, tokens, tokens, device="cpu", BLOCK_SIZE=flex.BLOCK)
        for kind in ("kv", "full_kv", "q", "full_q"):
            assert blocks(ours, kind) == blocks(theirs, kind), (lengths, kind)


@pytest.mark.parametrize("window", [None, 1, 100, 129])
def test_flex_blocks_of_gathered_keys_leave_none_out(window: int | None) -> None:
    """With a window a block may be touched that no query of the block sees, where a trunk is longer than the window."""
    from torch.nn.attention.flex_attention import create_block_mask

    for lengths, trunks in (([300, 200, 0, 129, 11], [0, 170, 0, 1, 400]), ([1, 639], [0, 1]), ([64, 64], [0, 50])):
        segments, tokens, rows = segments_behind_trunks(lengths, trunks), sum(lengths), sum(lengths) + sum(trunks)
        ours = flex.block_mask(segments.boundaries_S1, tokens, window, segments.keys, rows)
        theirs = create_block_mask(ours.mask_mod, None, None, tokens, rows, device="cpu", BLOCK_SIZE=flex.BLOCK)
        for mine, right in zip(blocks(ours, "full_kv"), blocks(theirs, "full_kv"), strict=True):
            assert mine == right
        for mine, right in zip(blocks(ours, "kv"), blocks(theirs, "kv"), strict=True):
            assert mine == right if window is None else mine >= right


def blocks(mask: Any, kind: str) -> list[set[int]]:
    counts, indices = getattr(mask, f"{kind}_num_blocks")[0, 0], getattr(mask, f"{kind}_indices")[0, 0]
    return [set(row[:n].tolist()) for n, row in zip(counts.tolist(), indices, strict=True)]


def test_flex_masks_are_made_once_for_each_window_of_a_model() -> None:
    layers = torch.nn.ModuleList(torch.nn.Identity() for _ in range(3))
    for layer, window in zip(layers, (4, 4, None), strict=True):
        layer.sliding_window = window
    segments = segments_of(torch.tensor([0, 20, 64], dtype=torch.int32), [20, 44])
    assert set(flex.prepare(segments, layers)) == {None, 4}


GPU = Asked(torch.device("cuda", 0), torch.bfloat16, 28, 4, 128, 128, None, None)


def test_the_comparison_sees_keys_that_are_aligned_at_the_first(
    flash_attn_3: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control: what cuDNN would do with gathered keys, were it asked."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(heads, 9, 8, dtype=torch.float64, requires_grad=True) for heads in (2, 1, 1))
    case = {"q": q, "k": k, "v": v, "lengths": [5, 4], "trunks": [0, 3], "window": None, "cap": None}
    monkeypatch.setattr(fa3, "limits", lambda asked: None)
    assert_like_dense(case, call(case, attention_backend="fa3"))
    right = exactly

    def top_left(q: Tensor, k: Tensor, v: Tensor, ends: Tensor, *rest: Any) -> Tensor:
        """Query i sees keys 0 to i of its segment: what stands behind them is nobody's."""
        starts = zip(rest[-1].tolist(), ends.diff().tolist(), strict=False)
        rows = torch.cat([torch.arange(start, start + n) for start, n in starts])
        return right(q, k[rows], v[rows], ends, *rest[:-1])

    monkeypatch.setattr(sys.modules[__name__], "exactly", top_left)
    with pytest.raises(AssertionError):
        assert_like_dense(case, call(case, attention_backend="fa3"))


@pytest.mark.parametrize(
    ("name", "capability", "changes", "words"),
    [
        ("fa3", (9, 0), {"shared": True}, None),
        ("fa4", (9, 0), {"shared": True}, None),
        ("varlen", (9, 0), {"shared": True, "window": 512}, None),
        ("flex", (9, 0), {"shared": True, "softcap": 30.0}, None),
        ("cudnn", (9, 0), {"shared": True}, "behind a shared beginning"),
        ("fa3", (9, 0), {}, None),
        ("fa3", (9, 0), {"softcap": 30.0, "window": 512, "head_dim": 256, "value_dim": 256}, None),
        ("fa3", (10, 0), {}, "made for compute capability 9.x"),
        ("fa3", (8, 9), {}, "needs compute capability 9.0"),
        ("fa4", (10, 0), {}, None),
        ("fa4", (12, 0), {}, "made for compute capability 9.x or 10.x"),
        ("fa4", (9, 0), {"softcap": 30.0}, "soft-cap"),
        ("cudnn", (9, 0), {"window": 512}, None),
        ("cudnn", (9, 0), {"head_dim": 256, "value_dim": 256}, "up to 128"),
        ("cudnn", (9, 0), {"softcap": 30.0}, "soft-cap"),
        ("flex", (8, 0), {"softcap": 30.0}, None),
        ("flex", (9, 0), {"head_dim": 96, "value_dim": 96}, "powers of two"),
        ("varlen", (8, 0), {}, None),
        ("varlen", (7, 5), {}, "needs compute capability 8.0, and this GPU has 7.5"),
        *((name, (9, 0), {"device": torch.device("cpu")}, "no kernel for the CPU") for name in KERNELS),
        *((name, (9, 0), {"dtype": torch.float32}, "not in float32") for name in KERNELS),
    ],
)
def test_limits_are_said_before_anything_is_imported(
    name: str, capability: tuple[int, int], changes: Any, words: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(KERNELS[name], "missing", lambda: pytest.fail("imported"))
    reason = KERNELS[name].limits(GPU._replace(**changes))
    assert reason is None if words is None else words in str(reason)


def test_there_is_no_kernel_for_rocm(monkeypatch: pytest.MonkeyPatch) -> None:
    """It calls its GPUs CUDA devices, of capability 9.4."""
    monkeypatch.setattr(torch.version, "hip", "6.4")
    assert {kernel.limits(GPU) for kernel in KERNELS.values()} == {"there is no kernel for the ROCm"}


@pytest.fixture
def packages(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A folder in which packages are made up that Python finds first."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv(fa3.VARIABLE, raising=False)
    known = set(sys.modules)
    clear = (fa3._load, fa4._load, cudnn._load)
    for load in clear:
        load.cache_clear()
    yield tmp_path
    for load in clear:
        load.cache_clear()
    for name in set(sys.modules) - known:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("kernel", "files", "words"),
    [
        (fa3, {}, "is installed"),
        (fa3, {"flash_attn_interface.py": ""}, "does not bring the operators"),
        (
            fa3,
            {"flash_attn_interface.py": "raise OSError('libcudart.so.12: no such file')"},
            "OSError: libcudart.so.12",
        ),
        (
            fa3,
            {"xformers/__init__.py": "raise SystemExit", "xformers/flash_attn_3/_C.so": "no library"},
            "_C.so cannot be",
        ),
        (fa4, {}, "flash-attn-4 is not installed"),
        (fa4, {"flash_attn/cute/__init__.py": "import cutlass_of_nobody"}, "cutlass_of_nobody"),
        (fa4, {"flash_attn/cute/__init__.py": "", "flash_attn/cute/interface.py": ""}, "another version is needed"),
        (cudnn, {}, "nvidia-cudnn-frontend is not installed"),
        (cudnn, {"cudnn/__init__.py": "raise ImportError('libcudnn.so.9')"}, "ImportError: libcudnn.so.9"),
        (cudnn, {"cudnn/__init__.py": ""}, "cannot be loaded"),
    ],
)
def test_missing_broken_and_wrong_packages_are_told_apart(
    kernel: ModuleType, files: dict[str, str], words: str, packages: Any
) -> None:
    if kernel is fa3 and hasattr(torch.ops.flash_attn_3, "fwd"):
        pytest.skip("a FlashAttention-3 is loaded in this process")
    for path, text in files.items():
        (packages / path).parent.mkdir(parents=True, exist_ok=True)
        (packages / path).write_text(text)
    assert words in str(kernel.missing())


@pytest.mark.parametrize("agree", [True, False])
def test_flash_attention_4_of_versions_that_do_not_belong_together_is_refused_by_name(
    agree: bool, packages: Any
) -> None:
    """Its backward never returned on an H200, behind a forward that was right."""
    found = {"flash_attn_4": ("4.0.0b36", "nvidia-cutlass-dsl>=4.6.2"), "nvidia_cutlass_dsl": ("4.8.1", "numpy")}
    found["quack_kernels"] = ("0.6.5", "nvidia-cutlass-dsl>=4.7") if agree else ("0.6.0", "nvidia-cutlass-dsl==4.6.0")
    for name, (version, wants) in found.items():
        (packages / f"{name}-{version}.dist-info").mkdir()
        (packages / f"{name}-{version}.dist-info" / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nRequires-Dist: {wants}\n"
        )
    (packages / "flash_attn/cute").mkdir(parents=True)
    (packages / "flash_attn/cute/interface.py").write_text("flash_attn_varlen_func = _flash_attn_bwd = None")
    assert fa4.missing() == (
        None
        if agree
        else "quack-kernels 0.6.0 is made for nvidia-cutlass-dsl==4.6.0, and 4.8.1 is installed: with such a pair its"
        " backward may never return"
    )


def test_a_library_that_is_named_is_the_one_that_is_taken(packages: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fa3, "_registered", lambda: False)
    (packages / "flash_attn_interface.py").write_text("")
    monkeypatch.setenv(fa3.VARIABLE, str(packages / "mine.so"))
    assert "mine.so cannot be loaded (OSError" in str(fa3.missing())

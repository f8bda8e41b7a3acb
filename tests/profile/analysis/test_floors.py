"""Promise: what a call needs is the floor of the work that it does, and not of a copy that comes before it.

`data/h200_step.json.gz` is one step of the run of `benchmarks/results/h200_profile.json` as it was traced on an H200: of its
record what ran on the device, what launched it, and the ranges and functions of autograd that surround it.
"""

from pathlib import Path
from typing import Any

import pytest
from transformers import FalconConfig, LlamaConfig

from dynotune.measure.kernel_classes import IDLE, Work
from dynotune.measure.rooflines import MOVED, Rates, attention_flops, cost_of, moved_by
from dynotune.profile.analysis.analyse import analyse
from dynotune.profile.analysis.breakdown import Breakdown, breakdown_of
from dynotune.profile.records.facts import _kv_heads
from dynotune.profile.records.record_file import read_record
from tests.profile.made import BF16, CEILINGS, GEMM, PRODUCT, Step, model, record

STEP = Path(__file__).parents[1] / "data" / "h200_step.json.gz"
RATES = Rates(CEILINGS.matmul, CEILINGS.memory)
NEEDED = 2 * 4096**3 / CEILINGS.matmul["bfloat16"]
"""Seconds of one `PRODUCT`."""


def broken_down(step: Step) -> Breakdown:
    one = breakdown_of(record(step))
    assert one is not None
    return one


def cleared(step: Step, start: int, product: int, took: int) -> None:
    """As cuBLAS does where it splits the work of a product: the call clears a workspace first."""
    step.kernel("Memset (Device)", start, start + 2, "aten::mm", PRODUCT)
    call = step.raw[-1].linked
    step.kernel(GEMM, product, product + took, "aten::mm", PRODUCT)
    step.raw[-1].linked = step.raw[-2].linked = call
    del step.raw[-3]


@pytest.mark.parametrize("products", [1, 4])
def test_a_call_that_clears_its_workspace_first_is_a_product(products: int) -> None:
    step = Step(1000)
    for i in range(products):
        cleared(step, 250 * i, 250 * i + 5, 240)
    one = broken_down(step)
    assert one.row(Work.GEMM).floor == pytest.approx(products * NEEDED)
    assert one.row(Work.COPIES).floor == 0
    assert one.row(Work.COPIES).seconds == pytest.approx(products * 2e-6)
    assert not any(row.beaten for row in one.rows)


def test_a_call_that_copies_longer_than_it_multiplies_is_a_copy() -> None:
    """The control: not the first kernel decides, nor the kind, but the time."""
    step = Step(1000)
    step.kernel("Memcpy DtoD (Device -> Device)", 0, 600, "aten::copy_", PRODUCT)
    call = step.raw[-1].linked
    step.kernel("void at::native::vectorized_elementwise_kernel<4>", 600, 700, "aten::copy_", PRODUCT)
    step.raw[-1].linked = step.raw[-2].linked = call
    del step.raw[-3]
    one = broken_down(step)
    moved = 2 * 2 * 4096**2 / CEILINGS.memory
    assert one.row(Work.COPIES).floor == pytest.approx(moved)
    assert one.row(Work.ELEMENTWISE).floor == 0


def test_a_step_of_an_h200_is_compared_with_what_its_operators_need() -> None:
    kept = read_record(STEP)
    one = breakdown_of(kept)
    assert one is not None
    times = {row.work: row.seconds / row.floor for row in one.rows if row.floor}
    assert 1.05 < times[Work.GEMM] < 1.2
    assert 1.1 < times[Work.HEAD] < 1.3
    assert 1.2 < times[Work.LORA] < 1.7
    assert 1.0 < times[Work.ELEMENTWISE] < 1.1
    assert not any(row.beaten for row in one.rows)
    assert all(row.covered > 0.9 for row in one.rows)
    assert sum(row.seconds for row in one.rows) == pytest.approx(one.seconds)
    assert one.share(*IDLE) < 0.03
    # By hand: frozen weights of a layer, forward and backward, and the head where there are labels.
    (traced,) = kept.traced
    assert traced.processed_tokens is not None
    assert traced.label_tokens is not None
    weights = 28 * (3584 * (3584 + 512 + 512 + 3584) + 3 * 3584 * 18944)
    rate = kept.ceilings.matmul["bfloat16"]
    assert one.row(Work.GEMM).floor == pytest.approx(4 * weights * traced.processed_tokens / rate, rel=0.03)
    assert one.row(Work.HEAD).floor == pytest.approx(4 * 3584 * 152064 * traced.label_tokens / rate, rel=0.1)


def test_the_rate_at_the_floors_is_near_the_one_that_was_seen() -> None:
    findings = analyse(read_record(STEP))
    assert findings.floor_tokens_per_second is not None
    assert findings.tokens_per_second is not None
    assert 0.75 < findings.tokens_per_second / findings.floor_tokens_per_second < 0.9
    assert "GEMM" in findings.bottleneck


def test_what_is_added_to_is_read() -> None:
    shapes = ((4096, 4096), (4096, 8), (8, 4096))
    into, fresh = (cost_of(name, shapes, BF16 * 2) for name in ("aten::addmm_", "aten::addmm"))
    assert into is not None
    assert fresh is not None
    assert into.bytes - fresh.bytes == 2 * 4096**2


def test_a_look_up_moves_what_is_picked_and_not_the_table() -> None:
    table, rows = (152064, 3584), (16, 3584)
    cost = cost_of("aten::gather", (table, (), rows), ("c10::BFloat16", "Scalar", "long int"))
    assert cost is not None
    assert cost.bytes == 2 * 2 * 16 * 3584


@pytest.mark.parametrize("kernel", MOVED)
def test_our_own_kernels_have_floors(kernel: str) -> None:
    wide = (1, 4096, 4096)
    cost = moved_by(kernel, (wide, wide), BF16)
    assert cost is not None
    step = Step(1000).kernel(kernel, 0, 100, "Gated", (wide, wide))
    assert broken_down(step).row(Work.ELEMENTWISE).floor == pytest.approx(cost.seconds(RATES))


def attention_floor(lengths: tuple[int, ...], facts: dict[str, Any] | None = None, **shape: Any) -> float:
    step = Step(1000).kernel("flash_fwd", 0, 900, "flash_attn")
    one = breakdown_of(record(step, traced=(step.traced(lengths=lengths, facts=facts or {}),), model=model(**shape)))
    assert one is not None
    floor = one.row(Work.ATTENTION).floor
    assert floor is not None
    return floor


def moved_by_hand(tokens: int, kv_heads: int = 4) -> float:
    """Seconds: q, k, v, o forward; q, k, v, o, do, dq, dk, dv backward; the log-sum-exp written and read."""
    q, k = 28 * 128 * 2, kv_heads * 128 * 2
    forward, backward = (q + k + k + q), (q + k + k + q + q) + (q + k + k)
    return 28 * tokens * (forward + backward + 2 * 28 * 4) / CEILINGS.memory


def test_attention_of_short_documents_takes_what_its_tensors_take() -> None:
    floor = attention_floor((129,) * 16)
    assert floor == pytest.approx(moved_by_hand(16 * 129))
    assert floor > 2 * attention_flops((129,) * 16, 28, 28, 128, backward=True) / CEILINGS.matmul["bfloat16"]


def test_attention_of_long_documents_takes_what_its_products_take() -> None:
    """The control: there what is moved is a small part."""
    floor = attention_floor((16384,))
    assert floor == pytest.approx(attention_flops((16384,), 28, 28, 128, backward=True) / CEILINGS.matmul["bfloat16"])
    assert floor > 10 * moved_by_hand(16384)


def test_a_record_that_does_not_know_its_key_heads_has_the_least() -> None:
    assert attention_floor((129,) * 16, kv_heads=None) == pytest.approx(moved_by_hand(16 * 129, kv_heads=1))


def test_a_prompt_that_two_answers_share_is_moved_once() -> None:
    floor = attention_floor((129,) * 16, {"laid_out_tokens": 16 * 129 - 8 * 100})
    assert floor == pytest.approx(moved_by_hand(16 * 129 - 8 * 100))


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (LlamaConfig(num_attention_heads=8, num_key_value_heads=2), 2),
        (LlamaConfig(num_attention_heads=8), 8),
        (FalconConfig(num_attention_heads=8), 1),
    ],
    ids=["grouped", "one each", "multi-query"],
)
def test_heads_of_keys_are_read_off_the_configuration(config: Any, expected: int) -> None:
    assert _kv_heads(config, config.num_attention_heads) == expected

"""Promise: the classes of a step's time add up to the step, whatever ran beside what."""

from hypothesis import given, settings
from hypothesis import strategies as st

from dynotune.measure.kernel_classes import Surroundings, Work
from dynotune.measure.timelines.rows import DATA_MARK, RANKS_MARK, segments_of
from tests.profile.made import GEMM, US, Step

NAMES = (
    GEMM, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "Memcpy HtoD (Pinned -> Device)",
    "void pytorch_flash::flash_fwd_kernel<>", "void at::native::vectorized_elementwise_kernel<4>", "somebody_elses_kernel",
)  # fmt: skip

spans = st.tuples(st.integers(0, 900), st.integers(0, 300), st.sampled_from(NAMES))


@settings(deadline=None, max_examples=60)
@given(
    st.lists(spans, max_size=25),
    st.lists(st.tuples(st.integers(0, 900), st.integers(1, 200), st.booleans()), max_size=5),
)
def test_classes_add_up_to_the_step(kernels: list[tuple[int, int, str]], waits: list[tuple[int, int, bool]]) -> None:
    step = Step(1000)
    for start, took, name in kernels:
        step.kernel(name, start, start + took, launched_at=min(start, 990))
    for start, took, data in waits:
        step.host(DATA_MARK if data else RANKS_MARK, start, start + took, marked=True)
    one = step.traced()
    line = segments_of(one.events, one.where, Surroundings(), True)
    last = max([1000 * US, *((start + took) * US for start, took, _ in kernels)])
    assert sum(line.by_work().values()) == line.total == last
    assert sum(line.by_event().values()) <= line.total
    host = segments_of(one.events, one.where, Surroundings(), False)
    assert sum(host.by_work().values()) == host.total == 1000 * US


def test_who_computes_wins_over_copies_and_both_over_communication() -> None:
    step = Step(400).kernel(NAMES[1], 0, 300).kernel(NAMES[2], 100, 250).kernel(GEMM, 200, 400)
    one = step.traced()
    line = segments_of(one.events, one.where, Surroundings(), True)
    spent = {work: took // US for work, took in line.by_work().items() if took}
    assert spent == {Work.COMMUNICATION: 100, Work.COPIES: 100, Work.GEMM: 200}
    assert line.hidden == 200 * US


def test_idle_time_is_the_hosts_unless_it_waited_for_data_or_ranks() -> None:
    step = Step(600).kernel(GEMM, 0, 100).kernel(GEMM, 500, 600)
    step.host(DATA_MARK, 150, 250, marked=True).host("c10d::allreduce_", 300, 340)
    one = step.traced()
    spent = segments_of(one.events, one.where, Surroundings(), True).by_work()
    assert (spent[Work.DATA], spent[Work.RANKS], spent[Work.HOST]) == (100 * US, 40 * US, 260 * US)

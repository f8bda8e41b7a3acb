"""Promise: what ran on a device, however late, is found at the phase, micro-batch and module that launched it."""

from dynotune.measure.evidence import Phase, Seen, Source
from dynotune.measure.traces.attribution import attribute
from dynotune.measure.traces.events import NODE, read
from dynotune.measure.traces.facts import facts_of
from dynotune.measure.traces.step import add_up
from tests.measure.kineto import ENGINE, FEED, MAIN, Raw, launched, mark


def seen(raw: list[Raw]) -> tuple[dict[str, Seen], dict[str, object]]:
    """By name, and the facts."""
    events = read(raw)
    where = attribute(events)
    return {one.name: one for one in add_up(events, where)}, facts_of(events, where)


STEP = [
    mark("step", 0, 1000),
    mark("forward#0", 10, 200),
    mark("place:layers.0", 20, 100),
    mark("place:layers.0.mlp", 50, 80),
    mark("backward#0", 300, 600),
    mark("update", 700, 900),
]


def test_a_kernel_is_where_its_launch_was_though_it_runs_much_later() -> None:
    raw = [
        *STEP,
        Raw("aten::mm", 55, 10, number=1, node=3),
        *launched("gemm", 77, at=58, runs_at=650, linked=1),
        *launched("norm", 78, at=90, runs_at=660),  # launched without an operator, as Triton does
        *launched("adam", 79, at=800, runs_at=2000),
    ]
    by_name, facts = seen(raw)
    gemm, norm, adam = by_name["gemm"], by_name["norm"], by_name["adam"]
    assert (gemm.source, gemm.phase, gemm.place, gemm.micro_batch) == (
        Source.KERNEL, Phase.FORWARD, "layers.0.mlp", 0,
    )  # fmt: skip
    assert (norm.phase, norm.place) == (Phase.FORWARD, "layers.0")
    assert (adam.phase, adam.place, adam.micro_batch) == (Phase.UPDATE, "", -1)
    assert facts["unattributed_kernels"] == 0
    assert facts["launches"] == 3
    assert facts["launches_by_phase"] == {"forward": 2, "update": 1}


def test_a_backward_kernel_is_at_the_module_whose_forward_made_its_node() -> None:
    """Negative control: a node of another number is not."""
    raw = [
        *STEP,
        Raw("aten::mm", 55, 10, number=1, node=3),
        Raw("aten::add", 150, 10, number=2, node=4),
        Raw(f"{NODE}AddBackward0", 310, 20, ENGINE, number=3, node=4, made_in=MAIN - 4000),
        *launched("add_backward", 80, at=315, runs_at=700, linked=3, os_thread=ENGINE),
        Raw(f"{NODE}MmBackward0", 340, 60, ENGINE, number=4, node=3, made_in=MAIN - 4000),
        Raw("aten::mm", 350, 20, ENGINE, number=5),
        *launched("mm_backward", 81, at=355, runs_at=720, linked=5, os_thread=ENGINE),
    ]
    by_name, _ = seen(raw)
    assert (by_name["mm_backward"].phase, by_name["mm_backward"].place) == (Phase.BACKWARD, "layers.0.mlp")
    assert by_name["mm_backward"].micro_batch == 0
    assert by_name["add_backward"].place == ""


def test_the_operator_that_made_a_node_is_the_last_one_with_its_number() -> None:
    """Operators that make no node carry the number of the next that does."""
    raw = [
        *STEP,
        Raw("aten::detach", 55, 5, number=1, node=3),
        Raw("aten::mul", 120, 5, number=2, node=3),
        Raw(f"{NODE}MulBackward0", 310, 20, ENGINE, number=3, node=3, made_in=MAIN - 4000),
        *launched("mul_backward", 80, at=315, runs_at=700, linked=3, os_thread=ENGINE),
    ]
    assert seen(raw)[0]["mul_backward"].place == ""


def test_a_recomputation_counts_as_backward_at_its_own_module() -> None:
    raw = [
        *STEP,
        Raw("aten::add", 150, 10, number=2, node=4),
        Raw(f"{NODE}AddBackward0", 310, 200, ENGINE, number=3, node=4, made_in=MAIN - 4000),
        mark("place:layers.0.mlp", 320, 380, ENGINE),
        Raw("aten::mm", 330, 20, ENGINE, number=5, node=0),
        *launched("mm_again", 81, at=335, runs_at=720, linked=5, os_thread=ENGINE),
        *launched("behind", 82, at=400, runs_at=730, linked=3, os_thread=ENGINE),
    ]
    by_name, _ = seen(raw)
    assert (by_name["mm_again"].phase, by_name["mm_again"].place) == (Phase.BACKWARD, "layers.0.mlp")
    assert by_name["behind"].place == ""


def test_what_the_feed_does_meanwhile_is_of_no_phase() -> None:
    """Its thread is none that the profiler follows: CUPTI sees its calls, nobody sees its operators."""
    raw = [
        *STEP,
        Raw("aten::mm", 55, 10, number=1),
        Raw("cudaMemcpyAsync", 60, 5, FEED, number=90),
        Raw("Memcpy HtoD (Pinned -> Device)", 61, 10, number=90, on_device=True),
    ]
    by_name, facts = seen(raw)
    copy = by_name["Memcpy HtoD (Pinned -> Device)"]
    assert (copy.source, copy.phase, copy.place, copy.micro_batch) == (Source.COPY, Phase.OTHER, "", -1)
    assert facts["unattributed_kernels"] == 0, "a copy is no kernel"


def test_threads_that_the_cuda_library_numbers_otherwise_are_known_by_their_operators() -> None:
    raw = [
        *STEP,
        Raw("aten::mm", 55, 10, number=1),
        *launched("gemm", 77, at=58, runs_at=650, linked=1, os_thread=99),
        *launched("norm", 78, at=90, runs_at=660, os_thread=99),
        *launched("feeds", 79, at=92, runs_at=670, os_thread=FEED),
    ]
    by_name, facts = seen(raw)
    assert (by_name["norm"].phase, by_name["norm"].place) == (Phase.FORWARD, "layers.0")
    assert by_name["feeds"].phase is Phase.OTHER
    assert facts["unattributed"] == {"feeds": 1}


def test_a_kernel_whose_launch_is_not_in_the_trace_is_counted_and_not_guessed() -> None:
    raw = [*STEP, Raw("aten::mm", 55, 10, number=1), Raw("orphan", 400, 10, number=5, on_device=True)]
    by_name, facts = seen(raw)
    assert by_name["orphan"].phase is Phase.OTHER
    assert facts["unattributed_kernels"] == 1
    assert facts["unattributed"] == {"orphan": 1}


def test_ranges_drawn_on_the_device_are_no_kernels() -> None:
    raw = [
        *STEP,
        Raw("dynotune:forward#0", 600, 50, marked=True, on_device=True),
        Raw("Torch-Compiled Region: 0/0", 600, 50, on_device=True),
        Raw("Torch-Compiled Region: 0/0", 30, 50, number=3),
    ]
    by_name, facts = seen(raw)
    assert facts["kernels"] == 0
    assert by_name["Torch-Compiled Region: 0/0"].source is Source.REGION


def test_what_lies_outside_of_the_step_is_left_out() -> None:
    raw = [
        *launched("before", 70, at=-50, runs_at=100),
        *STEP,
        *launched("behind", 71, at=1500, runs_at=1600),
        Raw("cudaDeviceSynchronize", 1700, 5, number=9),
    ]
    by_name, facts = seen(raw)
    assert not {"before", "behind", "cudaDeviceSynchronize"} & set(by_name)
    assert facts["waits_of_host"] == []


def test_waits_of_the_host_are_listed_with_their_place() -> None:
    raw = [
        *STEP,
        Raw("aten::_local_scalar_dense", 55, 20, number=1),
        Raw("cudaMemcpyAsync", 56, 2, number=60, linked=1),
        Raw("Memcpy DtoH (Device -> Pageable)", 60, 2, number=60, linked=1, on_device=True),
        Raw("cudaStreamSynchronize", 60, 10, number=61, linked=1),
        Raw("cudaEventSynchronize", 710, 10, number=62),
        Raw("cudaStreamIsCapturing", 720, 10, number=63),
        Raw("cudaEventRecord", 730, 10, number=64),
    ]
    _, facts = seen(raw)
    assert facts["waits_of_host"] == [
        {"name": "aten::_local_scalar_dense", "phase": "forward", "place": "layers.0.mlp", "count": 1},
        {"name": "cudaStreamSynchronize", "phase": "forward", "place": "layers.0.mlp", "count": 1},
        {"name": "cudaEventSynchronize", "phase": "update", "place": "", "count": 1},
    ]


def test_what_an_operator_reads_for_itself_is_no_wait_that_python_asked_for() -> None:
    """As the CPU's product of a mixture's experts reads where each expert's tokens end."""
    raw = [
        *STEP,
        Raw("aten::_grouped_mm", 52, 20, number=1),
        Raw("aten::item", 54, 5, number=2),
        Raw("aten::_local_scalar_dense", 55, 2, number=3),
        Raw("MyFunctionBackward", 80, 20, number=4),
        Raw("aten::is_nonzero", 82, 10, number=5),
        Raw("aten::item", 83, 5, number=6),
        Raw("aten::_local_scalar_dense", 84, 2, number=7),
    ]
    _, facts = seen(raw)
    assert [wait["count"] for wait in facts["waits_of_host"]] == [1]


def test_bytes_of_a_copy_come_from_its_operator() -> None:
    raw = [
        *STEP,
        Raw(
            "aten::copy_", 55, 20, number=1, arguments=((4, 8), (4, 8), ()), types=("c10::BFloat16", "float", "Scalar")
        ),
        Raw("cudaMemcpyAsync", 56, 2, number=60, linked=1),
        Raw("Memcpy HtoD (Pageable -> Device)", 60, 2, number=60, linked=1, on_device=True),
    ]
    by_name, facts = seen(raw)
    assert facts["copies"] == {"Memcpy HtoD (Pageable -> Device)": {"count": 1, "bytes": 64, "microseconds": 0.002}}
    assert by_name["Memcpy HtoD (Pageable -> Device)"].bytes == 64


def test_the_device_is_busy_where_any_stream_is() -> None:
    raw = [*STEP]
    for i, (begin, took) in enumerate([(100, 50), (120, 10), (140, 40), (300, 20)]):
        raw += [Raw("cudaLaunchKernel", 20 + i, 1, number=60 + i), Raw("k", begin, took, number=60 + i, on_device=True)]
    raw.append(Raw("aten::mm", 15, 1, number=1))
    _, facts = seen(raw)
    assert facts["device_busy_us"] == 0.1
    assert facts["kernels_us"] == 0.12
    assert facts["wall_us"] == 1.0


def test_a_graph_s_kernels_are_where_the_graph_is_launched() -> None:
    raw = [*STEP, Raw("aten::mm", 15, 1, number=1), Raw("cudaGraphLaunch", 60, 5, number=50)]
    raw += [Raw(f"k{i}", 500 + i, 1, number=50, on_device=True) for i in range(3)]
    by_name, facts = seen(raw)
    assert {by_name[f"k{i}"].place for i in range(3)} == {"layers.0.mlp"}
    assert facts["launches"] == 1
    assert facts["kernels"] == 3

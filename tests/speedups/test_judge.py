"""Promise: engaged means seen in every place expected, in every micro-batch; what was not seen is never taken for it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynotune.measure.evidence import Evidence, Phase, Seen, Source
from dynotune.speedups.expectation import Absent, Expectation, Expected, Holds, Verdict
from dynotune.speedups.judge import judge
from tests.speedups.made_evidence import evidence, kernel, operator

LAYERS = tuple(f"layers.{i}" for i in range(4))
FORWARD = Expected("norm kernel", Phase.FORWARD, kernels=("^norm_fwd",), operators=("^Norm$",), at=LAYERS)
BACKWARD = Expected("norm kernel", Phase.BACKWARD, kernels=("^norm_bwd",), operators=("^NormBackward$",), at=LAYERS)
BOTH: list[Expectation] = [FORWARD, BACKWARD]


def ran(at: tuple[str, ...] = LAYERS, micro_batches: int = 1) -> list[Seen]:
    return [
        kernel(name, phase, place, i, microseconds=2.0)
        for i in range(micro_batches)
        for place in at
        for name, phase in (("norm_fwd<float>", Phase.FORWARD), ("norm_bwd<float>", Phase.BACKWARD))
    ]


def test_engaged_at_all_places_with_count_and_share() -> None:
    found = judge(BOTH, evidence(*ran(), kernel("gemm", Phase.FORWARD, microseconds=84.0)), LAYERS)
    assert (found.verdict, found.count) == (Verdict.ENGAGED, "4 of 4")
    assert (
        found.evidence == "norm_fwd<float> x 4 (forward), norm_bwd<float> x 4 (backward): 16.0 % of the device's time"
    )
    assert not found.missing
    assert not found.against


def test_nothing_seen() -> None:
    found = judge(BOTH, evidence(kernel("gemm", Phase.FORWARD), watched=frozenset(LAYERS)), LAYERS)
    assert (found.verdict, found.count) == (Verdict.NOT_ENGAGED, "0 of 4")
    assert found.evidence == "nothing was seen of norm kernel"
    assert found.missing == LAYERS


def test_one_layer_lacks_it() -> None:
    found = judge(BOTH, evidence(*ran(LAYERS[:3]), watched=frozenset(LAYERS)), LAYERS)
    assert (found.verdict, found.count, found.missing) == (Verdict.PARTIAL, "3 of 4", ("layers.3",))


def test_only_the_backward_lacks_it() -> None:
    without = [one for one in ran() if one.phase is Phase.FORWARD or one.place != "layers.2"]
    found = judge(BOTH, evidence(*without), LAYERS)
    assert (found.verdict, found.count, found.missing) == (Verdict.PARTIAL, "3 of 4", ("layers.2 (backward)",))


def test_no_backward_is_expected_where_none_can_come() -> None:
    """The first layer of a model whose embedding is frozen gets no gradient, and has none to give."""
    without = [one for one in ran() if one.phase is Phase.FORWARD or one.place != "layers.0"]
    told = {"without_gradient": ["layers.0"]}
    assert judge(BOTH, evidence(*without, facts=told), LAYERS).count == "4 of 4"
    no_forward = [one for one in ran() if one.place != "layers.0"]
    missing = judge(BOTH, evidence(*no_forward, facts=told, watched=frozenset(LAYERS)), LAYERS).missing
    assert missing == ("layers.0 (forward)",)


def test_forward_alone_is_partial_though_no_place_is_whole() -> None:
    found = judge(BOTH, evidence(*(one for one in ran() if one.phase is Phase.FORWARD)), LAYERS)
    assert (found.verdict, found.count) == (Verdict.PARTIAL, "0 of 4")
    assert found.missing == tuple(f"{place} (backward)" for place in LAYERS)


def test_one_micro_batch_lacks_it() -> None:
    found = judge(BOTH, evidence(*ran(micro_batches=2), micro_batches=3), LAYERS)
    assert (found.verdict, found.seen) == (Verdict.PARTIAL, 0)


def test_twice_where_once_is_elsewhere_does_not_count_for_both() -> None:
    seen = [*ran(LAYERS[:3]), *ran(LAYERS[:1])]
    assert judge(BOTH, evidence(*seen, watched=frozenset(LAYERS)), LAYERS).verdict is Verdict.PARTIAL


def test_a_module_within_counts_for_the_one_around_it_and_not_the_other_way_round() -> None:
    inner = [kernel("norm_fwd", Phase.FORWARD, f"{place}.norm") for place in LAYERS]
    assert judge([FORWARD], evidence(*inner, watched=frozenset(LAYERS)), LAYERS).verdict is Verdict.ENGAGED
    within = Expected("norm", Phase.FORWARD, kernels=("norm",), at=("layers.1.norm",))
    outside = evidence(kernel("norm_fwd", Phase.FORWARD, "layers.1"), watched=frozenset({"layers.1", "layers.1.norm"}))
    assert judge([within], outside).verdict is Verdict.NOT_ENGAGED
    alike = evidence(kernel("norm_fwd", Phase.FORWARD, "layers.10"), watched=frozenset({"layers.1", "layers.10"}))
    assert judge([Expected("norm", Phase.FORWARD, kernels=("norm",), at=("layers.1",))], alike).seen == 0


def test_within_a_compiled_layer_the_layer_must_show_it_for_all() -> None:
    expected = [Expected("norm", Phase.FORWARD, kernels=("norm",), at=("a.x", "a.y", "b.x", "b.y"))]
    watched = frozenset({"a", "b"})
    whole = [kernel("norm", Phase.FORWARD, "a", count=2), kernel("norm", Phase.FORWARD, "b", count=2)]
    assert judge(expected, evidence(*whole, watched=watched)).verdict is Verdict.ENGAGED
    found = judge(expected, evidence(whole[0], kernel("norm", Phase.FORWARD, "b"), watched=watched))
    assert (found.verdict, found.count, found.missing) == (Verdict.PARTIAL, "3 of 4", ("b (1 of the 2 in it)",))


def test_a_whole_compiled_model_is_judged_as_one() -> None:
    expected = [Expected("norm", Phase.FORWARD, kernels=("norm",), at=("a", "b"))]
    model = evidence(kernel("norm", Phase.FORWARD, "", count=2), watched=frozenset({""}))
    assert judge(expected, model).verdict is Verdict.ENGAGED


def test_a_place_that_was_not_watched_is_no_proof() -> None:
    found = judge([FORWARD], evidence(*ran(LAYERS[:2]), watched=frozenset(LAYERS[:2])), LAYERS)
    assert found.verdict is Verdict.PARTIAL
    assert found.missing == ("layers.2 (was not watched)", "layers.3 (was not watched)")


def test_a_place_of_which_nothing_is_expected_is_no_proof() -> None:
    found = judge(BOTH, evidence(*ran()), [*LAYERS, "norm"])
    assert (found.verdict, found.count, found.missing) == (
        Verdict.PARTIAL,
        "4 of 5",
        ("norm (nothing is expected there)",),
    )


def test_a_gpu_without_device_events_is_unknown() -> None:
    on_host = [operator(name, one.phase, one.place) for one in ran() for name in ("Norm", "NormBackward")]
    found = judge(BOTH, evidence(*on_host), LAYERS)
    assert found.verdict is Verdict.UNKNOWN
    assert "no kernel" in found.evidence


def test_on_a_gpu_operators_prove_nothing_where_kernels_are_named() -> None:
    on_host = [operator("Norm", Phase.FORWARD, place) for place in LAYERS]
    assert judge([FORWARD], evidence(*on_host, kernel("gemm", Phase.FORWARD))).verdict is Verdict.NOT_ENGAGED


def test_on_the_cpu_operators_decide_and_without_any_it_is_unknown() -> None:
    on_host = [operator("Norm", Phase.FORWARD, place) for place in LAYERS]
    assert judge([FORWARD], evidence(*on_host, device="cpu")).verdict is Verdict.ENGAGED
    only_gpu = Expected("graph", Phase.FORWARD, kernels=("graph",), at=LAYERS)
    found = judge([FORWARD, only_gpu], evidence(*on_host, device="cpu"))
    assert found.verdict is Verdict.UNKNOWN
    assert "no operators to tell graph by" in found.evidence
    assert judge([only_gpu], evidence(*on_host, device="cpu")).verdict is Verdict.UNKNOWN


def test_no_expectation_no_trace_or_an_empty_one_is_unknown() -> None:
    assert judge([], evidence(*ran()), LAYERS).verdict is Verdict.UNKNOWN
    assert judge(BOTH, evidence(device="cpu"), LAYERS).verdict is Verdict.UNKNOWN
    why = {"not_traced": "another profiler was running"}
    found = judge(BOTH, evidence(device="cpu", facts=why), LAYERS)
    assert (found.verdict, found.evidence) == (
        Verdict.UNKNOWN, "the step was not traced: another profiler was running",
    )  # fmt: skip


def test_kernels_whose_launch_was_lost_make_a_lack_unknown() -> None:
    seen = [*ran(LAYERS[:3]), kernel("norm_fwd", Phase.OTHER, micro_batch=-1)]
    lost = {"unattributed": {"norm_fwd": 1}}
    found = judge([FORWARD], evidence(*seen, watched=frozenset(LAYERS), facts=lost), LAYERS)
    assert (found.verdict, found.seen) == (Verdict.UNKNOWN, 0)
    assert "could not be traced to their launch" in found.evidence
    nothing = judge([FORWARD], evidence(seen[-1], watched=frozenset(LAYERS), facts=lost), LAYERS)
    assert nothing.verdict is Verdict.UNKNOWN
    assert judge([FORWARD], evidence(*ran(), facts=lost), LAYERS).verdict is Verdict.ENGAGED


def test_what_must_be_absent_and_was_seen_speaks_against_it() -> None:
    mask = Absent("dense mask", lambda seen: "28 of 64 x 64")
    found = judge([*BOTH, mask], evidence(*ran()), LAYERS)
    assert (found.verdict, found.against) == (Verdict.PARTIAL, ("dense mask: 28 of 64 x 64",))
    assert judge([mask], evidence(*ran())).verdict is Verdict.NOT_ENGAGED
    nothing = Absent("dense mask", lambda seen: None)
    assert judge([nothing], evidence(*ran())).verdict is Verdict.ENGAGED


LEFT_OUT = ("layers.3: its forward was replaced by someone else",)


def test_a_layer_that_was_left_out_when_it_was_installed_counts_and_is_named_with_the_reason() -> None:
    three = [replace(one, at=LAYERS[:3]) for one in (FORWARD, BACKWARD)]
    step = evidence(*ran(LAYERS[:3]), watched=frozenset(LAYERS))
    found = judge(three, step, LAYERS[:3], LEFT_OUT)
    assert (found.verdict, found.count) == (Verdict.PARTIAL, "3 of 4")
    assert found.missing == ("layers.3 (left out: its forward was replaced by someone else)",)
    assert judge(three, step, LAYERS[:3]).count == "3 of 3", "control: nobody said that it was left out"
    two = judge(three, evidence(*ran(LAYERS[:2]), watched=frozenset(LAYERS)), LAYERS[:3], LEFT_OUT)
    assert (two.count, two.missing) == ("2 of 4", ("layers.2", *found.missing))
    nothing = judge(three, evidence(kernel("gemm", Phase.FORWARD), watched=frozenset(LAYERS)), LAYERS[:3], LEFT_OUT)
    assert (nothing.verdict, nothing.count) == (Verdict.NOT_ENGAGED, "0 of 4")


def test_what_is_known_by_a_fact_alone_is_partial_too_where_a_module_was_left_out() -> None:
    found = judge([Holds("less memory", lambda seen: True)], evidence(*ran()), LAYERS[:3], LEFT_OUT)
    assert (found.verdict, found.count) == (Verdict.PARTIAL, "3 of 4")


@pytest.mark.parametrize(
    ("holds", "verdict"), [(True, Verdict.ENGAGED), (False, Verdict.NOT_ENGAGED), (None, Verdict.UNKNOWN)]
)
def test_a_fact_alone(holds: bool | None, verdict: Verdict) -> None:
    assert judge([Holds("less memory", lambda seen: holds)], evidence(*ran())).verdict is verdict


@pytest.mark.parametrize(
    ("holds", "verdict"), [(True, Verdict.ENGAGED), (False, Verdict.PARTIAL), (None, Verdict.UNKNOWN)]
)
def test_a_fact_beside_kernels(holds: bool | None, verdict: Verdict) -> None:
    found = judge([*BOTH, Holds("less memory", lambda seen: holds)], evidence(*ran()), LAYERS)
    assert found.verdict is verdict
    assert ("does not hold: less memory" in found.against) == (holds is False)


def test_anywhere_in_the_step() -> None:
    fused = Expected("fused update", Phase.UPDATE, kernels=("adam",), each=2)
    updates = [Seen("adam", Source.KERNEL, Phase.UPDATE, count=2)]
    assert judge([fused], evidence(*updates)).count == "1 of 1"
    found = judge([fused], evidence(Seen("adam", Source.KERNEL, Phase.UPDATE)))
    assert (found.verdict, found.count, found.missing) == (Verdict.PARTIAL, "0 of 1", ("the step (1 of 2)",))
    places = judge([Expected("x", Phase.FORWARD, kernels=("norm_fwd",), each=4)], evidence(*ran(LAYERS[:3])), LAYERS)
    assert (places.verdict, places.count) == (Verdict.PARTIAL, "3 of 4")


def test_a_long_name_is_cut_to_the_word_that_was_recognised() -> None:
    name = (
        "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::Mainloop<2>>>>(Params)"
    )
    expected = Expected("flash", Phase.FORWARD, kernels=("FlashAttnFwdSm90",))
    assert judge([expected], evidence(kernel(name, Phase.FORWARD))).evidence.startswith("flash::FlashAttnFwdSm90 x 1")


places_strategy = st.lists(st.sampled_from(LAYERS), unique=True)


@given(here=places_strategy, forward_only=places_strategy, micro_batches=st.integers(1, 3), noise=st.integers(0, 3))
def test_seen_is_the_number_of_places_with_everything(
    here: list[str], forward_only: list[str], micro_batches: int, noise: int
) -> None:
    seen = ran(tuple(here), micro_batches)
    seen += [kernel("norm_fwd", Phase.FORWARD, place, i) for place in forward_only for i in range(micro_batches)]
    seen += [kernel("other", Phase.FORWARD)] * (noise + 1)
    found = judge(BOTH, evidence(*seen, micro_batches=micro_batches, watched=frozenset(LAYERS)), LAYERS)
    assert found.seen == len(here)
    assert (found.verdict is Verdict.ENGAGED) == (len(here) == len(LAYERS))
    assert (found.verdict is Verdict.NOT_ENGAGED) == (not here and not forward_only)
    assert {one.split(" ")[0] for one in found.missing} == set(LAYERS) - set(here)


@given(drop=st.integers(0, 7), micro_batches=st.integers(1, 2))
def test_without_any_one_event_it_is_not_engaged(drop: int, micro_batches: int) -> None:
    seen = ran(micro_batches=micro_batches)
    del seen[drop]
    made: Evidence = evidence(*seen, micro_batches=micro_batches, watched=frozenset(LAYERS))
    assert judge(BOTH, made, LAYERS).verdict is Verdict.PARTIAL

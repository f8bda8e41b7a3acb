"""Parts of a stretch of time leave no moment out and count none twice."""

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from dynotune.measure.parts import Parts, in_words


class Clock:
    """Goes on when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_part_inside_another_is_taken_out_of_it() -> None:
    clock = Clock()
    parts = Parts(clock)
    with parts.of("memory"):
        clock.now += 1
        with parts.of("lora"):
            clock.now += 2
            with parts.of("packing"):
                clock.now += 4
        clock.now += 8
    with parts.of("lora"):
        clock.now += 16
    assert parts.seconds == {"packing": 4, "lora": 18, "memory": 9}


def test_an_error_ends_its_part_and_no_other() -> None:
    clock = Clock()
    parts = Parts(clock)
    with parts.of("outer"):
        with suppress(ValueError), parts.of("inner"):
            clock.now += 1
            raise ValueError("no")
        clock.now += 2
    assert parts.seconds == {"inner": 1, "outer": 2}


Tree = list["tuple[str, float, Tree]"]
trees = st.recursive(
    st.just([]),
    lambda below: st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9), below), max_size=3),
    max_leaves=12,
)


@given(trees)
def test_whatever_is_in_what_all_parts_together_are_the_time(tree: Tree) -> None:
    clock = Clock()
    parts = Parts(clock)

    def go(some: Tree) -> None:
        for name, seconds, below in some:
            with parts.of(name):
                clock.now += seconds
                go(below)

    go(tree)
    assert sum(parts.seconds.values()) == clock.now


def test_the_longest_come_first_and_what_is_short_is_the_rest() -> None:
    words = in_words({"rms_norm_kernel": 0.1, "fused_lora": 1.25, "activation memory": 2.9}, 5.0)
    assert words == "activation memory 2.9 s, fused_lora 1.2 s, the rest 0.8 s"

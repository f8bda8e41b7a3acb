"""Promise: each cause that is planted is named, with its figure and a remedy, and a clean stretch has no sign."""

from dataclasses import replace

import pytest

from dynotune.measure.signs.record import Stretch
from dynotune.measure.signs.registry import SIGNS, signs_of

CLEAN = Stretch(
    steps=200,
    seconds=100.0,
    data_wait=0.3,
    host=0.8,
    caught_up=0.02,
    fill=0.97,
    headroom=0.3,
    headroom_gib=42.0,
    samples=100,
    training_samples=90,
    utilisation=0.98,
    utilisation_low=0.01,
    throttled=("power cap",),
    sm_mhz=1755.0,
)

PLANTED: dict[str, tuple[dict[str, object], str]] = {
    "data-bound": ({"data_wait": 23.0}, "23 %"),
    "host-bound": ({"host": 15.0}, "15 %"),
    "recompiling": ({"recompiled_steps": 7, "graphs": 9, "compile": 31.0}, "9 graphs"),
    "fill-low": ({"fill": 0.3}, "70 %"),
    "non-finite-steps": ({"nonfinite_steps": 2}, "2 steps"),
    "throttled": ({"throttled": ("power cap", "heat, by hardware")}, "heat, by hardware"),
    "memory-nearly-full": ({"headroom": 0.02, "headroom_gib": 2.8}, "2.8 GiB"),
    "another-process": ({"other_processes": 1}, "1 other process"),
    "gpu-use-low": ({"utilisation": 0.35, "utilisation_low": 0.9}, "35 %"),
    "gpu-use-oscillating": ({"utilisation": 0.6, "utilisation_low": 0.4}, "40 %"),
}


def test_a_clean_stretch_has_no_sign() -> None:
    assert signs_of(CLEAN) == []


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_cause_is_named_with_figure_and_remedy(name: str) -> None:
    changed, figure = PLANTED[name]
    (sign,) = signs_of(replace(CLEAN, **changed))  # type: ignore[arg-type]
    assert sign.name == name
    assert figure in sign.figure
    assert sign.remedy.endswith(".")
    assert sign.sentence().startswith(f"{name}: ")


def test_a_device_that_waits_for_the_host_within_steps_is_seen() -> None:
    (sign,) = signs_of(replace(CLEAN, caught_up=0.9))
    assert (sign.name, "90 %" in sign.figure) == ("host-bound", True)


def test_replaying_layers_is_advised_where_it_can_be() -> None:
    """Layers of micro-batches of pairs are never replayed."""
    for pairs in (False, True):
        (sign,) = signs_of(replace(CLEAN, caught_up=0.9, pairs=pairs))
        assert ("step_graphs" in sign.remedy) == (not pairs)
        assert sign.remedy.endswith(".")


def test_retries_of_the_allocator_are_a_sign_of_full_memory() -> None:
    (sign,) = signs_of(replace(CLEAN, retries=3))
    assert (sign.name, "3 times" in sign.figure) == ("memory-nearly-full", True)


def test_what_is_not_known_or_too_little_is_no_sign() -> None:
    assert signs_of(Stretch()) == []
    on_a_cpu = Stretch(steps=500, seconds=100.0, data_wait=0.1, host=0.5, fill=0.9)
    assert signs_of(on_a_cpu) == []
    few = replace(CLEAN, steps=3, data_wait=50.0, fill=0.1, utilisation=0.1, samples=2, other_processes=4)
    idle = replace(CLEAN, training_samples=4, utilisation=0.1, utilisation_low=0.9)
    assert signs_of(idle) == [], "all others are of an evaluation"
    assert signs_of(few) == []
    assert signs_of(replace(CLEAN, seconds=1.0, data_wait=0.5)) == [], "half a second is no reason to speak"


def test_every_sign_has_a_planted_cause() -> None:
    assert len(PLANTED) == len(SIGNS) + 1, "the use of a GPU has two"

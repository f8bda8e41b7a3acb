"""All signs, in the order in which they are told. Adding one: a function of a `Stretch`, a line here, and a test that plants
its cause and one that does not."""

from collections.abc import Callable

from dynotune.measure.signs import device, steps
from dynotune.measure.signs.record import Sign, Stretch

SIGNS: tuple[Callable[[Stretch], Sign | None], ...] = (
    steps.nonfinite,
    device.another_process,
    device.throttled,
    device.memory_nearly_full,
    steps.recompiling,
    steps.data_bound,
    steps.host_bound,
    device.gpu_use,
    steps.fill_low,
)


def signs_of(seen: Stretch) -> list[Sign]:
    """What holds this stretch back; empty where nothing does."""
    return [sign for one in SIGNS if (sign := one(seen)) is not None]

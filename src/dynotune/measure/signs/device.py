"""Signs of the machine: its clocks, its memory, and who else is there."""

from dynotune.measure.signs.record import LEAST_SAMPLES, LEAST_STEPS, Sign, Stretch

HEADROOM_LOW = 0.05
USE_LOW = 0.6
SWINGS = (0.2, 0.8)
"""Share of the samples with a device that is mostly idle: from here to there it goes on and off."""

SETTINGS = frozenset({"power cap", "application clocks", "display clocks", "sync boost"})
"""Reasons for lower clocks that are a setting, or the way of a device under full load."""


def throttled(seen: Stretch) -> Sign | None:
    reasons = [reason for reason in seen.throttled if reason not in SETTINGS]
    if not reasons or seen.samples < LEAST_SAMPLES:
        return None
    clocks = f", {seen.sm_mhz:,.0f} MHz on average" if seen.sm_mhz else ""
    return Sign(
        "throttled",
        f"the GPU lowers its clocks ({', '.join(reasons)}{clocks})",
        "Look at its cooling and power supply (`nvidia-smi -q -d PERFORMANCE`); no setting of the run changes this.",
    )


def memory_nearly_full(seen: Stretch) -> Sign | None:
    if seen.headroom is None:
        return None
    if seen.retries:
        figure = f"PyTorch gave memory back to the device {seen.retries} times to go on, and waited for it each time"
    elif seen.headroom < HEADROOM_LOW:
        figure = f"{100 * seen.headroom:.0f} % of the device's memory ({seen.headroom_gib or 0.0:.1f} GiB) is left"
    else:
        return None
    return Sign(
        "memory-nearly-full",
        figure,
        "Lower `micro_batch_tokens`: the step stays the same. Or keep fewer activations (`activation_memory`).",
    )


def another_process(seen: Stretch) -> Sign | None:
    if not seen.other_processes or seen.samples < LEAST_SAMPLES:
        return None
    return Sign(
        "another-process",
        f"{seen.other_processes} other process{'es' * (seen.other_processes > 1)} on this GPU",
        "`nvidia-smi` names it; its work takes time from this run, and speeds measured beside it mean nothing.",
    )


def gpu_use(seen: Stretch) -> Sign | None:
    """Low throughout, or on and off."""
    if seen.utilisation is None or seen.training_samples < LEAST_SAMPLES or seen.steps < LEAST_STEPS:
        return None
    low, high = SWINGS
    if seen.utilisation_low is not None and low <= seen.utilisation_low <= high:
        return Sign(
            "gpu-use-oscillating",
            f"while it trains, the GPU is mostly idle in {100 * seen.utilisation_low:.0f} % of the seconds and busy in the"
            " others",
            "Something stops the run again and again: see `time/...` in metrics.jsonl, and `dynotune profile`.",
        )
    if seen.utilisation < USE_LOW:
        return Sign(
            "gpu-use-low",
            f"a kernel runs in {100 * seen.utilisation:.0f} % of the time of training",
            "`dynotune profile` says what the GPU waits for.",
        )
    return None

"""Signs in the steps themselves: who waits for whom, and what is computed for nothing."""

from dynotune.measure.signs.record import LEAST_SECONDS, LEAST_STEPS, Sign, Stretch

DATA_BOUND = 0.05
HOST_BOUND = 0.10
CAUGHT_UP = 0.5
FILL_LOW = 0.8
RECOMPILED_STEPS = 2
REPLAYED = "let the layers of small micro-batches be replayed (`speedups: {step_graphs: on}`)"


def data_bound(seen: Stretch) -> Sign | None:
    part = seen.data_wait / seen.seconds if seen.seconds else 0.0
    if seen.steps < LEAST_STEPS or part < DATA_BOUND or seen.data_wait < LEAST_SECONDS:
        return None
    return Sign(
        "data-bound",
        f"{100 * part:.0f} % of the time is waiting for data ({_ms(seen.data_wait, seen)} a step)",
        "Let micro-batches be made ahead (`speedups: {prefetch: auto}`), put the token store on a local disk, and leave the"
        " loader's thread a free core.",
    )


def host_bound(seen: Stretch) -> Sign | None:
    """Two ways: the device idles between steps, or it keeps catching up with the host within them."""
    if seen.steps < LEAST_STEPS or not seen.seconds:
        return None
    part = seen.host / seen.seconds
    if part >= HOST_BOUND and seen.host >= LEAST_SECONDS:
        return Sign(
            "host-bound",
            f"{100 * part:.0f} % of the time is the host's work between steps ({_ms(seen.host, seen)} a step)",
            "Log less often (`logging_steps`), and look at what callbacks and trackers do.",
        )
    if seen.caught_up is not None and seen.caught_up >= CAUGHT_UP and seen.seconds >= LEAST_SECONDS:
        return Sign(
            "host-bound",
            f"in {100 * seen.caught_up:.0f} % of the steps the GPU had done its work before the host asked for more",
            "Give a step more work at once (`micro_batch_tokens`, `packed_execution`)"
            + ("." if seen.pairs else f", or {REPLAYED}."),
        )
    return None


def recompiling(seen: Stretch) -> Sign | None:
    if seen.recompiled_steps < RECOMPILED_STEPS:
        return None
    return Sign(
        "recompiling",
        f"{seen.graphs} graphs were made in {seen.recompiled_steps} of {seen.steps} steps behind the warm-up, in"
        f" {seen.compile:.1f} s",
        "Shapes keep changing: keep `packed_execution` on, whose token counts are few; `TORCH_LOGS=recompiles` names the"
        " guards that failed.",
    )


def fill_low(seen: Stretch) -> Sign | None:
    if seen.fill is None or seen.fill >= FILL_LOW or seen.steps < LEAST_STEPS:
        return None
    return Sign(
        "fill-low",
        f"{100 * (1 - seen.fill):.0f} % of the tokens that the model computes are padding",
        "Raise `micro_batch_tokens`, so that documents fill a micro-batch, or use fewer ranks for steps this small.",
    )


def nonfinite(seen: Stretch) -> Sign | None:
    if not seen.nonfinite_steps:
        return None
    return Sign(
        "non-finite-steps",
        f"{seen.nonfinite_steps} steps were not finite and were kept from the weights",
        "Lower `learning_rate`, or look at their examples in metrics.jsonl.",
    )


def _ms(seconds: float, seen: Stretch) -> str:
    return f"{1e3 * seconds / seen.steps:,.1f} ms"

"""A slow-down that comes back, as a sign."""

from collections.abc import Sequence

from dynotune.measure.periods import Period
from dynotune.measure.signs.record import Sign

REMEDIES = {
    "logging": "Log less often (`logging_steps`), or to fewer trackers (`report_to`).",
    "evaluation": "Evaluate less often (`eval_steps`), or on fewer rows.",
    "saving": "Save less often (`save_steps`), or to a faster disk.",
    "epoch": "A new epoch's order is laid out then; it costs once an epoch.",
    "garbage collection": "Something makes many Python objects in each step: look at callbacks and collators; `gc.freeze()`"
    " before the run keeps what is there out of it.",
    "data": "The loader falls behind again and again: a local disk for the token store, and a free core for its thread.",
    "compilation": "`TORCH_LOGS=recompiles` names what changed.",
    "host": "Callbacks and trackers do this work between steps.",
}
"""By what has the slow-down's period."""


def cycle(found: Sequence[tuple[Period, str]]) -> Sign:
    """found: periods, each with its cause by `what_has_it`; at least one. The remedy is that of the dearest."""
    dearest = max(found, key=lambda one: one[0].share)
    every = (dearest, *(one for one in found if one is not dearest))
    return Sign(
        "periodic-slow-down",
        "; ".join(_figure(period, cause) for period, cause in every),
        REMEDIES.get(dearest[1], "`dynotune profile` can trace such a step."),
    )


def _figure(period: Period, cause: str) -> str:
    with_it = f", with {cause}" if cause else ", and nothing that is known here has this period"
    return (
        f"{period.said} one takes {period.times:.1f} times as long (+{1e3 * period.extra:,.1f} ms,"
        f" {100 * period.share:.1f} % of the time){with_it}"
    )

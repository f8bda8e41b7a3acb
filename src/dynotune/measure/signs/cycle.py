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


def cycle(cause: str, periods: Sequence[Period]) -> Sign:
    """cause: by `what_has_it`, and in the sign's name: another cause is another thing. periods: of it, at least one."""
    return Sign(
        f"periodic-{cause.replace(' ', '-') or 'slow-down'}",
        "; ".join(_figure(period, cause) for period in sorted(periods, key=lambda one: -one.share)),
        REMEDIES.get(cause, "`dynotune profile` can trace such a step."),
    )


def _figure(period: Period, cause: str) -> str:
    with_it = f", with {cause}" if cause else ", and nothing that is known here has this period"
    return (
        f"{period.said} one takes {period.times:.1f} times as long (+{1e3 * period.extra:,.1f} ms,"
        f" {100 * period.share:.1f} % of the time){with_it}"
    )

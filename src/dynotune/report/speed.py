"""The figures of speed as words: real tokens/s, fill, and MFU with its peak and where that comes from."""

from collections.abc import Mapping
from typing import Any

SHARES = {"fill", "mfu", "hfu", "share_of_tokens_saved"}
SHARES |= {f"steady_{name}" for name in SHARES}
"""Figures that are shares and shown in percent."""

MOST_OF_THE_METER = 200
"""Microseconds of the host a step."""

STEPS_TO_JUDGE = 50
"""Of a process: in fewer, first calls are most of what measuring took (seen: 905 to 1,540 microseconds a step of a few)."""


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def speed_sentence(figures: Mapping[str, Any]) -> str:
    """How fast a run was, from `summary.json`; whole window first, then without the first steps where there are others."""
    if not figures.get("tokens_per_second"):
        return "speed: nothing was measured"
    parts = [f"{figures['tokens_per_second']:,.0f} real tokens/s"]
    if figures.get("pairs_per_second"):
        parts.insert(0, f"{figures['pairs_per_second']:,.1f} pairs/s")
    if figures.get("share_of_tokens_saved"):
        parts.append(f"{percent(figures['share_of_tokens_saved'])} of all tokens stood once for several sequences")
    if figures.get("fill") is not None:
        parts.append(f"fill {percent(figures['fill'])}")
    parts.append(_utilisation(figures))
    if steady := figures.get("steady_tokens_per_second"):
        mfu = f", MFU {percent(figures['steady_mfu'])}" if figures.get("steady_mfu") is not None else ""
        parts.append(f"without the first steps {steady:,.0f} real tokens/s{mfu}")
    covered = figures.get("measured_steps")
    if covered is not None and covered < figures["steps"] - len(figures.get("skipped_steps") or ()):
        parts.append(
            f"all of this over the last {covered} steps, since the checkpoint has no such figures of the others"
        )
    if (own := figures.get("meter_microseconds_per_step")) is not None:
        steps = figures.get("meter_steps", figures["steps"])
        over = own > MOST_OF_THE_METER and steps >= STEPS_TO_JUDGE
        much = f", more than the {MOST_OF_THE_METER} that it is held to" if over else ""
        parts.append(f"measuring took {own:,.0f} microseconds of the host a step{much}")
    return "speed: " + "; ".join(parts)


def _utilisation(figures: Mapping[str, Any]) -> str:
    if figures.get("mfu") is None:
        return f"no MFU: {figures.get('no_mfu', 'not known')}"
    text = (
        f"MFU {percent(figures['mfu'])}, HFU {percent(figures['hfu'])} of {figures['peak_tflops']:,g} TFLOP/s dense bf16"
        f" ({figures['peak_source']})"
    )
    return f"{text}. {figures['impossible']}" if "impossible" in figures else text

"""Keys that say what becomes of activations between forward and backward: four ways to ask for one thing."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from dynotune.config.checking.finding import Finding, idle, wrong

if TYPE_CHECKING:
    from dynotune.config.whole import WholeConfig


class Said(NamedTuple):
    """What one key says."""

    key: str
    written: str
    agrees: frozenset[str]
    """Policies that are what it says."""

    policy: str | None
    """That it asks for; None of one that only forbids."""


def activations(config: "WholeConfig", given: frozenset[str]) -> Iterator[Finding]:
    """Contradictions. `speedups` wins over other keys, whether it asks for a policy or forbids one, and that is said."""
    from dynotune.speedups.activation import PREFIX, asked_policy

    asked = asked_policy(config)
    if asked is None:
        return
    policy, winner = asked
    for one in said(config):
        if one.written == winner or policy in one.agrees:
            continue
        key, off = winner.partition(":")[0], f"{PREFIX}{one.policy}"
        if one.key != "speedups" and config.speedups.get(off) == "off":
            yield idle(f"`speedups: {{{off}: off}}` wins over `{one.written}`.", "speedups", one.key)
        elif key == "speedups" and one.key != "speedups":
            yield idle(f"`{winner}` wins over `{one.written}`.", key, one.key)
        elif policy == "offload" and one.key == "gradient_checkpointing":
            yield idle(f"`{winner}` computes layers again, too, and so wins over `{one.written}`.", key, one.key)
        else:
            yield wrong(f"`{winner}` and `{one.written}` contradict each other. Keep one.", key, one.key)


def said(config: "WholeConfig") -> Iterator[Said]:
    """Of all keys that say something, by what they are set to."""
    from dynotune.speedups.activation import POLICIES, PREFIX, asked_by_others

    every = frozenset(POLICIES)
    for name, setting in config.speedups.items():
        policy = name.removeprefix(PREFIX)
        if name.startswith(PREFIX) and policy in every and setting != "auto":
            written, only = f"speedups: {{{name}: {setting}}}", frozenset({policy})
            yield (
                Said("speedups", written, only, policy)
                if setting == "on"
                else Said("speedups", written, every - only, None)
            )
    for policy, written in asked_by_others(config):
        key = written.partition(":")[0]
        also = {"offload"} if key == "gradient_checkpointing" and policy == "full" else set()
        yield Said(key, written, frozenset({policy, *also}), policy)

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


def activations(config: "WholeConfig", given: frozenset[str]) -> Iterator[Finding]:
    """Contradictions. `speedups` wins over other keys where it asks for a policy, which is said; where it only forbids what
    another key asks for, nothing is left that both would have."""
    from dynotune.speedups.activation import asked_policy

    asked = asked_policy(config)
    if asked is None:
        return
    policy, winner = asked
    for one in said(config):
        if one.written == winner or policy in one.agrees:
            continue
        key = winner.partition(":")[0]
        if key == "speedups" and one.key != "speedups":
            yield idle(f"`{winner}` wins over `{one.written}`.", key, one.key)
        elif policy == "offload" and one.key == "gradient_checkpointing":
            yield idle(f"`{winner}` computes layers again, too, and so wins over `{one.written}`.", key, one.key)
        else:
            yield wrong(f"`{winner}` and `{one.written}` contradict each other. Keep one.", key, one.key)


def said(config: "WholeConfig") -> Iterator[Said]:
    """Of all keys that say something, by what they are set to."""
    from dynotune.speedups.activation import POLICIES, PREFIX

    every = frozenset(POLICIES)
    for name, setting in config.speedups.items():
        policy = name.removeprefix(PREFIX)
        if name.startswith(PREFIX) and policy in every and setting != "auto":
            only = frozenset({policy})
            yield Said("speedups", f"speedups: {{{name}: {setting}}}", only if setting == "on" else every - only)
    if config.activation_memory != "auto":
        written = f"activation_memory: {config.activation_memory}"
        yield Said("activation_memory", written, frozenset({config.activation_memory}))
    if config.activation_offloading:
        yield Said("activation_offloading", "activation_offloading: true", frozenset({"offload"}))
    if (again := config.gradient_checkpointing) is not None:
        agrees = frozenset({"full", "offload"} if again else {"none"})
        yield Said("gradient_checkpointing", f"gradient_checkpointing: {str(again).lower()}", agrees)

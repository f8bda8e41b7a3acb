"""How many tokens a micro-batch may hold: as asked, or as many as the memory that is left takes."""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from dynotune.plan.ladder import possible_rungs, round_down, round_up
from dynotune.plan.summary import DEFAULT_TOKENS

CPU_TOKENS = 2048
"""On the CPU there is nothing to keep busy, and caches are small."""

SPARED = 0.08
"""Of the free memory, left to the allocator's fragments and to kernels' workspaces."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """Tokens of the largest micro-batch, and why."""

    tokens: int
    why: str

    def why_of(self, top: int) -> str:
        """Why micro-batches hold up to `top` tokens, the top of the ladder that was made for this capacity."""
        return "no step of this run holds more" if top < round_down(self.tokens) else self.why


@dataclass(frozen=True, slots=True)
class Room:
    """The memory of a device before the first step, in bytes."""

    free: int
    """What is free once the weights are there."""

    needed: Callable[[int], int]
    """What a step takes beside the weights, from the tokens of its largest micro-batch: gradients, optimizer states,
    activations, logits. It grows with the tokens."""

    def tokens(self, most: int) -> int:
        """The largest rung up to `most` that fits; 0 where none does."""
        rungs = possible_rungs(round_down(most)).tolist()
        fitting = bisect_right(rungs, int(self.free * (1 - SPARED)), key=self.needed)
        return rungs[fitting - 1] if fitting else 0


def micro_batch_capacity(
    asked: int | Literal["auto"] | None, longest: int, device_type: str, room: Room | None = None
) -> Capacity:
    """`asked` is `micro_batch_tokens`; `longest` the tokens of the longest document, which is never cut; `room` that of a
    GPU, where it is known."""
    needed = round_up(longest)
    if asked not in (None, "auto"):
        assert isinstance(asked, int)
        if needed > asked:
            return Capacity(needed, f"more than the {asked:,} asked: the longest document has {longest:,} tokens")
        return Capacity(asked, "as asked")
    if device_type == "cpu":
        return Capacity(max(CPU_TOKENS, needed), "the default on the CPU")
    if room is None:
        return Capacity(max(DEFAULT_TOKENS, needed), "the default; memory was not looked at")
    fit = room.tokens(max(DEFAULT_TOKENS, needed))
    if needed > fit:
        return Capacity(
            needed,
            f"the longest document has {longest:,} tokens, and the memory is estimated to take {fit:,}: if it fails, set"
            " `gradient_checkpointing: true` or a smaller `max_length`",
        )
    why = "the default" if fit >= DEFAULT_TOKENS else "what the memory is estimated to take"
    return Capacity(fit, why)

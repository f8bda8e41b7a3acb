"""How many tokens a micro-batch may hold: as asked, or as many as the memory that is left takes."""

from dataclasses import dataclass
from typing import Literal

from dynotune.plan.ladder import round_down, round_up
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


def micro_batch_capacity(asked: int | Literal["auto"] | None, longest: int, device_type: str) -> Capacity:
    """Where memory is not looked at. `asked` is `micro_batch_tokens`; `longest` the tokens of the longest document, which is
    never cut."""
    needed = round_up(longest)
    if asked not in (None, "auto"):
        assert isinstance(asked, int)
        if needed > asked:
            whole = "the longest document, pair or sorted batch of pairs"
            return Capacity(needed, f"more than the {asked:,} asked: {whole} takes {longest:,}")
        return Capacity(asked, "as asked")
    if device_type == "cpu":
        return Capacity(max(CPU_TOKENS, needed), "the default on the CPU")
    return Capacity(max(DEFAULT_TOKENS, needed), "the default; memory was not looked at")

"""Made-up speed-ups, and what they are installed into: a list that says which stand, in their order."""

from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from typing import Any, cast

from dynotune.config.sft import SFTConfig
from dynotune.measure.evidence import Phase
from dynotune.speedups.choose import Decision, decide
from dynotune.speedups.contract import Context, Installation, Kind, No, Order, Setting, Speedup
from dynotune.speedups.expectation import Expectation, Expected
from dynotune.speedups.site import Site


class Toy(Speedup):
    """Stands in `standing` while it is installed."""

    summary = "A toy."

    def __init__(
        self,
        name: str,
        standing: list[str] | None = None,
        *,
        order: Order = Order.KERNELS,
        rank: int = 0,
        slot: str | None = None,
        requires: tuple[str, ...] = (),
        conflicts: tuple[str, ...] = (),
        kind: Kind = Kind.EXACT,
        asks: tuple[Setting, str] | None = None,
        no: No | None = None,
        fails: No | Exception | None = None,
        places: tuple[str, ...] = (),
        gains_with: str | None = None,
        never_beside: str = "",
    ) -> None:
        """no: why it is not applicable. fails: what its installation gives or raises. gains_with: a slot without which it
        gains nothing. never_beside: a toy that it fails to be put in beside."""
        own: Any = self  # what a declaration writes into its class
        own.name, own.order, own.slot, own.requires, own.conflicts, own.kind = (
            name,
            order,
            slot,
            requires,
            conflicts,
            kind,
        )
        own.default = "auto" if kind is Kind.EXACT else "off"
        self.standing: list[str] = standing if standing is not None else []
        self.gains_with, self.never_beside = gains_with, never_beside
        self.place, self.asks, self.no, self.fails, self.places = rank, asks, no, fails, places

    def asked(self, config: SFTConfig) -> tuple[Setting, str] | None:
        return self.asks

    def rank(self, context: Context) -> int:
        return self.place

    def worth(self, context: Context, slots: Collection[str]) -> No | None:
        return No(f"there is no {self.gains_with}") if self.gains_with and self.gains_with not in slots else None

    def applicable(self, context: Context) -> No | None:
        return self.no

    def install(self, site: Site) -> Installation | No:
        if isinstance(self.fails, Exception):
            raise self.fails
        if self.fails is not None:
            return self.fails
        if self.never_beside in self.standing:
            return No(f"{self.never_beside} is there", beside=self.never_beside)
        self.standing.append(self.name)

        def uninstall() -> None:
            # The last one in is the first one out: what was put on top of another must be lifted first.
            if self.name in self.standing:
                self.standing.remove(self.name)

        return Installation(uninstall, places=self.places)

    def expect(self, context: Context, installed: Installation) -> Sequence[Expectation]:
        return [Expected("toy", Phase.FORWARD, operators=("^toy$",), at=installed.places)]


NOWHERE = cast("Context", None)
"""Toys ask nothing of a context."""

A_SITE = Site(NOWHERE, nullcontext)


def decided(*toys: Speedup, refusal: Callable[[Speedup, Context], No | None] | None = None) -> list[Decision]:
    """Decisions on toys, by what they say is asked of them."""
    registry = {toy.name: toy for toy in sorted(toys, key=lambda toy: (toy.order, toy.name))}
    return decide(SFTConfig(), NOWHERE, registry, refusal or (lambda speedup, context: None))

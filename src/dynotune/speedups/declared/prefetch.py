"""The next micro-batches are laid out and sent while the device works on this one."""

from collections.abc import Sequence

from dynotune.measure.evidence import Evidence
from dynotune.speedups.contract import Context, Installation, No, Order, Scope, Speedup
from dynotune.speedups.expectation import Expectation, Holds
from dynotune.speedups.registry import register
from dynotune.speedups.site import Site


@register
class Prefetch(Speedup):
    name = "prefetch"
    summary = "Lays micro-batches out in a thread and copies them from pinned memory while the device works."
    touches = ("idle: data",)
    proof = "every micro-batch was begun ahead, in another thread."
    scope = Scope.STEP
    order = Order.STEP

    def applicable(self, context: Context) -> No | None:
        return None

    def install(self, site: Site) -> Installation | No:
        from dynotune.execution.feed import AHEAD

        site.ahead = AHEAD

        def uninstall() -> None:
            site.ahead = 0

        return Installation(uninstall)

    def expect(self, context: Context, installed: Installation) -> Sequence[Expectation]:
        def ahead(evidence: Evidence) -> bool | None:
            made: int | None = evidence.facts.get("made_ahead")  # of the step, however much of it was traced
            return None if made is None else made == evidence.facts.get("micro_batches", evidence.micro_batches)

        return [Holds("every micro-batch was begun before it was asked for, in another thread", ahead)]

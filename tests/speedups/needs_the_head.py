"""A speed-up that cannot be without the head of labelled rows, and a model whose head nobody uses."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from dynotune.execution.packed import PackedPath
from dynotune.speedups.contract import Context, Installation, No, Order, Speedup
from dynotune.speedups.expectation import Expectation, Holds
from dynotune.speedups.registry import register, unregister
from dynotune.speedups.site import Site


class NeedsTheHead(Speedup):
    """Runs wherever it stands."""

    name = "needs_the_head"
    summary = "A toy."
    order = Order.STEP
    requires = ("labelled_rows_head",)

    def applicable(self, context: Context) -> No | None:
        return None

    def install(self, site: Site) -> Installation | No:
        return Installation(lambda: None)

    def expect(self, context: Context, installed: Installation) -> Sequence[Expectation]:
        return [Holds("it stands", lambda evidence: True)]


@contextmanager
def needs_the_head() -> Iterator[None]:
    """Inside, the speed-up is in the registry."""
    register(NeedsTheHead)
    try:
        yield
    finally:
        unregister(NeedsTheHead.name)


def all_logits(self: PackedPath, batch: Any) -> Any:
    """The loss of a micro-batch without the head of labelled rows, whatever stands."""
    from dynotune.model.attention import hidden_states

    return self.loss_of_all_logits(hidden_states(self.model, batch), batch)


def a_head_that_nobody_uses(patch: pytest.MonkeyPatch) -> None:
    """A flag that nobody reads."""
    patch.setattr(PackedPath, "loss", all_logits)

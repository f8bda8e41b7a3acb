"""Ways to execute a step again: as it was, plainly, and with one speed-up at a time left out.

What can be left out for a moment stands in the model. For the others `examine` asks by itself: micro-batches are made one by
one here, so that `prefetch` is tried by making them ahead, and `step_graphs` by launching. `shared_prompt` lies in the plan
and is out of the way on the plain path only. `fused_optimizer` comes behind the loss and the gradients that a step is judged
by: what it could have spoiled are weights, which `spoiled` looks at.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from dynotune.execution.path import ExecutionPath
from dynotune.execution.paths import Paths
from dynotune.execution.side_by_side import SideBySidePath
from dynotune.speedups.choose import Decision
from dynotune.speedups.contract import Scope
from dynotune.speedups.installed import Installed

if TYPE_CHECKING:
    from transformers import PreTrainedModel


AS_EXECUTED = "as executed"


@dataclass(frozen=True, slots=True)
class Way:
    """One way to execute micro-batches."""

    name: str
    path: ExecutionPath
    """Lays documents out."""

    loss: Callable[[Any], Tensor]
    around: Callable[[], AbstractContextManager[Any]]
    """What forward and backward run in."""

    autocast: Callable[[], Any]


@dataclass(slots=True)
class Ways:
    """Those of one run."""

    model: "PreTrainedModel"
    paths: Paths
    path: ExecutionPath
    installed: Installed
    plain_autocast: Callable[[], Any]

    def as_executed(self) -> Way:
        return Way(AS_EXECUTED, self.path, self._loss, self.path.engaged, self._autocast)

    def launched(self) -> Way:
        """As executed, but for layers that are replayed."""

        @contextmanager
        def around() -> Iterator[None]:
            with self.installed.site.one_by_one(), self.path.engaged():
                yield

        return Way(f"{AS_EXECUTED}, launched", self.path, self._loss, around, self._autocast)

    @property
    def replays(self) -> bool:
        """Whether layers are replayed where nobody watches their modules."""
        return self.installed.site.layers is not None

    def plain(self) -> Way:
        """Stock transformers, one document at a time."""
        plain = self.paths.plain(self.model)

        @contextmanager
        def around() -> Iterator[None]:
            with ExitStack() as out:
                for one in self._reversible():
                    out.enter_context(self.installed.without(one))
                yield

        return Way("the plain path", plain, lambda batch: plain.loss(batch)[0], around, self.plain_autocast)

    def without_one(self) -> Iterator[Way]:
        """As executed, but for one speed-up, by whose name the way goes."""
        for one in self._reversible():
            yield self._without(one)
        if isinstance(self.path, SideBySidePath):
            yield Way("packed_execution", self.path, self.path.loss_one_by_one, nullcontext, self._autocast)

    def _reversible(self) -> list[Decision]:
        """What stands in the model and can be taken out for a moment."""
        found = [(one, one.installed) for one in self.installed if one.speedup.scope is Scope.MODEL]
        return [one for one, there in found if there is not None and (there.forwards or there.without)]

    def _without(self, one: Decision) -> Way:
        @contextmanager
        def around() -> Iterator[None]:
            with self.installed.without(one), self.path.engaged():
                yield

        return Way(one.name, self.path, self._loss, around, self.plain_autocast)

    def _loss(self, batch: Any) -> Tensor:
        return self.path.loss(batch)[0]

    def _autocast(self) -> AbstractContextManager[Any]:
        return self.installed.site.autocast()

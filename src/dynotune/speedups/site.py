"""What speed-ups install themselves into: a model, and how its steps are executed."""

from collections.abc import Callable, Hashable, Iterator, MutableMapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from dynotune.measure.signs.record import Sign
from dynotune.speedups.contract import Context

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

    from dynotune.model.head import Head

Found = TypeVar("Found")


@dataclass
class Site:
    """What nobody sets stays as the plain path has it."""

    context: Context
    autocast: Callable[[], AbstractContextManager[Any]]
    """The context of a forward pass. Whoever makes it unnecessary replaces it."""

    attention: str = "reference"
    """Backend of packed attention, by its name in `dynotune.model.attention.backends`."""

    head: "Head | None" = None
    """The model's head as packed execution needs it."""

    labelled_rows: bool = False
    """Whether only label tokens meet the head."""

    packed: bool = False
    """Whether documents of a step lie side by side."""

    shared_beginnings: bool = False
    """Whether documents that begin alike lie there with their beginning once."""

    ahead: int = 0
    """Micro-batches that are made and sent while one is worked on."""

    fused_update: bool = False
    """Whether the optimizer's update is one kernel over many tensors."""

    layers: "Callable[[PreTrainedModel, Any], torch.Tensor] | None" = None
    """What runs a packed micro-batch through the layers in the place of `dynotune.model.attention.hidden_states`."""

    launched: bool = False
    """Whether layers must be launched one by one: their kernels are to be seen at their modules, or something is out."""

    changes: int = 0
    """How often something was put in or taken out. Whoever has recorded what the layers do begins again when it grows."""

    says: list[str] = field(default_factory=list)

    tell: Callable[[Sign], None] = lambda sign: None
    """Told of what goes wrong while the run goes on. A run says the first of each name at once."""

    beneath: tuple[Hashable, ...] = ()
    """What stands in the model at present, in the order in which it was put in: names and places."""

    examined: MutableMapping[Hashable, Any] = field(default_factory=dict)
    """What was found by trying this model out, by all that it depends on (`once`). Of one process and one model."""

    def once(self, what: Hashable, examine: Callable[[], Found]) -> Found:
        """What `examine` gives. It is not asked again while the same stands in the same model, under a configuration that
        differs in `speedups:` at most: a process in which arms of a bench take turns puts the same in dozens of times.

        What weights are must not matter to it: they are trained meanwhile.
        """
        context = self.context
        state = self.beneath, self.attention, self.shared_beginnings, self.packed, self.labelled_rows, self.launched
        key = what, state, str(context.compute), context.longest, context.live, self._settings
        if key not in self.examined:
            self.examined[key] = examine()
        found: Found = self.examined[key]
        return found

    @cached_property
    def _settings(self) -> str:
        """The configuration, but for which speed-ups it asks for: who stands is in `beneath`."""
        kept = self.context.config.public_dict()
        return repr(sorted((key, repr(value)) for key, value in kept.items() if key != "speedups"))

    @contextmanager
    def one_by_one(self) -> Iterator[None]:
        """Inside, layers are `launched`."""
        before, self.launched = self.launched, True
        try:
            yield
        finally:
            self.launched = before

    @property
    def model(self) -> "PreTrainedModel":
        return self.context.model

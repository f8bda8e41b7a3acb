"""The share of activations that compiled code may keep: PyTorch's own setting, and whether its partitioner read it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch._functorch.config as functorch
from torch._functorch import partitioners

_CHOOSES = "choose_saved_values_set"
"""The function of the partitioner that the share is given to."""


@dataclass(slots=True)
class Budget:
    """The setting, until `uninstall`. It holds for what is compiled meanwhile."""

    share: float
    read: list[float] = field(default_factory=list)
    """Shares that the partitioner was given since: one for each graph that was not taken from a cache."""

    _undo: list[Callable[[], None]] = field(default_factory=list)

    def uninstall(self) -> None:
        """Twice is once. What was compiled stays as it is."""
        while self._undo:
            self._undo.pop()()


def set_budget(share: float) -> Budget:
    """Set it for this process."""
    budget, before = Budget(share), functorch.activation_memory_budget
    functorch.activation_memory_budget = share
    budget._undo.append(lambda: setattr(functorch, "activation_memory_budget", before))
    own: Any = getattr(partitioners, _CHOOSES, None)
    if own is not None:

        def noted(*args: Any, **kwargs: Any) -> Any:
            given = kwargs.get("memory_budget", args[2] if len(args) > 2 else None)
            if given is not None:
                budget.read.append(float(given))
            return own(*args, **kwargs)

        setattr(partitioners, _CHOOSES, noted)
        budget._undo.append(lambda: setattr(partitioners, _CHOOSES, own))
    return budget

"""The share of activations that compiled code may keep: PyTorch's own setting, and whether its partitioner read it.

What comes from the compile cache is not partitioned again. The share is part of the cache's key, so it was partitioned under
the same one; that the partitioner is given it at all is noted in the cache's folder when it is seen, for runs that compile
nothing.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch._functorch.config as functorch
from torch._functorch import partitioners

from dynotune.model.compiled.cache import VARIABLE

_CHOOSES = "choose_saved_values_set"
"""The function of the partitioner that the share is given to."""


@dataclass(slots=True)
class Budget:
    """The setting, until `uninstall`. It holds for what is compiled meanwhile."""

    share: float
    read: list[float] = field(default_factory=list)
    """Shares that the partitioner was given since: one for each graph that was not taken from a cache."""

    _undo: list[Callable[[], None]] = field(default_factory=list)

    def is_read(self) -> bool | None:
        """Whether the partitioner was given this share and no other, in this process or when what the cache holds was
        compiled; None where neither is known."""
        note = self._note
        if not self.read:
            return True if note is not None and note.exists() else None
        right = all(share == self.share for share in self.read)
        if right and note is not None:
            with suppress(OSError):  # a cache that is only read: whoever fills it notes it
                note.touch()
        return right

    @property
    def _note(self) -> Path | None:
        """In the folder that PyTorch's compiler keeps its results in; None where that is not set."""
        folder = os.environ.get(VARIABLE)
        return Path(folder) / f"activation-budget-{self.share:g}-torch-{torch.__version__}" if folder else None

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

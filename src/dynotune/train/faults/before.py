"""Memory that runs out before the first step: while the model is loaded, tried out, or its own reference."""

from types import TracebackType

import torch

from dynotune.config.whole import WholeConfig
from dynotune.errors import ModelError
from dynotune.plan.plan import Plan
from dynotune.train.faults.explain import Explainer, Where
from dynotune.train.faults.shortage import shortage_of


class out_of_memory_explained:  # noqa: N801  (reads as a statement)
    """Inside, an out-of-memory error becomes a `ModelError` that says what to change."""

    def __init__(self, phase: str, config: WholeConfig, device: torch.device, plan: Plan | None = None) -> None:
        """plan: as the run is laid out, where it is already."""
        self.phase, self.explainer, self.plan = phase, Explainer(config, device), plan

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        cause = error
        while cause is not None:  # loading wraps what libraries raise
            if (shortage := shortage_of(cause)) is not None:
                lines = self.explainer.lines(shortage, Where(self.phase), self.plan)
                raise ModelError("\n".join(lines)) from error
            cause = cause.__cause__

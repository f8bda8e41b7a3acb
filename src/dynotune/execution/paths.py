"""The two paths that a run may take, packed and plain, for what its micro-batches are made of."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from dynotune.execution.in_step import ReferenceInStep
from dynotune.execution.packed import PackedPath
from dynotune.execution.pairs import PairsPath
from dynotune.execution.path import ExecutionPath
from dynotune.execution.plain import PlainPath
from dynotune.execution.plain_pairs import PlainPairsPath
from dynotune.execution.side_by_side import SideBySidePath
from dynotune.model.aside import Aside
from dynotune.objectives.preference.objective import PreferenceObjective
from dynotune.objectives.sft import Objective

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from dynotune.speedups.site import Site


class Paths(Protocol):
    """Makes the paths of one objective. Both give the same loss, gradient and sums."""

    def packed(self, site: "Site", asides: Mapping[str, Aside] | None = None) -> SideBySidePath:
        """Side by side, as speed-ups have put it into `site`. To be closed."""
        ...

    def plain(self, model: "PreTrainedModel") -> ExecutionPath:
        """One sequence at a time, stock transformers forward."""
        ...


class DocumentPaths:
    """Of documents."""

    def __init__(self, objective: Objective) -> None:
        self.objective = objective

    def packed(self, site: "Site", asides: Mapping[str, Aside] | None = None) -> PackedPath:
        return PackedPath(site, self.objective, asides)

    def plain(self, model: "PreTrainedModel") -> PlainPath:
        return PlainPath(model, self.objective)


class PairPaths:
    """Of preference pairs."""

    def __init__(self, objective: PreferenceObjective) -> None:
        self.objective, self.in_step = objective, ReferenceInStep()

    def packed(self, site: "Site", asides: Mapping[str, Aside] | None = None) -> PairsPath:
        return PairsPath(site, self.objective, asides, self.in_step)

    def plain(self, model: "PreTrainedModel") -> PlainPairsPath:
        return PlainPairsPath(model, self.objective, self.in_step)

"""Promise: a run says how often kernels stepped aside in its own passes, and why where that is known; of a reference's
passes, which have no adapter, nothing is told."""

from collections import Counter
from typing import Any

from dynotune.execution.side_by_side import SideBySidePath
from dynotune.model.aside import Aside


class Path(SideBySidePath):
    """Without a model."""

    made_up = loss_one_by_one = loss = loss_alone = None  # type: ignore[assignment]

    def __init__(self, **asides: Aside) -> None:
        self.asides, self.left = asides, Counter[str]()


Path.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]


def test_reasons_are_said_and_those_of_a_reference_are_not() -> None:
    known, unknown = Aside(), Aside()
    path: Any = Path(adapters=known, others=unknown)
    with path.uncounted():
        known.because("down is no plain LoRA linear now")
        unknown.calls += 1
    assert (known.calls, unknown.calls, known.whys) == (0, 0, Counter())
    assert path.notes() == []
    known.because("a hook sees its linears")
    unknown.calls += 1
    path.left.update(adapters=known.calls, others=unknown.calls)
    first, second = path.notes()
    assert first.startswith("note: adapters: 1 calls")
    assert first.endswith("slower), because a hook sees its linears")
    assert second.endswith("for adapters, dtypes, hooks or arguments that the kernels were not made for")

"""A run whose ranks see different things of themselves."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from dynotune.execution.feed import Documents
from dynotune.measure import clock
from dynotune.measure.signs import record as limits
from dynotune.measure.signs import steps as signs
from dynotune.train import meter
from dynotune.train.telling.notices import Notices
from tests.parallel import work
from tests.told_time import told_time

STEPS, SLOW = 40, 0.1
CARRIED = 60.0
"""Seconds within which notices have come to the first rank: they take half a second twice, and a busy host longer."""


def slow_loader(folder: Path, victims: tuple[int, ...]) -> None:
    """The loader of `victims` is told to take a tenth of a second for each micro-batch."""
    at: Any = Documents.at

    def slowly(self: Documents, rows: Any) -> Any:
        told.sleep(SLOW if work.rank() in victims else 0.0)
        return at(self, rows)

    row: Any = Notices.row

    def late(self: Notices, content: Mapping[str, Any]) -> Any:
        """Nobody waits for notices: a run of told seconds would be over before they have come."""
        deadline = time.monotonic() + CARRIED
        while self.ranks.is_first and not any("figures" in left for left in self.ranks.left().values()):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return row(self, content)

    with pytest.MonkeyPatch.context() as patch:
        told = told_time(patch, clock, meter)  # a busy host makes everybody's loader slow
        patch.setattr(Notices, "row", late)
        patch.setattr(Documents, "at", slowly)
        for module in (limits, signs):
            patch.setattr(module, "LEAST_SECONDS", 0.5)
        work.train(
            folder / "run", console=Console(width=300), max_steps=STEPS, eval_strategy="no", logging_steps=2,
            speedups={"prefetch": "off"},
        )  # fmt: skip

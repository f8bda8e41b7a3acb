"""A profile of our own run on several ranks, one of which has a slow loader."""

import os
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from dynotune.config.sft import SFTConfig
from dynotune.execution.feed import Feed
from dynotune.profile.observing.own import Asked, observe
from dynotune.profile.records.record_file import write_record
from tests.parallel import work

SLOW = 0.2
"""Seconds for which the slow loader sleeps, besides three times as long as the rest of the step before took: on a busy host
the other rank may be slow too."""


def profiled(folder: Path, settings: dict[str, Any], victim: int) -> None:
    os.environ["DYNOTUNE_CACHE"] = str(folder / "cache")
    make = Feed._make
    made_at: list[float] = []

    def slowly(self: Feed, batch: Any) -> Any:
        if work.rank() == victim:
            time.sleep(SLOW + (3 * min(5.0, time.perf_counter() - made_at[-1]) if made_at else 0.0))
        made = make(self, batch)
        made_at.append(time.perf_counter())
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Feed, "_make", slowly)
        record = observe(SFTConfig(**settings), Asked(4, warm_up=3), Console(quiet=True))
    if work.rank() == 0:
        write_record(record, folder / "record.json.gz")

"""A profile of our own run on several ranks, one of which has a slow loader."""

import os
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from dynotune.config.sft import SFTConfig
from dynotune.execution.feed import Feed
from dynotune.profile.own import Asked, observe
from dynotune.profile.record_file import write_record
from tests.parallel import work

SLOW = 0.2


def profiled(folder: Path, settings: dict[str, Any], victim: int) -> None:
    os.environ["DYNOTUNE_CACHE"] = str(folder / "cache")
    make = Feed._make

    def slowly(self: Feed, batch: Any) -> Any:
        time.sleep(SLOW if work.rank() == victim else 0.0)
        return make(self, batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Feed, "_make", slowly)
        record = observe(SFTConfig(**settings), Asked(4, warm_up=3), Console(quiet=True))
    if work.rank() == 0:
        write_record(record, folder / "record.json.gz")

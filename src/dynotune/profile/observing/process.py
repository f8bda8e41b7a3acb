"""One of several processes profiled together: `python -m dynotune.profile.observing.process CONFIG METHOD ASKED RECORD`.

The first one writes what was observed to RECORD.
"""

import json
import sys
from pathlib import Path

from rich.console import Console

from dynotune.config.load import load_config
from dynotune.config.whole import METHODS
from dynotune.errors import DynotuneError
from dynotune.parallel.join import place
from dynotune.profile.observing.own import Asked, observe
from dynotune.profile.records.record_file import write_record


def main() -> int:
    path, method, asked, record = sys.argv[1:5]
    config = load_config(Path(path), into=METHODS[method])
    told = json.loads(asked)
    snapshot = Path(told["snapshot"]) if told["snapshot"] else None
    console = Console(stderr=True)
    try:
        found = observe(
            config, Asked(told["steps"], told["measuring"], snapshot, told["anew"], told["warm_up"]), console
        )
    except DynotuneError as error:
        console.print(f"error: {error}", markup=False, highlight=False, soft_wrap=True)
        return 2
    if place(config).is_first:
        write_record(found, Path(record))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Where Dynotune keeps what outlives a run: token stores, and what is remembered of machines."""

import os
from pathlib import Path

VARIABLE = "DYNOTUNE_CACHE"


def cache_folder() -> Path:
    """`$DYNOTUNE_CACHE`, else `dynotune` in the user's cache folder (`$XDG_CACHE_HOME`, by default `~/.cache`)."""
    if given := os.environ.get(VARIABLE):
        return Path(given).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The specification has relative paths ignored.
    root = Path(base) if Path(base).is_absolute() else Path("~/.cache").expanduser()
    return root / "dynotune"

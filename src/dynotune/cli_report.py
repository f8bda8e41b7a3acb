"""`dynotune report`."""

import sys
from pathlib import Path

from dynotune.printable import printable


def report(*sources: str, output: Path | None = None) -> None:
    """Write runs and results of benches as one page of HTML, which needs nothing else and can be sent to anybody.

    Parameters
    ----------
    sources
        Run folders, files of results, or their names in the history; several stand side by side.
    output
        The file. Default: `report.html` in the run folder, or beside the result.
    """
    from dynotune.pages import report as write

    path = write(sources, output)
    sys.stdout.write(f"written: {printable(str(path))}\n")

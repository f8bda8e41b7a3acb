"""A progress line while data is read, on a terminal only."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_BETWEEN = 0.1
"""Seconds from one drawing of the line to the next."""


@contextmanager
def loading_progress(title: str, show: bool) -> Iterator[Callable[[int], None]]:
    """Yields a function that takes a number of rows read. The line disappears when all are."""
    if not show:
        yield lambda rows: None  # rich is not imported for nothing
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda rows: None
        return
    shown = 0.0
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TextColumn("{task.completed:,} rows"))
    # Without a thread that draws it: a process that has threads cannot be copied (`workers/copy.py`).
    bar = Progress(*columns, TimeElapsedColumn(), console=console, transient=True, auto_refresh=False)
    with bar as progress:
        task = progress.add_task(title, total=None)

        def advance(rows: int) -> None:
            nonlocal shown
            progress.advance(task, rows)
            if (now := time.monotonic()) - shown > _BETWEEN:
                shown = now
                progress.refresh()

        yield advance

"""What a person sees while the reference is computed: a bar on a terminal, elsewhere a line now and then."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

PATIENCE = 3.0
"""Seconds that pass in silence."""

BETWEEN = 60.0
"""Seconds between two lines."""


@contextmanager
def scoring_progress(console: Console, say: Callable[[str], None], off: bool) -> Iterator[Callable[[int, int], None]]:
    """Yields what is told the tokens that are scored, and of how many. off: no bar, lines only."""
    began = said = time.monotonic()
    bar: Progress | None = None

    def tell(done: int, of: int) -> None:
        nonlocal bar, said
        now = time.monotonic()
        if console.is_terminal and not off:
            if bar is None and now - began > PATIENCE and done < of:
                columns = TextColumn("reference"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn()
                left = TextColumn("left"), TimeRemainingColumn()
                bar = Progress(*columns, *left, console=console, transient=True)
                bar.add_task("reference", total=of)
                bar.start()
            if bar is not None:
                bar.update(bar.task_ids[0], completed=done)
        elif now - said > BETWEEN and done < of:
            said = now
            left_seconds = (now - began) * (of - done) / max(1, done)
            say(f"reference: {done:,} of {of:,} tokens are scored; about {left_seconds:,.0f} s are left")

    try:
        yield tell
    finally:
        if bar is not None:
            bar.stop()

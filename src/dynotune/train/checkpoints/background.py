"""One piece of work at a time in a thread, whose failure is raised where training next looks."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor


class Background:
    """A failure is raised once, by `check` or `wait`; until then nothing else is begun."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._work: Future[None] | None = None

    @property
    def busy(self) -> bool:
        return self._work is not None and not self._work.done()

    def begin(self, work: Callable[[], None]) -> None:
        """Do `work` beside training. What was begun before must have been waited for."""
        assert self._work is None
        self._pool = self._pool or ThreadPoolExecutor(1, thread_name_prefix="dynotune-checkpoint")
        self._work = self._pool.submit(work)

    def check(self) -> None:
        """Raise what the work raised, if it has ended."""
        if self._work is not None and self._work.done():
            self.wait()

    def wait(self) -> None:
        """Wait for the work; raise what it raised."""
        if self._work is not None:
            work, self._work = self._work, None
            work.result()

    def settle(self) -> None:
        """Wait for the work and keep what it raised for whoever looks next."""
        if self._work is not None:
            self._work.exception()

    def close(self) -> BaseException | None:
        """Wait, end the thread, and return what the work raised and nobody has seen."""
        failure = self._work.exception() if self._work is not None else None
        self._work = None
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
        return failure

"""A bench that is cut off leaves what it has: whoever lends a GPU takes it back at a moment of their own."""

from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dynotune.results.history import write_result
from dynotune.results.result import Result
from dynotune.train.outside.signals import StoppedError, number_of

FEWEST = 2
"""Rounds behind which there is something to keep: one pair has no interval."""

CUT_OFF = "CUT OFF: these are the first {} rounds; the bench did not end."
"""What a reader of such a result is told; programs know it by `Result.cut_off`."""


class SoFar:
    """Called behind each round, it writes `bench.json` into `folder` anew, with a note that this is no end. It goes into no
    history. As a context it says, where a signal ends the bench, what is kept.
    """

    def __init__(self, result: Callable[..., Result], folder: Path, say: Callable[[str], None]) -> None:
        """result: of what was found, and of notes."""
        self.path = folder / "bench.json"
        self.rounds = 0
        """That the file holds."""

        self._result = result
        self._say = say

    def __call__(self, found: Any, done: int) -> None:
        if done < FEWEST:
            return
        try:
            so_far = self._result(found, CUT_OFF.format(done)).model_copy(update={"cut_off": True})
            write_result(so_far, self.path)
        except OSError as error:  # it is no reason to end what is measured
            self._say(f"{self.path} cannot be written: {error.strerror or error}")
        else:
            self.rounds = done

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if isinstance(error, KeyboardInterrupt) and self.rounds:
            raise StoppedError(number_of(error), f"the first {self.rounds} rounds are in {self.path}") from error
